"""Norms of vectors and matrices, condition numbers. The gradient where a norm is zero is zero."""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import ShapeError
from ..core.ops.axes import axes_of, composed
from ..core.ops.pointwise import abs_op, div, mul
from ..core.ops.reduce import max as max_op
from ..core.ops.reduce import min as min_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..dtypes import is_number
from ..ops.rearranging import moveaxis
from ..ops.reduce_more import floats_only
from ..ops.reductions import vector_norm as any_norm
from .factors import svdvals
from .host import matrices
from .solving import inv


@composed(home="")
def vector_norm(x: Any, ord: float = 2, axis: Any = None, keepdims: bool = False) -> Any:
    """(sum |x|^ord)^(1 / ord) over the axes, or all; ord inf: the largest |x|, -inf: the smallest, 0: how many are not zero. Shapes: as
    sum. Raises ValueError for an ord that is no number.
    >>> fp.linalg.vector_norm(fp.tensor([3.0, 4.0])).item()
    5.0"""
    x = floats_only("vector_norm", x)
    if not is_number(ord):
        raise ValueError(f"vector_norm: no such norm: {ord!r}. Use a number, or infinity.")
    return any_norm(x, ord, axis, bool(keepdims))


@composed(home="")
def matrix_norm(x: Any, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False) -> Any:
    """The norm of matrices: "fro" (root of the squares), "nuc" (sum of singular values), 2 and -2 (largest, smallest), 1 and -1 (sums of
    columns), inf and -inf (sums of rows). Shapes: as sum over the two axes. Raises ShapeError, ValueError.
    >>> fp.linalg.matrix_norm(fp.tensor([[3.0, 0.0], [0.0, 4.0]]), 2).item()
    4.0"""
    x = floats_only("matrix_norm", x)
    axes = axes_of("matrix_norm", axis, x.ndim)
    if len(axes) != 2:
        raise ShapeError(f"matrix_norm: not two axes: {axis} of shape {x.shape}. Name those of the matrices.")
    rows, columns = [int(a) % x.ndim for a in axis] if isinstance(axis, tuple | list) else axes
    if ord == "fro":
        y = vector_norm(x, 2, axes)
    elif ord in ("nuc", 2, -2):
        s = svdvals(moveaxis(x, (rows, columns), (-2, -1)))
        y = sum_op(s, axis=-1) if ord == "nuc" else (max_op if ord == 2 else min_op)(s, axis=-1)
    elif ord in (1, -1, math.inf, -math.inf):
        sums = sum_op(abs_op(x), axis=rows if abs(ord) == 1 else columns, keepdims=True)
        y = (max_op if ord > 0 else min_op)(sums, axis=axes)
    else:
        raise ValueError(f"matrix_norm: no such norm: {ord!r}. Use 'fro', 'nuc', 2, -2, 1, -1, inf or -inf.")
    return reshape(y, tuple([1 if d in axes else n for d, n in enumerate(x.shape)])) if keepdims else y


@composed(home="")
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """vector_norm() or matrix_norm(), as NumPy chooses: without ord and axis the root of all squares; along two axes, or of a matrix with
    an ord, that of matrices. Shapes: as sum. Raises ShapeError, ValueError.
    >>> fp.linalg.norm(fp.tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    5.0"""
    x = floats_only("norm", x)
    if axis is None and ord is not None and x.ndim not in (1, 2):
        raise ShapeError(f"norm: ord without axis takes a vector or matrix: shape {x.shape}. Name one axis, or two.")
    pair = len(axis) == 2 if isinstance(axis, tuple | list) else axis is None and x.ndim == 2 and ord is not None
    if pair:
        return matrix_norm(x, "fro" if ord is None else ord, (-2, -1) if axis is None else axis, keepdims)
    return vector_norm(x, 2 if ord is None else ord, axis, keepdims)


@composed(home="")
def cond(x: Any, p: Any = None) -> Any:
    """The condition number: the norm of x times that of its inverse; without p the largest by the smallest singular value. Shapes:
    (..., m, n) gives (...). Raises ShapeError, LinAlgError.
    >>> fp.linalg.cond(fp.tensor([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0"""
    x = matrices("cond", x)
    if p is None or p in (2, -2):
        s = svdvals(x)
        y = div(max_op(s, axis=-1), min_op(s, axis=-1))
        return div(1.0, y) if p == -2 else y
    return mul(matrix_norm(x, p), matrix_norm(inv(x), p))
