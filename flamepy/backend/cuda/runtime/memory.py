"""The GPU's memory: freed blocks are kept by size and handed out again; small ones are cut from slabs.

All work is on one stream, so a block that is freed while a kernel still reads it is overwritten only by later kernels. A driver that
`watches`, the emulator, is asked for each buffer and gets it back: it checks who touches which.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import Buffer, Device

ALIGN = 256  # bytes: where blocks begin
APART = 256  # bytes between two blocks, at least
SMALL = 1 << 20
SLAB = 1 << 25


class CudaBuffer(Buffer):
    """Memory that returns to the allocator when the last tensor or entry lets go of it. `data`: the address; `block`: its bytes."""

    block: int
    allocator: Allocator

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:  # a global is gone when the last buffers die
        if not ending():
            self.allocator.give(self.data, self.block)


class Allocator:
    """Counts bytes: `current` in buffers, `total` in what was asked of the driver, `peak` the most that were in buffers, `returned` to it.

    All freed blocks are kept until the driver has no memory left: to give one back is to wait for the GPU."""

    def __init__(self, driver: Any):
        self.driver = driver
        self.free: dict[int, list[int]] = {}  # by size of the block
        self.makers: dict[tuple[int, np.dtype], Callable[[], Buffer]] = {}
        self.at = self.end = 0  # what is left of the newest slab
        self.current = self.peak = self.total = self.returned = 0

    @property
    def cached(self) -> int:
        return self.total - self.current

    def maker(self, device: Device, size: int, dtype: np.dtype) -> Callable[[], Buffer]:
        """What makes buffers of one size and type."""
        found = self.makers.get((size, dtype))
        if found is None:
            if len(self.makers) > 4096:  # sizes may change for ever
                self.makers.clear()
            found = self.makers[size, dtype] = self.new_maker(device, size, dtype)
        return found

    def new_maker(self, device: Device, size: int, dtype: np.dtype) -> Callable[[], Buffer]:
        nbytes = size * dtype.itemsize
        block = nbytes if self.driver.watches else rounded(nbytes)
        kept = self.free.setdefault(block, [])
        new = CudaBuffer.__new__
        carve = self.cut if block <= SMALL and not self.driver.watches else self.ask

        def make() -> Buffer:
            try:
                address = kept.pop()
            except IndexError:
                address = carve(block)
            current = self.current = self.current + block
            if current > self.peak:
                self.peak = current
            buffer = new(CudaBuffer)  # without a call of __init__: every eager op makes one
            buffer.data, buffer.size, buffer.dtype, buffer.device = address, size, dtype, device
            buffer.block, buffer.allocator = block, self
            return buffer

        return make

    def give(self, address: int, block: int) -> None:
        """Take a block back."""
        self.current -= block
        if self.driver.watches:
            self.total -= block
            self.driver.free(address)
        else:
            self.free[block].append(address)

    def cut(self, size: int) -> int:
        if self.end - self.at < size:
            self.at = self.ask(SLAB)
            self.end = self.at + SLAB
        self.at += size
        return self.at - size

    def ask(self, size: int) -> int:
        """Memory of the driver's; when it has none left, after giving back what is kept."""
        address = self.driver.allocate(size)
        if address is None:
            self.driver.synchronize()  # launches may still read what is given back
            self.release()
            address = self.driver.allocate(size, last=True)
        self.total += size
        return int(address)

    def release(self) -> None:
        """Give the large blocks that are kept back to the driver; slabs stay."""
        for size in [s for s in self.free if s > SMALL]:
            while self.free[size]:
                self.driver.free(self.free[size].pop())
                self.total -= size
                self.returned += size


def rounded(nbytes: int) -> int:
    """Bytes of a block for so many: with room behind it, and rounded up by an eighth at most, so that other sizes fit, too."""
    room = nbytes + APART
    step = max(ALIGN, 1 << max(0, room.bit_length() - 4))
    return -(-room // step) * step
