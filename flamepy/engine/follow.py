"""Following a tensor's numbers through whatever is launched, on the tape or beside it: where they went, and whether the host read them.

A stream stands in the place of each device's, and notes which memory was computed from the memory of x. What is handed to another thread
is not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from ..backend.base import Buffer, Stream, opened
from ..backend.recorder import divert


class Trail:
    """Where the numbers of x went: parts of memory, and whether the host read one."""

    def __init__(self, x: Any):
        self.parts: WeakKeyDictionary[Buffer, list[tuple[int, int]]] = WeakKeyDictionary()  # by root: from, to, in bytes
        self.read = False
        self.quiet = 0  # depth of what flamepy itself looks at
        self.mark(x.buffer)

    def mark(self, buffer: Any) -> None:
        root, start, end = region(buffer)
        if not self.reaches(buffer):
            self.parts.setdefault(root, []).append((start, end))

    def reaches(self, buffer: Any) -> bool:
        root, start, end = region(buffer)
        return any([a < end and start < b for a, b in self.parts.get(root, ())])


def region(buffer: Any) -> tuple[Buffer, int, int]:
    """(the memory that a buffer is part of, its first byte there, the end)."""
    return buffer.root or buffer, buffer.offset, buffer.offset + buffer.size * buffer.dtype.itemsize


class Follower(Stream):
    """Runs everything on `inner`, the stream in whose place it stands, and keeps the trail."""

    inner: Any

    def __init__(self, trail: Trail):
        self.trail = trail

    if not TYPE_CHECKING:
        empty, upload, wrote, before = (property(attrgetter(f"inner.{name}")) for name in ("empty", "upload", "wrote", "before"))

    def download(self, buffer: Buffer) -> np.ndarray:
        self.looked(buffer)
        return self.inner.download(buffer)  # type: ignore[no-any-return]

    def number(self, buffer: Buffer, i: int = 0) -> Any:
        self.looked(buffer)
        return self.inner.number(buffer, i)

    def looked(self, buffer: Buffer) -> None:
        if not self.trail.quiet and self.trail.reaches(buffer):
            self.trail.read = True

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        if any([isinstance(b, Buffer) and self.trail.reaches(b) for b in (*ins, *consts)]):
            for b in outs:
                if b is not None:
                    self.trail.mark(b)
        self.inner.run(kernel, outs, ins, consts)

    def copy(self, out: Buffer, x: Buffer) -> None:
        if self.trail.reaches(x):
            self.trail.mark(out)
        with self.unseen():  # from one device to another it goes by the host
            self.inner.copy(out, x)

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        with self.unseen():  # a check decides on an error, not on a number
            self.inner.after(check, *buffers)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        self.trail.quiet += 1
        try:
            yield
        finally:
            self.trail.quiet -= 1

    def shared(self, buffer: Buffer) -> None:
        """Whoever gets it may read any of it."""
        if not self.trail.quiet:
            self.trail.read = True
        self.inner.shared(buffer)


@contextmanager
def followed(x: Any) -> Iterator[Trail]:
    """Follow x's numbers through whatever this thread does in the block."""
    trail = Trail(x)
    with ExitStack() as stack:
        for device in opened():
            stack.enter_context(divert(device, Follower(trail)))
        yield trail
