"""What is no number, no map, no group: a typed error in a user's words, and nothing changed; never what Numba or Python says inside.

Oracle: the form of every text, `<op>: <what is wrong>: <values>. <what to do>`, and the builtin a caller would catch.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import flamepy as fp
from flamepy.nn import functional as F

FORM = re.compile(r"^[^:]+: .+: .*\. .+", re.S)
NO_NUMBERS = {"text": "x", "complex": 1j, "list": [1, 2], "array": np.ones(2), "tensor": fp.ones(2), "object": object(), "dict": {"a": 1}}


def made() -> tuple[fp.ParameterDict, fp.GradientMap]:
    params = fp.ParameterDict({"a": fp.Parameter(np.array([1.0, 2.0])), "b": fp.Parameter(np.array([3.0]))})
    return params, (params["a"].square().sum() + params["b"].sum()).backward()


NUMBERS = {
    "clip_grad_norm": lambda p, g, x: fp.clip_grad_norm(g, x),
    "clip_grad_norm, norm_type": lambda p, g, x: fp.clip_grad_norm(g, 0.1, x),
    "clip_grad_value": lambda p, g, x: fp.clip_grad_value(g, x),
    "grad_norm": lambda p, g, x: fp.grad_norm(g, x),
    "clip_grad_per_layer": lambda p, g, x: fp.clip_grad_per_layer(g, x),
    "clip_grad_agc": lambda p, g, x: fp.clip_grad_agc(g, p, clip=x),
    "add_gradient_noise, variance": lambda p, g, x: fp.add_gradient_noise(g, x, 1),
    "add_gradient_noise, step": lambda p, g, x: fp.add_gradient_noise(g, 0.1, x),
    "record": lambda p, g, x: fp.GradientNormTracker(3).record(x),
    "scale_": lambda p, g, x: g.scale_(x),
    "scale_grad": lambda p, g, x: g.scale_grad("a", x),
    "every": lambda p, g, x: fp.GradientTracker(every=x),
    "spike_ratio": lambda p, g, x: fp.GradientTracker(spike_ratio=x),
    "should_track, step": lambda p, g, x: fp.GradientTracker().should_track(x),
    "should_track, loss": lambda p, g, x: fp.GradientTracker().should_track(1, x),
    "lr": lambda p, g, x: fp.AdamW(p, lr=x),
    "weight_decay": lambda p, g, x: fp.AdamW(p, weight_decay=x),
    "lr of a group": lambda p, g, x: fp.AdamW(p, groups={"a": {"lr": x}}),
}
OTHERS = {
    "merge": lambda p, g, x: g.merge(x),
    "to_dict": lambda p, g, x: g.to_dict(x),
    "set_grads": lambda p, g, x: p.set_grads(x),
    "backward": lambda p, g, x: fp.AutogradEngine().backward(x),
    "parameter_report": lambda p, g, x: fp.GradientTracker.parameter_report(x, p),
    "total_grad_norm": lambda p, g, x: fp.GradientTracker.total_grad_norm(x, fp.ones(2)),
    "pipeline_grad_norms": lambda p, g, x: fp.GradientTracker.pipeline_grad_norms(x, fp.ones(2)),
    "parameters": lambda p, g, x: fp.AdamW(x),
    "groups": lambda p, g, x: fp.AdamW(p, groups=x),
    "a group": lambda p, g, x: fp.AdamW(p, groups={"a": x}),
    "a glob": lambda p, g, x: fp.AdamW(p, groups={x: {}}),
}


def check(use, what, kinds) -> None:
    params, grads = made()
    before = {name: g.tolist() for name, g in grads.named_items()}
    with pytest.raises(kinds) as caught:
        use(params, grads, what)
    assert FORM.match(str(caught.value)), caught.value
    assert {name: g.tolist() for name, g in grads.named_items()} == before
    assert [p.grad for p in params.parameters()] == [None, None] and params["a"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("kind", NO_NUMBERS)
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number(name, kind):
    check(NUMBERS[name], NO_NUMBERS[kind], (TypeError, ValueError))


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("what", [3.5, 1, object()], ids=["float", "int", "object"])
def test_what_is_something_else(name, what):
    check(OTHERS[name], what, TypeError)


@pytest.mark.parametrize("every", [float("inf"), float("nan"), None])
def test_every_is_a_number_of_steps(every):
    with pytest.raises(ValueError, match="every must be a whole number"):
        fp.GradientTracker(every=every)


def test_a_map_that_does_not_fit_sets_no_gradient():
    params, grads = made()
    grads.insert(params["b"].id, np.ones(3))
    with pytest.raises(fp.ShapeError, match="for b"):
        params.set_grads(grads)
    assert params["a"].grad is None


AXES = {
    "sum": fp.sum, "softmax": fp.softmax, "argmax": fp.argmax, "squeeze": fp.squeeze, "unsqueeze": fp.unsqueeze, "flatten": fp.flatten,
    "gather": lambda x, a: fp.gather(x, a, [[1]]), "index_select": lambda x, a: fp.index_select(x, a, [1]),
    "split": lambda x, a: fp.split(x, 1, a), "narrow": lambda x, a: fp.narrow(x, a, 0, 1), "cat": lambda x, a: fp.cat([x, x], a),
    "transpose": lambda x, a: fp.transpose(x, a, 0), "permute": lambda x, a: fp.permute(x, a, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", AXES)
@pytest.mark.parametrize("axis", [np.array([0, 1]), fp.tensor([[0, 1]]), 1.5, "a"], ids=["array", "tensor", "float", "text"])
def test_an_axis_is_a_number(name, axis):
    """Also where the axis comes before the ids, as in PyTorch, and NumPy's order of arguments puts the ids in its place."""
    with pytest.raises(TypeError, match=f"^{name}: axis must be an int: .*\\. Pass"):
        AXES[name](fp.ones(2, 3), axis)


