"""Yes or no, one number at a time: logical_and, _or, _xor and _not, isnan, isinf, isfinite, isclose, signbit. Of bools nothing is
recorded. Beside them what depends on such an answer: nan_to_num, heaviside."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from ..backend.formula.words import copysign
from ..core.changes import heard
from ..core.dtypes import bool_
from ..core.ops.axes import composed, tensors_of
from ..core.ops.pointwise import abs_op, eq, lt, ne
from ..core.pointwise import define, zero
from ..core.tensor import Tensor
from ..core.words import INF, abs, select
from ..dtypes import FLOATS, float64

FEW = 256  # numbers that are compared on the host

logical_and = define("logical_and", "Both hold.", lambda a, b: (a != 0) & (b != 0), kind="any", out=bool_)
logical_or = define("logical_or", "At least one holds.", lambda a, b: (a != 0) | (b != 0), kind="any", out=bool_)
logical_xor = define("logical_xor", "Exactly one holds.", lambda a, b: (a != 0) != (b != 0), kind="any", out=bool_)
logical_not = define("logical_not", "x does not hold.", lambda x: x == 0, kind="any", out=bool_)
signbit_op = define("signbit_op", "x < 0, or -0.0.", lambda x: copysign(1.0, x) < 0.0, out=bool_, title="signbit", home="")
isclose_op = define(
    "isclose_op", "Whether a is so near to b, or equal.",
    lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=0.0: (a == b) | ((a != a) & (b != b) & (equal_nan != 0.0))
    | ((abs(a - b) <= atol + rtol * abs(b)) & (abs(a) < INF) & (abs(b) < INF)),
    out=bool_, title="isclose", home="",
)  # fmt: skip
numbers_op = define(
    "numbers_op", "x, with other numbers in the place of NaN and infinity.",
    lambda x, nan=0.0, posinf=0.0, neginf=0.0: select(x != x, nan, select(x == INF, posinf, select(x == -INF, neginf, x))),
    lambda g, x: select(abs(x) < INF, g, 0.0), title="nan_to_num", home="",
)  # fmt: skip
define(
    "heaviside", "0 below zero, 1 above, b where a is 0; NaN for NaN.",
    lambda a, b: select(a == 0.0, b, select(a > 0.0, 1.0, select(a < 0.0, 0.0, a))), zero, lambda g, a: select(a == 0.0, g, 0.0),
)  # fmt: skip


@composed
def isnan(x: Any) -> Any:
    """Whether each number is NaN. Shapes: any to the same.
    >>> fp.isnan(fp.tensor([1.0, float("nan")])).tolist()
    [False, True]"""
    (x,) = tensors_of("isnan", x)
    return ne(x, x)


@composed
def isinf(x: Any, detect_positive: bool = True, detect_negative: bool = True) -> Any:
    """Whether each number is infinite, of either sign unless one is not asked for. Shapes: any to the same.
    >>> fp.isinf(fp.tensor([1.0, -float("inf")])).tolist()
    [False, True]"""
    (x,) = tensors_of("isinf", x)
    if detect_positive and detect_negative:
        return eq(abs_op(x.detach()), math.inf)
    return eq(x, math.inf if detect_positive else -math.inf if detect_negative else math.nan)


@composed
def isposinf(x: Any) -> Any:
    """Whether each number is infinite and above zero. Shapes: any to the same.
    >>> fp.isposinf(fp.tensor([1.0, float("inf"), -float("inf")])).tolist()
    [False, True, False]"""
    return isinf(x, detect_negative=False)


@composed
def isneginf(x: Any) -> Any:
    """Whether each number is infinite and below zero. Shapes: any to the same.
    >>> fp.isneginf(fp.tensor([1.0, float("inf"), -float("inf")])).tolist()
    [False, False, True]"""
    return isinf(x, detect_positive=False)


@composed
def isfinite(x: Any) -> Any:
    """Whether each number is neither NaN nor infinite. Shapes: any to the same.
    >>> fp.isfinite(fp.tensor([1.0, float("nan"), float("inf")])).tolist()
    [True, False, False]"""
    (x,) = tensors_of("isfinite", x)
    return lt(abs_op(x.detach()), math.inf)


@composed
def signbit(x: Any) -> Any:
    """Whether each number has a minus, which -0.0 has, too. Shapes: any to the same.
    >>> fp.signbit(fp.tensor([1.0, -0.0])).tolist()
    [False, True]"""
    (x,) = tensors_of("signbit", x)
    return signbit_op(x) if x.dtype in FLOATS else lt(x, 0)


@composed
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    """Whether |a - b| <= atol + rtol * |b|, or both are the same infinity, or NaN if equal_nan. Integers are compared in float64.
    Shapes: those of a and b broadcast. Raises ShapeError if they do not, DTypeError for two float types.
    >>> fp.isclose(fp.tensor([1.0, 1.1]), fp.tensor([1.000001, 1.0])).tolist()
    [True, False]"""
    a, b = [x.detach() for x in tensors_of("isclose", a, b)]
    if not {a.dtype, b.dtype} & FLOATS:
        a, b = a.to(float64), b.to(float64)
    return isclose_op(a, b, rtol=rtol, atol=atol, equal_nan=float(equal_nan))


@composed
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether isclose() holds for all, as Python's True or False. Shapes: those of a and b broadcast.
    >>> fp.allclose(fp.tensor([1.0, 2.0]), 1.0)
    False"""
    return bool(isclose(a, b, rtol, atol, equal_nan).numpy().all())


@composed
def array_equal(a: Any, b: Any) -> bool:
    """Whether a and b have the same shape and the same numbers, as Python's True or False (torch.equal). Shapes: any.
    >>> fp.array_equal(fp.tensor([1.0, 2.0]), [1.0, 2.0])
    True"""
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        a, b = tensors_of("array_equal", a, b)
    if a.spec is b.spec and a.spec.size <= FEW:
        heard(None, (a, b), None)
        return a.spec.device.equal(a.buffer, b.buffer)  # type: ignore[no-any-return]
    return a.shape == b.shape and bool(eq(a, b).numpy().all())


@composed
def nan_to_num(x: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """x with `nan` in the place of NaN, `posinf` and `neginf` of infinity (None: the largest and the least number of the type).
    What was replaced gets the gradient 0.
    Shapes: any; the result has that of x. Types: any; integers and bools have nothing to replace.
    >>> fp.nan_to_num(fp.tensor([1.0, float("nan"), float("inf")]), posinf=9.0).tolist()
    [1.0, 0.0, 9.0]"""
    (x,) = tensors_of("nan_to_num", x)
    if x.dtype not in FLOATS:
        return x
    ends = ml_dtypes.finfo(x.dtype)
    given = [float(ends.max) if posinf is None else posinf, float(ends.min) if neginf is None else neginf]
    return numbers_op(x, nan=nan, posinf=given[0], neginf=given[1])
