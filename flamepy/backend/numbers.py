"""Python's numbers as kernels take them: scalars of a type, made once and kept.

A kernel sees a number rounded to its type, so two numbers that a captured step was called with may look like one (`time.time()` in
float32 is the same for two minutes). Who records a step is therefore told of each number before it is rounded.
"""

from __future__ import annotations

import hashlib
from math import copysign
from typing import Any

import numpy as np

from ..core.changes import Topic, seen

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


def say_exact(data: np.ndarray) -> None:
    """The same for data that Python made: what it is before it takes its tensor's type."""
    seen(None, f"data of shape {data.shape}", lambda: hashlib.sha1(np.ascontiguousarray(data).tobytes()).hexdigest())


def number_kind(x: Any) -> type:
    """How a number takes part in a plan's key: its value does not."""
    return bool if isinstance(x, bool | np.bool_) else int if isinstance(x, int | np.integer) else float
