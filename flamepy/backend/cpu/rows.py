"""Loops over rows that add something up on the way: the gradients of a norm's weights, the loss of a batch.

Rows are cut into chunks whose length follows from sizes alone, each chunk adds up its own rows, and the chunks are added in
order: the same bits for any number of threads.

FLAME counterpart: `flame_core::cuda_kernels` norms. Read next: index.py.
"""

from __future__ import annotations

from ..formula.words import real
from .family import launcher, loop, table
from .loops import F, fill
from .parallel import tasks
from .plans import COLUMNS
from .runs import add_run, copy_run, fill_run, sum_run

LOSSES = 4096  # losses added at once
CHUNK = 8192  # elements of a chunk of rows, at least
CHUNKS = 64  # chunks, at most


@loop(reorders=True)  # as loops.row
def row_sums(part, out, sums, plan, *args):
    """F(r, out, total, *args) for each row r; each chunk of rows has a `total` of its own, which starts at zero.

    plan: (rows of a chunk, width of a total).
    """
    for t in tasks(part, sums.size // plan[1]):
        total = sums[t * plan[1] : t * plan[1] + plan[1]]
        fill_run(total, 0.0)
        for r in range(t * plan[0], min(args[-2], t * plan[0] + plan[0])):
            F(r, out, total, *args)


@loop
def add_chunks(part, dw, db, sums, chunks, cols, add_w, add_b):
    """dw (and db) = the chunks of `sums` added in order; with add_w (add_b) on top of what is there. An empty out is left alone."""
    width = sums.size // chunks
    blocks = (cols + COLUMNS - 1) // COLUMNS
    for t in tasks(part, width // cols * blocks):
        lo = t % blocks * COLUMNS
        hi = min(cols, lo + COLUMNS)
        start = t // blocks * cols
        total = sums[start + lo : start + hi]
        for c in range(1, chunks):
            add_run(total, sums[c * width + start + lo : c * width + start + hi])
        if start == 0:
            put(dw, total, lo, add_w)
        else:
            put(db, total, lo, add_b)


def put(out, total, lo, add):
    if out.size:
        line = out[lo : lo + total.size]
        if add:
            add_run(line, total)
        else:
            copy_run(line, total)


@loop
def batch_loss(part, out, losses, found, mean):
    """out = the sum of the losses; with `mean` divided by found[2], the number of ids that count (check_ids). NaN if there are none."""
    if part[0] == 0:
        total = 0.0
        for at in range(0, losses.size, LOSSES):
            total += sum_run(losses[at : at + LOSSES])
        out[0] = total / real(found[2]) if mean else total


# ---- launchers ----
@launcher(name="row_sums")
def row_sums_launcher(go, outs, ins, parts, add_w, add_b, rows, cols):
    """Each chunk of rows adds up totals of its own; then the chunks are added in order."""
    dx, dw, db = outs
    if not rows:
        for out, add in ((dw, add_w), (db, add_b)):
            if out is not None and out.size and not add:
                go(fill, (out,), (), (out.dtype.type(0),), formula=None)
        return
    chunk = max(16, CHUNK // cols, -(-rows // CHUNKS))
    chunks, width = -(-rows // chunk), parts * cols
    sums, nothing = go.empty(chunks * width), go.empty(0)
    go(row_sums, (dx, sums), (table((chunk, width)), *ins), (rows, cols))
    out = (nothing if dw is None else dw, nothing if db is None else db, sums)
    go(add_chunks, out, (), (chunks, cols, add_w, add_b), work=sums.size, formula=None)


@launcher(name="batch_loss")
def batch_loss_launcher(go, outs, ins, mean):
    go(batch_loss, outs, ins, (mean,))
