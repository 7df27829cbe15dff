"""flamepy.cuda: kernels of users and of flamepy, compiled and run without a GPU; what is wrong in one is told by kind, name and element.

Oracles: NumPy, and counts that follow from the kernels by hand.
"""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32

import flamepy as fp

X = np.linspace(-2, 2, 1024, dtype="f4")
SIGNATURE = "void(float32[::1], float32[::1], int32)"


@cuda.jit
def doubled(y, x, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]


@cuda.jit
def strided(y, x, step):
    i = cuda.grid(1)
    y[i] = x[i * step]


@cuda.jit
def turned(y, x):
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        y[j, i] = x[i, j]


def reversed_block(y, x):
    part, i = cuda.shared.array(64, float32), cuda.threadIdx.x
    part[i] = x[i]
    cuda.syncthreads()
    y[i] = part[63 - i]


def without_barrier(y, x):
    part, i = cuda.shared.array(64, float32), cuda.threadIdx.x
    part[i] = x[i]
    y[i] = part[63 - i]


def unwritten(y, x):
    part, i = cuda.shared.array(64, float32), cuda.threadIdx.x
    if i < 63:
        part[i] = x[i]
    cuda.syncthreads()
    y[i] = part[i]


def half_a_barrier(y, x):
    i = cuda.threadIdx.x
    if i < 32:
        cuda.syncthreads()
    y[i] = x[i]


def every_32nd(y, x):
    part, i = cuda.shared.array(1024, float32), cuda.threadIdx.x
    part[32 * i] = x[i]
    y[i] = part[32 * i]


def half_of_each_warp(y, x):
    i = cuda.grid(1)
    if i % 2:
        for _ in range(100):
            y[i] = y[i] * x[i]


def test_a_function_is_compiled_for_any_gpu():
    for arch in ("sm_80", "sm_90", "sm_100"):
        kernel = fp.cuda.compile(doubled, SIGNATURE, arch)
        assert re.search(rf"\.target {arch}\b.*\.entry doubled\(", kernel.ptx, re.S)
        assert re.search(r"\bLDG\.E", kernel.sass) and re.search(r"\bSTG\.E", kernel.sass) and "EXIT" in kernel.opcodes
        assert 0 < kernel.registers < 64 and kernel.spills == kernel.shared == kernel.local == 0
        assert str(kernel).startswith("doubled(y: float32[:], x: float32[:], n: int32) for " + arch)
    assert fp.cuda.compile(reversed_block, "void(float32[::1], float32[::1])").shared == 256


def test_arrays_are_changed_in_place():
    y = np.zeros(1024, "f4")
    fp.cuda.emulate(fp.cuda.compile(doubled, SIGNATURE), 4, 256, y, X, np.int32(1000))
    assert (y[:1000] == 2 * X[:1000]).all() and not y[1000:].any()
    x = np.arange(15.0).reshape(3, 5)
    for given in (x, np.asfortranarray(x), np.arange(60.0).reshape(6, 10)[::2, ::2]):
        y = np.zeros((5, 3))
        fp.cuda.emulate(turned, (1, 1), (4, 8), y, given)  # compiled for what it is given
        assert (y == given.T).all()


def test_what_a_run_counts():
    y, x = np.zeros(1024, "f4"), np.zeros(32 * 1024, "f4")
    near, far = fp.cuda.emulate(strided, 4, 256, y, x, 1), fp.cuda.emulate(strided, 4, 256, y, x, 8)
    assert near.transactions == 2 * 1024 * 4 // 32 and near.efficiency == 1.0
    assert far.transactions == 1024 + 1024 * 4 // 32  # a sector of 32 bytes for each number read
    assert far.efficiency == pytest.approx(2 * 4096 / (32 * far.transactions))
    same = fp.cuda.emulate(strided, 4, 256, y, x, 0)  # of a sector that a warp reads it needs one number
    assert same.transactions == 32 + 128 and same.efficiency == (32 * 4 + 4096) / (32 * 160)
    half = fp.cuda.emulate(strided, 4, 256, y.astype("i2"), x.astype("i2"), 1)
    assert half.transactions == 2 * 64 and half.efficiency == 1.0
    assert near.instructions["load global"] == near.instructions["store global"] == 32 and near.divergence == near.bank_conflicts == 0
    assert fp.cuda.emulate(every_32nd, 1, 32, y, x).bank_conflicts == 31  # what it wrote a thread keeps in a register
    assert fp.cuda.emulate(half_of_each_warp, 1, 64, y, x).divergence == pytest.approx(0.5, abs=0.05)
    assert re.search(r"(?m)^  global transactions +256  100.0% .*\n  bank conflicts +0\n  divergence +0.0%", str(near))


