"""One sparse matrix along one axis (ops/tables.py): sums of a few numbers, or of a few runs of neighbours, for each result."""

import numpy as np

from ....core.words import real
from ..loops.runs import fill_run
from ..runtime.family import launcher, loop
from ..runtime.parallel import tasks

LENGTH = 4096  # numbers of a run that one task makes


@loop
def mixed_numbers(part, y, x, starts, columns, weights, n, rows):
    """y[o, j] = the sum over t of weights[t] * x[o, columns[t]]. Items: o. One or two numbers for each result need no loop over them."""
    each, uneven = columns.size // rows, 0
    for j in range(np.uintp(rows)):
        uneven |= starts[j + np.uintp(1)] - starts[j] != each
    for o in tasks(part, y.size // rows):
        line, out = x[o * n : o * n + n], y[o * rows : o * rows + rows]
        if each == 1 and not uneven:
            for j in range(np.uintp(rows)):
                out[j] = weights[j] * line[np.uintp(columns[j])]
        elif each == 2 and not uneven:
            for j in range(np.uintp(rows)):
                a, b = j + j, j + j + np.uintp(1)
                out[j] = weights[a] * line[np.uintp(columns[a])] + weights[b] * line[np.uintp(columns[b])]
        else:
            for j in range(rows):
                total = real(0)
                for t in range(starts[j], starts[j + 1]):
                    total += weights[np.uintp(t)] * line[np.uintp(columns[np.uintp(t)])]
                out[j] = total


@loop
def mixed_runs(part, y, x, starts, columns, weights, n, rows, inner):
    """y[o, j, :] = the sum over t of weights[t] * x[o, columns[t], :]. Items: o, j, piece of a run."""
    pieces = (inner + LENGTH - 1) // LENGTH
    for item in tasks(part, y.size // inner * pieces):
        row, low = item // pieces, item % pieces * LENGTH
        o, j, size = row // rows, row % rows, min(LENGTH, inner - low)
        out, t = y[row * inner + low : row * inner + low + size], starts[j]
        if t == starts[j + 1]:
            fill_run(out, real(0))
            continue
        at = (o * n + columns[t]) * inner + low
        put_weighted(out, x[at : at + size], weights[t])
        for u in range(t + 1, starts[j + 1]):
            at = (o * n + columns[u]) * inner + low
            add_weighted(out, x[at : at + size], weights[u])


def put_weighted(out, x, weight):
    for i in range(out.size):
        out[i] = weight * x[i]


def add_weighted(out, x, weight):
    for i in range(out.size):
        out[i] += weight * x[i]


@launcher
def mixed(go, outs, ins, n, rows, inner):
    work = outs[0].size * (1 + ins[2].size // max(1, rows))
    if inner == 1:
        go(mixed_numbers, outs, ins, (n, rows), work=work)
    else:
        go(mixed_runs, outs, ins, (n, rows, inner), work=work)
