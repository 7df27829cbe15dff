"""Random generators of Python's and NumPy's: a recorded step must not draw from them, as a replay would keep what was drawn.

Their states are compared round a recorded call; a profile function finds the line that drew. flamepy's own random numbers are counters
in buffers (rng.py), which replays move on.

Read next: verify.py.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import CaptureError
from .names import of_library

Generator = random.Random | np.random.RandomState | np.random.Generator | np.random.BitGenerator
GLOBAL: tuple[tuple[str, Generator], ...] = (
    ("Python's random", random._inst),  # type: ignore[attr-defined]
    ("numpy.random", np.random.mtrand._rand),  # type: ignore[attr-defined]
)


class Generators:
    """The states of the global generators and of those `found` in the step's reach, as they are when this is made."""

    def __init__(self, found: Iterable[tuple[str, Generator]] = ()):
        rows = {id(g): (label, g) for label, g in (*GLOBAL, *found) if not isinstance(g, random.SystemRandom)}
        self.rows = [(label, g, state_of(g)) for label, g in rows.values()]
        self.places: dict[int, str] = {}  # where each drew first

    def put_back(self) -> list[tuple[str, Generator, Any]]:
        """Undo what was drawn since; returns those that drew."""
        drawn = [row for row in self.rows if not equal(state_of(row[1]), row[2])]
        for _, g, before in drawn:
            put_state(g, before)
        return drawn

    def check(self, name: str) -> None:
        """Raise CaptureError if one drew since, after putting all back to where they were."""
        drawn = self.put_back()
        if not drawn:
            return
        label, generator, _ = drawn[0]
        place = self.places.get(id(generator))
        at = f" at {place}" if place else ""
        raise CaptureError(
            f"capture: {name} draws random numbers on the host: from {label}{at}. A replay would keep what was drawn: draw outside and "
            "pass the numbers as an argument, or draw tensors with flamepy.rand(), randn() or dropout()."
        )

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note in the block which lines draw; a debugger's or profiler's function stays in its place."""
        if sys.getprofile() is not None:
            yield
            return
        known = {id(owner): id(g) for _, g, _ in self.rows for owner in (g, getattr(g, "bit_generator", g))}

        def look(frame: Any, event: str, function: Any) -> None:
            if event == "c_call" and (key := known.get(id(getattr(function, "__self__", None)))) is not None:
                while of_library(frame.f_code.co_filename) and frame.f_back is not None:
                    frame = frame.f_back
                self.places.setdefault(key, f"{frame.f_code.co_filename}:{frame.f_lineno}")

        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(None)


def state_of(g: Generator) -> Any:
    if isinstance(g, random.Random):
        return g.getstate()
    if isinstance(g, np.random.RandomState):
        return g.get_state(legacy=False)
    return g.bit_generator.state if isinstance(g, np.random.Generator) else g.state


def put_state(g: Generator, state: Any) -> None:
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
