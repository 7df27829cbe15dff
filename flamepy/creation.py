"""Making tensors beside core/creation.py: arange, linspace, eye, rand, what DLPack gives, and the `_like` forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .core import creation as core
from .core import methods
from .core.changes import heard
from .core.creation import random_tensor, shape_of
from .core.device import device as device_of
from .core.errors import DeviceError, DTypeError, NumberTooLarge, ShapeError
from .core.methods import uploaded
from .dtypes import FLOATS, INTEGERS, as_dtype, checked_int, checked_number, float32, is_count
from .engine.routes import routed
from .tensors import Tensor, tensor, typed_array

full, zeros, ones = routed(core.full), routed(core.zeros), routed(core.ones)
full_like = routed(methods.full_like)
randn, uniform = routed(core.randn), routed(core.uniform)


@routed
def zeros_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Zeros of x's shape, device and dtype, or of another dtype."""
    return full_like(x, 0, dtype)


@routed
def ones_like(x: Tensor, dtype: Any = None) -> Tensor:
    """Ones of x's shape, device and dtype, or of another dtype."""
    return full_like(x, 1, dtype)


def pinned(data: Any, dtype: Any = None) -> np.ndarray:
    """A read-only NumPy array with a copy of `data` in page-locked memory, from which tensor() copies to a GPU without waiting for it.

    For batches: call it where they are made, such as a loader's thread, and give the result to `fp.tensor(batch, device="cuda")`, which
    returns at once; the host may go on while the GPU copies. Nothing can be overwritten meanwhile: `data` may, since this is a copy of
    it; the array cannot, as it is read-only (assigning to it is NumPy's ValueError); and its memory is lent again only when the array is
    gone *and* every copy from it has ended. So pin each batch anew: after the first few it takes no new memory, only the time to copy.
    It has the type that fp.tensor() would give the data. Where there is no GPU it is an ordinary read-only array, so that a loader runs
    anywhere. In a process of its own a loader should not call this (it would open the GPU there). Raises what fp.tensor() raises, and
    DeviceError where the system has no more memory to lock.

    >>> batch = np.arange(6.0, dtype="float32").reshape(2, 3)
    >>> x = pinned(batch)
    >>> batch[:] = 0
    >>> tensor(x).tolist()
    [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    >>> x.flags.writeable
    False
    """
    heard(None, (data,), None)
    array = typed_array(data, None if dtype is None else as_dtype(dtype))
    as_dtype(array.dtype, "pinned: not supported: {}")
    try:
        gpu = device_of("cuda")
    except DeviceError:
        gpu = device_of("cpu")
    return gpu.locked(array)  # type: ignore[no-any-return]


@routed
def arange(start: float, stop: float | None = None, step: float = 1, dtype: Any = None, device: Any = None) -> Tensor:
    """Numbers from start (0 if only one bound is given) up to, not including, stop. Ints give int64, floats float32."""
    first, last = (0, start) if stop is None else (start, stop)
    for what, value in (("start", start), ("stop", last), ("step", step)):
        if not math.isfinite(checked_number("arange", what, value)):
            raise ValueError(f"arange: {what} is not finite: {value}. Use finite numbers.")
    if step == 0:
        raise ValueError(f"arange: step is zero: {start}, {stop}, {step}. Use a step that is not 0.")
    floats = any(isinstance(v, float) for v in (first, last, step))
    count = max(math.ceil((last - first) / step), 0)
    for end in (first, first + (count - 1) * step) if dtype is not None and count else ():
        wanted = as_dtype(dtype)
        if wanted in INTEGERS and not np.iinfo(wanted).min <= end <= np.iinfo(wanted).max:  # before so many are made
            raise NumberTooLarge(f"arange: a number does not fit {wanted}: {end}. Use a wider type.")
    return tensor(np.arange(first, last, step), float32 if floats and dtype is None else dtype, device)


