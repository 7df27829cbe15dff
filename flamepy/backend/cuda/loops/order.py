"""Sorting rows, and finding places in sorted ones.

A number is sorted by a key, an integer in the same order: for floats their bits, those of negative ones turned round. All keys are sorted
together, 32 bits at a time, as ids are (scatter.py), then by the number of their row: what is equal keeps its order.
"""

from ....core.words import select
from ....dtypes import int64
from ...formula.order import place_of
from ..products.tensor import divided
from ..runtime.compat import libdevice, types
from ..runtime.family import THREADS, F, blocks, kernel, launcher
from .maps import same
from .scatter import sorted_ids
from .words import block, thread

LAST, BOTTOM, WORD = 0x7FFFFFFF, -0x80000000, 0xFFFFFFFF
LAST_WIDE, BOTTOM_WIDE = 0x7FFFFFFFFFFFFFFF, -0x8000000000000000


def float_key(v):
    b = types.int64(libdevice.float_as_int(v))
    b = select(v != v, LAST, select(b == BOTTOM, 0, b))  # -0 equals 0
    return b ^ ((b >> 31) & LAST)


def double_key(v):
    b = types.int64(libdevice.double_as_longlong(v))
    b = select(v != v, LAST_WIDE, select(b == BOTTOM_WIDE, 0, b))
    return b ^ ((b >> 63) & LAST_WIDE)


@kernel
def key_words(out, x, places, descending, shift, add):
    """32 bits of the keys, so that as whole numbers they are in order; places: which number is where by now."""
    i = types.int64(block()) * THREADS + thread()
    if i < out.size:
        at = i
        if places is not None:
            at = types.int64(places[i])
        key = types.int64(F(x[at]))
        key = ~key if descending else key
        out[i] = ((key >> shift) + add) & WORD


@kernel
def rows_of(out, places, n):
    i = types.int64(block()) * THREADS + thread()
    if i < out.size:
        out[i] = divided(types.int64(places[i]), n)[0]


@kernel
def within_rows(out, places, n, k):
    """The k first places of each row of n."""
    i = types.int64(block()) * THREADS + thread()
    if i < out.size:
        r, j = divided(i, k)
        out[i] = divided(types.int64(places[r * n + j]), n)[1]


@kernel
def search_each(out, x, values, n, many, right):
    i = types.int64(block()) * THREADS + thread()
    if i < out.size:
        out[i] = place_of(x, divided(i, many)[0] * n, n, values[i], right)


# ---- launchers ----
@launcher
def argsort(go, outs, ins, n, descending, k):
    (y,), (x,), places = outs, ins, None
    wide, grid, rows = x.dtype.itemsize == 8, blocks(x.size), x.size // n
    formula = same if x.dtype.kind in "iu" else double_key if wide else float_key
    for shift, add in ((0, 0), (32, 1 << 31)) if wide else ((0, 1 << 31),):
        words = go.empty(x.size, int64)
        go(key_words, (words,), (x, places), (bool(descending), shift, add), grid=grid, formula=formula)
        _, places = sorted_ids(go, words, 1 << 32, places)
    if rows > 1:
        of = go.empty(x.size, int64)
        go(rows_of, (of,), (places, n), grid=grid, formula=None, dtype=int64)
        _, places = sorted_ids(go, of, rows, places)
    go(within_rows, outs, (places, n, k), grid=blocks(y.size), formula=None, dtype=int64)


@launcher
def search(go, outs, ins, n, many, right):
    go(search_each, outs, ins, (n, many, right), grid=blocks(outs[0].size))
