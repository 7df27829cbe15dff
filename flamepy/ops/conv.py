"""Convolution and pooling of images: (N, C, H, W), or (C, H, W) for one image. Loops in backend/cpu/conv.py.

An op works out the geometry once (backend/plans.py) and hands it to its loops as a table. Arguments follow PyTorch.

May import: errors, backend, op, ops.shape. FLAME counterpart: `flame_core::ops::conv2d`. Read next: random.py.
"""

from __future__ import annotations

from typing import Any

from ..backend.plans import ConvPlan, Pair, conv2d_sizes, conv_plan, pool2d_sizes
from ..dtypes import int64
from ..errors import ShapeError
from ..op.base import launch, like
from ..op.custom import custom

Sizes = tuple[int, ...]


def pair(op: str, name: str, value: Any, least: int) -> Pair:
    """An int or two of them as a pair. Raises ShapeError for anything else, or one below `least`."""
    given = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(given) != 2 or not all(hasattr(n, "__index__") and int(n) >= least for n in given):
        raise ShapeError(f"{op}: {name} is not an int or a pair of ints >= {least}: {value!r}. Use e.g. {max(1, least)}.")
    return int(given[0]), int(given[1])


def batched(op: str, x: Any) -> Sizes:
    """The shape (N, C, H, W) of x, N = 1 for one image."""
    if x.ndim not in (3, 4):
        raise ShapeError(f"{op}: x is not (N, C, H, W) or (C, H, W): {x.shape}. Reshape it.")
    return x.shape if x.ndim == 4 else (1, *x.shape)


