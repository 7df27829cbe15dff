"""Sorting rows, and finding places in sorted ones.

A number is sorted by a key, an integer in the same order: for floats their bits, those of negative ones turned round. Rows are sorted
by eight bits of the keys at a time, short ones by putting in one after the other; a row by one worker. What is equal keeps its order.
"""

import numpy as np

from ....core.words import select
from ....dtypes import int32, int64
from ...formula.order import place_of
from ..runtime.family import launcher, loop
from ..runtime.parallel import elements, tasks
from ..runtime.workspace import wide_space
from .maps import F, same
from .runs import fill_run

FEW = 48  # numbers of a row that are put in one after the other, at most
FIRST = 32  # first ones of a longer row that are found so
LAST, BOTTOM = 0x7FFFFFFF, -0x80000000
LAST_WIDE, BOTTOM_WIDE = 0x7FFFFFFFFFFFFFFF, -0x8000000000000000


def float_key(v):
    b = np.int64(np.float32(v).view(np.int32))
    b = select(v != v, LAST, select(b == BOTTOM, 0, b))  # -0 equals 0
    return b ^ ((b >> 31) & LAST)


def double_key(v):
    b = np.float64(v).view(np.int64)
    b = select(v != v, LAST_WIDE, select(b == BOTTOM_WIDE, 0, b))
    return b ^ ((b >> 63) & LAST_WIDE)


@loop
def keys_of(part, keys, x, descending):
    for i in elements(part, keys.size):
        key = F(x[i])
        keys[i] = ~key if descending else key


@loop
def sort_rows(part, out, keys, ids, other_keys, other_ids, n, k, bits):
    """out[r] = where the k first numbers of row r of keys are, in order; the others are room to work in."""
    room = wide_space(keys)
    for r in tasks(part, out.size // k):
        mine, first, stop = out[r * k : r * k + k], r * n, r * n + n
        if n <= FEW or k <= FIRST:
            put_in(mine, room, keys[first:stop], FIRST * n)
        elif not 0 < k * k < n or k > room.size or not put_in(mine, room, keys[first:stop], n):
            sort_row(mine, keys[first:stop], ids[first:stop], other_keys[first:stop], other_ids[first:stop], room[:256], bits)


def put_in(out, room, keys, most):
    """The places of the first keys go into out, the keys beside into room. False: given up, more than `most` had to make room."""
    many, moved = 0, 0
    for i in range(keys.size):
        key, j = keys[i], many
        if j < out.size:
            many += 1
        elif key < room[j - 1]:
            j -= 1
        else:
            continue
        last = j
        while j > 0 and room[j - 1] > key:
            room[j], out[j] = room[j - 1], out[j - 1]
            j -= 1
        room[j], out[j] = key, i
        moved += last - j
        if moved > most:
            return False
    return True


def sort_row(out, keys, ids, other_keys, other_ids, counts, bits):
    for j in range(ids.size):
        ids[j] = j
    for shift in range(0, bits, 8):
        fill_run(counts, 0)
        for j in range(keys.size):
            counts[digit(keys[j], shift, bits)] += 1
        if counts[digit(keys[0], shift, bits)] < keys.size:  # else all have this digit
            total = 0
            for d in range(counts.size):
                many = counts[d]
                counts[d] = total
                total += many
            for j in range(keys.size):
                d = digit(keys[j], shift, bits)
                to = np.uintp(counts[d])
                counts[d] += 1
                other_keys[to], other_ids[to] = keys[j], ids[j]
            keys, other_keys, ids, other_ids = other_keys, keys, other_ids, ids
    for j in range(out.size):
        out[j] = ids[j]


def digit(key, shift, bits):
    """Eight bits of a key, the sign's so that negative ones come first."""
    return np.uintp(((key >> shift) & 255) ^ (128 if shift + 8 == bits else 0))


@loop(launched=True)
def search(part, out, x, values, n, many, right):
    for i in tasks(part, out.size):
        out[i] = place_of(x, i // many * n, n, values[i], right)


# ---- launchers ----
@launcher
def argsort(go, outs, ins, n, descending, k):
    (y,), (x,) = outs, ins
    wide = x.dtype.itemsize == 8
    formula = same if x.dtype.kind in "iu" else double_key if wide else float_key
    key = int64 if wide else int32
    keys, few = go.empty(x.size, key), n <= FEW or k <= FIRST
    go(keys_of, (keys,), ins, (bool(descending),), formula=formula)
    ids = keys if few and key == int32 else go.empty(0 if few else x.size, int32)
    rest = (ids, keys, ids) if few else (ids, go.empty(x.size, key), go.empty(x.size, int32))
    go(sort_rows, (y, keys, *rest), (), (n, k, 64 if wide else 32), formula=None, dtype=key, work=x.size * 8 if x.size > n else 1)
