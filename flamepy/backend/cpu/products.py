"""Matrix products: how matrices of any size are cut for the register tiles of micro.py. The words `gemm` and `turn_matrix`.

    gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, add, c, c_off, ldc)
    c[m, n] = (or +=, with add) alpha * op(a)[m, k] @ op(b)[k, n]     row-major; ta, tb: a is (k, m), b is (n, k)
    turn_matrix(rows, cols, a, a_off, lda, c, c_off, ldc)
    c[cols, rows] = a[rows, cols] transposed

The steps from the register tile to whole matrices, in the order of this file (`flamepy bench products` measures each):

1. *Packing*. A tile reads 4 vectors of b for each p; in a row-major b the next four lie a row further, mostly in another page. So a panel
   of b, four vectors wide, is copied once, such that the loop reads it from front to end, and serves all rows.
2. *Cache blocks*. The panels of a block are 1 KB wide together and as deep as the sum is cut, at most 384: 384 KB stay in the
   second-level cache while strips of 6 rows of a pass through the first.
3. *Strips of a* are read where they lie, by a stride along the rows and one along k. Copied are the last few rows, and a transposed a that
   meets several panels: its rows are a page or more apart, and a copy reads whole cache lines.
4. *Few rows*. Packing pays when many rows use what is packed: up to FEW, b is read where it lies; up to SINGLE, a transposed b is.

A number of the result is the same chain of sums whatever the sizes m and n, the tile it falls into or who computes it: over k in order,
in blocks whose depth follows from k. So results have the same bits for any number of threads, and a row's do not depend on the others.

These functions are compiled once, as functions of C that kernels find by symbol name: a kernel that multiplies compiles no faster or
slower for it, and stays in the disk cache. FLAME counterpart: cuBLAS. Read next: matmul.py.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite.binding
import numpy as np
from numba import config, njit, types
from numba.core.ccallback import CFunc

from . import halves, inner, micro, rooms, switch
from .disk_cache import NamedCache, cache_of
from .inner import ALWAYS, INNER, KernelCompiler
from .processor import Tile, tile
from .rooms import address_of, give_space, load_spaces, take_space
from .switch import ROWS, SIDE, call_instead, instead

N, T = False, True  # for ta and tb: as it is, transposed
DEPTH = 384  # of a block: 256 to 512 are as fast within 2 percent
WIDTH = 1024  # bytes of a row of a block: 256 numbers of float32, 128 of float64
LINE = 16  # numbers of a transposed A that are packed side by side: strips of 6, 6 and 4 rows
PANEL = WIDTH // 4  # the same in numbers; kernels see that of their type
FEW = 48  # with so few rows of a, b is read where it lies: packing it would take longer than what it saves
NEAR = 1024  # bytes: a B whose rows lie no farther apart is as good as packed
FAR = 4096  # bytes: a transposed A whose rows lie so far apart, each in a page of its own, is packed
SINGLE = 3  # with so few rows of a, a transposed b is read row by row: packing it would take several times as long as that


def depth(k):
    """In how long blocks to sum over k: equal ones."""
    count = max(1, (k + DEPTH - 1) // DEPTH)
    return max(1, (k + count - 1) // count)


class Family:
    """The functions for numbers of one size. Addresses are whole numbers, strides bytes."""

    def __init__(self, itemsize: int, tile: Tile):
        self.size, self.tile = itemsize, tile
        self.turn, self.move = micro.turning(itemsize, tile.lanes), micro.moving(itemsize, tile.lanes)
        self.copy = micro.copying(itemsize)
        self.pack, self.tiles = self.packing(), self.column()

    def packing(self) -> Any:
        """pack(to, b, ldb, turned, k, cols): a panel: op(b)'s `cols` columns, k rows of whole vectors."""
        size, lanes, turn, move, copy = self.size, self.tile.lanes, self.turn, self.move, self.copy

        def pack(to, b, ldb, turned, k, cols):
            wide = (cols + lanes - 1) // lanes * lanes * size
            if turned:
                for j in range(0, cols, lanes):
                    for p in range(0, k - lanes + 1, lanes):
                        turn(to + p * wide + j * size, wide, b + j * ldb + p * size, ldb, min(lanes, cols - j))
                for p in range(k // lanes * lanes, k):
                    for j in range(cols):
                        copy(to + p * wide + j * size, b + j * ldb + p * size)
            else:
                for p in range(k):
                    for j in range(0, cols, lanes):
                        move(to + p * wide + j * size, b + p * ldb + j * size, cols - j, lanes)

        return njit(**micro.ALONE)(pack)

    def column(self) -> Any:
        """column(c, ldc, a, row, step, b, deep, m, k, cols, alpha, add): m rows of one panel, by tiles of 6 rows, of 4 and of 1."""
        size, lanes, top = self.size, self.tile.lanes, self.tile.rows
        tall, low, one = (self.by_width(rows) for rows in (top, 4, 1))

        def column(c, ldc, a, row, step, b, deep, m, k, cols, alpha, add):
            vectors, apart = (cols + lanes - 1) // lanes, step == size
            many = m // top - 1 if m % top == 2 and m > top else m // top  # two tiles of four rows instead of one of six and two of one
            fours = (m - many * top) // 4
            done = many * top
            if many > 0:
                tall(vectors, apart, c, ldc, a, row, step, b, deep, k, many, cols, alpha, add)
            if fours > 0:
                low(vectors, apart, c + done * ldc, ldc, a + done * row, row, step, b, deep, k, fours, cols, alpha, add)
            done += 4 * fours
            if done < m:
                one(vectors, apart, c + done * ldc, ldc, a + done * row, row, step, b, deep, k, m - done, cols, alpha, add)

        return njit(**micro.ALONE)(column)

    def by_width(self, rows: int) -> Any:
        """Tiles of so many rows as one function, told how many vectors wide and whether rows of A lie apart."""
        widths = [self.tile._replace(rows=rows, across=n + 1) for n in range(self.tile.across)]
        one, two, three, four = (*[self.by_place(width) for width in widths], None, None)[:4]
        most = self.tile.across

        def tiles(vectors, apart, c, ldc, a, row, step, b, deep, k, count, cols, alpha, add):
            if vectors == 1:
                one(apart, c, ldc, a, row, step, b, deep, k, count, cols, alpha, add)
            elif most < 3 or vectors == 2:
                two(apart, c, ldc, a, row, step, b, deep, k, count, cols, alpha, add)
            elif most < 4 or vectors == 3:
                three(apart, c, ldc, a, row, step, b, deep, k, count, cols, alpha, add)
            else:
                four(apart, c, ldc, a, row, step, b, deep, k, count, cols, alpha, add)

        return njit(**INNER)(tiles)

    def by_place(self, tile: Tile) -> Any:
        apart_tile, side_tile = (micro.micro_kernel(self.size, tile, apart) for apart in (True, False))

        def tiles(apart, c, ldc, a, row, step, b, deep, k, count, cols, alpha, add):
            if apart:
                apart_tile(c, ldc, a, row, step, b, deep, k, count, cols, alpha, add)
            else:
                side_tile(c, ldc, a, row, step, b, deep, k, count, cols, alpha, add)

        return njit(**INNER)(tiles)

    def packing_block(self) -> Any:
        """pack_block(to, b, down, along, k, wide, direct): the panels of a block of B, one after the other; those that are read where they
        lie keep their place empty."""
        size, lanes, pack = self.size, self.tile.lanes, self.pack
        panel, line = lanes * self.tile.across, lanes * size

        def pack_block(to, b, down, along, k, wide, direct):
            for q in range(0, wide, panel):
                cols = min(panel, wide - q)
                if not direct or cols % lanes != 0:
                    pack(to, b + q * along, max(down, along), along != size, k, cols)
                to += k * ((cols + lanes - 1) // lanes * line)

        return njit(**INNER)(pack_block)

    def multiplying(self) -> Any:
        """rows(c, ldc, a, row, step, packed, b, down, direct, m, k, wide, alpha, add): m rows, all panels of a block."""
        size, lanes, column = self.size, self.tile.lanes, self.tiles
        panel, line = lanes * self.tile.across, lanes * size

        def rows(c, ldc, a, row, step, packed, b, down, direct, m, k, wide, alpha, add):
            for q in range(0, wide, panel):
                cols = min(panel, wide - q)
                deep = (cols + lanes - 1) // lanes * line
                if direct and cols % lanes == 0:
                    column(c + q * size, ldc, a, row, step, b + q * size, down, m, k, cols, alpha, add)
                else:
                    column(c + q * size, ldc, a, row, step, packed, deep, m, k, cols, alpha, add)
                packed += k * deep

        return njit(**INNER)(rows)

    def cutting(self) -> Any:
        """blocks(m, n, k, alpha, a, row, step, b, down, along, add, c, ldc): block after block of B, for each all rows of A. `row` and
        `step`: along the rows and the k of A; `down` and `along`: along the k and the columns of B."""
        size, lanes = self.size, self.tile.lanes
        width, panel, depth_of = WIDTH // size, lanes * self.tile.across, njit(**INNER)(depth)
        pack, pack_block, rows = self.pack, self.packing_block(), self.multiplying()

        def blocks(m, n, k, alpha, a, row, step, b, down, along, add, c, ldc):
            room, deep = take_space(), depth_of(k)
            space = address_of(room)
            spare = space + DEPTH * WIDTH
            direct = along == size and (m <= FEW or down <= NEAR)
            high = LINE if row == size and n > panel and step >= FAR else m
            for j in range(0, n, width):
                for p in range(0, max(k, 1), deep):
                    wide, inner, place, more = min(width, n - j), min(deep, k - p), b + j * along + p * down, add or p > 0
                    pack_block(space, place, down, along, inner, wide, direct)
                    for i in range(0, m, max(high, 1)):
                        some, source, own = min(high, m - i), a + i * row + p * step, step
                        if high < m:
                            pack(spare, source, step, False, inner, some)
                            source, own = spare, (some + lanes - 1) // lanes * lanes * size
                        to = c + i * ldc + j * size
                        rows(to, ldc, source, row, own, space, place, down, direct, some, inner, wide, alpha, more)
            give_space(room)

        return njit(**micro.ALONE)(blocks)

    def product(self) -> Any:
        """The word `gemm`: gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, add, c, ldc)."""
        size, number, blocks, dot = (
            self.size,
            np.float32 if self.size == 4 else np.float64,
            self.cutting(),
            micro.dot_kernel(self.size, self.tile.lanes),
        )

        def gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, add, c, ldc):
            other = instead() if size == 4 and m >= ROWS and n >= SIDE and k >= SIDE else 0  # see lower.py
            if other != 0:
                call_instead(other, (ta, tb, m, n, k, alpha, a, lda, b, ldb, add, c, ldc))
            elif tb and not ta and m <= SINGLE:
                for j in range(0, n, 4):
                    for i in range(m):
                        dot(c + i * ldc + j * size, a + i * lda, b + j * ldb, ldb, k, min(4, n - j), number(alpha), add != 0)
            else:
                row, step = (size, lda) if ta else (lda, size)
                down, along = (size, ldb) if tb else (ldb, size)
                blocks(m, n, k, number(alpha), a, row, step, b, down, along, add != 0, c, ldc)

        return gemm

    def transposing(self) -> Any:
        """The word `turn_matrix`: turn_matrix(rows, cols, a, lda, c, ldc)."""
        size, lanes, turn, copy = self.size, self.tile.lanes, self.turn, self.copy

        def turn_matrix(rows, cols, a, lda, c, ldc):
            high, wide = rows // lanes * lanes, cols // lanes * lanes
            for i in range(0, high, lanes):
                for j in range(0, wide, lanes):
                    turn(c + j * ldc + i * size, ldc, a + i * lda + j * size, lda, lanes)
            for i in range(rows):
                for j in range(wide if i < high else 0, cols):
                    copy(c + j * ldc + i * size, a + i * lda + j * size)

        return turn_matrix


WHOLE = types.int64
SIGNATURES = {"gemm": (*(WHOLE,) * 5, types.float64, *(WHOLE,) * 7), "turn_matrix": (WHOLE,) * 6}
SIGNATURES["halves"] = (*(WHOLE,) * 5, types.float64, *(WHOLE,) * 10)  # half_products.py
SOURCES = [Path(__file__), *[Path(str(file.__file__)) for file in (switch, micro, inner, rooms)]]


@cache
def load(itemsize: int) -> None:
    """Make the functions for numbers of this size known to compiled code: from the disk cache, or compiled now."""
    load_spaces()
    family = Family(itemsize, tile(itemsize))
    for name, function in (("gemm", family.product()), ("turn_matrix", family.transposing())):
        compiler: Any = KernelCompiler  # what is linked into it is its own: the other size has functions of the same names
        made = CFunc(own_name(function, itemsize), (SIGNATURES[name], types.void), {}, dict(ALWAYS), pipeline_class=compiler)
        made._cache = cache_of(made._pyfunc, NamedCache)  # type: ignore[attr-defined]
        made.compile()
        kept.append(made)
        llvmlite.binding.add_symbol(f"flamepy_{name}{itemsize}", made.address)
    llvmlite.binding.add_symbol(f"flamepy_halves{itemsize}", kept[-2].address)  # never called: who gives 16-bit numbers loads half_products
    if itemsize == 4:
        switch.listen()


kept: list[Any] = []  # so that their code stays


def own_name(function: Any, itemsize: int) -> Any:
    """The function under a name that says what it was made of, for the disk cache."""
    text = repr((itemsize, tile(itemsize), config.OPT)).encode() + b"".join([file.read_bytes() for file in SOURCES])  # type: ignore[attr-defined]
    name = f"{function.__name__}{itemsize}_{hashlib.sha1(text).hexdigest()[:10]}"
    return copied(function, name)


def copied(function: Any, name: str) -> Any:
    copy = FunctionType(function.__code__, function.__globals__, name, None, function.__closure__)
    copy.__qualname__ = name
    return copy


# ----- The words -----
def gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, add, c, c_off, ldc):
    """The word in plain Python, so that loops also run without being compiled."""
    x = np.lib.stride_tricks.as_strided(a[a_off:], (k, m) if ta else (m, k), (lda * a.itemsize, a.itemsize))
    y = np.lib.stride_tricks.as_strided(b[b_off:], (n, k) if tb else (k, n), (ldb * b.itemsize, b.itemsize))
    z = np.lib.stride_tricks.as_strided(c[c_off:], (m, n), (ldc * c.itemsize, c.itemsize))
    product = alpha * ((x.T if ta else x) @ (y.T if tb else y))
    z[...] = product + z if add else product


