"""Sums of products in one call (lerp, addcmul, addcdiv), and other libraries' names of what is there."""

from __future__ import annotations

import inspect
from typing import Any

from ..core.op import HOMES, PUBLIC, SCALARS, publish
from ..core.ops import pointwise
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.pointwise import define, pass_g
from ..core.words import abs, select
from ..dtypes import float64
from . import activations, bits, joining, rounding, stacking, trigonometry, vectors  # noqa: F401  (what gets other names here)
from .powers import pow

lerp = define(
    "lerp", "a + weight * (b - a), exact at both ends.",
    lambda a, b, weight: select(abs(weight) < 0.5, a + weight * (b - a), b - (b - a) * (1.0 - weight)),
    lambda g, weight: g * (1.0 - weight), lambda g, weight: g * weight, lambda g, a, b: g * (b - a),
)  # fmt: skip
define(
    "addcmul", "x + value * a * b.", lambda x, a, b, value=1.0: x + value * a * b,
    pass_g, lambda g, b, value: g * (value * b), lambda g, a, value: g * (value * a),
)  # fmt: skip
define(
    "addcdiv", "x + value * a / b.", lambda x, a, b, value=1.0: x + value * (a / b),
    pass_g, lambda g, b, value: g * (value / b), lambda g, a, b, value: -g * (value * (a / b) / b),
)  # fmt: skip


for _function in (pointwise.add, pointwise.sub):  # see SCALED in habits.py
    _taken: Any = _function.__signature__
    _alpha = inspect.Parameter("alpha", inspect.Parameter.KEYWORD_ONLY, default=1.0)
    _function.__signature__ = _taken.replace(parameters=[*_taken.parameters.values(), _alpha])


@composed
def rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """b - alpha * a. Shapes and types: as sub.
    >>> fp.rsub(fp.tensor([1.0, 2.0]), 10.0).tolist()
    [9.0, 8.0]"""
    return pointwise.sub(b, a) if alpha == 1 else pointwise.sub(b, a, alpha=alpha)


@composed
def positive(x: Any) -> Any:
    """x itself. Shapes: any.
    >>> fp.positive(fp.tensor([-1.0])).tolist()
    [-1.0]"""
    return tensors_of("positive", x)[0]


@composed
def float_power(a: Any, b: Any) -> Any:
    """a to the power b, computed in float64, whatever their types.
    Shapes: those of a and b broadcast.
    >>> fp.float_power(fp.tensor([2, 3]), -1).numpy().round(4).tolist()
    [0.5, 0.3333]"""
    a, b = [x if isinstance(x, SCALARS) else cast(x, float64) for x in (a, b)]
    return pow(a, b)


OTHER_NAMES = """absolute=abs negative=neg multiply=mul subtract=sub divide=div true_divide=div greater=gt greater_equal=ge less=lt
    less_equal=le not_equal=ne arcsin=asin arccos=acos arctan=atan arctan2=atan2 arcsinh=asinh arccosh=acosh arctanh=atanh fix=trunc
    sgn=sign clip=clamp swish=silu bitwise_invert=bitwise_not lshift=bitwise_left_shift rshift=bitwise_right_shift
    concat=cat concatenate=cat row_stack=vstack ger=outer"""
for _name, _own in [pair.split("=") for pair in OTHER_NAMES.split()]:
    publish(_name, PUBLIC[_own], HOMES[_own])
