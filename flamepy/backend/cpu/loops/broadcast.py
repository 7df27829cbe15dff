"""Map loops for inputs of different shapes: broadcasting without copies.

The common shape is k outer dimensions and one inner run. `table` holds the k outer sizes, then k outer strides for each input. For each
input `once` is None, or True where it repeats along the inner run: the type alone tells `pick`, which is then compiled to one load
outside the loop, and the loop vectorises.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ...base import Buffer
from ...formula.dims import merged_dims
from ...run import Spot, Step
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks
from .maps import MAPS, F

WORTH = 32  # numbers of a row for which it is worth being read where it lies
BLOCK = 4096  # elements of a run that one task computes


def offset(table, k, which, r):
    """Where row r starts in input number `which`."""
    total = 0
    for d in range(k - 1, 0, -1):
        total += (r % table[d]) * table[k * (which + 1) + d]
        r //= table[d]
    return total + r * table[k * (which + 1)] if k else 0


def distance(table, k, which, r):
    """How far apart neighbouring rows lie there, within the last outer dimension."""
    return table[k * (which + 2) - 1] if k else 0


def of_each(function: Any) -> Any:
    """A word for loops: function(table, k, n, r) of each input number n, as a tuple."""

    @intrinsic
    def word(typing: Any, xs: Any, table: Any, k: Any, r: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind, found = types.int64(table, k, types.int64, r), []
            for n in range(len(xs)):
                found.append(context.compile_internal(builder, function, kind, (*args[1:3], context.get_constant(types.int64, n), args[3])))
            return context.make_tuple(builder, signature.return_type, found)

        return types.UniTuple(types.int64, len(xs))(xs, table, k, r), code

    return word


@intrinsic
def picked(typing: Any, xs: Any, starts: Any, steps: Any, i: Any, j: Any, once: Any) -> Any:
    """Number j of row i of each input: of an array, for the whole row one where `once` is not None, or a scalar as it is."""
    kinds = [typing.resolve_function_type(operator.getitem, (x, types.uintp), {}) if isinstance(x, types.Array) else None for x in xs]

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given, firsts, apart = (cgutils.unpack_tuple(builder, args[n]) for n in range(3))
        for n, kind in enumerate(kinds):
            if kind is not None:
                at = builder.add(firsts[n], builder.mul(apart[n], args[3]))
                at = at if once[n] != types.none else builder.add(at, args[4])
                given[n] = context.get_function(operator.getitem, kind)(builder, (given[n], at))
        return context.make_tuple(builder, signature.return_type, given)

    result = types.Tuple([x if kind is None else kind.return_type for x, kind in zip(xs, kinds, strict=True)])
    return result(xs, starts, steps, i, j, once), code


starting, apart = of_each(offset), of_each(distance)


def group(table, k, inner, block, t, stop):
    """(row r, where in it task t begins, how many rows from there on this worker has at one distance). A row of `inner` numbers may be too
    short for divisions of its own; one longer than `block` is done in pieces."""
    blocks = (inner + block - 1) // block
    if blocks > 1:
        return t // blocks, t % blocks * block, 1
    return t, 0, min(table[k - 1] - t % table[k - 1], stop - t) if k else 1


def fill_rows(part, out, xs, table, k, inner, once, c):
    mine = tasks(part, out.size // inner * ((inner + BLOCK - 1) // BLOCK))
    t = mine.start
    while t < mine.stop:
        r, low, many = group(table, k, inner, BLOCK, t, mine.stop)
        starts, steps, size = starting(xs, table, k, r), apart(xs, table, k, r), np.uintp(min(inner - low, BLOCK))
        for i in range(many):
            at = np.uintp((r + i) * inner + low)
            for j in range(size):
                out[at + j] = F(*picked(xs, starts, steps, i, np.uintp(low) + j, once), *c)
        t += many


@loop
def broadcast1(part, out, x, table, k, inner, once_x, *c):
    fill_rows(part, out, (x,), table, k, inner, (once_x,), c)


@loop
def broadcast2(part, out, x, y, table, k, inner, once_x, once_y, *c):
    fill_rows(part, out, (x, y), table, k, inner, (once_x, once_y), c)


@loop
def broadcast3(part, out, x, y, z, table, k, inner, once_x, once_y, once_z, *c):
    fill_rows(part, out, (x, y, z), table, k, inner, (once_x, once_y, once_z), c)


@loop
def broadcast4(part, out, x, y, z, w, table, k, inner, once_x, once_y, once_z, once_w, *c):
    fill_rows(part, out, (x, y, z, w), table, k, inner, (once_x, once_y, once_z, once_w), c)


# ---- launcher ----
LOOPS = (broadcast1, broadcast2, broadcast3, broadcast4)


@launcher
def broadcast(go, outs, ins, shape, shapes, *numbers):
    found, k, inner, once = plan(merged_dims(shape, shapes))
    go(LOOPS[len(ins) - 1], outs, ins, (found, k, inner, *once, *numbers))


def rewritten(device, s, places, rows, length, apart):
    """Device.rewritten() for rows: a map broadcasts, a broadcast that has these rows takes other distances between them."""
    loop, ins, numbers = s.kernel.loop, s.ins, s.consts
    if length < WORTH or loop not in (*MAPS, *LOOPS):
        return None
    if loop in MAPS:
        apart_each = [length if isinstance(x, Buffer | Spot) else 0 for x in ins]
        found, k, inner, once = plan(((rows, *apart_each), (length, *[bool(n) for n in apart_each])))
        loop = LOOPS[len(ins) - 1]
    else:
        found, k, inner, *numbers = numbers
        once, numbers = numbers[: len(ins)], numbers[len(ins) :]
        if k != 1 or inner != length or [i for i in places if once[i] or found[1 + i] != length]:
            return None
    strides = [apart if i in places else int(n) for i, n in enumerate(found[1:])]
    kernel = device.kernels_of(loop, s.kernel.formula, s.kernel.dtype)[s.kernel.wide]
    return Step(kernel, s.outs, ins, (table((rows, *strides)), k, inner, *once, *numbers))


@lru_cache(4096)
def plan(dims):
    """(table, k, size of the inner run, `once` of each input) for dimensions of (size, stride of each input)."""
    *outer, (inner, *steps) = dims
    columns = zip(*outer, strict=True) if outer else ()
    return table(tuple([n for column in columns for n in column])), len(outer), inner, [None if step else True for step in steps]
