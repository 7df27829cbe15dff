"""set_float32_matmul_precision: what each level errs by, which products it changes, and that nothing else depends on it.

Oracle: NumPy in float64, on operands rounded by ml_dtypes under "medium". Routes that this processor lacks run with emulated tiles
(bfloat_tools.py).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bfloat_tools import EMULATED, HAS_DOT, Guarded, emulated_block, uncached
from hypothesis import example, given, settings
from hypothesis import strategies as st

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.cpu.bf16 import lower, tiles
from flamepy.backend.cpu.products import matmul, switch
from flamepy.backend.cpu.runtime import findings, rooms

BF16 = np.dtype(ml_dtypes.bfloat16)
HERE = lower.parts_here("medium")
pays = pytest.mark.skipif(not HERE, reason="every level is float32 on this processor")
WAYS = [(form, 1) for form, there in ((tiles.DOT, HAS_DOT), (EMULATED, True)) if there] + [(EMULATED, 2)]
if not tiles.why_not_amx():
    WAYS += [(tiles.AMX, 1), (tiles.AMX, 2)]


@pytest.fixture(autouse=True)
def usual():
    yield
    fp.set_float32_matmul_precision("highest")


def test_names() -> None:
    assert fp.get_float32_matmul_precision() == "highest"
    for name in ("high", "medium", "highest"):
        fp.set_float32_matmul_precision(name)
        assert fp.get_float32_matmul_precision() == name
    fp.set_float32_matmul_precision("medium")
    text = 'set_float32_matmul_precision: no such precision: \'low\'. Use "highest", "high" or "medium".'
    with pytest.raises(ValueError, match="no such precision") as found:
        fp.set_float32_matmul_precision("low")
    assert str(found.value) == text and isinstance(found.value, fp.FlameError)
    with pytest.raises(ValueError, match="no such precision: 1"):
        fp.set_float32_matmul_precision(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"no such precision: 'high\\n'\."):
        fp.set_float32_matmul_precision("high\n")
    assert fp.get_float32_matmul_precision() == "medium"
    fp.set_float32_matmul_precision(np.str_("high"))
    assert type(fp.get_float32_matmul_precision()) is str


# ---- the product -----
@cache
def function(form: str, count: int) -> Any:
    """by_parts() for one route; tile instructions as loops over memory where they are emulated."""
    if form != EMULATED:
        return lower.compiled(form, count).ctypes
    rooms.load_spaces()
    words = {**lower.words_of(tiles.AMX, count), "TILES_ON": lower.bfloat.nothing, "TILES_OFF": lower.bfloat.nothing}
    return uncached(lower.by_parts, lower.SIGNATURE, lower.names({**words, "BLOCK": emulated_block(words["BLOCK"])}, count)).ctypes


def product(way: Any, x: np.ndarray, y: np.ndarray, c: np.ndarray, alpha: float, add: bool, ta: bool, tb: bool) -> np.ndarray:
    """c, its first columns alpha * x @ y or added to it; nothing around the operands touched."""
    (m, k), n, ldc = x.shape, y.shape[1], c.shape[1]
    left, right = (v.T.copy() if turned else v for v, turned in ((x, ta), (y, tb)))
    a, b, to = (Guarded(name, v.size, np.float32, v) for name, v in (("a", left), ("b", right), ("c", c)))
    function(*way)(ta, tb, m, n, k, alpha, a.at, 4 * left.shape[1], b.at, 4 * right.shape[1], add, to.at, 4 * ldc)
    assert all(g.unharmed() for g in (a, b, to))
    return to.numbers.reshape(c.shape).copy()


def operands(*shapes: tuple[int, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(shapes[0][0])
    return [rng.standard_normal(s, dtype=np.float32) for s in shapes]


def rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(BF16).astype("f8")


SIZES = st.one_of(st.sampled_from([12, 15, 16, 17, 31, 32, 33, 64]), st.integers(1, 140))


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40, deadline=None)
@given(m=SIZES, n=SIZES, k=SIZES, gap=st.integers(0, 2), alpha=st.sampled_from([1.0, -0.5]), bits=st.integers(0, 7))
@example(m=17, n=300, k=450, gap=1, alpha=1.0, bits=0)  # several blocks along k and across
@example(m=35, n=257, k=800, gap=0, alpha=-0.5, bits=7)
def test_products_of_any_size(way: tuple[str, int], m: int, n: int, k: int, gap: int, alpha: float, bits: int) -> None:
    add, ta, tb = (bool(bits >> i & 1) for i in range(3))
    x, y, c = operands((m, k), (k, n), (m, n + gap))
    got = product(way, x, y, c, alpha, add, ta, tb)
    a, b = (rounded(x), rounded(y)) if way[1] == 1 else (x.astype("f8"), y.astype("f8"))
    before = c[:, :n].astype("f8") * add
    left_out = 0 if way[1] == 1 else 3 * 2.0**-16
    error = abs(got[:, :n] - (alpha * (a @ b) + before))
    assert (error <= (left_out + (6 * k + 8) * 2.0**-24) * (abs(alpha) * (abs(a) @ abs(b)) + abs(before))).all()
    np.testing.assert_array_equal(got[:, n:], c[:, n:])


@pytest.mark.parametrize("way", WAYS)
def test_a_row_does_not_depend_on_the_others(way: tuple[str, int]) -> None:
    x, y, c = operands((75, 430), (430, 290), (75, 290))
    whole = product(way, x, y, c, 0.3, True, False, True)
    for rows in (slice(0, 12), slice(30, 47), slice(12, 75)):
        assert product(way, x[rows], y, c[rows], 0.3, True, False, True).tobytes() == whole[rows].tobytes()


@pytest.mark.parametrize("way", WAYS)
def test_special_values(way: tuple[str, int]) -> None:
    x, y, c = np.ones((40, 70), "f4"), np.ones((70, 50), "f4"), np.zeros((40, 50), "f4")
    x[3, 69], x[20, 0], x[33, 5], x[34, 5], y[69, 7] = np.nan, np.inf, 3.397e38, 3.396e38, -np.inf
    x[5], x[6] = 1e-40, 0  # a denormal number
    got = product(way, x, y, c, 1.0, False, False, False)
    inside = np.delete(got, 7, 1)
    assert (np.delete(inside, [3, 5, 6, 20, 33, 34], 0) == 70).all() and np.isfinite(inside[34]).all()
    assert np.isnan(got[3]).all() and (inside[6] == 0).all() and (way[0] == EMULATED or (inside[5] == 0).all())
    if way[1] == 1:  # as numbers of bf16 have it
        assert (inside[[20, 33]] == np.inf).all() and (np.delete(got[:, 7], [3, 5, 6, 20, 33]) == -np.inf).all()
    else:
        assert np.isnan(got[[20, 33]]).all() and np.isnan(got[:, 7]).all()


# ---- the setting -----
def results(dtype: str = "float32", rows: int = 50) -> list[np.ndarray]:
    """Of every op that multiplies matrices: results and gradients. Other convolutions stay float32, as a weight's gradient does."""
    rng = np.random.default_rng(0)

    def leaf(*shape: int) -> fp.Tensor:
        return fp.tensor(rng.standard_normal(shape).astype(dtype), requires_grad=True)

    x, w, b, v = leaf(rows, 96), leaf(80, 96), leaf(80), leaf(96, 64)
    q, image, filters = leaf(2, 2, 64, 64), leaf(2, 32, 12, 12), leaf(40, 32, 1, 1)
    ys = [F.linear(x, w, b), x @ v, F.scaled_dot_product_attention(q, q, q), F.conv2d(image, filters)]
    grads = sum(y.square().mean() for y in ys).backward()
    return [t.numpy() for t in (*ys, *[grads[leaf] for leaf in (x, w, v, q, image, filters)])]


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [a.tobytes() for a in arrays]


