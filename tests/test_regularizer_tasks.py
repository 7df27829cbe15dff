"""pcgrad and GradNorm against the papers' algorithms, written here once more with NumPy on flat vectors.

Oracles: Algorithm 1 of arXiv:2001.06782, Algorithm 1 of arXiv:1711.02257.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import regularizer as reg

pytestmark = pytest.mark.usefixtures("plain")


def parameters() -> list[Any]:
    params = fp.ParameterDict({"a": fp.Parameter(np.zeros((2, 3))), "b": fp.Parameter(np.zeros(4))})
    return params.parameters()


def map_of(params: list[Any], flat: np.ndarray) -> Any:
    """A gradient map that backward() returned, holding these numbers."""
    a, b = params
    return ((a * fp.tensor(flat[:6].reshape(2, 3))).sum() + (b * fp.tensor(flat[6:])).sum()).backward()


def flat_of(params: list[Any], grads: Any) -> np.ndarray:
    return np.concatenate([grads[p].numpy().reshape(-1) for p in params])


def paper_pcgrad(gradients: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    projected = gradients.copy()
    for i in range(len(gradients)):
        for j in rng.permutation(len(gradients)):
            if j == i:
                continue
            dot = projected[i] @ gradients[j]
            if dot < 0:
                projected[i] = projected[i] - dot / (gradients[j] @ gradients[j]) * gradients[j]
    return projected.sum(0)


# ---- pcgrad ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_pcgrad_is_the_papers(tasks):
    random = np.random.default_rng(tasks)
    params = parameters()
    ours, theirs = np.random.default_rng(9), np.random.default_rng(9)
    for _ in range(3):
        flat = random.normal(size=(tasks, 10))
        found = reg.pcgrad([map_of(params, g) for g in flat], ours)
        np.testing.assert_allclose(flat_of(params, found), paper_pcgrad(flat, theirs), rtol=1e-12, atol=1e-13)


def test_two_tasks_in_conflict_end_up_on_each_others_normal_plane():
    params = parameters()
    g, h = np.zeros((2, 10))
    g[0], h[0], h[7] = 1.0, -1.0, 1.0
    found = flat_of(params, reg.pcgrad([map_of(params, g), map_of(params, h)], seed=1))
    # by hand: g + h/2 is what is left of g, (0, 1) of h
    wanted = np.zeros(10)
    wanted[0], wanted[7] = 0.5, 1.5
    np.testing.assert_allclose(found, wanted)


def test_what_does_not_conflict_is_added_up_and_nothing_given_is_changed():
    params = parameters()
    flat = np.abs(np.random.default_rng(0).normal(size=(3, 10)))
    maps = [map_of(params, g) for g in flat]
    found = reg.pcgrad(maps, seed=3)
    np.testing.assert_allclose(flat_of(params, found), flat.sum(0))
    for m, g in zip(maps, flat, strict=True):
        assert (flat_of(params, m) == g).all()
    found.scale_(0.0)
    assert (flat_of(params, maps[0]) == flat[0]).all() and {name for name, _ in found.named_items()} == {"a", "b"}
    one = reg.pcgrad(maps[:1])
    assert one[params[0]].buffer is not maps[0][params[0]].buffer
    fp.SGD(params, lr=1.0).step(one)
    assert (params[1].numpy() == -flat[0][6:]).all()


def test_a_gradient_that_a_map_lacks_counts_as_zeros():
    a, b = params = parameters()
    only = (a * fp.tensor(np.full((2, 3), -1.0))).sum().backward()
    flat = np.ones(10)
    found = flat_of(params, reg.pcgrad([map_of(params, flat), only], seed=0))
    wanted = paper_pcgrad(np.stack([flat, np.r_[-np.ones(6), np.zeros(4)]]), np.random.default_rng(0))
    np.testing.assert_allclose(found, wanted, atol=1e-15)
    assert b not in reg.pcgrad([only, only]) and a in reg.pcgrad([only, only])


def test_pcgrad_at_the_edges():
    params = parameters()
    zero, bad = np.zeros(10), np.full(10, np.nan)
    assert (flat_of(params, reg.pcgrad([map_of(params, zero), map_of(params, zero - 1)])) == -1).all()
    assert np.isnan(flat_of(params, reg.pcgrad([map_of(params, bad), map_of(params, zero + 1)]))).all()
    half = fp.Parameter(fp.ones(3).to(fp.float16))
    grads = (half * 2.0).sum().backward()
    assert reg.pcgrad([grads, grads])[half].tolist() == [4, 4, 4] and grads[half].dtype == fp.float32
    maps = [map_of(params, g) for g in np.random.default_rng(0).normal(size=(4, 10))]
    assert (flat_of(params, reg.pcgrad(maps, 5)) == flat_of(params, reg.pcgrad(maps, 5))).all()
    with raises(ValueError, "pcgrad: no tasks"):
        reg.pcgrad([])
    with raises(TypeError, "pcgrad: not a GradientMap"):
        reg.pcgrad(params)


def test_a_clip_that_is_still_to_be_applied_counts():
    params = fp.ParameterDict({"a": fp.Parameter(np.zeros(4))}).pack()
    a = params["a"]
    grads = (a * 3.0).sum().backward()
    fp.clip_grad_norm(grads, 1.0)
    np.testing.assert_allclose(reg.pcgrad([grads])[a].numpy(), 0.5, rtol=1e-5)


# ---- GradNorm ----------------------------------------------------------------------------------------------------------------------
def paper_gradnorm(weights: np.ndarray, norms: np.ndarray, losses: np.ndarray, first: np.ndarray, alpha: float, lr: float) -> np.ndarray:
    """One step down L_grad = sum |w_i n_i - target_i|, the target a constant; then weights that sum to the number of tasks."""
    ratios = losses / first
    rates = ratios / ratios.mean()
    target = (weights * norms).mean() * rates**alpha
    slope = norms * np.sign(weights * norms - target)
    moved = weights - lr * slope
    return moved * len(weights) / moved.sum()


def test_gradnorm_is_the_papers():
    random = np.random.default_rng(4)
    params = parameters()
    balance, weights = reg.GradNorm(tasks=3, alpha=1.2, lr=0.03), np.ones(3)
    first = None
    for _ in range(6):
        flat, losses = random.normal(size=(3, 10)) * [[1.0], [3.0], [0.3]], random.uniform(0.5, 2.0, 3)
        maps = [map_of(params, g) for g in flat]
        first = losses if first is None else first
        np.testing.assert_allclose(flat_of(params, balance.combine(maps)), weights @ flat, rtol=1e-12)
        found = balance.step(maps, [fp.tensor(losses[0]), *losses[1:]], shared=params[0])
        weights = paper_gradnorm(weights, np.linalg.norm(flat[:, :6], axis=1), losses, first, 1.2, 0.03)
        np.testing.assert_allclose(found, weights, rtol=1e-12)
        assert found == balance.weights and sum(found) == pytest.approx(3.0)


def test_gradnorm_brings_the_norms_of_equal_tasks_together():
    params = parameters()
    balance = reg.GradNorm(2, alpha=0.0, lr=0.01)
    flat = np.stack([np.ones(10), np.full(10, 4.0)])
    maps = [map_of(params, g) for g in flat]
    for _ in range(200):
        weights = balance.step(maps, [1.0, 1.0], params)
    norms = np.array(weights) * np.linalg.norm(flat, axis=1)
    assert norms[0] == pytest.approx(norms[1], rel=0.1) and weights[0] == pytest.approx(1.6, abs=0.1)


def test_gradnorm_keeps_weights_above_zero_and_goes_on_from_its_state():
    params = parameters()
    maps = [map_of(params, np.full(10, size)) for size in (1.0, 1000.0)]
    balance = reg.GradNorm(2, lr=1.0)
    found = balance.step(maps, [1.0, 1.0], params)
    assert min(found) > 0 and sum(found) == pytest.approx(2.0)
    other = reg.GradNorm(2, lr=1.0)
    other.load_state_dict(balance.state_dict())
    assert other.step(maps, [0.5, 0.9], params) == balance.step(maps, [0.5, 0.9], params)
    with raises(fp.StateError, "number of tasks differs"):
        reg.GradNorm(3).load_state_dict(balance.state_dict())


def test_what_gradnorm_cannot_do_changes_nothing():
    params = parameters()
    maps = [map_of(params, np.ones(10)), map_of(params, np.ones(10) * 2)]
    only = (params[0] * 1.0).sum().backward()
    balance = reg.GradNorm(2)
    broken = map_of(params, np.full(10, np.inf))
    for given, losses, kind, words in (
        (maps, [1.0, np.nan], fp.NonFiniteError, "not finite"), ([maps[0], broken], [1.0, 1.0], fp.NonFiniteError, "norms"),
        (maps, [1.0, 0.0], ValueError, "must be positive"), (maps, [1.0], ValueError, "counts differ"),
        (maps[:1], [1.0], ValueError, "number of tasks differs"), ([maps[0], only], [1.0, 1.0], KeyError, "'b'"),
        ([maps[0], params], [1.0, 1.0], TypeError, "not a GradientMap"),
    ):  # fmt: skip
        with raises(kind, words):
            balance.step(given, losses, params)
        assert balance.state_dict() == {"weights": [1.0, 1.0], "initial": None}
    assert balance.step(maps, [1.0, 1.0], params) != [1.0, 1.0]
    for options in ({"tasks": 0}, {"tasks": 2, "alpha": -1.0}, {"tasks": 2, "lr": 0.0}):
        with raises(ValueError, "GradNorm: impossible options"):
            reg.GradNorm(**options)
    assert repr(reg.GradNorm(2)) == "GradNorm(weights=[1, 1], alpha=1.5)"
