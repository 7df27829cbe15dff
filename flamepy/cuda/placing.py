"""The arguments of a kernel that is emulated: their types, and where they lie in device memory.

Each array gets memory of its own with a wide strip around it that belongs to nobody, so that an index that is wrong is told with the
argument's name and the element. Arrays that share memory share it there, too: a kernel may be given one as input and output.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import DTypeError, ShapeError
from ..dtypes import bfloat16
from .kernels import Argument, CudaKernel, backend, emulator, name_of

STRIP, ALIGN = 1 << 20, 256  # bytes before and after an array; where a GPU's allocations begin


class Placed(NamedTuple):
    """An array in device memory: `array` is the user's own, or a copy of it in another order; `address`, of its first element."""

    address: int
    array: np.ndarray

    def left(self, memory: Any) -> np.ndarray:
        """What a launch has made of it."""
        raw, at = memory.bytes[self.span()], self.array.ctypes.data - extent(self.array)[0]
        return np.ndarray(self.array.shape, self.array.dtype, raw, at, self.array.strides)

    def written(self, memory: Any) -> int:
        """How many of its elements a launch that was counted has written, if only a byte of them."""
        array = self.array
        raw, at = memory.states[self.span()], array.ctypes.data - extent(array)[0]
        states = np.ndarray((*array.shape, array.itemsize), np.uint8, raw, at, (*array.strides, 1))
        return int(np.count_nonzero((states & emulator("layout").WRITTEN_NOW).any(-1)))

    def span(self) -> slice:
        """Its bytes in device memory."""
        start, end = extent(self.array)
        first = self.address - emulator("layout").DEVICE_BASE + start - self.array.ctypes.data
        return slice(first, first + end - start)


@cache
def machine() -> Any:
    """The device that emulate() runs on, with memory that knows its arrays by name."""
    layout = emulator("layout")

    class Named(emulator("memory").Memory):  # type: ignore[misc,name-defined]
        """Device memory whose blocks are arrays with names."""

        arrays: list[tuple[int, str, np.ndarray]] = []  # noqa: RUF012  (one machine)
        rooms: list[int] = []  # noqa: RUF012
        top: int

        def nearest(self, address: int) -> str:
            away = lambda start, array: max(start - address, address - start - np.subtract(*extent(array)[::-1]) + 1, 0)
            near = min(self.arrays, key=lambda known: away(known[0], known[2]), default=None)
            if near is None or away(near[0], near[2]) > STRIP:
                return super().nearest(address)  # type: ignore[no-any-return]
            start, name, array = near
            return ", " + element(name, array, address - start)

        def place(self, raw: np.ndarray, shift: int, constant: bool) -> int:
            """A copy of these bytes, alone in its memory, `shift` bytes behind a multiple of ALIGN; `constant`: not to be written."""
            room = self.allocate(raw.nbytes + shift + 2 * STRIP)
            start = room - layout.DEVICE_BASE
            at, end = start + STRIP + shift, start + STRIP + shift + raw.nbytes
            self.states[start:at] = self.states[end : end + STRIP] = 0
            self.rooms.append(room)
            self.write(room + at - start, raw)
            if constant:
                self.states[at:end] |= layout.CONSTANT
            return room + at - start

        def remove(self) -> None:
            """Free all arrays, and forget that they were: the next ones lie where these did."""
            for room in self.rooms:
                self.free(room)
                self.top: int = min(self.top, room - layout.DEVICE_BASE)
            self.arrays.clear()
            self.rooms.clear()
            self.room.clear()

    return emulator("machine").Machine(Named(), backend("runtime.build").cache_folder())


def extent(array: np.ndarray) -> tuple[int, int]:
    """Where an array's memory begins and ends."""
    return np.lib.array_utils.byte_bounds(array) if array.size else (array.ctypes.data, array.ctypes.data)


