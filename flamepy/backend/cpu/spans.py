"""Spans: norms, scaling and optimizer updates over parts of one long buffer, one launch for all of them.

`table` holds three numbers a task: first element, end, and which part (segment) it belongs to; tasks are pieces of segments of a
fixed length, so the order of additions never depends on the number of threads. `hyper` holds 8 numbers a segment, which are
the only thing that changes from step to step.

May import: this folder, Numba. FLAME counterpart: `flame_core::optimizers` kernels. Read next: ../../optimizers/.
"""

from __future__ import annotations

from numba import int64, prange

from ..words import maximum
from .loops import F


def span_sum(out, x, table, *c):
    """out[t] = sum of F(x, *c) over task t. Typed for float64: sums are in float64 whatever x is."""
    for t in prange(out.size):
        t = int64(t)
        total = 0.0
        part = x[table[3 * t] : table[3 * t + 1]]
        for i in range(part.size):
            total += F(part[i] * 1.0, *c)
        out[t] = total


def span_max(out, x, table):
    """out[t] = largest F(x) over task t; NaN wins."""
    for t in prange(out.size):
        t = int64(t)
        best = 0.0
        part = x[table[3 * t] : table[3 * t + 1]]
        for i in range(part.size):
            best = maximum(best, F(part[i] * 1.0))
        out[t] = best


def span_map(out, x, table, *c):
    """out = F(x, *c) over all tasks."""
    for t in prange(table.size // 3):
        t = int64(t)
        out_part, part = out[table[3 * t] : table[3 * t + 1]], x[table[3 * t] : table[3 * t + 1]]
        for i in range(part.size):
            out_part[i] = F(part[i], *c)


def span_update0(p, g, table, hyper):
    """p = F(p, g, eight numbers of the segment)."""
    for t in prange(table.size // 3):
        t = int64(t)
        h = 8 * table[3 * t + 2]
        h0, h1, h2, h3 = hyper[h], hyper[h + 1], hyper[h + 2], hyper[h + 3]
        h4, h5, h6, h7 = hyper[h + 4], hyper[h + 5], hyper[h + 6], hyper[h + 7]
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i] = F(p_part[i], g_part[i], h0, h1, h2, h3, h4, h5, h6, h7)


def span_update1(p, m, g, table, hyper):
    """p, m = F(p, m, g, eight numbers of the segment)."""
    for t in prange(table.size // 3):
        t = int64(t)
        h = 8 * table[3 * t + 2]
        h0, h1, h2, h3 = hyper[h], hyper[h + 1], hyper[h + 2], hyper[h + 3]
        h4, h5, h6, h7 = hyper[h + 4], hyper[h + 5], hyper[h + 6], hyper[h + 7]
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        m_part = m[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i], m_part[i] = F(p_part[i], m_part[i], g_part[i], h0, h1, h2, h3, h4, h5, h6, h7)


def span_update2(p, m, v, g, table, hyper):
    """p, m, v = F(p, m, v, g, eight numbers of the segment)."""
    for t in prange(table.size // 3):
        t = int64(t)
        h = 8 * table[3 * t + 2]
        h0, h1, h2, h3 = hyper[h], hyper[h + 1], hyper[h + 2], hyper[h + 3]
        h4, h5, h6, h7 = hyper[h + 4], hyper[h + 5], hyper[h + 6], hyper[h + 7]
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        m_part, v_part = m[table[3 * t] : table[3 * t + 1]], v[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i], m_part[i], v_part[i] = F(p_part[i], m_part[i], v_part[i], g_part[i], h0, h1, h2, h3, h4, h5, h6, h7)