def test_orders_of_axes_may_be_arrays():
    x = fp.ones(2, 3, 4)
    for order in ((2, 0, 1), [2, 0, 1], np.array([2, 0, 1]), (np.int64(2), np.array(0), fp.tensor(1))):
        assert x.permute(order).shape == (4, 2, 3)
    assert x.transpose(np.array(0), np.int64(2)).shape == (4, 3, 2)
    with pytest.raises(TypeError, match=r"^permute: axis must be an int: 1\.5\. Pass"):
        x.permute(1.5)


def test_a_loss_with_no_number_for_beta_is_refused() -> None:
    for beta in (float("nan"), -1.0):
        with pytest.raises(ValueError, match=r"smooth_l1_loss: beta (must not be negative|is no number): (nan|-1)"):
            fp.smooth_l1_loss(fp.ones(1), fp.zeros(1), beta=beta)


X = fp.tensor([[1.0, 2.0, 3.0]], device="plain")
LAYER = fp.nn.Linear(1, 1)
CALLS = {  # of one argument that is wrong in each of them, whatever it is
    "randn, std": lambda w: fp.randn(2, std=w), "arange": lambda w: fp.arange(0, w), "linspace": lambda w: fp.linspace(0, 1, w),
    "eye": fp.eye, "randn_like": fp.randn_like, "zeros_like": fp.zeros_like, "full": lambda w: fp.full((2,), w, device="plain"),
    "reshape": X.reshape, "expand": X.expand, "narrow, start": lambda w: X.narrow(1, w, 1), "narrow, length": lambda w: X.narrow(1, 0, w),
    "pad": lambda w: fp.pad(X, w), "split": lambda w: X.split(w, 1), "chunk": lambda w: X.chunk(w, 1), "tril": lambda w: fp.tril(X, w),
    "a slice": lambda w: X[w:], "cast": lambda w: fp.cast(X, w), "elu, alpha": lambda w: fp.elu(X, alpha=w),
    "dropout": lambda w: fp.dropout(X, w), "var": lambda w: fp.var(X, correction=w), "softplus": lambda w: fp.softplus(X, beta=w),
    "cross_entropy": lambda w: fp.cross_entropy(X, [0], label_smoothing=w), "huber_loss": lambda w: fp.huber_loss(X, X, delta=w),
    "layer_norm": lambda w: fp.nn.functional.layer_norm(X, eps=w), "conv2d": lambda w: fp.nn.Conv2d(1, 1, w),
    "Linear": lambda w: fp.nn.Linear(w, 2), "Sequential": lambda w: fp.nn.Sequential()[w], "lora": lambda w: fp.nn.lora(w, "*", 2),
    "init": fp.nn.init.xavier_normal, "orthogonal": lambda w: fp.nn.init.orthogonal(fp.Parameter(X), w), "freeze": LAYER.freeze,
    "schedule": fp.schedules.cosine(0.1, 10), "ParameterDict": fp.ParameterDict, "set_rng_state": fp.set_rng_state,
    "load_state_dict": LAYER.load_state_dict, "capture": fp.capture, "checkpoint": fp.checkpoint,
    "gradcheck": lambda w: fp.gradcheck(w, ()), "tape": fp.tape, "quantile": fp.GradientNormTracker(3).quantile,
    "elastic_net": lambda w: fp.regularizer.elastic_net(X, w), "ClipHistory": fp.transforms.ClipHistory, "clone": fp.clone,
    "custom, kind": lambda w: fp.custom(lambda x: x, kind=w), "custom, inputs": lambda w: fp.custom(lambda x: x, name="no", inputs=w),
}  # fmt: skip


