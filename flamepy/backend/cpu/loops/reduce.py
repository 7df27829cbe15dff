"""Folds: a run of numbers becomes one, along any axis, in a fixed order.

Every fold sees its input as (outer, n, inner) and folds the middle. It works on chunks of n whose length follows from the
sizes alone, so the order of additions (and every bit) is the same for any number of threads; when there is more than one
chunk the caller folds the chunk results again. Within a chunk runs of numbers, or eight rows at once, are added in the type of the
input and their sums in float64 (runs.py): the rounding error does not grow with the length.
"""

from __future__ import annotations

import numpy as np

from ....core.words import maximum
from ....dtypes import computed
from ...formula.row_words import RUN, wide
from ...formula.words import fmax
from ..runtime.family import launcher, loop
from ..runtime.parallel import tasks
from ..runtime.workspace import COLUMNS, wide_space
from .maps import F, same
from .runs import VECTORS, add_columns, eights, fill_run, long_sum_run, short_sum_run

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
    if inner == 1 and n <= RUN:
        for t in tasks(part, outer):
            out[t] = scale * (eights(x, t * n, n, F) if n < VECTORS else short_sum_run(x[t * n : t * n + n], F))
    elif inner == 1:
        for t in tasks(part, outer * chunks):
            o = t // chunks
            first = (t % chunks) * chunk
            out[t] = scale * long_sum_run(x[o * n + first : o * n + min(n, first + chunk)], F)
    else:
        parts, space = (inner + COLUMNS - 1) // COLUMNS, wide_space(x)
        for t in tasks(part, outer * chunks * parts):
            oc = t // parts
            first = (oc % chunks) * chunk
            lo = (t % parts) * COLUMNS
            hi = min(inner, lo + COLUMNS)
            total = space[: hi - lo]
            fill_run(total, 0)
            row = oc // chunks * n
            add_columns(total, x, row + first, row + min(n, first + chunk), inner, lo, F)
            scaled_run(out[oc * inner + lo : oc * inner + hi], total, scale)


# Helpers take slices: an index counted from 0 needs no check for negative values, and the loop vectorises.


def scaled_run(out, x, scale):
    for j in range(out.size):
        out[j] = scale * x[j]


@loop
def fold_max(part, out, x, outer, n, inner, chunk, chunks, scale):
    """out[o, c, j] = scale * maximum of scale * x[o, i, j] over chunk c (scale 1: max, -1: min). NaN wins."""
    if inner == 1:
        for t in tasks(part, outer * chunks):
            first = t // chunks * n + t % chunks * chunk
            out[t] = run_max(x[first : min(t // chunks * n + n, first + chunk)], scale) * scale
    else:
        parts = (inner + COLUMNS - 1) // COLUMNS
        for t in tasks(part, outer * chunks * parts):
            oc, lo = t // parts, t % parts * COLUMNS
            row, first = oc // chunks * n, oc % chunks * chunk
            best = out[oc * inner + lo : oc * inner + min(inner, lo + COLUMNS)]
            max_columns(best, x, row + first, row + min(n, first + chunk), inner, lo, scale)


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
            first = t // chunks * n + t % chunks * chunk
            out[t] = run_product(x[first : min(t // chunks * n + n, first + chunk)])
    else:
        parts, space = (inner + COLUMNS - 1) // COLUMNS, wide_space(x)
        for t in tasks(part, outer * chunks * parts):
            oc, lo = t // parts, t % parts * COLUMNS
            row, first, hi = oc // chunks * n, oc % chunks * chunk, min(inner, lo + COLUMNS)
            total = space[: hi - lo]
            fill_run(total, 1)
            for i in range(row + first, row + min(n, first + chunk)):
                times_run(total, x[i * inner + lo : i * inner + hi])
            scaled_run(out[oc * inner + lo : oc * inner + hi], total, scale)


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
    for t in tasks(part, outer * inner):
        start = t // inner * n * inner + t % inner
        best = x[start] * scale
        at = 0
        for i in range(1, n):
            value = x[start + i * inner] * scale
            if value > best or (value != value and best == best):
                best = value
                at = i
        out[t] = at


def run_max(run, scale):
    best, zero = run[0] * scale, scale - scale
    odd = zero  # becomes NaN where there is a NaN or an infinity: a sum beside is cheaper than carrying NaN along
    for i in range(run.size):
        value = run[i] * scale
        best = fmax(best, value)
        odd += value * zero
    if odd != odd and has_nan(run):
        best = run[0] * scale  # with a NaN, what fmax gave is undefined
        for i in range(1, run.size):
            best = maximum(best, run[i] * scale)
    return best


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
