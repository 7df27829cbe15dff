"""Products whose first operand is picked out of memory by two lists. The words `gemm_picked`, `dots_picked` and `pack_turned`.

    gemm_picked(m, n, k, a, a_off, rows, inner, picks, b, b_off, deep, add, c, c_off, ldc)
    c[m, n] = (or +=, with add) A @ B     A[i, p] = a[a_off + rows[i] + inner[p]]; B[p] is row picks[p] of `deep` rows in panels
    dots_picked(m, runs, long, a, rows, starts, b, add, c, c_off)
    the same for one column, where the p of a run lie side by side: starts[run * long] is the first one's inner[p]
    pack_turned(to, to_off, k, first, count, b, b_off, ldb, n)
    rows first to first + count of the k rows of B's panels, from b (n, count), its rows ldb apart

What taps of windows see at positions of an image is such an operand: one list says where a tap is, the other where a position, and their
sum is a place in the padded image, whatever the window's steps and gaps. A tile of gemm.py reads six numbers of A for each p; here
each comes from a pointer of its own, and all pointers move by the same distance. The panels have k rows of n numbers and what fills up a
vector.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..runtime.inner import INNER
from ..runtime.processor import Tile, tile
from .gemm import SOURCES, own_name, publish
from .micro import ALONE, WORD, Vectors, at_most, by_width, emit_loop, emit_prefetches, emit_stores, word
from .packing import Packing

DOTS = 9  # rows of dots_picked at once, taps of a 3 x 3 window: so many sums hide each other's latency


def emit_sums(v: Vectors, tile: Tile, a: Any, rows: Any, inner: Any, picks: Any, b: Any, wide: Any, k: Any) -> list[list[Any]]:
    """The tile's sums over k, in a panel whose rows are `wide` bytes apart."""
    builder, shift = v.builder, word(v.itemsize.bit_length() - 1)

    def read(at: Any, offset: int = 0) -> Any:
        return builder.shl(builder.load(v.pointer(at, offset, WORD), align=8), shift)

    lines = [builder.add(a, read(rows, 8 * i)) for i in range(tile.rows)]

    def one(now: list[Any]) -> list[Any]:
        pick, at, sums = now[0], now[1], now[2:]
        place = builder.add(b, builder.mul(builder.load(v.pointer(pick, 0, WORD), align=8), wide))
        columns, distance = [v.load(place, n * tile.lanes * v.itemsize) for n in range(tile.across)], read(at)
        for i, line in enumerate(lines):
            x = v.spread_at(builder.add(line, distance))
            for n, y in enumerate(columns):
                sums[i * tile.across + n] = v.multiply_add(x, y, sums[i * tile.across + n])
        return [builder.add(pick, word(8)), builder.add(at, word(8)), *sums]

    sums = emit_loop(builder, k, [picks, inner, *[v.zero] * (tile.rows * tile.across)], one)[2:]
    return [sums[i : i + tile.across] for i in range(0, len(sums), tile.across)]


def picked_kernel(itemsize: int, tile: Tile) -> Any:
    """A jitted (c, ldc, a, rows, inner, picks, b, wide, k, count, cols, add): `count` tiles, one below the other. Bytes and addresses."""

    def typed(typing, c, ldc, a, rows, inner, picks, b, wide, k, cols, add):  # type: ignore[no-untyped-def]
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            c, ldc, a, rows, inner, picks, b, wide, k, cols, add = values
            v = Vectors(builder, itemsize, tile.lanes)
            emit_prefetches(v, tile, c, ldc)
            sums = emit_sums(v, tile, a, rows, inner, picks, b, wide, k)
            with builder.if_else(builder.icmp_signed("==", cols, word(tile.lanes * tile.across))) as (whole, part):
                for masked, block in ((False, whole), (True, part)):
                    with block:
                        emit_stores(v, sums, c, ldc, cols, add, masked)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 10, types.boolean), code

    emit, high = intrinsic(typed), tile.rows

    def picked(c, ldc, a, rows, inner, picks, b, wide, k, count, cols, add):
        for i in range(0, count * high, high):
            emit(c + i * ldc, ldc, a, rows + i * 8, inner, picks, b, wide, k, cols, add)

    return njit(**ALONE)(picked)


