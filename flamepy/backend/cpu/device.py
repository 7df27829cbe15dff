"""The CPU: buffers are aligned NumPy arrays, kernels are Numba dispatchers, freed blocks are kept for the next launch.

A kernel runs on one thread or on all of them (parallel.py), as the number of elements says: a parallel launch costs about 1.6
microseconds, a serial one 0.4. Loops split work by sizes only, never by the number of threads: same sizes, same bits. Numba is
imported at the first kernel, not at `import flamepy`.

May import: errors, base, template, this folder. FLAME counterpart: `flame_core::device::CudaDevice`. Read next: loops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from sys import getrefcount
from types import FunctionType
from typing import Any

import numpy as np

from ...errors import DTypeError
from ..base import FULL, INTEGERS, Buffer, Device, Kernel, Stream

GRAIN = 16384  # elements of work below which one thread is faster than waking the others
ALIGN = 64  # one cache line, one AVX-512 register
KEEP = 1 << 31  # bytes of freed blocks to keep at most

# Which file holds which loop: the only list of loops, and the reason why unused ones cost nothing.
LOOP_FILES = ("loops", "broadcast", "reduce", "index", "spans", "matmul", "attention", "conv", "random")


class Allocator:
    """Keeps freed blocks by (dtype, size) and counts bytes."""

    def __init__(self) -> None:
        self.free: dict[tuple[np.dtype, int], list[np.ndarray]] = {}
        self.current = self.peak = self.cached = 0
        self.alone: tuple[int, int] | None = None  # reference counts of a block that nobody else looks at

    def calibrate(self) -> None:
        """Learn those counts from a block that surely is alone: they differ between Python versions."""
        device = CpuDevice()
        CpuBuffer(aligned(1, np.dtype("uint8")), 1, np.dtype("uint8"), device)
        self.release()
        self.current = 0

    def take(self, size: int, dtype: np.dtype) -> np.ndarray:
        nbytes = size * dtype.itemsize
        current = self.current = self.current + nbytes
        if current > self.peak:
            self.peak = current
        try:
            block = self.free[dtype, size].pop()
        except (KeyError, IndexError):  # nothing kept, or another thread was faster
            return aligned(size, dtype)
        self.cached -= nbytes
        return block

    def give(self, block: np.ndarray, size: int, dtype: np.dtype) -> None:
        """Take a block back, unless somebody outside still looks at it (a view from `.numpy()`)."""
        nbytes = size * dtype.itemsize
        self.current -= nbytes
        alone = (getrefcount(block), getrefcount(block.base))
        if alone != self.alone:
            if self.alone is not None:
                return
            self.alone = alone
        self.cached += nbytes
        if self.cached > KEEP:
            self.release()
        kept = self.free.get((dtype, size))
        if kept is None:
            self.free[dtype, size] = [block]
        else:
            kept.append(block)

    def release(self) -> None:
        """Forget every kept block."""
        self.free.clear()
        self.cached = 0


def aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """An uninitialised array whose first element lies on a cache line."""
    raw = np.empty(size * dtype.itemsize + ALIGN, np.uint8)
    start = -raw.ctypes.data % ALIGN
    return raw[start : start + size * dtype.itemsize].view(dtype)


class CpuBuffer(Buffer):
    """Memory that returns to the allocator when the last tensor or entry lets go of it."""

    def __del__(self) -> None:
        if self.span is None:
            allocator.give(self.data, self.size, self.dtype)


allocator = Allocator()


class CpuKernel:
    """One loop bound to one formula and dtype; bound at its first launch."""

    __slots__ = ("bind", "call")

    def __init__(self, bind: Callable[[], Any]):
        self.bind = bind
        self.call: Callable[..., None] = self.first

    def first(self, *arguments: Any) -> None:
        self.call = self.bind()
        self.call(*arguments)


class CpuStream(Stream):
    """Runs each launch at once, on one thread or on all of them."""

    def run(self, kernel: Any, work: int, outs: Sequence[Buffer], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        arguments = [1 if work < GRAIN else threads()]
        for b in outs:
            arguments.append(b.data)
        for b in ins:
            arguments.append(b.data if isinstance(b, Buffer) else b)
        kernel.call(*arguments, *consts)

    def resolve(self, kernel: Any, work: int, arguments: Sequence[Any]) -> tuple[Callable[..., None], Sequence[Any]]:
        return kernel.call, (1 if work < GRAIN else threads(), *arguments)

    def width(self) -> int:
        return threads()


def threads() -> int:
    """How many threads a parallel launch uses: Numba's setting."""
    import numba

    return numba.get_num_threads()


class CpuDevice(Device):
    """`device("cpu")`."""

    def __init__(self) -> None:
        self.name = "cpu"
        self.stream: Stream = CpuStream()
        self.kernels: dict[tuple[str, Callable | None, np.dtype], Kernel] = {}

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        return CpuBuffer(allocator.take(size, dtype), size, dtype, self)

    def kernel(self, loop: str, formula: Callable | None, dtype: np.dtype) -> Kernel:
        key = (loop, formula, dtype)
        try:
            return self.kernels[key]
        except KeyError:
            kernel = self.kernels[key] = CpuKernel(binder(loop, formula, dtype))
            return kernel

    def upload(self, array: np.ndarray) -> Buffer:
        buffer = self.empty(array.size, array.dtype)
        np.copyto(buffer.data.reshape(array.shape), array)
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        view = buffer.data.view()
        view.flags.writeable = False
        return view

    def write(self, buffer: Buffer, values: Sequence[Any]) -> None:
        buffer.data[:] = values

    def slot(self, span: Buffer, start: int, size: int) -> Buffer:
        return CpuBuffer(span.data[start : start + size], size, span.dtype, self, span, start)

    def convert(self, out: Buffer, x: Buffer) -> None:
        self.stream.run(CONVERT, out.size, (out,), (x,), ())

    def copy(self, out: Buffer, x: Buffer) -> None:
        np.copyto(out.data, x.data)

    def trim(self) -> None:
        allocator.release()

    def constant(self, array: np.ndarray) -> np.ndarray:
        return array

    table = staticmethod(lru_cache(4096)(lambda values: np.array(values, np.int64)))  # type: ignore[assignment]

    def memory(self) -> dict[str, int]:
        return {"current": allocator.current, "peak": allocator.peak, "cached": allocator.cached}


allocator.calibrate()


class Converter:
    """A kernel by name only: NumPy's conversion to and from 16-bit types."""

    @staticmethod
    def call(workers: int, out: np.ndarray, x: np.ndarray) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            np.copyto(out, x.astype(np.float32) if out.dtype.kind in "iub" else x, casting="unsafe")


CONVERT = Converter()


def binder(loop: str, formula: Callable | None, dtype: np.dtype) -> Callable[[], Any]:
    """What binds `loop` for `dtype` when asked; raises DTypeError at once for a type no kernel is made for."""
    if dtype not in FULL and dtype not in INTEGERS and dtype.kind != "b":
        raise DTypeError(f"{loop}: no kernel for this type: {dtype}. Cast to float32 or float64.")

    def bound() -> Any:
        from ..template import bind
        from .compiler import DIALECT

        return bind(find_loop(loop), formula, dtype, DIALECT)  # type: ignore[arg-type]

    return bound


def find_loop(name: str) -> FunctionType:
    """The loop function of that name, wherever in this folder it is written."""
    for file in LOOP_FILES:
        found = getattr(import_module("." + file, __package__), name, None)
        if isinstance(found, FunctionType) and found.__module__.endswith("." + file):
            return found
    raise KeyError(name)
