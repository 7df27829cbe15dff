"""Windows of images as columns and back, channels as pixels and back: the numbers of images in another order. Arguments follow PyTorch."""

from __future__ import annotations

import math
from typing import Any

from ..core.errors import ShapeError
from ..core.ops.axes import composed
from ..core.ops.shape import permute
from ..core.tensor import Tensor
from ..dtypes import is_count
from .conv import results
from .pools import as_floats, summed
from .spatial_sizes import Sizes, each
from .tables import turned


def window_kinds(op: str, sizes: Sizes, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> tuple[Sizes, Sizes, list[Any]]:
    """(window, positions, matrices that lay windows out along each axis). Raises ShapeError."""
    window, gap = each(op, "kernel_size", kernel_size, 2, 1), each(op, "dilation", dilation, 2, 1)
    before, step = each(op, "padding", padding, 2, 0), each(op, "stride", stride, 2, 1)
    counts = results(sizes, window, step, [(p, p) for p in before], gap)
    if min(counts) < 1:
        raise ShapeError(f"{op}: the window does not fit: sizes {sizes}, window {window}, padding {before}. Pad more.")
    rows = zip(sizes, counts, window, step, before, gap, strict=True)
    return window, counts, [("windows", *row, True) for row in rows]


@composed(home="functional")
def unfold(x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Each window of images as a column (im2col). Shapes: x (N, C, H, W) gives (N, C * rows * columns, positions); without N likewise.
    >>> F.unfold(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), (2, 1)).tolist()
    [[1.0, 2.0], [3.0, 4.0]]"""
    x = as_floats(Tensor.of("unfold", x))
    if x.ndim not in (3, 4):
        raise ShapeError(f"unfold: x is not (N, C, H, W) or (C, H, W): {x.shape}. Reshape it.")
    (kh, kw), (rows, columns), kinds = window_kinds("unfold", x.shape[-2:], kernel_size, dilation, padding, stride)
    y = summed(x, kinds).reshape((-1, kh, rows, kw, columns))
    y = permute(y, (0, 1, 3, 2, 4))
    return y.reshape((*x.shape[:-3], x.shape[-3] * kh * kw, rows * columns))


@composed(home="functional")
def fold(x: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """Columns added up where they were in images of output_size, the transpose of unfold().
    Shapes: x (N, C * rows * columns, positions) or without N; the result (N, C, *output_size). Raises ShapeError.
    >>> F.fold(fp.ones(2, 2), (1, 3), (1, 2)).tolist()
    [[[1.0, 2.0, 1.0]]]"""
    x = as_floats(Tensor.of("fold", x))
    sizes = each("fold", "output_size", output_size, 2, 1)
    (kh, kw), (rows, columns), kinds = window_kinds("fold", sizes, kernel_size, dilation, padding, stride)
    if x.ndim not in (2, 3) or x.shape[-2] % (kh * kw) or x.shape[-1] != rows * columns:
        wanted = f"(N, C * {kh * kw}, {rows * columns})"
        raise ShapeError(f"fold: x does not have these windows: {x.shape}, expected {wanted}. Use what unfold() gave.")
    shape = (*x.shape[:-2], x.shape[-2] // (kh * kw))
    y = permute(x.reshape((math.prod(shape), kh, kw, rows, columns)), (0, 1, 3, 2, 4))
    return summed(y.reshape((*shape, kh * rows, kw * columns)), [turned(kind) for kind in kinds])


def factor_of(op: str, x: Any, factor: Any) -> Any:
    """x as a Tensor with channels, rows and columns; the factor is one. Raises ShapeError."""
    x = Tensor.of(op, x)
    if not is_count(factor, 1):
        raise ShapeError(f"{op}: no factor: {factor!r}. Use an int >= 1.")
    if x.ndim < 3:
        raise ShapeError(f"{op}: x is not (..., C, H, W): {x.shape}. Reshape it.")
    return x


@composed(home="functional")
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    """Channels as pixels. Shapes: (..., C r r, H, W) gives (..., C, H r, W r), else ShapeError (Shi et al. 2016).
    >>> F.pixel_shuffle(fp.tensor([[[1.0]], [[2.0]], [[3.0]], [[4.0]]]), 2).tolist()
    [[[1.0, 2.0], [3.0, 4.0]]]"""
    x, r = factor_of("pixel_shuffle", x, upscale_factor), upscale_factor
    (*lead, channels, h, w), rest = x.shape, x.shape[-3] % (r * r)
    if rest:
        raise ShapeError(f"pixel_shuffle: channels are no multiple of {r} * {r}: {x.shape}. Use another factor.")
    y = permute(x.reshape((math.prod(lead) * (channels // (r * r)), r, r, h, w)), (0, 3, 1, 4, 2))
    return y.reshape((*lead, channels // (r * r), h * r, w * r))


@composed(home="functional")
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    """Pixels as channels, the reverse of pixel_shuffle(). Shapes: (..., C, H r, W r) gives (..., C r r, H, W), else ShapeError.
    >>> F.pixel_unshuffle(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[1.0]], [[2.0]], [[3.0]], [[4.0]]]"""
    x, r = factor_of("pixel_unshuffle", x, downscale_factor), downscale_factor
    *lead, channels, h, w = x.shape
    if h % r or w % r:
        raise ShapeError(f"pixel_unshuffle: rows and columns are no multiples of {r}: {x.shape}. Use another factor.")
    y = permute(x.reshape((math.prod(lead) * channels, h // r, r, w // r, r)), (0, 2, 4, 1, 3))
    return y.reshape((*lead, channels * r * r, h // r, w // r))


@composed(home="functional")
def channel_shuffle(x: Any, groups: int) -> Any:
    """Channels dealt out anew, one of each group after the other. Shapes: (N, C, ...) with C a multiple of groups, else ShapeError.
    >>> F.channel_shuffle(fp.tensor([[[1.0], [2.0], [3.0], [4.0]]]), 2).tolist()
    [[[1.0], [3.0], [2.0], [4.0]]]"""
    x = Tensor.of("channel_shuffle", x)
    if not is_count(groups, 1) or x.ndim < 3 or x.shape[1] % groups:
        raise ShapeError(f"channel_shuffle: no groups of equal size: {groups!r} of x {x.shape}. Use a divisor of the channels.")
    n, channels, *rest = x.shape
    return permute(x.reshape((n, groups, channels // groups, math.prod(rest))), (0, 2, 1, 3)).reshape(x.shape)
