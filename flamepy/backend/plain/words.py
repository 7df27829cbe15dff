"""The vocabulary as NumPy functions, and the two ways in which this backend runs what ops have written.

A formula (`tanh_y(x): return tanh(x)`) is applied to whole arrays: it is copied, and the copy finds NumPy's functions where it looks
for its words. A row body goes through its row number by number, so its words are those of single numbers. Both get their float
constants in the dtype of the launch. That is the same move by which other backends compile; here nothing is left to compile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import words as numbers
from ...core.row_words import LINE, RUN
from ..formula.bind import Dialect


def each(function: Callable[[float], float], x: Any, dtype: np.dtype) -> Any:
    """A function of Python's math module for every number of x, computed in float64: NumPy has no erf."""
    return np.vectorize(function, otypes=[np.float64])(x).astype(dtype)


def erf(x):
    return each(math.erf, x, x.dtype)


def bell(x):
    return np.exp(-0.5 * x * x)


def normal_tail(a, e):
    """What the normal distribution has beyond a >= 0; that e = exp(-a * a / 2) is known is of no use here."""
    return 0.5 * each(math.erfc, np.float64(a) * math.sqrt(0.5), a.dtype)


def unchanged(x):
    return x


ARRAY_WORDS: dict[str, Any] = {
    "exp": np.exp, "exp_down": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "pow": np.power, "erf": erf, "bell": bell, "normal_tail": normal_tail,
    "abs": np.abs, "sign": np.sign, "select": np.where, "maximum": np.maximum, "minimum": np.minimum,
    "fmax": np.maximum, "floor": np.floor, "ceil": np.ceil, "rint": np.rint,
}  # fmt: skip

# On single numbers Python's own comparisons are ten times faster. What computes stays NumPy's: 1 / 0 is infinite, not an error.
COMPARING = ("abs", "fmax", "maximum", "minimum", "select", "sign")
NUMBER_WORDS = {**ARRAY_WORDS, **{word: getattr(numbers, word) for word in COMPARING}}


def typed_words(words: dict[str, Any], dtype: np.dtype) -> dict[str, Any]:
    """The words, and those that depend on the dtype."""
    if dtype.kind == "f":
        numbers = {"wide": np.float64, "real": dtype.type, "INF": dtype.type(np.inf), "EPS": np.finfo(dtype).eps}
        spaces = {"run_space": lambda x: np.empty(RUN, dtype), "line_space": lambda x: np.empty(LINE, dtype)}
        return {**words, **numbers, **spaces}  # what a body keeps is rounded; x is not
    return {**words, "wide": np.int64, **dict.fromkeys(("floor", "ceil", "rint"), unchanged)}


def as_it_is(function: Callable, reorder: bool) -> Callable:
    """What stands in the place of a compiler."""
    return function


ON_ARRAYS = Dialect(as_it_is, lambda dtype: typed_words(ARRAY_WORDS, dtype), ())
ON_NUMBERS = Dialect(as_it_is, lambda dtype: typed_words(NUMBER_WORDS, dtype), ())