def product(size: int, tile: Tile) -> Any:
    widths = range(1, tile.across + 1)
    six, four, three, one = (by_width([picked_kernel(size, tile._replace(rows=rows, across=n)) for n in widths]) for rows in (6, 4, 3, 1))
    lanes, panel = tile.lanes, tile.lanes * tile.across

    def gemm_picked_at(m, n, k, a, rows, inner, picks, b, deep, add, c, ldc):
        fours, threes = (m % 6 % 3, m % 2) if m > 5 else (m // 4, m % 4 // 3)  # tiles of one row wait for their own sums
        sixes, more = max(0, m - 4 * fours - 3 * threes) // 6, add != 0
        second = 6 * sixes
        third = second + 4 * fours
        last = third + 3 * threes
        for j in range(0, n, panel):
            cols, to = min(panel, n - j), c + j * size
            vectors = (cols + lanes - 1) // lanes
            wide = vectors * lanes * size
            six(vectors, to, ldc, a, rows, inner, picks, b, wide, k, sixes, cols, more)
            four(vectors, to + second * ldc, ldc, a, rows + second * 8, inner, picks, b, wide, k, fours, cols, more)
            three(vectors, to + third * ldc, ldc, a, rows + third * 8, inner, picks, b, wide, k, threes, cols, more)
            one(vectors, to + last * ldc, ldc, a, rows + last * 8, inner, picks, b, wide, k, m - last, cols, more)
            b += deep * wide

    return gemm_picked_at


def packer(size: int, tile: Tile) -> Any:
    pack, lanes, panel = Packing(size, tile).panel, tile.lanes, tile.lanes * tile.across

    def pack_turned_at(to, k, first, count, b, ldb, n):
        for j in range(0, n, panel):
            cols = min(panel, n - j)
            deep = (cols + lanes - 1) // lanes * lanes * size
            pack(to + first * deep, b + j * ldb, ldb, True, count, cols)
            to += k * deep

    return pack_turned_at


def emit_dots(v: Vectors, m: Any, runs: Any, long: Any, a: Any, rows: Any, starts: Any, b: Any) -> list[Any]:
    """The sums of DOTS rows, vectors along the runs; rows beyond the last are the last one again."""
    builder, shift, step = v.builder, word(v.itemsize.bit_length() - 1), word(v.lanes * v.itemsize)

    def read(at: Any, index: Any) -> Any:
        return builder.shl(builder.load(v.pointer(builder.add(at, builder.shl(index, word(3))), kind=WORD), align=8), shift)

    lines = [builder.add(a, read(rows, at_most(builder, i, builder.sub(m, word(1))))) for i in range(DOTS)]
    sums = [cgutils.alloca_once_value(builder, v.zero) for _ in lines]
    whole = builder.sdiv(long, word(v.lanes))
    mask = v.first(builder.sub(long, builder.mul(whole, word(v.lanes))))

    def more(at: Any, place: Any, load: Any) -> None:
        y = load(place)
        for line, total in zip(lines, sums, strict=True):
            builder.store(v.multiply_add(load(builder.add(line, at)), y, builder.load(total)), total)

    with cgutils.for_range(builder, runs, intp=WORD) as run:
        first = builder.mul(run.index, long)
        at, place = read(starts, first), builder.add(b, builder.shl(first, shift))
        with cgutils.for_range(builder, whole, intp=WORD) as loop:
            done = builder.mul(loop.index, step)
            more(builder.add(at, done), builder.add(place, done), v.load)
        done = builder.mul(whole, step)
        more(builder.add(at, done), builder.add(place, done), lambda address: v.load_where(mask, address, 0))
    return [v.add_up(builder.load(total)) for total in sums]


def dots(size: int, tile: Tile) -> Any:
    def typed(typing, m, runs, long, a, rows, starts, b, add, c):  # type: ignore[no-untyped-def]
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            *given, add, c = values
            v = Vectors(builder, size, tile.lanes)
            for i, total in enumerate(emit_dots(v, *given)):
                with builder.if_then(builder.icmp_signed("<", word(i), given[0])):
                    out = v.pointer(c, i * size, v.number)
                    old = builder.select(add, builder.load(out, align=size), ir.Constant(v.number, -0.0))
                    builder.store(builder.fadd(old, total), out, align=size)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7, types.boolean, types.int64), code

    emit = intrinsic(typed)

    def dots_picked_at(m, runs, long, a, rows, starts, b, add, c):
        for i in range(0, m, DOTS):
            emit(m - i, runs, long, a, rows + i * 8, starts, b, add != 0, c + i * size)

    return dots_picked_at


