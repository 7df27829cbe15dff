"""Products of bf16 matrices: right for any sizes on every route that this processor has, nothing read or written outside operands.

Oracle: NumPy in float64 on operands rounded by ml_dtypes; ctypes calls the functions by address, with pages behind each operand that
may not be touched and NaN in front of it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bfloat_tools import FORMS, Guarded, call, functions
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from flamepy.backend.cpu.bf16 import bfloat, tiles
from flamepy.backend.cpu.runtime import processor

BF16 = np.dtype(ml_dtypes.bfloat16)
ROOT = Path(__file__).parent.parent
SIZE = st.one_of(st.integers(0, 3), st.integers(29, 35), st.integers(0, 130))


def stored(x: np.ndarray, turned: bool, wide: bool) -> np.ndarray:
    """As an operand lies in memory: float32, or the bits of bf16."""
    kept = x.T.copy() if turned else x
    return kept if wide else kept.astype(BF16).view(np.uint16)


def product_of(form: str, x: np.ndarray, y: np.ndarray, c: np.ndarray, alpha: float, add: bool, how: tuple[bool, ...]) -> np.ndarray:
    """c (m, ldc), whose first columns are alpha * x @ y; how: x turned, y turned, x float32, y float32, x packed in strips."""
    (m, k), n, found = x.shape, y.shape[1], functions(form)
    x_turned, y_turned, x_wide, y_wide, strips = how
    a = Guarded("a", m * k, np.float32 if x_wide else np.uint16, stored(x, x_turned, x_wide))
    b = Guarded("b", k * n, np.float32 if y_wide else np.uint16, stored(y, y_turned, y_wide))
    to = Guarded("c", c.size, np.float32, c)
    left, right = (Guarded(name, bfloat.packed_size(k, s), np.uint16) for name, s in (("left", m), ("right", n)))
    lda, ldb, ldc = max(1, m if x_turned else k), max(1, k if y_turned else n), c.shape[1]
    call(found, "right_float" if y_wide else "right_half", y_turned, k, n, b, ldb, right)
    call(found, "on")
    if strips:
        call(found, "left_float" if x_wide else "left_half", x_turned, m, k, a, lda, left)
    call(found, "product", m, n, k, alpha, left if strips else a, bfloat.PACKED if strips else lda, right, add, to, ldc)
    call(found, "off")
    assert all(g.unharmed() for g in (a, b, to, left, right))
    return to.numbers.reshape(c.shape).copy()


def operands(m: int, n: int, k: int, gap: int, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n), (m, n + gap))]


def bound(k: int) -> float:
    """What a float32 sum of k products may err, relative to the sum of their sizes."""
    return (k + 4) * 2.0**-24


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=300, deadline=None)
@given(m=SIZE, n=SIZE, k=SIZE, gap=st.integers(0, 3), alpha=st.sampled_from([1.0, 0.5, -3.0]), add=st.booleans(), bits=st.integers(0, 31))
@example(m=40, n=290, k=550, gap=0, alpha=1.0, add=False, bits=0)  # several blocks along k and across
@example(m=40, n=290, k=550, gap=1, alpha=0.5, add=True, bits=31)
@example(m=3, n=2, k=0, gap=1, alpha=1.0, add=False, bits=0)
def test_a_product_of_any_sizes(form: str, m: int, n: int, k: int, gap: int, alpha: float, add: bool, bits: int) -> None:
    x_turned, y_turned, x_wide, y_wide, strips = (bool(bits >> i & 1) for i in range(5))
    x, y, c = operands(m, n, k, gap, m + 131 * n + 17161 * k)
    got = product_of(form, x, y, c, alpha, add, (x_turned, y_turned, x_wide, y_wide, strips or x_turned or x_wide))
    a, b = x.astype(BF16).astype("f8"), y.astype(BF16).astype("f8")
    before = c[:, :n].astype("f8") * add
    size = abs(alpha) * (abs(a) @ abs(b)) + abs(before)
    assert (abs(got[:, :n] - (alpha * (a @ b) + before)) <= bound(k) * size).all()
    assert (got[:, n:] == c[:, n:]).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strips", [False, True])
def test_nan_and_infinity_stay_in_their_rows_and_columns(form: str, strips: bool) -> None:
    x, y, c = operands(45, 50, 70, 0, 0)
    x[3, 69], x[44, 0], y[69, 7], y[1, 49] = np.nan, np.inf, -np.inf, np.nan
    got = product_of(form, x, y, c, 1.0, False, (False, False, strips, True, strips))
    with np.errstate(invalid="ignore"):
        want = x.astype(BF16).astype("f8") @ y.astype(BF16).astype("f8")
    finite = np.isfinite(want)
    assert 0 < finite.sum() < finite.size
    assert (np.isfinite(got) == finite).all()
    np.testing.assert_array_equal(got[~finite], want[~finite].astype("f4"))


@pytest.mark.parametrize("form", FORMS)
def test_rows_and_columns_of_a_product_do_not_depend_on_how_it_is_cut(form: str) -> None:
    """A task may compute some strips and panels: packed_size(k, 32) numbers from one to the next."""
    m, n, k, found = 70, 100, 300, functions(form)
    x, y, c = operands(m, n, k, 0, 1)
    whole = product_of(form, x, y, c, 1.0, True, (False, False, False, False, False))
    a, b, to = (
        Guarded("a", m * k, np.uint16, stored(x, False, False)),
        Guarded("b", k * n, np.uint16, stored(y, False, False)),
        Guarded("c", m * n, np.float32, c),
    )
    apart = bfloat.packed_size(k, 32)
    right = Guarded("right", bfloat.packed_size(k, n), np.uint16)
    for j in range(0, n, 32):  # by panels
        call(found, "right_half", False, k, min(32, n - j), b.at + 2 * j, n, right.at + j // 32 * apart * 2)
    call(found, "on")
    for i in range(0, m, 32):
        for j in range(0, n, 32):
            rows, cols = min(32, m - i), min(32, n - j)
            call(
                found, "product", rows, cols, k, 1.0, a.at + 2 * i * k, k, right.at + j // 32 * apart * 2, True, to.at + 4 * (i * n + j), n
            )
    call(found, "off")
    np.testing.assert_array_equal(to.numbers.reshape(m, n), whole)


@pytest.mark.parametrize("form", FORMS)
def test_packing_rounds_to_nearest_even_and_keeps_nan(form: str) -> None:
    found, (rows, cols) = functions(form), (5, 32)
    x = np.random.default_rng(0).standard_normal((rows, cols), dtype=np.float32)
    # ties, to even upwards and downwards, the largest number, and what is no number
    x.view(np.uint32).flat[:8] = 0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x7FC00000, 0x7F800001, 0xFF800000, 0xFF7F7FFF
    given, out = Guarded("a", x.size, np.float32, x), Guarded("left", bfloat.packed_size(cols, rows), np.uint16)
    call(found, "left_float", False, rows, cols, given, cols, out)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(BF16)
    np.testing.assert_array_equal(out.numbers[: x.size].view(BF16).reshape(rows, cols).astype("f4"), want.astype("f4"))
    assert given.unharmed() and out.unharmed()


# ---- in kernels, and on other processors -----
@cache
def kernel() -> Any:
    bfloat.load()
    on, off, pack, multiply = (njit(getattr(bfloat, name)) for name in ("tiles_on", "tiles_off", "pack_panels", "multiply"))

    @njit
    def run(m, n, k, a, b, space, c):
        pack(True, k, n, b, 0, k, space, 0)
        on()
        multiply(m, n, k, 1.0, a, 0, k, space, 0, False, c, 0, n)
        off()

    return run


def kernel_error() -> float:
    """Of the words inside a kernel, on the route of this process."""
    m, n, k = 65, 70, 130
    x, y, _ = operands(m, n, k, 0, 0)
    a, b = x.astype(BF16), y.T.astype(BF16)
    c, space = np.full(m * n, np.nan, "f4"), np.empty(bfloat.packed_size(k, n), np.uint16)
    kernel()(m, n, k, a.view(np.uint16).ravel(), b.view(np.uint16).ravel(), space, c)
    return float(
        (abs(c.reshape(m, n) - a.astype("f8") @ b.T.astype("f8")) / (abs(a).astype("f8") @ abs(b.T).astype("f8"))).max() / bound(k)
    )


def test_the_words_work_inside_a_kernel() -> None:
    assert kernel_error() < 1


X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64's processors")
HASWELL = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+fxsr,+lzcnt,+mmx,+popcnt,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2"
AMX = HASWELL + ",+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512cd,+avx512bf16,+amx-tile,+amx-bf16"


def other(name: str, features: str, code: str) -> str:
    """What the code prints in a process that compiles for another processor."""
    chosen = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env={**os.environ, **chosen}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@X86
@pytest.mark.parametrize(("name", "features"), [("generic", ""), ("haswell", HASWELL)])
def test_processors_without_bf16_widen_it(name: str, features: str) -> None:
    if not {f[1:] for f in features.split(",") if f} <= processor.features():
        pytest.skip("not to be run here")
    code = "import sys; sys.path.append('tests'); from test_bfloat_products import *; print(tiles.route(), kernel_error() < 1)"
    assert other(name, features, code).split() == ["fma", "True"]


@X86
@pytest.mark.parametrize(("name", "features", "said"), [("generic", "", 1), ("haswell", HASWELL, 1), ("", "", tiles.route() == "fma")])
def test_where_bfloat16_saves_memory_alone_a_model_says_so_once(name: str, features: str, said: int) -> None:
    code = """
