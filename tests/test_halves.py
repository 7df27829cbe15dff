"""Kernels that take 16-bit floats as they are: one launch, the bits of the float32 kernel, rounded once.

Oracles: NumPy and ml_dtypes for conversions; the float32 op on the same numbers, rounded by ml_dtypes, for ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from launches import F4, F8, ON, Bench
from machine_code import ARM, packed
from numba import types
from rows_tools import launches
from test_kernels import in_float64, only_sums, run

import flamepy as fp
import flamepy.nn.functional as F
import flamepy.regularizer as reg
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.cpu.runtime import compiler, halves, parallel
from flamepy.backend.formula.bind import typed
from flamepy.core.op import REGISTRY
from flamepy.ops import activations, norm_bodies, rows
from flamepy.ops.row_norms import residual_layer_norm

BF, F2 = np.dtype(ml_dtypes.bfloat16), np.dtype("float16")
HALVES = pytest.mark.parametrize("half", [BF, F2], ids=str)
HIGH = np.arange(1 << 16, dtype=np.uint32) << 16
# Each upper half of a float32 with lower halves at and around a tie of bfloat16's, then all that decides about a float16.
WIDE = np.concatenate([*[HIGH | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)], np.arange(1 << 20, dtype=np.uint32) << 12])


def same(got: np.ndarray, want: np.ndarray) -> None:
    """The same bits, but for those of NaN."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        nan, found = np.isnan(want.astype(F8)), np.isnan(got.astype(F8))
    assert got.dtype == want.dtype and np.array_equal(found, nan)
    assert np.array_equal(got[~nan].view(np.uint8), want[~nan].view(np.uint8))


def beside(got: np.ndarray, want: np.ndarray) -> None:
    """The same 16-bit floats or neighbours, as float32 numbers are that differ in their last bits: what is not finite is the same."""
    finite = np.isfinite(want.astype(F8))
    same(got[~finite], want[~finite])
    x, y = got[finite].astype(F8), want[finite].astype(F8)
    last = np.spacing(np.abs(y).max(initial=0).astype(F4)).astype(F8)
    assert got.dtype == want.dtype and (np.abs(x - y) <= np.spacing(np.abs(want[finite])).astype(F8) + 2 * last).all()


@HALVES
@pytest.mark.parametrize("device", ["cpu", "plain"])
def test_conversions_are_numpys(half: np.dtype, device: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(half)
    with np.errstate(all="ignore"):
        same(fp.tensor(WIDE.view(F4), device=device).to(half).numpy(), WIDE.view(F4).astype(half))
        for dtype in (F4, F8, BF if half == F2 else F2):
            same(fp.tensor(every, device=device).to(dtype).numpy(), every.astype(F4).astype(dtype))
        small = every[np.abs(every.astype(F8)) < 2**31]
        for dtype in map(np.dtype, ("int32", "int64", "bool")):
            same(fp.tensor(small, device=device).to(dtype).numpy(), small.astype(F4).astype(dtype))
        ints = np.arange(-70_000, 70_000)
        same(fp.tensor(ints, device=device).to(half).numpy(), ints.astype(half))
        # Numbers that a float32 between would bring to a tie.
        near = ((1 + np.arange(1024) / 1024 + 2.0**-11)[:, None] * (1 + np.array([0, 1e-12, -1e-12]))).ravel()
        far = np.concatenate([s * near * 2.0**e for e in (-26, -20, -15, -14, 0, 15, 16) for s in (1, -1)])
        same(fp.tensor(far, device=device).to(half).numpy(), far.astype(half))
    kept = fp.clone(fp.tensor(every, device=device).reshape(256, 256)).transpose(0, 1).numpy()
    same(np.ascontiguousarray(kept), np.ascontiguousarray(every.reshape(256, 256).T))


def test_conversions_without_the_processors_help(tmp_path: Any) -> None:
    code = """
import numpy as np, flamepy as fp
high, fine = np.arange(1 << 16, dtype=np.uint32) << 16, np.arange(1 << 20, dtype=np.uint32) << 12
wide = np.concatenate([high, high | 0x8000, high | 0x8001, fine])
every = np.arange(1 << 16, dtype=np.uint16)
for dtype in (fp.float16, fp.bfloat16):
    with np.errstate(all="ignore"):
        a, b = fp.tensor(wide.view("f4")).to(dtype).numpy(), wide.view("f4").astype(dtype)
        c, d = fp.tensor(every.view(dtype)).to("float32").numpy(), every.view(dtype).astype("f4")
    for got, want in ((a, b), (c, d)):
        nan = np.isnan(want.astype("f4"))
        assert (np.isnan(got.astype("f4")) == nan).all() and (got[~nan].view("u1") == want[~nan].view("u1")).all()
"""
    run(code, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_CACHE_DIR=str(tmp_path))


# ---- ops -------------------------------------------------------------------------------------------------------------------------
IDS = [2, 0, 2]
OPS: dict[str, tuple[int, Callable]] = {
    "add": (2, fp.add),
    "add a row": (2, lambda x, y: x + y[:1].detach()),
    "times a number": (1, lambda x: x * 0.1),
    "gelu": (1, fp.gelu),
    "where": (2, lambda x, y: fp.where(np.arange(45) % 3 == 0, x, y)),
    "softmax": (1, fp.softmax),
    "log_softmax": (1, fp.log_softmax),
    "layer_norm": (1, F.layer_norm),
    "rms_norm": (1, F.rms_norm),
    "sum": (1, lambda x: fp.sum(x, axis=1)),
    "mean of all": (1, fp.mean),
    "sum of rows": (1, lambda x: fp.sum(x, axis=0)),
    "max": (1, lambda x: fp.max(x, axis=0)),
    "transpose": (1, fp.transpose),
    "slice": (1, lambda x: x[1:, ::-2]),
    "tril": (1, fp.tril),
    "embedding": (1, lambda x: F.embedding(IDS, x)),
    "broadcast_to": (1, lambda x: fp.broadcast_to(x, 2, *x.shape)),
    "cross_entropy": (1, lambda x: F.cross_entropy(x, np.arange(x.shape[0]) % 3)),
    "losses": (1, lambda x: F.cross_entropy(x, np.arange(x.shape[0]) % 3, reduction="none")),
    "dropout": (1, lambda x: (fp.manual_seed(5), F.dropout(x, 0.3))[1]),
}
LOSSES = ("cross_entropy", "losses")  # float32 whatever the logits are
# For ARM, LLVM takes vectors twice as long for sums over 16-bit numbers: they are added up in another order than float32 ones.
OTHER_ORDER = ("softmax", "log_softmax", "layer_norm", "rms_norm", "sum", "mean of all", "sum of rows") if ARM else ()


def draw(*shape: int) -> np.ndarray:
    """Numbers of many sizes, with special ones in the first row."""
    rng = np.random.default_rng(len(shape))
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 2, shape)).astype(F4)
    x[0, :4] = np.nan, np.inf, -np.inf, 1e-40
    return x


