"""Matrix products: one of matrices or of stacks of them, and matmul made of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..custom import custom
from ..dtypes import FLOATS
from ..errors import DTypeError, ShapeError
from ..op import launch, like
from ..tensor import Tensor
from .axes import composed, tensors_of
from .copy import cast
from .pointwise import add, mul
from .reduce import sum as sum_op
from .shape import reshape

MOST = 1 << 22


@custom(inputs=2, title="matmul", internal=True)
def product(a, b, ta=False, tb=False):
    """op(a) @ op(b), stacks broadcasting; ta, tb: use the matrix transposed. A vector is a row or column, whose axis of 1 goes."""
    return multiplied(a, b, ta, tb, a.dtype)


def multiplied(a: Any, b: Any, ta: bool, tb: bool, dtype: np.dtype) -> Any:
    """The unrecorded product, of this type."""
    m, k = (1, a.size) if a.ndim == 1 else a.shape[-2:] if not ta else a.shape[:-3:-1]
    n = 1 if b.ndim == 1 else b.shape[-2] if tb else b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = like(a, (*batch, *(m,) * (a.ndim > 1), *(n,) * (b.ndim > 1)), dtype)
    if y.size:
        launch("matmul", None, (y,), (a, b), (starts(a.shape, batch), starts(b.shape, batch), m, n, k, bool(ta), bool(tb)))
    return y


def starts(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    """Where each matrix of the broadcast stack begins."""
    return tuple(np.broadcast_to(np.arange(math.prod(shape[:-2])).reshape(shape[:-2]) * math.prod(shape[-2:]), batch).ravel().tolist())


product.differentiable(lambda g, a, b, wanted, shapes, ta, tb: cotangents(product, g, a, b, wanted, shapes, ta, tb))


def cotangents(times: Any, g: Any, a: Any, b: Any, wanted: Any, shapes: Any, ta: bool, tb: bool) -> tuple[Any, Any]:
    """Those of a and b, by products of which times() is one."""
    rows, columns = [len(s) == 1 for s in shapes]
    if rows or columns:
        g = reshape(g, (*g.shape[: g.ndim - 1 + columns], *(1,) * rows, *g.shape[g.ndim - 1 + columns :], *(1,) * columns))
        a, b = [x if x is None or x.ndim > 1 else reshape(x, s) for x, s in ((a, (1, *shapes[0])), (b, (*shapes[1], 1)))]
    da = None if not wanted[0] else times(b, g, tb, True) if ta else times(g, b, False, not tb)
    db = None if not wanted[1] else times(g, a, True, ta) if tb else times(a, g, not ta, False)
    alone = rows and da is not None and da.ndim == 2  # else one of each matrix of a stack, to be added up
    return reshape(da, shapes[0]) if alone else da, reshape(db, shapes[1]) if columns and db is not None else db


@composed
def matmul(a: Any, b: Any) -> Any:
    """a @ b: vectors, matrices, and stacks of matrices that broadcast. Raises ShapeError, DTypeError for integers beside floats. Integers
    wrap around, as in NumPy; of truths it says whether any two are true.
    Shapes: (..., n, k) and (..., k, m) give (..., n, m); a vector (k,) stands for a row or a column and goes.
    >>> fp.matmul(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), [1.0, 1.0]).tolist()
    [3.0, 7.0]"""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        a, b = tensors_of("matmul", a, b)
    for x in (a, b):
        if x.dtype not in FLOATS and (a.dtype in FLOATS or b.dtype in FLOATS):
            raise DTypeError(f"matmul: integers beside floats: {a.dtype} and {b.dtype}. Cast one with .to(flamepy.float32).")
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
    return stacked(a, b)


def stacked(a: Any, b: Any) -> Any:
    """The product of any operands that fit together. One weight for all makes it a single product of many rows."""
    x = reshape(a, (math.prod(a.shape[:-1]), a.shape[-1])) if b.ndim <= 2 < a.ndim else a
    if x.dtype in FLOATS:
        y = product(x, b, False, False)
    else:
        y = whole_product(x, reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b)
        y = cast(y, x.dtype) if x.dtype == b.dtype else y  # truths, too
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))
    return y if y.shape == shape else reshape(y, shape)


def whole_product(a: Any, b: Any) -> Any:
    """The product of integers, modulo 2 ** bits: what is multiplied first and then summed takes no more memory than MOST numbers, or one
    for each result."""
    k = a.shape[-1]
    if k > 1 and a.size * b.shape[-1] * math.prod(b.shape[:-2]) > MOST:
        left, right = [(a[..., part], b[..., part, :]) for part in (slice(k // 2), slice(k // 2, None))]
        return add(whole_product(*left), whole_product(*right))
    y = mul(a[..., None], b[..., None, :, :])
    return cast(sum_op(y, axis=-2), y.dtype)
