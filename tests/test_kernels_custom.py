"""The loops that are not maps, rows or folds, against oracles. Here: gemm, matmul, linear, the disk cache.

Each loop is run for float32 (two workers) and float64 (one) and compared with NumPy in float64, with
PyTorch where its choices matter (ties, NaN, fully masked rows). Parallel kernels must give the same bits for
any number of threads. The helpers also serve test_kernels_attention.py and test_kernels_conv.py.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest

from flamepy.backend.cpu.products import gemm as products
from flamepy.backend.cpu.products import matmul
from flamepy.backend.cpu.runtime import parallel
from flamepy.backend.cpu.runtime.compiler import DIALECT, words_of
from flamepy.backend.formula.bind import bind

F32, F64 = np.dtype("float32"), np.dtype("float64")
WAYS = [(F32, 2), (F64, 1)]  # dtype, workers
PLAIN = (F64, None)  # the loop as it is written, not compiled
Array = np.ndarray


@cache
def kernel(loop: Any, dtype: np.dtype, formula: Any = None) -> Any:
    return bind(loop, formula, dtype, DIALECT)


def run(loop: Any, way: Any, *args: Any, formula: Any = None) -> None:
    """Call a loop bound for way = (dtype, workers): arrays flat, floats in its dtype."""
    flat = [a.reshape(-1) if isinstance(a, Array) else way[0].type(a) if isinstance(a, float) else a for a in args]
    if way[1] is None:
        FunctionType(loop.__code__, {**loop.__globals__, "F": formula})((0, 1), *flat)
    else:
        kernel(loop, way[0], formula)(way[1], *flat)


def draw(*shape: int, dtype: np.dtype = F64, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def blank(*shape: int, dtype: np.dtype) -> Array:
    """An output as an op gets it: with whatever was in the memory."""
    return np.full(shape, np.nan, dtype)


def close(got: Array, want: Any, dtype: np.dtype) -> None:
    tolerance = 3e-5 if dtype == F32 else 1e-11
    np.testing.assert_allclose(got, np.asarray(want).reshape(got.shape), tolerance, tolerance)


def table(*values: int) -> Array:
    return np.array(values, np.int64)


def same_bits(call: Any) -> None:
    """`call(way)` gives the same bits with one worker, two and five."""
    want = call((F32, 1))
    for workers in (2, 5, 2):
        for i, (got, wanted) in enumerate(zip(call((F32, workers)), want, strict=True)):
            assert got.tobytes() == wanted.tobytes(), (i, np.flatnonzero(got != wanted))


# ---- gemm and matmul
def from_python(word: Any) -> Any:
    """A word as Python can call it: by itself it has no entry for that."""
    return numba.njit(lambda *args: word(*args))  # noqa: PLW0108  (njit of a jitted function is that function)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_plain_gemm_is_the_compiled_one(ta: bool, tb: bool) -> None:
    a, b, c = draw(40), draw(60), draw(50)
    got = c.copy()
    from_python(words_of(F64).get("gemm"))(ta, tb, 3, 4, 5, 0.5, a, 2, 6, b, 3, 7, True, got, 1, 8)
    want = c.copy()
    products.gemm(ta, tb, 3, 4, 5, 0.5, a, 2, 6, b, 3, 7, True, want, 1, 8)
    close(got, want, F64)
    assert (got != c).sum() == 12


def call_matmul(way: Any, a: Array, b: Array, ta: bool, tb: bool) -> Array:
    """a (..., m, k), b (..., k, n) as stored when ta, tb; batch axes broadcast through the offsets."""
    a, b = a.astype(way[0]), b.astype(way[0])
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    count = math.prod(batch)
    starts = []
    for x in (a, b):
        each = np.arange(math.prod(x.shape[:-2])).reshape(x.shape[:-2]) * (x.shape[-1] * x.shape[-2])
        starts.append(np.ascontiguousarray(np.broadcast_to(each, batch).reshape(-1), np.int64))
    m, k = a.shape[-2:][:: -1 if ta else 1]
    n = b.shape[-2] if tb else b.shape[-1]
    c = blank(*batch, m, n, dtype=way[0])
    run(matmul.matmul, way, c, a, b, *starts, count, m, n, k, ta, tb)
    return c


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize("batches", [((), ()), ((3,), ()), ((2, 1), (4,)), ((1,), (5,)), ((0,), (0,))])
def test_matmul(way: Any, ta: bool, tb: bool, batches: Any) -> None:
    a, b = draw(*batches[0], 7, 5), draw(*batches[1], 5, 9, seed=1)
    want = a @ b
    a, b = (
        np.ascontiguousarray(a.swapaxes(-1, -2)) if ta else a,
        np.ascontiguousarray(b.swapaxes(-1, -2)) if tb else b,
    )
    close(call_matmul(way, a, b, ta, tb), want, way[0])


SIZES = [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (1, 300, 40), (300, 1, 40), (193, 131, 65), (70, 97, 1000)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m, n, k", SIZES)
def test_matmul_sizes(way: Any, m: int, n: int, k: int) -> None:
    a, b = draw(m, k) / 8, draw(k, n) / 8
    close(call_matmul(way, a, b, False, False), a @ b, way[0])
    close(call_matmul(way, a, b.T.copy(), False, True), a @ b, way[0])
    close(call_matmul(way, a.T.copy(), b, True, False), a @ b, way[0])


@pytest.mark.parametrize("m", [0, 1, 3, 4, 24, 25, 27, 48, 49, 300, 383, 385, 1000, 4096, 100_000])
def test_strips_are_equal_and_panels_cover(m: int) -> None:
    for n in (0, 1, 65, 96, 97, 128, 384, 50_000):
        down, across = matmul.cut(m, n)
        heights = np.diff([matmul.edge(i, down, m) for i in range(down + 1)])
        assert heights.sum() == m and (not m or (heights.max() <= matmul.STRIP + 3 and heights.min() >= min(products.SINGLE + 1, m)))
        assert 0 <= n - (across - 1) * products.PANEL <= products.PANEL * 3 // 2
        for workers in (1, 2, 3, 7, 16):
            parts = [parallel.strips_of((w, workers), panel, down, across) for panel in range(min(across, 9)) for w in range(workers)]
            strips = [strip for first, last in parts for strip in range(first, last)]
            assert sorted(strips) == sorted([*range(down)] * min(across, 9))


def same(z: float) -> float:
    return z


def call_linear(way: Any, x: Array, w: Array, bias: Any = None, residual: Any = None, flip: bool = False) -> Array:
    """x @ w.T (with flip: x @ w) + bias + residual by the loop; what isn't there is a NaN."""
    x, w = x.astype(way[0]), w.astype(way[0])
    n = w.shape[1] if flip else w.shape[0]
    y, nothing = blank(x.shape[0], n, dtype=way[0]), blank(1, dtype=way[0])
    extra = [nothing if a is None else a.astype(way[0]) for a in (bias, residual)]
    run(matmul.linear, way, y, nothing, x, w, *extra, len(x), n, x.shape[1], flip, bias is not None, residual is not None, 0, formula=same)
    return y


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows, n_out, n_in", [*SIZES, (100, 70, 300), (256, 96, 32), (40, 33, 500)])
def test_linear(way: Any, rows: int, n_out: int, n_in: int) -> None:
    x, w, b, r = draw(rows, n_in) / 8, draw(n_out, n_in) / 8, draw(n_out), draw(rows, n_out, seed=1)
    close(call_linear(way, x, w), x @ w.T, way[0])
    close(call_linear(way, x, w, b, r), x @ w.T + b + r, way[0])
    close(call_linear(way, x, w.T.copy(), flip=True), x @ w.T, way[0])


