"""Images of other sizes and places: interpolation, and grids that say where to look. Lines and volumes too. Arguments follow PyTorch.

Interpolation goes along one axis after the other, by matrices of tables.py. A grid is a tensor that gradients reach, so grid_sample() is
made of ops: for each corner of the cell that a place is in, rows picked from x, times how near the corner is.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ..core.dtypes import check_flag
from ..core.errors import ShapeError
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.indexing import placed_ids, rows_at
from ..core.ops.pointwise import where
from ..core.ops.shape import permute
from ..core.tensor import Tensor
from ..dtypes import FLOATS, float32, int64, is_count, is_number
from .picking import index_select
from .pools import adaptive_avg, summed
from .spatial_sizes import Sizes
from .tables import along, far, near, table_of
from .widening import narrowed, widened

LINEAR = {"linear": None, "bilinear": 2, "trilinear": 3}  # along how many axes
MODES = ("nearest", "nearest-exact", *LINEAR, "bicubic", "area")


# ---- interpolation -------------------------------------------------------------------------------------------------------------------
@composed(home="functional")
def interpolate(
    x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
    recompute_scale_factor: Any = None, antialias: bool = False,
) -> Any:  # fmt: skip
    """x with other sizes of its last axes: `size`, or its own times scale_factor.

    mode: "nearest" (rounds down), "nearest-exact", "linear" along every axis ("bilinear" and "trilinear" are its names for images and
    volumes), "bicubic" (images), "area" (means). align_corners: the outermost numbers stay where they are. antialias (bilinear, bicubic):
    weights as wide as what a result covers. Integers are rounded. As in PyTorch a given scale_factor is the scale of places, too, unless
    recompute_scale_factor.
    Shapes: x (N, C, ...) with one to three more axes; the result has these of the wanted size. Raises ShapeError, ValueError.
    >>> F.interpolate(fp.tensor([[[1.0, 3.0]]]), scale_factor=2, mode="linear", align_corners=False).tolist()
    [[[1.0, 1.5, 2.5, 3.0]]]
    """
    x = Tensor.of("interpolate", x)
    axes = x.ndim - 2
    if axes not in (1, 2, 3):
        raise ShapeError(f"interpolate: x is not (N, C, ...) with one to three more axes: {x.shape}. Reshape it.")
    check_mode(mode, axes, align_corners, antialias)
    before = x.shape[2:]
    after, scales = sizes_and_scales(before, size, scale_factor, recompute_scale_factor)
    if min(before) < 1 or min(after) < 1:
        raise ShapeError(f"interpolate: nothing to look at or to make: sizes {before} to {after}. Give every axis a size.")
    if mode == "area":
        return adaptive_avg(f"adaptive_avg_pool{axes}d", x, after)
    steps = [
        (1.0 / s) if s else ((n - 1) / (m - 1) if m > 1 else 0.0) if align_corners else n / m
        for n, m, s in zip(before, after, [None] * axes if align_corners else scales, strict=True)
    ]
    rows = [*zip(before, after, steps, strict=True)]
    if mode.startswith("nearest"):
        kinds: list[Any] = [("nearest", n, m, step, mode == "nearest-exact") for n, m, step in rows]
        return summed(x, kinds) if x.dtype in FLOATS else picked(x, kinds)
    name = "cubic" if mode == "bicubic" else "linear"
    if antialias:
        kinds = [("smooth", n, m, step, name) for n, m, step in rows]
    else:
        kinds = [(name, n, m, step, bool(align_corners)) for n, m, step in rows]
    return summed(x, kinds) if x.dtype in FLOATS else rounded_sums(x, kinds)


def check_mode(mode: Any, axes: int, align_corners: Any, antialias: Any) -> None:
    if mode not in MODES:
        raise ValueError(f"interpolate: unknown mode: {mode!r}. Use one of {', '.join(MODES)}.")
    if (LINEAR.get(mode) or axes) != axes or (mode == "bicubic" and axes != 2):
        raise ValueError(f"interpolate: {mode} is not for {axes} axes. Use mode='linear', which is along every axis.")
    if align_corners is not None and mode not in LINEAR and mode != "bicubic":
        raise ValueError(f"interpolate: mode {mode!r} has no corners to align: align_corners={align_corners!r}. Leave it out.")
    check_flag("interpolate", "align_corners", bool(align_corners) if align_corners is None else align_corners)
    if antialias and (mode not in ("bilinear", "bicubic")):
        raise ValueError(f"interpolate: mode {mode!r} knows no antialias. Use mode='bilinear' or 'bicubic'.")


def sizes_and_scales(before: Sizes, size: Any, scale_factor: Any, recompute: Any) -> tuple[Sizes, list[Any]]:
    """(wanted sizes, for each axis the scale that was given or None). Raises ShapeError, ValueError."""
    axes = len(before)
    if (size is None) == (scale_factor is None):
        raise ValueError(f"interpolate: needs either size or scale_factor: {size!r}, {scale_factor!r}. Give one of them.")
    if size is not None:
        if recompute:
            raise ValueError("interpolate: recompute_scale_factor needs scale_factor: a size was given. Leave it out.")
        given = tuple(size) if isinstance(size, tuple | list) else (size,) * axes
        if len(given) != axes or not all([is_count(n, 1) for n in given]):
            raise ShapeError(f"interpolate: size is not for {axes} axes: {size!r}. Use an int, or one for each.")
        return tuple([int(n) for n in given]), [None] * axes
    scales = list(scale_factor) if isinstance(scale_factor, tuple | list) else [scale_factor] * axes
    if len(scales) != axes or not all([is_number(s) and 0 < s < math.inf for s in scales]):
        raise ShapeError(f"interpolate: scale_factor is not for {axes} axes: {scale_factor!r}. Use a positive number, or one for each.")
    scales = [float(s) for s in scales]
    return tuple([math.floor(n * s) for n, s in zip(before, scales, strict=True)]), [None] * axes if recompute else scales


def picked(x: Any, kinds: list[Any]) -> Any:
    """Integers, which are not added up."""
    for axis, kind in enumerate(kinds, start=2):
        x = index_select(x, axis, table_of(kind).columns)
    return x


def rounded_sums(x: Any, kinds: list[Any]) -> Any:
    """Integers, with weights of 15 bits and rounded after each axis, as PyTorch's bytes are."""
    y, (low, high) = cast(x, float32), (0, 1) if x.dtype.kind == "b" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
    for axis, kind in [*enumerate(kinds, start=2)][::-1]:
        y = (along(y, axis, ("in 15 bits", kind)) + 0.5).floor().clamp(float(low), float(high))
    return cast(y, x.dtype)


