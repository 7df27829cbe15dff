"""Program: the launches of a recorded step, its arena, and what it must find unchanged to be run again.

Buffers made by the step get places in one arena, by lifetime. Anything else that appears in it is held and stays where it is. So is
a buffer of the step that is still alive when the step has ended. Read next: arena.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..backend.base import Action, Buffer, Spot, Step, resolve
from ..errors import CaptureError
from .arena import Life, places
from .recorder import StepRecorder

UINT8 = np.dtype("uint8")


class Program:
    """Made when nothing of the step is left but what outlives it; `outputs`: the buffers it is asked for, emptied here."""

    def __init__(self, recorder: StepRecorder, outputs: list[Buffer], name: str):
        self.device, self.name, self.writer = recorder.device, name, f"a replay of {name}"
        self.launches = sum(isinstance(s, Step) for s in recorder.steps)
        self.actions = len(recorder.steps) - self.launches
        self.places = [recorder.place(b) for b in outputs]
        outputs.clear()
        kept = {n: b for n, (reference, _, _) in enumerate(recorder.made) if (b := reference()) is not None}
        lives = lives_of(recorder.steps, self.places)
        sizes = {n: (size, dtype) for n, (_, size, dtype) in enumerate(recorder.made)}
        numbers = [n for n in lives if n not in kept]
        nbytes = {n: sizes[n][0] * sizes[n][1].itemsize for n in numbers}
        spans = [Life(lives[n][0], lives[n][1], nbytes[n]) for n in numbers]
        offsets, self.bytes = places(spans, self.device.align, self.device.gap)
        self.separate = sum(nbytes.values())  # what they would take without sharing
        self.arena = self.device.empty(max(1, self.bytes), UINT8)
        self.memory = kept | {n: self.device.slot(self.arena, at, *sizes[n]) for n, at in zip(numbers, offsets, strict=True)}
        steps = [self.resolved(s) for s in recorder.steps]
        self.held = list({id(b): b for b in roots(steps) if b is not self.arena}.values())
        written = [resolve(place, self.memory) for place in recorder.written]
        self.written = list({id(b): b for b in written if b.root is not self.arena}.values())
        self.execute = self.device.direct.program(steps)

    def resolved(self, s: Step | Action) -> Step | Action:
        """A step with buffers in the place of its spots."""
        if isinstance(s, Action):
            return s._replace(buffers=[resolve(b, self.memory) for b in s.buffers])
        return Step(s.kernel, *[[resolve(a, self.memory) for a in group] for group in s[1:]])

    def run(self) -> None:
        """Run every step once. Raises CaptureError when memory the program knows has been moved."""
        for b in self.held:
            if b.retired:
                raise CaptureError(f"capture: memory was moved since {self.name} was recorded: by {b.retired}. Capture it again.")
        self.execute()
        for b in self.written:
            b.wrote(self.writer)

    def result(self, i: int) -> Buffer:
        """A copy of output number i."""
        place: Buffer = resolve(self.places[i], self.memory)
        copy = self.device.empty(place.size, place.dtype)
        self.device.stream.copy(copy, place)
        return copy

    def __repr__(self) -> str:
        megabytes = f"{self.bytes / 1e6:,.1f} MB, {self.separate / 1e6:,.1f} without sharing"
        return f"{self.launches} launches, {self.actions} actions of the host, arena {megabytes}"


def lives_of(steps: list[Step | Action], outputs: list[Any]) -> dict[int, list[int]]:
    """First and last step that names each numbered buffer. One that is filled before the step lives from its beginning."""
    lives: dict[int, list[int]] = {}
    for now, s in enumerate(steps):
        early = isinstance(s, Action) and s.early
        for a in s.buffers if isinstance(s, Action) else [*s.outs, *s.ins, *s.consts]:
            if type(a) is Spot:
                life = lives.setdefault(a.number, [-1 if early else now, now])
                life[1] = now
    for a in outputs:
        if type(a) is Spot:
            lives.setdefault(a.number, [-1, 0])[1] = len(steps)
    return lives


def roots(steps: list[Any]) -> Iterator[Buffer]:
    """The memory that steps name."""
    for s in steps:
        for b in s.buffers if isinstance(s, Action) else [*s.outs, *s.ins, *s.consts]:
            if isinstance(b, Buffer):
                yield b.root or b
