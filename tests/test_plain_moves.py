"""Moving elements, random numbers, norms and updates against NumPy's views and add.at, and Philox as published.

Read next: flamepy/backend/plain/kernels.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from launches import B1, F4, F8, FLOATS, I8, ON, close, numbers
from reference import philox

from flamepy.backend.formula.words import abs, pow

pytestmark = ON


# ---- moving elements ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [F4, I8, B1], ids=str)
def test_strided(on, dtype):
    x = numbers(4, 5, 6).astype(dtype)
    for view in (x, x.transpose(2, 0, 1), x[1:3, ::-2, 5:1:-3], x[::-1, 2], x[:, :0], np.broadcast_to(x[0, :, 1], (3, 5)), x[1, 2, 3, ...]):
        strides = tuple(s // dtype.itemsize for s in view.strides)
        base = (view.__array_interface__["data"][0] - x.__array_interface__["data"][0]) // dtype.itemsize
        (y,) = on("strided_get", [(view.size, dtype)], [x], (view.shape, strides, base))
        assert np.array_equal(y.reshape(view.shape), view)
        if 0 not in strides:
            want, new = x.copy(), (10 * numbers(view.size)).astype(dtype)
            (y,) = on("strided_put", [x], [new], (view.shape, strides, base))
            want[...] = x
            np.lib.stride_tricks.as_strided(want.reshape(-1)[base:], view.shape, view.strides)[...] = new.reshape(view.shape)
            assert np.array_equal(y.reshape(x.shape), want)


def test_rows_by_index(on):
    x, index = numbers(5, 3), np.array([4, 0, 4, 4, 2, 0])
    assert np.array_equal(on("take_rows", [(18, F4)], [x, index], (3,))[0].reshape(6, 3), np.take(x, index, axis=0))
    assert np.array_equal(on("take_rows", [(6, F4)], [x, np.array([9, -9])], (3,))[0].reshape(2, 3), x[[4, 0]])
    g = numbers(6, 3)
    for add in (False, True):
        want = add * x
        np.add.at(want, index, g)
        close(on("add_rows", [x], [g, index], (3, add))[0], want, 2)
    assert not on("add_rows", [x], [g[:0], index[:0]], (3, False))[0].any()
    for name, consts in (("take_rows", (0,)), ("take_rows", (3,)), ("add_rows", (0, False)), ("add_rows", (3, True))):
        assert on(name, [(0, F4)], [x[:0], index[:0]], consts)[0].size == 0


def test_check_and_place_ids(on):
    ids = np.array([3, -100, 0, 7, -1])
    assert on("check_ids", [(3, I8)], [ids], (-1, 8, True, -100))[0].tolist() == [-1, 0, 4]
    assert on("check_ids", [(3, I8)], [ids], (0, 7, True, -100))[0].tolist() == [3, 7, 4]
    assert on("check_ids", [(3, I8)], [ids], (0, 8, False, 0))[0].tolist() == [1, -100, 5]
    assert on("check_ids", [(3, I8)], [ids[:0]], (0, 8, False, 0))[0].tolist() == [-1, 0, 0]
    # Two blocks of 30 elements, each with the ids 2, -1 (which is 4) and 9 (which is too large, 4) in steps of 6.
    (out,) = on("place_ids", [(6, I8)], [np.array([2, -1, 9])], ((2, 3), (30, 1), 5, 6))
    assert out.tolist() == [0 + 12, 1 + 24, 2 + 24, 30 + 12, 31 + 24, 32 + 24]


# ---- random numbers --------------------------------------------------------------------------------------------------------------
SEED = 0x0123456789ABCDEF
KEY = np.array([SEED, 5, 9])


def words(blocks):
    return np.array([philox([i, 0, 5, 9], [SEED % 2**32, SEED >> 32]) for i in range(blocks)], np.uint64).reshape(-1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 6, 403])
def test_random(on, dtype, n):
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's first vector
    w = words(n)
    u = (w >> 8) / 2**24 if dtype == F4 else (((w[::2] >> 5) << 26) | (w[1::2] >> 6)) / 2**53
    (got,) = on("philox_uniform", [(n, dtype)], [KEY], (dtype.type(-1), dtype.type(1)))
    assert got.tolist() == [2 * x - 1 for x in u[:n].tolist()]
    radius, turn = np.sqrt(-2 * np.log(u[::2] + 2.0 ** (-24 if dtype == F4 else -53))), 2 * np.pi * u[1::2]
    normal = np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1).reshape(-1)[:n]
    (got,) = on("philox_normal", [(n, dtype)], [KEY], (dtype.type(3), dtype.type(2)))
    close(got, 3 + 2 * normal, 8)
    x = numbers(n, dtype=dtype)
    y, mask = on("philox_dropout", [(n, dtype), (n, B1)], [x, KEY], (dtype.type(0.25), dtype.type(4 / 3)))
    assert np.array_equal(mask, (w[:n] >> 8) / 2**24 >= 0.25)
    assert np.array_equal(y, np.where(mask, x * dtype.type(4 / 3), 0))


# ---- norms and updates -------------------------------------------------------------------------------------------------------------
def power(x, p):
    return pow(abs(x), p)


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, 3.0])
def test_norm_and_scale(on, order):
    a, b = numbers(50), numbers(0, dtype=F8)
    c = 3 * numbers(7, dtype=F8)
    both = np.abs(np.concatenate([a, c]))
    want = both.max() if order == 0 else (both**order).sum() ** (1 / order)
    formula, numbers_of = (abs, ()) if order == 0 else (power, (order,))

    def found(limit, other, before=1.0, bad=None):
        d = c if bad is None else np.append(c, bad)
        consts = (order, limit, other, *numbers_of)
        return on("norm", [(2, F8)], [np.array([SECRET_NORM, before]), a, b, d], consts, formula)[0]

    close(found(0.0, 0.0), [want, 1], 16)
    close(found(want * 2, 0.0), [want, 1], 16)
    close(found(want / 2, 0.0), [want, want / 2 / (want + 1e-6)], 16)
    close(found(want / 8, 0.0, 0.5), [want / 2, 0.5 * (want / 8) / (want / 2 + 1e-6)], 16)
    assert np.array_equal(found(1.0, 0.0, 0.5, np.nan), [np.nan, 0], equal_nan=True)
    assert np.array_equal(found(1.0, 1.0, 0.5, -np.inf), [np.inf, 0.5])
    assert np.array_equal(found(1.0, 1.0, 0.0, np.nan), [0, 0])
    x = np.array([1.5, np.nan, np.inf], F4)
    for factor in (1.0, 0.5, 0.0):
        want = [1.5 * factor, np.nan * factor if factor else 0, np.inf if factor else 0]
        assert np.array_equal(on("scale", [x], [np.array([9.0, factor])])[0], want, equal_nan=True)


SECRET_NORM = -5.0  # the norm of an earlier clipping is not read


def momentum(p, m, g, lr, mu, c2, c3, c4, c5, c6, c7):
    m = mu * m + g + c7
    return p - lr * m, m


def descent(p, g, lr, c1, c2, c3, c4, c5, c6, c7):
    return p - lr * g


@pytest.mark.parametrize("factor", [1.0, 0.25, 0.0])
def test_update(on, factor):
    p, m, g, hyper = numbers(10), numbers(10), numbers(10), numbers(16)
    g[2] = np.inf if factor == 0 else 1
    step = np.where(factor == 0, 0, g * np.float32(factor if factor else 1))
    new_p, new_m, plain = p.copy(), m.copy(), p.copy()
    for at, h in ((slice(0, 3), hyper[:8]), (slice(6, 10), hyper[8:])):
        new_m[at] = h[1] * m[at] + step[at] + h[7]
        new_p[at] = p[at] - h[0] * new_m[at]
        plain[at] = p[at] - h[0] * step[at]
    ins, segments = [g, np.array([1.0, factor]), hyper], (((0, 3), (6, 4)),)
    got = on("update", [p, m], ins, segments, momentum)
    close(got[0], new_p, 4)
    close(got[1], new_m, 4)
    close(on("update", [p], ins, segments, descent)[0], plain, 4)
