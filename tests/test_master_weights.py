"""Layers in bfloat16 over float32 weights: the products round the weights themselves, so nothing holds a rounded copy.

Oracles: PyTorch in float64 on the rounded operands, with the bounds of the roundings; a layer whose parameters hold rounded numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises
from test_bfloat_layers import ACTIVATIONS, EPS, SIZES, SUMS, draw, wide

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.backend.cpu import device as cpu
from flamepy.nn.compute import linear_in

torch = pytest.importorskip("torch")

F4, BF16 = np.dtype("float32"), fp.bfloat16


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return draw(*shape, seed=seed, dtype=F4)


def layer_of(n_in: int, n_out: int, packed: bool = False) -> nn.Linear:
    layer = nn.Linear(n_in, n_out)
    layer.compute_dtype = BF16
    if packed:
        layer.params.pack()
    return layer


def twin_of(layer: nn.Linear) -> tuple[Any, Any]:
    """PyTorch's leaves in float64: the weight as products read it, and the bias, which is added as it is."""
    rounded = wide(fp.tensor(layer.weight.numpy()).to(BF16))
    return torch.tensor(rounded, requires_grad=True), torch.tensor(wide(layer.bias), requires_grad=True)


# ---- values and gradients --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("activation", "extra"), [("", 0), ("relu", 1), ("gelu_tanh", 2), ("silu", 3), ("tanh", 1), ("", 3)])
def test_a_layer_is_the_exact_one_of_rounded_operands(size: tuple[int, ...], activation: str, extra: int, device: str) -> None:
    """extra: 1 a bias; 2 that and a residual; 3 a residual of float32, and then the result is float32."""
    rows, n, k = size
    x, w = draw(rows, k), numbers(n, k, seed=1) / np.float32(np.sqrt(max(1, k)))
    bias = numbers(n, seed=2) if extra in (1, 2) else None
    residual = draw(rows, n, seed=3, dtype=F4 if extra == 3 else x.dtype) if extra > 1 else None
    ours = [None if a is None else fp.tensor(a).requires_grad_() for a in (x, w, bias, residual)]
    read = x, w.astype(x.dtype), bias, residual
    theirs = [None if a is None else torch.tensor(a.astype(np.float64), requires_grad=True) for a in read]
    y = linear_in(BF16, *ours, activation)
    assert y.dtype == (fp.float32 if extra == 3 else BF16)
    z = theirs[0] @ theirs[1].T + (0 if bias is None else theirs[2])
    exact = ACTIVATIONS[activation](z) + (0 if residual is None else theirs[3])
    x64, w64 = (np.abs(t.detach().numpy()) for t in theirs[:2])
    sums = x64 @ w64.T + (0 if bias is None else np.abs(bias))
    rounding = 0 if extra == 3 else EPS * np.abs(exact.detach().numpy())
    assert (np.abs(wide(y) - exact.detach().numpy()) <= rounding + SUMS * sums + 1e-6).all()

    g = numbers(rows, n, seed=4)
    grads = y.backward(gradient=fp.tensor(g))
    exact.backward(torch.tensor(g.astype(np.float64)))
    slack = 2.0 * EPS * np.abs(g)  # of dz: its own rounding, and that of what the derivative reads
    bounds = [slack @ w64, slack.T @ x64, slack.sum(0), slack * 0]
    for mine, other, bound in zip(ours, theirs, bounds, strict=True):
        if mine is not None:
            assert grads[mine].dtype == fp.float32
            assert (np.abs(wide(grads[mine]) - other.grad.numpy()) <= bound + 1e-5).all()


@pytest.mark.parametrize("packed", [False, True])
def test_a_layer_has_the_bits_of_one_whose_weight_holds_rounded_numbers(packed: bool, device: str) -> None:
    """As it is, recorded, and as recorded; where its gradient has a place of its own too."""
    layer, plain = layer_of(40, 33, packed), layer_of(40, 33)
    plain.load_state_dict({"weight": layer.weight.to(BF16).to(fp.float32).numpy(), "bias": layer.bias.numpy()})
    x, g = fp.tensor(numbers(50, 40)).requires_grad_(), fp.tensor(numbers(50, 33, seed=1))
    for _ in range(3):
        found = []
        for model in (layer, plain):
            y = model(x)
            grads = y.backward(gradient=g)
            found.append([t.numpy().tobytes() for t in (y, grads[x], grads[model.weight], grads[model.bias])])
        assert found[0] == found[1] and y.dtype == BF16


