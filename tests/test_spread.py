"""Cotangents that are few numbers repeated, as sum() and mean() send back: the gradients are those of cotangents that are written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from devices import default_device
from reference import REFERENCE
from test_ops import SMOOTH, floats_of, leaves, on_floats

import flamepy as fp
from flamepy.engine import rules, spread

pytestmark = pytest.mark.engine
DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((6, 7))


@pytest.fixture(autouse=True)
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """However few elements, on the plain device."""
    monkeypatch.setattr(spread, "LEAST", 0)
    with default_device("plain"):
        yield


def gradient(fn: Callable[..., Any], x: np.ndarray = X) -> np.ndarray:
    leaf = fp.tensor(x, requires_grad=True)
    return np.array(fn(leaf).backward()[leaf].numpy())


STEPS: dict[str, Callable[..., Any]] = {
    "square": lambda x: (x * x).sum(),
    "twice": lambda x: (x.tanh() + x.tanh()).sum(),
    "shared": lambda x: (y := x.exp()).sum() + (y * 2.0).mean(),
    "axis": lambda x: x.exp().sum(axis=0).square().sum(),
    "kept": lambda x: (-x.sin()).mean(axis=1, keepdims=True).exp().sum(),
    "axes apart": lambda x: (x.reshape(3, 2, 7).square() + 1.0).sum(axis=(0, 2)).exp().sum(),
    "a leaf": lambda x: x.sum() * 3.0,
    "broadcast": lambda x: (x.exp() + x[0]).sum(),
    "a number": lambda x: ((x * 2.0 - 1.0) / 3.0).mean(),
    "a mask": lambda x: fp.where(x.detach() > 0.0, x * 1.5, 0.1 * x).sum(),
    "a reshape": lambda x: x.exp().reshape(-1).sum(),
    "a chain": lambda x: (1.0 - (1.0 - x)).mean(),
    "no elements": lambda x: (x[:0] * 2.0).sum() + x.sum(),
    "a mean of nothing": lambda x: (x.sum() * 0.0 + (x[:0] * 2.0).sum(axis=0)).sum(),
}


@pytest.mark.parametrize("name", STEPS)
def test_gradients_are_those_of_cotangents_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [gradient(STEPS[name]) for _ in range(4)]  # as it is, planned, as planned
    monkeypatch.setattr(rules, "sent_back", lambda *_: None)
    for g in few:
        np.testing.assert_array_equal(g, gradient(STEPS[name]))
    leaf = fp.tensor(X, requires_grad=True)
    assert fp.gradcheck(STEPS[name], (leaf,))


@pytest.mark.parametrize("name", SMOOTH)
def test_every_op_under_a_sum(name: str) -> None:
    case = REFERENCE[name]
    for seed, sample in enumerate(case.samples[:6]):
        arrays = case.draw(sample, np.float64, seed)
        fn = on_floats(name, case, sample, arrays)
        xs = floats_of(case, arrays)
        for _ in range(3):
            fn(*leaves(xs)).sum().backward()
        assert fp.gradcheck(lambda *a, fn=fn: fn(*a).sum(), leaves(xs)), (name, sample)


def test_nothing_is_written_that_only_repeats() -> None:
    captured = fp.capture(lambda x: (x.square() * 2.0).mean().backward()[x])
    for _ in range(3):
        captured(fp.tensor(X, requires_grad=True))
    assert captured.program.launches == 3  # 1 / n, times 2, and the square's rule


def test_hooks_and_retained_gradients_see_tensors_of_their_own() -> None:
    x, seen = fp.tensor(X, requires_grad=True), []
    y = x.exp()
    y.register_hook(lambda g: seen.append(g) or g * 2.0)
    z = y * 3.0
    z.retain_grad()
    grads = z.sum().backward()
    assert type(seen[0]) is fp.Tensor and seen[0].shape == X.shape and type(grads[z]) is fp.Tensor
    np.testing.assert_allclose(grads[x].numpy(), 6.0 * np.exp(X))
    np.testing.assert_array_equal(grads[z].numpy(), np.ones_like(X))


def test_a_gradient_that_only_repeats_is_memory_of_its_own() -> None:
    """Of two leaves: what is done to one gradient does nothing to the other, nor to what comes next."""
    x, w = fp.tensor(X, requires_grad=True), fp.tensor(X, requires_grad=True)
    for _ in range(4):
        grads = (x + w).sum().backward()
        fp.clip_grad_norm_(grads, 0.5)
        assert grads[x].buffer is not grads[w].buffer
        np.testing.assert_allclose(grads[x].numpy(), np.full_like(X, 0.5 / np.sqrt(2 * X.size)), rtol=1e-6)


def test_16_bit_inputs() -> None:
    x = fp.tensor(X.astype("f2"), requires_grad=True)
    for _ in range(3):
        g = (x * x).mean().backward()[x]
    np.testing.assert_allclose(g.numpy(), 2 * X / X.size, rtol=2e-3)


def test_a_captured_step_and_a_checkpoint() -> None:
    w = fp.Parameter(X)

    def step(x: Any) -> Any:
        return fp.checkpoint(lambda x: (x * w).tanh(), x).mean().backward()[w]

    captured = fp.capture(step)
    for n in range(4):
        x = fp.tensor(X + n)
        np.testing.assert_array_equal(captured(x).numpy(), step(x).numpy())
