"""Pipeline: what compute() returns with and without norms, for every kind of input, and what a failing term does to the others.

Oracles: gradients written by hand with NumPy in float64; the same pipeline without tracking. Read next: test_regularizer_tracker.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from devices import default_device
from error_text import raises
from thread_tools import at_once

import flamepy as fp
from flamepy import nn
from flamepy import regularizer as reg

X = np.array([1.0, -2.0, 3.0])


@pytest.fixture(autouse=True)
def plain(request: pytest.FixtureRequest) -> Iterator[None]:
    if "device" in request.fixturenames:
        yield
        return
    with default_device("plain"):
        yield


def cut(x: Any) -> Any:
    return x.argmax()


def watched(pipeline: Any) -> list[tuple[str, dict[str, Any]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    pipeline.subscribe(lambda event, details: events.append((event, details)))
    return events


# ---- what it returns -----------------------------------------------------------------------------------------------------------
def test_total_and_metrics_without_tracking():
    pipeline = fp.Pipeline(lambda x: (x * x * x).sum()).add("l1", reg.l1, 0.5).add("l2", reg.l2, 0.25)
    total, metrics = pipeline.compute(fp.tensor(X))
    assert metrics == {"base_loss": 20.0, "l1": 6.0, "l1_weighted": 3.0, "l2": 14.0, "l2_weighted": 3.5}
    assert total.shape == () and total.item() == 26.5 and not total.requires_grad


def test_norms_by_hand(device):
    pipeline = fp.Pipeline(lambda x: (x * x * x).sum()).add("l1", reg.l1, 0.5).add("l2", reg.l2, 0.25)
    events = watched(pipeline)
    _, metrics = pipeline.compute(fp.tensor(X), track_grad_norms=True)
    base, l1, l2 = 3 * X**2, np.sign(X), 2 * X
    norms = {"base_loss": base, "l1": l1, "l2": l2, "total": base + 0.5 * l1 + 0.25 * l2}
    assert {k: v for k, v in metrics.items() if "grad" in k} == {
        f"{name}_grad_norm": pytest.approx(np.linalg.norm(g), rel=1e-12) for name, g in norms.items()
    }
    assert metrics["l2_grad_norm"] == pytest.approx(56**0.5) and metrics["l1_grad_norm"] == pytest.approx(3**0.5)
    assert all([type(v) is float for v in metrics.values()])
    assert events == [("gradient.computed", {"total_norm": metrics["total_grad_norm"], "pipeline_size": 2})]
    assert pipeline.dominant(metrics) == "base_loss"


def test_the_input_may_have_any_shape():
    x = fp.tensor([[1.0, -2.0], [-3.0, 4.0]])
    assert fp.Pipeline().add("l1", reg.l1).compute(x, True)[1]["total_grad_norm"] == pytest.approx(2.0)
    _, metrics = fp.Pipeline().add("l1", reg.l1).compute(fp.zeros(0, 3), True)
    assert metrics == {"l1": 0.0, "l1_weighted": 0.0, "l1_grad_norm": 0.0, "total_grad_norm": 0.0}


def test_an_empty_pipeline_is_zero():
    total, metrics = fp.Pipeline().compute(fp.tensor(X), track_grad_norms=True)
    assert total.item() == 0.0 and total.shape == () and metrics == {"total_grad_norm": 0.0}
    pipeline = fp.Pipeline().add("l1", reg.l1)
    pipeline.enable("l1", False)
    assert pipeline.compute(fp.tensor(X))[1] == {} and bool(fp.Pipeline()) and len(pipeline) == 1


def test_each_function_is_called_once_and_each_tape_walked_once():
    calls, walks = [], []

    def term(name: str, x: Any) -> Any:
        calls.append(name)
        y = x * 1.0
        if y.requires_grad:
            y.register_hook(lambda g: walks.append(name))
        return y.sum()

    pipeline = fp.Pipeline(partial(term, "base")).add("a", partial(term, "a")).add("b", partial(term, "b"))
    for track in (False, True):
        total, _ = pipeline.compute(fp.tensor(X, requires_grad=True), track)
        assert calls == ["base", "a", "b"] and walks == (["base", "a", "b"] if track else [])
        calls.clear()
    total.backward()
    assert sorted(walks) == ["a", "a", "b", "b", "base", "base"]


# ---- kinds of input ----------------------------------------------------------------------------------------------------------
def test_tracking_changes_neither_the_total_nor_its_gradients():
    w, data = fp.Parameter(np.arange(6.0).reshape(2, 3) / 7), fp.tensor(X)
    free = fp.Parameter(np.array([2.0, 1.0]))
    hooks = []
    w.register_hook(lambda g: hooks.append(1))
    pipeline = fp.Pipeline(lambda y: (y * y).sum()).add("mixed", lambda y: (y * free).sum(), 0.5)
    found = []
    for track in (False, True):
        hidden = w @ data
        hidden.register_hook(lambda g: hooks.append(2))
        total, metrics = pipeline.compute(hidden, track)
        assert hooks == [] and hidden.entry.freed is None  # the tape behind the input was neither walked nor freed
        grads = total.backward()
        hooks.clear()
        found.append((total.item(), grads[w].tolist(), grads[free].tolist(), sorted(grads) == sorted([w.id, free.id])))
    assert found[0] == found[1] and found[1][3]
    y = w.numpy() @ X
    assert metrics["base_loss_grad_norm"] == pytest.approx(np.linalg.norm(2 * y))
    assert metrics["total_grad_norm"] == pytest.approx(np.linalg.norm(2 * y + 0.5 * free.numpy()))


@fp.custom
def halves(x):
    """One op with two results."""
    return x[:3].clone(), x[3:].clone()


@halves.backward
def halves_dx(gs):
    return fp.cat([fp.zeros(3, dtype=fp.float64) if g is None else g for g in gs])


@pytest.mark.parametrize("kind", ["untracked", "leaf", "parameter", "result", "packed", "second output"])
def test_every_kind_of_tensor(kind):
    p = fp.Parameter(X)
    if kind == "packed":
        fp.ParameterDict({"other": fp.Parameter(np.ones(5)), "p": p}).pack()
    leaf = fp.tensor(X, requires_grad=True)
    other = fp.tensor(np.concatenate([X + 1, X]), requires_grad=True)
    x = {
        "untracked": fp.tensor(X), "leaf": leaf, "parameter": p, "packed": p, "result": leaf * 1.0, "second output": halves(other)[1],
    }[kind]  # fmt: skip
    pipeline = fp.Pipeline().add("cube", lambda x: (x * x * x).sum(), 2.0).add("cut", cut).add("none", lambda x: 1.5)
    plainly, _ = pipeline.compute(x)
    total, metrics = pipeline.compute(x, True)
    assert metrics["cube_grad_norm"] == pytest.approx(np.linalg.norm(3 * X**2))
    assert metrics["total_grad_norm"] == pytest.approx(np.linalg.norm(6 * X**2))
    assert metrics["cut_grad_norm"] is None and metrics["none_grad_norm"] == 0.0
    assert total.item() == plainly.item() == 2 * 20 + 2 + 1.5
    assert total.requires_grad == plainly.requires_grad == (kind != "untracked")
    if kind != "untracked":
        before, after = dict(plainly.backward(retain_graph=True).items()), dict(total.backward().items())
        assert before.keys() == after.keys() and all([before[k].tolist() == after[k].tolist() for k in before])


def test_an_untracked_input_leaves_nothing_in_the_map():
    w = fp.Parameter(X)
    total, metrics = fp.Pipeline(lambda x: (x * w).sum()).compute(fp.tensor(X), True)
    assert metrics["total_grad_norm"] == pytest.approx(np.linalg.norm(X))
    assert list(total.backward()) == [w.id]


def test_an_integer_input_has_no_gradient():
    pipeline = fp.Pipeline().add("sum", lambda x: x.sum()).add("none", lambda x: 2.0)
    total, metrics = pipeline.compute(fp.tensor([1, 2, 3]), True)
    assert total.item() == 8.0 and metrics["sum_grad_norm"] is None and metrics["none_grad_norm"] == 0.0
    assert metrics["total_grad_norm"] is None and metrics["total_grad_norm_error"] is True


def test_under_no_grad_norms_are_found_and_the_total_is_untracked():
    w = fp.Parameter(X)
    pipeline = fp.Pipeline(lambda x: (x * w).sum()).add("l2", reg.l2)
    for x in (fp.tensor(X), w, w * 1.0):
        with fp.no_grad():
            total, metrics = pipeline.compute(x, True)
            assert not fp.is_grad_enabled()
        assert not total.requires_grad and metrics["l2_grad_norm"] == pytest.approx(56**0.5)


def test_sums_are_at_least_float32():
    half = fp.tensor(X.astype("f4")).to(fp.bfloat16)
    total, metrics = fp.Pipeline().add("l1", reg.l1, 1e-3).compute(half, True)
    assert total.dtype == fp.float32 and metrics["l1_weighted"] == pytest.approx(6e-3, rel=1e-6)
    assert metrics["l1_grad_norm"] == pytest.approx(3**0.5)
    wide = fp.Parameter(X)
    mixed = fp.Pipeline().add("wide", lambda x: wide.sum()).add("count", cut).add("l1", reg.l1)
    assert mixed.compute(fp.tensor(X.astype("f4")))[0].dtype == fp.float64
    assert reg.Pipeline is fp.Pipeline and fp.Pipeline().add("l1", reg.l1).compute(X)[1]["l1"] == 6.0  # an array


# ---- failures ------------------------------------------------------------------------------------------------------------------
def test_a_cut_path_is_a_failure_and_the_others_are_computed():
    w = fp.Parameter(X)
    pipeline = fp.Pipeline(lambda x: x.sum()).add("cut", cut, 3.0).add("l2", reg.l2).add("free", lambda x: w.sum())
    events = watched(pipeline)
    total, metrics = pipeline.compute(fp.tensor(X), track_grad_norms=True)
    assert metrics["cut_grad_norm"] is None and metrics["cut_grad_norm_error"] is True
    assert metrics["l2_grad_norm"] == pytest.approx(56**0.5) and metrics["free_grad_norm"] == 0.0
    assert [k for k in metrics if k.endswith("_error")] == ["cut_grad_norm_error"]
    assert metrics["cut"] == 2.0 and metrics["cut_weighted"] == 6.0 and total.item() == 2 + 6 + 14 + 2
    assert metrics["total_grad_norm"] == pytest.approx(np.linalg.norm(1 + 2 * X))  # what backward() sees
    (failed, computed) = events
    assert failed[0] == "gradient.failed" and set(failed[1]) == {"duration", "reason"} and computed[0] == "gradient.computed"
    assert re.search(r"'cut'.*path.*was cut.*'argmax' \(.*test_regularizer_pipeline.py:\d+\)", failed[1]["reason"])
    assert 0 <= failed[1]["duration"] < 60 and computed[1]["pipeline_size"] == 3


def test_the_total_fails_where_nothing_else_uses_the_input():
    pipeline = fp.Pipeline(cut).add("free", lambda x: 1.0)
    events = watched(pipeline)
    _, metrics = pipeline.compute(fp.tensor(X), True)
    assert metrics["free_grad_norm"] == 0.0 and metrics["base_loss_grad_norm"] is None
    assert metrics["total_grad_norm"] is None and metrics["total_grad_norm_error"] is True
    assert [e for e, _ in events] == ["gradient.failed"] * 2 and pipeline.dominant(metrics) is None


def test_a_backward_that_raises_is_a_failure():
    @fp.custom
    def brittle(x):
        return x.clone()

    @brittle.backward
    def brittle_dx(g):
        raise RuntimeError("no way back")

    pipeline = fp.Pipeline(lambda x: x.sum()).add("brittle", lambda x: brittle(x).sum())
    events = watched(pipeline)
    total, metrics = pipeline.compute(fp.tensor(X), True)
    assert metrics["brittle_grad_norm"] is None and metrics["base_loss_grad_norm"] == pytest.approx(3**0.5)
    assert metrics["total_grad_norm"] is None and "no way back" in events[0][1]["reason"] and total.item() == 4.0


def test_tracking_fails_no_term_that_works_without():
    """An op without a derivative refuses a tracked input: here it is tracked for the norm's sake alone."""

    @fp.custom
    def rounded(x):
        return x.round()

    pipeline = fp.Pipeline().add("noise", lambda x: (rounded(x) * fp.rand(3)).sum()).add("l1", reg.l1)
    results = []
    for track in (False, True):
        fp.manual_seed(3)
        results.append(pipeline.compute(fp.tensor(X.astype("f4")), track))
    assert results[0][0].item() == results[1][0].item()
    metrics = results[1][1]
    assert metrics["noise_grad_norm"] is None and metrics["noise_grad_norm_error"] and metrics["total_grad_norm"] is None
    assert metrics["l1_grad_norm"] == pytest.approx(3**0.5)
    with raises(fp.GradientError, "rounded"):  # it fails without tracking as well
        pipeline.compute(fp.tensor(X.astype("f4"), requires_grad=True), True)


