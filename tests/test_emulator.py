"""The emulator's arithmetic, instruction family by instruction family, against NumPy and Python's own whole numbers.

Floats have to agree to the bit.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from error_text import raises
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="the emulator compiles with llvmlite")
from ptx_tools import Device, entry

from flamepy.emulator import EmulationError

DEVICE = Device()
rng = np.random.default_rng(3)
EDGES32 = [0, 1, 2, 3, 31, 32, 255, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF]
A32 = np.array(EDGES32 + list(rng.integers(0, 1 << 32, 48)), np.uint32)
B32 = np.array((EDGES32[::-1] + list(rng.integers(0, 1 << 32, 24)) + list(rng.integers(0, 64, 24))), np.uint32)
C32 = np.roll(B32, 5)
A64 = np.array(
    [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 32] + [int(x) for x in rng.integers(0, 1 << 64, 58, np.uint64)], np.uint64
)
B64 = np.roll(A64, 7)
F = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, 3.4e38, 0.1, 2.5, -2.5, 3.5, 16777217] + [0] * 48, np.float32)
F[16:] = rng.standard_normal(48) * np.exp(rng.uniform(-20, 20, 48))
G = np.roll(F, 11)
H = np.roll(F, 23)


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) & 1 else x


def each(function, bits: int, *arrays: np.ndarray) -> np.ndarray:
    """A function of Python's whole numbers, for every element."""
    return np.array([function(*(int(v) for v in row)) & ((1 << bits) - 1) for row in zip(*arrays, strict=True)], f"u{bits // 8}")


def s(x: int) -> int:
    return signed(x, 32)


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


WHOLE = {
    "add.s32": lambda a, b: a + b,
    "sub.u32": lambda a, b: a - b,
    "add.sat.s32": lambda a, b: max(min(s(a) + s(b), 0x7FFFFFFF), -0x80000000),
    "mul.lo.s32": lambda a, b: a * b,
    "mul.hi.s32": lambda a, b: s(a) * s(b) >> 32,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul24.lo.u32": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
    "mul24.lo.s32": lambda a, b: signed(a & 0xFFFFFF, 24) * signed(b & 0xFFFFFF, 24),
    "div.s32": lambda a, b: truncated(s(a), s(b)) if b else -1,
    "div.u32": lambda a, b: a // b if b else -1,
    "rem.s32": lambda a, b: s(a) - s(b) * truncated(s(a), s(b)) if b else a,
    "rem.u32": lambda a, b: a % b if b else a,
    "min.s32": lambda a, b: min(s(a), s(b)),
    "min.u32": min,
    "max.s32": lambda a, b: max(s(a), s(b)),
    "max.u32": max,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: s(a) >> min(b, 31),
}
OF_ONE = {
    "neg.s32": lambda a: -a,
    "abs.s32": lambda a: abs(s(a)),
    "not.b32": lambda a: ~a,
    "cnot.b32": lambda a: int(a == 0),
    "popc.b32": lambda a: a.bit_count(),
    "clz.b32": lambda a: 32 - a.bit_length(),
    "brev.b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "bfind.u32": lambda a: a.bit_length() - 1,
    "bfind.s32": lambda a: (s(a) if s(a) >= 0 else ~s(a)).bit_length() - 1,
    "bfind.shiftamt.u32": lambda a: 32 - a.bit_length() if a else -1,
}


def test_whole_numbers_of_32_bits() -> None:
    for name, function in WHOLE.items():
        np.testing.assert_array_equal(DEVICE.lanewise(f"{name} %d, %a, %b;", "u32", u32=(A32, B32)), each(function, 32, A32, B32), name)
    for name, function in OF_ONE.items():
        np.testing.assert_array_equal(DEVICE.lanewise(f"{name} %d, %a;", "u32", u32=A32), each(function, 32, A32), name)


OF_THREE = {
    "mad.lo.s32": lambda a, b, c: a * b + c,
    "mad.hi.u32": lambda a, b, c: (a * b >> 32) + c,
    "sad.s32": lambda a, b, c: abs(s(a) - s(b)) + c,
    "sad.u32": lambda a, b, c: abs(a - b) + c,
    "shf.l.wrap.b32": lambda a, b, c: ((b << 32 | a) << (c & 31)) >> 32,
    "shf.r.wrap.b32": lambda a, b, c: (b << 32 | a) >> (c & 31),
    "shf.l.clamp.b32": lambda a, b, c: ((b << 32 | a) << min(c, 32)) >> 32,
    "shf.r.clamp.b32": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "bfe.u32": lambda a, b, c: a >> (b & 255) & ((1 << (c & 255)) - 1),
    "bfe.s32": lambda a, b, c: field(s(a), b & 255, c & 255),
    "prmt.b32": lambda a, b, c: sum(chosen(b << 32 | a, c >> 4 * k & 15) << 8 * k for k in range(4)),
}


