"""Saved values of 16 bits that backward makes again, and cotangents of bfloat16 between layers that round them anyway.

Oracles: PyTorch in float64 on the same numbers, within what the roundings allow; and the same backward done in another way (eager,
replayed, twice, checkpointed, broken off), to the bit.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.engine.remade import LEAST, Remade

torch = pytest.importorskip("torch")

ROWS, WIDTH = 640, 64
EPS = 2.0**-8


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def network(dtype: Any = fp.bfloat16, packed: bool = False, norm: Any = nn.LayerNorm) -> Any:
    """A norm and an MLP; its norm has a weight and a bias that are no ones and zeros."""
    fp.manual_seed(0)
    model = nn.Sequential(norm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU("tanh"), nn.Linear(4 * WIDTH, WIDTH))
    model[0].weight.set_data(1 + 0.3 * draw(WIDTH, seed=1))
    if norm is nn.LayerNorm:
        model[0].bias.set_data(0.3 * draw(WIDTH, seed=2))
    if packed:
        model.params.pack()
    model.compute_dtype = dtype
    return model


def gradients(model: Any, x: Any, y: Any, **options: Any) -> list[np.ndarray]:
    grads = y.backward(gradient=draw(*y.shape, seed=3), **options)
    found = [grads[t] for t in (x, *model.parameters())]
    assert all(g.dtype == fp.float32 for g in found)
    return [g.numpy().copy() for g in found]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(p.tobytes() == q.tobytes() for p, q in zip(a, b, strict=True))


def remade_of(y: Any) -> list[str]:
    """Which values the entries behind y let go of."""
    return [
        f"{e.op.title} {name}" for e in fp.tape(y) for (name, _), v in zip(e.call.saved, e.values, strict=True) if isinstance(v, Remade)
    ]


def torch_gradients(model: Any, x: np.ndarray, half: bool) -> list[np.ndarray]:
    """Those of PyTorch's network with our numbers: in float64, or under autocast."""
    dtype, T = torch.float32 if half else torch.float64, torch.nn.functional
    p, *ts = (torch.tensor(t.astype(np.float64), dtype=dtype, requires_grad=True) for t in (x, *[t.numpy() for t in model.parameters()]))
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        *norm, w, b, w2, b2 = ts
        h = T.layer_norm(p, (WIDTH,), *norm, 1e-5) if len(norm) == 2 else T.rms_norm(p, (WIDTH,), *norm, 1e-5)
        h = T.linear(T.gelu(T.linear(h, w, b), approximate="tanh"), w2, b2)
    h.backward(torch.tensor(draw(ROWS, WIDTH, seed=3)).to(h.dtype))
    return [t.grad.double().numpy() for t in (p, *ts)]


def error(found: np.ndarray, exact: np.ndarray) -> Any:
    return np.sqrt(np.square(found - exact).mean() / np.square(exact).mean())


@pytest.mark.parametrize(("packed", "norm"), [(False, nn.LayerNorm), (True, nn.LayerNorm), (False, nn.RMSNorm), (True, nn.RMSNorm)])
def test_gradients_are_as_good_as_those_of_autocast(packed: bool, norm: Any) -> None:
    """As it is, recorded, and as recorded: the same bits each time. float16's products are exact but for their operands."""
    for dtype in (fp.bfloat16, fp.float16):
        model, x = network(dtype, packed, norm), fp.tensor(draw(ROWS, WIDTH)).requires_grad_()
        found = [gradients(model, x, model(x)) for _ in range(3)]
        assert same(found[0], found[1]) and same(found[0], found[2])
        exact, cast = (torch_gradients(model, x.numpy(), half) for half in (False, True))
        for mine, theirs, e in zip(found[0], cast, exact, strict=True):
            assert error(mine, e) <= (1.02 if dtype == fp.bfloat16 else 0.12) * error(theirs, e)


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_what_is_let_go_of_is_neither_kept_nor_small_nor_of_32_bits(norm: Any) -> None:
    model, x = network(norm=norm), fp.tensor(draw(ROWS, WIDTH)).requires_grad_()
    assert remade_of(model(x)) == ["linear x", "linear x"]  # of the norm, of the activation
    few = LEAST // (2 * 4 * WIDTH)  # rows: their hidden layer is just large enough
    assert remade_of(model(fp.tensor(draw(few, WIDTH)))) == ["linear x"] and not remade_of(model(fp.tensor(draw(few - 1, WIDTH))))
    assert not remade_of(network(None, norm=norm)(x))
    one, device = 2 * ROWS * WIDTH, fp.device("cpu")
    for _ in range(3):
        gc.collect()
        before = device.memory()["current"]
        y = model(x)
        held = device.memory()["current"] - before
        del y
    # The result, the normalised rows, what the activation read: 1 + 1 + 4; and two numbers for each row's statistics.
    assert 6 * one <= held <= 6.3 * one


