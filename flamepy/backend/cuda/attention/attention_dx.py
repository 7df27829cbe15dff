"""Gradients of scaled dot-product attention in plain tiles: see attention.py.

With p = exp(score - largest) / sum and delta = the sums of g y along rows (row_dots), ds = p (g v^T - delta): then dv = p^T g,
dk = scale ds^T q, dq = scale ds k, and ds is the mask's gradient (Dao et al. 2022, appendix B). Two kernels make p and ds again, tile by
tile: one with keys as rows, for dk and dv, one with rows as rows, for dq and the mask.
"""

from __future__ import annotations

from functools import partial

from ....dtypes import bfloat16
from ...formula.words import exp, real
from ..loops.words import barrier, block, thread
from ..products.tensor import divided
from ..products.tiles import filled, put_tile, sized, times_rows
from ..runtime.compat import cuda
from ..runtime.family import THREADS, WARP, blocks, kernel, launcher
from . import cudnn
from . import tensor_cores as attention_mma
from . import tensor_cores_dx as attention_mma_dx
from .attention import LEFT, OWN, PITCH, RIGHT, SCORES, SIDE, C, I, R, W, add_products, dots, is_half, keep_scores, plain_sizes, score_at

ALL = 0xFFFFFFFF


@kernel
def row_dots(delta, g, y, layout, heads, rows, e):
    """delta = the sums of g y along rows (batch, heads, rows), a warp each."""
    row = block() * (THREADS // WARP) + thread() // WARP
    if row < delta.size:
        pair, line = divided(row, rows)
        b, h = divided(pair, heads)
        at = layout[12] + b * layout[13] + h * layout[14] + line * layout[15]
        total = real(0)
        column = thread() % WARP
        while column < e:
            total += g[at + column] * y[at + column]
            column += WARP
        far = WARP // 2
        while far > 0:
            total += cuda.shfl_xor_sync(ALL, total, far)
            far //= 2
        if thread() % WARP == 0:
            delta[row] = total


def weights_dx(s, dp, kept, delta, scale, mask, m_at, m_row, m_col, first, at, rows, keys, base, turned, is_causal):
    """Products q k^T and g v^T of a tile, in shared memory, become p and ds. turned: rows of the tile are keys."""
    i = thread()
    while i < R * C:
        place = i // C * PITCH + i % C
        row = (at + i % C) if turned else (first + i // C)
        column = (first + i // C) if turned else (at + i % C)
        p = real(0)
        ds = real(0)
        if row < rows and column < keys:
            score = score_at(s[place], scale, mask, m_at, m_row, m_col, row, column, rows, keys, is_causal)
            p = exp(score - kept[base + row]) * kept[kept.size // 2 + base + row]
            ds = p * (dp[place] - delta[base + row])
        s[place], dp[place] = p, ds
        i += THREADS


@kernel
def attention_tiles_dkv(dk, dv, g, delta, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, is_causal):
    """dk and dv. A block: a tile of keys of one (batch, head), a part of the columns."""
    s, dp = cuda.shared.array(SCORES, real), cuda.shared.array(SCORES, real)
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    count, parts = (keys + R - 1) // R, max(1, (max(d, e) + W - 1) // W)
    rest, part = divided(block(), parts)
    pair, tile = divided(rest, count)
    b, h = divided(pair, heads)
    first, column = tile * R, part * W
    q_at, g_at = layout[0] + b * layout[1] + h * layout[2], layout[12] + b * layout[13] + h * layout[14]
    k_at = layout[4] + b * layout[5] + h * layout[6] + first * layout[7]
    v_at = layout[8] + b * layout[9] + h * layout[10] + first * layout[11]
    m_at = m_layout[0] + b * m_layout[1] + h * m_layout[2]
    acc_k, acc_v = filled(OWN, real(0)), filled(OWN, real(0))
    at = first // C * C if is_causal else 0
    while at < rows:
        q_row, g_row = q_at + at * layout[3], g_at + at * layout[15]
        keep_scores(s, dots(k, k_at, layout[7], keys - first, q, q_row, layout[3], rows - at, d, left, right))
        keep_scores(dp, dots(v, v_at, layout[11], keys - first, g, g_row, layout[15], rows - at, e, left, right))
        barrier()
        weights_dx(s, dp, kept, delta, scale, mask, m_at, m_layout[3], m_layout[4], first, at, rows, keys, pair * rows, True, is_causal)
        acc_v = add_products(acc_v, s, g, g_row, layout[15], rows - at, column, e, right)
        acc_k = add_products(acc_k, dp, q, q_row, layout[3], rows - at, column, d, right)
        at += C
    down, col = thread() // SIDE * I, column + thread() % SIDE
    put_tile(dv, v_at + down * layout[11], layout[11], keys - first - down, col, SIDE, e, acc_v, I)
    put_tile(dk, k_at + down * layout[7], layout[7], keys - first - down, col, SIDE, d, times_rows(acc_k, filled(I, scale)), I)


@kernel
def attention_tiles_dq(dq, dmask, g, delta, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, is_causal):
    """dq, and dmask (batch, heads, rows, keys). A block: a tile of rows of one (batch, head), a part of the columns."""
    s, dp = cuda.shared.array(SCORES, real), cuda.shared.array(SCORES, real)
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    count, parts = (rows + R - 1) // R, max(1, (d + W - 1) // W)
    rest, part = divided(block(), parts)
    pair, tile = divided(rest, count)
    b, h = divided(pair, heads)
    first, column = tile * R, part * W
    q_at = layout[0] + b * layout[1] + h * layout[2] + first * layout[3]
    g_at = layout[12] + b * layout[13] + h * layout[14] + first * layout[15]
    k_at, v_at = layout[4] + b * layout[5] + h * layout[6], layout[8] + b * layout[9] + h * layout[10]
    m_at = m_layout[0] + b * m_layout[1] + h * m_layout[2]
    acc = filled(OWN, real(0))
    at, seen = 0, min(keys, first + R) if is_causal and dmask is None else keys
    while at < seen:
        k_row, v_row = k_at + at * layout[7], v_at + at * layout[11]
        keep_scores(s, dots(q, q_at, layout[3], rows - first, k, k_row, layout[7], keys - at, d, left, right))
        keep_scores(dp, dots(g, g_at, layout[15], rows - first, v, v_row, layout[11], keys - at, e, left, right))
        barrier()
        weights_dx(s, dp, kept, delta, scale, mask, m_at, m_layout[3], m_layout[4], first, at, rows, keys, pair * rows, False, is_causal)
        if dmask is not None and column == 0:
            barrier()
            put_scores(dmask, dp, pair * rows, first, at, rows, keys)
        acc = add_products(acc, dp, k, k_row, layout[7], keys - at, column, d, right)
        at += C
    down, col = thread() // SIDE * I, column + thread() % SIDE
    put_tile(dq, q_at + down * layout[3], layout[3], rows - first - down, col, SIDE, d, times_rows(acc, filled(I, scale)), I)


def put_scores(out, s, base, first, at, rows, keys):
    """A tile to (batch, heads, rows, keys)."""
    i = thread()
    while i < R * C:
        row, column = first + i // C, at + i % C
        if row < rows and column < keys:
            out[(base + row) * keys + column] = s[i // C * PITCH + i % C]
        i += THREADS


# ---- launchers ----
@launcher(name="attention_dx")
def dx_launcher(go, outs, ins, layout, sizes, scale, is_causal):
    if takes_tensor_cores(*ins[3:6], *sizes[4:]):
        cudnn.launch(go, outs, ins, (layout, sizes, scale, is_causal), partial(own_dx, go), True)
    else:
        own_dx(go, outs, ins, layout, sizes, scale, is_causal)


def takes_tensor_cores(q, k, v, d, e):
    """They read g in 16 bits: float16 has no room for small gradients."""
    return q.dtype == bfloat16 and is_half((q, k, v)) and max(d, e) <= attention_mma.WIDEST


def own_dx(go, outs, ins, layout, sizes, scale, is_causal):
    """The gradients by our own kernels."""
    batch, heads, rows, keys, d, e = sizes
    dq, dk, dv, dmask = outs
    g, y, kept, q, k, v, mask = ins
    if takes_tensor_cores(q, k, v, d, e):
        attention_mma_dx.launch(go, outs, ins, layout, sizes, scale, is_causal)
        return
    delta = go.empty(batch * heads * rows)
    go(row_dots, (delta,), (g, y), (layout[:16], heads, rows, e), grid=blocks(delta.size, row_dots.threads // WARP))
    given = g, delta, kept, q, k, v, mask
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_causal)
    own = plain_sizes(go.dtype, max(d, e))
    tiles, parts = batch * heads * blocks(keys, own["R"]), max(1, blocks(max(d, e), own["W"]))
    go(sized(attention_tiles_dkv, **own), (dk, dv), given, consts, grid=tiles * parts)
    own = plain_sizes(go.dtype, d)
    tiles, parts = batch * heads * blocks(rows, own["R"]), max(1, blocks(d, own["W"]))
    go(sized(attention_tiles_dq, **own), (dq, dmask), given, consts, grid=tiles * parts)
