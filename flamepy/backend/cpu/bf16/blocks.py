"""The innermost part of bf16 products: 32 x 32 of C (+)= 32 rows of A by one panel of B, on each route; and A made ready for it.

    block(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add)    all by address, in bytes
        row r of A lies at a + r % 16 * lda + r // 16 * a_next, its next 32 numbers a_step on

The sums stay in registers for `steps` steps of 32 along k.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types

from ..runtime.inner import INNER, word
from ..runtime.processor import arm
from .panels import HALVES32, SIDE, line_word, read_widened, splat, widened
from .tiles import (
    BF16,
    F32,
    I32,
    I64,
    TILE,
    call,
    lanes,
    pointer,
    read_float,
    read_half,
    rows,
    tile_dot,
    tile_load,
    tile_store,
    tile_zero,
    write_float,
    write_half,
)

OWN = {**INNER, "forceinline": False}  # functions of their own: each is called from several places, and runs for longer than a call takes


# ---- some rows of a block in vector registers -----
class Shape(NamedTuple):
    """`height` rows of two vectors of C. dots: a word of A is two bf16 numbers, and vdpbf16ps takes both. Else A is float32, and the
    numbers of a word of B are widened: the lower one by a shift, the upper one by a mask."""

    height: int
    lanes: int
    dots: bool

    @property
    def floats(self) -> Any:
        return ir.VectorType(F32, self.lanes)

    @property
    def words(self) -> Any:
        return ir.VectorType(I32, self.lanes)


def spread(builder: Any, x: Any, lanes: int) -> Any:
    """A number in all lanes."""
    one = builder.insert_element(ir.Constant(ir.VectorType(x.type, lanes), ir.Undefined), x, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, one, splat(ir.VectorType(I32, lanes), 0))


def operands(builder: Any, shape: Shape, lines: list[Any], b: Any) -> list[tuple[list[Any], list[Any]]]:
    """What a pair of a step multiplies: numbers of A, one for each row, by two vectors of B; once or, without dots, twice."""
    right = [builder.load(pointer(builder, b, shape.words, at), align=4) for at in (0, 1024 if shape.lanes == TILE else 4 * shape.lanes)]
    if shape.dots:
        left = [builder.load(pointer(builder, line, I32), align=2) for line in lines]
        return [([spread(builder, x, shape.lanes) for x in left], right)]
    low = [builder.shl(x, splat(shape.words, 16)) for x in right]
    high = [builder.and_(x, splat(shape.words, -65536)) for x in right]
    found = []
    for h, half in enumerate((low, high)):
        left = [builder.load(pointer(builder, line, F32, 4 * h), align=4) for line in lines]
        found.append(([spread(builder, x, shape.lanes) for x in left], [builder.bitcast(x, shape.floats) for x in half]))
    return found


def pair(builder: Any, shape: Shape, sums: list[Any], lines: list[Any], b: Any) -> list[Any]:
    """The sums after one pair of a step."""
    sums, halves = list(sums), ir.VectorType(BF16, 2 * shape.lanes)
    for left, right in operands(builder, shape, lines, b):
        for r, x in enumerate(left):
            for v, y in enumerate(right):
                at = 2 * r + v
                if shape.dots:
                    two = builder.bitcast(x, halves), builder.bitcast(y, halves)
                    sums[at] = call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", shape.floats, sums[at], *two)
                else:
                    sums[at] = call(builder, f"llvm.fmuladd.v{shape.lanes}f32", shape.floats, x, y, sums[at])
    return sums


def rows_of(shape: Shape) -> Any:
    """A word (c, ldc, a, lda, a_step, b, b_step, steps, add) for such rows."""

    @word(types.void, *[types.int64] * 8, types.boolean)
    def block(builder: Any, c: Any, ldc: Any, a: Any, lda: Any, a_step: Any, b: Any, b_step: Any, steps: Any, add: Any) -> None:
        places = [pointer(builder, at, shape.floats, 4 * shape.lanes * v) for at in rows(builder, c, ldc, shape.height) for v in (0, 1)]
        zero = ir.Constant(shape.floats, [0.0] * shape.lanes)
        starts = [builder.select(add, builder.load(p, align=4), zero) for p in places]

        def one(now: list[Any]) -> list[Any]:
            sums = pair(builder, shape, now[2:], rows(builder, now[0], lda, shape.height), now[1])
            ahead = (ir.Constant(I64, n) for n in (4 if shape.dots else 8, 64))
            return [*(builder.add(x, y) for x, y in zip(now, ahead, strict=False)), *sums]

        def step(now: list[Any]) -> list[Any]:
            # Rounds, not one long block of sixteen pairs: there LLVM moves loads so far ahead that registers run out.
            sums = repeat(builder, ir.Constant(I64, TILE), now, one)[2:]
            return [builder.add(now[0], a_step), builder.add(now[1], b_step), *sums]

        sums = repeat(builder, steps, [a, b, *starts], step)[2:]
        for place, total in zip(places, sums, strict=True):
            builder.store(total, place, align=4)

    return block


def repeat(builder: Any, count: Any, start: list[Any], body: Any) -> list[Any]:
    """What is left of `start` after `count` > 0 rounds of values = body(values)."""
    before, again, done = builder.block, builder.append_basic_block("again"), builder.append_basic_block("done")
    builder.branch(again)
    builder.position_at_end(again)
    left, now = builder.phi(I64), [builder.phi(v.type) for v in start]
    after = body(now)
    fewer = builder.sub(left, ir.Constant(I64, 1))
    for phi, first, following in zip([left, *now], [count, *start], [fewer, *after], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed(">", fewer, ir.Constant(I64, 0)), again, done)
    builder.position_at_end(done)
    return list(after)


# ---- a block: 32 x 32 of C (+)= 32 rows of A by a panel -----
@njit(**INNER)
def clear_four():
    tile_zero(0)
    tile_zero(1)
    tile_zero(2)
    tile_zero(3)


@njit(**INNER)
def load_four(c, ldc):
    tile_load(0, c, ldc)
    tile_load(1, c + 64, ldc)
    tile_load(2, c + 16 * ldc, ldc)
    tile_load(3, c + 16 * ldc + 64, ldc)


@njit(**INNER)
def store_four(c, ldc):
    tile_store(0, c, ldc)
    tile_store(1, c + 64, ldc)
    tile_store(2, c + 16 * ldc, ldc)
    tile_store(3, c + 16 * ldc + 64, ldc)


@njit(**OWN)
def block_amx(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    """Two by two tiles of C; four loads feed four products."""
    if add:
        load_four(c, ldc)
    else:
        clear_four()
    for _ in range(steps):
        tile_load(6, b, 64)
        tile_load(4, a, lda)
        tile_dot(0, 4, 6)
        tile_load(7, b + 1024, 64)
        tile_dot(1, 4, 7)
        tile_load(5, a + a_next, lda)
        tile_dot(2, 5, 6)
        tile_dot(3, 5, 7)
        a += a_step
        b += b_step
    store_four(c, ldc)


def rows_in_registers(lanes: int) -> int:
    """How many rows of C, two vectors each, there is room for beside two of B and one of A: of 32 registers (AVX-512, ARM) or 16."""
    return {16: 8, 8: 6, 4: 8 if arm() else 4}[lanes]


LANES = lanes()
ROWS = rows_in_registers(LANES)
TALL = {8: 32, 6: 24, 4: 32}[ROWS]  # rows of a block that are done so; the others in fours
rows_dot = rows_of(Shape(8, 16, True))
rows_fma, rows_four = rows_of(Shape(ROWS, LANES, False)), rows_of(Shape(4, LANES, False))


@njit(**OWN)
def block_dot(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    for half in range(2):
        for r in range(0, 16, 8):
            rows_dot(c + (16 * half + r) * ldc, ldc, a + half * a_next + r * lda, lda, a_step, b, b_step, steps, add)


@njit(**OWN)
def block_fma(c, ldc, a, lda, a_next, a_step, b, b_step, steps, add):
    """A is float32, row by row."""
    for j in range(0, SIDE, 2 * LANES):
        at, panel = c + 4 * j, b + j // 16 * 1024 + j % 16 * 4
        for r in range(0, TALL, ROWS):
            rows_fma(at + r * ldc, ldc, a + r * lda, lda, a_step, panel, b_step, steps, add)
        for r in range(TALL, SIDE, 4):
            rows_four(at + r * ldc, ldc, a + r * lda, lda, a_step, panel, b_step, steps, add)


# ---- 32 rows of A made ready, where they cannot be read as they lie -----
def gatherer(line: Any, read: Any, write: Any, zero: Any) -> Any:
    """A word: `deep` steps of 32 rows of bf16, row by row as numbers of zero's type, zeros beyond height and width."""
    size = zero.itemsize

    def gather(to, a, lda, a_next, a_step, height, width, deep):
        for r in range(SIDE):
            row, source = to + r * deep * SIDE * size, a + r % 16 * lda + r // 16 * a_next
            for p in range(deep):
                if r < height and SIDE * (p + 1) <= width:
                    line(row + p * SIDE * size, source + p * a_step)
                    continue
                for q in range(SIDE):
                    there = r < height and SIDE * p + q < width
                    write(row + (SIDE * p + q) * size, read(source + p * a_step + 2 * q) if there else zero)

    return njit(**OWN)(gather)


gather_half = gatherer(line_word(HALVES32, lambda builder, x: x), read_half, write_half, np.uint16(0))
gather_float = gatherer(line_word(HALVES32, widened), read_widened, write_float, np.float32(0))


# ---- blocks at C's edges, or times alpha -----
@njit(**OWN)
def copy_block(rows, cols, x, ldx, y, ldy):
    for r in range(rows):
        for q in range(cols):
            write_float(y + r * ldy + 4 * q, read_float(x + r * ldx + 4 * q))


@njit(**OWN)
def add_block(rows, cols, alpha, add, x, y, ldy):
    """y = alpha * x or y += alpha * x, x a block in the nearest cache."""
    for r in range(rows):
        for q in range(cols):
            at = y + r * ldy + 4 * q
            z = alpha * read_float(x + r * 128 + 4 * q)
            write_float(at, read_float(at) + z if add else z)
