"""Pointwise ops on a new shape at every call: one plan for all sizes gives what NumPy gives, and costs no recording.

Oracle: NumPy, and derivatives written here by hand.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.base import Stream
from flamepy.core import op as base
from flamepy.engine import kept
from flamepy.engine.plan import every

pytestmark = pytest.mark.usefixtures("device")

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)  # empty ones too, in any order
# name -> (flamepy, NumPy, derivative for x, derivative for y) of x and y
OPS: dict[str, Any] = {
    "tanh": (lambda x, y: fp.tanh(x), lambda x, y: np.tanh(x), lambda x, y: 1 - np.tanh(x) ** 2, None),
    "sub": (lambda x, y: x - y, lambda x, y: x - y, lambda x, y: 1, lambda x, y: -1),
    "mul": (lambda x, y: x * y, lambda x, y: x * y, lambda x, y: y, lambda x, y: x),
    "square": (lambda x, y: x * x, lambda x, y: x * x, lambda x, y: 2 * x, None),
    "scale": (lambda x, y: x * 2.5, lambda x, y: x * 2.5, lambda x, y: 2.5, None),
    "from-number": (lambda x, y: 1 - x, lambda x, y: 1 - x, lambda x, y: -1, None),
    "leaky": (lambda x, y: F.leaky_relu(x, 0.25), lambda x, y: np.where(x > 0, x, x / 4), lambda x, y: np.where(x > 0, 1, 0.25), None),
    "where": (
        lambda x, y: fp.where(x.detach() > y.detach(), x, y), np.maximum, lambda x, y: 1.0 * (x > y), lambda x, y: 1.0 * (x <= y),
    ),
}  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(SHAPES, st.sampled_from(sorted(OPS)), st.booleans(), st.booleans(), st.booleans()), max_size=12))
def test_any_order_of_shapes_types_and_tracked_inputs_is_as_numpy(calls: list[tuple]) -> None:
    rng = np.random.default_rng(len(calls))
    for shape, name, wide, x_tracked, y_tracked in calls:
        run, formula, dx, dy = OPS[name]
        a, b, g = (rng.normal(size=shape).astype("f8" if wide else "f4") for _ in range(3))
        x, y = fp.tensor(a, requires_grad=x_tracked), fp.tensor(b, requires_grad=y_tracked)
        z = run(x, y)
        np.testing.assert_allclose(z.numpy(), formula(a, b), rtol=1e-5, atol=1e-6)
        assert z.requires_grad == (x_tracked or (y_tracked and dy is not None))
        with fp.no_grad():
            assert not run(x, y).requires_grad
        if z.requires_grad:
            grads = z.backward(fp.tensor(g))
            for leaf, rule in ((x, dx), (y, dy)):
                if leaf.requires_grad and rule is not None:
                    np.testing.assert_allclose(grads[leaf].numpy(), g * rule(a, b), rtol=1e-5, atol=1e-6)


def test_an_empty_tensor_between_others_leaves_their_gradients_alone() -> None:
    """A backward recorded where there is nothing to launch is no plan for tensors that have elements."""
    for n in (5, 0, 6, 0, 7, 8):
        for _ in range(3):
            x = fp.tensor(np.ones((n, 3)), dtype=fp.float64, requires_grad=True)
            assert (fp.ones((n, 3), dtype=fp.float64) - x).backward(fp.ones((n, 3), dtype=fp.float64))[x].tolist() == [[-1.0] * 3] * n


def test_a_graph_of_the_backward_and_numbers_with_signs() -> None:
    for n in range(1, 30):
        a = np.linspace(-1, 1, n)
        x = fp.tensor(a, dtype=fp.float64, requires_grad=True)
        once = fp.exp(x * x).sum().backward(create_graph=True)[x]
        twice = (once * 1.0).sum().backward()[x].numpy()
        np.testing.assert_allclose(twice, np.exp(a * a) * (2 + 4 * a * a), rtol=1e-12)
        for zero in (0.0, -0.0):
            assert (fp.ones(n) * zero).numpy().tobytes() == np.full(n, zero, "f4").tobytes()


def test_a_new_shape_in_a_step_that_is_captured() -> None:
    for n in range(40, 46):
        step = fp.capture(lambda x: fp.tanh(x) * 2.0 - x)
        for k in range(4):
            a = np.full((n,), k / 8, "f4")
            np.testing.assert_allclose(step(fp.tensor(a)).numpy(), np.tanh(a) * 2 - a, rtol=1e-6, atol=1e-6)


@pytest.mark.engine
def test_what_came_once_is_forgotten_with_the_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new spec may lie where one that was forgotten lay, and so have its hash."""
    fp.tanh(fp.ones(30_777))
    assert any(base.REGISTRY["tanh"].plans.seen)
    monkeypatch.setattr(kept, "MOST", 0)
    fp.ones(30_778)
    assert not any(seen for plans in every() for seen in plans.seen)


def test_new_shapes_record_nothing_and_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(n: int) -> None:
        x, w, g = [fp.tensor(np.ones(n, "f4")) for _ in range(3)]
        (fp.tanh(x.requires_grad_()) * w).backward(g)

    monkeypatch.setattr(kept, "MOST", 1 << 30)  # specs are forgotten after so many shapes: not in the middle of this test
    run(31_000)
    run(31_001)
    recorded = []
    prepare = Stream.prepare
    monkeypatch.setattr(Stream, "prepare", lambda *given: recorded.append(given) or prepare(*given))
    before = sum(len(calls) for plans in every() for calls in plans.calls)
    for n in range(31_002, 31_030):
        run(n)
    assert not recorded and sum(len(calls) for plans in every() for calls in plans.calls) == before