def test_other_ways_through_backward_give_the_same_bits() -> None:
    model, x = network(), fp.tensor(draw(ROWS, WIDTH)).requires_grad_()
    plain = gradients(model, x, model(x))
    y = model(x)
    assert same(gradients(model, x, y, retain_graph=True), plain) and same(gradients(model, x, y), plain)
    assert same(gradients(model, x, fp.checkpoint(model, x)), plain)
    inner = model[1:]
    assert same(gradients(model, x, fp.checkpoint(inner, model[0](x))), plain)  # the norm stands outside

    y, calls = model(x), []

    def hook(g: Any) -> None:
        calls.append(g)
        if len(calls) == 1:
            raise RuntimeError("broken off")

    x.register_hook(hook)
    with pytest.raises(RuntimeError, match="broken off"):
        y.backward(gradient=draw(*y.shape, seed=3))
    assert same(gradients(model, x, y), plain)


def test_a_replay_has_the_bits_of_an_eager_step_and_less_memory() -> None:
    results, bytes_of = [], {}
    for dtype, capture in ((fp.bfloat16, False), (fp.bfloat16, True), (None, True)):
        fp.manual_seed(0)
        block = nn.TransformerBlock(WIDTH, 2, causal=True)
        block.params.pack()
        block.compute_dtype = dtype
        optimizer = fp.AdamW(block, lr=1e-2)

        def step(x: Any, block: Any = block, optimizer: Any = optimizer) -> Any:
            loss = F.mse_loss(block(x), x * 0.5)
            optimizer.step(loss.backward())
            return loss

        call = fp.capture(step) if capture else step
        losses = [call(fp.tensor(draw(8, 80, WIDTH, seed=n))).item() for n in range(4)]
        results.append([losses, [p.numpy().tobytes() for p in block.parameters()]])
        if capture:
            bytes_of[dtype] = call.program.bytes  # type: ignore[attr-defined]
    assert results[0] == results[1]
    assert bytes_of[fp.bfloat16] <= 0.52 * bytes_of[None]


def test_what_a_replay_made_is_kept() -> None:
    """It has no tape from which it could come again."""
    model, layer = network(), nn.Linear(4 * WIDTH, WIDTH)
    layer.compute_dtype = fp.bfloat16
    call = fp.capture(model[:3])
    call(fp.tensor(draw(ROWS, WIDTH)))  # as it is
    for _ in range(2):
        h = call(fp.tensor(draw(ROWS, WIDTH)))
        assert h.requires_grad and h.dtype == fp.bfloat16 and not remade_of(layer(h))
        with pytest.raises(fp.CaptureError, match="through the result of a captured step"):
            layer(h).sum().backward()


