"""Convolution of lines, images and volumes, and its transpose. Loops in backend/cpu/conv.

There is one kernel, for images (N, C, H, W), or (C, H, W) for one. A line is an image of one row. A volume is laid out so that what the
window sees in depth are more channels. An op works out the geometry and hands it to its loops as a table. Arguments follow PyTorch.
"""

from __future__ import annotations

from typing import Any

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like, share
from ..core.ops.axes import tensors_of
from ..core.ops.copy import cast
from ..core.ops.pointwise import add
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import permuted
from ..dtypes import FULL, HALF, float32
from ..engine.autocast import here
from ..engine.forms import form
from ..engine.half import together
from .spatial_sizes import Sides, Sizes, check_axes, each, evened, published, sides, surrounded, unit_axis, without_unit_axis
from .tables import along, turned
from .widening import widened


# ---- convolution ---------------------------------------------------------------------------------------------------------------
def geometry(x: Sizes, weight: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Sizes:
    """(n, c, h, w, o, groups, kh, kw, sh, sw, ph, pw, dh, dw, rows, columns) for operands of these shapes."""
    shape = x if len(x) == 4 else (1, *x)
    out = results(shape[2:], weight[2:], stride, [(p, p) for p in padding], dilation)
    return (*shape, weight[0], groups, *weight[2:], *stride, *padding, *dilation, *out)


def results(sizes: Any, window: Any, stride: Any, around: Any, dilation: Any) -> Sizes:
    """How many windows there are along each axis."""
    rows = zip(sizes, window, stride, around, dilation, strict=True)
    return tuple([(n + a + b - d * (k - 1) - 1) // s + 1 for n, k, s, (a, b), d in rows])


def checked(op: str, x: Any, weight: Any, bias: Any, groups: Any, outs: int = 0) -> tuple[int, int]:
    """(axes of a window, groups). outs: which axis of the weight has the channels of the result. Raises ShapeError."""
    axes = weight.ndim - 2
    if axes not in ((1, 2, 3) if op[-2:] == "2d" else (int(op[-2]),)):
        raise ShapeError(f"{op}: weight does not have {2 + int(op[-2])} axes: {weight.shape}. Use (O, C / groups, window).")
    check_axes(op, x, axes)
    groups = each(op, "groups", groups, 1, 1)[0]
    channels = x.shape[-axes - 1]
    result, seen = weight.shape[outs] * (groups if outs else 1), weight.shape[1 - outs] * (1 if outs else groups)
    if channels != seen or result % groups or channels % groups:
        advice = "Weight is (C, O / groups, window)" if outs else "Weight is (O, C / groups, window)"
        raise ShapeError(f"{op}: channels differ: x is {x.shape}, weight is {weight.shape}, groups {groups}. {advice}.")
    if bias is not None and bias.shape != (result,):
        raise ShapeError(f"{op}: sizes differ: weight is {weight.shape}, bias is {bias.shape}. Use bias ({result},).")
    return axes, groups


def around_window(op: str, padding: Any, window: Sizes, stride: Sizes, dilation: Sizes) -> Sides:
    """Padding of each axis; "valid" is none, "same" keeps sizes, with the odd one after."""
    if padding == "valid":
        return ((0, 0),) * len(window)
    if padding != "same":
        return sides(op, padding, len(window))
    if any([s != 1 for s in stride]):
        raise ShapeError(f"{op}: padding='same' needs stride 1: stride {stride}. Give the padding as numbers.")
    total = [d * (k - 1) for d, k in zip(dilation, window, strict=True)]
    return tuple([(n // 2, n - n // 2) for n in total])


@form(mixes=2, only_for={"x": "weight", "weight": "x"})
@custom(name="conv2d", inputs=3)
def convolved(x, weight, bias=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    sizes = geometry(x.shape, weight.shape, stride, padding, dilation, groups)
    y = like(x, (*x.shape[:-3], sizes[4], *sizes[14:]), together((x, weight, bias)))
    launch("conv2d", None, (y,), (x, weight, bias), (sizes,))
    return y


@convolved.backward
def conv2d_dx(g, x, weight, wanted, into, shapes, stride, padding, dilation, groups):
    sizes = geometry(shapes[0], shapes[1], stride, padding, dilation, groups)
    dx = like(g, shapes[0]) if wanted[0] else None
    dw = empty_place(g, shapes[1], into[1]) if wanted[1] else None
    db = empty_place(g, shapes[1][:1], None if dw is None else into[2]) if wanted[2] else None
    if dx is not None:
        launch("conv2d_dx", None, (dx,), (g, weight), (sizes,))
    if dw is not None:
        launch("conv2d_dw", None, (dw, db), (g, x), (sizes,))
    elif db is not None:
        db = sum_op(g, axis=(-4, -2, -1)[4 - g.ndim :])
    return dx, added(dw, into[1]), added(db, into[2])


def empty_place(g: Any, shape: Sizes, place: Any) -> Any:
    """Where a gradient is written: in its place (see `into` in engine/forms.py), unless another is there, to which it is added."""
    return place[0] if place is not None and not place[1] else like(g, shape)


def added(t: Any, place: Any) -> Any:
    """The gradient, after it was added to what is in its place."""
    if t is not None and place is not None and place[1]:
        launch("map", add.op.formula, (place[0],), (place[0], t))
    return t


@convolved.graph
def conv2d_ddx(g, x, weight, wanted, shapes, stride, padding, dilation, groups):
    sizes = geometry(shapes[0], shapes[1], stride, padding, dilation, groups)
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
    return convolved(x, weight, None, sizes[8:10], sizes[10:12], sizes[12:14], sizes[5])


# ---- what users call ---------------------------------------------------------------------------------------------------------------------
def convolutions(op: str) -> Any:
    def convolution(x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Any:
        x, weight = tensors_of(op, x, weight)
        bias = bias if bias is None else tensors_of(op, x, bias)[1]
        axes, groups = checked(op, x, weight, bias, groups)
        window, given = weight.shape[2:], x.shape
        stride, dilation = each(op, "stride", stride, axes, 1), each(op, "dilation", dilation, axes, 1)
        around = around_window(op, padding, window, stride, dilation)
        if min(window) < 1 or min(results(given[-axes:], window, stride, around, dilation)) < 1:
            raise ShapeError(f"{op}: the window does not fit into x: x is {given}, weight is {weight.shape}, padding {around}. Pad more.")
        x, same = evened(x, around)
        if axes == 1:
            y = convolved(unit_axis(x), unit_axis(weight), bias, (1, *stride), (0, *same), (1, *dilation), groups)
            return without_unit_axis(y)
        if axes == 2:
            return convolved(x, weight, bias, stride, same, dilation, groups)
        x = x if x.ndim == 5 else x.reshape((1, *x.shape))
        deep = results(x.shape[2:3], window[:1], stride[:1], [(same[0], same[0])], dilation[:1])[0]
        seen = depth_as_channels(x, ("windows", x.shape[2], deep, window[0], stride[0], same[0], dilation[0], False))
        y = convolved(seen, channels_of_depth(weight), bias, stride[1:], same[1:], dilation[1:], groups)
        return swapped(y, (x.shape[0], deep, *y.shape[1:]), (*given[:-4], y.shape[1], deep, *y.shape[2:]))

    return convolution


conv1d, conv2d, conv3d = published(
    convolutions,
    conv1d="""conv2d() of lines. Shapes: x (N, C, L) or (C, L), weight (O, C / groups, window); the result (N, O, positions).
    >>> F.conv1d(fp.tensor([[1.0, 2.0, 4.0]]), fp.tensor([[[-1.0, 1.0]]])).tolist()
    [[1.0, 2.0]]""",
    conv2d="""Cross-correlation of images with weight (O, C / groups, rows, columns), plus bias (O,).
    stride and dilation are ints or one for each axis. padding is that, too, or for each side: ((top, bottom), (left, right)), or flat
    (left, right, top, bottom); negative ones cut off. "valid" is none, "same" keeps the size (stride 1). A weight of three or five axes
    convolves lines or volumes.
    Shapes: x (N, C, H, W) or (C, H, W); the result (N, O, rows, columns) or (O, rows, columns). Raises ShapeError.
    >>> F.conv2d(fp.ones(1, 3, 3), fp.ones(1, 1, 2, 2)).tolist()
    [[[4.0, 4.0], [4.0, 4.0]]]""",
    conv3d="""conv2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W), weight (O, C / groups, depth, rows, columns).
    >>> F.conv3d(fp.ones(1, 3, 3, 2), fp.ones(1, 1, 2, 2, 2)).tolist()
    [[[[8.0], [8.0]], [[8.0], [8.0]]]]""",
)


def transposed_convolutions(op: str) -> Any:
    def conv_transpose(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
        dilation: Any = 1,
    ) -> Any:  # fmt: skip
        x, weight = tensors_of(op, x, weight)
        bias = bias if bias is None else tensors_of(op, x, bias)[1]
        axes, groups = checked(op, x, weight, bias, groups, outs=1)
        window, given = weight.shape[2:], x.shape
        stride, dilation = each(op, "stride", stride, axes, 1), each(op, "dilation", dilation, axes, 1)
        around, more = sides(op, padding, axes), each(op, "output_padding", output_padding, axes, 0)
        if any([m >= max(s, d) for m, s, d in zip(more, stride, dilation, strict=True)]):
            raise ShapeError(f"{op}: output_padding is not less than stride or dilation: {more}, {stride}, {dilation}. Use less.")
        whole = tuple([(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(given[-axes:], stride, dilation, window, strict=True)])
        sizes = tuple([n - a - b + m for n, (a, b), m in zip(whole, around, more, strict=True)])
        if min(sizes) < 1 or min(given[-axes:]) < 1:
            raise ShapeError(f"{op}: nothing is left: x is {given}, weight is {weight.shape}, padding {around}. Pad less.")
        cut = None
        if any([a != b or a < 0 or m >= s for (a, b), m, s in zip(around, more, stride, strict=True)]):
            cut = tuple([(-a, m - b) for (a, b), m in zip(around, more, strict=True)])
            sizes, around = whole, ((0, 0),) * axes
        y = spread_windows(widened(x), widened(weight), sizes, stride, tuple([a for a, _ in around]), dilation, groups)
        y = y if cut is None else surrounded(y, cut)
        y = y if bias is None else y + widened(bias).reshape((-1, *(1,) * axes))
        dtype = here.dtype or together((x, weight, bias))
        return cast(y, dtype) if y.dtype == float32 and dtype in HALF else y

    return conv_transpose


conv_transpose1d, conv_transpose2d, conv_transpose3d = published(
    transposed_convolutions,
    conv_transpose1d="""conv_transpose2d() of lines. Shapes: x (N, C, L) or (C, L), weight (C, O / groups, window).
    >>> F.conv_transpose1d(fp.tensor([[1.0, 2.0]]), fp.tensor([[[1.0, 10.0]]])).tolist()
    [[1.0, 12.0, 20.0]]""",
    conv_transpose2d="""Each number of x times the window, added up where windows overlap: what the gradient of conv2d() is to its images.
    padding cuts off so much of each side, output_padding (less than stride or dilation) adds to the end. A weight of three or five axes
    is for lines or volumes.
    Shapes: x (N, C, H, W) or (C, H, W), weight (C, O / groups, rows, columns); of the result
    H' = (H - 1) stride - 2 padding + dilation (rows - 1) + output_padding + 1. Raises ShapeError.
    >>> F.conv_transpose2d(fp.ones(1, 1, 2), fp.ones(1, 1, 2, 2)).tolist()
    [[[1.0, 2.0, 1.0], [1.0, 2.0, 1.0]]]""",
    conv_transpose3d="""conv_transpose2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W), weight (C, O / groups, depth, rows,
    columns).
    >>> F.conv_transpose3d(fp.ones(1, 1, 1, 1), fp.ones(1, 1, 1, 1, 2)).tolist()
    [[[[1.0, 1.0]]]]""",
)


def depth_as_channels(x: Any, kind: tuple[Any, ...]) -> Any:
    """(N, C, D, H, W) as images (N * results, C * window, H, W): what each window sees of the depth, a matrix for tables.along(), are
    channels."""
    n, c, size, h, w = x.shape
    _, _, deep, window, step, before, gap, _ = kind
    same = before == 0 and (window == step == 1 or (window == size and deep == gap == 1))  # all see what there is, once
    return swapped(x if same else along(x, 2, kind), (n, c, deep, window, h, w), (n * deep, c * window, h, w))


def swapped(x: Any, shape: Sizes, result: Sizes) -> Any:
    """x in this shape with the second and the third axis exchanged, as a tensor of the shape `result`."""
    return exchanged(x, shape, result) if shape[1] > 1 and shape[2] > 1 else x.reshape(result)


@custom(inputs=1, kind="as is", title="permute", internal=True)
def exchanged(x, shape=(), result=()):
    return share(permuted.body(share(x, shape), (0, 2, 1, *range(3, len(shape)))), result)


exchanged.differentiable(lambda g, shapes, shape: exchanged(g, (shape[0], shape[2], shape[1], *shape[3:]), shapes[0]))


def channels_of_depth(weight: Any) -> Any:
    a, b, deep, *window = weight.shape
    return weight.reshape((a, b * deep, *window))


def spread_windows(x: Any, weight: Any, sizes: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int) -> Any:
    """The transposed convolution to images of `sizes`, without bias."""
    axes, outs = len(sizes), weight.shape[1] * groups
    if axes == 1:
        line = spread_windows(unit_axis(x), unit_axis(weight), (1, *sizes), (1, *stride), (0, *padding), (1, *dilation), groups)
        return without_unit_axis(line)
    if axes == 2:
        shape = (*x.shape[:-3], outs, *sizes)
        batch = (1, *shape)[-4:] if x.ndim == 3 else shape
        numbers = (*batch, x.shape[-3], groups, *weight.shape[2:], *stride, *padding, *dilation, *x.shape[-2:])
        return conv2d_at_x(x, weight, shape, numbers)
    n, c, deep, h, w = x.shape if x.ndim == 5 else (1, *x.shape)
    images = swapped(x, (n, c, deep, h, w), (n * deep, c, h, w))
    y = spread_windows(images, channels_of_depth(weight), sizes[1:], stride[1:], padding[1:], dilation[1:], groups)
    window = weight.shape[2]
    y = swapped(y, (n, deep, outs, window, *sizes[1:]), (n, outs, deep * window, *sizes[1:]))
    y = along(y, 2, turned(("windows", sizes[0], deep, window, stride[0], padding[0], dilation[0], False)))
    return y if x.ndim == 5 else y.reshape(y.shape[1:])
