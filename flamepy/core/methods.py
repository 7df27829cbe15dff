"""What every Tensor can do: its place on the tape, operators, reading its numbers. Each is one line to an op; no arithmetic here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from . import backward as _backward  # noqa: F401  (stands behind the door)
from . import plain as _plain  # noqa: F401  (a device that is always there)
from .changes import heard
from .device import Device, is_device_name, openers
from .device import device as device_of
from .door import Door
from .dtypes import DTYPES, as_dtype, check_cast, float32, float64, int64
from .errors import DeviceError, DTypeError, FlameError, GradientError, NumberTooLarge, ShapeError
from .gradients import GradientMap
from .hooks import TensorHook
from .ops import copy, indexing, matrices, pointwise, reduce, shape  # noqa: F401
from .tape import TapeEntry, file_line, user_frame
from .tensor import Tensor, attach


def swapped(function: Any) -> Any:
    """The method that Python calls for `2 - x`, which is x.__rsub__(2)."""
    return lambda self, other: function(other, self)


def asked_for(target: Any, dtype: Any, device: Any) -> tuple[Any, Any]:
    """The dtype and the device that to() was given. Raises TypeError for two of a kind."""
    kind, other = ("device", device) if isinstance(target, Device) or is_device_name(target) else ("dtype", dtype)
    if other is not None:
        raise TypeError(f"to: {kind} is given twice: {target!r} and {other!r}. Give one of them.")
    return (dtype, target) if kind == "device" else (target, device)


class CoreMethods:
    """What every Tensor has beside its numbers; see tensor.py."""

    if TYPE_CHECKING:
        buffer: Any
        device: Any
        dtype: np.dtype
        entry: TapeEntry | None
        id: int
        requires_grad: bool
        shape: tuple[int, ...]
        spec: Any
        T: Tensor
        mT: Tensor

        @property
        def size(self) -> int: ...

    __hash__ = object.__hash__

    # ---- the tape -----------------------------------------------------------------------------------------------------
    def backward(self, gradient: Any = None, retain_graph: bool = False, create_graph: bool = False) -> GradientMap:
        """Gradients of this tensor with respect to every leaf that reaches it; see flamepy.autograd.backward."""
        return Door.backward(self, gradient, retain_graph, create_graph)  # type: ignore[no-any-return]

    def requires_grad_(self: Any, flag: bool = True) -> Tensor:
        """Make this leaf require grad (or not), in place."""
        self.requires_grad = flag
        return self

    def retain_grad(self: Any) -> Tensor:
        """Have backward() put this tensor's gradient into the map though it is no leaf."""
        if not self.requires_grad:
            raise GradientError(f"retain_grad: the tensor does not require grad: shape {self.shape}. Record it first.")
        if self.entry is not None:
            self.entry.retained = {**(self.entry.retained or {}), self.slot: self}
        return self

    def register_hook(self: Any, hook: Callable) -> TensorHook:
        """Call `hook(gradient)` when this tensor's gradient is complete; what it returns (if not None) replaces the gradient.
        Calling what is returned, or its remove(), takes the hook away."""
        if not self.requires_grad:
            raise GradientError(f"register_hook: the tensor does not require grad: shape {self.shape}. Record it first.")
        if self.entry is None:
            self.hooks = hooks = self.hooks if self.hooks is not None else []
        else:
            self.entry.hooks = self.entry.hooks if self.entry.hooks is not None else {}
            hooks = self.entry.hooks.setdefault(self.slot, [])
        return TensorHook(hooks, hook)

    def detach(self) -> Tensor:
        """The same numbers, off the tape."""
        t = Tensor(self.buffer, self.spec.as_tracked(False))
        if self.requires_grad:
            t.broken = ("detach", "which cuts it", user_frame())
        return t

    def clone(self: Any) -> Tensor:
        """A copy; gradients flow through it."""
        return copy.clone(self)  # type: ignore[no-any-return]

    def origin(self: Any) -> str:
        """Why this tensor does not require grad, for error texts."""
        if self.broken is None:
            return f"a {self.dtype} tensor of shape {self.shape}, none of whose inputs requires grad"
        name, why, where = self.broken
        return f"the chain broke at '{name}' ({file_line(where)}), {why}"

    def zero_gradient(self: Any) -> Tensor:
        return full_like(self, 0.0, self.spec.computed)

    def as_cotangent(self, gradient: Any, what: str) -> Tensor:
        """What a user's code gave as gradient, in the type that it has here. Raises ShapeError or DeviceError where it does not fit."""
        g = gradient if isinstance(gradient, Tensor) else tensor(gradient, device=self.device)
        if g.device is not self.device:
            advice = f"Move it with .to('{self.device}')"
            raise DeviceError(f"{what} is on another device than the tensor: {g.device}, expected {self.device}. {advice}.")
        if g.shape != self.shape:
            raise ShapeError(f"{what} has another shape than the tensor: {g.shape}, expected {self.shape}. Make it one of the same shape.")
        return g if g.dtype is self.spec.computed else g.to(self.spec.computed)

    # ---- operators --------------------------------------------------------------------------------------------------------
    if not TYPE_CHECKING:
        __array_ufunc__ = None  # an array beside a Tensor leaves the operator to the Tensor
        __add__, __radd__ = pointwise.add, swapped(pointwise.add)
        __sub__, __rsub__ = pointwise.sub, swapped(pointwise.sub)
        __mul__, __rmul__ = pointwise.mul, swapped(pointwise.mul)
        __truediv__, __rtruediv__ = pointwise.div, swapped(pointwise.div)
        __pow__, __rpow__ = pointwise.raised, swapped(pointwise.raised)
        __matmul__, __rmatmul__ = matrices.matmul, swapped(matrices.matmul)
        __neg__, __abs__ = pointwise.neg, pointwise.abs_op
        __lt__, __le__, __gt__, __ge__ = pointwise.lt, pointwise.le, pointwise.gt, pointwise.ge
        __getitem__ = indexing.getitem
        T, mT = property(shape.T), property(shape.transpose, doc="The last two axes swapped.")

        def __eq__(self, other: Any) -> Any:
            return NotImplemented if other is None else pointwise.eq(self, other)

        def __ne__(self, other: Any) -> Any:
            return NotImplemented if other is None else pointwise.ne(self, other)

    def __iter__(self: Any) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise FlameError(
            "setitem: a tensor cannot be written in place: x[i] = v. Build a new one with where(), cat() or pad(), or change a "
            "parameter or a module's buffer with set_data()."
        )

    # ---- another type, another device -----------------------------------------------------------------------------------
    def to(self: Any, target: Any = None, dtype: Any = None, *, device: Any = None) -> Tensor:
        """The same numbers as another dtype or on another device, or both: to(device, dtype); self when nothing changes."""
        if target is not None:
            dtype, device = asked_for(target, dtype, device)
        if dtype is not None:
            dtype = as_dtype(dtype, "to: neither a dtype nor a device: {!r}", tuple(openers))
        moved = self if device is None else copy.move(self, device_of(device))
        return moved if dtype is None or dtype == self.dtype else copy.cast(moved, dtype)  # type: ignore[no-any-return]

    @staticmethod
    def of(name: str, data: Any, device: Any = None) -> Tensor:
        """Data as a Tensor (on `device`, if it is none yet), for the op named; what is no number is refused with the op's name."""
        if isinstance(data, Tensor):
            return data
        try:
            return tensor(data, device=device)
        except (TypeError, ValueError) as problem:
            raise DTypeError(f"{name}: not a tensor, array or number: {type(data).__name__}. Pass flamepy.tensor(...).") from problem

    # ---- what Python reads: each waits for the numbers, and tells who observes that they were looked at ------------------------
    def numpy(self) -> np.ndarray:
        """A read-only view of the numbers, tracked or not."""
        if heard:
            heard(None, (self,), None)
        spec = self.spec
        return spec.device.download(self.buffer).reshape(spec.shape)  # type: ignore[no-any-return]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy) if copy or dtype is not None else self.numpy()

    def item(self) -> Any:
        """The one element as a Python number."""
        spec = self.spec
        if spec.size != 1:
            raise ShapeError(f"item: needs one element: shape {self.shape}. Use .tolist() or .numpy().")
        if heard:
            heard(None, (self,), None)
        return spec.device.item(self.buffer)

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        if self.size != 1:
            advice = "Use x.numpy().any() or .all(); for `x in tensors` any(x is t for t in tensors)"
            raise ShapeError(f"bool: the truth of a tensor needs one element: shape {self.shape}. {advice}.")
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a tensor without axes has no length: shape (). Use .size.")
        return self.shape[0]

    def shown(self, before: str) -> str:
        """The numbers, as repr() shows them behind `before`, and the dtype."""
        numbers = self.numpy().astype(self.spec.computed, copy=False)
        body = np.array2string(numbers, separator=", ", prefix=before)
        return body if self.dtype == np.float32 else f"{body}, dtype={self.dtype}"

    def __repr__(self) -> str:
        source = f", op={self.entry.op.title}" if self.entry is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({self.shown('tensor(')}{source})"


