"""Numbers at the extremes: offsets that swamp the differences, sums of a million terms, squares that overflow, masks of -1e30.

Oracles: NumPy in float64 for float32, np.longdouble for float64; PyTorch in float64 for gradients. A sum may be off by 3e-7 of the sum
of the magnitudes of its terms (five roundings of float32), however many they are and whichever axis they lie along.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from devices import CPU_ONLY
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.words import all_max, all_sum, exp, lane, lanes, log

pytestmark = pytest.mark.usefixtures("device")

F32, F64 = np.float32, np.float64
SUM = 3e-7
MANY = 1 << 17
Array = np.ndarray


def draw(*shape: int, seed: int = 0, dtype: Any = F32) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def gradients(fn: Any, arrays: list[Array], g: Array | None = None) -> list[Array]:
    """The gradients of fn at the arrays, under the cotangent g."""
    leaves = [fp.tensor(a, requires_grad=True) for a in arrays]
    found = fn(*leaves).backward(None if g is None else fp.tensor(g))
    return [found[t].numpy() for t in leaves]


def assert_sum(got: Any, terms: Array, axis: Any, factor: float = 1.0) -> None:
    """`got` is the sum of the terms along an axis, up to SUM of the sum of their magnitudes."""
    terms = terms.astype(F64) * factor
    want, room = terms.sum(axis=axis), SUM * abs(terms).sum(axis=axis)
    error = abs(np.asarray(got, F64) - want)
    assert (error <= room + 1e-45).all(), (error / room).max()


# ---- differences that large numbers swamp ----
OFFSETS = {F32: [0, 1e4, 1e6, 1e7, -1e7, 1e30], F64: [0, 1e4, 1e8, 1e15, -1e15, 1e30]}


def log_softmax_exact(x: Array, wide: Any) -> Array:
    x = x.astype(wide)
    d = x - x.max(axis=-1, keepdims=True)
    return d - np.log(np.exp(d).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_log_softmax_of_large_numbers(dtype: Any) -> None:
    """(x - max) - log(sum) must not become x - (max + log(sum)). So it is in the losses, and where users write it themselves."""

    def own_row(r, y, x, rows, cols):
        y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
        top, total = x[0], 0.0
        for j in range(lane(), cols, lanes()):
            top = max(top, x[j])
        top = all_max(top)
        for j in range(lane(), cols, lanes()):
            total += exp(x[j] - top)
        total = all_sum(total)
        for j in range(lane(), cols, lanes()):
            y[j] = (x[j] - top) - log(total)

    own, room = fp.rowwise("own_log_softmax", own_row), 8 * np.finfo(dtype).eps
    for offset in OFFSETS[dtype]:
        x = (np.arange(24.0).reshape(2, 12) % 5 + offset).astype(dtype)
        want = log_softmax_exact(x, F64 if dtype is F32 else np.longdouble)
        for f in (fp.log_softmax, own):
            np.testing.assert_allclose(f(fp.tensor(x)).numpy(), want.astype(dtype), room, room, err_msg=f"{f} at {offset}")
        np.testing.assert_allclose(fp.softmax(fp.tensor(x)).numpy(), np.exp(want).astype(dtype), room, room)
        ids = np.array([1, 7])
        losses = F.cross_entropy(fp.tensor(x), ids, reduction="none").numpy()
        np.testing.assert_allclose(losses, -want[[0, 1], ids].astype(dtype), room, room)
        (dx,) = gradients(lambda t, ids=ids: F.cross_entropy(t, ids, reduction="sum"), [x])
        np.testing.assert_allclose(dx, np.exp(want).astype(dtype) - np.eye(12)[ids], room, room)


def test_layer_norm_far_from_zero() -> None:
    for offset, cols in ((1e4, 65), (1e6, 1000), (-1e6, 100_003 if fp.device().name == "cpu" else 300)):
        x, g = draw(2, cols) + F32(offset), draw(2, cols, seed=1)
        wide = x.astype(F64)
        centred = wide - wide.mean(axis=1, keepdims=True)
        scale = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(F.layer_norm(fp.tensor(x)).numpy(), centred * scale, 2e-6, 2e-6)
        (dx,) = gradients(F.layer_norm, [x], g)
        xn = centred * scale
        want = scale * (g - g.mean(axis=1, keepdims=True, dtype=F64) - xn * (g * xn).mean(axis=1, keepdims=True))
        np.testing.assert_allclose(dx, want, 2e-6, 4e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-19, 1e-8, 1e8, 1e19, 1e30, 1e37])
@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_norms_of_large_and_small_numbers(size: float, eps: float) -> None:
    """Squares of 1e20 overflow float32, those of 1e-30 vanish."""
    for cols in (2, 64, 300):
        x = draw(3, cols) * F32(size)
        wide = x.astype(F64)
        centred = wide - wide.mean(axis=1, keepdims=True)
        want = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps)
        root = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + eps)
        for got, exact in ((F.layer_norm(fp.tensor(x), eps=eps), want), (F.rms_norm(fp.tensor(x), cols, eps=eps), root)):
            assert abs(got.numpy() - exact).max() <= 1e-6 * abs(exact).max()


def test_norm_of_a_constant_row_is_zero() -> None:
    for value in (0.1, 1e8, 3e10, 1e19, 1e30):
        assert not F.layer_norm(fp.full((2, 63), value)).numpy().any(), value


# ---- attention ----
def attention_exact(q: Array, k: Array, v: Array, mask: Any, g: Array) -> list[Array]:
    """y, dq, dk, dv from scores as float32 has them: what a softmax of these scores gives."""
    s = (q @ k.swapaxes(-1, -2) * F32(1 / np.sqrt(q.shape[-1]))).astype(F32)
    s = (s if mask is None else s + mask).astype(F64)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    y, dp = p @ v, g @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return [y, ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g]


@pytest.mark.parametrize("low", [-1e4, -1e30, float(np.finfo(F32).min)])
def test_attention_of_rows_that_a_finite_mask_hides(low: float) -> None:
    """The scores of a row are all alike and hugely negative: its softmax is even, forward and backward."""
    q, k, v, g = (draw(1, 2, 6, 4, seed=i) for i in range(4))
    q[0, 0] = 0
    mask = np.zeros((6, 6), F32)
    mask[2:4] = low
    want = attention_exact(q, k, v, mask, g)
    found = F.scaled_dot_product_attention(*map(fp.tensor, (q, k, v)), fp.tensor(mask)).numpy()
    np.testing.assert_allclose(found, want[0], 2e-3 if low == -1e4 else 2e-6, 2e-3 if low == -1e4 else 2e-6)
    grads = gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, fp.tensor(mask)), [q, k, v], g)
    for got, exact in zip(grads, want[1:], strict=True):
        room = 2e-3 if low == -1e4 else 4e-6  # around 1e4 float32 itself has steps of 1e-3
        np.testing.assert_allclose(got, exact, room, room)


def test_attention_with_scores_around_ten_thousand() -> None:
    q, k, v, g = np.full((1, 1, 5, 4), 100, F32), np.full((1, 1, 7, 4), 100, F32), draw(1, 1, 7, 4), draw(1, 1, 5, 4, seed=1)
    k[..., 0] += np.arange(7, dtype=F32) / 64  # scores 20000 + 0.78 j: exact in float32
    want = attention_exact(q, k, v, None, g)
    grads = gradients(F.scaled_dot_product_attention, [q, k, v], g)
    np.testing.assert_allclose(grads[2], want[3], 2e-6, 2e-6)
    for got, exact in zip(grads[:2], want[1:3], strict=True):
        assert abs(got - exact).max() <= 1e-6 * 100  # sums of p * k, which all but cancel


# ---- long sums ----
LONG = [(MANY,), (1, MANY), (MANY, 1), (MANY, 3), (3, MANY), (MANY, 40), (2, 50_000, 7), (64, 4000)]
SHAPES = [*LONG, (100, 255), (100, 257), (9, 600), (7, 63), (5, 15)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_along_any_axis(shape: tuple[int, ...]) -> None:
    for x in (np.full(shape, 0.1, F32), abs(draw(*shape)) + F32(1 / 3), draw(*shape) * F32(1e4) + F32(0.7)):
        for axis in (None, *range(len(shape)), *[(0, 2)][: len(shape) - 2]):
            y = fp.sum(fp.tensor(x), axis=axis)
            assert_sum(y.numpy(), x, axis)
            assert_sum(fp.mean(fp.tensor(x), axis=axis).numpy(), x, axis, y.size / x.size)


@pytest.mark.parametrize("offset", [0, 1e4, -1e6])
def test_variance_of_many_numbers(offset: float) -> None:
    x = draw(MANY, 2) + F32(offset)
    for axis in (0, None):
        np.testing.assert_allclose(fp.var(fp.tensor(x), axis=axis).numpy(), x.astype(F64).var(axis=axis), 2e-6)
    y = draw(3, 257) + F32(offset)
    (dx,) = gradients(lambda t: fp.var(t, axis=1).sum(), [y])
    wide = y.astype(F64)
    np.testing.assert_allclose(dx, 2 / 257 * (wide - wide.mean(axis=1, keepdims=True)), 1e-5, 1e-8)


def test_what_is_not_a_number_has_no_gradient_of_zero() -> None:
    """The slope of a square root is 0 at 0 alone. (PyTorch's are NaN here, too.)"""
    for f, x in ((lambda t: fp.std(t, correction=1), [2.0]), (fp.norm, [np.nan, 1.0]), (fp.std, [np.nan, 1.0])):
        (dx,) = gradients(f, [np.array(x, F32)])
        assert np.isnan(dx).all()


def test_bias_gradients() -> None:
    g, x = abs(draw(MANY, 3)) + F32(0.1), draw(MANY, 2)
    *_, db = gradients(F.linear, [x, draw(3, 2), draw(3)], g)
    assert_sum(db, g, 0)
    _, db = gradients(fp.add, [g, draw(3)], g)  # a broadcast input's
    assert_sum(db, g, 0)


def test_norm_gradients() -> None:
    rows = MANY if fp.device().name == "cpu" else 2000
    x, g, w, b = draw(rows, 4), np.full((rows, 4), 0.1, F32), draw(4), draw(4)
    for fn, arrays in ((lambda x, w, b: F.layer_norm(x, 4, w, b), [x, w, b]), (lambda x, w: F.rms_norm(x, 4, w), [x, w])):
        _, dw, *db = gradients(fn, arrays, g)
        y = fn(*map(fp.tensor, (x, np.ones(4, F32), np.zeros(4, F32))[: len(arrays)])).numpy()
        assert_sum(dw, g * y.astype(F64), 0)
        for found in db:
            assert_sum(found, g, 0)


def test_losses_of_a_long_batch() -> None:
    rows = MANY if fp.device().name == "cpu" else 3000
    x, t, ids = np.full((rows, 3), 0.3, F32), np.full((rows, 3), 0.1, F32), np.arange(rows) % 3  # equal numbers: errors add up
    each = F.cross_entropy(fp.tensor(x), ids, reduction="none").numpy()
    for f, inputs, terms in ((F.cross_entropy, (x, ids), each), (F.l1_loss, (x, t), abs(x - t)), (F.mse_loss, (x, t), (x - t) ** 2)):
        args = [fp.tensor(a) if a.dtype == F32 else a for a in inputs]
        assert_sum(f(*args, reduction="sum").numpy(), terms, None)
        assert_sum(f(*args).numpy(), terms, None, 1 / terms.size)


@pytest.mark.parametrize("width", [1, 3, 16, 70])
def test_gradients_of_rows_that_are_named_often(width: int) -> None:
    ids, w = np.where(np.arange(30_000) % 4 == 0, np.arange(30_000) % 900, 7), np.zeros((1000, width), F32)
    g = abs(draw(30_000, width)) + F32(0.1)
    want, room = np.zeros((1000, width)), SUM
    np.add.at(want, ids, g)
    for fn in (lambda t: F.embedding(ids, t), lambda t: fp.index_select(t, 0, ids), lambda t: t[ids]):
        (dw,) = gradients(fn, [w], g)
        assert (abs(dw - want) <= room * want).all()


def test_convolution_and_pooling_of_large_images() -> None:
    x, w, b = draw(40, 1, 60, 61), draw(2, 1, 1, 1), draw(2)
    g = np.full((40, 2, 60, 61), 0.1, F32)
    *_, db = gradients(F.conv2d, [x, w, b], g)
    assert_sum(db, g, (0, 2, 3))
    assert_sum(F.avg_pool2d(fp.tensor(abs(x)), (60, 61)).numpy().reshape(40, 1), abs(x), (2, 3), 1 / 3660)


@CPU_ONLY
def test_softmax_of_a_long_row() -> None:
    x = np.zeros((1, 1_000_003), F32)
    np.testing.assert_allclose(fp.softmax(fp.tensor(x)).numpy(), np.full_like(x, 1 / x.size), SUM)
    g = np.full_like(x, 0.1)
    (dx,) = gradients(fp.log_softmax, [x], g)
    assert abs(dx).max() <= SUM * 0.1
    loss = F.cross_entropy(fp.tensor(x), np.array([5]), label_smoothing=0.1).item()
    assert loss == pytest.approx(np.log(x.size), rel=SUM)


# ---- maxima: NaN wins wherever it is ----
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.sampled_from([1, 2, 70, 600, 1200]), st.sampled_from([np.nan, np.inf, -np.inf]), st.data())
def test_maxima_beside_numbers_that_are_none(rows: int, cols: int, odd: float, data: Any) -> None:
    x = draw(3, rows, cols)
    for at in data.draw(st.lists(st.integers(0, x.size - 1), max_size=4)):
        x.flat[at] = odd
    for axis in (None, 0, 1, 2, (0, 1), (1, 2), (0, 2)):
        for name in ("max", "min") if isinstance(axis, tuple) else ("max", "min", "argmax", "argmin"):
            np.testing.assert_array_equal(getattr(fp.tensor(x), name)(axis=axis).numpy(), getattr(x, name)(axis=axis))
