"""The CPU: buffers are aligned NumPy arrays, kernels are Numba dispatchers, freed blocks are kept for the next launch.

A kernel runs on one thread or on all of them (parallel.py), as the number of elements says: a parallel launch costs about 1.6
microseconds, a serial one 0.4. Loops split work by sizes only, never by the number of threads: same sizes, same bits. Numba is
imported at the first kernel, not at `import flamepy`, and threads start at the first parallel launch.

May import: errors, base, template, this folder. FLAME counterpart: `flame_core::device::CudaDevice`. Read next: loops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from sys import getrefcount
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from ...errors import DTypeError
from ..base import FULL, INTEGERS, Buffer, Device, Kernel, Stream
from ..template import bind, globals_of, reached

# Elements of work below which one thread is faster than waking the others. Measured: 21,000 for an addition, 2,600 for gelu, 4,000 for
# a softmax; so a formula with one of DEAR_WORDS takes DEAR times fewer.
GRAIN = 16384
DEAR = 4
DEAR_WORDS = {"cos", "erf", "exp", "exp_down", "expm1", "log", "log1p", "normal_tail", "pow", "sin", "tanh"}
ALIGN = 64  # one cache line, one AVX-512 register
APART = 1024  # bytes between two blocks, at least
KEEP = 1 << 31  # bytes of freed blocks to keep at most

# Which file holds which loop: the only list of loops, and the reason why unused ones cost nothing.
LOOP_FILES = ("loops", "broadcast", "reduce", "rows", "index", "spans", "matmul", "attention", "conv", "random")


class Pool(list):
    """The freed blocks of one dtype and size."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int):
        self.nbytes = nbytes


class Allocator:
    """Keeps freed blocks and counts bytes: `current` in buffers, `total` in buffers and pools.

    The counts are right with many threads too: in CPython a statement without a call, like `a.n += 1`, is not interrupted.
    """

    def __init__(self) -> None:
        self.pools: dict[tuple[np.dtype, int], Pool] = {}
        self.current = self.peak = self.total = 0

    @property
    def cached(self) -> int:
        return self.total - self.current

    def make(self, size: int, dtype: np.dtype) -> tuple[Pool, np.ndarray]:
        """A block from the system, and the pool it will go to."""
        pool = self.pools.setdefault((dtype, size), Pool(size * dtype.itemsize))
        block = aligned(size, dtype)
        self.total += pool.nbytes
        return pool, block

    def release(self) -> None:
        """Give every kept block back to the system."""
        for pool in list(self.pools.values()):
            with suppress(IndexError):  # another thread was faster
                while pool:
                    pool.pop()
                    self.total -= pool.nbytes


class Raw(np.ndarray):
    """Bytes to make a block of. As this is another class than the block's, NumPy makes a view of a view of a block refer to the
    block, not to these bytes: so getrefcount(block) counts everybody who looks at it."""


def aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """An uninitialised array whose first element lies on a cache line, with room behind its last.

    The room makes results independent of addresses: where an array begins within some 350 bytes of the end of another, LLVM's check
    for overlap may choose scalar code, whose last bits differ (measured: a bias gradient behind the cotangent it sums).
    """
    raw = Raw(size * dtype.itemsize + ALIGN + APART, np.uint8)
    return np.ndarray(size, dtype, raw, -raw.ctypes.data % ALIGN)  # type: ignore[call-overload]


allocator = Allocator()
pools = allocator.pools
_owner = SimpleNamespace(data=aligned(1, np.dtype("uint8")))
ALONE = getrefcount(_owner.data)  # the count of a block whose buffer is the only one to know it


class CpuBuffer(Buffer):
    """Memory that returns to its pool when the last tensor or entry lets go of it."""

    def __init__(self, block: np.ndarray, size: int, dtype: np.dtype, device: Device, pool: Pool):
        self.data = block
        self.size = size
        self.dtype = dtype
        self.device = device
        self.span = None
        self.writes = 0  # set here, not in the class: it is read faster
        self.pool = pool

    def __del__(self, allocator: Allocator = allocator, count: Any = getrefcount, alone: int = ALONE, keep: int = KEEP) -> None:
        # Defaults and not globals, which are gone when the last buffers die with the process.
        pool = self.pool
        allocator.current -= pool.nbytes
        if count(self.data) == alone:
            pool.append(self.data)
            if allocator.total - allocator.current > keep:
                allocator.release()
        else:  # somebody still looks at it, a view from `.numpy()` say: it is theirs now
            allocator.total -= pool.nbytes


