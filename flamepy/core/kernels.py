"""What the basic ops may launch, each as one short function of whole NumPy arrays.

A kernel gets F (the formula or row body, or None) and three lists: outs, ins, constants, and overwrites its outs. Its first line names
what is in the lists. All arrays are flat; sizes and strides are among the constants. Rows and folds are summed in float64 and rounded
once, so that other backends can be held against them.

The order: formulas, rows, folds, products, moving elements, random numbers. Other files may put more into the list.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import philox
from .formula import ON_ARRAYS, ON_NUMBERS, Dialect, jitted

KERNELS: dict[str, tuple[Callable, Dialect]] = {}  # by name: the function, and the words its F gets


def kernel(function: Callable, words: Dialect = ON_ARRAYS) -> Callable:
    """Put a function into the list of kernels."""
    KERNELS[function.__name__] = function, words
    return function


row_kernel = partial(kernel, words=ON_NUMBERS)


def places(sizes: Any, strides: Any, start: Any = 0) -> np.ndarray:
    """Where the elements of a strided array lie: start + i * strides[0] + j * strides[1] + ..., in an array of shape `sizes`."""
    found = np.array(start, np.int64)
    for size, stride in zip(sizes, strides, strict=True):
        found = found[..., None] + stride * np.arange(size)
    return found


def put(out, value, add):
    """Overwrite `out`, or add to it; None: nobody wants it."""
    if out is not None:
        out[...] = out + value if add else value


# ---- formulas: map, broadcast, fill ---------------------------------------------------------------------------------------------
@kernel
def map(F, outs, ins, consts):
    """y[i] = F(x0[i], x1[i], ..., *consts)."""
    outs[0][...] = F(*ins, *consts)


@kernel
def broadcast(F, outs, ins, consts):
    """The same for inputs of different shapes. dims: (size, stride of x0, stride of x1, ...) for each dimension of y."""
    dims, *numbers = consts
    sizes = [size for size, *_ in dims]
    spread = [x[places(sizes, [d[1 + i] for d in dims])] if isinstance(x, np.ndarray) else x for i, x in enumerate(ins)]
    outs[0].reshape(sizes)[...] = F(*spread, *numbers)


@kernel
def fill(F, outs, ins, consts):
    """y[i] = value."""
    outs[0][...] = consts[0]


@kernel
def tri(F, outs, ins, consts):
    """y = x on or above (upper), or on or below, a diagonal of each matrix, 0 elsewhere."""
    (y,), (x,), (rows, cols, diagonal, upper) = outs, ins, consts
    right = np.arange(cols) - np.arange(rows)[:, None]
    keep = right >= diagonal if upper else right <= diagonal
    y[...] = np.where(keep, x.reshape(x.size // max(keep.size, 1), rows, cols), 0).reshape(-1)


# ---- rows ---------------------------------------------------------------------------------------------------------------------
@row_kernel
def row(F, outs, ins, consts):
    """F(r, *outs, *ins, *consts) for each row r: a body as it is written, one number at a time."""
    rows, ins = consts[-2], [exact(x) for x in ins]
    for r in range(rows):
        F(r, *outs, *ins, *consts)


@row_kernel
def row_sums(F, outs, ins, consts):
    """The same for a body that also adds to `total`, common to all rows: the gradients of a norm's weights."""
    (dx, dw, db), (parts, add_w, add_b, rows, cols) = outs, consts
    total, ins = np.zeros(parts * cols), [exact(x) for x in ins]
    for r in range(rows):
        F(r, dx, total, *ins, rows, cols)
    put(dw, total[:cols], add_w)
    put(db, total[cols:], add_b)


def exact(x):
    """Floats in float64, in which a body then computes; what it stores is rounded. Integers, numbers and None as they are."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


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


@kernel
def argmax(F, outs, ins, consts):
    """y[o, j] = the first index of the largest x[o, :, j], or with scale -1 of the smallest; the first NaN wins."""
    (y,), (x,), (outer, n, inner, scale) = outs, ins, consts
    if y.size:
        y[...] = (np.argmax if scale > 0 else np.argmin)(x.reshape(outer, n, inner), axis=1).reshape(-1)


@kernel
def batch_loss(F, outs, ins, consts):
    """y = the sum of the losses; for the mean divided by found[2], the number of ids that count: NaN if there are none."""
    (y,), (losses, found), (mean,) = outs, ins, consts
    total = total_of(losses)
    y[...] = total / np.float64(found[2]) if mean else total


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


@kernel
def linear(F, outs, ins, consts):
    """y = F(z) + residual with z = x (rows, k) @ w.T + bias; flip: x @ w. kept: z, or with keeps_result F(z). w is rounded to `reads`."""
    (y, kept), (x, w, bias, residual), (rows, n, k, flip, keeps_result, reads) = outs, ins, consts
    z = matrix(x, 0, rows, k, False) @ matrix(as_read(w, reads), 0, k, n, not flip)
    if bias is not None:
        z = z + bias
    z = z.reshape(-1)
    result = z if F is None else F(z)
    put(kept, result if keeps_result else z, False)
    y[...] = result if residual is None else result + residual


@kernel
def linear_dx(F, outs, ins, consts):
    """dz (rows, n_out) = F(g, kept), the activation's derivative (without one g), and dx = dz @ w (n_out, n_in). `reads`: see linear()."""
    (dx, dz), (g, kept, w), (rows, n_out, n_in, reads) = outs, ins, consts
    dz[...] = as_read(g if F is None else F(g, kept), reads)
    dx[...] = (dz.reshape(rows, n_out) @ as_read(w, reads).reshape(n_out, n_in)).reshape(-1)


def as_read(x, reads):
    """x as a product reads it that takes operands of this type."""
    return x.astype(reads, copy=False).astype(x.dtype, copy=False)


@kernel
def linear_dw(F, outs, ins, consts):
    """dw (n_out, n_in) = g.T @ x, db = column sums of g; add_w, add_b: on top of what is there."""
    (dw, db), (g, x), (rows, n_out, n_in, add_w, add_b) = outs, ins, consts
    put(dw, (matrix(g, 0, n_out, rows, True) @ x.reshape(rows, n_in)).reshape(-1), add_w)
    put(db, total_of(g.reshape(rows, n_out), 0), add_b)


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
        put(y, total.reshape(-1), add)


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
    numbers = jitted(function, dtype, ON_ARRAYS)(blocks, seed, stream, step)[:per_block]
    return np.stack(numbers, axis=1).reshape(-1)[skip : skip + out.size]


@kernel
def philox_uniform(F, outs, ins, consts):
    """Numbers in [low, high)."""
    (out,), (key,), (low, high) = outs, ins, consts
    u = drawn(philox.uniforms, out, 16 // out.itemsize, out.dtype, key)
    out[...] = jitted(philox.between, out.dtype, ON_ARRAYS)(u, out.dtype.type(low), out.dtype.type(high))


@kernel
def philox_normal(F, outs, ins, consts):
    """Normal numbers of that mean and standard deviation."""
    (out,), (key,), (mean, std) = outs, ins, consts
    out[...] = mean + std * drawn(philox.normals, out, 16 // out.itemsize, out.dtype, key)


@kernel
def philox_dropout(F, outs, ins, consts):
    """mask: which elements are kept, each with probability 1 - p; out = x * scale where kept, else 0."""
    (out, mask), (x, key), (p, scale) = outs, ins, consts
    words = drawn(philox.words_at, out, 4, x.dtype, key)
    mask[...] = jitted(philox.unit24, x.dtype, ON_ARRAYS)(words) >= p
    out[...] = np.where(mask, x * scale, 0)
