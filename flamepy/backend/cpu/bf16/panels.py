"""The order in which bf16 operands of products are packed, and the words that pack them: tiles of pairs, made in registers.

    the right operand op(B) (k, n): panels of 32 columns; a panel is two tiles for each step of 32 along k
    the left operand op(A) (m, k): strips of 32 rows; a strip is two tiles for each step
    a tile is 16 rows of 16 words: of the right one row i holds B[2i, j] and B[2i + 1, j] for 16 columns j, of the left one row i of A

One order serves all routes. What lies beyond an operand's edge is 0. Sources are bf16 or float32, which is rounded on the way, to the
nearest, ties to even; as one bf16 number or as two whose sum it nearly is (lower.py). A word of 16 x 16 words is turned by 64 shuffles
that stay within registers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from ..runtime.inner import INNER, word
from ..runtime.processor import features
from .tiles import BF16, F32, I16, I32, I64, TILE, pointer, read_float, read_half, rows, stack, write_float, write_half

SIDE = 32  # columns of a panel, rows of a strip
STEP = 2048  # bytes of a step: two tiles
HALVES32, FLOATS32 = (ir.VectorType(kind, SIDE) for kind in (I16, F32))
WORDS, HALVES, FLOATS = (ir.VectorType(kind, TILE) for kind in (I32, I16, F32))
NATIVE = "avx512bf16" in features()  # then one instruction rounds


def lanes_of(numbers: Any) -> Any:
    return ir.Constant(ir.VectorType(I32, len(numbers)), list(numbers))


def splat(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count)


def rounded(builder: Any, x: Any) -> Any:
    """A vector of float32 rounded to bf16, as 16-bit integers. NaN stays NaN; where one instruction does it, denormals become 0."""
    halves = ir.VectorType(I16, x.type.count)
    if NATIVE:
        return builder.bitcast(builder.fptrunc(x, ir.VectorType(BF16, x.type.count)), halves)
    words = ir.VectorType(I32, x.type.count)
    bits = builder.bitcast(x, words)
    odd = builder.and_(builder.lshr(bits, splat(words, 16)), splat(words, 1))
    near = builder.add(bits, builder.add(odd, splat(words, 0x7FFF)))
    found = builder.select(builder.fcmp_unordered("uno", x, x), builder.or_(bits, splat(words, 0x400000)), near)
    return builder.trunc(builder.lshr(found, splat(words, 16)), halves)


def widened(builder: Any, halves: Any) -> Any:
    """A vector of bf16 as float32."""
    words = ir.VectorType(I32, halves.type.count)
    return builder.bitcast(builder.shl(builder.zext(halves, words), splat(words, 16)), ir.VectorType(F32, halves.type.count))


def line_word(kind: Any, change: Any) -> Any:
    """A word (to, at): the vector of this kind at `at`, as change(builder, vector) makes it."""

    @word(types.void, types.int64, types.int64)
    def change_line(builder: Any, to: Any, at: Any) -> None:
        x = change(builder, builder.load(pointer(builder, at, kind), align=2))
        builder.store(x, pointer(builder, to, x.type), align=2)

    return change_line


@word(types.float32, types.int64)
def read_widened(builder: Any, at: Any) -> Any:
    """The bf16 number at this address as float32."""
    bits = builder.zext(builder.load(pointer(builder, at, I16), align=2), I32)
    return builder.bitcast(builder.shl(bits, ir.Constant(I32, 16)), F32)


# ---- reading: for each part, sixteen vectors of sixteen words -----
def halves_at(builder: Any, at: Any, wide: bool, parts: int) -> list[Any]:
    """Sixteen numbers as bf16, once for each part."""
    if not wide:
        return [builder.load(pointer(builder, at, HALVES), align=2)]
    x = builder.load(pointer(builder, at, FLOATS), align=4)
    found = [rounded(builder, x)]
    for _ in range(parts - 1):
        x = builder.fsub(x, widened(builder, found[-1]))
        found.append(rounded(builder, x))
    return found


def read_rows(builder: Any, at: Any, stride: Any, wide: bool, parts: int) -> list[list[Any]]:
    """16 rows of 32 numbers."""
    found = []
    for row in rows(builder, at, stride, TILE):
        low = halves_at(builder, row, wide, parts)
        high = halves_at(builder, builder.add(row, ir.Constant(I64, 64 if wide else 32)), wide, parts)
        found.append([builder.bitcast(builder.shuffle_vector(x, y, lanes_of(range(32))), WORDS) for x, y in zip(low, high, strict=True)])
    return [list(part) for part in zip(*found, strict=True)]


def read_pairs(builder: Any, at: Any, stride: Any, wide: bool, parts: int) -> list[list[Any]]:
    """32 rows of 16 numbers: two rows become words."""
    lines = [halves_at(builder, row, wide, parts) for row in rows(builder, at, stride, 2 * TILE)]
    mixed = lanes_of([i for q in range(16) for i in (q, q + 16)])
    return [
        [builder.bitcast(builder.shuffle_vector(lines[2 * i][p], lines[2 * i + 1][p], mixed), WORDS) for i in range(TILE)]
        for p in range(len(lines[0]))
    ]


def transposed(builder: Any, lines: list[Any]) -> list[Any]:
    """Sixteen vectors of sixteen words, transposed: 4 x 4 within lanes of 128 bits, then the lanes."""
    quarters = range(0, 16, 4)
    low32 = lanes_of([i for q in quarters for i in (q, q + 16, q + 1, q + 17)])
    high32 = lanes_of([i for q in quarters for i in (q + 2, q + 18, q + 3, q + 19)])
    low64 = lanes_of([i for q in quarters for i in (q, q + 1, q + 16, q + 17)])
    high64 = lanes_of([i for q in quarters for i in (q + 2, q + 3, q + 18, q + 19)])
    even = lanes_of([i for q in (0, 8, 16, 24) for i in range(q, q + 4)])
    odd = lanes_of([i for q in (4, 12, 20, 28) for i in range(q, q + 4)])
    join = builder.shuffle_vector
    groups = []
    for g in quarters:
        low = [join(lines[g + i], lines[g + i + 1], low32) for i in (0, 2)]
        high = [join(lines[g + i], lines[g + i + 1], high32) for i in (0, 2)]
        groups.append([join(*two, mask) for two in (low, high) for mask in (low64, high64)])
    out: list[Any] = [None] * TILE
    for c in range(4):
        u = [group[c] for group in groups]
        for first, mask in ((0, even), (1, odd)):
            x, y = join(u[0], u[1], mask), join(u[2], u[3], mask)
            out[4 * first + c], out[4 * (first + 2) + c] = join(x, y, even), join(x, y, odd)
    return out


def packer(read: Any, turn: bool, wide: bool, parts: int = 1) -> Any:
    """A word (to, at, stride): one tile for each part, STEP bytes apart, from what read() finds at `at`."""

    @word(types.void, types.int64, types.int64, types.int64)
    def pack(builder: Any, to: Any, at: Any, stride: Any) -> None:
        for p, lines in enumerate(read(builder, at, stride, wide, parts)):
            for r, line in enumerate(transposed(builder, lines) if turn else lines):
                builder.store(line, pointer(builder, to, WORDS, STEP * p + 64 * r), align=4)

    return pack


# ---- whole operands -----
EDGE = stack(4 * 32 * 32)  # 32 rows of 32 numbers of either size


def corner_of(read: Any, write: Any, zero: Any) -> Any:
    """A word: copy what there is of 32 rows of 32 numbers to `space`, zeros around it."""
    size = zero.itemsize

    def corner(space, at, stride, height, width):
        for r in range(32):
            for q in range(32):
                write(space + (r * 32 + q) * size, zero)
        for r in range(height):
            for q in range(width):
                write(space + (r * 32 + q) * size, read(at + r * stride + q * size))

    return njit(**{**INNER, "forceinline": False})(corner)


CORNERS = {2: corner_of(read_half, write_half, np.uint16(0)), 4: corner_of(read_float, write_float, np.float32(0))}


def tiles_by_rows(turn: bool, size: int, parts: int) -> Any:
    """A word that packs (outer, k), k along memory: as panels or strips of `outer`."""
    tile, corner, step = packer(read_rows, turn, size == 4, parts), CORNERS[size], STEP * parts

    def by_rows(outer, k, at, ld, to):
        steps, space = (k + 31) // 32, EDGE()
        for t in range((outer + 31) // 32 * 2):
            for p in range(steps):
                place = to + (t // 2 * steps + p) * step + t % 2 * 1024
                source = at + (t * 16 * ld + p * 32) * size
                height, width = min(16, outer - t * 16), min(32, k - p * 32)
                if height == 16 and width == 32:
                    tile(place, source, ld * size)
                else:
                    corner(space, source, ld * size, height, width)
                    tile(place, space, 32 * size)

    return njit(**INNER)(by_rows)


def tiles_by_pairs(turn: bool, size: int, parts: int) -> Any:
    """A word that packs (k, outer), `outer` along memory. Read in the order of memory, which is twice as fast as panel by panel."""
    tile, corner, step = packer(read_pairs, turn, size == 4, parts), CORNERS[size], STEP * parts

    def by_pairs(outer, k, at, ld, to):
        steps, space = (k + 31) // 32, EDGE()
        for p in range(steps):
            for t in range((outer + 31) // 32 * 2):
                place = to + (t // 2 * steps + p) * step + t % 2 * 1024
                source = at + (p * 32 * ld + t * 16) * size
                height, width = min(32, k - p * 32), min(16, outer - t * 16)
                if height == 32 and width == 16:
                    tile(place, source, ld * size)
                else:
                    corner(space, source, ld * size, height, width)
                    tile(place, space, 32 * size)

    return njit(**INNER)(by_pairs)
