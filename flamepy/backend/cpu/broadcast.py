"""Map loops for inputs of different shapes: broadcasting without copies.

The common shape is collapsed to outer dimensions and one inner run (ops/… never see this; op.py plans it). `table` holds the
k outer sizes, then k outer strides for each input; an input that repeats along the inner run arrives with shape (size, 1), so
that `pick` is compiled to one load outside the loop and the loop vectorises.

May import: this folder, Numba. FLAME counterpart: `flame_core::cuda_kernels` broadcast variants. Read next: reduce.py.
"""

from __future__ import annotations

import operator
from typing import Any

from numba import types
from numba.extending import intrinsic

from .loops import F
from .parallel import tasks


@intrinsic
def pick(typing: Any, x: Any, start: Any, j: Any) -> Any:
    """x[start + j] for a 1-D array, x[start, 0] for a (size, 1) array, x for a scalar."""
    if not isinstance(x, types.Array):
        return x(x, start, j), lambda context, builder, signature, args: args[0]
    column = x.ndim == 2
    index = types.UniTuple(types.uintp, 2) if column else types.uintp  # unsigned: see at()
    item = typing.resolve_function_type(operator.getitem, (x, index), {})

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array, first, offset = args
        if column:
            zero = context.get_constant(types.uintp, 0)
            where = context.make_tuple(builder, index, (first, zero))
        else:
            where = builder.add(first, offset)
        return context.get_function(operator.getitem, item)(builder, (array, where))

    return item.return_type(x, types.int64, types.int64), code


def offset(table, k, which, r):
    """Where row r starts in input number `which`."""
    total = 0
    for d in range(k - 1, 0, -1):
        total += (r % table[d]) * table[k * (which + 1) + d]
        r //= table[d]
    return total + r * table[k * (which + 1)] if k else 0


def broadcast1(part, out, x, table, k, inner, block, *c):
    blocks = (inner + block - 1) // block
    for t in tasks(part, out.size // inner * blocks):
        r = t // blocks
        ox = offset(table, k, 0, r)
        lo = (t % blocks) * block
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(pick(x, ox, lo + j), *c)


def broadcast2(part, out, x, y, table, k, inner, block, *c):
    blocks = (inner + block - 1) // block
    for t in tasks(part, out.size // inner * blocks):
        r = t // blocks
        ox = offset(table, k, 0, r)
        oy = offset(table, k, 1, r)
        lo = (t % blocks) * block
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(pick(x, ox, lo + j), pick(y, oy, lo + j), *c)


def broadcast3(part, out, x, y, z, table, k, inner, block, *c):
    blocks = (inner + block - 1) // block
    for t in tasks(part, out.size // inner * blocks):
        r = t // blocks
        ox = offset(table, k, 0, r)
        oy = offset(table, k, 1, r)
        oz = offset(table, k, 2, r)
        lo = (t % blocks) * block
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(pick(x, ox, lo + j), pick(y, oy, lo + j), pick(z, oz, lo + j), *c)


def broadcast4(part, out, x, y, z, w, table, k, inner, block, *c):
    blocks = (inner + block - 1) // block
    for t in tasks(part, out.size // inner * blocks):
        r = t // blocks
        ox = offset(table, k, 0, r)
        oy = offset(table, k, 1, r)
        oz = offset(table, k, 2, r)
        ow = offset(table, k, 3, r)
        lo = (t % blocks) * block
        line = out[r * inner + lo : r * inner + min(inner, lo + block)]
        for j in range(line.size):
            line[j] = F(pick(x, ox, lo + j), pick(y, oy, lo + j), pick(z, oz, lo + j), pick(w, ow, lo + j), *c)
