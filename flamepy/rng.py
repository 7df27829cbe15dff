"""Where this thread is in the random numbers (core/rng.py), to be saved and gone back to."""

from __future__ import annotations

from .bus import before, seen
from .core.errors import StateError
from .core.rng import Generator, checked_seed, generator
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


attach(Moves, to=Generator)


class Jump(Moves):
    """Going to a place: now, and in every replay of a step that does so."""

    def __init__(self, what: str, place: tuple[int, int, int]):
        self.place = place
        seen(None, what, lambda: place)
        before(self.go)

    def go(self) -> None:
        self.restore(self.place)

    def __eq__(self, other: object) -> bool:
        return type(other) is Jump and other.place == self.place

    __hash__ = object.__hash__


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
    if not isinstance(state, dict) or not all([is_count(state.get(key)) for key in ("seed", "stream", "step")]):
        raise StateError(f"set_rng_state: not a state: {state!r}. Pass what get_rng_state() gave.")
    Jump("set_rng_state", (int(state["seed"]), int(state["stream"]), int(state["step"])))
