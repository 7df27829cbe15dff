"""Conversions, 16-bit floats, loads and stores, atomics, and what the lanes of a warp do together, in the emulator.

Oracles: NumPy and ml_dtypes.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="the emulator compiles with llvmlite")
from ptx_tools import Device, entry, lanewise
from test_emulator import A32, A64, B32, DEVICE, F, G, same_bits

rng = np.random.default_rng(5)
BF = np.dtype(ml_dtypes.bfloat16)
X = np.concatenate(
    [F, np.float32([2.5, 3.5, -2.5, 1e10, -1e10, 65504, 65519, 65520, 6e-8, 2.9e-8, 3e-8, 5e-5, 1.00048828125, 300.7, -129, -0.5])]
)


def whole(values: np.ndarray, dtype: str, rounding: str) -> np.ndarray:
    """Rounded, clamped; NaN to 0, but to the highest bit from or to 64 bits (PTX ISA 9.0, cvt)."""
    how = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[rounding]
    info = np.iinfo(dtype)
    ends = {np.inf: info.max, -np.inf: info.min}
    nan = (info.min or 1 << (info.bits - 1)) if 8 in (values.itemsize, np.dtype(dtype).itemsize) else 0
    found = [nan if np.isnan(v) else ends[v] if np.isinf(v) else int(v) for v in how(values.astype("f8"))]
    return np.array([min(max(v, info.min), info.max) for v in found], dtype)


def test_conversions_of_floats() -> None:
    for rounding in ("rni", "rzi", "rmi", "rpi"):
        for to, dtype in (("s32", "i4"), ("u32", "u4"), ("s64", "i8"), ("u64", "u8"), ("s16", "i2"), ("u8", "u1")):
            body = f"cvt.{rounding}.{to}.f32 {'%r1, %a; cvt.u8.u32 %d, %r1' if to == 'u8' else '%d, %a'};"
            np.testing.assert_array_equal(DEVICE.lanewise(body, to, f32=X), whole(X, dtype, rounding), f"{rounding} {to}")
    for to, dtype in (("s64", "i8"), ("s32", "i4")):
        wide = X.astype("f8")
        np.testing.assert_array_equal(DEVICE.lanewise(f"cvt.rzi.{to}.f64 %d, %a;", to, f64=wide), whole(wide, dtype, "rzi"))
    same_bits(DEVICE.lanewise("cvt.rni.f32.f32 %d, %a;", "f32", f32=X), np.rint(X))
    same_bits(DEVICE.lanewise("cvt.f64.f32 %d, %a;", "f64", f32=X), X.astype("f8"))
    wide = np.float64(rng.standard_normal(64) * 1e3)
    same_bits(DEVICE.lanewise("cvt.rn.f32.f64 %d, %a;", "f32", f64=wide), wide.astype("f4"))
    for way, better in (("rm", np.less_equal), ("rp", np.greater_equal)):
        got = DEVICE.lanewise(f"cvt.{way}.f32.f64 %d, %a;", "f32", f64=wide)
        assert better(got.astype("f8"), wide).all() and (abs(got - wide) < np.spacing(abs(got))).all()
    want = np.where(np.isnan(X), 0, np.clip(X, 0, 1)).astype("f4") + np.float32(0)
    same_bits(DEVICE.lanewise("cvt.sat.f32.f32 %d, %a;", "f32", f32=X), want)


def test_conversions_of_whole_numbers() -> None:
    for body, out, kind, given, want in (
        ("cvt.rn.f32.s32", "f32", "u32", A32, A32.view("i4").astype("f4")), ("cvt.rn.f32.u32", "f32", "u32", A32, A32.astype("f4")),
        ("cvt.rn.f64.u64", "f64", "u64", A64, A64.astype("f8")), ("cvt.rn.f32.s64", "f32", "u64", A64, A64.view("i8").astype("f4")),
        ("cvt.s64.s32", "s64", "u32", A32, A32.view("i4").astype("i8")), ("cvt.u64.u32", "u64", "u32", A32, A32.astype("u8")),
        ("cvt.u32.u64", "u32", "u64", A64, A64.astype("u4")), ("cvt.s32.s8", "s32", "u32", A32, A32.astype("u1").view("i1").astype("i4")),
        ("cvt.u32.u16", "u32", "u16", A32.astype("u2"), A32.astype("u2").astype("u4")),
        ("cvt.s32.s16", "s32", "u16", A32.astype("u2"), A32.astype("u2").view("i2").astype("i4")),
        ("cvt.sat.u8.s32", "u8", "u32", A32, np.clip(A32.view("i4"), 0, 255)),
        ("cvt.sat.s16.s32", "s16", "u32", A32, np.clip(A32.view("i4"), -32768, 32767)),
        ("cvt.sat.s32.u32", "s32", "u32", A32, np.minimum(A32, 0x7FFFFFFF)),
    ):  # fmt: skip
        np.testing.assert_array_equal(DEVICE.lanewise(f"{body} %d, %a;", out, **{kind: given}), want, body)
    got = DEVICE.lanewise("cvt.rz.f32.u32 %d, %a;", "f32", u32=A32).astype("f8")
    assert (got <= A32).all() and (A32 - got < 256).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_sixteen_bit_floats() -> None:
    for name, dtype in (("bf16", BF), ("f16", np.dtype("f2"))):
        want = X.astype(dtype)
        got = DEVICE.lanewise(f"cvt.rn.{name}.f32 %d, %a;", "b16", f32=X).view(dtype)
        same_bits(got.astype("f4"), want.astype("f4"), name)
        assert (np.signbit(got.astype("f4")) == np.signbit(X))[~np.isnan(X)].all()
        every = np.arange(0, 65536, 97, np.uint16)[:640]
        same_bits(DEVICE.lanewise(f"cvt.f32.{name} %d, %a;", "f32", b16=every), every.view(dtype).astype("f4"), name)
        pair = DEVICE.lanewise(f"cvt.rn.{name}x2.f32 %d, %a, %b;", "b32", f32=(F, G)).view(dtype).reshape(-1, 2)
        same_bits(pair[:, 0].astype("f4"), G.astype(dtype).astype("f4"))
        same_bits(pair[:, 1].astype("f4"), F.astype(dtype).astype("f4"))
        a, b, c = (rng.standard_normal(128).astype(dtype) for _ in range(3))
        f, g, h = (x.astype("f8") for x in (a, b, c))
        cases = {"add": f + g, "mul": f * g, "max": np.fmax(f, g), "fma": f * g + h}
        for op, exact in cases.items():
            operands = "%a, %b, %c" if op == "fma" else "%a, %b"
            kind = {"fma": "fma.rn"}.get(op, op)
            inputs = tuple(x.view("u4") for x in ((a, b, c) if op == "fma" else (a, b)))
            got = DEVICE.lanewise(f"{kind}.{name}x2 %d, {operands};", "b32", b32=inputs).view(dtype)
            same_bits(got.astype("f4"), exact.astype("f4").astype(dtype).astype("f4"), f"{op} {name}")
    cut = DEVICE.lanewise("cvt.rz.bf16.f32 %d, %a;", "b16", f32=X)
    keep = ~np.isnan(X)
    np.testing.assert_array_equal(cut[keep], (X.view("u4") >> 16).astype("u2")[keep])
    doubles = np.float64([1 + 2**-11 + 2**-30, 1 + 2**-11, 65519.99, 1e-7])  # rounded to float32 first, the first one would be a tie
    np.testing.assert_array_equal(DEVICE.lanewise("cvt.rn.f16.f64 %d, %a;", "b16", f64=doubles).view("f2"), doubles.astype("f2"))
    got = DEVICE.lanewise("cvt.rna.tf32.f32 %d, %a;", "b32", f32=np.float32([1 + 2**-11, 1 + 2**-12, -1 - 2**-11])).view("f4")
    np.testing.assert_array_equal(got, np.float32([1 + 2**-10, 1, -1 - 2**-10]))


def test_packing_addresses_and_special_registers() -> None:
    got = DEVICE.lanewise("mov.b64 {%r1, %r2}, %a; mov.b64 %d, {%r2, %r1};", "u64", u64=A64)
    np.testing.assert_array_equal(got, A64 << np.uint64(32) | A64 >> np.uint64(32))
    got = DEVICE.lanewise("mov.b32 {%h1, %h2}, %a; mov.b32 %d, {%h2, %h1};", "u32", u32=A32)
    np.testing.assert_array_equal(got, A32 << np.uint32(16) | A32 >> np.uint32(16))
    got = DEVICE.lanewise(
        "mov.f32 %f1, 0f3FC00000; mov.f64 %fd1, 0d3FF8000000000000; cvt.rn.f32.f64 %f2, %fd1; add.f32 %d, %f1, %f2;", "f32", u32=A32
    )
    assert (got == 3).all()
    body = """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %nctaid.x; mad.lo.u32 %r4, %r2, %r3, %r1;
        mov.u32 %r5, %ntid.x; mov.u32 %r6, %ntid.y; mul.lo.u32 %r7, %r5, %r6; mov.u32 %r8, %tid.x; mov.u32 %r9, %tid.y;
        mad.lo.u32 %r10, %r9, %r5, %r8; mad.lo.u32 %r10, %r4, %r7, %r10;
        mov.u32 %r11, %laneid; mov.u32 %r12, %lanemask_lt; popc.b32 %r12, %r12; sub.u32 %r11, %r11, %r12; add.u32 %r11, %r11, %r10;
        ld.param.u64 %rd1, [out]; mul.wide.u32 %rd2, %r10, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r11;"""
    device = Device()
    out = device.empty(3 * 2 * 8 * 6, np.uint32)
    device.run(entry("k", "u64 out", body), (3, 2), (8, 6), out)
    np.testing.assert_array_equal(device.memory.read(out, 3 * 2 * 8 * 6, np.uint32), np.arange(3 * 2 * 8 * 6))


def test_loads_and_stores_of_every_width_and_space() -> None:
    device = Device()
    for kind in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "f32", "f64"):
        values = rng.integers(0, 100, 45) - (50 if kind[0] == "s" else 0)
        got = device.lanewise(f"mov.{'b16' if kind[1] in '81' else kind} %d, %a;", kind, **{kind: values})
        np.testing.assert_array_equal(got, values.astype(got.dtype), kind)
    for count, kind in ((2, "f32"), (4, "f32"), (2, "u64"), (4, "u16"), (2, "f64")):
        register = {"f": "%f", "u": "%rd", "h": "%h"}["h" if kind == "u16" else kind[0]]
        register = "%fd" if kind == "f64" else register
        names = ", ".join(f"{register}{k + 1}" for k in range(count))
        turned = ", ".join(f"{register}{count - k}" for k in range(count))
        size = count * (int(kind[1:]) // 8)
        body = f"""mov.u32 %r1, %tid.x; mul.wide.u32 %rd10, %r1, {size}; ld.param.u64 %rd11, [x]; ld.param.u64 %rd12, [y];
            add.u64 %rd11, %rd11, %rd10; add.u64 %rd12, %rd12, %rd10;
            ld.global.nc.L1::no_allocate.v{count}.{kind} {{{names}}}, [%rd11]; st.global.v{count}.{kind} [%rd12], {{{turned}}};"""
        for threads in (64, 50):  # whole warps, and a part of one
            values = rng.integers(0, 1000, threads * count).astype({"f": "f", "u": "u"}[kind[0]] + str(int(kind[1:]) // 8))
            x, y = device.array(values), device.empty(values.size, values.dtype)
            device.run(entry("k", "u64 x, u64 y", body), 1, threads, x, y)
            got = device.memory.read(y, values.size, values.dtype).reshape(-1, count)
            np.testing.assert_array_equal(got[:, ::-1].ravel(), values, f"v{count}.{kind}")


def test_shared_local_and_constant_memory_and_generic_addresses() -> None:
    outside = ".global .align 4 .u32 table[4] = {8, 20, 30, 0x28};\n.extern .shared .align 4 .b8 dynamic[];\n"
    body = """.shared .align 4 .b8 tile[256]; .local .align 8 .b8 depot[16];
        mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 4; mov.u32 %r3, tile; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r1;
        mov.u32 %r4, dynamic; add.u32 %r4, %r4, %r2; mul.lo.u32 %r5, %r1, 7; st.shared.u32 [%r4], %r5;
        mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; st.local.u32 [%rd1+4], %r1; st.u32 [%rd2+8], %r5;
        bar.sync 0;
        sub.u32 %r6, 252, %r2; mov.u64 %rd3, tile; cvta.shared.u64 %rd4, %rd3; cvt.u64.u32 %rd5, %r6; add.u64 %rd4, %rd4, %rd5;
        ld.u32 %r7, [%rd4]; mov.u32 %r8, dynamic; add.u32 %r8, %r8, %r6; ld.shared.u32 %r9, [%r8];
        ld.u32 %r10, [%rd2+4]; ld.local.u32 %r11, [%rd1+8];
        and.b32 %r12, %r1, 3; mul.wide.u32 %rd6, %r12, 4; mov.u64 %rd7, table; add.u64 %rd7, %rd7, %rd6; ld.global.u32 %r13, [%rd7];
        add.u32 %r7, %r7, %r9; add.u32 %r7, %r7, %r10; add.u32 %r7, %r7, %r11; add.u32 %r7, %r7, %r13;
        ld.param.u64 %rd8, [out]; mul.wide.u32 %rd9, %r1, 4; add.u64 %rd8, %rd8, %rd9; st.global.u32 [%rd8], %r7;"""
    for order in ("all", "first", "last"):
        device = Device()
        out = device.empty(64, np.uint32)
        device.run(entry("k", "u64 out", body, outside), 1, 64, out, shared=256, order=order)
        t = np.arange(64)
        want = (63 - t) * 8 + t + 7 * t + np.array([8, 20, 30, 40])[t % 4]
        np.testing.assert_array_equal(device.memory.read(out, 64, np.uint32), want)


ATOMICS = {  # what a sum over the values in any order leaves
    "add.u32": lambda start, v: (start + v.sum()) & 0xFFFFFFFF, "min.s32": lambda start, v: min(start, v.min()),
    "max.u32": lambda start, v: max(start, v.max()),
    "and.b32": lambda start, v: start & np.bitwise_and.reduce(v), "or.b32": lambda start, v: start | np.bitwise_or.reduce(v),
    "xor.b32": lambda start, v: start ^ np.bitwise_xor.reduce(v),
}  # fmt: skip


def test_atomics() -> None:
    device = Device()
    values = rng.integers(0, 1 << 30, 70)
    for name, want in ATOMICS.items():
        for space in ("global", "shared"):
            middle = f"red.global.{name} [%rd1], %r1;"
            if space == "shared":
                middle = f""".shared .align 4 .b8 cell[4]; mov.u32 %r5, cell; mov.u32 %r6, %tid.x; setp.eq.u32 %p1, %r6, 0;
                    @%p1 ld.global.u32 %r7, [%rd1]; @%p1 st.shared.u32 [%r5], %r7; bar.sync 0;
                    atom.shared.{name} %r8, [%r5], %r1; bar.sync 0;
                    @%p1 ld.shared.u32 %r9, [%r5]; @%p1 st.global.u32 [%rd1], %r9;"""
            body = f"""ld.param.u64 %rd1, [total]; ld.param.u64 %rd2, [x]; mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4;
                add.u64 %rd2, %rd2, %rd3; ld.global.u32 %r1, [%rd2]; {middle}"""
            total = device.array([12345], "u4")
            device.run(entry("k", "u64 total, u64 x", body), 1, 70, total, device.array(values, "u4"))
            assert int(device.memory.read(total, 1, "u4")[0]) == int(want(12345, values)), (name, space)
    body = """ld.param.u64 %rd1, [total]; atom.global.inc.u32 %r1, [%rd1], 9; ld.param.u64 %rd2, [x]; mov.u32 %r2, %tid.x;
        mul.wide.u32 %rd3, %r2, 4; add.u64 %rd2, %rd2, %rd3; st.global.u32 [%rd2], %r1; atom.global.cas.b32 %r3, [%rd1+4], %r2, 77;
        atom.global.exch.b32 %r4, [%rd1+8], %r2; red.global.dec.u32 [%rd1+12], 5;"""
    total, x = device.array([0, 33, 5, 3], "u4"), device.empty(64, "u4")
    device.run(entry("k", "u64 total, u64 x", body), 1, 64, total, x)
    np.testing.assert_array_equal(np.sort(device.memory.read(x, 64, "u4")), np.sort(np.arange(64) % 10))
    assert device.memory.read(total, 4, "u4").tolist() == [4, 77, 63, (3 - 64) % 6]
    body = """ld.param.u64 %rd1, [x]; mov.f32 %f1, 0f3FC00000; red.global.add.f32 [%rd1], %f1; mov.f64 %fd1, 0d3FF8000000000000;
        atom.global.add.f64 %fd2, [%rd1+8], %fd1; mov.b32 %r1, 0x3F803F80; red.global.add.noftz.bf16x2 [%rd1+16], %r1;
        mov.b32 %r2, 0x3C003C00; atom.add.noftz.f16x2 %r3, [%rd1+20], %r2; mov.u64 %rd2, -1; red.global.max.u64 [%rd1+24], %rd2;"""
    x = device.array(np.zeros(32, "u1"))
    device.run(entry("k", "u64 x", body), 2, 32, x)
    raw = device.memory.read(x, 32)
    assert raw[:4].view("f4")[0] == 96 and raw[8:16].view("f8")[0] == 96 and raw[24:].view("u8")[0] == 2**64 - 1
    assert (raw[16:20].view(BF) == 64).all() and (raw[20:24].view("f2") == 64).all()


# ---- warps -----------------------------------------------------------------------------------------------------------------------
def test_shuffles() -> None:
    lane = np.arange(32)
    values = rng.integers(0, 1 << 32, 32).astype("u4")
    for width in (32, 16, 8):
        base = lane // width * width
        for mode, by, source in (
            ("down", 3, lane + 3), ("up", 5, lane - 5), ("bfly", 6, lane ^ 6), ("idx", 37, base + 37 % width),
        ):  # fmt: skip
            good = (source >= base) & (source < base + width)
            clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
            body = f"shfl.sync.{mode}.b32 %d|%q, %a, {by}, {clamp}, -1; @!%q xor.b32 %d, %d, -1;"
            want = np.where(good, values[np.where(good, source, lane)], ~values)
            np.testing.assert_array_equal(DEVICE.lanewise(body, "u32", u32=values), want, f"{mode} {width}")


def test_votes_matches_and_reductions() -> None:
    values = rng.integers(0, 4, 32).astype("u4")
    mask = sum(1 << k for k in range(32) if values[k] == 1)
    ask = "setp.eq.u32 %p1, %a, 1;"
    assert (DEVICE.lanewise(f"{ask} vote.sync.ballot.b32 %d, %p1, -1;", "u32", u32=values) == mask).all()
    for mode, same, want in (
        ("any", values, 1),
        ("all", values, 0),
        ("all", values * 0 + 1, 1),
        ("any", values * 0, 0),
        ("uni", values, 0),
        ("uni", values * 0, 1),
    ):
        got = DEVICE.lanewise(f"{ask} vote.sync.{mode}.pred %q, %p1, -1; selp.u32 %d, 1, 0, %q;", "u32", u32=same)
        assert (got == want).all(), mode
    want = [sum(1 << k for k in range(32) if values[k] == v) for v in values]
    np.testing.assert_array_equal(DEVICE.lanewise("match.any.sync.b32 %d, %a, -1;", "u32", u32=values), want)
    body = "match.all.sync.b32 %r1|%q, %a, -1; selp.u32 %d, %r1, 5, %q;"
    assert (DEVICE.lanewise(body, "u32", u32=values) == 5).all() and (DEVICE.lanewise(body, "u32", u32=values * 0) == 0xFFFFFFFF).all()
    x = B32[:32]
    for name, want in (
        ("add.s32", x.sum(dtype="u4")), ("min.s32", x.view("i4").min()), ("max.u32", x.max()), ("xor.b32", np.bitwise_xor.reduce(x)),
    ):  # fmt: skip
        assert (DEVICE.lanewise(f"redux.sync.{name} %d, %a, -1;", "u32", u32=x) == np.array(want).astype("u4")).all(), name
    body = """and.b32 %r1, %a, 1; setp.eq.u32 %p1, %r1, 0; mov.u32 %d, 0; @%p1 bra EVEN; activemask.b32 %d; bra.uni DONE;
        EVEN: activemask.b32 %d; DONE:"""
    even = sum(1 << k for k in range(32) if values[k] % 2 == 0)
    np.testing.assert_array_equal(DEVICE.lanewise(body, "u32", u32=values), np.where(values % 2 == 0, even, ~np.uint32(even)))


def test_lanes_part_and_meet_again() -> None:
    """Loops of different lengths, with branches and an early end inside, and a table of jumps."""
    a = rng.integers(0, 40, 64).astype("u4")
    body = """mov.u32 %r1, 0; mov.u32 %r2, 0;
        LOOP: setp.ge.u32 %p1, %r1, %a; @%p1 bra OUT; and.b32 %r3, %r1, 3; brx.idx %r3, TABLE;
        TABLE: .branchtargets ZERO, ONE, TWO, THREE;
        ZERO: add.u32 %r2, %r2, 5; bra.uni NEXT;
        ONE: setp.gt.u32 %p2, %r2, 60; @%p2 bra OUT; mul.lo.u32 %r2, %r2, 2; bra.uni NEXT;
        TWO: add.u32 %r2, %r2, 1;
        THREE: xor.b32 %r2, %r2, 3;
        NEXT: add.u32 %r1, %r1, 1; bra.uni LOOP;
        OUT: activemask.b32 %r4; popc.b32 %r4, %r4; mul.lo.u32 %r4, %r4, 1000; add.u32 %d, %r2, %r4;"""

    def one(n: int) -> int:
        total = 0
        for k in range(n):
            if k % 4 == 0:
                total += 5
            elif k % 4 == 1:
                if total > 60:
                    break
                total *= 2
            else:
                total = (total + 1 if k % 4 == 2 else total) ^ 3
        return total + 32000

    np.testing.assert_array_equal(DEVICE.lanewise(body, "u32", u32=a), [one(int(n)) for n in a])


def test_barriers_that_reduce_and_named_ones() -> None:
    a = rng.integers(0, 3, 96).astype("u4")
    body = """setp.eq.u32 %p1, %a, 1; bar.red.popc.u32 %r1, 0, %p1; bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, %p1;
        selp.u32 %r2, 1000, 0, %p2; selp.u32 %r3, 10000, 0, %p3; add.u32 %r1, %r1, %r2; add.u32 %d, %r1, %r3;"""
    for values in (a, a * 0 + 1, a * 0):
        hits = int((values == 1).sum())
        want = hits + 1000 * (hits > 0) + 10000 * (hits == 96)
        assert (DEVICE.lanewise(body, "u32", u32=values) == want).all()
    body = """.shared .align 4 .b8 box[4]; mov.u32 %r5, box; setp.ge.u32 %p1, %r60, 64; setp.eq.u32 %p2, %r60, 0; setp.eq.u32 %p3, %r60, 64;
        mov.u32 %d, %a; @%p1 bra LATE; @%p2 st.shared.u32 [%r5], %a; bar.arrive 1, 96; bra.uni DONE;
        LATE: bar.sync 1, 96; ld.shared.u32 %d, [%r5]; DONE:"""
    got = DEVICE.lanewise(body, "u32", u32=np.arange(7, 103))
    np.testing.assert_array_equal(got, np.where(np.arange(96) < 64, np.arange(7, 103), 7))
    assert lanewise(body, "u32", "u32").count("bar.") == 2