class CpuKernel:
    """One loop bound to one formula and dtype; bound at its first launch. From `grain` elements of work on it runs on all threads."""

    __slots__ = ("bind", "call", "grain")

    def __init__(self, bind: Callable[[], Any], grain: int):
        self.bind, self.grain = bind, grain
        self.call: Callable[..., None] = self.first

    def first(self, *arguments: Any) -> None:
        self.call = self.bind()
        self.call(*arguments)


class CpuStream(Stream):
    """Runs each launch at once, on one thread or on all of them."""

    def run(self, kernel: Any, work: int, outs: Sequence[Buffer], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        arguments = [1 if work < kernel.grain else threads()]
        for b in outs:
            arguments.append(b.data)
        for b in ins:
            arguments.append(b.data if isinstance(b, Buffer) else b)
        if consts:
            arguments.extend(consts)
        kernel.call(*arguments)

    def run1(self, kernel: Any, out: Buffer, x: Buffer) -> None:
        kernel.call(1 if out.size < kernel.grain else threads(), out.data, x.data)

    def run2(self, kernel: Any, out: Buffer, x: Any, y: Any) -> None:
        x, y = x.data if isinstance(x, Buffer) else x, y.data if isinstance(y, Buffer) else y
        kernel.call(1 if out.size < kernel.grain else threads(), out.data, x, y)

    def resolve(self, kernel: Any, work: int, arguments: Sequence[Any]) -> tuple[Callable[..., None], Sequence[Any]]:
        return kernel.call, (1 if work < kernel.grain else threads(), *arguments)

    def width(self) -> int:
        return threads()


def threads() -> int:
    """How many threads a parallel launch uses: what numba.set_num_threads() was given, else NUMBA_NUM_THREADS."""
    return counter()()


@cache
def counter() -> Callable[[], int]:
    """What tells that number; starts the threads."""
    from numba import config
    from numba.np.ufunc import parallel

    from . import pool

    pool.start()
    most = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    # Asking numba.get_num_threads() would start Numba's own threads, which flamepy has no use for.
    return lambda: parallel._get_num_threads() if parallel._is_initialized else most  # type: ignore[attr-defined]


class CpuDevice(Device):
    """`device("cpu")`."""

    def __init__(self) -> None:
        self.name = "cpu"
        self.stream: Stream = CpuStream()
        self.kernels: dict[tuple[str, Callable | None, np.dtype], Kernel] = {}

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        try:
            pool = pools[dtype, size]
            block = pool.pop()
        except (KeyError, IndexError):  # nothing kept, or another thread was faster
            pool, block = allocator.make(size, dtype)
        current = allocator.current = allocator.current + pool.nbytes
        if current > allocator.peak:
            allocator.peak = current
        return CpuBuffer(block, size, dtype, self, pool)

    def kernel(self, loop: str, formula: Callable | None, dtype: np.dtype) -> Kernel:
        key = (loop, formula, dtype)
        try:
            return self.kernels[key]
        except KeyError:
            kernel = self.kernels[key] = CpuKernel(binder(loop, formula, dtype), GRAIN // DEAR if is_dear(formula) else GRAIN)
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
        return Buffer(span.data[start : start + size], size, span.dtype, self, span, start)

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


def convert(workers: int, out: np.ndarray, x: np.ndarray) -> None:
    """NumPy's conversion to and from 16-bit types, as a kernel."""
    with np.errstate(invalid="ignore", over="ignore"):
        np.copyto(out, x.astype(np.float32) if out.dtype.kind in "iub" else x, casting="unsafe")


CONVERT = CpuKernel(lambda: convert, GRAIN)


@cache
def is_dear(formula: Callable | None) -> bool:
    """Whether a number of it takes several times as long as an addition."""
    return formula is not None and any([DEAR_WORDS & globals_of(f.__code__) for f in reached(formula)])


def binder(loop: str, formula: Callable | None, dtype: np.dtype) -> Callable[[], Any]:
    """What binds `loop` for `dtype` when asked; raises DTypeError at once for a type no kernel is made for."""
    if dtype not in FULL and dtype not in INTEGERS and dtype.kind != "b":
        raise DTypeError(f"{loop}: no kernel for this type: {dtype}. Cast to float32 or float64.")

    def bound() -> Any:
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
