"""Where random numbers come from: Philox, a function of (seed, stream, step, element).

Nothing is drawn from a hidden sequence: each random op takes the next stream number of its thread's generator, and element i of
its result depends on the seed, that number and i alone. So the numbers are the same for any number of threads, and a
checkpointed block that rewinds the stream number sees the same dropout again. `step` is free for a replayed training step.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

from .device import Device
from .dtypes import int64
from .errors import DTypeError

DEFAULT_SEED = 0x5EED
_lane = itertools.count()


class Generator(threading.local):
    """One thread's place in the random numbers: (seed, stream, step). Each thread starts from a seed of its own."""

    def __init__(self) -> None:
        self.place = DEFAULT_SEED + next(_lane), 0, 0

    def take(self) -> tuple[int, int, int]:
        """The place, for one random op; moves to the next stream."""
        seed, stream, step = place = self.place
        self.place = seed, stream + 1, step
        return place


generator = Generator()


def checked_seed(seed: Any) -> int:
    """An int modulo 2^63. Raises DTypeError for anything else."""
    if not hasattr(seed, "__index__"):
        raise DTypeError(f"manual_seed: not a whole number: {seed!r}. Pass an int.")
    return int(seed) % (1 << 63)


def manual_seed(seed: int) -> None:
    """Start this thread's random numbers from `seed` (an int, taken modulo 2^63). Raises DTypeError for anything else."""
    generator.place = checked_seed(seed), 0, 0


def next_key(device: Device, source: Any = None) -> Any:
    """The place in the random numbers of the op that asks: (seed, stream, step), taken anew in every step, from the thread's generator or
    another `source`."""
    if source is not None and not hasattr(source, "take"):
        raise DTypeError(f"generator: no Generator: {source!r}. Pass flamepy.Generator(seed), or leave it out.")
    key = device.empty(3, int64)
    device.fill(key, generator.take if source is None else source.take)
    return key