@composed(home="functional")
def upsample(x: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None) -> Any:
    """interpolate() by its older name. Shapes: as there.
    >>> F.upsample(fp.tensor([[[1.0, 3.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 3.0, 3.0]]]"""
    return interpolate(x, size, scale_factor, mode, align_corners)


# ---- grids -------------------------------------------------------------------------------------------------------------------------------
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
    lines = [np.linspace(-1, 1, n) * (1.0 if align_corners else (n - 1) / n) if n > 1 else np.zeros(1) for n in size[2:]]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(size[2:])], -1).reshape(1, -1, axes + 1)
    wide = widened(theta)
    grid = Tensor.of("affine_grid", places.astype(wide.dtype), theta.device) @ wide.transpose(1, 2)
    return narrowed(grid, theta.dtype).reshape((size[0], *size[2:], axes))


@composed(home="functional")
def grid_sample(x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False) -> Any:
    """x at the places of a grid, whose last axis is (column, row) or (column, row, depth), from -1 to 1 over an axis of x.

    mode: "bilinear" (also for volumes), "nearest" or "bicubic" (images). padding_mode says what is outside: "zeros", "border" (the
    nearest number inside) or "reflection". align_corners: -1 and 1 are the middles of the outermost numbers, not their outer ends.
    Shapes: x (N, C, H, W) and grid (N, H', W', 2) give (N, C, H', W'); x (N, C, D, H, W) and grid (N, D', H', W', 3) likewise.
    Of "nearest" no gradient reaches the grid. Raises ShapeError, ValueError.
    >>> F.grid_sample(fp.tensor([[[[1.0, 3.0]]]]), fp.zeros(1, 1, 1, 2)).tolist()
    [[[[2.0]]]]
    """
    x, grid = tensors_of("grid_sample", x, grid)
    axes = x.ndim - 2
    if axes not in (2, 3) or grid.ndim != x.ndim or grid.shape[-1] != axes or len(x) != len(grid) or min(x.shape[2:]) < 1:
        raise ShapeError(f"grid_sample: x {x.shape} and grid {grid.shape} do not fit. Use (N, C, H, W) and (N, H', W', 2).")
    modes = "bilinear", "nearest", "bicubic"
    if mode not in modes[: 5 - axes] or padding_mode not in ("zeros", "border", "reflection"):
        known = f"mode {' or '.join(map(repr, modes[: 5 - axes]))}, padding_mode 'zeros', 'border' or 'reflection'"
        raise ValueError(f"grid_sample: unknown: mode {mode!r}, padding_mode {padding_mode!r}. Use {known}.")
    dtype, count = x.dtype, math.prod(grid.shape[1:-1])
    wide, places = widened(x), widened(grid).reshape((len(grid), count, axes))
    rows = permute(wide, (0, *range(2, x.ndim), 1)).reshape((len(x), math.prod(x.shape[2:]), x.shape[1]))
    corners = [corners_of(places[:, :, axes - 1 - i], x.shape[2 + i], mode, padding_mode, align_corners) for i in range(axes)]
    y = None
    for corner in itertools.product(*corners):
        part = numbers_at(rows, corner, x.shape[2:])
        y = part if y is None else y + part
    y = permute(y, (0, 2, 1)).reshape((len(x), x.shape[1], *grid.shape[1:-1]))
    return narrowed(y, dtype)


