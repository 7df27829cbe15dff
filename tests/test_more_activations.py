"""Layers of activations beside PyTorch's: the same names, arguments, results and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import default_device
from error_text import raises

import flamepy as fp
from flamepy import nn

torch = pytest.importorskip("torch", reason="PyTorch is the judge here and is not installed")
PLAIN = """ReLU6 Mish Hardswish Hardsigmoid SELU Softsign LogSigmoid Tanhshrink LeakyReLU ELU CELU Softplus Hardtanh Softshrink Hardshrink
    GLU PReLU"""
LAYERS: list[tuple[str, tuple[Any, ...]]] = [
    *[(name, ()) for name in PLAIN.split()],
    ("LeakyReLU", (0.3,)), ("ELU", (0.5,)), ("CELU", (2.0,)), ("Softplus", (2.0, 5.0)), ("Hardtanh", (-0.5, 2.0)), ("Softshrink", (1.0,)),
    ("Hardshrink", (1.0,)), ("Threshold", (0.1, -3.0)), ("Softmax", (1,)), ("LogSoftmax", (-1,)), ("Softmin", (0,)), ("GLU", (1,)),
    ("PReLU", (6, 0.4)),
]  # fmt: skip
X = np.random.default_rng(0).standard_normal((4, 6, 2)).astype("f4") * 3


@pytest.mark.parametrize(("name", "args"), LAYERS)
def test_a_layer_is_pytorchs(name: str, args: tuple[Any, ...]) -> None:
    theirs = getattr(torch.nn, name)(*args)
    with default_device("plain"):
        ours, x, t = getattr(nn, name)(*args), fp.tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
        y, want = ours(x), theirs(t)
        np.testing.assert_allclose(y.numpy(), want.detach().numpy(), 1e-5, 1e-6)
        g = np.random.default_rng(1).standard_normal(y.shape).astype("f4")
        want.backward(torch.tensor(g))
        grads = y.backward(fp.tensor(g))
        np.testing.assert_allclose(grads[x].numpy(), t.grad.numpy(), 1e-5, 1e-5)
        if name == "PReLU":
            np.testing.assert_allclose(grads[ours.weight].numpy(), theirs.weight.grad.numpy(), 1e-5, 1e-5)
            assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_what_layers_refuse() -> None:
    with raises(ValueError, "ReLU6: nothing is changed in place", "inplace=True"):
        nn.ReLU6(inplace=True)
    with raises(fp.ShapeError, "prelu: weights do not fit: (5,)"):
        nn.PReLU(5, device="plain")(fp.tensor(X, device="plain"))
    model = nn.Sequential(nn.Linear(6, 4, device="plain"), nn.Mish(), nn.LeakyReLU(0.2))
    assert model(fp.ones(2, 6, device="plain")).shape == (2, 4)
