"""The loops that are not maps, rows or folds: gemm, matmul, linear, attention, convolution, pools.

Each is compiled for float32 (parallel) and float64 (serial) and compared with NumPy in float64, with PyTorch where its
choices matter (ties, NaN, fully masked rows); parallel kernels must give the same bits for any number of threads.

May import: flamepy.backend, NumPy, Numba, PyTorch if it is there. FLAME counterpart: none. Read next: test_ops.py.
"""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from flamepy.backend import plans
from flamepy.backend.cpu import attention, blas, conv, matmul
from flamepy.backend.cpu.compiler import DIALECT
from flamepy.backend.template import bind

F32, F64 = np.dtype("float32"), np.dtype("float64")
WAYS = [(F32, True), (F64, False)]
Array = np.ndarray


@cache
def kernel(loop: Any, dtype: np.dtype, parallel: bool) -> Any:
    return bind(loop, None, dtype, DIALECT, parallel)


def run(loop: Any, way: tuple[np.dtype, bool], *args: Any) -> None:
    """Call a bound loop: arrays go in flat, Python floats in the kernel's dtype."""
    flat = [a.reshape(-1) if isinstance(a, Array) else way[0].type(a) if isinstance(a, float) else a for a in args]
    kernel(loop, *way)(*flat)


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
    """`call(way)` gives the same bits with one thread and with two. (Serial kernels are compiled on their own, and LLVM may
    sum a row in another order there; sizes decide which kernel runs, never the number of threads.)"""
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        want = call((F32, True))
        numba.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS))
        for _ in range(3):
            for i, (got, wanted) in enumerate(zip(call((F32, True)), want, strict=True)):
                assert got.tobytes() == wanted.tobytes(), (i, np.flatnonzero(got != wanted))
    finally:
        numba.set_num_threads(before)


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
    a, b = np.ascontiguousarray(a.swapaxes(-1, -2)) if ta else a, np.ascontiguousarray(b.swapaxes(-1, -2)) if tb else b
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


# ---- attention


def attention_numpy(q: Array, k: Array, v: Array, mask: Any, is_causal: bool, scale: float, g: Array) -> tuple:
    """(y, p, dq, dk, dv, ds) in float64; a row without keys is zero."""
    s = scale * q @ k.swapaxes(-1, -2)
    s = s if mask is None else s + mask
    s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf) if is_causal else s
    best = s.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(s - np.where(np.isfinite(best), best, 0.0))
    p = e / np.where(e.sum(-1, keepdims=True) > 0, e.sum(-1, keepdims=True), 1.0)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    return p @ v, p, scale * ds @ k, scale * ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g, ds