@pytest.mark.parametrize("activation", ["", "tanh"])
def test_second_derivatives_read_the_rounded_weight(activation: str) -> None:
    x, layer = fp.tensor(draw(5, 6)).requires_grad_(), layer_of(6, 4)
    w, b = twin_of(layer)
    p = torch.tensor(wide(x), requires_grad=True)
    y = linear_in(BF16, x, layer.weight, layer.bias, fp.zeros(5, 4), activation)  # float32, so that only operands are rounded
    z = torch.tanh(p @ w.T + b) if activation else p @ w.T + b
    dx = (y * y * y).sum().backward(create_graph=True)[x]
    (tx,) = torch.autograd.grad((z * z * z).sum(), [p], create_graph=True)
    grads, theirs = (dx * dx).sum().backward(), torch.autograd.grad((tx * tx).sum(), [p, w, b])
    for mine, other in zip((x, layer.weight, layer.bias), theirs, strict=True):
        assert np.abs(wide(grads[mine]) - other.numpy()).max() <= 4 * EPS * np.abs(other.numpy()).max()


def test_any_number_of_workers_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, b = numbers(300, 200), numbers(260, 200, seed=1), numbers(260, seed=2)
    g, found = fp.tensor(numbers(300, 260, seed=3)), []
    for workers in (1, 2, 3, 4):
        monkeypatch.setattr(cpu, "threads", lambda workers=workers: workers)
        ours = [fp.tensor(t).requires_grad_() for t in (x, w, b)]
        y = linear_in(BF16, *ours, None, "silu")
        grads = y.backward(gradient=g)
        found.append([y.numpy().tobytes(), *[grads[t].numpy().tobytes() for t in ours]])
    assert all(f == found[0] for f in found[1:])


# ---- what is held, and what a backward may rely on -----------------------------------------------------------------------------------
@pytest.mark.usefixtures("device")
def test_no_copy_of_a_weight_is_held() -> None:
    """A large weight beside few rows: the tape has no cast, and holds the parameters' own memory."""
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 64))
    model.compute_dtype = BF16
    x = fp.tensor(draw(2, 64)).requires_grad_()
    y = model(x)
    assert [e.op.title for e in fp.tape(y)] == ["linear", "linear"]
    own, held = {id(p.buffer) for p in model.parameters()}, 0
    for entry in fp.tape(y):
        held += sum([v.size * v.dtype.itemsize for v in entry.values if v is not None and id(v) not in own])
    assert held == 2 * 2 * (64 + 512 + 512)  # x, what gelu got, what it gave


def test_a_weight_written_before_backward_is_noticed(device: str) -> None:
    layer, x = layer_of(5, 4), fp.tensor(numbers(3, 5)).requires_grad_()
    y = layer(x)
    layer.weight.set_data(numbers(4, 5, seed=1))
    with raises(fp.VersionError, "a saved value was overwritten: 'weight'", "set_data"):
        y.backward(gradient=numbers(3, 4))


@pytest.mark.usefixtures("device")
def test_frozen_weights_cost_nothing() -> None:
    layer, x = layer_of(6, 5), fp.tensor(numbers(4, 6)).requires_grad_()
    w, _ = twin_of(layer)
    g = numbers(4, 5, seed=1)
    layer.weight.requires_grad = False
    y = layer(x)
    (entry,) = [e for e in fp.tape(y) if e.op.title == "linear"]
    assert "x" not in entry.saved and id(entry.saved["weight"]) == id(layer.weight.buffer)
    grads = y.backward(gradient=g)
    assert layer.weight not in grads
    bound = EPS * np.abs(g).astype(np.float64) @ np.abs(w.detach().numpy()) + 1e-6
    assert (np.abs(wide(grads[x]) - g.astype(np.float64) @ w.detach().numpy()) <= bound).all()
    np.testing.assert_allclose(layer(x.detach()).backward(gradient=g)[layer.bias].numpy(), g.sum(0), 1e-6)  # nothing reads g rounded


