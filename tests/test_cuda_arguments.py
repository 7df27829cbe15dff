"""What user kernels take in flamepy.cuda.emulate: every type of array and number that numba-cuda passes, tuples of them, arrays whose
elements share memory; and what it does not pass is refused with what to do.

Oracles: NumPy, ml_dtypes, Numba's own rules (numba.cuda.dispatcher, _prepare_args).
"""

from __future__ import annotations

from collections import namedtuple

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32
from numba.cuda.bf16 import bfloat16, hexp

import flamepy as fp

emulate = fp.cuda.emulate
BF = np.dtype(ml_dtypes.bfloat16)
Pair = namedtuple("Pair", "a b")


def copied(y, x):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]


def copied_rows(y, x):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        y[i, j] = x[i, j]


def put(y, value):
    y[0] = value


def added(y, both):
    i = cuda.grid(1)
    y[i] = both[0][i] + both[1][0] * both[1][1][i]


def added_by_name(y, both):
    y[0] = both.a[0] + both.b


def starred(y, *xs):
    y[0] = xs[0]


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i8", "f2", "f8", "c8", "c16", "M8[s]", "m8[us]"])
def test_arrays_and_numbers_of_every_type(dtype: str) -> None:
    x = np.arange(9).astype(dtype) if dtype != "?" else np.arange(9) % 2 == 0
    emulate(copied, 1, 16, y := np.zeros_like(x), x)
    np.testing.assert_array_equal(y, x)
    emulate(put, 1, 1, y, x[5] if dtype[0] != "c" else x[5] - 2j)
    assert y[0] == (x[5] if dtype[0] != "c" else x[5] - 2j)


def test_tuples_of_arrays_and_numbers() -> None:
    a, b = np.arange(4.0), np.arange(4, dtype="f4")
    emulate(added, 1, 4, y := np.zeros(4), (a, (3, b)))
    np.testing.assert_array_equal(y, a + 3 * b)
    emulate(added_by_name, 1, 1, y, Pair(a[2:], 0.5))
    assert y[0] == 2.5
    with raises(fp.EmulationError, "which would be element 3 of both[1][1], an array of 3 ", "by thread 3"):
        emulate(added, 1, 4, y, (a, (3, b[:3])))
    kernel = fp.cuda.compile(added, "void(float64[::1], Tuple((float64[::1], Tuple((int64, float32[::1])))))")
    assert "both: (float64[:], (int64, float32[:]))" in str(kernel)
    with raises(TypeError, "added: not what both[1] is: 7. It takes both[1]: (int64, float32[:])."):
        emulate(kernel, 1, 4, y, (a, 7))


def test_what_is_refused_says_what_to_do() -> None:
    y = np.zeros(4)
    for value, words in (
        (2**64, "18446744073709551616: whole numbers have 64 bits"), (BF.type(2), "a number in bfloat16. Give an array, or np.float32(2)"),
    ):  # fmt: skip
        with raises(TypeError, "put: not an argument of a kernel: ", words):
            emulate(put, 1, 1, y, value)
    with raises(TypeError, "copied: not what x is: a masked array. Give its data, and its mask as another array."):
        emulate(copied, 1, 4, y, np.ma.zeros(4))
    with raises(fp.DeviceError, "starred: a kernel with *args or **kwargs: numba-cuda launches none. Name the arguments, or give"):
        emulate(starred, 1, 4, y, 1, 2)


def test_elements_that_share_memory_do_so_there() -> None:
    """numba-cuda sends such an array as it is, with strides of 0 (devicearray.array_core)."""
    row = np.arange(4, dtype="f4")
    emulate(copied_rows, 1, (4, 4), y := np.zeros((3, 4), "f4"), np.broadcast_to(row, (3, 4)))
    np.testing.assert_array_equal(y, np.broadcast_to(row, (3, 4)))
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(6, dtype="f4"), 3)
    emulate(copied_rows, 1, (4, 4), y := np.zeros((4, 3), "f4"), windows)
    np.testing.assert_array_equal(y, windows)
    report = emulate(copied, 1, 32, np.zeros(32, "f4"), np.broadcast_to(row[:1], 32))
    assert report.transactions == 1 + 4
    one = np.lib.stride_tricks.as_strided(np.zeros(1, "f4"), (4,), (0,))
    with raises(fp.EmulationError, "race: thread 1 of block 0 writes", "what thread 0 of block 0 wrote", "which is y[0]"):
        emulate(copied, 1, 4, one, row)
    with raises(fp.ShapeError, "copied: elements of y share memory: strides (0,). Give a copy."):
        emulate(fp.cuda.compile(copied, "void(float32[::1], float32[::1])"), 1, 4, one, row)


# ---- bfloat16 ----------------------------------------------------------------------------------------------------------------------
def computed(y, x, z):
    i = cuda.grid(1)
    a, b = x[i], z[i]
    y[0, i], y[1, i], y[2, i], y[3, i], y[4, i] = a + b, a - b, a * b, a / b, -a
    y[5, i] = bfloat16((a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a >= b) + 32 * (a > b))
    y[6, i] = bfloat16(float32(a) * float32(1.1))


def rounded(y, x):
    i = cuda.grid(1)
    y[i] = bfloat16(x[i])


def exponential(y, x):
    y[0] = hexp(x[0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_arrays_of_bfloat16() -> None:
    x, z = np.random.default_rng(0).standard_normal((2, 32)).astype(BF)
    x[3], x[5], z[6] = z[3], np.nan, np.inf
    emulate(computed, 1, 32, y := np.zeros((7, 32), BF), x, z)
    bits = sum(2.0**k * found for k, found in enumerate((x < z, x <= z, x == z, x != z, x >= z, x > z))).astype(BF)
    want = np.stack([x + z, x - z, x * z, x / z, -x, bits, (x.astype("f4") * np.float32(1.1)).astype(BF)])
    np.testing.assert_array_equal(y.astype("f4"), want.astype("f4"))
    for given, once in (  # rounded once: by way of float32, the second would be a tie
        (np.array([1 + 2**-8, 1 + 2**-8 + 2**-40, 1 + 3 * 2**-8 - 2**-45, 1e300, np.nan]), [1, 1 + 2**-7, 1 + 2**-7, np.inf, np.nan]),
        (np.array([257, 258, 259, -(2**31), 2**24 + 2**16 + 1]), [256, 258, 260, -(2**31), 2**24 + 2**17]),
    ):  # fmt: skip
        emulate(rounded, 1, 5, y := np.zeros(5, BF), given)
        np.testing.assert_array_equal(y.astype("f8"), once)
    with raises(fp.EmulationError, "exponential: a function of bfloat16 that is linked: ", ". Compute in float32: float32(x)."):
        emulate(exponential, 1, 1, y, x)
