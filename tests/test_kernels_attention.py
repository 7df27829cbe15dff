"""The loops of attention, compared as in test_kernels_custom.py: cut as attention_plan() says, and into odd little blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_kernels_custom import F32, F64, PLAIN, WAYS, Array, blank, close, draw, kernel, run, table

from flamepy.backend.cpu.attention import attention
from flamepy.backend.cpu.attention import rows as plans
from flamepy.backend.cpu.runtime.settings import most_threads
from flamepy.ops.attention import fused_layout, heads_layout


def attention_numpy(q: Array, k: Array, v: Array, mask: Any, is_causal: bool, scale: float, g: Array) -> list:
    """[y, (largest scores, 1 / sums), dq, dk, dv, ds] in float64; a row without keys is zero."""
    s = scale * q @ k.swapaxes(-1, -2)
    s = s if mask is None else s + mask
    s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf) if is_causal else s
    best = s.max(-1, keepdims=True, initial=-np.inf)
    best = np.where(np.isfinite(best), best, 0.0)
    e = np.exp(s - best)
    total = e.sum(-1, keepdims=True)
    p = e / np.where(total > 0, total, 1.0)
    kept = np.stack([best, np.where(total > 0, 1 / np.where(total > 0, total, 1.0), 0.0)])[..., 0]
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return [p @ v, kept, scale * ds @ k, scale * ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g, ds]


def cuts(sizes: tuple, is_causal: bool, cut: Any) -> list[plans.AttentionPlan]:
    """The plans of both passes; cut = (height, width, groups, chunks) overrides them."""
    found = [plans.attention_plan(sizes, is_causal, what) for what in ("y", "dx")]
    if cut is None:
        return found
    height, width, groups, chunks = cut
    B, H, _, S, D, E = sizes
    scratch, partial = groups * plans.attention_room(height, 2 * width, D, E), chunks * B * H * S * (D + E) if chunks > 1 else 0
    return [plans.AttentionPlan(height, width, groups, n, scratch, partial) for n in (1, chunks)]


def call_attention(
    way: Any, q: Array, k: Array, v: Array, mask: Any, is_causal: bool, scale: float, g: Array, cut: Any = None, launch: Any = run
) -> list:
    """Contiguous (B, H, T, D) operands; returns what attention_numpy does."""
    (B, H, L, D), S, E, dtype = q.shape, k.shape[2], v.shape[3], way[0]
    sizes, has_mask = (B, H, L, S, D, E), mask is not None
    q, k, v, g = (x.astype(dtype) for x in (q, k, v, g))
    forward, backward = cuts(sizes, is_causal, cut)
    where = [heads_layout(H, n, width) for n, width in ((L, D), (S, D), (S, E), (L, E))]
    flat, steps = g, [0] * 4
    if has_mask:  # a step of 0 along every broadcast axis
        flat, steps = mask.astype(dtype), [0 if n == 1 else s // 8 for n, s in zip(mask.shape, mask.strides, strict=True)]
    y, kept, scratch = (blank(*shape, dtype=dtype) for shape in ((B, H, L, E), (2, B, H, L), (forward.scratch,)))
    layout = table(*sum(where, ()), 0, *steps)
    how = forward.height, forward.width, forward.groups, is_causal, has_mask
    rows_y, rows_dx = attention.rows_y, attention.rows_dx
    launch(attention.attention, way, y, kept, scratch, y, q, k, v, flat, layout, *sizes, scale, *how, formula=rows_y)
    dq, dk, dv, dmask = (blank(*shape, dtype=dtype) for shape in (q.shape, k.shape, v.shape, (B, H, L, S)))
    scratch, partial = (blank(n, dtype=dtype) for n in (backward.scratch, backward.partial))
    parts = sum(where[1:3], ()) if backward.chunks == 1 else plans.partial_layout(H, S, D, E)
    outs = (dk, dv) if backward.chunks == 1 else (partial, partial)
    layout = table(*sum(where, ()), *where[0], *parts, 0, *steps)
    how = *backward[:4], backward.partial // backward.chunks, is_causal, has_mask
    ins = g, y, kept, q, k, v, flat, layout
    for keep in (True, False):  # without it dmask is left alone
        launch(attention.attention_dx, way, dq, *outs, dmask, scratch, scratch, *ins, *sizes, scale, *how, keep, formula=rows_dx)
    if backward.chunks > 1:
        layout = table(*sum(where[1:3], ()))
        launch(attention.attention_dx_sum, way, dk, dv, partial, layout, B, H, S, D, E, backward.chunks)
    return [y, kept, dq, dk, dv, dmask]


SHAPES = [
    (2, 3, 5, 5, 4, 4),
    (1, 2, 3, 7, 4, 6),
    (2, 1, 9, 4, 3, 5),
    (2, 4, 150, 150, 8, 8),
    (2, 2, 1, 1, 1, 1),
    (1, 1, 70, 130, 5, 3),
    (1, 1, 90, 600, 3, 2),
]
CUTS = [(4, 7, 3, 1), (5, 3, 1, 3), (3, 16, 5, 2), (1, 1, 2, 4)]  # height, width, groups, chunks


def operands(B: int, H: int, L: int, S: int, D: int, E: int) -> tuple:
    return draw(B, H, L, D), draw(B, H, S, D, seed=1), draw(B, H, S, E, seed=2), draw(B, H, L, E, seed=3)


def mask_of(kind: str, B: int, H: int, L: int, S: int) -> Any:
    """None, floats, floats broadcast from keys or rows, or 0 and -inf: with a masked row, or with masked blocks of keys."""
    if kind in ("", "full", "keys"):
        return {"": None, "full": draw(B, H, L, S), "keys": draw(B, 1, 1, S)}[kind]
    if kind == "rows":
        return draw(1, H, L, 1)
    mask = np.where(draw(1, 1, L, S) > 0.0, 0.0, -np.inf)
    mask[0, 0, L // 2] = -np.inf
    if kind == "blocks":
        mask[..., : S // 2] = -np.inf
        mask[..., L // 3 :, 3 * S // 4 :] = -np.inf
    return mask


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", ["", "full", "keys", "rows", "row", "blocks"])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention(way: Any, is_causal: bool, masked: str, shape: Any) -> None:
    q, k, v, g = operands(*shape)
    mask = mask_of(masked, *shape[:4])
    want = attention_numpy(q, k, v, mask, is_causal, 0.3, g)
    for got, wanted in zip(call_attention(way, q, k, v, mask, is_causal, 0.3, g), want, strict=True):
        close(got, wanted, way[0])


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", ["", "full", "row", "blocks"])
@pytest.mark.parametrize("shape", [(1, 3, 22, 37, 5, 3), (2, 1, 37, 22, 3, 5), (1, 1, 2, 9, 4, 4)])
def test_attention_in_odd_blocks(cut: Any, is_causal: bool, masked: str, shape: Any) -> None:
    q, k, v, g = operands(*shape)
    mask = mask_of(masked, *shape[:4])
    want = attention_numpy(q, k, v, mask, is_causal, 0.3, g)
    for got, wanted in zip(call_attention(WAYS[1], q, k, v, mask, is_causal, 0.3, g, cut), want, strict=True):
        close(got, wanted, F64)


@pytest.mark.parametrize("cut", [None, (4, 5, 2, 1)])
def test_large_scores_neither_overflow_nor_vanish(cut: Any) -> None:
    """The largest score of each block is far above, then far below that of the block before."""
    q, k, v, g = operands(1, 1, 6, 20, 1, 3)
    q[...], k[0, 0, :, 0] = 1.0, np.repeat([-500.0, 300.0, -900.0, 301.0], 5)
    want = attention_numpy(q, k, v, None, False, 1.0, g)
    for got, wanted in zip(call_attention((F32, 2), q, k, v, None, False, 1.0, g, cut)[:2], want, strict=False):
        close(got, wanted, F32)


@pytest.mark.parametrize("shape", [(0, 2, 3, 3, 2, 2), (2, 2, 0, 3, 2, 2), (2, 2, 3, 0, 2, 2), (1, 1, 2, 2, 0, 2), (9, 1, 0, 3, 2, 2)])
def test_attention_zero_sizes(shape: Any) -> None:
    q, k, v, g = operands(*shape)
    want = attention_numpy(q, k, v, None, False, 0.5, g)
    for got, wanted in zip(call_attention(WAYS[0], q, k, v, None, False, 0.5, g), want, strict=True):
        close(got, wanted, F32)


@pytest.mark.parametrize("way", WAYS)
def test_attention_on_a_fused_buffer(way: Any) -> None:
    B, H, T, D, dtype = 2, 4, 70, 4, way[0]
    qkv, g = draw(B, T, 3, H, D, dtype=dtype), draw(B, T, H, D, dtype=dtype, seed=1)
    forward, backward = cuts((B, H, T, T, D, D), True, None)
    y, kept, dqkv = blank(B, T, H, D, dtype=dtype), blank(2, B, H, T, dtype=dtype), blank(B, T, 3, H, D, dtype=dtype)
    parts, none = [n for part in range(3) for n in fused_layout(H, T, D, 3, part)], [0] * 5
    out, sizes = fused_layout(H, T, D, 1), (B, H, T, T, D, D)
    layout, scratch = table(*parts, *out, *none), blank(forward.scratch, dtype=dtype)
    given = y, kept, scratch, y, qkv, qkv, qkv, qkv, layout
    run(attention.attention, way, *given, *sizes, 0.5, *forward[:3], True, False, formula=attention.rows_y)
    layout, scratch = table(*parts, *out, *parts, *none), blank(backward.scratch, dtype=dtype)
    given = dqkv, dqkv, dqkv, scratch, scratch, scratch, g, y, kept, qkv, qkv, qkv, qkv, layout
    run(attention.attention_dx, way, *given, *sizes, 0.5, *backward[:4], 0, True, False, False, formula=attention.rows_dx)
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
        for cut in (None, (3, 2, 1, 1)):
            close(call_attention(WAYS[1], q, k, v, mask, False, 1 / math.sqrt(3), g, cut)[0], want.numpy(), F64)


@pytest.mark.parametrize("is_causal", [False, True])
def test_not_finite_rows_stay_alone(is_causal: bool) -> None:
    """A row with a NaN or an infinite score is NaN, in whatever block it stands; no other row is."""
    q, k, v, g = operands(1, 2, 40, 40, 3, 3)
    q[0, 0, 7, 0], q[0, 1, 30] = np.nan, np.inf
    for cut in (None, (8, 5, 2, 2)):
        y, kept, dq, *_ = call_attention(WAYS[1], q, k, v, None, is_causal, 0.5, g, cut)
        for x in (y, kept[1][..., None], dq):
            bad = np.isnan(x).any(-1)
            assert bad[0, 0, 7] and bad[0, 1, 30] and bad.sum() == 2


def test_loops_run_uncompiled() -> None:
    q, k, v, g = operands(1, 2, 5, 7, 2, 3)
    for cut in (None, (2, 3, 1, 2)):
        one, two = (call_attention(way, q, k, v, draw(1, 2, 5, 7), True, 0.3, g, cut) for way in (PLAIN, WAYS[1]))
        for x, y in zip(one, two, strict=True):
            close(x, y, F64)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 5, 150, 130, 8, 5), (1, 1, 300, 700, 16, 16)])
def test_same_bits_for_any_number_of_workers(shape: Any, is_causal: bool) -> None:
    q, k, v, g = operands(*shape)
    results = []
    for workers in (1, 2, 5):

        def launch(loop: Any, way: Any, *args: Any, formula: Any = None) -> None:
            flat = [a.reshape(-1) if isinstance(a, Array) else way[0].type(a) if isinstance(a, float) else a for a in args]
            kernel(loop, way[0], formula)(workers, *flat)

        results.append([x.tobytes() for x in call_attention((F32, None), q, k, v, None, is_causal, 0.3, g, launch=launch)])
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("d, dv", [(16, 16), (64, 64), (256, 1), (0, 0), (2000, 2000)])
def test_plans_are_linear_and_give_work(d: int, dv: int, is_causal: bool) -> None:
    for pairs in (1, 2, 7, 8, 100):
        for rows in (0, 1, 15, 64, 256, 2048, 8192):
            sizes = (1, pairs, rows, rows, d, dv)
            y, dx = (plans.attention_plan(sizes, is_causal, what) for what in ("y", "dx"))
            assert 1 <= y.height == dx.height <= 64 and 1 <= y.width == dx.width <= 256
            assert y.scratch <= 48 * (640 + 64 * (256 + d + dv)) and dx.scratch <= 48 * (640 + 64 * (512 + d + dv))
            assert dx.partial <= 16 * rows * (d + dv) and y.groups <= 48 and dx.groups <= 48
            if rows >= 256:
                assert dx.groups >= min(8, rows // 64, most_threads()) and y.groups >= min(4, most_threads())
