"""The vocabulary: accuracy, edges, agreement of plain and compiled words, packed code.

Reference: extended precision (np.longdouble) where NumPy has the function, math.erf for erf.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from types import FunctionType
from typing import Any

import numba
import numpy as np
import pytest
from error_text import raises
from hypothesis import example, given, settings
from hypothesis import strategies as st
from machine_code import known, packed

import flamepy as fp
from flamepy import words as plain
from flamepy.backend.cpu.loops.words import CONSTANTS, WORDS
from flamepy.backend.formula import row_words
from flamepy.backend.formula import words as more
from flamepy.backend.plain.rows import ON_NUMBERS
from flamepy.core import words as core
from flamepy.core.formula import typed

FLOATS = [np.dtype("float32"), np.dtype("float64")]
SMOOTH = ["exp", "exp2", "exp_down", "log", "log10", "log1p", "log2", "expm1", "tanh", "erf"]
PACKED = [*SMOOTH, "sqrt", "floor", "ceil", "rint", "abs", "sign"]
WAVES = ["sin", "cos"]  # packed in float32, by way of float64
LOOP = {"contract", "nsz", "reassoc"}


from_other_file = FunctionType((lambda: 7).__code__, {"__name__": "flamepy.made_up"}, "lane")


@cache
def mapped(name: str, dtype: np.dtype, arity: int) -> Any:
    """A compiled loop over one word, with the fast-math flags that loops have."""
    word = WORDS[name][dtype]

    def one(out, x):
        for i in range(out.size):
            out[i] = word(x[i])

    def two(out, x, y):
        for i in range(out.size):
            out[i] = word(x[i], y[i])

    return numba.njit(error_model="numpy", fastmath=LOOP)(one if arity == 1 else two)


def run(name: str, *inputs: np.ndarray) -> np.ndarray:
    out = np.empty_like(inputs[0])
    mapped(name, out.dtype, len(inputs))(out, *inputs)
    return out


def reference(name: str, x: np.ndarray) -> np.ndarray:
    if name == "erf":
        return np.array([math.erf(v) for v in x.tolist()], np.longdouble)
    with np.errstate(all="ignore"):
        found = getattr(np, name.removesuffix("_down"))(x.astype(np.longdouble))
    return np.where(found < np.finfo(x.dtype).tiny, 0, found) if name == "exp_down" else found


def samples(name: str, dtype: np.dtype, n: int = 40_000) -> np.ndarray:
    """Every magnitude of both signs, and a closer look at the middle of the word's range."""
    info, rng = np.finfo(dtype), np.random.default_rng(3)
    tiny, top = np.log2(info.tiny), np.log2(info.max)
    every = 2.0 ** rng.uniform(tiny, top, n) * rng.choice([-1, 1], n)
    around = np.log(2.0) * top if name in ("exp", "exp_down", "expm1") else top if name == "exp2" else 8.0
    parts = [every, rng.uniform(-around, around, n), rng.uniform(-2, 2, n), 1 + every[abs(every) < 0.3]]
    x = np.concatenate(parts).astype(dtype)
    return x[x > 0] if name in ("log", "log2", "log10") else x[x > -1] if name == "log1p" else x[x <= 0] if name == "exp_down" else x


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [*SMOOTH, *WAVES])
def test_accuracy(name, dtype):
    x = samples(name, dtype)
    expected, got, info = reference(name, x), run(name, x).astype(np.longdouble), np.finfo(dtype)
    assert np.array_equal(np.isinf(got), abs(expected) > info.max)
    normal = (abs(expected) >= info.tiny) & (abs(expected) <= info.max)
    x, expected, got = x[normal], expected[normal], got[normal]
    error = abs(got - expected) / abs(expected)
    worst = int(np.argmax(error))
    limit = 1.5e-7 if dtype.itemsize == 4 else 5e-16
    assert error[worst] <= limit, f"{name}({x[worst]!r}) is off by {float(error[worst]):.2g}"


EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -1.5,
    1e-4,
    88.7,
    89.0,
    -87.5,
    -100.0,
    -103.9,
    -104.5,
    709.7,
    710.0,
]
EDGES += [-745.1, -745.2, -1.0 - 1e-6, math.inf, -math.inf, math.nan]


