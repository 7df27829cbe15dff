"""bind(): a loop and a formula become one cached kernel.

A loop and a formula are plain Python functions. They are copied, and the copies get other globals (core/formula.py): words and helpers
are jitted functions there, and a loop sees its formula as `F`. The kernel's name carries a digest of every source file involved, so
Numba's disk cache hits in the next process and misses when a formula changes (Numba itself only watches the loop's file, and never
caches a closure over a jitted function).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from ...core.formula import PACKAGE, Dialect, copied, globals_of


@dataclass(frozen=True, eq=False)
class Compiler(Dialect):
    """A dialect that compiles: its jit for formulas and helpers, for loops and kernels, and the files behind it."""

    jit_function: Any = None
    sources: tuple[str, ...] = ()
    jit_loop: Any = None
    jit_kernel: Any = None
    kernel: Any = None  # the function around a loop that runs it on the workers


def typed(function: Any, dtype: np.dtype, compiler: Compiler, reorder: bool, formula: Any = None) -> Any:
    """A copy of `function` for `dtype`, which it has as an attribute, with compiled helpers.
    `reorder` tells whether helpers may reorder sums: those of a loop may, those of a formula may not. `formula` is the F of a
    loop and of its helpers."""

    def compiled(name: str, value: Any) -> Any:
        if name == "F" and formula is not None:
            return jitted(formula, dtype, compiler, getattr(function, "reorders", False))
        return jitted(value, dtype, compiler, reorder, formula if uses_formula(value) else None)

    copy = copied(function, dtype, compiler, compiled)
    copy.dtype = dtype
    return copy


@cache
def jitted(function: Any, dtype: np.dtype, compiler: Compiler, reorder: bool = False, formula: Any = None) -> Any:
    """A formula or helper, jitted for `dtype`."""
    return compiler.jit_function(typed(function, dtype, compiler, reorder, formula), reorder)


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


def bind(loop: Any, formula: Any, dtype: np.dtype, compiler: Compiler) -> Any:
    """The kernel for `loop` with `formula` as its F: called with (workers, *arguments of the loop without `part`).
    Compiles at the first call, or loads from the disk cache."""
    body = typed(loop, dtype, compiler, True, formula)
    name = loop.__name__ if formula is None else f"{loop.__name__}_{formula.__name__}"
    functions = reached(loop) if formula is None else [*reached(loop), *reached(formula)]
    files = sorted({f.__code__.co_filename for f in functions if str(f.__module__).startswith(PACKAGE)})
    mark = digest((*files, *compiler.sources), functions)
    name = f"{name}_{dtype.name}_{mark}"
    outer = compiler.kernel
    kernel = FunctionType(outer.__code__, {**outer.__globals__, "LOOP": compiler.jit_loop(body)}, outer.__name__)
    kernel.__name__ = kernel.__qualname__ = name
    kernel.__module__ = outer.__module__
    return compiler.jit_kernel(kernel)


def digest(files: tuple[str, ...], functions: Sequence[Any]) -> str:
    """Ten hex digits over the contents of the files; of users' functions, which may be typed into a session or older than their file,
    also over the code, the numbers they read from their globals, and which word or function stands behind each name."""
    import hashlib  # loads OpenSSL, and the first kernel is early enough

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
    import hashlib

    return hashlib.sha1(path.read_bytes()).digest() if path.is_file() else b""
