"""Large results that are handed out without a copy: each replay makes them in new memory, which nothing writes afterwards.

A launch that names such memory is called by Python, with the buffer of this replay; all others stand in a list that holds addresses, or
in a graph. So it pays where few launches name a result and copying it takes longer than calling them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend.base import Buffer, Device
from ...backend.run import Action, Spot, Step, resolve
from .lean import Sizes, named

LARGE = 1 << 17  # bytes of a result from which on a copy is worth sparing
FEW = 4  # launches that may name one


class Handed:
    """A result of one replay after the other. `buffer`: that of the last one, until somebody takes it."""

    def __init__(self, device: Device, size: int, dtype: np.dtype):
        self.device, self.size, self.dtype = device, size, dtype
        self.buffer: Buffer | None = None

    def begin(self) -> None:
        self.buffer = self.device.direct.empty(self.size, self.dtype)

    def take(self) -> Buffer:
        found, self.buffer = self.buffer, None
        return found  # type: ignore[return-value]


class Call:
    """A launch that names such results, the first one that names `begins`; everything else in the step is resolved."""

    def __init__(self, step: Step, handed: dict[int, Handed], begins: Sequence[Handed]):
        self.step, self.handed, self.begins, self.run = step, handed, begins, next(iter(handed.values())).device.direct.run

    def __call__(self) -> None:
        for result in self.begins:
            result.begin()
        memory = {n: result.buffer for n, result in self.handed.items()}
        self.run(self.step.kernel, *[[resolve(a, memory) for a in group] for group in self.step[1:]])


def handed_out(steps: Sequence[Any], outputs: Sequence[Any], kept: Sequence[int], sizes: Sizes, device: Device) -> dict[int, Handed]:
    """The results that need no copy, by number. `kept`: numbers of buffers that others than launches fill or read."""
    if not device.hands_out:
        return {}
    asked = Counter([a.number for a in outputs if type(a) is Spot])
    whole = [a.number for a in outputs if type(a) is Spot and a.size < 0 and asked[a.number] == 1 and a.number not in kept]
    large = {n for n in whole if sizes[n][0] * sizes[n][1].itemsize >= LARGE}
    if not large:
        return {}
    for s in steps:
        numbers = {a.number for a in named(s) if type(a) is Spot} if s else set()
        asked.update(numbers)
        if isinstance(s, Action):
            large -= numbers
    return {n: Handed(device, *sizes[n]) for n in large if 1 < asked[n] <= FEW + 1}


def with_calls(steps: Sequence[Step | Action], handed: dict[int, Handed]) -> list[Step | Action]:
    """The steps, with an action in the place of those that name such results."""
    if not handed:
        return list(steps)
    found: list[Step | Action] = []
    begun: set[int] = set()
    for s in steps:
        numbers = {a.number for a in named(s) if type(a) is Spot}
        if numbers:
            begins = [handed[n] for n in numbers - begun]
            begun |= numbers
            s = Action(Call(s, {n: handed[n] for n in numbers}, begins), (), False)  # type: ignore[arg-type]
        found.append(s)
    return found