def edges(name: str, dtype: np.dtype) -> np.ndarray:
    info = np.finfo(dtype)
    extreme = [
        info.smallest_subnormal,
        -info.smallest_subnormal,
        info.tiny,
        info.tiny / 2,
        info.max,
        info.min,
    ]
    # Repeated: the packed body and the scalar remainder of a loop both see each of them.
    x = np.concatenate([np.array(EDGES, dtype), np.array(extreme, dtype)] * 3)
    return x[~(x > 0)] if name == "exp_down" else x


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", PACKED)
def test_edges(name, dtype):
    x = edges(name, dtype)
    with np.errstate(all="ignore"):
        expected = reference(name, x).astype(dtype)
        wrong = ~(abs(run(name, x) - expected) <= 2 * np.spacing(abs(expected)))
    got = run(name, x)
    wrong &= (got != expected) & ~(np.isnan(got) & np.isnan(expected))
    assert not wrong.any(), (name, x[wrong], got[wrong], expected[wrong])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_exact_edges(dtype):
    inf = dtype.type(math.inf)
    assert run("exp", np.array([-inf, inf, 0], dtype)).tolist() == [0.0, math.inf, 1.0]
    # A NaN stays one whatever its bits are: exp_down makes the exponent of its result of bits.
    strange = np.array([-1, int(dtype.type(math.nan).view(f"i{dtype.itemsize}")) + 1], f"i{dtype.itemsize}").view(dtype)
    assert run("exp_down", np.array([-inf, 0], dtype)).tolist() == [0.0, 1.0] and np.isnan(run("exp_down", strange)).all()
    assert np.isnan(run("bell", strange)).all()
    assert run("log", np.array([0, inf, 1], dtype)).tolist() == [-math.inf, math.inf, 0.0]
    k = np.arange(-100, 100).astype(dtype)
    assert np.array_equal(run("exp2", k), 2.0**k) and np.array_equal(run("log2", (2.0**k).astype(dtype)), k)
    assert run("tanh", np.array([-inf, inf, 0, 30], dtype)).tolist() == [-1.0, 1.0, 0.0, 1.0]
    assert run("erf", np.array([-inf, inf, 0, 30], dtype)).tolist() == [-1.0, 1.0, 0.0, 1.0]
    assert np.isnan(run("log", np.array([-1, -inf, math.nan], dtype))).all()
    one, nan = np.ones(20, dtype), np.full(20, math.nan, dtype)
    for name in ("maximum", "minimum"):
        assert np.isnan(run(name, nan, one)).all() and np.isnan(run(name, one, nan)).all()


def same(a: float, b: float, dtype: np.dtype) -> bool:
    """Equal up to three roundings; what is beyond the dtype's range counts as infinity."""
    with np.errstate(all="ignore"):
        a, b = dtype.type(a), dtype.type(b)
        return bool((np.isnan(a) and np.isnan(b)) or a == b or abs(a - b) <= 3 * np.spacing(max(abs(a), abs(b))))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [*PACKED, *WAVES])
def test_plain_words_agree(name, dtype):
    @settings(max_examples=60, deadline=None)
    @given(st.floats(width=8 * dtype.itemsize))
    def check(x):
        if name == "exp_down":  # further down it is 0 where the dtype has no normal numbers left
            x = -min(abs(x), 87.0)
        got = run(name, np.array([x], dtype))[0]
        assert same(got, getattr(plain, name)(x), dtype), (name, x, got)

    check()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["copysign", "maximum", "minimum", "pow"])
def test_plain_words_of_two_agree(name, dtype):
    some = st.floats(width=8 * dtype.itemsize) | st.integers(-4, 4).map(float)

    @settings(max_examples=150, deadline=None)
    @given(some, some)
    @example(0.0, 0.0)
    @example(-2.0, 3.0)
    @example(-2.0, 0.5)
    @example(-0.0, -1.0)
    def check(x, y):
        got = run(name, np.array([x], dtype), np.array([y], dtype))[0]
        assert same(got, getattr(plain, name)(x, y), dtype), (name, x, y, got)

    check()


@pytest.mark.parametrize("dtype", [np.dtype("int32"), np.dtype("int64")], ids=str)
def test_integer_words(dtype):
    x, y = np.array([-5, 0, 7], dtype), np.array([3, -1, 7], dtype)
    assert run("abs", x).tolist() == [5, 0, 7] and run("sign", x).tolist() == [-1, 0, 1]
    assert run("maximum", x, y).tolist() == run("fmax", x, y).tolist() == [3, 0, 7]
    assert run("minimum", x, y).tolist() == [-5, -1, 7]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bell(dtype):
    """Rounding x * x costs half of x * x times as much as one operation; so, less, does rounding the constant."""
    x = np.concatenate([np.linspace(-13, 13, 40_001), 2.0 ** np.arange(-120, 4)]).astype(dtype)
    wide, got = x.astype(np.longdouble), run("bell", x)
    expected = np.exp(-wide * wide / 2)
    near, far = (1.3e-7, 4e-8) if dtype.itemsize == 4 else (5e-16, 8e-17)
    assert (abs(got - expected) <= (near + far * wide * wide) * expected).all()
    far = np.array([13.3, -40.0, 1e30, np.finfo(dtype).max, math.inf, -math.inf] * 6, dtype)
    kept = 0.0 if dtype.itemsize == 4 else 1.0
    np.testing.assert_allclose(run("bell", far), [kept * math.exp(-88.445), 0, 0, 0, 0, 0] * 6, rtol=1e-13)
    assert run("bell", np.array([0, -0.0, math.nan] * 9, dtype))[:2].tolist() == [1, 1] and plain.bell(2.0) == math.exp(-2.0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal_tail(dtype):
    a = np.linspace(0, 13, 20_001).astype(dtype)
    e = np.exp(-0.5 * a.astype(np.float64) ** 2).astype(dtype)
    expected = np.array([0.5 * math.erfc(v / math.sqrt(2)) for v in a.tolist()])
    got = run("normal_tail", a, e)
    if dtype.itemsize == 4:  # relative to the tail: gelu(-8) keeps its digits
        assert (abs(got - expected) <= 5e-7 * expected).all()
    else:
        assert (abs(got - expected) <= 2e-16).all()
    assert np.isnan(run("normal_tail", np.full(20, math.nan, dtype), np.full(20, math.nan, dtype))).all()
    assert plain.normal_tail(1.0, math.exp(-0.5)) == pytest.approx(0.15865525393145707, rel=1e-15)


def test_exact_gelu_and_its_slope_keep_the_digits_of_the_tail():
    """Oracle: math.erfc in float64. An error of x * x counts x * x / 2 times."""
    x = fp.tensor(np.linspace(-12, 12, 20_001, dtype="f4"), requires_grad=True)
    slope = fp.gelu(x).sum().backward()[x].numpy()
    wide = x.numpy().astype(float)
    tail, curve = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide.tolist()]), np.exp(-wide * wide / 2)
    allowed = 5e-7 + 4e-8 * np.where(wide < 0, wide * wide, 0)
    assert (abs(fp.gelu(x).numpy() - wide * tail) <= allowed * abs(wide * tail)).all()
    parts = tail + abs(wide) * curve / math.sqrt(2 * math.pi)  # two that cancel at -0.75
    assert (abs(slope - tail - wide * curve / math.sqrt(2 * math.pi)) <= allowed * parts).all()


