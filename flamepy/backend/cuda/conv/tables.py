"""One sparse matrix along one axis (ops/tables.py): a thread for each number of the result."""

from ....core.words import real
from ..loops.words import index
from ..products.tensor import divided
from ..runtime.family import blocks, kernel, launcher


@kernel
def mixed_sums(y, x, starts, columns, weights, n, rows, inner):
    """y[o, j, i] = the sum over t of weights[t] * x[o, columns[t], i], t from starts[j] to starts[j + 1]."""
    at = index()
    if at < y.size:
        rest, i = divided(at, inner)
        o, j = divided(rest, rows)
        t, end, total = starts[j], starts[j + 1], real(0)
        while t < end:
            total += weights[t] * real(x[(o * n + columns[t]) * inner + i])
            t += 1
        y[at] = total


@launcher
def mixed(go, outs, ins, n, rows, inner):
    go(mixed_sums, outs, ins, (n, rows, inner), grid=blocks(outs[0].size))
