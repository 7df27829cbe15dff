"""The element types that core computes in. Types that are stored in fewer bits join from above, with what they are computed in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from .errors import DTypeError

float32 = np.dtype("float32")
float64 = np.dtype("float64")
int8, int16, int32, int64 = [np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)]
uint8, uint16, uint32, uint64 = [np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)]
bool_ = np.dtype("bool")

FULL = frozenset((float32, float64))  # computed as they are
FLOATS: set[Any] = set(FULL)  # what can have a gradient
INTEGERS = frozenset((int8, int16, int32, int64, uint8, uint16, uint32, uint64))
DTYPES: set[Any] = FLOATS | INTEGERS | {bool_}
# Arguments that NaN would make nonsense of in silence.
NUMBERS = {
    "alpha", "atol", "base", "beta", "correction", "eps", "gamma", "init", "k", "layer_norm_eps", "margin", "momentum", "norm_type", "p",
    "rtol", "scale", "smooth", "softcap", "z_loss",
}  # fmt: skip
STORED: dict[np.dtype, np.dtype] = {}  # of stored types: what they are computed in


def computed(dtype: np.dtype) -> np.dtype:
    """The type that numbers of this one are computed in."""
    return STORED.get(dtype, dtype)


def join(stored: np.dtype, wide: np.dtype) -> None:
    """Take a type of floats that is stored as it is and computed in a wider one."""
    FLOATS.add(stored)
    DTYPES.add(stored)
    STORED[stored] = wide


def is_number(value: Any) -> bool:
    """Whether it is one number: Python's, NumPy's, a tensor without axes; no bool, no text."""
    return hasattr(value, "__float__") and not isinstance(value, bool | str | type) and getattr(value, "shape", ()) == ()


def checked_number(name: str, what: str, value: Any) -> float:
    """One number as a float. Raises DTypeError for what is none, ValueError for NaN as one of NUMBERS."""
    if type(value) is not float:
        if not is_number(value):
            raise DTypeError(f"{name}: {what} is no number: {value!r}. Use a float.")
        value = float(value)
    if value != value and what in NUMBERS:
        raise ValueError(f"{name}: {what} is no number: {value!r}. Use a finite float.")
    return value  # type: ignore[no-any-return]


def check_flag(name: str, what: str, value: Any) -> None:
    """Raise DTypeError for what is neither True nor False; 0 and 1 will do."""
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise DTypeError(f"{name}: {what} is no yes or no: {value!r}. Use True or False.")


def check_cast(dtype: np.dtype, wanted: np.dtype) -> None:
    """Raise DTypeError for what NumPy's cast would make numbers of in silence: complex numbers, text, times, objects."""
    if dtype.kind not in "fiub" and dtype not in DTYPES:
        raise DTypeError(f"tensor: not cast to {wanted}: {dtype}. Pass real numbers.")


def as_dtype(dtype: Any, wrong: str = "", others: Sequence[str] = ()) -> np.dtype:
    """A supported dtype from whatever NumPy takes for one, or another library's of that name. Raises DTypeError, which says what is
    `wrong` ({}: the dtype) and what `others` there are."""
    if isinstance(dtype, np.dtype) and dtype in DTYPES:  # sooner
        return dtype
    found: Any = None
    for name in (dtype, str(dtype).rpartition(".")[2]) if dtype is not None else ("None",):  # NumPy takes None for float64
        with suppress(TypeError, ValueError):
            found = np.dtype(name)
            break
    if found not in DTYPES:
        known = ", ".join([*sorted(map(str, DTYPES)), *others])
        raise DTypeError(f"{wrong.format(dtype) or f'dtype: not supported: {name}'}. Use one of {known}.")
    return found  # type: ignore[no-any-return]


def is_count(value: Any, least: int = 0) -> bool:
    """Whether it is an integer that is at least so large."""
    return is_number(value) and hasattr(value, "__index__") and value >= least
