"""How near vectors are: distances and cosines, and the losses of pairs and triples. Composed of ops."""

from __future__ import annotations

import math
from typing import Any

from ..backend.formula.row_words import lane, lanes
from ..core import op
from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.inputs import common_dtype, common_shape
from ..core.op import like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.pointwise import abs_op, add, div, eq, maximum_op, minimum_op, mul, square, sub, where
from ..core.ops.reduce import max as max_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import broadcast_to, reshape, transpose
from ..core.tensor import Tensor
from ..core.words import abs, maximum, select, sqrt
from ..dtypes import checked_number, float32, is_number
from .losses import reduced
from .margins import shortfall
from .powers import pow as power
from .reduce_more import floats_only
from .rounding import clamp
from .rows import over_rows
from .variance import root
from .widening import narrowed, widened


def vectors(name: str, *given: Any) -> tuple[list[Any], Any]:
    """These to be computed with, and the type that the result gets."""
    xs = tensors_of(name, *given)
    dtype = common_dtype(name, xs, "float")
    return [widened(x if x.dtype.kind in "fV" else x.to(float32)) for x in xs], dtype


def length(x: Any, p: float, keepdims: bool = False) -> Any:
    """The p-norm of the last axis; its gradient where that is 0 is 0."""
    if p == 2:
        return root(sum_op(square(x), axis=-1, keepdims=keepdims))
    if p == 0:
        return sum_op(square(op.REGISTRY["sign"](x)), axis=-1, keepdims=keepdims)  # how many are not 0; records a zero gradient
    size = abs_op(x)
    if p == math.inf:
        return max_op(size, axis=-1, keepdims=keepdims)
    if p == 1:
        return sum_op(size, axis=-1, keepdims=keepdims)
    if p < 0:  # a number that is 0 makes it 0
        return power(sum_op(power(size, p), axis=-1, keepdims=keepdims), 1 / p)
    none = eq(x, 0)
    total = sum_op(where(none, 0.0, power(where(none, 1.0, size), p)), axis=-1, keepdims=keepdims)
    none = eq(total, 0)
    return where(none, 0.0, power(where(none, 1.0, total), 1 / p))


