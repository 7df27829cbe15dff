"""How a device takes a formula: the function is copied, and the copy gets other globals. Every device does it so, NumPy's below.

Float constants and float literals become numbers of the wanted dtype, words of the vocabulary (exp, select, ...) become that device's
functions for that dtype, and plain helper functions are copied in the same way. NumPy applies a formula to whole arrays.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from . import words as plain
from .dtypes import DTYPES

PACKAGE = __name__.split(".")[0] + "."


@dataclass(frozen=True, eq=False)
class Dialect:
    """How one device takes formulas: its words for each dtype, and the modules beside words.py in which it says what they are in plain
    Python."""

    words: Callable[[np.dtype], dict[str, Any]]
    homes: tuple[str, ...] = ()


@cache
def typed(function: Any, dtype: np.dtype, dialect: Dialect) -> Any:
    """A formula or helper for `dtype`, kept."""
    return copied(function, dtype, dialect)


def copied(function: Any, dtype: np.dtype, dialect: Dialect, other: Callable[[str, Any], Any] | None = None) -> Any:
    """A copy of `function` whose float constants, words and helpers are those of `dtype` (int literals are left alone).
    other(name, helper): what takes the place of a helper, where that is not typed()."""
    words = dialect.words(dtype)
    whole = dtype.kind in "iu"  # -1.0 of an unsigned type is its largest number
    number = dtype.type if dtype.kind == "f" else (lambda value: np.int64(value).astype(dtype) if whole and value.is_integer() else value)
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
        if word is not None:
            scope[name] = word
        elif type(value) is float:
            scope[name] = number(value)
        elif isinstance(value, FunctionType):
            scope[name] = typed(value, dtype, dialect) if other is None else other(name, value)
    return FunctionType(code, scope, function.__name__, function.__defaults__)


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
    word = plain.VOCABULARY.get(own)
    if word is not None and word.scalar is value:
        return words.get(own)
    for home in (plain.__name__, *homes):
        meant = vars(sys.modules[home]).get(own)
        if meant is value or (type(value) is float and meant == value):
            return words.get(own)
    place = value.__module__ if isinstance(value, FunctionType) else function.__module__
    if str(place).startswith(PACKAGE):
        raise NameError(f"{function.__name__}: has a word's name and is something else: {name} = {value!r}. Rename it, or import the word.")
    return None


def globals_of(code: Any) -> set[str]:
    """Names a code object reads from its globals. Not co_names: that holds attribute names too, and `np.sqrt` is no word."""
    found = set()
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            found.add(step.argval)
    return found


# ---- NumPy's --------------------------------------------------------------------------------------------------------------------
ARRAY_WORDS: dict[np.dtype, dict[str, Any]] = {dtype: {} for dtype in DTYPES}


def join(words: dict[str, plain.Word]) -> None:
    """Take words into the vocabulary. On arrays of floats some depend on the type; rounding a whole number gives itself."""
    plain.VOCABULARY.update(words)
    for dtype, found in ARRAY_WORDS.items():
        found |= {name: word.on_arrays for name, word in words.items() if word.on_arrays is not None}
        if dtype.kind == "f":
            found |= {"real": dtype.type, "INF": dtype.type(np.inf), "EPS": np.finfo(dtype).eps}
        else:
            found |= dict.fromkeys(("floor", "ceil", "rint"), lambda x: x)


join(plain.VOCABULARY)
ON_ARRAYS = Dialect(ARRAY_WORDS.__getitem__)
