"""Whole numbers and limits, one number at a time: floor, ceil, round, trunc, a // b and what it leaves, div with rounding, clamp."""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import ceil, floor
from ..core.errors import ArgumentError
from ..core.op import SCALARS
from ..core.ops import pointwise
from ..core.ops.axes import composed, tensors_of
from ..core.ops.pointwise import maximum_op, minimum_op
from ..core.pointwise import define, pass_g, zero
from ..core.tensor import Tensor
from ..core.words import INF, abs, maximum, minimum, rint, select
from ..dtypes import FLOATS, checked_int
from .powers import is_whole


def trunc_of(x):
    return select(x < 0, ceil(x), floor(x))


def floor_divide_y(a, b):
    return a // b


def remainder_y(a, b):
    return a % b


def fmod_y(a, b):
    p, s = abs(a), abs(b)  # of the least integer, which has no other sign, it is that integer
    r = p % s
    return select(a < 0, -1, 1) * select(r == 0, r, select(p < 0, s - r, select(s < 0, r - s, r)))


# A device may have a faster way for those of most floats under these names.
floor_divide_y.near, remainder_y.near, fmod_y.near = "floor_divide", "remainder", "fmod"  # type: ignore[attr-defined]

define("floor", "Largest integer not above x. Records a zero gradient.", lambda x: floor(x), zero, kind="number")
define("ceil", "Smallest integer not below x. Records a zero gradient.", lambda x: ceil(x), zero, kind="number")
rounded = define("round", "Nearest integer, halves to even.", lambda x: rint(x), zero, kind="number", home="")
rounded_at = define(
    "rounded_at", "The nearest multiple of over / times, one of which is 1.",
    lambda x, times=1.0, over=1.0: rint(x * times / over) / times * over, zero, title="round", home="",
)  # fmt: skip
rounded_whole = define(
    "rounded_whole", "The nearest multiple of unit to a whole number, halves to the even one.",
    lambda x, unit=10: unit * (x // unit + select((2 * (x % unit) > unit) | ((2 * (x % unit) == unit) & (x // unit % 2 == 1)), 1, 0)),
    kind="number", title="round", home="",
)  # fmt: skip
define("trunc", "The whole number next to x towards 0. Records a zero gradient.", lambda x: trunc_of(x), zero, kind="number")
define("frac", "x - trunc(x), with the sign of x.", lambda x: x - trunc_of(x), pass_g)
define(
    "floor_divide",
    "The largest whole number not above a / b, as Python's and NumPy's a // b. It jumps and has no derivative: a tracked input raises.",
    floor_divide_y, kind="number",
)  # fmt: skip
define(
    "remainder",
    "a - (a // b) * b, with the sign of b, as Python's and NumPy's a % b; the gradient takes a // b for constant, as in PyTorch.",
    remainder_y, pass_g, lambda g, a, b, y: -g * rint((a - y) / b), kind="number",
)  # fmt: skip
define(
    "fmod",
    "a - trunc(a / b) * b, with the sign of a, as C's fmod; the gradient takes trunc(a / b) for constant, as in PyTorch.",
    fmod_y, pass_g, lambda g, a, b: -g * trunc_of(a / b), kind="number",
)  # fmt: skip
div_floor = define("div_floor", "floor(a / b).", floor_divide_y, zero, zero, kind="number", title="div", home="")
div_trunc = define("div_trunc", "trunc(a / b).", lambda a, b: trunc_of(a / b), zero, zero, title="div", home="")
div_trunc_whole = define(
    "div_trunc_whole", "a / b of integers without what is behind the point.",
    lambda a, b: a // b + select(((a < 0) != (b < 0)) & (a % b != 0), 1, 0), kind="number", title="div", home="",
)  # fmt: skip
bounded = define(
    "bounded", "x limited to [low, high]; bounds that x crosses get its gradient.",
    lambda x, low, high: minimum(maximum(x, low), high), lambda g, x, low, high: select((x >= low) & (x <= high), g, 0.0),
    lambda g, x, low, high: select((x < low) & (low < high), g, 0.0),
    lambda g, x, low, high: select((x > high) | (high < low), g, 0.0), title="clamp", home="",
)  # fmt: skip
clip = define(
    "clip", "x limited to [low, high]; the gradient passes at the bounds. NaN stays NaN and gets the gradient 0, as in PyTorch.",
    lambda x, low=-INF, high=INF: minimum(maximum(x, low), high),
    lambda g, x, low, high: select((x >= low) & (x <= high), g, 0.0), title="clamp", home="",
)  # fmt: skip


@composed
def round(x: Any, decimals: int = 0) -> Any:
    """The nearest whole number, halves to the even one; with decimals the nearest one with so many digits behind the point.
    Records a zero gradient.
    Shapes: any; the result has that of x. Types: floats and integers. Raises DTypeError for others.
    >>> fp.round(fp.tensor([0.52, 2.46]), decimals=1).tolist()
    [0.5, 2.5]"""
    n = checked_int("round", "decimals", decimals)
    if n == 0:
        return rounded(x)
    (x,) = tensors_of("round", x)
    if x.dtype not in FLOATS:
        return rounded(x) if n > 0 else rounded_whole(x, unit=10**-n)
    return rounded_at(x, times=10.0 ** maximum(n, 0), over=10.0 ** maximum(-n, 0))


@composed
def div(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """a / b (integers give float32), or its whole part: rounding_mode "trunc" rounds towards 0 and "floor" down; integers stay integers.
    A rounded quotient records a zero gradient.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types, ValueError for another mode.
    >>> fp.div(fp.tensor([7.0, -7.0]), 2.0, rounding_mode="trunc").tolist()
    [3.0, -3.0]"""
    if rounding_mode is None:
        return pointwise.div(a, b)
    if rounding_mode not in ("trunc", "floor"):
        raise ArgumentError(f"div: unknown rounding mode: {rounding_mode!r}. Use None, 'trunc' or 'floor'.")
    if rounding_mode == "floor":
        return div_floor(a, b)
    return div_trunc_whole(a, b) if is_whole(a) and is_whole(b) else div_trunc(a, b)


@composed
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    """x limited to [min, max] (numbers or tensors; None is no limit, one of them has to be there). The gradient passes at the bounds.
    NaN stays NaN; its gradient is 0, as in PyTorch. A tensor as bound gets the gradient where x lies beyond it.
    Shapes: those of x and the bounds broadcast. Types: floats and integers. Raises DTypeError for bounds that are no numbers.
    >>> fp.clamp(fp.tensor([-2.0, 0.5, 9.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]"""
    if min is None and max is None:
        raise ArgumentError("clamp: no bound: min=None, max=None. Give one of them.")
    numbers = all([bound is None or isinstance(bound, SCALARS) for bound in (min, max)])
    if not numbers or (isinstance(x, Tensor) and x.dtype.kind in "iub"):
        if numbers or not isinstance(x, Tensor) or x.dtype not in FLOATS:
            x = x if min is None else maximum_op(x, min)
            return x if max is None else minimum_op(x, max)
        return bounded(x, float("-inf") if min is None else min, float("inf") if max is None else max)
    return clip(x, low=float("-inf") if min is None else min, high=float("inf") if max is None else max)