attach(CoreMethods)


# ---- tensors of data ------------------------------------------------------------------------------------------------------------
def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of `data`: numbers, nested lists, a NumPy array, a Tensor.
    Python floats become float32, ints int64; an array keeps its dtype (other widths of int become int64). Raises DTypeError for
    data or a dtype that is not supported, or a number that does not fit an integer dtype, ShapeError for lists of uneven length."""
    t: Tensor = Door.tensor(data, None if dtype is None else as_dtype(dtype), device_of(device))
    return t.requires_grad_(requires_grad) if requires_grad else t


def copied(data: Any, wanted: np.dtype | None, device: Device) -> Tensor:
    """See tensor(); `wanted`: the type, if it is not the data's own."""
    if wanted is not None and isinstance(own := getattr(data, "dtype", None), np.dtype):
        check_cast(own, wanted)
    try:
        array = np.asarray(data, wanted)
    except OverflowError as problem:
        raise NumberTooLarge(f"tensor: a number does not fit {wanted}: {problem}. Use a wider type.") from None
    except ValueError as problem:
        raise ShapeError(f"tensor: {problem}. Make every row the same length, of numbers that the type holds.") from None
    if wanted is None and array.dtype == float64 and not hasattr(data, "__array__"):
        array = array.astype(float32)
    elif array.dtype.kind in "iu" and array.dtype not in DTYPES:
        array = array.astype(int64)
    return uploaded(array, device)


def uploaded(array: np.ndarray, device: Device) -> Tensor:
    """A tensor with the numbers of an array, which the host has read. Raises DTypeError for a type that is not supported."""
    if heard:
        heard(None, (array,), None)
    dtype = array.dtype if array.dtype in DTYPES else as_dtype(array.dtype, "tensor: not supported: {}")
    return Tensor(device.upload(array), Door.spec(array.shape, dtype, device))


Door.tensor = staticmethod(copied)


def full_like(x: Tensor, value: Any, dtype: Any = None) -> Tensor:
    """A tensor of x's shape, dtype and device filled with `value`."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"full_like: not a tensor: {type(x).__name__}. Use full(shape, value), or flamepy.tensor(data) first.")
    heard(None, (value,), None)
    return copy.filled(x.shape, value, x.dtype if dtype is None else as_dtype(dtype), x.device)  # type: ignore[no-any-return]
