"""A Pipeline in use: its terms, extra arguments, callbacks, threads, captured steps, and the example of docs/gradients.md.

Oracles: the eager step, counts and sums by hand.
"""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from error_text import raises
from thread_tools import at_once

import flamepy as fp
from flamepy import nn
from flamepy import regularizer as reg

pytestmark = pytest.mark.usefixtures("plain")
X = np.array([1.0, -2.0, 3.0])


def cut(x: Any) -> Any:
    return x.argmax()


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
    for weight in ("0.5", None, [1.0]):
        with raises(TypeError, "the weight is no number", "'l2'"):
            pipeline.add("l2", reg.l2, weight)
    for terms, known in ((pipeline, "none"), (fp.Pipeline().add("kl", reg.kl), "axis, direction, of, target")):
        with raises(TypeError, "compute: no function takes this of extra_args: 'taget'", f"Known: {known}"):
            terms.compute(fp.tensor(X), False, {"taget": fp.tensor(X)})
    with raises(TypeError, "compute: extra_args is no dict"):
        pipeline.compute(fp.tensor(X), False, [("a", 1)])
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
    pipeline.add("module", Model()).add("rest", lambda *xs, scale: xs[0].sum() * scale).add("twice", lambda x, /, scale: scale)
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
        events: list[Any] = []
        pipeline.subscribe(lambda event, details: events.append(event))

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


def test_a_pipeline_made_in_a_captured_step():
    def step(x: Any) -> Any:
        return fp.Pipeline(lambda z: (z * z).sum()).add("l1", reg.l1, 0.5).compute(x)[0]

    run = fp.capture(step)
    assert [run(fp.tensor(X * n)).item() for n in range(5)] == [14 * n * n + 3 * n for n in range(5)]
    assert run.program is not None


def test_a_pipeline_is_pickled_and_copied():
    pipeline = fp.Pipeline(reg.l2).add("l1", reg.l1, 2.0).add("kl", partial(reg.kl, of="probs"))
    pipeline.enable("kl", False)
    for other in (pickle.loads(pickle.dumps(pipeline)), copy.deepcopy(pipeline)):
        assert repr(other) == repr(pipeline) and other.compute(fp.tensor(X))[0].item() == 26.0
        other.update_weight("l1", 1.0)
    assert "2 * l1" in repr(pipeline)


def test_a_term_that_writes_into_the_input_fails_alone():
    w = fp.Parameter(X)

    def writes(x: Any) -> Any:
        y = (x * x).sum()
        x.set_data(np.ones(3))
        return y

    _, metrics = fp.Pipeline().add("writes", writes).add("l1", reg.l1).compute(w, True)
    assert metrics["writes_grad_norm"] is None and metrics["total_grad_norm"] is None  # backward() would refuse it as well
    assert metrics["l1"] == 3.0 and metrics["l1_grad_norm"] == pytest.approx(3**0.5)


def test_terms_that_share_a_tape_or_have_lost_it():
    w = fp.Parameter(X)
    hidden = w * 2.0
    shared = (hidden * hidden).sum()
    pipeline = fp.Pipeline().add("shared", lambda x: shared).add("also", lambda x: x.sum() + shared)
    total, metrics = pipeline.compute(hidden, True)
    assert metrics["shared_grad_norm"] == pytest.approx(np.linalg.norm(4 * X))
    assert metrics["also_grad_norm"] == pytest.approx(np.linalg.norm(4 * X + 1))
    np.testing.assert_allclose(total.backward()[w].numpy(), 16 * X + 2)
    _, metrics = pipeline.compute(hidden, True)  # its saved values are gone
    assert metrics["shared_grad_norm_error"] and metrics["also_grad_norm"] is None


def test_checkpoints_hooks_and_retained_gradients_in_a_term():
    w = fp.Parameter(X.astype("f4"))

    def term(x: Any) -> Any:
        y = (x * w).retain_grad() if x.requires_grad else x * w
        return fp.checkpoint(lambda z: (fp.nn.functional.dropout(z, 0.5) * z).sum(), y)

    pipeline, found = fp.Pipeline().add("block", term).add("l2", reg.l2), []
    for track in (False, True):
        fp.manual_seed(1)
        total, _ = pipeline.compute(w * 2.0, track)
        found.append((total.item(), total.backward()[w].tolist()))
    assert found[0] == found[1]


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
