"""Grids, tensors that say where to look in images or volumes. Arguments follow PyTorch.

What counts for a place are the corners of the cell that it is in: their shares are products of polynomials, one for each axis, of how far
on in the cell the place is. Their slopes are such products, too, and so are the slopes of those: sampled() and its reverse have
derivatives of any order. The CPU has kernels for both (backend/cpu/conv/grids.py), elsewhere they are made of ops.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.indexing import placed_ids, rows_added, rows_at
from ..core.ops.pointwise import where
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import permute, reshape, transpose
from ..core.tensor import Tensor
from ..dtypes import int64, is_count
from .joining import stack
from .pools import as_floats
from .spatial_sizes import Sizes
from .widening import narrowed, widened

SHARES = {  # of each number that counts along an axis: of t, t ** 2 and t ** 3 as well (Keys 1981, a = -0.75)
    "nearest": ((1.0, 0.0, 0.0, 0.0),),
    "bilinear": ((1.0, -1.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)),
    "bicubic": ((0.0, -0.75, 1.5, -0.75), (1.0, 0.0, -2.25, 1.25), (0.0, 0.75, 1.5, -1.25), (0.0, 0.0, -0.75, 0.75)),
}
# How many numbers count along an axis; 0, 1, 2 for zeros, the border, a reflection; whether corners are aligned.
How = tuple[int, int, bool]


@composed(home="functional")
def affine_grid(theta: Any, size: Any, align_corners: bool = False) -> Any:
    """The grid for grid_sample() of an affine map of each image: places of the result, from -1 to 1, times theta.
    Shapes: theta (N, 2, 3) for size (N, C, H, W), the result (N, H, W, 2); (N, 3, 4) for (N, C, D, H, W). Raises ShapeError.
    >>> F.affine_grid(fp.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2)).tolist()
    [[[[-0.5, 0.0], [0.5, 0.0]]]]"""
    theta = Tensor.of("affine_grid", theta)
    size = tuple(size) if isinstance(size, tuple | list) else (size,)
    axes = len(size) - 2
    if axes not in (2, 3) or theta.shape != (size[0], axes, axes + 1) or not all([is_count(n, 1) for n in size]):
        raise ShapeError(f"affine_grid: theta {theta.shape} is not for size {size}. Use (N, 2, 3) for (N, C, H, W).")
    wide = widened(theta)
    grid = places_of(size, align_corners, wide.dtype, theta.device) @ transpose(wide, 1, 2)
    return narrowed(grid, theta.dtype).reshape((size[0], *size[2:], axes))


@lru_cache(256)
def places_of(size: Sizes, align_corners: bool, dtype: Any, device: Any) -> Any:
    """The places of a result of this size, each with a 1 behind it: (1, places, axes + 1)."""
    lines = [np.linspace(-1, 1, n) * (1.0 if align_corners else (n - 1) / n) if n > 1 else np.zeros(1) for n in size[2:]]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(size[2:])], -1).reshape(1, -1, len(lines) + 1)
    with device.stream.aside():  # a record of the first call would make them again and again
        return Tensor.of("affine_grid", places.astype(dtype), device)


@composed(home="functional")
def grid_sample(x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False) -> Any:
    """x at the places of a grid, whose last axis is (column, row) or (column, row, depth), from -1 to 1 over an axis of x.
    mode: "bilinear" (also for volumes), "nearest" or "bicubic" (images). padding_mode says what is outside: "zeros", "border" (the
    nearest number inside) or "reflection". align_corners: -1 and 1 are the middles of the outermost numbers, not their outer ends. Unless
    it is zeros, or the mode "bicubic", a place of NaN is -1, and an infinite one an end, as in PyTorch.
    Shapes: x (N, C, H, W) and grid (N, H', W', 2) give (N, C, H', W'); x (N, C, D, H, W) and grid (N, D', H', W', 3) likewise.
    Of "nearest" no gradient reaches the grid. Raises ShapeError, ValueError.
    >>> F.grid_sample(fp.tensor([[[[1.0, 3.0]]]]), fp.zeros(1, 1, 1, 2)).tolist()
    [[[[2.0]]]]"""
    x, grid = tensors_of("grid_sample", x, grid)
    axes = x.ndim - 2
    if axes not in (2, 3) or grid.ndim != x.ndim or grid.shape[-1] != axes or len(x) != len(grid) or min(x.shape[2:]) < 1:
        raise ShapeError(f"grid_sample: x {x.shape} and grid {grid.shape} do not fit. Use (N, C, H, W) and (N, H', W', 2).")
    modes = "bilinear", "nearest", "bicubic"
    if mode not in modes[: 5 - axes] or padding_mode not in ("zeros", "border", "reflection"):
        known = f"mode {' or '.join(map(repr, modes[: 5 - axes]))}, padding_mode 'zeros', 'border' or 'reflection'"
        raise ValueError(f"grid_sample: unknown: mode {mode!r}, padding_mode {padding_mode!r}. Use {known}.")
    wide, places = widened(as_floats(x)), widened(as_floats(grid))
    how = len(SHARES[mode]), ("zeros", "border", "reflection").index(padding_mode), bool(align_corners)
    return narrowed(around(wide, places.detach() if mode == "nearest" else places, how, (0,) * axes), x.dtype)


# ---- the op and its reverse ----------------------------------------------------------------------------------------------------------
@custom(inputs=3, internal=True, title="grid_sample")
def sampled(x, grid, shares, how=(), orders=()):
    """The numbers around each place times their shares, differentiated so often by the place on each axis."""
    y = like(x, (*x.shape[:2], *grid.shape[1:-1]))
    if y.size and x.device.samples:
        launch("grid_sample", None, (y,), (x, grid, shares), (sizes_of(x.shape, grid, how),))
    elif y.size:
        return sampled_by_ops(x, grid, how, orders)
    return y


@custom(inputs=3, internal=True, title="grid_sample")
def spread(x, grid, shares, sizes=(), how=(), orders=()):
    """The reverse: numbers at places to the numbers around those, of images of these sizes."""
    y = like(x, (*x.shape[:2], *sizes))
    if y.size and x.device.samples:
        launch("grid_spread", None, (y,), (x, grid, shares), (sizes_of(y.shape, grid, how),))
    elif y.size:
        return spread_by_ops(x, grid, sizes, how, orders)
    return y


def around(x: Any, grid: Any, how: How, orders: Sizes) -> Any:
    return sampled(x, grid, kept_shares(x.shape[2:], how, orders, x.dtype, x.device), how, orders)


def slopes(g: Any, x: Any, grid: Any, how: How, orders: Sizes) -> Any:
    """The sums over channels of g times how fast samples of x change with each number of the grid."""
    parts = [sum_op(g * around(x, grid, how, more(orders, a)), axis=1) for a in range(len(orders))]
    return stack(parts[::-1], -1)


def more(orders: Sizes, axis: int) -> Sizes:
    return tuple([n + (a == axis) for a, n in enumerate(orders)])


@sampled.differentiable
def sampled_ddx(g, x, grid, shares, wanted, how, orders):
    dx = spread(g, grid, shares, x.shape[2:], how, orders) if wanted[0] else None
    return dx, slopes(g, x, grid, how, orders) if wanted[1] else None, None


@sampled.backward
def sampled_dx(g, x, grid, shares, wanted, how, orders):
    if not (wanted[1] and g.size and x.device.samples):
        return sampled_ddx(g, x, grid, shares, wanted, how, orders)
    dgrid, axes = like(grid), len(orders)
    for a in range(axes):
        ins = g, x, grid, kept_shares(x.shape[2:], how, more(orders, axes - 1 - a), x.dtype, x.device)
        launch("grid_slopes", None, (dgrid,), ins, (sizes_of(x.shape, grid, how), a))
    return spread(g, grid, shares, x.shape[2:], how, orders) if wanted[0] else None, dgrid, None


@spread.differentiable
def spread_dx(g, x, grid, shares, wanted, sizes, how, orders):
    dx = sampled(g, grid, shares, how, orders) if wanted[0] else None
    return dx, slopes(x, g, grid, how, orders) if wanted[1] else None, None


def sizes_of(shape: Sizes, grid: Any, how: How) -> Sizes:
    axes = len(shape) - 2
    return (*shape[:2], *(1,) * (3 - axes), *shape[2:], math.prod(grid.shape[1:-1]), axes, *map(int, how))


@lru_cache(4096)
def shares_of(sizes: Sizes, how: How, orders: Sizes) -> np.ndarray:
    """For each axis four polynomials of up to t ** 3, and whether they are slopes, which turn where the place does."""
    found = np.zeros((len(sizes), 4, 5))
    for own, n, order in zip(found, sizes, orders, strict=True):
        shares = np.array(next(s for s in SHARES.values() if len(s) == how[0])).T
        for _ in range(order):
            shares = np.concatenate((shares[1:] * [[1], [2], [3]], shares[:1] * 0.0)) * ((n - 1) / 2 if how[2] else n / 2)
        own[: how[0], :4], own[:, 4] = shares.T, order % 2 if how[0] < 4 else 0
    return found


@lru_cache(4096)
def kept_shares(sizes: Sizes, how: How, orders: Sizes, dtype: Any, device: Any) -> Any:
    with device.stream.aside():  # a record of the first call would make them again and again
        shares = Tensor.of("grid_sample", shares_of(sizes, how, orders)[::-1].reshape(-1).astype(dtype), device)
    shares.buffer.fixed = True
    return shares


# ---- the same by ops -------------------------------------------------------------------------------------------------------------------
def sampled_by_ops(x: Any, grid: Any, how: How, orders: Sizes) -> Any:
    rows, y = as_rows(x), 0.0
    for ids, there, share in corners_of(grid, x.shape[2:], how, orders):
        y = where(there, rows_at(rows, ids, x.shape[1], (len(x), there.shape[1], x.shape[1])), 0.0) * share + y
    return reshape(permute(y, (0, 2, 1)), (*x.shape[:2], *grid.shape[1:-1]))


def spread_by_ops(x: Any, grid: Any, sizes: Sizes, how: How, orders: Sizes) -> Any:
    rows, y = as_rows(x), 0.0
    for ids, there, share in corners_of(grid, sizes, how, orders):
        y = rows_added(where(there, rows * share, 0.0), ids, x.shape[1], (len(x), math.prod(sizes), x.shape[1])) + y
    return reshape(permute(y, (0, 2, 1)), (*x.shape[:2], *sizes))


def as_rows(x: Any) -> Any:
    """(N, numbers, C) of (N, C, ...)."""
    return permute(reshape(x, (*x.shape[:2], math.prod(x.shape[2:]))), (0, 2, 1))


def corners_of(grid: Any, sizes: Sizes, how: How, orders: Sizes) -> Any:
    """Of each corner (row numbers, whether it is inside, its share), the latter (N, places, 1)."""
    axes, batch, count = len(sizes), len(grid), math.prod(grid.shape[1:-1])
    places, shares = reshape(grid, (batch, count, axes)), shares_of(sizes, how, orders)
    on = [on_axis(places[:, :, axes - 1 - i : axes - i], n, how, own) for i, (n, own) in enumerate(zip(sizes, shares, strict=True))]
    for corner in itertools.product(*on):
        at, there, share = corner[0]
        for n, (own, inside, factor) in zip(sizes[1:], corner[1:], strict=True):
            at, there, share = at * n + own, there.logical_and(inside), share * factor
        volume = math.prod(sizes)
        yield placed_ids(reshape(at, (at.size,)), volume, (batch, count), (volume, 0), 1), there, share


def on_axis(place: Any, n: int, how: How, shares: np.ndarray) -> list[tuple[Any, Any, Any]]:
    taps, _, align = how
    place = (place + 1.0) * ((n - 1) / 2) if align else ((place + 1.0) * n - 1.0) * 0.5
    place, slope = (place, 1.0) if taps == 4 else brought_inside(place, n, how)
    first = place.round() if taps == 1 else place.floor()
    t, found = 0.0 if taps == 1 else place - first, []
    for k, (a, b, c, d, turns) in enumerate(shares[:taps].tolist()):
        spot = first + float(k - taps // 4)
        spot = brought_inside(spot, n, how)[0] if taps == 4 else spot
        inside = spot.clamp(0.0, float(n - 1))
        found.append((cast(inside, int64), inside == spot, (((t * d + c) * t + b) * t + a) * (slope if turns else 1.0)))
    return found


def brought_inside(place: Any, n: int, how: How) -> tuple[Any, Any]:
    """(places on an axis of n numbers, those outside brought inside as the mode says, how fast they move there)."""
    _, outside, align = how
    slope = place * 0.0 + 1.0 if outside else 1.0
    if outside == 2:
        low, span = (0.0, float(n - 1)) if align else (-0.5, float(n))
        if span == 0.0:
            return where(place == 0.0, place, 0.0), 0.0
        away, slope = (place - low).abs(), (place - low).sign()
        turns = (away / span).floor()
        even, rest = (turns * 0.5).floor() * 2.0 == turns, away - turns * span
        slope, place = where(even, slope, -slope), where(even, rest + low, (span + low) - rest)
    if outside:
        slope = where((place > 0.0).logical_and(place < float(n - 1)), slope, 0.0)
        place = where(place > 0.0, place, 0.0).clamp(max=float(n - 1))
    return place, slope
