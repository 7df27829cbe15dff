"""Batch, group and instance norm: running statistics, far from zero, 16 bits, one thread and many, captured, under checkpoint()."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numba
import numpy as np
import pytest
from devices import cuda_device
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

SHAPES = [(5, 3), (4, 3, 70), (3, 7, 5, 5), (2, 3, 4, 5, 6), (300, 2), (2, 600, 2), (40, 3, 8, 8)]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype("f4")


def exact(x: np.ndarray, g: np.ndarray, w: np.ndarray, b: np.ndarray, eps: float = 1e-5) -> list[np.ndarray]:
    """y, dx, dw, db, mean and unbiased variance in float64."""
    x, g, axes = x.astype("f8"), g.astype("f8"), (0, *range(2, x.ndim))
    side, n = (1, -1, *(1,) * (x.ndim - 2)), x.size // x.shape[1]
    mean, s = x.mean(axes), 1 / np.sqrt(x.var(axes) + eps)
    xn = (x - mean.reshape(side)) * s.reshape(side)
    dw, db = (g * xn).sum(axes), g.sum(axes)
    dx = (g - (db.reshape(side) + xn * dw.reshape(side)) / n) * (s * w).reshape(side)
    return [xn * w.reshape(side) + b.reshape(side), dx, dw, db, mean, x.var(axes) * n / (n - 1)]


def found(x: np.ndarray, g: np.ndarray, w: np.ndarray, b: np.ndarray, dtype: Any = fp.float32) -> list[np.ndarray]:
    """The same by batch_norm()."""
    tx, tw, tb = [fp.tensor(t.astype(dtype), requires_grad=True) for t in (x, w, b)]
    mean, var = fp.zeros(w.size, dtype=tx.spec.computed), fp.ones(w.size, dtype=tx.spec.computed)
    y = F.batch_norm(tx, mean, var, tw, tb, training=True, momentum=1.0)
    grads = y.backward(fp.tensor(g.astype(dtype)))
    return [t.numpy().astype("f8") for t in (y, grads[tx], grads[tw], grads[tb], mean, var)]


def close(ours: list[np.ndarray], theirs: list[np.ndarray], rtol: float) -> None:
    for i, (a, e) in enumerate(zip(ours, theirs, strict=True)):
        np.testing.assert_allclose(a, e, rtol, rtol * np.abs(e).max(), err_msg=str(i))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("device", ["cpu", "plain"], indirect=True)
@pytest.mark.parametrize("shape", SHAPES)
def test_forward_and_backward_of_any_shape(shape: tuple[int, ...]) -> None:
    x, g, w, b = draw(*shape), draw(*shape, seed=1), draw(shape[1], seed=2), draw(shape[1], seed=3)
    close(found(x * 2 + 1, g, w, b), exact(x * 2 + 1, g, w, b), 5e-6)
    close(found(x * 2 + 1, g, w, b, fp.float64), exact(x * 2 + 1, g, w, b), 1e-12)


@pytest.mark.parametrize("device", ["cpu", "plain", "cuda"], indirect=True)
@pytest.mark.parametrize("shape", [(20, 3), (4, 3, 300)])
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 1e6), (1e-3, 1.0), (1e25, 0.0), (1e25, 1e27), (1e-30, 0.0), (0.0, 3e4)])
def test_no_digits_are_lost_far_from_zero(device: str, shape: tuple[int, ...], scale: float, shift: float) -> None:
    """Oracle: float64 on the very numbers. Where all are equal the result is the bias, to the bit."""
    x, g, w, b = draw(*shape), draw(*shape, seed=1), draw(shape[1], seed=2), draw(shape[1], seed=3)
    x = (x * np.float32(scale) + np.float32(shift)).astype("f4")
    ours, theirs = found(x, g, w, b), exact(x, g, w, b)
    close(ours[:1] + ours[2:5], theirs[:1] + theirs[2:5], 1e-5)
    np.testing.assert_allclose(ours[1], theirs[1], 1e-4, 1e-5 * np.abs(theirs[1]).max())
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(ours[5].astype("f4"), theirs[5].astype("f4"), 1e-5, 1e-38)


def test_the_same_bits_for_any_number_of_threads() -> None:
    before, kept = numba.get_num_threads(), []
    for threads in (1, 2):
        numba.set_num_threads(min(threads, before))
        for shape in ((64, 33, 16, 16), (700, 130)):
            kept.append(found(draw(*shape), draw(*shape, seed=1), draw(shape[1]), draw(shape[1])))
    numba.set_num_threads(before)
    for one, two in zip(kept[:2], kept[2:], strict=True):
        assert all([np.array_equal(a, b) for a, b in zip(one, two, strict=True)])


@pytest.mark.parametrize("device", ["cpu", "plain", "cuda"], indirect=True)
@pytest.mark.parametrize("dtype", [fp.bfloat16, fp.float16])
def test_16_bits_are_computed_in_float32_and_rounded_once(device: str, dtype: Any) -> None:
    x, w, b = [t.astype(dtype).astype("f4") for t in (draw(6, 4, 9), draw(4, seed=1), draw(4, seed=2))]
    ours = found(x, draw(6, 4, 9, seed=3).astype(dtype).astype("f4"), w, b, dtype)
    theirs = exact(x, draw(6, 4, 9, seed=3).astype(dtype).astype("f8"), w, b)
    eps = 0.0079 if dtype == fp.bfloat16 else 0.001
    close(ours[:1], theirs[:1], eps)
    close(ours[1:], theirs[1:], 2e-6)


def test_nan_and_infinity_stay_in_their_channel() -> None:
    x = draw(4, 3, 5)
    x[1, 0, 2], x[2, 2, 4] = np.nan, np.inf
    y = F.batch_norm(fp.tensor(x), None, None, training=True).numpy()
    assert np.isnan(y[:, 0]).all() and np.isfinite(y[:, 1]).all() and not np.isfinite(y[2, 2, 4])


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("device", ["cpu", "plain"], indirect=True)
def test_frozen_statistics_are_constants() -> None:
    """In eval() gradients go through x, weight and bias; what the layer holds is not written."""
    bn = nn.BatchNorm2d(3)
    bn.running_mean.set_data([1.0, 2.0, 3.0])
    bn.running_var.set_data([1.0, 4.0, 9.0])
    bn.eval()
    x = fp.tensor(draw(2, 3, 4, 4), requires_grad=True)
    grads = bn(x).sum().backward()
    s = 1 / np.sqrt(np.array([1, 4, 9]) + 1e-5)
    np.testing.assert_allclose(grads[x].numpy(), np.broadcast_to(s[:, None, None], x.shape), 1e-6)
    xn = (x.numpy() - np.array([1, 2, 3])[:, None, None]) * s[:, None, None]
    np.testing.assert_allclose(grads[bn.weight].numpy(), xn.sum((0, 2, 3)), 1e-4)
    assert bn.num_batches_tracked.item() == 0 and bn.running_mean.tolist() == [1, 2, 3]
    bn.freeze()
    assert len(bn(x).sum().backward()) == 1
    bn.train()
    assert len(bn(x).square().sum().backward()) == 1 and bn.num_batches_tracked.item() == 1
    with fp.no_grad():
        bn(x)
    assert bn.num_batches_tracked.item() == 2


def images(n: int = 12) -> list[np.ndarray]:
    return list(np.random.default_rng(0).standard_normal((n, 4, 3, 5, 5)).astype("f4"))


class Net(nn.Module):
    def __init__(self, momentum: float | None = 0.1):
        self.conv, self.bn = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4, momentum=momentum)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.out(self.bn(self.conv(x)).relu().mean(axis=(2, 3)))


def trained(captured: bool, block: bool, momentum: float | None) -> tuple[list[float], dict[str, Any]]:
    """Losses and the last state of a run in which the mode changes and a state is loaded. `block`: the model is under checkpoint()."""
    fp.manual_seed(0)
    model = Net(momentum)
    first, optimizer, losses = model.state_dict(), fp.SGD(model, lr=0.1, momentum=0.9), []

    def step(x: Any) -> Any:
        loss = (fp.checkpoint(model, x) if block else model(x)).square().mean()
        optimizer.step(loss.backward())
        return loss

    run: Any = fp.capture(step, verify=1) if captured else step
    for i, x in enumerate(images()):
        {6: model.eval, 8: model.train, 10: lambda: model.load_state_dict(first)}.get(i, bool)()
        losses.append(run(fp.tensor(x)).item())
    return losses, model.state_dict()


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("device", ["cpu", "plain"], indirect=True)
@pytest.mark.parametrize("momentum", [0.1, None])
def test_captured_and_checkpointed_steps_have_the_bits_of_eager_ones(momentum: float | None) -> None:
    """A block that runs again counts once. Both switches of the mode, and a state that is loaded, are seen by replays."""
    losses, state = trained(False, False, momentum)
    assert state["bn.num_batches_tracked"] == 2
    for captured, block in ((True, False), (False, True), (True, True)):
        again, other = trained(captured, block, momentum)
        assert again == losses
        assert all([np.array_equal(v, other[name]) for name, v in state.items()])


def test_what_a_batch_norm_refuses() -> None:
    x = fp.tensor(draw(4, 3, 2))
    with raises(fp.ShapeError, "batch_norm: expected more than 1 of the numbers in a channel in training: x is (1, 3)"):
        nn.BatchNorm1d(3)(fp.ones(1, 3))
    with raises(fp.ShapeError, "instance_norm: expected more than 1"):
        nn.InstanceNorm1d(3)(fp.ones(2, 3, 1))
    with raises(fp.ShapeError, "group_norm: expected more than 1"):
        F.group_norm(fp.ones(1, 3, 1), 3)
    for layer, shape in (
        (nn.BatchNorm1d(3), (3,)), (nn.BatchNorm1d(3), (2, 4)), (nn.BatchNorm2d(3), (2, 3, 4)), (nn.BatchNorm3d(3), (2, 3, 4, 5)),
        (nn.InstanceNorm2d(3), (2, 3)), (nn.InstanceNorm1d(3), (2, 4, 5)), (nn.GroupNorm(1, 3), (2, 4)),
    ):  # fmt: skip
        with raises(fp.ShapeError, f"{type(layer).__name__}: needs", f"x is {shape}"):
            layer(fp.ones(shape))
    with raises(fp.ShapeError, "batch_norm: sizes differ: x is (4, 3, 2), weight is (4,)"):
        F.batch_norm(x, None, None, fp.ones(4), training=True)
    with raises(fp.ShapeError, "batch_norm: no running statistics"):
        F.batch_norm(x, fp.zeros(3), None)
    with raises(fp.GradientError, "batch_norm: no derivative for running_mean"):
        F.batch_norm(x, fp.zeros(3, requires_grad=True), fp.ones(3))
    with raises(fp.DTypeError, "batch_norm: running_mean is not a tensor"):
        F.batch_norm(x, np.zeros(3, "f4"), fp.ones(3), training=True)
    with raises(fp.ShapeError, "group_norm: channels are no multiple of the groups"):
        F.group_norm(x, 2)
    with raises(fp.ShapeError, "GroupNorm: channels are no multiple"):
        nn.GroupNorm(2, 3)
    with raises(AttributeError, "SyncBatchNorm", "one process has the whole batch"):
        nn.SyncBatchNorm  # noqa: B018


def test_an_empty_batch_is_empty_and_moves_nothing() -> None:
    bn = nn.BatchNorm1d(3)
    x = fp.zeros(0, 3, requires_grad=True)
    y = bn(x)
    assert y.shape == (0, 3) and bn.running_mean.tolist() == [0, 0, 0]
    grads = y.sum().backward()
    assert grads[bn.weight].tolist() == [0, 0, 0] and grads[x].shape == (0, 3)


def test_copies_pickles_and_other_types() -> None:
    bn = nn.BatchNorm1d(3)
    bn(fp.tensor(draw(8, 3)))
    twin, other = copy.deepcopy(bn), pickle.loads(pickle.dumps(bn))
    bn(fp.tensor(draw(8, 3)))
    for m in (twin, other):
        assert m.num_batches_tracked.item() == 1 and not np.array_equal(m.running_mean.numpy(), bn.running_mean.numpy())
    twin.to(fp.float64)
    assert twin.running_var.dtype == fp.float64 and twin.num_batches_tracked.dtype == fp.int64
    assert twin(fp.tensor(draw(8, 3).astype("f8"))).dtype == fp.float64
    bn.reset_running_stats()
    assert bn.running_var.tolist() == [1, 1, 1] and bn.num_batches_tracked.item() == 0
    assert nn.BatchNorm1d(3, affine=False, track_running_stats=False).state_dict() == {}
    assert list(nn.BatchNorm1d(3, bias=False).params) == ["weight"]


def test_a_compute_dtype_keeps_statistics_in_float32() -> None:
    fp.manual_seed(0)
    model = Net()
    model.compute_dtype = fp.bfloat16
    y = model.bn(model.conv(fp.tensor(images()[0])))
    assert y.dtype == fp.bfloat16 and model.bn.running_var.dtype == fp.float32
    grads = model(fp.tensor(images()[0])).square().mean().backward()
    assert {g.dtype for _, g in grads.named_items()} == {fp.float32}
    for layer in (nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)):
        layer.compute_dtype = fp.bfloat16
        x = fp.tensor(draw(2, 4, 3, 3))
        wanted = type(layer).forward(layer, x.to(fp.bfloat16))
        assert layer(x).dtype == wanted.dtype == fp.bfloat16


def test_averages_leave_running_statistics_alone() -> None:
    model = Net()
    ema = fp.EMA(model, 0.5)
    model(fp.tensor(images()[0]))
    ema.update()
    before = model.bn.running_mean.numpy().copy()
    with ema.applied():
        assert np.array_equal(model.bn.running_mean.numpy(), before)
        model.eval()(fp.tensor(images()[0]))
    assert np.array_equal(model.bn.running_mean.numpy(), before)


# ---- PyTorch's modules, states and all --------------------------------------------------------------------------------------------
LAYERS: list[tuple[str, tuple, dict[str, Any], tuple[int, ...]]] = [
    ("BatchNorm1d", (4,), {}, (6, 4)), ("BatchNorm1d", (4,), {"momentum": None}, (6, 4, 3)),
    ("BatchNorm2d", (4,), {"affine": False}, (3, 4, 2, 5)),
    ("BatchNorm2d", (4,), {"track_running_stats": False}, (3, 4, 2, 5)), ("BatchNorm3d", (2,), {"eps": 0.1}, (2, 2, 3, 2, 2)),
    ("InstanceNorm1d", (4,), {}, (4, 5)), ("InstanceNorm2d", (3,), {"affine": True, "track_running_stats": True}, (2, 3, 4, 4)),
    ("InstanceNorm2d", (3,), {"track_running_stats": True, "momentum": 0.3}, (3, 4, 4)),
    ("InstanceNorm3d", (3,), {"affine": True}, (2, 3, 2, 2, 3)),
    ("GroupNorm", (2, 6), {}, (3, 6, 4)), ("GroupNorm", (3, 6), {"affine": False}, (3, 6)),
    ("LocalResponseNorm", (3,), {"alpha": 0.1}, (2, 5, 4)),
]  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "plain"], indirect=True)
@pytest.mark.parametrize(("name", "args", "options", "shape"), LAYERS)
def test_layers_are_pytorchs(device: str, name: str, args: tuple, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Results, gradients and running statistics, in training and after eval()."""
    torch = pytest.importorskip("torch")
    theirs, ours = getattr(torch.nn, name)(*args, **options), getattr(nn, name)(*args, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for p in theirs.parameters():
        torch.nn.init.normal_(p)
    nn.from_torch(ours, theirs)
    for i in range(6):
        (theirs.eval(), ours.eval()) if i > 3 else None
        x = draw(*shape, seed=i)
        a, b = torch.tensor(x, requires_grad=True), fp.tensor(x, requires_grad=True)
        y, z = theirs(a), ours(b)
        np.testing.assert_allclose(z.numpy(), y.detach().numpy(), 1e-5, 1e-5)
        y.square().sum().backward()
        grads = z.square().sum().backward()
        np.testing.assert_allclose(grads[b].numpy(), a.grad.numpy(), 1e-4, 2e-4)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key], value.numpy(), 1e-5, 1e-6, err_msg=key)


