"""Matrix products and linear layers: which kernels make them, on how many blocks, in how many parts.

A stack of matrices is one launch for each run of them whose places are evenly spaced. A product of few tiles whose k is long is cut into
parts. Operands of two types meet in float32. The gradient of a bias is summed in two stages.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ....dtypes import HALF, computed
from ..loops.maps import map_launcher, same
from ..runtime.family import Go, blocks, launcher
from .blas import Problem
from .products import add_parts, column_parts, plain_large, plain_small, sizes_of, tensor_large, tensor_small
from .tiles import sized

LARGE, SMALL = 128, 64  # sides of tiles
BUSY = 132  # tiles that keep a GPU busy: one for each multiprocessor of an H100
SHORT = 256  # numbers of k that a part has, at least
MOST = 32  # parts
ROWS, PARTS = 256, 1024  # rows that a block of column_parts sums, at least, and sums of a column, at most
STACK = 32768  # matrices of one launch


@launcher(name="matmul")
def matmul_launcher(go, outs, ins, a_at, b_at, m, n, k, ta, tb):
    operands = *same_type(go, *ins), None, None
    for count, a_start, a_step, b_start, b_step, first in runs(a_at, b_at):
        stack = count, (a_start, a_step, b_start, b_step, first * m * n)
        product(go, (*outs, None), operands, (m, n, k), (ta, tb), stack=stack)


@launcher(name="linear")
def linear_launcher(go, outs, ins, rows, n, k, flip, keeps_result, reads):
    x, w, bias, residual = ins
    operands = converted(go, x, reads), converted(go, w, reads), bias, residual
    product(go, outs, operands, (rows, n, k), (False, not flip), go.formula or same, keeps_result)


@launcher(name="linear_dx")
def dx_launcher(go, outs, ins, rows, n_out, n_in, reads):
    (dx, dz), (g, kept, w) = outs, ins
    if go.formula is None:
        map_launcher(Go(go.device, same, go.dtype, False), (dz,), (g,))
    else:
        map_launcher(go, (dz,), (g, kept))
    product(go, (dx, None), (converted(go, dz, reads), converted(go, w, reads), None, None), (rows, n_in, n_out), (False, False))


@launcher(name="linear_dw")
def dw_launcher(go, outs, ins, rows, n_out, n_in, add_w, add_b):
    (dw, db), (g, x), sizes = outs, ins, (n_out, n_in, rows)
    operands = *same_type(go, g, x), None, dw if add_w else None
    if db is not None and not add_b and library(go, (dw, db), operands, sizes, (True, False), "sums"):
        return
    product(go, (dw, None), operands, sizes, (True, False))
    if db is not None:
        column_sums(go, db, g, rows, n_out, add_b)


# ---- how they are done -------------------------------------------------------------------------------------------------------------
ONE = 1, (0, 0, 0, 0, 0)  # matrices; where the first a begins, how far the next is, the same of b, where the first result begins


def product(
    go: Any, outs: Any, ins: Any, sizes: Any, turned: Any, formula: Any = same, keeps: bool = False, stack: tuple[int, tuple] = ONE
) -> None:
    """y and kept from a and b, of one type, bias and residual; turned: which of a and b are stored the other way round. By cuBLASLt if it
    is there, with a second pass for what it cannot end with."""
    (y, kept), (a, b, bias, residual) = outs, ins
    if formula is same and kept is None and (residual is None or residual.dtype == y.dtype):
        if library(go, outs, ins, sizes, turned, "bias" if bias is not None else "", stack):
            return
    elif is_gelu(formula) and y.dtype in HALF and residual is None and not keeps and (kept is None or kept.dtype == y.dtype):
        end = "gelu" + ("" if kept is None else "_aux") + ("" if bias is None else "_bias")
        if library(go, outs, ins, sizes, turned, end, stack):
            return
    z = y if kept is None or keeps else kept
    if (formula is not same or bias is not None or residual is not None) and residual is not z:
        for first in (bias, None) if bias is not None else (None,):
            if library(go, (z, None), (a, b, first, None), sizes, turned, "" if first is None else "bias", stack):
                rest = None if first is not None else bias
                ended(go, (y, kept if keeps or rest is not None else None), (z, rest, residual), sizes, 1, stack, formula, keeps)
                return
    own(go, outs, ins, sizes, turned, formula, keeps, stack)


def library(go: Any, outs: Any, ins: Any, sizes: Any, turned: Any, end: str, stack: tuple[int, tuple] = ONE) -> bool:
    """The product by cuBLASLt, with such an end; False: it cannot do it, or isn't there."""
    blas, (a, _, bias, c), (count, starts) = go.device.driver.blas, ins, stack
    if blas is None or not all(sizes):
        return False
    line = outs[1] if end == "sums" else bias
    dtype = None if line is None else line.dtype
    steps = (starts[1], starts[3]) if count > 1 else (0, 0)
    (m, n, k), (ta, tb) = sizes, turned
    found = blas.product(Problem(m, n, k, ta, tb, a.dtype, outs[0].dtype, end, dtype, c is not None, count, *steps))
    if found is not None:
        go.device.stream.run(found, outs, ins, (starts[0], starts[2], starts[4]))
    return found is not None