@pytest.mark.parametrize("track", [False, True])
def test_what_a_term_raises_names_it(track):
    pipeline = fp.Pipeline().add("fine", reg.l1).add("no good", lambda x: x @ fp.ones(7))
    events = watched(pipeline)
    with pytest.raises(fp.ShapeError, match="matmul") as caught:
        pipeline.compute(fp.tensor(X.astype("f4")), track)
    assert "'no good'" in caught.value.__notes__[0] and events == []
    assert not fp.autograd.entries.observing and fp.tensor(X).device.stream is fp.tensor(X).device.direct  # nobody follows any more
    for wrong, kind in ((lambda x: x, fp.ShapeError), (lambda x: None, fp.DTypeError), (lambda x: [x.sum()], fp.DTypeError)):
        with raises(kind, "Pipeline: a term returned") as caught:
            fp.Pipeline().add("t", wrong).compute(fp.tensor(X), track)
        assert "'t'" in caught.value.__notes__[0]
    with raises(fp.DTypeError, "compute"):
        pipeline.compute({"a": 1}, track)


def test_numbers_that_are_not_finite_are_shown_as_they_are():
    x = fp.tensor(np.array([np.nan, 1.0]))
    _, metrics = fp.Pipeline().add("l2", reg.l2).compute(x, True)
    assert np.isnan([metrics["l2"], metrics["l2_grad_norm"], metrics["total_grad_norm"]]).all()
    _, metrics = fp.Pipeline().add("root", lambda x: x.sqrt().sum()).compute(fp.tensor([0.0, 1.0]), True)
    assert metrics["root_grad_norm"] == np.inf and "root_grad_norm_error" not in metrics


