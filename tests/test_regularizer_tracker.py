"""GradientTracker: norms at a tensor, cut paths told from constant functions, sampling, and the report on parameters.

Oracles: gradients by hand with NumPy in float64; the definition of each way to leave the tape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import regularizer as reg
from flamepy.regularizer.paths import followed, gradient_of

X = np.array([1.0, -2.0, 3.0])
norm = fp.GradientTracker.compute_grad_norm


pytestmark = pytest.mark.usefixtures("plain")


# ---- the norm at a tensor ----------------------------------------------------------------------------------------------------------
def test_norms_by_hand():
    assert norm(lambda x: x.abs().sum(), fp.tensor(X)) == pytest.approx(3**0.5)
    assert norm(lambda x: (x**2).sum(), fp.tensor([1.0, 2.0, 3.0])) == pytest.approx(56**0.5)
    assert norm(lambda x: x.abs().sum(), fp.tensor([[1.0, -2.0], [-3.0, 4.0]])) == 2.0
    assert norm(lambda x: x[1] * 3, X) == 3.0  # an array; one element of it
    assert norm(lambda x: x.reshape(()), fp.tensor([2.0])) == 1.0 and norm(lambda x: x, fp.tensor(2.0)) == 1.0
    assert norm(reg.l2, fp.full((1 << 20,), 1e-4)) == pytest.approx(2e-4 * 1024, rel=1e-7)  # summed in float64


@pytest.mark.parametrize("tracker", [fp.GradientTracker, fp.GradientTracker(every=5)])
def test_norms_of_a_pipeline_by_hand(tracker):
    pipe = fp.Pipeline(lambda x: (3 * x).sum()).add("l1", lambda x: x.abs().sum(), 0.5).add("cut", lambda x: x.detach().sum())
    pipe.add("off", lambda x: x.sum())
    pipe.enable("off", False)
    found = tracker.pipeline_grad_norms(pipe, fp.tensor(X))
    by_hand = {"base_loss_grad_norm": 27**0.5, "l1_grad_norm": 3**0.5, "cut_grad_norm": None, "cut_grad_norm_error": True}
    assert found == {key: pytest.approx(value) for key, value in by_hand.items()}
    assert tracker.total_grad_norm(pipe, fp.tensor(X)) == pytest.approx(np.linalg.norm(3 + 0.5 * np.sign(X)))
    assert tracker.total_grad_norm(fp.Pipeline().add("cut", lambda x: x.detach().sum()), fp.tensor(X)) is None


@fp.custom
def opaque(x):
    """An op whose rule gives nothing."""
    return x.clone()


@opaque.backward
def opaque_dx(g):
    return None


def quietly(x: Any) -> Any:
    with fp.no_grad():
        return (x * 2).sum()


class Other:
    """What a function may use beside its input."""

    def __init__(self) -> None:
        self.w = fp.Parameter(np.ones(3))


CUT: dict[str, Callable[[Any, Any], Any]] = {
    "detach": lambda x, w: x.detach().sum(),
    "detach, with others": lambda x, w: (x.detach() * w).sum(),
    "detach later": lambda x, w: (w * (x * 2).detach()).sum(),
    "argmax": lambda x, w: x.argmax(),
    "argmax as an index": lambda x, w: w[x.argmax()],
    "a mask and nothing else": lambda x, w: (w * (x > 0)).sum(),
    "a mask of where": lambda x, w: fp.where(x > 0, w, 0.0).sum(),
    "cast": lambda x, w: x.to(fp.int64).sum(),
    "no_grad": lambda x, w: quietly(x),
    "numpy": lambda x, w: fp.tensor(np.abs(x.numpy())).sum(),
    "NumPy's number": lambda x, w: np.abs(np.asarray(x)).sum(),
    "item": lambda x, w: (w * x.sum().item()).sum(),
    "float": lambda x, w: float(x[0]),
    "tolist": lambda x, w: sum(x.tolist()),
    "a branch": lambda x, w: w.sum() if x[0] > 0 else w.sum() * 2,
    "DLPack": lambda x, w: np.from_dlpack(x.detach().to("cpu")).sum(),
    "an op whose rule gives nothing": lambda x, w: opaque(x).sum(),
    "a gradient that is not on the tape": lambda x, w: (w * 1.0 * x).sum().backward()[w].sum(),
    "another device and back": lambda x, w: x.detach().to("plain" if x.device == "cpu" else "cpu").sum(),
    "one element of a copy": lambda x, w: x.detach().clone()[1:].clone()[0] * w.sum(),
}
REACHED: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "a mask beside the tape": (lambda x, w: (x * (x > 0)).sum(), 2**0.5),
    "detached in part": (lambda x, w: (x * x.detach()).sum(), 14**0.5),
    "detached inside": (lambda x, w: fp.logsumexp(x), float(np.linalg.norm(np.exp(X) / np.exp(X).sum()))),
    "read as well": (lambda x, w: x.sum() / x.sum().item(), 3**0.5 / 2),
    "a zero gradient on the tape": (lambda x, w: x.sign().sum(), 0.0),
    "a checkpoint": (lambda x, w: fp.checkpoint(lambda z: (z * z).sum(), x), 56**0.5),
    "its own gradient": (lambda x, w: reg.gradient_penalty(x, lambda z: z * z, kind="r1"), float(np.linalg.norm(4 * X / 3))),
}
CONSTANT: dict[str, Callable[[Any, Any], Any]] = {
    "a number": lambda x, w: 3.0,
    "a tensor": lambda x, w: fp.tensor(2.0),
    "a parameter": lambda x, w: (w * w).sum(),
    "a parameter, detached": lambda x, w: w.detach().sum(),
    "a parameter, read": lambda x, w: float(w.numpy().sum()),
    "the shape": lambda x, w: w.sum() * x.shape[0] / x.size,
    "a result nobody uses": lambda x, w: (x.sum(), x.detach().argmax(), w.sum())[-1],
    "class ids nobody uses, which are checked": lambda x, w: (F.cross_entropy(w, x.argmax()), w.sum())[-1],
    "the gradient of something linear": lambda x, w: gradient_of((w * 2.0).sum(), w).sum(),
    "zeros like it": lambda x, w: fp.zeros_like(x).sum(),
}


def inputs() -> list[Any]:
    leaf = fp.tensor(X, requires_grad=True)
    packed = fp.ParameterDict({"a": fp.Parameter(np.ones(3)), "x": fp.Parameter(X)}).pack()
    return [fp.tensor(X), leaf, leaf * 1.0, packed["x"]]


def on_both(names: Any, *on_cpu: str) -> Any:
    """All these on the device without kernels; on the CPU, which plans and compiles, one of each kind."""
    return pytest.mark.parametrize(("name", "device"), [*[(n, "plain") for n in names], *[(n, "cpu") for n in on_cpu]], indirect=["device"])


@on_both(CUT, "detach later", "argmax", "a mask and nothing else", "cast", "numpy", "item", "DLPack", "another device and back")
def test_a_cut_path_is_a_failure(name, device):
    other = Other()
    for _ in range(2 if device == "plain" else 3):  # at first sight, while it is planned, as planned
        for x in inputs():
            with pytest.warns(fp.FlameWarning, match="the path from the result to the input was cut"):
                assert norm(lambda x: CUT[name](x, other.w), x) is None


@on_both([*REACHED, *CONSTANT], "a mask beside the tape", "detached in part", "a number", "a parameter, detached", "a result nobody uses")
def test_a_function_on_the_tape_or_without_its_input_has_a_norm(name, device):
    fn, wanted = REACHED.get(name) or (CONSTANT[name], 0.0)
    other = Other()
    for _ in range(2 if device == "plain" else 3):
        for x in inputs():
            assert norm(lambda x: fn(x, other.w), x) == pytest.approx(wanted, rel=1e-12)


@fp.custom
def ends(x):
    """One op with two scalars."""
    return x[0].clone(), x[2].clone()


@ends.backward
def ends_dx(gs):
    return fp.stack([fp.tensor(0.0, dtype=fp.float64) if g is None else g for g in (gs[0], None, gs[1])])


def test_results_of_one_op_are_told_apart():
    leaf = fp.tensor(X, requires_grad=True)
    first, last = ends(leaf)
    assert norm(lambda x: x, last) == 1.0 and norm(lambda x: first, last) == 0.0
    assert norm(lambda x: first * x, last) == 1.0 and norm(lambda x: first * last, last) == 1.0


def test_parts_of_one_memory_are_told_apart():
    params = fp.ParameterDict({"a": fp.Parameter(np.ones(3)), "x": fp.Parameter(X), "b": fp.Parameter(np.ones(3))}).pack()
    assert norm(lambda x: float(params["a"].sum() + params["b"].detach().sum()), params["x"]) == 0.0
    with pytest.warns(fp.FlameWarning, match="cut"):
        assert norm(lambda x: float(params["x"].sum()), params["x"]) is None


def test_whatever_a_function_does_wrong_is_none_and_a_warning():
    def raising(x: Any) -> Any:
        raise OSError("disk full")

    for fn, words in (
        (raising, "OSError: disk full"), (lambda x: x, "more than one number"), (lambda x: None, "NoneType"),
        (lambda x: F.binary_cross_entropy(x * 0 + 0.5, x.sigmoid()), "no derivative"),
    ):  # fmt: skip
        with pytest.warns(fp.FlameWarning, match=words):
            assert norm(fn, fp.tensor(X)) is None
    with pytest.warns(fp.FlameWarning, match="int64, and only floats"):
        assert norm(lambda x: x.sum(), fp.tensor([1, 2])) is None
    assert norm(lambda x: 1.0, fp.tensor([1, 2])) == 0.0
    with pytest.raises(KeyboardInterrupt):
        norm(interrupted, fp.tensor(X))
    assert fp.tensor(X).device.stream is fp.tensor(X).device.direct


def interrupted(x: Any) -> Any:
    raise KeyboardInterrupt


def test_the_tensor_and_its_tape_stay_as_they_are():
    w = fp.Parameter(X)
    calls: list[str] = []
    w.register_hook(lambda g: calls.append("w"))
    x = w * 2.0
    x.register_hook(lambda g: calls.append("x"))
    assert norm(lambda x: (x * x).sum(), x) == pytest.approx(4 * 14**0.5) and calls == []
    assert x.sum().backward()[w].tolist() == [2, 2, 2] and calls == ["x", "w"]
    untracked = fp.tensor(X)
    assert norm(reg.l2, untracked) == pytest.approx(56**0.5) and not untracked.requires_grad and untracked.entry is None
    with fp.no_grad():
        assert norm(reg.l2, w) == pytest.approx(56**0.5) and not fp.is_grad_enabled()


def test_a_long_tape_and_one_that_branches():
    def long(x: Any) -> Any:
        for _ in range(3000):
            x = x * 1.0
        return x.sum()

    def branches(x: Any) -> Any:
        a = x * 2.0
        return (a * a + a + x).sum()

    assert norm(long, fp.tensor(X)) == pytest.approx(3**0.5)
    assert norm(branches, fp.tensor(X)) == pytest.approx(np.linalg.norm(8 * X + 3))


def test_a_large_input_that_is_summed_at_once():
    """What sum() sends back stays one number for long; the input's stand-in has to answer as an op does."""
    for fn in (lambda x: x.sum(), lambda x: x.mean() * 5000.0, lambda x: x.sum() + (x * 0.0).sum()):
        assert norm(fn, fp.ones(5000)) == pytest.approx(5000**0.5)


