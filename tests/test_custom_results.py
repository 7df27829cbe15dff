"""What a user's code hands back to the engine: rules and forwards of custom ops, hooks, gradient=. Checked where it comes in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn


def op_with(rule: Any, graph: bool = False) -> Any:
    @fp.custom
    def tripled(x):
        return x.detach() * 3.0

    @tripled.backward
    def tripled_dx(g, x):
        return rule(g) if not graph else g * 3.0

    if graph:

        @tripled.graph
        def tripled_ddx(g, x):
            return rule(g)

    else:
        tripled.differentiable()
    return tripled


WAYS = ["eager", "captured", "create_graph", "graph rule"]


def gradient(rule: Any, way: str, x: Any = None) -> Any:
    op = op_with(rule, way == "graph rule")
    x = fp.ones(3, 2) if x is None else x
    p = fp.Parameter(x)

    def step() -> Any:
        return op(p).sum().backward(create_graph=way in ("create_graph", "graph rule"))[p]

    if way != "captured":
        return step()
    captured = fp.capture(step)
    for _ in range(3):
        found = captured()
    return found


@pytest.mark.parametrize("way", WAYS)
def test_wrong_results_of_a_rule_are_told(way):
    for rule, kind, words in (
        (lambda g: g.sum(), fp.ShapeError, ("tripled: the gradient for x has another shape: (), the input (3, 2)",)),
        (lambda g: g.mT, fp.ShapeError, ("(2, 3)", "(3, 2)")),
        (lambda g: g[:1], fp.ShapeError, ("(1, 2)", "(3, 2)")),
        (lambda g: fp.ones(4, 3, 2), fp.ShapeError, ("(4, 3, 2)", "(3, 2)")),  # nothing was broadcast to it
        (lambda g: g.to("plain"), fp.DeviceError, ("tripled: the gradient for x is on another device: plain", "cpu")),
        (lambda g: "no", TypeError, ("tripled: the gradient for x is no Tensor: str",)),
        (lambda g: [g], TypeError, ("no Tensor: list",)),
        (lambda g: True, TypeError, ("no Tensor: bool",)),
        (lambda g: np.True_, TypeError, ("no Tensor: bool",)),
        (lambda g: (g, g), ValueError, ("tripled: its backward rule returned too many or too few: 2 for 1 inputs",)),
    ):
        with raises(kind, *words):
            gradient(rule, way)


@pytest.mark.parametrize("way", WAYS)
def test_other_types_and_arrays_become_the_inputs_type(way):
    wanted = [[3.0, 3.0]] * 3
    for rule in (
        lambda g: (g * 3.0).to(fp.float64),
        lambda g: (g * 3.0).to(fp.bfloat16),
        lambda g: (g * 3.0).to(fp.int64),
        lambda g: np.full((3, 2), 3.0),
    ):
        found = gradient(rule, way)
        assert found.dtype == fp.float32 and found.tolist() == wanted
    assert gradient(lambda g: 3.0, way, fp.tensor(1.0)).item() == 3.0
    half = gradient(lambda g: g * 3.0, way, fp.ones(3, 2).to(fp.bfloat16))
    assert half.dtype == fp.float32 and half.tolist() == wanted


def test_a_shape_that_the_input_was_broadcast_to_is_summed():
    @fp.custom(inputs=2)
    def added(x, w):
        return x.detach() + w.detach()

    @added.backward
    def added_dx(g, x, w):
        return g, g

    x, w = fp.Parameter(fp.ones(4, 3)), fp.Parameter(fp.ones(3))
    grads = added(x, w).sum().backward()
    assert grads[x].tolist() == [[1.0] * 3] * 4 and grads[w].tolist() == [4.0] * 3


@pytest.mark.parametrize("result", [3.0, None, [1.0], (), np.ones(2), (fp.ones(2), 1.0), "text"])
def test_a_forward_that_gives_no_tensor_is_told(result):
    @fp.custom
    def wrong(x):
        return result

    for x in (fp.ones(2), fp.ones(2, requires_grad=True)):
        with raises(TypeError, "wrong: its forward gave no Tensor: "):
            wrong(x)


def test_hooks_and_given_gradients_stay_on_the_device():
    x = fp.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    with raises(fp.DeviceError, "another device than the tensor: plain, expected cpu"):
        y.backward(gradient=fp.ones(2, device="plain"))
    y.register_hook(lambda g: g.to("plain"))
    with raises(fp.DeviceError, "another device than the tensor: plain, expected cpu"):
        y.sum().backward()


@pytest.mark.parametrize("first", [nn.Linear(3, 4), nn.LayerNorm(3), nn.RMSNorm(3)])
@pytest.mark.parametrize("packed", [False, True])
def test_norms_of_a_pipeline_whose_first_op_takes_an_untracked_input(first, packed):
    fp.manual_seed(0)
    model = nn.Sequential(first, nn.Tanh())
    if packed:
        model.params.pack()
    x = fp.randn(5, 3)
    pipeline = fp.Pipeline(lambda x: model(x).square().mean())
    _, metrics = pipeline.compute(x, track_grad_norms=True)
    tracked = x.detach().requires_grad_(True)
    wanted = model(tracked).square().mean().backward()[tracked].numpy()
    assert metrics["base_loss_grad_norm"] == pytest.approx(float(np.linalg.norm(wanted)), rel=1e-5)
    assert F.mse_loss(model(x), model(x)).item() == 0.0


def test_what_is_printed_says_what_it_is():
    assert [repr(x) for x in (fp.no_grad(), fp.enable_grad(), fp.AutogradEngine())] == [
        "no_grad()",
        "enable_grad()",
        "AutogradEngine(0 entries)",
    ]


@pytest.mark.parametrize("name", ["wanted", "shapes", "y", "x", "p"])
def test_an_extra_is_not_named_as_a_rule_names_something_else(name):
    """It stood for that in silence."""

    @fp.custom(inputs=1)
    def squared(x, p=2):
        return x * x, {name: x}

    with pytest.raises(ValueError, match=f"squared: an extra is named as a rule names something else: '{name}'"):
        squared(fp.ones(2, requires_grad=True))
