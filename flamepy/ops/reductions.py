"""More reductions: any, all and how many; products; norms; means of what is not NaN; two at once."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ..core.custom import custom
from ..core.op import share
from ..core.ops.axes import Axis, axes_of, composed
from ..core.ops.copy import cast, filled
from ..core.ops.pointwise import abs_op, add, div, eq, maximum_op, mul, ne, where
from ..core.ops.reduce import countable, extreme, extreme_dx, fold, gathered, in_type, max, min, reduction, spread, sum
from ..core.ops.shape import reshape
from ..core.pointwise import define
from ..core.tensor import Tensor
from ..core.words import abs, select
from ..core.words import pow as power
from ..dtypes import FLOATS, as_dtype, checked_number, float32, int64
from .powers import pow
from .reduce_more import floats_only
from .scans import recurrence, shifted
from .variance import lengths, moments_of, regained
from .widening import narrowed, widened


# ---- any, all, how many --------------------------------------------------------------------------------------------------------------
def not_zero(x):
    return x != 0


@custom(kind="as is", home="flamepy")
def count_nonzero(x, axis=None, keepdims=False):
    """How many elements over the axes are not zero (int64; NaN is not). Records nothing.
    Shapes: as sum.
    >>> fp.count_nonzero(fp.tensor([1.0, 0.0, 2.0])).item()
    2"""
    return fold("fold_sum", not_zero, x, reduction("count_nonzero", x.shape, axis, keepdims), 1, int64)


@composed
def any(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether an element over the axes is not zero (bool); of none: False.
    Shapes: as sum.
    >>> fp.any(fp.tensor([[True, False], [False, False]]), axis=1).tolist()
    [True, False]"""
    return ne(count_nonzero(x, axis, keepdims), 0)


