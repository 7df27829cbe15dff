"""Page-locked memory of the host: a GPU copies from it by itself, while the host goes on.

A block is the memory of one read-only array. When that array and its views are gone, the next one gets the block, but not before the copies
that were begun from it have ended: so nobody overwrites what is still being read. A host far ahead of the GPU waits here.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

AHEAD = 3  # blocks of one size, of which copies are under way, before a new array waits for the first of them
LEAST = 1 << 12  # bytes of a block


class Page:
    """A block while an array lies in it: the end of the array's chain of bases. `marks`: what each driver sets when it has copied."""

    def __init__(self, pages: Pages, address: int, block: int, nbytes: int, marks: dict[Any, Any]):
        self.pages, self.address, self.block, self.marks = pages, address, block, marks
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def read_by(self, driver: Any) -> None:
        """A copy from here has just been enqueued."""
        self.marks[driver] = driver.mark(self.marks.get(driver))

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.pages.kept.setdefault(self.block, deque()).append((self.address, self.marks))


class Pages:
    """The blocks of one driver's. `lock`: threads of loaders ask for them, too."""

    def __init__(self, driver: Any):
        self.driver = driver
        self.kept: dict[int, deque[tuple[int, dict[Any, Any]]]] = {}  # by size, the longest unused first
        self.lock = threading.Lock()

    def copy(self, array: np.ndarray) -> np.ndarray:
        """The same numbers in page-locked memory, read-only."""
        page = self.take(array.nbytes)
        found = np.asarray(page).view(array.dtype).reshape(array.shape)
        np.copyto(found, array)
        found.flags.writeable = False
        return found

    def take(self, nbytes: int) -> Page:
        block = max(LEAST, 1 << (nbytes - 1).bit_length() if nbytes else 0)
        if block > LEAST:  # to the next eighth
            block = -(-nbytes // (block >> 4)) * (block >> 4)
        self.driver.enter()
        with self.lock:
            kept = self.kept.setdefault(block, deque())
            free = kept and (len(kept) >= AHEAD or all([driver.passed(mark) for driver, mark in kept[0][1].items()]))
            address, marks = kept.popleft() if free else (self.more(block), {})
        for driver, mark in marks.items():
            driver.wait_for(mark)
        return Page(self, address, block, nbytes, marks)

    def more(self, block: int) -> int:
        """Memory of the system's; when it has none left, after giving back what is kept."""
        address = self.driver.locked(block)
        if address is None:
            self.release()
            address = self.driver.locked(block, last=True)
        return int(address)

    def release(self) -> None:
        """Give kept blocks back to the system."""
        for kept in self.kept.values():
            while kept:
                address, marks = kept.popleft()
                for driver, mark in marks.items():
                    driver.wait_for(mark)
                self.driver.unlocked(address)


def page_of(array: np.ndarray) -> Page | None:
    """Where the array lies, if that is page-locked."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, Page) else None
