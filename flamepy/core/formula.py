"""How a device takes a formula: the function is copied, and the copy gets other globals. Every device does it so, NumPy's below.

Float constants and float literals become numbers of the wanted dtype, words of the vocabulary (exp, select, ...) become that device's
functions for that dtype, plain helper functions are copied in the same way, and a loop sees its formula as `F`.

NumPy applies a formula to whole arrays. A row body goes through its row number by number, so its words are those of single numbers.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import FunctionType
from typing import Any

import numpy as np

from . import row_words
from . import words as plain
from .dtypes import float32, float64

PACKAGE = __name__.split(".")[0] + "."


def as_it_is(function: Callable, reorder: bool) -> Callable:
    """What stands in the place of a compiler."""
    return function


@dataclass(frozen=True, eq=False)
class Dialect:
    """How one device takes formulas: its words for each dtype, what it makes of a function, and the modules beside these in which it
    says what its words are in plain Python."""

    words: Callable[[np.dtype], dict[str, Any]]
    jit_function: Callable[[Callable, bool], Any] = as_it_is
    homes: tuple[str, ...] = ()


def typed(function: Any, dtype: np.dtype, dialect: Dialect, reorder: bool, formula: Any = None) -> Any:
    """A copy of `function` whose float constants, words and helpers are those of `dtype`, which it has as an attribute (int literals are
    left alone).

    `reorder` tells whether helpers may reorder sums: those of a loop may, those of a formula may not. `formula` is the F of a
    loop and of its helpers.
    """
    words = dialect.words(dtype)
    whole = dtype.kind == "i"
    number = dtype.type if dtype.kind == "f" else (lambda value: dtype.type(value) if whole and value.is_integer() else value)
    code = function.__code__
    # Literals sit in co_consts: typing them here is what lets a formula say `0.5 * x` and stay in float32.
    consts = list(code.co_consts)
    for i, value in enumerate(consts):
        if type(value) in (float, tuple):
            consts[i] = typed_literal(value, number)
    code = code.replace(co_consts=tuple(consts))
    scope = dict(function.__globals__)
    for name in globals_of(code):
        value = scope.get(name)
        word = word_for(function, name, value, words, dialect.homes)
        if name == "F" and formula is not None:
            scope[name] = jitted(formula, dtype, dialect, getattr(function, "reorders", False))
        elif word is not None:
            scope[name] = word
        elif type(value) is float:
            scope[name] = number(value)
        elif isinstance(value, FunctionType):
            scope[name] = jitted(value, dtype, dialect, reorder, formula if uses_formula(value) else None)
    copy: Any = FunctionType(code, scope, function.__name__, function.__defaults__)
    copy.dtype = dtype
    return copy


def typed_literal(value: Any, number: Callable[[float], Any]) -> Any:
    """A float literal as number() makes it; Python keeps those of `a, b = 0.0, 0.0` in a tuple."""
    if type(value) is tuple:
        return tuple(typed_literal(v, number) for v in value)
    return number(value) if type(value) is float else value


def word_for(function: Any, name: str, value: Any, words: dict[str, Any], homes: tuple[str, ...]) -> Any:
    """What takes the place of a function's global that is a word, under whatever name it was imported; None for anything else. What a
    user's file itself calls `sign` or `EPS` is no word; in flamepy's own files nothing else may have a word's name."""
    own = value.__name__ if isinstance(value, FunctionType) else name
    if own not in words:
        return None
    for home in (plain.__name__, row_words.__name__, *homes):
        meant = vars(sys.modules[home]).get(own)
        if meant is value or (type(value) is float and meant == value):
            return words.get(own)
    place = value.__module__ if isinstance(value, FunctionType) else function.__module__
    if str(place).startswith(PACKAGE):
        raise NameError(f"{function.__name__}: has a word's name and is something else: {name} = {value!r}. Rename it, or import the word.")
    return None


@cache
def jitted(function: Any, dtype: np.dtype, dialect: Dialect, reorder: bool = False, formula: Any = None) -> Any:
    """A formula or helper, jitted for `dtype`."""
    return dialect.jit_function(typed(function, dtype, dialect, reorder, formula), reorder)


@cache
def uses_formula(function: Any) -> bool:
    """Whether a helper, or one that it calls, names F: the others are compiled once for all formulas."""
    return any("F" in globals_of(f.__code__) for f in reached(function))


def reached(function: Any) -> list[Any]:
    """The function and every plain function it calls, directly or not, in whichever file they are."""
    found = [function]
    for f in found:
        for name in sorted(globals_of(f.__code__)):
            value = f.__globals__.get(name)
            if isinstance(value, FunctionType) and value not in found:
                found.append(value)
    return found


def globals_of(code: Any) -> set[str]:
    """Names a code object reads from its globals. Not co_names: that holds attribute names too, and `np.sqrt` is no word."""
    found = set()
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            found.add(step.argval)
    return found


# ---- NumPy's --------------------------------------------------------------------------------------------------------------------
ARRAY_WORDS: dict[str, Any] = {name: word.on_arrays for name, word in plain.VOCABULARY.items() if word.on_arrays is not None}
# On single numbers Python's own comparisons are ten times faster. What computes stays NumPy's: 1 / 0 is infinite, not an error.
COMPARING = ("abs", "fmax", "maximum", "minimum", "select", "sign")
NUMBER_WORDS = {**ARRAY_WORDS, **{word: plain.VOCABULARY[word].scalar for word in COMPARING}}


def typed_words(words: dict[str, Any], dtype: np.dtype) -> dict[str, Any]:
    """The words, and those that depend on the dtype."""
    if dtype.kind == "f":
        numbers = {"wide": np.float64, "real": dtype.type, "INF": dtype.type(np.inf), "EPS": np.finfo(dtype).eps}
        run, line = row_words.RUN, row_words.LINE
        return {**words, **numbers, "run_space": lambda x: np.empty(run, dtype), "line_space": lambda x: np.empty(line, dtype)}
    return {**words, "wide": np.int64, **dict.fromkeys(("floor", "ceil", "rint"), unchanged)}


def unchanged(x: Any) -> Any:
    return x


ON_ARRAYS = Dialect(cache(partial(typed_words, ARRAY_WORDS)))
ON_NUMBERS = Dialect(cache(partial(typed_words, NUMBER_WORDS)))
for _dtype in (float32, float64):  # most formulas are typed so
    ON_ARRAYS.words(_dtype)
