"""How the numbers of a buffer lie in its NumPy array: 16-bit floats as integers, for which NumPy and Numba have fast ways."""

from __future__ import annotations

import numpy as np

from ....dtypes import bfloat16, float16

WHOLE = np.dtype("int16")  # what kernels are bound for that move 16-bit floats without looking at them
STORED = {bfloat16: np.dtype("uint16"), float16: WHOLE}


def stored(dtype: np.dtype) -> np.dtype:
    """The type of the array of a buffer of this dtype."""
    return STORED.get(dtype, dtype)
