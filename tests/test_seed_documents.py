"""What the documents flamepy was born from ask for and get wrong: their tests, worked numbers, stated behaviour and known bugs.

Four systems wrote down how they clip, accumulate, save an optimizer and watch regularizers, and where they fail: a clip that returns
0.0 or edits a copy, moments lost at a restart, a failed step that counts, norms of 0.0 for what has none. Where the contract differs
from a document, the contract is what is tested. Oracles: their own numbers, NumPy in float64. Most of what they ask for is tested
beside the thing itself (test_clip.py, test_accumulation.py, test_regularizer_tracker.py); here is the rest.
"""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import AccumulationConfig, GradientAccumulator, Pipeline
from flamepy import regularizer as reg
from flamepy import transforms as T

pytestmark = pytest.mark.usefixtures("plain")

NAN, INF = math.nan, math.inf
G = {"a": [3.0, 0.0], "b": [[0.0], [4.0]]}  # joint norm 5


def model(pack: bool = False, gradients: Any = G) -> fp.ParameterDict:
    params = fp.ParameterDict({name: fp.Parameter(np.zeros(np.shape(g), "f4")) for name, g in gradients.items()})
    return params.pack() if pack else params


def grads_of(params: fp.ParameterDict, gradients: Any = G) -> fp.GradientMap:
    """What backward() gives: these gradients."""
    return sum([(params[name] * fp.tensor(np.float32(g))).sum() for name, g in gradients.items()]).backward()


def numbers(params: Any) -> dict[str, Any]:
    return {name: p.tolist() for name, p in params.named_parameters()}


def frozen(*objects: Any) -> bytes:
    return pickle.dumps([o.state_dict() for o in objects])


# ---- clipping: what is clipped is what the step uses ---------------------------------------------------------------------------------
def triples(params: Any, grads: Any) -> list[Any]:
    return [(p.id, p, grads.get(p)) for p in params.parameters()]


# (parameters, gradients, limit, optimizer) -> the norm; clipped and stepped
FORMS: dict[str, Callable[..., Any]] = {
    "a map": lambda ps, g, limit, o: (fp.clip_grad_norm(g, limit), o.step(g))[0],
    ".grad": lambda ps, g, limit, o: (ps.set_grads(g), fp.clip_grad_norm(ps, limit), o.step())[1],
    ".grad of a clipped map": lambda ps, g, limit, o: (fp.clip_grad_norm(g, limit), ps.set_grads(g), o.step())[0],
    "triples": lambda ps, g, limit, o: (fp.clip_grad_norm(g, limit), o.step(triples(ps, g)))[0],
    "triples got before": lambda ps, g, limit, o: (lambda rows: (fp.clip_grad_norm(g, limit), o.step(rows))[0])(triples(ps, g)),
    "a wrapped optimizer": lambda ps, g, limit, o: (setattr(o, "transforms", [T.ClipNorm(limit)]), o.step(g), o.transforms[0].result)[2],
    "a window": lambda ps, g, limit, o: (fp.grad_norm(g), o.step(GradientAccumulator(AccumulationConfig(1, True, limit)).step(g)))[0],
    "merged with another model's": lambda ps, g, limit, o: (fp.clip_grad_norm(g, limit), o.step(g.merge(grads_of(model(pack=True)))))[0],
}
LIMITS: dict[Any, float] = {  # a limit, and what the gradients are multiplied by
    10.0: 1.0,  # below: as they were
    5.0: 1.0,  # at the limit
    1.0: 1.0 / (5.0 + 1e-6),
    2.5e-6: 2.5e-6 / (5.0 + 1e-6),
    0.0: 1.0,  # off; one of the documents makes all gradients 0, another calls the norm 0.0
}


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_clip_reaches_the_weights_in_whatever_form(form: str, pack: bool) -> None:
    for limit, factor in LIMITS.items():
        params = model(pack)
        norm = FORMS[form](params, grads_of(params), limit, fp.SGD(params, lr=1.0))
        assert norm == 5.0
        for name, g in G.items():
            np.testing.assert_allclose(params[name].numpy(), -np.array(g) * factor, rtol=2e-7, err_msg=f"{limit}")


