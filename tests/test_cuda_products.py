"""Products on the emulated GPU: own kernels at every edge of a tile, in every type, against NumPy in float64, and what they become.

Each kernel is asked for sizes beside its tile's, operands that are stored the other way round, operands at odd places, and many parts.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_tools import by_ptxas, for_gpu, gpu_like, listings
from devices import emulated_gpu

from flamepy.cuda.kernels import OPCODE
from flamepy.dtypes import bfloat16, float16, float32, float64
from flamepy.errors import EmulationError
from flamepy.ops.products import follower

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")

from flamepy.backend.cuda.products import matmul

rng = np.random.default_rng(11)
ULP = {float64: 2.0**-52, float32: 2.0**-23, bfloat16: 2.0**-8, float16: 2.0**-10}
GELU = np.sqrt(2 / np.pi)


@pytest.fixture
def gpu() -> Any:
    return emulated_gpu()


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large tiles for matrices of any size."""
    monkeypatch.setattr(matmul, "BUSY", 1)


def normal(size: int, dtype: np.dtype) -> np.ndarray:
    return rng.standard_normal(size).astype(dtype)


def up(gpu: Any, x: np.ndarray | None, at: int = 0) -> Any:
    """A buffer of the device, or one that begins some elements into another."""
    if x is None or not at:
        return None if x is None else gpu.upload(x)
    return gpu.slot(gpu.upload(np.concatenate([x[:at], x])), at * x.dtype.itemsize, x.size, x.dtype)


def launch(gpu: Any, name: str, outs: Any, ins: Any, consts: Any, formula: Any = None, at: int = 0) -> list[Any]:
    """What the outs hold afterwards; an out is an array or (size, dtype)."""
    made = [up(gpu, np.full(o[0], 77, o[1]) if isinstance(o, tuple) else o, at) for o in outs]
    dtype = float64 if any(x is not None and x.dtype == float64 for x in ins) else float32
    gpu.launch(name, formula, made, [up(gpu, x, at) for x in ins], consts, dtype)
    return [None if b is None else gpu.download(b) for b in made]


def close(got: np.ndarray, want: np.ndarray, k: int = 0, roundings: int = 1) -> None:
    """As close as sums of k products are: 16 bits to a rounding, float32 and float64 to what their additions lose."""
    size = np.abs(want).max(initial=1e-30)
    ulps = roundings if got.dtype.itemsize == 2 else 4 + k**0.5
    assert got.size == want.size
    assert np.abs(got.astype(float64) - want.reshape(-1)).max(initial=0) <= ulps * ULP[got.dtype] * size


def wide(x: np.ndarray, *shape: int) -> np.ndarray:
    return x.astype(float64).reshape(shape)


def check_linear(gpu: Any, rows: int, n: int, k: int, dtype: np.dtype, at: int = 0) -> None:
    x, w, bias = normal(rows * k, dtype), normal(n * k, dtype), normal(n, dtype)
    (y, _) = launch(gpu, "linear", ((rows * n, dtype), None), (x, w, bias, None), (rows, n, k, False, False, dtype), at=at)
    close(y, wide(x, rows, k) @ wide(w, n, k).T + wide(bias, n), k)


SMALL = [(1, 1, 1), (5, 7, 3), (64, 64, 32), (63, 65, 33), (65, 62, 31), (67, 64, 64), (7, 129, 100), (3, 4, 0)]
LARGE = [(128, 128, 64), (129, 127, 33), (127, 136, 31)]


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, float16], ids=str)
def test_a_layer_in_small_tiles(gpu: Any, dtype: np.dtype) -> None:
    for rows, n, k in SMALL:
        check_linear(gpu, rows, n, k, dtype)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_a_layer_in_large_tiles(gpu: Any, large: None, dtype: np.dtype) -> None:
    for rows, n, k in LARGE:
        check_linear(gpu, rows, n, k, dtype)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_operands_at_odd_places(gpu: Any, dtype: np.dtype) -> None:
    check_linear(gpu, 64, 72, 64, dtype, at=1)


