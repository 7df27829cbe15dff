"""The CPU dialect of bind(): which Numba flags, which words, which threads. Importing this imports Numba.

`error_model="numpy"` lets loops with a division vectorise. Fast-math is limited to contraction and signed zeros; loops may
also reorder sums (formulas and words may not: it would undo their error compensation). Nothing assumes that NaN or infinity
cannot occur, and no reciprocals are estimated: 1 / sqrt(x) would give NaN at 0. Kernels are cached on disk.

Read next: words.py, loops.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import event

from ..formula.bind import Dialect, announce
from ..formula.row_words import all_max, all_sum, barrier, lane, lanes
from . import blas, parallel, pool, words
from .disk_cache import DiskCache
from .instructions import ALWAYS, INNER

FORMULA_MATH = {"contract", "nsz"}
LOOP_MATH = FORMULA_MATH | {"reassoc"}


def jit_function(function: Callable, reorder: bool) -> Any:
    # forceinline: a formula of several words exceeds LLVM's inlining limit, and a call keeps the loop scalar.
    return numba.njit(fastmath=LOOP_MATH if reorder else FORMULA_MATH, forceinline=True, **INNER)(function)


def jit_loop(function: Callable) -> Any:
    return numba.njit(fastmath=LOOP_MATH, **INNER)(function)


def jit_kernel(function: Callable) -> Any:
    pool.load_launch()  # kernels refer to it
    dispatcher = numba.njit(**ALWAYS)(function)
    dispatcher._cache = DiskCache(function)
    return dispatcher


def words_of(dtype: np.dtype) -> dict[str, Any]:
    """Every word of the vocabulary for `dtype`; integers have only those that make sense for them."""
    found = {name: table[dtype] for name, table in words.WORDS.items() if dtype in table}
    if dtype.kind == "f":
        found.update({name: table[dtype] for name, table in words.CONSTANTS.items()})
        found.update(blas.words(dtype))
    else:
        found.update(dict.fromkeys(("floor", "ceil", "rint"), WHOLE))
    found.update(ROW_WORDS)
    return found


WHOLE = numba.njit(**INNER)(lambda x: x)  # rounding an integer
# The five words of a row body. The CPU gives a row to one lane: they cost nothing.
ROW_WORDS = {word.__name__: numba.njit(**INNER)(word) for word in (lane, lanes, all_sum, all_max, barrier)}

_here = Path(__file__).parent
SHARED = (
    "cpu/words.py",
    "cpu/blas.py",
    "cpu/broadcast.py",
    "cpu/compiler.py",
    "cpu/disk_cache.py",
    "cpu/instructions.py",
    "cpu/parallel.py",
    "formula/bind.py",
    "cpu/plans.py",
    "formula/row_words.py",
)
SOURCES = tuple(str(_here.parent / file) for file in SHARED)
DIALECT = Dialect(jit_function, words_of, SOURCES, jit_loop, jit_kernel, parallel.run)


class _CompileListener(event.Listener):
    """Tells bind.on_compile's listeners about each kernel Numba really compiles."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}

    def on_start(self, event: Any) -> None:
        self.started[event.data["dispatcher"].py_func.__name__] = time.perf_counter()

    def on_end(self, event: Any) -> None:
        name = event.data["dispatcher"].py_func.__name__
        started = self.started.pop(name, time.perf_counter())
        if event.data["dispatcher"].py_func.__code__ is parallel.run.__code__:
            announce(name, started)


event.register("numba:compile", _CompileListener())


def cache_folder() -> Path:
    """Where this machine's compiled kernels are kept."""

    def probe() -> None: ...

    probe.__qualname__ = "probe"
    probe.__module__ = __name__
    return Path(str(numba.njit(cache=True)(probe).stats.cache_path))
