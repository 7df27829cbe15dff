"""`gemm` for any size: beside NumPy in float64, with pages around the operands that must not be touched, on other instruction sets; and the
machine code of its innermost loop."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flamepy as fp
from flamepy.backend.cpu.products import gemm as products
from flamepy.backend.cpu.runtime import processor

PAGE = mmap.PAGESIZE
F32, F64 = np.dtype("float32"), np.dtype("float64")
BOUND = {F32: 2e-6, F64: 4e-15}  # of |a| |b|: a chain of up to 1,100 sums, rounded each time


class Fenced:
    """Memory between two pages nobody may touch: what a matrix reads or writes beyond its end (or before its start) ends the process."""

    def __init__(self, shape: tuple[int, int], dtype: np.dtype, stride: int, at_end: bool):
        rows, cols = shape
        size = max(0, (rows - 1) * stride + cols) if rows and cols else 0
        room = -(-max(1, size * dtype.itemsize) // PAGE) * PAGE
        self.map = mmap.mmap(-1, room + 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        libc = ctypes.CDLL(None, use_errno=True)
        for fence in (address, address + PAGE + room):
            assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(PAGE), 0) == 0
        start = PAGE + (room - size * dtype.itemsize if at_end else 0)
        self.flat = np.frombuffer(self.map, dtype, size, start)
        self.flat[:] = np.nan
        self.values = np.lib.stride_tricks.as_strided(self.flat, shape if size else (0, 0), (stride * dtype.itemsize, dtype.itemsize))
        self.stride = stride * dtype.itemsize
        self.address = address + start


avx2 = pytest.mark.skipif("avx2" not in processor.features(), reason="needs a processor with AVX2")


def call(itemsize: int) -> Any:
    products.load(itemsize)
    return next(made.ctypes for made in products.kept if made.__name__.startswith(f"gemm_at{itemsize}_"))


SIZES = st.one_of(st.integers(0, 20), st.sampled_from([31, 32, 33, 47, 48, 49, 63, 64, 65, 97, 127, 129, 193]))


@settings(max_examples=150, deadline=None)
@given(
    SIZES, st.one_of(SIZES, st.sampled_from([257, 511, 1030])), st.one_of(SIZES, st.sampled_from([383, 385, 769, 1100])), st.booleans(),
    st.booleans(), st.booleans(), st.sampled_from([F32, F64]), st.one_of(st.integers(0, 3), st.just(1027)), st.booleans(),
    st.integers(0, 2**31),
)  # fmt: skip
def test_any_size_between_fences(
    m: int, n: int, k: int, ta: bool, tb: bool, add: bool, dtype: np.dtype, gap: int, at_end: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    shapes = (k, m) if ta else (m, k), (n, k) if tb else (k, n), (m, n)
    a, b, c = (Fenced(shape, dtype, shape[1] + gap, at_end) for shape in shapes)
    for x in (a, b, c):
        x.values[...] = random.standard_normal(x.values.shape)
    old, outside = c.values.astype(F64), c.flat.copy()
    call(dtype.itemsize)(ta, tb, m, n, k, 0.5, a.address, a.stride, b.address, b.stride, add, c.address, c.stride)
    if m and n:
        x, y = (v.values.astype(F64).reshape(s) if v.values.size else np.zeros(s) for v, s in zip((a, b), shapes, strict=False))
        x, y = x.T if ta else x, y.T if tb else y
        want = 0.5 * (x @ y) + (old if add else 0.0)
        assert (np.abs(c.values - want) <= BOUND[dtype] * (np.abs(x) @ np.abs(y) + np.abs(old))).all()
        c.values[...] = old
    assert np.array_equal(c.flat, outside, equal_nan=True)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m, n, k", [(1, 5, 70), (7, 65, 33), (13, 17, 400)])
def test_special_values_stay_in_their_row_and_column(value: float, m: int, n: int, k: int) -> None:
    """At every edge: the last row, the last column and the last k, where a tile pads or repeats what it reads."""
    for ta in (False, True):
        for tb in (False, True):
            for i, j, p in ((m - 1, None, k - 1), (None, n - 1, k - 1), (0, None, 0)):
                x, y = np.ones((m, k), F32), np.ones((k, n), F32)
                if i is not None:
                    x[i, p] = value
                if j is not None:
                    y[p, j] = value
                a, b = np.ascontiguousarray(x.T if ta else x), np.ascontiguousarray(y.T if tb else y)
                c = np.zeros((m, n), F32)
                call(4)(ta, tb, m, n, k, 1.0, *place(a), *place(b), False, *place(c))
                with np.errstate(invalid="ignore"):
                    assert np.array_equal(c, (x.astype(F64) @ y.astype(F64)).astype(F32), equal_nan=True)


def place(x: np.ndarray) -> tuple[int, int]:
    return x.ctypes.data, x.strides[0]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "m, n, k, at_end", [(17, 65, 1, True), (64, 1030, 385, False), (83, 515, 777, True), (193, 300, 5, True), (205, 129, 0, True)]
)
def test_a_transposed_matrix_with_rows_far_apart(m: int, n: int, k: int, at_end: bool, dtype: np.dtype) -> None:
    """Its lines are copied, four at a time, for several blocks of the other matrix: sizes beside those that lines and blocks have."""
    test_any_size_between_fences.hypothesis.inner_test(m, n, k, True, False, True, dtype, 1027, at_end, 0)


def test_a_row_does_not_depend_on_the_others() -> None:
    random = np.random.default_rng(0)
    x, w = (fp.tensor(random.standard_normal(shape).astype(F32)) for shape in ((101, 777), (130, 777)))
    whole = (x @ w.T).numpy()
    for rows in (slice(0, 4), slice(40, 57), slice(97, 101)):
        assert (x[rows] @ w.T).numpy().tobytes() == whole[rows].tobytes()


BOTH = """
import sys
import numpy as np
from flamepy.backend.cpu.products import gemm as products
for size in map(int, sys.argv[1:]):
    products.load(size)
