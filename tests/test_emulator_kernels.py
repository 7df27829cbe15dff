"""Whole kernels in the emulator: compiled from Python by numba-cuda where it is installed, or written in PTX; and what a launch counts.

Oracles: NumPy in float64, the published test vector of Philox.
"""

from __future__ import annotations

import numpy as np
import pytest
from error_text import raises

pytest.importorskip("llvmlite", reason="the emulator compiles with llvmlite")
from ptx_tools import Device, entry

from flamepy.emulator import EmulationError, Machine, Memory
from flamepy.emulator.ptx import read

rng = np.random.default_rng(11)
floats = lambda *shape: rng.standard_normal(shape).astype(np.float32)
GELU = """ld.param.u32 %r9, [n]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
    setp.ge.s32 %p1, %r4, %r9; @%p1 bra DONE; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mul.wide.s32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3; ld.global.f32 %f1, [%rd4]; mul.f32 %f2, %f1, %f1; mul.f32 %f3, %f2, %f1; fma.rn.f32 %f4, %f3, 0f3D372713, %f1;
    mul.f32 %f5, %f4, 0f3F4C422A; tanh.approx.f32 %f6, %f5; add.f32 %f7, %f6, 0f3F800000; mul.f32 %f8, %f1, 0f3F000000;
    mul.f32 %f9, %f8, %f7; add.s64 %rd5, %rd2, %rd3; st.global.f32 [%rd5], %f9; DONE:"""


def gelu(x: np.ndarray) -> np.ndarray:
    x = x.astype(np.float64)
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def test_gelu_and_what_it_counts() -> None:
    device = Device()
    x, y = floats(1000), device.empty(1000)
    counts = device.run(entry("gelu", "u64 x, u64 y, u32 n", GELU), 8, 128, device.array(x), y, 1000, count=True)
    np.testing.assert_allclose(device.memory.read(y, 1000, np.float32), gelu(x), rtol=2e-6, atol=1e-6)
    assert (counts.threads, counts.warps) == (1024, 32)
    assert counts.load_sectors == counts.store_sectors == 1000 * 4 // 32 and counts.transactions == 1.0
    assert counts.distinct_read == counts.distinct_written == counts.bytes_loaded == counts.bytes_stored == 4000
    assert counts.instructions["load global"] == counts.instructions["store global"] == counts.instructions["special"] == 32
    assert counts.instructions["fp32"] == 7 * 32 and counts.instructions["branch"] == 2 * 32
    assert counts.flops == 1000 * 9 and counts.intensity == 9 / 8
    assert 0.98 < counts.active < 1


def counted(body: str, threads: int = 32, numbers: int = 4096) -> object:
    device = Device()
    x = device.array(np.zeros(numbers, np.float32))
    head = ".shared .align 16 .b8 tile[16384]; mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mov.u32 %r2, tile;"
    return device.run(entry("k", "u64 x", head + body), 1, threads, x, count=True)


def test_sectors_and_bank_conflicts_are_counted() -> None:
    for stride, sectors in ((1, 4), (2, 8), (8, 32), (32, 32), (0, 1)):
        body = f"mul.lo.u32 %r3, %r1, {4 * stride}; cvt.u64.u32 %rd2, %r3; add.u64 %rd3, %rd1, %rd2; ld.global.f32 %f1, [%rd3];"
        counts = counted(body)
        assert counts.load_sectors == sectors and counts.least_load_sectors == (4 if stride else 1), stride
        assert counts.distinct_read == (128 if stride else 4)
    for stride, waves in ((1, 1), (2, 2), (32, 32), (33, 1), (0, 1)):
        body = f"mul.lo.u32 %r3, %r1, {4 * stride}; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], {'0' if stride == 0 else '%r1'};"
        counts = counted(body)
        assert (counts.wavefronts, counts.bank_conflicts) == (waves, waves - 1), stride
    body = "mul.lo.u32 %r3, %r1, 16; add.u32 %r3, %r3, %r2; mov.f32 %f1, 0f00000000; st.shared.v4.f32 [%r3], {%f1, %f1, %f1, %f1};"
    assert (counted(body).wavefronts, counted(body).bank_conflicts) == (4, 0)
    body = "setp.lt.u32 %p1, %r1, 8; @!%p1 bra DONE; add.u32 %r3, %r1, 1; add.u32 %r3, %r3, 1; add.u32 %r3, %r3, 1; DONE:"
    assert counted(body).active == pytest.approx((5 * 32 + 3 * 8 + 1 * 32) / (9 * 32))


