"""Convolution and pooling of images: (N, C, H, W), or (C, H, W) for one image. Loops in backend/cpu/conv.

An op works out the geometry and hands it to its loops as a table. Arguments follow PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like
from ..core.ops.indexing import placed_ids, rows_added
from ..core.ops.reduce import sum as sum_op
from ..dtypes import FULL, int64, is_count
from ..engine.forms import form
from ..engine.half import together

Sizes = tuple[int, ...]
Pair = tuple[int, int]


def pair(op: str, name: str, value: Any, least: int) -> Pair:
    """An int or two of them as a pair. Raises ShapeError for anything else, or one below `least`."""
    given = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(given) != 2 or not all([is_count(n, least) for n in given]):
        raise ShapeError(f"{op}: {name} is not an int or a pair of ints >= {least}: {value!r}. Use e.g. {max(1, least)}.")
    return int(given[0]), int(given[1])


def batched(op: str, x: Sizes) -> Sizes:
    """The shape (N, C, H, W) of images of shape x, N = 1 for one image."""
    if len(x) not in (3, 4):
        raise ShapeError(f"{op}: x is not (N, C, H, W) or (C, H, W): {x}. Reshape it.")
    return x if len(x) == 4 else (1, *x)


# ---- convolution ---------------------------------------------------------------------------------------------------------------
def geometry(x: Sizes, weight: Sizes, bias: Sizes | None, stride: Any, padding: Any, dilation: Any, groups: int) -> Sizes:
    """(n, c, h, w, o, groups, kh, kw, sh, sw, ph, pw, dh, dw, rows, columns) for operands of these shapes. Raises ShapeError."""
    shape = batched("conv2d", x)
    if len(weight) != 4 or (bias is not None and bias != weight[:1]):
        given = "" if bias is None else f", bias is {bias}"
        raise ShapeError(f"conv2d: sizes differ: weight is {weight}{given}. Use weight (O, C / groups, rows, columns), bias (O,).")
    groups = pair("conv2d", "groups", groups, 1)[0]
    if shape[1] % groups or weight[0] % groups or weight[1] != shape[1] // groups:
        advice = "Weight is (O, C / groups, rows, columns)."
        raise ShapeError(f"conv2d: channels differ: x is {x}, weight is {weight}, groups {groups}. {advice}")
    steps, gaps = pair("conv2d", "stride", stride, 1), pair("conv2d", "dilation", dilation, 1)
    around = around_image(padding, weight[2:], steps, gaps)
    out = [(shape[2 + i] + 2 * around[i] - gaps[i] * (weight[2 + i] - 1) - 1) // steps[i] + 1 for i in (0, 1)]
    if min(weight[2:]) < 1 or min(out) < 1:
        raise ShapeError(f"conv2d: the window does not fit into the image: x is {x}, weight is {weight}, padding {around}. Pad more.")
    return (*shape, weight[0], groups, weight[2], weight[3], *steps, *around, *gaps, *out)


def around_image(padding: Any, window: Sizes, stride: Pair, dilation: Pair) -> Pair:
    """Padding as a pair; "valid" is none, "same" keeps the image's size."""
    if padding == "valid":
        return 0, 0
    if padding != "same":
        return pair("conv2d", "padding", padding, 0)
    total = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
    if stride != (1, 1) or total[0] % 2 or total[1] % 2:
        raise ShapeError(
            f"conv2d: padding='same' needs stride 1 and windows of odd size: stride {stride}, window {window}. Use fp.pad first."
        )
    return total[0] // 2, total[1] // 2