def test_nothing_to_multiply(gpu: Any) -> None:
    before = gpu.launched
    for rows, n in ((0, 5), (5, 0)):
        launch(
            gpu,
            "linear",
            ((0, float32), None),
            (normal(rows * 3, float32), normal(n * 3, float32), None, None),
            (rows, n, 3, False, False, float32),
        )
    assert gpu.launched == before


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_stacks_stored_either_way(gpu: Any, dtype: np.dtype, ta: bool) -> None:
    """(2, 1) by (1, 3) matrices: six products of two runs, with op(a) @ op(b), b the other way round than a."""
    tb = ta
    for m, n, k in ((5, 3, 4), (66, 65, 40), (64, 72, 64)):
        a, b = normal(2 * m * k, dtype), normal(3 * n * k, dtype)
        a_at = tuple(m * k * i for i in (0, 0, 0, 1, 1, 1))
        b_at = tuple(n * k * i for i in (0, 1, 2, 0, 1, 2))
        (c,) = launch(gpu, "matmul", ((6 * m * n, dtype),), (a, b), (a_at, b_at, m, n, k, ta, tb))
        left = wide(a, 2, k, m).swapaxes(1, 2) if ta else wide(a, 2, m, k)
        right = wide(b, 3, n, k).swapaxes(1, 2) if tb else wide(b, 3, k, n)
        close(c, left[:, None] @ right[None], k)


def test_a_wide_result_of_narrow_operands(gpu: Any) -> None:
    a, b = normal(20 * 30, bfloat16), normal(30 * 10, bfloat16)
    (c,) = launch(gpu, "matmul", ((200, float32),), (a, b), ((0,), (0,), 20, 10, 30, False, False))
    close(c, wide(a, 20, 30) @ wide(b, 30, 10), 30)


def test_operands_of_two_types(gpu: Any) -> None:
    """A float32 weight is read as bfloat16 by a product of bfloat16; float16 beside float32 is widened."""
    x, w = normal(6 * 20, bfloat16), normal(9 * 20, float32)
    (y, _) = launch(gpu, "linear", ((54, bfloat16), None), (x, w, None, None), (6, 9, 20, False, False, bfloat16))
    close(y, wide(x, 6, 20) @ wide(w.astype(bfloat16), 9, 20).T)
    g, w = normal(6 * 20, float32), normal(20 * 9, float16)
    (y, _) = launch(gpu, "linear", ((54, float32), None), (g, w, None, None), (6, 9, 20, True, False, float32))
    close(y, wide(g, 6, 20) @ wide(w, 20, 9), 20)


@pytest.mark.parametrize(("dtype", "out"), [(float32, float32), (bfloat16, bfloat16), (bfloat16, float32)], ids=str)
def test_what_ends_a_layer(gpu: Any, dtype: np.dtype, out: np.dtype) -> None:
    """GELU of product and bias, plus a residual; what went into it is kept. In one part, and in several of a long k."""
    for rows, n, k in ((65, 33, 40), (20, 24, 1100)):
        x, w = normal(rows * k, dtype), normal(n * k, dtype) / np.sqrt(k).astype(dtype)
        bias, residual = normal(n, out), normal(rows * n, out)
        consts = (rows, n, k, False, False, dtype)
        y, kept = launch(gpu, "linear", ((rows * n, out),) * 2, (x, w, bias, residual), consts, follower("gelu_tanh").formula)
        z = wide(x, rows, k) @ wide(w, n, k).T + wide(bias, n)
        close(kept, z, k)
        close(y, 0.5 * z * (1 + np.tanh(GELU * (z + 0.044715 * z**3))) + wide(residual, rows, n), k)


def test_a_result_that_is_kept(gpu: Any) -> None:
    x, w, residual = normal(5 * 6, float32), normal(6 * 7, float32), normal(35, float32)
    consts = (5, 7, 6, True, True, float32)
    y, kept = launch(gpu, "linear", ((35, float32),) * 2, (x, w, None, residual), consts, follower("tanh").formula)
    close(kept, np.tanh(wide(x, 5, 6) @ wide(w, 6, 7)), 6)
    close(y, np.tanh(wide(x, 5, 6) @ wide(w, 6, 7)) + wide(residual, 5, 7), 6)


def test_gradient_of_the_input(gpu: Any) -> None:
    g, kept, w = normal(37 * 40, float32), normal(37 * 40, bfloat16), normal(40 * 33, bfloat16)
    outs, consts = ((37 * 33, float32), (37 * 40, bfloat16)), (37, 40, 33, bfloat16)
    dx, dz = launch(gpu, "linear_dx", outs, (g, kept, w), consts, follower("relu").derivative)
    want = np.where(wide(kept, 37, 40) > 0, wide(g, 37, 40), 0)
    close(dz, want)
    close(dx, wide(dz, 37, 40) @ wide(w, 40, 33), 40)
    dx, dz = launch(gpu, "linear_dx", outs, (g, None, w), consts)
    assert np.array_equal(dz, g.astype(bfloat16))
    close(dx, wide(dz, 37, 40) @ wide(w, 40, 33), 40)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize("adds", [False, True])
