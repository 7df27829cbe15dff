"""Loops over rows that add something up on the way: the gradients of a norm's weights, the loss of a batch.

Rows are cut into chunks whose length follows from sizes alone, each chunk adds up its own rows, and the chunks are added in
order: the same bits for any number of threads.
"""

from ...formula.row_words import wide
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks
from ..runtime.workspace import COLUMNS, wide_space
from .maps import F, fill, same
from .runs import add_columns, fill_run, long_sum_run, put_run

CHUNK = 8192  # elements of a chunk of rows, at least, unless it has MOST rows
CHUNKS = 64  # chunks, at most, unless they have MOST rows
NEAR, MOST = 16, 256  # rows added up one after the other; rows of a chunk


@loop(reorders=True)  # as loops.row
def row_sums(part, out, sums, nears, plan, *args):
    """F(r, out, total, *args) for each row r; each chunk of rows has a `total` of its own in `sums`, which starts at zero.

    plan: (rows of a chunk, width of a total). In chunks of more than NEAR rows, so many are added up in `nears` before they go to the
    total: adding one row after the other would lose digits.
    """
    for t in tasks(part, sums.size // plan[1]):
        total = sums[t * plan[1] : t * plan[1] + plan[1]]
        near = total if plan[0] <= NEAR else nears[t * plan[1] : t * plan[1] + plan[1]]
        start, end = t * plan[0], min(args[-2], t * plan[0] + plan[0])
        for first in range(start, end, NEAR):
            fill_run(near, 0.0)
            for r in range(first, min(end, first + NEAR)):
                F(r, out, near, *args)
            if plan[0] > NEAR:
                put_run(total, near, first > start)


@loop
def add_chunks(part, dw, db, sums, chunks, cols, add_w, add_b):
    """dw (and db) = the chunks of `sums` added up; with add_w (add_b) on top of what is there. An empty out is left alone."""
    width, space = sums.size // chunks, wide_space(sums)
    blocks = (cols + COLUMNS - 1) // COLUMNS
    for t in tasks(part, width // cols * blocks):
        lo = t % blocks * COLUMNS
        hi = min(cols, lo + COLUMNS)
        start = t // blocks * cols
        total = space[: hi - lo]
        fill_run(total, 0.0)
        add_columns(total, sums, 0, chunks, width, start + lo, same)
        if start == 0 and dw.size:
            put_run(dw[lo:hi], total, add_w)
        if start > 0 and db.size:
            put_run(db[lo:hi], total, add_b)


@loop(launched=True)
def batch_loss(part, out, losses, found, mean):
    """out = the sum of the losses; with `mean` divided by found's last number, how many ids count or what their weights add up to: NaN
    if there are none."""
    if part[0] == 0:
        total = long_sum_run(losses, same)
        out[0] = total / wide(found[found.size - 1]) if mean else total


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
    chunk = min(MOST, max(NEAR, CHUNK // cols, -(-rows // CHUNKS)))
    chunks, width = -(-rows // chunk), parts * cols
    sums, nothing = go.empty(chunks * width), go.empty(0)
    go(row_sums, (dx, sums, go.empty(chunks * width if chunk > NEAR else 0)), (table((chunk, width)), *ins), (rows, cols))
    out = (nothing if dw is None else dw, nothing if db is None else db, sums)
    go(add_chunks, out, (), (chunks, cols, add_w, add_b), work=sums.size, formula=None)
