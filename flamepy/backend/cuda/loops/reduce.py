"""Folds: sums, maxima and their places along an axis, in a fixed order.

Every fold sees its input as (outer, n, inner) and folds the middle. Short folds: a block copies what it folds into shared memory, a thread
or a warp folds each line of it. Others: a block folds a chunk of a line by 16-byte loads, or of neighbouring columns; the chunks' results
are folded again. A thread adds up some 64 numbers one after the other, then threads are added in pairs: no sum needs a longer type.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ....core.words import maximum, minimum
from ....dtypes import computed
from ...formula.row_words import lane, lanes
from ..products.tensor import divided
from ..rows.row_words import ROOM, THREADS, room_of
from ..rows.rows import fetch
from ..runtime.compat import cuda
from ..runtime.family import F, blocks, kernel, launcher, shaped
from ..runtime.near import address_of, arrived, moved, shared_span, widths
from .maps import same
from .vectors import load4
from .words import block, thread

LINE = 16384  # numbers of a long line that a block folds: 64 a thread
SHORT, FILLED = 2048, 512  # of two launches in any case the first has as many blocks as keep a GPU busy, of these or more numbers
DEEP = 128  # numbers that a thread folds in a column, at most
BLOCKS = 1024  # enough of them for every GPU
NEAR_BYTES = 4096  # bytes: what a result is folded from lies in shared memory up to this size
MANY = 256  # results of a block there that warps find
ALONE = 32  # numbers that a single thread folds there


@lru_cache(4096)
def near_plan(outer: int, n: int, inner: int, itemsize: int) -> tuple[int, int]:
    """(how many of outer a block takes, lanes of a result) where they fit into shared memory, else (0, 0). No bytes go there alone."""
    slab = n * inner * itemsize
    if itemsize < 2 or slab > NEAR_BYTES or not slab or (outer < 32 and n > ALONE):
        return 0, 0
    lanes = 1 if n <= ALONE else 32
    most = (1024 * room_of(lanes) - 64) // slab
    if lanes > 1:
        most = min(most, MANY // inner)
    return max(1, min(most, outer // BLOCKS)), lanes


@lru_cache(4096)
def fold_plan(outer: int, n: int, inner: int) -> tuple[int, int, int]:
    """(length of a chunk, chunks, columns of a block). Columns 0: lines, by vectors."""
    if inner == 1:
        chunk = min(n, LINE) if n <= LINE else min(LINE, -(-n * outer // (FILLED * SHORT)) * SHORT)
        return chunk, -(-n // chunk), 0
    columns = 1
    while columns < min(inner, 32):
        columns *= 2
    while columns < THREADS and columns < inner and n * columns <= 16 * THREADS and inner % (2 * columns) == 0:
        columns *= 2
    rows = THREADS // columns
    found = outer * -(-inner // columns)
    chunk = max(8 * rows, min(DEEP * rows, -(-n * found // BLOCKS)))
    chunk = min(n, -(-chunk // (4 * rows)) * 4 * rows)
    return chunk, -(-n // chunk), columns


DEPTH = 8  # 2**8 threads


# ---- what is folded: sums, the largest numbers, the smallest -------------------------------------------------------------------------
def join(a, b, how):
    """a + b for 0, the larger for 1, the smaller for -1, where NaN wins; a * b for 2."""
    if how == 0:
        return a + b
    if how == 2:
        return a * b
    return maximum(a, b) if how > 0 else minimum(a, b)


def beats(b, j, a, i, how):
    """Whether b at place j is the one to take rather than a at i: a NaN, else the larger (smaller), else the first."""
    if a != a:
        return b != b and j < i
    if b != b:
        return True
    return j < i if b == a else (b > a if how > 0 else b < a)


# ---- short lines ---------------------------------------------------------------------------------------------------------------------
def near_part(x, room, first, count):
    """So many numbers of x, in shared memory."""
    near = moved((x,), (0,), widths((x,)), room, first)[0]
    before = first * widths((x,))[0]
    fetch(address_of(near) + before, address_of(x) + before, count * widths((x,))[0])
    arrived()
    cuda.syncthreads()
    return near


def fold_near(out, x, outer, n, inner, scale, start, how, per):
    """out[o, j] = scale * fold of F(x[o, :, j]), `per` numbers o a block, LANES threads for each result."""
    first = block() * per
    many = min(per, outer - first) * inner
    x = near_part(x, shared_span(0, ROOM), first * n * inner, many * n)
    found = shared_span(start, MANY)
    for q in range(thread() // lanes(), many, THREADS // lanes()):
        o, j = divided(q, inner)
        at = (first + o) * n * inner + j
        total = start
        for i in range(lane(), n, lanes()):
            total = join(total, F(x[at + i * inner]), how)
        total = over_lanes(total, how)
        if lanes() == 1:
            out[first * inner + q] = scale * total
        elif lane() == 0:
            found[q] = total
    if lanes() > 1:
        cuda.syncthreads()
        for q in range(thread(), many, THREADS):
            out[first * inner + q] = scale * found[q]


def over_lanes(value, how):
    """The fold over the lanes of a row."""
    step = lanes() >> 1
    while step > 0:
        value = join(value, cuda.shfl_xor_sync(0xFFFFFFFF, value, step), how)
        step >>= 1
    return value


def arg_near(out, x, outer, n, inner, start, how, per):
    """out[o, j] = the first place of the largest (smallest) x[o, :, j]."""
    first = block() * per
    many = min(per, outer - first) * inner
    x = near_part(x, shared_span(0, ROOM), first * n * inner, many * n)
    found = shared_span(n, MANY)
    for q in range(thread() // lanes(), many, THREADS // lanes()):
        o, j = divided(q, inner)
        at = (first + o) * n * inner + j
        best, place = start, n
        for i in range(lane(), n, lanes()):
            value = x[at + i * inner]
            if beats(value, i, best, place, how):
                best, place = value, i
        step = lanes() >> 1
        while step > 0:
            value, i = cuda.shfl_xor_sync(0xFFFFFFFF, best, step), cuda.shfl_xor_sync(0xFFFFFFFF, place, step)
            if beats(value, i, best, place, how):
                best, place = value, i
            step >>= 1
        if lanes() == 1:
            out[first * inner + q] = place
        elif lane() == 0:
            found[q] = place
    if lanes() > 1:
        cuda.syncthreads()
        for q in range(thread(), many, THREADS):
            out[first * inner + q] = found[q]


# ---- long lines and columns ----------------------------------------------------------------------------------------------------------
@kernel
def fold_lines(out, x, n, chunk, chunks, scale, start, how):
    """out[o, c] = scale * fold of F(x[o, i]) over chunk c: four numbers a load."""
    o, c = divided(block(), chunks)
    first = o * n + c * chunk
    size = min(chunk, n - c * chunk)
    head = min(size, -(address_of(x[first : first + 1]) // widths((x,))[0]) & 3)
    a, b, d, e = start, start, start, start
    if thread() < head:
        a = join(a, F(x[first + thread()]), how)
    for i in range(head + 4 * thread(), size - 3, 4 * THREADS):
        v = load4(x, first + i)
        a, b = join(a, F(v[0]), how), join(b, F(v[1]), how)
        d, e = join(d, F(v[2]), how), join(e, F(v[3]), how)
    tail = head + ((size - head) & -4) + thread()
    if tail < size:
        b = join(b, F(x[first + tail]), how)
    total = over_block(join(join(a, b, how), join(d, e, how), how), 1, how)
    if thread() == 0:
        out[block()] = scale * total


def over_block(value, columns, how):
    """The fold over the threads of a block that have the same column: thread t has column t % columns."""
    values = shared_span(value, 256)
    values[thread()] = value
    step = THREADS >> 1
    while step >= columns:
        cuda.syncthreads()
        if thread() < step:
            value = join(value, values[thread() + step], how)
            values[thread()] = value
        step >>= 1
    return value


@kernel
def fold_columns(out, x, n, inner, chunk, chunks, bits, tiles, scale, start, how):
    """out[o, c, j] = scale * fold of F(x[o, i, j]) over chunk c. A block has 2**bits neighbouring columns j; `tiles` blocks have all."""
    columns, rows = 1 << bits, THREADS >> bits
    oc, tile = divided(block(), tiles)
    o, part = divided(oc, chunks)
    j, first, y = (tile << bits) + (thread() & (columns - 1)), part * chunk, thread() >> bits
    total, step = start, rows * inner
    if j < inner:
        at, turns = (o * n + first + y) * inner + j, turns_of(min(chunk, n - first) - y, bits)
        for _ in range(0, turns - 3, 4):
            a, b, c, d = F(x[at]), F(x[at + step]), F(x[at + 2 * step]), F(x[at + 3 * step])
            total = join(total, join(join(a, b, how), join(c, d, how), how), how)
            at += 4 * step
        for _ in range(turns & -4, turns):
            total = join(total, F(x[at]), how)
            at += step
    total = over_block(total, columns, how)
    if thread() < columns and j < inner:
        out[oc * inner + j] = scale * total


def turns_of(left, bits):
    """How many of so many rows a thread takes, one in THREADS >> bits. Counted so, a loop is unrolled without a division."""
    return (left + (THREADS >> bits) - 1) >> (DEPTH - bits) if left > 0 else 0


@kernel
def arg_columns(out, best_out, x, places, n, inner, chunk, chunks, bits, tiles, start, how):
    """The same for the first place of the largest (smallest) number, which also goes out. `places`: those of x, if it has some."""
    columns = 1 << bits
    oc, tile = divided(block(), tiles)
    o, part = divided(oc, chunks)
    j, first, y = (tile << bits) + (thread() & (columns - 1)), part * chunk, thread() >> bits
    best, place = start, END
    if j < inner:
        for k in range(turns_of(min(chunk, n - first) - y, bits)):
            i = y + k * (THREADS >> bits)
            at = (o * n + first + i) * inner + j
            value = x[at]
            own = first + i
            if places is not None:
                own = places[at]
            if beats(value, own, best, place, how):
                best, place = value, own
    values, owns = shared_span(best, 256), shared_span(place, 256)
    values[thread()], owns[thread()] = best, place
    step = THREADS >> 1
    while step >= columns:
        cuda.syncthreads()
        if thread() < step:
            value, own = values[thread() + step], owns[thread() + step]
            if beats(value, own, best, place, how):
                best, place = value, own
                values[thread()], owns[thread()] = best, place
        step >>= 1
    if thread() < columns and j < inner:
        out[oc * inner + j] = place
        if best_out is not None:
            best_out[oc * inner + j] = best


END = (1 << 63) - 1  # behind every place


# ---- launchers ----
NEAR, ARG_NEAR = ({lanes: shaped(f, THREADS, lanes) for lanes in (1, 32)} for f in (fold_near, arg_near))


def least(dtype: Any, how: Any) -> Any:
    """What a fold starts from: 0, for a product 1, for the largest (smallest) number one that is never larger (smaller)."""
    if how in (0, 2):
        return dtype.type(how // 2)
    return dtype.type(-how * np.inf) if dtype.kind == "f" else dtype.type(np.iinfo(dtype).min if how > 0 else np.iinfo(dtype).max)


@launcher(name="fold_sum")
def sum_launcher(go, outs, ins, outer, n, inner, scale):
    fold(go, go.formula, same, outs, ins, outer, n, inner, scale, 0)


@launcher(name="fold_max")
def max_launcher(go, outs, ins, outer, n, inner, scale):
    fold(go, same, same, outs, ins, outer, n, inner, abs(scale), 1 if scale > 0 else -1)


@launcher(name="fold_prod")
def prod_launcher(go, outs, ins, outer, n, inner, scale):
    fold(go, same, same, outs, ins, outer, n, inner, scale, 2)


def fold(go, formula, second, outs, ins, outer, n, inner, scale, how, dtype=None):
    """One launch, or where n is cut into chunks another fold, with the formula `second`, of the chunks' results."""
    (y,), (x,) = outs, ins
    wide = computed(y.dtype)
    start, size = least(wide, how), x.dtype.itemsize
    per, lanes = near_plan(outer, n, inner, size)
    if per:
        go(NEAR[lanes], outs, ins, (outer, n, inner, scale, start, how, per), grid=blocks(outer, per), formula=formula, dtype=dtype)
        return
    chunk, chunks, columns = fold_plan(outer, n, inner)
    out, by = (y, scale) if chunks == 1 else (go.empty(outer * chunks * inner, wide), type(scale)(1))
    if columns == 0:
        go(fold_lines, (out,), ins, (n, chunk, chunks, by, start, how), grid=outer * chunks, formula=formula, dtype=dtype)
    else:
        tiles = blocks(inner, columns)
        consts = n, inner, chunk, chunks, columns.bit_length() - 1, tiles, by, start, how
        go(fold_columns, (out,), ins, consts, grid=outer * chunks * tiles, formula=formula, dtype=dtype)
    if chunks > 1:
        fold(go, second, second, outs, (out,), outer, chunks, inner, scale, how, wide)


@launcher(name="argmax")
def argmax_launcher(go, outs, ins, outer, n, inner, scale):
    how, dtype = 1 if scale > 0 else -1, computed(ins[0].dtype)
    start = least(dtype, how)
    per, lanes = near_plan(outer, n, inner, ins[0].dtype.itemsize)
    if per:
        go(ARG_NEAR[lanes], outs, ins, (outer, n, inner, start, how, per), grid=blocks(outer, per))
        return
    x, places = ins[0], None
    while True:
        chunk, chunks, columns = fold_plan(outer, n, inner)
        columns = columns or 1
        tiles = blocks(inner, columns)
        out, best = (
            (outs[0], None) if chunks == 1 else (go.empty(outer * chunks * inner, outs[0].dtype), go.empty(outer * chunks * inner, dtype))
        )
        consts = n, inner, chunk, chunks, columns.bit_length() - 1, tiles, start, how
        go(arg_columns, (out, best), (x, places), consts, grid=outer * chunks * tiles)
        if chunks == 1:
            return
        x, places, n = best, out, chunks