def test_a_whole_module_is_loaded() -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(36, 2)
    )
    ours = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2))
    x = images()[0]
    theirs(torch.tensor(x))
    assert nn.from_torch(ours, theirs) is ours
    np.testing.assert_allclose(ours.eval()(fp.tensor(x)).numpy(), theirs.eval()(torch.tensor(x)).detach().numpy(), 1e-4, 1e-5)
    with raises(fp.StateError, "missing ['4.weight', '4.bias']"):
        nn.from_torch(ours, theirs[:4].state_dict())
    nn.from_torch(ours, theirs[:4].state_dict(), strict=False)
    heads, attention = torch.nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiHeadAttention(8, 2)
    nn.from_torch(attention, heads)
    assert np.array_equal(attention.qkv.weight.numpy(), heads.in_proj_weight.detach().numpy())


def test_standardised_weights_train_a_convolution() -> None:
    conv = nn.Conv2d(3, 4, 3)
    x = fp.tensor(draw(2, 3, 6, 6))
    w = F.weight_standardize(conv.weight).numpy()
    np.testing.assert_allclose(w.mean((1, 2, 3)), 0, atol=1e-6)
    grads = F.conv2d(x, F.weight_standardize(conv.weight), conv.bias).square().sum().backward()
    g = grads[conv.weight].numpy()
    assert abs(g.sum((1, 2, 3))).max() < 1e-5 * abs(g).sum((1, 2, 3)).max()  # cancels to the last digits


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_long_channels_have_more_threads_on_a_gpu(dtype):
    x, g, w, b = draw(8, 3, 1100), draw(8, 3, 1100, seed=1), draw(3, seed=2), draw(3, seed=3)
    with cuda_device() as gpu:
        made = [fp.tensor(a, device="cuda", requires_grad=True) for a in (x, w, b)]
        y = F.batch_norm(made[0].to(dtype), None, None, *made[1:], training=True)
        grads = y.backward(fp.tensor(g, device="cuda").to(y.dtype))
        results = [y.detach().to("float32").numpy(), *(grads[t].numpy() for t in made)]
        assert {"batch_norm_1024_of_1024_same", "batch_norm_dx_1024_of_1024_passed"} <= {k.name for k in gpu.kernels.values()}
    for got, want in zip(results, exact(x, g, w, b), strict=False):
        np.testing.assert_allclose(got, want, atol=np.abs(want).max() * (2e-5 if dtype == "float32" else 2e-2))
