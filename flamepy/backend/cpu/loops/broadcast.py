"""Map loops for inputs of different shapes: broadcasting without copies.

The common shape is k outer dimensions and one inner run. `table` holds the k outer sizes, then k outer strides for each input. For each
input `once` is None, or True where it repeats along the inner run: the type alone tells `pick`, which is then compiled to one load
outside the loop, and the loop vectorises.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

from numba import types
from numba.extending import intrinsic

from ...base import Buffer
from ...formula.dims import merged_dims
from ...run import Spot, Step
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks
from .maps import MAPS, F

WORTH = 32  # numbers of a row for which it is worth being read where it lies
BLOCK = 4096  # elements of a run that one task computes


@intrinsic
def pick(typing: Any, x: Any, start: Any, j: Any, once: Any) -> Any:
    """x[start + j] for an array, x[start] where `once` is not None, x for a scalar."""
    if not isinstance(x, types.Array):
        return x(x, start, j, once), lambda context, builder, signature, args: args[0]
    item = typing.resolve_function_type(operator.getitem, (x, types.uintp), {})  # unsigned: see at()

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, first, offset, _ = args
        at = first if once != types.none else builder.add(first, offset)
        return context.get_function(operator.getitem, item)(builder, (array, at))

    return item.return_type(x, types.int64, types.int64, once), code


def offset(table, k, which, r):
    """Where row r starts in input number `which`."""
    total = 0
    for d in range(k - 1, 0, -1):
        total += (r % table[d]) * table[k * (which + 1) + d]
        r //= table[d]
    return total + r * table[k * (which + 1)] if k else 0


def distance(table, k, which):
    """How far apart neighbouring rows lie there, within the last outer dimension."""
    return table[k * (which + 2) - 1] if k else 0


def ahead(table, k, r, blocks):
    """How many rows from r on lie at these distances: a row may be too short for divisions of its own."""
    return table[k - 1] - r % table[k - 1] if k and blocks == 1 else 1


@loop
def broadcast1(part, out, x, table, k, inner, block, once_x, *c):
    blocks = (inner + block - 1) // block
    dx = distance(table, k, 0)
    ox, left = 0, 0
    for t in tasks(part, out.size // inner * blocks):
        r, lo = (t, 0) if blocks == 1 else (t // blocks, t % blocks * block)
        if left == 0:
            ox, left = offset(table, k, 0, r), ahead(table, k, r, blocks)
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(pick(x, ox, lo + j, once_x), *c)
        ox, left = ox + dx, left - 1


@loop
def broadcast2(part, out, x, y, table, k, inner, block, once_x, once_y, *c):
    blocks = (inner + block - 1) // block
    dx, dy = distance(table, k, 0), distance(table, k, 1)
    ox, oy, left = 0, 0, 0
    for t in tasks(part, out.size // inner * blocks):
        r, lo = (t, 0) if blocks == 1 else (t // blocks, t % blocks * block)
        if left == 0:
            ox, oy, left = offset(table, k, 0, r), offset(table, k, 1, r), ahead(table, k, r, blocks)
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(pick(x, ox, lo + j, once_x), pick(y, oy, lo + j, once_y), *c)
        ox, oy, left = ox + dx, oy + dy, left - 1


@loop
def broadcast3(part, out, x, y, z, table, k, inner, block, once_x, once_y, once_z, *c):
    blocks = (inner + block - 1) // block
    dx, dy, dz = distance(table, k, 0), distance(table, k, 1), distance(table, k, 2)
    ox, oy, oz, left = 0, 0, 0, 0
    for t in tasks(part, out.size // inner * blocks):
        r, lo = (t, 0) if blocks == 1 else (t // blocks, t % blocks * block)
        if left == 0:
            ox, oy, oz, left = offset(table, k, 0, r), offset(table, k, 1, r), offset(table, k, 2, r), ahead(table, k, r, blocks)
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(pick(x, ox, lo + j, once_x), pick(y, oy, lo + j, once_y), pick(z, oz, lo + j, once_z), *c)
        ox, oy, oz, left = ox + dx, oy + dy, oz + dz, left - 1


@loop
def broadcast4(part, out, x, y, z, w, table, k, inner, block, once_x, once_y, once_z, once_w, *c):
    blocks = (inner + block - 1) // block
    dx, dy, dz, dw = distance(table, k, 0), distance(table, k, 1), distance(table, k, 2), distance(table, k, 3)
    ox, oy, oz, ow, left = 0, 0, 0, 0, 0
    for t in tasks(part, out.size // inner * blocks):
        r, lo = (t, 0) if blocks == 1 else (t // blocks, t % blocks * block)
        if left == 0:
            ox, oy, oz = offset(table, k, 0, r), offset(table, k, 1, r), offset(table, k, 2, r)
            ow, left = offset(table, k, 3, r), ahead(table, k, r, blocks)
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(
                pick(x, ox, lo + j, once_x), pick(y, oy, lo + j, once_y), pick(z, oz, lo + j, once_z), pick(w, ow, lo + j, once_w), *c
            )
        ox, oy, oz, ow, left = ox + dx, oy + dy, oz + dz, ow + dw, left - 1


# ---- launcher ----
LOOPS = (broadcast1, broadcast2, broadcast3, broadcast4)


@launcher
def broadcast(go, outs, ins, shape, shapes, *numbers):
    found, k, inner, once = plan(merged_dims(shape, shapes))
    go(LOOPS[len(ins) - 1], outs, ins, (found, k, inner, BLOCK, *once, *numbers))


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
        found, k, inner, _, *numbers = numbers
        once, numbers = numbers[: len(ins)], numbers[len(ins) :]
        if k != 1 or inner != length or [i for i in places if once[i] or found[1 + i] != length]:
            return None
    strides = [apart if i in places else int(n) for i, n in enumerate(found[1:])]
    kernel = device.kernels_of(loop, s.kernel.formula, s.kernel.dtype)[s.kernel.wide]
    return Step(kernel, s.outs, ins, (table((rows, *strides)), k, inner, BLOCK, *once, *numbers))


@lru_cache(4096)
def plan(dims):
    """(table, k, size of the inner run, `once` of each input) for dimensions of (size, stride of each input)."""
    *outer, (inner, *steps) = dims
    columns = zip(*outer, strict=True) if outer else ()
    return table(tuple([n for column in columns for n in column])), len(outer), inner, [None if step else True for step in steps]