def test_a_subscriber_is_told():
    tracker, events = fp.GradientTracker(), []
    end = tracker.subscribe(lambda event, details: events.append((event, details)))
    assert tracker.compute_grad_norm(reg.l1, fp.tensor(X)) == pytest.approx(3**0.5)
    with pytest.warns(fp.FlameWarning):
        tracker.compute_grad_norm(fp.argmax, fp.tensor(X))
    assert events[0] == ("gradient.computed", {"total_norm": pytest.approx(3**0.5), "pipeline_size": 1})
    assert events[1][0] == "gradient.failed" and set(events[1][1]) == {"duration", "reason"} and "argmax" in events[1][1]["reason"]
    end()
    tracker.compute_grad_norm(reg.l1, fp.tensor(X))
    assert len(events) == 2
    assert "L2 norm" in fp.GradientTracker.compute_grad_norm.__doc__


def test_what_is_followed_is_let_go_of():
    x = fp.tensor(X)
    with followed(x) as trail:
        y = x * 2
        assert trail.reaches(y.buffer) and not trail.read
        del y
        assert len(trail.parts) == 1
        x.numpy()
        assert trail.read


# ---- when to track -----------------------------------------------------------------------------------------------------------------
def test_each_so_many_steps():
    tracker = fp.GradientTracker(every=3)
    assert [tracker.should_track(step) for step in range(7)] == [True, False, False, True, False, False, True]
    assert all([fp.GradientTracker(every=1).should_track(step) for step in range(5)])
    assert tracker.should_track(np.int64(3)) is True and tracker.should_track(fp.tensor(4)) is False
    assert repr(tracker) == "GradientTracker(every=3, spike_ratio=2.0)"


