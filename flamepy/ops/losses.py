"""Losses: cross-entropy fused over a row, the others composed of ops. Shapes must be equal; nothing broadcasts.

`reduction` is "none", "mean" or "sum". Gradients reach the targets of mse, l1, smooth_l1 and huber, not those of the others.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backend.formula.words import log1p
from ..core import op
from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.inputs import common_dtype
from ..core.op import launch, like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.indexing import picked_from_rows
from ..core.ops.pointwise import abs_op, div, eq, log_op, maximum_op, mul, ne, neg, square, sub, where
from ..core.ops.reduce import max as max_op
from ..core.ops.reduce import mean
from ..core.ops.reduce import min as min_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..core.pointwise import define, pointwise
from ..core.tensor import Tensor
from ..core.words import abs, exp_down, log, maximum, select, sign
from ..dtypes import FLOATS, HALF, checked_number, float32
from ..engine.kept import number
from .activations import sigmoid
from .class_ids import REDUCTIONS, class_ids, class_weights, classes_last, unknown_reduction, weighted, weighted_cross_entropy
from .loss_bodies import cross_entropy_row, half_cross_entropy_dx_row, half_cross_entropy_row
from .rounding import clamp
from .rows import softmax
from .widening import narrowed, widened


def reduced(name: str, losses: Any, reduction: str, dtype: Any) -> Any:
    if reduction not in REDUCTIONS:
        raise unknown_reduction(name, reduction)
    return narrowed(losses if reduction == "none" else mean(losses) if reduction == "mean" else sum_op(losses), dtype)


# ---- cross-entropy ---------------------------------------------------------------------------------------------------------------
@custom(inputs=3, kind="as is", title="cross_entropy", internal=True)
def row_cross_entropy(x, ids, found, smoothing=0.0, ignore=-100, reduction="mean", *, tracked=()):
    """-log softmax(x)[id] of each row of x (rows, classes), mixed with the mean over classes by `smoothing`; 0 where ignored.

    `found` is what check_ids() found out about the ids. Where x is tracked its gradient is made in the same pass and kept.
    """
    rows, cols = x.shape
    losses, dx = row_losses(x), like(x) if any(tracked) else None
    if x.size:
        consts = (number(float(smoothing), x.dtype), ignore, reduction == "mean", rows, cols)
        launch("row", cross_entropy_row, (losses, dx), (x, ids, found), consts)
    return batch_loss(losses, found, reduction), {"dx": dx}


@row_cross_entropy.backward
def row_cross_entropy_dx(g, dx, ids, found, reduction):  # ids and found: for the rule below
    if not g.unit:
        dx = mul(dx, reshape(g, (g.size, 1)) if reduction == "none" else g)
    return dx, None, None


@row_cross_entropy.graph
def row_cross_entropy_ddx(g, dx, ids, found, as_x, smoothing, ignore, reduction):
    """The logits are gone, but the kept gradient tells their softmax, and its logarithm does in their place."""
    target, share = targets(ids, found, dx, smoothing, ignore, reduction)
    y = dx / where(share > 0, share, 1.0) + target
    return gradient_of(g, as_x(log_op(clamp(y, min=1e-30))), target, share, reduction)


def targets(ids: Any, found: Any, like: Any, smoothing: float, ignore: int, reduction: str) -> tuple[Any, Any]:
    """(the distribution that each row of logits should have, what a row counts), shaped and typed as `like`."""
    rows, classes = reshape(ids, (ids.size, 1)), Tensor.of("cross_entropy", np.arange(like.shape[1]), ids.device)
    target = cast(eq(rows, classes), like.dtype) * (1.0 - smoothing) + smoothing / like.shape[1]
    share = cast(ne(rows, ignore), like.dtype)
    return target, share / cast(maximum_op(found[2], 1), like.dtype) if reduction == "mean" else share


def gradient_of(g: Any, x: Any, target: Any, share: Any, reduction: str) -> tuple[Any, None, None]:
    """Cross-entropy's gradient at logits x, in differentiable ops."""
    return (softmax(x) - target) * share * (reshape(g, (g.size, 1)) if reduction == "none" else g), None, None


