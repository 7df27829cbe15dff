"""Words that core does without: those of row bodies, activations, losses, rounding, logarithms. They join core's in the one
VOCABULARY."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.formula import join
from ...core.words import INF, NAN, Word, exp_down, whole


def fmax(a: float, b: float) -> float:
    """The larger one, for the maximum of a row; with a NaN the result is arbitrary: test for it beside."""
    return max(b, a)


def bell(x: float) -> float:
    """exp(-x * x / 2), the normal distribution's curve: cheaper than by exp_down, and 0 where that is."""
    return exp_down(-0.5 * x * x)


def expm1(x: float) -> float:
    """exp(x) - 1, accurate near 0."""
    try:
        return math.expm1(x)
    except OverflowError:
        return INF


def log1p(x: float) -> float:
    """log(1 + x), accurate near 0."""
    return math.log1p(x) if x > -1.0 else -INF if x == -1.0 else NAN


def exp2(x: float) -> float:
    """2 to the power x, exact where x is a whole number."""
    try:
        return 2.0**x
    except OverflowError:
        return INF


def log2(x: float) -> float:
    """The logarithm to base 2, exact for powers of two."""
    return (math.log2(x) if math.isfinite(x) else x) if x > 0.0 else -INF if x == 0.0 else NAN


def log10(x: float) -> float:
    return math.log10(x) if x > 0.0 else -INF if x == 0.0 else NAN


def copysign(x: float, y: float) -> float:
    """|x| with the sign of y, which zeros and NaN have, too."""
    return math.copysign(x, y)


def floor(x: float) -> float:
    return whole(math.floor, x)


def ceil(x: float) -> float:
    return whole(math.ceil, x)


def normal_tail(a: float, e: float) -> float:
    """What the normal distribution has beyond a >= 0, given e = exp(-a * a / 2), which whoever asks for it often needs as well."""
    return 0.5 * math.erfc(a * math.sqrt(0.5)) if e == e else e


def bells(x: Any) -> Any:
    return np.exp(-0.5 * x * x)


def normal_tails(a: Any, e: Any) -> Any:
    """That e = exp(-a * a / 2) is known is of no use here."""
    return 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(np.float64(a) * math.sqrt(0.5)).astype(a.dtype)


join(
    {
        "bell": Word(bell, bells, "bell"),
        "ceil": Word(ceil, np.ceil, "ceil"),
        "copysign": Word(copysign, np.copysign, "copysign"),
        "exp2": Word(exp2, np.exp2, "exp2"),
        "expm1": Word(expm1, np.expm1, "expm1"),
        "floor": Word(floor, np.floor, "floor"),
        "fmax": Word(fmax, np.maximum),
        "log10": Word(log10, np.log10, "log10"),
        "log1p": Word(log1p, np.log1p, "log1p"),
        "log2": Word(log2, np.log2, "log2"),
        "normal_tail": Word(normal_tail, normal_tails, "normal_tail"),
    }
)
__all__ = ["bell", "ceil", "copysign", "exp2", "expm1", "floor", "fmax", "log1p", "log2", "log10", "normal_tail"]
