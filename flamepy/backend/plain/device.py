"""The device "plain": buffers are NumPy arrays, a kernel is a Python function, a launch is a call. Nothing is compiled.

This is the whole engine in NumPy: what other backends have to agree with, and what to step through with a debugger. It also shows
how little a backend is: memory (empty, upload, download, slot), launches (run, copy) and a list of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.errors import DeviceError
from ...core.formula import jitted
from ...dtypes import computed
from ..base import Buffer, Device
from ..host import HostStream
from . import networks, spans  # noqa: F401  (their kernels enter the list)
from .kernels import KERNELS


class PlainBuffer(Buffer):
    """Memory of its own, counted as long as somebody holds it."""

    device: PlainDevice

    def __del__(self) -> None:
        self.device.current -= self.size * self.dtype.itemsize


class PlainStream(HostStream):
    """Does each launch at once."""

    device: PlainDevice

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        buffer = PlainBuffer(np.empty(size, dtype), size, np.dtype(dtype), self.device)
        self.device.current += buffer.data.nbytes
        self.device.peak = max(self.device.peak, self.device.current)
        return buffer

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        with np.errstate(all="ignore"):  # NaN and infinity are results like others
            kernel([memory_of(b) for b in outs], [memory_of(x) for x in ins], consts)


def memory_of(x: Any) -> Any:
    """The array of a buffer; a number or None as it is."""
    return x.data if isinstance(x, Buffer) else x


class PlainDevice(Device):
    """`device("plain")`. `current` and `peak` count the bytes of its buffers."""

    def __init__(self) -> None:
        super().__init__("plain", PlainStream())
        self.kernels: dict[tuple[str, Callable | None, np.dtype], Callable] = {}
        self.current = self.peak = 0

    def launch(
        self, name: str, formula: Callable | None, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any],
        dtype: np.dtype,
    ) -> None:  # fmt: skip
        key = name, formula, dtype
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels.setdefault(key, bound(*key))  # the same for all threads: captured steps tell kernels apart
        self.stream.run(kernel, outs, ins, consts)

    def copier(self, out: Buffer, x: Buffer) -> Any:
        return convert

    def write(self, buffer: Buffer, values: Sequence[Any]) -> None:
        with np.errstate(all="ignore"):
            buffer.data[...] = values

    def slot(self, root: Buffer, offset: int, size: int, dtype: np.dtype) -> Buffer:
        if root.root is not None:
            root, offset = root.root, root.offset + offset
        dtype = np.dtype(dtype)
        part = root.data.view(np.uint8)[offset : offset + size * dtype.itemsize].view(dtype)
        return Buffer(part, size, dtype, self, root, offset)

    def memory(self) -> dict[str, int]:
        return {**super().memory(), "current": self.current, "peak": self.peak}

    def findings(self) -> Iterator[tuple[str, str, str]]:
        yield "plain", f"NumPy {np.__version__}, {len(KERNELS)} kernels in Python, nothing compiled", ""

    def dlpack(self, buffer: Buffer, shape: Sequence[int]) -> Any:
        return self.download(buffer).reshape(shape)


def convert(outs: list, ins: list, consts: Sequence[Any]) -> None:
    """out = x in out's dtype."""
    outs[0][...] = ins[0]


def bound(name: str, formula: Callable | None, dtype: np.dtype) -> Callable[[list, list, Sequence[Any]], None]:
    """The kernel of that name with `formula`, typed and given its words, as its F. Raises DeviceError for a name that is not there."""
    if name not in KERNELS:
        raise DeviceError(f"plain: no such kernel: '{name}'. Use one of {', '.join(sorted(KERNELS))}.")
    kernel, dialect = KERNELS[name]
    return partial(widely, kernel, None if formula is None else jitted(formula, np.dtype(dtype), dialect))


def widely(kernel: Callable, formula: Any, outs: list, ins: list, consts: Sequence[Any]) -> None:
    """The kernel on arrays of which those of 16-bit floats are float32 meanwhile; what it writes there is rounded once."""
    results = [widened(x) for x in outs]
    kernel(formula, results, [widened(x) for x in ins], consts)
    for out, result in zip(outs, results, strict=True):
        if result is not out:
            out[...] = result


def widened(x: Any) -> Any:
    return x.astype(computed(x.dtype), copy=False) if isinstance(x, np.ndarray) else x


def open(rest: str) -> Device:
    """The one device of this backend; `rest` is what follows "plain:" in a name."""
    if rest:
        raise DeviceError(f"device: there is one plain device: 'plain:{rest}'. Use 'plain'.")
    return PlainDevice()
