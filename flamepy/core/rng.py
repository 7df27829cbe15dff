"""Where random numbers come from: Philox, a function of (seed, stream, step, element).

Nothing is drawn from a hidden sequence: each random op takes the next stream number of its thread's generator, and element i of
its result depends on the seed, that number and i alone. So the numbers are the same for any number of threads, and a
checkpointed block that rewinds the stream number sees the same dropout again. `step` is free for a replayed training step.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from .changes import before, seen
from .device import Device
from .dtypes import int64
from .errors import DTypeError

DEFAULT_SEED = 0x5EED
_lane = itertools.count()


class Generator(threading.local):
    """One thread's seed and position. Each thread starts from a seed of its own."""

    def __init__(self) -> None:
        self.seed = DEFAULT_SEED + next(_lane)
        self.stream = 0
        self.step = 0

    def take(self) -> tuple[int, int, int]:
        """(seed, stream, step) for one random op; moves to the next stream."""
        key = (self.seed, self.stream, self.step)
        self.stream += 1
        return key

    def saved(self) -> tuple[int, int, int]:
        """The position, for restore()."""
        return self.seed, self.stream, self.step

    def restore(self, position: tuple[int, int, int]) -> None:
        self.seed, self.stream, self.step = position


generator = Generator()


class Jump:
    """Going to a position: now, and in every replay of a step that does so."""

    saved, restore = generator.saved, generator.restore

    def __init__(self, what: str, position: tuple[int, int, int]):
        self.position = position
        seen(None, what, lambda: position)
        before(self.go)

    def go(self) -> None:
        generator.restore(self.position)

    def __eq__(self, other: object) -> bool:
        return type(other) is Jump and other.position == self.position

    __hash__ = object.__hash__


def manual_seed(seed: int) -> None:
    """Start this thread's random numbers from `seed` (an int, taken modulo 2^63). Raises DTypeError for anything else."""
    if not hasattr(seed, "__index__"):
        raise DTypeError(f"manual_seed: not a whole number: {seed!r}. Pass an int.")
    Jump("manual_seed", (int(seed) % (1 << 63), 0, 0))


def next_key(device: Device) -> Any:
    """The place in the random numbers of the op that asks: (seed, stream, step), taken anew in every step."""
    key = device.empty(3, int64)
    device.fill(key, generator.take)
    return key
