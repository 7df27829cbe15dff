"""Images of other sizes, lines and volumes too: interpolation, along one axis after the other, by matrices of tables.py. Arguments follow
PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.dtypes import check_flag
from ..core.errors import ShapeError
from ..core.op import PUBLIC
from ..core.ops.axes import composed
from ..core.ops.copy import cast
from ..core.tensor import Tensor
from ..dtypes import FLOATS, float32, is_count, is_number
from .picking import index_select
from .pools import summed
from .spatial_sizes import Sizes
from .tables import along, table_of

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
    [[[1.0, 1.5, 2.5, 3.0]]]"""
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
        return PUBLIC[f"adaptive_avg_pool{axes}d"](x, after)
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
