"""Numbers picked, added and put along one axis: everywhere else an index names its own place, so lines are done apart from each other.

A line is done by one worker, in the order of the index: same bits for any number of workers, and nothing has to be put in order first.
"""

import numpy as np

from ....dtypes import FLOATS, float64, int64
from ..runtime.family import launcher, loop
from ..runtime.parallel import tasks
from .maps import F, at, fill, map1, same
from .runs import copy_run, fill_run, put_run

LENGTH, BRIEF = 4096, 8  # elements of a run that one task moves; ids of a line, from which on all are looked at before they are used
FEW = 16  # rows that are added one after the other, without wide numbers; numbers of a row that take longer by slices


@loop
def take_along(part, out, x, ids, n, m, inner):
    """out[o, j, i] = x[o, ids[o, j, i], i], of n and m rows of `inner`. Where inner is 1 ids may be m alone, the same for each o.

    Negative ids count from the end.
    """
    shared = ids.size == m
    if inner == 1 and m <= LENGTH:
        for o in tasks(part, out.size // m):
            take_line(out, o * m, m, x, o * n, n, ids, 0 if shared else o * m)
    elif inner == 1:
        blocks = (m + LENGTH - 1) // LENGTH
        for t in tasks(part, out.size // m * blocks):
            o, lo = t // blocks, t % blocks * LENGTH
            at = o * m + lo
            take_line(out, at, min(LENGTH, m - lo), x, o * n, n, ids, lo if shared else at)
    else:
        blocks = (inner + LENGTH - 1) // LENGTH
        for t in tasks(part, out.size // inner * blocks):
            r, lo = t // blocks, t % blocks * LENGTH
            at, end = r * inner, min(inner, lo + LENGTH)
            take_beside(out[at + lo : at + end], x[r // m * n * inner + lo :], ids[at + lo : at + end], n, np.uintp(inner))


def take_line(out, at, many, x, line, n, ids, first):
    to, source, own = np.uintp(at), np.uintp(line), np.uintp(first)
    if many >= BRIEF and outside(ids[first : first + many], n) == 0:
        for i in range(np.uintp(many)):
            out[to + i] = x[source + np.uintp(ids[own + i])]
    else:
        for i in range(np.uintp(many)):
            out[to + i] = x[source + placed(ids[own + i], n)]


def outside(ids, n):
    """How many of the ids are negative or too large: vectors count them sooner than each one is looked at where it is used."""
    total = 0
    for i in range(ids.size):
        total += np.uintp(ids[i]) >= np.uintp(n)
    return total


def take_beside(out, x, ids, n, apart):
    for i in range(out.size):
        out[i] = x[placed(ids[i], n) * apart + np.uintp(i)]


@loop
def take_few(part, out, x, ids, n, m, inner):
    """take_along() for few numbers in a row: without slices, many rows a task."""
    step, apart = LENGTH // FEW, np.uintp(inner)
    blocks = (m + step - 1) // step
    for t in tasks(part, out.size // (m * inner) * blocks):
        o, lo = (t // blocks, t % blocks * step) if blocks > 1 else (t, 0)
        at, source = np.uintp((o * m + lo) * inner), np.uintp(o * n * inner)
        for _ in range(min(step, m - lo)):
            for i in range(apart):
                out[at + i] = x[source + placed(ids[at + i], n) * apart + i]
            at += apart


def placed(i, n):
    """Which of n an id means."""
    return min(np.uintp(i + n if i < 0 else i), np.uintp(n - 1))


@loop
def add_along(part, out, far, x, ids, n, m, inner, width, deals, add):
    """The reverse: out[o, ids[o, j, i], i] += x[o, j, i], j in order, from zeros unless `add`.

    A task has `width` neighbouring columns. Their sums are kept in `far`, in wide numbers; FEW rows are added to what is there.
    """
    blocks = (inner + width - 1) // width
    for d in tasks(part, deals):
        total, count = far[d * n * width :], out.size // (n * inner) * blocks
        for t in range(count * d // deals, count * (d + 1) // deals):
            o, lo = (t // blocks, t % blocks * width) if blocks > 1 else (t, 0)
            at, first, end = o * n * inner + lo, o * m * inner + lo, min(width, inner - lo)
            if m <= FEW:
                add_lines(out, at, x, first, ids, n, m, inner, inner, end)
            else:
                fill_run(total[: n * width], 0)
                add_lines(total, 0, x, first, ids, n, m, inner, width, end)
                rows, size = (1, n * inner) if blocks == 1 else (n, end)
                for r in range(rows):
                    put_run(out[at + r * inner : at + r * inner + size], total[r * width : r * width + size], add)


@loop
def put_along(part, out, near, x, src, ids, n, m, inner, width, deals):
    """out = x with out[o, ids[o, j, i], i] = F(that, src[o, j, i]), j in order. A task has `width` columns.

    They are brought together in `near`: rows may lie as far apart as a cache has no room for many of. Lines of neighbours and, where ids
    are m alone, whole rows are put into `out`, which has x.
    """
    blocks = (inner + width - 1) // width
    for d in tasks(part, deals):
        own, count = near[d * n * width :], out.size // (n * inner) * blocks
        for t in range(count * d // deals, count * (d + 1) // deals):
            o, lo = (t // blocks, t % blocks * width) if blocks > 1 else (t, 0)
            at, first, end = o * n * inner + lo, o * m * inner + lo, min(width, inner - lo)
            if inner == 1:
                put_line(out, np.uintp(at), src, np.uintp(first), ids, np.uintp(0 if ids.size == m else first), n, m)
            elif ids.size == m:
                for j in range(m):
                    row, line = at + placed(ids[j], n) * inner, first + j * inner
                    copy_run(out[row : row + end], src[line : line + end])
            else:
                copy_rows(own, 0, width, x, at, inner, n, end)
                for j in range(m):
                    put_beside(own, src, ids, np.uintp(first + j * inner), end, n, np.uintp(width))
                copy_rows(out, at, inner, own, 0, width, n, end)


def copy_rows(to, at, step, x, first, apart, rows, size):
    """Rows of x to rows of `to`, which begin at these places and are so far apart. Without slices, since they may be short."""
    if size == step == apart:
        rows, size = 1, rows * size
    for r in range(rows):
        i, j = np.uintp(at + r * step), np.uintp(first + r * apart)
        for k in range(np.uintp(size)):
            to[i + k] = x[j + k]


def add_lines(out, at, x, first, ids, n, m, inner, apart, end):
    """The `end` columns of m rows of x to the rows of `out`, `apart`, that ids name. Without slices where a line may be short."""
    if inner == 1:
        add_line(out, np.uintp(at), x, np.uintp(first), ids, np.uintp(0 if ids.size == m else first), n, m)
    else:
        for j in range(m):
            add_beside(out, np.uintp(at), x, ids, np.uintp(first + j * inner), end, n, np.uintp(apart))


def add_line(out, at, x, first, ids, own, n, m):
    for j in range(np.uintp(m)):
        out[at + placed(ids[own + j], n)] += x[first + j]


def add_beside(to, at, x, ids, first, many, n, apart):
    for i in range(np.uintp(many)):
        to[at + placed(ids[first + i], n) * apart + i] += x[first + i]


def put_line(out, at, x, first, ids, own, n, m):
    for j in range(np.uintp(m)):
        place = at + placed(ids[own + j], n)
        out[place] = F(out[place], x[first + j])


def put_beside(to, x, ids, first, many, n, apart):
    for i in range(np.uintp(many)):
        at = placed(ids[first + i], n) * apart + i
        to[at] = F(to[at], x[first + i])


@loop
def recur_along(part, out, before, far, x, a, b, ids, n, m, inner, width, deals, reverse):
    """out = x with out[o, ids[o, j, i], i] = that * a[o, j, i] + b[o, j, i], j in order or from the last one on; `before` is what that was.

    A task has `width` columns in `far`, in wide numbers, or as many lines of neighbours, since what was written number by number and is
    read by vectors at once has to wait.
    """
    step, group = min(width, inner), width if inner == 1 else 1
    blocks = (inner + step - 1) // step
    for d in tasks(part, deals):
        own, count = far[d * n * width :], out.size // (n * inner) * blocks
        last = count * (d + 1) // deals
        for t in range(count * d // deals, last, group):
            o, lo = (t // blocks, t % blocks * step) if blocks > 1 else (t, 0)
            at, first, size, lines = o * n * inner + lo, o * m * inner + lo, min(step, inner - lo), min(group, last - t)
            copy_rows(own, 0, step, x, at, inner, n * lines, size)
            for k in range(lines if inner == 1 else m):
                j = m - 1 - k if reverse else k
                start, row, many, beside = (k * n, first + k * m, m, 0) if inner == 1 else (0, first + j * inner, size, 1)
                recur_line(own, np.uintp(start), before, a, b, ids, row, many, n, np.uintp(step), np.uintp(beside), reverse)
            copy_rows(out, at, inner, own, 0, step, n * lines, size)


def recur_line(own, start, before, a, b, ids, first, many, n, apart, beside, reverse):
    for k in range(many):
        j = np.uintp(many - 1 - k if reverse else k)
        i = np.uintp(first) + j
        place = start + placed(ids[i], n) * apart + j * beside
        before[i] = own[place]
        own[place] = own[place] * a[i] + at(b, i)


# ---- launchers ----
DEALS = 64  # tasks that share rows, at most
GROUP = 256  # numbers of the lines that are done at once, if one has no more
BESIDE = 64  # columns that one task adds along an axis, at most
NEARBY = 1 << 17  # numbers that all tasks together should sum in: they stay in a cache


@launcher(name="take_along")
def take_along_launcher(go, outs, ins, n, m, inner):
    go(take_few if 1 < inner < FEW else take_along, outs, ins, (n, m, inner))


@launcher(name="put_along")
def put_along_launcher(go, outs, ins, n, m, inner, _):
    (y,), (x, src, ids) = outs, ins
    rows = inner == 1 or ids.size == m
    width, deals, near = room_for(go, y, n, inner, not rows, wide=False)
    if rows:
        width = max(width, inner // 8)
        go(map1, outs, (x,), formula=same)
    go(put_along, (y, near), ins, (n, m, inner, width, deals), work=src.size + y.size)


@launcher(name="add_along")
def add_along_launcher(go, outs, ins, n, m, inner, add):
    (y,), (x, _) = outs, ins
    width, deals, far = room_for(go, y, n, inner, m > FEW)
    if m <= FEW and not add:
        go(fill, outs, (), (y.dtype.type(0),), formula=None)
    go(add_along, (y, far), ins, (n, m, inner, width, deals, add), work=x.size + y.size)


def room_for(go, y, n, inner, needed=True, wide=True, lines=1):
    """(columns of a task, fewer where that leaves less than 8 tasks; how many tasks share rows; numbers for all of them)."""
    width = lines if inner == 1 else min(inner, max(BESIDE // 8, min(BESIDE, y.size // n // 8)))
    deals = min(DEALS, y.size // (n * inner) * -(-inner // width), max(16, NEARBY // (n * width)))
    dtype = y.dtype if not wide else float64 if y.dtype in FLOATS else int64
    return width, deals, go.empty(deals * n * width if needed else 1, dtype)


@launcher(name="recur_along")
def recur_along_launcher(go, outs, ins, n, m, inner, reverse):
    width, deals, far = room_for(go, outs[0], n, inner, lines=max(1, GROUP // n))
    go(recur_along, (*outs, far), ins, (n, m, inner, width, deals, bool(reverse)), work=ins[1].size + outs[0].size)