@HALVES
@pytest.mark.parametrize("shape", [(37, 45), (0, 45)], ids=str)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.usefixtures("device")
def test_an_op_gives_the_float32_results_rounded_once(name: str, shape: tuple[int, ...], half: np.dtype, device: str) -> None:
    count, op = OPS[name]
    if not shape[0] and name in ("max", "embedding", "slice", "add a row"):
        pytest.skip("needs rows")
    xs = [fp.tensor(draw(37, 45)[: shape[0]] * (i + 1)).to(half) for i in range(count)]
    with np.errstate(all="ignore"):
        want = op(*[x.to(F4) for x in xs]).numpy().astype(F4 if name in LOSSES else half)
    equal = beside if name in OTHER_ORDER and device == "cpu" else same
    for _ in range(3):  # as it is, recorded, as recorded
        equal(op(*xs).numpy().reshape(want.shape), want)


COMPOSED: dict[str, Callable] = {
    "var": lambda x, y: fp.var(x), "std": lambda x, y: fp.std(x, axis=1, correction=1), "logsumexp": lambda x, y: fp.logsumexp(x, axis=0),
    "logsumexp of all": lambda x, y: fp.logsumexp(x), "prod": lambda x, y: fp.prod(x, axis=1), "prod of all": lambda x, y: fp.prod(x),
    "log_softmax": lambda x, y: fp.log_softmax(x, axis=0), "mean": lambda x, y: fp.mean(x, axis=(0, 1)), "pow": lambda x, y: x**5,
    "power": lambda x, y: fp.abs(x) ** y, "mse": F.mse_loss, "mse, each": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "l1": F.l1_loss, "l1, sum": lambda x, y: F.l1_loss(x, y, reduction="sum"), "huber": lambda x, y: F.huber_loss(x, y, delta=0.3),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y, beta=0.3), "smooth_l1, 0": lambda x, y: F.smooth_l1_loss(x, y, beta=0.0),
    "nll": lambda x, y: F.nll_loss(x, np.arange(37) % 5), "nll, sum": lambda x, y: F.nll_loss(x, np.arange(37) % 5, reduction="sum"),
    "bce": F.binary_cross_entropy,
    "bce with logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=0.3),
}  # fmt: skip
TERMS: dict[str, Callable] = {
    "l1": lambda x, y: reg.l1(x), "l2": lambda x, y: reg.l2(x), "elastic_net": lambda x, y: reg.elastic_net(x, 0.3), "kl": reg.kl,
    "js": reg.js, "entropy": lambda x, y: reg.entropy(x), "consistency": lambda x, y: reg.consistency(x, y, "cosine"),
    "orthogonality": lambda x, y: reg.orthogonality(x), "spectral_norm": lambda x, y: reg.spectral_norm(x, 3),
    "group_lasso": lambda x, y: reg.group_lasso(x),
}  # fmt: skip


@HALVES
@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.usefixtures("device")
def test_what_is_made_of_several_ops_is_rounded_once_too(name: str, half: np.dtype) -> None:
    xs = [fp.tensor(np.random.default_rng(i).standard_normal((37, 45)) + 1.1).to(half) for i in (1, 2)]
    xs = [fp.sigmoid(x) for x in xs] if name.startswith("bce") else xs
    found, wide = COMPOSED[name](*xs), COMPOSED[name](*[x.to(F4) for x in xs])
    assert found.dtype == half and found.shape == wide.shape
    same(found.numpy(), wide.numpy().astype(half))