for size, made in zip(map(int, sys.argv[1:]), products.kept[::2]):
    a, b, c = (np.arange(n, dtype=f"f{size}") for n in (63, 99, 77))
    made.ctypes(0, 0, 7, 11, 9, 1.0, a.ctypes.data, 9 * size, b.ctypes.data, 11 * size, 0, c.ctypes.data, 11 * size)
    assert np.array_equal(c.reshape(7, 11), a.reshape(7, 9) @ b.reshape(9, 11)), size
"""


def test_both_types_from_the_disk_cache_of_two_processes(tmp_path: Path) -> None:
    """Compiled apart, functions of the same names must not take each other's place in a process that loads both."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for sizes in (["4"], ["8"], ["4", "8"]):
        done = subprocess.run([sys.executable, "-c", BOTH, *sizes], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


SMALL_STACK = """
import os, threading
import numpy as np
import flamepy as fp
from flamepy.backend.cpu.runtime import rooms
x = np.arange(205.0 * 300).reshape(205, 300) % 7
def product():
    whole = (fp.tensor(x) @ fp.tensor(x.T.copy())).numpy()
    few = [fp.tensor(x % 2, dtype=dtype) for dtype in (fp.float32, fp.bfloat16)]  # sums of 8 bits at most
    halves = [(y[:, :250] @ y.T[:250]).to(fp.float32).numpy() for y in few]
    done.append(np.array_equal(whole, x @ x.T) and np.array_equal(*halves))
done = []
product()  # compiling takes a stack of its own size
least = os.sysconf("SC_THREAD_STACK_MIN")  # 128 KB on ARM
threading.stack_size(max(80 << 10, least))  # the interpreter itself takes up to 56 KB
threads = [threading.Thread(target=product) for _ in range(8)]
[t.start() for t in threads], [t.join() for t in threads]
rooms.load_spaces()[: rooms.FLAGS : rooms.LINE] = b"\\1" * (rooms.SPACES)  # as if threads held every room
child = os.fork()
if not child:
    product()
    os._exit(done[-1] is not True)
print(done, os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_threads_with_small_stacks_and_forks() -> None:
    """What is packed lies in rooms of the process; a child of a fork begins with all of them free."""
    done = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, check=False, timeout=100)
    assert done.stdout == f"{[True] * 9} 0\n", done.stderr


OTHERS = {"generic": (4, 2), "haswell": (8, 2)}  # LLVM's names of processors: lanes and vectors across of their tiles
ELSEWHERE = """
import json, sys
import numpy as np
import flamepy as fp
from flamepy.backend.cpu.runtime import processor
random = np.random.default_rng(0)
worst = 0.0
for dtype in ("float32", "float64"):
    for m, k, n in ((1, 9, 30), (2, 40, 7), (5, 17, 3), (13, 400, 70), (50, 33, 9)):
        a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
        for x, y in ((a, b), (a.T.copy().T, b), (a, b.T.copy().T)):
            c = (fp.tensor(x, dtype=dtype) @ fp.tensor(y, dtype=dtype)).numpy()
            x, y = (v.astype(dtype).astype("float64") for v in (x, y))
            worst = max(worst, float((abs(c - x @ y) / (abs(x) @ abs(y))).max() / np.finfo(dtype).eps))
print(json.dumps([worst, processor.tile(4)[0], processor.tile(4)[2]]))
"""


def elsewhere(code: str, name: str, folder: Path) -> Any:
    """What a process prints that compiles for another processor."""
    features = {} if name == "generic" else {"NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+sse2,+sse4.2"}
    other = {} if name == "here" else {"NUMBA_CPU_NAME": name, **features}
    environment = {**os.environ, **other, "NUMBA_CACHE_DIR": str(folder), "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@avx2
@pytest.mark.parametrize("name", OTHERS)
def test_narrower_vectors(name: str, tmp_path: Path) -> None:
    worst, *tile = elsewhere(ELSEWHERE, name, tmp_path)
    assert tuple(tile) == OTHERS[name] and worst < 16


# ---- machine code ----------------------------------------------------------------------------------------------------------------
ASSEMBLY = """
import json
from numba import njit, types
from flamepy.backend.cpu.products import micro
from flamepy.backend.cpu.runtime import inner, peak, processor

def text(kernel, numbers, *rest):
    call = eval("lambda " + (args := ", ".join("abcdefghijkl"[: numbers + len(rest)])) + f": kernel({args})", {"kernel": kernel})
    return next(iter(njit((*[types.int64] * numbers, *rest), **inner.KERNEL)(call).inspect_asm().values()))

found = []
for number in (types.float32, types.float64):
    size, tile = number.bitwidth // 8, processor.tile(number.bitwidth // 8)
    for own in (tile, tile._replace(rows=tile.rows + 4)):  # and one whose sums need more registers than there are
        kernels = [micro.micro_kernel(size, own, apart) for apart in (True, False)]
        found += [[size, *own, own == tile, text(kernel, 10, number, types.boolean)] for kernel in kernels]
    found.append([size, tile.lanes, tile.rows, tile.across, None, text(peak.chain_kernel(size, tile), 4)])
print(json.dumps(found))
"""


def innermost(assembly: str) -> list[str]:
    """The instructions of the loop that multiplies: from a label with packed multiply-adds behind it to the jump back there."""
    labels = re.split(r"^(\.L\w+):", assembly, flags=re.M)
    loops = []
    for label, body in zip(labels[1::2], labels[2::2], strict=True):
        lines = [line.strip() for line in body.splitlines()]
        ends = [i for i, line in enumerate(lines) if re.fullmatch(rf"j\w+\s+{re.escape(label)}", line)]
        if ends and any(line.startswith("vfmadd") for line in lines):
            loops.append(lines[: ends[0]])
    (loop,) = loops
    return loop


@avx2
@pytest.mark.parametrize("name", ["here", "haswell", "znver3"])
def test_the_innermost_loop_is_multiply_adds_on_registers(name: str, tmp_path: Path) -> None:
    """One packed multiply-add for each vector of the tile, one load for each vector of B and each row of A; sums never leave registers.
    (LLVM may unroll the loop.)"""
    for size, lanes, rows, across, fits, assembly in elsewhere(ASSEMBLY, name, tmp_path):
        kind, register = "sd"[size // 8], {16: "xmm", 32: "ymm", 64: "zmm"}[size * lanes]
        loop = innermost(assembly)
        fused = [line for line in loop if re.match(rf"vfmadd\d+p{kind}\s.*%{register}\d+$", line)]
        rounds, rest = divmod(len(fused), rows * across)
        assert rounds and not rest and len(fused) == sum(line.startswith("vf") for line in loop)
        loads = [line for line in loop if re.match(r"v\w+\s+-?\w*\(", line)]
        stores = [line for line in loop if line.endswith(")") and not line.startswith("nop")]
        spilled = [line for line in loop if line.startswith("v") and "%rsp" in line]
        if fits is None:
            assert (loads, stores, spilled) == ([], [], [])
        elif fits:
            assert len(loads) == rounds * (rows + across) and (stores, spilled) == ([], [])
        else:
            assert spilled