def test_the_epsilon_of_the_factor_counts_where_norms_are_small() -> None:
    params = model(gradients={"a": [3e-8, 4e-8]})
    grads = grads_of(params, {"a": [3e-8, 4e-8]})
    assert fp.clip_grad_norm(grads, 1e-8) == pytest.approx(5e-8)
    np.testing.assert_allclose(grads["a"].numpy(), np.array([3e-8, 4e-8]) * 1e-8 / (5e-8 + 1e-6), rtol=1e-6)


@pytest.mark.parametrize("pack", [False, True])
def test_a_group_that_is_refused_leaves_the_others_as_they_were(pack: bool) -> None:
    for b, limit, error in (([[NAN], [1.0]], 1.0, fp.NonFiniteError), ([[5.0], [1.0]], -1.0, ValueError)):
        params = model(pack)
        grads = grads_of(params, {"a": [3.0, 4.0], "b": b})
        with raises(error, "clip_grad_norm"):
            fp.clip_grad_norm_by_group(grads, {"a": 1.0, "b": limit})
        assert grads["a"].tolist() == [3.0, 4.0] and grads["b"].tolist()[1] == [1.0]
    params = model(pack)
    grads = grads_of(params, {"a": [3.0, 4.0], "b": [[NAN], [1.0]]})
    norms = fp.clip_grad_norm_by_group(grads, {"b": 1.0, "a": 1.0}, nonfinite="skip")
    assert norms["a"] == 5.0 and norms["a"].clipped and math.isnan(norms["b"])
    assert fp.SGD(params, lr=1.0).step(grads) is False  # one refused: none is used


# ---- a step that fails, or is skipped, is no step -----------------------------------------------------------------------------------
class Late(Exception):
    pass


def no_rate(step: int) -> float:
    if step >= 2:
        raise Late
    return 0.1


def skipped(params: Any, infinite: bool = True) -> fp.GradientMap:
    grads = grads_of(params, {**G, "b": [[INF], [4.0]]} if infinite else G)
    fp.clip_grad_norm(grads, 1.0, nonfinite="skip")
    return grads


def inserted(rows: Any) -> fp.GradientMap:
    found = fp.GradientMap()
    for _, p, g in rows:
        found.insert(p, g)
    return found


def row(p: Any, g: Any) -> Any:
    return (p.id, p, np.float32(g))


FAILURES: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "another shape, last": (fp.ShapeError, lambda o, ps: o.step([row(ps["a"], G["a"]), row(ps["b"], [1.0])])),
    "another's id": (fp.StateError, lambda o, ps: o.step([row(ps["a"], G["a"]), (0, ps["b"], np.ones((2, 1)))])),
    "listed twice": (fp.StateError, lambda o, ps: o.step([row(ps["a"], G["a"])] * 2)),
    "no numbers": (fp.DTypeError, lambda o, ps: o.step([row(ps["a"], G["a"]), (ps["b"].id, ps["b"], np.array([["x"], ["y"]]))])),
    "not finite": (fp.NonFiniteError, lambda o, ps: (setattr(o, "transforms", T.ClipNorm(1.0)), o.step(grads_of(ps, {"a": [NAN, 1.0]})))),
    "a rate that cannot be had": (Late, lambda o, ps: (setattr(o, "lr", no_rate), o.step(grads_of(ps)))),
    "nothing to update": (None, lambda o, ps: o.step(fp.GradientMap())),
    "skipped": (None, lambda o, ps: o.step(skipped(ps))),
    "skipped, as triples": (None, lambda o, ps: o.step(triples(ps, skipped(ps)))),
    "skipped, in another map": (None, lambda o, ps: o.step(inserted(triples(ps, skipped(ps))))),
    "skipped, in .grad": (None, lambda o, ps: (ps.set_grads(skipped(ps)), o.step())[1]),
    "skipped, merged": (None, lambda o, ps: o.step(grads_of(ps).merge(skipped(ps)))),
    "skipped, merged, as triples": (None, lambda o, ps: o.step(triples(ps, grads_of(ps).merge(skipped(ps))))),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::flamepy.FlameWarning")
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_or_skipped_step_changes_nothing_and_counts_none(name: str, pack: bool) -> None:
    error, fail = FAILURES[name]
    params = model(pack)
    optimizer = fp.AdamW(params, lr=0.1)
    for _ in range(2):
        optimizer.step(grads_of(params))
    before, weights = frozen(optimizer), numbers(params)
    if error is None:
        assert fail(optimizer, params) is False
    else:
        with pytest.raises(error):
            fail(optimizer, params)
    optimizer.lr, optimizer.transforms = 0.1, []
    assert numbers(params) == weights and frozen(optimizer) == before
    params.zero_grad()
    optimizer.step(skipped(params, infinite=False))  # the next one is good
    assert [r["step"] for r in optimizer.state_dict()["state"].values()] == [3, 3]