def test_gradients_of_the_weights(gpu: Any, dtype: np.dtype, adds: bool) -> None:
    """In one part and in several; columns in several stages; on top of what is there, in float32."""
    for rows, n_out, n_in in ((70, 65, 33), (1100, 24, 20), (0, 5, 3)):
        g, x, dw, db = normal(rows * n_out, dtype), normal(rows * n_in, dtype), normal(n_out * n_in, float32), normal(n_out, float32)
        consts = (rows, n_out, n_in, adds, adds)
        got_w, got_b = launch(gpu, "linear_dw", (dw, db), (g, x), consts)
        want_w, want_b = wide(g, rows, n_out).T @ wide(x, rows, n_in), wide(g, rows, n_out).sum(0)
        close(got_w, want_w + adds * wide(dw, n_out, n_in), rows)
        close(got_b, want_b + adds * wide(db, n_out), rows)


def test_gradients_of_the_weights_in_large_tiles(gpu: Any, large: None) -> None:
    g, x = normal(70 * 130, bfloat16), normal(70 * 136, bfloat16)
    (got, _) = launch(gpu, "linear_dw", ((130 * 136, float32), None), (g, x), (70, 130, 136, False, False))
    close(got, wide(g, 70, 130).T @ wide(x, 70, 136), 70)


def test_the_same_bits_in_whatever_order_warps_run(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    g, x = normal(1100 * 24, bfloat16), normal(1100 * 20, bfloat16)
    found = []
    for order in ("all", "last"):
        monkeypatch.setattr(gpu.driver, "order", order)
        outs = launch(gpu, "linear_dw", ((480, float32), (24, float32)), (g, x), (1100, 24, 20, False, False))
        found.append([o.tobytes() for o in outs])
    assert found[0] == found[1]


def test_shared_memory_without_conflicts_and_no_byte_twice(gpu: Any, large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in (float32, bfloat16):
        monkeypatch.setattr(gpu.driver, "counts", [])
        a, b = normal(128 * 64, dtype), normal(128 * 64, dtype)
        launch(gpu, "matmul", ((128 * 128, dtype),), (a, b), ((0,), (0,), 128, 128, 64, False, True))
        ((_, counts),) = gpu.driver.counts
        assert counts.bank_conflicts == 0
        assert counts.transactions == 1.0
        assert 32 * counts.load_sectors == counts.distinct_read == a.nbytes + b.nbytes
        assert 32 * counts.store_sectors == counts.distinct_written == a.itemsize << 14


@pytest.mark.parametrize("deep", [(False, True), (True, False)], ids=str)
def test_what_a_step_of_a_large_tile_takes(large: None, monkeypatch: pytest.MonkeyPatch, deep: Any) -> None:
    """Warps of 64 by 64, mma.sync: for a product a quarter of a read from shared memory, and one and a half instructions beside it."""
    found, (gpu, _) = [], gpu_like((9, 0))
    for k in (128, 256):
        monkeypatch.setattr(gpu.driver, "counts", [])
        launch(gpu, "matmul", ((1 << 14, bfloat16),), [normal(128 * k, bfloat16) for _ in "ab"], ((0,), (0,), 128, 128, k, *deep))
        found.append(gpu.driver.counts[0][1])
    first, second = found
    products = second.instructions["mma"] - first.instructions["mma"]
    assert products == 128 * 128 * 128 // (16 * 8 * 16)
    assert second.instructions["load shared"] - first.instructions["load shared"] == products / 4
    assert second.wavefronts - first.wavefronts == 1.5 * products
    assert second.total - first.total < 2.75 * products


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)], ids=str)
def test_warp_groups(large: None, ta: bool, tb: bool) -> None:
    """By wgmma on sm_90: rows, columns and numbers of k beside a tile's, operands stored either way, at odd places, in both types."""
    gpu, binaries = gpu_like((9, 0))
    gpu.driver.wgmma = True
    for (m, n, k), dtype, at in (((129, 136, 200), bfloat16, 0), ((65, 72, 57), float16, 1), ((136, 8, 64), float16, 0)):
        a, b = normal(2 * m * k, dtype), normal(2 * n * k, dtype)
        consts = (0, m * k), (0, n * k), m, n, k, ta, tb
        (c,) = launch(gpu, "matmul", ((2 * m * n, float32),), (a, b), consts, at=at)
        left = wide(a, 2, k, m).swapaxes(1, 2) if ta else wide(a, 2, m, k)
        close(c, left @ (wide(b, 2, n, k).swapaxes(1, 2) if tb else wide(b, 2, k, n)), k)
    assert len(binaries) == 2 and all("wgmma" in b.ptx and b.given == 98304 for b in binaries)
    gpu.driver.counts = counted = []
    launch(gpu, "matmul", ((1 << 14, float32),), [normal(128 * 64, bfloat16) for _ in "ab"], ((0,), (0,), 128, 128, 64, ta, tb))
    assert counted[0][1].instructions["mma"] == 8 * 4 and counted[0][1].flops == 2 * 128 * 128 * 64 and not counted[0][1].bank_conflicts


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("fence.proxy.async.shared::cta;", "", "Put fence.proxy.async"),
        ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group 0 behind it"),
        ("wgmma.fence.sync.aligned;", "", "Put wgmma.fence before it"),
    ],
)
def test_what_a_warp_group_forgets(large: None, before: str, after: str, said: str) -> None:
    """The emulator multiplies at once; what a GPU needs besides is looked for in the text."""
    gpu, binaries = gpu_like((9, 0), runs=False)
    gpu.driver.wgmma = True
    launch(gpu, "matmul", ((1 << 14, float32),), [normal(128 * 64, bfloat16) for _ in "ab"], ((0,), (0,), 128, 128, 64, False, True))
    assert before in binaries[0].ptx
    with pytest.raises(EmulationError, match=said):
        gpu.driver.machine.load(binaries[0].ptx.replace(before, after))


