"""Reductions made of others: argmax, argmin, logsumexp; and what PyTorch's max and min give beside the values."""

from __future__ import annotations

import functools
import math
from typing import Any

from ..core.custom import custom
from ..core.errors import DTypeError, FlameError, ShapeError
from ..core.op import launch, like, publish
from ..core.ops.axes import Axis, axes_of, composed, one_axis
from ..core.ops.copy import cast
from ..core.ops.pointwise import abs_op, add, eq, exp_op, log_op, mul, sub, where
from ..core.ops.reduce import gathered, max, min, reduction, sum, upside_down
from ..core.ops.shape import reshape
from ..core.tensor import Tensor
from ..dtypes import FLOATS, INTEGERS, bool_, int64
from ..engine.spread import RULES
from .widening import narrowed, widened

PAIRS = """\
The values alone: {0} gives the indices. PyTorch's {1}(1) and {1}(dim=1) give pairs, so what these give here cannot be taken apart
like one (FlameError); what {1}(axis=1) gives can."""
INDICES = {name: f"{at}()" for name, at in {"max": "argmax", "min": "argmin", "median": "kthvalue", "nanmedian": "kthvalue"}.items()}


def no_pair(name: str, function: Any) -> Any:
    """Publish a function, and return what is published: what it gives where PyTorch's would give (values, indices) is marked, so that
    `_, ids = x.max(1)` of two rows and x.max(1)[0] do not silently take rows of the values."""

    @functools.wraps(function)
    def marking(*args: Any, **options: Any) -> Any:
        y = function(*args, **options)
        if hasattr(options.get("dim", args[1] if len(args) > 1 else None), "__index__"):
            y.no_pair = name
        return y

    marking.__doc__ = function.__doc__.replace("\nShapes:", f"\n{PAIRS.format(INDICES[name], name)}\nShapes:")
    publish(name, marking, "flamepy")
    return marking


def taken_apart(x: Any) -> FlameError:
    """The error for who takes what max(), min() or median() gave for a pair, as in `values, ids = x.max(1)` or x.max(1)[0]."""
    name = x.no_pair
    return FlameError(
        f"{name}: taken apart as a pair of values and indices: shape {x.shape}, the values alone. Use {INDICES[name]} for the indices; "
        f"{name}(axis=...) gives values that can be gone through one by one."
    )


no_pair("max", max.function)
no_pair("min", min.function)


# ---- what backward sends back for a sum and a mean: see spread.py ------------------------------------------------------------------
def sum_back(g: Any, shape: tuple[int, ...], axis: Axis, keepdims: bool, dtype: None = None) -> Any:
    return reshape(g, reduction("sum", shape, axis, True).shape)


def mean_back(g: Any, shape: tuple[int, ...], axis: Axis, keepdims: bool, dtype: None = None) -> Any:
    return sum_back(mul(g, 1 / reduction("mean", shape, axis, True).n), shape, axis, keepdims)


RULES.update(sum=sum_back, mean=mean_back)


def arg_extreme(name: str, x: Any, axis: int | None, keepdims: bool, scale: int) -> Any:
    axes = None if axis is None else (one_axis(name, axis, x.ndim),) if x.ndim else ()
    plan = reduction(name, x.shape, axes, keepdims)
    if plan.n == 0 and 0 not in plan.shape:
        raise ShapeError(f"{name}: no elements to choose from: shape {x.shape}, axis {axis}. Give the axis at least one element.")
    y = like(x, plan.shape, int64)
    if y.size:
        if x.dtype == bool_:
            x = cast(x, int64)
        if scale < 0 and x.dtype in INTEGERS:
            x, scale = upside_down(x), 1
        consts = (plan.outer, plan.n, plan.inner, x.spec.computed.type(scale))
        launch("argmax", None, (y,), (gathered(x, plan),), consts, dtype=x.dtype)
    return y


@custom(kind="any", home="flamepy")
def argmax(x, axis=None, keepdims=False):
    """Index of the first largest element (int64) along an axis, or in the flattened tensor. Records nothing.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.argmax(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [1, 0]"""
    return arg_extreme("argmax", x, axis, keepdims, 1)


@custom(kind="any", home="flamepy")
def argmin(x, axis=None, keepdims=False):
    """Index of the first smallest element (int64) along an axis, or in the flattened tensor. Records nothing.
    Shapes: as sum. Raises ShapeError where there are no elements.
    >>> fp.argmin(fp.tensor([[1.0, 2.0], [4.0, 3.0]]), axis=1).tolist()
    [0, 1]"""
    return arg_extreme("argmin", x, axis, keepdims, -1)


# ---- composed ---------------------------------------------------------------------------------------------------------------
def floats_only(name: str, x: Any) -> Any:
    x = Tensor.of(name, x)
    if x.dtype not in FLOATS:
        raise DTypeError(f"{name}: needs floats: {x.dtype}. Cast with .to(flamepy.float32).")
    return x


@composed
def logsumexp(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) over the axes, without overflow.
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> round(fp.logsumexp(fp.tensor([0.0, 0.0])).item(), 4)
    0.6931"""
    given = floats_only("logsumexp", x)
    x = widened(given)
    axes = axes_of("logsumexp", axis, x.ndim)
    if math.prod([x.shape[a] for a in axes if x.ndim]) == 0:
        return narrowed(sub(sum(x, axis=axes, keepdims=keepdims), float("inf")), given.dtype)  # log(0) has an infinite slope
    top = max(x.detach(), axis=axes, keepdims=True)
    top = where(eq(abs_op(top), float("inf")), 0.0, top)
    total = log_op(sum(exp_op(sub(x, top)), axis=axes, keepdims=keepdims))
    return narrowed(add(total, reshape(top, total.shape)), given.dtype)
