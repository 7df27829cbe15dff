"""The CPU dialect of bind(): which Numba flags, which words, which threads. Importing this imports Numba.

`error_model="numpy"` lets loops with a division vectorise. Fast-math is limited to contraction and signed zeros; of what loops
and row bodies compute, only `total += x` may be reordered (in formulas and words nothing: it would undo their error compensation).
Nothing assumes that NaN or infinity cannot occur, and no reciprocals are estimated: 1 / sqrt(x) would give NaN at 0. Kernels are
cached on disk.

Read next: words.py, loops.py.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numba.core import event, ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.untyped_passes import IRProcessing

from ..formula.bind import Dialect, announce
from ..formula.row_words import RUN, all_max, all_sum, barrier, lane, lanes
from . import blas, parallel, pool, words
from .disk_cache import DiskCache
from .instructions import ALWAYS, INNER, plus

MATH = {"contract", "nsz"}


@register_pass(mutates_CFG=False, analysis_only=False)
class FreeSums(FunctionPass):  # type: ignore[misc]
    """Makes of each `total += x` a `total = plus(total, x)`: the sums whose order is free."""

    _name = "free_sums"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        blocks = state.func_ir.blocks.values()
        for block in blocks:
            found = []
            for line in block.body:
                value = line.value if isinstance(line, ir.Assign) else None
                if isinstance(value, ir.Expr) and value.op == "inplace_binop" and value.fn is operator.iadd:
                    word = block.scope.redefine("$plus", line.loc)
                    found.append(ir.Assign(ir.Global("plus", plus, line.loc), word, line.loc))
                    line = ir.Assign(ir.Expr.call(word, (value.lhs, value.rhs), (), line.loc), line.target, line.loc)
                found.append(line)
            block.body = found
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


class LoopCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler with FreeSums."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(FreeSums, IRProcessing)
        passes.finalize()
        return [passes]


def jit_function(function: Callable, reorder: bool) -> Any:
    # forceinline: a formula of several words exceeds LLVM's inlining limit, and a call keeps the loop scalar.
    compiler = LoopCompiler if reorder else numba.core.compiler.Compiler
    return numba.njit(fastmath=MATH, forceinline=True, pipeline_class=compiler, **INNER)(function)


def jit_loop(function: Callable, **options: Any) -> Any:
    return numba.njit(fastmath=MATH, pipeline_class=LoopCompiler, **(options or INNER))(function)


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
    else:
        found.update(dict.fromkeys(("floor", "ceil", "rint"), WHOLE))
    found.update(blas.words(dtype))
    found.update(ROW_WORDS, wide=WIDE["f" if dtype.kind == "f" else "i"])
    return found


def wide_float(x):
    return np.float64(x)


def wide_whole(x):
    return np.int64(x)


def run_at(first, cols):
    return range(np.uint64(first), np.uint64(min(first + RUN, cols)))  # unsigned: no check for negative ones, and the loop vectorises


WIDE = {"f": numba.njit(**INNER)(wide_float), "i": numba.njit(**INNER)(wide_whole)}
WHOLE = numba.njit(**INNER)(lambda x: x)  # rounding an integer
# The other words of a row body. The CPU gives a row to one lane: they cost nothing.
ROW_WORDS = {word.__name__: numba.njit(**INNER)(word) for word in (lane, lanes, run_at, all_sum, all_max, barrier)}

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