# ---- the terms -------------------------------------------------------------------------------------------------------------------
def test_terms_are_added_switched_weighted_and_removed():
    pipeline = fp.Pipeline().add("a b", reg.l1).add("l2", reg.l2, 0)
    x = fp.tensor(X)
    assert pipeline.compute(x)[0].item() == 6.0 and pipeline.compute(x)[1]["l2_weighted"] == 0.0
    pipeline.update_weight("l2", 0.5)
    pipeline.enable("a b", False)
    assert pipeline.compute(x)[1] == {"l2": 14.0, "l2_weighted": 7.0}
    assert repr(pipeline) == "Pipeline(1 * a b (off) + 0.5 * l2)" and list(pipeline) == ["a b", "l2"]
    pipeline.enable("a b")
    pipeline.remove("l2")
    assert pipeline.compute(x)[0].item() == 6.0 and "l2" not in pipeline and "a b" in pipeline
    pipeline.add("l2", reg.l2)  # free again


@pytest.mark.parametrize("name", ["", "  ", None, 3, "l1", "total", "base_loss", "l1_weighted", "l1_grad_norm"])
def test_names_are_strings_of_their_own(name):
    pipeline = fp.Pipeline().add("l1", reg.l1)
    with raises(fp.StateError, "add"):
        pipeline.add(name, reg.l2)
    assert list(pipeline) == ["l1"] and issubclass(fp.StateError, ValueError)
    with raises(fp.StateError, "add"):
        fp.Pipeline().add("l1_weighted", reg.l1).add("l1", reg.l1)


