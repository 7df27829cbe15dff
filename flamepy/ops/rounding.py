"""Whole numbers and limits, one number at a time: floor, ceil, round, a // b and what it leaves, clamp."""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import ceil, floor
from ..core.errors import DTypeError
from ..core.op import SCALARS
from ..core.ops.axes import composed
from ..core.ops.pointwise import maximum_op, minimum_op
from ..core.pointwise import pass_g, pointwise, zero
from ..core.tensor import Tensor
from ..core.words import INF, maximum, minimum, rint, select


def floor_y(x):
    """Largest integer not above x. Records a zero gradient."""
    return floor(x)


def ceil_y(x):
    """Smallest integer not below x. Records a zero gradient."""
    return ceil(x)


def round_y(x):
    """Nearest integer, halves to even. Records a zero gradient."""
    return rint(x)


def floor_divide_y(a, b):
    """The largest whole number not above a / b, as Python's and NumPy's a // b. It jumps and has no derivative: a tracked input raises."""
    return a // b


def remainder_y(a, b):
    """a - (a // b) * b, with the sign of b, as Python's and NumPy's a % b; the gradient takes a // b for constant, as in PyTorch."""
    return a % b


def remainder_db(g, a, b, y):
    return -g * rint((a - y) / b)


def clip_y(x, low=-INF, high=INF):
    """x limited to [low, high]; the gradient passes at the bounds. NaN stays NaN and gets the gradient 0, as in PyTorch."""
    return minimum(maximum(x, low), high)


def clip_dx(g, x, low, high):
    return select((x >= low) & (x <= high), g, 0.0)


for _formula in (floor_y, ceil_y, round_y):
    pointwise(_formula.__name__[:-2], _formula, zero, kind="number", home="flamepy")
pointwise("floor_divide", floor_divide_y, kind="number", home="flamepy")
pointwise("remainder", remainder_y, pass_g, remainder_db, kind="number", home="flamepy")
clip = pointwise("clip", clip_y, clip_dx, title="clamp")


@composed
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """x limited to [min, max] (numbers; None is no limit). The gradient passes at the bounds; NaN stays NaN.

    The gradient at NaN is 0, as in PyTorch.
    Shapes: any; the result has that of x. Types: floats and integers. Raises DTypeError for bounds that are no numbers.
    >>> fp.clamp(fp.tensor([-2.0, 0.5, 9.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    for bound in (min, max):
        if bound is not None and not isinstance(bound, SCALARS):
            raise DTypeError(f"clamp: bounds must be numbers: {type(bound).__name__}. Use maximum() and minimum() for tensors.")
    if isinstance(x, Tensor) and x.dtype.kind in "iub":
        x = x if min is None else maximum_op(x, min)
        return x if max is None else minimum_op(x, max)
    return clip(x, low=float("-inf") if min is None else min, high=float("inf") if max is None else max)
