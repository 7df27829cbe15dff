"""Python's numbers as kernels take them: scalars of a type, made once and kept.

A kernel sees a number rounded to its type, so two numbers may look like one to it (`time.time()` in float32 is the same for two
minutes). Who has to tell them apart hears of each that is rounded.
"""

from __future__ import annotations

from math import copysign
from typing import Any

import numpy as np

from .changes import Topic

MOST = 8192  # numbers that are kept
NUMBERS: dict[tuple[np.dtype, Any], Any] = {}
rounded = Topic()  # (value, scalar): a number was rounded


def number(value: Any, dtype: np.dtype) -> Any:
    """A number as kernels take it, a scalar of `dtype`. NumPy needs 200 ns to make one, so they are kept."""
    if value == 0 and copysign(1, value) < 0:  # -0.0, which as a key equals 0.0
        return dtype.type(value)
    scalar = NUMBERS.get((dtype, value))
    if scalar is None:
        scalar = dtype.type(value)
        if rounded:  # nothing is kept meanwhile, so that who listens hears of every number
            rounded(value, scalar)
        else:
            if len(NUMBERS) >= MOST:
                NUMBERS.clear()
            NUMBERS[dtype, value] = scalar
    return scalar
