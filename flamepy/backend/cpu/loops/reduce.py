"""Folds: a run of numbers becomes one, along any axis, in a fixed order.

Every fold sees its input as (outer, n, inner) and folds the middle. It works on chunks of n whose length follows from the
sizes alone, so the order of additions (and every bit) is the same for any number of threads; when there is more than one
chunk the caller folds the chunk results again. Within a chunk runs of numbers, or eight rows at once, are added in the type of the
input and their sums in float64 (runs.py): the rounding error does not grow with the length.
"""

from __future__ import annotations

import numpy as np

from ....core.words import maximum, select
from ....dtypes import computed
from ...formula.row_words import RUN, line_space, wide
from ...formula.words import fmax
from ..runtime.family import launcher, loop
from ..runtime.parallel import tasks
from ..runtime.workspace import COLUMNS, wide_space
from .maps import F, same
from .runs import add_columns, fill_run, long_sum_run

CHUNK = 8192  # elements folded by one task when a row is split


def fold_plan(outer: int, n: int, inner: int) -> tuple[int, int]:
    """(chunk length, number of chunks) along n for a fold of (outer, n, inner): enough tasks for many cores."""
    if inner == 1:
        chunk = n if outer >= 64 or n <= 2 * CHUNK else CHUNK
    else:
        tasks = outer * -(-inner // COLUMNS)
        chunk = n if tasks >= 16 or n * inner <= 2 * CHUNK else max(64, -(-n // 16))
    return chunk, max(1, -(-n // max(1, chunk)))


@loop
def fold_sum(part, out, x, outer, n, inner, chunk, chunks, scale):
    """out[o, c, j] = scale * sum of F(x[o, i, j]) over chunk c."""
    if inner == 1 and n <= RUN and outer >= 4:
        for t in tasks(part, (outer + 3) // 4):
            sum_four(out, x, min(4 * t, outer - 4), n, scale, F)
    elif inner == 1:
        for t in tasks(part, outer * chunks):
            first, last = piece(t, n, chunk, chunks)
            out[t] = scale * long_sum_run(x[first:last], F)
    else:
        parts, space = (inner + COLUMNS - 1) // COLUMNS, wide_space(x)
        for t in tasks(part, outer * chunks * parts):
            oc, lo = t // parts, t % parts * COLUMNS
            first, last = piece(oc, n, chunk, chunks)
            at, total = oc * inner + lo, space[: min(COLUMNS, inner - lo)]
            fill_run(total, 0)
            add_columns(total, x, first, last, inner, lo, F)
            scaled_run(out[at : at + total.size], total, scale)


def piece(t, n, chunk, chunks):
    """The first of chunk t, and the end."""
    if chunks == 1:
        return t * n, t * n + n
    row, first = t // chunks * n, t % chunks * chunk
    return row + first, row + min(n, first + chunk)


def sum_four(out, x, row, n, scale, f):
    """Four rows side by side: what it takes to add up the lanes of vectors is done for all of them at once."""
    to, first, step = np.uintp(row), np.uintp(row * n), np.uintp(n)
    side = np.uintp(1 if n < 8 else 8 if n < 64 else 64)
    whole = step // side * side
    p, q, r, s = four_sums(x, first, step, whole, f)
    if whole < step:
        t, u, v, w = four_sums(x, first + whole, step, step - whole, f)
        p, q, r, s = p + t, q + u, r + v, s + w
    out[to], out[to + np.uintp(1)], out[to + np.uintp(2)], out[to + np.uintp(3)] = scale * p, scale * q, scale * r, scale * s


def four_sums(x, a, step, many, f):
    b, c, d = a + step, a + step + step, a + step + step + step
    p, q, r, s = 0.0, 0.0, 0.0, 0.0
    for i in range(many):
        p += f(x[a + i])
        q += f(x[b + i])
        r += f(x[c + i])
        s += f(x[d + i])
    return p, q, r, s


# Helpers take slices: an index counted from 0 needs no check for negative values, and the loop vectorises.


def scaled_run(out, x, scale):
    for j in range(out.size):
        out[j] = scale * x[j]


@loop
def fold_max(part, out, x, outer, n, inner, chunk, chunks, scale):
    """out[o, c, j] = scale * maximum of scale * x[o, i, j] over chunk c (scale 1: max, -1: min). NaN wins."""
    if inner == 1:
        for t in tasks(part, outer * chunks):
            first, last = piece(t, n, chunk, chunks)
            out[t] = run_max(x[first:last], scale) * scale
    else:
        parts = (inner + COLUMNS - 1) // COLUMNS
        for t in tasks(part, outer * chunks * parts):
            oc, lo = t // parts, t % parts * COLUMNS
            first, last = piece(oc, n, chunk, chunks)
            max_columns(out[oc * inner + lo : oc * inner + min(inner, lo + COLUMNS)], x, first, last, inner, lo, scale)


def max_columns(best, x, first, last, cols, lo, scale):
    """best[j] = scale * maximum of scale * x[row, lo + j] over the rows first to last of x, which is `cols` wide."""
    step, start = np.uintp(cols), np.uintp(first * cols + lo)
    for j in range(np.uintp(best.size)):
        best[j] = x[start + j]
    for row in range(first + 1, last - 3, 4):
        at = np.uintp(row * cols + lo)
        for j in range(np.uintp(best.size)):
            a = at + j
            c = a + step + step
            two = maximum(maximum(x[a] * scale, x[a + step] * scale), maximum(x[c] * scale, x[c + step] * scale))
            best[j] = maximum(best[j] * scale, two) * scale
    for row in range(last - (last - first - 1) % 4, last):
        at = np.uintp(row * cols + lo)
        for j in range(np.uintp(best.size)):
            best[j] = maximum(best[j] * scale, x[at + j] * scale) * scale


@loop
def fold_prod(part, out, x, outer, n, inner, chunk, chunks, scale):
    """out[o, c, j] = the product of x[o, i, j] over chunk c, in wide()."""
    if inner == 1:
        for t in tasks(part, outer * chunks):
            first, last = piece(t, n, chunk, chunks)
            out[t] = run_product(x[first:last])
    else:
        parts, space = (inner + COLUMNS - 1) // COLUMNS, wide_space(x)
        for t in tasks(part, outer * chunks * parts):
            oc, lo = t // parts, t % parts * COLUMNS
            first, last = piece(oc, n, chunk, chunks)
            at, total = oc * inner + lo, space[: min(COLUMNS, inner - lo)]
            fill_run(total, 1)
            for i in range(first * inner + lo, last * inner + lo, inner):
                times_run(total, x[i : i + total.size])
            scaled_run(out[at : at + total.size], total, scale)


def times_run(out, x):
    for j in range(out.size):
        out[j] *= x[j]


def run_product(run):
    total = wide(1)
    for i in range(run.size):
        total *= wide(run[i])
    return total


@loop
def argmax(part, out, x, outer, n, inner, scale):
    """out[o, j] = first index of the largest scale * x[o, :, j]; the first NaN wins."""
    if inner == 1:
        for t in tasks(part, outer):
            run = x[t * n : t * n + n]
            out[t] = first_of(run, run_max(run, scale) * scale)
    else:
        parts, space = (inner + COLUMNS - 1) // COLUMNS, line_space(x)
        for t in tasks(part, outer * parts):
            o, lo = t // parts, t % parts * COLUMNS
            at, best = o * inner + lo, space[: min(COLUMNS, inner - lo)]
            max_columns(best, x, o * n, o * n + n, inner, lo, scale)
            for i in range(n - 1, -1, -1):
                put_place(out[at : at + best.size], x[(o * n + i) * inner + lo :], best, i)


def first_of(run, best):
    """Where `best` is in a run, or the first NaN, if there is one."""
    at = run.size
    for i in range(run.size):
        at = min(at, select((run[i] == best) | (run[i] != run[i]), i, run.size))
    return at


def put_place(out, x, best, i):
    for j in range(out.size):
        out[j] = select((x[j] == best[j]) | (x[j] != x[j]), i, out[j])


def run_max(run, scale):
    best, zero = run[0] * scale, scale - scale
    odd = zero  # becomes NaN where there is a NaN or an infinity: a sum beside is cheaper than carrying NaN along
    for i in range(run.size):
        value = run[i] * scale
        best = fmax(best, value)
        odd += value * zero
    return odd if odd != odd and has_nan(run) else best  # with a NaN, what fmax gave is undefined


def has_nan(run):
    found = False
    for i in range(run.size):
        found |= run[i] != run[i]
    return found


# ---- launchers ----
@launcher(name="fold_sum")
def sum_launcher(go, outs, ins, *sizes):
    fold(go, fold_sum, same, outs, ins, *sizes)


@launcher(name="fold_max")
def max_launcher(go, outs, ins, *sizes):
    fold(go, fold_max, None, outs, ins, *sizes)


@launcher(name="fold_prod")
def prod_launcher(go, outs, ins, *sizes):
    fold(go, fold_prod, None, outs, ins, *sizes)


def fold(go, loop, second, outs, ins, outer, n, inner, scale):
    """One pass, or where n is cut into chunks a second one, with the formula `second`, over the results of the chunks."""
    (y,), (x,) = outs, ins
    chunk, chunks = fold_plan(outer, n, inner)
    if chunks == 1:
        go(loop, outs, ins, (outer, n, inner, chunk, 1, scale), work=x.size)
        return
    dtype = computed(y.dtype)
    first = go.empty(outer * chunks * inner, dtype)
    go(loop, (first,), ins, (outer, n, inner, chunk, chunks, scale if scale < 0 else type(scale)(1)), work=x.size)
    go(loop, outs, (first,), (outer, chunks, inner, chunks, 1, scale), work=first.size, formula=second, dtype=dtype)


@launcher(name="argmax")
def argmax_launcher(go, outs, ins, *sizes):
    go(argmax, outs, ins, sizes, work=ins[0].size)