@routed
def eye(n: int, m: int | None = None, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on the diagonal of an n by m matrix (m defaults to n)."""
    for size in (n, n if m is None else m):
        if not is_count(size):
            raise ShapeError(f"eye: not a size: {size!r}. Use a whole number, 0 or more.")
    kind, columns = float32 if dtype is None else as_dtype(dtype), int(n if m is None else m)
    array = np.zeros((int(n), columns), kind)
    array.reshape(-1)[: int(n) * columns : columns + 1][:columns] = 1
    return uploaded(array, device_of(device))


@routed
def tri(n: int, m: int | None = None, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on and below the k-th diagonal of an n by m matrix (m defaults to n), zeros above."""
    return tensor(below("tri", n, m, k), float32 if dtype is None else dtype, device)


def below(name: str, n: int, m: int | None, k: int) -> np.ndarray:
    """What tri() is a tensor of, by the host: a recorded step may make it."""
    for size in (n, n if m is None else m):
        if not is_count(size):
            raise ShapeError(f"{name}: not a size: {size!r}. Use a whole number, 0 or more.")
    return np.tri(n, m, max(-n, min(n if m is None else m, checked_int(name, "k", k))))


@routed
def tril_indices(n: int, *, k: int = 0, m: int | None = None, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of what tril(k) keeps of an n by m matrix. k and m go by name: NumPy has k second, PyTorch the columns."""
    rows, columns = np.nonzero(below("tril_indices", n, m, k))
    return tensor(rows, device=device), tensor(columns, device=device)


@routed
def triu_indices(n: int, *, k: int = 0, m: int | None = None, device: Any = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of what triu(k) keeps of an n by m matrix. k and m go by name: NumPy has k second, PyTorch the columns."""
    rows, columns = np.nonzero(below("triu_indices", n, m, checked_int("triu_indices", "k", k) - 1) == 0)
    return tensor(rows, device=device), tensor(columns, device=device)


@routed
def linspace(start: float, stop: float, num: int, dtype: Any = None, device: Any = None) -> Tensor:
    """`num` numbers at equal distances from start to stop, both included (float32 unless said otherwise). Raises DTypeError for bool."""
    start, stop = checked_number("linspace", "start", start), checked_number("linspace", "stop", stop)
    if not is_count(num):
        raise ValueError(f"linspace: num is no count: {num}. Use a whole number, 0 or more.")
    if dtype is not None and as_dtype(dtype).kind == "b":
        raise DTypeError("linspace: nothing lies between two truths: dtype bool. Use a type of numbers.")
    return tensor(np.linspace(start, stop, num), float32 if dtype is None else dtype, device)


def from_dlpack(x: Any, device: Any = None) -> Tensor:
    """A tensor with a copy of the numbers of another library's: anything that has `__dlpack__`, a PyTorch tensor of any dtype we have."""
    if not hasattr(x, "__dlpack__"):
        raise DTypeError(f"from_dlpack: nothing with __dlpack__: {type(x).__name__}. Pass an array or tensor, or use flamepy.tensor(...).")
    return tensor(x, device=device)


@routed
def rand(*shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False, generator: Any = None) -> Tensor:
    """Uniform numbers in [0, 1)."""
    return random_tensor("rand", "philox_uniform", shape_of("rand", shape), 0.0, 1.0, dtype, device, requires_grad, generator)


@routed
def randn_like(x: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """randn() of x's shape, device and dtype. Raises DTypeError unless x is of floats."""
    return randn(floats("randn_like", x).shape, mean=mean, std=std, dtype=x.dtype, device=x.device, generator=generator)


@routed
def rand_like(x: Tensor, generator: Any = None) -> Tensor:
    """rand() of x's shape, device and dtype. Raises DTypeError unless x is of floats."""
    return rand(floats("rand_like", x).shape, dtype=x.dtype, device=x.device, generator=generator)


@routed
def uniform_like(x: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Tensor:
    """uniform() of x's shape, device and dtype. Raises DTypeError unless x is of floats."""
    return uniform(floats("uniform_like", x).shape, low, high, dtype=x.dtype, device=x.device, generator=generator)


def floats(name: str, x: Any) -> Tensor:
    """x, a tensor of floats: random numbers are floats."""
    if not isinstance(x, Tensor) or x.dtype not in FLOATS:
        what = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise DTypeError(f"{name}: not a tensor of floats: {what}. Pass one, such as x.to(flamepy.float32).")
    return x


def tensor_randn(shape: Any, mean: float = 0.0, std: float = 1.0, device: Any = None, dtype: Any = None) -> Tensor:
    """FLAME's Tensor.randn(shape, mean, std, device)."""
    return randn(shape, mean=mean, std=std, dtype=dtype, device=device)


Tensor.randn = staticmethod(tensor_randn)  # type: ignore[method-assign]
