"""Spans: norms, scaling and optimizer updates over parts of one long buffer, one launch for all of them.

`table` holds three numbers a task: first element, end, and which part (segment) it belongs to; tasks are pieces of segments of a
fixed length, so the order of additions never depends on the number of threads. `hyper` holds some numbers for each segment, which are
the only thing that changes from step to step. `factor` and `mark` are what clipping found (formula/clip.py): gradients are multiplied
by factor[FACTOR] as they are read, where 1 leaves every bit as it is, and with mark[USE] 0 an update does nothing.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ....core.words import maximum, real
from ...formula.clip import FACTOR, NORM, NORMS, OWN, USE, clip_factor, kept, next_scale, norm_of, scaled, within
from ..runtime.family import launcher, loop
from ..runtime.parallel import tasks
from .maps import F

SPAN_TASK = 16384  # elements of a span handled by one task


@lru_cache(4096)
def span_table(segments: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The task table for (start, size) segments: first element, end, segment number of each task."""
    rows = [
        (at, min(at + SPAN_TASK, start + size), number)
        for number, (start, size) in enumerate(segments)
        for at in range(start, start + size, SPAN_TASK)
    ]
    return np.array(rows, np.int64).reshape(-1)


@lru_cache(1024)
def norm_tables(buffers: tuple[tuple[tuple[int, int], ...], ...]) -> tuple[list[np.ndarray], np.ndarray]:
    """The task table of each buffer, and for every task of all of them its segment, counted through all buffers."""
    tables = [span_table(segments) for segments in buffers]
    firsts = np.cumsum([0, *[len(segments) for segments in buffers]])
    owner = [table[2::3] + first for table, first in zip(tables, firsts, strict=False)]
    return tables, np.concatenate([*owner, np.empty(0, np.int64)])


