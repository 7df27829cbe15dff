"""Spans: norms, scaling and optimizer updates over parts of one long buffer, one launch for all of them.

`table` holds three numbers a task: first element, end, and which part (segment) it belongs to; tasks are pieces of segments of a
fixed length, so the order of additions never depends on the number of threads. `hyper` holds 8 numbers a segment, which are
the only thing that changes from step to step.

May import: this folder. FLAME counterpart: `flame_core::optimizers` kernels. Read next: ../../optimizers/.
"""

from __future__ import annotations

from ..words import maximum
from .loops import F
from .parallel import tasks


def span_sum(part, out, x, table, *c):
    """out[t] = sum of F(x, *c) over task t. Typed for float64: sums are in float64 whatever x is."""
    for t in tasks(part, out.size):
        total = 0.0
        line = x[table[3 * t] : table[3 * t + 1]]
        for i in range(line.size):
            total += F(line[i] * 1.0, *c)
        out[t] = total


def span_max(part, out, x, table):
    """out[t] = largest F(x) over task t; NaN wins."""
    for t in tasks(part, out.size):
        best = 0.0
        line = x[table[3 * t] : table[3 * t + 1]]
        for i in range(line.size):
            best = maximum(best, F(line[i] * 1.0))
        out[t] = best


def span_map(part, out, x, table, *c):
    """out = F(x, *c) over all tasks."""
    for t in tasks(part, table.size // 3):
        out_part, line = out[table[3 * t] : table[3 * t + 1]], x[table[3 * t] : table[3 * t + 1]]
        for i in range(line.size):
            out_part[i] = F(line[i], *c)


def span_update0(part, p, g, table, hyper):
    """p = F(p, g, eight numbers of the segment)."""
    for t in tasks(part, table.size // 3):
        h = 8 * table[3 * t + 2]
        h0, h1, h2, h3 = hyper[h], hyper[h + 1], hyper[h + 2], hyper[h + 3]
        h4, h5, h6, h7 = hyper[h + 4], hyper[h + 5], hyper[h + 6], hyper[h + 7]
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i] = F(p_part[i], g_part[i], h0, h1, h2, h3, h4, h5, h6, h7)


def span_update1(part, p, m, g, table, hyper):
    """p, m = F(p, m, g, eight numbers of the segment)."""
    for t in tasks(part, table.size // 3):
        h = 8 * table[3 * t + 2]
        h0, h1, h2, h3 = hyper[h], hyper[h + 1], hyper[h + 2], hyper[h + 3]
        h4, h5, h6, h7 = hyper[h + 4], hyper[h + 5], hyper[h + 6], hyper[h + 7]
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        m_part = m[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i], m_part[i] = F(p_part[i], m_part[i], g_part[i], h0, h1, h2, h3, h4, h5, h6, h7)


def span_update2(part, p, m, v, g, table, hyper):
    """p, m, v = F(p, m, v, g, eight numbers of the segment)."""
    for t in tasks(part, table.size // 3):
        h = 8 * table[3 * t + 2]
        h0, h1, h2, h3 = hyper[h], hyper[h + 1], hyper[h + 2], hyper[h + 3]
        h4, h5, h6, h7 = hyper[h + 4], hyper[h + 5], hyper[h + 6], hyper[h + 7]
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        m_part, v_part = m[table[3 * t] : table[3 * t + 1]], v[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i], m_part[i], v_part[i] = F(p_part[i], m_part[i], v_part[i], g_part[i], h0, h1, h2, h3, h4, h5, h6, h7)
