"""Diagonals taken out of matrices and put into them; ones at the places that ids name. Strided reads and writes."""

from __future__ import annotations

from typing import Any

from ..backend.formula.row_words import lane, lanes
from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.op import launch, like
from ..core.ops.axes import composed, one_axis
from ..core.ops.copy import cast
from ..core.ops.indexing import check_ids
from ..core.ops.reduce import reduction, spread, sum_of
from ..core.ops.shape import contiguous_strides, reshape
from ..core.tensor import Tensor
from ..dtypes import FLOATS, INTEGERS, bool_, checked_int, int64
from .rearranging import strided, unstrided


def two_axes(name: str, axis1: Any, axis2: Any, ndim: int) -> tuple[int, int]:
    if ndim < 2:
        raise ShapeError(f"{name}: needs a matrix: {ndim} axes. Pass a tensor of two or more.")
    a, b = one_axis(name, axis1, ndim), one_axis(name, axis2, ndim)
    if a == b:
        raise ShapeError(f"{name}: the two axes are one: {axis1} and {axis2} of {ndim}. Name two different ones.")
    return a, b


@composed
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonal of the matrices along two axes, as a new last axis; offset above 0: one further right, below 0: further down.
    Shapes: (n, m, ...) gives (..., k), k the elements of that diagonal. Raises ShapeError.
    >>> fp.diagonal(fp.tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]"""
    x = Tensor.of("diagonal", x)
    return strided(x, *places_of("diagonal", x.shape, offset, axis1, axis2))


def places_of(name: str, given: tuple[int, ...], offset: int, axis1: int, axis2: int) -> tuple[Any, ...]:
    """(shape, strides, base) of a diagonal as strided() takes them."""
    a, b = two_axes(name, axis1, axis2, len(given))
    offset, strides = checked_int(name, "offset", offset), contiguous_strides(given)
    k = max(0, min(given[a] + min(offset, 0), given[b] - max(offset, 0)))
    rest = [d for d in range(len(given)) if d not in (a, b)]
    base = offset * strides[b] if offset > 0 else -offset * strides[a]
    return (*[given[d] for d in rest], k), (*[strides[d] for d in rest], strides[a] + strides[b]), base if k else 0


FEW = 64  # numbers that one lane adds up


def few_row(r, y, x, n, step, base, rows, cols):
    if lane() == 0:
        total = x[base]
        for i in range(1, n):
            total += x[base + i * step]
        y[0] = total


@custom(inputs=1, kind="as is", title="trace", internal=True)
def strided_sum(x, shape=(), strides=(), base=0):
    """The sum of strided() over its last axis."""
    if len(shape) == 1 and 0 < shape[0] <= FEW and x.dtype in FLOATS:
        y = like(x, ())
        launch("row", few_row, (y,), (x,), (*shape, *strides, base, 1, 1))
        return y
    return sum_of(strided.body(x, shape, strides, base), reduction("sum", shape, -1, False))


@strided_sum.differentiable
def strided_sum_dx(g, shapes, shape, strides, base):
    return unstrided(spread(g, shape, -1, False), shapes[0], strides, base)


@composed
def diag_embed(x: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Matrices of zeros with the last axis of x on their diagonal, or beside it by `offset`; they lie along two axes of the result.
    Shapes: (..., n) gives (..., n + |offset|, n + |offset|). Raises ShapeError.
    >>> fp.diag_embed(fp.tensor([1, 2])).tolist()
    [[1, 0], [0, 2]]"""
    x = Tensor.of("diag_embed", x)
    if not x.ndim:
        raise ShapeError("diag_embed: no axis to put on a diagonal: shape (). Pass a tensor of one axis or more.")
    a, b = two_axes("diag_embed", axis1, axis2, x.ndim + 1)
    offset = checked_int("diag_embed", "offset", offset)
    sizes, n = iter(x.shape[:-1]), x.shape[-1] + abs(offset)
    shape = tuple([n if d in (a, b) else next(sizes) for d in range(x.ndim + 1)])
    strides = contiguous_strides(shape)
    rest = [strides[d] for d in range(x.ndim + 1) if d not in (a, b)]
    return unstrided(x, shape, (*rest, strides[a] + strides[b]), offset * strides[b] if offset > 0 else -offset * strides[a])


@composed
def diag(x: Any, k: int = 0) -> Any:
    """A vector as the k-th diagonal of a matrix of zeros, or that diagonal of a matrix. Shapes: (n,) gives (n + |k|, n + |k|). Raises
    ShapeError for other numbers of axes.
    >>> fp.diag(fp.tensor([1, 2])).tolist()
    [[1, 0], [0, 2]]"""
    x = Tensor.of("diag", x)
    if x.ndim not in (1, 2):
        raise ShapeError(f"diag: neither a vector nor a matrix: shape {x.shape}. Use diagonal() or diag_embed() for stacks.")
    return diag_embed(x, k) if x.ndim == 1 else diagonal(x, k)


@composed
def diagflat(x: Any, k: int = 0) -> Any:
    """All elements of x as the k-th diagonal of a matrix of zeros. Shapes: n elements give (n + |k|, n + |k|).
    >>> fp.diagflat(fp.tensor([[1], [2]])).tolist()
    [[1, 0], [0, 2]]"""
    x = Tensor.of("diagflat", x)
    return diag_embed(reshape(x, (x.size,)), k)


@composed
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The sum of the diagonal(). Shapes: (n, m, ...) gives (...). Raises ShapeError.
    >>> fp.trace(fp.tensor([[1.0, 2.0], [3.0, 4.0]])).item()
    5.0"""
    x = Tensor.of("trace", x)
    return strided_sum(x, *places_of("diagonal", x.shape, offset, axis1, axis2))


# ---- ones at places --------------------------------------------------------------------------------------------------------------
def one_row(r, y, ids, rows, cols):
    for j in range(lane(), cols, lanes()):
        y[r * cols + j] = ids[r] == j


@custom(inputs=1, kind="as is", title="one_hot", internal=True)
def ones_at(ids, n=0):
    wide = ids if ids.dtype == int64 else cast(ids, int64)
    check_ids(wide, 0, n, f"one_hot: id out of range: {{}} at position {{}}, there are {n} classes. Use 0 to {n - 1}.")
    y = like(ids, (*ids.shape, n), bool_ if ids.dtype.itemsize == 2 else ids.dtype)  # kernels take 16 bits for floats
    if y.size:
        launch("row", one_row, (y,), (wide,), (ids.size, n))
    return y if y.dtype == ids.dtype else cast(y, ids.dtype)


@composed(home="both")
def one_hot(ids: Any, num_classes: int | None = None) -> Any:
    """For each id a row of zeros with a one at its place, of the ids' type. Without num_classes there are as many as the largest id asks
    for, which the host has to read. Shapes: any; the result has one axis more. Raises DTypeError, IndexOutOfRange, ValueError.
    >>> fp.one_hot(fp.tensor([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]"""
    ids = Tensor.of("one_hot", ids)
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"one_hot: ids are not integer: {ids.dtype}. Cast them to int64.")
    if num_classes is None:
        if not ids.size:
            raise ValueError("one_hot: no ids that could say how many classes there are: num_classes=None. Give a number.")
        return one_hot(ids, max(0, int(ids.numpy().max()) + 1))
    n = checked_int("one_hot", "num_classes", num_classes)
    if n < 0:
        raise ValueError(f"one_hot: a negative number of classes: {n}. Leave it out to have it found.")
    return ones_at(ids, n)
