"""What a Tensor can do beside what core/methods.py has: PyTorch's and FLAME's habits, pickling; which data of others becomes one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ops, pickling
from .advice import advise
from .backend.base import Buffer, Device
from .bus import seen
from .core.door import Door
from .core.errors import DTypeError, NumberTooLarge, ShapeError
from .core.methods import CoreMethods, swapped, uploaded
from .core.methods import full_like as full_like
from .core.methods import tensor as tensor
from .core.op import over
from .core.tensor import Tensor, attach
from .dtypes import DTYPES, INTEGERS, as_dtype, check_cast, digest_of, float32, float64, int64, is_torch_tensor, of_torch, torch_array
from .ops import pads, rearranging
from .ops.reduce_more import taken_apart
from .ported import PortedTensor
from .reading import Readable


class TensorMethods(Readable, PortedTensor):
    """What every Tensor has beside core's methods."""

    # Class values are what almost every tensor has.
    replaced: bool = False  # whether another parameter took its place in its module
    put_in: int = 0  # how often a parameter, or a layer, was put into a module
    passing: bool = False  # whether its name was given in passing, by a module it was put into, and nobody has asked for names since
    held: bool = False  # whether an optimizer has it
    scaled: Any = None  # by whose scale it is multiplied, if it is a gradient of a scaled loss
    mark: Any = None  # whether a step may use it, if it is a gradient that was clipped with nonfinite="skip"
    unit: bool = False  # whether it is known to be the number 1: the cotangent that backward() begins with
    no_pair: str = ""  # "max" or "min", where PyTorch's would have given a pair of values and indices

    def __iter__(self: Any) -> Iterator[Tensor]:
        if self.no_pair:
            raise taken_apart(self)
        return CoreMethods.__iter__(self)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return pickling.reduced(self)

    def __deepcopy__(self, memo: dict) -> Tensor:
        """A leaf of its own: another id, the same numbers, copies of the other attributes."""
        return pickling.copied(self, memo)

    __copy__ = pickling.shallow

    def ones_cotangent(self: Any, shared: bool = False) -> Tensor:
        """The 1 that backward() begins with; `shared`: in memory that nobody may write into."""
        dtype = self.spec.computed
        seed = Tensor(one_of(self.device, dtype), Door.spec(self.shape, dtype, self.device)) if shared else full_like(self, 1, dtype)
        seed.unit = True
        return seed

    def copied_into(self, buffer: Buffer) -> Tensor:
        """The same numbers in another buffer of the same size."""
        t = over(buffer, self.shape)
        ops.copy_into(t, self)
        return t

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.shape:
            raise DTypeError(f"index: not one integer: {self.dtype}, shape {self.shape}. Cast with .to(flamepy.int64), or use .item().")
        return int(self.item())

    def __contains__(self, value: Any) -> bool:
        """Whether an element equals the value, as in NumPy."""
        found: Any = self == value
        return found if isinstance(found, bool) else bool(found.numpy().any())

    # ---- operators --------------------------------------------------------------------------------------------------------
    if not TYPE_CHECKING:
        size = property(attrgetter("spec.count"))  # see habits.py
        __floordiv__, __rfloordiv__ = ops.floor_divide, swapped(ops.floor_divide)
        __mod__, __rmod__ = ops.remainder, swapped(ops.remainder)
        __pow__, __rpow__ = ops.pow, swapped(ops.pow)
        __iadd__ = ops.in_place("+", ops.add)
        __isub__ = ops.in_place("-", ops.sub)
        __imul__ = ops.in_place("*", ops.mul)
        __itruediv__ = ops.in_place("/", ops.div)
        __ifloordiv__ = ops.in_place("//", ops.floor_divide)
        __imod__ = ops.in_place("%", ops.remainder)
        __ipow__ = ops.in_place("**", ops.pow)
        __imatmul__ = ops.in_place("@", ops.matmul)
        __and__, __rand__ = ops.bitwise_and, swapped(ops.bitwise_and)
        __or__, __ror__ = ops.bitwise_or, swapped(ops.bitwise_or)
        __xor__, __rxor__ = ops.bitwise_xor, swapped(ops.bitwise_xor)
        __lshift__, __rlshift__ = ops.bitwise_left_shift, swapped(ops.bitwise_left_shift)
        __rshift__, __rrshift__ = ops.bitwise_right_shift, swapped(ops.bitwise_right_shift)
        __invert__ = ops.bitwise_not
        __iand__ = ops.in_place("&", ops.bitwise_and)
        __ior__ = ops.in_place("|", ops.bitwise_or)
        __ixor__ = ops.in_place("^", ops.bitwise_xor)
        __ilshift__ = ops.in_place("<<", ops.bitwise_left_shift)
        __irshift__ = ops.in_place(">>", ops.bitwise_right_shift)

        def __getitem__(self, key: Any) -> Tensor:
            if self.no_pair and isinstance(key, int) and -2 <= key <= 1:
                raise taken_apart(self)
            return ops.getitem(self, key)

    def view(self: Any, *shape: Any) -> Tensor:
        """PyTorch's name of reshape(); of a dtype that of bitcast()."""
        if type(shape[0]) is not int and len(shape) == 1 and (isinstance(shape[0], (np.dtype, type, str)) or of_torch(shape[0])):
            return ops.bitcast(self, shape[0])
        return ops.reshape(self, *shape)

    def repeat(self: Any, *repeats: Any, axis: Any = None) -> Tensor:
        """fp.repeat() or fp.tile(), where PyTorch and NumPy do not mean different things by it; see repeat_method()."""
        return rearranging.repeat_method(self, *repeats, axis=axis)

    def pad(self: Any, padding: Any, mode: Any = "constant", value: Any = None) -> Tensor:
        """fp.pad() or F.pad(): (before, after) for each axis, or a flat list, last axis first."""
        return pads.flat_pad(self, padding, mode, value)

    def unfold(self: Any, axis: int, size: int, step: int) -> Tensor:
        """All windows of `size` neighbours along an axis, `step` apart, their elements along a new last axis."""
        return rearranging.unfold(self, axis, size, step)

    def mul_scalar(self: Any, value: float) -> Tensor:
        return ops.mul(self, value)

    def add_scalar(self: Any, value: float) -> Tensor:
        return ops.add(self, value)

    def div_scalar(self: Any, value: float) -> Tensor:
        return ops.div(self, value)


