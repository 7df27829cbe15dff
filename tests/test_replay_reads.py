"""What a recorded step reads and draws: generators, iterators, and a search over containers and scopes for changes that stay unseen."""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import threading
import weakref
from array import array
from collections import ChainMap, UserDict, deque
from contextvars import ContextVar
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy import nn


def one(i: int) -> fp.Tensor:
    return fp.full((3,), float(i))


# ---- chance ----------------------------------------------------------------------------------------------------------------------
own = np.random.default_rng(0)
old = random.Random(0)


@pytest.mark.parametrize("draw", [np.random.rand, random.random, own.random, old.random])
def test_a_step_that_draws_on_the_host_is_refused_even_if_the_branch_stays_the_same(draw):
    captured = fp.capture(lambda x: x * 2.0 if draw() < 2.0 else x)
    captured(one(0))
    for _ in range(2):
        with raises(fp.CaptureError, "draws random numbers on the host: from "):
            captured(one(1))


def test_a_draw_that_comes_later_is_found_by_a_check_and_taken_back():
    hidden = [False] * 1000
    captured = fp.capture(lambda x: x * 2.0 if not hidden[500] or random.random() < 2.0 else x, verify=1)
    for i in range(3):
        captured(one(i))
    hidden[500], state = True, random.getstate()
    with raises(fp.CaptureError, "draws random numbers on the host: from random"):
        captured(one(3))
    assert random.getstate() == state


def test_other_threads_may_draw():
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            np.random.rand()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        captured = fp.capture(lambda x: x * 2.0, verify=1)
        for i in range(6):
            assert captured(one(i)).tolist() == [2.0 * i] * 3
    finally:
        stop.set()
        thread.join()


def test_iterators_are_refused():
    for numbers in (itertools.cycle([1.0, 1.0]), iter([1.0] * 9), (1.0 for _ in range(9))):
        captured = fp.capture(lambda x: x * next(numbers))
        captured(one(0))
        with raises(fp.CaptureError, "cannot be watched: ", "an iterator", "test_replay_reads.py:"):
            captured(one(1))


def test_weak_references_are_refused_as_a_record_keeps_alive_what_it_saw():
    box = Box()
    for held in (weakref.ref(box), weakref.proxy(box), weakref.WeakSet([box]), weakref.WeakValueDictionary(a=box)):
        captured = fp.capture(lambda x: x * (1.0 if held is not None else 2.0))
        captured(one(0))
        with raises(fp.CaptureError, "cannot be watched: held (a weak reference", "test_replay_reads.py:"):
            captured(one(1))


# ---- objects that say themselves what is equal ------------------------------------------------------------------------------------
class Odd:
    """`==` and hash() are no help."""

    __slots__ = ("k", "other")

    def __init__(self, k: float):
        self.k, self.other = k, self

    def __eq__(self, other: Any) -> bool:
        raise RuntimeError("the user's")

    def __hash__(self) -> int:
        raise RuntimeError("the user's")


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    k: float = dataclasses.field(compare=False)


@pytest.mark.parametrize("kind", [Odd, Setting])
def test_code_of_the_users_does_not_say_what_is_equal(kind):
    held = [kind(1.0)]
    captured, given = fp.capture(lambda x: x * held[0].k), fp.capture(lambda x, c: x * c.k)
    for i in range(9):
        if i == 5:
            held[0] = kind(2.0)
        wanted = [i * held[0].k] * 3
        assert captured(one(i)).tolist() == given(one(i), held[0]).tolist() == wanted
    assert given(one(1), kind(2.0)).tolist() == [2.0] * 3 and len(given.kinds) == 2  # another object, the same attributes


# ---- a search ----------------------------------------------------------------------------------------------------------------------
class Box:
    k = 1.0


class Slots:
    __slots__ = ("k",)


class Store:
    """A user's container."""

    def __init__(self, k: float):
        self.k = [k]

    def __getitem__(self, i: int) -> float:
        return self.k[i]

    def __len__(self) -> int:
        return int(self.k[0])


def made(box: Any, v: float) -> Any:
    box.k = v
    return box


def variable(v: float) -> Any:
    held: ContextVar[float] = ContextVar("held")
    held.set(v)
    return held


def environment(v: float) -> str:
    os.environ["FLAMEPY_TEST_READS"] = str(v)
    return "FLAMEPY_TEST_READS"


def item(c: Any, v: float) -> None:
    c[0] = v


