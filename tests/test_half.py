"""16-bit floats on the tape: half the memory of float32, gradients as PyTorch's, and everything that holds for float32.

Oracles: the same model in float32 for memory, PyTorch in float64 for gradients, at the rounded inputs, where PyTorch's own 16-bit
autograd says how far off one may be.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

pytestmark = pytest.mark.usefixtures("device")
HALVES = ["float16", "bfloat16"]
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def leaves(dtype: str, *shapes: tuple[int, ...]) -> list[fp.Tensor]:
    return [fp.tensor(draw(*s, seed=i)).to(dtype).requires_grad_() for i, s in enumerate(shapes)]


def perceptron(dtype: str) -> nn.Module:
    first, then = nn.Linear(16, 64, dtype=dtype), nn.Linear(64, 64, dtype=dtype)
    return nn.Sequential(first, nn.GELU(), then, nn.ReLU(), nn.LayerNorm(64, dtype=dtype), nn.Linear(64, 40, dtype=dtype))


# ---- memory ----------------------------------------------------------------------------------------------------------------------
def ten_tanh(dtype: str) -> Callable:
    def run(x: Any) -> Any:
        for _ in range(10):
            x = fp.tanh(x)
        return x

    return run


IDS = np.arange(256) % 40
MODELS = {
    "ten tanh": (ten_tanh, (100_000,), lambda y: y),
    "perceptron": (perceptron, (256, 16), lambda y: F.cross_entropy(y, IDS)),
    "transformer": (lambda dtype: nn.TransformerBlock(16, 2, causal=True, dtype=dtype), (2, 32, 16), lambda y: y),
    "convolution": (lambda dtype: nn.Conv2d(3, 4, 3, dtype=dtype), (4, 3, 16, 16), lambda y: fp.softmax(y) * F.silu(y)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_16_bit_model_holds_half_of_what_float32_does(name: str, device: str) -> None:
    make, shape, loss = MODELS[name]
    held = {}
    gc.collect()
    for dtype in ("float32", "bfloat16"):
        model, x = make(dtype), leaves(dtype, shape)[0]
        for _ in range(3):  # as it is, recorded, as recorded
            before = fp.device(device).memory()["current"]
            y = loss(model(x))
            held[dtype] = fp.device(device).memory()["current"] - before
            del y
    assert 0 < held["bfloat16"] <= 0.54 * held["float32"]


def test_what_the_tape_saves_is_what_the_user_sees() -> None:
    x, w = leaves("bfloat16", (8, 4), (6, 4))
    y = fp.tanh(F.linear(x, w, None, None, "silu"))
    found = {entry.op.title: entry.saved for entry in fp.tape(y)}
    assert [*found] == ["linear", "tanh"] and found["tanh"]["y"] is y.buffer
    assert found["linear"]["x"] is x.buffer and found["linear"]["weight"] is w.buffer
    assert all(v is None or v.dtype == fp.bfloat16 for saved in found.values() for v in saved.values())


def test_statistics_of_rows_stay_wide() -> None:
    x = leaves("bfloat16", (8, 64))[0]
    (entry,) = fp.tape(F.layer_norm(x))
    assert entry.saved["x"] is x.buffer and entry.saved["rstd"].dtype == fp.float32


# ---- gradients -------------------------------------------------------------------------------------------------------------------
TARGETS = np.arange(6) % 4
CASES: dict[str, tuple[list[tuple[int, ...]], Callable, Callable]] = {
    "tanh": ([(6, 4)], fp.tanh, lambda t, x: t.tanh(x)),
    "sigmoid": ([(6, 4)], fp.sigmoid, lambda t, x: t.sigmoid(x)),
    "exp": ([(6, 4)], fp.exp, lambda t, x: t.exp(x)),
    "gelu": ([(6, 4)], F.gelu, lambda t, x: t.nn.functional.gelu(x)),
    "mul, broadcast": ([(6, 4), (4,)], lambda x, y: x * y, lambda t, x, y: x * y),
    "div by a number": ([(6, 4)], lambda x: 0.1 / (x * x + 0.3), lambda t, x: 0.1 / (x * x + 0.3)),
    "softmax": ([(6, 4)], fp.softmax, lambda t, x: t.softmax(x, -1)),
    "log_softmax": ([(6, 4)], fp.log_softmax, lambda t, x: t.log_softmax(x, -1)),
    "var": ([(6, 4)], lambda x: fp.var(x, axis=-1), lambda t, x: t.var(x, -1, correction=0)),
    "layer_norm": (
        [(6, 4), (4,), (4,)],
        lambda *x: F.layer_norm(x[0], 4, *x[1:]),
        lambda t, x, *w: t.nn.functional.layer_norm(x, (4,), *w),
    ),
    "rms_norm": ([(6, 4), (4,)], lambda x, w: F.rms_norm(x, 4, w), lambda t, x, w: t.nn.functional.rms_norm(x, (4,), w, 1e-5)),
    "matmul": ([(6, 4), (4, 3)], lambda x, y: x @ y, lambda t, x, y: x @ y),
    "linear, silu": ([(6, 4), (3, 4)], lambda *x: F.linear(*x, activation="silu"), lambda t, *x: t.nn.functional.silu(x[0] @ x[1].T)),
    "linear, tanh": ([(6, 4), (3, 4)], lambda *x: F.linear(*x, activation="tanh"), lambda t, *x: t.tanh(x[0] @ x[1].T)),
    "attention": (
        [(1, 2, 5, 4)] * 3,
        lambda *x: F.scaled_dot_product_attention(*x, is_causal=True),
        lambda t, *x: t.nn.functional.scaled_dot_product_attention(*x, is_causal=True),
    ),
    "conv2d": ([(2, 3, 6, 5), (4, 3, 3, 3), (4,)], F.conv2d, lambda t, *x: t.nn.functional.conv2d(*x)),
    "max_pool2d": ([(2, 3, 6, 4)], lambda x: F.max_pool2d(x, 2), lambda t, x: t.nn.functional.max_pool2d(x, 2)),
    "embedding": ([(4, 3)], lambda w: F.embedding(TARGETS, w), lambda t, w: t.nn.functional.embedding(t.tensor(TARGETS), w)),
    "cross_entropy": (
        [(6, 4)],
        lambda x: F.cross_entropy(x, TARGETS, label_smoothing=0.1),
        lambda t, x: t.nn.functional.cross_entropy(x, t.tensor(TARGETS), label_smoothing=0.1),
    ),
    "cross_entropy of rows": (
        [(6, 4)],
        lambda x: F.cross_entropy(x, TARGETS, reduction="none"),
        lambda t, x: t.nn.functional.cross_entropy(x, t.tensor(TARGETS), reduction="none"),
    ),
    "mse_loss": ([(6, 4), (6, 4)], F.mse_loss, lambda t, *x: t.nn.functional.mse_loss(*x)),
}


def torch_gradients(name: str, arrays: list[np.ndarray], dtype: str, g: np.ndarray) -> list[np.ndarray]:
    torch = pytest.importorskip("torch")
    xs = [torch.tensor(a).to(getattr(torch, dtype)).requires_grad_() for a in arrays]
    y = CASES[name][2](torch, *xs)
    return [dx.double().numpy() for dx in torch.autograd.grad(y, xs, torch.tensor(g).to(y.dtype))]


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_within_the_roundings_of_16_bits(name: str, dtype: str) -> None:
    """As it is, recorded, and as recorded: the same bits; and no further off than twice PyTorch in the same type, or two places."""
    shapes, call, _ = CASES[name]
    xs = leaves(dtype, *shapes)
    wide = [x.detach().to("float64").numpy() for x in xs]
    results = []
    for _ in range(3):
        y = call(*xs)
        g = fp.tensor(draw(*y.shape, seed=9)).to(dtype).to("float64").numpy()
        grads = y.backward(gradient=g)
        results.append([grads[x].numpy() for x in xs])
    assert all(a.tobytes() == b.tobytes() for again in results[1:] for a, b in zip(results[0], again, strict=True))
    assert str(y.dtype) == ("float32" if name.startswith("cross_entropy") else dtype) and all(dx.dtype == np.float32 for dx in results[0])
    exact, theirs = (torch_gradients(name, wide, t, g) for t in ("float64", dtype))
    for dx, e, other in zip(results[0], exact, theirs, strict=True):
        assert np.abs(dx - e).max() <= 2 * max(np.abs(other - e).max(), EPS[dtype] * np.abs(e).max())


@pytest.mark.parametrize("dtype", HALVES)
def test_small_gradients_of_many_rows_are_not_lost(dtype: str) -> None:
    """1 / 4096 of a small probability is nothing in float16."""
    torch = pytest.importorskip("torch")
    x = (fp.tensor(draw(4096, 5)) * 3.0).to(dtype).detach().requires_grad_()
    ids = np.arange(4096) % 5
    wide = torch.tensor(x.detach().to("float64").numpy()).requires_grad_()
    torch.nn.functional.cross_entropy(wide, torch.tensor(ids)).backward()
    np.testing.assert_allclose(F.cross_entropy(x, ids).backward()[x].numpy(), wide.grad.numpy(), 1e-4, 1e-9)


def test_gradients_of_gradients() -> None:
    torch = pytest.importorskip("torch")
    x, w = leaves("bfloat16", (6, 4), (3, 4))
    a, b = (torch.tensor(t.detach().to("float64").numpy()).requires_grad_() for t in (x, w))
    ours = F.linear(x, w, None, None, "tanh").to("float32").sum().backward(create_graph=True)
    found = (ours[x] * ours[x]).sum().backward()
    theirs = torch.autograd.grad((a @ b.T).tanh().sum(), [a], create_graph=True)[0]
    for mine, exact in zip((x, w), torch.autograd.grad((theirs * theirs).sum(), [a, b]), strict=True):
        np.testing.assert_allclose(found[mine].numpy(), exact.numpy(), 0.05, 0.05)


# ---- what holds for float32 ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("packed", [False, True])
def test_checkpoint_retain_graph_and_capture_give_the_same_bits(packed: bool) -> None:
    fp.manual_seed(3)
    model, x = perceptron("bfloat16"), leaves("bfloat16", (256, 16))[0].detach()
    if packed:
        model.params.pack()

    def bits(loss: Any, **options: Any) -> list[bytes]:
        grads = loss.backward(**options)
        return [loss.numpy().tobytes(), *[grads[p].numpy().tobytes() for p in model.parameters()]]

    loss = F.cross_entropy(model(x), IDS)
    wanted = bits(loss, retain_graph=True)
    assert bits(loss) == wanted
    assert bits(F.cross_entropy(fp.checkpoint(model, x), IDS)) == wanted

    def step(x: Any) -> Any:
        loss = F.cross_entropy(model(x), IDS)
        grads = loss.backward()
        return loss, *[grads[p] for p in model.parameters()]

    replay = fp.capture(step)
    assert all([[t.numpy().tobytes() for t in replay(x)] == wanted for _ in range(4)])


def test_a_users_op_sees_float32_and_saves_16_bits() -> None:
    seen = []

    @fp.custom
    def cube(x):
        return x * x * x, {"square": x * x}

    @cube.backward
    def cube_dx(g, x, y, square, source):
        seen.append({x.dtype, y.dtype, square.dtype, g.dtype, source})
        return g * 3.0 * square

    x = fp.tensor([1.5, -2.0], dtype=fp.float16, requires_grad=True)
    y = cube(x)
    saved = fp.tape(y)[0].saved
    assert y.tolist() == [3.375, -8.0] and saved["x"] is x.buffer and saved["y"] is y.buffer
    assert y.backward(gradient=[1.0, 1.0])[x].tolist() == [6.75, 12.0] and seen == [{fp.float32}]


def test_numbers_beside_16_bits_keep_theirs() -> None:
    """0.1 in bfloat16 is 0.10009765625."""
    x = fp.tensor([256.0], dtype=fp.bfloat16, requires_grad=True)
    for _ in range(3):
        assert (x * 0.1).backward()[x].item() == np.float32(0.1)
        assert (x * 1e30 * 1e-30).item() == 256.0 and (0.1 * x).item() == (x * 0.1).item() == 25.625


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_contractions_round_once(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for terms, *shapes in (("bi,bi->b", (9, 64), (9, 64)), ("ij,jk,kl->il", (3, 64), (64, 50), (50, 4)), ("ij,kj->k", (30, 64), (4, 64))):
        xs = [fp.tensor(rng.normal(size=s).astype("f4"), device="plain").to(dtype) for s in shapes]
        want = np.einsum(terms, *[x.to("float64").numpy() for x in xs]).astype("f4")
        assert fp.einsum(terms, *xs).tolist() == fp.tensor(want, device="plain").to(dtype).tolist()
        if len(xs) == 3:
            assert fp.multi_dot(xs).tolist() == fp.tensor(want, device="plain").to(dtype).tolist()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposed_convolutions_round_once(dtype: str, axes: int) -> None:
    """Their bias too, which cancels most of the sum; in an autocast block the result is of its type."""
    rng, run = np.random.default_rng(0), getattr(F, f"conv_transpose{axes}d")
    xs = [fp.tensor(rng.normal(size=s).astype("f4"), device="plain").to(dtype) for s in ((2, 8, *[4] * axes), (8, 4, *[3] * axes))]
    b = (-run(*[x.to("float64") for x in xs], stride=2).numpy()[0, :, 1].reshape(4, -1)[:, 0]).astype("f4")
    xs.append(fp.tensor(b, device="plain").to(dtype))
    want = run(*[x.to("float32") for x in xs], stride=2)
    assert run(*xs, stride=2).tolist() == want.to(dtype).tolist()
    with fp.autocast(dtype):
        assert run(*[x.to("float32") for x in xs]).dtype == run(*[x.to("float32") for x in xs[:2]]).dtype == getattr(fp, dtype)
