"""The loops that are not maps, rows or folds, against oracles. Here: gemm, matmul, linear, the disk cache.

Each loop is run for float32 (two workers) and float64 (one) and compared with NumPy in float64, with
PyTorch where its choices matter (ties, NaN, fully masked rows). Parallel kernels must give the same bits for
any number of threads. The helpers also serve test_kernels_attention.py and test_kernels_conv.py.

May import: flamepy.backend, NumPy, Numba. FLAME counterpart: none. Read next: test_kernels_attention.py.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flamepy.backend import plans
from flamepy.backend.cpu import blas, matmul
from flamepy.backend.cpu.compiler import DIALECT
from flamepy.backend.template import bind

F32, F64 = np.dtype("float32"), np.dtype("float64")
WAYS = [(F32, 2), (F64, 1)]  # dtype, workers
PLAIN = (F64, None)  # the loop as it is written, not compiled
Array = np.ndarray


@cache
def kernel(loop: Any, dtype: np.dtype) -> Any:
    return bind(loop, None, dtype, DIALECT)


def run(loop: Any, way: Any, *args: Any) -> None:
    """Call a loop bound for way = (dtype, workers): arrays flat, floats in its dtype."""
    flat = [a.reshape(-1) if isinstance(a, Array) else way[0].type(a) if isinstance(a, float) else a for a in args]
    if way[1] is None:
        loop((0, 1), *flat)
    else:
        kernel(loop, way[0])(way[1], *flat)


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


def test_blas_is_private_and_single_threaded() -> None:
    info = blas.blas_info()
    assert info["threads"] == 1 and Path(info["path"]).is_file() and "OpenBLAS" in info["version"] and info["core"]
    assert set(blas.GEMM) == {F32, F64}


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_plain_gemm_is_the_compiled_one(ta: bool, tb: bool) -> None:
    a, b, c = draw(40), draw(60), draw(50)
    got = c.copy()
    blas.GEMM[F64](ta, tb, 3, 4, 5, 0.5, a, 2, 6, b, 3, 7, 2.0, got, 1, 8)
    want = c.copy()
    blas.gemm(ta, tb, 3, 4, 5, 0.5, a, 2, 6, b, 3, 7, 2.0, want, 1, 8)
    close(got, want, F64)
    assert (got != c).sum() == 12


def test_missing_library_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "find_spec", lambda name: None)
    with pytest.raises(RuntimeError, match="pip install scipy-openblas32"):
        blas.find_library()
    with pytest.raises(RuntimeError, match="cannot be loaded"):
        blas.load(tmp_path / "none.so")


def call_matmul(way: Any, a: Array, b: Array, ta: bool, tb: bool, bias: Any = None, tile: Any = None) -> Array:
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
    tile = tile or plans.tiles(m, n, count)
    extra = c if bias is None else bias.astype(way[0])
    run(matmul.matmul, way, c, a, b, extra, *starts, count, 1, m, n, k, ta, tb, bias is not None, *tile)
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
    close(call_matmul(way, a, b, ta, tb, draw(9), (3, 4)), want + draw(9), way[0])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m, n, k", [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (1, 300, 40), (300, 1, 40), (193, 131, 65)])
def test_matmul_sizes(way: Any, m: int, n: int, k: int) -> None:
    close(call_matmul(way, draw(m, k), draw(k, n), False, False), draw(m, k) @ draw(k, n), way[0])


@pytest.mark.parametrize("way", WAYS)
def test_matmul_sums_terms(way: Any) -> None:
    a, b = draw(2, 3, 4, 5, dtype=way[0]), draw(3, 5, 6, dtype=way[0])
    c = blank(2, 4, 6, dtype=way[0])
    starts = np.arange(6, dtype=np.int64)
    run(matmul.matmul, way, c, a, b, c, starts * 20, starts % 3 * 30, 2, 3, 4, 6, 5, False, False, False, 4, 6)
    close(c, np.einsum("stij,tjk->sik", a, b), way[0])


def test_tiles_cover_and_give_work() -> None:
    for m in (0, 1, 63, 64, 127, 128, 129, 300, 1000, 4096, 100_000):
        for n in (0, 1, 65, 128, 384, 50_000):
            for batch in (0, 1, 3, 64):
                tile_m, tile_n = plans.tiles(m, n, batch)
                down, across = -(-m // tile_m), -(-n // tile_n)
                assert tile_m >= 1 and tile_n >= 1 and down * across <= 64
                if batch == 1 and m * n >= 128 * 128 and min(m, n) >= 64:
                    assert down * across >= 4 and tile_m >= 64


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows, n_out, n_in", [(7, 5, 3), (0, 4, 3), (130, 65, 70), (9, 0, 2), (257, 131, 1)])
def test_linear_dw(way: Any, rows: int, n_out: int, n_in: int) -> None:
    g, x = draw(rows, n_out, dtype=way[0]), draw(rows, n_in, dtype=way[0])
    dw, db = blank(n_out, n_in, dtype=way[0]), blank(n_out, dtype=way[0])
    for has_bias in (False, True):
        run(matmul.linear_dw, way, dw, db, g, x, rows, n_out, n_in, has_bias, *plans.tiles(n_out, n_in))
        close(dw, g.T.astype(F64) @ x, way[0])
        close(db, g.astype(F64).sum(0) if has_bias else np.full(n_out, np.nan), way[0])


def test_matmul_bits() -> None:
    x, w, b = draw(390, 200), draw(150, 200), draw(150)

    def call(way: Any) -> list[Array]:
        g, dw, db = draw(390, 150, dtype=F32), blank(150, 200, dtype=F32), blank(150, dtype=F32)
        run(matmul.linear_dw, way, dw, db, g, x.astype(F32), 390, 150, 200, True, *plans.tiles(150, 200))
        return [call_matmul(way, x, w, False, True, b), dw, db]

    same_bits(call)


def test_matmul_runs_uncompiled() -> None:
    a, b = draw(3, 4, 5), draw(6, 5)
    close(call_matmul(PLAIN, a, b, False, True, draw(6)), a @ b.T + draw(6), F64)


# ---- the disk cache

SECOND = """
import numpy as np
import test_kernels_attention as a, test_kernels_conv as c, test_kernels_custom as t
way = (t.F32, 2)
a.test_attention_on_a_fused_buffer(way)
t.call_matmul(way, t.draw(7, 5), t.draw(5, 9), False, False)
image, weight, g = t.draw(1, 2, 5, 5), t.draw(3, 2, 3, 3), t.draw(1, 3, 3, 3)
c.call_conv(way, image, weight, t.draw(3), g, (1, 1), (0, 0), (1, 1), 1)
loops = (a.attention.attention, a.attention.attention_dx, t.matmul.matmul, c.conv.conv2d, c.conv.conv2d_dw, c.conv.conv2d_dw_sum)
for loop in loops:
    stats = t.kernel(loop, way[0]).stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_kernels_with_gemm_come_from_the_disk_cache() -> None:
    here = Path(__file__).parent
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join((str(here), str(here.parent)))}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", SECOND], env=paths, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0"] * 6
