"""Matrix products: how matrices of any size are cut for the register tiles of micro.py. The words `gemm` and `turn_matrix`.

    gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, add, c, c_off, ldc)
    c[m, n] = (or +=, with add) alpha * op(a)[m, k] @ op(b)[k, n]     row-major; ta, tb: a is (k, m), b is (n, k)
    turn_matrix(rows, cols, a, a_off, lda, c, c_off, ldc)
    c[cols, rows] = a[rows, cols] transposed

The steps from the register tile to whole matrices, in the order of this file (`flamepy bench products` measures each):

1. *Packing*. A panel of b, four vectors wide, is copied once, such that tiles read it from front to end, and serves all rows (packing.py).
2. *Cache blocks*. The panels of a block are 1 KB wide together and as deep as the sum is cut, at most 384: 384 KB stay in the
   second-level cache while strips of 6 rows of a pass through the first. So do 192 rows of a, which pass all panels of a block.
3. *A transposed a* whose rows are a page or more apart is copied too, 64 columns at a time, and four blocks of b use each copy.
4. *Few rows*. Packing pays when many rows use what is packed: up to FEW, b is read where it lies; up to SINGLE, a transposed b is.

A number of the result is the same chain of sums whatever the sizes m and n, the tile it falls into or who computes it: over k in order,
in blocks whose depth follows from k. So results have the same bits for any number of threads, and a row's do not depend on the others.

A word has three forms: `gemm`, in plain Python; `gemm_at`, which computes, compiled once as a function of C that kernels find by symbol
name (a kernel that multiplies compiles no slower for it, and stays in the disk cache); `gemm_word`, what a kernel has in its place: it
calls the second with the addresses of its arrays.
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

from ....disk_cache import NamedCache, cache_of
from ..runtime import halves, inner, rooms
from ..runtime.inner import ALWAYS, INNER, KernelCompiler
from ..runtime.processor import Tile, tile
from ..runtime.rooms import address_of, give_space, load_spaces, take_space
from . import micro, packing, switch
from .micro import FAR
from .packing import LINE, Packing
from .switch import ROWS, SIDE, call_instead, instead

N, T = False, True  # for ta and tb: as it is, transposed
DEPTH = 384  # of a block: 256 to 512 are as fast within 2 percent
WIDTH = 1024  # bytes of a row of a block: 256 numbers of float32, 128 of float64
HIGH = 192  # rows of A at once, at most: 288 KB of the second-level cache beside a block of B
GROUP = 4  # blocks of B that serve one copy of a transposed A's lines
LINES = 256  # bytes of a transposed A's rows that are copied at once: lines of LINE numbers, four in float32
PANEL = WIDTH // 4  # the same in numbers; kernels see that of their type
FEW = 48  # with so few rows of a, b is read where it lies: packing it would take longer than what it saves
NEAR = 1024  # bytes: a B whose rows lie no farther apart is as good as packed
SINGLE = 3  # with so few rows of a, a transposed b is read row by row: packing it would take several times as long as that


def depth(k):
    """In how long blocks to sum over k: equal ones."""
    count = max(1, (k + DEPTH - 1) // DEPTH)
    return max(1, (k + count - 1) // count)


def rows_at_once(m):
    """How many rows of A pass all panels of a block before the next do: about equal numbers, whole tiles."""
    count = max(1, (m + HIGH - 1) // HIGH)
    return max(1, ((m + count - 1) // count + 5) // 6 * 6)


class Family:
    """The functions for numbers of one size. Addresses are whole numbers, strides bytes."""

    def __init__(self, itemsize: int, tile: Tile):
        self.size, self.tile = itemsize, tile
        self.packing, self.tiles = Packing(itemsize, tile), self.column()

    def column(self) -> Any:
        """column(c, ldc, a, row, step, b, deep, m, k, cols, alpha, add): m rows of one panel, by tiles of 6 rows, of 4 and of 1."""
        size, lanes, top = self.size, self.tile.lanes, self.tile.rows
        widths = range(1, self.tile.across + 1)
        tall, low, one = (micro.by_width([self.by_place(self.tile._replace(rows=rows, across=n)) for n in widths]) for rows in (top, 4, 1))

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

    def by_place(self, tile: Tile) -> Any:
        """Tiles of one width as one function, told whether rows of A lie apart."""
        apart_tile, side_tile = (micro.micro_kernel(self.size, tile, apart) for apart in (True, False))

        def tiles(apart, *others):
            if apart:
                apart_tile(*others)
            else:
                side_tile(*others)

        return njit(**INNER)(tiles)

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
        size, width, panel = self.size, WIDTH // self.size, self.tile.lanes * self.tile.across
        depth_of, height = njit(**INNER)(depth), njit(**INNER)(rows_at_once)
        pack_block, pack_lines, rows = self.packing.block, self.packing.lines, self.multiplying()

        def blocks(m, n, k, alpha, a, row, step, b, down, along, add, c, ldc):
            room, deep = take_space(), depth_of(k)
            space = address_of(room)
            spare = space + GROUP * DEPTH * WIDTH
            direct = along == size and (m <= FEW or down <= NEAR)
            lines = row == size and n > panel and step >= FAR and m > LINE
            high, group = (LINES // size, GROUP * width) if lines else (height(m), width)
            for first in range(0, n, group):
                for p in range(0, max(k, 1), deep):
                    inner, more, end = min(deep, k - p), add or p > 0, min(n, first + group)
                    pack_block(space, b + first * along + p * down, down, along, inner, end - first, direct)
                    for i in range(0, m, high):
                        some, low, source, own = min(high, m - i), high, a + i * row + p * step, step
                        if lines:
                            pack_lines(spare, source, step, inner, some)
                            low, source, own = LINE, spare, LINE * size
                        for j in range(first, end, width):
                            packed, place = space + (j - first) * inner * size, b + j * along + p * down
                            for r in range(0, some, low):
                                to, there, at = c + (i + r) * ldc + j * size, min(low, some - r), source + r * inner * size
                                rows(to, ldc, at, row, own, packed, place, down, direct, there, inner, min(width, end - j), alpha, more)
            give_space(room)

        return njit(**micro.ALONE)(blocks)

    def product(self) -> Any:
        """gemm_at(ta, tb, m, n, k, alpha, a, lda, b, ldb, add, c, ldc): the word `gemm` as a function of C, of addresses and bytes."""
        size, number, blocks, dot = (
            self.size,
            np.float32 if self.size == 4 else np.float64,
            self.cutting(),
            micro.dot_kernel(self.size, self.tile.lanes),
        )

        def gemm_at(ta, tb, m, n, k, alpha, a, lda, b, ldb, add, c, ldc):
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

        return gemm_at

    def transposing(self) -> Any:
        """turn_matrix_at(rows, cols, a, lda, c, ldc): the word `turn_matrix` as a function of C."""
        size, lanes, turn, copy = self.size, self.tile.lanes, self.packing.turn, self.packing.copy

        def turn_matrix_at(rows, cols, a, lda, c, ldc):
            high, wide = rows // lanes * lanes, cols // lanes * lanes
            for i in range(0, high, lanes):
                for j in range(0, wide, lanes):
                    turn(c + j * ldc + i * size, ldc, a + i * lda + j * size, lda, lanes)
            for i in range(rows):
                for j in range(wide if i < high else 0, cols):
                    copy(c + j * ldc + i * size, a + i * lda + j * size)

        return turn_matrix_at


WHOLE = types.int64
SIGNATURES = {"gemm": (*(WHOLE,) * 5, types.float64, *(WHOLE,) * 7), "turn_matrix": (WHOLE,) * 6}
SIGNATURES["halves"] = (*(WHOLE,) * 5, types.float64, *(WHOLE,) * 10)  # half_products.py
SOURCES = [Path(__file__), *[Path(str(file.__file__)) for file in (switch, micro, packing, inner, rooms)]]


@cache
def load(itemsize: int) -> None:
    """Make the functions for numbers of this size known to compiled code: from the disk cache, or compiled now."""
    load_spaces()
    family = Family(itemsize, tile(itemsize))
    for name, function in (("gemm", family.product()), ("turn_matrix", family.transposing())):
        publish(name, itemsize, own_name(function, itemsize, SOURCES), SIGNATURES[name])
    llvmlite.binding.add_symbol(f"flamepy_halves{itemsize}", kept[-2].address)  # never called: who gives 16-bit numbers loads half_products
    if itemsize == 4:
        switch.listen()


def publish(name: str, itemsize: int, function: Any, signature: Any) -> None:
    """Compile a function of C, or take it from the disk cache, and make it known to compiled code as flamepy_<name><itemsize>."""
    compiler: Any = KernelCompiler  # what is linked into it is its own: the other size has functions of the same names
    made = CFunc(function, (signature, types.void), {}, dict(ALWAYS), pipeline_class=compiler)
    made._cache = cache_of(made._pyfunc, NamedCache)  # type: ignore[attr-defined]
    made.compile()
    kept.append(made)
    llvmlite.binding.add_symbol(f"flamepy_{name}{itemsize}", made.address)


kept: list[Any] = []  # so that their code stays


def own_name(function: Any, itemsize: int, sources: list[Path]) -> Any:
    """The function under a name that says what it was made of, for the disk cache."""
    text = repr((itemsize, tile(itemsize), config.OPT)).encode() + b"".join([file.read_bytes() for file in sources])  # type: ignore[attr-defined]
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

    def gemm_word(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, add, c, c_off, ldc):
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

    return njit(**INNER)(gemm_word)


def compiled_turn(itemsize: int) -> Any:
    """The word for one dtype."""
    call = types.ExternalFunction(f"flamepy_turn_matrix{itemsize}", types.void(*SIGNATURES["turn_matrix"]))
    turn_halves = njit(**{**INNER, "forceinline": False})(halves.turn_halves)

    def turn_matrix_word(rows, cols, a, a_off, lda, c, c_off, ldc):
        if a.itemsize != itemsize or c.itemsize != itemsize:
            turn_halves(rows, cols, a, a_off, lda, c, c_off, ldc)
            return
        call(
            rows, cols, np.int64(a.ctypes.data) + a_off * itemsize, lda * itemsize,
            np.int64(c.ctypes.data) + c_off * itemsize, ldc * itemsize,
        )  # fmt: skip

    return njit(**INNER)(turn_matrix_word)


WORDS: dict[np.dtype, dict[str, Any]] = {
    np.dtype(name): {"gemm": compiled_gemm(size), "turn_matrix": compiled_turn(size), "PANEL": WIDTH // size}
    for name, size in (("float32", 4), ("float64", 8))
}


NEEDS = [(word, lambda size=dtype.itemsize: load(size)) for dtype, own in WORDS.items() for word in (own["gemm"], own["turn_matrix"])]


class Vocabulary(dict[str, Any]):
    """Words for one dtype. Asked for one behind which are functions of C, it loads them: `needs` has pairs of such words and loaders."""

    def __init__(self, found: dict[str, Any], needs: list[tuple[Any, Any]]):
        super().__init__(found)
        self.needs = needs

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        for word, loader in self.needs:
            if found is word:
                loader()
        return found
