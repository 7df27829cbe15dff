"""The `gemm` word: one single-threaded matrix product, called inside tasks; `copy_matrix` and `workspace` for packing.

    gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, beta, c, c_off, ldc)
    c[m, n] = alpha * op(a)[m, k] @ op(b)[k, n] + beta * c     row-major; ta, tb: a is (k, m), b is (n, k)
    copy_matrix(turn, rows, cols, a, a_off, lda, c, c_off, ldc)
    c[rows, cols] = a, or with `turn` c[cols, rows] = a transposed
    workspace(x): SPACE numbers of x's type that are this worker's until the loop ends, not initialised
    wide_space(x): COLUMNS of them, of the type that sums of x's are kept in: float64, int64

OpenBLAS comes from the package scipy-openblas32. It is loaded under its own handle, not into the process's
namespace, and only this copy is set to one thread: NumPy's and SciPy's BLAS keep theirs. Compiled code finds
it by symbol name, so kernels that use `gemm` stay in Numba's disk cache (a ctypes function would keep them
out).

FLAME counterpart: `flame_core::blas`. Read next: matmul.py.
"""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from ...errors import DeviceError
from ..formula.row_words import RUN
from .inner import INNER
from .plans import COLUMNS

SPACE = 15360  # numbers in a workspace: 60 or 120 KB of the worker's stack
N, T = False, True  # for ta and tb: as it is, transposed (BLAS's own letters)
ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112  # CBLAS's own numbers
HELP = "Install it again: pip install --force-reinstall scipy-openblas32."


def find_library() -> Path:
    """The library file of scipy-openblas32; importing the package would put it into everyone's namespace."""
    spec = find_spec("scipy_openblas32")
    if spec is None or not spec.submodule_search_locations:
        raise DeviceError("blas: package not found: scipy_openblas32. Run: pip install scipy-openblas32.")
    folder = Path(spec.submodule_search_locations[0]) / "lib"
    for file in sorted(folder.glob("libscipy_openblas*")):
        if file.suffix in (".so", ".dylib", ".dll"):
            return file
    raise DeviceError(f"blas: no OpenBLAS library in this folder: {folder}. {HELP}")


def load(path: Path) -> ctypes.CDLL:
    """Open the library with one thread; the variable keeps it from starting one for each core as it loads."""
    name = "OPENBLAS_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        library = ctypes.CDLL(str(path))
        library.scipy_openblas_set_num_threads(1)
        for letter in "sd":
            for word in ("gemm", "omatcopy"):
                address = ctypes.cast(getattr(library, f"scipy_cblas_{letter}{word}"), ctypes.c_void_p).value
                llvmlite.binding.add_symbol(f"flamepy_{letter}{word}", address)
    except (OSError, AttributeError) as error:
        raise DeviceError(f"blas: OpenBLAS cannot be loaded: {path}: {error}. {HELP}") from error
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    return library


def core() -> str:
    """The processor whose kernels OpenBLAS chose."""
    LIBRARY.scipy_openblas_get_corename.restype = ctypes.c_char_p
    return str(LIBRARY.scipy_openblas_get_corename().decode())


PATH = find_library()
LIBRARY = load(PATH)
# With AVX-512, OpenBLAS multiplies matrices of m * n * k <= 100^3 where they lie; others it copies first, which costs 10 to 20 percent.
SMALL_KERNELS = core().lower() in ("skylakex", "cooperlake", "sapphirerapids")


def gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, beta, c, c_off, ldc):
    """The word in plain Python, so that loops also run without being compiled."""
    x = np.lib.stride_tricks.as_strided(a[a_off:], (k, m) if ta else (m, k), (lda * a.itemsize, a.itemsize))
    y = np.lib.stride_tricks.as_strided(b[b_off:], (n, k) if tb else (k, n), (ldb * b.itemsize, b.itemsize))
    z = np.lib.stride_tricks.as_strided(c[c_off:], (m, n), (ldc * c.itemsize, c.itemsize))
    product = alpha * ((x.T if ta else x) @ (y.T if tb else y))
    z[...] = product if beta == 0 else product + beta * z