# What holds a number, how a step reads it, how it becomes another one.
CONTAINERS: dict[str, tuple[Any, Any, Any]] = {
    "a list": (lambda v: [v], lambda c: c[0], item),
    "a long list": (lambda v: [v] * 100, lambda c: c[50], lambda c, v: c.__setitem__(50, v)),
    "a list that grows": (lambda v: [v], sum, lambda c, v: c.append(v - 1.0)),
    "a dict": (lambda v: {"k": v}, lambda c: c.get("k", 1.0), lambda c, v: c.update(k=v)),
    "a dict that grows": (lambda v: {}, lambda c: c.get("k", 1.0), lambda c, v: c.update(k=v)),
    "a dict that shrinks": (lambda v: {"k": v, "j": 1.0}, lambda c: 3.0 - len(c), lambda c, v: c.pop("j")),
    "the order of a dict": (lambda v: {"a": v, "b": 2.0}, lambda c: next(iter(c.values())), lambda c, v: c.update(a=c.pop("a"))),
    "a tuple in a list": (lambda v: [(v,)], lambda c: c[0][0], lambda c, v: item(c, (v,))),
    "an array": (lambda v: np.array([v]), lambda c: float(c[0]), item),
    "a large array": (lambda v: np.full(20000, v), lambda c: float(c[0]), item),
    "an array of objects": (lambda v: np.array([v, None]), lambda c: c[0], item),
    "nested": (lambda v: {"a": [{"b": v}]}, lambda c: next(iter(c["a"][0].values())), lambda c, v: c["a"][0].update(b=v)),
    "a set": (lambda v: {1}, lambda c: 2.0 if 5 in c else 1.0, lambda c, v: c.add(5)),
    "a deque": (lambda v: deque([v]), sum, item),
    "a UserDict": (lambda v: UserDict(k=v), lambda c: c["k"], lambda c, v: c.update(k=v)),
    "a ChainMap": (lambda v: ChainMap({}, {"k": v}), lambda c: c["k"], lambda c, v: c.maps[1].update(k=v)),
    "a proxy of a dict": (lambda v: (MappingProxyType(d := {"k": v}), d), lambda c: c[0]["k"], lambda c, v: c[1].update(k=v)),
    "a bytearray": (lambda v: bytearray([1]), lambda c: float(c[0]), lambda c, v: item(c, 2)),
    "a memoryview": (lambda v: memoryview(bytearray([1])), lambda c: float(c[0]), lambda c, v: item(c, 2)),
    "an array.array": (lambda v: array("d", [v]), sum, item),
    "slots": (lambda v: made(Slots(), v), lambda c: c.k, made),
    "over a default": (lambda v: Box(), lambda c: c.k, made),
    "a namespace": (lambda v: SimpleNamespace(k=v), lambda c: vars(c)["k"], made),
    "a store": (Store, lambda c: c[0], lambda c, v: item(c.k, v)),
    "the length of a store": (Store, len, lambda c, v: item(c.k, v)),
    "a variable": (variable, lambda c: c.get(), lambda c, v: c.set(v)),
    "the environment": (environment, lambda c: float(os.environ[c]), lambda c, v: environment(v)),
}


def scoped(scope: str, read: Any, c: Any) -> Any:
    """A step that reads the container by way of a scope."""
    if scope == "closure":
        return lambda x: x * read(c)
    if scope == "default":
        return lambda x, c=c: x * read(c)
    box: Any = Box()
    if scope == "attribute":
        box.held = c
        return lambda x: x * read(box.held)
    if scope == "getattr":
        box.held = c
        return lambda x: x * read(getattr(box, "he" + "ld"))
    if scope == "module":
        layer = type("Layer", (nn.Module,), {"forward": lambda self, x: self.helper(x), "helper": lambda self, x: x * read(self.held)})()
        object.__setattr__(layer, "held", c)
        return layer.__call__
    kind = type("Kind", (), {"__mul__": lambda self, x: x * read(c), "__call__": staticmethod(lambda x: x * read(c))})
    made = kind()
    return (lambda x: made * x) if scope == "operator" else made.__call__


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(CONTAINERS)), st.sampled_from(["closure", "default", "attribute", "getattr", "module", "operator", "call"]),
    st.integers(0, 30),
)  # fmt: skip
def test_no_change_of_what_a_step_reads_stays_unseen_for_longer_than_stated(kind, scope, at):
    make, read, put = CONTAINERS[kind]
    c = make(1.0)
    captured = fp.capture(scoped(scope, read, c))
    wrong = 0
    for i in range(70):
        if i == at:
            put(c, 2.0)
        try:
            found = captured(one(1)).tolist()[0]
        except fp.CaptureError:
            break
        wrong += found != (1.0 if i < at else 2.0)
    assert wrong <= at  # as many calls as came before, at most