# ---- state of an optimizer --------------------------------------------------------------------------------------------------------------
def adamw(p: Any, gradients: list[Any], lr: float, b1: float, b2: float, eps: float, decay: float) -> tuple[Any, Any, Any]:
    """The formulas, in float64: parameter, m, v."""
    p, m, v = np.array(p), 0.0, 0.0
    for t, g in enumerate(gradients, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        p = p * (1 - lr * decay) - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return p, m, v


def test_a_restart_keeps_step_rate_and_moments() -> None:
    """Saved step and rate alone, as one of the documents had it, give other weights from the first step on."""
    rng, numbers = np.random.default_rng(0), (0.3, 0.8, 0.95, 1e-3, 0.1)
    gradients, start = [rng.normal(size=3) for _ in range(6)], rng.normal(size=3)
    params = fp.ParameterDict({"w": fp.Parameter(start)})
    lr, *betas, eps, decay = numbers
    optimizer = fp.AdamW(params, lr=lr, betas=tuple(betas), eps=eps, weight_decay=decay)
    for i, g in enumerate(gradients):
        if i == 3:
            state = optimizer.get_state()
            want = adamw(start, gradients[:3], *numbers)
            saved, group = state["state"]["w"], state["groups"][0]
            np.testing.assert_allclose([params["w"].numpy(), saved["m"], saved["v"]], want, rtol=1e-12)
            assert saved["step"] == 3 and (group["lr"], *group["betas"], group["eps"], group["weight_decay"]) == numbers
            optimizer = fp.AdamW(params, lr=7.0)  # what is restored wins
            optimizer.restore_state(state)
            assert pickle.dumps(optimizer.get_state()) == pickle.dumps(state)
        optimizer.step([(params["w"].id, params["w"], g)])
    np.testing.assert_allclose(params["w"].numpy(), adamw(start, gradients, *numbers)[0], rtol=1e-12)
    alone = fp.ParameterDict({"w": fp.Parameter(start), "b": fp.Parameter(start)})
    with raises(fp.StateError, "parameter count mismatch: state has 1, model has 2"):
        fp.AdamW(alone, lr=lr).restore_state(state)


def test_steps_are_counted_in_integers() -> None:
    params = model(gradients={"a": [1.0]})
    optimizer = fp.Adam(params, lr=0.1)
    optimizer.step(grads_of(params, {"a": [1.0]}))
    state = optimizer.state_dict()
    state["state"]["a"]["step"] = 2**24  # in float32 one more is the same
    optimizer.load_state_dict(state)
    optimizer.step(grads_of(params, {"a": [1.0]}))
    assert optimizer.state_dict()["state"]["a"]["step"] == 2**24 + 1


DAMAGED: dict[str, Callable[[Any], Any]] = {
    "no rows": lambda s: s.update(state=None), "rows in a list": lambda s: s.update(state=[s["state"]]),
    "a row is none": lambda s: s["state"].update(a=None), "no groups": lambda s: s.update(groups=None),
    "no group": lambda s: s.update(groups=[]), "a group is none": lambda s: s.update(groups=[None]),
    "a group without names": lambda s: s["groups"][0].pop("names"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_state_is_refused(name: str) -> None:
    params = model()
    for optimizer in (fp.AdamW(params, lr=0.1), fp.Adam(fp.AdamConfig())):
        optimizer.step([(p.id, p, np.ones(p.shape, "f4")) for p in params.parameters()])
        state, before = copy.deepcopy(optimizer.state_dict()), frozen(optimizer)
        DAMAGED[name](state)
        with raises(fp.StateError, optimizer.name, "state_dict()"):
            optimizer.restore_state(state)
        assert frozen(optimizer) == before


def test_damaged_transforms_and_parts_are_refused() -> None:
    params = model()
    chained = fp.SGD(params, lr=0.1, transforms=[T.Noise(0.1)])
    for wrong in (None, [None], ["Noise"], [{}]):
        with raises(fp.StateError, "SGD: the state of other transforms"):
            chained.load_state_dict({**chained.state_dict(), "transforms": wrong})
    several = fp.ByName(params, {"a": (fp.SGD, {"lr": 0.1}), "b": (fp.AdamW, {"lr": 0.1})})
    for parts in (None, ["a", "b"], {"a": None, "b": None}):
        with raises(fp.StateError):
            several.load_state_dict({**several.state_dict(), "parts": parts})


# ---- accumulation ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "config, arrived, want",
    [
        (AccumulationConfig(2, normalize=False), [[1.0, 2.0, 3.0]] * 2, [2.0, 4.0, 6.0]),
        (AccumulationConfig(2, normalize=False), [[2.0, 4.0], [6.0, 8.0]], [8.0, 12.0]),
        (AccumulationConfig(1, False, 5.0), [[30.0, 40.0]], [3.0 * 50 / (50 + 1e-6), 4.0 * 50 / (50 + 1e-6)]),
        (AccumulationConfig(1, False, 50.0), [[30.0, 40.0]], [30.0, 40.0]),
        (AccumulationConfig(2, True, 5.0), [[30.0, 40.0], [-30.0, 40.0]], [0.0, 5.0 * 40 / (40 + 1e-6)]),  # clipped when averaged
    ],
)
def test_windows_worked_by_hand(config: AccumulationConfig, arrived: list[Any], want: list[float]) -> None:
    accumulator = GradientAccumulator(config)
    accumulator.register("w", (len(want),))
    for i, g in enumerate(arrived):
        assert not accumulator.should_update() and accumulator.stats().total_micro_batches == i
        accumulator.accumulate("w", np.float64(g))
    assert accumulator.should_update() is (len(arrived) == config.accumulation_steps)
    for _ in range(2):  # looking changes nothing
        np.testing.assert_allclose(accumulator.get_gradients()["w"].numpy(), want, rtol=1e-12, atol=1e-12)
    accumulator.reset()
    assert accumulator.total_updates == 1 and not accumulator.should_update()
    with raises(fp.NoGradients):  # the document's zeros of a registered name are none
        accumulator.get_gradients()


def test_statistics_and_shapes_of_the_documents() -> None:
    accumulator = GradientAccumulator(AccumulationConfig(3))
    accumulator.register("a", [2, 3])
    accumulator.register("b", [4])
    stats = accumulator.stats()
    assert stats == (0, 0, 3, 2, 10) and stats.effective_batch_multiplier() == 3
    with raises(fp.ShapeMismatch, "'a'", "(2, 3)", "(6,)"):  # as many elements are not enough
        accumulator.accumulate("a", np.ones(6))
    assert accumulator.stats() == stats


@pytest.mark.parametrize("first", [0, 1])
def test_a_window_that_cannot_end_is_as_it_was(first: int) -> None:
    """Sums, counts, statistics, and which Parameter a name stands for."""
    params, other = model(), model()
    for name, give in (
        ("clipping", lambda acc: acc.step(grads_of(params, {**G, "a": [NAN, 1.0]}))),
        ("weights", lambda acc: acc.add(grads_of(params), 0)),
    ):
        accumulator = GradientAccumulator(AccumulationConfig(first + 1, max_grad_norm=1e9))
        accumulator.register("a", (2,))
        if first:
            accumulator.accumulate("a", [1.0, 5.0]) if name == "clipping" else accumulator.add({"a": [1.0, 5.0]}, 0.0)
        before, stats = str(accumulator.state_dict()), accumulator.stats()
        with raises(fp.NonFiniteError if name == "clipping" else fp.AccumulationError):
            give(accumulator)
        assert str(accumulator.state_dict()) == before and accumulator.stats() == stats
        found = accumulator.step(grads_of(other))  # "a" is free for another Parameter
        assert set(found) == {p.id for p in other.parameters()} and accumulator.stats()[3:] == (2, 4)
        want = (np.array(G["a"]) + [1.0, 5.0]) / 2 if first and name == "clipping" else G["a"]
        assert found["a"].tolist() == list(want)


# ---- regularizers -----------------------------------------------------------------------------------------------------------
X = np.array([1.0, 2.0, 3.0])


def test_norms_are_of_what_was_computed() -> None:
    """In the document terms are called again for their norms, without the extra arguments, and the base loss is left out of the total."""
    pipeline = Pipeline(lambda x: 2 * x.sum()).add("power", lambda x, k=1.0: k * (x * x).sum(), 0.5)
    total, metrics = pipeline.compute(fp.tensor(X), True, extra_args={"k": 3.0})
    assert total.item() == 12 + 0.5 * 3 * 14 and metrics["power_grad_norm"] == pytest.approx(3 * 56**0.5)
    assert metrics["total_grad_norm"] == pytest.approx(np.linalg.norm(2 + 0.5 * 3 * 2 * X))
    fp.manual_seed(0)
    masked = Pipeline().add("random", lambda x: (x * (fp.rand(3) > 0.5)).sum())
    for _ in range(8):  # a term that draws numbers: its norm is that of the mask it drew, found from its value
        _, found = masked.compute(fp.tensor(np.array([1.0, 2.0, 4.0])), True)
        assert found["random_grad_norm"] == pytest.approx(bin(int(found["random"])).count("1") ** 0.5)


def test_a_norm_that_is_not_a_number_dominates_nothing() -> None:
    """In whatever order the terms come."""
    x, w = fp.tensor(X), fp.Parameter(X)
    terms = {"nan": lambda x: (x * NAN).sum(), "l1": reg.l1, "l2": reg.l2}
    for names in (["nan", "l1", "l2"], ["l1", "l2", "nan"], ["l2", "nan", "l1"]):
        pipeline = Pipeline(terms[names[0]]).add(names[1], terms[names[1]]).add(names[2], terms[names[2]])
        _, metrics = pipeline.compute(x, True)
        assert pipeline.dominant(metrics) == ("base_loss" if names[0] == "l2" else "l2") and math.isnan(metrics["total_grad_norm"])
        report = fp.GradientTracker.parameter_report({name: terms[name](w) for name in names}, [w])
        assert report.dominant is None and math.isnan(report.joint.total)  # shares of what is not finite are none


def test_norms_only_where_the_loss_spikes() -> None:
    """The third pattern of use: compute, and once more with norms if the loss rose above twice the last one (which may be 0)."""
    tracker, pipeline, seen = fp.GradientTracker(every=1000, spike_ratio=2.0), Pipeline().add("l2", reg.l2), []
    pipeline.subscribe(lambda event, details: seen.append((event, details["total_norm"], details["pipeline_size"])))
    for step, scale in enumerate([1.0, 1.1, 3.0, 3.0, 0.0, 0.0, 1.0], start=1):
        total, metrics = pipeline.compute(fp.tensor(X * scale))
        assert not any("grad" in key for key in metrics)
        if tracker.should_track(step, total):
            pipeline.compute(fp.tensor(X * scale), track_grad_norms=True)
    assert seen == [("gradient.computed", pytest.approx(scale * 56**0.5), 1) for scale in (3.0, 1.0)]