# ---- convolution ---------------------------------------------------------------------------------------------------------------
def geometry(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Sizes:
    """The table of conv2d's loops. Raises ShapeError when sizes do not fit together."""
    shape = batched("conv2d", x)
    if weight.ndim != 4 or (bias is not None and bias.shape != weight.shape[:1]):
        given = "" if bias is None else f", bias is {bias.shape}"
        raise ShapeError(f"conv2d: sizes differ: weight is {weight.shape}{given}. Use weight (O, C / groups, rows, columns), bias (O,).")
    groups = pair("conv2d", "groups", groups, 1)[0]
    if shape[1] % groups or weight.shape[0] % groups or weight.shape[1] != shape[1] // groups:
        raise ShapeError(
            f"conv2d: channels differ: x is {x.shape}, weight is {weight.shape}, groups {groups}. Weight is (O, C / groups, rows, columns)."
        )
    steps, gaps = pair("conv2d", "stride", stride, 1), pair("conv2d", "dilation", dilation, 1)
    around = around_image(padding, weight.shape[2:], steps, gaps)
    sizes = conv2d_sizes(shape, weight.shape, steps, around, gaps, groups)
    if min(weight.shape[2:]) < 1 or min(sizes[14:]) < 1:
        raise ShapeError(
            f"conv2d: the window does not fit into the image: x is {x.shape}, weight is {weight.shape}, padding {around}. Pad more."
        )
    return sizes


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


def scratch(x: Any, sizes: Sizes, what: str) -> tuple[ConvPlan, Any]:
    """How a pass is cut into tasks, and the memory for its columns."""
    plan = conv_plan(sizes, what)
    return plan, like(x, (plan.col,))


def multiplications(sizes: Sizes) -> int:
    return sizes[0] * sizes[14] * sizes[15] * sizes[4] * max(1, sizes[1] // sizes[5]) * sizes[6] * sizes[7]


@custom(inputs=3, home="functional")
def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """Cross-correlation of images with weight (O, C / groups, rows, columns), plus bias (O,).

    stride, padding and dilation are ints or pairs; padding may be "valid" or "same" (odd windows, stride 1).
    """
    sizes = geometry(x, weight, bias, stride, padding, dilation, groups)
    y = like(x, (*x.shape[:-3], sizes[4], *sizes[14:]))
    plan, col = scratch(x, sizes, "y")
    consts = (x.device.table(sizes), plan.tile, plan.workers, bias is not None)
    launch(
        "conv2d",
        None,
        (y, col),
        (x, weight, weight if bias is None else bias),
        consts,
        work=multiplications(sizes),
    )
    return y


@conv2d.backward
def conv2d_dx(g, x, weight, bias, wanted, stride, padding, dilation, groups):
    sizes = geometry(x, weight, None, stride, padding, dilation, groups)
    dx = dw = db = None
    if wanted[0]:
        dx = like(x)
        plan, col = scratch(x, sizes, "dx")
        consts = (x.device.table(sizes), plan.tile, plan.channels, plan.workers)
        launch("conv2d_dx", None, (dx, col), (g, weight), consts, work=multiplications(sizes))
    if wanted[1] or wanted[2]:
        dw = like(weight)
        db = like(weight, weight.shape[:1]) if wanted[2] else None
        plan, col = scratch(x, sizes, "dw")
        partial = like(x, (plan.partial,))
        consts = (x.device.table(sizes), plan.tile, plan.channels, plan.chunks, plan.workers)
        launch("conv2d_dw", None, (partial, col), (g, x), consts, work=multiplications(sizes))
        launch("conv2d_dw_sum", None, (dw, dw if db is None else db), (partial,), (plan.chunks, wanted[2]), work=plan.partial)
    return dx, dw, db


# ---- pools -----------------------------------------------------------------------------------------------------------------------
def pooled(op: str, x: Any, kernel_size: Any, stride: Any, padding: Any) -> Sizes:
    """The table of the pools' loops. Raises ShapeError when sizes do not fit together."""
    shape = batched(op, x)
    window, around = pair(op, "kernel_size", kernel_size, 1), pair(op, "padding", padding, 0)
    steps = window if stride is None else pair(op, "stride", stride, 1)
    if any(2 * p > k for p, k in zip(around, window, strict=True)):
        raise ShapeError(f"{op}: padding is more than half the window: padding {around}, window {window}. Pad less, or use fp.pad first.")
    sizes = pool2d_sizes(shape, window, steps, around)
    if min(sizes[9:]) < 1:
        raise ShapeError(
            f"{op}: the window does not fit into the image: x is {x.shape}, window {window}, padding {around}. Use a smaller window."
        )
    return sizes


@custom(inputs=1, home="functional")
def max_pool2d(x, kernel_size=None, stride=None, padding=0):
    """The largest number of each window (padding never wins); the stride is the window's size unless given.

    A NaN wins. Of equal numbers the first one gets the gradient, as in PyTorch.
    """
    sizes = pooled("max_pool2d", x, kernel_size, stride, padding)
    y = like(x, (*x.shape[:-2], *sizes[9:]))
    where = like(y, dtype=int64)
    if y.size:
        launch("max_pool2d", None, (y, where), (x,), (x.device.table(sizes),), work=y.size * sizes[3] * sizes[4])
    return y, {"where": where}


@max_pool2d.backward
def max_pool2d_dx(g, where, shapes, kernel_size, stride, padding):
    dx = like(g, shapes[0])
    if dx.size:
        launch(
            "max_pool2d_dx",
            None,
            (dx,),
            (g, where),
            (g.device.table(pooled("max_pool2d", dx, kernel_size, stride, padding)),),
        )
    return dx


@custom(inputs=1, home="functional")
def avg_pool2d(x, kernel_size=None, stride=None, padding=0):
    """The mean of each window, padding counted as zeros; the stride is the window's size unless given."""
    sizes = pooled("avg_pool2d", x, kernel_size, stride, padding)
    y = like(x, (*x.shape[:-2], *sizes[9:]))
    if y.size:
        launch("avg_pool2d", None, (y,), (x,), (x.device.table(sizes),), work=y.size * sizes[3] * sizes[4])
    return y


@avg_pool2d.backward
def avg_pool2d_dx(g, shapes, kernel_size, stride, padding):
    dx = like(g, shapes[0])
    if dx.size:
        sizes = pooled("avg_pool2d", dx, kernel_size, stride, padding)
        launch("avg_pool2d_dx", None, (dx,), (g,), (g.device.table(sizes),), work=g.size * sizes[3] * sizes[4])
    return dx