def turn_matrix(rows, cols, a, a_off, lda, c, c_off, ldc):
    """The word in plain Python."""
    x = np.lib.stride_tricks.as_strided(a[a_off:], (rows, cols), (lda * a.itemsize, a.itemsize))
    np.lib.stride_tricks.as_strided(c[c_off:], (cols, rows), (ldc * c.itemsize, c.itemsize))[...] = x.T


def compiled_gemm(itemsize: int) -> Any:
    """The word for one dtype."""
    call = types.ExternalFunction(f"flamepy_gemm{itemsize}", types.void(*SIGNATURES["gemm"]))
    call_halves = types.ExternalFunction(f"flamepy_halves{itemsize}", types.void(*SIGNATURES["halves"]))

    def gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, add, c, c_off, ldc):
        if a.itemsize != itemsize or b.itemsize != itemsize or c.itemsize != itemsize:
            call_halves(
                np.int64(ta), np.int64(tb), np.int64(m), np.int64(n), np.int64(k), np.float64(alpha),
                np.int64(a.ctypes.data) + a_off * a.itemsize, lda * a.itemsize, np.int64(a.itemsize),
                np.int64(b.ctypes.data) + b_off * b.itemsize, ldb * b.itemsize, np.int64(b.itemsize),
                np.int64(add), np.int64(c.ctypes.data) + c_off * c.itemsize, ldc * c.itemsize, np.int64(c.itemsize),
            )  # fmt: skip
            return
        call(
            np.int64(ta), np.int64(tb), np.int64(m), np.int64(n), np.int64(k), np.float64(alpha),
            np.int64(a.ctypes.data) + a_off * itemsize, lda * itemsize, np.int64(b.ctypes.data) + b_off * itemsize, ldb * itemsize,
            np.int64(add), np.int64(c.ctypes.data) + c_off * itemsize, ldc * itemsize,
        )  # fmt: skip

    return njit(**INNER)(gemm)


