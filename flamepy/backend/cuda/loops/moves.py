"""Moving elements: strided copies, matrices turned by tiles, rows taken by index, ids that are looked at.

A strided copy is a map of one input that lies by a table (runs.py). Where neighbours in memory are far apart in the result, a block turns
a tile in shared memory, so that both sides are read and written in long pieces. A wrong id is limited to what is there: check_ids tells
of it later, and it must do no harm until then.
"""

from __future__ import annotations

from functools import lru_cache

from ....dtypes import int64
from ..runtime.compat import cuda, types
from ..runtime.family import THREADS, blocks, kernel, launcher
from .maps import EACH, RUNS, is_wide, map_runs, run_of, same, spread_each, spread_runs
from .runs import aligned_run, apply_run, load_run, place, place_around, run_length, store_run, table
from .words import barrier, block, thread

SIDE = 64  # of a tile
ROWS = THREADS // SIDE  # of a tile that are moved at once
PITCH = SIDE + 1  # words between its rows: all in other banks
TILE = SIDE * PITCH
LOOKERS = 1024  # threads of a block that looks at ids
LOOK = 1 << 15  # ids that one block looks at, at most


# ---- strided copies ------------------------------------------------------------------------------------------------------------------
@kernel
def put_runs(y, t, x):
    """y at the places of table t = x; the innermost dimension is of whole runs."""
    n = run_length(y, (x,))
    first = block() * (RUNS * THREADS * n) + n * thread()
    second = first + n * THREADS
    if first < x.size:
        if aligned_run(y, (x,)):
            near, far = load_run(y, (x,), first), load_run(y, (x,), min(second, x.size - n))
            store_run(y, place(t, first), apply_run(same, near))
            if second < x.size:
                store_run(y, place(t, second), apply_run(same, far))
        else:
            for k in range(n * RUNS):
                i = (first if k < n else second - n) + k
                if i < x.size:
                    y[place(t, i)] = x[i]


@kernel
def put_each(y, t, x):
    """The same for any dimensions."""
    i = block() * THREADS + thread()
    if i < x.size:
        y[place(t, i)] = x[i]


@kernel
def surround_each(out, t, x):
    i = block() * THREADS + thread()
    if i < out.size:
        out[i] = x[place_around(t, i)]


@kernel
def turn(out, x, t, u, m, n, below, step):
    """out[.. + i * below + j] = x[.. + i + j * step] for i < m, j < n, for matrices that begin by table t in x, by u in out."""
    tile = cuda.shared.array(TILE, types.uint32)
    turned(out, x, t, u, m, n, below, step, tile)


@kernel
def turn64(out, x, t, u, m, n, below, step):
    """The same for elements of 8 bytes."""
    tile = cuda.shared.array(TILE, types.uint64)
    turned(out, x, t, u, m, n, below, step, tile)


def turned(out, x, t, u, m, n, below, step, tile):
    """A block has a tile: SIDE numbers i by SIDE numbers j."""
    down, across = over(m + SIDE - 1, SIDE), over(n + SIDE - 1, SIDE)
    row = over(block(), across)
    matrix = over(row, down)
    i, j = (row - matrix * down) * SIDE, (block() - row * across) * SIDE
    column, row = thread() % SIDE, thread() // SIDE
    start = place(t, matrix) + i + column
    if i + column < m:
        for k in range(0, SIDE, ROWS):
            if j + k + row < n:
                tile[(k + row) * PITCH + column] = x[start + (j + k + row) * step]
    barrier()
    start = place(u, matrix) + j + column
    if j + column < n:
        for k in range(0, SIDE, ROWS):
            if i + k + row < m:
                out[start + (i + k + row) * below] = tile[column * PITCH + k + row]