@form(mixes=2, only_for={"x": "weight", "weight": "x"})
@custom(inputs=3, home="functional")
def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Cross-correlation of images with weight (O, C / groups, rows, columns), plus bias (O,).

    stride, padding and dilation are ints or pairs; padding may be "valid" or "same" (odd windows, stride 1).
    Shapes: x (N, C, H, W) or (C, H, W); the result (N, O, rows, columns) or (O, rows, columns). Raises ShapeError.
    >>> F.conv2d(fp.ones(1, 3, 3), fp.ones(1, 1, 2, 2)).tolist()
    [[[4.0, 4.0], [4.0, 4.0]]]
    """
    sizes = geometry(x.shape, weight.shape, None if bias is None else bias.shape, stride, padding, dilation, groups)
    y = like(x, (*x.shape[:-3], sizes[4], *sizes[14:]), together((x, weight, bias)))
    launch("conv2d", None, (y,), (x, weight, bias), (sizes,))
    return y


@conv2d.backward
def conv2d_dx(g, x, weight, wanted, shapes, stride, padding, dilation, groups):
    sizes = geometry(shapes[0], shapes[1], None, stride, padding, dilation, groups)
    dx = like(g, shapes[0]) if wanted[0] else None
    dw = like(g, shapes[1]) if wanted[1] else None
    db = like(g, shapes[1][:1]) if wanted[2] else None
    if dx is not None:
        launch("conv2d_dx", None, (dx,), (g, weight), (sizes,))
    if dw is not None:
        launch("conv2d_dw", None, (dw, db), (g, x), (sizes,))
    elif db is not None:
        db = sum_op(g, axis=(-4, -2, -1)[4 - g.ndim :])
    return dx, dw, db


@conv2d.graph
def conv2d_ddx(g, x, weight, wanted, shapes, stride, padding, dilation, groups):
    sizes = geometry(shapes[0], shapes[1], None, stride, padding, dilation, groups)
    dx = conv2d_at_x(g, weight, shapes[0], sizes) if wanted[0] else None
    dw = conv2d_at_weight(g, x, shapes[1], sizes) if wanted[1] else None
    return dx, dw, sum_op(g, axis=(-4, -2, -1)[4 - g.ndim :]) if wanted[2] else None


# A convolution is linear in x and in weight: each of these two is what it is in one of them, turned round, and linear as well. So
# the three are each other's derivatives.
@form(takes=FULL, only_for={"dy": "weight", "weight": "dy"})
@custom(inputs=2, internal=True, title="conv2d")
def conv2d_at_x(dy, weight, shape=(), sizes=()):
    """The gradient at images of `shape` where dy arrived at the result."""
    dx = like(dy, shape)
    launch("conv2d_dx", None, (dx,), (dy, weight), (sizes,))
    return dx


@conv2d_at_x.differentiable
def conv2d_at_x_dx(g, dy, weight, wanted, shapes, sizes):
    return again(g, weight, sizes) if wanted[0] else None, conv2d_at_weight(dy, g, shapes[1], sizes) if wanted[1] else None


@form(takes=FULL, only_for={"dy": "x", "x": "dy"})
@custom(inputs=2, internal=True, title="conv2d")
def conv2d_at_weight(dy, x, shape=(), sizes=()):
    """The gradient at a weight of `shape`."""
    dw = like(dy, shape)
    launch("conv2d_dw", None, (dw, None), (dy, x), (sizes,))
    return dw


@conv2d_at_weight.differentiable
def conv2d_at_weight_dx(g, dy, x, wanted, shapes, sizes):
    return again(x, g, sizes) if wanted[0] else None, conv2d_at_x(dy, g, shapes[1], sizes) if wanted[1] else None


def again(x: Any, weight: Any, sizes: Sizes) -> Any:
    """The convolution that these sizes are of."""
    return conv2d(x, weight, None, sizes[8:10], sizes[10:12], sizes[12:14], sizes[5])


# ---- pools -----------------------------------------------------------------------------------------------------------------------
def pooled(op: str, x: Sizes, kernel_size: Any, stride: Any, padding: Any) -> Sizes:
    """(planes, h, w, kh, kw, sh, sw, ph, pw, rows, columns) for images of shape x. Raises ShapeError."""
    shape = batched(op, x)
    window, around = pair(op, "kernel_size", kernel_size, 1), pair(op, "padding", padding, 0)
    steps = window if stride is None else pair(op, "stride", stride, 1)
    if any(2 * p > k for p, k in zip(around, window, strict=True)):
        raise ShapeError(f"{op}: padding is more than half the window: padding {around}, window {window}. Pad less, or use fp.pad first.")
    out = [(shape[2 + i] + 2 * around[i] - window[i]) // steps[i] + 1 for i in (0, 1)]
    if min(out) < 1:
        given = f"x is {x}, window {window}, padding {around}"
        raise ShapeError(f"{op}: the window does not fit into the image: {given}. Use a smaller window.")
    return (shape[0] * shape[1], *shape[2:], *window, *steps, *around, *out)


@custom(inputs=1, home="functional")
def max_pool2d(x, kernel_size=None, stride=None, padding=0):
    """The largest number of each window (padding never wins); the stride is the window's size unless given.

    A NaN wins. Of equal numbers the first one gets the gradient, as in PyTorch.
    Shapes: x (N, C, H, W) or (C, H, W); the result has fewer rows and columns. Raises ShapeError.
    >>> F.max_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[4.0]]]
    """
    sizes = pooled("max_pool2d", x.shape, kernel_size, stride, padding)
    y = like(x, (*x.shape[:-2], *sizes[9:]))
    positions = like(y, dtype=int64)
    if y.size:
        launch("max_pool2d", None, (y, positions), (x,), (sizes,))
    return y, {"positions": positions}


@max_pool2d.backward
def max_pool2d_dx(g, positions, shapes, kernel_size, stride, padding):
    dx = like(g, shapes[0])
    if dx.size:
        launch("max_pool2d_dx", None, (dx,), (g, positions), (pooled("max_pool2d", shapes[0], kernel_size, stride, padding),))
    return dx


@max_pool2d.graph
def max_pool2d_ddx(g, positions, shapes):
    *planes, rows, columns = shapes[0]
    area, each = rows * columns, math.prod(g.shape[-2:])
    at = placed_ids(positions, area, (math.prod(planes), each), (area, 0), 1)
    return rows_added(g, at, 1, shapes[0])


@custom(inputs=1, home="functional")
def avg_pool2d(x, kernel_size=None, stride=None, padding=0):
    """The mean of each window, padding counted as zeros; the stride is the window's size unless given.

    Shapes: x (N, C, H, W) or (C, H, W); the result has fewer rows and columns. Raises ShapeError.
    >>> F.avg_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[2.5]]]
    """
    sizes = pooled("avg_pool2d", x.shape, kernel_size, stride, padding)
    y = like(x, (*x.shape[:-2], *sizes[9:]))
    if y.size:
        launch("avg_pool2d", None, (y,), (x,), (sizes,))
    return y


@avg_pool2d.backward
def avg_pool2d_dx(g, shapes, kernel_size, stride, padding):
    dx = like(g, shapes[0])
    if dx.size:
        sizes = pooled("avg_pool2d", shapes[0], kernel_size, stride, padding)
        launch("avg_pool2d_dx", None, (dx,), (g,), (sizes,))
    return dx


avg_pool2d.graph(lambda g, shapes, kernel_size, stride, padding: avg_pool2d_at_x(g, shapes[0], kernel_size, stride, padding))


@custom(inputs=1, internal=True, title="avg_pool2d")
def avg_pool2d_at_x(dy, shape=(), kernel_size=None, stride=None, padding=0):
    """The gradient at images of `shape`."""
    return avg_pool2d_dx(dy, (shape,), kernel_size, stride, padding)


avg_pool2d_at_x.differentiable(lambda g, kernel_size, stride, padding: avg_pool2d(g, kernel_size, stride, padding))