@pytest.mark.parametrize("way", WAYS)
def test_an_input_gradient_of_rows_that_lie_far_apart(way: Any) -> None:
    x, w = draw(70, 300) / 8, draw(300, 1027) / 8
    close(call_linear(way, x, w, flip=True), x @ w, way[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows, n_out, n_in", [(7, 5, 3), (0, 4, 3), (130, 65, 70), (9, 0, 2), (9, 3, 0), (257, 131, 1), (500, 70, 97)])
def test_linear_dw(way: Any, rows: int, n_out: int, n_in: int) -> None:
    g, x = draw(rows, n_out, dtype=way[0]) / 8, draw(rows, n_in, dtype=way[0]) / 8
    want = g.T.astype(F64) @ x, g.astype(F64).sum(0)
    for has_bias in (False, True):
        dw, db = blank(n_out, n_in, dtype=way[0]), blank(n_out, dtype=way[0])
        run(matmul.linear_dw, way, dw, db, g, x, rows, n_out, n_in, has_bias, False, False)
        close(dw, want[0], way[0])
        close(db, want[1] if has_bias else np.full(n_out, np.nan), way[0])
    for add_w, add_b in ((True, False), (False, True)):
        dw, db = np.ones((n_out, n_in), way[0]), np.ones(n_out, way[0])
        run(matmul.linear_dw, way, dw, db, g, x, rows, n_out, n_in, True, add_w, add_b)
        close(dw, want[0] + add_w, way[0])
        close(db, want[1] + add_b, way[0])


def derivative(g: float, z: float) -> float:
    return g * z


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows, n_out, n_in", [(7, 5, 3), (130, 65, 70), (9, 0, 2), (257, 131, 1)])
def test_linear_dx(way: Any, rows: int, n_out: int, n_in: int) -> None:
    g, z, w = draw(rows, n_out) / 8, draw(rows, n_out, seed=1), draw(n_out, n_in)
    dx, dz = blank(rows, n_in, dtype=way[0]), blank(rows, n_out, dtype=way[0])
    run(matmul.linear_dx, way, dx, dz, *(a.astype(way[0]) for a in (g, z, w)), rows, n_out, n_in, formula=derivative)
    close(dz, g * z, way[0])
    close(dx, (g * z) @ w, way[0])


def test_matmul_bits() -> None:
    x, w, b = draw(390, 200), draw(150, 200), draw(150)

    def call(way: Any) -> list[Array]:
        g, dw, db = draw(390, 150, dtype=F32), blank(150, 200, dtype=F32), blank(150, dtype=F32)
        run(matmul.linear_dw, way, dw, db, g, x.astype(F32), 390, 150, 200, True, False, False)
        dx, dz = blank(390, 200, dtype=F32), blank(390, 150, dtype=F32)
        run(matmul.linear_dx, way, dx, dz, g, g + 1, w.astype(F32), 390, 150, 200, formula=derivative)
        y, flipped = call_linear(way, x, w, b), call_linear(way, x, w.T.copy(), b, flip=True)
        return [call_matmul(way, x, w, False, True), y, flipped, dw, db, dx, dz]

    same_bits(call)


def test_matmul_runs_uncompiled() -> None:
    a, b = draw(3, 4, 5), draw(6, 5)
    close(call_matmul(PLAIN, a, b, False, True), a @ b.T, F64)
    close(call_linear(PLAIN, a[0], b, draw(6), draw(4, 6)), a[0] @ b.T + draw(6) + draw(4, 6), F64)
    close(call_linear(PLAIN, np.tile(a[0], (30, 1)), b), np.tile(a[0], (30, 1)) @ b.T, F64)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("rows, cols", [(3, 5), (16, 16), (19, 33), (1, 40), (0, 4)])
def test_turn_matrix(dtype: Any, rows: int, cols: int) -> None:
    x, got = draw(2000, dtype=dtype), np.zeros(2000, dtype)
    from_python(words_of(dtype).get("turn_matrix"))(rows, cols, x, 4, cols + 2, got, 2, rows + 1)
    want = np.zeros(2000, dtype)
    products.turn_matrix(rows, cols, x, 4, cols + 2, want, 2, rows + 1)
    assert np.array_equal(got, want) and np.count_nonzero(got) == rows * cols


# ---- the disk cache

SECOND = """
import numpy as np
import test_kernels_attention as a, test_kernels_conv as c, test_kernels_custom as t
way = (t.F32, 2)
a.test_attention_on_a_fused_buffer(way)
t.call_matmul(way, t.draw(7, 5), t.draw(5, 9), False, False)
t.call_linear(way, t.draw(7, 5), t.draw(9, 5))
image, weight, g = t.draw(1, 2, 5, 5), t.draw(3, 2, 3, 3), t.draw(1, 3, 3, 3)
c.call_conv(way, image, weight, t.draw(3), g, (1, 1), (0, 0), (1, 1), 1)
loops = (t.matmul.matmul, c.listed_conv.conv2d, c.listed_conv.conv2d_dw, c.conv.conv2d_dw_sum)
heads = (a.attention.attention, a.attention.rows_y), (a.attention.attention_dx, a.attention.rows_dx)
for loop, formula in [*heads, *((loop, None) for loop in loops), (t.matmul.linear, t.same)]:
    stats = t.kernel(loop, way[0], formula).stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_kernels_with_gemm_come_from_the_disk_cache() -> None:
    here = Path(__file__).parent
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here), str(here.parent)))}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", SECOND], env=paths, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0"] * 7
