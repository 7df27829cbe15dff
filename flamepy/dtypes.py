"""The element types: which there are, which are computed in which, and what Python and NumPy data mean; whether an argument is a number.

float32 and float64 are computed as they are, 16-bit floats are stored in 16 bits and computed in float32.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .core.dtypes import DTYPES as DTYPES
from .core.dtypes import FLOATS as FLOATS
from .core.dtypes import FULL as FULL
from .core.dtypes import INTEGERS as INTEGERS
from .core.dtypes import as_dtype as as_dtype
from .core.dtypes import bool_ as bool_
from .core.dtypes import check_cast as check_cast
from .core.dtypes import checked_number as checked_number
from .core.dtypes import computed as computed
from .core.dtypes import float32 as float32
from .core.dtypes import float64 as float64
from .core.dtypes import int8 as int8
from .core.dtypes import int16 as int16
from .core.dtypes import int32 as int32
from .core.dtypes import int64 as int64
from .core.dtypes import is_count as is_count
from .core.dtypes import is_number as is_number
from .core.dtypes import join
from .core.dtypes import uint8 as uint8
from .core.dtypes import uint16 as uint16
from .core.dtypes import uint32 as uint32
from .core.dtypes import uint64 as uint64
from .core.errors import DTypeError, StateError

float16 = np.dtype("float16")
bfloat16 = np.dtype(ml_dtypes.bfloat16)
HALF = frozenset((float16, bfloat16))  # stored in 16 bits, computed in float32
for _stored in HALF:
    join(_stored, float32)


def of_torch(value: Any) -> bool:
    """Whether it is an object of PyTorch's, which is not imported to find out."""
    return any([cls.__module__.partition(".")[0] == "torch" for cls in type(value).__mro__])


def is_torch_tensor(value: Any) -> bool:
    return hasattr(value, "numpy") and of_torch(value)


def is_array(value: Any) -> bool:
    """Whether it is an array of NumPy's or a tensor of PyTorch's: what becomes a tensor here."""
    return isinstance(value, np.ndarray) or is_torch_tensor(value)


def torch_array(t: Any) -> np.ndarray:
    """The numbers of a PyTorch tensor: those of one that requires grad, or is on another device, too."""
    try:
        if str(t.dtype) == "torch.bfloat16":  # NumPy has none: float32 holds every one exactly
            return t.float().numpy(force=True).astype(bfloat16)  # type: ignore[no-any-return]
        return t.numpy(force=True)  # type: ignore[no-any-return]
    except (TypeError, RuntimeError) as problem:
        convert = ".to(torch.float32)" if str(t.layout) == "torch.strided" else ".to_dense()"
        raise DTypeError(f"tensor: PyTorch gives no array: {t.dtype}, {t.layout}. Convert it with {convert}.") from problem


def checked_int(name: str, what: str, value: Any) -> int:
    """One whole number as an int. Raises DTypeError for what is none, a float or bool too."""
    if type(value) is not int:
        if not is_number(value) or not hasattr(value, "__index__"):
            raise DTypeError(f"{name}: {what} is no whole number: {value!r}. Use an int.")
        value = value.__index__()
    return value  # type: ignore[no-any-return]


def check_function(name: str, what: str, fn: Any) -> None:
    """Raise DTypeError for what cannot be called."""
    if not callable(fn):
        raise DTypeError(f"{name}: {what} is no function: {fn!r}. Pass a function.")


def checked_steps(name: str, what: str, n: Any) -> int:
    """A number of steps. Raises ValueError for what is no int, or below 1."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"{name}: {what} must be a number of steps: {n!r}. Use 1 or more.")
    return n


def checked_dict(name: str, given: Any) -> Any:
    """`given` itself. Raises StateError where it is no dict."""
    if not hasattr(given, "items"):
        raise StateError(f"{name}: not a dict: {type(given).__name__}. Pass one by names, such as state_dict() gives.")
    return given


def digest_of(array: np.ndarray) -> bytes:
    """Of data that Python made: whether it is the same at the next call."""
    import hashlib  # loads OpenSSL, which few programs need

    return hashlib.sha1(np.ascontiguousarray(array).tobytes()).digest()
