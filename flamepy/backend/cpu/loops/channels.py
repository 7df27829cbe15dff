"""Batch norm: numbers (outer, channels, inner) that are normalised channel by channel, with what may follow: a residual, an activation F.

A worker has whole channels, so the bits are the same for any number of workers. Where a channel's pieces are long it goes from piece to
piece; short ones it takes together with their neighbours', column by column of (outer, channels * inner). Sums are made of deviations
from a number of the channel, RUN or four at a time in their own type, and those in float64: far from zero no digits are lost.

`sizes` (a table) holds outer, channels, inner, and how many channels are taken together, 0: one by one.
"""

import numpy as np

from ....core.words import EPS, real, sqrt
from ...formula.row_words import RUN, line_space, wide
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks
from ..runtime.workspace import COLUMNS, wide_space
from .maps import F, same
from .runs import fill_run

LONG = 64  # numbers of a piece that is worth a loop of its own
TASKS = 16  # enough for many cores


# ---- the statistics of one channel -----------------------------------------------------------------------------------------------
def near_of(x, c, sizes):
    """A number among those of a channel: the mean of four of them, without overflow, and exact where all are equal."""
    first, last = c * sizes[2], ((sizes[0] - 1) * sizes[1] + c) * sizes[2]
    half = sizes[2] // 2
    return (0.25 * x[first] + 0.25 * x[first + half]) + (0.25 * x[last + half] + 0.25 * x[last + sizes[2] - 1])


def run_deviations(run, near):
    total, square = 0.0, 0.0
    for j in range(run.size):
        value = run[j] - near
        total += value
        square += value * value
    return total, square


def piece_deviations(piece, near):
    """The sums of x - near and of its square over a piece of any length."""
    total, square = wide(0.0), wide(0.0)
    for first in range(0, piece.size, RUN):
        one, two = run_deviations(piece[first : first + RUN], near)
        total += wide(one)
        square += wide(two)
    return total, square


def channel_deviations(x, c, sizes, near):
    total, square = wide(0.0), wide(0.0)
    for i in range(sizes[0]):
        at = (i * sizes[1] + c) * sizes[2]
        one, two = piece_deviations(x[at : at + sizes[2]], near)
        total += one
        square += two
    return total, square


def put_statistics(mean, rest, rstd, var, x, c, sizes, near, total, square, eps):
    """What is known of a channel from the sums of its deviations: the mean as two numbers, what rounding cut off is the second; 1 / sqrt of
    the variance + eps; the variance of the n numbers as n - 1 of them show it."""
    count = wide(sizes[0] * sizes[2])
    d = total / count
    m, v, scale = wide(near) + d, square / count - d * d, wide(1.0)
    tiny = wide(EPS) * wide(EPS)
    if d * d > 2.0 * v or not tiny * tiny < v + eps < 1.0 / (tiny * tiny * tiny):  # few digits are left, or a square did not fit
        m, v, scale = careful(x, c, sizes, near)
    mean[c] = real(m)
    rest[c] = real(m - wide(real(m)))
    rstd[c] = real(scale / sqrt_wide(v + wide(eps) * scale * scale))
    var[c] = real(v / scale / scale * (count / (count - 1.0)))


def sqrt_wide(v):
    return np.sqrt(v)


def careful(x, c, sizes, near):
    """(mean, variance * scale^2, scale) of a channel, number by number in float64, by a scale that brings them to where squares fit."""
    total, top, count = wide(0.0), wide(0.0), wide(sizes[0] * sizes[2])
    for i in range(sizes[0]):
        at = (i * sizes[1] + c) * sizes[2]
        for j in range(at, at + sizes[2]):
            total += wide(x[j]) - wide(near)
    m = wide(near) + total / count
    for i in range(sizes[0]):
        at = (i * sizes[1] + c) * sizes[2]
        for j in range(at, at + sizes[2]):
            value = abs(wide(x[j]) - m)
            if not value <= top:
                top = value
    scale = 1.0 / top
    if not 0.0 < scale * top < 2.0:  # nothing but zeros, or NaN
        scale = wide(1.0)
    rest, square = wide(0.0), wide(0.0)
    for i in range(sizes[0]):
        at = (i * sizes[1] + c) * sizes[2]
        for j in range(at, at + sizes[2]):
            value = (wide(x[j]) - m) * scale
            rest += value
            square += value * value
    rest = rest / count
    return m + rest / scale, square / count - rest * rest, scale


