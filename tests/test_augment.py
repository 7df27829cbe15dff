"""Stochastic depth, DropBlock, mixup and cutmix: what is drawn, and that draws are flamepy's: seeded, replayed anew, the same in a
checkpointed block.

Oracles: NumPy with the draws that were found; torchvision's rules written out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_text import raises

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn

pytestmark = pytest.mark.usefixtures("device")


# ---- stochastic depth and DropBlock ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["row", "batch"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_stochastic_depth(mode: str, dtype: str) -> None:
    fp.manual_seed(3)
    x = (fp.rand(200, 3, 2) + 1.0).to(dtype).detach().requires_grad_()
    y = F.stochastic_depth(x, 0.25, mode)
    kept = (y.numpy() != 0).reshape(200, -1)
    assert (kept == kept[:, :1]).all() and y.dtype == x.dtype
    want = x.numpy().astype("f8") / 0.75 * kept[:, :1, None]
    np.testing.assert_allclose(y.numpy().astype("f8"), want, rtol=2e-3 if dtype == "float16" else 1e-6)
    g = y.to(fp.float32).sum().backward()[x].numpy()
    np.testing.assert_allclose(g, np.broadcast_to(kept[:, :1, None] / 0.75, g.shape), rtol=1e-3)
    assert 0.1 < 1 - kept.mean() < 0.4 if mode == "row" else kept.all() or not kept.any()
    assert (F.stochastic_depth(x, 1.0, mode).numpy() == 0).all() and F.stochastic_depth(x, 0.5, mode, training=False) is x
    bad = fp.tensor([[np.nan], [np.inf]])
    assert (F.stochastic_depth(bad, 1.0, mode).numpy() == 0).all()  # a dropped NaN is dropped


def test_both_modes_of_batch() -> None:
    fp.manual_seed(0)
    found = {(F.stochastic_depth(fp.ones(4, 2), 0.5, "batch").numpy() != 0).all() for _ in range(20)}
    assert found == {np.True_, np.False_}


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_drop_block_drops_blocks(size: int) -> None:
    fp.manual_seed(7)
    x = fp.ones(8, 4, 7, 6).requires_grad_()
    y = F.drop_block2d(x, 0.2, size)
    kept = y.numpy() != 0
    b = min(size, 6)
    blocks = np.zeros(kept.shape, bool)  # of each dropped square of that size: what is dropped is what they cover
    for i in range(7 - b + 1):
        for j in range(6 - b + 1):
            whole = ~kept[:, :, i : i + b, j : j + b].any(axis=(2, 3))
            blocks[:, :, i : i + b, j : j + b] |= whole[:, :, None, None]
    np.testing.assert_array_equal(blocks, ~kept)
    assert 0.05 < (~kept).mean() < 0.35
    np.testing.assert_allclose(y.numpy()[kept], kept.size / kept.sum(), rtol=1e-5)
    np.testing.assert_allclose(y.sum().backward()[x].numpy(), y.numpy(), rtol=1e-6)
    assert F.drop_block2d(x, 0.5, size, training=False) is x
    assert (F.drop_block2d(x, 1.0, 1).numpy() == 0).all()


LAYERS = {"depth": lambda: nn.StochasticDepth(0.5), "block": lambda: nn.DropBlock2d(0.4, 2)}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_draw_anew_in_replays_and_the_same_when_checkpointed(kind: str) -> None:
    layer, x = LAYERS[kind](), fp.ones(6, 2, 5, 5).requires_grad_()
    found = []
    for run in (lambda: layer(x), fp.capture(lambda: layer(x))):
        fp.manual_seed(11)
        found.append([run().numpy().copy() for _ in range(6)])
    assert all((a == b).all() for a, b in zip(*found, strict=True))
    assert len({a.tobytes() for a in found[0]}) > 3
    fp.manual_seed(2)
    y = fp.checkpoint(lambda t: layer(t * 2.0), x)
    g = y.sum().backward()[x].numpy()
    np.testing.assert_allclose(g, y.numpy(), rtol=1e-6)
    layer.eval()
    assert layer(x) is x
    assert "p=" in repr(layer)


def test_drops_refuse() -> None:
    x = fp.ones(2, 1, 3, 3)
    for error, call, word in (
        (ValueError, lambda: F.stochastic_depth(x, 1.5, "row"), "p outside"), (ValueError, lambda: nn.StochasticDepth(0.1, "rows"), "mode"),
        (fp.ShapeError, lambda: F.stochastic_depth(fp.tensor(1.0), 0.1, "row"), "axis of samples"),
        (fp.DTypeError, lambda: F.stochastic_depth(fp.tensor([1]), 0.1, "row"), "not a float tensor"),
        (ValueError, lambda: nn.DropBlock2d(0.1, 0), "block_size"), (ValueError, lambda: F.drop_block2d(x, -0.1, 1), "p outside"),
        (fp.ShapeError, lambda: F.drop_block2d(x[0], 0.1, 1), "not images"), (ValueError, lambda: nn.DropBlock2d(0.1, 1.5), "block_size"),
    ):  # fmt: skip
        with raises(error, word):
            call()


# ---- mixup and cutmix --------------------------------------------------------------------------------------------------------------
IDS = np.array([0, 2, 1, 2, 0])


def one_hot(ids: Any) -> np.ndarray:
    return np.eye(3)[ids]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_mixup(dtype: str) -> None:
    fp.manual_seed(1)
    x = fp.randn(5, 2, 4).to(dtype)
    mix, shares = nn.MixUp(alpha=0.4, num_classes=3), []
    for _ in range(40):
        mixed, y = mix(x, IDS)
        a = x.numpy().astype("f8")
        own, other = one_hot(IDS), np.roll(one_hot(IDS), 1, 0)
        share = ((y.numpy() - other) * (own - other)).sum() / ((own - other) ** 2).sum()
        tolerance = 4e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(y.numpy(), share * own + (1 - share) * other, atol=1e-6)
        np.testing.assert_allclose(mixed.numpy().astype("f8"), share * a + (1 - share) * np.roll(a, 1, 0), atol=tolerance)
        assert mixed.dtype == x.dtype and y.dtype == fp.float32
        shares.append(share)
    assert 0.2 < np.mean(shares) < 0.8 and np.std(shares) > 0.25 and min(shares) >= 0 and max(shares) <= 1  # Beta(0.4, 0.4) is wide


def test_cutmix() -> None:
    fp.manual_seed(1)
    x, soft = fp.arange(5 * 3 * 8 * 6).reshape(5, 3, 8, 6), one_hot(IDS).astype("f4")
    mix, areas = nn.CutMix(), []
    for _ in range(30):
        mixed, y = mix(x, soft)
        a = x.numpy()
        given = mixed.numpy() != a
        assert (mixed.numpy()[given] == np.roll(a, 1, 0)[given]).all() and (given == given[:1, :1]).all()
        rows, columns = given[0, 0].any(1).nonzero()[0], given[0, 0].any(0).nonzero()[0]
        area = given[0, 0].sum()
        assert area == len(rows) * len(columns) and (not area or (np.ptp(rows) + 1 == len(rows) and np.ptp(columns) + 1 == len(columns)))
        np.testing.assert_allclose(y.numpy(), (1 - area / 48) * soft + area / 48 * np.roll(soft, 1, 0), atol=1e-6)
        areas.append(area)
    assert len(set(areas)) > 5 and mixed.dtype == x.dtype


@pytest.mark.parametrize("kind", ["MixUp", "CutMix"])
def test_mixing_is_seeded_and_replayed_anew(kind: str) -> None:
    mix, x = getattr(nn, kind)(num_classes=3), fp.randn(5, 2, 6, 6)
    found = []
    for run in (mix, fp.capture(mix)):
        fp.manual_seed(4)
        found.append([tuple(t.numpy().tobytes() for t in run(x, fp.tensor(IDS))) for _ in range(9)])
    assert found[0] == found[1] and len(set(found[0])) > 5
    mix.eval()
    same, y = mix(x, IDS)
    assert same is x and (y.numpy() == one_hot(IDS)).all()
    model = nn.Sequential(nn.Flatten(), nn.Linear(72, 3))
    mixed, targets = mix.train()(x, IDS)
    loss = -(targets * F.log_softmax(model(mixed), axis=-1)).sum(axis=-1).mean()
    assert set(dict(loss.backward().named_items())) == {"1.weight", "1.bias"}
    fp.manual_seed(4)
    again = getattr(F, kind.lower())(x, IDS, num_classes=3)
    assert tuple(t.numpy().tobytes() for t in again) == found[0][0]  # the layer is the function
    assert getattr(F, kind.lower())(x, one_hot(IDS).astype("f4"), training=False)[0] is x


def test_mixing_refuses() -> None:
    x, two = fp.ones(5, 1, 2, 2), nn.MixUp(num_classes=2)
    with raises(ValueError, "mixup", "alpha"):
        F.mixup(x, IDS, alpha=-1.0, num_classes=3)
    for error, call, word in (
        (ValueError, lambda: nn.MixUp(alpha=0.0), "alpha"), (ValueError, lambda: nn.CutMix(num_classes=0), "num_classes"),
        (ValueError, lambda: nn.MixUp()(x, IDS), "ids without"), (fp.IndexOutOfRange, lambda: np.asarray(two(x, IDS)[1]), "2"),
        (fp.ShapeError, lambda: nn.MixUp(num_classes=3)(x, IDS[:4]), "a batch and its labels"),
        (fp.ShapeError, lambda: nn.CutMix(num_classes=3)(fp.ones(5, 2), IDS), "not images"),
        (fp.DTypeError, lambda: nn.MixUp(num_classes=3)(fp.arange(5), IDS), "not of floats"),
        (fp.DTypeError, lambda: nn.MixUp()(x, np.ones(5, "f4")), "neither ids nor soft"),
    ):  # fmt: skip
        with raises(error, word):
            call()
