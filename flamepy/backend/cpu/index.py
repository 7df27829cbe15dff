"""Moving elements: strided copies, and rows picked or added by index.

Tensors are always contiguous, so a transpose, a slice or a broadcast is a strided read into new memory, and its backward a
strided write. `table` holds k sizes then k strides of the strided side, for all dimensions but the last (inner, step).

May import: this folder. FLAME counterpart: `flame_core::tensor` narrow/permute/index_select. Read next: spans.py.
"""

from __future__ import annotations

from .broadcast import offset
from .parallel import tasks

BLOCK = 32  # columns added by one task


def strided_get(part, out, x, table, k, inner, step, base):
    """out[r, j] = x[base + offset(r) + j * step]."""
    for r in tasks(part, out.size // inner):
        start = base + offset(table, k, 0, r)
        line = out[r * inner : r * inner + inner]
        if step == 1:
            copy_run(line, x[start : start + inner])
        else:
            for j in range(inner):
                line[j] = x[start + j * step]


def strided_put(part, out, x, table, k, inner, step, base):
    """out[base + offset(r) + j * step] = x[r, j]; the places written must be distinct."""
    for r in tasks(part, x.size // inner):
        start = base + offset(table, k, 0, r)
        line = x[r * inner : r * inner + inner]
        if step == 1:
            copy_run(out[start : start + inner], line)
        else:
            for j in range(inner):
                out[start + j * step] = line[j]


def take_rows(part, out, x, index, inner):
    """out[r, :] = x[index[r], :]."""
    for r in tasks(part, index.size):
        start = index[r] * inner
        copy_run(out[r * inner : r * inner + inner], x[start : start + inner])


def add_rows(part, out, x, index, inner):
    """out[index[r], :] += x[r, :], rows in order within each block of columns: repeated indices add up, same bits always."""
    for t in tasks(part, (inner + BLOCK - 1) // BLOCK):
        lo = t * BLOCK
        hi = min(inner, lo + BLOCK)
        for r in range(index.size):
            start = index[r] * inner
            add_run(out[start + lo : start + hi], x[r * inner + lo : r * inner + hi])


# Helpers take slices: an index counted from 0 needs no check for negative values, and the loop vectorises.


def copy_run(out, x):
    for i in range(out.size):
        out[i] = x[i]


def add_run(out, x):
    for i in range(out.size):
        out[i] += x[i]