@lru_cache(1024)
def row_table(segments: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """Tasks of whole rows for (start, size, length of a row) segments: first element, end, length of a row."""
    rows = [
        (at, min(at + step, start + size), cols)
        for start, size, cols in segments
        for step in [cols * max(1, SPAN_TASK // cols)]
        for at in range(start, start + size, step)
    ]
    return np.array(rows, np.int64).reshape(-1)


@loop
def span_sum(part, out, x, table, *c):
    """out[t] = sum of F(x, *c) over task t. Typed for float64: sums are in float64 whatever x is."""
    for t in tasks(part, out.size):
        total = 0.0
        for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
            total += F(x[i] * 1.0, *c)
        out[t] = total


@loop
def span_max(part, out, x, table):
    """out[t] = largest F(x) over task t; NaN wins."""
    for t in tasks(part, out.size):
        best = 0.0
        for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
            best = maximum(best, F(x[i] * 1.0))
        out[t] = best


@loop
def norm_factor(part, out, parts, before, mark, owner, p, limit, other, keep):
    """What formula/clip.py says, from every task's part, added in order; owner[t] is the segment of part t. Order p = 0: the largest.

    before[FACTOR] is a factor that the numbers still have to be multiplied with: the norms count it, and the new factor contains it.
    """
    if part[0] == 0:
        scale = before[FACTOR]
        out[NORMS:] = 0.0
        for t in range(parts.size):
            s = NORMS + owner[t]
            out[s] = maximum(out[s], parts[t]) if p == 0.0 else out[s] + parts[t]
        norm = 0.0
        for s in range(NORMS, out.size):
            norm = maximum(norm, out[s]) if p == 0.0 else norm + out[s]
            out[s] = scaled(norm_of(out[s], p), scale)
        norm = scaled(norm_of(norm, p), scale)
        factor = clip_factor(norm, limit, other)
        out[NORM] = norm
        out[FACTOR] = scale * factor
        out[USE] = mark[USE] * kept(norm, limit, keep)
        out[OWN] = factor


@loop(launched="limits")
def norm_limits(part, found, limits, before, mark):
    """The factor of a norm that was measured, for limits that are known only then: (limit, norm above which no step is taken, what all
    gradients are multiplied with besides)."""
    if part[0] == 0:
        norm = found[NORM]
        factor = limits[2] * clip_factor(norm, limits[0], 1.0)
        found[FACTOR] = before[FACTOR] * factor
        found[USE] = mark[USE] * within(norm, limits[1])
        found[OWN] = factor


@loop(launched="scaler")
def scaler_step(part, state, limits, scale, found, interval, moves):
    """What a GradScaler does after a step: the next scale and the counts, see formula/clip.py; limits are for norm_limits()."""
    if part[0] == 0:
        state[2] += 1.0 - found[USE]
        state[0], state[1] = next_scale(state[0], state[1], found[USE], interval, moves)
        limits[2] = 1.0 / state[0]
        scale[0] = state[0]


@loop(launched="scale", table=span_table)
def span_scale(part, x, factor, table):
    """x *= factor[FACTOR], from norm_factor(); 1 reads nothing, 0 makes NaN and inf zero as well."""
    scale = real(factor[FACTOR])
    if scale != 1.0:
        for t in tasks(part, table.size // 3):
            for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
                x[i] = scaled(x[i], scale)


@loop(launched="scale_each", table=span_table)
def span_scale_each(part, x, factors, table):
    """Each segment of x times its factor, in float64."""
    for t in tasks(part, table.size // 3):
        scale = real(factors[table[3 * t + 2]])
        if scale != 1.0:
            for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
                x[i] = scaled(x[i], scale)


@loop(reorders=True, launched="center", table=row_table)
def span_center(part, x, table):
    """Subtract from each row its mean, summed in float64. A task has rows of one segment: first element, end, length of a row."""
    for t in tasks(part, table.size // 3):
        cols = table[3 * t + 2]
        for at in range(table[3 * t], table[3 * t + 1], cols):
            line = x[at : at + cols]
            total = 0.0
            for i in range(line.size):
                total += line[i] * 1.0
            mean = real(total / cols)
            for i in range(line.size):
                line[i] -= mean


# The updates differ in the number of moments. hyper: so many numbers for each segment. mark[USE] == 0: nothing is written.


@loop
def span_update0(part, p, g, factor, mark, hyper, table):
    """p = F(p, g, the numbers of the segment)."""
    scale = real(factor[FACTOR])
    for t in tasks(part, table.size // 3 if mark[USE] != 0.0 else 0):
        h = numbers_of(hyper, table[3 * t + 2])
        for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
            p[i] = F(p[i], scaled(g[i], scale), *h)


@loop
def span_update1(part, p, m, g, factor, mark, hyper, table):
    """p, m = F(p, m, g, the numbers of the segment)."""
    scale = real(factor[FACTOR])
    for t in tasks(part, table.size // 3 if mark[USE] != 0.0 else 0):
        h = numbers_of(hyper, table[3 * t + 2])
        for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
            p[i], m[i] = F(p[i], m[i], scaled(g[i], scale), *h)


@loop
def span_update2(part, p, m, v, g, factor, mark, hyper, table):
    """p, m, v = F(p, m, v, g, the numbers of the segment)."""
    scale = real(factor[FACTOR])
    for t in tasks(part, table.size // 3 if mark[USE] != 0.0 else 0):
        h = numbers_of(hyper, table[3 * t + 2])
        for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
            p[i], m[i], v[i] = F(p[i], m[i], v[i], scaled(g[i], scale), *h)


@loop
def span_update3(part, p, m, v, w, g, factor, mark, hyper, table):
    """p, m, v, w = F(p, m, v, w, g, the numbers of the segment)."""
    scale = real(factor[FACTOR])
    for t in tasks(part, table.size // 3 if mark[USE] != 0.0 else 0):
        h = numbers_of(hyper, table[3 * t + 2])
        for i in range(np.uintp(table[3 * t]), np.uintp(table[3 * t + 1])):
            p[i], m[i], v[i], w[i] = F(p[i], m[i], v[i], w[i], scaled(g[i], scale), *h)


def numbers_of(hyper, segment):
    """The twelve numbers of a segment."""
    h = hyper[12 * segment : 12 * segment + 12]
    return h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8], h[9], h[10], h[11]


# ---- launchers ----
@launcher
def norm(go, outs, ins, segments, order, limit, other, keep, *numbers):
    """Every task's part in one launch for each buffer, then norms and factor from all parts in order."""
    before, mark, *buffers = ins
    tables, owner = norm_tables(segments)
    parts = go.empty(owner.size)
    start = 0
    for buffer, table in zip(buffers, tables, strict=True):
        out = go.device.slot(parts, start * parts.dtype.itemsize, table.size // 3, parts.dtype)
        if out.size:
            go(span_max if order == 0.0 else span_sum, (out,), (buffer,), (table, *numbers), work=buffer.size)
        start += out.size
    go(norm_factor, outs, (parts, before, mark), (owner, order, limit, other, keep), work=1, formula=None)


UPDATES = (span_update0, span_update1, span_update2, span_update3)


@launcher
def update(go, outs, ins, segments):
    go(UPDATES[len(outs) - 1], outs, ins, (span_table(segments),))