@pytest.mark.parametrize("weight", [-1.0, -1e-300, float("nan"), float("inf")])
def test_weights_are_finite_and_not_negative(weight):
    pipeline = fp.Pipeline().add("l1", reg.l1, 2.0)
    with raises(ValueError, "update_weight", "'l1'"):
        pipeline.update_weight("l1", weight)
    with raises(ValueError, "add", "'l2'"):
        pipeline.add("l2", reg.l2, weight)
    assert repr(pipeline) == "Pipeline(2 * l1)"


def test_wrong_calls_are_refused():
    pipeline = fp.Pipeline().add("l1", reg.l1)
    for call in (lambda: pipeline.remove("l3"), lambda: pipeline.enable("l3", True), lambda: pipeline.update_weight("l3", 1.0)):
        with raises(KeyError, "no such term: 'l3'", "l1"):
            call()
    for call in (lambda: fp.Pipeline(3), lambda: pipeline.add("x", fp.tensor(X)), lambda: pipeline.subscribe("print")):
        with raises(TypeError, "not a function"):
            call()


def test_extra_args_reach_every_function_that_accepts_them():
    class Model(nn.Module):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return x.sum() * scale

    seen: dict[str, Any] = {}
    pipeline = fp.Pipeline(lambda z, *, target: (z - target).square().sum())
    pipeline.add("kl", reg.kl).add("elastic", partial(reg.elastic_net, l1_ratio=1.0)).add("plain", lambda x: x.sum())
    pipeline.add("all", lambda x, **options: seen.update(options) or x.sum()).add("bound", Kept(2.0).term).add("op", fp.sum)
    pipeline.add("module", Model().forward).add("rest", lambda *xs, scale: xs[0].sum() * scale).add("twice", lambda x, /, scale: scale)
    target = fp.tensor(X + 1)
    _, metrics = pipeline.compute(fp.tensor(X), True, extra_args={"target": target, "scale": 3.0, "x": "not this", "weight": 5})
    assert metrics["base_loss"] == 3.0 and metrics["kl"] == pytest.approx(0.0, abs=1e-12) and metrics["elastic"] == 6.0
    assert metrics["plain"] == 2.0 and metrics["module"] == 6.0 and metrics["rest"] == 6.0 and metrics["twice"] == 3.0
    assert list(seen.items()) == [("target", target), ("scale", 3.0), ("weight", 5)]
    assert metrics["bound"] == 12.0 and metrics["op"] == 2.0
    with pytest.raises(TypeError, match="target") as caught:
        pipeline.compute(fp.tensor(X))
    assert "'base_loss'" in caught.value.__notes__[0]


