"""What loops do with a run, a slice of neighbouring numbers: fill, copy, add, sum; and the sums of columns.

Sums are accurate however long: RUN numbers, or eight rows, are added up in their own type, what that gives in wide() numbers.

They take slices because an index counted from 0 needs no check for negative values, and the loop vectorises.
"""

import numpy as np

from ...formula.row_words import RUN, wide

VECTORS = 64  # numbers that vectors hold, four of the longest ones


def fill_run(run, value):
    for i in range(run.size):
        run[i] = value


def copy_run(out, x):
    for i in range(out.size):
        out[i] = x[i]


def repeat_run(out, x, count):
    """Each number of x `count` times."""
    if count == 2:
        for i in range(np.uintp(x.size)):
            out[i + i], out[i + i + np.uintp(1)] = x[i], x[i]
    else:
        for i in range(np.uintp(x.size)):
            for j in range(np.uintp(count)):
                out[i * np.uintp(count) + j] = x[i]


def add_run(out, x):
    for i in range(out.size):
        out[i] += x[i]


def add_value(out, value):
    for i in range(out.size):
        out[i] += value


def put_run(out, x, add):
    """out = x, or with `add` out += x."""
    if add:
        add_run(out, x)
    else:
        copy_run(out, x)


def long_sum_run(run, f):
    """The sum of f over a run of any length, in wide()."""
    total = wide(short_sum_run(run[:RUN], f))
    for first in range(RUN, run.size, RUN):
        total += wide(short_sum_run(run[first : first + RUN], f))
    return total


def short_sum_run(run, f):
    """The sum of RUN numbers at most, in their own type. What vectors leave over is apart: 63 numbers one after the other lose digits."""
    whole = run.size // VECTORS * VECTORS
    near = run.size // 8 * 8
    return sum_of(run[:whole], f) + (sum_of(run[whole:near], f) + sum_of(run[near:], f))


def sum_of(run, f):
    total = 0.0
    for i in range(run.size):
        total += f(run[i])
    return total


def add_columns(total, x, first, last, cols, lo, f):
    """total[j] += f(x[row, lo + j]) for the rows first to last of x, which is `cols` wide; `total` is of wide() numbers."""
    step, whole = np.uintp(cols), first + (last - first) // 8 * 8
    for row in range(first, whole, 8):
        at = np.uintp(row * cols + lo)
        for j in range(np.uintp(total.size)):
            a = at + j
            c = a + step + step
            e = c + step + step
            g = e + step + step
            four = (f(x[a]) + f(x[a + step])) + (f(x[c]) + f(x[c + step]))
            total[j] += wide(four + ((f(x[e]) + f(x[e + step])) + (f(x[g]) + f(x[g + step]))))
    for row in range(whole, last):
        at = np.uintp(row * cols + lo)
        for j in range(np.uintp(total.size)):
            total[j] += wide(f(x[at + j]))