@HALVES
@pytest.mark.parametrize("name", TERMS)
def test_terms_of_a_loss_are_float32(name: str, half: np.dtype) -> None:
    xs = [fp.tensor(np.random.default_rng(i).standard_normal((7, 5))).to(half) for i in (1, 2)]
    found, wide = TERMS[name](*xs), TERMS[name](*[x.to(F4) for x in xs])
    same(found.numpy(), wide.numpy())


@HALVES
def test_random_numbers_are_float32_ones_rounded(half: np.dtype, device: str) -> None:
    for make in (fp.randn, fp.rand, lambda n, dtype: fp.full(n, 0.1, dtype)):
        found = []
        for dtype in (half, F4):
            fp.manual_seed(3)
            found.append(make(1003, dtype=dtype).numpy().astype(half))
        same(*found)


def test_a_residual_norm_does_not_see_its_sum_rounded(device: str) -> None:
    x, r = (fp.tensor(draw(37, 45)[1:] * s).to(BF) for s in (1.0, 0.7))
    x, r = (fp.cat([t, t[:1] * 1e30]) for t in (x, r))  # a row whose squares overflow
    found = residual_layer_norm(x, r, None, None, 1e-5, None)
    wide = residual_layer_norm(x.to(F4), r.to(F4), None, None, 1e-5, None)
    for t, w in zip(found, wide, strict=True):
        same(t.numpy(), w.numpy().astype(BF))


def launched(op: Callable, count: int, dtype: np.dtype) -> tuple[list[str], list[str]]:
    """What a call and its backward launch."""
    x = fp.tensor(draw(37, 45)[1:]).to(dtype).detach().requires_grad_()
    with launches() as forward:
        y = op(x, *[x.detach()] * (count - 1))
    g = y.ones_cotangent()
    with launches() as backward:
        assert y.dtype in (dtype, F4) and y.backward(gradient=g)[x].dtype == F4
    return forward, backward


@pytest.mark.parametrize("name", OPS)
def test_16_bits_take_the_launches_that_float32_takes(name: str) -> None:
    count, op = OPS[name]
    (forward, backward), wide = launched(op, count, BF), launched(op, count, F4)
    kept = name in LOSSES  # float32 makes the gradient in the forward pass: see losses.py
    assert forward and (forward, [w for w in backward if not kept or w != "row"]) == wide


@ON
def test_each_array_of_a_launch_has_a_type_of_its_own(on: Bench) -> None:
    x, w = draw(8, 64)[1:], draw(2, 64)[1:].ravel()
    ins, sizes = [x.ravel(), w.astype(BF), None], (F4.type(1e-5), 7, 64)
    outs = [(7 * 64, BF), (14, F4), (7, F4)]
    found = on("row", outs, ins, sizes, norm_bodies.layer_norm_row, F4)
    wide = on("row", [(7 * 64, F4), *outs[1:]], [ins[0], ins[1].astype(F4), None], sizes, norm_bodies.layer_norm_row, F4)
    same(found[0], wide[0].astype(BF))
    same(found[1], wide[1])
    (y,) = on("map", [(448, F2)], [x.ravel(), x.ravel().astype(BF)], (), REGISTRY["add"].formula, F4)
    with np.errstate(over="ignore"):
        same(y, (x.ravel() + x.ravel().astype(BF).astype(F4)).astype(F2))
    (y,) = on("strided_get", [(448, F4)], [x.astype(BF).ravel()], ((64, 7), (1, 64), 0))
    same(y, np.ascontiguousarray(x.astype(BF).astype(F4).T).ravel())


# ---- machine code ----------------------------------------------------------------------------------------------------------------
HALF_KINDS = {"bfloat16": types.uint16, "float16": types.int16}


@pytest.mark.parametrize("kind", HALF_KINDS)
@pytest.mark.parametrize(
    ("loop", "formula", "arrays", "sizes"),
    [("map1", activations.gelu_erf_y, 2, 0), ("map2", REGISTRY["add"].formula, 3, 0), ("row", rows.half_softmax_row, 2, 2)],
    ids=["gelu", "add", "softmax"],
)
def test_kernels_of_16_bits_vectorise(loop: str, formula: Any, arrays: int, sizes: int, kind: str) -> None:
    kernel = compiler.jit_alone(typed(loop_named(loop), F4, compiler.DIALECT, True, formula))
    given = (parallel.PART, *[halves.Halves(HALF_KINDS[kind], 1, "C")] * arrays, *[types.int64] * sizes)
    kernel.compile(kernel._compiler.fold_argument_types(given, {})[1])
    (signature,) = kernel.signatures
    llvm = kernel.inspect_llvm(signature)
    assert only_sums(llvm) if loop == "row" else not in_float64(llvm)
    assembly = kernel.inspect_asm(signature)
    assert packed(f"read {kind}", assembly) and packed(f"write {kind}", assembly), "16-bit floats one by one"
