"""Checks that compiled code makes as it walks a recorded step: they compare as Python does, and fail where they stand.

Python's own comparisons are the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walk_tools import CPU, add, buffers

from flamepy.backend.base import Buffer
from flamepy.backend.cpu.runtime import walk
from flamepy.backend.run import Action, Required


@settings(deadline=None, max_examples=100)  # the first compiles
@given(
    value=st.floats(width=32) | st.sampled_from([float("nan"), float("inf"), -float("inf"), 0.0, 3.4028235e38]),
    low=st.floats(allow_nan=False), high=st.floats(allow_nan=False), dtype=st.sampled_from(["float32", "float64"]),
)  # fmt: skip
def test_a_required_number_is_compared_as_python_compares(value, low, high, dtype):
    number, calls = CPU.upload(np.array([value, np.nan], dtype)), []
    with np.errstate(over="ignore"):
        run = walk.CpuRun([Action(Required(calls.append, [(low, high)]), (number,), False)])
    run()
    assert bool(calls) == (not low <= value <= high) and run.begun.value == 1
    assert type(run.parts[0]) is walk.Walk


@pytest.mark.parametrize(("value", "fails"), [(-1, False), (0, True), (2**62, True), (-(2**62), True), (-2, False)])
def test_whole_numbers_are_compared_as_such(value, fails):
    calls: list[Buffer] = []
    number = CPU.upload(np.array([value], np.int64))
    walk.CpuRun([Action(Required(calls.append, [(-2, -1)]), (number,), False)])()
    assert bool(calls) == fails


def test_a_check_that_fails_stands_where_it_stood():
    """What comes before it is done and what comes after is not; of two numbers either may fail; without an error the walk goes on."""
    one, two, x, out = buffers(2, 3, 5, 5)
    named: list[Any] = []

    def check(*found: Buffer) -> None:
        named.append([float(b.data[0]) for b in found])
        if found[0].data[0] > 1:
            raise ArithmeticError("no")

    ranged = Action(Required(check, [(-1.0, 1.0), (0.0, 2.0)]), (one, two), False)
    run = walk.CpuRun([add(x, x, x), ranged, add(out, x, x), add(out, out, x)])
    run()
    assert len(run.parts) == 1 and not named and (out.data == 6 * np.arange(5)).all()
    one.data[0] = 2.0
    with pytest.raises(ArithmeticError):
        run()
    assert named == [[2.0, 0.0]] and run.begun.value == 2
    assert (x.data == 4 * np.arange(5)).all() and (out.data == 6 * np.arange(5)).all()
    one.data[0], two.data[0] = 1.0, 3.0
    run()
    assert named[1:] == [[1.0, 3.0]] and run.begun.value == 4 and (out.data == 24 * np.arange(5)).all()


def test_numbers_that_compiled_code_does_not_read_are_left_to_python():
    calls: list[Buffer] = []
    number = CPU.upload(np.array([3.0], np.float16))
    run = walk.CpuRun([Action(Required(calls.append, [(0.0, 4.0)]), (number,), False)])
    run()
    assert calls == [number] and type(run.parts[0]) is not walk.Walk
