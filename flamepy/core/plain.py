"""The device "plain": buffers are NumPy arrays, a kernel is a Python function, a launch is a call. Nothing is compiled.

It is what other devices have to agree with, and what to step through with a debugger. It also shows how little a device is: memory
(empty, upload, download, slot), launches (run, copy) and a list of kernels (kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from .device import Buffer, Device, Memory, Stream, openers
from .dtypes import STORED, computed
from .errors import DeviceError
from .formula import typed
from .kernels import KERNELS


def memory_of(x: Any) -> Any:
    """The array of a buffer; a number or None as it is."""
    return x.data if isinstance(x, Buffer) else x


def convert(outs: list, ins: list, consts: Sequence[Any]) -> None:
    """out = x in out's dtype."""
    outs[0][...] = ins[0]


def bound(name: str, formula: Callable | None, dtype: np.dtype) -> Callable[[list, list, Sequence[Any]], None]:
    """The kernel of that name with `formula`, typed and given its words, as its F. Raises DeviceError for a name that is not there."""
    if name not in KERNELS:
        raise DeviceError(f"plain: no such kernel: '{name}'. Use one of {', '.join(sorted(KERNELS))}.")
    kernel, dialect = KERNELS[name]
    return partial(kernel, None if formula is None else typed(formula, np.dtype(dtype), dialect, False))


def widely(kernel: Callable, outs: list, ins: list, consts: Sequence[Any]) -> None:
    """The kernel on arrays of which those that are computed in a wider type have it meanwhile; what it writes there is rounded once."""
    results = [widened(x) for x in outs]
    kernel(results, [widened(x) for x in ins], consts)
    for out, result in zip(outs, results, strict=True):
        if result is not out:
            out[...] = result


def widened(x: Any) -> Any:
    return x.astype(computed(x.dtype), copy=False) if isinstance(x, np.ndarray) else x


class PlainBuffer(Buffer):
    """Memory of its own, counted as long as somebody holds it."""

    def __del__(self) -> None:
        self.device.current -= self.size * self.dtype.itemsize  # type: ignore[attr-defined]


class PlainStream(Stream):
    """Does each launch at once."""

    device: Any  # a PlainDevice, or another of memory that is NumPy arrays

    def empty(self, size: int, dtype: np.dtype) -> Memory:
        buffer = self.device.owned(np.empty(size, dtype), size, np.dtype(dtype), self.device)
        self.device.current += buffer.data.nbytes
        self.device.peak = max(self.device.peak, self.device.current)
        return buffer

    def upload(self, array: np.ndarray) -> Memory:
        buffer = self.empty(array.size, array.dtype)
        np.copyto(buffer.data.view(array.dtype).reshape(array.shape), array)
        return buffer

    def download(self, buffer: Memory) -> np.ndarray:
        view: np.ndarray = buffer.data.view(buffer.dtype)
        view.flags.writeable = False
        return view

    def run(self, kernel: Any, outs: Sequence[Memory | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        arrays, narrow = [*outs, *ins], False
        for i, x in enumerate(arrays):
            if isinstance(x, Buffer):
                arrays[i], narrow = x.data, narrow or x.dtype in STORED
        with np.errstate(all="ignore"):  # NaN and infinity are results like others
            (partial(widely, kernel) if narrow else kernel)(arrays[: len(outs)], arrays[len(outs) :], consts)


class PlainDevice(Device):
    """`device("plain")`. `current` and `peak` count the bytes of its buffers. `owned`, `part`: the classes of buffers with memory of their
    own, and of parts."""

    owned: ClassVar[type[Buffer]] = PlainBuffer
    part: ClassVar[type[Buffer]] = Buffer

    def __init__(self, name: str = "plain", stream: Stream | None = None):
        super().__init__(name, PlainStream() if stream is None else stream)
        self.kernels: dict[tuple[str, Callable | None, np.dtype], Callable] = {}
        self.current = self.peak = 0

    def launch(
        self, name: str, formula: Callable | None, outs: Sequence[Memory | None], ins: Sequence[Any], consts: Sequence[Any],
        dtype: np.dtype,
    ) -> None:  # fmt: skip
        key = name, formula, dtype
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels.setdefault(key, bound(*key))  # the same for all threads
        self.stream.run(kernel, outs, ins, consts)

    def copier(self, out: Memory, x: Memory) -> Any:
        return convert

    def write(self, buffer: Memory, values: Sequence[Any]) -> None:
        with np.errstate(all="ignore"):
            buffer.data[...] = values

    def slot(self, root: Memory, offset: int, size: int, dtype: np.dtype) -> Memory:
        if root.root is not None:
            root, offset = root.root, root.offset + offset
        dtype = np.dtype(dtype)
        data = root.data.view(np.uint8)[offset : offset + size * dtype.itemsize].view(dtype)
        return self.part(data, size, dtype, self, root, offset)


def open(rest: str, kind: type[Any] = PlainDevice) -> Any:
    """The one device of this kind; `rest` is what follows "plain:" in a name."""
    if rest:
        raise DeviceError(f"device: there is one plain device: 'plain:{rest}'. Use 'plain'.")
    return kind()


openers.setdefault("plain", open)
