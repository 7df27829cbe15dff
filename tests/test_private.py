"""Differentially private gradients: each sample clipped, noise as large as it is said to be. Oracle: NumPy, a gradient for each sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

pytestmark = pytest.mark.usefixtures("device")
X, Y = np.sin(np.arange(15.0)).reshape(5, 3) * 2, np.cos(np.arange(5.0)).reshape(5, 1)


def net_of() -> nn.Linear:
    net = nn.Linear(3, 1, dtype="float64")
    net.load_state_dict({"weight": np.array([[0.5, -1.0, 2.0]]), "bias": np.array([0.1])})
    return net


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("limit", [0.5, 3.0, 100.0])
def test_without_noise_against_numpy(limit: float, pack: bool) -> None:
    net = net_of()
    if pack:
        net.params.pack()
    w, b = net.weight.numpy().copy(), net.bias.numpy().copy()
    total = np.zeros(4)
    for x, y in zip(X, Y, strict=True):
        g = 2 * (w[0] @ x + b - y)
        g = np.concatenate([g * x, g])
        total += g * min(1.0, limit / (np.linalg.norm(g) + 1e-6))
    for params in (net, net.params, net.parameters()):
        grads = fp.private_gradients(params, lambda x, y: F.mse_loss(net(x), y), X, fp.tensor(Y), max_norm=limit, noise_multiplier=0.0)
        np.testing.assert_allclose(np.concatenate([grads[net.weight].numpy()[0], grads[net.bias].numpy()]), total / 5, rtol=1e-9)
    halves = fp.private_gradients(net, lambda x, y: F.mse_loss(net(x), y), X, Y, max_norm=limit, noise_multiplier=0, batch_size=10)
    np.testing.assert_allclose(halves["bias"].numpy() * 2, grads["bias"].numpy(), rtol=1e-12)


def test_the_noise() -> None:
    """Of a sample whose gradient is 0, so that noise is all there is; of a batch without samples, too."""
    p = fp.Parameter(np.zeros((200, 50)))
    frozen, unused = fp.Parameter(np.zeros(3)), fp.Parameter(np.zeros(4000))
    frozen.requires_grad = False
    fp.manual_seed(0)
    loss = lambda x: (p * 0.0).sum() * x.sum()
    found = fp.private_gradients([p, frozen, unused], loss, np.ones((2, 1)), max_norm=3.0, noise_multiplier=0.5)
    assert set(found) == {p.id, unused.id}
    for q in (p, unused):
        assert abs(found[q].numpy().std() - 0.75) < 0.05 and abs(found[q].numpy().mean()) < 0.05
    fp.manual_seed(0)
    again = fp.private_gradients([p, frozen, unused], loss, np.ones((2, 1)), max_norm=3.0, noise_multiplier=0.5)
    assert again[p].numpy().tobytes() == found[p].numpy().tobytes()
    empty = fp.private_gradients([p], loss, np.ones((0, 1)), max_norm=3.0, noise_multiplier=0.5, batch_size=2)
    assert abs(empty[p].numpy().std() - 0.75) < 0.05


def test_captured_it_draws_anew() -> None:
    found = []
    for capture in (False, True):
        fp.manual_seed(1)
        net = net_of()
        optimizer = fp.SGD(net, lr=0.05)

        def step(x: Any, y: Any) -> Any:
            grads = fp.private_gradients(net, lambda a, b: F.mse_loss(net(a), b), x, y, max_norm=1.0, noise_multiplier=0.3)
            optimizer.step(grads)
            return grads["bias"]

        run = fp.capture(step) if capture else step
        found.append([run(fp.tensor(X), fp.tensor(Y)).numpy().tobytes() for _ in range(5)] + [net.weight.numpy().tobytes()])
    assert found[0] == found[1] and len(set(found[0])) == 6


def test_what_it_refuses() -> None:
    net = net_of()
    loss = lambda x, y: F.mse_loss(net(x), y)
    for error, call, word in (
        (ValueError, lambda: fp.private_gradients(net, loss, X, Y, max_norm=0.0), "max_norm"),
        (ValueError, lambda: fp.private_gradients(net, loss, X, Y, noise_multiplier=-1.0), "noise_multiplier"),
        (ValueError, lambda: fp.private_gradients(net, loss, X[:0], Y[:0]), "batch_size"),
        (fp.ShapeError, lambda: fp.private_gradients(net, loss, X, Y[:2]), "not as many samples"),
        (fp.DTypeError, lambda: fp.private_gradients(net, loss), "no batch"),
        (fp.GradientError, lambda: fp.private_gradients(net, lambda x, y: net(x).sum().item(), X, Y), "no loss of one sample"),
        (fp.GradientError, lambda: fp.private_gradients(net, lambda x, y: x, X, Y), "no loss of one sample"),
    ):  # fmt: skip
        with raises(error, "private_gradients", word):
            call()
    with pytest.raises(fp.NonFiniteError):
        fp.private_gradients(net, lambda x, y: F.mse_loss(net(x), y) / 0.0, X, Y).get("bias").numpy()  # type: ignore[union-attr]


def test_policy_losses_refuse() -> None:
    a, b = fp.ones(3), fp.ones(4)
    for error, call, word in (
        (fp.ShapeError, lambda: F.ppo_loss(a, a, b), "shapes differ"), (ValueError, lambda: F.ppo_loss(a, a, a, clip=1.0), "clip"),
        (fp.ShapeError, lambda: F.dpo_loss(a, a, a, b), "shapes differ"), (ValueError, lambda: F.dpo_loss(a, a, a, a, beta=0.0), "beta"),
        (ValueError, lambda: F.dpo_loss(a, a, a, a, label_smoothing=0.5), "label_smoothing"),
        (ValueError, lambda: F.ppo_value_loss(a, a, a, clip=0.0), "clip"), (ValueError, lambda: F.dpo_loss(a, a, a, a, reduction="x"), "x"),
    ):  # fmt: skip
        with raises(error, word):
            call()
