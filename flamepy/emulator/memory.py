"""Device memory of the emulator: host memory in which every byte has a state.

Device addresses begin at DEVICE_BASE, where no host address can be: a kernel that is given a host pointer fails at its first access,
and host code that is given a device pointer cannot read it. Between allocations lie bytes that belong to none. The states and the
records of who touched what (5 x 8 bytes for each 4, and 2 x 8 for each one that is touched alone) take memory only where they are used.
"""

from __future__ import annotations

import bisect
import mmap
import os
import sys
from collections import deque
from typing import Any

import numpy as np

from ..core.errors import DeviceError
from .layout import ALLOCATED, DEVICE_BASE, WRITTEN

ALIGN = 256
RED_ZONE = 256
SIZE = 1 << 33  # reserved, not used; with the records 28 times as much
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)  # older Pythons lack the name
HELD_BACK = 64  # freed blocks that are not handed out yet, so that a pointer into them is told
LARGE = 1 << 22  # bytes of a block whose memory goes back to the system when it is freed


def reserve(size: int) -> mmap.mmap:
    """Addresses for `size` bytes, zero, without memory behind them."""
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE)
    region.madvise(mmap.MADV_DONTFORK)  # a child has no GPU either, and a fork need not find room for all this
    return region


def host_address(region: mmap.mmap) -> int:
    return int(np.frombuffer(region, np.uint8, 1).__array_interface__["data"][0])


