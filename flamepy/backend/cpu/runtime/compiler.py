"""The CPU dialect of bind(): which Numba flags, which words, which threads. Importing this imports Numba.

`error_model="numpy"` lets loops with a division vectorise. Fast-math is limited to contraction and signed zeros; of what loops
and row bodies compute, only `total += x` may be reordered (in formulas and words nothing: it would undo their error compensation).
Nothing assumes that NaN or infinity cannot occur, and no reciprocals are estimated: 1 / sqrt(x) would give NaN at 0. Kernels are
cached on disk.
"""

from __future__ import annotations

import dis
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import event

from .... import disk_cache, inner_code
from ....core import formula
from ....core.errors import DeviceError
from ....disk_cache import REMEDY, DiskCache, cache_of
from ....inner_code import InnerCompiler
from ...formula import bind, row_words
from ...formula.bind import Compiler, announce
from ...formula.row_words import all_max, all_sum, barrier, lane, lanes
from ..loops import broadcast, moves, remainders, waves, words
from ..products import gemm, listed, picked
from . import halves, inner, instructions, parallel, pool, processor, workspace
from .inner import INNER, KERNEL, AloneCompiler, LoopCompiler
from .memory import WHOLE
from .patience import Patience

MATH = {"contract", "nsz"}


def jit_function(function: Callable, reorder: bool) -> Any:
    """A formula or helper. A nest of loops stays a function: it runs for longer than a call takes, and inside another loop LLVM gives up
    its vectors."""
    compiler = LoopCompiler if reorder else InnerCompiler
    if not str(function.__module__).startswith(formula.PACKAGE):
        # A kernel that comes from the disk cache imports the modules of its functions: a user's may be gone by then, or be a script.
        function.__qualname__, function.__module__ = f"{function.__module__}.{function.__qualname__}", formula.__name__
    return numba.njit(fastmath=MATH, **{**INNER, "forceinline": not nested_loops(function), "pipeline_class": compiler})(function)


def nested_loops(function: Callable) -> bool:
    """Whether a loop of the function holds another one."""
    # Of the jumps back to one place the last one ends the loop; the others are a `continue`, of which Python 3.12 makes more than 3.11.
    loops = {i.argval: i.offset for i in dis.get_instructions(function) if "JUMP" in i.opname and i.argval < i.offset}
    return any(first < inner and last < jump for first, jump in loops.items() for inner, last in loops.items())


def jit_loop(function: Callable) -> Any:
    return numba.njit(fastmath=MATH, **{**INNER, "forceinline": False, "pipeline_class": LoopCompiler})(function)


def jit_alone(function: Callable) -> Any:
    """A loop without its kernel, for those who look at machine code: called with (worker, workers) first."""
    return numba.njit(fastmath=MATH, **{**KERNEL, "pipeline_class": AloneCompiler})(function)


def jit_kernel(function: Callable) -> Any:
    pool.load_launch()  # kernels refer to it
    dispatcher = numba.njit(**KERNEL)(function)
    dispatcher._cache = cache_of(function)
    return dispatcher


def words_of(dtype: np.dtype) -> dict[str, Any]:
    """Every word of the vocabulary for `dtype`; integers have only those that make sense for them."""
    found = {name: table[dtype] for name, table in words.WORDS.items() if dtype in table}
    if dtype.kind == "f":
        found.update({name: table[dtype] for name, table in words.CONSTANTS.items()})
    else:
        found.update(dict.fromkeys(("floor", "ceil", "rint"), ROUNDED))
    found.update(ROW_WORDS, **workspace.WORDS, **moves.WORDS, **remainders.WORDS, wide=WIDE["f" if dtype.kind == "f" else "i"], RUN=RUN)
    if dtype == WHOLE:
        found["turn_matrix"] = TURN_HALVES
    for home in (gemm, listed, picked):
        found.update(home.WORDS.get(dtype, {}))
    return gemm.Vocabulary(found, gemm.NEEDS + listed.NEEDS + picked.NEEDS)


def run_length() -> int:
    """RUN on this processor. Vectors of 4 numbers add up half as many at once as those of 8: shorter runs keep the digits."""
    return row_words.RUN if "avx" in processor.features() else row_words.RUN // 2


RUN = run_length()


def wide_float(x):
    return np.float64(x)


def wide_whole(x):
    return np.int64(x)


def run_at(first, cols):
    if first is None:
        return range(np.uint64(0), np.uint64(cols))
    return range(np.uint64(first), np.uint64(min(first + RUN, cols)))  # unsigned: no check for negative ones, and the loop vectorises


def element(n):
    return np.uint64(n)


WIDE = {"f": numba.njit(**INNER)(wide_float), "i": numba.njit(**INNER)(wide_whole)}
ROUNDED = numba.njit(**INNER)(lambda x: x)  # rounding an integer
TURN_HALVES = numba.njit(**{**INNER, "forceinline": False})(halves.turn_halves)
# The other words of a row body. The CPU gives a row to one lane: they cost nothing.
ROW_WORDS = {word.__name__: numba.njit(**INNER)(word) for word in (lane, lanes, run_at, element, all_sum, all_max, barrier)}

SHARED = (
    bind, formula, row_words, halves, inner, instructions, parallel, processor, workspace, disk_cache, inner_code, broadcast, moves,
    remainders, waves, words, gemm, listed, picked,
)  # fmt: skip
SOURCES = (__file__, *[str(module.__file__) for module in SHARED])
HOMES = tuple([module.__name__ for module in (row_words, words, workspace, moves, remainders, gemm, listed, picked)])
DIALECT = Compiler(words_of, HOMES, jit_function, SOURCES, jit_loop, jit_kernel, parallel.run)


class _CompileListener(event.Listener):
    """Tells bind.on_compile's listeners about each kernel Numba really compiles, and `patience` when it begins and ends."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function.__code__ is parallel.run.__code__:  # no part of a kernel, no function of the user's own
            self.started[function.__name__] = time.perf_counter()
            patience.begin()

    def on_end(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if function.__code__ is parallel.run.__code__:
            patience.end()
            announce(function.__name__, self.started.pop(function.__name__))


def cache_folder() -> Path:
    """Where this machine's compiled kernels are kept."""
    try:
        return Path(DiskCache(parallel.run).cache_path)
    except RuntimeError:
        raise DeviceError(f"cache: no folder can be written to: every process compiles its kernels again. {REMEDY}") from None


def kept_in() -> str:
    try:
        return str(cache_folder())
    except DeviceError:
        return "memory: no folder can be written to"


def in_child() -> None:
    patience.forget()


patience = Patience(kept_in)
if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=in_child)
event.register("numba:compile", _CompileListener())