def brought_inside(place: Any, n: int, padding_mode: str, align_corners: bool) -> Any:
    """Places on an axis of n numbers, those outside brought inside as the mode says."""
    if padding_mode == "reflection":
        low, span = (0.0, float(n - 1)) if align_corners else (-0.5, float(n))
        place = reflected(place, low, span)
    return place if padding_mode == "zeros" else place.clamp(0.0, float(n - 1))


def reflected(place: Any, low: float, span: float) -> Any:
    """Places thrown back at the ends of an axis, as often as needed."""
    if span == 0.0:
        return place * 0.0
    away = (place - low).abs()
    turns = (away.detach() / span).floor()
    rest = away - turns * span
    return where((turns * 0.5).floor() * 2.0 == turns, rest + low, (span + low) - rest)


def corners_of(place: Any, n: int, mode: str, padding_mode: str, align_corners: bool) -> list[tuple[Any, Any]]:
    """(places of numbers, their weights) along an axis of n numbers, for places from -1 to 1."""
    place = (place + 1.0) * ((n - 1) / 2) if align_corners else ((place + 1.0) * n - 1.0) * 0.5
    if mode == "bicubic":  # here the numbers' places are brought inside, and not the place between them
        first = place.detach().floor()
        t, a = place - first, -0.75  # Keys 1981
        weights = far(t + 1.0, a), near(t, a), near(1.0 - t, a), far(2.0 - t, a)
        return [(brought_inside(first + (i - 1.0), n, padding_mode, align_corners), w) for i, w in enumerate(weights)]
    place = brought_inside(place, n, padding_mode, align_corners)
    if mode == "nearest":
        return [(place.detach().round(), None)]
    first = place.detach().floor()
    share = place - first
    return [(first, 1.0 - share), (first + 1.0, share)]


def numbers_at(rows: Any, corner: Any, sizes: Sizes) -> Any:
    """(N, places, C): the numbers of a corner times its weight, zeros where it is outside. rows: (N, numbers, C)."""
    at: Any = None
    weight: Any = None
    inside: Any = None
    for (place, share), n in zip(corner, sizes, strict=True):
        own = place.clamp(0.0, float(n - 1))
        there = own == place
        inside = there if inside is None else inside.logical_and(there)
        weight = share if weight is None else weight * share
        whole = cast(own, int64)
        at = whole if at is None else at * n + whole
    (batch, count, channels), places = rows.shape, at.shape[1]
    ids = placed_ids(at.reshape((-1,)), count, (batch, places), (count, 0), 1)
    seen = rows_at(rows, ids, channels, (batch, places, channels))
    seen = where(inside.reshape((batch, places, 1)), seen, 0.0)
    return seen if weight is None else seen * weight.reshape((batch, places, 1))