def reserved(size: int) -> int:
    """The bytes that a block of this size takes, with what lies between it and the next."""
    return -(-max(size, 1) // ALIGN) * ALIGN + RED_ZONE


class Memory:
    """allocate and free; write, read and fill by device address."""

    def __init__(self, size: int = SIZE) -> None:
        while True:  # where less may be reserved, less will do
            try:
                self.regions = [reserve(size), reserve(size), *(reserve(2 * size) for _ in range(5)), reserve(16 * size)]
                break
            except (OSError, ValueError):
                size //= 2
                if size < 1 << 24:
                    raise DeviceError(
                        "emulator: no memory can be reserved: 16 MiB. Raise the limit of virtual memory (ulimit -v)."
                    ) from None
        self.size, self.process = size, os.getpid()
        self.process_now = os.getpid  # kept here: when Python ends, modules are emptied before the last buffers are freed
        self.bytes = np.frombuffer(self.regions[0], np.uint8)
        self.states = np.frombuffer(self.regions[1], np.uint8)
        # bytes, states, writers, a reader, who reads, atomic writers, releases, records of single bytes
        self.addresses = [host_address(r) for r in self.regions]
        self.top = RED_ZONE
        self.blocks: dict[int, int] = {}  # offset -> size
        self.order: list[int] = []  # offsets of blocks, sorted
        self.late: deque[tuple[int, int]] = deque()  # offset and size of those freed last
        self.late_bytes = 0
        self.room: dict[int, list[int]] = {}  # freed before, by reserved size

    def check_process(self) -> None:
        """The child of a fork has none of this memory."""
        if self.process_now() != self.process:
            raise DeviceError("cuda: the emulated GPU stayed in the process that was forked: there is none here. Use spawn.")

    def allocate(self, size: int) -> int:
        """The address of `size` bytes that nobody has written yet."""
        self.check_process()
        whole = reserved(size)
        if self.top + whole > self.size:
            self.hand_out(0)
        free = self.room.get(whole)
        if free:
            offset = free.pop()
        elif self.top + whole > self.size:
            raise DeviceError(
                f"emulator: out of memory: {size:,} bytes wanted, {self.size - self.top:,} are left. Free some, or make less."
            )
        else:
            offset, self.top = self.top, self.top + whole
        self.blocks[offset] = size
        bisect.insort(self.order, offset)
        self.states[offset : offset + size] = ALLOCATED
        return DEVICE_BASE + offset

    def free(self, address: int) -> None:
        """Its bytes belong to nobody from now on."""
        if self.process_now() != self.process:  # of the parent
            return
        offset = address - DEVICE_BASE
        size = self.blocks.pop(offset, None)
        if size is None:
            raise DeviceError(f"free: not an address that allocate() gave, or freed before: {address:#x}. Free each allocation once.")
        del self.order[bisect.bisect_left(self.order, offset)]
        self.states[offset : offset + size] = 0
        if size >= LARGE:
            self.give_back(offset, offset + size)
        self.late.append((offset, size))
        self.late_bytes += size
        self.hand_out(HELD_BACK)

    def hand_out(self, most: int) -> None:
        """Freed blocks beyond `most`, or beyond a small part of the memory, may be allocated again: the oldest first. One stays anyway."""
        while len(self.late) > most or (len(self.late) > 1 and self.late_bytes > self.size >> 9):
            offset, size = self.late.popleft()
            self.late_bytes -= size
            self.room.setdefault(reserved(size), []).append(offset)

    def give_back(self, start: int, end: int) -> None:
        """The pages of these bytes, their states and records are zero again, and take no memory."""
        start, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        for k, region in enumerate(self.regions):
            scale = 1 if k < 2 else 2 if k < 7 else 16
            region.madvise(mmap.MADV_DONTNEED, scale * start, scale * (end - start))

    def span(self, op: str, address: int, size: int) -> slice:
        """The bytes of an access by the host, which has to stay inside one allocation."""
        self.check_process()
        offset = address - DEVICE_BASE
        if size and not (offset >= 0 and offset + size <= self.top and (self.states[offset : offset + size] & ALLOCATED).all()):
            raise DeviceError(
                f"{op}: outside of what is allocated: {size} bytes at {address:#x}{self.nearest(address)}. Check address and size."
            )
        return slice(offset, offset + size)

    def write(self, address: int, data: Any) -> None:
        """Copy an array (or bytes) to the device."""
        raw = (
            np.frombuffer(data, np.uint8) if isinstance(data, (bytes, bytearray)) else np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        )
        where = self.span("write", address, raw.size)
        self.bytes[where] = raw
        self.states[where] |= WRITTEN

    def read(self, address: int, count: int, dtype: Any = np.uint8) -> np.ndarray:
        """A copy of `count` numbers, whether or not anyone has written them."""
        kind = np.dtype(dtype)
        return self.bytes[self.span("read", address, count * kind.itemsize)].copy().view(kind)

    def view(self, address: int, count: int, dtype: Any = np.uint8) -> np.ndarray:
        """The bytes themselves. Who writes through it says so with mark_written."""
        kind = np.dtype(dtype)
        return self.bytes[self.span("view", address, count * kind.itemsize)].view(kind)

    def mark_written(self, address: int, size: int) -> None:
        self.states[self.span("mark_written", address, size)] |= WRITTEN

    def fill(self, address: int, value: int, size: int) -> None:
        """Set bytes, as cuMemset does."""
        where = self.span("fill", address, size)
        self.bytes[where] = value
        self.states[where] |= WRITTEN

    def is_written(self, address: int, size: int) -> bool:
        return bool((self.states[self.span("is_written", address, size)] & WRITTEN).all())

    def forget(self) -> None:
        """Drop all records of accesses: the numbers of phases begin again."""
        for region, address in zip(self.regions[2:], self.addresses[2:], strict=True):
            if address:
                region.madvise(mmap.MADV_DONTNEED)

    def nearest(self, address: int) -> str:
        """Where an address lies, in words: inside, after or before which allocation."""
        offset = address - DEVICE_BASE
        if not 0 <= offset < self.top:
            return ", which is no device address"
        k = bisect.bisect_right(self.order, offset) - 1
        for start, size in self.late:
            if start <= offset < start + size:
                return f", {offset - start} bytes into the {size} bytes at {DEVICE_BASE + start:#x}, which were freed"
        before = self.order[k] if k >= 0 else None
        if before is not None and offset < before + self.blocks[before]:
            return f", {offset - before} bytes into the {self.blocks[before]} bytes at {DEVICE_BASE + before:#x}"
        if not self.order:
            return ", where nothing is allocated"
        after = self.order[k + 1] if k + 1 < len(self.order) else None
        past = offset - before - self.blocks[before] if before is not None else None
        if past is not None and (after is None or past <= after - offset):
            return f", {past} bytes past the end of the {self.blocks[before]} bytes at {DEVICE_BASE + before:#x}"  # type: ignore[index,operator]
        assert after is not None
        return f", {after - offset} bytes before the {self.blocks[after]} bytes at {DEVICE_BASE + after:#x}"