def own(go: Any, outs: Any, ins: Any, sizes: Any, turned: Any, formula: Any, keeps: bool, stack: tuple[int, tuple]) -> None:
    """The product by the kernels of products.py."""
    (y, kept), (a, b, bias, residual), (m, n, k), (count, starts) = outs, ins, sizes, stack
    dtype = computed(a.dtype)
    side, parts = cut(count, m, n, k, a.dtype.itemsize < 8)
    function = kernel_of(a.dtype in HALF, side, go.device.driver)
    deep = True if turned[0] else None, None if turned[1] else True  # rows are steps of k
    grid = blocks(m, side) * blocks(n, side), count, parts
    if parts == 1:
        consts = (m, n, k, max(1, k)), starts, *deep, True if keeps else None
        go(function, (y, kept), (a, b, bias, residual), consts, grid=grid, formula=formula, dtype=dtype)
    else:
        sums, sizes = go.empty(parts * count * m * n, dtype), (m, n, k, part_size(k, parts))
        consts = sizes, (*starts[:4], 0), *deep, None
        go(function, (sums, None), (a, b, None, None), consts, grid=grid, formula=same, dtype=dtype)
        ended(go, (y, kept), (sums, bias, residual), (m, n, k), parts, stack, formula, keeps)


def ended(go: Any, outs: Any, ins: Any, sizes: Any, parts: int, stack: tuple[int, tuple], formula: Any, keeps: bool) -> None:
    """What ends a product, from its parts, bias and residual."""
    (m, n, _), (count, starts) = sizes, stack
    consts = count * m, n, parts, starts[4], True if keeps else None
    go(add_parts, outs, ins, consts, grid=quads(count * m, n), formula=formula, dtype=computed(ins[0].dtype))


def is_gelu(formula: Any) -> bool:
    """Whether it is the GELU that cuBLASLt has, by tanh."""
    return formula.__name__ == "gelu_tanh_y" and str(formula.__module__).startswith("flamepy.")


def part_size(k: int, parts: int) -> int:
    """Numbers of k in each of so many parts."""
    return max(1, blocks(blocks(k, parts), 64) * 64)


def cut(count: int, m: int, n: int, k: int, narrow: bool) -> tuple[int, int]:
    """(side of tiles, parts of k): large tiles where there are enough of them, parts where there are few small ones."""
    if narrow and count * blocks(m, LARGE) * blocks(n, LARGE) >= BUSY:
        return LARGE, 1
    tiles = max(1, count * blocks(m, SMALL) * blocks(n, SMALL))
    parts = max(1, min(k // SHORT, 2 * BUSY // tiles, MOST))
    return SMALL, max(1, blocks(k, part_size(k, parts)))


def column_sums(go: Any, out: Any, x: Any, rows: int, n: int, add: bool) -> None:
    """out (n) = the sums of x's columns, on top of what is there with `add`."""
    each = max(ROWS, blocks(rows, PARTS))
    parts, dtype = max(1, blocks(rows, each)), computed(x.dtype)
    sums = go.empty(parts * n, dtype)
    go(column_parts, (sums,), (x,), (rows, n, each), grid=(blocks(n, 128), parts), formula=None, dtype=dtype)
    consts = 1, n, parts, 0, None
    go(add_parts, (out, None), (sums, None, out if add else None), consts, grid=quads(1, n), formula=same, dtype=dtype)


def same_type(go: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands; where their types differ, as numbers of the wider type."""
    if a.dtype == b.dtype:
        return a, b
    dtype = np.result_type(computed(a.dtype), computed(b.dtype))
    return converted(go, a, dtype), converted(go, b, dtype)


def converted(go: Any, x: Any, dtype: np.dtype) -> Any:
    if x.dtype == dtype:
        return x
    y = go.empty(x.size, dtype)
    map_launcher(Go(go.device, same, computed(x.dtype), False), (y,), (x,))
    return y


def quads(rows: int, n: int) -> int:
    """Blocks whose threads each take four neighbours of a row."""
    return blocks(rows * blocks(n, 4))


@lru_cache(1024)
def runs(a_at: tuple[int, ...], b_at: tuple[int, ...]) -> list[tuple[int, ...]]:
    """(how many, where the first a is, how far the next one is, the same of b, which item is the first) for matrices evenly apart."""
    found: list[tuple[int, ...]] = []
    first = 0
    while first < len(a_at):
        last = first + 1
        steps = (a_at[last] - a_at[first], b_at[last] - b_at[first]) if last < len(a_at) else (0, 0)
        while last < min(len(a_at), first + STACK) and (a_at[last] - a_at[last - 1], b_at[last] - b_at[last - 1]) == steps:
            last += 1
        found.append((last - first, a_at[first], steps[0], b_at[first], steps[1], first))
        first = last
    return found


def kernel_of(narrow: bool, side: int, driver: Any) -> Any:
    """What makes tiles of this side, of 16-bit factors or of others."""
    if not narrow:
        return plain_large if side == LARGE else plain_small
    return sized(tensor_large if side == LARGE else tensor_small, **sizes_of(side, driver.cc, driver.wgmma))
