"""What a saved state of a GradientAccumulator must look like. Everything is checked before anything is restored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import FLOATS, is_count, is_number
from ..errors import StateError

COUNTS = "accumulation_steps", "micro_batches", "total_micro_batches", "total_updates"
PARTS = {*COUNTS, "weight", "registered", "counts", "sums", "parameters", "keep", "scaled"}


def wrong(what: str, value: Any) -> StateError:
    return StateError(f"GradientAccumulator: {what}: {value!r}. Restore what state_dict() returned.")


def checked_state(state: Any, steps: int) -> dict[str, Any]:
    """The state with arrays, tuples and ints in it. Raises StateError."""
    if not isinstance(state, dict) or set(state) != PARTS:
        raise wrong("not the state of an accumulator", sorted(state) if isinstance(state, dict) else type(state).__name__)
    for key, kind in (("registered", dict), ("counts", dict), ("sums", dict), ("parameters", list)):
        if not isinstance(state[key], kind):
            raise wrong(f"no {kind.__name__}: '{key}'", state[key])
    counts, sums, weight = state["counts"], state["sums"], state["weight"]
    for name, count in [*[(key, state[key]) for key in COUNTS], *counts.items()]:
        if not is_count(count):
            raise wrong(f"not a count for '{name}'", count)
    if not is_number(weight) or not 0 <= float(weight) < math.inf:
        raise wrong("not a weight", weight)
    if state["micro_batches"] and state["accumulation_steps"] != steps:
        what = f"state {state['accumulation_steps']}, this one {steps}"
        raise StateError(f"GradientAccumulator: the window has another number of steps: {what}. Use the same accumulation_steps.")
    if max([state["micro_batches"], *counts.values()]) > state["accumulation_steps"]:
        raise wrong("more micro-batches than the window holds", state["micro_batches"])
    arrays = {name: np.asarray(array) for name, array in sums.items()}
    for name, array in arrays.items():
        if array.dtype not in FLOATS or name not in counts:
            raise wrong(f"not a sum for '{name}'", array.dtype)
    registered = {}
    for name, shape in state["registered"].items():
        if not isinstance(shape, list | tuple) or not all([is_count(n) for n in shape]):
            raise wrong(f"not a shape for '{name}'", shape)
        registered[name] = shape = tuple([int(n) for n in shape])
        if name in arrays and arrays[name].shape != shape:
            raise wrong(f"shape differs for '{name}'", (shape, arrays[name].shape))
    if state["keep"] not in (None, 0.0, 1.0) or not isinstance(state["scaled"], bool) or (state["keep"] is not None and not arrays):
        raise wrong("not what is said of the sums", (state["keep"], state["scaled"]))
    whole = {key: int(state[key]) for key in COUNTS}
    rest = {"counts": {name: int(n) for name, n in counts.items()}, "parameters": list(state["parameters"])}
    said = {"keep": state["keep"], "scaled": state["scaled"]}
    return {**whole, **rest, **said, "weight": float(weight), "registered": registered, "sums": arrays}
