"""Products of float16 matrices: blocks of the operands are widened to float32 while they are multiplied, and results rounded once.

    product_halves(ta, tb, m, n, k, alpha, a, lda, a_size, b, ldb, b_size, add, c, ldc, c_size)
        gemm (gemm.py) on operands of which each has 2 or 4 bytes a number; what is added to has 4

A block of op(A) (HIGH, DEEP), one of op(B) (DEEP, WIDE) and one of the result lie in one of the rooms for what products pack: no more
than that is ever float32. Sums run over k in blocks that sizes decide. load() makes the function known; it has to come before a kernel
that calls it is made.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import njit, types

from ..runtime import halves, inner, processor, rooms
from ..runtime.halves import F32, I16, from_float16, to_float16
from ..runtime.inner import INNER, word
from ..runtime.rooms import address_of, give_space, load_spaces, take_space
from .gemm import SIGNATURES, copied, publish
from .gemm import load as load_products

HIGH, WIDE, DEEP = 128, 256, 256
A_AT, B_AT = HIGH * WIDE * 4, HIGH * (WIDE + DEEP) * 4  # in a room, behind the result's block; that of B takes the rest
LINE = 16  # numbers converted at once


def changing(numbers: int, kind: Any, change: Any, vector: Any) -> Any:
    """A word (to, at): so many numbers of this kind changed; by the processor where it can, which takes vectors, else by integers."""

    @word(types.void, types.int64, types.int64)
    def change_line(builder: Any, to: Any, at: Any) -> None:
        for n in range(1 if numbers > 1 and NATIVE else numbers):
            lanes = numbers if numbers > 1 and NATIVE else 1
            item = ir.VectorType(kind, lanes) if lanes > 1 else kind
            size = 2 if kind is I16 else 4
            x = builder.load(pointer(builder, at, item, n * size), align=size)
            y = vector(builder, x, lanes) if lanes > 1 else change(builder, x)
            builder.store(y, pointer(builder, to, y.type, n * (6 - size)), align=6 - size)

    return change_line


def pointer(builder: Any, address: Any, kind: Any, offset: int) -> Any:
    return builder.inttoptr(builder.add(address, ir.Constant(ir.IntType(64), offset)), kind.as_pointer())


def widened(builder: Any, x: Any, lanes: int) -> Any:
    return builder.fpext(builder.bitcast(x, ir.VectorType(ir.HalfType(), lanes)), ir.VectorType(F32, lanes))


def rounded(builder: Any, x: Any, lanes: int) -> Any:
    return builder.bitcast(builder.fptrunc(x, ir.VectorType(ir.HalfType(), lanes)), ir.VectorType(I16, lanes))


NATIVE = processor.converts_float16()
widen_line, widen_one = (changing(n, I16, from_float16, widened) for n in (LINE, 1))
round_line, round_one = (changing(n, F32, to_float16, rounded) for n in (LINE, 1))


def changing_block(line: Any, one: Any, size: int) -> Any:
    """A function (rows, cols, x, ldx, y, ldy): a block of numbers of `size` bytes changed into those of 6 - size."""

    def change_block(rows, cols, x, ldx, y, ldy):
        for r in range(rows):
            for q in range(0, cols // LINE * LINE, LINE):
                line(y + r * ldy + (6 - size) * q, x + r * ldx + size * q)
            for q in range(cols // LINE * LINE, cols):
                one(y + r * ldy + (6 - size) * q, x + r * ldx + size * q)

    return njit(**{**INNER, "forceinline": False})(change_block)


widen_block, round_block = changing_block(widen_line, widen_one, 2), changing_block(round_line, round_one, 4)


@njit(**INNER)
def block_of(turned, rows, cols, x, ld, size, i, j, space):
    """Address and row stride of the block of op(x) from (i, j): where it lies, or widened into `space`."""
    at, down, across = (x + j * ld + i * size, cols, rows) if turned else (x + i * ld + j * size, rows, cols)
    if size == 4:
        return at, ld
    widen_block(down, across, at, ld, space, 4 * across)
    return space, 4 * across


GEMM = types.ExternalFunction("flamepy_gemm4", types.void(*SIGNATURES["gemm"]))


def product_halves(ta, tb, m, n, k, alpha, a, lda, a_size, b, ldb, b_size, add, c, ldc, c_size):
    room = take_space()
    space, strips = address_of(room), max(1, (m + HIGH - 1) // HIGH)
    for j in range(0, n, WIDE):
        cols = min(WIDE, n - j)
        for strip in range(strips):  # of equal height: gemm does otherwise where there are but a few rows
            i, rows = m * strip // strips, m * (strip + 1) // strips - m * strip // strips
            to, step = (space, 4 * cols) if c_size == 2 else (c + i * ldc + 4 * j, ldc)
            for p in range(0, max(1, k), DEEP):
                deep = min(DEEP, k - p)
                left, left_step = block_of(ta, rows, deep, a, lda, a_size, i, p, space + A_AT)
                right, right_step = block_of(tb, deep, cols, b, ldb, b_size, p, j, space + B_AT)
                GEMM(ta, tb, rows, cols, deep, alpha, left, left_step, right, right_step, max(add, p > 0), to, step)
            if c_size == 2:
                round_block(rows, cols, to, step, c + i * ldc + 2 * j, ldc)
    give_space(room)


@cache
def load() -> None:
    """Make the function known to kernels that are made from now on."""
    load_products(4)
    load_spaces()
    files = [Path(__file__), *[Path(str(module.__file__)) for module in (halves, inner, processor, rooms)]]
    mark = hashlib.sha1(b"".join([file.read_bytes() for file in files])).hexdigest()[:10]
    publish("halves", 4, copied(product_halves, f"product_halves_{mark}"), SIGNATURES["halves"])
