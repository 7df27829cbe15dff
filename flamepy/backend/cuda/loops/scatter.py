"""add_rows: rows added to the rows that ids name, in the same order each time.

The ids are sorted, so that what goes to one row of the result lies together. Then the sorted ids are cut into chunks of the
same length: a thread adds up four columns of the rows of a chunk. Sums that begin and end in a chunk go to the result; others, of a
row that more chunks share, are put aside and added up by a second kernel. However often one id occurs, all threads have work. Sums are in
wide() numbers, float64 for floats: an id may be named very often, and memory takes longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtypes import FLOATS, float64, int64
from ...formula.row_words import wide
from ..runtime.compat import cuda, types
from ..runtime.family import THREADS, WARP, F, Go, blocks, kernel, launcher
from .maps import fill_launcher, is_wide
from .moves import place_launcher, take_launcher, within
from .runs import at, place, table
from .vectors import aligned, load4, plus4, put4, store4, take4
from .words import barrier, block, thread

# ---- sorting: positions by id, equal ids in the order they came, by eight bits of the id at a time ----
# Each step counts, in tiles of the ids, how often each digit occurs; makes of the counts where the first id of each digit and tile goes;
# and moves ids and positions there. Threads of a warp that have the same digit find each other by one instruction, so the order is the
# same each time. A wrong id is limited to the rows there are.
DIGITS = 256  # as many as threads of a block
BITS = 8
EACH = 8  # ids of each thread
TILE = EACH * THREADS
SHARE = EACH * WARP  # ids of each warp of a tile
WARPS = THREADS // WARP
TABLE = WARPS * DIGITS
ALL = 0xFFFFFFFF


@kernel
def count_digits(counts, ids, shift, last):
    """counts[digit, tile]."""
    seen = cuda.shared.array(DIGITS, types.int32)
    seen[thread()] = 0
    barrier()
    i = types.int64(block()) * TILE + thread()
    stop = min(types.int64(block() + 1) * TILE, ids.size)
    while i < stop:
        cuda.atomic.add(seen, digit(ids[i], shift, last), 1)
        i += THREADS
    barrier()
    counts[types.int64(thread()) * tiles_of(ids) + block()] = seen[thread()]


@kernel
def sum_counts(counts, totals, tiles):
    """A block's digit: how often it occurs in the tiles before each, and in all of them."""
    sums = cuda.shared.array(THREADS, types.int32)
    before, start = 0, types.int64(block()) * tiles
    for first in range(0, tiles, THREADS):
        i = first + thread()
        own = counts[start + i] if i < tiles else types.int32(0)
        found = summed(sums, own)
        if i < tiles:
            counts[start + i] = before + found - own
        before += sums[THREADS - 1]
        barrier()
    if thread() == 0:
        totals[block()] = before


@kernel
def move_ids(ids_out, places_out, ids, places, counts, totals, shift, last):
    """Ids and positions (None: as they lie) sorted by a digit."""
    sums, table = cuda.shared.array(THREADS, types.int32), cuda.shared.array(TABLE, types.int32)
    d, tile = thread(), types.int64(block()) * TILE
    own = totals[d]
    begin = summed(sums, own) - own + counts[types.int64(d) * tiles_of(ids) + block()]
    for w in range(WARPS):
        table[w * DIGITS + d] = 0
    barrier()
    warp = thread() // WARP
    first = tile + warp * SHARE + thread() % WARP
    for k in range(EACH):
        i = first + k * WARP
        if i < ids.size:
            cuda.atomic.add(table, warp * DIGITS + digit(ids[i], shift, last), 1)
    barrier()
    for w in range(WARPS):
        own = table[w * DIGITS + d]
        table[w * DIGITS + d] = begin
        begin += own
    barrier()
    for k in range(EACH):
        i = first + k * WARP
        move_one(ids_out, places_out, ids, places, i, table, warp * DIGITS, shift, last)


def move_one(ids_out, places_out, ids, places, i, table, row, shift, last):
    """A warp's next ids to where its row of the table says."""
    there = i < ids.size
    own = within(ids[i], last) if there else types.int64(0)
    n = digit(own, shift, last)
    peers = types.uint32(cuda.match_any_sync(ALL, n if there else -1))
    lower = types.uint32(peers & ((types.uint32(1) << types.uint32(thread() % WARP)) - types.uint32(1)))
    to = table[row + n] + cuda.popc(lower)
    cuda.syncwarp()
    if there:
        ids_out[to] = own
        places_out[to] = i if places is None else places[i]
        if lower == 0:
            table[row + n] += cuda.popc(peers)
    cuda.syncwarp()


def digit(i, shift, last):
    return types.int32((within(i, last) >> shift) & (DIGITS - 1))


def tiles_of(ids):
    return (ids.size + TILE - 1) // TILE