class Kept:
    def __init__(self, factor: float):
        self.factor = factor

    def term(self, x: Any, scale: float) -> Any:
        return x.sum() * self.factor * scale


# ---- meanwhile -----------------------------------------------------------------------------------------------------------------------
def test_a_weight_changed_by_a_term_holds_from_the_next_compute_on():
    def restless(x: Any) -> Any:
        pipeline.update_weight("l1", 10.0)
        if "late" not in pipeline:
            pipeline.add("late", reg.l2)
        return x.sum()

    pipeline = fp.Pipeline(restless).add("l1", reg.l1)
    assert pipeline.compute(fp.tensor(X), True)[1]["l1_weighted"] == 6.0
    assert pipeline.compute(fp.tensor(X), True)[1]["l1_weighted"] == 60.0 and "late" in pipeline


def test_a_callback_that_raises_stops_nobody():
    pipeline = fp.Pipeline().add("l1", reg.l1)
    told: list[str] = []

    def bad(event: str, details: dict[str, Any]) -> None:
        details.clear()
        raise KeyError("mine")

    def leaves(event: str, details: dict[str, Any]) -> None:
        told.append("leaves")
        end()

    pipeline.subscribe(bad)
    end = pipeline.subscribe(leaves)
    twice = [pipeline.subscribe(lambda event, details: told.append(sorted(details)[0])) for _ in range(2)]
    for _ in range(2):
        with pytest.warns(fp.FlameWarning, match="a callback failed: gradient.computed: KeyError"):
            _, metrics = pipeline.compute(fp.tensor(X), True)
    assert told == ["leaves", *["pipeline_size"] * 4] and metrics["total_grad_norm"] == pytest.approx(3**0.5)
    twice[0]()
    twice[0]()
    end()
    with pytest.warns(fp.FlameWarning):
        pipeline.compute(fp.tensor(X), True)
    assert len(told) == 6


