"""Scaled dot-product attention: forward, a block of query rows is a task; backward, a (batch, head) pair is.

Operands stay where they are. `layout` holds four numbers for each of them, in elements: where it starts,
then its strides along batch, head and row; the last axis is contiguous. So (B, H, T, D) tensors and one
fused (B, T, 3 H D) buffer run through the same loop without copies. Under a causal mask (row i sees keys j
<= i) a block of rows multiplies only the keys it can see. A row whose keys are all masked gives zeros, and a
zero gradient, as PyTorch 2.13 does on the CPU.

May import: words, this folder. FLAME counterpart: `flame_core::attention::sdpa`. Read next: conv.py.
"""

from __future__ import annotations

from ..plans import QUERY_ROWS
from ..words import INF, exp, fmax
from .blas import N, T, gemm
from .parallel import tasks


def attention(part, y, p, q, k, v, mask, layout, batch, heads, rows, keys, d, dv, scale, is_causal, has_mask):
    """y = p v, where p = softmax(scale q k^T + mask) is kept whole: (B, H, rows, keys), contiguous.

    q, k: d wide; v, y: dv wide. layout: q, k, v, y (four numbers each), then the mask's offset, batch, head,
    row and column strides, 0 where it is broadcast. The mask is added; without has_mask it isn't read.
    """
    parts = (rows + QUERY_ROWS - 1) // QUERY_ROWS
    for task in tasks(part, batch * heads * parts):
        pair = task // parts
        b = pair // heads
        h = pair % heads
        first = task % parts * QUERY_ROWS
        height = min(QUERY_ROWS, rows - first)
        seen = min(keys, first + height) if is_causal else keys
        at = (pair * rows + first) * keys
        q_at = layout[0] + b * layout[1] + h * layout[2] + first * layout[3]
        k_at = layout[4] + b * layout[5] + h * layout[6]
        v_at = layout[8] + b * layout[9] + h * layout[10]
        y_at = layout[12] + b * layout[13] + h * layout[14] + first * layout[15]
        m_at = layout[16] + b * layout[17] + h * layout[18] + first * layout[19]
        gemm(N, T, height, seen, d, scale, q, q_at, layout[3], k, k_at, layout[7], 0.0, p, at, keys)
        for r in range(height):
            row = p[at + r * keys : at + r * keys + keys]
            shown = min(keys, first + r + 1) if is_causal else keys
            if has_mask:
                add_mask(row[:shown], mask, m_at + r * layout[19], layout[20])
            softmax_row(row[:shown])
            fill_zero(row[shown:])
        gemm(N, N, height, dv, seen, 1.0, p, at, keys, v, v_at, layout[11], 0.0, y, y_at, layout[15])


def attention_dx(
    part, dq, dk, dv, ds, g, p, q, k, v, layout, batch, heads, rows, keys, d, e, scale, is_causal, keep
):  # fmt: skip
    """Gradients from g, that of y. layout: q, k, v, g, dq, dk, dv, four numbers each. q: d wide, v: e.

    ds: attention_scratch(...) elements. With `keep` it comes back as the gradient of the mask, (B, H, rows,
    keys); the caller sums it over broadcast axes. Sums over query rows run block after block: the same bits
    for any number of threads.
    """
    for pair in tasks(part, batch * heads):
        b = pair // heads
        h = pair % heads
        q_at = layout[0] + b * layout[1] + h * layout[2]
        k_at = layout[4] + b * layout[5] + h * layout[6]
        v_at = layout[8] + b * layout[9] + h * layout[10]
        g_at = layout[12] + b * layout[13] + h * layout[14]
        dq_at = layout[16] + b * layout[17] + h * layout[18]
        dk_at = layout[20] + b * layout[21] + h * layout[22]
        dv_at = layout[24] + b * layout[25] + h * layout[26]
        for j in range(keys):
            fill_zero(dk[dk_at + j * layout[23] : dk_at + j * layout[23] + d])
            fill_zero(dv[dv_at + j * layout[27] : dv_at + j * layout[27] + e])
        for first in range(0, rows, QUERY_ROWS):
            height = min(QUERY_ROWS, rows - first)
            seen = min(keys, first + height) if is_causal else keys
            at = (pair * rows + first) * keys
            s = at if keep else pair * min(rows, QUERY_ROWS) * keys
            g_row = g_at + first * layout[15]
            q_row = q_at + first * layout[3]
            dq_row = dq_at + first * layout[19]
            gemm(T, N, seen, e, height, 1.0, p, at, keys, g, g_row, layout[15], 1.0, dv, dv_at, layout[27])
            gemm(N, T, height, seen, e, 1.0, g, g_row, layout[15], v, v_at, layout[11], 0.0, ds, s, keys)
            for r in range(height):
                row = ds[s + r * keys : s + r * keys + keys]
                softmax_row_dx(row[:seen], p[at + r * keys : at + r * keys + seen])
                if keep:
                    fill_zero(row[seen:])
            gemm(N, N, height, d, seen, scale, ds, s, keys, k, k_at, layout[7], 0.0, dq, dq_row, layout[19])
            gemm(T, N, seen, d, height, scale, ds, s, keys, q, q_row, layout[3], 1.0, dk, dk_at, layout[23])


# Helpers take slices: an index counted from 0 needs no check for negative values, and the loop vectorises.


def add_mask(row, mask, start, step):
    if step == 1:
        line = mask[start : start + row.size]
        for j in range(row.size):
            row[j] += line[j]
    else:
        for j in range(row.size):
            row[j] += mask[start + j * step]


def softmax_row(row):
    best = -INF
    for j in range(row.size):
        best = fmax(best, row[j])
    if best == -INF:
        masked_row(row)
    else:
        total = 0.0
        for j in range(row.size):
            e = exp(row[j] - best)
            row[j] = e
            total += e
        total = 1.0 / total
        for j in range(row.size):
            row[j] *= total


def masked_row(row):
    """Every score is -inf: zeros. A NaN among them makes the row NaN."""
    total = 0.0
    for j in range(row.size):
        total += row[j]
    for j in range(row.size):
        row[j] = 0.0 if total == -INF else total


def softmax_row_dx(ds, p):
    total = 0.0
    for j in range(ds.size):
        total += p[j] * ds[j]
    for j in range(ds.size):
        ds[j] = p[j] * (ds[j] - total)


def fill_zero(run):
    for j in range(run.size):
        run[j] = 0.0
