"""bind(): a loop and a formula become one cached kernel.

A loop and a formula are plain Python functions. Binding copies them and gives the copies other globals: float constants and
float literals become numbers of the wanted dtype, words of the vocabulary (exp, select, ...) become that dtype's jitted
functions, plain helper functions are bound the same way, and the loop sees the formula as `F`. The copy's name carries a
digest of every source file involved, so Numba's disk cache hits in the next process and misses when a formula changes
(Numba itself only watches the loop's file, and never caches a closure over a jitted function).
"""

from __future__ import annotations

import dis
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from ...core import row_words
from ...core import words as plain


class Dialect(NamedTuple):
    """How one backend compiles: its jit for functions, loops and kernels, its words for each dtype, the files behind them, and the
    modules beside this folder's in which it says what its words are in plain Python."""

    jit_function: Callable[[Callable, bool], Any]
    words: Callable[[np.dtype], dict[str, Any]]
    sources: tuple[str, ...]
    jit_loop: Any = None
    jit_kernel: Any = None
    kernel: Any = None  # the function around a loop that runs it on the workers
    homes: tuple[str, ...] = ()


_listeners: list[Callable[[str, float], None]] = []


def on_compile(listener: Callable[[str, float], None]) -> Callable[[], None]:
    """Call `listener(kernel name, seconds)` after each compilation; returns a function that removes the listener."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def listening() -> bool:
    """Whether anybody is told of compilations."""
    return bool(_listeners)


def announce(name: str, started: float) -> None:
    """Tell the listeners that kernel `name` was compiled; `started` is a time.perf_counter() value."""
    for listener in _listeners:
        listener(name, time.perf_counter() - started)


_waiting: list[Callable[[], None]] = []
_made = 0  # kernels that are being made at this moment


def after_kernel(action: Callable[[], None]) -> Callable[[], None]:
    """Call `action()`, which may raise, whenever a kernel has been made and run once; returns a function that removes it."""
    _waiting.append(action)
    return lambda: _waiting.remove(action)


@contextmanager
def making_kernel() -> Iterator[None]:
    """Around the first launch of a kernel, which compiles it or loads it from disk."""
    global _made
    _made += 1
    try:
        yield
    finally:
        _made -= 1
    for action in _waiting:
        action()


def is_making_kernel() -> bool:
    """Whether a kernel is being made, in whichever thread."""
    return _made > 0


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
    code = code.replace(co_consts=tuple(typed_literal(c, number) for c in code.co_consts))
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
    if not str(function.__module__).startswith(PACKAGE):
        # A kernel that comes from the disk cache imports the modules of its functions: a user's may be gone by then, or be a script.
        copy.__qualname__, copy.__module__ = f"{function.__module__}.{function.__qualname__}", __name__
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


PACKAGE = __name__.split(".")[0] + "."


@cache
def jitted(function: Any, dtype: np.dtype, dialect: Dialect, reorder: bool = False, formula: Any = None) -> Any:
    """A formula or helper, jitted for `dtype`."""
    return dialect.jit_function(typed(function, dtype, dialect, reorder, formula), reorder)


@cache
def uses_formula(function: Any) -> bool:
    """Whether a helper, or one that it calls, names F: the others are compiled once for all formulas."""
    return any("F" in globals_of(f.__code__) for f in reached(function))


def bind(loop: Any, formula: Any, dtype: np.dtype, dialect: Dialect) -> Any:
    """The kernel for `loop` with `formula` as its F: called with (workers, *arguments of the loop without `part`).

    Compiles at the first call, or loads from the disk cache.
    """
    body = typed(loop, dtype, dialect, True, formula)
    name = loop.__name__ if formula is None else f"{loop.__name__}_{formula.__name__}"
    functions = reached(loop) if formula is None else [*reached(loop), *reached(formula)]
    files = sorted({f.__code__.co_filename for f in functions if str(f.__module__).startswith(PACKAGE)})
    mark = digest((*files, *dialect.sources), functions)
    name = f"{name}_{dtype.name}_{mark}"
    outer = dialect.kernel
    kernel = FunctionType(outer.__code__, {**outer.__globals__, "LOOP": dialect.jit_loop(body)}, outer.__name__)
    kernel.__name__ = kernel.__qualname__ = name
    kernel.__module__ = outer.__module__
    return dialect.jit_kernel(kernel)


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
    return {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}


def digest(files: tuple[str, ...], functions: Sequence[Any]) -> str:
    """Ten hex digits over the contents of the files; of users' functions, which may be typed into a session or older than their file,
    also over the code, the numbers they read from their globals, and which word or function stands behind each name."""
    state = hashlib.sha1()
    for file in files:
        state.update(_file_digest(file))
    for f in functions:
        if str(f.__module__).startswith(PACKAGE):
            continue
        code = f.__code__
        state.update(repr((code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_argcount, f.__defaults__)).encode())
        for name in sorted(globals_of(code)):
            value = f.__globals__.get(name)
            if isinstance(value, bool | int | float | np.generic):
                state.update(f"{name}={value!r}".encode())
            elif isinstance(value, FunctionType):
                state.update(f"{name}={value.__module__}.{value.__qualname__}".encode())
    return state.hexdigest()[:10]


@cache
def _file_digest(file: str) -> bytes:
    path = Path(file)
    return hashlib.sha1(path.read_bytes()).digest() if path.is_file() else b""
