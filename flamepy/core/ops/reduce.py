"""Reductions: sum, mean, max, min; what is made of them is in reduce_more.py and variance.py.

Each sees its input as (outer, n, inner) with the reduced axes in the middle; axes that are not neighbours are reduced one after
the other. Sums run in chunks of a length that follows from the sizes, so the bits do not depend on threads.
`axis` is None (all), an int or a tuple; `()` reduces nothing.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..custom import custom
from ..door import Door
from ..dtypes import FLOATS, INTEGERS, as_dtype, bool_, computed, int64
from ..errors import DTypeError, ShapeError
from ..op import launch, like, share
from ..pointwise import apply
from .axes import axes_of, kept_shape, squeezed_shape
from .copy import cast, filled
from .pointwise import div, eq, mul
from .shape import broadcast_to, permute, reshape, view


class Reduction(NamedTuple):
    """A reduction over some axes, seen as (outer, n, inner) with those axes in the middle."""

    shape: tuple[int, ...]  # of the result
    axes: tuple[int, ...]
    order: tuple[int, ...] | None  # the permutation that brings the axes together, where they are not neighbours
    outer: int
    n: int
    inner: int


def reduction(name: str, shape: tuple[int, ...], axis: Any, keepdims: bool) -> Reduction:
    axes, order = axes_of(name, axis, len(shape)), None
    result, given = squeezed_shape(shape, axes, keepdims), axes
    if axes and axes[-1] - axes[0] + 1 != len(axes):
        order = (*[d for d in range(len(shape)) if d not in axes], *axes)
        shape = tuple([shape[d] for d in order])
        axes = tuple(range(len(shape) - len(axes), len(shape)))
    first, last = (axes[0], axes[-1] + 1) if axes else (len(shape), len(shape))
    return Reduction(result, given, order, math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:]))


def gathered(x: Any, plan: Reduction) -> Any:
    """x with the reduced axes together."""
    return x if plan.order is None else permute(x, plan.order)


def same(x):
    return x


def fold(loop: str, formula: Any, x: Any, plan: Reduction, scale: Any, dtype: Any = None) -> Any:
    """The reduced Tensor, of x's dtype unless another is given; of no elements 0."""
    dtype = dtype or x.dtype
    if x.size == 0:
        return filled(plan.shape, 0, dtype, x.device)
    if plan.order is not None:  # the last axes that are neighbours, then the rest: nothing is moved
        last = tuple([a for i, a in enumerate(plan.axes, 1 - len(plan.axes)) if a - i == plan.axes[-1]])
        x = fold(loop, formula, x, reduction(loop, x.shape, last, True), scale if scale < 0 else 1, computed(dtype))
        rest = reduction(loop, x.shape, plan.axes[: -len(last)], True)
        return fold(loop, formula and same, x, rest._replace(shape=plan.shape), scale, dtype)
    y = like(x, plan.shape, dtype)
    inside = int64 if dtype == int64 else x.dtype
    launch(loop, formula, (y,), (x,), (plan.outer, plan.n, plan.inner, computed(inside).type(scale)), dtype=inside)
    return y


def countable(x: Any) -> Any:
    """Bools and 32-bit ints are summed in int64."""
    return cast(x, int64) if x.dtype == bool_ or (x.dtype in INTEGERS and x.dtype != int64) else x


def inverted(x):
    """Of integers: the smallest becomes the largest, also where -x does not fit."""
    return ~x


def upside_down(x: Any) -> Any:
    return apply("min", inverted, (x,), (), x.dtype, x.dtype)


@custom(kind="any", home="flamepy")
def sum(x, axis=None, keepdims=False, dtype=None):
    """Sum over the axes, in another dtype if one is given.
    Shapes: x any; the result is without the axes, or has 1 there with keepdims. Bools and int32 are summed in int64.
    >>> fp.sum(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0).tolist()
    [4.0, 6.0]"""
    y = sum_of(x if dtype is None else in_type(x, dtype), reduction("sum", x.shape, axis, keepdims))
    return y if dtype is None else in_type(y, dtype)


def in_type(x: Any, dtype: Any) -> Any:
    """x as another dtype, if it is one."""
    return x if as_dtype(dtype) == x.dtype else cast(x, dtype)