def summed(sums, own):
    """The sum of `own` of the block's threads up to this one; sums[-1] is that of all."""
    i, step = thread(), 1
    sums[i] = own
    barrier()
    while step < THREADS:
        other = sums[i - step] if i >= step else types.int32(0)
        barrier()
        sums[i] += other
        barrier()
        step *= 2
    return sums[i]


# ---- launches -------------------------------------------------------------------------------------------------------------------------
def sorted_ids(go: Any, ids: Any, rows: int, places: Any = None) -> tuple[Any, Any]:
    """Buffers (ids, positions), sorted; ids are limited to `rows`. places: the positions of the ids, if they do not lie in order."""
    tiles, n = blocks(ids.size, TILE), ids.size
    counts, totals = go.empty(DIGITS * tiles, np.dtype("int32")), go.empty(DIGITS, np.dtype("int32"))
    wide = np.dtype("int64" if max(rows, n) >= 1 << 31 else "int32")
    found = ids
    for shift in range(0, max(1, (rows - 1).bit_length()), BITS):
        go(count_digits, (counts,), (found,), (shift, rows - 1), grid=tiles, dtype=wide)
        go(sum_counts, (counts, totals), (), (tiles,), grid=DIGITS, dtype=wide)
        to = go.empty(n, wide), go.empty(n, wide)
        go(move_ids, to, (found, places, counts, totals), (shift, rows - 1), grid=tiles, dtype=wide)
        found, places = to
    return found, places


LEAST = 4  # 2**LEAST rows in a chunk, at least


# ---- kernels -------------------------------------------------------------------------------------------------------------------------
@kernel(together=4)
def add_chunks(y, ends, x, ids, places, t, inner, bits, add):
    """2**bits rows, a chunk, in four columns. t: the chunk of a thread. ends[chunk]: sums of a row that went on from the chunk before, and
    of one that goes on in the next."""
    g, groups = types.int64(block()) * THREADS + thread(), (inner + 3) >> 2
    chunk = place(t, g)
    column, i = (g - chunk * groups) * 4, chunk << bits
    if i < ids.size and column < inner:
        stop, whole = min((chunk + 1) << bits, ids.size), (inner & 3) == 0 and aligned(x, 4)
        row, begins = ids[i], i == 0 or ids[max(i - 1, 0)] != ids[i]
        total = wide_get(x, types.int64(places[i]) * inner + column, inner - column, whole)
        i += 1
        while i < stop:
            other = ids[i]
            found = wide_get(x, types.int64(places[i]) * inner + column, inner - column, whole)
            if other == row:
                total = plus4(total, found)
            else:
                end(y, ends, begins, chunk, row, column, inner, add, total)
                total, row, begins = found, other, True
            i += 1
        if i < ids.size and ids[i] == row:
            store4(ends, ((2 * chunk + begins) * groups << 2) + column, total)
        else:
            end(y, ends, begins, chunk, row, column, inner, add, total)


@kernel(together=4)
def add_ends(y, ends, ids, t, inner, bits, add):
    """For the chunk where a row begins that goes on in others: the sum of what they put aside."""
    g, groups = types.int64(block()) * THREADS + thread(), (inner + 3) >> 2
    chunk = place(t, g)
    column, i = (g - chunk * groups) * 4, chunk << bits
    after = (chunk + 1) << bits
    if after < ids.size:
        row = ids[after]
        if ids[after - 1] == row and (i == 0 or ids[max(i - 1, 0)] != row):
            last = (past(ids, row, after) - 1) >> bits
            total = load4(ends, ((2 * chunk + 1) * groups << 2) + column)
            while chunk < last:
                chunk += 1
                total = plus4(total, load4(ends, (2 * chunk * groups << 2) + column))
            put(y, row, column, inner, add, total)


def past(ids, row, low):
    """The first position from `low` on whose id is larger."""
    high = ids.size
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] <= row:
            low = middle + 1
        else:
            high = middle
    return low


def end(y, ends, begins, chunk, row, column, inner, add, total):
    """A row's sum is complete in this chunk: all of it, or what was left from the chunk before."""
    if begins:
        put(y, row, column, inner, add, total)
    else:
        store4(ends, (2 * chunk * ((inner + 3) >> 2) << 2) + column, total)


def wide_get(x, start, many, whole):
    """Four columns of a row of x, for a sum; anything beyond its end."""
    four = take4(x, start, many, whole)
    return wide(four[0]), wide(four[1]), wide(four[2]), wide(four[3])


def put(y, row, column, inner, add, total):
    """Four columns of a row of y, on top of what is there if `add`."""
    start, many, whole = types.int64(row) * inner + column, inner - column, (inner & 3) == 0 and aligned(y, 4)
    put4(y, start, plus4(total, take4(y, start, many, whole)) if add else total, many, whole)


