"""Pools of lines, images and volumes: maxima, means, adaptive ones, and what puts maxima back. Loops in backend/cpu/conv/pooling.py.

x is (N, C, ...) with 1 to 3 more axes, or (C, ...) for one of a batch. Maxima have one kernel, of volumes. Means of whole windows of images
have one, too; all others are sums along one axis after the other (tables.py). Arguments follow PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.creation import ones
from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import REGISTRY, launch, like
from ..core.ops.axes import composed, tensors_of, titled
from ..core.ops.indexing import check_ids
from ..core.ops.pointwise import where
from ..core.ops.reduce import mean
from ..core.tensor import Tensor
from ..dtypes import FLOATS, HALF, INTEGERS, checked_number, float32, int64, is_count
from .picking import along_added, along_at
from .spatial_sizes import Sides, Sizes, check_axes, each, published, sides, unit_axis, without_unit_axis
from .tables import through, turned
from .widening import narrowed, widened

FEW, LINES = 512, 32  # numbers of which all axes are pooled at once; lines of a window that add up in their own type


def pooled_axes(op: str, x: Any, axes: int) -> Any:
    """x as a Tensor with this many axes behind channels. Raises ShapeError."""
    x = Tensor.of(op, x)
    check_axes(op, x, axes)
    return x


def window_axes(op: str, x: Any, kernel_size: Any) -> int:
    """Along how many axes windows go: those of images also take a batch of volumes or lines with a window of as many sizes."""
    given = len(kernel_size) if isinstance(kernel_size, tuple | list) else 0
    return given if op.endswith("2d") and given in (1, 3) and getattr(x, "ndim", 0) == given + 2 else int(op[-2])


def steps_of(op: str, stride: Any, window: Sizes) -> Sizes:
    """The stride; the window unless one is given."""
    return window if stride is None or stride == () else each(op, "stride", stride, len(window), 1)


def window_counts(
    op: str, x: Sizes, window: Sizes, step: Sizes, around: Sides, gap: Sizes, ceil_mode: bool,
) -> Sizes:  # fmt: skip
    """How many windows there are along each axis; with ceil_mode one that begins in x or before it may end outside. Raises ShapeError."""
    reach = [d * (k - 1) + 1 for d, k in zip(gap, window, strict=True)]
    if any([min(side) < 0 or 2 * max(side) > r for side, r in zip(around, reach, strict=True)]):
        advice = "Pad less, or use fp.pad first"
        raise ShapeError(f"{op}: padding is more than half the window, or negative: padding {around}, window {window}. {advice}.")
    counts = []
    for n, r, s, (a, b) in zip(x[-len(window) :], reach, step, around, strict=True):
        count = (n + a + b - r + (s - 1 if ceil_mode else 0)) // s + 1
        counts.append(count - 1 if ceil_mode and (count - 1) * s >= n + a else count)
    if min(counts) < 1 or min(x[-len(window) :]) < 1:
        raise ShapeError(f"{op}: the window does not fit into x: x is {x}, window {window}, padding {around}. Use a smaller window.")
    for n, k, d, s, (a, _), count in zip(x[-len(window) :], window, gap, step, around, counts, strict=True):
        if d > n and any([not any([0 <= o * s - a + t * d < n for t in range(k)]) for o in range(count)]):
            raise ShapeError(f"{op}: a window sees nothing of x: x is {x}, dilation {gap}, padding {around}. Dilate less, or do not pad.")
    return tuple(counts)


# ---- maxima ------------------------------------------------------------------------------------------------------------------------------
@custom(name="max_pool2d", inputs=1, kind="number")
def largest(x, sizes=(), out=(), *, tracked=()):
    y = like(x, (*x.shape[: -len(out)], *out))
    positions = like(y, dtype=int64) if tracked[0] else None
    if y.size and positions is None:
        launch("max_values", None, (y,), (x,), (sizes,), dtype=x.dtype)
    elif y.size:
        launch("max_pool", None, (positions, y), (x,), (sizes,), dtype=x.dtype)
    return y, {"positions": positions}


@largest.backward
def largest_dx(g, positions, shapes, sizes):
    dx = like(g, shapes[0])
    if dx.size:
        launch("max_pool_dx", None, (dx,), (g, positions), (sizes,))
    return dx


@largest.graph
def largest_ddx(g, positions, shapes, sizes):
    return put_back(g, positions, shapes[0], sizes)


def put_back(g: Any, positions: Any, shape: Sizes, sizes: Sizes) -> Any:
    """Numbers added up at their positions in zeros of `shape`."""
    volume, count = math.prod(sizes[1:4]), math.prod(sizes[16:])
    return along_added(g, positions, volume, count, 1, shape)


@custom(inputs=1, kind="number", internal=True)
def largest_at(x, sizes=(), out=()):
    """The index of the largest number of each window in its volume."""
    positions = like(x, (*x.shape[: -len(out)], *out), int64)
    if positions.size:
        launch("max_pool", None, (positions, None), (x,), (sizes,), dtype=x.dtype)
    return positions


TITLED = {f"{kind}max_pool{n}d": titled(largest, f"{kind}max_pool{n}d") for kind in ("", "adaptive_") for n in (1, 2, 3)}
PICKED = {op: titled(along_at, op) for op in TITLED}


def maxima(op: str, x: Any, geometry: list[Sizes], return_indices: Any) -> Any:
    """geometry, of each axis: window, step, padding, dilation, number of windows; missing axes have one number."""
    axes = len(geometry[0])
    unit = [(1,) * (3 - axes) + values for values in (x.shape[-axes:], *geometry)]
    unit[3] = (0,) * (3 - axes) + geometry[2]
    sizes = (math.prod(x.shape[:-axes]), *[n for values in unit for n in values])
    if not return_indices:
        return TITLED[op](x, sizes=sizes, out=geometry[-1])
    at = largest_at(x, sizes, geometry[-1])
    volume, count = math.prod(sizes[1:4]), math.prod(sizes[16:])
    return PICKED[op](x, at, volume, count, 1, at.shape, ""), at


def max_pools(op: str) -> Any:
    def max_pool(
        x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:  # fmt: skip
        axes = window_axes(op, x, kernel_size)
        x, window = pooled_axes(op, x, axes), each(op, "kernel_size", kernel_size, axes, 1)
        step = steps_of(op, stride, window)
        gap, around = each(op, "dilation", dilation, axes, 1), sides(op, padding, axes)
        counts = window_counts(op, x.shape, window, step, around, gap, ceil_mode)
        return maxima(f"max_pool{axes}d", x, [window, step, tuple([a for a, _ in around]), gap, counts], return_indices)

    return max_pool


max_pool1d, max_pool2d, max_pool3d = published(
    max_pools,
    max_pool1d="""max_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.max_pool1d(fp.tensor([[1.0, 3.0, 2.0, 4.0]]), 2).tolist()
    [[3.0, 4.0]]""",
    max_pool2d="""The largest number of each window (padding never wins); the stride is the window's size unless given.
    A NaN wins. Of equal numbers the first one gets the gradient, as in PyTorch. padding is an int, one for each axis, or for each side:
    ((top, bottom), (left, right)) or flat (left, right, top, bottom). ceil_mode: the last window may end outside. return_indices: a pair,
    with where in its image each number was, for max_unpool2d().
    Shapes: x (N, C, H, W) or (C, H, W); the result has fewer rows and columns. Raises ShapeError.
    >>> F.max_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[4.0]]]""",
    max_pool3d="""max_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.max_pool3d(fp.ones(1, 2, 2, 2), 2).tolist()
    [[[[1.0]]]]""",
)


# ---- maxima put back ----------------------------------------------------------------------------------------------------------------
@custom(inputs=2, kind="as is", internal=True, title="max_unpool")
def unpooled(x, at, n=0, m=0, shape=()):
    total, met = (along_added(t, at, n, m, 1, shape) for t in (x, ones(x.shape, dtype=x.dtype, device=x.device)))
    return where(met > 1.0, total / met.clamp(min=1.0), total)


@unpooled.differentiable
def unpooled_dx(g, at, n, m, shapes):  # each of those that meet gets all of it, as in PyTorch: it is the same number of the pool's x
    return along_at(g, at, n, m, 1, shapes[0], ""), None


def max_unpools(op: str) -> Any:
    def max_unpool(x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None) -> Any:
        axes = window_axes(op, x, kernel_size)
        x, indices = tensors_of(op, pooled_axes(op, x, axes), indices)
        if indices.dtype not in INTEGERS or indices.shape != x.shape:
            raise ShapeError(f"{op}: indices are not those of x: {indices.dtype} {indices.shape}, x is {x.shape}. Use what max_pool gave.")
        window = each(op, "kernel_size", kernel_size, axes, 1)
        step, around = steps_of(op, stride, window), each(op, "padding", padding, axes, 0)
        usual = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[-axes:], step, around, window, strict=True)]
        given = usual if output_size is None else output_size
        sizes = tuple(given if isinstance(given, tuple | list) else (given,) * axes)[-axes:]
        if len(sizes) != axes or any([not is_count(n, 1) or abs(n - m) >= s for n, m, s in zip(sizes, usual, step, strict=True)]):
            raise ShapeError(f"{op}: output_size is out of reach: {output_size}. Use sizes less than a stride from {tuple(usual)}.")
        shape, volume = (*x.shape[:-axes], *sizes), math.prod(sizes)
        ids = indices if indices.dtype == int64 else REGISTRY["cast"](indices, int64)
        check_ids(ids, 0, volume, f"{op}: index out of range: {{}} at position {{}}, the result has {volume}. Use output_size.")
        return unpooled(as_floats(x), ids, volume, math.prod(x.shape[-axes:]), shape)

    return max_unpool


max_unpool1d, max_unpool2d, max_unpool3d = published(
    max_unpools,
    max_unpool1d="""max_unpool2d() of lines. Shapes: x and indices (N, C, L) or (C, L).
    >>> F.max_unpool1d(fp.tensor([[3.0, 4.0]]), fp.tensor([[1, 3]]), 2).tolist()
    [[0.0, 3.0, 0.0, 4.0]]""",
    max_unpool2d="""Numbers at their indices in images of zeros: what max_pool2d(..., return_indices=True) gave, put back.
    output_size: where several sizes pool to that of x. Numbers that meet (windows that overlap) give their mean.
    Shapes: x and indices (N, C, H, W) or (C, H, W); the result (..., *output_size). Raises ShapeError, IndexOutOfRange.
    >>> F.max_unpool2d(fp.tensor([[[4.0]]]), fp.tensor([[[3]]]), 2).tolist()
    [[[0.0, 0.0], [0.0, 4.0]]]""",
    max_unpool3d="""max_unpool2d() of volumes. Shapes: x and indices (N, C, D, H, W) or (C, D, H, W).
    >>> F.max_unpool3d(fp.ones(1, 1, 1, 1), fp.tensor([[[[1]]]]), (1, 1, 2)).tolist()
    [[[[0.0, 1.0]]]]""",
)


# ---- means ------------------------------------------------------------------------------------------------------------------------------
@custom(name="avg_pool2d", inputs=1)
def averaged(x, sizes=()):
    """The mean of each window of images; all windows are whole. sizes: planes, h, w, window, steps, padding, results."""
    y = like(x, (*x.shape[:-2], *sizes[9:]))
    if y.size:
        launch("avg_pool2d", None, (y,), (x,), (sizes,))
    return y


@averaged.differentiable
def averaged_dx(g, shapes, sizes):
    geometry = shapes[0][-2:], sizes[9:], sizes[3:5], sizes[5:7], sizes[7:9]  # of each axis
    kinds = [("means", n, count, k, s, a, k, "all") for n, count, k, s, a in zip(*geometry, strict=True)]
    return through(g, tuple([(g.ndim - 2 + i, turned(kind)) for i, kind in enumerate(kinds) if kind[1:4] != (1, 1, 1)]))


def avg_pool(
    op: str, x: Any, kernel_size: Any, stride: Any, padding: Any, ceil_mode: Any, count_include_pad: Any, divisor: Any = None,
) -> Any:  # fmt: skip
    axes = window_axes(op, x, kernel_size)
    x, window, around = pooled_axes(op, x, axes), each(op, "kernel_size", kernel_size, axes, 1), sides(op, padding, axes)
    step = steps_of(op, stride, window)
    counts = window_counts(op, x.shape, window, step, around, (1,) * axes, ceil_mode)
    if divisor is not None and not (is_count(divisor, -(2**31)) and divisor):
        raise ShapeError(f"{op}: divisor_override is no number of elements: {divisor!r}. Use an int other than 0.")
    rows = [*zip(x.shape[-axes:], counts, window, step, around, strict=True)]
    whole = all([(count - 1) * s + k <= n + a + b for n, count, k, s, (a, b) in rows])
    many = (axes == 1 or window[0] <= LINES) and (x.size >= FEW or x.dtype in HALF)  # or one launch does
    if axes < 3 and many and whole and divisor is None and (count_include_pad or {*around} == {(0, 0)}):
        planes, lines = math.prod(x.shape[:-axes]), axes == 1
        own = [(1,) * lines + values for values in (x.shape[-axes:], window, step, counts)]
        before = (0,) * lines + tuple([a for a, _ in around])
        sizes = (planes, *own[0], *own[1], *own[2], *before, *own[3])
        return without_unit_axis(averaged(unit_axis(x), sizes)) if lines else averaged(x, sizes)
    counted = "sum" if divisor is not None else "all" if count_include_pad else "inside"
    y = summed(x if divisor is None else widened(x), [("means", n, count, k, s, a, b, counted) for n, count, k, s, (a, b) in rows])
    return y if divisor is None else narrowed(y / divisor, x.dtype)


def summed(x: Any, kinds: list[Any]) -> Any:
    """x through a matrix of tables.py for each of its last axes, the last axis first. 16-bit floats are rounded once."""
    steps: Any = tuple([(x.ndim - i, kind) for i, kind in enumerate(kinds[::-1], start=1)])
    if len(kinds) > 1 and x.size < FEW and kinds[0][0] in ("means", "shares"):
        given, made = [tuple([kind[i] for kind in kinds]) for i in (1, 2)]
        if math.prod(made) < FEW:
            steps = ((x.ndim - len(kinds), ("joined", math.prod(given), math.prod(made), given, made, *kinds)),)
    return narrowed(through(widened(as_floats(x)), steps), x.dtype)


def as_floats(x: Any) -> Any:
    return x if x.dtype in FLOATS else REGISTRY["cast"](x, float32)


@composed(home="functional")
def avg_pool1d(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
) -> Any:  # fmt: skip
    """avg_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.avg_pool1d(fp.tensor([[1.0, 3.0, 2.0, 4.0]]), 2).tolist()
    [[2.0, 3.0]]"""
    return avg_pool("avg_pool1d", x, kernel_size, stride, padding, ceil_mode, count_include_pad)


@composed(home="functional")
def avg_pool2d(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:  # fmt: skip
    """The mean of each window; the stride is the window's size unless given.
    Padding counts as zeros unless count_include_pad is False; it is given as for max_pool2d(). ceil_mode: the last window may end outside,
    where nothing counts. divisor_override: what sums are divided by.
    Shapes: x (N, C, H, W) or (C, H, W); the result has fewer rows and columns. Raises ShapeError.
    >>> F.avg_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[2.5]]]"""
    return avg_pool("avg_pool2d", x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composed(home="functional")
def avg_pool3d(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: Any = None,
) -> Any:  # fmt: skip
    """avg_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.avg_pool3d(fp.ones(1, 2, 2, 2), 2).tolist()
    [[[[1.0]]]]"""
    return avg_pool("avg_pool3d", x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def lp_pools(op: str) -> Any:
    def lp_pool(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Any:
        x, norm_type = Tensor.of(op, x), checked_number(op, "norm_type", norm_type)
        if norm_type == 0:
            raise ValueError(f"{op}: there is no norm of power 0: norm_type={norm_type}. Use 1, 2 or another number.")
        axes = window_axes(op, x, kernel_size)
        window = each(op, "kernel_size", kernel_size, axes, 1)
        total = avg_pool(op, widened(as_floats(x)) ** norm_type, window, stride, 0, ceil_mode, True) * float(math.prod(window))
        return narrowed(total ** (1.0 / norm_type), x.dtype)

    return lp_pool


lp_pool1d, lp_pool2d, lp_pool3d = published(
    lp_pools,
    lp_pool1d="""lp_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.lp_pool1d(fp.tensor([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]""",
    lp_pool2d="""(the sum of x ** norm_type over each window) ** (1 / norm_type); where a window ends outside (ceil_mode), its mean
    counts as often as the window has numbers, as in PyTorch. Shapes: as max_pool2d().
    >>> F.lp_pool2d(fp.tensor([[[3.0, 4.0]]]), 2, (1, 2)).tolist()
    [[[5.0]]]""",
    lp_pool3d="""lp_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.lp_pool3d(fp.ones(1, 1, 1, 1), 2, 1).tolist()
    [[[[1.0]]]]""",
)


# ---- adaptive ----------------------------------------------------------------------------------------------------------------------------
def wanted_sizes(op: str, x: Any, output_size: Any) -> Sizes:
    """The result's sizes along the pooled axes; None keeps that of x. Raises ShapeError."""
    axes = int(op[-2])
    given = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * axes
    given = given * axes if len(given) == 1 else given
    if len(given) != axes or not all([n is None or is_count(n) for n in given]):
        raise ShapeError(f"{op}: output_size is not for {axes} axes: {output_size!r}. Use an int, or one (or None) for each.")
    return tuple([size if n is None else int(n) for n, size in zip(given, x.shape[-axes:], strict=True)])


def adaptive_avg_pools(op: str) -> Any:
    def adaptive_avg_pool(x: Any, output_size: Any) -> Any:
        x = as_floats(pooled_axes(op, x, int(op[-2])))
        counts = wanted_sizes(op, x, output_size)
        if {*counts} == {1}:
            return mean(x, axis=tuple(range(-len(counts), 0)), keepdims=True)
        return summed(x, [("shares", n, count) for n, count in zip(x.shape[-len(counts) :], counts, strict=True)])

    return adaptive_avg_pool


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = published(
    adaptive_avg_pools,
    adaptive_avg_pool1d="""adaptive_avg_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.adaptive_avg_pool1d(fp.tensor([[1.0, 2.0, 3.0]]), 2).tolist()
    [[1.5, 2.5]]""",
    adaptive_avg_pool2d="""Means of as many windows as output_size says, which share each axis as evenly as may be: window i of m begins
    at i n // m. Of 1 it is the global average pool.
    Shapes: x (N, C, H, W) or (C, H, W); output_size an int, or one for each axis (None: as in x). Raises ShapeError.
    >>> F.adaptive_avg_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 1).tolist()
    [[[2.5]]]""",
    adaptive_avg_pool3d="""adaptive_avg_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.adaptive_avg_pool3d(fp.ones(1, 2, 2, 2), 1).tolist()
    [[[[1.0]]]]""",
)


def adaptive_max_pools(op: str) -> Any:
    def adaptive_max_pool(x: Any, output_size: Any, return_indices: bool = False) -> Any:
        x = pooled_axes(op, x, int(op[-2]))
        counts = wanted_sizes(op, x, output_size)
        axes = len(counts)
        if min(x.shape[-axes:]) < 1:
            raise ShapeError(f"{op}: nothing to take the largest of: x is {x.shape}. Give every axis a size.")
        one, none = (1,) * axes, (0,) * axes
        return maxima(op, x, [one, none, none, one, counts], return_indices)

    return adaptive_max_pool


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = published(
    adaptive_max_pools,
    adaptive_max_pool1d="""adaptive_max_pool2d() of lines. Shapes: x (N, C, L) or (C, L).
    >>> F.adaptive_max_pool1d(fp.tensor([[1.0, 2.0, 3.0]]), 2).tolist()
    [[2.0, 3.0]]""",
    adaptive_max_pool2d="""The largest number of each of the windows of adaptive_avg_pool2d() (of 1: of all, the global max pool);
    return_indices as in max_pool2d(). Shapes: as there.
    >>> F.adaptive_max_pool2d(fp.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 1).tolist()
    [[[4.0]]]""",
    adaptive_max_pool3d="""adaptive_max_pool2d() of volumes. Shapes: x (N, C, D, H, W) or (C, D, H, W).
    >>> F.adaptive_max_pool3d(fp.ones(1, 2, 2, 2), 1).tolist()
    [[[[1.0]]]]""",
)
