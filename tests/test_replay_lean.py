"""What a replay leaves out: launches that another one has done already, and those whose results nobody reads. The numbers stay eager's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from devices import default_device

import flamepy as fp
import flamepy.nn.functional as F

pytestmark = pytest.mark.engine


@pytest.fixture(autouse=True)
def on_the_plain_device() -> Iterator[None]:
    with default_device("plain"):
        yield


X = np.random.default_rng(0).standard_normal((6, 5)).astype("f4")


def replayed(step: Callable[..., Any], *more: Any, calls: int = 4) -> Any:
    """The captured step after a few calls whose results were compared with eager ones."""
    captured = fp.capture(step)
    for n in range(calls):
        x = fp.tensor(X + n)
        found, expected = captured(x, *more), step(x, *more)
        for y, e in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
            np.testing.assert_array_equal(y.numpy(), e.numpy())
    return captured


def test_equal_launches_are_done_once() -> None:
    assert replayed(lambda x: x.tanh() * x.tanh()).program.launches == 2
    assert replayed(lambda x: x.tanh() * 2.0 + x.tanh() * 3.0).program.launches == 4


def test_launches_that_follow_from_equal_ones_are_equal() -> None:
    assert replayed(lambda x: x.exp().sin() + x.exp().sin()).program.launches == 3


def test_another_number_another_axis_and_another_operand_are_no_equals() -> None:
    assert replayed(lambda x: (x * 2.0) + (x * 3.0)).program.launches == 3
    assert replayed(lambda x: x.sum(axis=0).sum() + x.sum(axis=1).sum()).program.launches == 5
    assert replayed(lambda x: x.exp() + (x + 1.0).exp()).program.launches == 4


def test_what_was_written_in_between_is_read_again() -> None:
    w = fp.Parameter(np.ones(5, "f4"))

    def step(x: Any) -> Any:
        before = (x * w).sum()
        w.set_data(w.detach() * 0.5)
        return before, (x * w).sum()

    captured, seen = fp.capture(step), []
    for _ in range(4):
        a, b = captured(fp.tensor(X))
        seen.append((a.item(), b.item()))
    for n, (a, b) in enumerate(seen):
        np.testing.assert_allclose([a, b], [X.sum() * 0.5**n, X.sum() * 0.5 ** (n + 1)], rtol=1e-5)


def test_dropout_twice_draws_twice() -> None:
    captured = fp.capture(lambda x: (F.dropout(x, 0.5), F.dropout(x, 0.5)))
    for _ in range(4):
        a, b = captured(fp.ones(200))
        assert (a.numpy() != b.numpy()).any()


def test_results_that_are_equal_are_tensors_of_their_own() -> None:
    a, b = replayed(lambda x: (x.exp(), x.exp()))(fp.tensor(X))
    assert a is not b and a.buffer is not b.buffer


def test_what_nobody_reads_is_left_out() -> None:
    def step(x: Any) -> Any:
        (x.exp().sum() * 2.0).sin()
        return x.tanh()

    assert replayed(step).program.launches == 1


def test_a_check_whose_result_is_not_read_is_made() -> None:
    def step(x: Any, ids: Any) -> Any:
        x[ids]
        return x.tanh()

    captured = replayed(step, fp.tensor([0, 5]))
    with pytest.raises(fp.IndexOutOfRange, match="6"):
        captured(fp.tensor(X), fp.tensor([0, 6]))


def test_what_a_checkpoint_makes_again_is_made_again() -> None:
    """It would take the memory that the checkpoint saves."""
    w = fp.Parameter(np.ones((5, 5), "f4"))

    def step(x: Any, run: Callable[..., Any]) -> Any:
        y = run(lambda x: (x @ w).tanh().exp(), x)
        return (y * y).sum().backward()[w]

    plain, checkpointed = replayed(lambda x: step(x, lambda f, x: f(x))), replayed(lambda x: step(x, fp.checkpoint))
    assert checkpointed.program.launches > plain.program.launches
