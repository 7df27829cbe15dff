"""Where this thread is in the random numbers (core/rng.py), to be saved and gone back to."""

from __future__ import annotations

from .core.changes import seen
from .core.errors import StateError
from .core.rng import Jump, generator
from .core.rng import manual_seed as manual_seed
from .dtypes import is_count


def get_rng_state() -> dict[str, int]:
    """This thread's position, to be saved with a checkpoint."""
    seed, stream, step = position = generator.saved()
    seen(None, "get_rng_state", lambda: position)
    return {"seed": seed, "stream": stream, "step": step}


def set_rng_state(state: dict[str, int]) -> None:
    """Go back to a position from get_rng_state()."""
    if not isinstance(state, dict) or not all([is_count(state.get(key)) for key in ("seed", "stream", "step")]):
        raise StateError(f"set_rng_state: not a state: {state!r}. Pass what get_rng_state() gave.")
    Jump("set_rng_state", (int(state["seed"]), int(state["stream"]), int(state["step"])))
