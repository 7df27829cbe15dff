"""Launches that work on numbers, rows and matrices, on every device, against NumPy, einsum and fsum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from launches import B1, F4, F8, FLOATS, I4, I8, ON, close, numbers

from flamepy import words
from flamepy.words import (
    INF,
    abs,
    all_max,
    all_sum,
    erf,
    exp_down,
    fmax,
    lane,
    lanes,
    log,
    normal_tail,
    pow,
    real,
    rint,
    select,
    sign,
    sqrt,
)  # fmt: skip

pytestmark = ON


# ---- formulas ----------------------------------------------------------------------------------------------------------------
def curve(x, y, c):
    return select(x > y, sqrt(abs(x)) * 0.1, c * sign(y)) + erf(x) + helper(y)


def helper(y):
    return rint(y) * 0.5


def over(a, b):
    return a / b


def power(x, y):
    return pow(x, y)


def odd(x, y):
    return (x != x) | (y != 0)


def tail(x):
    return normal_tail(abs(x), exp_down(-0.5 * x * x))


def rounded_sum(x, y):
    return rint(x) + y


def mixed_product(x, y, z, c):
    return x * y + z * c


def next_one(x):
    return x + 1.0


def squared(x):
    return x * x


def itself(x):
    return x


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 37])
def test_map(on, dtype, n):
    x, y = numbers(n, dtype=dtype), numbers(n, dtype=dtype)
    (got,) = on("map", [(n, dtype)], [x, y], (dtype.type(0.3),), curve)
    errors = np.array([math.erf(v) for v in x], dtype)
    close(
        got, np.where(x > y, np.sqrt(np.abs(x)) * dtype.type(0.1), dtype.type(0.3) * np.sign(y)) + errors + np.round(y) * dtype.type(0.5), 2
    )
    (mixed,) = on("map", [(n, B1)], [x, dtype.type(2)], (), odd, dtype)
    assert mixed.all()
    where = on.device
    both = where.upload(x)
    where.launch("map", over, [both], [both, dtype.type(4)], (), dtype)  # y is x
    assert np.array_equal(where.download(both), x / 4)
    close(on("map", [(n, dtype)], [x], (), tail)[0], [0.5 * math.erfc(float(np.abs(v)) / math.sqrt(2)) for v in x])


def test_map_keeps_types_and_warns_of_nothing(on):
    (q,) = on("map", [(3, F4)], [np.array([1, 0, -1], F4), np.float32(0)], (), over)
    assert np.array_equal(q, [np.inf, np.nan, -np.inf], equal_nan=True)
    (whole,) = on("map", [(2, I8)], [np.array([2**53 + 1, -5]), np.int64(0)], (), rounded_sum)
    assert whole.tolist() == [2**53 + 1, -5]
    (raised,) = on("map", [(4, F8)], [np.array([-2.0, -2.0, 0.0, 0.0]), np.array([3.0, 0.5, -1.0, 0.0])], (), power)
    assert np.array_equal(raised, [-8, np.nan, np.inf, 1], equal_nan=True)


WORDS = {
    "exp": math.exp, "exp_down": math.exp, "bell": lambda x: math.exp(-0.5 * x * x),
    "expm1": math.expm1, "log": math.log, "log1p": math.log1p, "sqrt": math.sqrt,
    "tanh": math.tanh, "sin": math.sin, "cos": math.cos, "floor": math.floor, "ceil": math.ceil, "rint": round,
    "maximum": max, "minimum": min, "fmax": max, "pow": math.pow,
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("word", WORDS)
def test_words(on, word, dtype):
    """On whole arrays, from within a formula."""
    x, y = np.array([0.25, 1.5, 2.5, 3.75], dtype), np.array([1.0, -2.0, 2.0, 7.0], dtype)
    given, names = ([x, y], "x, y") if word in ("maximum", "minimum", "fmax", "pow") else ([-x if word == "exp_down" else x], "x")
    formula = eval(f"lambda {names}: {word}({names})", {**vars(words), "__name__": __name__})
    close(on("map", [(4, dtype)], given, (), formula)[0], [WORDS[word](*v) for v in zip(*[g.tolist() for g in given], strict=True)], 4)


@pytest.mark.parametrize("n", [0, 3])
def test_broadcast(on, n):
    a, b = numbers(2, 1, 5), numbers(n, 1)
    shapes = (2, n, 5), (a.shape, b.shape, None)
    (y,) = on("broadcast", [(10 * n, F4)], [a, b, np.float32(0.25)], (*shapes, np.float32(3)), mixed_product)
    close(y, a * b + np.float32(0.75), 1)
    (one,) = on("broadcast", [(1, F4)], [a[:1, :, :1]], ((1,), ((1,),)), next_one)
    assert one[0] == a.flat[0] + 1


def test_fill_and_tri(on):
    assert (on("fill", [(5, I4)], [], (np.int32(-3),))[0] == -3).all()
    x = numbers(2, 3, 4)
    for diagonal in (-5, -1, 0, 2, 9):
        assert np.array_equal(on("tri", [(24, F4)], [x], (3, 4, diagonal, True))[0].reshape(x.shape), np.triu(x, diagonal))
        assert np.array_equal(on("tri", [(24, F4)], [x], (3, 4, diagonal, False))[0].reshape(x.shape), np.tril(x, diagonal))
    assert on("tri", [(0, F4)], [x[:0]], (0, 4, 0, True))[0].size == 0


# ---- rows ----------------------------------------------------------------------------------------------------------------------
def softmax_row(r, y, sums, x, w, least, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    top, total = -INF, 0.0
    for j in range(lane(), cols, lanes()):
        top = fmax(top, x[j])
    top = all_max(top)
    for j in range(lane(), cols, lanes()):
        y[j] = exp_down(x[j] - top)
        total += y[j]
    total = all_sum(total) + least
    for j in range(lane(), cols, lanes()):
        y[j] *= (1.0 if w is None else w[j]) / total
    if sums is not None:
        sums[r] = log(total) / real(cols)


def sum_row(r, y, x, rows, cols):
    total = 0.0
    for j in range(lane(), cols, lanes()):
        total += x[j]
    y[r] = all_sum(total)


def zero_root_row(r, y, x, rows, cols):
    y[r] = 1.0 / sqrt(x[0] - x[0])


def sums_row(r, dx, total, g, x, rows, cols):
    for j in range(lane(), cols, lanes()):
        total[j] += g[r * cols + j] * x[r * cols + j]
        total[cols + j] += g[r * cols + j]
        if x[r * cols + j] > 0.0:  # a body may decide number by number
            dx[r * cols + j] = 2.0 * g[r * cols + j]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_row(on, dtype):
    x, w = numbers(4, 301, dtype=dtype), numbers(301, dtype=dtype)
    e = np.exp(x.astype(F8) - x.max(axis=1, keepdims=True).astype(F8))
    total = e.sum(axis=1, keepdims=True) + dtype.type(0.5)
    y, sums = on("row", [(x.size, dtype), (4, dtype)], [x, w], (dtype.type(0.5), 4, 301), softmax_row)
    close(y, (e * w / total).astype(dtype), 16)
    close(sums, (np.log(total[:, 0]) / 301).astype(dtype), 16)
    assert y.dtype == dtype
    y, _ = on("row", [(x.size, dtype), None], [x, None], (dtype.type(0), 4, 301), softmax_row)
    close(y, (e / e.sum(axis=1, keepdims=True)).astype(dtype), 16)
    (one,) = on("row", [(1, dtype)], [x], (1, 1), zero_root_row)
    assert one[0] == np.inf  # no ZeroDivisionError


@pytest.mark.parametrize("add", [False, True])
def test_row_sums(on, add):
    g, x = numbers(300, 7), np.abs(numbers(300, 7))
    old = numbers(7)
    for rows in (300, 0):
        dx, dw, db = on("row_sums", [(2100, F4), old, old], [g, x], (2, add, not add, rows, 7), sums_row)
        want = [[math.fsum(g[:rows, j].astype(F8) * x[:rows, j]) for j in range(7)], [math.fsum(g[:rows, j]) for j in range(7)]]
        close(dw, np.array(want[0], F4) + (old if add else 0), 16)
        close(db, np.array(want[1], F4) + (0 if add else old), 16)
    dx, dw, db = on("row_sums", [(2100, F4), None, None], [g, x], (2, False, False, 300, 7), sums_row)
    assert np.array_equal(dx, 2 * g.reshape(-1)) and dw is None and db is None


# ---- folds ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [*FLOATS, I4, I8], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 501, 1), (5, 1, 3), (0, 3, 2), (2, 3, 0)])
def test_folds(on, dtype, shape):
    x = (10 * numbers(*shape, dtype=F8)).astype(dtype)
    size = shape[0] * shape[2]
    (y,) = on("fold_sum", [(size, dtype)], [x], (*shape, dtype.type(3)), squared)
    want = 3 * (x.astype(F8 if dtype.kind == "f" else I8) ** 2).sum(axis=1)
    close(y.astype(F8) if dtype.kind == "i" else y, want)
    for scale, extreme, place in ((1, np.max, np.argmax), (-1, np.min, np.argmin)):
        (y,) = on("fold_max", [(size, dtype)], [x], (*shape, dtype.type(scale)))
        assert np.array_equal(y.reshape(shape[0], shape[2]), extreme(x, axis=1))
        (at,) = on("argmax", [(size, I8)], [x], (*shape, dtype.type(scale)), dtype=dtype)
        assert np.array_equal(at.reshape(shape[0], shape[2]), place(x, axis=1))


def test_fold_edges(on):
    assert on("fold_sum", [(2, F4)], [numbers(0)], (2, 0, 1, np.float32(1)), itself)[0].tolist() == [0, 0]
    x = np.array([1, np.nan, 5, np.nan], F4)
    for scale in (1, -1):
        assert np.isnan(on("fold_max", [(1, F4)], [x], (1, 4, 1, np.float32(scale)))[0][0])
        assert on("argmax", [(1, I8)], [x], (1, 4, 1, np.float32(scale)), dtype=F4)[0][0] == 1
    for name, out in (("fold_max", F4), ("argmax", I8)):
        assert on(name, [(0, out)], [x[:0]], (2, 0, 0, np.float32(1)), dtype=F4)[0].size == 0
    # One after the other in float32 they add up to 2000.99; the plain device sums in float64, the CPU in float32, block by block.
    many, ulps = np.full(2 * 20_001, 0.1, F4), 8 if on.device == "plain" else 128
    close(on("fold_sum", [(2, F4)], [many], (1, 20_001, 2, np.float32(1)), itself)[0], [20_001 * float(many[0])] * 2, ulps)
    close(on("row", [(1, F4)], [many], (1, 20_001), sum_row)[0], [20_001 * float(many[0])], ulps)
    losses = numbers(9)
    for mean in (True, False):
        (loss,) = on("batch_loss", [(1, F4)], [losses, np.array([-1, 0, 4])], (mean,))
        close(loss, [math.fsum(losses) / (4 if mean else 1)])
    assert np.isnan(on("batch_loss", [(1, F4)], [0 * losses, np.zeros(3, I8)], (True,))[0][0])


# ---- products --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("m, n, k", [(3, 5, 7), (1, 1, 1), (0, 4, 2), (4, 2, 0)])
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_matmul(on, dtype, m, n, k, ta, tb):
    a, b = numbers(2, m, k, dtype=dtype), numbers(3, k, n, dtype=dtype)
    stored = [a.swapaxes(1, 2).copy() if ta else a, b.swapaxes(1, 2).copy() if tb else b]
    which = ((0, 2), (1, 0), (1, 1))  # which matrices are multiplied
    starts = tuple(i * m * k for i, _ in which), tuple(j * k * n for _, j in which)
    (c,) = on("matmul", [(3 * m * n, dtype)], stored, (*starts, m, n, k, ta, tb))
    close(c, [np.einsum("ij,jk->ik", a[i], b[j]) for i, j in which], 16)


def cubed(z):
    return z * z * z


def cubed_dz(g, z):
    return 3.0 * g * z * z


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("formula", [None, cubed])
@pytest.mark.parametrize("extras", [False, True])
def test_linear(on, flip, formula, extras):
    """What is kept belongs to an activation; its result is kept apart only where a residual is added to it."""
    for rows, n, k in ((6, 5, 4), (0, 3, 2), (2, 3, 0)):
        given, z, f, residual = layer(rows, n, k, flip, formula, extras)
        outs = [(rows * n, F4), (rows * n, F4) if formula else None]
        for keeps_result in (False, True) if extras else (False,):
            y, kept = on("linear", outs, given, (rows, n, k, flip, keeps_result, F4), formula)
            close(y, f + (residual if extras else 0), 32)
            assert kept is None if formula is None else close(kept, f if keeps_result else z, 32) is None
        assert np.array_equal(on("linear", [outs[0], None], given, (rows, n, k, flip, False, F4), formula)[0], y)


def layer(rows, n, k, flip, formula, extras):
    x, w, bias, residual = numbers(rows, k), numbers(n, k), numbers(n), numbers(rows, n)
    z = np.einsum("rk,nk->rn", x.astype(F8), w) + (bias if extras else 0)
    given = [x, w.T.copy() if flip else w, bias if extras else None, residual if extras else None]
    return given, z, z if formula is None else z**3, residual


def test_linear_gradients(on):
    for rows, n, k in ((6, 5, 4), (0, 5, 4)):
        g, kept, w, x, dw0, db0 = numbers(rows, n), numbers(rows, n), numbers(n, k), numbers(rows, k), numbers(n, k), numbers(n)
        dx, dz = on("linear_dx", [(rows * k, F4), (rows * n, F4)], [g, kept, w], (rows, n, k, F4), cubed_dz)
        close(dz, 3 * g * kept**2)
        close(dx, np.einsum("rn,nk->rk", 3 * g * kept**2, w), 32)
        for add_w, add_b in ((True, False), (False, True)):
            dw, db = on("linear_dw", [dw0, db0], [g, x], (rows, n, k, add_w, add_b))
            close(dw, np.einsum("rn,rk->nk", g, x) + add_w * dw0, 32)
            close(db, g.sum(axis=0) + add_b * db0, 32)
        assert on("linear_dw", [dw0, None], [g, x], (rows, n, k, False, False))[1] is None
