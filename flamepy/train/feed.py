"""Batches of a user's own: from a list, a loader, an iterator or a function of the step, from a known place on.

What is saved is how many batches were taken and in which round through the data, so that a resumed run takes the same next one: a
function is asked for its step; what can be gone through again is, up to that place; a loader with state_dict() keeps its own place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..core.errors import DTypeError, StateError
from .job import Batch
from .problems import InputError


class Feed:
    """`data`: an iterable of batches, or a function that gives the n-th. A batch is a tuple or list of the loss's arguments, or one."""

    def __init__(self, data: Any):
        self.asked = callable(data) and not hasattr(data, "__iter__") and not hasattr(data, "__getitem__")
        if not self.asked and not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
            raise DTypeError(
                f"Trainer: no data: {type(data).__name__}. Give a list of batches, a loader, or a function of the batch's number."
            )
        self.data = data
        self.once = isinstance(data, Iterator)
        self.keeps_place = hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
        self.round = self.place = self.taken = 0  # of the next batch: through the data so often, so many in this round, so many in all
        self.now: Iterator[Any] | None = None
        self.before = 0, 0, 0

    def take(self, count: int) -> Iterator[Batch]:
        """The next batches. Each is asked for when the one before was used: a loader may fill the same array again."""
        self.before = self.round, self.place, self.taken
        for _ in range(count):
            yield as_batch(self.next())

    def give_back(self) -> None:
        """The batches that take() gave, or began to give, are the next again; an iterator, and a loader that keeps its own place, cannot
        go back."""
        if not self.once and not self.keeps_place:
            (self.round, self.place, self.taken), self.now = self.before, None

    def next(self) -> Any:
        if self.asked:
            batch = self.data(self.taken)
            self.taken += 1
            return batch
        if self.now is None:
            self.now = self.begun()
        for batch in self.now:
            self.place, self.taken = self.place + 1, self.taken + 1
            return batch
        if self.once or (self.place == 0 and not self.keeps_place):
            what = "can be read once" if self.once and self.taken else "is empty"
            raise InputError(f"the data ended after {self.taken:,} batches: {type(self.data).__name__} {what}. Give a list or a loader.")
        self.round, self.place = self.round + 1, 0
        self.now = self.begun()
        for batch in self.now:
            self.place, self.taken = 1, self.taken + 1
            return batch
        raise InputError(f"the data is empty: {type(self.data).__name__} in round {self.round}. Give some batches.")

    def begun(self) -> Iterator[Any]:
        """This round, from the place that is next."""
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(self.round)
        found = iter(self.data)
        for _ in range(0 if self.keeps_place else self.place):
            if next(found, self) is self:
                raise InputError(
                    f"there is less data than before: {type(self.data).__name__} ends before batch {self.place}. Give the same."
                )
        return found

    def state_dict(self) -> dict[str, Any]:
        own = {"data": self.data.state_dict()} if self.keeps_place else {}
        return {"round": self.round, "place": self.place, "taken": self.taken, **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Raises StateError for what it did not return, and changes nothing then."""
        counts: list[Any] = [state.get(key) for key in ("round", "place", "taken")] if isinstance(state, dict) else []
        if not counts or not all([type(n) is int and n >= 0 for n in counts]) or ("data" in state) is not self.keeps_place:
            raise StateError(f"Trainer: not the place in this data: {str(state)[:80]}. Give the data that was trained on.")
        if self.keeps_place:
            self.data.load_state_dict(state["data"])
        if self.keeps_place or counts != [self.round, self.place, self.taken]:  # an iterator that is there already cannot be begun again
            self.now = None
        self.round, self.place, self.taken = counts


def as_batch(batch: Any) -> Batch:
    return tuple(batch) if isinstance(batch, tuple | list) else (batch,)
