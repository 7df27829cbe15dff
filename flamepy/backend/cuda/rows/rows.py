"""Row bodies on blocks of threads, the totals that norms' gradients add up over rows, and the loss of a batch.

A block copies the rows it works on into shared memory, if they fit (near.py), and what a body writes goes back from there: global memory
is read and written once, 16 bytes at a time, however often a body passes over its row. Several short rows share a block; a long row has
a block of its own. A row that does not fit is read from where it lies. Which of these it is follows from sizes alone (row_plan).
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...base import Buffer
from ...formula.row_words import all_sum, lane, lanes, wide
from ..loops.words import block, thread
from ..runtime.compat import cuda
from ..runtime.family import F, blocks, kernel, launcher, shaped
from ..runtime.near import address_of, addresses, arrived, copy2, fetch16, moved, put16, shared_span, span_at, widths
from .row_words import ROOM, THREADS, room_of

COLUMNS = 32  # neighbouring columns of totals that a block adds up
LOSSES = 16384  # losses that one block adds up
BLOCKS = 2048  # enough of them for every GPU: more rows make blocks longer
FEW = 512  # enough to keep one busy: with more, blocks that read what all rows have in common get ROWS rows first
ROWS = 16  # of a block that adds up totals, at least, once all others are busy
SUMS = 8 << 20  # bytes of their totals, at most, before that: they stay in the GPU's cache
APART = 16  # bytes: what alignment takes of the room for each operand, at most
WHOLE = 32  # operands begin alike: which numbers a lane takes together depends on their places


class Shape(NamedTuple):
    """Lanes of a row, threads of a block; the longest rows that it is for; whether a lane takes neighbours at once."""

    lanes: int
    threads: int
    longest: int
    wide: bool


ANY = 1 << 40
SHAPES = (
    Shape(8, 256, 16, False),
    Shape(32, 256, 512, False),
    Shape(32, 256, ANY, True),
    Shape(32, 128, 1024, True),
    Shape(32, 64, 2048, True),
    Shape(128, 128, ANY, True),
    Shape(256, 256, ANY, True),
)
FAR, FAR_IN_WARPS = Shape(512, 512, ANY, True), Shape(32, 256, ANY, False)  # where no rows are near


class RowPlan(NamedTuple):
    """The shape, rows of a block, rows at once; where each operand begins in the room (-1: it stays where it is; odd: see moved()), and
    the bytes of a row or of what rows share; for sums over rows, where the groups' totals begin in the room, or -1."""

    shape: Shape
    chunk: int
    per: int
    places: tuple[int, ...]
    lengths: tuple[int, ...]
    start: int = -1