@custom(inputs=3, kind="as is", title="cross_entropy", internal=True)
def half_cross_entropy(x, ids, found, smoothing=0.0, ignore=-100, reduction="mean"):
    """row_cross_entropy of 16-bit logits, which is float32: backward makes the gradient. Kept, 1 / rows of it would vanish in 16 bits, or
    cost 32."""
    rows, cols = x.shape
    losses, kept = row_losses(x), like(x, (rows, 2), float32)
    if x.size:
        launch("row", half_cross_entropy_row, (losses, kept), (x, ids), (number(float(smoothing), float32), ignore, rows, cols))
    return batch_loss(losses, found, reduction), {"kept": kept}


@half_cross_entropy.backward
def half_cross_entropy_dx(g, x, ids, found, kept, smoothing, ignore, reduction):
    dx = like(x, dtype=float32)
    if x.size:
        consts = (number(float(smoothing), float32), ignore, reduction == "mean", reduction == "none", *x.shape)
        launch("row", half_cross_entropy_dx_row, (dx,), (None if g.unit else g, x, ids, found, kept), consts)
    return dx, None, None


@half_cross_entropy.graph
def half_cross_entropy_ddx(g, x, ids, found, smoothing, ignore, reduction):
    return gradient_of(g, x, *targets(ids, found, x, smoothing, ignore, reduction), reduction)


def row_losses(x: Any) -> Any:
    """A loss for each row, to be filled in; zeros where there are no classes, since then all ids are ignored."""
    losses = like(x, x.shape[:1], x.spec.computed)
    if losses.size and not x.size:
        launch("fill", None, (losses,), (), (x.spec.computed.type(0),))
    return losses


def batch_loss(losses: Any, found: Any, reduction: str) -> Any:
    """What the losses come to."""
    if reduction == "none":
        return losses
    loss = like(losses, ())
    launch("batch_loss", None, (loss,), (losses, found), (reduction == "mean",))
    return loss


