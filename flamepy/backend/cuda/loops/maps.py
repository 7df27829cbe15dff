"""Maps: a formula applied to every element, inputs of other shapes too, copies with conversion, filling.

Outs first, flat arrays, then constants; an input that is a number stands for the same number everywhere. One kernel serves any number of
inputs of any types. A block takes two runs of each thread (runs.py), 16 bytes of the widest type each; what is left over, and with it
all of a small result, goes to blocks whose threads take one element each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ....core.words import select
from ....dtypes import FLOATS, INTEGERS, computed, float16, float64, int32
from ...base import Buffer
from ...formula.dims import merged_dims
from ..runtime.compat import libdevice, types
from ..runtime.family import THREADS, F, blocks, kernel, launcher
from .runs import aligned_run, aligned_spread, apply_run, at, lanes, load_run, place, run_length, spread_at, spread_run, store_run, table
from .words import block, thread

RUNS = 2  # of each thread
EACH = 4  # elements of each thread, where there are no runs


# ---- kernels ------------------------------------------------------------------------------------------------------------------------
@kernel
def map_runs(out, *c):
    """out[i] = F(c at i)."""
    n = run_length(out, c)
    each = RUNS * THREADS * n
    whole = out.size // each
    start = block() * each
    if block() >= whole:
        start = whole * each + (block() - whole) * THREADS
    elif aligned_run(out, c):
        first = start + n * thread()
        second = first + n * THREADS
        near, far = load_run(out, c, first), load_run(out, c, second)
        store_run(out, first, apply_run(F, near))
        store_run(out, second, apply_run(F, far))
        return
    stop = min(start + (each if block() < whole else THREADS), out.size)
    i = start + thread()
    while i < stop:
        out[i] = F(*at(c, i))
        i += THREADS


@kernel
def spread_runs(out, t, *c):
    """out[i] = F(c spread by table t, at i); the innermost dimension is of whole runs."""
    n = run_length(out, c)
    first = block() * (RUNS * THREADS * n) + n * thread()
    second = first + n * THREADS
    if first < out.size:
        if aligned_spread(out, c):  # where there is no second run, the first is read again: another one may be written already
            near, far = spread_run(out, c, t, first), spread_run(out, c, t, second if second < out.size else first)
            store_run(out, first, apply_run(F, near))
            if second < out.size:
                store_run(out, second, apply_run(F, far))
        else:
            for k in range(n * RUNS):
                i = (first if k < n else second - n) + k
                if i < out.size:
                    out[i] = F(*spread_at(c, t, i))


@kernel
def spread_each(out, t, *c):
    """The same for any dimensions, element by element; all are read before the first is written."""
    last, i = out.size - 1, block() * (EACH * THREADS) + thread()
    if i <= last:
        p, q, r = i + THREADS, i + 2 * THREADS, i + 3 * THREADS
        # Where there is no element any more this thread's first one is read again: any other may be written already, out may be an input.
        at_i, at_p = spread_at(c, t, i), spread_at(c, t, p if p <= last else i)
        at_q, at_r = spread_at(c, t, q if q <= last else i), spread_at(c, t, r if r <= last else i)
        out[i] = F(*at_i)
        if p <= last:
            out[p] = F(*at_p)
        if q <= last:
            out[q] = F(*at_q)
        if r <= last:
            out[r] = F(*at_r)


@kernel
def triangle(out, x, t, diagonal, upper):
    """x where column - row, which the table t tells, is at least (upper) or at most `diagonal`, else 0."""
    i = block() * THREADS + thread()
    if i < out.size:
        right = place(t, i)
        if right >= diagonal if upper else right <= diagonal:
            out[i] = x[i]
        else:
            out[i] = 0


# ---- formulas of copies -------------------------------------------------------------------------------------------------------------
def same(x):
    return x


def nonzero(x):
    return x != 0


def within_int32(x):
    """What is no int32 becomes the least one, as NumPy's astype has it on x86."""
    return select((x >= -2147483648.0) & (x < 2147483648.0), x, -2147483648.0)