def sum_of(x: Any, plan: Reduction, scale: float = 1) -> Any:
    return fold("fold_sum", same, x if x.dtype in FLOATS else countable(x), plan, scale)


@sum.differentiable
def sum_dx(g, shapes, source, axis, keepdims, dtype):
    return spread(g if dtype is None else in_type(g, computed(source)), shapes[0], axis, keepdims)


def spread(g: Any, shape: tuple[int, ...], axis: Any, keepdims: bool) -> Any:
    """A reduced cotangent repeated to the shape before the reduction."""
    kept = kept_shape(shape, axes_of("sum", axis, len(shape)))
    g = g if g.shape == kept else Door.call(view, (g,), {"shape": kept})
    return g if kept == shape else broadcast_to(g, shape)


@custom(home="flamepy")
def mean(x, axis=None, keepdims=False, dtype=None):
    """Mean over the axes (integers give float32), in another dtype if one is given; NaN for no elements.
    Shapes: as sum. Raises IndexOutOfRange for an axis that x does not have.
    >>> fp.mean(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [1.5, 3.5]"""
    plan, x = reduction("mean", x.shape, axis, keepdims), x if dtype is None else in_type(x, dtype)
    if x.dtype not in FLOATS:
        raise DTypeError(f"mean: no type of floats: {x.dtype}. Use flamepy.float32.")
    if plan.n == 0:
        return filled(plan.shape, float("nan"), x.dtype, x.device)
    return sum_of(x, plan, 1 / plan.n)


@mean.differentiable
def mean_dx(g, shapes, source, axis, keepdims, dtype):
    g = g if dtype is None else in_type(g, computed(source))
    count = reduction("mean", shapes[0], axis, keepdims).n
    return spread(mul(g, 1 / (count or 1)), shapes[0], axis, keepdims)


@custom(inputs=1, kind="any", title="sum", internal=True)
def sum_to(x, shape=()):
    """Undo broadcasting: sum x down to `shape`."""
    extra = x.ndim - len(shape)
    axes = tuple([d for d in range(x.ndim) if d < extra or (shape[d - extra] == 1 and x.shape[d] != 1)])
    return share(sum_of(x, reduction("sum", x.shape, axes, True)), shape)


sum_to.differentiable(lambda g, shapes: broadcast_to(g, shapes[0]))


def extreme(name: str, x: Any, axis: Any, keepdims: bool, scale: int) -> Any:
    plan = reduction(name, x.shape, axis, keepdims)
    if plan.n == 0 and 0 not in plan.shape:
        raise ShapeError(f"{name}: no elements to choose from: shape {x.shape}, axis {axis}. Give the axis at least one element.")
    if x.dtype == bool_:
        return cast(extreme(name, cast(x, int64), axis, keepdims, scale), bool_)
    if scale < 0 and x.dtype in INTEGERS:
        return upside_down(extreme(name, upside_down(x), axis, keepdims, 1))
    return fold("fold_max", None, x, plan, scale)


def extreme_dx(g, x, y, axis, keepdims):
    """The cotangent shared equally by all elements that reach the extreme. None equals NaN: then it is 0 times g / 0 for each, NaN."""
    axes = axes_of("max", axis, x.ndim)
    kept = kept_shape(x.shape, axes)
    y, g = reshape(y.detach(), kept), reshape(g, kept)
    hit = cast(eq(x.detach(), y), g.dtype)
    return mul(hit, div(g, sum(hit, axis=axes, keepdims=True)))


@custom(kind="any", home="flamepy")
def max(x, axis=None, keepdims=False):
    """Largest element over the axes; NaN wins. Ties share the gradient equally; where NaN wins all gradients are NaN.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.max(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [2.0, 4.0]"""
    return extreme("max", x, axis, keepdims, 1)


@custom(kind="any", home="flamepy")
def min(x, axis=None, keepdims=False):
    """Smallest element over the axes; NaN wins. Ties share the gradient equally; where NaN wins all gradients are NaN.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.min(fp.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=1).tolist()
    [1.0, 3.0]"""
    return extreme("min", x, axis, keepdims, -1)


for _op in (max, min):
    _op.differentiable(extreme_dx)
