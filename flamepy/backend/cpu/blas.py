"""The `gemm` word: one single-threaded matrix product, called inside `prange` tasks.

    gemm(ta, tb, m, n, k, alpha, a, a_off, lda, b, b_off, ldb, beta, c, c_off, ldc)
    c[m, n] = alpha * op(a)[m, k] @ op(b)[k, n] + beta * c     row-major; ta, tb: a is (k, m), b is (n, k)

OpenBLAS comes from the package scipy-openblas32. It is loaded under its own handle, not into the process's
namespace, and only this copy is set to one thread: NumPy's and SciPy's BLAS keep theirs. Compiled code finds
it by symbol name, so kernels that use `gemm` stay in Numba's disk cache (a ctypes function would keep them
out).

May import: errors, Numba. FLAME counterpart: `flame_core::blas`. Read next: matmul.py.
"""

from __future__ import annotations

import ctypes
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
from numba import njit, types

from ...errors import DeviceError

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
            address = ctypes.cast(getattr(library, f"scipy_cblas_{letter}gemm"), ctypes.c_void_p).value
            llvmlite.binding.add_symbol(f"flamepy_{letter}gemm", address)
    except (OSError, AttributeError) as error:
        raise DeviceError(f"blas: OpenBLAS cannot be loaded: {path}: {error}. {HELP}") from error
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    return library


PATH = find_library()
LIBRARY = load(PATH)


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

    return njit(error_model="numpy")(gemm)


GEMM: dict[np.dtype, Any] = {
    np.dtype("float32"): compiled("flamepy_sgemm", np.float32, 4),
    np.dtype("float64"): compiled("flamepy_dgemm", np.float64, 8),
}


def blas_info() -> dict[str, Any]:
    """What was loaded: path, version and build options, the kernels chosen for this processor, threads."""
    text = {}
    for key in ("config", "corename"):
        function = getattr(LIBRARY, f"scipy_openblas_get_{key}")
        function.restype = ctypes.c_char_p
        text[key] = function().decode()
    threads = int(LIBRARY.scipy_openblas_get_num_threads())
    return {"path": str(PATH), "version": text["config"], "core": text["corename"], "threads": threads}