def test_sums_of_cotangents_are_float32_and_whoever_looks_sees_float32() -> None:
    """A result that two layers read, one with a hook, one whose gradient is kept: what would be bfloat16 elsewhere."""
    first, last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
    first.compute_dtype = last.compute_dtype = fp.bfloat16
    x, g = fp.tensor(draw(ROWS, WIDTH)), draw(ROWS, WIDTH, seed=3)
    w16 = np.asarray(last.weight.to(fp.bfloat16).numpy(), np.float64)
    wanted = g.astype(fp.bfloat16).astype(np.float64) @ w16
    for look in ("hook", "retain"):
        h, seen = first(x), []
        if look == "hook":
            h.register_hook(lambda t, seen=seen: seen.append(t))
        else:
            h.retain_grad()
        grads = last(h).backward(gradient=g)
        (found,) = seen or [grads[h]]
        assert found.dtype == fp.float32
        np.testing.assert_allclose(found.numpy(), wanted, 1e-5, 1e-5)
    h = first(x)
    twice = (last(h).to(fp.float32) + last(h).to(fp.float32)).backward(gradient=g)
    x16 = np.asarray(x.to(fp.bfloat16).numpy(), np.float64)
    exact = (2 * wanted).T @ x16
    bound = EPS * np.abs(2 * wanted).T @ np.abs(x16)  # one rounding of the sum, one of a part
    assert (np.abs(twice[first.weight].numpy() - exact) <= 1.5 * bound).all()


def test_gradients_of_gradients_go_through_a_norm_that_rounds() -> None:
    root = nn.RMSNorm(6)
    root.compute_dtype = fp.bfloat16
    x, p = fp.tensor(draw(5, 6)).requires_grad_(), torch.tensor(draw(5, 6).astype(np.float64), requires_grad=True)
    (dp,) = torch.autograd.grad((torch.nn.functional.rms_norm(p, (6,), None, 1e-5) ** 3).sum(), [p], create_graph=True)
    twice, (exact,) = (root(x).to(fp.float32) ** 3).sum().backward(create_graph=True)[x], torch.autograd.grad((dp * dp).sum(), [p])
    twice = (twice * twice).sum().backward()[x].numpy()
    assert np.abs(twice - exact.numpy()).max() <= 8 * EPS * np.abs(exact.numpy()).max()  # of cubes
    model = nn.LayerNorm(6)
    model.compute_dtype = fp.bfloat16
    x, p = fp.tensor(draw(5, 6) + 2).requires_grad_(), torch.tensor(draw(5, 6).astype(np.float64) + 2, requires_grad=True)
    weight = fp.tensor(draw(5, 6, seed=4))
    for residual in (False, True):
        s, y = model.residual(x, x * 0.5 if residual else None)
        z = p * 1.5 if residual else p
        t = torch.nn.functional.layer_norm(z, (6,), None, None, 1e-5)
        dx = (y.to(fp.float32) * weight + s * s).sum().backward(create_graph=True)[x]
        (dp,) = torch.autograd.grad((t * torch.tensor(weight.numpy().astype(np.float64)) + z * z).sum(), [p], create_graph=True)
        twice, (exact,) = (dx * dx).sum().backward()[x].numpy(), torch.autograd.grad((dp * dp).sum(), [p])
        assert np.abs(twice - exact.numpy()).max() <= 4 * EPS * np.abs(exact.numpy()).max()


@pytest.mark.usefixtures("device")
def test_what_comes_again_is_what_was_there_but_for_a_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """On every device; each gradient beside that of a network which kept its activations."""
    found = []
    for least in (0, 1 << 30):
        monkeypatch.setattr("flamepy.engine.remade.LEAST", least)
        model, rows = network(), 30 + (least > 0)  # other shapes: what is let go of is decided once for each
        x = fp.tensor(draw(31, WIDTH)[:rows]).requires_grad_()
        for _ in range(3):
            y = model(x)
            assert len(remade_of(y)) == (0 if least else 2)
            grads = y.backward(gradient=np.concatenate([draw(30, WIDTH, seed=3), np.zeros((rows - 30, WIDTH), np.float32)]))
        found.append([grads[t].numpy()[: 30 if t is x else None] for t in (x, *model.parameters())])
    for mine, kept in zip(*found, strict=True):
        assert error(mine, kept) <= EPS
    assert not same(*found)