def fragments(a: np.ndarray, pairs: int, low: int) -> np.ndarray:
    """A factor of mma as the lanes hold it, written from the PTX manual: registers x lanes x numbers in a register."""
    lane = np.arange(32)
    group, column = lane // 4, lane % 4
    found = []
    for register in range(a.shape[1] // (4 * pairs) * low):
        k = 4 * pairs * (register // low) + pairs * column[:, None] + np.arange(pairs)
        row = group[:, None] + 8 * (register % low)
        found.append(a[row, k])
    return np.stack(found)


def as_bits(x: np.ndarray, kind: str) -> np.ndarray:
    if kind == "bf16":
        import ml_dtypes

        return x.astype(ml_dtypes.bfloat16).view(np.uint16)
    return x.astype(np.float16).view(np.uint16) if kind == "f16" else x.view(np.uint32)


@pytest.mark.parametrize("kind, depth", [("bf16", 16), ("bf16", 8), ("f16", 16), ("f16", 8), ("tf32", 8)])
def test_products_of_matrices(kind: str, depth: int) -> None:
    a, b, c = (np.round(floats(*s) * 16) / 16 for s in ((16, depth), (depth, 8), (16, 8)))  # exact in every type
    pairs = 1 if kind == "tf32" else 2
    fa, fb = fragments(a, pairs, 2), fragments(b.T.copy(), pairs, 1)
    device = Device()
    registers = [as_bits(f, kind).reshape(32, pairs).view(np.uint32).ravel() for f in (*fa, *fb)]
    lane = np.arange(32)
    where = [(lane // 4 + 8 * (k // 2), 2 * (lane % 4) + k % 2) for k in range(4)]
    registers += [c[w].astype(np.float32).view(np.uint32) for w in where]
    x, y = device.array(np.stack(registers)), device.empty(128)
    na, nb = len(fa), len(fb)
    loads = "".join(f"ld.global.u32 %r{k + 2}, [%rd3+{128 * k}];" for k in range(na + nb + 4))
    names = [f"%r{k + 2}" for k in range(na + nb + 4)]
    one = lambda low, high: "{" + ", ".join(names[low:high]) + "}"
    moves = "".join(f"mov.b32 %f{k}, {names[na + nb + k]};" for k in range(4))
    body = f"""mov.u32 %r1, %laneid; mul.wide.u32 %rd2, %r1, 4; ld.param.u64 %rd1, [x]; add.u64 %rd3, %rd1, %rd2; {loads} {moves}
        mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32
            {{%f4, %f5, %f6, %f7}}, {one(0, na)}, {one(na, na + nb)}, {{%f0, %f1, %f2, %f3}};
        ld.param.u64 %rd4, [y]; add.u64 %rd5, %rd4, %rd2;
        st.global.f32 [%rd5], %f4; st.global.f32 [%rd5+128], %f5; st.global.f32 [%rd5+256], %f6; st.global.f32 [%rd5+384], %f7;"""
    counts = device.run(entry("k", "u64 x, u64 y", body), 1, 32, x, y, count=True)
    got, found = np.zeros((16, 8), np.float32), device.memory.read(y, 128, np.float32).reshape(4, 32)
    for k in range(4):
        got[where[k]] = found[k]
    np.testing.assert_array_equal(got, (a.astype(np.float64) @ b + c).astype(np.float32))
    assert counts.instructions["mma"] == 1 and counts.flops == 2 * 16 * 8 * depth


@pytest.mark.parametrize("turned", ["", ".trans"])
def test_matrix_loads(turned: str) -> None:
    matrices = rng.integers(0, 1 << 16, (4, 8, 8), np.uint16)
    body = f""".shared .align 16 .b8 tile[512]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
        ld.param.u64 %rd1, [x]; cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd1, %rd2; ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%rd3];
        st.shared.v4.u32 [%r4], {{%r5, %r6, %r7, %r8}}; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{%r10, %r11, %r12, %r13}}, [%r4];
        ld.param.u64 %rd4, [y]; add.u64 %rd5, %rd4, %rd2; st.global.v4.u32 [%rd5], {{%r10, %r11, %r12, %r13}};"""
    device = Device()
    y = device.empty(128, np.uint32)
    text = entry("k", "u64 x, u64 y", body)
    device.run(text, 1, 32, device.array(matrices), y)
    got = device.memory.read(y, 256, np.uint16).reshape(32, 4, 2)
    want = matrices.transpose(0, 2, 1) if turned else matrices
    for lane in range(32):
        np.testing.assert_array_equal(got[lane], want[:, lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2])
    with raises(EmulationError, "race: ", "cuda.syncwarp()"):
        device.run(text.replace("bar.sync 0;", ""), 1, 32, device.array(matrices), y)


def test_copies_in_the_background() -> None:
    body = """.shared .align 16 .b8 tile[2048]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
        ld.param.u64 %rd1, [x]; cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd1, %rd2;
        st.shared.v4.u32 [%r4], {%r1, %r1, %r1, %r1}; bar.sync 0;
        cp.async.cg.shared.global [%r4], [%rd3], 16; cp.async.commit_group;
        cp.async.ca.shared.global [%r4+1024], [%rd3], 16, 8; cp.async.commit_group;
        cp.async.wait_group 1; BARRIER sub.u32 %r5, 1008, %r2; add.u32 %r5, %r3, %r5; ld.shared.v4.u32 {%r6, %r7, %r8, %r9}, [%r5];
        cp.async.wait_all; bar.sync 0; ld.shared.v2.u32 {%r10, %r11}, [%r5+1024]; ld.shared.u32 %r12, [%r5+1032];
        add.u32 %r6, %r6, %r10; add.u32 %r7, %r7, %r11; add.u32 %r8, %r8, %r12;
        ld.param.u64 %rd4, [y]; add.u64 %rd5, %rd4, %rd2; st.global.v4.u32 [%rd5], {%r6, %r7, %r8, %r9};"""
    device = Device()
    x = rng.integers(0, 1000, (64, 4)).astype(np.uint32)
    y = device.empty(256, np.uint32)
    good = entry("k", "u64 x, u64 y", body.replace("BARRIER", "bar.sync 0;"))
    device.run(good, 1, 64, device.array(x), y)
    want = x[::-1] + x[::-1] * [1, 1, 0, 0]
    np.testing.assert_array_equal(device.memory.read(y, 256, np.uint32).reshape(64, 4), want)
    with raises(EmulationError, "k: race: "):
        device.run(good.replace("wait_group 1; bar.sync 0;", "wait_group 1;"), 1, 64, device.array(x), y)
    with raises(EmulationError, "memory that cp.async still writes", "16 bytes", "thread 0 of block 0"):
        device.run(good.replace("wait_group 1; bar.sync 0;", "wait_group 2; bar.sync 0;"), 1, 64, device.array(x), y)


def test_compiled_kernels_are_kept_on_disk(tmp_path, monkeypatch) -> None:
    from flamepy.emulator import host

    text = entry("gelu", "u64 x, u64 y, u32 n", GELU)
    times = []
    real = host.compiled
    monkeypatch.setattr(host, "compiled", lambda text: times.append(1) or real(text))
    device = Device(folder=tmp_path)
    device.machine.load(text)
    (file,) = tmp_path.rglob("*.emulated")
    kernel = Machine(device.memory, tmp_path).load(text)["gelu"]
    assert times == [1]
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    Device(folder=tmp_path).machine.load(text)
    assert times == [1, 1] and not list(tmp_path.rglob("*.new"))
    x = floats(64)
    y = device.empty(64)
    device.machine.launch(kernel, 1, 64, (device.array(x), y, 64))
    np.testing.assert_allclose(device.memory.read(y, 64, np.float32), gelu(x), rtol=2e-6, atol=1e-6)


def test_several_kernels_lines_and_inline_blocks() -> None:
    text = """.version 8.4
.target sm_90a
.address_size 64
 // a comment; with { braces
.visible .entry first(
 .param .u64 .ptr .global .align 4 first_param_0
)
.maxntid 128, 1, 1
.minnctapersm 2
{
 .reg .b32  %r<4>;
 .reg .b64  %rd<4>;
 .loc 1 12 5
 ld.param.u64  %rd1, [first_param_0];
 // begin inline asm
 { .reg .b32 t; .reg .pred p; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; @p mov.u32 t, 9;
   { .reg .b32 t; mov.u32 t, 5; } mov.u32 %r1, t; }
 // end inline asm
 .loc 2 40 3, function_name $L__info_string0, inlined_at 1 13 9
 st.global.u32  [%rd1], %r1;
 ret;
}
.visible .entry second(.param .u32 a, .param .f64 b, .param .align 8 .b8 c[24]) { .loc 1 77 1
 ret; }
 .file 1 "/home/me/kernels.py"
 .file 2 "/home/me/helpers.py"
 .section .debug_str
 {
$L__info_string0:
.b8 102
.b8 0
 }
"""
    device = Device()
    kernels = device.machine.load(text)
    assert list(kernels) == ["first", "second"]
    assert [(p.offset, p.size) for p in kernels["second"].entry.parameters] == [(0, 4), (8, 8), (16, 24)]
    x = device.empty(1, np.uint32)
    device.machine.launch(kernels["first"], 1, 1, (x,))
    assert device.memory.read(x, 1, np.uint32)[0] == 9
    device.machine.launch(kernels["second"], 1, 1, (1, 2.0, bytes(24)))
    with raises(EmulationError, "first: write out of bounds", "/home/me/helpers.py:40"):
        device.machine.launch(kernels["first"], 1, 1, (x + 4,))


def test_what_was_moved_has_the_line_that_comes_next_in_its_block() -> None:
    text = """.version 8.4
        .target sm_90
        .file 1 "here.py"
        .visible .entry k(.param .u64 a) { .reg .b64 %rd<2>; .reg .b32 %r<3>;
        .loc 1 12 1
        ld.param.u64 %rd1, [a];
        HERE:
        .loc 1 0 1
        ld.global.u32 %r1, [%rd1];
        .loc 1 9 1
        add.u32 %r2, %r1, 1;
        .loc 1 0 1
        bra LAST;
        LAST:
        .loc 1 15 1
        ret; }"""
    assert [i.line for i in read(text).entries["k"].instructions] == [12, 9, 9, 9, 15]


def test_functions_of_the_module_are_called() -> None:
    functions = """.func (.param .b32 r0) triple(.param .b32 p0) { .reg .b32 %r<3>; .reg .pred %p<2>;
        ld.param.u32 %r1, [p0]; setp.gt.u32 %p1, %r1, 40; @%p1 bra BIG; mul.lo.u32 %r2, %r1, 3; st.param.b32 [r0+0], %r2; ret;
        BIG: st.param.b32 [r0], %r1; ret; }
        .func (.param .align 8 .b8 r0[16]) both(.param .b32 p0, .param .b64 p1);
        .func (.param .align 8 .b8 r0[16]) both(.param .b32 p0, .param .b64 p1) { .reg .b32 %r<3>; .reg .b64 %rd<2>;
        ld.param.u32 %r1, [p0]; ld.param.u64 %rd1, [p1];
        { .param .b32 q; .param .b32 s; st.param.b32 [q], %r1; call.uni (s), triple, (q); ld.param.b32 %r2, [s]; }
        st.param.b32 [r0], %r2; st.param.b64 [r0+8], %rd1; ret; }"""
    body = """mov.u32 %r1, %tid.x; add.u32 %r2, %r1, 1; cvt.u64.u32 %rd1, %r1;
        { .param .b32 a; .param .b64 b; .param .align 8 .b8 c[16]; st.param.b32 [a+0], %r2; st.param.b64 [b+0], %rd1;
        call.uni (c), both, (a, b); ld.param.b32 %r3, [c+0]; ld.param.b64 %rd2, [c+8]; }
        { .param .b32 a; .param .b32 c; st.param.b32 [a+0], %r3; call.uni (c), triple, (a); ld.param.b32 %r4, [c+0]; }
        cvt.u32.u64 %r5, %rd2; mad.lo.u32 %r4, %r5, 1000, %r4;
        ld.param.u64 %rd3, [x]; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd3, %rd4; st.global.u32 [%rd3], %r4;"""
    device = Device()
    x = device.empty(64, np.uint32)
    device.run(entry("k", "u64 x", body, functions), 1, 64, x)
    triple = lambda v: np.where(v > 40, v, 3 * v)
    np.testing.assert_array_equal(device.memory.read(x, 64, np.uint32), triple(triple(np.arange(1, 65))) + 1000 * np.arange(64))
    with raises(EmulationError, "k: a call of a function that is not in the module: nobody"):
        device.run(entry("k", "u64 x", "call.uni nobody;"), 1, 1, x)


def test_arguments_are_packed_alike_at_once_and_one_by_one(tmp_path) -> None:
    """Numbers of Python's and NumPy's of all sizes; what does not fit a letter is masked, what has another size refused."""
    text = entry("k", "u8 a, s16 b, u32 c, b64 d, f32 e, f64 f", "ret;")
    kernel = Machine(Memory(), tmp_path).load(text)["k"]
    for values in (
        (1, 2, 3, 4, 5.0, 6.0), (True, -2, -3, 1 << 63, 5, 6),
        (np.uint8(1), np.int16(-2), np.float32(0.1), np.int64(-4), np.float32(0.2), 7),
        (b"x", 2, np.uint32(7), np.float64(0.3), 5.0, np.float64(6)), (np.bool_(True), 40000, 1 << 32, -1, float("inf"), float("nan")),
    ):  # fmt: skip
        one_by_one = bytearray(kernel.parameter_bytes)
        for k, (value, (offset, size, letter)) in enumerate(zip(values, kernel.format, strict=True)):
            one_by_one[offset : offset + size] = kernel.packed(k, value, size, letter)
        assert kernel.pack(values).tobytes() == bytes(one_by_one) == kernel.pack(values).tobytes()
    for wrong in ((np.int16(1), 2, 3, 4, 5.0, 6.0), (1, 2, np.float64(3), 4, 5.0, 6.0)):
        with raises(EmulationError, "k: argument", "Convert it."):
            kernel.pack(wrong)
