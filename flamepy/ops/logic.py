"""Yes or no, one number at a time: logical_and, _or and _not, isnan, isinf and isfinite. Of bools nothing is recorded."""

from __future__ import annotations

import math
from typing import Any

from ..core.dtypes import bool_
from ..core.ops.axes import composed, tensors_of
from ..core.ops.pointwise import abs_op, eq, lt, ne
from ..core.pointwise import define

logical_and = define("logical_and", "Both hold.", lambda a, b: (a != 0) & (b != 0), kind="any", out=bool_)
logical_or = define("logical_or", "At least one holds.", lambda a, b: (a != 0) | (b != 0), kind="any", out=bool_)
logical_not = define("logical_not", "x does not hold.", lambda x: x == 0, kind="any", out=bool_)


@composed
def isnan(x: Any) -> Any:
    """Whether each number is NaN. Shapes: any to the same.
    >>> fp.isnan(fp.tensor([1.0, float("nan")])).tolist()
    [False, True]"""
    (x,) = tensors_of("isnan", x)
    return ne(x, x)


@composed
def isinf(x: Any) -> Any:
    """Whether each number is infinite, of either sign. Shapes: any to the same.
    >>> fp.isinf(fp.tensor([1.0, -float("inf")])).tolist()
    [False, True]"""
    (x,) = tensors_of("isinf", x)
    return eq(abs_op(x.detach()), math.inf)


@composed
def isfinite(x: Any) -> Any:
    """Whether each number is neither NaN nor infinite. Shapes: any to the same.
    >>> fp.isfinite(fp.tensor([1.0, float("nan"), float("inf")])).tolist()
    [True, False, False]"""
    (x,) = tensors_of("isfinite", x)
    return lt(abs_op(x.detach()), math.inf)