def field(a: int, position: int, length: int) -> int:
    """bfe.s32: bits past the end are the sign."""
    if length == 0:
        return 0
    found = (a >> position) & ((1 << length) - 1)
    top = min(position + length - 1, 31)
    return found | -(a >> top & 1) << length if length < 32 else found


def chosen(whole: int, selector: int) -> int:
    byte = whole >> 8 * (selector & 7) & 255
    return (255 if byte >> 7 else 0) if selector & 8 else byte


def test_whole_numbers_of_three() -> None:
    for name, function in OF_THREE.items():
        got = DEVICE.lanewise(f"{name} %d, %a, %b, %c;", "u32", u32=(A32, B32, C32))
        np.testing.assert_array_equal(got, each(function, 32, A32, B32, C32), name)
    insert = lambda a, b, p, n: (b & ~(((1 << n) - 1) << p)) | ((a & ((1 << n) - 1)) << p & (1 << 32) - 1)
    for p, n in ((0, 8), (5, 0), (12, 31), (31, 4), (0, 32), (40, 3)):
        got = DEVICE.lanewise(f"bfi.b32 %d, %a, %b, {p}, {n};", "u32", u32=(A32, B32))
        np.testing.assert_array_equal(got, each(lambda a, b: insert(a, b, p, n), 32, A32, B32))
    for table in (0xE8, 0x96, 0x80, 0x1B):
        got = DEVICE.lanewise(f"lop3.b32 %d, %a, %b, %c, {table};", "u32", u32=(A32, B32, C32))
        bit = lambda a, b, c: sum((table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | c >> k & 1) & 1) << k for k in range(32))
        np.testing.assert_array_equal(got, each(bit, 32, A32, B32, C32))


WIDE = {
    "add.s64": lambda a, b: a + b,
    "sub.s64": lambda a, b: a - b,
    "mul.lo.s64": lambda a, b: a * b,
    "mul.hi.u64": lambda a, b: a * b >> 64,
    "mul.hi.s64": lambda a, b: signed(a, 64) * signed(b, 64) >> 64,
    "div.s64": lambda a, b: truncated(signed(a, 64), signed(b, 64)) if b else -1,
    "div.u64": lambda a, b: a // b if b else -1,
    "rem.s64": lambda a, b: signed(a, 64) - signed(b, 64) * truncated(signed(a, 64), signed(b, 64)) if b else a,
    "rem.u64": lambda a, b: a % b if b else a,
    "max.s64": lambda a, b: max(signed(a, 64), signed(b, 64)),
    "min.u64": min,
    "xor.b64": lambda a, b: a ^ b,
}


def test_whole_numbers_of_64_and_16_bits() -> None:
    for name, function in WIDE.items():
        np.testing.assert_array_equal(DEVICE.lanewise(f"{name} %d, %a, %b;", "u64", u64=(A64, B64)), each(function, 64, A64, B64), name)
    for name, kind, sign in (("mul.wide.u32", "u64", 0), ("mul.wide.s32", "u64", 1)):
        number = s if sign else int
        want = each(lambda a, b: number(a) * number(b), 64, A32, B32)
        np.testing.assert_array_equal(DEVICE.lanewise(f"{name} %d, %a, %b;", kind, u32=(A32, B32)), want)
    got = DEVICE.lanewise("mad.wide.s32 %d, %a, %b, %c;", "u64", u32=(A32, B32), u64=A64)
    np.testing.assert_array_equal(got, each(lambda a, b, c: s(a) * s(b) + c, 64, A32, B32, A64))
    h, g = A32.astype(np.uint16), B32.astype(np.uint16)
    for name, function in (("add.s16", lambda a, b: a + b), ("mul.lo.s16", lambda a, b: a * b), ("shl.b16", lambda a, b: a << b & 0xFFFF)):
        other = g % 20 if "shl" in name else g
        operand = "%r1" if "shl" in name else "%b"
        body = f"cvt.u32.u16 %r1, %b; {name} %d, %a, {operand};"
        np.testing.assert_array_equal(DEVICE.lanewise(body, "u16", u16=(h, other)), each(function, 16, h, other), name)
    body = "add.cc.u32 %r1, %a, %b; addc.u32 %r2, %a, %b; mov.b64 %d, {%r1, %r2};"  # 64-bit sum of (a:a) and (b:b)
    twice = lambda a, b: (a << 32 | a) + (b << 32 | b)
    np.testing.assert_array_equal(DEVICE.lanewise(body, "u64", u32=(A32, B32)), each(twice, 64, A32, B32))
    body = "mad.lo.cc.u32 %r1, %a, %b, %c; madc.hi.u32 %r2, %a, %b, %c; mov.b64 %d, {%r1, %r2};"
    want = each(lambda a, b, c: a * b + (c << 32 | c), 64, A32, B32, C32)
    np.testing.assert_array_equal(DEVICE.lanewise(body, "u64", u32=(A32, B32, C32)), want)


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(WHOLE)), st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=64))
def test_any_whole_numbers(name: str, pairs: list) -> None:
    a, b = np.array(pairs, np.uint32).T
    np.testing.assert_array_equal(DEVICE.lanewise(f"{name} %d, %a, %b;", "u32", u32=(a, b)), each(WHOLE[name], 32, a, b))