def element(name: str, array: np.ndarray, offset: int) -> str:
    """Which element of an argument lies so many bytes behind its beginning; counted on where that is outside."""
    start, end = extent(array)
    if 0 <= offset < end - start:
        index = [0] * array.ndim
        for axis in sorted(range(array.ndim), key=lambda k: -abs(array.strides[k])):
            step = abs(array.strides[axis])
            index[axis] = min(offset // step, array.shape[axis] - 1) if step else 0
            offset -= index[axis] * step
            if array.strides[axis] < 0:
                index[axis] = array.shape[axis] - 1 - index[axis]
        return f"which is {name}[{', '.join(map(str, index))}]"
    at = offset // array.itemsize
    kind = f"records of {', '.join(array.dtype.names)}" if array.dtype.names else array.dtype
    return f"which would be element {at} of {name}, an array of {array.size} (shape {array.shape}, {kind})"


def placed(kernel: CudaKernel, args: Sequence[Any]) -> dict[int, Placed]:
    """The arrays among the arguments, by position, in device memory."""
    found: dict[int, Placed] = {}
    arrays = {k: a for k, a in enumerate(args) if isinstance(a, np.ndarray)}
    while arrays:
        k = next(iter(arrays))
        group = sharing(arrays, k)
        for member in group:
            del arrays[member]
        together = {m: ordered(kernel, kernel.leaves[m], args[m]) for m in group}
        if len({place_of(args[m]) for m in group}) == 1:  # one array, once or more often
            first = next(iter(together.values()))
            together = dict.fromkeys(together, first)
            start, end = extent(first)
        else:
            start, end = overlapping(kernel, together, args)
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * (end - start)).from_address(start))
        base = machine().memory.place(raw, shift_of([args[m] for m in group]), not any(args[m].flags.writeable for m in group))
        for m, array in together.items():
            found[m] = Placed(base + array.ctypes.data - start, array)
            machine().memory.arrays.append((base + extent(array)[0] - start, kernel.leaves[m].name, array))
    return found


def shift_of(arrays: Sequence[np.ndarray]) -> int:
    """How far a part of a larger array begins behind a multiple of ALIGN, where the larger one would begin on a GPU: x[1:] is no place
    for accesses of 16 bytes."""
    first = min(arrays, key=lambda a: int(a.ctypes.data))
    whole = first
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    return int(first.ctypes.data - whole.ctypes.data) % ALIGN if first.flags.forc and whole.flags.forc else 0


def place_of(array: np.ndarray) -> tuple[Any, ...]:
    return array.ctypes.data, array.shape, array.strides, array.dtype


def sharing(arrays: dict[int, np.ndarray], start: int) -> list[int]:
    """Those that share memory with one of them, and with those, and so on."""
    group = [start]
    for member in group:  # it grows meanwhile
        group += [k for k, a in arrays.items() if k not in group and np.may_share_memory(a, arrays[member]) and a.size]
    return group


def overlapping(kernel: CudaKernel, together: dict[int, np.ndarray], args: Sequence[Any]) -> tuple[int, int]:
    """Where the memory of several arrays that overlap begins and ends. They are put there as they lie."""
    for m, array in together.items():
        if array.strides != args[m].strides or not args[m].flags.forc:
            names = " and ".join(kernel.leaves[k].name for k in together)
            raise ShapeError(f"{kernel.name}: arrays share memory and are not contiguous: {names}. Give copies, or one array for both.")
        together[m] = args[m]
    bounds = [extent(a) for a in together.values()]
    return min(b[0] for b in bounds), max(b[1] for b in bounds)


def type_of(kernel: Any, value: Any) -> Any:
    """Numba's type of a value."""
    types = backend("runtime.compat").types
    if isinstance(value, int) and value.bit_length() > 63 + (value > 0):
        raise TypeError(f"{name_of(kernel)}: not an argument of a kernel: {value}: whole numbers have 64 bits there. Give a smaller one.")
    if isinstance(value, np.ndarray):
        layout = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else "A"
        return types.Array(number_type(kernel, value.dtype), value.ndim, layout)
    if isinstance(value, tuple):
        return types.BaseTuple.from_types([type_of(kernel, v) for v in value], type(value))
    if not isinstance(value, (bool, int, float, complex, np.generic)) or isinstance(value, np.void):
        name, shown = name_of(kernel), repr(value)[:60]
        raise TypeError(f"{name}: not an argument of a kernel: {shown}. Give NumPy arrays, numbers and tuples of these.")
    if isinstance(value, np.generic) and value.dtype == bfloat16:
        raise TypeError(f"{name_of(kernel)}: not an argument of a kernel: a number in bfloat16. Give an array, or np.float32({value}).")
    return number_type(kernel, value.dtype if isinstance(value, np.generic) else np.asarray(value).dtype)


