"""What a GradientAccumulator is set up with, what it remembers (names, counts, the open window), and what its saved state must be."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..core import ids
from ..dtypes import FLOATS, is_count, is_number
from ..errors import AccumulationError, DTypeError, StateError
from ..gradient import GradientMap

Shape = tuple[int, ...]
COUNTS = "accumulation_steps", "micro_batches", "total_micro_batches", "total_updates"
PARTS = {*COUNTS, "weight", "registered", "counts", "sums", "parameters", "keep", "scaled"}


@dataclass(frozen=True)
class AccumulationConfig:
    """How many micro-batches make one update (below 1: 1), whether they are averaged or summed, and the norm to clip to (None, 0: off)."""

    accumulation_steps: int = 4
    normalize: bool = True
    max_grad_norm: float | None = None

    def __post_init__(self) -> None:
        n, limit = self.accumulation_steps, self.max_grad_norm
        if not is_count(n, -sys.maxsize):
            raise DTypeError(f"AccumulationConfig: accumulation_steps is no whole number: {n!r}. Use an int.")
        if limit is not None and not (is_number(limit) and float(limit) >= 0):
            raise ValueError(f"AccumulationConfig: max_grad_norm must not be negative or NaN: {limit!r}. Use a number, or None for off.")
        object.__setattr__(self, "accumulation_steps", max(1, int(n)))

    def effective_batch_size(self, micro_batch_size: int) -> int:
        """How many examples one update sees."""
        return micro_batch_size * self.accumulation_steps


class AccumulationStats(NamedTuple):
    """What stats() tells."""

    total_micro_batches: int
    total_updates: int
    accumulation_steps: int
    registered_params: int
    total_param_elements: int

    def effective_batch_multiplier(self) -> int:
        return self.accumulation_steps


def checked_weight(weight: Any) -> float:
    """What a micro-batch weighs, as a float."""
    if not is_number(weight):
        raise DTypeError(f"accumulate: weight is no number: {weight!r}. Use the number of tokens or examples.")
    share = float(weight)
    if not 0 <= share < math.inf:
        raise AccumulationError(f"accumulate: weight out of range: {share}. Use a number >= 0.")
    return share


class Known:
    """A name that was registered, or came with a restored state. `number`: its id; one of its own until a gradient comes with an id.
    `bound`: whether it has; `homeless`: that it had one where the state was saved."""

    def __init__(self, name: str, shape: Shape, number: int = 0, homeless: bool = False):
        self.name, self.shape = name, shape
        self.device: Any = None  # of its Parameter
        self.bound, self.homeless = number != 0, homeless
        self.number = number or ids.next_id()


class Bound(NamedTuple):
    """A name that took the id of a Parameter; `number`: which it had before; `held`: whether the window held a sum of it."""

    known: Known
    number: int
    held: bool


class Counts:
    """What has been done since the beginning; a replayed step counts too."""

    def __init__(self) -> None:
        self.micro_batches = self.updates = 0

    def micro_batch(self) -> None:
        self.micro_batches += 1

    def update(self) -> None:
        self.updates += 1

    def saved(self) -> tuple[int, int]:
        return self.micro_batches, self.updates

    def restore(self, state: tuple[int, int]) -> None:
        self.micro_batches, self.updates = state


class Torn:
    """Whether gradients were added whose check failed only afterwards, as on a GPU: their window must not go on."""

    def __init__(self) -> None:
        self.newest: Any = None  # a weak reference to the sums that were added to
        self.total: Any = None  # the same, of the window that is torn

    def took(self, total: GradientMap, rows: Iterable[Any]) -> None:
        """These gradients were added."""
        self.newest = weakref.ref(total)
        for device in {row.gradient.device for row in rows}:
            device.remember(self.took)

    def saved(self) -> Any:
        return self.newest

    def restore(self, total: Any) -> None:
        self.total = total

    def check(self, total: GradientMap) -> None:
        if self.total is not None and self.total() is total:
            what = "gradients were added before a check of theirs failed: the error that was raised since"
            raise AccumulationError(f"accumulate: {what}. Call reset(), and begin the window again.")


class Window(NamedTuple):
    """The micro-batches since the last update: their sum, how many, what they weigh together, and how often each id came."""

    total: GradientMap
    arrived: int = 0
    weight: float = 0.0
    counts: Mapping[int, int] = {}
    step: int = 0  # the recorded step in which it began


# ---- state: everything is checked before anything is restored ----------------------------------------------------------------------------
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
