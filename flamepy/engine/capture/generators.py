"""Random generators of Python's and NumPy's: a recorded step must not draw from them, as a replay would keep what was drawn.

Their states are compared round a recorded call. flamepy's own random numbers are counters in buffers (rng.py), which replays move on.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from ...errors import CaptureError

Row = tuple[str, Any, str]  # (what an error text calls it, the generator, the line that names it)


@cache
def kinds() -> tuple[type, ...]:
    """The classes of generators. (NumPy imports its own when they are asked for, which takes a while.)"""
    return random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator


def of_everyone() -> list[Row]:
    """Those that functions of the modules draw from."""
    return [("random", random._inst, ""), ("numpy.random", np.random.mtrand._rand, "")]  # type: ignore[attr-defined]


class Generators:
    """The states of these generators as they are when this is made. Where other threads run, which may draw as well, only of those that
    the step names."""

    def __init__(self, found: Iterable[Row]):
        alone = threading.active_count() == 1
        known = [row for row in found if (alone or row[2]) and not isinstance(row[1], random.SystemRandom)]
        self.rows = [(row, state_of(row[1])) for row in known]

    def put_back(self) -> list[Row]:
        """Undo what was drawn since; returns those that drew."""
        drawn = [(row, before) for row, before in self.rows if not equal(state_of(row[1]), before)]
        for row, before in drawn:
            put_state(row[1], before)
        return [row for row, _ in drawn]

    def check(self, name: str) -> None:
        """Raise CaptureError if one drew since, after putting all back to where they were."""
        for label, _, where in self.put_back():
            at = f" at {where}" if where else ""
            raise CaptureError(
                f"capture: {name} draws random numbers on the host: from {label}{at}. A replay would keep what was drawn: draw outside "
                "and pass the numbers as an argument, or draw tensors with flamepy.rand(), randn() or dropout()."
            )


def state_of(g: Any) -> Any:
    if isinstance(g, random.Random):
        return g.getstate()
    if isinstance(g, np.random.RandomState):
        return g.get_state(legacy=False)
    return g.bit_generator.state if isinstance(g, np.random.Generator) else g.state


def put_state(g: Any, state: Any) -> None:
    if isinstance(g, random.Random):
        g.setstate(state)
    elif isinstance(g, np.random.RandomState):
        g.set_state(state)
    elif isinstance(g, np.random.Generator):
        g.bit_generator.state = state
    else:
        g.state = state


def equal(x: Any, y: Any) -> bool:
    """Whether two states are the same; they are nested, with arrays."""
    if isinstance(x, dict):
        return all([equal(value, y[key]) for key, value in x.items()])
    return np.array_equal(x, y) if isinstance(x, np.ndarray) else bool(x == y)
