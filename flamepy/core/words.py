"""The vocabulary of formulas: exp, tanh, select, ... as plain functions on Python numbers.

A formula (`tanh_y(x): return tanh(x)`) imports its words from here (users: from `flamepy.words`), so it runs anywhere, a notebook
without Numba included. For a device the formula is copied, and the copy gets that device's version of each word in the place of these:
see formula.py. They follow IEEE arithmetic where Python would raise: exp(1000.0) is inf, log(0.0) is -inf, sqrt(-1.0) is nan.
VOCABULARY, at the end, lists them all, with what they are on NumPy arrays.
"""

from __future__ import annotations

import math
import sys
from builtins import abs as _abs
from builtins import round as _round
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

INF = math.inf
NAN = math.nan
EPS = sys.float_info.epsilon  # the distance from 1.0 to the next number; a kernel sees that of its own dtype


def real(x: float) -> float:
    """x as a number of the kernel's dtype: what turns a size into something to divide by."""
    return float(x)


def select(cond: bool, a: Any, b: Any) -> Any:
    """a where cond holds, else b; both are computed."""
    return a if cond else b


def maximum(a: float, b: float) -> float:
    """The larger one; NaN if either is NaN."""
    return a if a > b or a != a else b


def minimum(a: float, b: float) -> float:
    """The smaller one; NaN if either is NaN."""
    return a if a < b or a != a else b


def abs(x: float) -> float:
    return _abs(x)


def sign(x: float) -> float:
    """1, -1 or 0 with the type of x; NaN for NaN."""
    return type(x)((x > 0) - (x < 0)) if x == x else x


def exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return INF


def exp_down(x: float) -> float:
    """exp(x) for x <= 0, as in a softmax: cheaper than exp, and 0 where the result would be smaller than any normal number."""
    return 0.0 if x < -708.39641853226 else math.exp(x)


def log(x: float) -> float:
    return math.log(x) if x > 0.0 else -INF if x == 0.0 else NAN


def sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0.0 else NAN


def tanh(x: float) -> float:
    return math.tanh(x)


def erf(x: float) -> float:
    return math.erf(x)


def sin(x: float) -> float:
    return math.sin(x) if math.isfinite(x) else NAN


def cos(x: float) -> float:
    return math.cos(x) if math.isfinite(x) else NAN


def pow(x: float, y: float) -> float:
    """x to the power y as in C: pow(0, 0) is 1, pow(-2, 3) is -8, pow(-2, 0.5) is NaN, pow(0, -1) inf."""
    negative = math.copysign(1.0, x) < 0.0 and math.isfinite(y) and math.fmod(y, 2.0) in (1.0, -1.0)
    try:
        return math.pow(x, y)
    except OverflowError:
        return -INF if negative else INF
    except ValueError:
        return NAN if x != 0.0 else -INF if negative else INF


def rint(x: float) -> float:
    """The nearest whole number; halves go to the even one."""
    return whole(_round, x)


def whole(function: Callable[[float], int], x: float) -> float:
    # Python's integers have no -0.0, infinity or NaN.
    return math.copysign(float(function(x)), x) if math.isfinite(x) else x


def erfs(x: Any) -> Any:
    """erf on whole arrays: NumPy has no such function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


class Word(NamedTuple):
    """A word: the function above; what it is on NumPy arrays (None: that depends on their type, see formula.py); the op it is on
    Tensors ("": none, then no derivative may use it)."""

    scalar: Callable[..., Any]
    on_arrays: Callable[..., Any] | None
    on_tensors: str = ""


VOCABULARY: dict[str, Word] = {  # more may join from above
    "abs": Word(abs, np.abs, "abs"),
    "cos": Word(cos, np.cos, "cos"),
    "erf": Word(erf, erfs, "erf"),
    "exp": Word(exp, np.exp, "exp"),
    "exp_down": Word(exp_down, np.exp, "exp"),
    "log": Word(log, np.log, "log"),
    "maximum": Word(maximum, np.maximum, "maximum"),
    "minimum": Word(minimum, np.minimum, "minimum"),
    "pow": Word(pow, np.power, "power"),
    "real": Word(real, None),
    "rint": Word(rint, np.rint, "round"),
    "select": Word(select, np.where, "where"),
    "sign": Word(sign, np.sign, "sign"),
    "sin": Word(sin, np.sin, "sin"),
    "sqrt": Word(sqrt, np.sqrt, "sqrt"),
    "tanh": Word(tanh, np.tanh, "tanh"),
}
__all__ = [  # written out for type checkers: EPS, INF and the words of VOCABULARY
    "EPS", "INF", "abs", "cos", "erf", "exp", "exp_down", "log", "maximum", "minimum", "pow", "real", "rint", "select",
    "sign", "sin", "sqrt", "tanh",
]  # fmt: skip