def called(name: str, dtype: np.dtype, x: float) -> float:
    """A word of one number, called by a kernel: it has no entry for Python."""
    word = WORDS[name][dtype]
    return numba.njit(lambda: word(x))()


def test_small_words():
    assert plain.select(True, 1.0, 2.0) == 1.0
    assert plain.real(3) == 3.0 and plain.fmax(1.0, 2.0) == 2.0
    for dtype in FLOATS:
        assert CONSTANTS["INF"][dtype] == math.inf and CONSTANTS["EPS"][dtype] == np.finfo(dtype).eps
        assert called("real", dtype, 3) == 3.0
    assert {*core.__all__, *more.__all__} == (set(WORDS) | set(CONSTANTS))
    assert set(core.VOCABULARY) == set(WORDS)  # every word has a compiled form


def named_like_words(module: str, **names: Any) -> Any:
    """A function of that module with these globals, typed for float32."""
    function = FunctionType((lambda x: (EPS, LINE, lane, x)).__code__, {"__name__": module, "LINE": 3, **names}, "named")  # noqa: F821
    words = {"EPS": np.finfo("f4").eps, "LINE": 0, "lane": "the word"}
    return typed(function, FLOATS[0], replace(ON_NUMBERS, words=lambda dtype: words))


def test_a_word_is_told_by_what_it_is():
    """Not by its name alone: a number, or a function, that another file calls so would silently be another one in the kernel."""
    ours, words = "flamepy.made_up", {"EPS": plain.EPS, "LINE": row_words.LINE, "lane": row_words.lane}
    assert named_like_words(ours, **words)(1) == (np.finfo("f4").eps, 0, "the word", 1)
    for name, other in (("EPS", 1e-3), ("LINE", 16), ("lane", from_other_file)):
        with raises(NameError, "named: has a word's name and is something else:", f"{name} = ", "Rename it, or import the word."):
            named_like_words(ours, **{**words, name: other})
    assert named_like_words("users", EPS=0.25, lane=5)(1) == (0.25, 3, 5, 1)  # what users call so is theirs


# ----- Vectorisation -----
def assembly(kernel: Any) -> str:
    return kernel.inspect_asm(kernel.signatures[0])


PAIRS = [(name, dtype) for name in (*PACKED, "bell") for dtype in FLOATS] + [(name, FLOATS[0]) for name in WAVES]


@known
@pytest.mark.parametrize(("name", "dtype"), PAIRS, ids=str)
def test_loops_are_packed(name, dtype):
    run(name, np.ones(64, dtype))
    kernel = mapped(name, dtype, 1)
    text = assembly(kernel)
    assert packed("products" if name in (*SMOOTH, *WAVES, "bell") else "any", text), f"{name} {dtype} has no packed instructions"
    assert not re.search(rf"(call\w*|movabsq|bl)\s+[$*]?_*{name}f?\b", text), f"{name} calls libm"
    if dtype.itemsize == 4 and name not in WAVES:
        llvm = kernel.inspect_llvm(kernel.signatures[0])
        assert "double" not in llvm, f"{name} float32 computes in float64"


@known
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ["fmax", "maximum", "minimum"])
def test_reductions_are_packed(name, dtype):
    word = WORDS[name][dtype]

    @numba.njit(error_model="numpy", fastmath=LOOP)
    def reduce(x):
        best = x[0]
        for i in range(1, x.size):
            best = word(best, x[i])
        return best

    x = np.random.default_rng(0).standard_normal(1001).astype(dtype)
    assert reduce(x) == (x.min() if name == "minimum" else x.max())
    assert packed("extremes", assembly(reduce))
    x[500] = math.nan
    assert name == "fmax" or math.isnan(reduce(x))
