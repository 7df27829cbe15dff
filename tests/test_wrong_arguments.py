"""What is no number, no map, no group: a typed error in a user's words, and nothing changed; never what Numba or Python says inside.

Oracle: the form of every text, `<op>: <what is wrong>: <values>. <what to do>`, and the builtin a caller would catch.
Read next: test_clip.py, test_optimizer_checks.py.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

import flamepy as fp

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
        with pytest.raises(ValueError, match=r"smooth_l1_loss: beta must not be negative: (nan|-1)"):
            fp.smooth_l1_loss(fp.ones(1), fp.zeros(1), beta=beta)
