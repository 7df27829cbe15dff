"""Variance and standard deviation: two passes, and what rounding cut off the mean taken out again.

In float32 the mean of numbers around 10^6 is off by a few hundredths. The mean of the deviations says by how much; without it the
variance would be too large by its square.

FLAME counterpart: `flame_core::ops::reduce`. Read next: shape.py.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..backend.formula.words import INF, maximum, select
from ..op.base import composed, size_of
from ..op.custom import custom
from ..op.pointwise import pointwise
from .reduce import Axis, axes_of, floats_only, fold, gathered, reduction, spread


def squared(x):
    return x * x


@custom(inputs=1, title="var", internal=True)
def sum_squares(x, axis=None, keepdims=False):
    """Sum of x * x over the axes."""
    plan = reduction("var", x.shape, axis, keepdims)
    if x.size == 0:
        return ops.filled(plan.shape, 0, x.dtype, x.device)
    return fold("fold_sum", squared, gathered(x, plan), plan, 1)


@sum_squares.backward
def sum_squares_dx(g, x, axis, keepdims):
    return ops.mul(x, spread(ops.mul(g, 2.0), x.shape, axis, keepdims))


sum_squares.differentiable()


def variance_y(squares, rest, share=1.0, less=1.0):
    """share * squares - less * rest^2, but never negative, and no infinity minus another."""
    return select(squares < INF, maximum(share * squares - less * (rest * rest), 0.0), squares)


def variance_dsquares(g, share):
    return g * share


variance = pointwise("variance", variance_y, variance_dsquares, None, title="var")


@composed
def var(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Variance over the axes: sum of squared deviations / (n - correction). Accurate far from zero too.

    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.var(fp.tensor([1.0, 3.0])).item()
    1.0
    """
    x = floats_only("var", x)
    axes = axes_of("var", axis, x.ndim)
    count = size_of([x.shape[a] for a in axes if x.ndim])
    deviations = ops.sub(x, ops.mean(x, axis=axes, keepdims=True))
    squares = sum_squares(deviations, axes, keepdims)
    divisor = count - correction if count > correction else 0
    if not divisor:
        return ops.div(squares, 0.0)
    rest = ops.mean(deviations.detach(), axis=axes, keepdims=keepdims)
    return variance(squares, rest, share=1 / divisor, less=count / divisor)


@composed
def std(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Square root of var(); its gradient where the variance is zero is zero.

    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.std(fp.tensor([1.0, 3.0])).item()
    1.0
    """
    v = var(x, axis, correction, keepdims)
    flat = ops.eq(v, 0.0)
    return ops.where(flat, 0.0, ops.sqrt(ops.where(flat, 1.0, v)))
