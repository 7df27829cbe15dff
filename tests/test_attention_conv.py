"""Attention, convolution and pools as ops: gradcheck, PyTorch, odd and zero sizes, what is refused and in which words.

The loops themselves are tested in test_kernels_attention.py and test_kernels_conv.py; here it is broadcasting, masks, layouts, geometry
and the tape.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from devices import CPU_ONLY

import flamepy as fp
import flamepy.nn.functional as F
from flamepy.backend.cpu.runtime.memory import allocator
from flamepy.core.op import REGISTRY

pytestmark = pytest.mark.usefixtures("device")

Shape = tuple[int, ...]
SDPA = F.scaled_dot_product_attention
FUSED = REGISTRY["fused_attention"]


def draw(*shape: int, seed: int = 0, dtype: Any = np.float64) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def leaf(*shape: int, seed: int = 0) -> Any:
    return fp.tensor(draw(*shape, seed=seed), requires_grad=True)


def compare(ours: Callable, theirs: Callable, shapes: list[Shape], dtype: Any = np.float64) -> None:
    """Forward and gradients of float inputs under a random cotangent."""
    torch, tolerance = pytest.importorskip("torch"), 1e-9 if dtype == np.float64 else 5e-4
    arrays = [draw(*s, seed=i, dtype=dtype) for i, s in enumerate(shapes)]
    a = [fp.tensor(x, requires_grad=True) for x in arrays]
    b = [torch.tensor(x, requires_grad=True) for x in arrays]
    y, z = ours(*a), theirs(*b)
    assert y.shape == tuple(z.shape) and y.dtype == dtype
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), tolerance, tolerance)
    g = draw(*y.shape, seed=99, dtype=dtype)
    grads = y.backward(fp.tensor(g))
    z.backward(torch.tensor(g))
    for p, q in zip(a, b, strict=True):
        np.testing.assert_allclose(grads[p].numpy(), q.grad.numpy(), tolerance, tolerance)


# ---- attention -------------------------------------------------------------------------------------------------------------------
QKV: list[list[Shape]] = [
    [(5, 4), (7, 4), (7, 6)],
    [(3, 5, 4), (3, 7, 4), (3, 7, 4)],
    [(2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6)],
    [(2, 1, 5, 4), (1, 3, 7, 4), (7, 3)],
    [(2, 2, 3, 5, 2), (2, 2, 3, 5, 2), (2, 2, 3, 5, 2)],
    [(1, 2, 70, 8), (1, 2, 131, 8), (1, 2, 131, 8)],
    [(1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)],
    [(1, 2, 300, 16), (1, 2, 700, 16), (1, 2, 700, 8)],
    [(3, 3, 260, 5), (3, 3, 260, 5), (3, 3, 260, 5)],
]
MASKS: list[Shape] = [(5, 7), (3, 5, 7), (1, 3, 1, 7), (2, 1, 5, 1), (2, 3, 5, 7), (7,), ()]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shapes", QKV)
def test_attention_equals_torch(shapes: list[Shape], is_causal: bool, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.scaled_dot_product_attention
    compare(lambda *x: SDPA(*x, is_causal=is_causal), lambda *x: theirs(*x, is_causal=is_causal), shapes, dtype)
    compare(lambda *x: SDPA(*x, scale=0.3), lambda *x: theirs(*x, scale=0.3), shapes, dtype)


@pytest.mark.parametrize("shape", [s for s in MASKS if len(s) > 1])
def test_float_mask_and_its_gradient_equal_torch(shape: Shape) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.scaled_dot_product_attention
    compare(lambda *x: SDPA(*x[:3], attn_mask=x[3]), lambda *x: theirs(*x[:3], attn_mask=x[3]), [*QKV[2], shape])


@pytest.mark.parametrize("shape", [s for s in MASKS if len(s) > 1])
def test_bool_mask_equals_torch(shape: Shape) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.scaled_dot_product_attention
    mask = draw(*shape) > -0.5
    compare(lambda *x: SDPA(*x, attn_mask=mask), lambda *x: theirs(*x, attn_mask=torch.tensor(mask)), QKV[2])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lead", [(2, 3), (2, 2, 3)])
def test_masks_broadcast_by_numpys_rule(mask: Shape, lead: Shape) -> None:
    q, k, v, m = leaf(*lead, 5, 4), leaf(*lead, 7, 4, seed=1), leaf(*lead, 7, 3, seed=2), leaf(*mask, seed=3)
    y, z = SDPA(q, k, v, attn_mask=m), SDPA(q, k, v, attn_mask=fp.broadcast_to(m, (*lead, 5, 7)))
    np.testing.assert_allclose(y.numpy(), z.numpy(), 1e-12, 1e-12)
    g = fp.tensor(draw(*y.shape, seed=4))
    ours, theirs = y.backward(g), z.backward(g)
    for x in (q, k, v, m):
        np.testing.assert_allclose(ours[x].numpy(), theirs[x].numpy(), 1e-9, 1e-9)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_gradcheck(is_causal: bool) -> None:
    assert fp.gradcheck(lambda q, k, v: SDPA(q, k, v, is_causal=is_causal), (leaf(2, 5, 3), leaf(2, 4, 3, seed=1), leaf(2, 4, 2, seed=2)))
    assert fp.gradcheck(lambda x: FUSED(x, heads=2, is_causal=is_causal), (leaf(2, 4, 12),))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_gradcheck_in_several_blocks(is_causal: bool) -> None:
    inputs = leaf(2, 70, 3), leaf(2, 300, 3, seed=1), leaf(2, 300, 2, seed=2)
    assert fp.gradcheck(lambda q, k, v: SDPA(q, k, v, is_causal=is_causal), inputs)
    assert fp.gradcheck(lambda x: FUSED(x, heads=1, is_causal=is_causal), (leaf(1, 270, 6),))


def test_mask_gradcheck() -> None:
    inputs = leaf(2, 3, 2), leaf(2, 4, 2, seed=1), leaf(2, 4, 2, seed=2), leaf(1, 3, 4, seed=3)
    assert fp.gradcheck(lambda q, k, v, m: SDPA(q, k, v, attn_mask=m), inputs)
    x = leaf(2, 4, 3)
    assert fp.gradcheck(lambda x: SDPA(x, x, x), (x,))


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("batch, rows, heads, d", [(2, 5, 2, 4), (1, 70, 3, 5), (3, 1, 1, 2), (0, 3, 2, 2), (2, 0, 2, 2), (1, 200, 2, 16)])
def test_fused_layout_equals_separate_operands(batch: int, rows: int, heads: int, d: int, is_causal: bool) -> None:
    x = leaf(batch, rows, 3 * heads * d)
    q, k, v = (t.reshape(batch, rows, heads, d).permute(0, 2, 1, 3) for t in x.split(heads * d, -1))
    y, z = (
        FUSED(x, heads=heads, is_causal=is_causal),
        SDPA(q, k, v, is_causal=is_causal).permute(0, 2, 1, 3).reshape(batch, rows, heads * d),
    )
    np.testing.assert_allclose(y.numpy(), z.numpy(), 1e-12, 1e-12)
    g = fp.tensor(draw(*y.shape, seed=1))
    np.testing.assert_allclose(y.backward(g)[x].numpy(), z.backward(g)[x].numpy(), 1e-9, 1e-9)


@pytest.mark.parametrize(
    "lead, rows, keys, d", [((0, 2), 3, 5, 4), ((1, 2), 0, 5, 4), ((1, 2), 3, 0, 4), ((2,), 3, 3, 0), ((2, 0), 3, 3, 2)]
)
def test_attention_of_zero_size(lead: Shape, rows: int, keys: int, d: int) -> None:
    q, k, v = leaf(*lead, rows, d), leaf(*lead, keys, d), leaf(*lead, keys, 3)
    y = SDPA(q, k, v)
    assert y.shape == (*lead, rows, 3) and (keys or not y.numpy().any())
    grads = y.sum().backward()
    for x in (q, k, v):
        assert grads[x].shape == x.shape and np.isfinite(grads[x].numpy()).all()


def test_a_row_that_sees_no_key_is_zero() -> None:
    mask = np.ones((4, 5), bool)
    mask[2] = False
    q, k, v = leaf(4, 3), leaf(5, 3, seed=1), leaf(5, 2, seed=2)
    y = SDPA(q, k, v, attn_mask=mask)
    assert (y.numpy()[2] == 0).all() and y.numpy()[[0, 1, 3]].all()
    grads = y.sum().backward()
    assert (grads[q].numpy()[2] == 0).all() and np.isfinite(grads[k].numpy()).all()


@pytest.mark.parametrize("rows, first", [(6, 4), (600, 300)])
def test_causal_rows_do_not_see_later_keys(rows: int, first: int) -> None:
    x = draw(1, rows, 12)
    changed = x.copy()
    changed[:, first:] = 50.0
    a, b = (FUSED(fp.tensor(t), heads=2, is_causal=True).numpy() for t in (x, changed))
    assert np.array_equal(a[:, :first], b[:, :first]) and (a[:, first:] != b[:, first:]).all()


def peak_bytes(call: Callable) -> int:
    """What call() takes at most beyond what is there before it."""
    gc.collect()
    before = allocator.current
    allocator.peak = before
    call()
    return fp.device("cpu").memory()["peak"] - before


@CPU_ONLY  # plain makes the matrix of all scores
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("heads", [1, 8])
def test_memory_is_linear_in_the_number_of_rows(heads: int, masked: bool) -> None:
    def step(rows: int) -> None:
        x = fp.tensor(draw(1, rows, 3 * heads * 16, dtype=np.float32), requires_grad=True)
        if masked:
            q, k, v = (t.reshape(1, rows, heads, 16).permute(0, 2, 1, 3) for t in x.split(heads * 16, -1))
            y = SDPA(q, k, v, attn_mask=np.arange(rows) < rows - 7)
        else:
            y = FUSED(x, heads=heads, is_causal=True)
        y.sum().backward()

    short, long = peak_bytes(lambda: step(2048)), peak_bytes(lambda: step(4096))
    assert long <= 2.2 * short and long < heads * 4096 * 4096


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_in_16_bits(dtype: str) -> None:
    q, k, v = (fp.tensor(draw(2, 5, 4, seed=i)).to(getattr(fp, dtype)).requires_grad_() for i in range(3))
    y = SDPA(q, k, v, attn_mask=np.tri(5) > 0)
    want = SDPA(*(x.detach().to(fp.float32) for x in (q, k, v)), is_causal=True)
    assert y.dtype == getattr(fp, dtype)
    np.testing.assert_allclose(y.to(fp.float32).numpy(), want.numpy(), 2e-2, 2e-2)
    assert y.to(fp.float32).sum().backward()[q].dtype == fp.float32


# ---- convolution -----------------------------------------------------------------------------------------------------------------
CONVS: list[tuple[list[Shape], dict[str, Any]]] = [
    ([(2, 4, 9, 7), (6, 4, 3, 3), (6,)], {}),
    ([(2, 4, 9, 7), (6, 4, 3, 3)], {"stride": 2, "padding": 1}),
    ([(2, 4, 9, 7), (6, 2, 3, 2), (6,)], {"groups": 2, "stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)}),
    ([(3, 4, 5, 5), (4, 1, 3, 3), (4,)], {"groups": 4, "padding": "same"}),
    ([(4, 9, 7), (6, 4, 3, 3), (6,)], {"padding": "valid"}),
    ([(0, 4, 9, 7), (6, 4, 3, 3), (6,)], {}),
    ([(3, 5, 6, 7), (2, 5, 1, 1), (2,)], {}),
    ([(1, 1, 1, 1), (1, 1, 1, 1)], {}),
    ([(2, 3, 33, 40), (8, 3, 5, 5), (8,)], {"dilation": 2, "padding": "same"}),
    ([(1, 2, 3, 4), (3, 2, 3, 4), (3,)], {}),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shapes, options", CONVS)
def test_conv_equals_torch(shapes: list[Shape], options: dict[str, Any], dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.conv2d
    compare(lambda *x: F.conv2d(*x, **options), lambda *x: theirs(*x, **options), shapes, dtype)


@CPU_ONLY  # geometry chooses the loops, and for the gradient those of each kind of pixel
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_conv_of_any_geometry_equals_torch(dtype: Any) -> None:
    torch, random = pytest.importorskip("torch"), np.random.default_rng(7)
    for _ in range(500):
        groups, images, each, more = (int(n) for n in random.integers(1, (3, 4, 5, 5), endpoint=True))
        kernel, step, pad, gap = (tuple(random.integers(*ends, 2).tolist()) for ends in ((1, 6), (1, 5), (0, 4), (1, 4)))
        sides = [max(1, d * (k - 1) + 1 - 2 * p) + int(random.integers(18)) for k, p, d in zip(kernel, pad, gap, strict=True)]
        shapes = [(images, groups * each, *sides), (groups * more, each, *kernel)]
        ours, theirs = (partial(f, bias=None, stride=step, padding=pad, dilation=gap, groups=groups) for f in (F.conv2d, torch.conv2d))
        compare(ours, theirs, shapes, dtype)


@pytest.mark.parametrize("shapes, options", CONVS[:5])
def test_conv_gradcheck(shapes: list[Shape], options: dict[str, Any]) -> None:
    assert fp.gradcheck(lambda *x: F.conv2d(*x, **options), tuple(leaf(*s, seed=i) for i, s in enumerate(shapes)))


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)])
def test_conv_computes_only_what_is_wanted(wanted: tuple[bool, ...]) -> None:
    xs = [leaf(2, 3, 5, 5), leaf(4, 3, 3, 3, seed=1), leaf(4, seed=2)]
    all_of_them = F.conv2d(*xs).square().sum().backward()
    some = [x if w else x.detach() for x, w in zip(xs, wanted, strict=True)]
    grads = F.conv2d(*some).square().sum().backward()
    assert len(grads) == sum(wanted)
    for x, w in zip(xs, wanted, strict=True):
        if w:
            np.testing.assert_allclose(grads[x].numpy(), all_of_them[x].numpy(), 1e-12)


# ---- pools -----------------------------------------------------------------------------------------------------------------------
POOLS = [((2, 3, 8, 7), (2,)), ((2, 3, 8, 7), (3, 2, 1)), ((3, 8, 7), ((2, 3), (1, 2), (1, 0))), ((0, 3, 8, 7), (2,)), ((1, 1, 1, 1), (1,))]


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
@pytest.mark.parametrize("shape, args", POOLS)
def test_pools_equal_torch(name: str, shape: Shape, args: tuple) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = getattr(F, name), getattr(torch.nn.functional, name)
    compare(lambda x: ours(x, *args), lambda x: theirs(x, *args), [shape])
    if 0 not in shape:
        assert fp.gradcheck(lambda x: ours(x, *args), (leaf(*shape),))


def test_pools_take_nan_and_padding_as_torch_does() -> None:
    x = np.full((1, 1, 4, 4), -5.0)
    x[0, 0, 2, 3] = np.nan
    y = F.max_pool2d(fp.tensor(x), 2, padding=1).numpy()[0, 0]
    assert np.isnan(y[1, 2]) and (y[~np.isnan(y)] == -5.0).all()  # padding never wins
    assert F.avg_pool2d(fp.tensor(x), 2, padding=1).numpy()[0, 0, 0, 0] == -1.25  # and counts as zeros


# ---- what is refused ---------------------------------------------------------------------------------------------------------------
X, W = fp.ones(2, 3, 5, 5), fp.ones(4, 3, 3, 3)
Q, K = fp.ones(2, 5, 4), fp.ones(2, 7, 4)
ERRORS: list[tuple[type[Exception], str, Callable]] = [
    (fp.ShapeError, r"sizes differ: q is \(2, 5, 4\), k is \(2, 7, 4\), v is \(2, 5, 4\)", lambda: SDPA(Q, K, Q)),
    (fp.ShapeError, "leading axes do not broadcast", lambda: SDPA(Q, fp.ones(3, 7, 4), K)),
    (fp.ShapeError, r"the mask does not broadcast: \(5, 5\), scores are \(2, 5, 7\)", lambda: SDPA(Q, K, K, fp.ones(5, 5))),
    (fp.DTypeError, "neither bool nor float: int64", lambda: SDPA(Q, K, K, np.ones((5, 7), np.int64))),
    (fp.DTypeError, "two different float types", lambda: SDPA(Q, K, K, np.ones((5, 7)))),
    (ValueError, "both attn_mask and is_causal=True", lambda: SDPA(Q, K, K, fp.ones(5, 7), is_causal=True)),
    (fp.ShapeError, r"conv2d: channels differ: x is \(2, 3, 5, 5\), weight is \(4, 2, 3, 3\)", lambda: F.conv2d(X, fp.ones(4, 2, 3, 3))),
    (fp.ShapeError, "conv2d: sizes differ: .*bias is", lambda: F.conv2d(X, W, fp.ones(3))),
    (fp.ShapeError, "conv2d: stride is not an int or a pair of ints >= 1: 0", lambda: F.conv2d(X, W, stride=0)),
    (fp.ShapeError, "conv2d: padding is not .*'full'", lambda: F.conv2d(X, W, padding="full")),
    (fp.ShapeError, "padding='same' needs stride 1", lambda: F.conv2d(X, W, padding="same", stride=2)),
    (fp.ShapeError, "conv2d: the window does not fit", lambda: F.conv2d(X, fp.ones(4, 3, 7, 7))),
    (fp.ShapeError, r"conv2d: x is not \(N, C, H, W\)", lambda: F.conv2d(fp.ones(5, 5), W)),
    (fp.DTypeError, "conv2d: two different float types", lambda: F.conv2d(X, W.to(fp.float64))),
    (TypeError, "padding_mode", lambda: F.conv2d(X, W, padding_mode="zeros")),
    (TypeError, "kernel_size", lambda: F.max_pool2d(X)),
    (fp.ShapeError, "max_pool2d: the window does not fit", lambda: F.max_pool2d(X, 9)),
    (fp.ShapeError, "max_pool1d: a window sees nothing of x", lambda: F.max_pool1d(fp.ones(1, 4), 2, 1, padding=1, dilation=5)),
    (fp.ShapeError, "avg_pool2d: padding is more than half", lambda: F.avg_pool2d(X, 2, padding=2)),
    (fp.ShapeError, "max_pool3d: x is not", lambda: F.max_pool3d(fp.ones(2, 3), 2)),
    (fp.ShapeError, "conv2d: padding is not for 2 axes", lambda: F.conv2d(X, W, padding=(1, 1, 1))),
    (fp.ShapeError, "conv2d: padding cuts off more|the window does not fit", lambda: F.conv2d(X, W, padding=-3)),
    (fp.ShapeError, "conv3d: weight does not have 5 axes", lambda: F.conv3d(X, W)),
    (fp.ShapeError, "conv_transpose2d: output_padding is not less", lambda: F.conv_transpose2d(X, fp.ones(3, 2, 2, 2), output_padding=1)),
    (fp.ShapeError, "conv_transpose2d: nothing is left", lambda: F.conv_transpose2d(X, fp.ones(3, 2, 2, 2), padding=3)),
    (fp.ShapeError, "max_pool2d: kernel_size is not", lambda: F.max_pool2d(X, (2, 2, 2))),
    (ValueError, "lp_pool2d: there is no norm of power 0", lambda: F.lp_pool2d(X, 0, 2)),
    (fp.ShapeError, "affine_grid: theta .* is not for size", lambda: F.affine_grid(fp.ones(1, 2, 3), 5)),
    (ValueError, "interpolate: needs either size or scale_factor", lambda: F.interpolate(X)),
    (ValueError, "interpolate: unknown mode: 'cubic'", lambda: F.interpolate(X, 2, mode="cubic")),
    (ValueError, "interpolate: mode 'nearest' has no corners", lambda: F.interpolate(X, 2, align_corners=True)),
    (ValueError, "grid_sample: unknown: mode 'bicubic'", lambda: F.grid_sample(fp.ones(1, 1, 1, 1, 1), fp.ones(1, 1, 1, 1, 3), "bicubic")),
    (fp.ShapeError, "fold: x does not have these windows", lambda: F.fold(X[0], 4, 2)),
    (fp.ShapeError, "pixel_shuffle: channels are no multiple", lambda: F.pixel_shuffle(X, 2)),
    (fp.ShapeError, "max_unpool2d: indices are not those of x", lambda: F.max_unpool2d(X, X, 2)),
    (fp.ShapeError, "adaptive_avg_pool2d: output_size is not", lambda: F.adaptive_avg_pool2d(X, (1, 2, 3))),
]


def test_pools_may_give_nothing() -> None:
    x = fp.tensor(draw(2, 4, 3, 6), requires_grad=True)
    y = F.adaptive_avg_pool2d(x, (0, 2))
    assert y.shape == (2, 4, 0, 2)
    assert not y.sum().backward()[x].numpy().any()


@pytest.mark.parametrize("many", [1, 200])
def test_few_numbers_are_pooled_at_once_as_many_are_axis_by_axis(many: int) -> None:
    x = fp.tensor(draw(many, 2, 4, 3, 6), requires_grad=True)
    whole, even = F.avg_pool3d(x, (2, 3, 3)), F.adaptive_avg_pool3d(x, (2, 1, 3))
    parts = x.numpy().reshape(many, 2, 2, 2, 1, 3, 2, 3), x.numpy().reshape(many, 2, 2, 2, 1, 3, 3, 2)
    for y, part in zip((whole, even), parts, strict=True):
        np.testing.assert_allclose(y.numpy(), part.mean((3, 5, 7)), rtol=1e-12)
    for y, share in ((whole, 18), (even, 12)):
        g = draw(*y.shape, seed=1)
        found = y.backward(fp.tensor(g))[x].numpy()
        np.testing.assert_allclose(found, np.kron(g, np.ones(np.array(x.shape) // y.shape)) / share, rtol=1e-12)


@pytest.mark.parametrize("depth, window, channels", [(3, 1, 2), (3, 3, 2), (1, 1, 1), (2, 2, 1), (3, 2, 1)])
def test_conv3d_whose_windows_see_all_of_the_depth_or_one_image(depth: int, window: int, channels: int) -> None:
    x, w = draw(2, channels, depth, 3, 4), draw(3, channels, window, 2, 2, seed=1)
    seen = np.lib.stride_tricks.sliding_window_view(x, (window, 2, 2), (2, 3, 4))
    y = F.conv3d(fp.tensor(x), fp.tensor(w))
    np.testing.assert_allclose(y.numpy(), np.einsum("ncdhwijk,ocijk->nodhw", seen, w), rtol=1e-10, atol=1e-12)


@CPU_ONLY
@pytest.mark.parametrize("tracked", [(True, False), (False, True)])
@pytest.mark.parametrize("mode, outside", [("bilinear", "reflection"), ("bilinear", "zeros"), ("bicubic", "border"), ("nearest", "zeros")])
def test_places_that_are_no_numbers_and_one_operand_alone_tracked(mode: str, outside: str, tracked: tuple[bool, bool]) -> None:
    x, grid = np.random.default_rng(0).uniform(-1.5, 1.5, 60).reshape(1, 3, 4, 5), np.random.default_rng(1).uniform(-2, 2, (1, 3, 4, 2))
    x[0, 0, 1, 1], x[0, 2, 0, 0] = np.nan, np.inf
    grid.reshape(-1)[[0, 3, 4, 7, 8]] = np.nan, np.inf, -np.inf, 1e30, -1e20
    found = []
    for device in ("cpu", "plain"):  # a kernel, and ops
        xs = [fp.tensor(t, requires_grad=on, device=device) for t, on in zip((x, grid), tracked, strict=True)]
        y = F.grid_sample(*xs, mode, outside)
        found.append([y.numpy(), *[g.numpy() for _, g in (y.backward(fp.ones_like(y)).items() if y.requires_grad else ())]])
    assert found[0][0].shape == (1, 3, 3, 4) and len(found[0]) == len(found[1]) == 2 - (mode == "nearest" and tracked[1])
    for ours, plain in zip(*found, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-10, atol=1e-10)


@CPU_ONLY  # X and W are made before a device is chosen
@pytest.mark.parametrize("kind, text, call", ERRORS, ids=[text[:40] for _, text, _ in ERRORS])
def test_errors(kind: type[Exception], text: str, call: Callable) -> None:
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("how", ["alone", "causal", "mask", "blind", "groups", "fused", "window"])
def test_attention_has_second_derivatives(how: str) -> None:
    """Also of the mask; a row that sees no key has none."""
    q, k, v, mask = (
        leaf(*s) for s in ((1, 4, 3, 2), (1, 2 if how == "groups" else 4, 5, 2), (1, 2 if how == "groups" else 4, 5, 3), (4, 3, 1))
    )
    blind = fp.tensor(np.array([[False] * 5, [True] * 5, [True, False] * 2 + [True]]))
    calls: dict[str, tuple[Callable, tuple]] = {
        "alone": (lambda q, k, v: SDPA(q, k, v, scale=-0.4), (q, k, v)),
        "causal": (lambda q, k, v: SDPA(q, k, v, is_causal=True), (q, k, v)),
        "mask": (SDPA, (q, k, v, mask)),
        "blind": (lambda q, k, v: SDPA(q, k, v, blind), (q, k, v)),
        "groups": (lambda q, k, v: SDPA(q, k, v, enable_gqa=True), (q, k, v)),
        "window": (lambda q, k, v: SDPA(q, k, v, window=2), (q, k, v)),
        "fused": (lambda x: FUSED(x, 2, True), (leaf(2, 3, 12),)),
    }
    call, xs = calls[how]
    assert fp.gradcheck(call, xs, order=2)
    g = fp.tensor(np.random.default_rng(1).normal(size=call(*xs).shape))
    one, two = (call(*xs).backward(g, create_graph=again) for again in (False, True))
    for x in xs:
        np.testing.assert_allclose(one[x].numpy(), two[x].numpy(), 1e-9, 1e-11)


def test_the_gradient_penalty_of_a_cnn_as_in_pytorch() -> None:
    """d/d(x, weights) of |d net / dx|^2, images with and without a first axis (Gulrajani et al. 2017, arXiv:1704.00028)."""
    torch = pytest.importorskip("torch")
    arrays = [draw(2, 3, 6, 6), draw(4, 3, 3, 3, seed=1), draw(4, seed=2), draw(2, 2, 3, 2, seed=3)]
    found = []
    for lib, functional in ((fp, F), (torch, torch.nn.functional)):
        for x in (arrays[0], arrays[0][0]):
            x, w, b, v = (lib.tensor(a, requires_grad=True) for a in (x, *arrays[1:]))
            y = functional.max_pool2d(functional.conv2d(x, w, b, padding=1).tanh(), 2)
            y = functional.conv2d(y, v, stride=(1, 2), padding=(2, 1), dilation=(1, 2), groups=2).sigmoid()
            y = functional.avg_pool2d(y, (3, 1), 1)
            if lib is fp:
                g = y.sum().backward(create_graph=True)[x]
                grads = (g * g).sum().backward()
                found.append([grads[t].numpy() for t in (x, w, b, v)])
            else:
                (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
                wanted = torch.autograd.grad((g * g).sum(), (x, w, b, v))
                for ours, theirs in zip(found.pop(0), wanted, strict=True):
                    np.testing.assert_allclose(ours, theirs.numpy(), 1e-9, 1e-11)


@pytest.mark.parametrize("device", ["cpu", "plain"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("outside", ["border", "reflection"])
def test_a_grid_of_nan_and_infinity_reads_the_ends(mode: str, outside: str, device: str) -> None:
    """Columns 1 2 3 over 4 5 6, a row at 0.2: 0.8 of the upper and 0.2 of the lower number. NaN is the first one, infinity the nearest
    end, or where it would be reflected the first."""
    x = fp.tensor([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]], device=device, requires_grad=True)
    places = [np.nan, np.inf, -np.inf]
    grid = fp.tensor([[[[place, -0.3] for place in places]]], device=device, requires_grad=True)
    y = F.grid_sample(x, grid, mode, outside)
    first, last = (1.6, 3.6) if mode == "bilinear" else (1.0, 3.0)
    np.testing.assert_allclose(y.numpy().ravel(), [first, last if outside == "border" else first, first], 1e-6)
    found, ends = y.sum().backward(), [2, 0, 1] if outside == "border" else [3, 0, 0]
    rows = [[0.8], [0.2]] if mode == "bilinear" else [[1.0], [0.0]]
    np.testing.assert_allclose(found[x].numpy()[0, 0], np.multiply(rows, ends), 1e-6)
    if mode == "bilinear":
        np.testing.assert_allclose(found[grid].numpy()[0, 0], [[0.0, 3.0]] * 3, 1e-6)
    one = F.grid_sample(x.detach()[..., :1], grid.detach(), mode, outside, align_corners=True)  # a single column
    assert np.isfinite(one.numpy()).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("length", "taps", "padding"), [(1100, 4, 3), (1023, 4, 3), (1500, 3, 1), (40, 9, 0)])
def test_signals_with_a_window_for_each_channel(length: int, taps: int, padding: int, dtype: str) -> None:
    """Long ones go by another kernel."""
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((2, 5, length)), rng.standard_normal((5, 1, taps)), rng.standard_normal(5)
    given = [fp.tensor(t, dtype=dtype, device="cpu", requires_grad=True) for t in (x, w, b)]
    y = F.conv1d(*given, padding=padding, groups=5)
    seen = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (padding, padding))), taps, 2)
    g = rng.standard_normal(y.shape)
    found = (y * fp.tensor(g, dtype=dtype, device="cpu")).sum().backward()
    dx = np.stack([[np.convolve(g[i, c], w[c, 0])[padding : padding + length] for c in range(5)] for i in range(2)])
    want = (seen * w[None, :, :, :]).sum(-1) + b[:, None], dx, np.einsum("icpt,icp->ct", seen, g)[:, None], g.sum((0, 2))
    for one, wanted in zip((y, *[found[t] for t in given]), want, strict=True):
        np.testing.assert_allclose(one.numpy(), wanted, rtol=0, atol=(1e-12 if dtype == "float64" else 2e-5) * np.abs(wanted).max())