def neighbours(y, x, n):
    part, i = cuda.shared.array((4, 32), float32), cuda.grid(1)
    part[i // 32, i % 32] = x[i]
    cuda.syncthreads()
    if i < n:
        y[i] = x[i - 2] + part[-1, i % 32] + before(part, i)


@cuda.jit(device=True)
def before(part, i):
    return part[i // 32 - 1, 0]


def counted_in(y, count):
    i = cuda.grid(1)
    if i % 2:
        cuda.atomic.add(count, i - 4, 1)
    y["a"][3 * i % 64] = i


def test_what_was_written_and_negative_indices_are_told():
    file, at = __file__, neighbours.__code__.co_firstlineno + 5
    report = fp.cuda.emulate(neighbours, 1, 128, y := np.zeros((2, 64), "f4")[0], X[:128].copy(), 50)
    assert report.written == {"y": 50, "x": 0} and report.elements == {"y": 64, "x": 128}
    assert report.negative == {f"{file}:{at}": 2 + 50, f"{file}:{at + 5}": 32} and report.negative_indices == 84
    np.testing.assert_array_equal(y[:50], np.roll(X[:128], 2)[:50] + X[96 + np.arange(50) % 32] + X[np.arange(50) // 32 * 32 - 32 & 127])
    assert "\n  elements written                 50  of the 64 of y: 14 never\n" in str(report)
    assert f"\n  negative indices                 84  counted from the end, at {file}:{at}, " in str(report)
    pairs, counts = np.zeros(64, [("a", "i2"), ("b", "f8")]), np.zeros(8, "i4")  # a field is a part of an element
    report = fp.cuda.emulate(counted_in, 1, 8, pairs[::2], counts)
    assert report.written == {"y": 8, "count": 4} and report.negative_indices == 2 and (counts == [0, 1, 0, 1, 0, 1, 0, 1]).all()
    assert fp.cuda.emulate(doubled, 1, 4, y, X, 0).written == {"y": 0, "x": 0}
    assert "of the 64 of y: 64 never" in str(fp.cuda.emulate(doubled, 1, 4, y, X, 0))
    assert re.search(r"64  of the 64 of y: all$", str(fp.cuda.emulate(doubled, 1, 64, y, X, 64)))


FAULTS = {
    "race": (without_barrier, 64, 64), "uninitialised": (unwritten, 64, 64), "barrier": (half_a_barrier, 64, 64),
    "out of bounds": (reversed_block, 60, 64),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_have_a_kind(kind):
    function, size, threads = FAULTS[kind]
    with pytest.raises(fp.EmulationError) as error:
        fp.cuda.emulate(function, 1, threads, np.zeros(64, "f4"), np.ones(size, "f4"))
    text = str(error.value)
    assert error.value.kind == kind and isinstance(error.value, RuntimeError)
    assert text.startswith(function.__name__ + ": ") and "test_cuda_public.py:" in text and "thread " in text
    if kind == "out of bounds":
        assert "element 60 of x, an array of 60 (shape (60,), float32)" in text
    fp.cuda.emulate(reversed_block, 1, 64, y := np.zeros(64, "f4"), X[:64].copy())  # and the next launch is right
    assert (y == X[63::-1]).all()


def test_misaligned_and_far_outside():
    gelu = fp.cuda.compile("gelu")
    wide = gelu.ptx.count("ld.global.v4")
    assert wide and gelu.threads == 256
    moved = re.sub(r"(ld\.global\.v4\.\w+\s+\{[^}]*\},\s*\[%rd\d+)\]", r"\1+4]", gelu.ptx)
    object.__setattr__(gelu, "ptx", moved)
    with pytest.raises(fp.EmulationError) as error:
        fp.cuda.emulate(gelu, 1, 256, np.zeros(2048, "f4"), np.zeros(2048, "f4"))
    assert error.value.kind == "misaligned" and "c[0][1]" in str(error.value)
    with pytest.raises(fp.EmulationError) as error:  # not into the other array
        fp.cuda.emulate(strided, 1, 256, np.zeros(256, "f4"), np.zeros(256, "f4"), 1000)
    assert error.value.kind == "out of bounds" and "element 1000 of x" in str(error.value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_flamepys_own_kernels_by_name(dtype):
    kernel = fp.cuda.compile("gelu", dtype)
    x = X.astype(kernel.arguments[0].dtypes[0])
    y = np.zeros_like(x)
    fp.cuda.emulate(kernel, 8, kernel.threads, y, x)
    want = fp.gelu(fp.tensor(x)).numpy()
    assert np.abs(y.astype("f8") - want.astype("f8")).max() <= np.finfo("f4").eps * 8 + (0.02 if dtype == "bfloat16" else 0)


def test_what_is_not_possible_is_said():
    y = np.zeros(4, "f4")
    with raises(ValueError, "no such name: 'gelo'. Did you mean gelu"):
        fp.cuda.compile("gelo")
    with raises(ValueError, "compile: no such architecture: 'hopper'. Use sm_80"):
        fp.cuda.compile(doubled, SIGNATURE, "hopper")
    with raises(TypeError, "compile: no signature: doubled. Say which types"):
        fp.cuda.compile(doubled)
    with raises(ValueError, "compile: not a signature: 'void(flt)'. Write it"):
        fp.cuda.compile(doubled, "void(flt)")
    with raises(fp.DeviceError, "doubled: cannot be compiled for CUDA: ", ". Write it in Numba's CUDA Python."):
        fp.cuda.compile(doubled, "void(int32, int32, int32)")
    kernel = fp.cuda.compile(doubled, SIGNATURE)
    with raises(TypeError, "doubled: wrong number of arguments: 2. It takes 3: y: float32[:], x: float32[:], n: int32."):
        fp.cuda.emulate(kernel, 1, 4, y, y)
    with raises(fp.DTypeError, "doubled: not what x is: an array of float64. It takes x: float32[:]."):
        fp.cuda.emulate(kernel, 1, 4, y, np.zeros(4), 4)
    with raises(AttributeError, "cuda: no such name: 'is_available'. Ask flamepy.device('cuda')"):
        _ = fp.cuda.is_available


def test_without_the_compilers_the_extra_is_named():
    code = """
import sys
sys.modules["numba.cuda"] = None
import flamepy
try:
    flamepy.cuda.compile("gelu")
except flamepy.DeviceError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "cuda: a package is not installed: numba-cuda. Use pip install 'flamepy[cuda-emulator]'.\n"


WARNS = """
import warnings
import numba
import numpy as np

real = np.timedelta64
def deprecated(*given):
    warnings.warn("the 'generic' unit", DeprecationWarning)
    return real(*given)
np.timedelta64 = deprecated
warnings.simplefilter("error")
from flamepy.backend.cuda.runtime import compat
print(compat.cuda.implementation)
"""


def test_what_numpy_deprecates_in_numba_cuda_is_no_error():
    """As NumPy 2.5 does of a line that numba-cuda runs when it is imported."""
    done = subprocess.run([sys.executable, "-c", WARNS], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "NVIDIA\n", done.stderr
