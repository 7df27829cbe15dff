"""The CPU's memory: aligned blocks, kept when they are freed and handed out again.

A block goes back to its pool when the last buffer that uses it dies, unless somebody still looks at it (a view from `.numpy()`).
FLAME counterpart: `flame_core::memory_pool`. Read next: device.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from sys import getrefcount
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from ..base import Buffer, Device
from .storage import stored

ALIGN = 64  # one cache line, one AVX-512 register
APART = 1024  # bytes between two blocks, at least
PACKAGE = __name__.partition(".")[0]
KEEP = 1 << 31  # bytes of freed blocks to keep at most
SPARE = 1 << 26  # of these, bytes that belong to no pool any more: for sizes that come


class Pool(list):
    """The freed blocks of one dtype and size. It lives as long as somebody may make such a buffer, or has one: the memory of a size that
    is never seen again is for other sizes."""

    __slots__ = ("__weakref__", "allocator", "device", "dtype", "nbytes", "size")
    gone: ClassVar[type[Pool]]  # at the process's exit a global may be gone before the last pool

    def __init__(self, size: int, dtype: np.dtype, device: Device, allocator: Allocator):
        self.size, self.dtype, self.device, self.nbytes = size, dtype, device, size * dtype.itemsize
        self.allocator = allocator

    def __del__(self) -> None:
        self.allocator.total -= self.nbytes * len(self)
        self.allocator.keep_spare([block.base for block in self])
        self.clear()
        self.__class__ = self.gone


class Gone(Pool):
    """A pool that died before its last buffers, as one that the garbage collector found together with them may: it takes no blocks."""

    __slots__ = ()

    def append(self, block: np.ndarray) -> None:
        self.allocator.total -= self.nbytes


Pool.gone = Gone


class Allocator:
    """Keeps freed blocks and counts bytes: `current` in buffers, `total` in buffers and pools.

    The counts are right with many threads too: in CPython a statement without a call, like `a.n += 1`, is not interrupted.
    """

    def __init__(self) -> None:
        self.pools: WeakValueDictionary[tuple[np.dtype, int], Pool] = WeakValueDictionary()
        self.current = self.peak = self.total = self.spare = 0
        self.raws: dict[int, list[Raw]] = {}  # the spare ones, by rounded size

    @property
    def cached(self) -> int:
        return self.total - self.current + self.spare

    def make(self, pool: Pool) -> np.ndarray:
        """A block of spare memory or from the system, to go to `pool` when it is freed."""
        nbytes = rounded(pool.nbytes)
        try:
            raw = self.raws[nbytes].pop()
            self.spare -= nbytes
        except (KeyError, IndexError):
            raw = self.fresh(nbytes, pool)
        self.total += pool.nbytes
        return aligned(pool.size, stored(pool.dtype), raw)

    def fresh(self, nbytes: int, pool: Pool) -> Raw:
        """Memory of the system, if need be after everything kept was given back. Raises MemoryError."""
        with suppress(MemoryError, ValueError, OverflowError):
            return Raw(nbytes, np.uint8)
        self.release()
        try:
            return Raw(nbytes, np.uint8)
        except (MemoryError, ValueError, OverflowError):  # the last two: more than an address can say
            what = f"{pool.size:,} numbers of {pool.dtype}, {pool.nbytes:,} bytes, beside {self.current:,} in use"
            raise MemoryError(f"{asking()}: out of memory: {what}. Use a smaller batch, checkpoint(), or bfloat16.") from None

    def keep_spare(self, raws: list[Raw], most: int = SPARE) -> None:
        """Keep memory that belongs to no size any more: fresh memory of the system costs a fault for each of its pages."""
        for raw in raws:
            if self.spare + raw.size <= most:
                self.spare += raw.size
                self.raws.setdefault(raw.size, []).append(raw)

    def release(self) -> None:
        """Give every kept block back to the system."""
        for nbytes, raws in list(self.raws.items()):
            with suppress(IndexError):  # another thread was faster
                while raws:
                    raws.pop()
                    self.spare -= nbytes
        for pool in list(self.pools.values()):
            with suppress(IndexError):
                while pool:
                    pool.pop()
                    self.total -= pool.nbytes


class Raw(np.ndarray):
    """Bytes to make a block of. As this is another class than the block's, NumPy makes a view of a view of a block refer to the
    block, not to these bytes: so getrefcount(block) counts everybody who looks at it."""


def asking() -> str:
    """Who asks for memory: the op whose call this is, or the function of this package that was called."""
    frame, name = sys._getframe(2), "cpu"
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(PACKAGE):
        op = getattr(frame.f_locals.get("op") or frame.f_locals.get("entry"), "op", frame.f_locals.get("op"))
        if title := getattr(op, "title", ""):
            return str(title)
        name, frame = frame.f_code.co_name, frame.f_back  # type: ignore[assignment]
    return name


def rounded(nbytes: int) -> int:
    """Bytes to ask for, for a block of so many: with room around it, and rounded up by an eighth at most, so that other sizes fit, too."""
    room = nbytes + ALIGN + APART
    step = 1 << max(10, room.bit_length() - 4)
    return (room + step - 1) // step * step


def aligned(size: int, dtype: np.dtype, raw: Raw) -> np.ndarray:
    """An uninitialised array in `raw` whose first element lies on a cache line, with room behind its last.

    The room makes results independent of addresses: where an array begins within some 350 bytes of the end of another, LLVM's check
    for overlap may choose scalar code, whose last bits differ (measured: a bias gradient behind the cotangent it sums).
    """
    return np.ndarray(size, dtype, raw, -raw.__array_interface__["data"][0] % ALIGN)  # type: ignore[call-overload]


allocator = Allocator()
pools = allocator.pools
_owner = SimpleNamespace(data=aligned(1, np.dtype("uint8"), Raw(rounded(1), np.uint8)))
ALONE = getrefcount(_owner.data)  # the count of a block whose buffer is the only one to know it


class CpuBuffer(Buffer):
    """Memory that returns to its pool when the last tensor or entry lets go of it. What is common to all of one kind stands in the
    pool: making a buffer sets two attributes."""

    size: int = property(attrgetter("pool.size"))  # type: ignore[assignment]
    dtype: np.dtype = property(attrgetter("pool.dtype"))  # type: ignore[assignment]
    device: Device = property(attrgetter("pool.device"))  # type: ignore[assignment]

    def __init__(self, data: np.ndarray, pool: Pool):
        self.data = data
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


def pool_of(size: int, dtype: np.dtype, device: Device) -> Pool:
    """The pool of one size and type."""
    found = pools.get((dtype, size))
    return pools.setdefault((dtype, size), Pool(size, dtype, device, allocator)) if found is None else found


def buffer_from(pool: Pool) -> Buffer:
    """A buffer of the pool's size and type."""
    try:
        block = pool.pop()
    except IndexError:  # nothing kept, or another thread was faster
        block = allocator.make(pool)
    current = allocator.current = allocator.current + pool.nbytes
    if current > allocator.peak:
        allocator.peak = current
    return CpuBuffer(block, pool)


def maker(pool: Pool) -> Callable[[], Buffer]:
    """buffer_from(pool) as a function of its own, for plans: it looks up nothing, and sets itself what CpuBuffer() sets."""
    nbytes, pop, new = pool.nbytes, pool.pop, object.__new__

    def make() -> Buffer:
        try:
            block = pop()
        except IndexError:
            block = allocator.make(pool)
        current = allocator.current = allocator.current + nbytes
        if current > allocator.peak:
            allocator.peak = current
        buffer = new(CpuBuffer)
        buffer.data, buffer.pool = block, pool
        return buffer

    return make
