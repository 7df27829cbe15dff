"""What a Tensor can do: its place on the tape, operators, conversions. Every method is one line to an op; no arithmetic here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ops, pickling
from .advice import advise
from .backend.base import BACKENDS, Buffer, Device, is_device_name
from .backend.base import device as device_of
from .core.changes import seen
from .core.door import Door
from .core.errors import DeviceError, DTypeError, FlameError, GradientError, ShapeError
from .core.hooks import TensorHook
from .core.modes import observing, tell
from .core.op import METHODS, PUBLIC
from .core.spec import spec_of
from .core.tape import file_line, user_frame
from .core.tensor import Tensor, attach
from .dtypes import DTYPES, INTEGERS, as_dtype, check_fits, float64, host_array, int64
from .gradient import GradientMap
from .ops.reduce_more import taken_apart
from .reading import Readable

eq, ne = ops.operator(ops.eq), ops.operator(ops.ne)


class TensorMethods(Readable):
    """What every Tensor has beside its numbers; see core/tensor.py."""

    # Class values are what almost every tensor has.
    replaced: bool = False  # whether another parameter took its place in its module
    passing: bool = False  # whether its name was given in passing, by a module it was put into, and nobody has asked for names since
    held: bool = False  # whether an optimizer has it
    scaled: Any = None  # by whose scale it is multiplied, if it is a gradient of a scaled loss
    mark: Any = None  # whether a step may use it, if it is a gradient that was clipped with nonfinite="skip"
    unit: bool = False  # whether it is known to be the number 1: the cotangent that backward() begins with
    no_pair: str = ""  # "max" or "min", where PyTorch's would have given a pair of values and indices

    @property
    def T(self: Any) -> Tensor:
        """The two axes of a matrix swapped; a vector is itself."""
        if self.ndim > 2:
            raise ShapeError(f"T: more than two axes: shape {self.shape}. Use .mT for stacks of matrices or .permute(axes).")
        return self if self.ndim < 2 else ops.transpose(self)

    @property
    def mT(self: Any) -> Tensor:
        """The last two axes swapped."""
        return ops.transpose(self, -2, -1)

    def __iter__(self: Any) -> Iterator[Tensor]:
        if self.no_pair:
            raise taken_apart(self)
        return (self[i] for i in range(len(self)))

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return pickling.reduced(self)

    def __deepcopy__(self, memo: dict) -> Tensor:
        """A leaf of its own: another id, the same numbers, copies of the other attributes."""
        return pickling.copied(self, memo)

    __copy__ = pickling.shallow
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
        return ops.clone(self)

    def origin(self: Any) -> str:
        """Why this tensor does not require grad, for error texts."""
        if self.broken is None:
            return f"a {self.dtype} tensor of shape {self.shape}, none of whose inputs requires grad"
        name, why, where = self.broken
        return f"the chain broke at '{name}' ({file_line(where)}), {why}"

    def ones_cotangent(self: Any, shared: bool = False) -> Tensor:
        """The 1 that backward() begins with; `shared`: in memory that nobody may write into."""
        dtype = self.spec.computed
        seed = self.over(one_of(self.device, dtype)) if shared else full_like(self, 1, dtype)
        seed.unit = True
        return seed

    def as_cotangent(self, gradient: Any, what: str) -> Tensor:
        """What a user's code gave as gradient, in the type that it has here. Raises ShapeError or DeviceError where it does not fit."""
        g = gradient if isinstance(gradient, Tensor) else tensor(gradient, device=self.device)
        if g.device is not self.device:
            advice = f"Move it with .to('{self.device}')"
            raise DeviceError(f"{what} is on another device than the tensor: {g.device}, expected {self.device}. {advice}.")
        if g.shape != self.shape:
            raise ShapeError(f"{what} has another shape than the tensor: {g.shape}, expected {self.shape}. Make it one of the same shape.")
        return g if g.dtype is self.spec.computed else g.to(self.spec.computed)

    def over(self, buffer: Buffer) -> Tensor:
        """An unrecorded tensor of this shape on another buffer of the same size."""
        spec = self.spec
        like = buffer.dtype is spec.dtype and buffer.device is spec.device
        return Tensor(buffer, spec.as_tracked(False) if like else spec_of(spec.shape, buffer.dtype, buffer.device))

    def copied_into(self, buffer: Buffer) -> Tensor:
        """The same numbers in another buffer of the same size."""
        t = self.over(buffer)
        ops.copy_into(t, self)
        return t

    def zero_gradient(self: Any) -> Tensor:
        return full_like(self, 0.0, self.spec.computed)

    # ---- operators --------------------------------------------------------------------------------------------------------
    if not TYPE_CHECKING:
        __add__ = ops.operator(ops.add)
        __sub__ = ops.operator(ops.sub)
        __mul__ = ops.operator(ops.mul)
        __truediv__ = ops.operator(ops.div)
        __floordiv__ = ops.operator(ops.floor_divide)
        __mod__ = ops.operator(ops.remainder)
        __pow__ = ops.operator(ops.pow)
        __matmul__ = ops.operator(ops.matmul)
        __radd__ = ops.operator(ops.add, swap=True)
        __rsub__ = ops.operator(ops.sub, swap=True)
        __rmul__ = ops.operator(ops.mul, swap=True)
        __rtruediv__ = ops.operator(ops.div, swap=True)
        __rfloordiv__ = ops.operator(ops.floor_divide, swap=True)
        __rmod__ = ops.operator(ops.remainder, swap=True)
        __rpow__ = ops.operator(ops.pow, swap=True)
        __rmatmul__ = ops.operator(ops.matmul, swap=True)
        __iadd__ = ops.in_place("+", ops.add)
        __isub__ = ops.in_place("-", ops.sub)
        __imul__ = ops.in_place("*", ops.mul)
        __itruediv__ = ops.in_place("/", ops.div)
        __ifloordiv__ = ops.in_place("//", ops.floor_divide)
        __imod__ = ops.in_place("%", ops.remainder)
        __ipow__ = ops.in_place("**", ops.pow)
        __imatmul__ = ops.in_place("@", ops.matmul)
        __neg__ = ops.operator(ops.neg)
        __abs__ = ops.operator(ops.abs)
        __and__ = __rand__ = ops.of_bools("&", ops.logical_and)
        __or__ = __ror__ = ops.of_bools("|", ops.logical_or)
        __invert__ = ops.of_bools("~", ops.logical_not)

        def __eq__(self, other: Any) -> Any:
            return NotImplemented if other is None else eq(self, other)

        def __ne__(self, other: Any) -> Any:
            return NotImplemented if other is None else ne(self, other)

        __lt__ = ops.operator(ops.lt)
        __le__ = ops.operator(ops.le)
        __gt__ = ops.operator(ops.gt)
        __ge__ = ops.operator(ops.ge)

        def __getitem__(self, key: Any) -> Tensor:
            if self.no_pair and isinstance(key, int) and -2 <= key <= 1:
                raise taken_apart(self)
            return ops.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise FlameError(
            "setitem: a tensor cannot be written in place: x[i] = v. Build a new one with where(), cat() or pad(), or change a "
            "parameter or a module's buffer with set_data()."
        )

    # ---- conversions ------------------------------------------------------------------------------------------------------
    def to(self: Any, target: Any = None, *, dtype: Any = None, device: Any = None) -> Tensor:
        """The same numbers as another dtype or on another device; self when nothing changes."""
        if isinstance(target, Device) or is_device_name(target):
            device = target
        elif target is not None:
            dtype = target
        if dtype is not None:
            dtype = as_dtype(dtype, f"to: neither a dtype nor a device: {dtype!r}", BACKENDS)
        moved = self if device is None else ops.move(self, device_of(device))
        return moved if dtype is None or dtype == self.dtype else ops.cast(moved, dtype)

    def view(self: Any, *shape: Any) -> Tensor:
        """PyTorch's name of reshape(). Raises DTypeError for a dtype: numbers are not read as another type."""
        if any([isinstance(n, np.dtype | type) for n in shape]):
            raise DTypeError(f"view: not a shape: {shape}. Cast with .to(dtype), or use x.numpy().view(dtype).")
        return ops.reshape(self, *shape)

    def mul_scalar(self: Any, value: float) -> Tensor:
        return ops.mul(self, value)

    def add_scalar(self: Any, value: float) -> Tensor:
        return ops.add(self, value)

    def div_scalar(self: Any, value: float) -> Tensor:
        return ops.div(self, value)

    @staticmethod
    def of(name: str, data: Any, device: Any = None) -> Tensor:
        """Data as a Tensor (on `device`, if it is none yet), for the op named; what is no number is refused with the op's name."""
        if isinstance(data, Tensor):
            return data
        try:
            return tensor(data, device=device)
        except (TypeError, ValueError) as problem:
            raise DTypeError(f"{name}: not a tensor, array or number: {type(data).__name__}. Pass flamepy.tensor(...).") from problem


