"""Sorting ids: positions by id, equal ids in the order they came, by eight bits of the id at a time.

Each step counts, in tiles of the ids, how often each digit occurs; makes of the counts where the first id of each digit and tile goes; and
moves ids and positions there. Threads of a warp that have the same digit find each other by one instruction, so the order is the same each
time. A wrong id is limited to the rows there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..runtime.compat import cuda, types
from ..runtime.family import THREADS, WARP, blocks, kernel
from .moves import within
from .words import barrier, block, thread

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
def sorted_ids(go: Any, ids: Any, rows: int) -> tuple[Any, Any]:
    """Buffers (ids, positions), sorted; ids are limited to `rows`."""
    tiles, n = blocks(ids.size, TILE), ids.size
    counts, totals = go.empty(DIGITS * tiles, np.dtype("int32")), go.empty(DIGITS, np.dtype("int32"))
    wide = np.dtype("int64" if max(rows, n) >= 1 << 31 else "int32")
    found, places = ids, None
    for shift in range(0, max(1, (rows - 1).bit_length()), BITS):
        go(count_digits, (counts,), (found,), (shift, rows - 1), grid=tiles, dtype=wide)
        go(sum_counts, (counts, totals), (), (tiles,), grid=DIGITS, dtype=wide)
        to = go.empty(n, wide), go.empty(n, wide)
        go(move_ids, to, (found, places, counts, totals), (shift, rows - 1), grid=tiles, dtype=wide)
        found, places = to
    return found, places