@pays
def test_every_op_follows_and_the_default_keeps_its_bits() -> None:
    before, exact = bits(results()), results("float64")
    fp.set_float32_matmul_precision("medium")
    medium = results()
    for got, old, want in zip(medium, before, exact, strict=True):
        assert got.tobytes() != old
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert 2.0**-12 < error < 2.0**-6  # operands rounded to 8 bits
    assert bits(results("float64")) == bits(exact)
    fp.set_float32_matmul_precision("highest")
    assert bits(results()) == before


def test_a_level_that_does_not_pay_is_float32() -> None:
    before = bits(results())
    for level in ("high", "medium"):
        if not lower.parts_here(level):
            fp.set_float32_matmul_precision(level)
            assert bits(results()) == before and not switch.INSTEAD.value


def test_few_rows_are_float32_at_every_level() -> None:
    x, w = (fp.tensor(v) for v in operands((switch.ROWS - 1, 300), (300, 200)))
    before = (x @ w).numpy().tobytes()
    fp.set_float32_matmul_precision("medium")
    assert (x @ w).numpy().tobytes() == before


def test_no_share_of_a_larger_product_has_so_few_rows() -> None:
    """Else threads would decide what is computed in float32."""
    for m in range(1, 3000):
        down, _ = matmul.cut(m, 1)
        edges = [matmul.edge(strip, down, m) for strip in range(down + 1)]
        assert down == 1 or min(np.diff(edges)) >= switch.ROWS, m


