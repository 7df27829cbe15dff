"""How near vectors are: distances and cosines, and the losses of pairs and triples. Composed of ops."""

from __future__ import annotations

import math
from typing import Any

from ..core import op
from ..core.inputs import common_dtype, common_shape
from ..core.ops.axes import composed, tensors_of
from ..core.ops.pointwise import abs_op, add, div, eq, maximum_op, minimum_op, mul, power, square, sub, where
from ..core.ops.reduce import max as max_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import broadcast_to
from ..core.tensor import Tensor
from ..dtypes import checked_number, float32
from .losses import reduced
from .margins import shortfall
from .rounding import clamp
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
    total = sum_op(where(eq(x, 0), 0.0, power(where(eq(x, 0), 1.0, size), p)), axis=-1, keepdims=keepdims)
    return where(eq(total, 0), 0.0, power(where(eq(total, 0), 1.0, total), 1 / p))


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
    given: Any = {"margin": margin, "swap": swap, "reduction": reduction}
    return triplet("triplet_margin_loss", anchor, positive, negative, lambda a, b: pairwise_distance(a, b, p, eps), **given)


@composed(home="functional")
def triplet_margin_with_distance_loss(
    anchor: Any, positive: Any, negative: Any, *, distance_function: Any = None, margin: float = 1.0,
    swap: bool = False, reduction: str = "mean",
) -> Any:  # fmt: skip
    """triplet_margin_loss with a distance of your own, a function of two tensors.
    Shapes: what the function takes.
    >>> F.triplet_margin_with_distance_loss(fp.tensor([0.0]), [1.0], [1.5], distance_function=lambda a, b: (a - b).abs()).item()
    0.5"""
    given: Any = {"margin": margin, "swap": swap, "reduction": reduction}
    return triplet("triplet_margin_with_distance_loss", anchor, positive, negative, distance_function or pairwise_distance, **given)


def triplet(name: str, anchor: Any, positive: Any, negative: Any, d: Any, margin: float, swap: bool, reduction: str) -> Any:
    (anchor, positive, negative), dtype = vectors(name, anchor, positive, negative)
    margin = checked_number(name, "margin", margin)
    if not margin > 0:
        raise ValueError(f"{name}: margin must be positive: {margin}. Use a positive number.")
    far = d(anchor, negative)
    far = minimum_op(far, d(positive, negative)) if swap else far
    return reduced(name, clamp(add(sub(d(anchor, positive), far), margin), min=0.0), reduction, dtype)
