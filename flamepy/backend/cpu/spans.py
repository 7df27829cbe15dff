"""Spans: norms, scaling and optimizer updates over parts of one long buffer, one launch for all of them.

`table` holds three numbers a task: first element, end, and which part (segment) it belongs to; tasks are pieces of segments of a
fixed length, so the order of additions never depends on the number of threads. `hyper` holds 8 numbers a segment, which are
the only thing that changes from step to step. `factor` holds the number that clipping found, which gradients are multiplied by as
they are read: 1 leaves every bit as it is.

FLAME counterpart: `flame_core::optimizers` kernels. Read next: ../../optimizers/.
"""

from __future__ import annotations

from ..formula.clip import clip_factor, norm_of, scaled
from ..formula.words import maximum, real
from .family import launcher, loop
from .loops import F
from .parallel import tasks
from .plans import span_table


@loop
def span_sum(part, out, x, table, *c):
    """out[t] = sum of F(x, *c) over task t. Typed for float64: sums are in float64 whatever x is."""
    for t in tasks(part, out.size):
        total = 0.0
        line = x[table[3 * t] : table[3 * t + 1]]
        for i in range(line.size):
            total += F(line[i] * 1.0, *c)
        out[t] = total


@loop
def span_max(part, out, x, table):
    """out[t] = largest F(x) over task t; NaN wins."""
    for t in tasks(part, out.size):
        best = 0.0
        line = x[table[3 * t] : table[3 * t + 1]]
        for i in range(line.size):
            best = maximum(best, F(line[i] * 1.0))
        out[t] = best


@loop
def norm_factor(part, out, parts, before, p, limit, other):
    """out = (norm, factor). The norm of order p from every task's part, added in order; p = 0 stands for the largest.

    The rule is in formula/clip.py. before[1] is a factor that the numbers still have to be multiplied with: the norm counts it, and
    the new factor contains it.
    """
    if part[0] == 0:
        scale = before[1]
        norm = 0.0
        for t in range(parts.size):
            norm = maximum(norm, parts[t]) if p == 0.0 else norm + parts[t]
        norm = scaled(norm_of(norm, p), scale)
        out[0] = norm
        out[1] = clip_factor(norm, scale, limit, other)


@loop
def span_scale(part, x, factor, table):
    """x *= factor[1], from norm_factor(); 1 reads nothing, 0 makes NaN and inf zero as well."""
    scale = real(factor[1])
    if scale != 1.0:
        for t in tasks(part, table.size // 3):
            line = x[table[3 * t] : table[3 * t + 1]]
            for i in range(line.size):
                line[i] = scaled(line[i], scale)


# The three updates differ in the number of moments. hyper: eight numbers for each segment.


@loop
def span_update0(part, p, g, factor, hyper, table):
    """p = F(p, g, eight numbers of the segment)."""
    scale = real(factor[1])
    for t in tasks(part, table.size // 3):
        h = eight(hyper, 8 * table[3 * t + 2])
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i] = F(p_part[i], scaled(g_part[i], scale), *h)


@loop
def span_update1(part, p, m, g, factor, hyper, table):
    """p, m = F(p, m, g, eight numbers of the segment)."""
    scale = real(factor[1])
    for t in tasks(part, table.size // 3):
        h = eight(hyper, 8 * table[3 * t + 2])
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        m_part = m[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i], m_part[i] = F(p_part[i], m_part[i], scaled(g_part[i], scale), *h)


@loop
def span_update2(part, p, m, v, g, factor, hyper, table):
    """p, m, v = F(p, m, v, g, eight numbers of the segment)."""
    scale = real(factor[1])
    for t in tasks(part, table.size // 3):
        h = eight(hyper, 8 * table[3 * t + 2])
        p_part, g_part = p[table[3 * t] : table[3 * t + 1]], g[table[3 * t] : table[3 * t + 1]]
        m_part, v_part = m[table[3 * t] : table[3 * t + 1]], v[table[3 * t] : table[3 * t + 1]]
        for i in range(p_part.size):
            p_part[i], m_part[i], v_part[i] = F(p_part[i], m_part[i], v_part[i], scaled(g_part[i], scale), *h)


def eight(hyper, h):
    return hyper[h], hyper[h + 1], hyper[h + 2], hyper[h + 3], hyper[h + 4], hyper[h + 5], hyper[h + 6], hyper[h + 7]


# ---- launchers ----
@launcher
def norm(go, outs, ins, order, limit, other, *numbers):
    """Every task's part in one launch for each buffer, then norm and factor from all parts in order."""
    before, *buffers = ins
    tables = [span_table(((0, b.size),)) for b in buffers]
    parts = go.empty(sum([t.size // 3 for t in tables]))
    start = 0
    for buffer, table in zip(buffers, tables, strict=True):
        out = go.device.slot(parts, start * parts.dtype.itemsize, table.size // 3, parts.dtype)
        go(span_max if order == 0.0 else span_sum, (out,), (buffer,), (table, *numbers), work=buffer.size)
        start += out.size
    go(norm_factor, outs, (parts, before), (order, limit, other), work=1, formula=None)


@launcher
def scale(go, outs, ins):
    go(span_scale, outs, ins, (span_table(((0, outs[0].size),)),))


UPDATES = (span_update0, span_update1, span_update2)


@launcher
def update(go, outs, ins, segments):
    go(UPDATES[len(outs) - 1], outs, ins, (span_table(segments),))
