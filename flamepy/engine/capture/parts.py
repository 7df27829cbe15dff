"""Copies that a replay need not make: who reads a slice, a chunk, a clone is given the memory that it was copied from, and so is a
product that reads a transpose, or a map that reads rows of a matrix in part.

A copy stays where that memory, or the copy, is written before its last reader is done; where others than launches read it: results and
checks; and where it is much smaller than what would have to be kept in its place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ...backend.base import Buffer, Device
from ...backend.run import Action, Spot, Step
from ...dtypes import FULL
from .arena import alive_at_once
from .lean import Sizes, lives_of, named

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

    def __init__(
        self, steps: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[int], sizes: Sizes, device: Device, copies: dict[int, Any]
    ):
        self.steps, self.sizes, self.device, self.copies = list(steps), sizes, device, copies
        self.names: dict[Any, list[int]] = {}  # the steps that name a piece of memory, or read what is copied from it
        self.writes: dict[Any, list[int]] = {}  # the steps that write it
        # Numbers of what others than launches read, or somebody as another type:
        self.kept = {*inputs, *[a.number for a in outputs if type(a) is Spot]}
        self.places: dict[int, Any] = {}  # by the number of a copy: the memory that is read for it
        for n, s in enumerate(steps):
            for a in named(s) if s else ():
                self.names.setdefault(memory_of(a), []).append(n)
                if type(a) is Spot and (isinstance(s, Action) or (a.size >= 0 and a.dtype != sizes[a.number][1])):
                    self.kept.add(a.number)
            for a in s.outs if isinstance(s, Step) else s.buffers if s and s.early else ():
                self.writes.setdefault(memory_of(a), []).append(n)

    def found(self, far: bool) -> list[Any]:
        """The steps without these copies. `far`: also where memory is kept for longer, and that may take more at once."""
        for n, s in enumerate(self.steps):
            if n in self.copies and (part := self.part_for(n, s.outs[0], far)):
                self.places[s.outs[0].number], self.steps[n] = part, None
            elif isinstance(s, Step):
                self.steps[n] = Step(s.kernel, *[[self.place(a) for a in group] for group in s[1:]])
        return self.steps

    def part_for(self, n: int, y: Any, far: bool) -> Any:
        """The memory to be read in the place of the copy y that step n makes; None if it has to be made."""
        if type(y) is not Spot or y.size >= 0 or y.number in self.kept or len(self.writes[y.number]) > 1:
            return None
        copied, first, lies = self.copies[n]
        source, (size, dtype), last = self.place(copied), self.sizes[y.number], self.names[y.number][-1]
        if (source.dtype or self.sizes[source.number][1]) != dtype:
            return None
        at, root = source.offset + first * dtype.itemsize, memory_of(source)
        writes = self.writes.get(root, [])
        if at % self.device.near or bisect_right(writes, n) < bisect_right(writes, last):
            return None
        if type(source) is Spot and self.names[root][-1] < last:
            whole, kind = self.sizes[root]
            if not far and whole * kind.itemsize > size * dtype.itemsize:
                return None
        if lies and not self.rewrite(n, y, lies):
            return None
        if len(lies) == 3:
            size = (lies[0] - 1) * lies[2] + lies[1]
        self.names[root].append(max(last, self.names[root][-1]))
        return source.part(first, size) if isinstance(source, Buffer) else Spot(root, at, size, dtype)

    def rewrite(self, n: int, y: Spot, lies: tuple[int, ...]) -> bool:
        """Have the readers of y, which step n would write, read what lies like this, if they all can."""
        found: dict[int, Any] = {}
        for reader in {*self.names[y.number]} - {n}:
            s: Any = self.steps[reader]
            places = [i for i, a in enumerate(s.ins) if type(a) is Spot and a == y]
            alone = len(places) == len([a for a in named(s) if memory_of(a) == y.number])
            found[reader] = self.device.rewritten(s, places, lies) if alone and self.sizes[y.number][1] in FULL else None
        if None in found.values():
            return False
        for reader, s in found.items():
            self.steps[reader] = s
        return True

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
