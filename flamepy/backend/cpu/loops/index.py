"""Moving elements: strided copies, and rows picked or added by index.

Tensors are always contiguous, so a transpose, a slice or a broadcast is a strided read into new memory, and its backward a
strided write. `table` holds k sizes then k strides of the strided side, for all dimensions but the last (inner, step).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ....dtypes import FLOATS, float64, int64
from ...formula.row_words import wide
from ..products.gemm import turn_matrix
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks
from ..runtime.workspace import COLUMNS, wide_space
from .along import DEALS, LENGTH, add_line, take_line
from .broadcast import distance, group, offset
from .maps import map1, same
from .runs import VECTORS, add_run, copy_run, fill_run, put_run, repeat_run

NEAR = 16  # rows added one after the other in their own type, at most
TIMES = 16  # numbers repeated more often are filled in one after the other
SIDE, WIDTH = 64, 256  # rows and columns of the tile of a turned matrix that one task makes


@loop
def strided_get(part, out, x, table, k, inner, step, base):
    """out[r, j] = x[base + offset(r) + j * step]. What is the same all along the last outer dimension is copied from the result."""
    mine, apart = tasks(part, out.size // inner * ((inner + LENGTH - 1) // LENGTH)), distance(table, k, 0, 0)
    t = mine.start
    while t < mine.stop:
        r, low, many = group(table, k, inner, LENGTH, t, mine.stop)
        at, start, size = r * inner + low, base + offset(table, k, 0, r) + low * step, min(inner - low, LENGTH)
        for i in range(1 if apart == 0 else many):
            move_run(out, at + i * inner, 1, x, start + i * apart, step, size, apart)
        done = size if apart == 0 else many * size
        while done < many * size:
            more = min(done, many * size - done, LENGTH // size * size)
            move_run(out, at + done, 1, out, at, 1, more)
            done += more
        t += many


@loop
def strided_put(part, out, x, table, k, inner, step, base):
    """out[base + offset(r) + j * step] = x[r, j]; the places written must be distinct."""
    mine, apart = tasks(part, x.size // inner * ((inner + LENGTH - 1) // LENGTH)), distance(table, k, 0, 0)
    t = mine.start
    while t < mine.stop:
        r, low, many = group(table, k, inner, LENGTH, t, mine.stop)
        start, size = base + offset(table, k, 0, r) + low * step, min(inner - low, LENGTH)
        for i in range(many):
            move_run(out, start + i * apart, step, x, (r + i) * inner + low, 1, size, apart)
        t += many


def move_run(out, at, step, x, start, by, size, apart=1):
    """out[at + j * step] = x[start + j * by] for j < size. apart: how far from it the next run begins; LLVM takes
    runs that come one after the other in memory's reverse for ones that overlap, unless each is a slice."""
    to, here = np.uintp(at), np.uintp(start)
    if step == 1 and by == 1 and (size >= VECTORS or apart < 0):
        copy_run(out[at : at + size], x[start : start + size])
    elif step == 1 and by == 1:
        for j in range(np.uintp(size)):
            out[to + j] = x[here + j]
    elif by == 0:
        for j in range(np.uintp(size)):
            out[to + j] = x[here]
    elif by == -1:
        for j in range(np.uintp(size)):
            out[to + j] = x[here - j]
    elif step == -1:
        for j in range(np.uintp(size)):
            out[to - j] = x[here + j]
    else:
        for j in range(np.uintp(size)):
            out[to + j * np.uintp(step)] = x[here + j * np.uintp(by)]


