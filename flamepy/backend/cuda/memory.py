"""The GPU's memory: freed blocks are kept by size and handed out again; small ones are cut from slabs.

All work is on one stream, so a block that is freed while a kernel still reads it is overwritten only by later kernels. The driver learns
what is handed out and what comes back: the emulator marks these bytes, a GPU's driver does nothing.

FLAME counterpart: `flame_core::memory_pool`. Read next: device.py.
"""

from __future__ import annotations

from typing import Any

ALIGN = 256  # bytes: where blocks begin
APART = 256  # bytes between two blocks, at least
SMALL = 1 << 20
SLAB = 1 << 25


class Allocator:
    """Counts bytes: `current` in buffers, `total` in what was asked of the driver, `peak` the most that were in buffers."""

    def __init__(self, driver: Any):
        self.driver = driver
        self.free: dict[int, list[int]] = {}
        self.at = self.end = 0  # what is left of the newest slab
        self.current = self.peak = self.total = 0

    @property
    def cached(self) -> int:
        return self.total - self.current

    def take(self, nbytes: int) -> tuple[int, int]:
        """(address, size of the block) of at least so many bytes."""
        size = rounded(nbytes)
        kept = self.free.get(size)
        address = kept.pop() if kept else self.cut(size) if size <= SMALL else self.ask(size)
        self.current += size
        self.peak = max(self.peak, self.current)
        self.driver.handed(address, nbytes)
        return address, size

    def give(self, address: int, size: int) -> None:
        """Take a block back."""
        self.current -= size
        self.free.setdefault(size, []).append(address)
        self.driver.returned(address, size)

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
            self.release()
            address = self.driver.allocate(size, last=True)
        self.total += size
        return int(address)

    def release(self) -> None:
        """Give the large blocks that are kept back to the driver; slabs stay."""
        for size in [s for s in self.free if s > SMALL]:
            for address in self.free.pop(size):
                self.driver.free(address)
                self.total -= size


def rounded(nbytes: int) -> int:
    """Bytes of a block for so many: with room behind it, and rounded up by an eighth at most, so that other sizes fit, too."""
    room = nbytes + APART
    step = max(ALIGN, 1 << max(0, room.bit_length() - 4))
    return -(-room // step) * step