def compiled(symbol: str, number: Any, itemsize: int) -> Any:
    """The word for one dtype. Sizes are 32-bit in this BLAS; offsets are not limited."""
    i, f, p = types.int32, types.float32 if itemsize == 4 else types.float64, types.uintp
    call = types.ExternalFunction(symbol, types.void(i, i, i, i, i, i, f, p, i, p, i, f, p, i))

    def gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, beta, c, c_off, ldc):
        call(
            np.int32(ROW_MAJOR), np.int32(TRANSPOSED if ta else PLAIN), np.int32(TRANSPOSED if tb else PLAIN),
            np.int32(m), np.int32(n), np.int32(k), number(alpha),
            a.ctypes.data + np.uintp(a_off * itemsize), np.int32(max(lda, 1)),
            b.ctypes.data + np.uintp(b_off * itemsize), np.int32(max(ldb, 1)), number(beta),
            c.ctypes.data + np.uintp(c_off * itemsize), np.int32(max(ldc, 1)),
        )  # fmt: skip

    return njit(**INNER)(gemm)


def copy_matrix(turn, rows, cols, a, a_off, lda, c, c_off, ldc):
    """The word in plain Python."""
    x = np.lib.stride_tricks.as_strided(a[a_off:], (rows, cols), (lda * a.itemsize, a.itemsize))
    shape = (cols, rows) if turn else (rows, cols)
    np.lib.stride_tricks.as_strided(c[c_off:], shape, (ldc * c.itemsize, c.itemsize))[...] = x.T if turn else x


def compiled_copy(symbol: str, number: Any, itemsize: int) -> Any:
    """The word for one dtype."""
    i, f, p = types.int32, types.float32 if itemsize == 4 else types.float64, types.uintp
    call = types.ExternalFunction(symbol, types.void(i, i, i, i, f, p, i, p, i))

    def copy_matrix(turn, rows, cols, a, a_off, lda, c, c_off, ldc):
        if rows > 0 and cols > 0:  # BLAS prints a complaint about others
            call(
                np.int32(ROW_MAJOR), np.int32(TRANSPOSED if turn else PLAIN), np.int32(rows), np.int32(cols), number(1),
                a.ctypes.data + np.uintp(a_off * itemsize), np.int32(lda), c.ctypes.data + np.uintp(c_off * itemsize), np.int32(ldc),
            )  # fmt: skip

    return njit(**INNER)(copy_matrix)


def workspace(x):
    """The word in plain Python."""
    return np.empty(SPACE, x.dtype)


def wide_space(x):
    """The word in plain Python."""
    return np.empty(COLUMNS, np.float64 if x.dtype.kind == "f" else np.int64)


def stack_space(numbers: int, wide: bool) -> Any:
    """A word for memory on the stack of the function that calls it, as an array."""

    def space(typing: Any, x: Any) -> Any:
        number = x.dtype if not wide else types.float64 if isinstance(x.dtype, types.Float) else types.int64
        kind = types.Array(number, 1, "C")

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item = context.get_data_type(number)
            with builder.goto_entry_block():  # not cgutils.alloca_once: that fills with zeros
                memory = builder.alloca(ir.ArrayType(item, numbers))
            memory.align = 64
            made = context.make_array(kind)(context, builder)
            size, step = (context.get_constant(types.intp, n) for n in (numbers, context.get_abi_sizeof(item)))
            data = builder.bitcast(memory, made.data.type)
            populate_array(made, data=data, shape=(size,), strides=(step,), itemsize=step, meminfo=None)
            return made._getvalue()

        return kind(x), code

    return intrinsic(space)


WORKSPACE, RUN_SPACE, WIDE_SPACE = stack_space(SPACE, False), stack_space(RUN, False), stack_space(COLUMNS, True)


GEMM: dict[np.dtype, Any] = {
    np.dtype("float32"): compiled("flamepy_sgemm", np.float32, 4),
    np.dtype("float64"): compiled("flamepy_dgemm", np.float64, 8),
}
COPY: dict[np.dtype, Any] = {
    np.dtype("float32"): compiled_copy("flamepy_somatcopy", np.float32, 4),
    np.dtype("float64"): compiled_copy("flamepy_domatcopy", np.float64, 8),
}


def words(dtype: np.dtype) -> dict[str, Any]:
    """The words of this file for one dtype."""
    own = {"gemm": GEMM[dtype], "copy_matrix": COPY[dtype], "workspace": WORKSPACE} if dtype in GEMM else {}
    return {**own, "run_space": RUN_SPACE, "wide_space": WIDE_SPACE}


def blas_info() -> dict[str, Any]:
    """What was loaded: path, version and build options, the kernels chosen for this processor, threads."""
    LIBRARY.scipy_openblas_get_config.restype = ctypes.c_char_p
    threads = int(LIBRARY.scipy_openblas_get_num_threads())
    return {"path": str(PATH), "version": LIBRARY.scipy_openblas_get_config().decode(), "core": core(), "threads": threads}
