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


def fmax(a: float, b: float) -> float:
    """The larger one, for the maximum of a row; with a NaN the result is arbitrary: test for it beside."""
    return max(b, a)


def abs(x: float) -> float:
    return _abs(x)


def sign(x: float) -> float:
    """1, -1 or 0 with the type of x; NaN for NaN."""
    return type(x)((x > 0) - (x < 0)) if x == x else x


def exp(x: float) -> float:
    return _overflowing(math.exp, x)


def exp_down(x: float) -> float:
    """exp(x) for x <= 0, as in a softmax: cheaper than exp, and 0 where the result would be smaller than any normal number."""
    return 0.0 if x < -708.39641853226 else math.exp(x)


def bell(x: float) -> float:
    """exp(-x * x / 2), the normal distribution's curve: cheaper than by exp_down, and 0 where that is."""
    return exp_down(-0.5 * x * x)


def expm1(x: float) -> float:
    """exp(x) - 1, accurate near 0."""
    return _overflowing(math.expm1, x)


def log(x: float) -> float:
    return math.log(x) if x > 0.0 else _log_outside(x, x)


def log1p(x: float) -> float:
    """log(1 + x), accurate near 0."""
    return math.log1p(x) if x > -1.0 else _log_outside(x, x + 1.0)


def sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0.0 else NAN


def tanh(x: float) -> float:
    return math.tanh(x)


def erf(x: float) -> float:
    return math.erf(x)


def normal_tail(a: float, e: float) -> float:
    """What the normal distribution has beyond a >= 0, given e = exp(-a * a / 2), which whoever asks for it often needs as well."""
    return 0.5 * math.erfc(a * math.sqrt(0.5)) if e == e else e


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


def floor(x: float) -> float:
    return _whole(math.floor, x)


def ceil(x: float) -> float:
    return _whole(math.ceil, x)


def rint(x: float) -> float:
    """The nearest whole number; halves go to the even one."""
    return _whole(_round, x)


def _overflowing(function: Callable[[float], float], x: float) -> float:
    try:
        return function(x)
    except OverflowError:
        return INF


def _log_outside(x: float, argument: float) -> float:
    """What a logarithm gives where its argument is not positive: -inf at 0, NaN below and for NaN."""
    return -INF if argument == 0.0 else NAN


def _whole(function: Callable[[float], int], x: float) -> float:
    # Python's integers have no -0.0, infinity or NaN.
    return math.copysign(float(function(x)), x) if math.isfinite(x) else x


# ---- on whole arrays, where NumPy has no such function ------------------------------------------------------------------------
def each(function: Callable[[float], float], x: Any, dtype: np.dtype) -> Any:
    """A function of Python's math module for every number of x, computed in float64."""
    return np.vectorize(function, otypes=[np.float64])(x).astype(dtype)


def erfs(x: Any) -> Any:
    return each(math.erf, x, x.dtype)


def bells(x: Any) -> Any:
    return np.exp(-0.5 * x * x)


def normal_tails(a: Any, e: Any) -> Any:
    """That e = exp(-a * a / 2) is known is of no use here."""
    return 0.5 * each(math.erfc, np.float64(a) * math.sqrt(0.5), a.dtype)


class Word(NamedTuple):
    """A word: the function above; what it is on NumPy arrays (None: that depends on their type, see formula.py); the op it is on
    Tensors ("": none, then no derivative may use it); whether it takes several times as long as an addition (a loop with one goes to
    all threads earlier)."""

    scalar: Callable[..., Any]
    on_arrays: Callable[..., Any] | None
    on_tensors: str = ""
    costly: bool = False


VOCABULARY: dict[str, Word] = {
    "abs": Word(abs, np.abs, "abs"),
    "bell": Word(bell, bells, "bell", True),
    "ceil": Word(ceil, np.ceil, "ceil"),
    "cos": Word(cos, np.cos, "cos", True),
    "erf": Word(erf, erfs, "erf", True),
    "exp": Word(exp, np.exp, "exp", True),
    "exp_down": Word(exp_down, np.exp, "exp", True),
    "expm1": Word(expm1, np.expm1, "", True),
    "floor": Word(floor, np.floor, "floor"),
    "fmax": Word(fmax, np.maximum),
    "log": Word(log, np.log, "log", True),
    "log1p": Word(log1p, np.log1p, "", True),
    "maximum": Word(maximum, np.maximum, "maximum"),
    "minimum": Word(minimum, np.minimum, "minimum"),
    "normal_tail": Word(normal_tail, normal_tails, "normal_tail", True),
    "pow": Word(pow, np.power, "power", True),
    "real": Word(real, None),
    "rint": Word(rint, np.rint, "round"),
    "select": Word(select, np.where, "where"),
    "sign": Word(sign, np.sign, "sign"),
    "sin": Word(sin, np.sin, "sin", True),
    "sqrt": Word(sqrt, np.sqrt, "sqrt"),
    "tanh": Word(tanh, np.tanh, "tanh", True),
}
COSTLY = frozenset(name for name, word in VOCABULARY.items() if word.costly)
__all__ = [  # written out for type checkers: EPS, INF and the words of VOCABULARY
    "EPS", "INF", "abs", "bell", "ceil", "cos", "erf", "exp", "exp_down", "expm1", "floor", "fmax", "log", "log1p", "maximum", "minimum",
    "normal_tail", "pow", "real", "rint", "select", "sign", "sin", "sqrt", "tanh",
]  # fmt: skip
