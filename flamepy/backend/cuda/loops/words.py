"""The vocabulary as device functions: what formulas, row bodies and kernels call on a GPU.

Words of a number are functions of NVIDIA's libdevice, by dtype; words of a thread (index, lane, barrier, ...) are the same for all.
typed() in core/formula.py puts them in the place of the plain ones: a kernel imports the plain ones, whose names are the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...formula import row_words as plain_row_words
from ...formula.bind import Compiler, typed
from ..rows.row_words import row_words
from ..runtime.compat import cuda, device_function, libdevice, types
from .arithmetic import cos32, cos64, sin32, sin64

SOURCES = tuple(sorted(map(str, Path(__file__).parents[1].rglob("*.py"))))  # any of them may be in a kernel

# ---- words of a number -----------------------------------------------------------------------------------------------------------
SAME = (  # libdevice has them
    "exp", "log", "log1p", "expm1", "tanh", "erf", "pow", "sqrt", "floor", "ceil", "rint", "exp2", "log2", "log10", "copysign",
)  # fmt: skip


def absolute(x):
    return x if x > 0 else (-x if x < 0 else abs_zero(x))


def abs_zero(x):
    return x * x  # 0 for -0, NaN for NaN


def select(cond, a, b):
    return a if cond else b


def maximum(a, b):
    return a if a > b or a != a else b


def minimum(a, b):
    return a if a < b or a != a else b


def sign(x):
    return 1.0 if x > 0.0 else (-1.0 if x < 0.0 else x)


def sign_int(x):
    return 1 if x > 0 else (-1 if x < 0 else 0)


def unchanged(x):
    return x


def bell32(x):
    return libdevice.expf(-0.5 * x * x)


def bell64(x):
    return libdevice.exp(-0.5 * x * x)


def normal_tail32(a, e):
    """e * 0.5 * erfcx(a / sqrt(2)) with a polynomial in t = 1 / (1 + 0.305 a): that of the CPU, a fifth of libdevice's instructions."""
    t = 1.0 / (1.0 + 0.305 * a)
    p = ((3.669925404e-2 * t - 1.529885801e-1) * t + 1.857173677e-1) * t - 3.797725823e-2
    p = (((p * t + 1.210219059e-1) * t + 1.034207981e-1) * t + 1.224668276e-1) * t + 1.21639732e-1
    return e * (t * p)


def normal_tail64(a, e):
    return 0.5 * erfc(a * 0.7071067811865476)


def erfc(x):
    return libdevice.erfc(x)


def pow64(x, y):
    """libdevice's is a call. The logarithm is taken with what rounding cut off it, so is its product with y."""
    a = libdevice.fabs(x)
    if y == 0.0 or x == 1.0 or (a == 1.0 and y + y == y):
        return 1.0
    if x != x or y != y:
        return x + y
    whole = y == libdevice.rint(y)
    if a == 0.0 or a + a == a:  # 0, infinite
        result = 0.0 if (a == 0.0) == (y > 0.0) else a + 1.0 / a
    elif x < 0.0 and not whole:
        return (x - x) / (x - x)
    else:
        high = libdevice.log(a)
        low = libdevice.fma(a, libdevice.exp(-high), -1.0) if libdevice.fabs(high) < 700.0 else 0.0
        top = y * high
        rest = libdevice.fma(y, high, -top) + y * low
        result = libdevice.exp(top)
        result = libdevice.fma(result, rest, result) if result - result == 0.0 and rest - rest == 0.0 else result
    negative = (x < 0.0 or 1.0 / x < 0.0) and whole and libdevice.floor(0.5 * y) * 2.0 != y
    return -result if negative else result


TRIG32, TRIG64 = {"sin": sin32, "cos": cos32}, {"sin": sin64, "cos": cos64}


# ---- words of a thread -----------------------------------------------------------------------------------------------------------
def index():
    """This thread's number in the grid."""
    return types.int64(cuda.blockIdx.x) * types.int64(cuda.blockDim.x) + types.int64(cuda.threadIdx.x)


def block():
    return cuda.blockIdx.x


def thread():
    return cuda.threadIdx.x


def barrier():
    """Wait until every thread of the block (of the row, where rows share a block) has come here, and see what the others wrote. The one
    in row_words.py takes its place."""
    cuda.syncthreads()


# ---- tables ---------------------------------------------------------------------------------------------------------------------
def float_words(dtype: np.dtype) -> dict[str, Any]:
    """The words of float32 or float64."""
    narrow = dtype == np.float32
    kind = types.float32 if narrow else types.float64
    found = {word: getattr(libdevice, word + "f" if narrow else word) for word in SAME}
    found |= {word: made(function, dtype) for word, function in (TRIG32 if narrow else TRIG64).items()}
    if not narrow:
        found["pow"] = made(pow64, dtype)
    own = {"select": select, "maximum": maximum, "minimum": minimum, "sign": sign}
    return found | {
        **{word: made(function, dtype) for word, function in own.items()},
        "fmax": libdevice.fmaxf if narrow else libdevice.fmax,
        "abs": libdevice.fabsf if narrow else libdevice.fabs, "exp_down": found["exp"], "real": kind, "wide": types.float64,
        "bell": made(bell32 if narrow else bell64, dtype),
        "normal_tail": made(normal_tail32 if narrow else normal_tail64, dtype),
        "INF": dtype.type(np.inf), "EPS": np.finfo(dtype).eps,
    }  # fmt: skip


def whole_words(dtype: np.dtype) -> dict[str, Any]:
    """The words of integers."""
    own = {"abs": absolute, "select": select, "maximum": maximum, "minimum": minimum, "fmax": maximum, "sign": sign_int}
    same = dict.fromkeys(("floor", "ceil", "rint"), unchanged)
    return {word: made(function, dtype) for word, function in (own | same).items()} | {"wide": types.int64}


@cache
def made(function: Callable, dtype: np.dtype) -> Any:
    """A word for a dtype: its float literals are of that type."""
    return device_function(typed(function, dtype, PLAIN, False))


HOMES = plain_row_words.__name__, __name__, row_words.__module__
PLAIN = Compiler(lambda dtype: {}, (), lambda function, reorder: device_function(function))


@cache
def words_of(dtype: np.dtype, threads: int, lanes: int, wide: bool) -> dict[str, Any]:
    """Every word for kernels of this dtype, in blocks of so many threads, of which so many share a row; `wide`: see row_words.py."""
    found = float_words(dtype) if dtype.kind == "f" else whole_words(dtype)
    found |= {word.__name__: made(word, dtype) for word in (index, block, thread)}
    return found | row_words(dtype, threads, lanes, wide)


@cache
def dialect(threads: int, lanes: int, wide: bool) -> Compiler:
    return Compiler(lambda dtype: words_of(dtype, threads, lanes, wide), HOMES, lambda function, reorder: device_function(function))