@loop
def surround(part, out, x, table, k, rows, width, group):
    """Rows of out, each read from x in three pieces, at places that do so along every axis but the last: table has PARTS numbers of each
    axis, the size, then what seen() takes, and the stride. A task has a group of rows that follow each other, or a piece of a long one."""
    down, across = (rows + group - 1) // group, (width + LENGTH - 1) // LENGTH
    inner, beside = table[PARTS * (k - 2) :], table[PARTS * (k - 1) :]
    many, front, step, by = beside[1], beside[2], beside[4], beside[6]
    for t in tasks(part, out.size // (rows * width) * down * across):
        plane, first, low = t // (down * across), t % (down * across) // across * group, t % across * LENGTH
        base, left, size = 0, plane, min(width - low, LENGTH)
        for d in range(k - 3, -1, -1):
            own = table[PARTS * d :]
            base += seen(own, left % own[0]) * own[PARTS - 1]
            left //= own[0]
        near, far = min(max(front - low, 0), size), min(max(front + many - low, 0), size)
        ahead, behind = seen(beside, low), seen(beside, low + far)
        count, ends = min(rows - first, group), near + size - far
        if inner[1] == rows and inner[PARTS - 1] == width == size and ends <= BRIEF:  # one run but for a few numbers of each row
            at, start = (plane * rows + first) * width, base + first * width
            move_run(out, at + near, 1, x, start + near - front, 1, count * width - ends)
            for j in range(near):
                move_run(out, at + j, width, x, start + ahead + j * step, width, count)
            for j in range(size - far):
                move_run(out, at + far + j, width, x, start + behind + j * by, width, count)
            count = 0
        for i in range(first, first + count):
            at, start = (plane * rows + i) * width + low, base + seen(inner, i) * inner[PARTS - 1]
            move_run(out, at, 1, x, start + ahead, step, near)
            move_run(out, at + near, 1, x, start + low + near - front, 1, far - near)
            move_run(out, at + far, 1, x, start + behind, by, size - far)


def seen(axis, i):
    """Which of an axis the place i of the result shows: `front` are read from a place on by a step, then `many` as they are, then more."""
    many, front = axis[1], axis[2]
    if i < front:
        return axis[3] + i * axis[4]
    return i - front if i < front + many else axis[5] + (i - front - many) * axis[6]


@loop
def strided_repeat(part, out, x, table, k, inner, count, base):
    """out[r, i, j] = x[base + offset(r) + i] for j < count, a few times each."""
    blocks = (inner + LENGTH - 1) // LENGTH
    for t in tasks(part, out.size // (inner * count) * blocks):
        r, low = t // blocks, t % blocks * LENGTH
        size, start = min(inner - low, LENGTH), base + offset(table, k, 0, r) + low
        repeat_run(out[(r * inner + low) * count :], x[start : start + size], count)


@loop
def strided_turn(part, out, x, table, k, m, n, step, base):
    """out[r, i, j] = x[base + offset(r) + i + j * step] for i < m <= step and j < n: each r is a matrix turned."""
    down, across = (m + SIDE - 1) // SIDE, (n + WIDTH - 1) // WIDTH
    for t in tasks(part, out.size // (m * n) * down * across):
        r, i, j = t // (down * across), t % (down * across) // across * SIDE, t % across * WIDTH
        start = base + offset(table, k, 0, r) + i + j * step
        turn_matrix(min(WIDTH, n - j), min(SIDE, m - i), x, start, step, out, (r * m + i) * n + j, n)


@loop(launched=True)
def take_rows(part, out, x, index, inner):
    """out[r, :] = x[index[r], :]."""
    last = x.size // inner - 1
    if inner == 1:
        mine = tasks(part, index.size)
        take_line(out, mine.start, mine.stop - mine.start, x, 0, x.size, index, mine.start)
    else:
        for r in tasks(part, index.size):
            start = within(index[r], last) * inner
            copy_run(out[r * inner : r * inner + inner], x[start : start + inner])


@loop(fixed=True)
def add_rows(part, out, first, following, x, index, inner, block, group, deals, add):
    """out[index[r], :] += x[r, :], rows in order, from zeros unless `add`.

    Task t has a block of columns of every deals-th group of 2**group rows of out. The rows of x that go to one row of out form a chain:
    it begins at first[row] and goes on at following[r]; -1: no more. chain_rows() has made it; a worker that is alone does it itself.
    """
    rows, blocks, space = out.size // inner, (inner + block - 1) // block, wide_space(x)
    if part[1] == 1:
        chain(first, following, index)
    for t in tasks(part, deals * blocks):
        lo = t % blocks * block
        hi = min(inner, lo + block)
        for start in range(t // blocks << group, rows, deals << group):
            end = min(rows, start + (1 << group))
            if not add and blocks == 1:
                fill_run(out[start * inner : end * inner], 0)
            for r in range(start, end):
                line = out[r * inner + lo : r * inner + hi]
                if not add and blocks > 1:
                    fill_run(line, 0)
                if first[r] >= 0:
                    add_chain(line, space[: hi - lo], x, first[r], following, inner, lo)


def add_chain(out, total, x, r, following, inner, lo):
    """out += the rows of a chain: NEAR of them in their own type, the others four at a time in wide()."""
    for _ in range(NEAR):
        add_run(out, x[r * inner + lo : r * inner + lo + out.size])
        r = following[r]
        if r < 0:
            return
    fill_run(total, 0)
    while r >= 0:
        run, after = x[r * inner + lo : r * inner + lo + out.size], following[r]
        third = following[after] if after >= 0 else -1
        fourth = following[third] if third >= 0 else -1
        if fourth < 0:
            add_run(total, run)
            r = after
        else:
            second = x[after * inner + lo : after * inner + lo + out.size]
            third *= inner
            add_four(total, run, second, x[third + lo :], x[fourth * inner + lo :])
            r = following[fourth]
    add_run(out, total)


def add_four(total, a, b, c, d):
    for j in range(total.size):
        total[j] += wide((a[j] + b[j]) + (c[j] + d[j]))


@loop
def chain_rows(part, first, following, index):
    if part[0] == 0:
        chain(first, following, index)


def chain(first, following, index):
    fill_run(first, -1)
    last = first.size - 1
    for n in range(np.uintp(index.size)):
        i = np.uintp(index.size) - np.uintp(1) - n
        r = np.uintp(within(index[i], last))
        following[i] = first[r]
        first[r] = i


@loop
def add_short(part, out, far, x, index, inner, add):
    """What add_rows() does, for short rows: all of it is added up in `far`, wide numbers, by one worker."""
    if part[0] == 0:
        fill_run(far, 0)
        if inner == 1:
            add_line(far, np.uintp(0), x, np.uintp(0), index, np.uintp(0), far.size, index.size)
        else:
            last = far.size // inner - 1
            for i in range(index.size):
                r = np.uintp(within(index[i], last) * inner)
                for j in range(np.uintp(inner)):
                    far[r + j] += x[np.uintp(i * inner) + j]
        put_run(out, far, add)


# ---- integer indices: found out and computed without the host ----


def look(found, ids, low, high, ignores, ignore):
    outside, ignored = 0, 0
    for i in range(ids.size):
        skip = ignores & (ids[i] == ignore)
        ignored += skip
        outside += ((ids[i] < low) | (ids[i] >= high)) & (not skip)
    found[0], found[1], found[2] = -1, 0, ids.size - ignored
    if outside:
        i = 0
        while (ignores and ids[i] == ignore) or low <= ids[i] < high:
            i += 1
        found[0], found[1] = i, ids[i]


@loop
def check_pieces(part, found, ids, piece, low, high, ignores, ignore):
    """found = (position of the first id outside [low, high) or -1, that id, number of ids that are not `ignore`), for each piece."""
    for t in tasks(part, found.size // 3):
        look(found[t * 3 : t * 3 + 3], ids[t * piece : t * piece + piece], low, high, ignores, ignore)


@loop
def first_outside(part, found, pieces, piece):
    """The same of all, of what was found in pieces."""
    if part[0] == 0:
        found[0], found[1], found[2] = -1, 0, 0
        for t in range(pieces.size // 3):
            found[2] += pieces[t * 3 + 2]
            if found[0] < 0 <= pieces[t * 3]:
                found[0], found[1] = t * piece + pieces[t * 3], pieces[t * 3 + 1]


@loop
def place_ids(part, out, ids, table, k, inner, stride, n, step):
    """out[p] = (where position p begins: the k sizes and strides in table, then inner positions `stride` apart) + step * id.

    Negative ids count from the end. ids repeats, all of it or none in a run of `inner`.
    """
    blocks = (inner + LENGTH - 1) // LENGTH
    for t in tasks(part, out.size // inner * blocks):
        r, low = t // blocks, t % blocks * LENGTH
        at, count = r * inner + low, min(inner - low, LENGTH)
        first = at % ids.size
        place_run(out[at : at + count], ids[first : first + count], offset(table, k, 0, r) + low * stride, stride, n, step)


def place_run(out, ids, start, stride, n, step):
    for j in range(out.size):
        i = ids[j]
        out[j] = start + j * stride + step * within(i + n if i < 0 else i, n - 1)


def within(i, last):
    """i, or the nearest of 0 to last: an id outside is refused when check_ids() is looked at, and must do no harm until then."""
    return min(max(i, 0), last)


# ---- launchers ----
SHORT = 8  # below so many numbers a row, all are added up in float64
PIECE = 1 << 14  # ids looked at by one task
ALONE = 1 << 14  # up to so many numbers to add, one launch does all of it
PARTS = 8  # numbers of an axis of surround()
BRIEF = 8  # up to so many numbers at the ends of rows are moved by columns
FEW = 64  # columns one task adds, where there are too few rows to share


@lru_cache(4096)
def walk(sizes, strides):
    """(table, k, inner, step) of a strided walk; neighbouring dimensions are merged where strides allow."""
    dims: list[tuple[int, int]] = []
    for n, s in zip(sizes, strides, strict=True):
        if n == 1:
            continue
        if dims and dims[-1][1] == n * s:
            dims[-1] = (dims[-1][0] * n, s)
        else:
            dims.append((n, s))
    *outer, (inner, step) = dims or [(1, 1)]
    return tuple([n for n, _ in outer] + [s for _, s in outer]), len(outer), inner, step


@launcher(name="strided_get")
def get_launcher(go, outs, ins, sizes, strides, base):
    """A walk through matrices (m, n) stored as (n, m) with rows `step` apart turns them by tiles. Neighbours may be repeated, too."""
    found, k, n, step = walk(sizes, strides)
    if step == 0 and n < TIMES and k and found[2 * k - 1] == 1:
        outer = (*found[: k - 1], *found[k : 2 * k - 1])
        return go(strided_repeat, outs, ins, (table(outer), k - 1, found[k - 1], n, base))
    if outs[0].dtype != ins[0].dtype or outs[0].dtype not in FLOATS or not k or found[2 * k - 1] != 1 or not 1 < found[k - 1] <= step:
        go(strided_get, outs, ins, (table(found), k, n, step, base))
    else:
        outer = (*found[: k - 1], *found[k : 2 * k - 1])
        go(strided_turn, outs, ins, (table(outer), k - 1, found[k - 1], n, step, base))


def copied(s):
    """Device.copied()."""
    if s.kernel.loop is map1 and s.kernel.formula is same:
        return s.ins[0], 0, ()
    if s.kernel.loop is strided_turn:
        outer, k, *sides, step, base = s.consts
        dense = step == sides[0] and (k == 0 or (k == 1 and outer[1] == sides[0] * sides[1]))
        return (s.ins[0], base, tuple(sides)) if dense else None
    if s.kernel.loop is strided_get:
        outer, k, n, step, base = s.consts
        if step == 1 and (k == 0 or (k == 1 and outer[1] >= 0)):
            return s.ins[0], base, (int(outer[0]), n, int(outer[1])) if k else ()
    return None


@launcher(name="strided_put")
def put_launcher(go, outs, ins, sizes, strides, base):
    found, *rest = walk(sizes, strides)
    go(strided_put, outs, ins, (table(found), *rest, base), work=ins[0].size)


@launcher(name="surround")
def surround_launcher(go, outs, ins, axes):
    axes = axes if len(axes) > 1 else ((1, 1, 0, 0, 1, 0, 1, outs[0].size), *axes)
    rows, width = axes[-2][0], axes[-1][0]
    go(surround, outs, ins, (table(sum(axes, ())), len(axes), rows, width, max(1, LENGTH // width)))


@launcher(name="add_rows")
def add_launcher(go, outs, ins, inner, add):
    """A task has some rows of y, in groups of 8 dealt out in turn (ids near each other are often equally frequent), or some columns."""
    (y,), (x, index) = outs, ins
    if not y.size:
        return
    rows = y.size // inner
    deals = 1 << max(0, min(DEALS, rows // 16).bit_length() - 1)
    group, block = 3 if deals > 1 else 62, min(inner, COLUMNS) if deals > 2 else FEW
    if inner < SHORT and index.size > NEAR:
        go(add_short, (y, go.empty(y.size, float64 if y.dtype in FLOATS else int64)), ins, (inner, add), work=1)
        return
    work, chains = x.size + (0 if add else y.size), (go.empty(rows, int64), go.empty(index.size, int64))
    if work >= ALONE:
        go(chain_rows, chains, (index,), work=1, dtype=int64)
    go(add_rows, (y, *chains), ins, (inner, block, group, deals, add), work=1 if work < ALONE else work)


@launcher(name="check_ids")
def check_launcher(go, outs, ins, *consts):
    count = -(-ins[0].size // PIECE)
    if count < 3:
        go(check_pieces, outs, ins, (ins[0].size, *consts), work=1)
        return
    pieces = go.empty(3 * count, int64)
    go(check_pieces, (pieces,), ins, (PIECE, *consts), work=ins[0].size)
    go(first_outside, outs, (pieces,), (PIECE,), work=1)


@launcher(name="place_ids")
def place_launcher(go, outs, ins, sizes, strides, n, step):
    *outer, inner = sizes
    go(place_ids, outs, (*ins, table((*outer, *strides[:-1]))), (len(outer), inner, strides[-1], n, step))
