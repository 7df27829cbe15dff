"""Memory that another library may write into, since it was handed out through DLPack: its writes count when they are looked for.

Such a library tells nobody of its writes. So whenever the version of lent memory is asked for, its numbers are compared, by a checksum,
with those of the time before; an op that saves them for backward asks, and backward asks again. Memory never lent pays nothing.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np

from .base import Buffer


class Lent(Buffer):
    """A buffer after lend(). `count`: its writes so far; `seen`: the checksum when they were last asked for."""

    count: int
    seen: int | None = None
    place = ""

    @property
    def writes(self) -> int:  # type: ignore[override]
        host: Any = self.device.direct.download(self)
        now = zlib.crc32(host.view(np.uint8))
        if self.seen is not None and now != self.seen:
            self.count += 1
            self.written = f"another library, to which __dlpack__() lent the memory at {self.place}"
        self.seen = now
        return self.count

    @writes.setter
    def writes(self, count: int) -> None:
        self.count = count


@cache
def lent(kind: Any) -> Any:
    return type("Lent" + kind.__name__, (Lent, kind), {})


def lend(buffer: Buffer, place: str) -> None:
    """From now on, look for writes of others. `place`: where in the user's code it was handed out."""
    if not isinstance(buffer, Lent):
        count = buffer.__dict__.pop("writes", 0)
        kind: Any = type(buffer)
        buffer.__class__ = lent(kind)
        buffer.writes = count
    buffer.place = place  # type: ignore[attr-defined]
