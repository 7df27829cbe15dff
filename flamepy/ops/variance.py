"""Variance and standard deviation: two passes, and what rounding cut off the mean taken out again.

In float32 the mean of numbers around 10^6 is off by a few hundredths. The mean of the deviations says by how much; without it the
variance would be too large by its square. Squares are taken in float64: 10^20 and 10^-25 are float32 numbers, their squares are not.
"""

from __future__ import annotations

import math
from typing import Any

from ml_dtypes import finfo

from ..backend.formula.row_words import wide
from ..core.custom import custom
from ..core.ops.axes import Axis, axes_of, composed
from ..core.ops.copy import cast, filled
from ..core.ops.pointwise import div, mul, sub
from ..core.ops.reduce import fold, gathered, mean, reduction, spread
from ..core.pointwise import define, pointwise
from ..core.words import INF, select, sqrt
from ..dtypes import checked_number, float64
from .reduce_more import floats_only
from .widening import widened


def squared(x):
    return wide(x) * wide(x)


@custom(inputs=1, title="var", internal=True)
def sum_squares(x, axis=None, keepdims=False):
    """Sum of x * x over the axes, in float64."""
    plan = reduction("var", x.shape, axis, keepdims)
    if x.size == 0:
        return filled(plan.shape, 0, float64, x.device)
    return fold("fold_sum", squared, gathered(x, plan), plan, 1, float64)


@sum_squares.differentiable
def sum_squares_dx(g, x, axis, keepdims):
    wide = x.spec.computed
    x = x if x.dtype == wide else cast(x, wide)
    return mul(x, spread(cast(mul(g, 2.0), wide), x.shape, axis, keepdims))


def variance_y(squares, rest, share=1.0, less=1.0, noise=0.0):
    """share * squares - less * rest^2, but no infinity minus another. What is left by rounding alone, because all numbers are equal,
    is zero."""
    v = share * squares - less * (rest * rest)
    return select(squares < INF, select(v > noise * (share * squares), v, 0.0), squares)


def variance_dsquares(g, share):
    return g * share


variance = pointwise("variance", variance_y, variance_dsquares, None, title="var")
root = define(
    "root", "Square root, whose derivative at 0 is 0.", lambda v: sqrt(v),
    lambda g, y: select(y > 0.0, g * 0.5 / select(y > 0.0, y, 1.0), 0.0), title="std", home="",
)  # fmt: skip


def wide_variance(x: Any, axis: Axis, correction: float, keepdims: bool) -> Any:
    """var() of floats, in float64."""
    x, axes = widened(x), axes_of("var", axis, x.ndim)
    count = math.prod([x.shape[a] for a in axes if x.ndim])
    deviations = sub(x, mean(x, axis=axes, keepdims=True))
    squares = sum_squares(deviations, axes, keepdims)
    correction = checked_number("var", "correction", int(correction) if isinstance(correction, bool) else correction)
    divisor = count - correction if count > correction else 0
    if not divisor:
        return div(squares, 0.0)
    rest = cast(mean(deviations.detach(), axis=axes, keepdims=keepdims), float64)
    return variance(squares, rest, share=1 / divisor, less=count / divisor, noise=2 * float(finfo(x.dtype).eps))


@composed
def var(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Variance over the axes: sum of squared deviations / (n - correction). Accurate far from zero too.

    The default is NumPy's and the array API's; PyTorch's is correction=1, which unbiased=True is another name of.
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.var(fp.tensor([1.0, 3.0])).item()
    1.0
    """
    x = floats_only("var", x)
    return cast(wide_variance(x, axis, correction, keepdims), x.dtype)


@composed
def std(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Square root of var(); its gradient where the variance is zero is zero.

    Right also where the variance itself would be too large or too small for the type. The default is NumPy's and the array API's;
    PyTorch's is correction=1.

    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.std(fp.tensor([1.0, 3.0])).item()
    1.0
    """
    x = floats_only("std", x)
    return cast(root(wide_variance(x, axis, correction, keepdims)), x.dtype)
