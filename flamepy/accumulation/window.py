"""What a GradientAccumulator remembers: names it was told, counts since the beginning, the window that is open."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .. import ids
from ..errors import AccumulationError
from ..gradient import GradientMap
from .config import AccumulationStats

Shape = tuple[int, ...]


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
    recorders: tuple[Any, ...] = ()  # who recorded when it began


class Progress:
    """What an accumulator says of its counts."""

    window: Window
    config: Any
    done: Counts
    known: dict[str, Known]
    sizes: dict[int, int]  # elements of every id seen in the last window
    lock: Any

    def should_update(self) -> bool:
        """Whether the window is full."""
        return self.window.arrived >= self.accum_steps

    def stats(self) -> AccumulationStats:
        """Counts since the beginning; parameters and elements are those registered, and those that came in the last window."""
        with self.lock:
            sizes = {**self.sizes, **{known.number: math.prod(known.shape) for known in self.known.values()}}
            return AccumulationStats(*self.done.saved(), self.accum_steps, len(sizes), sum(sizes.values()))

    @property
    def current_step(self) -> int:
        """Micro-batches in the open window."""
        return self.window.arrived

    @property
    def accum_steps(self) -> int:
        """Micro-batches of a full window."""
        return self.config.accumulation_steps  # type: ignore[no-any-return]

    total_micro_batches = property(lambda self: self.done.micro_batches)
    total_updates = property(lambda self: self.done.updates)

    def __repr__(self) -> str:
        return f"GradientAccumulator({self.current_step} of {self.accum_steps} micro-batches, {self.total_updates} updates so far)"