def test_and_where_the_loss_spikes():
    tracker = fp.GradientTracker(every=1000, spike_ratio=2.0)
    losses = [1.0, 1.9, 3.8, 7.7, 1.0, math.nan, 1.5, math.inf, 3.1, -math.inf, -1.0, -0.5, 0.1, 0.0, 0.01]
    tracked = [tracker.should_track(step, loss) for step, loss in enumerate(losses, start=1)]
    # above twice the last finite loss; negative ones: by more than their size
    wanted = [False, False, False, True, False, True, False, True, True, True, False, False, True, False, True]
    assert tracked == wanted
    quiet = fp.GradientTracker(every=1000, spike_ratio=None)
    assert [quiet.should_track(1, loss) for loss in (1.0, 9.0, math.nan)] == [False, False, True]
    assert fp.GradientTracker(every=7).should_track(1, fp.tensor(1.0)) is False


def test_impossible_options_are_refused():
    for options, word in (({"every": 0}, "every"), ({"every": 2.5}, "every"), ({"spike_ratio": 1.0}, "spike_ratio")):
        with raises(ValueError, "GradientTracker", word):
            fp.GradientTracker(**options)


# ---- parameters ----------------------------------------------------------------------------------------------------------------------
def test_the_report_by_hand(device):
    a, b = fp.Parameter(np.array([1.0, 2.0], "f4")), fp.Parameter(np.array([[3.0]], "f4"))
    params = fp.ParameterDict({"a": a, "b": b})
    losses = {"data": (a * a).sum() * 2 + b.sum() * 3, "l1": reg.l1(a) * 4, "against": -(a * fp.tensor(np.array([1.0, 2.0], "f4"))).sum()}
    found = fp.GradientTracker.parameter_report(losses, params)
    ga = {"data": np.array([4.0, 8.0]), "l1": np.array([4.0, 4.0]), "against": np.array([-1.0, -2.0])}
    gb = {"data": np.array([3.0]), "l1": np.zeros(1), "against": np.zeros(1)}
    joint = {name: np.concatenate([ga[name], gb[name]]) for name in ga}
    for row, gradients in ((found["a"], ga), (found["b"], gb), (found.joint, joint)):
        norms = {name: np.linalg.norm(g) for name, g in gradients.items()}
        assert row.norms == pytest.approx(norms)
        assert row.shares == pytest.approx({name: n / sum(norms.values()) for name, n in norms.items()})
        assert row.total == pytest.approx(np.linalg.norm(sum(gradients.values())), rel=1e-6)
        for (one, two), cosine in row.cosines.items():
            if norms[one] and norms[two]:
                assert cosine == pytest.approx(gradients[one] @ gradients[two] / norms[one] / norms[two])
            else:
                assert cosine is None
    assert list(found) == ["a", "b"] and list(found["a"].cosines) == [("data", "l1"), ("data", "against"), ("l1", "against")]
    assert found["a"].cosines["data", "against"] == pytest.approx(-1) and found["b"].cosines["data", "l1"] is None
    assert found.dominant == "data" == found["b"].dominant
    text = str(found).splitlines()
    assert text[0].split() == ["data", "l1", "against", "norm"] and text[2].split() == ["b", "100.0%", "0.0%", "0.0%", "3"]
    assert "cos(data, against) = -0.9" in text[-1] and len(text) == 5
    # the tape is still there, also for the sum
    (losses["data"] + losses["l1"]).backward()


