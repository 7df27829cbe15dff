"""Moving elements, random numbers, norms and updates against NumPy's views and add.at, and Philox as published."""

from __future__ import annotations

import numpy as np
import pytest
from launches import B1, F4, F8, FLOATS, I8, ON, close, numbers
from reference import philox

from flamepy.core.words import abs, pow
from flamepy.ops.scattering import latest

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


def test_numbers_along_an_axis(on):
    x, g = numbers(2, 4, 3), numbers(2, 5, 3)
    ids = np.array([3, -1, 0, 7, -9] * 6).reshape(2, 5, 3)  # 7 and -9 are wrong: they do no harm
    right = ids % 4 * (abs(ids) < 7) + 3 * (ids == 7)
    y = on("take_along", [(30, F4)], [x, ids], (4, 5, 3))[0].reshape(2, 5, 3)
    assert np.array_equal(y[ids != -9], np.take_along_axis(x, right, 1)[ids != -9])
    ids = np.where(ids == -9, -2, ids)
    right = np.where(ids < 0, ids + 4, np.minimum(ids, 3))
    for add in (False, True):
        want = add * x
        np.add.at(want, (np.arange(2)[:, None, None], right, np.arange(3)), g)
        close(on("add_along", [x], [g, ids], (4, 5, 3, add))[0], want, 2)
    put = x.copy()
    for j in range(5):  # of several the last one counts
        np.put_along_axis(put, right[:, j : j + 1], g[:, j : j + 1], 1)
    assert np.array_equal(on("put_along", [(24, F4)], [x, g, ids], (4, 5, 3, 0), latest)[0].reshape(2, 4, 3), put)
    for order in (1, -1):
        want, before = x.copy(), np.empty_like(g)
        for j in range(5)[::order]:
            before[:, j : j + 1] = now = np.take_along_axis(want, right[:, j : j + 1], 1)
            np.put_along_axis(want, right[:, j : j + 1], now * g[:, j : j + 1] + 2, 1)
        got = on("recur_along", [(24, F4), (30, F4)], [x, g, 2 + 0 * g, ids], (4, 5, 3, order < 0))
        close(got[0], want, 2)
        close(got[1], before, 2)
    one = np.array([1, -1, 1])  # the same for each line
    assert np.array_equal(on("take_along", [(18, F4)], [x, one], (4, 3, 1))[0].reshape(6, 3), x.reshape(6, 4)[:, one])
    want = np.zeros((6, 4), F4)
    np.add.at(want, (slice(None), one), x.reshape(6, 4)[:, :3])
    close(on("add_along", [x], [x.reshape(6, 4)[:, :3], one], (4, 3, 1, False))[0], want, 2)
    assert not on("add_along", [x], [g[:0], ids[:0]], (4, 0, 3, False))[0].any()


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


OLD = -5.0  # the norm of an earlier clipping is not read
MARK = np.array([OLD, OLD, 1.0, OLD])


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, 3.0])
def test_norm(on, order):
    """(norm, factor, whether to use them, factor of this clipping, the norm of each segment), of segments and of whole buffers."""
    a, b = numbers(50), numbers(0, dtype=F8)
    c = 3 * numbers(7, dtype=F8)
    formula, numbers_of = (abs, ()) if order == 0 else (power, (order,))

    def norm_of(x):
        x = np.abs(x).astype(F8)
        return x.max(initial=0) if order == 0 else (x**order).sum() ** (1 / order)

    def found(limit, other, before=1.0, bad=None, mark=1.0, keep=1.0):
        d = c if bad is None else np.append(c, bad)
        segments = ((5, 20), (40, 10)), ((0, 0),), ((0, d.size),)
        consts = (segments, order, limit, other, keep, *numbers_of)
        ins = [np.array([OLD, before, OLD, OLD]), np.array([OLD, OLD, mark, OLD]), a, b, d]
        return on("norm", [(4 + 4, F8)], ins, consts, formula)[0]

    parts = [norm_of(a[5:25]), norm_of(a[40:]), 0, norm_of(c)]
    want = norm_of(np.concatenate([a[5:25], a[40:], c]))
    close(found(0.0, 0.0), [want, 1, 1, 1, *parts], 16)
    close(found(want * 2, 0.0), [want, 1, 1, 1, *parts], 16)
    close(found(want / 2, 0.0), [want, want / 2 / (want + 1e-6), 1, want / 2 / (want + 1e-6), *parts], 16)
    own = (want / 8) / (want / 2 + 1e-6)
    close(found(want / 8, 0.0, 0.5, mark=0.0), [want / 2, 0.5 * own, 0, own, *(np.array(parts) / 2)], 16)
    close(found(1.0, 0.0, 0.5, np.nan)[[0, 1, 2, 3, 7]], [np.nan, 0, 1, 0, np.nan])
    close(found(1.0, 1.0, 0.5, -np.inf, keep=0.0)[[0, 1, 2, 3, 7]], [np.inf, 0.5, 0, 1, np.inf])
    close(found(0.0, 1.0, 0.5, -np.inf, keep=0.0)[:4], [np.inf, 0.5, 1, 1])  # no limit: nothing is marked
    close(found(1.0, 1.0, 0.0, np.nan), [0, 0, 1, 1, 0, 0, 0, 0])


