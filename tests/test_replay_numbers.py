"""Numbers of Python's that a captured step would freeze, told apart before they are rounded; memory that moves before recording."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_replay_kinds import Log, Wrap, batch, model, refused, same, training

import flamepy as fp
import flamepy.nn.functional as F

pytestmark = pytest.mark.usefixtures("device")


def scaled(x: Any, t: float) -> Any:
    w = fp.Parameter(x)
    return (w * x).sum().backward().scale_(t)[w]


ROUNDED: dict[str, Callable[[Any, float], Any]] = {
    "factor": lambda x, t: x * t,
    "number first": lambda x, t: t - x,
    "beside integers": lambda x, t: x.to(fp.int64) * t,
    "attribute": lambda x, t: x.clamp(-1.0, t),
    "in a custom op": lambda x, t: F.layer_norm(x, (2,), eps=t),
    "full": lambda x, t: x + fp.full((2,), t),
    "tensor": lambda x, t: x + fp.tensor(t),
    "list": lambda x, t: x + fp.tensor([t, 1.0]),
    "array": lambda x, t: x + fp.tensor(np.array([t, 1.0]), dtype=fp.float32),
    "scale_": scaled,
    "clip": lambda x, t: fp.clip_grad_value((fp.Parameter(x) * x).sum().backward(), t),
}


@pytest.mark.parametrize("use", ROUNDED)
def test_a_number_that_changes_by_less_than_its_rounding_is_not_frozen(use):
    """The clock in float32 is the same for two minutes: the two calls that are compared would see one number, and replays keep it."""

    def case(wrap: Wrap, log: Log) -> None:
        clock = itertools.count()
        f = wrap(lambda x: ROUNDED[use](x, 1.7e9 + next(clock)))
        for _ in range(4):
            log(f(fp.full((2,), 0.5)))

    refused(case, "made by Python changed between the first two calls", 1)


def test_the_two_zeros_are_two_numbers():
    """1 / 0.0 is infinity, 1 / -0.0 minus infinity."""

    def case(wrap: Wrap, log: Log) -> None:
        zeros = itertools.cycle([0.0, -0.0])
        f = wrap(lambda x: 1.0 / (x * next(zeros)))
        for _ in range(4):
            log(f(fp.ones(2)))

    refused(case, "a number made by Python changed between the first two calls and would be frozen: 0.0, then -0.0", 1)


def test_numbers_of_one_line_may_differ_among_themselves():
    def case(wrap: Wrap, log: Log) -> None:
        def step(x: Any) -> Any:
            for i in range(3):
                x = x * (1.0 + i * 1e-9)
            return (x * 0.1 + 1).sum(), x * float("nan")

        f = wrap(step)
        for i in range(4):
            log(f(fp.full((2,), float(i))))

    same(case)


def test_memory_that_moves_between_the_first_two_calls():
    """The optimizer moves its moments while the step is recorded: once, and not in replays."""

    def case(wrap: Wrap, log: Log) -> None:
        m = model()
        o = fp.Adam(m, lr=0.1)
        f = wrap(training(m, o))
        for i in range(5):
            m.params.pack() if i == 1 else None
            log(f(*batch(i)))
            log(m)

    same(case)