def compiled_turn(itemsize: int) -> Any:
    """The word for one dtype."""
    call = types.ExternalFunction(f"flamepy_turn_matrix{itemsize}", types.void(*SIGNATURES["turn_matrix"]))
    turn_halves = njit(**{**INNER, "forceinline": False})(halves.turn_matrix)

    def turn_matrix(rows, cols, a, a_off, lda, c, c_off, ldc):
        if a.itemsize != itemsize:
            turn_halves(rows, cols, a, a_off, lda, c, c_off, ldc)
            return
        call(
            rows, cols, np.int64(a.ctypes.data) + a_off * itemsize, lda * itemsize,
            np.int64(c.ctypes.data) + c_off * itemsize, ldc * itemsize,
        )  # fmt: skip

    return njit(**INNER)(turn_matrix)


WORDS: dict[np.dtype, dict[str, Any]] = {
    np.dtype(name): {"gemm": compiled_gemm(size), "turn_matrix": compiled_turn(size), "PANEL": WIDTH // size}
    for name, size in (("float32", 4), ("float64", 8))
}


class Vocabulary(dict[str, Any]):
    """Words for one dtype. Asked for one that multiplies or turns matrices, it loads the functions behind it."""

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        for dtype, own in WORDS.items():
            if found is own["gemm"] or found is own["turn_matrix"]:
                load(dtype.itemsize)
        return found