MAKERS = {"gemm_picked": (product, 12), "dots_picked": (dots, 9), "pack_turned": (packer, 7)}
SIGNATURES = {name: (types.int64,) * count for name, (_, count) in MAKERS.items()}


@cache
def load(size: int) -> None:
    """Make the functions behind the words known to compiled code."""
    for name, (make, _) in MAKERS.items():
        publish(name, size, own_name(make(size, tile(size)), size, [Path(__file__), *SOURCES]), SIGNATURES[name])


def gemm_picked(m, n, k, a, a_off, rows, inner, picks, b, b_off, deep, add, c, c_off, ldc):
    """The word in plain Python, so that loops also run without being compiled."""
    found = a[a_off + rows[:m, None] + inner[:k]] @ b[b_off : b_off + deep * n].reshape(deep, n)[picks[:k]]
    out = np.lib.stride_tricks.as_strided(c[c_off:], (m, n), (ldc * c.itemsize, c.itemsize))
    out[...] = out + found if add else found


def dots_picked(m, runs, long, a, rows, starts, b, add, c, c_off):
    """The word in plain Python."""
    places = rows[:m, None, None] + starts[: runs * long : long, None] + np.arange(long)
    found = (a[places] * b[: runs * long].reshape(runs, long)).sum((1, 2))
    c[c_off : c_off + m] = c[c_off : c_off + m] + found if add else found


def pack_turned(to, to_off, k, first, count, b, b_off, ldb, n):
    """The word in plain Python: one panel, as wide as need be."""
    to[to_off : to_off + k * n].reshape(k, n)[first : first + count] = [b[b_off + p : b_off + p + n * ldb : ldb][:n] for p in range(count)]


def compiled(size: int) -> dict[str, Any]:
    """The words for numbers of one size."""
    multiply, dot, pack = (types.ExternalFunction(f"flamepy_{name}{size}", types.void(*SIGNATURES[name])) for name in SIGNATURES)

    def gemm_picked_word(m, n, k, a, a_off, rows, inner, picks, b, b_off, deep, add, c, c_off, ldc):
        multiply(
            np.int64(m), np.int64(n), np.int64(k), np.int64(a.ctypes.data) + a_off * size, np.int64(rows.ctypes.data),
            np.int64(inner.ctypes.data), np.int64(picks.ctypes.data), np.int64(b.ctypes.data) + b_off * size, np.int64(deep),
            np.int64(add), np.int64(c.ctypes.data) + c_off * size, ldc * size,
        )  # fmt: skip

    def dots_picked_word(m, runs, long, a, rows, starts, b, add, c, c_off):
        dot(
            np.int64(m), np.int64(runs), np.int64(long), np.int64(a.ctypes.data), np.int64(rows.ctypes.data),
            np.int64(starts.ctypes.data), np.int64(b.ctypes.data), np.int64(add), np.int64(c.ctypes.data) + c_off * size,
        )  # fmt: skip

    def pack_turned_word(to, to_off, k, first, count, b, b_off, ldb, n):
        pack(
            np.int64(to.ctypes.data) + to_off * size, np.int64(k), np.int64(first), np.int64(count),
            np.int64(b.ctypes.data) + b_off * size, ldb * size, np.int64(n),
        )  # fmt: skip

    words = zip(SIGNATURES, (gemm_picked_word, dots_picked_word, pack_turned_word), strict=True)
    return {name: njit(**INNER)(function) for name, function in words}


WORDS = {np.dtype(name): compiled(size) for name, size in (("float32", 4), ("float64", 8))}
NEEDS = [(own[name], lambda size=dtype.itemsize: load(size)) for dtype, own in WORDS.items() for name in SIGNATURES]