def over(a, b):
    """a // b in 32 bits."""
    return types.int64(types.uint32(a) // types.uint32(b))


# ---- rows by index -------------------------------------------------------------------------------------------------------------------
@kernel
def take_runs(out, x, index, t, inner, last):
    """out[r] = x[index[r]]: a run each thread; rows are of whole runs. t: the row of a position; last: the last
    row of x."""
    n = run_length(out, (x,))
    first = block() * (RUNS * THREADS * n) + n * thread()
    second = first + n * THREADS
    if first < out.size:
        if aligned_run(out, (x,)):
            near = load_run(out, (x,), source(index, t, first, inner, last))
            far = load_run(out, (x,), source(index, t, min(second, out.size - n), inner, last))
            store_run(out, first, apply_run(same, near))
            if second < out.size:
                store_run(out, second, apply_run(same, far))
        else:
            for k in range(n * RUNS):
                i = (first if k < n else second - n) + k
                if i < out.size:
                    out[i] = x[source(index, t, i, inner, last)]


@kernel
def take_each(out, x, index, t, inner, rows):
    """The same for any rows, element by element (rows: the last one of x); all are read before the first is written."""
    last, i = out.size - 1, block() * (EACH * THREADS) + thread()
    p, q, r = i + THREADS, i + 2 * THREADS, i + 3 * THREADS
    a, b = x[source(index, t, min(i, last), inner, rows)], x[source(index, t, min(p, last), inner, rows)]
    c, d = x[source(index, t, min(q, last), inner, rows)], x[source(index, t, min(r, last), inner, rows)]
    if i <= last:
        out[i] = a
    if p <= last:
        out[p] = b
    if q <= last:
        out[q] = c
    if r <= last:
        out[r] = d


def source(index, t, i, inner, last):
    """Where element i of rows that are taken lies."""
    r = place(t, i)
    return within(index[r], last) * inner + (i - r * inner)


def within(i, last):
    """i, or the nearest of 0 to last."""
    return min(max(types.int64(i), 0), types.int64(last))


# ---- ids -------------------------------------------------------------------------------------------------------------------------------
@kernel(threads=LOOKERS)
def check_few(found, ids, low, high, ignores, ignore):
    """All of check_ids in one block."""
    first, ignored = looked(ids, 0, ids.size, low, high, ignores, ignore)
    if thread() == 0:
        told(found, first, ignored, ids)


@kernel(threads=LOOKERS)
def check_part(parts, ids, low, high, ignores, ignore):
    """A block's part: (first wrong position, how many are ignored)."""
    start = block() * LOOK
    first, ignored = looked(ids, start, min(start + LOOK, ids.size), low, high, ignores, ignore)
    if thread() == 0:
        parts[2 * block()] = first
        parts[2 * block() + 1] = ignored


@kernel(threads=LOOKERS)
def check_all(found, parts, ids):
    """What the parts say together."""
    first, ignored = ids.size, ids.size * 0
    i = types.int64(thread())
    while 2 * i < parts.size:
        first = min(first, parts[2 * i])
        ignored += parts[2 * i + 1]
        i += LOOKERS
    first, ignored = together(first, ignored)
    if thread() == 0:
        told(found, first, ignored, ids)


def looked(ids, start, stop, low, high, ignores, ignore):
    """(the first wrong position or ids.size, how many are ignored) of a range, for the block's first thread."""
    first, ignored = ids.size, ids.size * 0
    i = types.int64(start) + thread()
    while i < stop:
        if ignores and ids[i] == ignore:
            ignored += 1
        elif ids[i] < low or ids[i] >= high:
            first = min(first, i)
        i += LOOKERS
    return together(first, ignored)


def together(first, ignored):
    """(the least first, the sum) over the block, for its first thread."""
    firsts, sums = cuda.shared.array(LOOKERS, types.int64), cuda.shared.array(LOOKERS, types.int64)
    i, half = thread(), LOOKERS // 2
    firsts[i], sums[i] = first, ignored
    barrier()
    while half > 0:
        if i < half:
            firsts[i] = min(firsts[i], firsts[i + half])
            sums[i] += sums[i + half]
        barrier()
        half >>= 1
    return firsts[0], sums[0]


def told(found, first, ignored, ids):
    is_wrong = first < ids.size
    found[0] = first if is_wrong else -1
    found[1] = types.int64(ids[first]) if is_wrong else 0
    found[2] = ids.size - ignored


@kernel
def place_each(out, ids, t, repeated, n, step):
    """out[p] = where table t puts p, + step * its id: that of position p in `repeated`, limited to n, from the end if negative."""
    p = block() * THREADS + thread()
    if p < out.size:
        i = types.int64(ids[place(repeated, p)])
        out[p] = place(t, p) + step * within(i + n if i < 0 else i, n - 1)


# ---- launchers ----------------------------------------------------------------------------------------------------------------------
@lru_cache(4096)
def merged(sizes, strides):
    """Dimensions (size, stride), outermost first, without those of one element; neighbours along which one walks on are one."""
    dims: list[tuple[int, int]] = []
    for n, s in zip(sizes, strides, strict=True):
        if n != 1 and dims and dims[-1][1] == n * s:
            dims[-1] = (dims[-1][0] * n, s)
        elif n != 1:
            dims.append((n, s))
    return tuple(dims) or ((1, 1),)


def of_runs(dims, base, run):
    """Whether what lies by strides is made of whole runs, or repeats along the last dimension."""
    *outer, (inner, step) = dims
    return inner % run == 0 and (step == 0 or (step == 1 and all([s % run == 0 for s in (base, *[s for _, s in outer])])))


LEAST = 8  # of a matrix that is turned by tiles


def turning(dims):
    """The number of the dimension that lies densely in memory, if tiles are worth it; -1: none."""
    inner, step = dims[-1]
    found = [n for n, (size, stride) in enumerate(dims[:-1]) if stride == 1 and size >= LEAST]
    return found[0] if found and inner >= LEAST and abs(step) > 1 else -1


@launcher(name="strided_get")
def get_launcher(go, outs, ins, sizes, strides, base):
    (y,), (x,), dims = outs, ins, merged(sizes, strides)
    wide, run, way = is_wide(y, x), run_of(y, x), turning(dims)
    if way >= 0 and y.dtype == x.dtype:
        turn_launch(go, y, x, dims, way, wide, base)
    elif of_runs(dims, base, run):
        mark = None if dims[-1][1] else True
        go(spread_runs, outs, (), (table(dims, wide, base), x, mark), grid=blocks(y.size, RUNS * THREADS * run), formula=same)
    else:
        go(spread_each, outs, (), (table(dims, wide, base), x, None), grid=blocks(y.size, EACH * THREADS), formula=same)


def copied(s):
    """Device.copied()."""
    kernel = getattr(s.kernel, "kernel", None)
    if kernel is None or kernel.formula is not same or not kernel.raw:
        return None
    if kernel.function is map_runs and s.ins:
        return s.ins[0], 0, ()
    if kernel.function not in (spread_runs, spread_each) or len(s.consts) != 3:
        return None
    (_, base, *dims), x, _ = s.consts
    return (x, base, ()) if dims == [1] else None


def turn_launch(go, y, x, dims, way, wide, base):
    """One launch of tiles; the dimensions that are not turned are a table."""
    outer, lies, below = [], 1, 0
    for n, (size, stride) in reversed([*enumerate(dims)]):
        if n == way:
            below = lies
        elif n < len(dims) - 1:
            outer.append((size, stride, lies))
        lies *= size
    others = outer[::-1] or [(1, 0, 0)]
    (m, _), (n, step) = dims[way], dims[-1]
    t, u = [table(tuple([(d[0], d[k]) for d in others]), wide, base if k == 1 else 0) for k in (1, 2)]
    tiles = y.size // (m * n) * blocks(m, SIDE) * blocks(n, SIDE)
    go(turn64 if y.dtype.itemsize == 8 else turn, (y,), (x,), (t, u, m, n, below, step), grid=tiles)


@launcher(name="strided_put")
def put_launcher(go, outs, ins, sizes, strides, base):
    (y,), (x,), dims = outs, ins, merged(sizes, strides)
    t, run = table(dims, is_wide(y, x), base), run_of(y, x)
    if dims[-1][1] == 1 and of_runs(dims, base, run):
        go(put_runs, outs, (), (t, x), grid=blocks(x.size, RUNS * THREADS * run))
    else:
        go(put_each, outs, (), (t, x), grid=blocks(x.size))


@launcher
def surround(go, outs, ins, axes):
    go(surround_each, outs, (), (table(axes, is_wide(*outs, *ins)), *ins), grid=blocks(outs[0].size))


@launcher(name="take_rows")
def take_launcher(go, outs, ins, inner):
    (y,), (x, _) = outs, ins
    if not x.size or not y.size:
        return
    run = run_of(y, x)
    consts = table(((y.size // inner, 1), (inner, 0)), is_wide(y, x)), inner, x.size // inner - 1
    if inner % run == 0:
        go(take_runs, outs, ins, consts, grid=blocks(y.size, RUNS * THREADS * run))
    else:
        go(take_each, outs, ins, consts, grid=blocks(y.size, EACH * THREADS))


@launcher(name="check_ids")
def check_launcher(go, outs, ins, *consts):
    (ids,) = ins
    if ids.size <= LOOK:
        go(check_few, outs, ins, consts, grid=1)
        return
    count = blocks(ids.size, LOOK)
    parts = go.empty(2 * count, int64)
    go(check_part, (parts,), ins, consts, grid=count)
    go(check_all, outs, (parts, ids), grid=1)


@launcher(name="place_ids")
def place_launcher(go, outs, ins, sizes, strides, n, step):
    (out,), (ids,) = outs, ins
    if out.size:
        wide = out.size >= 1 << 31 or max([abs(s) * k for k, s in zip(sizes, strides, strict=True)], default=0) >= 1 << 31
        t = table(tuple(zip(sizes, strides, strict=True)) or ((1, 1),), wide)
        repeated = table(((out.size // ids.size, 0), (ids.size, 1)), wide)
        go(place_each, outs, ins, (t, repeated, n, step), grid=blocks(out.size))
