"""Moving elements: strided copies, and rows picked or added by index.

Tensors are always contiguous, so a transpose, a slice or a broadcast is a strided read into new memory, and its backward a
strided write. `table` holds k sizes then k strides of the strided side, for all dimensions but the last (inner, step).

May import: this folder. FLAME counterpart: `flame_core::tensor` narrow/permute/index_select. Read next: spans.py.
"""

from __future__ import annotations

from .blas import copy_matrix
from .broadcast import offset
from .parallel import tasks
from .runs import add_run, copy_run, fill_run

LENGTH = 4096  # elements of a run that one task moves
SIDE, WIDTH = 64, 256  # rows and columns of the tile of a turned matrix that one task makes


def strided_get(part, out, x, table, k, inner, step, base):
    """out[r, j] = x[base + offset(r) + j * step]."""
    blocks = (inner + LENGTH - 1) // LENGTH
    for t in tasks(part, out.size // inner * blocks):
        r, low = t // blocks, t % blocks * LENGTH
        start = base + offset(table, k, 0, r) + low * step
        line = out[r * inner + low : r * inner + min(inner, low + LENGTH)]
        if step == 1:
            copy_run(line, x[start : start + line.size])
        elif step == 0:
            fill_run(line, x[start])
        else:
            for j in range(line.size):
                line[j] = x[start + j * step]


def strided_turn(part, out, x, table, k, m, n, step, base):
    """out[r, i, j] = x[base + offset(r) + i + j * step] for i < m <= step and j < n: each r is a matrix turned."""
    down, across = (m + SIDE - 1) // SIDE, (n + WIDTH - 1) // WIDTH
    for t in tasks(part, out.size // (m * n) * down * across):
        r, i, j = t // (down * across), t % (down * across) // across * SIDE, t % across * WIDTH
        start = base + offset(table, k, 0, r) + i + j * step
        copy_matrix(True, min(WIDTH, n - j), min(SIDE, m - i), x, start, step, out, (r * m + i) * n + j, n)


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


def add_rows(part, out, x, index, inner, block, group, deals, add):
    """out[index[r], :] += x[r, :], rows in order, from zeros unless `add`.

    Task t has a block of columns of every deals-th group of 2**group rows of out; deals is a power of two.
    """
    blocks = (inner + block - 1) // block
    rows = out.size // inner
    for t in tasks(part, deals * blocks):
        deal = t // blocks
        lo = t % blocks * block
        hi = min(inner, lo + block)
        if not add:
            for first in range(deal << group, rows, deals << group):
                last = min(rows, first + (1 << group))
                if blocks == 1:
                    fill_run(out[first * inner : last * inner], 0)
                else:
                    for r in range(first, last):
                        fill_run(out[r * inner + lo : r * inner + hi], 0)
        for i in range(index.size):
            r = index[i]
            if (r >> group) & (deals - 1) == deal:
                add_run(out[r * inner + lo : r * inner + hi], x[i * inner + lo : i * inner + hi])


# ---- integer indices: found out and computed without the host ----


def check_ids(part, found, ids, low, high, ignores, ignore):
    """found = (position of the first id outside [low, high) or -1, that id, number of ids that are not `ignore`)."""
    if part[0] == 0:
        outside, ignored = 0, 0
        for i in range(ids.size):
            skip = ignores & (ids[i] == ignore)
            ignored += skip
            outside += ((ids[i] < low) | (ids[i] >= high)) & (not skip)
        found[0] = -1
        found[1] = 0
        found[2] = ids.size - ignored
        if outside:
            i = 0
            while (ignores and ids[i] == ignore) or low <= ids[i] < high:
                i += 1
            found[0] = i
            found[1] = ids[i]


def place_ids(part, out, ids, table, k, n, step):
    """out[p] = (where position p begins, by the k sizes and strides in table) + step * id; negative ids count from the end."""
    for p in tasks(part, out.size):
        i = ids[p % ids.size]
        out[p] = offset(table, k, 0, p) + step * (i + n if i < 0 else i)
