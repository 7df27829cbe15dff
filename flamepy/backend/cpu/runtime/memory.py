"""The CPU's memory: aligned blocks, kept when they are freed and handed out again.

A block goes back to its pool when the last buffer that uses it dies, unless somebody still looks at it (a view from `.numpy()`).
Freed blocks of at most `limit` bytes are kept, a quarter of the peak; the rest goes back to the system. A loop that asks again for
what was given back raises the limit, by the peak at most, so that steps of the same shapes soon find all of their blocks here. Steps of
new shapes lower it again.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from sys import getrefcount
from threading import Lock
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from ....dtypes import bfloat16, float16
from ...base import Buffer, Device

# How the numbers of a buffer lie in its NumPy array: 16-bit floats as integers, for which NumPy and Numba have fast ways.
WHOLE = np.dtype("int16")  # what kernels are bound for that move 16-bit floats without looking at them
STORED = {bfloat16: np.dtype("uint16"), float16: WHOLE}


def stored(dtype: np.dtype) -> np.dtype:
    """The type of the array of a buffer of this dtype."""
    return STORED.get(dtype, dtype)


ALIGN = 64  # one cache line, one AVX-512 register
APART = 1024  # bytes between two blocks, at least
PACKAGE = __name__.partition(".")[0]
LEAST = 1 << 24  # bytes of freed blocks that may be kept however low the peak is
SPARE = 1 << 26  # bytes that belong to no pool any more, at most: for sizes that come
MAPPED = 1 << 18  # blocks from here on are mappings of their own: malloc may hold on to what is freed
HUGE = 1 << 22  # from here on the system is asked for large pages, as NumPy does
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not shared with forks


class Pool(list):
    """The freed blocks of one dtype and size. It lives as long as somebody may make such a buffer, or has one: the memory of a size that
    is never seen again is for other sizes."""

    __slots__ = ("__weakref__", "allocator", "device", "dtype", "given", "nbytes", "size")
    gone: ClassVar[type[Pool]]  # at the process's exit a global may be gone before the last pool

    def __init__(self, size: int, dtype: np.dtype, device: Device, allocator: Allocator):
        self.size, self.dtype, self.device, self.nbytes = size, dtype, device, size * dtype.itemsize
        self.allocator, self.given = allocator, 0  # how many blocks went back to the system and were not asked for again

    def __del__(self) -> None:
        self.allocator.left(self.nbytes * len(self))
        self.allocator.keep_spare([block.base for block in self])
        self.clear()
        self.__class__ = self.gone

    def shown(self, block: np.ndarray) -> Buffer:
        """A block of its that no buffer has, to be looked at."""
        return Buffer(block, self.size, self.dtype, self.device)


class Gone(Pool):
    """A pool that died before its last buffers, as one that the garbage collector found together with them may: it takes no blocks."""

    __slots__ = ()

    def append(self, block: np.ndarray) -> None:
        self.allocator.left(self.nbytes)


Pool.gone = Gone


class Allocator:
    """Keeps freed blocks and counts bytes: `current` in buffers, `total` in buffers and pools, `spare` in neither, `returned` to the
    system.

    The counts are right with many threads too: in CPython a statement without a call, like `a.n += 1`, is not interrupted.
    `least` bytes have to be in use for what is kept to be within the limit: with it, freeing a block compares two numbers. It may be
    that of a moment ago, and is set anew whenever a block is made or given back.
    """

    def __init__(self) -> None:
        self.pools: WeakValueDictionary[tuple[Device, np.dtype, int], Pool] = WeakValueDictionary()
        self.current = self.peak = self.total = self.spare = self.least = self.returned = 0
        self.asked = 0  # bytes above a quarter of the peak that are kept because they were asked for again
        self.raws: dict[int, list[Raw]] = {}  # the spare ones, by rounded size
        self.shrinking = Lock()

    @property
    def cached(self) -> int:
        return self.total - self.current + self.spare

    @property
    def limit(self) -> int:
        """Bytes of freed blocks that are kept at most."""
        return max(LEAST, self.peak // 4 + self.asked)

    def left(self, nbytes: int) -> None:
        """Count a block that has left the pools."""
        self.total -= nbytes
        self.least -= nbytes

    def make(self, pool: Pool) -> np.ndarray:
        """A block of spare memory or from the system, to go to `pool` when it is freed."""
        nbytes = rounded(pool.nbytes)
        try:
            raw = self.raws[nbytes].pop()
            self.spare -= nbytes
        except (KeyError, IndexError):
            raw = self.fresh(nbytes, pool)
            self.learn(pool)
        self.total += pool.nbytes
        self.least = self.total + self.spare - self.limit
        return aligned(pool.size, stored(pool.dtype), raw)

    def learn(self, pool: Pool) -> None:
        """Keep more if this block was here before, less if nobody has had such a one."""
        if pool.given > 0:
            pool.given -= 1
            self.asked = min(self.asked + pool.nbytes, self.peak)
        else:
            self.asked = max(0, self.asked - pool.nbytes // 4)

    def fresh(self, nbytes: int, pool: Pool) -> Raw:
        """Memory of the system, if need be after everything kept was given back. Raises MemoryError."""
        with suppress(MemoryError, ValueError, OverflowError, OSError):
            return mapped(nbytes)
        self.release()
        try:
            return mapped(nbytes)
        except (MemoryError, ValueError, OverflowError, OSError):  # the second and third: more than an address can say
            what = f"{pool.size:,} numbers of {pool.dtype}, {pool.nbytes:,} bytes, beside {self.current:,} in use"
            raise MemoryError(f"{asking()}: out of memory: {what}. Use a smaller batch, checkpoint(), or bfloat16.") from None

    def keep_spare(self, raws: list[Raw], most: int = SPARE, floor: int = LEAST) -> None:
        """Keep memory that belongs to no size any more: fresh memory of the system costs a fault for each of its pages."""
        most = min(most, max(floor, self.peak // 4))
        for raw in raws:
            if self.spare + raw.size <= most:
                self.spare += raw.size
                self.raws.setdefault(raw.size, []).append(raw)
            else:
                self.returned += raw.size

    def shrink(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Give back what is kept beyond the limit, and half of the limit too, so that this is not done for each block that is freed."""
        if not ending() and self.shrinking.acquire(blocking=False):  # a block that dies in here asks again
            try:
                self.release(self.limit // 2)
            finally:
                self.shrinking.release()

    def release(self, most: int = 0) -> None:
        """Give kept blocks back to the system until `most` bytes of them are left: first what belongs to no size, then the oldest sizes."""
        for nbytes in list(self.raws):  # lists that are made in one step: other threads, and what dies meanwhile, add to both dictionaries
            raws = self.raws[nbytes]
            with suppress(IndexError):  # another thread was faster
                while raws and self.cached > most:
                    raws.pop()
                    self.spare -= nbytes
                    self.returned += nbytes
        for ref in self.pools.valuerefs():
            pool = ref()
            with suppress(IndexError):
                while pool and self.cached > most:
                    pool.pop()
                    pool.given += 1
                    self.total -= pool.nbytes
                    self.returned += rounded(pool.nbytes)
        self.least = self.total + self.spare - self.limit


class Raw(np.ndarray):
    """Bytes to make a block of. As this is another class than the block's, NumPy makes a view of a view of a block refer to the
    block, not to these bytes: so getrefcount(block) counts everybody who looks at it."""


def mapped(nbytes: int) -> Raw:
    """Fresh memory, which goes back to the system when the last array in it dies."""
    if nbytes < MAPPED:
        return Raw(nbytes, np.uint8)
    memory = mmap.mmap(-1, nbytes, **PRIVATE)
    if nbytes >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return Raw(nbytes, np.uint8, memory)  # type: ignore[arg-type]


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
if hasattr(os, "register_at_fork"):  # a thread that is not there in the child may have been shrinking
    os.register_at_fork(after_in_child=lambda: setattr(allocator, "shrinking", Lock()))
_owner = SimpleNamespace(data=aligned(1, np.dtype("uint8"), Raw(rounded(1), np.uint8)))
ALONE = getrefcount(_owner.data)  # the count of a block whose buffer is the only one to know it


class CpuBuffer(Buffer):
    """Memory that returns to its pool when the last tensor or entry lets go of it. What is common to all of one kind stands in the
    pool: making a buffer sets two attributes."""

    size: int = property(attrgetter("pool.size"))  # type: ignore[assignment]
    dtype: np.dtype = property(attrgetter("pool.dtype"))  # type: ignore[assignment]
    device: Device = property(attrgetter("pool.device"))  # type: ignore[assignment]

    pool: Pool

    def __del__(self, allocator: Allocator = allocator, count: Any = getrefcount, alone: int = ALONE) -> None:
        # Defaults and not globals, which are gone when the last buffers die with the process.
        pool = self.pool
        current = allocator.current = allocator.current - pool.nbytes
        if count(self.data) == alone:
            pool.append(self.data)
            if current < allocator.least:
                allocator.shrink()
        else:  # somebody still looks at it, a view from `.numpy()` say: it is theirs now
            allocator.left(pool.nbytes)


def pool_of(size: int, dtype: np.dtype, device: Device) -> Pool:
    """The pool of one size and type on this device, which its buffers name as theirs."""
    found = pools.get((device, dtype, size))
    return pools.setdefault((device, dtype, size), Pool(size, dtype, device, allocator)) if found is None else found


def maker(pool: Pool) -> Callable[[], Buffer]:
    """What makes buffers of the pool's size and type: it looks up nothing, and calls no class."""
    nbytes, pop, new = pool.nbytes, pool.pop, object.__new__

    def make() -> Buffer:
        try:
            block = pop()
        except IndexError:  # nothing kept, or another thread was faster
            block = allocator.make(pool)
        current = allocator.current = allocator.current + nbytes
        if current > allocator.peak:
            allocator.peak = current
        buffer = new(CpuBuffer)
        buffer.data, buffer.pool = block, pool
        return buffer

    return make