@pytest.mark.usefixtures("device")
def test_a_weight_used_twice_gets_both_gradients() -> None:
    for packed in (False, True):
        layer = layer_of(8, 8, packed)
        w, b = twin_of(layer)
        x, g = draw(6, 8), numbers(6, 8, seed=1)
        for _ in range(3):
            h = layer(fp.tensor(x))
            grads = layer(h).backward(gradient=g)
            p = torch.tensor(x.astype(np.float64)) @ w.T + b
            want = torch.autograd.grad(p @ w.T + b, [w, b], torch.tensor(g.astype(np.float64)))
            size, p64, x64 = np.abs(g).astype(np.float64), np.abs(p.detach().numpy()), np.abs(x.astype(np.float64))
            down = size @ np.abs(w.detach().numpy())
            bounds = 2 * EPS * (size.T @ p64 + 2 * down.T @ x64), 2 * EPS * (size + down).sum(0)
            for mine, other, bound in zip((layer.weight, layer.bias), want, bounds, strict=True):
                assert (np.abs(wide(grads[mine]) - other.numpy()) <= bound + 1e-5).all()


@pytest.mark.usefixtures("device")
def test_a_checkpointed_block_and_inference_have_the_same_bits() -> None:
    model = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12))
    model.compute_dtype = BF16
    x, g, found = fp.tensor(numbers(7, 12)).requires_grad_(), numbers(7, 12, seed=1), []
    for run in (model, lambda x: fp.checkpoint(model, x)):
        y = run(x)
        grads = y.backward(gradient=g)
        found.append([t.numpy().tobytes() for t in (y, *[grads[p] for p in (x, *model.parameters())])])
    with fp.no_grad():
        assert found[0] == found[1] and model(x).numpy().tobytes() == found[0][0]


def test_weights_of_averages_and_of_files_are_what_is_read() -> None:
    """In eager calls and in a recorded one."""
    layer, x = layer_of(9, 7), fp.tensor(draw(5, 9))
    layer.params.pack()
    ema = fp.EMA(layer.params, 0.5)
    forward = fp.capture(layer)

    def right() -> None:
        w, b = twin_of(layer)
        exact = wide(x) @ w.detach().numpy().T + b.detach().numpy()
        for call in (layer, forward):
            assert (np.abs(wide(call(x)) - exact) <= EPS * np.abs(exact) + 1e-5).all()

    for seed in range(4):
        layer.load_state_dict({"weight": numbers(7, 9, seed=seed), "bias": numbers(7, seed=seed)})
        right()
        ema.update()
        with ema.applied():
            right()
    assert forward.program is not None


# ---- what stays as it was --------------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("device")
def test_products_of_users_round_nothing() -> None:
    """A bfloat16 x beside a float32 weight, outside of a layer with a compute dtype: float32."""
    x, w = fp.tensor(draw(5, 6)), fp.Parameter(numbers(4, 6))
    for y in (F.linear(x, w), x @ w.T):
        assert y.dtype == fp.float32
        np.testing.assert_allclose(wide(y), wide(x) @ wide(w).T, 1e-5, 1e-6)
    layer = layer_of(6, 6)
    s = fp.tensor(numbers(5, 6, seed=1))
    np.testing.assert_array_equal((s + layer(s)).numpy(), s.numpy() + layer(s).to(fp.float32).numpy())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_parameters_of_another_type(dtype: str) -> None:
    layer = nn.Linear(6, 4, dtype=dtype)
    layer.compute_dtype = BF16
    y = layer(fp.tensor(draw(5, 6)))
    grads = y.backward(gradient=numbers(5, 4, seed=1))
    assert y.dtype == BF16 and str(grads[layer.weight].dtype) == ("float64" if dtype == "float64" else "float32")
    x16, w = draw(5, 6).astype(np.float64), wide(fp.tensor(layer.weight.numpy()).to(BF16))
    bias = wide(fp.tensor(layer.bias.numpy()).to(BF16))
    assert (np.abs(wide(y) - x16 @ w.T - bias) <= EPS * (np.abs(x16) @ np.abs(w).T + np.abs(bias))).all()