def test_threads_share_a_pipeline():
    pipeline = fp.Pipeline(lambda x: (x * x).sum()).add("cut", cut).add("l1", reg.l1)
    found = []

    def work() -> None:
        for n in range(1, 6):
            _, metrics = pipeline.compute(fp.tensor(X * n), True)
            found.append((metrics["base_loss_grad_norm"] / n, metrics["cut_grad_norm"], metrics["l1_grad_norm"]))

    at_once(work)
    assert len(found) == 20 and {(round(a, 9), b, round(c, 9)) for a, b, c in found} == {(round(56**0.5, 9), None, round(3**0.5, 9))}


def test_a_pipeline_in_a_pipeline():
    inner = fp.Pipeline().add("l1", reg.l1, 2.0).add("cut", cut, 0.0)
    outer = fp.Pipeline(lambda x: inner.compute(x, True)[0]).add("l2", reg.l2)
    w = fp.Parameter(X)
    total, metrics = outer.compute(w, True)
    assert metrics["base_loss_grad_norm"] == pytest.approx(12**0.5)
    np.testing.assert_allclose(total.backward()[w].numpy(), 2 * np.sign(X) + 2 * X)


def test_a_captured_step_gives_the_eager_numbers(device):
    x, y = np.linspace(-1, 1, 12, dtype="f4").reshape(4, 3), np.ones((4, 2), "f4")

    def steps(wrap: Any) -> tuple[list[Any], list[Any], int]:
        w = fp.Parameter(np.full((2, 3), 0.5, "f4"))
        optimizer = fp.SGD([w], lr=0.1)
        scale = [1.0]
        pipeline = fp.Pipeline(lambda z, y: (z - y).square().mean()).add("l2", lambda z: reg.l2(z) * scale[0], 0.1).add("cut", cut)
        events = watched(pipeline)

        def step(x: Any, y: Any) -> Any:
            total, metrics = pipeline.compute(x @ w.T, True, {"y": y})
            optimizer.step(total.backward())
            return total, metrics

        run, found = wrap(step), []
        for n in range(7):
            if n == 4:
                pipeline.update_weight("l2", 0.5)
            if n == 6:
                scale[0] = 3.0
            total, metrics = run(fp.tensor(x), fp.tensor(y))
            found.append((total.item(), metrics))
        return found, w.tolist(), len(events)

    eager, captured = steps(lambda step: step), steps(fp.capture)
    assert eager[:2] == captured[:2] and eager[2] == 14


def test_the_example_of_the_readme():
    fp.manual_seed(1)
    x, w = fp.randn(128, 8), fp.Parameter.zeros((8, 1))
    y = x @ fp.randn(8, 1)
    pipeline = fp.Pipeline(lambda w: fp.mse_loss(x @ w, y))
    pipeline.add("l1", reg.l1, 0.01).add("l2", reg.l2, 0.001)
    tracker, optimizer = fp.GradientTracker(every=50), fp.SGD([w], lr=0.05)
    found, loss = [], None
    for step in range(120):
        if step == 75:
            pipeline.update_weight("l1", 1.0)  # should have been 0.1
        track = tracker.should_track(step, loss)
        total, metrics = pipeline.compute(w, track)
        loss = metrics["base_loss"]
        if track:
            found.append((step, pipeline.dominant(metrics)))
        optimizer.step(total.backward())
    assert found[0] == (0, "base_loss") and (100, "l1") in found
    assert 75 < min([step for step, who in found if who == "l1"]) < 80  # the spike of the loss, not the 100th step