@composed
def all(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Whether every element over the axes is not zero (bool); of none: True.
    Shapes: as sum.
    >>> fp.all(fp.tensor([[True, False], [True, True]]), axis=1).tolist()
    [False, True]"""
    x = Tensor.of("all", x)
    return eq(count_nonzero(x, axis, keepdims), reduction("all", x.shape, axis, keepdims).n)


# ---- products ------------------------------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", title="prod", internal=True)
def axes_prod(x, axis=None, keepdims=False):
    plan = reduction("prod", x.shape, axis, keepdims)
    if not plan.n:
        return filled(plan.shape, 1, x.dtype, x.device)
    return fold("fold_prod", None, gathered(x, plan), plan._replace(order=None), 1)


@axes_prod.differentiable
def axes_prod_dx(g, x, axis, keepdims):
    """A long line is taken as columns, which are gone through side by side."""
    plan = reduction("prod", x.shape, axis, keepdims)
    outer, n, inner = plan.outer, plan.n, plan.inner
    side = math.gcd(n, 1 << n.bit_length() // 2) if n >= LONG and inner == 1 else 1
    rows = reshape(gathered(widened(x), plan), (outer, side, n // side) if side > 1 else (outer, n, inner))
    g = reshape(g, (outer, 1, inner))
    if side > 1:
        g = mul(g, reshape(others(reshape(axes_prod(rows, (1,)), (outer, n // side, 1))), (outer, 1, n // side)))
    return regained(mul(others(rows), g), x.shape, plan)


LONG = 256  # numbers of a line that is taken as columns, at least


def others(rows):
    """For each number along axis 1 the product of those before it and of those behind it."""
    before, behind = [shifted(recurrence(rows, None, 1, reverse, 1), 1, reverse, 1) for reverse in (False, True)]
    return mul(before, behind)


@composed
def prod(x: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Product over the axes, in another dtype if one is given. The gradient of an element is the product of the others, without a
    division: zeros and higher derivatives are right, and so is an element that is NaN.
    Shapes and types: as sum.
    >>> fp.prod(fp.tensor([2.0, 3.0, 4.0])).item()
    24.0"""
    x = Tensor.of("prod", x)
    x = in_type(x, dtype) if dtype is not None else countable(x)
    return axes_prod(x, axes_of("prod", axis, x.ndim), bool(keepdims))


# ---- extremes ------------------------------------------------------------------------------------------------------------------------
@composed
def amax(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """max(): the values alone, as NumPy's and PyTorch's amax. Ties share the gradient equally.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.amax(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [2.0, 4.0]"""
    return max(x, axis, keepdims)


@composed
def amin(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """min(): the values alone, as NumPy's and PyTorch's amin. Ties share the gradient equally.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.amin(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [1.0, 3.0]"""
    return min(x, axis, keepdims)


class Extremes(NamedTuple):
    """The least and the largest number."""

    min: Any
    max: Any


@custom(inputs=1, kind="any", title="aminmax", internal=True)
def extremes(x, axis=None, keepdims=False):
    low, high = extreme("min", x, axis, keepdims, -1), extreme("max", x, axis, keepdims, 1)
    return (low, high), {"low": share(low, low.shape), "high": share(high, high.shape)}


@extremes.differentiable
def extremes_dx(gs, x, low, high, axis, keepdims):
    found = [extreme_dx(g, x, y, axis, keepdims) for g, y in zip(gs, (low, high), strict=True) if g is not None]
    return found[0] if len(found) == 1 else add(*found)


@composed
def aminmax(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """(min, max) over the axes.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> [t.item() for t in fp.aminmax(fp.tensor([2.0, 1.0, 3.0]))]
    [1.0, 3.0]"""
    return Extremes(*extremes(Tensor.of("aminmax", x), axis, bool(keepdims)))


# ---- norms ---------------------------------------------------------------------------------------------------------------------------
@composed
def vector_norm(x: Any, ord: float = 2, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """(sum of |x|^ord)^(1 / ord) over the axes; inf: the largest |x|, -inf: the smallest, 0: how many are not zero. Its gradient at zero
    vectors is zero.
    Shapes: as sum. dtype: the type to cast to before. Integers give float32. Raises DTypeError for an order that is no number.
    >>> fp.vector_norm(fp.tensor([3.0, 4.0])).item()
    5.0"""
    x, ord = Tensor.of("vector_norm", x), checked_number("vector_norm", "ord", ord)
    x = floats_only("vector_norm", in_type(x, dtype)) if dtype is not None else x if x.dtype in FLOATS else cast(x, float32)
    axes, keepdims, wide = axes_of("vector_norm", axis, x.ndim), bool(keepdims), widened(x)
    if ord == 2:
        return lengths(x, axes, keepdims)
    if math.isinf(ord):
        y = (max if ord > 0 else min)(abs_op(wide), axes, keepdims)
    elif ord == 0:
        y = sum(where(eq(wide, wide), abs_op(wide), 1.0).sign(), axes, keepdims)
    else:
        y = sum(abs_op(wide), axes, keepdims) if ord == 1 else power_norm(wide, ord, axes, keepdims)
    return narrowed(y, x.dtype)


slope = define(
    "slope", "x * |x|^(ord - 2), and 0 at 0.",
    lambda x, ord=1.0: select(x == 0.0, 0.0, x * power(select(x == 0.0, 1.0, abs(x)), ord - 2.0)),
    lambda g, x, ord: select(x == 0.0, 0.0, g * (ord - 1.0) * power(select(x == 0.0, 1.0, abs(x)), ord - 2.0)), title="norm", home="",
)  # fmt: skip
signed_square = define("signed_square", "x * |x|.", lambda x: x * abs(x), lambda g, x: 2.0 * g * abs(x), title="norm", home="")


def cubed(x):
    return abs(x * x * x)


@custom(inputs=1, title="norm", internal=True)
def power_norm(x, ord=3.0, axis=None, keepdims=False):
    if ord == 3.0:
        total = fold("fold_sum", cubed, x, reduction("norm", x.shape, axis, keepdims), 1)
    else:
        total = sum(pow(abs_op(x), ord), axis, keepdims)
    return pow(total, 1.0 / ord)


@power_norm.differentiable
def power_norm_dx(g, x, y, ord, axis, keepdims):
    none = eq(y, 0.0)
    scale = where(none, 0.0, mul(g, pow(where(none, 1.0, y), 1.0 - ord)))
    return mul(signed_square(x) if ord == 3.0 else slope(x, ord=ord), spread(scale, x.shape, axis, keepdims))


@composed
def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False, dtype: Any = None, p: Any = None) -> Any:
    """vector_norm(), as PyTorch's norm: ord (or p) 2 or "fro", any number, inf. flamepy.linalg.norm has matrix norms.
    Shapes: as sum. Raises ValueError for "nuc", which is a matrix norm.
    >>> fp.norm(fp.tensor([[3.0, 4.0], [0.0, 0.0]]), axis=1).tolist()
    [5.0, 0.0]"""
    if ord is not None and p is not None:
        raise ValueError(f"norm: two orders: ord={ord!r}, p={p!r}. Give one of them.")
    ord = p if ord is None else ord
    if isinstance(ord, str) and ord != "fro":
        raise ValueError(f"norm: a norm of matrices, or none: {ord!r}. Use 'fro', a number, or flamepy.linalg.norm.")
    return vector_norm(x, 2 if ord in (None, "fro") else ord, axis, keepdims, dtype)


@composed(home="both")
def normalize(x: Any, p: float = 2.0, axis: Any = 1, eps: float = 1e-12) -> Any:
    """x divided by its norm along an axis, or by eps where that is larger.
    Shapes: x's. Raises IndexOutOfRange for an axis that x does not have.
    >>> F.normalize(fp.tensor([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]"""
    given = floats_only("normalize", x)
    x = widened(given)
    return narrowed(div(x, maximum_op(vector_norm(x, p, axis, True), checked_number("normalize", "eps", eps))), given.dtype)


# ---- two at once, and what is not NaN ------------------------------------------------------------------------------------------------
@composed
def var_mean(x: Any, axis: Axis = None, correction: float = 1, keepdims: bool = False) -> Any:
    """(variance, mean) over the axes. The default correction is PyTorch's, 1 (that of var() is 0, as NumPy's).
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> [t.item() for t in fp.var_mean(fp.tensor([1.0, 3.0]))]
    [2.0, 2.0]"""
    return moments_of("var", x, axis, correction, keepdims, False, True)


@composed
def std_mean(x: Any, axis: Axis = None, correction: float = 1, keepdims: bool = False) -> Any:
    """(standard deviation, mean) over the axes. The default correction is PyTorch's, 1 (that of std() is 0, as NumPy's).
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> [t.item() for t in fp.std_mean(fp.tensor([1.0, 3.0]), correction=0)]
    [1.0, 2.0]"""
    return moments_of("std", x, axis, correction, keepdims, True, True)


def present(x):
    return select(x == x, x, 0.0)


@custom(inputs=1, title="nansum", internal=True)
def present_sum(x, axis=None, keepdims=False):
    """The sum over the axes of what is not NaN."""
    return fold("fold_sum", present, x, reduction("sum", x.shape, axis, keepdims), 1)


@present_sum.differentiable
def present_sum_dx(g, x, axis, keepdims):
    return where(eq(x.detach(), x.detach()), spread(g, x.shape, axis, keepdims), 0.0)


@composed
def nansum(x: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """sum() of the numbers that are not NaN.
    Shapes: as sum.
    >>> fp.nansum(fp.tensor([1.0, float("nan"), 2.0])).item()
    3.0"""
    x = Tensor.of("nansum", x)
    if x.dtype in FLOATS and (dtype is None or as_dtype(dtype) in FLOATS):
        return present_sum(x if dtype is None else in_type(x, dtype), axes_of("sum", axis, x.ndim), bool(keepdims))
    return sum(where(ne(x.detach(), x.detach()), 0, x) if x.dtype in FLOATS else x, axis=axis, keepdims=keepdims, dtype=dtype)


@composed
def nanmean(x: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """mean() of the numbers that are not NaN; NaN where there are none.
    Shapes: as sum.
    >>> fp.nanmean(fp.tensor([1.0, float("nan"), 2.0])).item()
    1.5"""
    x = Tensor.of("nanmean", x)
    x = floats_only("nanmean", in_type(x, dtype)) if dtype is not None else x if x.dtype in FLOATS else cast(x, float32)
    wide, there = widened(x), eq(x.detach(), x.detach())
    total = present_sum(wide, axes_of("sum", axis, x.ndim), bool(keepdims))
    return narrowed(div(total, cast(count_nonzero(there, axis, keepdims), wide.dtype)), x.dtype)
