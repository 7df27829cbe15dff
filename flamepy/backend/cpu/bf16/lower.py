"""Products of float32 matrices in less than float32: what `gemm` calls under "high" and "medium" (backend/precision.py).

    B is packed as bf16 block by block, A 32 rows at a time; tiles or vdpbf16ps multiply them (bfloat.py)

"medium" rounds each number to the nearest of bf16. "high" takes two parts, that number and the nearest to what is left: 16 bits of 24.
Three products of parts are summed: the error is at most 3 * 2**-16 of |a| |b|. It pays with tiles alone; there infinity gives NaN, and so
do numbers from 3.39e38 on, and parts below 1.2e-38 are 0. See Henry, Tang, Heinecke, "Leveraging the bfloat16 Artificial Intelligence
Datatype" (2019).

A block of B is 256 columns wide and as deep as 192 KB hold; 32 rows of A, which are multiplied with it, stay in the nearest caches. A
number is the same chain of sums whatever the rows beside it. Compiled where a level pays, when somebody chooses it.
"""

from __future__ import annotations

from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, types

from ...precision import LEVELS
from ..products.gemm import SIGNATURES
from ..runtime.inner import INNER
from ..runtime.rooms import address_of, give_space, take_space
from . import bfloat
from .blocks import OWN, block_dot, clear_four, load_four, rows_dot, store_four
from .panels import SIDE, STEP, tiles_by_pairs, tiles_by_rows
from .tiles import AMX, DOT, route, tile_dot, tile_load

# Levels and routes on which a product is faster than in float32: the number of parts.
PARTS = {("medium", AMX): 1, ("medium", DOT): 1, ("high", AMX): 2}
FEW = 16  # with so few rows left, vdpbf16ps is not wasted on 32
ACROSS = 256  # columns of a block of B
ROOM = 384 * ACROSS * 2  # bytes of a block: 384 rows of one part, 192 of two

# as_c() puts others in place of these.
COUNT, multiply, multiply_few, on, off = 1, bfloat.product, bfloat.product, bfloat.nothing, bfloat.nothing
b_plain, b_turned, a_plain, a_turned = bfloat.b_float, bfloat.b_float_turned, bfloat.a_float, bfloat.a_float_turned


def by_parts(ta, tb, m, n, k, alpha, a, lda, b, ldb, add, c, ldc):
    """gemm() by parts; at least one k."""
    room, deepest = take_space(), ROOM // (2 * ACROSS * COUNT)
    space = address_of(room)
    strip = space + ROOM
    blocks = (k + deepest - 1) // deepest
    deep = ((k + blocks - 1) // blocks + SIDE - 1) // SIDE * SIDE
    on()
    for j in range(0, n, ACROSS):
        wide = min(ACROSS, n - j)
        for p in range(0, k, deep):
            inner = min(deep, k - p)
            if tb:
                b_turned(wide, inner, b + j * ldb + 4 * p, ldb // 4, space)
            else:
                b_plain(wide, inner, b + p * ldb + 4 * j, ldb // 4, space)
            for i in range(0, m, SIDE):
                rows = min(SIDE, m - i)
                if ta:
                    a_turned(rows, inner, a + p * lda + 4 * i, lda // 4, strip)
                else:
                    a_plain(rows, inner, a + i * lda + 4 * p, lda // 4, strip)
                to, scale, adds = c + i * ldc + 4 * j, np.float32(alpha), add != 0 or p > 0
                if rows > FEW:
                    multiply(rows, wide, inner, scale, strip, 0, space, adds, to, ldc // 4)
                else:
                    multiply_few(rows, wide, inner, scale, strip, 0, space, adds, to, ldc // 4)
    off()
    give_space(room)


@njit(**OWN)
def few_dot(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    """block_dot() for the upper FEW of 32 rows."""
    for r in range(0, FEW, 8):
        rows_dot(c + r * ldc, ldc, a + r * lda, lda, a_step, b, b_step, steps, add)


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


def product(words: dict[str, Any]) -> Any:
    """bfloat.product() as a function of its own."""
    return njit(**OWN)(FunctionType(bfloat.product.__code__, {**bfloat.product.__globals__, **words}))


def words_of(form: str, count: int) -> dict[str, Any]:
    """What bfloat.product() needs on a route, for products of so many parts."""
    one = bfloat.ROUTES[form]
    return one if count == 1 else {**one, "BLOCK": block_amx2, "PARTS": count, "DEPTH": one["DEPTH"] // count}


def names(words: dict[str, Any], count: int) -> dict[str, Any]:
    """What stands for the names in by_parts()."""
    whole = product(words)
    return {
        "COUNT": count, "multiply": whole, "multiply_few": product({**words, "BLOCK": few_dot}) if words["BLOCK"] is block_dot else whole,
        "on": words.get("TILES_ON", bfloat.nothing), "off": words.get("TILES_OFF", bfloat.nothing),
        "b_plain": tiles_by_pairs(False, 4, count), "b_turned": tiles_by_rows(True, 4, count),
        "a_plain": tiles_by_rows(False, 4, count), "a_turned": tiles_by_pairs(True, 4, count),
    }  # fmt: skip


SIGNATURE = types.void(*SIGNATURES["gemm"])


@cache
def compiled(form: str, count: int) -> Any:
    return bfloat.as_c(by_parts, SIGNATURE, f"{form}_{count}", names(words_of(form, count), count))


def parts_here(level: str) -> int:
    """Of how many parts this process makes products at a level; 0: they are float32's own."""
    return PARTS.get((level, route()), 0)


def function(level: str) -> int:
    """The address of what gemm calls at a level, or 0."""
    count = parts_here(level)
    return int(compiled(route(), count).address) if count else 0


def fact() -> str:
    """What the levels are in this process."""
    how = {AMX: "tiles (AMX)", DOT: "vdpbf16ps"}.get(route(), "")
    texts = {0: "float32", 1: f"bf16 by {how}", 2: f"two bf16 parts by {how}"}
    return ", ".join(f'"{level}": {texts[parts_here(level)]}' for level in LEVELS)