@pytest.mark.parametrize("wrong", [object(), 1j], ids=["object", "complex"])
@pytest.mark.parametrize("name", CALLS)
def test_what_suits_no_argument(name, wrong):
    """Nothing of what Python, NumPy or Numba say inside reaches the caller, and no random number is drawn."""
    before = fp.get_rng_state()
    with pytest.raises((TypeError, ValueError, IndexError, fp.FlameError)) as caught:
        CALLS[name](wrong)
    assert FORM.match(str(caught.value)), caught.value
    assert fp.get_rng_state() == before


def test_a_size_that_is_a_tensor_makes_no_tensor_of_that_size() -> None:
    for given in (X, True, 1.0):
        for start, length in ((given, 1), (0, given)):
            with pytest.raises(TypeError, match=r"^narrow: (start|length) is no whole number: "):
                X.narrow(1, start, length)


def test_an_attribute_that_is_a_tensor_is_refused() -> None:
    """It would be read once, and no gradient would reach it."""
    with pytest.raises(TypeError, match=r"^elu: alpha is no number: "):
        fp.elu(X, alpha=fp.tensor(2.0, requires_grad=True))


def test_random_numbers_like_integers_say_which_tensor_to_pass() -> None:
    with pytest.raises(TypeError, match=r"randn_like: not a tensor of floats: int64\. Pass one, such as x\.to\(flamepy\.float32\)"):
        fp.randn_like(fp.tensor([1, 2]))


@pytest.mark.parametrize("name", ["grad_norm", "clip_grad_norm", "an iterator", "SGD", "ByName", "GradScaler"])
def test_a_warning_points_to_the_line_that_led_to_it(name) -> None:
    params, _ = made()
    sgd, parts = fp.SGD(params, lr=0.1), fp.ByName(params, {"*": (fp.SGD, {"lr": 0.1})})
    calls = {
        "grad_norm": lambda: fp.grad_norm(params), "clip_grad_norm": lambda: fp.clip_grad_norm(params, 1.0),
        "an iterator": lambda: fp.clip_grad_norm(iter([]), 1.0), "SGD": sgd.step, "ByName": parts.step,
        "GradScaler": lambda: fp.GradScaler(mode="off").step(sgd, fp.GradientMap()),
    }  # fmt: skip
    with pytest.warns(fp.FlameWarning) as caught:
        calls[name]()
    assert [w.filename for w in caught] == [__file__]


HUGE = 2**70
X4 = fp.ones(1, 2, 4, 4, device="plain")
OUT_OF_REACH = {
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(X4, HUGE), "adaptive_max_pool2d": lambda: F.adaptive_avg_pool2d(X4, (2, 2**62)),
    "interpolate": lambda: F.interpolate(X4, HUGE), "interpolate, inf": lambda: F.interpolate(X4, scale_factor=1e30),
    "conv2d, padding": lambda: F.conv2d(X4, fp.ones(1, 2, 1, 1, device="plain"), padding=HUGE),
    "max_pool2d, stride": lambda: F.max_pool2d(X4, 2, HUGE), "fold": lambda: F.fold(fp.ones(1, 8, 4, device="plain"), 2**62, 2),
    "GRU": lambda: fp.nn.GRU(2, 2, HUGE), "Linear": lambda: fp.nn.Linear(2, HUGE),
}  # fmt: skip


@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_a_size_that_no_memory_holds_is_refused_at_once(name):
    with pytest.raises(fp.ShapeError, match="out of reach") as caught:
        OUT_OF_REACH[name]()
    assert FORM.match(str(caught.value))


NAN = float("nan")
NO_SUCH_NUMBER = {
    "eps is no number: nan": lambda: F.layer_norm(X4, (4,), eps=NAN),
    "BatchNorm1d: eps is no number": lambda: fp.nn.BatchNorm1d(2, eps=NAN), "momentum": lambda: fp.nn.BatchNorm2d(2, momentum=NAN),
    "RMSNorm: eps": lambda: fp.nn.RMSNorm(2, eps=NAN), "margin": lambda: F.margin_ranking_loss(X4, X4, X4, margin=NAN),
    "logit: eps": lambda: fp.logit(X4, eps=NAN),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_SUCH_NUMBER)
def test_nan_is_no_eps_and_no_momentum(name):
    with pytest.raises(ValueError, match=name):
        NO_SUCH_NUMBER[name]()


def test_an_axis_is_no_truth():
    with pytest.raises(TypeError, match="sum: axis must be an int: True"):
        X4.sum(True)  # meant for keepdims
