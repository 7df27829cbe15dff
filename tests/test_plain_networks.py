"""Attention, convolution and pooling against NumPy: einsum over all scores, sliding windows of padded images."""

from __future__ import annotations

import numpy as np
import pytest
from launches import F4, F8, I8, ON, close, numbers
from numpy.lib.stride_tricks import sliding_window_view

pytestmark = ON


# ---- attention: q, k and v in one buffer, the gradient of the mask, rows that see nothing -------------------------------------------
def attention_oracle(q, k, v, mask, scale, is_causal):
    s = np.einsum("bhid,bhjd->bhij", q, k) * scale + (0 if mask is None else mask)
    if is_causal:
        s = np.where(np.arange(k.shape[2]) <= np.arange(q.shape[2])[:, None], s, -np.inf)
    e = np.exp(s - np.maximum(s.max(axis=-1, keepdims=True, initial=-np.inf), -1e300))
    p = e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-300)
    return s, p, np.einsum("bhij,bhjd->bhid", p, v)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention(on, is_causal, masked):
    b, h, n, d = 2, 3, 5, 4
    qkv = numbers(b, n, 3, h, d)
    q, k, v = (qkv[:, :, i].swapaxes(1, 2).astype(F8) for i in range(3))  # (b, h, n, d)
    mask = numbers(h, n) if masked else None  # for each head and key
    if masked:
        mask[1] = -np.inf
    wide, scale = (None if mask is None else mask[None, :, None].astype(F8)), 0.5
    own = [(i * h * d, 3 * n * h * d, d, 3 * h * d) for i in range(3)]
    layout = (*own[0], *own[1], *own[2], 0, n * h * d, d, h * d, *((3, 0, n, 0, 1) if masked else ()))
    sizes, consts = (b, h, n, n, d, d), (np.float32(scale), is_causal)
    s, p, want = attention_oracle(q, k, v, wide, scale, is_causal)
    where = on.device
    packed, keys, y, kept = (
        where.upload(qkv),
        None if mask is None else where.upload(np.append(numbers(3), mask)),
        *(where.empty(z, F4) for z in (b * n * h * d, 2 * b * h * n)),
    )
    where.launch("attention", None, [y, kept], [packed, packed, packed, keys], (layout, sizes, *consts), F4)
    close(where.download(y), want.swapaxes(1, 2), 16)
    top = np.where(np.isinf(s.max(axis=-1)), 0, s.max(axis=-1))
    total = np.exp(s - top[..., None]).sum(axis=-1)
    close(where.download(kept), np.stack([top, np.where(total == 0, 0, 1 / np.where(total == 0, 1, total))]).reshape(-1), 16)
    g = numbers(b, h, n, d)
    ds = p * (np.einsum("bhid,bhjd->bhij", g, v) - (g * want).sum(axis=-1, keepdims=True))
    grads, dmask = where.empty(qkv.size, F4), where.empty(b * h * n * n, F4) if masked else None
    ins = [where.upload(g.swapaxes(1, 2)), y, kept, packed, packed, packed, keys]
    where.launch("attention_dx", None, [grads, grads, grads, dmask], ins, (layout, sizes, *consts), F4)
    dqkv = where.download(grads).reshape(qkv.shape)
    for i, (rule, other, factor) in enumerate((("bhij,bhjd->bihd", k, scale), ("bhji,bhjd->bihd", q, scale))):
        close(dqkv[:, :, i], factor * np.einsum(rule, ds, other), 64)
    close(dqkv[:, :, 2], np.einsum("bhji,bhjd->bihd", p, g), 64)
    if masked:
        close(where.download(dmask), ds, 64)


# ---- convolution and pooling: (n, c, h, w, o, groups), window, steps, padding, dilation -------------------------------------------
CONVS = [
    ((2, 4, 7, 6, 6, 2), (3, 2), (2, 1), (1, 0), (1, 2)),
    ((1, 3, 5, 5, 2, 1), (1, 1), (1, 1), (0, 0), (1, 1)),
    ((2, 3, 6, 4, 3, 3), (2, 3), (1, 3), (2, 1), (2, 1)),
    ((0, 2, 4, 4, 2, 1), (3, 3), (1, 1), (1, 1), (1, 1)),
]


def result_size(size, window, step, padding, dilation=1):
    return (size + 2 * padding - dilation * (window - 1) - 1) // step + 1