def call_attention(way: Any, q: Array, k: Array, v: Array, mask: Any, is_causal: bool, scale: float, g: Array) -> list:
    """Contiguous (B, H, T, D) operands; returns what attention_numpy does."""
    (B, H, L, D), S, E, dtype = q.shape, k.shape[2], v.shape[3], way[0]
    q, k, v, g = (x.astype(dtype) for x in (q, k, v, g))
    y, p = blank(B, H, L, E, dtype=dtype), blank(B, H, L, S, dtype=dtype)
    where = [plans.heads_layout(H, n, width) for n, width in ((L, D), (S, D), (S, E), (L, E))]
    flat = np.zeros(0, dtype) if mask is None else mask.astype(dtype)
    steps = [0] * 4
    if mask is not None:  # a step of 0 along every broadcast axis
        steps = [0 if n == 1 else s // 8 for n, s in zip(mask.shape, mask.strides, strict=True)]
    forward = table(*where[0], *where[1], *where[2], *where[3], 0, *steps)
    run(attention.attention, way, y, p, q, k, v, flat, forward, B, H, L, S, D, E, scale, is_causal, mask is not None)
    dq, dk, dv = (blank(*x.shape, dtype=dtype) for x in (q, k, v))
    backward = table(*where[0], *where[1], *where[2], *where[3], *where[0], *where[1], *where[2])
    for keep in (False, True):
        ds = blank(plans.attention_scratch(B, H, L, S, keep), dtype=dtype)
        run(attention.attention_dx, way, dq, dk, dv, ds, g, p, q, k, v, backward, B, H, L, S, D, E, scale, is_causal, keep)
    return [y, p, dq, dk, dv, ds]


SHAPES = [(2, 3, 5, 5, 4, 4), (1, 2, 3, 7, 4, 6), (2, 1, 9, 4, 3, 5), (1, 2, 150, 150, 8, 8), (2, 2, 1, 1, 1, 1), (1, 1, 70, 130, 5, 3)]


def operands(B: int, H: int, L: int, S: int, D: int, E: int) -> tuple:
    return draw(B, H, L, D), draw(B, H, S, D, seed=1), draw(B, H, S, E, seed=2), draw(B, H, L, E, seed=3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("masked", ["", "full", "row", "keys"])
@pytest.mark.parametrize("shape", SHAPES)
def test_attention(way: Any, is_causal: bool, masked: str, shape: Any) -> None:
    B, H, L, S, D, E = shape
    q, k, v, g = operands(*shape)
    mask = {"": None, "full": draw(B, H, L, S), "row": draw(1, 1, L, S), "keys": draw(B, 1, 1, S)}[masked]
    if masked == "row":
        mask = np.where(mask > 0.0, 0.0, -np.inf)
        mask[0, 0, L // 2] = -np.inf
    want = attention_numpy(q, k, v, mask, is_causal, 0.3, g)
    for got, wanted in zip(call_attention(way, q, k, v, mask, is_causal, 0.3, g), want, strict=True):
        close(got, wanted, way[0])


@pytest.mark.parametrize("shape", [(0, 2, 3, 3, 2, 2), (2, 2, 0, 3, 2, 2), (2, 2, 3, 0, 2, 2), (1, 1, 2, 2, 0, 2)])
def test_attention_zero_sizes(shape: Any) -> None:
    q, k, v, g = operands(*shape)
    want = attention_numpy(q, k, v, None, False, 0.5, g)
    for got, wanted in zip(call_attention(WAYS[0], q, k, v, None, False, 0.5, g), want, strict=True):
        close(got, wanted, F32)


@pytest.mark.parametrize("way", WAYS)
def test_attention_on_a_fused_buffer(way: Any) -> None:
    B, H, T, D, dtype = 2, 3, 70, 4, way[0]
    qkv, g = draw(B, T, 3, H, D, dtype=dtype), draw(B, T, H, D, dtype=dtype, seed=1)
    y, p, dqkv = blank(B, T, H, D, dtype=dtype), blank(B, H, T, T, dtype=dtype), blank(B, T, 3, H, D, dtype=dtype)
    parts = [n for part in range(3) for n in plans.fused_layout(H, T, D, 3, part)]
    out = plans.fused_layout(H, T, D, 1)
    layout = table(*parts, *out, 0, 0, 0, 0, 0)
    run(attention.attention, way, y, p, qkv, qkv, qkv, qkv, layout, B, H, T, T, D, D, 0.5, True, False)
    layout, ds = table(*parts, *out, *parts), blank(plans.attention_scratch(B, H, T, T, False), dtype=dtype)
    run(attention.attention_dx, way, dqkv, dqkv, dqkv, ds, g, p, qkv, qkv, qkv, layout, B, H, T, T, D, D, 0.5, True, False)
    q, k, v = (qkv[:, :, i].swapaxes(1, 2).astype(F64) for i in range(3))
    want = attention_numpy(q, k, v, None, True, 0.5, g.swapaxes(1, 2).astype(F64))
    close(y.swapaxes(1, 2), want[0], dtype)
    for i in range(3):
        close(dqkv[:, :, i].swapaxes(1, 2), want[2 + i], dtype)


def test_attention_matches_torch_where_rows_are_masked_or_not_finite() -> None:
    torch = pytest.importorskip("torch")
    q, k, v, g = operands(1, 1, 4, 5, 3, 3)
    k[0, 0, 1, 0], q[0, 0, 3, 0] = np.nan, np.inf
    for column in (slice(None), [1]):  # rows fully masked; only the NaN masked
        mask = np.zeros((1, 1, 4, 5))
        mask[0, 0, :2, column] = -np.inf
        want = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)), torch.tensor(mask))
        close(call_attention(WAYS[1], q, k, v, mask, False, 1 / math.sqrt(3), g)[0], want.numpy(), F64)


def test_attention_bits() -> None:
    same_bits(lambda way: call_attention(way, *operands(2, 3, 150, 130, 8, 5)[:3], None, True, 0.3, draw(2, 3, 150, 5)))


# ---- convolution and pools