# ---- floats ----------------------------------------------------------------------------------------------------------------------
def same_bits(got: np.ndarray, want: np.ndarray, name: str = "") -> None:
    """To the bit; all NaNs count as one."""
    word = f"u{got.itemsize}"
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan, name)
    np.testing.assert_array_equal(got[~nan].view(word), want.astype(got.dtype)[~nan].view(word), name)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats_are_exact() -> None:
    for kind, f, g in (("f32", F, G), ("f64", F.astype(np.float64) * 1.1, G.astype(np.float64) * 1.3)):
        two = {"add": f + g, "sub.rn": f - g, "mul": f * g, "div.rn": f / g, "min": np.fmin(f, g), "max": np.fmax(f, g)}
        two |= {"max.NaN": np.maximum(f, g), "copysign": np.copysign(g, f)}
        for name, want in two.items():
            same_bits(DEVICE.lanewise(f"{name}.{kind} %d, %a, %b;", kind, **{kind: (f, g)}), want, f"{name}.{kind}")
        one = {"neg": -f, "abs": abs(f), "sqrt.rn": np.sqrt(f), "rcp.rn": 1 / f}
        for name, want in one.items():
            same_bits(DEVICE.lanewise(f"{name}.{kind} %d, %a;", kind, **{kind: f}), want, f"{name}.{kind}")
    body = "add.sat.f32 %d, %a, %b;"
    same_bits(DEVICE.lanewise(body, "f32", f32=(F, G)), np.where(np.isnan(F + G), 0, np.clip(F + G, 0, 1)).astype(np.float32) + 0)


def rounded(exact: Fraction, way: str) -> np.float32:
    """A fraction as float32, rounded as asked."""
    near = np.float32(float(exact))  # perhaps rounded twice: the neighbours are looked at too
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    below = max(x for x in around if Fraction(float(x)) <= exact)
    above = min(x for x in around if Fraction(float(x)) >= exact)
    if way == "rn":
        low, high = exact - Fraction(float(below)), Fraction(float(above)) - exact
        if low == high:
            return below if below.view(np.uint32) % 2 == 0 else above
        return below if low < high else above
    return {"rm": below, "rp": above, "rz": below if exact > 0 else above}[way]