def within_int64(x):
    return select((x >= -9223372036854775808.0) & (x < 9223372036854775808.0), x, -9223372036854775808.0)


def cut_off(x):
    """The low bits are what smaller integers get, as on the other devices: PTX would give the nearest number that fits."""
    return types.int64(within_int64(x))


def odd(x):
    """A float64 as a float32 that a float16 can be rounded from: what was cut off shows in its last bit, or a tie could be made."""
    y = libdevice.double2float_rz(x)
    return libdevice.int_as_float(libdevice.float_as_int(y) | 1) if y != x and x == x else y


# ---- launchers ----------------------------------------------------------------------------------------------------------------------
@cache
def cut(run: int) -> Callable[[int], int]:
    """How many blocks map_runs() takes for so many elements, in runs of so many."""
    each = RUNS * THREADS * run

    def grid(size: int) -> int:
        return size // each + blocks(size % each)

    return grid


def run_of(*buffers: Any) -> int:
    return lanes([b.dtype.itemsize for b in buffers if isinstance(b, Buffer)])


@launcher(name="map")
def map_launcher(go, outs, ins, *numbers):
    grid = cut(run_of(*outs, *ins))
    go(map_runs, outs, ins, numbers, grid=grid(outs[0].size), per_block=grid)


@launcher(name="fill")
def fill_launcher(go, outs, ins, value):
    grid = cut(run_of(*outs))
    go(map_runs, outs, (), (value,), grid=grid(outs[0].size), per_block=grid, formula=same)


@launcher
def broadcast(go, outs, ins, shape, shapes, *numbers):
    (y,), buffers = outs, [isinstance(x, Buffer) for x in ins]
    wide = is_wide(y, *ins)
    spread, whole, marks = plan(merged_dims(shape, shapes), tuple(buffers), run_of(y, *ins), wide)
    given = [a for x, mark, is_buffer in zip(ins, marks, buffers, strict=True) for a in ((x, mark) if is_buffer else (x,))]
    each = THREADS * (RUNS * run_of(y, *ins) if whole else EACH)
    go(spread_runs if whole else spread_each, outs, (), (spread, *given, *numbers), grid=blocks(y.size, each))


@cache
def plan(dims: Any, buffers: Any, run: int, wide: bool) -> tuple[Any, bool, list[Any]]:
    """(table, whether the innermost dimension and what is before each row are whole runs, the mark of each input)."""
    kept = tuple([(size, *[s for s, is_buffer in zip(strides, buffers, strict=True) if is_buffer]) for size, *strides in dims])
    *outer, (inner, *steps) = dims
    moving = [n for n, step in enumerate(steps) if step]
    whole = inner % run == 0 and all([d[1 + n] % run == 0 for d in outer for n in moving])
    return table(kept, wide), whole, [None if step else True for step in steps]


def is_wide(*buffers: Any) -> bool:
    """Whether positions do not fit in 31 bits."""
    return max([b.size for b in buffers if isinstance(b, Buffer)]) >= 1 << 31


@launcher
def tri(go, outs, ins, rows, cols, diagonal, upper):
    (y,) = outs
    if y.size:
        t = table(((y.size // (rows * cols), 0), (rows, -1), (cols, 1)), is_wide(y))
        go(triangle, outs, ins, (t, diagonal, upper), grid=blocks(y.size))


def copier(device: Any, out: Any, x: Any) -> Any:
    """The kernel that converts x to out's dtype."""
    formula, dtype, raw = same, computed(x.dtype), x.dtype == out.dtype
    if raw:
        dtype = np.dtype(f"uint{8 * x.dtype.itemsize}")
    elif out.dtype.kind == "b":
        formula = nonzero
    elif (x.dtype, out.dtype) == (float64, float16):
        formula = odd
    elif x.dtype in FLOATS and out.dtype in INTEGERS:
        formula = within_int32 if out.dtype == int32 else within_int64 if out.dtype.itemsize == 8 else cut_off
    grid = cut(run_of(out, x))
    return device.kernel(map_runs, formula, dtype, raw).on(grid(out.size), grid)
