"""Ids of tensors, here and in other processes.

An id is a number counted up in one process. Everywhere else it is known as (mark of the process that counted it, number): its origin.
A leaf that can have a gradient keeps its number when it is unpickled in another process, unless that number is taken there; then it
gets a new one. Both processes know its origin, so a GradientMap that goes from one to the other names the same tensors. Unpickled in
the process it comes from, a tensor is one more tensor, with a new id; the keys of a map go on naming those that are there. But in one
pickle, or one deep copy, tensors and the maps that name them belong together: there an id is a Key, one object for both.
"""

from __future__ import annotations

import os
from bisect import bisect
from itertools import count
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from .core import ids

Origin = tuple[str, int]  # (mark of the process that counted, the number there)

mark = os.urandom(8).hex()  # of this process
counted: list[tuple[int, str]] = [(1, mark)]  # who counted the numbers from this one on: "" for nobody, another mark before a fork
origins: dict[int, Origin] = {}  # of numbers here that stand for tensors from elsewhere
known: dict[Origin, list[int]] = {}  # the other way: several where there were several copies at a time
holders: WeakValueDictionary[int, Any] = WeakValueDictionary()  # the tensors from elsewhere that are alive
keys: WeakValueDictionary[int, Any] = WeakValueDictionary()  # while something holds them: a pickler, a deep copy's memo
lock = Lock()


def counted_by(number: int) -> str:
    """The mark of the process in which this number was counted: this one, or one it was forked from; "" for none."""
    return counted[bisect(counted, (number, "~")) - 1][1]


def origin(number: int) -> Origin:
    """What an id here is known as everywhere."""
    return origins.get(number) or (counted_by(number), number)


class Key:
    """An id on its way out, the same object for whatever is pickled or copied together. Left as it is (copy.copy), it means itself."""

    def __init__(self, number: int):
        self.number = number

    def of_tensor(self, t: Any) -> int:
        """The id of a copy of the tensor."""
        return of_tensor(origin(self.number), t)

    def of_key(self, grads: Any) -> int:
        """What a copied map has as its key."""
        return self.number

    def __reduce__(self) -> tuple:
        return ArrivedKey, (mark, self.number, origin(self.number))


class ArrivedKey:
    """A Key where it arrives. A map that was there before the tensor is told its id when the tensor comes."""

    def __init__(self, by: str, number: int, there: Origin):
        self.by, self.number, self.there = by, number, there
        self.here = 0
        self.maps: list[tuple[Any, int]] = []  # those, and what they call it

    def of_tensor(self, t: Any) -> int:
        return self.take(of_tensor(self.there, t))

    def take(self, number: int) -> int:
        """Mean this id from now on."""
        self.here = number
        for grads, before in self.maps:
            grads.rename(before, number)
        return number

    def of_key(self, grads: Any) -> int:
        if self.here:
            return self.here
        number = of_key(self.by, self.number, self.there)
        self.maps.append((grads, number))
        return number


def key_of(number: int) -> Key:
    """The Key of an id."""
    return keys.setdefault(number, Key(number))


def of_tensor(there: Origin, t: Any) -> int:
    """The id of an unpickled leaf."""
    if there[0] == mark:
        return ids.next_id()
    with lock:
        number = next((n for n in known.get(there, ()) if n not in holders), None) or new(there)
        holders[number] = t
        return number


def of_key(by: str, number: int, there: Origin) -> int:
    """The id that a key means here: `by` is the mark of the process that pickled it, `number` what it was there."""
    if mark in (by, there[0]):
        return number if by == mark else there[1]
    with lock:
        copies = known.get(there, [])
        alive = next((n for n in copies if n in holders), None)
        if alive is None and counted_by(there[1]) == there[0]:  # counted before this process was forked
            return there[1]
        return alive or next(iter(copies), None) or new(there)


def new(there: Origin) -> int:
    """A number for something from elsewhere: its own if that is free. Counting goes on beyond it."""
    number, now = there[1], ids.next_id()
    if number > now:
        before, ids.next_id = ids.next_id, count(number + 1).__next__
        first = before()  # what other threads counted meanwhile is below
        if number >= first:
            counted.extend([(first, ""), (number + 1, mark)])
        else:
            number = ids.next_id()
    elif number < now and (counted_by(number) or number in origins):
        number = now
    known.setdefault(there, []).append(number)
    origins[number] = there
    return number


def after_fork() -> None:
    """A forked process counts on by itself: from now on one number means one tensor there and another here."""
    global mark, lock
    mark, lock = os.urandom(8).hex(), Lock()
    counted.append((ids.next_id(), mark))


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=after_fork)
