"""What follows a product in a layer: bias, activation and residual, applied while the result is in the nearest caches.

Which of them there are, and what a layer keeps of them for its gradient, are flags of one compiled loop: what is absent has a stand-in
that is not read.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ..loops.maps import F
from ..loops.runs import add_run, copy_run

# What a linear layer with an activation writes beside its result. NOTHING: there is no activation; ALONE: nothing; SUM: what the
# activation gets; RESULT: what it gives.
NOTHING, ALONE, SUM, RESULT = range(4)


def flops(results: int, inner: int) -> int:
    """Work of a product in elements of a map: a product does some 32 multiplications in the time a map takes for one element."""
    return results * (inner + 31) // 32


def stands(go: Any, outs: Any, ins: Any, w: Any, keeps_result: bool) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Outs and ins of a layer with a stand-in for what is absent, `w` as its loop reads it, and the flags: has_bias, has_residual, keep."""
    (y, kept), (x, _, bias, residual) = outs, ins
    keep = NOTHING if go.formula is None else ALONE if kept is None else RESULT if keeps_result else SUM
    present = (x, w, x if bias is None else bias, x if residual is None else residual)
    return (y, y if kept is None else kept), present, (bias is not None, residual is not None, keep)


def finish(y, z, bias, residual, i, end, j, cols, n, has_bias, has_residual, keep):
    """F(z + bias) + residual on rows i to end, columns j to j + cols; a strip at a time stays in the nearest cache.

    Where two arrays may be one, the loops differ: what is written in place must be seen to be, or LLVM takes the scalar loop. There a
    bias is added on the way: a pass less.
    """
    inside = keep == ALONE or keep == RESULT  # a tuple in a kernel is slower to compile
    for top in range(i, end, 64):
        bottom = min(end, top + 64)
        if has_bias and inside:
            for r in range(top, bottom):
                for c in run(r * n + j, cols):
                    z[c] = F(z[c] + bias[c - types.uint64(r * n)])
        elif has_bias:
            for r in range(top, bottom):
                for c in run(r * n + j, cols):
                    z[c] += bias[c - types.uint64(r * n)]
        elif inside:
            for r in range(top, bottom):
                for c in run(r * n + j, cols):
                    z[c] = F(z[c])
        if keep == SUM:
            for r in range(top, bottom):
                for c in run(r * n + j, cols):
                    y[c] = F(z[c])
        if has_residual:
            add_residual(y, z, residual, top, bottom, j, cols, n, keep == RESULT)


def add_residual(y, z, residual, top, bottom, j, cols, n, apart):
    for r in range(top, bottom):
        if apart:
            for c in run(r * n + j, cols):
                y[c] = z[c] + residual[c]
        else:
            for c in run(r * n + j, cols):
                y[c] += residual[c]


def run(start, size):
    """Element numbers from `start`, as unsigned numbers: no check for negative ones, so that the loop vectorises."""
    return range(types.uint64(start), types.uint64(start + size))


def finish_row(y, kept, z, bias, residual, at, has_bias, has_residual, keep):
    """Part of a row, rounded into y from number `at` on, with everything that follows the product; z is written over."""
    if has_bias:
        add_run(z, bias)
    if keep == SUM:
        copy_run(kept[at : at + z.size], z)
    if keep != NOTHING:
        for c in range(z.size):
            z[c] = F(z[c])
    if keep == RESULT:
        copy_run(kept[at : at + z.size], z)
    if has_residual:
        add_run(z, residual[at : at + z.size])
    copy_run(y[at : at + z.size], z)
