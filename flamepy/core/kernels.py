"""What the basic ops may launch, each as one short function of whole NumPy arrays.

A kernel gets F (the formula, or None) and three lists: outs, ins, constants, and overwrites its outs. Its first line names
what is in the lists. All arrays are flat; sizes and strides are among the constants. Folds are summed in float64 and rounded once,
so that other backends can be held against them.

The order: formulas, folds, products, moving elements, random numbers. Other files may put more into the list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import philox
from .formula import ON_ARRAYS, Dialect, typed

KERNELS: dict[str, tuple[Callable, Dialect]] = {}  # by name: the function, and the words its F gets


def kernel(function: Callable, words: Dialect = ON_ARRAYS) -> Callable:
    """Put a function into the list of kernels."""
    KERNELS[function.__name__] = function, words
    return function


def places(sizes: Any, strides: Any, start: Any = 0) -> np.ndarray:
    """Where the elements of a strided array lie: start + i * strides[0] + j * strides[1] + ..., in an array of shape `sizes`."""
    found = np.array(start, np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        found = found[..., None] + stride * np.arange(size)
    return found


# ---- formulas: map, broadcast, fill ---------------------------------------------------------------------------------------------
@kernel
def map(F, outs, ins, consts):
    """y[i] = F(x0[i], x1[i], ..., *consts)."""
    outs[0][...] = F(*ins, *consts)


@kernel
def broadcast(F, outs, ins, consts):
    """The same for inputs of different shapes, which broadcast to that of y; the shape of a number is None."""
    shape, shapes, *numbers = consts
    spread = [x if own is None else x.reshape(own) for x, own in zip(ins, shapes, strict=True)]
    outs[0].reshape(shape)[...] = F(*spread, *numbers)


@kernel
def fill(F, outs, ins, consts):
    """y[i] = value."""
    outs[0][...] = consts[0]


# ---- folds --------------------------------------------------------------------------------------------------------------------
@kernel
def fold_sum(F, outs, ins, consts):
    """y[o, j] = scale * sum over i of F(x[o, i, j])."""
    (y,), (x,), (outer, n, inner, scale) = outs, ins, consts
    y[...] = scale * total_of(F(x).reshape(outer, n, inner), 1).reshape(-1)


@kernel
def fold_max(F, outs, ins, consts):
    """y[o, j] = the largest x[o, :, j], or with scale -1 the smallest; NaN wins."""
    (y,), (x,), (outer, n, inner, scale) = outs, ins, consts
    if y.size:
        y[...] = (np.max if scale > 0 else np.min)(x.reshape(outer, n, inner), axis=1).reshape(-1)


def total_of(x, axis=None):
    """A sum in float64 or int64."""
    return np.sum(x, axis=axis, dtype=np.float64 if x.dtype.kind == "f" else np.int64)


# ---- products ------------------------------------------------------------------------------------------------------------------
@kernel
def matmul(F, outs, ins, consts):
    """c[i] (m, n) = op(a[i]) (m, k) @ op(b[i]) (k, n). a_at, b_at: where each matrix starts; ta, tb: it is stored as (k, m), (n, k)."""
    (c,), (a, b), (a_at, b_at, m, n, k, ta, tb) = outs, ins, consts
    for product, at, bt in zip(c.reshape(len(a_at), m, n), a_at, b_at, strict=True):
        product[...] = matrix(a, at, m, k, ta) @ matrix(b, bt, k, n, tb)


def matrix(x, start, rows, cols, turned):
    """The (rows, cols) matrix that starts there; turned: its transpose is what is stored."""
    x = x[start : start + rows * cols]
    return x.reshape(cols, rows).T if turned else x.reshape(rows, cols)


# ---- moving elements ------------------------------------------------------------------------------------------------------------
@kernel
def strided_get(F, outs, ins, consts):
    """y, contiguous over sizes, = x[base + index . strides]; strides may be 0 or negative."""
    (y,), (x,), (sizes, strides, base) = outs, ins, consts
    y[...] = x[places(sizes, strides, base)].reshape(-1)


@kernel
def strided_put(F, outs, ins, consts):
    """The reverse: y[base + index . strides] = x."""
    (y,), (x,), (sizes, strides, base) = outs, ins, consts
    y[places(sizes, strides, base)] = x.reshape(sizes)


@kernel
def take_rows(F, outs, ins, consts):
    """y[r] = x[index[r]], rows of `inner` numbers."""
    (y,), (x, index), (inner,) = outs, ins, consts
    if x.size:
        y[...] = x.reshape(-1, inner)[inside(index, x.size // inner)].reshape(-1)


@kernel
def add_rows(F, outs, ins, consts):
    """y[index[r]] += x[r], one row after the other, from zeros unless `add`."""
    (y,), (x, index), (inner, add) = outs, ins, consts
    if y.size:
        total = np.zeros((y.size // inner, inner), np.float64 if y.dtype.kind == "f" else y.dtype)
        np.add.at(total, inside(index, y.size // inner), x.reshape(-1, inner))
        y[...] = y + total.reshape(-1) if add else total.reshape(-1)


def inside(index, n):
    """Indices limited to n rows: a wrong one is reported by check_ids, perhaps only later, and must do no harm before."""
    return np.clip(index, 0, n - 1)


@kernel
def check_ids(F, outs, ins, consts):
    """found = (position of the first id outside [low, high) that is not to be ignored, or -1; that id, or 0; how many ids count)."""
    (found,), (ids,), (low, high, ignores, ignore) = outs, ins, consts
    counts = ids != ignore if ignores else np.ones(ids.size, bool)
    wrong = np.flatnonzero(counts & ((ids < low) | (ids >= high)))
    first = (wrong[0], ids[wrong[0]]) if wrong.size else (-1, 0)
    found[...] = *first, counts.sum()


@kernel
def place_ids(F, outs, ins, consts):
    """out[p] = where position p (of sizes) lies by strides, + step * id; ids repeat, negative ones count from the end, of n."""
    (out,), (ids,), (sizes, strides, n, step) = outs, ins, consts
    if out.size:
        ids = np.resize(np.where(ids < 0, ids + n, ids), out.size)
        out[...] = places(sizes, strides).reshape(-1) + step * inside(ids, n)


# ---- random numbers --------------------------------------------------------------------------------------------------------------
def drawn(function, out, per_block, dtype, key, start=0):
    """The numbers `function` (of philox.py) makes of each block, one block after the other; `per_block` of them; from number
    `start` on."""
    seed, stream, step = key.tolist()
    skip = start % per_block
    blocks = start // per_block + np.arange(-(-(out.size + skip) // per_block))
    numbers = typed(function, dtype, ON_ARRAYS)(blocks, seed, stream, step)[:per_block]
    return np.stack(numbers, axis=1).reshape(-1)[skip : skip + out.size]


@kernel
def philox_uniform(F, outs, ins, consts):
    """Numbers in [low, high)."""
    (out,), (key,), (low, high) = outs, ins, consts
    u = drawn(philox.uniforms, out, 16 // out.itemsize, out.dtype, key)
    out[...] = typed(philox.between, out.dtype, ON_ARRAYS)(u, out.dtype.type(low), out.dtype.type(high))


@kernel
def philox_normal(F, outs, ins, consts):
    """Normal numbers of that mean and standard deviation."""
    (out,), (key,), (mean, std) = outs, ins, consts
    out[...] = mean + std * drawn(philox.normals, out, 16 // out.itemsize, out.dtype, key)