def test_one_rounding_in_every_direction() -> None:
    f, g, h = (np.float32(rng.standard_normal(64) * np.exp(rng.uniform(-8, 8, 64))) for _ in range(3))
    h[:32] = -(f * g)[:32]  # where a product rounded first would leave nothing
    exact = [(Fraction(float(a)), Fraction(float(b)), Fraction(float(c))) for a, b, c in zip(f, g, h, strict=True)]
    for way in ("rn", "rz", "rm", "rp"):
        for name, formula in (("fma", lambda a, b, c: a * b + c), ("add", lambda a, b, c: a + b), ("mul", lambda a, b, c: a * b)):
            operands = "%a, %b, %c" if name == "fma" else "%a, %b"
            inputs = (f, g, h) if name == "fma" else (f, g)
            got = DEVICE.lanewise(f"{name}.{way}.f32 %d, {operands};", "f32", f32=inputs)
            np.testing.assert_array_equal(got, [rounded(formula(*e), way) for e in exact], f"{name}.{way}")
        got = DEVICE.lanewise(f"div.{way}.f32 %d, %a, %b;", "f32", f32=(f, g))
        np.testing.assert_array_equal(got, [rounded(a / b, way) for a, b, _ in exact], f"div.{way}")


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-(2.0**60), 2.0**60, width=32)] * 3), min_size=1, max_size=32))
def test_any_fma(numbers: list) -> None:
    a, b, c = np.array(numbers, np.float32).T
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    got = DEVICE.lanewise("fma.rn.f32 %d, %a, %b, %c;", "f32", f32=(a, b, c))
    np.testing.assert_array_equal(got, [rounded(e, "rn") for e in exact])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_special_functions() -> None:
    x = F.astype(np.float64)
    near = np.clip(np.nan_to_num(F, posinf=3, neginf=-3), -80, 80).astype(np.float32)
    y = near.astype(np.float64)
    cases = {
        "ex2.approx.ftz.f32": (near, np.exp2(y)), "lg2.approx.f32": (F, np.log2(x)), "sin.approx.f32": (near, np.sin(y)),
        "cos.approx.ftz.f32": (near, np.cos(y)), "tanh.approx.f32": (F, np.tanh(x)), "rsqrt.approx.f32": (F, 1 / np.sqrt(x)),
        "sqrt.approx.f32": (F, np.sqrt(x)), "rcp.approx.ftz.f32": (F, 1 / x),
    }  # fmt: skip
    for name, (given_, want) in cases.items():
        got = DEVICE.lanewise(f"{name} %d, %a;", "f32", f32=given_)
        np.testing.assert_allclose(got, want.astype(np.float32), rtol=1.2e-7, atol=0, err_msg=name)


def test_comparisons_and_choices() -> None:
    floats = {"lt": F < G, "le": F <= G, "gt": F > G, "ge": F >= G, "eq": F == G, "ne": (F != G) & ~np.isnan(F) & ~np.isnan(G)}
    nan = np.isnan(F) | np.isnan(G)
    floats |= {"ltu": (F < G) | nan, "geu": (F >= G) | nan, "equ": (F == G) | nan, "neu": (F != G) | nan, "num": ~nan, "nan": nan}
    for name, want in floats.items():
        got = DEVICE.lanewise(f"setp.{name}.f32 %q, %a, %b; selp.u32 %d, 1, 0, %q;", "u32", f32=(F, G))
        np.testing.assert_array_equal(got, want, name)
    x, y = A32.view(np.int32), B32.view(np.int32)
    wholes = {"lt.s32": x < y, "le.u32": A32 <= B32, "hi.u32": A32 > B32, "ge.s32": x >= y, "ls.u32": A32 <= B32, "ne.b32": x != y}
    for name, want in wholes.items():
        got = DEVICE.lanewise(f"setp.{name} %q, %a, %b; selp.u32 %d, 1, 0, %q;", "u32", u32=(A32, B32))
        np.testing.assert_array_equal(got, want, name)
    body = (
        "setp.gt.s32 %p2, %a, 0; setp.lt.and.s32 %q|%p1, %a, %b, %p2; selp.u32 %r1, 1, 0, %q; selp.u32 %r2, 2, 0, %p1; or.b32 %d, %r1, %r2;"
    )
    want = ((x < y) & (x > 0)) + 2 * (~(x < y) & (x > 0))
    np.testing.assert_array_equal(DEVICE.lanewise(body, "u32", u32=(A32, B32)), want)
    np.testing.assert_array_equal(DEVICE.lanewise("set.lt.u32.f32 %d, %a, %b;", "u32", f32=(F, G)), np.where(F < G, 0xFFFFFFFF, 0))
    np.testing.assert_array_equal(DEVICE.lanewise("slct.f32.s32 %d, %a, %b, %c;", "f32", f32=(F, G), s32=x), np.where(x >= 0, F, G))
    for name, want in {"finite": np.isfinite(F), "infinite": np.isinf(F), "nan": np.isnan(F), "number": ~np.isnan(F)}.items():
        np.testing.assert_array_equal(DEVICE.lanewise(f"testp.{name}.f32 %q, %a; selp.u32 %d, 1, 0, %q;", "u32", f32=F), want, name)


def test_an_instruction_that_is_not_known_is_named() -> None:
    with raises(EmulationError, "frobnicate.b32 %r1, %r2;"):
        DEVICE.run(entry("k", "", "frobnicate.b32 %r1, %r2;"), 1, 1)
    with raises(EmulationError, "k: a name that is not declared", "nowhere"):
        DEVICE.run(entry("k", "", "mov.u64 %rd1, nowhere;"), 1, 1)
    assert math.isnan(DEVICE.lanewise("sqrt.rn.f32 %d, %a;", "f32", f32=np.float32([-1]))[0])