@composed(home="both")
def cross_entropy(
    x: Any, ids: Any, *, weight: Any = None, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Any:  # fmt: skip
    """-log softmax(x)[id], averaged over the ids that are not ignored; float32 for 16-bit logits too.

    Ignored rows have the gradient 0, whatever they hold.
    Shapes: logits x (rows, classes), (classes,), (N, T, ..., classes) or (N, classes, d1, ...); ids: integers of that shape without
    classes. Where both of the last two would fit: ShapeError.
    `label_smoothing` in [0, 1] mixes in the mean over all classes (Szegedy et al. 2015, arXiv:1512.00567); `weight` (classes,): what
    each class counts, also in the mean.
    Raises ShapeError for ids of another shape, DTypeError unless they are integers, IndexOutOfRange for an id that is no class.
    >>> round(fp.cross_entropy(fp.tensor([[0.0, 0.0]]), [1]).item(), 4)
    0.6931
    """
    x, ids = tensors_of("cross_entropy", x, ids)
    label_smoothing = checked_number("cross_entropy", "label_smoothing", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"cross_entropy: label_smoothing outside [0, 1]: {label_smoothing}. Use a small number such as 0.1.")
    if ids.dtype in FLOATS and ids.shape == x.shape:
        advice = "For probabilities t write -(t * x.log_softmax(-1)).sum(-1).mean()"
        raise DTypeError(f"cross_entropy: class ids are not integer: {ids.dtype}, shape {ids.shape} as the logits. {advice}.")
    rows, shape = classes_last("cross_entropy", x, ids)
    ids, found = class_ids("cross_entropy", ids, x.device, shape, rows.shape[-1], ignore_index, reduction)
    rows = rows if rows.dtype in FLOATS else cast(rows, float32)
    run = half_cross_entropy if rows.dtype in HALF else row_cross_entropy
    if weight is None:
        loss = run(rows, ids, found, label_smoothing, int(ignore_index), reduction)
    else:
        loss = weighted_cross_entropy(run, rows, ids, found, weight, label_smoothing, int(ignore_index), reduction)
    return reshape(loss, shape) if reduction == "none" and loss.shape != shape else loss


@composed(home="both")
def nll_loss(x: Any, ids: Any, *, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """-x[id] for log-probabilities x; shapes and `weight` as in cross_entropy.

    Shapes: x (rows, classes), ids (rows,); the others of cross_entropy too. Raises what it raises.
    >>> fp.nll_loss(fp.tensor([[-0.5, -1.5]]), [1]).item()
    1.5
    """
    x, ids = tensors_of("nll_loss", x, ids)
    rows, shape = classes_last("nll_loss", x, ids)
    ids, _ = class_ids("nll_loss", ids, x.device, shape, rows.shape[-1], ignore_index, reduction)
    keep = ne(ids, int(ignore_index))
    picked = picked_from_rows(rows, where(keep, ids, 0)) if rows.size else sum_op(rows, axis=1)
    losses = where(keep, neg(picked), 0.0)
    if weight is not None:
        found = weighted(widened(losses), ids, class_weights("nll_loss", weight, rows), int(ignore_index), reduction)
        found = narrowed(found, losses.dtype)
        return reshape(found, shape) if reduction == "none" else found
    if reduction != "mean":
        return reshape(losses, shape) if reduction == "none" else sum_op(losses)
    total = sum_op(widened(losses))
    return narrowed(div(total, sum_op(keep).to(total.dtype)), losses.dtype)


# ---- distances: both sides may be tracked ----------------------------------------------------------------------------------------
def pair(name: str, x: Any, target: Any) -> tuple[Any, Any, Any]:
    """Both, to be computed with, and the type that the loss gets."""
    x, target = tensors_of(name, x, target)
    if x.shape != target.shape:
        raise ShapeError(f"{name}: shapes differ: {x.shape} and {target.shape}. Losses do not broadcast; reshape one of them.")
    return widened(x), widened(target), common_dtype(name, (x, target), "any")


@composed(home="both")
def mse_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """(x - target)^2.

    Shapes: x and target of one shape; the result is (), or theirs with "none". Raises ShapeError, ValueError for a reduction.
    >>> fp.mse_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    2.0
    """
    x, target, dtype = pair("mse_loss", x, target)
    return reduced("mse_loss", square(sub(x, target)), reduction, dtype)


@composed(home="both")
def l1_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """|x - target|.

    Shapes and errors: as mse_loss.
    >>> fp.l1_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    1.0
    """
    x, target, dtype = pair("l1_loss", x, target)
    return reduced("l1_loss", abs_op(sub(x, target)), reduction, dtype)


huber_op = define(
    "huber", "0.5 d^2 up to |d| = delta, delta (|d| - delta / 2) beyond (Huber 1964).",
    lambda d, delta=1.0: select(abs(d) <= delta, 0.5 * d * d, delta * (abs(d) - 0.5 * delta)),
    lambda g, d, delta: g * select(abs(d) <= delta, d, delta * sign(d)), title="huber_loss", home="",
)  # fmt: skip


@composed(home="both")
def huber_loss(x: Any, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    """Quadratic up to |x - target| = delta, linear beyond, slope delta.

    Shapes and errors: as mse_loss; ValueError for delta <= 0.
    >>> fp.huber_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    0.75
    """
    x, target, dtype = pair("huber_loss", x, target)
    if not checked_number("huber_loss", "delta", delta) > 0:
        raise ValueError(f"huber_loss: delta must be positive: {delta}. Use a positive number.")
    return reduced("huber_loss", huber_op(sub(x, target), delta=delta), reduction, dtype)


@composed(home="both")
def smooth_l1_loss(x: Any, target: Any, *, beta: float = 1.0, reduction: str = "mean") -> Any:
    """huber_loss(delta=beta) / beta; beta 0 is l1_loss.

    Shapes and errors: as mse_loss; ValueError for beta < 0.
    >>> fp.smooth_l1_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    0.75
    """
    x, target, dtype = pair("smooth_l1_loss", x, target)
    if not checked_number("smooth_l1_loss", "beta", beta) >= 0:
        raise ValueError(f"smooth_l1_loss: beta must not be negative: {beta}. Use 0 or more.")
    if beta == 0:
        return reduced("smooth_l1_loss", abs_op(sub(x, target)), reduction, dtype)
    return reduced("smooth_l1_loss", div(huber_op(sub(x, target), delta=beta), float(beta)), reduction, dtype)


# ---- probabilities ---------------------------------------------------------------------------------------------------------------
def bce_logits_y(x, target, pos_weight):
    """BCE of sigmoid(x), without overflow; positives count pos_weight times."""
    weight = 1.0 + (pos_weight - 1.0) * target
    return (1.0 - target) * x + weight * (log1p(exp_down(-abs(x))) + maximum(-x, 0.0))


def bce_logits_dx(g, x, target, pos_weight):
    s = sigmoid(x)
    return g * ((1.0 - target) * s - target * pos_weight * (1.0 - s))


bce_op = define(
    "bce", "-(t log x + (1 - t) log(1 - x)), each logarithm at least -100.",
    lambda x, target: -(target * maximum(log(x), -100.0) + (1.0 - target) * maximum(log1p(-x), -100.0)),
    lambda g, x, target: g * (x - target) / maximum(x * (1.0 - x), 1e-12), None, title="binary_cross_entropy", home="",
)  # fmt: skip
bce_logits_op = pointwise("bce_logits", bce_logits_y, bce_logits_dx, None, None, title="binary_cross_entropy_with_logits")


def check_probabilities(smallest: Any, largest: Any) -> None:
    low, high = (buffer.device.download(buffer)[0] for buffer in (smallest, largest))
    if not (low >= 0 and high <= 1):
        raise ValueError(f"binary_cross_entropy: not probabilities: from {low} to {high}. Use binary_cross_entropy_with_logits.")


@composed(home="both")
def binary_cross_entropy(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1].

    Shapes and errors: as mse_loss; ValueError for x outside [0, 1].
    >>> round(fp.binary_cross_entropy(fp.tensor([0.5]), [1.0]).item(), 4)
    0.6931
    """
    x, target, dtype = pair("binary_cross_entropy", x, target)
    if x.size:
        ends = min_op(x.detach()).buffer, max_op(x.detach()).buffer
        x.device.require(check_probabilities, *ends, within=((0.0, math.inf), (-math.inf, 1.0)))
    return reduced("binary_cross_entropy", bce_op(x, target), reduction, dtype)


@composed(home="both")
def binary_cross_entropy_with_logits(x: Any, target: Any, *, pos_weight: Any = None, reduction: str = "mean") -> Any:
    """Binary cross-entropy of sigmoid(x); pos_weight (number or tensor that broadcasts) weighs the positives.

    Shapes and errors: as mse_loss.
    >>> round(fp.binary_cross_entropy_with_logits(fp.tensor([0.0]), [1.0]).item(), 4)
    0.6931
    """
    name = "binary_cross_entropy_with_logits"
    x, target, dtype = pair(name, x, target)
    weight = 1.0 if pos_weight is None else pos_weight if isinstance(pos_weight, op.SCALARS) else Tensor.of(name, pos_weight, x.device)
    if isinstance(weight, Tensor) and np.broadcast_shapes(weight.shape, x.shape) != x.shape:
        raise ShapeError(f"{name}: pos_weight {weight.shape} does not broadcast to {x.shape}. Give one weight a class.")
    return reduced(name, bce_logits_op(x, target, weight), reduction, dtype)