attach(TensorMethods)
advise(Tensor, "Tensor")
for _name, _function in PUBLIC.items():  # every public op is a method too: an op is written in one place
    if METHODS[_name] and _name not in Tensor.__dict__:
        setattr(Tensor, _name, ops.operator(_function))


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of `data`: numbers, nested lists, a NumPy array, a Tensor.

    Python floats become float32, ints int64; an array keeps its dtype (other widths of int become int64). Raises DTypeError for
    data or a dtype that is not supported, or a number that does not fit an integer dtype, ShapeError for lists of uneven length.
    """
    wanted, device = None if dtype is None else as_dtype(dtype), device_of(device)
    shared = device.adopted(data)
    if shared is not None:
        t = Tensor(shared[0], spec_of(shared[1], as_dtype(shared[0].dtype), device))
        t = t if wanted is None else t.to(wanted)
        return t.requires_grad_() if requires_grad else t
    array = data.numpy() if isinstance(data, Tensor) else host_array(data, wanted)
    if seen and not isinstance(data, Tensor):
        say_exact(host_array(data, wanted or float64))
    if wanted is None and array.dtype not in DTYPES:
        if array.dtype.kind not in "iu":
            raise DTypeError(f"tensor: not supported: {array.dtype}. Use one of {', '.join(sorted(map(str, DTYPES)))}.")
        wanted = int64
    if wanted is not None and wanted != array.dtype:
        if wanted in INTEGERS:
            check_fits(array, wanted)
        with np.errstate(over="ignore", invalid="ignore"):
            array = array.astype(wanted)
    if observing:
        tell((array,))
    t = Tensor(device.upload(array), spec_of(array.shape, array.dtype, device))
    return t.requires_grad_() if requires_grad else t


def say_exact(data: np.ndarray) -> None:
    """Tell what data that Python made is before it takes its tensor's type."""
    seen(None, f"data of shape {data.shape}", lambda: hashlib.sha1(np.ascontiguousarray(data).tobytes()).hexdigest())


@cache
def one_of(device: Device, dtype: np.dtype) -> Buffer:
    """The number 1, made once."""
    return device.direct.upload(np.ones(1, dtype))  # type: ignore[no-any-return]


def full_like(x: Tensor, value: Any, dtype: Any = None) -> Tensor:
    """A tensor of x's shape, dtype and device filled with `value`."""
    if not isinstance(x, Tensor):
        raise DTypeError(f"full_like: not a tensor: {type(x).__name__}. Use full(shape, value), or flamepy.tensor(data) first.")
    tell((value,))
    return ops.filled(x.shape, value, x.dtype if dtype is None else as_dtype(dtype), x.device)
