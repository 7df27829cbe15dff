"""Map and row loops: a formula applied to every element, a body applied to every row.

Outs first, flat contiguous arrays, then constants. `F` is the formula, put there by bind(). An input that is a
scalar stands for the same number everywhere: `at(x, i)` reads either, decided when the kernel is compiled.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ....core.words import select
from ....dtypes import FLOATS
from ...formula.row_words import TOGETHER, line_space
from ..products.gemm import turn_matrix
from ..runtime.family import launcher, loop
from ..runtime.parallel import elements, tasks


@intrinsic
def at(typing: Any, x: Any, i: Any) -> Any:
    """x[i] for an array, x for a scalar."""
    if not isinstance(x, types.Array):
        return x(x, i), lambda context, builder, signature, args: args[0]
    # An unsigned index: no check for negative ones, which would keep the loop from vectorising.
    item = typing.resolve_function_type(operator.getitem, (x, types.uintp), {})

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_function(operator.getitem, item)(builder, args)

    return item.return_type(x, types.intp), code


LARGEST = np.iinfo(np.int64).max
SIDE = 128  # rows side by side that a body takes at once, no more than RUN
NARROW = 24  # columns of rows that bodies take together, at most
TURNED = 64  # rows turned at once, where they and what comes of them have no more numbers


def F(*args: Any) -> Any:
    """Stands where bind() puts the formula."""
    raise NotImplementedError


@loop
def map1(part, out, x, *c):
    for i in elements(part, out.size):
        out[i] = F(at(x, i), *c)


@loop
def map2(part, out, x, y, *c):
    for i in elements(part, out.size):
        out[i] = F(at(x, i), at(y, i), *c)


@loop
def map3(part, out, x, y, z, *c):
    for i in elements(part, out.size):
        out[i] = F(at(x, i), at(y, i), at(z, i), *c)


@loop
def map4(part, out, x, y, z, w, *c):
    for i in elements(part, out.size):
        out[i] = F(at(x, i), at(y, i), at(z, i), at(w, i), *c)


# In place. Loops of their own: where an output is also an input, LLVM's overlap check of the maps above chooses scalar code.


@loop
def edit1(part, x, *c):
    for i in elements(part, x.size):
        x[i] = F(x[i], *c)


@loop
def edit2(part, x, y, *c):
    for i in elements(part, x.size):
        x[i] = F(x[i], at(y, i), *c)


@loop(launched=True)
def fill(part, out, value):
    for i in elements(part, out.size):
        out[i] = value


@loop(launched=True)
def tri(part, out, x, rows, cols, k, upper):
    """Keep the triangle on or above (upper) or on or below diagonal k of each matrix; zeros elsewhere."""
    for r in tasks(part, out.size // cols):
        split = min(max(r % rows + k + (0 if upper else 1), 0), cols)
        at, low, high = np.uintp(r * cols), np.uintp(split if upper else 0), np.uintp(cols if upper else split)
        for j in range(low):
            out[at + j] = 0
        for j in range(low, high):
            out[at + j] = x[at + j]
        for j in range(high, np.uintp(cols)):
            out[at + j] = 0


@loop(reorders=True)  # a body sums over its row: let it use vector lanes
def row(part, *args):
    """F(r, *args) for each row r: the body of a softmax or a norm. The last two arguments are rows and cols."""
    for r in tasks(part, args[-2]):
        F(r & LARGEST, *args)  # not negative, and known to be: as an index it needs no test


@loop(reorders=True)
def rows_together(part, *args):
    """F(first, *args) for each TOGETHER rows: a body that takes so many at once."""
    for t in tasks(part, (args[-2] + TOGETHER - 1) // TOGETHER):
        F(t * TOGETHER, *args)


@loop
def beside(part, *args):
    """F(first, many, *args) for rows of `cols` numbers that are `apart`, SIDE neighbouring ones at once. The last three arguments are
    rows, cols and apart."""
    cols, apart = args[-2], args[-1]
    blocks = (apart + SIDE - 1) // SIDE
    for t in tasks(part, args[-3] // apart * blocks):
        low = t % blocks * SIDE
        F(t // blocks * cols * apart + low, min(SIDE, apart - low), *args)


@loop
def rows_turned(part, out, x, y, cols):
    """The same for rows whose numbers are neighbours: TURNED of them are turned on the way."""
    out_side, x_side, y_side = line_space(x), line_space(x), line_space(x)
    rows = out.size // cols
    for t in tasks(part, (rows + TURNED - 1) // TURNED):
        start, many = t * TURNED * cols, min(TURNED, rows - t * TURNED)
        turn_matrix(many, cols, x, start, cols, x_side, 0, many)
        if y is not None:
            turn_matrix(many, cols, y, start, cols, y_side, 0, many)
        F(0, many, out_side, x_side, None if y is None else y_side, many, cols, many)
        turn_matrix(cols, many, out_side, 0, many, out, start, cols)


# ---- formulas of copies ----
def same(x):
    return x


def through_int64(x):
    return np.int64(x)


def nonzero(x):
    return x != 0


def odd(x):
    """A float64 as a float32 that a float16 can be rounded from: what was cut off shows in its last bit, or a tie could be made."""
    y = np.float32(x)
    down = y.view(np.int32) - np.int32(abs(np.float64(y)) > abs(x))  # towards zero
    return select((np.float64(y) == x) | (x != x), y, np.int32(down | np.int32(1)).view(np.float32))


# ---- launchers ----
MAPS = (map1, map2, map3, map4)
EDITS = (edit1, edit2)
NEAR: dict[str, Any] = {}  # loops that do what a formula says sooner, for most numbers


@launcher(name="map")
def map_launcher(go, outs, ins, *numbers):
    if outs[0] is ins[0] and len(ins) <= len(EDITS):
        go(EDITS[len(ins) - 1], outs, ins[1:], numbers)
    elif hasattr(go.formula, "near") and go.dtype in FLOATS and outs[0] not in ins:
        go(NEAR[go.formula.near], outs, ins)
    else:
        go(MAPS[len(ins) - 1], outs, ins, numbers)


@launcher(name="row")
def row_launcher(go, outs, ins, *consts):
    rows, cols = consts[-2:]
    if cols <= NARROW and hasattr(go.formula, "together"):
        go(rows_together, outs, ins, consts, work=rows * cols, formula=go.formula.together)
    elif hasattr(go.formula, "beside") and cols * (len(ins) + 1) <= TURNED and all([b and b.dtype == go.dtype for b in (*outs, *ins)]):
        go(rows_turned, outs, (*ins, None)[:2], (cols,), work=rows * cols, formula=go.formula.beside)
    else:
        go(row, outs, ins, consts, work=rows * cols)


@launcher(name="beside")
def beside_launcher(go, outs, ins, *consts):
    go(beside, outs, ins, consts, work=consts[-3] * consts[-2], formula=go.formula.beside)
