"""Copies that a replay need not make: who reads a slice, a chunk, a clone is given the memory that it was copied from.

A copy stays where that memory, or the copy, is written before its last reader is done; where others than launches read it: results and
checks; and where it is much smaller than what would have to be kept in its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ...backend.base import Buffer, Device
from ...backend.run import Action, Spot, Step
from .arena import alive_at_once
from .lean import Sizes, Steps, lives_of, named

LITTLE = 1 << 16  # bytes that may be in use beyond what copies need: a launch costs more than these


def without_copies(steps: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[int], sizes: Sizes, device: Device) -> list[Any]:
    """The steps, with None in the place of copies that are read where they come from."""
    copies = {n: found for n, s in enumerate(steps) if type(s) is Step and len(s.outs) == 1 and (found := device.copied(s))}
    if not copies:
        return list(steps)
    far, near = (Reading(steps, outputs, inputs, sizes, device, copies).found(far) for far in (True, False))
    if far.count(None) == near.count(None):
        return near
    peaks = [alive_at_once(list(lives_of(found, outputs, inputs, sizes, device.checks_late).values())) for found in (near, far)]
    return far if peaks[1] <= peaks[0] + LITTLE else near


class Reading:
    """Who reads and writes what, and which copies are read where they come from. `copies`: what Device.copied() says of each."""

    def __init__(self, steps: Steps, outputs: Sequence[Any], inputs: Sequence[int], sizes: Sizes, device: Device, copies: dict[int, Any]):
        self.steps, self.sizes, self.near, self.copies = steps, sizes, device.near, copies
        self.last: dict[Any, int] = {}  # the last step that names a piece of memory
        self.writes: dict[Any, list[int]] = {}  # the steps that write it
        # Numbers of what others than launches read, or somebody as another type:
        self.kept = {*inputs, *[a.number for a in outputs if type(a) is Spot]}
        self.places: dict[int, Any] = {}  # by the number of a copy: the memory that is read for it
        for n, s in enumerate(steps):
            for a in named(s) if s else ():
                self.last[memory_of(a)] = n
                if type(a) is Spot and (isinstance(s, Action) or (a.size >= 0 and a.dtype != sizes[a.number][1])):
                    self.kept.add(a.number)
            for a in s.outs if isinstance(s, Step) else s.buffers if s and s.early else ():
                self.writes.setdefault(memory_of(a), []).append(n)

    def found(self, far: bool) -> list[Any]:
        """The steps without these copies. `far`: also where memory is kept for longer, and that may take more at once."""
        kept: list[Any] = list(self.steps)
        for n, s in enumerate(kept):
            if n in self.copies and (part := self.part_for(n, s.outs[0], far)):
                self.places[s.outs[0].number], kept[n] = part, None
            elif isinstance(s, Step):
                kept[n] = Step(s.kernel, *[[self.place(a) for a in group] for group in s[1:]])
        return kept

    def part_for(self, n: int, y: Any, far: bool) -> Any:
        """The memory to be read in the place of the copy y that step n makes; None if it has to be made."""
        if type(y) is not Spot or y.size >= 0 or y.number in self.kept or len(self.writes[y.number]) > 1:
            return None
        copied, first = self.copies[n]
        source, (size, dtype), last = self.place(copied), self.sizes[y.number], self.last[y.number]
        if (source.dtype or self.sizes[source.number][1]) != dtype:
            return None
        at, root = source.offset + first * dtype.itemsize, memory_of(source)
        writes = self.writes.get(root, [])
        if at % self.near or bisect_right(writes, n) < bisect_right(writes, last):
            return None
        if isinstance(source, Buffer):
            return source.part(first, size)
        if self.last[root] < last:
            whole, kind = self.sizes[root]
            if not far and whole * kind.itemsize > size * dtype.itemsize:
                return None
            self.last[root] = last
        return Spot(root, at, size, dtype)

    def place(self, a: Any) -> Any:
        """What is read for this."""
        if type(a) is not Spot or a.number not in self.places:
            return a
        part = self.places[a.number]
        if a.size < 0:
            return part
        if isinstance(part, Buffer):
            return part.device.slot(part, a.offset, a.size, a.dtype)
        return Spot(part.number, part.offset + a.offset, a.size, a.dtype)


def memory_of(a: Any) -> Any:
    """What the parts of one piece of memory have in common: the number of a spot, the id of a buffer."""
    return a.number if type(a) is Spot else -id(a.root or a) if isinstance(a, Buffer) else None
