"""Folds on the emulated GPU against NumPy: sums, maxima and their places over first, middle and last axes, of nothing, of one number, of
many in several stages; NaN; buffers that begin anywhere; the same bits twice; no call in the machine code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_tools import check_code, up
from devices import emulated_gpu

import flamepy as fp
from flamepy.dtypes import bfloat16, computed, float16, float32, float64, int64

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")

from flamepy.backend.cuda.loops import reduce
from flamepy.backend.cuda.loops.maps import same

# (outer, n, inner): short lines by one thread and by warps, long lines in one and two stages, narrow and wide columns, few and many
SHAPES = [(7, 5, 1), (3, 300, 1), (40, 100, 1), (1, 40001, 1), (1, 300, 3), (2, 1000, 33), (1, 4097, 70), (40, 3, 5), (1, 1, 9)]
BETTER = {"fold_max": np.max, "argmax": np.argmax}


def draw(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng((seed, *shape)).integers(-99, 99, shape)
    return found.astype(dtype) if dtype == int64 else (found / 8).astype(dtype)


def fold(name: str, x: np.ndarray, out: Any, scale: Any, at: int = 0) -> np.ndarray:
    gpu, (outer, n, inner) = emulated_gpu(), x.shape
    y = up(gpu, np.full(outer * inner, 7, np.float32).astype(out), at)
    gpu.launch(name, same if name == "fold_sum" else None, (y,), (up(gpu, x, at),), (outer, n, inner, scale), computed(x.dtype))
    return np.array(gpu.download(y)).reshape(outer, inner)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "at"), [(float32, 1), (bfloat16, 3), (int64, 0)], ids=str)
def test_sums_along_an_axis(shape: tuple[int, int, int], dtype: Any, at: int) -> None:
    x, wide = draw(shape, dtype), computed(dtype)
    found = fold("fold_sum", x, wide, wide.type(1), at)
    np.testing.assert_array_equal(found, x.astype(float64).sum(1))  # eighths: each sum is exact in 24 bits
    assert found.tobytes() == fold("fold_sum", x, wide, wide.type(1), at).tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", BETTER)
def test_the_largest_and_its_place(name: str, shape: tuple[int, int, int]) -> None:
    x = draw(shape, float32, 1)
    for scale in (1.0, -1.0):
        found = fold(name, x, float32 if name == "fold_max" else int64, float32.type(scale))
        np.testing.assert_array_equal(found, BETTER[name](scale * x, 1) * (scale if name == "fold_max" else 1))


@pytest.mark.parametrize("shape", [(40, 100, 1), (1, 40001, 1), (2, 1000, 33)], ids=str)
def test_nan_wins_and_the_first_one_is_told(shape: tuple[int, int, int]) -> None:
    x = draw(shape, float32, 2)
    x[:, 11], x[0, 60] = np.nan, np.inf
    assert np.isnan(fold("fold_max", x, float32, float32.type(1))).all()
    assert (fold("argmax", x, int64, float32.type(1)) == 11).all()
    assert np.isnan(fold("fold_sum", x, float32, float32.type(1))).all()


@pytest.mark.parametrize("inner", [1, 5])
def test_sums_of_nothing_are_zero(inner: int) -> None:
    x = fp.tensor(np.zeros((3, 0, inner), np.float32), device=emulated_gpu())
    np.testing.assert_array_equal(fp.sum(x, axis=1).numpy(), np.zeros((3, inner)))


@pytest.mark.parametrize("dtype", [float32, float16, float64], ids=str)
def test_long_sums_keep_their_digits(dtype: Any) -> None:
    x = np.random.default_rng(3).random((1, 300_000, 1)).astype(dtype)
    exact, wide = x.astype(float64).mean(), computed(dtype)
    assert reduce.fold_plan(1, 300_000, 1)[1] > 1
    found = fold("fold_sum", x, wide, wide.type(1 / 300_000))[0, 0]
    assert abs(float(found) - exact) < 4 * np.finfo(wide).eps * exact


def test_machine_code() -> None:
    code = {"fold_lines": "LDG", "fold_columns": "LDG", "fold_near_1": "LDGSTS", "arg_columns": "LDG"}
    check_code(emulated_gpu(), code, ("_squared_",))  # of var, whose squares are float64


@pytest.mark.parametrize("n, least", [(100_000, 40), (1 << 20, 256), (1 << 24, 512), (1 << 30, 65536)])
def test_a_long_sum_keeps_a_gpu_busy(n, least):
    chunk, chunks, _ = reduce.fold_plan(1, n, 1)
    assert least <= chunks <= max(512, -(-n // reduce.LINE)) and (chunks - 1) * chunk < n <= chunks * chunk


@pytest.mark.parametrize(
    "rows, least, most", [(1, 1, 1), (100, 50, 100), (1024, 512, 512), (5000, 256, 640), (16384, 1024, 1024), (262144, 1024, 1024)]
)
def test_totals_of_few_rows_keep_a_gpu_busy(rows, least, most):
    """Layer norm of 768 in 16 bits, backward: 132 multiprocessors, each with several blocks."""
    from flamepy.backend.cuda.rows.rows import totals_plan

    plan = totals_plan(rows, 768, (1536, 0, 1536, 1536, 4, 4), (0, 0, 0, 0, 0, 0), 6144)
    assert least <= -(-rows // plan.chunk) <= most
    long = totals_plan(rows, 50_000, (100_000, 0, 100_000, 100_000, 4, 4), (0, 0, 0, 0, 0, 0), 400_000)
    assert -(-rows // long.chunk) * 400_000 <= max(1.1 * (8 << 20), rows / 16 * 400_000 * 1.1)