attach(TensorMethods)
advise(Tensor, "Tensor")


def given(data: Any, wanted: np.dtype | None, device: Device) -> Tensor:
    """See Door.tensor: of core's, and of arrays in a device's memory, tensors of PyTorch's (in lists as well), what speaks DLPack."""
    shared = None if isinstance(data, Tensor) else device.adopted(data)
    if shared is not None:  # the device took it as it was
        t = Tensor(shared[0], Door.spec(shared[1], as_dtype(shared[0].dtype), device))
        return t if wanted is None else t.to(wanted)
    return uploaded(typed_array(data, wanted), device)


Door.tensor = staticmethod(given)


def typed_array(data: Any, wanted: np.dtype | None) -> np.ndarray:
    """What a tensor of this data holds, in host memory."""
    if isinstance(data, Tensor):
        return of_type(data.numpy(), wanted)
    if type(data) is not np.ndarray:
        if is_torch_tensor(data):
            data = torch_array(data)
        elif hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray | np.generic):
            data = np.from_dlpack(data)
        elif isinstance(data, list | tuple) and data and is_torch_tensor(data[0]):
            data = [torch_array(x) if of_torch(x) else x for x in data]
    array = host_array(data)
    if seen:  # what data that Python made is before it takes its tensor's type
        seen(None, f"data of shape {array.shape}", lambda: digest_of(array))
    if wanted is None and array is not data and array.dtype.kind in "fu" and not hasattr(data, "__array__") and not holds_arrays(data):
        wanted = int64 if array.dtype.kind == "u" else float32 if array.dtype == float64 else None  # Python's ints: the largest do not fit
    return of_type(array, wanted)


def host_array(data: Any) -> np.ndarray:
    """Data as a NumPy array. Raises ShapeError for lists of uneven length, DTypeError for what holds other things than numbers."""
    if isinstance(data, np.ndarray | np.generic):
        return np.asarray(data)
    try:
        array = np.array(data)
    except ValueError as problem:
        raise ShapeError(f"tensor: lists of uneven length: {problem}. Make every row the same length.") from None
    if array.dtype not in DTYPES and array.dtype.kind not in "fiub":
        raise DTypeError(f"tensor: not numbers: {type(data).__name__} of {array.dtype}. Pass numbers, lists of numbers or an array.")
    return array


def holds_arrays(data: Any) -> bool:
    """Whether nested lists end in NumPy values, whose type is kept."""
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic)


def of_type(array: np.ndarray, wanted: np.dtype | None) -> np.ndarray:
    """An array in this type, or one of its own that tensors have. Raises DTypeError for a number that an integer type cannot hold: NumPy's
    cast would wrap it round, or make something of NaN."""
    if wanted is None:
        wanted = int64 if array.dtype.kind in "iu" and array.dtype not in DTYPES else array.dtype
    if wanted in INTEGERS and wanted != array.dtype and array.size and array.dtype.kind != "b":
        kind, ends = int if array.dtype.kind in "iu" else float, np.iinfo(wanted)
        for number in (kind(array.min()), kind(array.max())):  # NaN is both
            if not ends.min - 1 < number < ends.max + 1:
                wider = "floats" if wanted == int64 else "int64 or floats"
                raise NumberTooLarge(f"tensor: a number does not fit {wanted}: {number}. Use {wider}.")
    wanted = pickling.DTYPE.get(wanted, wanted)  # C's long long is equal to its long, and another type
    if array.dtype is not wanted:
        check_cast(array.dtype, wanted)
        with np.errstate(over="ignore", invalid="ignore"):
            array = array.astype(wanted, copy=False)
    return array if array.dtype is wanted else array.view(wanted)


@cache
def one_of(device: Device, dtype: np.dtype) -> Buffer:
    """The number 1, made once."""
    return device.direct.upload(np.ones(1, dtype))  # type: ignore[no-any-return]
