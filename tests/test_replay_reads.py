"""What a recorded step reads and draws: generators, iterators, and a search over containers and scopes for changes that stay unseen."""

from __future__ import annotations

import itertools
import random
import threading
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


# ---- a search ----------------------------------------------------------------------------------------------------------------------
class Box:
    k = 1.0


CONTAINERS = {
    "a list": lambda v: [v], "a long list": lambda v: [v] * 100, "a dict": lambda v: {"k": v}, "a tuple in a list": lambda v: [(v,)],
    "an array": lambda v: np.array([v]), "a large array": lambda v: np.full(20000, v), "nested": lambda v: {"a": [{"b": v}]},
}  # fmt: skip
READS = {
    "a list": lambda c: c[0], "a long list": lambda c: c[50], "a dict": lambda c: c.get("k", 1.0), "a tuple in a list": lambda c: c[0][0],
    "an array": lambda c: float(c[0]), "a large array": lambda c: float(c[7]), "nested": lambda c: next(iter(c["a"][0].values())),
}  # fmt: skip


def put(kind: str, c: Any, v: float) -> None:
    if kind == "a dict":
        c["k"] = v
    elif kind == "nested":
        c["a"][0]["b"] = v
    else:
        c[50 if kind == "a long list" else 7 if kind == "a large array" else 0] = (v,) if kind == "a tuple in a list" else v


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
    c = CONTAINERS[kind](1.0)
    captured = fp.capture(scoped(scope, READS[kind], c))
    wrong = 0
    for i in range(70):
        if i == at:
            put(kind, c, 2.0)
        try:
            found = captured(one(1)).tolist()[0]
        except fp.CaptureError:
            break
        wrong += found != (1.0 if i < at else 2.0)
    assert wrong <= max(4, at)  # as many calls as came before, at most
