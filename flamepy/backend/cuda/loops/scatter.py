"""add_rows: rows added to the rows that ids name, in the same order each time.

The ids are sorted (sorting.py), so that what goes to one row of the result lies together. Then the sorted ids are cut into chunks of the
same length: a thread adds up four columns of the rows of a chunk. Sums that begin and end in a chunk go to the result; others, of a
row that more chunks share, are put aside and added up by a second kernel. However often one id occurs, all threads have work. Sums are in
wide() numbers, float64 for floats: an id may be named very often, and memory takes longer.
"""

from __future__ import annotations

from ....dtypes import FLOATS, float64, int64
from ...formula.row_words import wide
from ..runtime.compat import types
from ..runtime.family import THREADS, blocks, kernel, launcher
from .maps import fill_launcher, is_wide
from .runs import place, table
from .sorting import sorted_ids
from .vectors import aligned, load4, plus4, put4, store4, take4
from .words import block, thread

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