def test_limits(on):
    """The factor of a norm that was measured: (limit, most, what is multiplied besides)."""
    for norm, limits, want in (
        (4.0, (2.0, np.nan, 1.0), [4, 0.5 * 2 / (4 + 1e-6), 1, 2 / (4 + 1e-6)]), (4.0, (0.0, 4.0, 0.25), [4, 0.125, 1, 0.25]),
        (4.0, (8.0, 3.9, 1.0), [4, 0.5, 0, 1]), (np.inf, (0.0, 1e300, 1.0), [np.inf, 0.5, 0, 1]),
        (np.nan, (0.0, np.nan, 1.0), [np.nan, 0.5, 1, 1]),
    ):  # fmt: skip
        found = np.array([norm, OLD, OLD, OLD, 7.0])
        close(on("limits", [found], [np.array(limits), np.array([OLD, 0.5, OLD, OLD]), MARK])[0], [*want, 7.0], 16)
    ends = on("limits", [np.array([1.0, 0, 0, 0])], [np.array([0.0, 9.0, 1.0]), np.array([0, 0.5, 0, 0]), np.array([0.0, 0, 0, 0])])[0]
    assert ends[2] == 0  # what was marked stays so


def test_scaler(on):
    """A good step, the step that doubles, an overflow, the floor; a scale that does not move."""
    for state, keep, interval, moves, want in (
        ([8, 1, 0], 1, 3, True, [8, 2, 0]), ([8, 2, 5], 1, 3, True, [16, 0, 5]), ([8, 2, 5], 0, 3, True, [4, 0, 6]),
        ([1, 2, 5], 0, 3, True, [1, 0, 6]), ([8, 2, 5], 1, 3, False, [8, 3, 5]), ([8, 2, 5], 0, 3, False, [8, 0, 6]),
    ):  # fmt: skip
        outs = [np.array(state, F8), np.array([0.0, 9.0, OLD]), np.array([OLD], F4)]
        got = on("scaler", outs, [np.array([OLD, OLD, keep, OLD])], (F8.type(interval), moves), dtype=F8)
        assert [x.tolist() for x in got] == [want, [0.0, 9.0, 1 / want[0]], [want[0]]]


def test_scale(on):
    x = np.array([1.5, np.nan, np.inf, 2.0], F4)
    for factor in (1.0, 0.5, 0.0):
        want = [1.5 * factor, np.nan * factor if factor else 0, np.inf if factor else 0, 2.0]
        assert np.array_equal(on("scale", [x], [np.array([9.0, factor])], (((0, 3),),))[0], want, equal_nan=True)
    y = numbers(40000)
    want = y.copy()
    want[:30000] *= F4.type(0.3)
    want[39000:] = 0
    assert np.array_equal(on("scale_each", [y], [np.array([0.3, 1.0, 0.0])], (((0, 30000), (30000, 9000), (39000, 1000)),))[0], want)


def test_center(on):
    """Rows of a segment lose their mean; what is in no segment stays."""
    x = numbers(40000) + 100
    want = x.astype(F8)
    for start, size, cols in (segments := ((10, 600, 6), (700, 33000, 11000), (39000, 7, 1))):
        rows = want[start : start + size].reshape(-1, cols)
        rows -= rows.mean(1, keepdims=True)
    got = on("center", [x], [], (segments,))[0]
    close(got, want, 2)
    assert np.array_equal(got[610:700], x[610:700]) and not got[39000:39007].any()


@pytest.mark.parametrize("dtype", [F4, F8])
@pytest.mark.parametrize("n", [0, 1, 3, 4, 4097])
def test_philox_add(on, n, dtype):
    x = numbers(n, dtype=dtype)
    drawn = on("philox_normal", [(n + 6, dtype)], [KEY], (dtype.type(0), dtype.type(1)))[0]
    for start in (0, 3, 6):
        found = on("philox_add", [x.copy()], [KEY, np.array([0.25])], (start,))[0]
        close(found, x + dtype.type(0.25) * drawn[start : start + n], 2)


def momentum(p, m, g, lr, mu, c2, c3, c4, c5, c6, c7, *_):
    m = mu * m + g + c7
    return p - lr * m, m


def descent(p, g, lr, *_):
    return p - lr * g


def three(p, a, b, c, g, lr, *rest):
    return p - lr * g, a + g, b - g, c + rest[10]


@pytest.mark.parametrize("factor", [1.0, 0.25, 0.0])
def test_update(on, factor):
    p, m, g, hyper = numbers(10), numbers(10), numbers(10), numbers(24)
    g[2] = np.inf if factor == 0 else 1
    step = np.where(factor == 0, 0, g * np.float32(factor if factor else 1))
    new_p, new_m, plain, last = p.copy(), m.copy(), p.copy(), m.copy()
    for at, h in ((slice(0, 3), hyper[:12]), (slice(6, 10), hyper[12:])):
        new_m[at] = h[1] * m[at] + step[at] + h[7]
        new_p[at] = p[at] - h[0] * new_m[at]
        plain[at] = p[at] - h[0] * step[at]
        last[at] = m[at] + h[11]
    ins, segments = [g, np.array([1.0, factor, 0.0]), MARK, hyper], (((0, 3), (6, 4)),)
    got = on("update", [p, m], ins, segments, momentum)
    close(got[0], new_p, 4)
    close(got[1], new_m, 4)
    close(on("update", [p], ins, segments, descent)[0], plain, 4)
    got = on("update", [p, m, m, m], ins, segments, three)
    close(got[0], plain, 4)
    close(got[3], last, 4)
    marked = [g, np.array([1.0, factor, 1.0]), np.array([OLD, OLD, 0.0, OLD]), hyper]
    assert all(np.array_equal(x, y) for x, y in zip(on("update", [p, m], marked, segments, momentum), (p, m), strict=True))
