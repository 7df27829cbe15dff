"""Products of float32 matrices by parts: each number is the sum of two or three bf16 numbers, and tiles multiply those.

FUNCTIONS are packing and multiplying; names() is what stands in them for a route and a number of parts (see lower.py).

The first part of a number is the bf16 nearest to it, each other one the nearest to what is left. With two parts, 16 bits of 24, three
products of parts are summed: the error is at most 3 * 2**-16 of |a| |b|, and 3.5e-6 in sums of hundreds. Three parts have all bits; six
products: 2**-22 and 1.6e-7, less than sums of float32 products err. It pays with tiles alone: elsewhere three products of bf16 take
longer than one of float32. Otherwise than there, infinity gives NaN, and so do numbers from 3.39e38 on; parts below 1.2e-38 are 0.

Prior work: Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype" (2019). Read next: bfloat.py.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from .bfloat import PACK, ROUTES, b_float, b_float_turned, product
from .blocks import OWN, block_dot, clear_four, load_four, store_four
from .inner import INNER
from .panels import STEP, tiles_by_pairs, tiles_by_rows
from .tiles import AMX, DOT, route, tile_dot, tile_load


def pays() -> bool:
    """Whether products by parts are faster than float32's own here."""
    return route() == AMX


# ---- tiles: those of A are 4 and 5, of B 6 and 7; one that is loaded serves two products where it can -----
@njit(**INNER)
def four():
    tile_dot(0, 4, 6)
    tile_dot(1, 4, 7)
    tile_dot(2, 5, 6)
    tile_dot(3, 5, 7)


@njit(**INNER)
def left(a, lda, a_next):
    tile_load(4, a, lda)
    tile_load(5, a + a_next, lda)


@njit(**INNER)
def right(b):
    tile_load(6, b, 64)
    tile_load(7, b + 1024, 64)


@njit(**OWN)
def block_amx2(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    if add:
        load_four(c, ldc)
    else:
        clear_four()
    for _ in range(steps):
        left(a, lda, a_next)
        right(b + STEP)
        four()
        right(b)
        four()
        left(a + STEP, lda, a_next)
        four()
        a += a_step
        b += b_step
    store_four(c, ldc)


@njit(**OWN)
def block_amx3(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    if add:
        load_four(c, ldc)
    else:
        clear_four()
    for _ in range(steps):
        left(a, lda, a_next)
        right(b + 2 * STEP)
        four()
        right(b + STEP)
        four()
        left(a + STEP, lda, a_next)
        four()
        right(b)
        four()
        left(a + 2 * STEP, lda, a_next)
        four()
        left(a, lda, a_next)
        four()
        a += a_step
        b += b_step
    store_four(c, ldc)


# ---- vdpbf16ps: no faster than float32, but it computes the same where there are no tiles -----
@njit(**OWN)
def block_dot2(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    for i, j in ((0, 1), (1, 0), (0, 0)):
        block_dot(c, ldc, a + i * STEP, lda, a_next, a_step, b + j * STEP, b_step, steps, add or j == 0)


@njit(**OWN)
def block_dot3(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    for i, j in ((0, 2), (1, 1), (2, 0), (0, 1), (1, 0), (0, 0)):
        block_dot(c, ldc, a + i * STEP, lda, a_next, a_step, b + j * STEP, b_step, steps, add or j < 2)


BLOCKS = {AMX: {2: block_amx2, 3: block_amx3}, DOT: {2: block_dot2, 3: block_dot3}}
b_plain, b_turned, a_plain, a_turned = b_float, b_float_turned, b_float, b_float_turned  # as_c() puts those of two or three parts here


def split_right(turned, k, n, b, ldb, to):
    if turned:
        b_turned(n, k, b, ldb, to)
    else:
        b_plain(n, k, b, ldb, to)


def split_left(turned, m, k, a, lda, to):
    if turned:
        a_turned(m, k, a, lda, to)
    else:
        a_plain(m, k, a, lda, to)


i, f, v = types.int64, types.float32, types.void
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "product": (product, v(i, i, i, f, i, i, i, i, i, i)),
    "right": (split_right, PACK),
    "left": (split_left, PACK),
}


def names(form: str, parts: int) -> dict[str, Any]:
    """What stands for the names in FUNCTIONS."""
    base = ROUTES[form]
    return {
        **base, "BLOCK": BLOCKS[form][parts], "PARTS": parts, "DEPTH": base["DEPTH"] // parts,
        "b_plain": tiles_by_pairs(False, 4, parts), "b_turned": tiles_by_rows(True, 4, parts),
        "a_plain": tiles_by_rows(False, 4, parts), "a_turned": tiles_by_pairs(True, 4, parts),
    }  # fmt: skip