def laid_out(sizes: tuple[int, ...], common: tuple[int, ...], per: int) -> tuple[tuple[int, ...], int]:
    """(where `per` rows of each operand begin, or all it has in common; the end), for operands with so many bytes a row; 0: no place."""
    at, places = 0, []
    for row, all_rows in zip(sizes, common, strict=True):
        size = row * per or all_rows
        places.append(-1 if not size else at if row else at + 1)
        at += -(-(size + APART) // WHOLE) * WHOLE if size else 0
    return tuple(places), at


def both(sizes: tuple[int, ...], common: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([row or all_rows for row, all_rows in zip(sizes, common, strict=True)])


@lru_cache(4096)
def row_plan(rows: int, cols: int, sizes: tuple[int, ...], common: tuple[int, ...], outs: int, ours: bool, absent: int = 0) -> RowPlan:
    """`sizes`: the bytes that each operand has for a row, else 0; `common`: of those that all rows read. Not `ours`: at most a warp, whose
    lanes take one element each, since a user's body may read any. `absent`: bytes of an out that nobody wants, which has a place all the
    same, so that the others have the same bits with and without it."""
    nothing = (0,) * len(sizes)
    ins = (0,) * outs + sizes[outs:]
    for row, all_rows in ((sizes, common), (ins, common), (sizes, nothing), (ins, nothing)):
        for shape in SHAPES:
            groups, room = shape.threads // shape.lanes, 1024 * room_of(shape.lanes)
            whole = (*row, absent if row is sizes else 0), (*all_rows, 0)
            size = laid_out(*whole, groups)[1]
            if not any(row) or cols > shape.longest or size > room or (shape.lanes > 32 and not ours):
                continue
            times = 1
            while laid_out(*whole, 2 * times * groups)[1] <= room and 2 * times * groups * BLOCKS <= rows:
                times *= 2
            per, shape = groups * times, shape._replace(wide=shape.wide and ours)
            chunk = per * max(-(-rows // (per * BLOCKS)), min(-(-ROWS // per), -(-rows // (per * FEW)))) if any(all_rows) else per
            return RowPlan(shape, chunk, per, laid_out(row, all_rows, per)[0], both(row, all_rows))
    if ours and cols > 512:
        return RowPlan(FAR, 1, 1, (), ())
    groups = FAR_IN_WARPS.threads // FAR_IN_WARPS.lanes
    return RowPlan(FAR_IN_WARPS, groups, groups, (-1,) * len(sizes), nothing)


@lru_cache(4096)
def totals_plan(rows: int, cols: int, sizes: tuple[int, ...], common: tuple[int, ...], total: int) -> RowPlan:
    """Behind the rows lie the totals, each group's own, of `total` bytes. Where they are too long they are kept in global memory, by one
    group. Few rows are shared out among as many blocks as keep every GPU busy: which ones follows from sizes alone, so the order of
    additions, and each bit, is the same on all of them."""
    least = max(1, min(ROWS, rows // max(1, min(FEW, SUMS // total))))
    nothing, ins = (0,) * len(sizes), (0, *sizes[1:])
    for row, all_rows in ((sizes, common), (ins, common), (sizes, nothing), (ins, nothing), (nothing, common), (nothing, nothing)):
        for shape in SHAPES:
            groups = shape.threads // shape.lanes
            places, start = laid_out(row, all_rows, groups)
            if cols <= shape.longest and start + groups * total <= 1024 * room_of(shape.lanes):
                chunk = groups * max(-(-least // groups), -(-rows // (groups * BLOCKS // 2)))
                return RowPlan(shape, chunk, groups, places, both(row, all_rows), start)
    return RowPlan(FAR, max(least, -(-rows // (BLOCKS // 2))), 1, (-1,) * len(sizes), nothing)


EACH, SECTOR = 16, 32  # bytes that are copied at once; that move together
SHIFT = COLUMNS.bit_length() - 1
BUSY = 512  # threads of a multiprocessor that registers are enough for; twice as many where rows lie far, half where numbers have 8 bytes


def row(*args):
    """F(r, *outs, *ins, *consts) for each row r. Ends in (rows, cols, rows of a block, rows at once, how many outs, places, lengths)."""
    rows, chunk, per, outs, places, lengths = args[-7], args[-5], args[-4], args[-3], args[-2], args[-1]
    room = shared_span(0, ROOM)
    begin, end = block() * chunk, min(rows, (block() + 1) * chunk)
    for first in range(begin, end, per):
        near_rows(args[:-5], room, first, min(per, end - first), outs, places, lengths, first == begin)


def far_row(*args):
    """The same for rows that are not near: a block for each."""
    F(block(), *args)


def near_rows(args, room, first, count, outs, places, lengths, begins):
    """F for so many rows, which lie in the room meanwhile where they have a place there; where a block `begins`, what its rows share
    comes as well. lengths: bytes of a row, or of all that rows share."""
    given = moved(args, places, lengths, room, first)
    far, near = addresses(args), addresses(given)
    for k in range(len(places)):
        if places[k] >= 0 and k >= outs:
            if places[k] & 1 == 0:
                before = first * lengths[k]
                fetch(near[k] + before, far[k] + before, count * lengths[k])
            elif begins:
                fetch(near[k], far[k], lengths[k])
    arrived()
    cuda.syncthreads()
    for r in range(first + thread() // lanes(), first + count, THREADS // lanes()):
        F(r, *given)
    cuda.syncthreads()
    for k in range(len(places)):
        if places[k] >= 0 and k < outs:
            before = first * lengths[k]
            put_back(far[k] + before, near[k] + before, count * lengths[k])


def fetch(to, start, size):
    """Begin to copy bytes from global to shared memory, both as far from a multiple of 16."""
    head = min(size, -start & (SECTOR - 1))
    tail = size - ((size - head) & (EACH - 1))
    for i in range(head + EACH * thread(), tail, EACH * THREADS):
        fetch16(to + i, start + i)
    edges(to, start, head, tail, size)


def put_back(to, start, size):
    """Copy bytes from shared to global memory."""
    head = min(size, -to & (SECTOR - 1))
    tail = size - ((size - head) & (EACH - 1))
    for i in range(head + EACH * thread(), tail, EACH * THREADS):
        put16(to + i, start + i)
    edges(to, start, head, tail, size)


def edges(to, start, head, tail, size):
    """What lies before `head` and from `tail` on: a thread for each two bytes."""
    i = 2 * thread()
    if i < head:
        copy2(to + i, start + i)
    if tail + i < size:
        copy2(to + tail + i, start + tail + i)


def row_sums(dx, sums, *args):
    """F(r, dx, total, *ins, rows, cols) for each row; each block adds up a total of its own in `sums`, and within it each group of lanes.

    Ends in (rows, cols, rows of a block, rows at once, length of a total, how far apart they are in `sums`, where they begin in the room or
    -1, places, lengths)."""
    chunk, per, width, step, start, places, lengths = args[-7], args[-6], args[-5], args[-4], args[-3], args[-2], args[-1]
    room = shared_span(0, ROOM)
    item = widths((sums,))[0]
    own, size = address_of(sums) + block() * step * item, width * item
    at = address_of(room) + start + thread() // lanes() * size if start >= 0 else own
    total = span_at(sums, at, width)
    for j in range(lane(), width, lanes()):
        total[j] = 0.0
    begin, end = block() * chunk, min(args[-9], (block() + 1) * chunk)
    for first in range(begin, end, per):
        near_rows((dx, total) + args[:-7], room, first, min(per, end - first), 1, places, lengths, first == begin)
    if start >= 0:
        out, groups = span_at(sums, own, width), span_at(sums, address_of(room) + start, THREADS // lanes() * width)
        for j in range(thread(), width, THREADS):
            found = wide(groups[j])
            for g in range(1, THREADS // lanes()):
                found += wide(groups[g * width + j])
            out[j] = found


@kernel
def add_totals(dw, db, sums, many, width, step, cols, add_w, add_b):
    """dw (and db) = the totals of all blocks, added in order in wide() by eight threads a column; with add_w (add_b) on top of what is
    there."""
    x, y = thread() & (COLUMNS - 1), thread() >> SHIFT
    j = block() * COLUMNS + x
    found = wide(0.0)
    if j < width:
        for i in range(y, many, THREADS >> SHIFT):
            found += wide(sums[i * step + j])
    parts = shared_span(found, 256)
    parts[thread()] = found
    cuda.syncthreads()
    if y == 0 and j < width:
        for k in range(1, THREADS >> SHIFT):
            found += parts[k * COLUMNS + x]
        if j < cols:
            if dw is not None:
                dw[j] = found + dw[j] if add_w else found
        elif db is not None:
            db[j - cols] = found + db[j - cols] if add_b else found


@kernel(threads=1024)
def loss_sums(out, losses, each):
    """out[b] = the sum of so many losses, in float64."""
    total = wide(0.0)
    for i in range(block() * each + thread(), min(losses.size, (block() + 1) * each), THREADS):
        total += wide(losses[i])
    total = all_sum(total)
    if thread() == 0:
        out[block()] = total


@kernel(threads=1024)
def batch_loss(out, losses, found, mean):
    """out = the sum of the losses; with `mean` divided by found's last number, how many ids count or what their weights add up to: NaN
    if there are none."""
    total = wide(0.0)
    for i in range(thread(), losses.size, THREADS):
        total += wide(losses[i])
    total = all_sum(total)
    if thread() == 0:
        out[0] = total / wide(found[found.size - 1]) if mean else total


# ---- launchers ----
@cache
def in_shape(function: Any, shape: Shape, busy: int) -> Any:
    """A kernel for rows that are shared out so."""
    return shaped(function, shape.threads, shape.lanes, shape.wide, -(-busy // shape.threads))


def busy(dtype: np.dtype, shape: Shape) -> int:
    return BUSY * (1 + (shape == FAR)) * 4 // dtype.itemsize


def row_bytes(operands: Any, outs: int, rows: int, cols: int, ours: bool) -> tuple[int, ...]:
    """The bytes that each operand has for a row: of whole rows, and of one or two numbers, unless they may be what all rows share. Only
    floats are moved: whole numbers are ids. A user's body may leave numbers out."""
    found = []
    for k, a in enumerate(operands):
        few = ours and isinstance(a, Buffer) and a.size in (rows, 2 * rows) and (k < outs or a.size != cols)
        moves = isinstance(a, Buffer) and a.dtype.kind in "fV" and (few or a.size == rows * cols)
        found.append(a.size // rows * a.dtype.itemsize if moves else 0)
    return tuple(found)


def common_bytes(operands: Any, outs: int, rows: int, cols: int) -> tuple[int, ...]:
    """The bytes of what is read by all rows."""
    shared = [isinstance(a, Buffer) and a.dtype.kind in "fV" and a.size == cols and rows > 1 for a in operands[outs:]]
    return (0,) * outs + tuple([cols * a.dtype.itemsize if s else 0 for a, s in zip(operands[outs:], shared, strict=True)])


@launcher(name="row")
def row_launcher(go, outs, ins, *consts):
    """A user's body has a warp for each row at most: there all lanes write one number at once, which blocks do not."""
    rows, cols = consts[-2:]
    ours = go.formula.__module__.startswith("flamepy.")
    operands = *outs, *ins
    common = common_bytes(operands, len(outs), rows, cols) if ours else (0,) * len(operands)
    sizes = row_bytes(operands, len(outs), rows, cols, ours)
    plan = row_plan(rows, cols, sizes, common, len(outs), ours, max(sizes) if None in outs else 0)
    if plan.shape == FAR:
        go(in_shape(far_row, FAR, busy(go.dtype, FAR)), outs, ins, consts, grid=rows)
    else:
        consts = *consts, plan.chunk, plan.per, len(outs), plan.places, plan.lengths
        go(in_shape(row, plan.shape, busy(go.dtype, plan.shape)), outs, ins, consts, grid=blocks(rows, plan.chunk))


@launcher(name="row_sums")
def row_sums_launcher(go, outs, ins, parts, add_w, add_b, rows, cols):
    """Each block's total, then the blocks' in order."""
    dx, dw, db = outs
    width = parts * cols
    if not rows:
        for out, add in ((dw, add_w), (db, add_b)):
            if out is not None and not add:
                go.device.launch("fill", None, (out,), (), (out.dtype.type(0),), out.dtype)
        return
    operands = dx, None, *ins
    sizes, common = row_bytes(operands, 2, rows, cols, True), common_bytes(operands, 2, rows, cols)
    plan = totals_plan(rows, cols, sizes, common, width * go.dtype.itemsize)
    many, step = blocks(rows, plan.chunk), SECTOR * blocks(width, SECTOR)  # each begins where bytes that move together do
    sums = go.empty(many * step)
    consts = rows, cols, plan.chunk, plan.per, width, step, plan.start, plan.places, plan.lengths
    go(in_shape(row_sums, plan.shape, BUSY // 2), (dx, sums), ins, consts, grid=many)
    go(add_totals, (dw, db), (sums,), (many, width, step, cols, add_w, add_b), grid=blocks(width, COLUMNS), formula=None)


@launcher(name="batch_loss")
def batch_loss_launcher(go, outs, ins, mean):
    losses, found = ins
    if losses.size > LOSSES:
        parts = go.empty(blocks(losses.size, LOSSES), np.dtype("float64"))
        go(loss_sums, (parts,), (losses,), (LOSSES,), grid=parts.size)
        losses = parts
    go(batch_loss, outs, (losses, found), (mean,), grid=1)