CODE = """
import os, sys
import flamepy as fp
fp.set_float32_matmul_precision("medium")
assert "numba" not in sys.modules
sys.path.append("tests")
from test_precision import bits, hashlib, results
text = lambda: hashlib.sha256(b"".join(bits(results()))).hexdigest()
print(text())
sys.stdout.flush()
child = os.fork()
if not child:
    print(text())
    fp.set_float32_matmul_precision("highest")
    print(text())
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_other_numbers_of_threads_processes_set_before_the_first_kernel_and_children_compute_the_same() -> None:
    highest = hashlib.sha256(b"".join(bits(results()))).hexdigest()
    fp.set_float32_matmul_precision("medium")
    medium = hashlib.sha256(b"".join(bits(results()))).hexdigest()
    for threads in ("1", "2", "3"):
        environment = {**os.environ, "NUMBA_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        run = [sys.executable, "-W", "ignore", "-c", CODE]
        done = subprocess.run(run, env=environment, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
        assert done.stdout.split() == [medium, medium, highest], done.stderr


@pays
def test_replays_follow_the_setting() -> None:
    """Recorded under one level, replayed under another: as eager under that one, bit for bit."""

    def trained(step: Any, model: Any, levels: list[str]) -> list[bytes]:
        found = []
        for level in levels:
            fp.set_float32_matmul_precision(level)
            found.append(step(fp.tensor(operands((48, 64))[0])).numpy().tobytes())
        return [*found, *[p.numpy().tobytes() for p in model.state_dict().values()]]

    def made() -> tuple[Any, Any]:
        fp.manual_seed(0)
        model = fp.nn.Sequential(fp.nn.Linear(64, 96), fp.nn.GELU(), fp.nn.Linear(96, 64))
        optimizer = fp.SGD(model, lr=0.1)

        def step(x: Any) -> Any:
            loss = (model(x) - x).square().mean()
            optimizer.step(loss.backward())
            return loss

        return step, model

    levels = ["highest", "highest", "highest", "medium", "medium", "high", "highest"]
    eager, replayed = made(), made()
    captured = fp.capture(replayed[0])
    want = trained(*eager, levels)
    assert trained(captured, replayed[1], levels) == want
    assert trained(*made(), ["highest"] * len(levels)) != want


def test_a_captured_step_may_ask_for_the_level_and_not_set_it() -> None:
    def asks(x: fp.Tensor) -> fp.Tensor:
        return x * (3 if fp.get_float32_matmul_precision() == "medium" else 1)

    def sets(x: fp.Tensor) -> fp.Tensor:
        fp.set_float32_matmul_precision("medium")
        return x * 2

    captured = fp.capture(asks)
    for levels, want in (("highest", 1.0), ("medium", 3.0), ("high", 1.0), ("medium", 3.0)):
        fp.set_float32_matmul_precision(levels)
        assert [captured(fp.ones(1)).item() for _ in range(3)] == [want] * 3
    fp.set_float32_matmul_precision("highest")
    with pytest.raises(fp.CaptureError, match="set_float32_matmul_precision: inside a captured step: 'medium'"):
        fp.capture(sets)(fp.ones(1))
    assert fp.get_float32_matmul_precision() == "highest"


@pays
def test_of_two_threads_that_set_it_the_later_one_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """This one read "medium"; before it has stored what that means, the other sets "highest"."""
    levels = iter(["medium", "highest", "highest"])
    monkeypatch.setattr(switch.precision, "level", lambda: next(levels))
    switch.follow()
    assert switch.INSTEAD.value == 0


def test_a_level_that_cannot_be_had_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise fp.DeviceError("no")

    monkeypatch.setattr(switch.precision, "listeners", [fail])
    with pytest.raises(fp.DeviceError):
        fp.set_float32_matmul_precision("medium")
    assert fp.get_float32_matmul_precision() == "highest"


def test_the_doctor_says_what_the_levels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "amx": '"highest": float32, "high": two bf16 parts by tiles (AMX), "medium": bf16 by tiles (AMX)',
        "dot": '"highest": float32, "high": float32, "medium": bf16 by vdpbf16ps',
        "fma": '"highest": float32, "high": float32, "medium": float32',
    }
    for route, text in texts.items():
        monkeypatch.setattr(lower, "route", lambda route=route: route)
        assert list(findings.levels()) == [("precision", f"float32 products at {text}", "")]