# ---- y = F((x - m) * k + shift + residual) -------------------------------------------------------------------------------------------
def put_piece(y, x, residual, m, k, shift):
    for j in range(y.size):
        value = (x[j] - m) * k + shift
        y[j] = F(value) if residual is None else F(value + residual[j])


def put_channel(y, x, residual, c, sizes, m, k, shift):
    for i in range(sizes[0]):
        at = (i * sizes[1] + c) * sizes[2]
        line = None if residual is None else residual[at : at + sizes[2]]
        put_piece(y[at : at + sizes[2]], x[at : at + sizes[2]], line, m, k, shift)


def put_columns(y, x, residual, ms, ks, shifts):
    for j in range(y.size):
        value = (x[j] - ms[j]) * ks[j] + shifts[j]
        y[j] = F(value) if residual is None else F(value + residual[j])


def put_channels(y, x, residual, lo, hi, sizes, ms, ks, shifts):
    """The same for neighbouring channels, whose numbers are in `ms`, `ks` and `shifts` for each column."""
    for i in range(sizes[0]):
        at, end = (i * sizes[1] + lo) * sizes[2], (i * sizes[1] + hi) * sizes[2]
        put_columns(y[at:end], x[at:end], None if residual is None else residual[at:end], ms, ks, shifts)


def factors(c, mean, rest, rstd, w, b):
    """(m, k, shift) of a channel."""
    m = 0.0 if mean is None else mean[c]
    k = 1.0 if rstd is None else rstd[c]
    shift = 0.0 if rest is None else -rest[c] * k
    if w is not None:
        k, shift = k * w[c], shift * w[c]
    if b is not None:
        shift = shift + b[c]
    return m, k, shift


def spread_factors(lo, hi, inner, ms, ks, shifts, mean, rest, rstd, w, b):
    for c in range(lo, hi):
        m, k, shift = factors(c, mean, rest, rstd, w, b)
        at = (c - lo) * inner
        fill_run(ms[at : at + inner], m)
        fill_run(ks[at : at + inner], k)
        fill_run(shifts[at : at + inner], shift)


def column_deviations(total, square, nears, x, outer, cols, at):
    """total[j] and square[j] += the sums of x - nears[j] and of its square over column at + j of (outer, cols)."""
    step, whole = np.uintp(cols), outer // 4 * 4
    for i in range(0, whole, 4):
        start = np.uintp(i * cols + at)
        for j in range(np.uintp(total.size)):
            a = start + j
            e = a + step + step
            p, q, r, s = x[a] - nears[j], x[a + step] - nears[j], x[e] - nears[j], x[e + step] - nears[j]
            total[j] += wide((p + q) + (r + s))
            square[j] += wide((p * p + q * q) + (r * r + s * s))
    for i in range(whole, outer):
        start = np.uintp(i * cols + at)
        for j in range(np.uintp(total.size)):
            p = x[start + j] - nears[j]
            total[j] += wide(p)
            square[j] += wide(p * p)


def sum_run(run):
    total = wide(0.0)
    for j in range(run.size):
        total += run[j]
    return total


