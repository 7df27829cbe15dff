"""The loops of convolution and pooling, compared as in test_kernels_custom.py."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conv_sizes import conv_sizes, pool_sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kernels_custom import F32, F64, PLAIN, WAYS, Array, blank, close, draw, run, same_bits, table
from test_products import Fenced

import flamepy as fp
from flamepy.backend.cpu.bf16 import conv as bfloat_conv
from flamepy.backend.cpu.conv import conv, depthwise, line_conv, listed_conv, pooling
from flamepy.backend.cpu.runtime.settings import most_threads


def windows(x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any = (1, 1), fill: float = 0.0) -> Array:
    """(n, c, rows, columns, kh, kw): every window."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)], (2, 3))
    return view[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def conv_numpy(x: Array, w: Array, b: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    xs = np.split(windows(x, w.shape[2:], stride, padding, dilation), groups, 1)
    y = np.concatenate([np.einsum("nchwij,ocij->nohw", *pair) for pair in zip(xs, np.split(w, groups), strict=True)], 1)
    return y if b is None else y + b[:, None, None]


def put(values: Array, dtype: Any, blank: Any) -> Array:
    out = blank(*values.shape, dtype=dtype)
    out[...] = values
    return out  # type: ignore[no-any-return]


def call_conv(way: Any, x: Array, w: Array, b: Any, g: Array, *geometry: Any, parts: Any = (), blank: Any = blank) -> list[Array]:
    """y, dx, dw, db by lists; parts: lines, columns, images and channels at once. blank: gives the memory."""
    dtype, has_bias = way[0], b is not None
    x, w, g, b = (put(t, dtype, blank) for t in (x, w, g, np.zeros(0) if b is None else b))
    size = conv_sizes(x.shape, w.shape, *geometry)
    y, dx, dw, db = (blank(*t.shape, dtype=dtype) for t in (g, x, w, b))

    def planned(what: str, size: Any, order: int) -> Any:
        plan = listed_conv.y_plan(size) if what == "y" else listed_conv.dw_plan(size)
        if parts:
            lines = min(parts[0], size[14])
            columns = min(parts[1], size[15]) if lines == 1 else size[15]
            images, channels = parts[2] if (lines, columns) == size[14:] else 1, min(parts[3], max(1, size[1] // size[5]))
            plan = listed_conv.finished(what, size, lines, columns, images, channels, plan.chunks)
        return plan, blank(plan.workers * plan.space, dtype=dtype), listed_conv.lists(size, plan, order)

    def convolve(out: Array, x: Array, w: Array, size: Any, place: Any, order: int, has_bias: bool) -> None:
        plan, space, lists = planned("y", size, order)
        panels = blank(size[1] * size[6] * size[7] * listed_conv.rounded(size[4] // size[5]), dtype=dtype)
        run(listed_conv.pack_weights, way, panels, w, table(*size), plan.channels)
        run(listed_conv.conv2d, way, out, space, x, panels, b, table(*size), table(*place), table(*plan), *lists, has_bias)

    convolve(y, x, w, size, (*size[14:], 0, 0, 1, 1), 1, has_bias)
    dx[...] = 0  # pixels that no tap reaches
    for kind, taps, place in listed_conv.kinds(size):
        exchanged = blank(w.size // (size[6] * size[7]) * len(taps), dtype=dtype)
        run(listed_conv.exchange, way, exchanged, w, table(*size), table(*taps))
        convolve(dx, g, exchanged, kind, place, -1, False)
    plan, space, lists = planned("dw", size, 1)
    partial, sums, total = blank(plan.chunks * w.size, dtype=dtype), blank(plan.chunks * size[4], dtype=F64), blank(w.size, dtype=dtype)
    run(listed_conv.conv2d_dw, way, partial, sums, space, g, x, table(*size), table(*plan), *lists)
    run(conv.conv2d_dw_sum, way, total, db, partial, sums, plan.chunks, has_bias)
    run(bfloat_conv.turn_groups, way, dw, total, size[5], w.size // size[4], size[4] // size[5])
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
    ((17, 20, 4, 4), (18, 20, 3, 3), (1, 1), (1, 1), (1, 1), 1),  # several kinds of positions, of several images
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
    # Linear in x and in w: <g, conv(t, w)> = <dx, t> and <g, conv(x, t)> = <dw, t> for every t.
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


def call_depthwise(way: Any, x: Array, w: Array, b: Any, g: Array, *geometry: Any, lines: int = 2, blank: Any = blank) -> list[Array]:
    """y and dx, `lines` lines at once."""
    dtype = way[0]
    x, w, b, g = (put(t, dtype, blank) for t in (x, w, b, g))
    size = conv_sizes(x.shape, w.shape, *geometry)
    y, dx = blank(*g.shape, dtype=dtype), blank(*x.shape, dtype=dtype)
    for back in (False, True):
        plan, lists = depthwise.plan_of(tuple(size), back, lines)
        plan = plan._replace(workers=3)
        space = blank(3 * plan.space, dtype=dtype)
        if back:
            run(depthwise.conv2d_depthwise, way, dx, space, g, w, w, table(*plan), lists, False)
        else:
            run(depthwise.conv2d_depthwise, way, y, space, x, w, b, table(*plan), lists, True)
    return [y, dx]


def fences(at_end: bool) -> Any:
    """Gives memory between pages that nobody may touch."""
    return lambda *shape, dtype: Fenced((1, math.prod(shape)), np.dtype(dtype), math.prod(shape), at_end).flat.reshape(shape)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
@pytest.mark.parametrize("alone", [False, True])
def test_conv2d_with_any_geometry(data: Any, alone: bool) -> None:
    """Rectangles of positions, windows that see only padding, pixels that no window sees. A NaN reaches the windows that see it alone.
    What is read or written beyond an array ends the process. alone: depthwise."""
    torch = pytest.importorskip("torch")
    number = lambda low, high: data.draw(st.integers(low, high))
    pair = lambda low, high: (number(low, high), number(low, high))
    kernel, stride, padding, dilation, groups = pair(1, 4), pair(1, 4), pair(0, 5), pair(1, 6), number(1, 2)
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in zip(kernel, padding, dilation, strict=True)]
    channels, outs = (groups, groups) if alone else (groups * number(1, 3), groups * number(1, 6))
    shapes = (number(1, 3), channels, least[0] + number(0, 9), least[1] + number(0, 24)), (outs, channels // groups, *kernel), (outs,)
    x, w, b = (torch.tensor(draw(*shape), requires_grad=True) for shape in shapes)
    if data.draw(st.booleans()):
        x.data[-1, -1, -1, -1] = math.nan
    y = torch.nn.functional.conv2d(x, w, b, stride, padding, dilation, groups)
    g = torch.tensor(draw(*y.shape, seed=5))
    want = [y, *torch.autograd.grad(y, (x, w, b), g)]
    given = [t.detach().numpy() for t in (x, w, b, g)], (stride, padding, dilation, groups)
    fenced = fences(data.draw(st.booleans()))

    if alone:
        got, want = call_depthwise(WAYS[1], *given[0], *given[1], lines=number(1, 6), blank=fenced), want[:2]
    else:
        got = call_conv(WAYS[1], *given[0], *given[1], parts=(number(1, 6), number(1, 40), number(1, 3), number(1, 3)), blank=fenced)
    for one, wanted in zip(got, want, strict=True):
        close(one, wanted.detach().numpy(), F64)


def call_lines(way: Any, x: Array, w: Array, b: Array, g: Array, size: Any, parts: Any = (), blank: Any = blank) -> list[Array]:
    """y and dx by lines; parts: lines, images and channels at once."""
    x, w, b, g, exchanged = (put(t, F32, blank) for t in (x, w, b, g, w))
    y, dx = (blank(*t.shape, dtype=F32) for t in (g, x))

    def convolve(out: Array, x: Array, w: Array, size: Any, order: int, has_bias: bool) -> None:
        plan = line_conv.line_plan(size)
        if parts:
            rows, images, channels = min(parts[0], size[14]), parts[1], min(parts[2], size[1] // size[5])
            wide, down = size[3] + size[11], rows + (size[6] - 1) * size[12]
            room = size[4] // size[5] * images * rows * wide + channels * down * wide + size[11] + 15  # not one number more than is read
            plan = line_conv.LinePlan(rows, images, channels, 3, room)
        space, places = blank(plan.workers * plan.space, dtype=F32), table(*line_conv.places(size, plan, order))
        run(line_conv.conv2d_lines, way, out, space, x, w, b, table(*size), table(*size[14:], 0, 0, 1, 1), places, table(*plan), has_bias)

    convolve(y, x, w, size, 1, True)
    ((turned, taps, _),) = listed_conv.kinds(size)
    run(listed_conv.exchange, way, exchanged, w, table(*size), table(*taps))
    convolve(dx, g, exchanged, turned, -1, False)
    return [y, dx]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_conv2d_by_lines_with_any_geometry(data: Any) -> None:
    """As above, where windows move one position at a time. A NaN, and what is beside the lines, reach the windows that see them alone."""
    torch = pytest.importorskip("torch")
    number = lambda low, high: data.draw(st.integers(low, high))
    pair = lambda low, high: (number(low, high), number(low, high))
    kernel, dilation, groups, fenced = pair(1, 4), pair(1, 3), number(1, 2), fences(data.draw(st.booleans()))
    far = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    padding = [number(0, f) for f in far]
    least = [max(1, f + 1 - 2 * p) for f, p in zip(far, padding, strict=True)]
    channels, outs = groups * number(1, 4), groups * number(1, 14)
    shapes = (number(1, 4), channels, least[0] + number(0, 9), least[1] + number(0, 70)), (outs, channels // groups, *kernel), (outs,)
    x, w, b = (torch.tensor(draw(*shape), requires_grad=True) for shape in shapes)
    if data.draw(st.booleans()):
        x.data[-1, -1, -1, -1] = math.nan
    y = torch.nn.functional.conv2d(x, w, b, 1, padding, dilation, groups)
    g = torch.tensor(draw(*y.shape, seed=5))
    want = [y, *torch.autograd.grad(y, x, g)]
    size = conv_sizes(x.shape, w.shape, (1, 1), tuple(padding), dilation, groups)
    parts = (number(1, 6), number(1, 3), number(1, 4))
    got = call_lines(WAYS[0], *(t.detach().numpy() for t in (x, w, b, g)), size, parts, fenced)
    for one, wanted in zip(got, want, strict=True):
        close(one, wanted.detach().numpy(), F32)


@pytest.mark.parametrize("x, outs", [((1, 70, 33, 30), 21), ((17, 3, 10, 10), 6)])
def test_conv2d_by_lines_bits(x: Any, outs: int) -> None:
    """Bands of lines and several blocks of channels; images side by side."""
    size = conv_sizes(x, (outs, x[1], 3, 3), (1, 1), (1, 1), (1, 1), 1)
    assert line_conv.pays(size) and line_conv.line_plan(size).workers >= min(8, most_threads())
    arrays = draw(*x), draw(outs, x[1], 3, 3), draw(outs), draw(x[0], outs, *x[2:])
    same_bits(lambda way: call_lines(way, *arrays, size))
    y, dx = call_lines((F32, None), *(t[:1] for t in arrays), (1, x[1], *size[2:4], 1, *size[5:]), (4, 1, 2))
    want = call_lines(WAYS[0], *(t[:1] for t in arrays), (1, x[1], *size[2:4], 1, *size[5:]))
    close(y, want[0], F32)
    close(dx, want[1], F32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "shapes, geometry",
    [
        (((2, 5, 9, 40), (5, 1, 3, 3)), ((2, 1), (1, 2), (1, 2), 5)),
        (((2, 4, 9, 40), (6, 2, 3, 3)), ((1, 1), (1, 1), (1, 1), 2)),
        (((2, 3, 9, 41), (36, 3, 4, 3)), ((3, 2), (1, 1), (1, 1), 1)),
        (((2, 20, 9, 10), (34, 10, 1, 1)), ((1, 1), (0, 0), (1, 1), 2)),
        (((2, 20, 9, 10), (34, 20, 2, 1)), ((3, 3), (1, 0), (1, 1), 1)),
    ],
    ids=["depthwise", "lines", "kinds by lines", "pointwise", "pixels beside windows"],
)
def test_loops_without_columns_of_all_types(dtype: str, shapes: Any, geometry: Any) -> None:
    """The op takes these loops; results and gradients beside products with a matrix that holds the windows."""
    kind = getattr(fp, dtype)
    x, w, b = (fp.tensor(draw(*shape), dtype=kind, requires_grad=True) for shape in [*shapes, shapes[1][:1]])
    y = fp.nn.functional.conv2d(x, w, b, *geometry)
    held = [t.numpy().astype(F64) for t in (x, w, b)]
    want = conv_numpy(*held, *geometry)
    scale = 1e-6 if dtype == "float32" else 2.0**-8 if dtype == "bfloat16" else 2.0**-11
    assert y.dtype == kind and np.abs(y.numpy().astype(F64) - want).max() <= 2 * scale * np.abs(want).max()
    g = draw(*want.shape, seed=5)
    found = (y * fp.tensor(g, dtype=kind)).sum().backward()
    dx, dw = (found[t].numpy().astype(F64) for t in (x, w))
    g = fp.tensor(g, dtype=kind).numpy().astype(F64)
    for seed in range(3):
        t, u = (draw(*a.shape, seed=seed + 7) for a in held[:2])
        close(np.sum(dx * t) / g.size**0.5, np.sum(g * conv_numpy(t, held[1], None, *geometry)) / g.size**0.5, F32)
        close(np.sum(dw * u) / g.size**0.5, np.sum(g * conv_numpy(held[0], u, None, *geometry)) / g.size**0.5, F32)


def test_conv2d_plan_keeps_scratch_small() -> None:
    for x, w in (((64, 64, 56, 56), (64, 64, 3, 3)), ((1, 512, 512, 512), (512, 512, 3, 3)), ((256, 1, 28, 28), (8, 1, 5, 5))):
        size = conv_sizes(x, w, (1, 1), (1, 1), (1, 1), 1)
        for plan in (listed_conv.y_plan(size), listed_conv.dw_plan(size)):
            assert plan.space <= 1 << 19 and plan.workers >= min(8, most_threads())
            assert plan.chunks * math.prod(w) <= listed_conv.CONV_PARTIALS + 2 * (512 * 512 * 9 + 512)


def call_pools(way: Any, x: Array, kernel: Any, stride: Any, padding: Any) -> list[Array]:
    """Maximum, its indices and gradient."""
    size, volumes = pool_sizes(x.shape, kernel, stride, padding)
    shape, dtype = (*x.shape[:-2], *size[-2:]), way[0]
    x, g = x.astype(dtype), draw(*shape, dtype=dtype, seed=9)
    top = blank(*shape, dtype=dtype)
    where, dtop = np.full(shape, -1, np.int64), blank(*x.shape, dtype=dtype)
    run(pooling.max_pool, way, where, top, x, table(*volumes))
    run(pooling.max_pool_dx, way, dtop, g, where, table(*volumes))
    return [top, where, dtop]


POOLS = [
    ((2, 2), (2, 2), (0, 0)),
    ((3, 3), (1, 1), (1, 1)),
    ((2, 3), (1, 2), (1, 0)),
    ((1, 1), (2, 2), (0, 0)),
    ((5, 4), (3, 3), (2, 2)),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pool", POOLS)
def test_pools(way: Any, pool: Any) -> None:
    x = draw(2, 3, 6, 7)
    top, where, _ = call_pools(way, x, *pool)
    close(top, windows(x, *pool, fill=-np.inf).max((4, 5)), way[0])
    close(np.take_along_axis(x.reshape(2, 3, -1), where.reshape(2, 3, -1), 2), top, way[0])


@pytest.mark.parametrize("pool", POOLS)
def test_pools_match_torch(pool: Any) -> None:
    torch = pytest.importorskip("torch")
    x = np.round(draw(2, 2, 6, 7) * 2)  # ties
    x[0, 0, 1, 1:3], x[1, 1, :, 2], x[0, 1] = np.nan, np.inf, -np.inf
    t = torch.tensor(x, requires_grad=True)
    top, where = torch.nn.functional.max_pool2d(t, *pool, return_indices=True)
    mean = torch.nn.functional.avg_pool2d(t, *pool)
    g = torch.tensor(draw(*top.shape, seed=9))
    want = [top, where, torch.autograd.grad(top, t, g)[0], mean]
    for got, wanted in zip((*call_pools(WAYS[1], x, *pool), fp.nn.functional.avg_pool2d(x, *pool).numpy()), want, strict=True):
        close(got, wanted.detach().numpy(), F64)


@pytest.mark.parametrize(("shape", "pool"), [
    ((6, 40, 33), ((3, 3), (2, 2), (1, 1))), ((2, 1, 700), ((1, 4), (1, 5), (0, 2))), ((3, 9, 99), ((2, 9), (2, 9), (0, 0))),
    ((4, 24, 24), ((8, 6), (8, 6), (0, 0))), ((1, 60, 61), ((3, 7), (1, 7), (0, 0))), ((2, 35, 30), ((7, 5), (7, 5), (1, 0))),
    ((2, 19, 40), ((4, 8), (3, 8), (2, 0))), ((1, 3, 9000), ((2, 2), (2, 1), (0, 1))), ((2, 50, 30), ((20, 3), (10, 3), (0, 0))),
])  # fmt: skip
def test_means_of_many_windows(shape: Any, pool: Any) -> None:
    """Along one axis after the other; 16-bit floats are rounded once. NaN and infinity stay in their windows."""
    mean, x = fp.nn.functional.avg_pool2d, draw(1, *shape)
    half = fp.tensor(x).to(fp.bfloat16)
    assert mean(half, *pool).numpy().tobytes() == mean(half.to(fp.float32), *pool).to(fp.bfloat16).numpy().tobytes()
    t, other = fp.tensor(x.astype(F64), requires_grad=True), draw(1, *shape, dtype=F64, seed=4)
    close((y := mean(t, *pool)).numpy(), windows(x.astype(F64), *pool).mean((-2, -1)), F64)
    dx = y.backward(gradient=(g := draw(*y.shape, dtype=F64, seed=9)))[t].numpy()
    close(np.sum(dx * other), np.sum(g * windows(other, *pool).mean((-2, -1))), F64)
    x.reshape(-1)[[5, x.size // 3, x.size // 2]] = np.nan, np.inf, -np.inf
    close(mean(fp.tensor(x), *pool).numpy(), windows(x, *pool).mean((-2, -1)), F32)


@pytest.mark.parametrize(("shape", "args"), [
    ((2, 3, 40), (3, 2, 1)), ((2, 3, 150), (2,)), ((1, 2, 23), (3, 3, 1, 2)), ((1, 1, 9000), (4, 1, 2)),
    ((2, 2, 9, 20), ((2, 3), (1, 2), 1)), ((1, 2, 5, 6, 9), (2, 2, 1, 1)), ((1, 2, 7, 8), ((5, 3),)),
])  # fmt: skip
def test_maxima_are_the_same_without_places(shape: Any, args: Any) -> None:
    """Found along one axis after the other where nothing is tracked: of equal zeros the first, of several NaN the last."""
    odd, shares = np.array([0.0, -0.0, 1.0, -np.inf, np.nan, 3.0], "f4"), [0.3, 0.3, 0.2, 0.1, 0.02, 0.08]
    x = np.random.default_rng(2).choice(odd, shape, p=shares)
    x[np.isnan(x)] = np.arange(0x7FC00001, 0x7FC00001 + np.isnan(x).sum(), dtype=np.uint32).view("f4")  # told apart
    pool = getattr(fp.nn.functional, f"{'adaptive_' if len(args) == 1 and len(shape) == 4 else ''}max_pool{len(shape) - 2}d")
    alone, tracked = pool(fp.tensor(x), *args), pool(fp.tensor(x, requires_grad=True), *args)
    assert alone.numpy().tobytes() == tracked.detach().numpy().tobytes()
    assert pool(fp.tensor(x[:0]), *args).shape == (0, *alone.shape[1:])


def test_pools_bits_and_no_images() -> None:
    same_bits(lambda way: call_pools(way, draw(3, 4, 9, 8), *POOLS[1]))
    assert all(t.size == 0 for t in call_pools(WAYS[0], draw(0, 4, 9, 8), *POOLS[1]))


def test_loops_run_uncompiled() -> None:
    x, w, b = draw(2, 4, 5, 4), draw(4, 2, 3, 2), draw(4)
    geometry = (2, 1), (1, 0), (1, 2), 2
    g = draw(*conv_numpy(x, w, b, *geometry).shape)
    for one, two in zip(call_conv(PLAIN, x, w, b, g, *geometry), call_conv(WAYS[1], x, w, b, g, *geometry), strict=True):
        close(one, two, F64)
    w, geometry = draw(4, 1, 3, 2), ((2, 1), (1, 0), (1, 2), 4)
    g = draw(*conv_numpy(x, w, b, *geometry).shape)
    for one, two in zip(call_depthwise(PLAIN, x, w, b, g, *geometry), call_depthwise(WAYS[1], x, w, b, g, *geometry), strict=True):
        close(one, two, F64)
    for one, two in zip(call_pools(PLAIN, x, *POOLS[2]), call_pools(WAYS[1], x, *POOLS[2]), strict=True):
        close(one, two, F64)
