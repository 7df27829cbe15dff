"""Whole numbers and limits, one number at a time: floor, ceil, round, a // b and what it leaves, clamp."""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import ceil, floor
from ..core.errors import DTypeError
from ..core.op import SCALARS
from ..core.ops.axes import composed
from ..core.ops.pointwise import maximum_op, minimum_op
from ..core.pointwise import define, pass_g, zero
from ..core.tensor import Tensor
from ..core.words import INF, maximum, minimum, rint, select

define("floor", "Largest integer not above x. Records a zero gradient.", lambda x: floor(x), zero, kind="number")
define("ceil", "Smallest integer not below x. Records a zero gradient.", lambda x: ceil(x), zero, kind="number")
define("round", "Nearest integer, halves to even. Records a zero gradient.", lambda x: rint(x), zero, kind="number")
define(
    "floor_divide",
    "The largest whole number not above a / b, as Python's and NumPy's a // b. It jumps and has no derivative: a tracked input raises.",
    lambda a, b: a // b, kind="number",
)  # fmt: skip
define(
    "remainder",
    "a - (a // b) * b, with the sign of b, as Python's and NumPy's a % b; the gradient takes a // b for constant, as in PyTorch.",
    lambda a, b: a % b, pass_g, lambda g, a, b, y: -g * rint((a - y) / b), kind="number",
)  # fmt: skip
clip = define(
    "clip", "x limited to [low, high]; the gradient passes at the bounds. NaN stays NaN and gets the gradient 0, as in PyTorch.",
    lambda x, low=-INF, high=INF: minimum(maximum(x, low), high),
    lambda g, x, low, high: select((x >= low) & (x <= high), g, 0.0), title="clamp", home="",
)  # fmt: skip


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
