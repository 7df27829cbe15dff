"""Where this thread is in the random numbers (core/rng.py), to be saved and gone back to."""

from __future__ import annotations

import weakref
from typing import Any

from .bus import before, seen
from .core import rng
from .core.errors import StateError
from .core.rng import checked_seed, generator
from .core.tensor import attach
from .dtypes import is_count


class Moves:
    """What moves this thread to another place, and how that is taken back."""

    @staticmethod
    def saved() -> tuple[int, int, int]:
        return generator.place

    @staticmethod
    def restore(place: tuple[int, int, int]) -> None:
        generator.place = place


attach(Moves, to=rng.Generator)


class Jump(Moves):
    """Going to a place: now, and in every replay of a step that does so."""

    def __init__(self, what: str, place: tuple[int, int, int], mover: Any = Moves):
        self.place, self.mover = place, mover
        seen(None, what, lambda: place)
        before(self.go)

    def go(self) -> None:
        self.mover.restore(self.place)

    def __eq__(self, other: object) -> bool:
        return type(other) is Jump and other.place == self.place and other.mover is self.mover

    __hash__ = object.__hash__


class Generator(Moves):
    """Random numbers of its own, from a seed: pass it as generator= to what draws. The same for all threads."""

    def __init__(self, seed: int = 0):
        self.seed = checked_seed(seed)
        self.place = self.seed, 0, 0
        OWN.add(self)

    take: Any = rng.Generator.take

    def saved(self) -> tuple[int, int, int]:  # type: ignore[override]
        return self.place

    def restore(self, place: tuple[int, int, int]) -> None:  # type: ignore[override]
        self.place = place

    def manual_seed(self, seed: int) -> Generator:
        """Start from another seed; in a captured step, in every replay of it."""
        self.seed = checked_seed(seed)
        Jump("Generator.manual_seed", (self.seed, 0, 0), self)
        return self

    def __repr__(self) -> str:
        return f"Generator(seed={self.seed}, place={self.place[1:]})"

    def initial_seed(self) -> int:
        """The seed it began with."""
        return self.seed

    def get_state(self) -> dict[str, int]:
        """Its position, to be saved with a checkpoint."""
        seed, stream, step = place = self.place
        seen(None, "Generator.get_state", lambda: place)
        return {"seed": seed, "stream": stream, "step": step}

    def set_state(self, state: dict[str, int]) -> None:
        """Go back to a position from get_state()."""
        Jump("Generator.set_state", place_in("Generator.set_state", state), self)


OWN: weakref.WeakSet[Generator] = weakref.WeakSet()  # those of users, for blocks that run again: gradient_checkpointing.py


def places() -> tuple[Any, list[tuple[Generator, Any]]]:
    """Where this thread's random numbers are, and those of every Generator."""
    return Moves.saved(), [(g, g.place) for g in OWN.copy()]


def go_back(found: tuple[Any, list[tuple[Generator, Any]]]) -> None:
    """Go back to places()."""
    Moves.restore(found[0])
    for g, place in found[1]:
        g.place = place


def manual_seed(seed: int) -> None:
    """Start this thread's random numbers from `seed` (an int, taken modulo 2^63). Raises DTypeError for anything else."""
    Jump("manual_seed", (checked_seed(seed), 0, 0))


def get_rng_state() -> dict[str, int]:
    """This thread's position, to be saved with a checkpoint."""
    seed, stream, step = place = generator.place
    seen(None, "get_rng_state", lambda: place)
    return {"seed": seed, "stream": stream, "step": step}


def set_rng_state(state: dict[str, int]) -> None:
    """Go back to a position from get_rng_state()."""
    Jump("set_rng_state", place_in("set_rng_state", state))


def place_in(name: str, state: Any) -> tuple[int, int, int]:
    """The place that a state holds. Raises StateError."""
    if not isinstance(state, dict) or not all([is_count(state.get(key)) for key in ("seed", "stream", "step")]):
        raise StateError(f"{name}: not a state: {state!r}. Pass what get_{name.partition('set_')[2]}() gave.")
    return int(state["seed"]), int(state["stream"]), int(state["step"])