def windows(x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any = (1, 1), fill: float = 0.0) -> Array:
    """(n, c, rows, columns, kh, kw): every window."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)], (2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def conv_numpy(x: Array, w: Array, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    xs = np.split(windows(x, w.shape[2:], stride, padding, dilation), groups, 1)
    y = np.concatenate([np.einsum("nchwij,ocij->nohw", *pair) for pair in zip(xs, np.split(w, groups), strict=True)], 1)
    return y if b is None else y + b[:, None, None]


def call_conv(way: Any, x: Array, w: Array, b: Any, g: Array, *geometry: Any) -> list[Array]:
    """y, dx, dw, db."""
    dtype, has_bias = way[0], b is not None
    x, w, g = (t.astype(dtype) for t in (x, w, g))
    b = np.zeros(0, dtype) if b is None else b.astype(dtype)
    size = plans.conv2d_sizes(x.shape, w.shape, *geometry)
    sizes = table(*size)
    y, dx, dw, db = (blank(*t.shape, dtype=dtype) for t in (g, x, w, b))
    plan = plans.conv_plan(size, "y")
    run(conv.conv2d, way, y, blank(plan.col, dtype=dtype), x, w, b, sizes, plan.tile, plan.workers, has_bias)
    plan = plans.conv_plan(size, "dx")
    run(conv.conv2d_dx, way, dx, blank(plan.col, dtype=dtype), g, w, sizes, plan.tile, plan.channels, plan.workers)
    plan = plans.conv_plan(size, "dw")
    partial, col = blank(plan.partial, dtype=dtype), blank(plan.col, dtype=dtype)
    counts = plan.tile, plan.channels, plan.chunks, plan.workers
    run(conv.conv2d_dw, way, dw, db, partial, col, g, x, sizes, *counts, has_bias)
    return [y, dx, dw, db]


CONVS: list[Any] = [  # x, w, stride, padding, dilation, groups
    ((2, 3, 7, 6), (4, 3, 3, 2), (1, 1), (0, 0), (1, 1), 1),
    ((3, 4, 8, 9), (6, 2, 3, 3), (2, 1), (1, 2), (1, 2), 2),
    ((1, 6, 5, 5), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6),
    ((2, 5, 6, 7), (3, 5, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((2, 5, 6, 7), (3, 5, 1, 1), (2, 3), (1, 0), (1, 1), 1),
    ((2, 2, 3, 3), (2, 2, 2, 2), (3, 2), (4, 5), (1, 1), 1),
    ((17, 70, 5, 40), (3, 70, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((0, 3, 5, 5), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shapes", CONVS)
def test_conv2d(way: Any, biased: bool, shapes: Any) -> None:
    x, w, geometry = draw(*shapes[0]), draw(*shapes[1]) / 10, shapes[2:]
    b = draw(shapes[1][0]) if biased else None
    want = conv_numpy(x, w, b, *geometry)
    g = draw(*want.shape, seed=5)
    y, dx, dw, db = call_conv(way, x, w, b, g, *geometry)
    close(y, want, way[0])
    if biased:
        close(db / 10, g.sum((0, 2, 3)) / 10, way[0])
    # The convolution is linear in x and in w, so <g, conv(t, w)> = <dx, t> and <g, conv(x, t)> = <dw, t> for every t.
    for seed in range(3):
        tx, tw = draw(*x.shape, seed=seed + 7), draw(*w.shape, seed=seed + 7)
        scale = max(1.0, math.sqrt(g.size * shapes[1][1]))
        close(np.sum(dx * tx) / scale, np.sum(g * conv_numpy(tx, w, None, *geometry)) / scale, way[0])
        close(np.sum(dw * tw) / scale, np.sum(g * conv_numpy(x, tw, None, *geometry)) / scale, way[0])


def test_conv2d_bits() -> None:
    x, w, b, g = draw(5, 6, 20, 21), draw(4, 6, 3, 3), draw(4), draw(5, 4, 20, 21)
    same_bits(lambda way: call_conv(way, x, w, b, g, (1, 1), (1, 1), (1, 1), 1))


@pytest.mark.parametrize("shapes", CONVS[:-1])
def test_conv2d_matches_torch(shapes: Any) -> None:
    torch = pytest.importorskip("torch")
    x, w, b = (torch.tensor(draw(*s), requires_grad=True) for s in (shapes[0], shapes[1], shapes[1][:1]))
    y = torch.nn.functional.conv2d(x, w, b, *shapes[2:])
    g = torch.tensor(draw(*y.shape, seed=5))
    want = [y, *torch.autograd.grad(y, (x, w, b), g)]
    got = call_conv(WAYS[1], *(t.detach().numpy() for t in (x, w, b, g)), *shapes[2:])
    for one, wanted in zip(got, want, strict=True):
        close(one, wanted.detach().numpy(), F64)


def test_conv2d_plan_keeps_scratch_small() -> None:
    for x, w in [((64, 64, 56, 56), (64, 64, 3, 3)), ((1, 512, 512, 512), (512, 512, 3, 3)), ((256, 1, 28, 28), (8, 1, 5, 5))]:
        for what in ("y", "dx", "dw"):
            plan = plans.conv_plan(plans.conv2d_sizes(x, w, (1, 1), (1, 1), (1, 1), 1), what)
            assert plan.col <= 48 * max(plans.CONV_COLUMNS, 64 * 512 * 9) and plan.workers >= 8
            assert plan.partial <= plans.CONV_PARTIALS + 2 * (512 * 512 * 9 + 512)


def call_pools(way: Any, x: Array, kernel: Any, stride: Any, padding: Any) -> list[Array]:
    """Maximum, its indices and gradient, average and its gradient."""
    size = plans.pool2d_sizes(x.shape, kernel, stride, padding)
    sizes, shape, dtype = table(*size), (*x.shape[:-2], *size[-2:]), way[0]
    x, g = x.astype(dtype), draw(*shape, dtype=dtype, seed=9)
    top, mean = blank(*shape, dtype=dtype), blank(*shape, dtype=dtype)
    where, dtop, dmean = np.full(shape, -1, np.int64), blank(*x.shape, dtype=dtype), blank(*x.shape, dtype=dtype)
    run(conv.max_pool2d, way, top, where, x, sizes)
    run(conv.max_pool2d_dx, way, dtop, g, where, sizes)
    run(conv.avg_pool2d, way, mean, x, sizes)
    run(conv.avg_pool2d_dx, way, dmean, g, sizes)
    return [top, where, dtop, mean, dmean]


POOLS = [((2, 2), (2, 2), (0, 0)), ((3, 3), (1, 1), (1, 1)), ((2, 3), (1, 2), (1, 0)), ((1, 1), (2, 2), (0, 0)), ((5, 4), (3, 3), (2, 2))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pool", POOLS)
def test_pools(way: Any, pool: Any) -> None:
    x = draw(2, 3, 6, 7)
    top, where, _, mean, dmean = call_pools(way, x, *pool)
    close(top, windows(x, *pool, fill=-np.inf).max((4, 5)), way[0])
    close(np.take_along_axis(x.reshape(2, 3, -1), where.reshape(2, 3, -1), 2), top, way[0])
    close(mean, windows(x, *pool).mean((4, 5)), way[0])
    g, t = draw(*mean.shape, dtype=way[0], seed=9), draw(2, 3, 6, 7, seed=4)
    close(np.sum(dmean * t), np.sum(g * windows(t, *pool).mean((4, 5))), way[0])


@pytest.mark.parametrize("pool", POOLS)
def test_pools_match_torch(pool: Any) -> None:
    torch = pytest.importorskip("torch")
    x = np.round(draw(2, 2, 6, 7) * 2)  # ties
    x[0, 0, 1, 1:3], x[1, 1, :, 2], x[0, 1] = np.nan, np.inf, -np.inf
    t = torch.tensor(x, requires_grad=True)
    top, where = torch.nn.functional.max_pool2d(t, *pool, return_indices=True)
    mean = torch.nn.functional.avg_pool2d(t, *pool)
    g = torch.tensor(draw(*top.shape, seed=9))
    want = [top, where, torch.autograd.grad(top, t, g)[0], mean, torch.autograd.grad(mean, t, g)[0]]
    for got, wanted in zip(call_pools(WAYS[1], x, *pool), want, strict=True):
        close(got, wanted.detach().numpy(), F64)


def test_pools_bits_and_no_images() -> None:
    same_bits(lambda way: call_pools(way, draw(3, 4, 9, 8), *POOLS[1]))
    assert all(t.size == 0 for t in call_pools(WAYS[0], draw(0, 4, 9, 8), *POOLS[1]))


# ---- the disk cache

SECOND = """
import numpy as np
from tests import test_kernels_custom as t
t.test_attention_on_a_fused_buffer((t.F32, True))
t.call_matmul((t.F32, True), t.draw(7, 5), t.draw(5, 9), False, False)
t.call_conv((t.F32, True), t.draw(1, 2, 5, 5), t.draw(3, 2, 3, 3), t.draw(3), t.draw(1, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1)
for loop in (t.attention.attention, t.attention.attention_dx, t.matmul.matmul, t.conv.conv2d, t.conv.conv2d_dw):
    stats = t.kernel(loop, t.F32, True).stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_kernels_with_gemm_come_from_the_disk_cache() -> None:
    root = Path(__file__).parent.parent
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", SECOND], cwd=root, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0"] * 5
