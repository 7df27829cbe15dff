"""The loops of attention, compared as in test_kernels_custom.py.

May import: flamepy.backend, NumPy, PyTorch if it is there. FLAME counterpart: none.
Read next: test_kernels_conv.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_kernels_custom import F32, F64, PLAIN, WAYS, Array, blank, close, draw, run, same_bits, table

from flamepy.backend import plans
from flamepy.backend.cpu import attention


def attention_numpy(q: Array, k: Array, v: Array, mask: Any, is_causal: bool, scale: float, g: Array) -> tuple:
    """(y, p, dq, dk, dv, ds) in float64; a row without keys is zero."""
    s = scale * q @ k.swapaxes(-1, -2)
    s = s if mask is None else s + mask
    s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf) if is_causal else s
    best = s.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isfinite(best), best, 0.0))
    p = e / np.where(e.sum(-1, keepdims=True) > 0, e.sum(-1, keepdims=True), 1.0)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return p @ v, p, scale * ds @ k, scale * ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g, ds


def call_attention(way: Any, q: Array, k: Array, v: Array, mask: Any, is_causal: bool, scale: float, g: Array) -> list:
    """Contiguous (B, H, T, D) operands; returns what attention_numpy does."""
    (B, H, L, D), S, E, dtype = q.shape, k.shape[2], v.shape[3], way[0]
    q, k, v, g = (x.astype(dtype) for x in (q, k, v, g))
    y, p = blank(B, H, L, E, dtype=dtype), blank(B, H, L, S, dtype=dtype)
    where = [plans.heads_layout(H, n, width) for n, width in ((L, D), (S, D), (S, E), (L, E))]
    flat = np.zeros(0, dtype) if mask is None else mask.astype(dtype)
    steps = [0] * 4
    if mask is not None:  # a step of 0 along every broadcast axis
        steps = [0 if n == 1 else s // 8 for n, s in zip(mask.shape, mask.strides, strict=True)]
    forward = table(*where[0], *where[1], *where[2], *where[3], 0, *steps)
    run(
        attention.attention,
        way,
        y,
        p,
        q,
        k,
        v,
        flat,
        forward,
        B,
        H,
        L,
        S,
        D,
        E,
        scale,
        is_causal,
        mask is not None,
    )
    dq, dk, dv = (blank(*x.shape, dtype=dtype) for x in (q, k, v))
    backward = table(*where[0], *where[1], *where[2], *where[3], *where[0], *where[1], *where[2])
    for keep in (False, True):
        ds = blank(plans.attention_scratch(B, H, L, S, keep), dtype=dtype)
        run(
            attention.attention_dx,
            way,
            dq,
            dk,
            dv,
            ds,
            g,
            p,
            q,
            k,
            v,
            backward,
            B,
            H,
            L,
            S,
            D,
            E,
            scale,
            is_causal,
            keep,
        )
    return [y, p, dq, dk, dv, ds]


SHAPES = [
    (2, 3, 5, 5, 4, 4),
    (1, 2, 3, 7, 4, 6),
    (2, 1, 9, 4, 3, 5),
    (1, 2, 150, 150, 8, 8),
    (2, 2, 1, 1, 1, 1),
    (1, 1, 70, 130, 5, 3),
]


def operands(B: int, H: int, L: int, S: int, D: int, E: int) -> tuple:
    return draw(B, H, L, D), draw(B, H, S, D, seed=1), draw(B, H, S, E, seed=2), draw(B, H, L, E, seed=3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", ["", "full", "row", "keys"])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention(way: Any, is_causal: bool, masked: str, shape: Any) -> None:
    B, H, L, S, _, _ = shape
    q, k, v, g = operands(*shape)
    mask = {"": None, "full": draw(B, H, L, S), "row": draw(1, 1, L, S), "keys": draw(B, 1, 1, S)}[masked]
    if masked == "row":
        mask = np.where(mask > 0.0, 0.0, -np.inf)
        mask[0, 0, L // 2] = -np.inf
    want = attention_numpy(q, k, v, mask, is_causal, 0.3, g)
    for got, wanted in zip(call_attention(way, q, k, v, mask, is_causal, 0.3, g), want, strict=True):
        close(got, wanted, way[0])


@pytest.mark.parametrize("shape", [(0, 2, 3, 3, 2, 2), (2, 2, 0, 3, 2, 2), (2, 2, 3, 0, 2, 2), (1, 1, 2, 2, 0, 2)])
def test_attention_zero_sizes(shape: Any) -> None:
    q, k, v, g = operands(*shape)
    want = attention_numpy(q, k, v, None, False, 0.5, g)
    for got, wanted in zip(call_attention(WAYS[0], q, k, v, None, False, 0.5, g), want, strict=True):
        close(got, wanted, F32)


@pytest.mark.parametrize("way", WAYS)
def test_attention_on_a_fused_buffer(way: Any) -> None:
    B, H, T, D, dtype = 2, 3, 70, 4, way[0]
    qkv, g = draw(B, T, 3, H, D, dtype=dtype), draw(B, T, H, D, dtype=dtype, seed=1)
    y, p, dqkv = (
        blank(B, T, H, D, dtype=dtype),
        blank(B, H, T, T, dtype=dtype),
        blank(B, T, 3, H, D, dtype=dtype),
    )
    parts = [n for part in range(3) for n in plans.fused_layout(H, T, D, 3, part)]
    out = plans.fused_layout(H, T, D, 1)
    layout = table(*parts, *out, 0, 0, 0, 0, 0)
    run(attention.attention, way, y, p, qkv, qkv, qkv, qkv, layout, B, H, T, T, D, D, 0.5, True, False)
    layout, ds = table(*parts, *out, *parts), blank(plans.attention_scratch(B, H, T, T, False), dtype=dtype)
    run(
        attention.attention_dx,
        way,
        dqkv,
        dqkv,
        dqkv,
        ds,
        g,
        p,
        qkv,
        qkv,
        qkv,
        layout,
        B,
        H,
        T,
        T,
        D,
        D,
        0.5,
        True,
        False,
    )
    q, k, v = (qkv[:, :, i].swapaxes(1, 2).astype(F64) for i in range(3))
    want = attention_numpy(q, k, v, None, True, 0.5, g.swapaxes(1, 2).astype(F64))
    close(y.swapaxes(1, 2), want[0], dtype)
    for i in range(3):
        close(dqkv[:, :, i].swapaxes(1, 2), want[2 + i], dtype)


def test_attention_matches_torch_where_rows_are_masked_or_not_finite() -> None:
    torch = pytest.importorskip("torch")
    q, k, v, g = operands(1, 1, 4, 5, 3, 3)
    k[0, 0, 1, 0], q[0, 0, 3, 0] = np.nan, np.inf
    for column in (slice(None), [1]):  # rows fully masked; only the NaN masked
        mask = np.zeros((1, 1, 4, 5))
        mask[0, 0, :2, column] = -np.inf
        want = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)), torch.tensor(mask))
        close(call_attention(WAYS[1], q, k, v, mask, False, 1 / math.sqrt(3), g)[0], want.numpy(), F64)


def test_loops_run_uncompiled() -> None:
    q, k, v, g = operands(1, 2, 3, 4, 2, 3)
    for one, two in zip(
        call_attention(PLAIN, q, k, v, None, True, 0.3, g),
        call_attention(WAYS[1], q, k, v, None, True, 0.3, g),
        strict=True,
    ):
        close(one, two, F64)


def test_attention_bits() -> None:
    same_bits(lambda way: call_attention(way, *operands(2, 3, 150, 130, 8, 5)[:3], None, True, 0.3, draw(2, 3, 150, 5)))
