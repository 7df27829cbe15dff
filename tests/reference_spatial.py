"""The oracle of convolutions, pools and resampling, along one to three axes: windows by NumPy, and weights worked out one result after the
other. Joined into reference.py."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from cases import Input, R, case


# fmt: off
def each(value: Any, axes: int) -> tuple[int, ...]:
    return (value,) * axes if isinstance(value, int) else tuple(value)


def pairs(padding: Any, axes: int) -> list[tuple[int, int]]:
    """(before, after) of each axis."""
    if not isinstance(padding, int) and isinstance(padding[0], tuple):
        return list(padding)
    if isinstance(padding, int) or len(padding) == axes:
        return [(p, p) for p in each(padding, axes)]
    return [*zip(padding[::2], padding[1::2], strict=True)][::-1]


def seen(x: np.ndarray, size: Sequence[int], stride: Any, padding: Any, dilation: Any = 1, fill: float = 0.0) -> np.ndarray:
    """(N, C, *positions, *window) of x (N, C, ...)."""
    axes = len(size)
    around, steps, gaps = pairs(padding, axes), each(stride, axes), each(dilation, axes)
    x = x[(..., *[slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape[2:], around, strict=True)])]
    x = np.pad(x, [(0, 0), (0, 0), *[(max(0, a), max(0, b)) for a, b in around]], constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(gaps, size, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, 2 + axes)))
    return view[(slice(None), slice(None), *[slice(None, None, s) for s in steps], *[slice(None, None, d) for d in gaps])]


def conv(x: np.ndarray, w: np.ndarray, b: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> np.ndarray:
    axes = w.ndim - 2
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(each(dilation, axes), w.shape[2:], strict=True)]
        padding = tuple((n // 2, n - n // 2) for n in totals)
    if x.ndim == axes + 1:
        return conv(x[None], w, b, stride, padding, dilation, groups)[0]
    patches = np.split(seen(x, w.shape[2:], stride, padding, dilation), groups, 1)
    taps = "ijk"[:axes]
    y = np.concatenate([np.einsum(f"nc...{taps},oc{taps}->no...", p, k) for p, k in zip(patches, np.split(w, groups), strict=True)], 1)
    return y if b is None else y + b.reshape(-1, *(1,) * axes)


def conv_transpose(x: np.ndarray, w: np.ndarray, b: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                   groups: int = 1, dilation: Any = 1) -> np.ndarray:
    """Each number of x times the window, added where it belongs."""
    axes = w.ndim - 2
    steps, gaps, more = (each(v, axes) for v in (stride, dilation, output_padding))
    x5 = x if x.ndim == axes + 2 else x[None]
    whole = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(x5.shape[2:], steps, gaps, w.shape[2:], strict=True)]
    around = pairs(padding, axes)
    y = np.zeros((len(x5), w.shape[1] * groups, *[n + max(0, m) for n, m in zip(whole, more, strict=True)]))
    for group, (part, window) in enumerate(zip(np.split(x5, groups, 1), np.split(w, groups), strict=True)):
        for at in np.ndindex(*x5.shape[2:]):
            place = tuple(slice(i * s, i * s + d * (k - 1) + 1, d)
                          for i, s, d, k in zip(at, steps, gaps, w.shape[2:], strict=True))
            own = slice(group * w.shape[1], (group + 1) * w.shape[1])
            y[(slice(None), own, *place)] += np.einsum("nc,co...->no...", part[(..., *at)], window)
    y = y[(..., *[slice(a, n - b + m) for n, (a, b), m in zip(whole, around, more, strict=True)])]
    y = y if b is None else y + b.reshape(-1, *(1,) * axes)
    return y if x.ndim == axes + 2 else y[0]


def spans(n: int, size: int, step: int, around: tuple[int, int], gap: int, ceil_mode: bool) -> list[tuple[list[int], int]]:
    """For each window of an axis: which places inside it sees, and how many places with the padding."""
    reach, (a, b) = gap * (size - 1) + 1, around
    count = (math.ceil if ceil_mode else math.floor)((n + a + b - reach) / step) + 1
    if ceil_mode and (count - 1) * step >= n + a:
        count -= 1
    taps = [[j * step - a + t * gap for t in range(size)] for j in range(count)]
    return [([p for p in own if 0 <= p < n], sum(p < n + b for p in own)) for own in taps]


def pooled(x: np.ndarray, axes: int, places: list[list[tuple[list[int], int]]], what: Any) -> np.ndarray:
    """what(numbers of a window as (..., n), how many places it has) for each window."""
    y = np.zeros((*x.shape[:-axes], *map(len, places)))
    for at in np.ndindex(*y.shape[-axes:]):
        own = [places[i][j] for i, j in enumerate(at)]
        window = x[(..., *np.ix_(*[p for p, _ in own]))]
        y[(..., *at)] = what(window.reshape(*x.shape[:-axes], math.prod(window.shape[-axes:])), math.prod(count for _, count in own))
    return y


def pool(axes: int, mean: bool) -> Any:
    def call(x: np.ndarray, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: Any = None) -> np.ndarray:
        size, around = each(kernel_size, axes), pairs(padding, axes)
        steps = size if stride is None else each(stride, axes)
        rows = zip(x.shape[-axes:], size, steps, around, each(dilation, axes), strict=True)
        places = [spans(*row, ceil_mode) for row in rows]
        if not mean:
            return pooled(x, axes, places, lambda w, count: w.max(-1))
        return pooled(x, axes, places, lambda w, count: w.sum(-1) / (
            divisor_override or (count if count_include_pad else w.shape[-1])))

    return call


def adaptive(axes: int, what: Any) -> Any:
    def call(x: np.ndarray, size: Any) -> np.ndarray:
        counts = [n if m is None else m for n, m in zip(x.shape[-axes:], each(size, axes), strict=True)]
        places = [[([*range(math.floor(j * n / m), math.ceil((j + 1) * n / m))], 0) for j in range(m)]
                  for n, m in zip(x.shape[-axes:], counts, strict=True)]
        return pooled(x, axes, places, lambda w, _: what(w, -1))

    return call


def lp(axes: int) -> Any:
    return lambda x, p, size, stride=None, ceil_mode=False: (
        pool(axes, True)(x**p, size, stride, 0, ceil_mode=ceil_mode) * math.prod(each(size, axes))) ** (1 / p)


def along(x: np.ndarray, axis: int, w: np.ndarray) -> np.ndarray:
    """The matrix w (results, numbers) along an axis."""
    return np.moveaxis(np.moveaxis(x, axis, -1) @ w.T, -1, axis)


def keys(x: float, a: float) -> float:
    x = abs(x)
    return (a + 2) * x**3 - (a + 3) * x**2 + 1 if x <= 1 else a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0


def resizing(n: int, m: int, scale: Any, mode: str, align: bool, antialias: bool) -> np.ndarray:
    """The matrix of an interpolation from n to m numbers."""
    step = (n - 1) / max(1, m - 1) if align else 1 / scale if scale else n / m
    j, unit = np.arange(m), np.eye(n)
    at = j * step if align else (j + 0.5) * step - 0.5
    if mode == "area":
        return np.stack([unit[i * n // m:-(-(i + 1) * n // m)].mean(0) for i in j])
    if mode.startswith("nearest"):
        return unit[np.minimum(np.floor((j + 0.5 * (mode != "nearest")) * step + 1e-9).astype(int), n - 1)]
    if antialias:
        wide = max(1.0, step)
        w = np.array([[max(0, 1 - abs(i - p) / wide) if mode == "bilinear" else keys((i - p) / wide, -0.5) for i in range(n)] for p in at])
        return w / w.sum(1, keepdims=True)
    if mode == "bicubic":
        return sum(unit[np.clip(np.floor(at).astype(int) + k, 0, n - 1)] * np.array(
            [keys(p - np.floor(p) - k, -0.75) for p in at])[:, None] for k in range(-1, 3))  # type: ignore[return-value]
    return np.stack([np.interp(at, np.arange(n), row) for row in unit], 1)


def interpolate(x: np.ndarray, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool = False,
                antialias: bool = False) -> np.ndarray:
    for axis in range(2, x.ndim):
        n = x.shape[axis]
        m = int(n * scale_factor) if size is None else each(size, x.ndim - 2)[axis - 2]
        x = along(x, axis, resizing(n, m, scale_factor, mode, align_corners, antialias))
    return x


def unfold(x: np.ndarray, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> np.ndarray:
    if x.ndim == 3:
        return unfold(x[None], kernel_size, dilation, padding, stride)[0]
    view = seen(x, each(kernel_size, 2), stride, padding, dilation).transpose(0, 1, 4, 5, 2, 3)
    return view.reshape(len(x), math.prod(view.shape[1:4]), -1)


def fold(y: np.ndarray, output_size: Any, kernel_size: Any, **options: Any) -> np.ndarray:
    """The transpose of unfold, by what it does to every unit image."""
    if y.ndim == 2:
        return fold(y[None], output_size, kernel_size, **options)[0]
    channels = y.shape[1] // math.prod(each(kernel_size, 2))
    units = np.eye(math.prod(output_size)).reshape(-1, 1, *output_size)
    columns = unfold(units, kernel_size, **options)
    return np.einsum("nctp,utp->ncu", y.reshape(len(y), channels, *columns.shape[1:]), columns).reshape(len(y), channels, *output_size)


def grid_sample(x: np.ndarray, grid: np.ndarray, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False) -> Any:
    """One place after the other; a place outside is thrown back until it is inside."""
    y = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for at in np.ndindex(len(x), *grid.shape[1:-1]):
        corners = [((), 1.0)]
        for p, n in zip(grid[at][::-1], x.shape[2:], strict=True):
            p = (p + 1) / 2 * (n - 1) if align_corners else ((p + 1) * n - 1) / 2
            low, high = (0, n - 1) if align_corners else (-0.5, n - 0.5)

            def inside(p: float, low: float = low, high: float = high, n: int = n) -> float:
                while padding_mode == "reflection" and high > low and not low <= p <= high:
                    p = 2 * low - p if p < low else 2 * high - p
                return p if padding_mode == "zeros" else min(max(p, 0), n - 1)

            if mode == "bicubic":
                near = [(round(inside(math.floor(p) + k)), keys(p % 1 - k, -0.75)) for k in range(-1, 3)]
            else:
                p = inside(p)
                near = [(round(p), 1.0)] if mode == "nearest" else [(math.floor(p), 1 - p % 1), (math.floor(p) + 1, p % 1)]
            corners = [((*c, i), w * v) for c, w in corners for i, v in near if 0 <= i < n]
        for corner, w in corners:
            y[(at[0], slice(None), *at[1:])] += w * x[(at[0], slice(None), *corner)]
    return y


def affine_grid(theta: np.ndarray, size: Any, align_corners: bool = False) -> np.ndarray:
    lines = [(2 * np.arange(n) / max(1, n - 1) - 1) * (n > 1) if align_corners else (2 * np.arange(n) + 1) / n - 1 for n in size[2:]]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(size[2:])], -1)
    return np.einsum("...k,nak->n...a", places, theta)


def pixel_shuffle(x: np.ndarray, r: int) -> np.ndarray:
    y = np.zeros((*x.shape[:-3], x.shape[-3] // r**2, x.shape[-2] * r, x.shape[-1] * r))
    for i, j in np.ndindex(r, r):
        y[..., i::r, j::r] = x[..., i * r + j::r * r, :, :]
    return y


def pixel_unshuffle(x: np.ndarray, r: int) -> np.ndarray:
    parts = [x[..., i::r, j::r] for i, j in np.ndindex(r, r)]
    return np.stack(parts, -3).reshape(*x.shape[:-3], -1, x.shape[-2] // r, x.shape[-1] // r)


def unpool(axes: int) -> Any:
    def call(x: np.ndarray, indices: np.ndarray, kernel_size: int) -> np.ndarray:
        """Of one window: all but its index is zero."""
        y = np.zeros((*x.shape[:-axes], kernel_size**axes))
        np.put_along_axis(y, indices.reshape(*x.shape[:-axes], 1), x.reshape(*x.shape[:-axes], 1), -1)
        return y.reshape(*x.shape[:-axes], *(kernel_size,) * axes)

    return call


SIZES = {1: (2, 3, 5), 2: (2, 2, 4, 5), 3: (1, 2, 3, 4, 2)}
LINE, VOLUME = ((2, 4, 9), (6, 2, 3), (6,)), ((2, 2, 4, 5, 3), (4, 2, 2, 3, 2), (4,))
WINDOW = [{}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"padding": "same"}]
TURNED = [{}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2, "output_padding": 1}]
POOLED: list[dict[str, Any]] = [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}]
AVERAGED: list[dict[str, Any]] = [*POOLED, {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
                                  {"kernel_size": 2, "stride": 3, "ceil_mode": True}]
SHAPES = {1: (2, 3, 7), 2: (2, 2, 5, 6), 3: (2, 4, 3, 5)}


SPATIAL = {
    "conv1d": case(conv, R, R, R, shapes=[((2, 4, 9), (6, 4, 3), (6,)), ((4, 9), (6, 4, 2))], attrs=WINDOW,
                   also=[(LINE, (), {"groups": 2, "padding": (2, -1)})]),
    "conv2d": case(conv, R, R, R, shapes=[((2, 2, 5, 6), (4, 2, 3, 2), (4,)), ((2, 2, 5, 6), (4, 2, 3, 2))], attrs=[
        {}, {"stride": 2}, {"padding": 1}, {"dilation": 2}, {"padding": "same"}, {"padding": (1, 2, -1, 0)},
        {"stride": (1, 2), "padding": (2, 1), "dilation": (1, 2)}],
        also=[(((2, 4, 5, 6), (6, 2, 3, 3), (6,)), (), {"groups": 2, "padding": 1}),
              (((1, 4, 3, 3), (4, 1, 1, 1)), (), {"groups": 4}),
              (((2, 3, 4), (3, 3, 2)), (), {}), (((1, 2, 3, 3, 2), (2, 2, 2, 2, 1)), (), {"padding": ((1, 0), (0, 1), (0, 0))})]),
    "conv3d": case(conv, R, R, R, shapes=[VOLUME, ((2, 4, 5, 4), (2, 2, 2, 2, 2))], attrs=[
        {}, {"stride": 2}, {"padding": 1}, {"padding": "same"}],
        also=[(((1, 4, 3, 3, 4), (2, 2, 2, 2, 2), (2,)), (), {"groups": 2, "dilation": (1, 2, 1), "stride": (1, 1, 2)})]),
    "conv_transpose1d": case(conv_transpose, R, R, R, shapes=[((2, 4, 5), (4, 3, 3), (3,)), ((4, 5), (4, 3, 2))], attrs=TURNED,
                             also=[(((2, 4, 5), (4, 3, 3), (6,)), (), {"groups": 2})]),
    "conv_transpose2d": case(conv_transpose, R, R, R, shapes=[((2, 2, 3, 4), (2, 3, 3, 2), (3,)), ((2, 3, 4), (2, 3, 2, 3))], attrs=TURNED,
                             also=[(((2, 4, 3, 2), (4, 1, 2, 3), (2,)), (), {"groups": 2, "padding": (1, 0), "stride": (2, 3)}),
                                   (((1, 2, 3), (2, 2, 2)), (), {})]),
    "conv_transpose3d": case(conv_transpose, R, R, R, shapes=[((1, 2, 3, 2, 3), (2, 2, 2, 2, 3), (2,)), ((2, 2, 3, 2), (2, 1, 3, 2, 2))],
                             attrs=TURNED, also=[(((1, 4, 2, 2, 2), (4, 1, 2, 2, 2)), (), {"groups": 2})]),
    **{f"max_pool{n}d": case(pool(n, False), shapes=[(SHAPES[n],)], attrs=[
        *POOLED, {"kernel_size": 2, "stride": 1, "dilation": 2}],
        also=[(((0, *SHAPES[n][1:]),), (), {"kernel_size": 2})]) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": case(pool(n, True), shapes=[(SHAPES[n],)], attrs=[
        *AVERAGED, *[{"kernel_size": 2, "divisor_override": 3}] * (n > 1)]) for n in (1, 2, 3)},
    **{f"lp_pool{n}d": case(lp(n), domain=(0.3, 2), shapes=[(SHAPES[n],)], args=[(2, 2), (3.0, 3, 2)], attrs=[{}, {"ceil_mode": True}])
       for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": case(adaptive(n, np.mean), shapes=[(SHAPES[n],)], args=[(1,), (2,), (3,), ((None,) * n,), (8,)])
       for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": case(adaptive(n, np.max), shapes=[(SHAPES[n],)], args=[(1,), (2,), (3,), (8,)]) for n in (1, 2, 3)},
    "interpolate": case(interpolate, shapes=[(SIZES[2],)], attrs=[
        {"size": (7, 3)}, {"scale_factor": 2.0}, {"size": (3, 8), "mode": "nearest-exact"}, {"size": (3, 8), "mode": "area"},
        {"size": (3, 8), "mode": "bilinear"}, {"scale_factor": 1.7, "mode": "bilinear"},
        {"size": 7, "mode": "bilinear", "align_corners": True},
        {"size": (3, 8), "mode": "bicubic"}, {"size": (3, 8), "mode": "bicubic", "align_corners": True},
        {"size": (2, 8), "mode": "bilinear", "antialias": True}, {"size": (2, 8), "mode": "bicubic", "antialias": True}],
        also=[((SIZES[1],), (), {"size": 8, "mode": "linear"}), ((SIZES[3],), (), {"size": (2, 5, 3), "mode": "trilinear"}),
              ((SIZES[3],), (), {"scale_factor": 2, "mode": "nearest"})]),
    "upsample": case(interpolate, shapes=[(SIZES[2],)], attrs=[{"scale_factor": 2}, {"size": 3, "mode": "bilinear"}]),
    "grid_sample": case(grid_sample, R, R, shapes=[((2, 2, 3, 4), (2, 3, 2, 2)), ((2, 2, 3, 2), (2, 2, 3, 2))], attrs=[
        {}, {"align_corners": True}, {"padding_mode": "border"}, {"padding_mode": "reflection"},
        {"padding_mode": "reflection", "align_corners": True}],
        also=[*[(((1, 1, 3, 2), (1, 2, 1, 2)), (), {"mode": "bicubic", "padding_mode": p, "align_corners": p == "border"})
                for p in ("zeros", "border", "reflection")],
              (((1, 2, 3, 2, 4), (1, 2, 2, 1, 3)), (), {}), (((1, 2, 1, 1), (1, 2, 2, 2)), (), {"padding_mode": "reflection"})]),
    "affine_grid": case(affine_grid, shapes=[((2, 2, 3),)], args=[((2, 1, 3, 4),), ((2, 1, 1, 2), True)],
                        also=[(((1, 3, 4),), ((1, 2, 2, 3, 1),), {})]),
    "unfold": case(unfold, shapes=[((2, 3, 4, 5),), ((3, 4, 5),)], args=[(2,), ((2, 3), 1, 1, 2), ((2, 1), 2)]),
    "fold": case(fold, shapes=[((2, 12, 12),)], args=[((4, 5), 2)], also=[
        (((6, 4),), ((3, 4), (2, 3)), {"padding": (0, 1), "stride": (1, 2)}), (((1, 8, 6),), ((4, 4), 2), {"dilation": (2, 1)})]),
    "pixel_shuffle": case(pixel_shuffle, shapes=[((2, 8, 2, 3),), ((4, 2, 3),)], args=[(2,), (1,)]),
    "pixel_unshuffle": case(pixel_unshuffle, shapes=[((2, 2, 4, 6),), ((3, 2, 2),)], args=[(2,), (1,)]),
    **{f"max_unpool{n}d": case(unpool(n), R, Input("ids", 0, 2**n), shapes=[((2, 2, *[1] * n),) * 2, ((3, *[1] * n),) * 2],
                               attrs=[{"kernel_size": 2}]) for n in (1, 2, 3)},
    "bilinear": case(lambda x, y, w, b=0.0: np.einsum("...i,oij,...j->...o", x, w, y) + b, R, R, R, R, shapes=[
        ((2, 3), (2, 4), (5, 3, 4), (5,)), ((3,), (2,), (1, 3, 2)), ((2, 3, 3),) * 3, ((2, 2, 3), (2, 2, 3), (2, 3, 3), (2,))]),
    **{name: case(lambda x, p=0.5, training=True: x, shapes=[shape], attrs=[{"p": 0.0}, {"p": 0.9, "training": False}]) for name, shape in {
        "dropout1d": ((2, 3, 4),), "dropout2d": ((2, 3, 2, 2),), "dropout3d": ((2, 1, 2, 2, 1),), "alpha_dropout": ((3, 4),),
        "feature_alpha_dropout": ((3, 4),)}.items()},
    "channel_shuffle": case(lambda x, g: x.reshape(len(x), g, -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape),
                            shapes=[((2, 6, 2, 3),), ((1, 6, 2),)], args=[(2,), (3,)]),
}
# Ops without a public name, and the public one whose line exercises them.
INTERNAL_OF_SPATIAL = {
    "conv2d_at_x": "conv2d", "conv2d_at_weight": "conv2d", "exchanged": "conv3d",
    "mixed": "avg_pool3d", "largest_at": "max_pool2d", "unpooled": "max_unpool2d", "sampled": "grid_sample", "spread": "grid_sample",
}
# fmt: on