@kernel
def last_of(out, ids, places):
    """out[id] = the place of the last one of each sorted id."""
    i = types.int64(block()) * THREADS + thread()
    if i < ids.size and (i == ids.size - 1 or ids[min(i + 1, ids.size - 1)] != ids[i]):
        out[types.int64(ids[i])] = types.int64(places[i])


@kernel
def put_won(y, x, src, won, each):
    """y = src at the place that has won, x where none has; `each` numbers go together."""
    i = types.int64(block()) * THREADS + thread()
    if i < y.size:
        own = won[i // each]
        y[i] = src[own * each + i % each] if own >= 0 else x[i]


@kernel
def recur_run(z, y, a, b, ids, places, reverse):
    """A thread for each run of equal sorted ids goes through it, z holds x: z = z * a + b, y what z was; without y z = F(z, a)."""
    i, last = types.int64(block()) * THREADS + thread(), ids.size - 1
    step = -1 if reverse else 1
    if i <= last and (i == (last if reverse else 0) or ids[min(max(i - step, 0), last)] != ids[i]):
        row = types.int64(ids[i])
        total = z[row] if y is None else wide(z[row])
        while 0 <= i <= last and ids[i] == row:
            own = types.int64(places[i])
            if y is None:
                total = F(total, a[own])
            else:
                y[own] = total
                total = total * a[own] + at((b,), own)[0]
            i += step
        z[row] = total


# ---- launcher -------------------------------------------------------------------------------------------------------------------------
@launcher
def add_rows(go, outs, ins, inner, add):
    """More ids, longer chunks: neither they nor the sums put aside take long to add up, wherever the ids point."""
    (y,), (x, index) = outs, ins
    if not add:
        fill_launcher(go, outs, (), y.dtype.type(0) if y.dtype.itemsize > 2 else go.dtype.type(0))
    if not y.size or not x.size:
        return
    ids, places = sorted_ids(go, index, y.size // inner)
    bits = max(LEAST, index.size.bit_length() // 2 - 4)
    chunks, groups = blocks(index.size, 1 << bits), blocks(inner, 4)
    ends = go.empty(2 * chunks * groups * 4, float64 if y.dtype in FLOATS else int64)
    consts = table(((chunks, 1), (groups, 0)), is_wide(y, x)), inner, bits, bool(add)
    grid = blocks(chunks * groups, THREADS)
    go(add_chunks, (y, ends), (x, ids, places), consts, grid=grid)
    if chunks > 1:
        go(add_ends, outs, (ends, ids), consts, grid=grid)


def last_rows(go, outs, ins):
    """The last position in the index that names each row, or -1."""
    (y,), (index,) = outs, ins
    fill_launcher(go, outs, (), y.dtype.type(-1))
    if y.size and index.size:
        ids, places = sorted_ids(go, index, y.size)
        go(last_of, outs, (ids, places), grid=blocks(index.size))


# ---- along an axis ---------------------------------------------------------------------------------------------------------------------
@launcher
def take_along(go, outs, ins, n, m, inner):
    (y,), (x, ids) = outs, ins
    take_launcher(go, outs, (x, places_along(go, ids, y.size, n, m, inner)), 1)


@launcher
def add_along(go, outs, ins, n, m, inner, add):
    (_,), (x, ids) = outs, ins
    add_rows(go, outs, (x, places_along(go, ids, x.size, n, m, inner)), 1, add)


@launcher
def put_along(go, outs, ins, n, m, inner, meets):
    """Unless src `meets` what is there by a formula, the last one counts."""
    (y,), (x, src, ids) = outs, ins
    if meets:
        recur_along(go, (y, None), (x, src, 0, ids), n, m, inner, False)
        return
    each = inner if ids.size == m else 1
    won = go.empty(y.size // each, int64)
    last_rows(on_integers(go), (won,), (places_along(go, ids, src.size // each, n, m, inner // each),))
    go(put_won, outs, (x, src, won), (each,), grid=blocks(y.size), formula=None)


@launcher
def recur_along(go, outs, ins, n, m, inner, reverse):
    (z, _), (x, a, b, index) = outs, ins
    go.device.stream.copy(z, x)
    if a.size:
        ids, places = sorted_ids(go, places_along(go, index, a.size, n, m, inner), z.size)
        go(recur_run, outs, (a, b, ids, places), (bool(reverse),), grid=blocks(a.size))


def places_along(go, ids, size, n, m, inner):
    """Where `size` ids, (outer, m, inner), lie in (outer, n, inner)."""
    places, outer = go.empty(size, int64), size // max(1, m * inner)
    place_launcher(on_integers(go), (places,), (ids,), (outer, m, inner), (n * inner, 0, 1), n, inner)
    return places


def on_integers(go):
    return Go(go.device, None, int64, False)
