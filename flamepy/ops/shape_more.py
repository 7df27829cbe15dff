"""Shape ops made of core's: axes merged, added and taken away, parts of an axis, triangles."""

from __future__ import annotations

import math
from typing import Any

from ..core.custom import custom
from ..core.errors import IndexOutOfRange, ShapeError
from ..core.op import launch, like
from ..core.ops.axes import axes_of, composed, one_axis, titled
from ..core.ops.shape import broadcast_to, reshape, sliced
from ..core.tensor import Tensor
from ..dtypes import checked_int


def shaped(x: Any, shape: tuple[int, ...]) -> Any:
    """x, if it has this shape; else reshaped."""
    return x if x.shape == shape else reshape(x, shape)


@composed
def flatten(x: Any, start_axis: int = 0, end_axis: int = -1) -> Any:
    """Merge the axes from start_axis to end_axis into one. Shapes: (a, b, c) gives (a * b * c,). Raises ShapeError.
    >>> fp.flatten(fp.ones(2, 3, 4), start_axis=1).shape
    (2, 12)"""
    x = Tensor.of("flatten", x)
    first, last = one_axis("flatten", start_axis, x.ndim), one_axis("flatten", end_axis, x.ndim)
    if first > last:
        raise ShapeError(f"flatten: start after end: {start_axis}, {end_axis}. Give axes in order.")
    return reshape(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@composed
def squeeze(x: Any, axis: Any = None) -> Any:
    """Without axes of size 1: all of them, or the ones named (which must have size 1). Shapes: (n, 1) gives (n,).
    >>> fp.squeeze(fp.ones(2, 1, 3)).shape
    (2, 3)"""
    x = Tensor.of("squeeze", x)
    if axis is None:
        axes = tuple([d for d, n in enumerate(x.shape) if n == 1])
    else:
        axes = axes_of("squeeze", axis, x.ndim)
        if any([x.ndim and x.shape[a] != 1 for a in axes]):
            raise ShapeError(f"squeeze: axis {axis} does not have size 1: shape {x.shape}. Name axes of size 1.")
    return reshape(x, tuple([n for d, n in enumerate(x.shape) if d not in axes]))


@composed
def unsqueeze(x: Any, axis: int) -> Any:
    """A new axis of size 1 at `axis` of the result. Shapes: (n,) gives (1, n) or (n, 1).
    >>> fp.unsqueeze(fp.ones(3), -1).shape
    (3, 1)"""
    x = Tensor.of("unsqueeze", x)
    a = one_axis("unsqueeze", axis, x.ndim + 1)
    return reshape(x, (*x.shape[:a], 1, *x.shape[a:]))


@composed
def expand(x: Any, shape: Any, *rest: int) -> Any:
    """broadcast_to(). Shapes: as there.
    >>> fp.expand(fp.tensor([[1], [2]]), -1, 2).tolist()
    [[1, 1], [2, 2]]"""
    return broadcast_to(x, shape, *rest)


narrowing = titled(sliced, "narrow")


@composed
def narrow(x: Any, axis: int, start: int, length: int) -> Any:
    """`length` elements of one axis, from `start`. Shapes: x's with `length` at that axis. Raises IndexOutOfRange.
    >>> fp.narrow(fp.tensor([1, 2, 3, 4]), 0, 1, 2).tolist()
    [2, 3]"""
    x = Tensor.of("narrow", x)
    a = one_axis("narrow", axis, x.ndim)
    n, start, length = x.shape[a] if x.ndim else 0, checked_int("narrow", "start", start), checked_int("narrow", "length", length)
    first = start + n if start < 0 else start
    if length < 0 or first < 0 or first + length > n:
        raise IndexOutOfRange(f"narrow: out of range: start {start}, length {length}, axis {axis} has {n}. Stay inside the axis.")
    if length == n:
        return x
    starts, sizes = [0] * x.ndim, list(x.shape)
    starts[a], sizes[a] = first, length
    return narrowing(x, tuple(starts), (1,) * x.ndim, tuple(sizes), tuple(sizes))


def triangle(name: str, x: Any, diagonal: int, upper: bool) -> Any:
    if x.ndim < 2:
        raise ShapeError(f"{name}: needs a matrix: shape {x.shape}. Give it two axes or more.")
    y, (rows, cols) = like(x), x.shape[-2:]
    if x.size:  # diagonals farther off are as the last ones, and would run over
        launch("tri", None, (y,), (x,), (rows, cols, max(-rows, min(cols, checked_int(name, "diagonal", diagonal))), upper))
    return y


@custom(inputs=1, kind="as is", home="flamepy")
def tril(x, diagonal=0):
    """The matrix on and below the diagonal, zeros above. Shapes: (..., n, m), else ShapeError; the result has x's.
    >>> fp.tril(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 0], [3, 4]]"""
    return triangle("tril", x, diagonal, False)


tril.differentiable(lambda g, diagonal: tril(g, diagonal))


@custom(inputs=1, kind="as is", home="flamepy")
def triu(x, diagonal=0):
    """The matrix on and above the diagonal, zeros below. Shapes: (..., n, m), else ShapeError; the result has x's.
    >>> fp.triu(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 2], [0, 4]]"""
    return triangle("triu", x, diagonal, True)


triu.differentiable(lambda g, diagonal: triu(g, diagonal))
