"""Matrix products: matmul and linear. Loops in backend/cpu/matmul.py; the arithmetic is a single-threaded BLAS on tiles.

May import: errors, backend, op. FLAME counterpart: `flame_core::ops::gemm`. Read next: rows.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from .. import op, ops
from ..backend.base import FLOATS
from ..backend.plans import tiles
from ..errors import DTypeError, ShapeError
from ..op import composed, launch, like, size_of
from ..op_custom import custom


@custom(inputs=2, home="")
def product(a, b, ta=False, tb=False):
    """op(a) @ op(b) over the last two axes, other axes broadcasting; ta, tb: use the matrix transposed."""
    m, k = a.shape[-2:] if not ta else a.shape[:-3:-1]
    n = b.shape[-2] if tb else b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = like(a, (*batch, m, n))
    if y.size:
        count = size_of(batch)
        offsets = a.device.table(offsets_of(a.shape, batch)), a.device.table(offsets_of(b.shape, batch))
        sizes = (count, 1, m, n, k, bool(ta), bool(tb), False, *tiles(m, n, count))
        launch("matmul", None, (y,), (a, b, a), (*offsets, *sizes), work=flops(count * m * n, k))
    return y


def flops(results: int, inner: int) -> int:
    """Work of a product in elements of a map: a BLAS does some 16 multiplications in the time a map takes for one element."""
    return results * (inner + 15) // 16


@lru_cache(4096)
def offsets_of(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    """Where each matrix of the broadcast stack begins."""
    own = np.arange(size_of(shape[:-2])).reshape(shape[:-2]) * size_of(shape[-2:])
    return tuple(np.broadcast_to(own, batch).ravel().tolist())


@product.backward
def product_dx(g, a, b, wanted, ta, tb):
    p = op.REGISTRY["product"]
    da = None if not wanted[0] else p(b, g, tb, True) if ta else p(g, b, False, not tb)
    db = None if not wanted[1] else p(g, a, True, ta) if tb else p(a, g, not ta, False)
    return da, db


product.differentiable()


@composed
def matmul(a: Any, b: Any) -> Any:
    """a @ b: vectors, matrices, and stacks of matrices that broadcast. Raises ShapeError, DTypeError for integers."""
    a, b = op.Tensor.of("matmul", a), op.Tensor.of("matmul", b)
    for x in (a, b):
        if x.dtype not in FLOATS:
            raise DTypeError(f"matmul: needs floats: {x.dtype}. Cast with .to(flamepy.float32).")
        if not x.ndim:
            raise ShapeError(f"matmul: needs at least one axis: {a.shape} and {b.shape}. Use * for scalars.")
    inner = b.shape[0] if b.ndim == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        hint = "Multiply by w.T." if b.ndim > 1 and b.shape[-1] == a.shape[-1] else "Make x's last size equal to w's next to last."
        raise ShapeError(f"matmul: inner sizes differ: x is {a.shape}, w is {b.shape}. {hint}")
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul: stacks do not broadcast: {a.shape} and {b.shape}. Make the leading sizes equal or 1.") from None
    rows = a.shape[:-1] if b.ndim <= 2 else a.shape[:-2] if a.ndim == 1 else None
    left = ops.reshape(a, (1, -1) if a.size else (1, a.shape[0])) if a.ndim == 1 else a
    right = ops.reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    if right.ndim == 2 and left.ndim > 2:  # one weight for all: a single product of many rows
        left = ops.reshape(left, (size_of(left.shape[:-1]), left.shape[-1]))
    y = op.REGISTRY["product"](left, right)
    columns = () if b.ndim == 1 else (b.shape[-1],)
    if b.ndim <= 2:
        return ops.reshape(y, (*(rows or ()), *columns)) if y.shape != (*(rows or ()), *columns) else y
    return ops.reshape(y, (*y.shape[:-2], y.shape[-1])) if a.ndim == 1 else y


@custom(inputs=3, home="functional")
def linear(x, weight, bias=None):
    """x @ weight.T + bias: x (..., n_in), weight (n_out, n_in), bias (n_out) or None."""
    if weight.ndim != 2 or not x.ndim or x.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        given = "" if bias is None else f", bias is {bias.shape}"
        advice = "Use x (..., n_in), weight (n_out, n_in), bias (n_out,)."
        raise ShapeError(f"linear: sizes differ: x is {x.shape}, weight is {weight.shape}{given}. {advice}")
    n_out, n_in = weight.shape
    y = like(x, (*x.shape[:-1], n_out))
    if y.size:
        rows = size_of(x.shape[:-1])
        start = x.device.table((0,))
        sizes = (1, 1, rows, n_out, n_in, False, True, bias is not None, *tiles(rows, n_out))
        launch("matmul", None, (y,), (x, weight, x if bias is None else bias), (start, start, *sizes), work=flops(rows * n_out, n_in))
    return y


@linear.backward
def linear_dx(g, x, weight, bias, wanted):
    rows = size_of(x.shape[:-1])
    n_out, n_in = weight.shape
    g2 = ops.reshape(g, (rows, n_out))
    dx = ops.reshape(op.REGISTRY["product"](g2, weight), x.shape) if wanted[0] else None
    if not (wanted[1] or wanted[2]):
        return dx, None, None
    dw, db = like(weight), like(weight, (n_out,))
    if not rows:
        return dx, ops.filled(dw.shape, 0, dw.dtype, dw.device), ops.filled(db.shape, 0, db.dtype, db.device) if wanted[2] else None
    if dw.size or wanted[2]:
        sizes = (rows, n_out, n_in, wanted[2], *tiles(n_out, n_in))
        launch("linear_dw", None, (dw, db), (g2, x), sizes, work=flops(rows * n_out, n_in))
    return dx, dw, db if wanted[2] else None


@linear.graph
def linear_ddx(g, x, weight, wanted):
    rows = size_of(x.shape[:-1])
    g2, x2 = ops.reshape(g, (rows, weight.shape[0])), ops.reshape(x, (rows, weight.shape[1]))
    dx = ops.reshape(ops.matmul(g2, weight), x.shape)
    dw = op.REGISTRY["product"](g2, x2, True, False)
    return dx, dw, ops.sum(g2, axis=0) if wanted[2] else None