@loop
def batch_norm(part, y, mean, rest, rstd, var, x, residual, w, b, sizes, eps):
    """The statistics of each channel, and y = F((x - mean) * rstd * w + b + residual)."""
    if sizes[3] == 0:
        for c in tasks(part, sizes[1]):
            near = near_of(x, c, sizes)
            total, square = channel_deviations(x, c, sizes, near)
            put_statistics(mean, rest, rstd, var, x, c, sizes, near, total, square, eps)
            m, k, shift = factors(c, mean, rest, rstd, w, b)
            put_channel(y, x, residual, c, sizes, m, k, shift)
        return
    totals, squares, line, inner = wide_space(x), wide_space(x), line_space(x), sizes[2]
    for t in tasks(part, (sizes[1] + sizes[3] - 1) // sizes[3]):
        lo, hi = t * sizes[3], min(sizes[1], t * sizes[3] + sizes[3])
        many = (hi - lo) * inner
        total, square, ms = totals[:many], squares[:many], line[:many]
        ks, shifts = line[COLUMNS : COLUMNS + many], line[2 * COLUMNS : 2 * COLUMNS + many]
        fill_run(total, 0.0)
        fill_run(square, 0.0)
        for c in range(lo, hi):
            fill_run(ms[(c - lo) * inner : (c - lo) * inner + inner], near_of(x, c, sizes))
        column_deviations(total, square, ms, x, sizes[0], sizes[1] * inner, lo * inner)
        for c in range(lo, hi):
            at = (c - lo) * inner
            one, two = sum_run(total[at : at + inner]), sum_run(square[at : at + inner])
            put_statistics(mean, rest, rstd, var, x, c, sizes, ms[at], one, two, eps)
        spread_factors(lo, hi, inner, ms, ks, shifts, mean, rest, rstd, w, b)
        put_channels(y, x, residual, lo, hi, sizes, ms, ks, shifts)


@loop
def channel_affine(part, y, rstd, x, residual, mean, var, w, b, sizes, eps):
    """The same by statistics that are known: rstd = 1 / sqrt(var + eps) comes out; without var it is 1, without a mean that is 0."""
    inner, line = sizes[2], line_space(x)
    for t in tasks(part, sizes[1] if sizes[3] == 0 else (sizes[1] + sizes[3] - 1) // sizes[3]):
        lo, hi = (t, t + 1) if sizes[3] == 0 else (t * sizes[3], min(sizes[1], t * sizes[3] + sizes[3]))
        if rstd is not None:
            for c in range(lo, hi):
                rstd[c] = 1.0 / sqrt(var[c] + eps)
        if sizes[3] == 0:
            m, k, shift = factors(lo, mean, None, rstd, w, b)
            put_channel(y, x, residual, lo, sizes, m, k, shift)
        else:
            many = (hi - lo) * inner
            ms, ks, shifts = line[:many], line[COLUMNS : COLUMNS + many], line[2 * COLUMNS : 2 * COLUMNS + many]
            spread_factors(lo, hi, inner, ms, ks, shifts, mean, None, rstd, w, b)
            put_channels(y, x, residual, lo, hi, sizes, ms, ks, shifts)


# ---- backward --------------------------------------------------------------------------------------------------------------------
# Of a formula of batch norm's activation, F(h, v) is the derivative: v is the result y where it was kept, else what the activation got.


def arrived(g, x, y, j, m, k, shift):
    """The cotangent of what the activation got."""
    return F(g[j], (x[j] - m) * k + shift if y is None else y[j])


def run_gradients(g, x, y, m, k, shift, s, less):
    """The sums of the cotangents and of their products with the normalised x, (x - m) * s - less."""
    total, dot = 0.0, 0.0
    for j in range(g.size):
        h = arrived(g, x, y, j, m, k, shift)
        total += h
        dot += h * ((x[j] - m) * s - less)
    return total, dot


def channel_gradients(g, x, y, c, sizes, m, k, shift, s, less):
    total, dot = wide(0.0), wide(0.0)
    for i in range(sizes[0]):
        at, end = (i * sizes[1] + c) * sizes[2], (i * sizes[1] + c) * sizes[2] + sizes[2]
        for first in range(at, end, RUN):
            last = min(first + RUN, end)
            line = None if y is None else y[first:last]
            one, two = run_gradients(g[first:last], x[first:last], line, m, k, shift, s, less)
            total += wide(one)
            dot += wide(two)
    return total, dot


def piece_dx(dx, dr, g, x, y, m, k, shift, s, less, q, r):
    for j in range(dx.size):
        h = arrived(g, x, y, j, m, k, shift)
        if dr is not None:
            dr[j] = h
        dx[j] = k * h + (((x[j] - m) * s - less) * q + r)


def channel_dx(dx, dr, g, x, y, c, sizes, m, k, shift, s, less, q, r):
    for i in range(sizes[0]):
        at, end = (i * sizes[1] + c) * sizes[2], (i * sizes[1] + c) * sizes[2] + sizes[2]
        line, more = None if y is None else y[at:end], None if dr is None else dr[at:end]
        piece_dx(dx[at:end], more, g[at:end], x[at:end], line, m, k, shift, s, less, q, r)


def column_gradients(total, dot, g, x, y, outer, cols, at, ms, ks, shifts, ss, lesses):
    """The same sums for columns of (outer, cols), two rows at a time."""
    step, whole = np.uintp(cols), outer // 2 * 2
    for i in range(0, whole, 2):
        start = np.uintp(i * cols + at)
        for j in range(np.uintp(total.size)):
            a = start + j
            e = a + step
            p = F(g[a], (x[a] - ms[j]) * ks[j] + shifts[j] if y is None else y[a])
            q = F(g[e], (x[e] - ms[j]) * ks[j] + shifts[j] if y is None else y[e])
            total[j] += wide(p + q)
            dot[j] += wide(p * ((x[a] - ms[j]) * ss[j] - lesses[j]) + q * ((x[e] - ms[j]) * ss[j] - lesses[j]))
    for i in range(whole, outer):
        start = np.uintp(i * cols + at)
        for j in range(np.uintp(total.size)):
            a = start + j
            p = F(g[a], (x[a] - ms[j]) * ks[j] + shifts[j] if y is None else y[a])
            total[j] += wide(p)
            dot[j] += wide(p * ((x[a] - ms[j]) * ss[j] - lesses[j]))


def columns_dx(dx, dr, g, x, y, ms, ks, shifts, ss, lesses, qs, rs):
    for j in range(dx.size):
        h = F(g[j], (x[j] - ms[j]) * ks[j] + shifts[j] if y is None else y[j])
        if dr is not None:
            dr[j] = h
        dx[j] = ks[j] * h + (((x[j] - ms[j]) * ss[j] - lesses[j]) * qs[j] + rs[j])


def spread_scales(lo, hi, inner, ss, lesses, rest, rstd):
    """For each column s and less, with which x is normalised: (x - m) * s - less."""
    for c in range(lo, hi):
        s, at = 1.0 if rstd is None else rstd[c], (c - lo) * inner
        fill_run(ss[at : at + inner], s)
        fill_run(lesses[at : at + inner], 0.0 if rest is None else rest[c] * s)


def put_weights(dw, db, c, total, dot, add_w, add_b):
    if dw is not None:
        dw[c] = real(dot) + dw[c] if add_w else real(dot)
    if db is not None:
        db[c] = real(total) + db[c] if add_b else real(total)


def slopes(k, total, dot, count):
    """(q, r) of dx = k * h + (xn * q + r), xn the normalised x; a count of 0 says that the statistics are constants."""
    return (0.0, 0.0) if count == 0 else (-k * real(dot / wide(count)), -k * real(total / wide(count)))


@loop
def batch_norm_dx(part, dx, dr, dw, db, g, x, y, w, b, mean, rest, rstd, sizes, add_w, add_b, fixed):
    """dx, dw and db of both; dr, that of the residual. `fixed`: the statistics are constants. Without y the activation had no residual."""
    inner, count, together = sizes[2], 0 if fixed else sizes[0] * sizes[2], sizes[3]
    if together == 0:
        for c in tasks(part, sizes[1]):
            m, k, shift = factors(c, mean, rest, rstd, w, b)
            s, total, dot = 1.0 if rstd is None else rstd[c], wide(0.0), wide(0.0)
            less = 0.0 if rest is None else rest[c] * s
            if count or dw is not None or db is not None:
                total, dot = channel_gradients(g, x, y, c, sizes, m, k, shift, s, less)
                put_weights(dw, db, c, total, dot, add_w, add_b)
            q, r = slopes(k, total, dot, count)
            channel_dx(dx, dr, g, x, y, c, sizes, m, k, shift, s, less, q, r)
        return
    totals, dots, line = wide_space(x), wide_space(x), line_space(x)
    for t in tasks(part, (sizes[1] + together - 1) // together):
        lo, hi = t * together, min(sizes[1], t * together + together)
        many = (hi - lo) * inner
        total, dot, ms = totals[:many], dots[:many], line[:many]
        ks, shifts, ss = line[COLUMNS : COLUMNS + many], line[2 * COLUMNS : 2 * COLUMNS + many], line[3 * COLUMNS : 3 * COLUMNS + many]
        lesses, qs = line[4 * COLUMNS : 4 * COLUMNS + many], line[5 * COLUMNS : 5 * COLUMNS + many]
        rs = line[6 * COLUMNS : 6 * COLUMNS + many]
        spread_factors(lo, hi, inner, ms, ks, shifts, mean, rest, rstd, w, b)
        spread_scales(lo, hi, inner, ss, lesses, rest, rstd)
        fill_run(total, 0.0)
        fill_run(dot, 0.0)
        if count or dw is not None or db is not None:
            column_gradients(total, dot, g, x, y, sizes[0], sizes[1] * inner, lo * inner, ms, ks, shifts, ss, lesses)
        for c in range(lo, hi):
            at = (c - lo) * inner
            one, two = sum_run(total[at : at + inner]), sum_run(dot[at : at + inner])
            put_weights(dw, db, c, one, two, add_w, add_b)
            q, r = slopes(ks[at], one, two, count)
            fill_run(qs[at : at + inner], q)
            fill_run(rs[at : at + inner], r)
        for i in range(sizes[0]):
            at, end = (i * sizes[1] + lo) * inner, (i * sizes[1] + hi) * inner
            rows, more = None if y is None else y[at:end], None if dr is None else dr[at:end]
            columns_dx(dx[at:end], more, g[at:end], x[at:end], rows, ms, ks, shifts, ss, lesses, qs, rs)


def passed(h, v):
    """The derivative where there is no activation."""
    return h


# ---- launchers -------------------------------------------------------------------------------------------------------------------
def cut(outer, channels, inner):
    """The table of sizes: channels that are taken together make a run of columns, as long as there are tasks enough."""
    together = 0 if inner >= LONG else max(1, min(COLUMNS, max(LONG, -(-channels * inner // TASKS))) // max(1, inner))
    return table((outer, channels, inner, together))


@launcher(name="batch_norm")
def batch_norm_launcher(go, outs, ins, outer, channels, inner, eps):
    go(batch_norm, outs, ins, (cut(outer, channels, inner), eps), formula=go.formula or same)


@launcher(name="channel_affine")
def channel_affine_launcher(go, outs, ins, outer, channels, inner, eps):
    go(channel_affine, outs, ins, (cut(outer, channels, inner), eps), formula=go.formula or same)


@launcher(name="batch_norm_dx")
def batch_norm_dx_launcher(go, outs, ins, outer, channels, inner, *flags):
    go(batch_norm_dx, outs, ins, (cut(outer, channels, inner), *flags), formula=go.formula or passed)