def seen(x, window, steps, padding, dilation=(1, 1), fill=0.0):
    """(n, c, rows, columns, kh, kw)"""
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2), constant_values=fill)
    reach = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]
    views = sliding_window_view(x, reach, axis=(2, 3))
    return views[:, :, :: steps[0], :: steps[1], :: dilation[0], :: dilation[1]]


@pytest.mark.parametrize("case", CONVS, ids=str)
@pytest.mark.parametrize("with_bias", [False, True])
def test_conv2d(on, case, with_bias):
    (n, c, h, w, o, groups), window, steps, padding, dilation = case
    area = [result_size(*size) for size in zip((h, w), window, steps, padding, dilation, strict=True)]
    x, weight, b = numbers(n, c, h, w), numbers(o, c // groups, *window), numbers(o)
    sizes = (n, c, h, w, o, groups, *window, *steps, *padding, *dilation, *area)
    g = numbers(n, o, *area)

    def conv(x, weight):
        """In float64, group by group."""
        views = seen(x.astype(F8), window, steps, padding, dilation)
        parts = zip(np.split(views, groups, axis=1), np.split(weight, groups), strict=True)
        return np.concatenate([np.einsum("ncrsij,ocij->nors", v, k) for v, k in parts], axis=1)

    (y,) = on("conv2d", [(g.size, F4)], [x, weight, b if with_bias else None], (sizes,))
    close(y, conv(x, weight) + with_bias * b[:, None, None], 32)
    # A convolution is linear in x and in w: the gradient in a direction is the product with the result for that direction.
    (dx,) = on("conv2d_dx", [(x.size, F4)], [g, weight], (sizes,))
    dw, db = on("conv2d_dw", [(weight.size, F4), (o, F4) if with_bias else None], [g, x], (sizes,))
    units = np.eye(weight.size).reshape(-1, *weight.shape)
    close(dw, np.array([(g * conv(x, unit)).sum() for unit in units]), 64)
    units = np.eye(x.size).reshape(x.size, *x.shape)
    close(dx, np.array([(g * conv(unit, weight)).sum() for unit in units]), 64)
    assert db is None if not with_bias else close(db, g.sum(axis=(0, 2, 3)), 32) is None


POOLS = [
    ((2, 7, 5), (3, 2), (2, 2), (1, 1)),
    ((3, 4, 4), (2, 2), (2, 2), (0, 0)),
    ((1, 5, 6), (4, 3), (1, 2), (2, 0)),
    ((0, 4, 4), (2, 2), (1, 1), (0, 0)),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
def test_pools(on, case):
    (planes, h, w), window, steps, padding = case
    area = [result_size(*size) for size in zip((h, w), window, steps, padding, strict=True)]
    sizes = (planes, h, w, *window, *steps, *padding, *area)
    x = np.round(numbers(planes, h, w))  # with many equal numbers
    x[:1, 0, 0], x[:1, -1, -2:], x[1:2] = -np.inf, np.nan, -np.inf
    pixels = np.arange(h * w, dtype=F8).reshape(1, 1, h, w)
    views, at = (seen(v, window, steps, padding, fill=np.nan).reshape(-1, *area, window[0] * window[1]) for v in (x[None], pixels))
    volumes = [(1, h, w), (1, *window), (1, *steps), (0, *padding), (1, 1, 1), (1, *area)]
    volumes = (planes, *[n for each in volumes for n in each])
    where, y = on("max_pool", [(planes * area[0] * area[1], k) for k in (I8, F4)], [x], (volumes,))
    y, where = y.reshape(planes, *area), where.reshape(planes, *area)
    for p, r, s in np.ndindex(y.shape):
        inside = ~np.isnan(at[0, r, s])
        v, places = views[p, r, s][inside].tolist(), at[0, r, s][inside]
        nans = [i for i, number in enumerate(v) if number != number]
        want = nans[-1] if nans else v.index(max(v))
        assert where[p, r, s] == places[want] and np.array_equal(y[p, r, s], v[want], equal_nan=True)
    g = numbers(planes, *area)
    (dx,) = on("max_pool_dx", [(x.size, F4)], [g, where], (volumes,))
    want = np.zeros((planes, h * w))
    np.add.at(want, (np.arange(planes)[:, None, None], where), g)
    close(dx, want, 4)
    x = numbers(planes, h, w)
    (y,) = on("avg_pool2d", [(g.size, F4)], [x], (sizes,))
    close(y, seen(x[None].astype(F8), window, steps, padding)[0].mean(axis=(-2, -1)))
