"""What loops do with a run, a slice of neighbouring numbers: fill, copy, add, sum.

They take slices because an index counted from 0 needs no check for negative values, and the loop vectorises.

Read next: reduce.py.
"""

from __future__ import annotations


def fill_run(run, value):
    for i in range(run.size):
        run[i] = value


def copy_run(out, x):
    for i in range(out.size):
        out[i] = x[i]


def add_run(out, x):
    for i in range(out.size):
        out[i] += x[i]


def sum_run(run):
    total = 0.0
    for i in range(run.size):
        total += run[i]
    return total
