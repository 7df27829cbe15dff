"""The vocabulary as device functions: what formulas, row bodies and kernels call on a GPU.

Words of a number are functions of NVIDIA's libdevice, by dtype; words of a thread (index, lane, barrier, ...) are the same for all.
typed() in formula/bind.py puts them in the place of the plain ones: a kernel imports the plain ones, whose names are the contract.

FLAME counterpart: the device functions of its CUDA kernels. Read next: maps.py, rows.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..formula.bind import Dialect
from .compat import cuda, device_function, libdevice, types
from .row_words import row_words

# The files that every kernel is made of:
BEHIND = ("words", "row_words", "near", "span", "vectors", "tensor", "tiles", "fragments", "runs", "compat", "build")
SOURCES = tuple(str(Path(__file__).with_name(f"{name}.py")) for name in BEHIND)

# ---- words of a number -----------------------------------------------------------------------------------------------------------
SAME = ("exp", "log", "log1p", "expm1", "tanh", "erf", "sin", "cos", "pow", "sqrt", "floor", "ceil", "rint")  # libdevice has them


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


def normal_tail32(a, e):
    return e * (0.5 * erfcx(a * 0.7071067811865476))


def normal_tail64(a, e):
    return 0.5 * erfc(a * 0.7071067811865476)


def erfc(x):
    return libdevice.erfc(x)


def erfcx(x):
    return libdevice.erfcxf(x)


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
    if not narrow:
        found["pow"] = made(pow64, dtype)
    own = {"select": select, "maximum": maximum, "minimum": minimum, "fmax": maximum, "sign": sign}
    return found | {
        **{word: made(function, dtype) for word, function in own.items()},
        "abs": libdevice.fabsf if narrow else libdevice.fabs, "exp_down": found["exp"], "real": kind, "wide": types.float64,
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
    from ..formula.bind import typed

    return device_function(typed(function, dtype, PLAIN, False))


PLAIN = Dialect(lambda function, reorder: device_function(function), lambda dtype: {}, ())


@cache
def words_of(dtype: np.dtype, threads: int, lanes: int) -> dict[str, Any]:
    """Every word for kernels of this dtype, in blocks of so many threads, of which so many share a row."""
    found = float_words(dtype) if dtype.kind == "f" else whole_words(dtype)
    found |= {word.__name__: made(word, dtype) for word in (index, block, thread)}
    return found | row_words(dtype, threads, lanes)


@cache
def dialect(threads: int, lanes: int) -> Dialect:
    return Dialect(lambda function, reorder: device_function(function), lambda dtype: words_of(dtype, threads, lanes), ())