def test_warp_groups_are_asked_for() -> None:
    """Without it products are made as GPUs have made them before."""
    for cc, asked, group in (((9, 0), True, True), ((9, 0), False, False), ((10, 0), True, False), ((8, 0), True, False)):
        name = matmul.kernel_of(True, 128, SimpleNamespace(cc=cc, wgmma=asked)).__name__
        assert name.endswith(f"_{int(group)}"), name


@pytest.mark.parametrize(("cc", "given"), [((8, 0), 1 << 16), ((8, 9), 0), ((10, 0), 98304)], ids=str)
def test_other_gpus(monkeypatch: pytest.MonkeyPatch, cc: tuple[int, int], given: int) -> None:
    """Where shared memory is less, stages have 32 numbers of k: four of them in a large tile, or three (a small one)."""
    monkeypatch.setattr(matmul, "BUSY", 132 if cc == (8, 9) else 1)
    gpu, binaries = gpu_like(cc)
    check_linear(gpu, 129, 120, 143, bfloat16)
    assert binaries[0].given == given and not binaries[1:]


# ---- machine code ----------------------------------------------------------------------------------------------------------------
SIZES = ("int32", 4), ("int32", 5)
CODE = [
    (float32, False, 128, "FFMA", "LDGSTS.E"), (float32, False, 64, "FFMA", "LDGSTS.E"),
    (bfloat16, True, 128, "HMMA.16816.F32.BF16", "LDGSTS.E.BYPASS.128"), (float16, True, 64, "HMMA.16816.F32", "LDGSTS.E.BYPASS.128"),
]  # fmt: skip


@pytest.mark.parametrize(("cc", "wgmma"), [((8, 0), False), ((9, 0), False), ((9, 0), True), ((10, 0), False)], ids=str)
@pytest.mark.parametrize(("dtype", "half", "side", "multiply", "copy"), CODE, ids=str)
def test_machine_code(
    gpu: Any, dtype: np.dtype, half: bool, side: int, multiply: str, copy: str, cc: tuple[int, int], wgmma: bool
) -> None:  # fmt: skip
    """Products by the instructions for them, 16 bytes at a time, two large tiles on a multiprocessor, nothing in local memory."""
    made = gpu.kernel(matmul.kernel_of(half, side, SimpleNamespace(cc=cc, wgmma=wgmma)), follower("gelu_tanh").formula, float32)
    binary = made.binary((dtype, dtype, dtype, dtype, dtype, dtype, *SIZES, None, None, None))
    ((log, text),) = listings([for_gpu(binary, cc)])
    found = OPCODE.findall(text)
    assert any(o.startswith("HGMMA.64x128x16.F32.BF16" if wgmma and half and side == 128 else multiply) for o in found)
    assert any(o.startswith(copy) for o in found)
    assert {"STG.E.64" if half else "STG.E.128", "LDS.128"} <= set(found)
    assert not [o for o in found if re.match(r"LDL|STL|CALL|D(ADD|MUL|FMA|SETP)|F2F.*F64", o)]
    assert "0 bytes spill stores" in log
    registers = int(re.search(r"Used (\d+) registers", log)[1])  # type: ignore[index]
    assert 2 * registers * made.function.threads <= 1 << 16
    if half:  # registers are left, to another assembler as well
        log += by_ptxas(for_gpu(binary, cc))
        assert all(int(n) <= 244 for n in re.findall(r"Used (\d+) registers", log))
        assert set(re.findall(r"(\d+) bytes spill", log)) == {"0"}