def number_type(kernel: Any, dtype: np.dtype) -> Any:
    if dtype.names or dtype.kind in "mM" or dtype == bfloat16:
        return backend("runtime.compat").numpy_support.from_dtype(dtype)
    found = getattr(backend("runtime.compat").types, "boolean" if dtype == np.bool_ else dtype.name, None)
    if found is None:
        raise DTypeError(f"{name_of(kernel)}: no kernel takes this type: {dtype}. Use NumPy's numbers, bools and records.")
    return found


def leaves(kernel: CudaKernel, args: Sequence[Any]) -> list[Any]:
    """The values of kernel.leaves: tuples are taken apart."""
    return [leaf for want, value in zip(kernel.arguments, args, strict=True) for leaf in apart(kernel, want, value)]


def apart(kernel: CudaKernel, want: Argument, value: Any) -> list[Any]:
    if want.form != "tuple":
        return [value]
    if not isinstance(value, tuple) or len(value) != len(want.parts):
        raise TypeError(f"{kernel.name}: not what {want.name} is: {value!r}. It takes {want}.")
    return [leaf for part, v in zip(want.parts, value, strict=True) for leaf in apart(kernel, part, v)]


def ordered(kernel: CudaKernel, want: Argument, array: np.ndarray) -> np.ndarray:
    """An array as the kernel reads it: a copy, whole, row by row or column by column. One whose elements share memory, as a broadcast one,
    is itself, as it is on a GPU: what is written to one of them is written to others."""
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{kernel.name}: not what {want.name} is: a masked array. Give its data, and its mask as another array.")
    if want.form not in ("array", "span") or array.dtype != want.dtype:
        raise DTypeError(f"{kernel.name}: not what {want.name} is: an array of {array.dtype}. It takes {want}.")
    if array.ndim != want.ndim and want.form == "array":
        raise ShapeError(f"{kernel.name}: not the dimensions of {want.name}: shape {array.shape}. It takes {want}.")
    if array.size and np.subtract(*extent(array)[::-1]) < array.nbytes:
        if want.layout == "A":
            return array
        if array.flags.writeable:
            raise ShapeError(f"{kernel.name}: elements of {want.name} share memory: strides {array.strides}. Give a copy.")
    return np.array(array, order="F" if want.layout == "F" else "C", copy=True)


def parameters(kernel: CudaKernel, want: Argument, value: Any, at: Placed | None) -> Sequence[Any]:
    """An argument as parameters. Numba's array has seven for one dimension: two pointers, elements, bytes of one, data, shape, strides."""
    if want.form == "none":
        return [np.int32(0)]
    if at is not None:
        address, array = np.int64(at.address), at.array
        if want.form == "span":
            return [address, np.int64(array.size)]
        whole = (0, 0, array.size, array.itemsize, address, *array.shape, *array.strides)
        return [np.int64(v) for v in whole]
    if want.form != "number" or want.dtype is None:
        raise TypeError(f"{kernel.name}: not what {want.name} is: {value!r}. It takes {want}.")
    found = number(kernel, want, want.dtype, value)
    if want.dtype.kind == "c":
        return [found.real, found.imag]
    return [found.view(np.int64) if want.dtype.kind in "mM" else found]


def number(kernel: CudaKernel, want: Argument, dtype: np.dtype, value: Any) -> Any:
    """A number of this type: none that would be cut off."""
    if dtype.kind in "mM" and isinstance(value, np.generic) and value.dtype == dtype:
        return value
    try:
        found = dtype.type(value)
        exact = dtype.kind not in "iub" or bool(found == value)
    except (TypeError, ValueError, OverflowError):
        exact = False
    known = isinstance(value, (bool, int, float, complex, np.generic)) and (dtype.kind == "c" or not np.iscomplexobj(value))
    if not exact or not known:
        raise TypeError(f"{kernel.name}: not what {want.name} is: {value!r}. It takes {want}.")
    return found