@composed(home="functional")
def pairwise_distance(x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    """The p-norm of x1 - x2 + eps along the last axis.
    Shapes: any two that broadcast; the last axis goes unless keepdim. Raises ShapeError.
    >>> round(F.pairwise_distance(fp.tensor([[0.0, 0.0]]), [[3.0, 4.0]]).item(), 3)
    5.0"""
    name = "pairwise_distance"
    (x1, x2), dtype = vectors(name, x1, x2)
    apart = add(sub(x1, x2), checked_number(name, "eps", eps))
    return narrowed(length(apart, checked_number(name, "p", p), keepdim), dtype)


@composed(home="functional")
def cosine_similarity(x1: Any, x2: Any, axis: int = 1, eps: float = 1e-8) -> Any:
    """The sum of x1 x2 along an axis, divided by the length of each, which counts as eps at least.
    Shapes: any two that broadcast; the axis goes. Raises IndexOutOfRange for an axis that is not there.
    >>> round(F.cosine_similarity(fp.tensor([[1.0, 0.0]]), [[1.0, 1.0]]).item(), 4)
    0.7071"""
    (x1, x2), dtype = vectors("cosine_similarity", x1, x2)
    eps = checked_number("cosine_similarity", "eps", eps)
    shape = common_shape("cosine_similarity", (x1.shape, x2.shape))
    unit = []
    for x in (broadcast_to(x1, shape), broadcast_to(x2, shape)):
        unit.append(div(x, maximum_op(root(sum_op(square(x), axis=axis, keepdims=True)), eps)))
    return narrowed(sum_op(mul(*unit), axis=axis), dtype)


# ---- distances ---------------------------------------------------------------------------------------------------------------------
def distance_row(r, y, a, b, one, top, n, d, rows, cols):
    """Distances of one point from `cols` others, which lie turned, (d, cols), as many for each n points; four numbers of each at once."""
    y, a, b = y[r * cols : r * cols + cols], a[r * d : r * d + d], b[r // n * d * cols : (r // n + 1) * d * cols]
    for j in range(lane(), cols, lanes()):
        y[j] = 0.0
    for k in range(0, d // 4 * 4, 4):
        b0, b1, b2, b3 = b[k * cols :], b[(k + 1) * cols :], b[(k + 2) * cols :], b[(k + 3) * cols :]
        for j in range(lane(), cols, lanes()):
            two = joined(gap(a[k] - b0[j], one), gap(a[k + 1] - b1[j], one), top)
            more = joined(gap(a[k + 2] - b2[j], one), gap(a[k + 3] - b3[j], one), top)
            y[j] = joined(y[j], joined(two, more, top), top)
    for k in range(d // 4 * 4, d):
        b0 = b[k * cols :]
        for j in range(lane(), cols, lanes()):
            y[j] = joined(y[j], gap(a[k] - b0[j], one), top)
    for j in range(lane(), cols if one is None else 0, lanes()):
        y[j] = sqrt(y[j])


def distance_dx_row(r, dx, a, b, w, one, n, m, rows, cols):
    """The sum of w[j] times the slope of the distance from each of m points b[j], for one of n points."""
    dx, a, w = dx[r * cols : r * cols + cols], a[r * cols : r * cols + cols], w[r * m : r * m + m]
    b = b[r // n * m * cols : (r // n + 1) * m * cols]
    for k in range(lane(), cols, lanes()):
        dx[k] = 0.0
    for j in range(0, m // 4 * 4, 4):
        b0, b1, b2, b3 = b[j * cols :], b[(j + 1) * cols :], b[(j + 2) * cols :], b[(j + 3) * cols :]
        for k in range(lane(), cols, lanes()):
            two = w[j] * slope(a[k] - b0[k], one) + w[j + 1] * slope(a[k] - b1[k], one)
            dx[k] += two + (w[j + 2] * slope(a[k] - b2[k], one) + w[j + 3] * slope(a[k] - b3[k], one))
    for j in range(m // 4 * 4, m):
        b0 = b[j * cols :]
        for k in range(lane(), cols, lanes()):
            dx[k] += w[j] * slope(a[k] - b0[k], one)


def gap(v, one):
    return v * v if one is None else abs(v)


def joined(u, v, top):
    return u + v if top is None else maximum(u, v)


def slope(v, one):
    return v if one is None else select(v > 0.0, 1.0, select(v < 0.0, -1.0, v))


@custom(inputs=2, kind="as is", title="cdist", internal=True)
def distances(a, b, one=None, top=None):
    """cdist() of (s, n, d) and (s, m, d) in the 2-norm, or where `one` is a number the 1-norm; with `top`, too, p is infinity."""
    y = like(a, (*a.shape[:2], b.shape[1]))
    over_rows(distance_row, (y,), (a, transpose(b), one, top), y.shape[2], a.shape[1:])
    return y


@distances.backward
def distances_dx(g, a, b, y, wanted, one, top):
    if top:
        return distances_ddx(g, a, b, y, one, top)
    w, (n, m) = g if one else div(g, where(eq(y, 0.0), 1.0, y)), y.shape[1:]
    dx = [like(x) if want else None for x, want in zip((a, b), wanted, strict=True)]
    if wanted[0]:
        over_rows(distance_dx_row, dx[:1], (a, b, w, one), a.shape[2], (n, m))
    if wanted[1]:
        over_rows(distance_dx_row, dx[1:], (b, a, transpose(w), one), a.shape[2], (m, n))
    return tuple(dx)


@distances.graph
def distances_ddx(g, a, b, y, one, top):
    """Coordinates come before the points here, whose rows are long. Those as far apart as the farthest share the gradient equally."""
    (s, n, size), m = a.shape, b.shape[1]
    d = sub(reshape(transpose(a), (s, size, n, 1)), reshape(transpose(b), (s, size, 1, m)))
    far = eq(abs_op(d), reshape(y, (s, 1, n, m))).to(y.dtype) if top else 1.0
    w = div(g, sum_op(far, axis=1)) if top else g if one else div(g, where(eq(y, 0.0), 1.0, y))
    each = mul(reshape(w, (s, 1, n, m)), mul(far, d.sign()) if one else d)
    return transpose(sum_op(each, axis=3)), transpose(mul(sum_op(each, axis=2), -1.0))


@composed
def cdist(a: Any, b: Any, p: float = 2.0) -> Any:
    """Distances of each point of a from each of b in the p-norm, p from 0 (how many numbers differ) to infinity; the gradient where two are
    equal is 0. Differences are made one by one: nothing cancels. Unless p is 1, 2 or infinity there are (..., n, m, d) of them at once.
    Shapes: (..., n, d), (..., m, d) give (..., n, m); leading axes broadcast. Raises ShapeError, ValueError for p below 0.
    >>> fp.cdist(fp.tensor([[0.0, 0.0]]), fp.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]"""
    a, b = [floats_only("cdist", x) for x in tensors_of("cdist", a, b)]
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: points do not fit: {a.shape} and {b.shape}. Use (..., n, d) and (..., m, d).")
    if not is_number(p) or not p >= 0:
        raise ValueError(f"cdist: no norm: p={p!r}. Use a number of 0 or more, or infinity.")
    dtype, (a, b) = common_dtype("cdist", (a, b), "float"), [widened(x) for x in (a, b)]
    if p in (1, 2, math.inf) and a.size and b.size:
        lead = common_shape("cdist", (a.shape[:-2], b.shape[:-2]))
        stacks = [reshape(broadcast_to(x, (*lead, *x.shape[-2:])), (-1, *x.shape[-2:])) for x in (a, b)]
        y = distances(*stacks, None if p == 2 else 1.0, 1.0 if p == math.inf else None)
        return narrowed(reshape(y, (*lead, *y.shape[1:])), dtype)
    d = sub(reshape(a, (*a.shape[:-1], 1, a.shape[-1])), reshape(b, (*b.shape[:-2], 1, *b.shape[-2:])))
    return narrowed(length(d, p if d.shape[-1] else 1), dtype)


# ---- losses ----------------------------------------------------------------------------------------------------------------------------
@composed(home="functional")
def cosine_embedding_loss(x1: Any, x2: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1.
    Shapes: x1 and x2 (rows, width) or (width,), target (rows,) or ().
    >>> F.cosine_embedding_loss(fp.tensor([[1.0, 0.0]]), fp.tensor([[1.0, 0.0]]), [-1]).item()
    1.0"""
    name = "cosine_embedding_loss"
    (x1, x2), dtype = vectors(name, x1, x2)
    target, eps = Tensor.of(name, target, x1.device), 1e-12  # added to squares, as in PyTorch
    lengths = mul(add(sum_op(square(x1), axis=-1), eps), add(sum_op(square(x2), axis=-1), eps))
    cosine = div(sum_op(mul(x1, x2), axis=-1), root(lengths))
    apart = clamp(sub(cosine, checked_number(name, "margin", margin)), min=0.0)
    losses = add(where(eq(target, 1), sub(1.0, cosine), 0.0), where(eq(target, -1), apart, 0.0))
    return reduced(name, losses, reduction, dtype)


@composed(home="functional")
def contrastive_loss(x1: Any, x2: Any, target: Any, *, margin: float = 1.0, reduction: str = "mean") -> Any:
    """d^2 / 2 where the target is 1, a pair that belongs together; max(0, margin - d)^2 / 2 where it is 0. d = |x1 - x2|.
    Hadsell, Chopra & LeCun 2006, whose Y is 1 - target. Shapes: x1 and x2 (..., width), target (...).
    >>> F.contrastive_loss(fp.tensor([[0.0], [0.0]]), [[2.0], [0.5]], [1, 0], reduction="none").tolist()
    [2.0, 0.125]"""
    name = "contrastive_loss"
    (x1, x2, target), dtype = vectors(name, x1, x2, target)
    d = length(sub(x1, x2), 2)
    apart = square(shortfall(d, checked_number(name, "margin", margin)))
    losses = mul(add(mul(target, square(d)), mul(sub(1.0, target), apart)), 0.5)
    return reduced(name, losses, reduction, dtype)


@composed(home="functional")
def triplet_margin_loss(
    anchor: Any, positive: Any, negative: Any, *, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """max(0, margin + d(anchor, positive) - d(anchor, negative)), d as in pairwise_distance (Schroff et al. 2015, arXiv:1503.03832).
    `swap`: the negative is as near as it is to the anchor or to the positive (Balntas et al. 2016).
    Shapes: three of (..., width) that broadcast.
    >>> round(F.triplet_margin_loss(fp.tensor([[0.0]]), [[1.0]], [[1.5]]).item(), 3)
    0.5"""
    return triplet("triplet_margin_loss", anchor, positive, negative, lambda a, b: pairwise_distance(a, b, p, eps), margin, swap, reduction)


@composed(home="functional")
def triplet_margin_with_distance_loss(
    anchor: Any, positive: Any, negative: Any, *, distance_function: Any = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Any:  # fmt: skip
    """triplet_margin_loss with a distance of your own, a function of two tensors.
    Shapes: what the function takes.
    >>> F.triplet_margin_with_distance_loss(fp.tensor([0.0]), [1.0], [1.5], distance_function=lambda a, b: (a - b).abs()).item()
    0.5"""
    d = distance_function or pairwise_distance
    return triplet("triplet_margin_with_distance_loss", anchor, positive, negative, d, margin, swap, reduction)


def triplet(name: str, anchor: Any, positive: Any, negative: Any, d: Any, margin: float, swap: bool, reduction: str) -> Any:
    (anchor, positive, negative), dtype = vectors(name, anchor, positive, negative)
    margin = checked_number(name, "margin", margin)
    if not margin > 0:
        raise ValueError(f"{name}: margin must be positive: {margin}. Use a positive number.")
    far = d(anchor, negative)
    far = minimum_op(far, d(positive, negative)) if swap else far
    return reduced(name, clamp(add(sub(d(anchor, positive), far), margin), min=0.0), reduction, dtype)
