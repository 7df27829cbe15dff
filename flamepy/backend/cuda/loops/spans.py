"""Spans: norms, scaling and optimizer updates over parts of one long buffer, one launch for all of them.

A table in the GPU's memory holds three numbers a task: first element, end, and which part (segment) it belongs to; a block does a task.
Tasks end at multiples of their length, so that what lies between is read 16 bytes at a time. `hyper` holds some numbers for each segment,
which are the only thing that changes from step to step. `factor` and `mark` are what clipping found (formula/clip.py): gradients are
multiplied by factor[FACTOR] as they are read, where 1 leaves every bit as it is, and with mark[USE] 0 an update does nothing; nor after a
check that failed (late.py). Tables are made once for each list of segments, (start, size).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....core.words import maximum, real
from ...base import Buffer
from ...formula.clip import FACTOR, NORM, NORMS, OWN, USE, clip_factor, kept, next_scale, norm_of, scaled, within
from ...formula.row_words import all_max, all_sum, lane, lanes, wide
from ..runtime.family import F, kernel, launcher, shaped
from .runs import aligned_all, at, load_all4, store_all, store_all4
from .vectors import aligned, load4, store4
from .words import block, thread

TASK = 4096  # elements of a span that a block updates
NORM_TASK = 16384  # elements that it adds up
MOST = 1024  # tables that are kept: parameters and what is chosen of them seldom change


def kept_table(device: Any, key: tuple[Any, ...], make: Callable[[], np.ndarray]) -> Buffer:
    """The table of this key. It is uploaded at once, also where a step is being recorded."""
    found = device.tables.get(key)
    if found is None:
        if len(device.tables) > MOST:
            device.tables.clear()
        found = device.tables[key] = device.direct.upload(make())
    return found  # type: ignore[no-any-return]


def tasks_of(segments: Any, length: int) -> np.ndarray:
    """First element, end and segment of each task, one task after the other."""
    rows = [np.empty(0, np.int64)]
    for number, (start, size) in enumerate(segments):
        if size:
            first = np.arange(start // length * length, start + size, length)
            rows.append(
                np.stack([np.maximum(first, start), np.minimum(first + length, start + size), np.full(first.size, number)], 1).reshape(-1)
            )
    return np.concatenate(rows).astype(np.int64)


def span_table(device: Any, segments: Any) -> Buffer:
    return kept_table(device, ("spans", segments), lambda: tasks_of(segments, TASK))


def norm_tables(device: Any, buffers: Any) -> tuple[list[Buffer], Buffer]:
    """The table of each buffer, and where the tasks of each segment, counted through all buffers, end: after a 0."""
    tables = [kept_table(device, ("norms", segments), partial(tasks_of, segments, NORM_TASK)) for segments in buffers]
    return tables, kept_table(device, ("ends", buffers), lambda: ends_of(buffers))


def ends_of(buffers: Any) -> np.ndarray:
    counts = [-(-(start + size) // NORM_TASK) - start // NORM_TASK if size else 0 for segments in buffers for start, size in segments]
    return np.cumsum([0, *counts])


def row_table(device: Any, segments: Any) -> Buffer:
    """A task for each row of (start, size, length of a row) segments."""
    return kept_table(device, ("rows", segments), lambda: rows_of(segments))


def rows_of(segments: Any) -> np.ndarray:
    rows = [np.empty(0, np.int64)]
    for start, size, cols in segments:
        first = np.arange(start, start + size, cols)
        rows.append(np.stack([first, first + cols, 0 * first], 1).reshape(-1))
    return np.concatenate(rows).astype(np.int64)


THREADS = 256


def cut(table, together):
    """(first element of this block's task, where multiples of four begin, where they end, end); `together`: whether four may be read at
    once, else there are none."""
    first, end = table[3 * block()], table[3 * block() + 1]
    middle, last = (first + 3) & -4, end & -4
    if middle < last and together:
        return first, middle, last, end
    return first, first, first, end


# ---- norms: in float64, as formula/clip.py wants them ----------------------------------------------------------------------------------
@kernel
def span_parts(out, x, table, largest, *c):
    """out[t] = the sum, or the largest, of F(x, *c) over task t. Typed for float64: sums are in float64 whatever x is."""
    first, middle, last, end = cut(table, aligned(x, 4))
    a, b = 0.0, 0.0
    for i in range(middle + 4 * thread(), last, 4 * THREADS):
        v = load4(x, i)
        a = taken(taken(a, F(v[0] * 1.0, *c), largest), F(v[1] * 1.0, *c), largest)
        b = taken(taken(b, F(v[2] * 1.0, *c), largest), F(v[3] * 1.0, *c), largest)
    for i in range(first + thread(), end - (last - middle), THREADS):
        a = taken(a, F(x[i if i < middle else i + (last - middle)] * 1.0, *c), largest)
    total = all_max(maximum(a, b)) if largest else all_sum(a + b)
    if thread() == 0:
        out[block()] = total


def taken(total, value, largest):
    """What was found so far, with one more value; NaN wins."""
    return maximum(total, value) if largest else total + value


def over_parts(parts, first, end, largest):
    """The sum, or the largest, of some parts, by all threads of a block."""
    total = 0.0
    for t in range(first + thread(), end, THREADS):
        total = taken(total, parts[t], largest)
    return all_max(total) if largest else all_sum(total)


@kernel
def segment_norms(out, parts, ends, before, p):
    """out[NORMS + s], s the block: what formula/clip.py makes of the parts of segment s. `ends`: where each segment's end, after a 0."""
    total = over_parts(parts, ends[block()], ends[block() + 1], p == 0.0)
    if thread() == 0:
        out[NORMS + block()] = scaled(norm_of(total, p), before[FACTOR])


@kernel(threads=1024)
def norm_factor(out, parts, before, mark, p, limit, other, keep):
    """What formula/clip.py says, from all parts. before[FACTOR] is a factor that the numbers still have to be multiplied with: the norms
    count it, and the new factor contains it."""
    total = over_parts(parts, 0, parts.size, p == 0.0)
    if thread() == 0:
        norm = scaled(norm_of(total, p), before[FACTOR])
        factor = clip_factor(norm, limit, other)
        out[NORM] = norm
        out[FACTOR] = before[FACTOR] * factor
        out[USE] = mark[USE] * kept(norm, limit, keep)
        out[OWN] = factor


@kernel(threads=32)
def norm_limits(found, limits, before, mark):
    """The factor of a norm that was measured, for limits that are known only then: (limit, norm above which no step is taken, what all
    gradients are multiplied with besides)."""
    if thread() == 0:
        norm = found[NORM]
        factor = limits[2] * clip_factor(norm, limits[0], 1.0)
        found[FACTOR] = before[FACTOR] * factor
        found[USE] = mark[USE] * within(norm, limits[1])
        found[OWN] = factor


@kernel(threads=32)
def scaler_step(state, limits, scale, found, fault, interval, moves):
    """What a GradScaler does after a step: the next scale and the counts, see formula/clip.py; limits are for norm_limits()."""
    if thread() == 0 and fault[0] == 0:
        state[2] += 1.0 - found[USE]
        state[0], state[1] = next_scale(state[0], state[1], found[USE], interval, moves)
        limits[2] = 1.0 / state[0]
        scale[0] = state[0]


# ---- scaling -----------------------------------------------------------------------------------------------------------------------------
@kernel
def span_scale(x, factors, table, each):
    """x *= factors[FACTOR], or with `each` each segment of x times its own; 1 reads nothing, 0 makes NaN and inf zero as well."""
    scale = real(factors[table[3 * block() + 2] if each else FACTOR])
    if scale != 1.0:
        first, middle, last, end = cut(table, aligned(x, 4))
        for i in range(middle + 4 * thread(), last, 4 * THREADS):
            a, b, c, d = load4(x, i)
            store4(x, i, (scaled(a, scale), scaled(b, scale), scaled(c, scale), scaled(d, scale)))
        for i in range(first + thread(), end - (last - middle), THREADS):
            j = i if i < middle else i + (last - middle)
            x[j] = scaled(x[j], scale)


def span_center(x, table, rows):
    """Subtract from each row its mean, summed in float64. A task is a row: first element, end."""
    t = block() * (THREADS // lanes()) + thread() // lanes()
    if t < rows:
        first, end = table[3 * t], table[3 * t + 1]
        total = wide(0.0)
        for i in range(first + lane(), end, lanes()):
            total += wide(x[i])
        mean = real(all_sum(total) / wide(end - first))
        for i in range(first + lane(), end, lanes()):
            x[i] = x[i] - mean


# ---- updates -----------------------------------------------------------------------------------------------------------------------------
@kernel
def span_update(*args):
    """(p, moments) = F(p, moments, g, the numbers of the segment). args: p, moments, g, factor, mark, hyper, table, fault; twelve numbers
    for each segment lie in hyper. mark[USE] == 0, or a fault: nothing is written."""
    outs, g, factor, mark, hyper, table, fault = args[:-6], args[-6], args[-5], args[-4], args[-3], args[-2], args[-1]
    if mark[USE] != 0.0 and fault[0] == 0:
        scale, h = real(factor[FACTOR]), numbers_of(hyper, table[3 * block() + 2])
        first, middle, last, end = cut(table, aligned_all(outs, 4) and aligned(g, 4))
        for i in range(middle + 4 * thread(), last, 4 * THREADS):
            p, v = load_all4(outs, i), load4(g, i)
            a, b = F(*p[0], scaled(v[0], scale), *h), F(*p[1], scaled(v[1], scale), *h)
            c, d = F(*p[2], scaled(v[2], scale), *h), F(*p[3], scaled(v[3], scale), *h)
            store_all4(outs, i, (a, b, c, d))
        for i in range(first + thread(), end - (last - middle), THREADS):
            j = i if i < middle else i + (last - middle)
            store_all(outs, j, F(*at(outs, j), scaled(g[j], scale), *h))


@kernel
def span_overwrite(out, x, table, fault):
    """out = x, unless there is a fault."""
    if fault[0] == 0:
        first, middle, last, end = cut(table, aligned(out, 4) and aligned(x, 4))
        for i in range(middle + 4 * thread(), last, 4 * THREADS):
            store4(out, i, load4(x, i))
        for i in range(first + thread(), end - (last - middle), THREADS):
            j = i if i < middle else i + (last - middle)
            out[j] = x[j]


@kernel(threads=32)
def note_fault(fault, x, low, high):
    """fault[0] = 1 unless low <= x[0] <= high: see late.py."""
    if thread() == 0:
        value = x[0]
        if not (low <= value and value <= high):
            fault[0] = 1


def numbers_of(hyper, segment):
    """The twelve numbers of a segment."""
    h = hyper[12 * segment : 12 * segment + 12]
    return h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], h[8], h[9], h[10], h[11]


# ---- launchers ----
CENTER = shaped(span_center, THREADS, 32)


@launcher
def norm(go, outs, ins, segments, order, limit, other, keep, *numbers):
    """Every task's part in one launch for each buffer, then norms and factor from all parts."""
    before, mark, *buffers = ins
    order, limit, other, keep, *numbers = [go.dtype.type(number) for number in (order, limit, other, keep, *numbers)]
    tables, ends = norm_tables(go.device, segments)
    parts = go.empty(sum([table.size // 3 for table in tables]))
    start = 0
    for buffer, table in zip(buffers, tables, strict=True):
        out = go.device.slot(parts, start * parts.dtype.itemsize, table.size // 3, parts.dtype)
        go(span_parts, (out,), (buffer, table), (bool(order == 0.0), *numbers), grid=out.size)
        start += out.size
    go(segment_norms, outs, (parts, ends, before), (order,), grid=ends.size - 1, formula=None)
    go(norm_factor, outs, (parts, before, mark), (order, limit, other, keep), grid=1, formula=None)


@launcher(name="limits")
def limits_launcher(go, outs, ins):
    go(norm_limits, outs, ins, grid=1)


@launcher
def scaler(go, outs, ins, interval, moves):
    go(scaler_step, outs, (*ins, go.device.late.fault()), (interval, moves), grid=1)


@launcher
def scale(go, outs, ins, segments):
    table = span_table(go.device, segments)
    go(span_scale, outs, (*ins, table), (False,), grid=table.size // 3)


@launcher
def scale_each(go, outs, ins, segments):
    table = span_table(go.device, segments)
    go(span_scale, outs, (*ins, table), (True,), grid=table.size // 3)


@launcher
def center(go, outs, ins, segments):
    table = row_table(go.device, segments)
    rows = table.size // 3
    go(CENTER, outs, (table,), (rows,), grid=-(-rows * 32 // THREADS))


@launcher
def update(go, outs, ins, segments):
    table = span_table(go.device, segments)
    go(span_update, outs, (*ins, table, go.device.late.fault()), grid=table.size // 3)


@launcher
def overwrite(go, outs, ins):
    table = span_table(go.device, ((0, outs[0].size),))
    go(span_overwrite, outs, (*ins, table, go.device.late.fault()), grid=table.size // 3)


@launcher(name="fault")
def fault_launcher(go, outs, ins, low, high):
    go(note_fault, outs, ins, (low, high), grid=1)