import warnings, flamepy as fp
from flamepy import nn
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    nn.Linear(2, 2, device="plain").compute_dtype = fp.bfloat16  # which multiplies everything in one way
    nn.Linear(2, 2).compute_dtype = fp.float16
    about = lambda: [w for w in found if w.filename == "<string>" and "compute_dtype" in str(w.message)]  # not that kernels are compiled
    before = len(about())
    for model in (nn.Sequential(nn.Linear(2, 2)), nn.Linear(2, 2)):
        model.compute_dtype = fp.bfloat16
    texts = [str(w.message) for w in about() if w.category is fp.FlameWarning]
print(before, len(texts), all(t.startswith("compute_dtype: bfloat16 saves memory here, but no time") for t in texts))
"""
    environment = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features} if name else {}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["0", str(int(said)), "True"], done.stderr


@X86
def test_the_tile_route_compiles_to_tile_instructions() -> None:
    code = """
from numba.core.caching import NullCache
from flamepy.backend.cpu.bf16 import bfloat, lower
bfloat.cache_of = lambda function: NullCache()  # what comes from the disk has no text
print(bfloat.compiled("product", "amx")._library.get_asm_str())
print(lower.compiled("amx", 2)._library.get_asm_str())
"""
    text = other("sapphirerapids", AMX, code)
    assert all(word in text for word in ("tileloadd", "tdpbf16ps", "tilestored"))


@pytest.fixture
def fresh():
    """What was found out about the processor is forgotten before and after."""
    known = (tiles.route, tiles.why_not_amx, processor.features)
    for f in known:
        f.cache_clear()
    yield
    for f in known:
        f.cache_clear()


def test_tiles_that_linux_refuses_are_not_used(monkeypatch: pytest.MonkeyPatch, fresh: None) -> None:
    monkeypatch.setattr(processor.config, "CPU_FEATURES", AMX)
    monkeypatch.setattr(processor.config, "CPU_NAME", "sapphirerapids")
    monkeypatch.setattr(tiles.platform, "system", lambda: "Linux")
    monkeypatch.setattr(tiles.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(tiles, "ask_for_tiles", lambda: 22)
    assert tiles.route() == "fma"  # on Intel vdpbf16ps is slower than widening
    assert "widened to float32" in tiles.fact() and "no tiles: Linux refuses the tile registers: error 22" in tiles.fact()


@pytest.mark.parametrize(("name", "features", "system", "route"), [
    ("sapphirerapids", AMX, "Linux", "amx"),
    ("sapphirerapids", AMX, "Windows", "fma"),
    ("znver4", AMX.replace("amx", "no"), "Linux", "dot"),
    ("cooperlake", AMX.replace("amx", "no"), "Linux", "fma"),
    ("generic", "", "Linux", "fma"),
])  # fmt: skip
def test_the_route_follows_from_processor_and_system(monkeypatch, fresh, name, features, system, route) -> None:
    monkeypatch.setattr(processor.config, "CPU_FEATURES", features)
    monkeypatch.setattr(processor.config, "CPU_NAME", name)
    monkeypatch.setattr(tiles.platform, "system", lambda: system)
    monkeypatch.setattr(tiles.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(tiles, "ask_for_tiles", lambda: 0)
    assert tiles.route() == route
    word = {"amx": "tiles (AMX)", "dot": "vdpbf16ps", "fma": "widened to float32"}[route]
    assert word in tiles.fact() and ("no tiles: " in tiles.fact()) == (route != "amx")
    assert (tiles.why_not_amx() == "") == (route == "amx")