def test_a_term_that_fails_leaves_the_others(device):
    w = fp.Parameter(X)
    tracker, events = fp.GradientTracker(), []
    tracker.subscribe(lambda event, details: events.append((event, details)))
    found = tracker.parameter_report({"good": reg.l1(w), "cut": reg.l1(w.detach()), "number": 3.0}, w)
    row = found[w.label]
    assert row.norms == {"good": pytest.approx(3**0.5), "cut": None, "number": None}
    assert row.shares == {"good": 1.0, "cut": None, "number": None} and set(row.cosines.values()) == {None}
    assert [e for e, _ in events] == ["gradient.failed", "gradient.failed", "gradient.computed"]
    assert "'cut'" in events[0][1]["reason"] and "detach" in events[0][1]["reason"] and events[2][1]["pipeline_size"] == 3
    assert "failed" in str(found) and found.joint.total == pytest.approx(3**0.5)
    nothing = tracker.parameter_report({"cut": reg.l1(w.detach())}, [w])
    assert nothing.dominant is None and [e for e, _ in events[3:]] == ["gradient.failed"]


def test_reports_on_lists_modules_and_names_used_twice():
    w, v, unused = fp.Parameter(X), fp.Parameter(X), fp.Parameter(X)
    for p in (w, v):
        p.name = "w"
    found = fp.GradientTracker.parameter_report({"a": reg.l1(w) + reg.l2(v)}, [w, v, unused, w])
    assert len(found) == 3 and [row.total for row in found.values()] == pytest.approx([3**0.5, 56**0.5, 0.0])
    layer = fp.nn.Linear(3, 2)
    assert list(fp.GradientTracker.parameter_report({"a": reg.l1(layer(fp.ones(1, 3)))}, layer)) == ["weight", "bias"]
    bad = fp.GradientTracker.parameter_report({"a": reg.l1(w) * math.nan, "b": reg.l1(w)}, w)
    assert math.isnan(bad["w"].norms["a"]) and bad["w"].norms["b"] == pytest.approx(3**0.5) and math.isnan(bad["w"].total)
    with raises(TypeError, "parameter_report", "Tensor"):
        fp.GradientTracker.parameter_report({"a": reg.l1(w)}, [fp.tensor(X)])
    for losses, params in (({}, [w]), ({"a": reg.l1(w)}, [])):
        with raises(ValueError, "nothing to report on"):
            fp.GradientTracker.parameter_report(losses, params)
