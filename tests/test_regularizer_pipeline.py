"""Pipeline: what compute() returns with and without norms, for every kind of input, and what a failing term does to the others.

Oracles: gradients written by hand with NumPy in float64; the same pipeline without tracking.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
from flamepy import regularizer as reg
from flamepy.bus import heard

X = np.array([1.0, -2.0, 3.0])


pytestmark = pytest.mark.usefixtures("plain")


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

    pipeline = fp.Pipeline().add("noise", lambda x: (fp.rand(3) * rounded(x)).sum()).add("l1", reg.l1)
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
    assert not heard and fp.tensor(X).device.stream is fp.tensor(X).device.direct  # nobody follows any more
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
