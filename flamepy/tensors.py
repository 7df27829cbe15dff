"""What a Tensor can do beside what core/methods.py has: PyTorch's and FLAME's habits, pickling; which data of others becomes one."""

from __future__ import annotations

import hashlib
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
from .core.errors import DTypeError
from .core.methods import CoreMethods, host_array, swapped
from .core.methods import full_like as full_like
from .core.methods import tensor as tensor
from .core.tensor import Tensor, attach
from .dtypes import as_dtype, float64, is_torch_tensor, of_torch, torch_array
from .ops.reduce_more import taken_apart
from .reading import Readable


class TensorMethods(Readable):
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
        seed = self.over(one_of(self.device, dtype)) if shared else full_like(self, 1, dtype)
        seed.unit = True
        return seed

    def copied_into(self, buffer: Buffer) -> Tensor:
        """The same numbers in another buffer of the same size."""
        t = self.over(buffer)
        ops.copy_into(t, self)
        return t

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
        __and__ = __rand__ = ops.of_bools("&", ops.logical_and)
        __or__ = __ror__ = ops.of_bools("|", ops.logical_or)
        __invert__ = ops.of_bools("~", ops.logical_not)

        def __getitem__(self, key: Any) -> Tensor:
            if self.no_pair and isinstance(key, int) and -2 <= key <= 1:
                raise taken_apart(self)
            return ops.getitem(self, key)

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


attach(TensorMethods)
advise(Tensor, "Tensor")


def given_array(data: Any, wanted: np.dtype | None, device: Device) -> Any:
    """See Door.array: core's, and arrays in a device's memory, tensors of PyTorch's (in lists as well), what speaks DLPack."""
    shared = device.adopted(data)
    if shared is not None:
        return Tensor(shared[0], Door.spec(shared[1], as_dtype(shared[0].dtype), device))
    if is_torch_tensor(data):
        data = torch_array(data)
    elif hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray | np.generic):
        data = np.from_dlpack(data)
    elif isinstance(data, list | tuple) and data and is_torch_tensor(data[0]):
        data = [torch_array(x) if of_torch(x) else x for x in data]
    if seen:  # what data that Python made is before it takes its tensor's type
        exact = host_array(data, wanted or float64)
        seen(None, f"data of shape {exact.shape}", lambda: hashlib.sha1(np.ascontiguousarray(exact).tobytes()).hexdigest())
    return host_array(data, wanted)


Door.array = staticmethod(given_array)


@cache
def one_of(device: Device, dtype: np.dtype) -> Buffer:
    """The number 1, made once."""
    return device.direct.upload(np.ones(1, dtype))  # type: ignore[no-any-return]
