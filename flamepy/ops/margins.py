"""Losses that ask for a margin: nothing is lost where an answer is right by so much. Of pairs composed of ops, of classes row by row.

`reduction` is "none", "mean" or "sum".
"""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import log1p
from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.inputs import common_dtype
from ..core.op import launch, like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.indexing import check_ids
from ..core.ops.pointwise import add, eq, mul, sub, where
from ..core.ops.reduce import mean
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..core.pointwise import define
from ..core.words import abs, exp_down, maximum
from ..dtypes import checked_number, int64
from ..engine.kept import number
from .activations import sigmoid
from .class_ids import asked_ids, checked, class_weights
from .cross_entropy import batch_loss, times
from .loss_bodies import multi_margin_row, multilabel_margin_row
from .losses import bce_logits_op, pair, reduced, rescaled
from .picking import along_at, counted
from .rounding import clamp
from .shape_more import shaped
from .widening import narrowed, widened

soft_margin_op = define(
    "soft_margin", "log(1 + exp(-t x)), without overflow.",
    lambda x, target: log1p(exp_down(-abs(target * x))) + maximum(-target * x, 0.0),
    lambda g, x, target: -g * target * sigmoid(-target * x), None, title="soft_margin_loss", home="",
)  # fmt: skip


def shortfall(x: Any, margin: Any) -> Any:
    """max(0, margin - x). Where both are equal the gradient passes: as in PyTorch, where losses of classes have 0 there."""
    return clamp(sub(margin, x), min=0.0)


@composed(home="functional")
def hinge_embedding_loss(x: Any, target: Any, *, margin: float = 1.0, reduction: str = "mean") -> Any:
    """x where the target is 1, max(0, margin - x) where it is -1; x is a distance.
    Shapes and errors: as mse_loss.
    >>> F.hinge_embedding_loss(fp.tensor([0.25, 0.25]), [1, -1], reduction="none").tolist()
    [0.25, 0.75]"""
    x, target, dtype = pair("hinge_embedding_loss", x, target)
    apart = shortfall(x, checked_number("hinge_embedding_loss", "margin", margin))
    losses = add(where(eq(target, -1), 0.0, x), where(eq(target, 1), 0.0, apart))
    return reduced("hinge_embedding_loss", losses, reduction, dtype)


@composed(home="functional")
def soft_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """log(1 + exp(-t x)) for targets t of 1 and -1. No gradient reaches the target.
    Shapes and errors: as mse_loss.
    >>> round(F.soft_margin_loss(fp.tensor([0.0]), [1.0]).item(), 4)
    0.6931"""
    x, target, dtype = pair("soft_margin_loss", x, target)
    return reduced("soft_margin_loss", soft_margin_op(x, target), reduction, dtype)


@composed(home="functional")
def margin_ranking_loss(x1: Any, x2: Any, target: Any, *, margin: float = 0.0, reduction: str = "mean") -> Any:
    """max(0, margin - t (x1 - x2)): t is 1 where x1 should be the larger one, -1 where x2 should.
    Shapes: any three that broadcast.
    >>> F.margin_ranking_loss(fp.tensor([1.0]), fp.tensor([3.0]), [1.0]).item()
    2.0"""
    name = "margin_ranking_loss"
    xs = tensors_of(name, x1, x2, target)
    dtype = common_dtype(name, xs, "float")
    x1, x2, target = (widened(x) for x in xs)
    losses = shortfall(mul(target, sub(x1, x2)), checked_number(name, "margin", margin))
    return reduced(name, losses, reduction, dtype)


# ---- classes -------------------------------------------------------------------------------------------------------------------------
def rows_of(name: str, x: Any) -> tuple[Any, tuple[int, ...]]:
    """Scores (N, C) or (C,), or the only one, as rows, and the shape that there is a loss for."""
    if x.ndim > 2 or 0 in x.shape[-1:]:
        raise ShapeError(f"{name}: no scores of classes: shape {x.shape}. Use (rows, classes) or (classes,).")
    return widened(x if x.ndim == 2 else reshape(x, (1, x.size))), x.shape[:-1]


@custom(inputs=3, kind="as is", title="multi_margin_loss", internal=True)
def row_margin(x, ids, weight, text="", p=1, margin=1.0, reduction="mean", *, tracked=()):
    """multi_margin_loss of the rows of x; weight: what each class counts, or None. Where x is tracked its gradient is made at once."""
    losses, dx, (ids, found) = like(x, x.shape[:1]), like(x) if any(tracked) else None, checked(ids, text, x.shape[1])
    if x.size:
        consts = number(margin, x.dtype), p == 2, reduction == "mean", *x.shape
        launch("row", multi_margin_row, (losses, dx), (x, ids, found, weight), consts)
    return batch_loss(losses, found, reduction), {"dx": dx, "found": found}


@row_margin.backward
def row_margin_dx(g, dx, x, ids, weight, found, reduction):  # those from x on: for the rule below
    return times(dx, g, reduction), None, None


@row_margin.graph
def row_margin_ddx(g, dx, x, ids, weight, p, margin, reduction):
    if p == 1:  # its gradient does not depend on x
        return times(dx, g, reduction), None, None
    (count, classes), ids = x.shape, reshape(ids, (ids.size, 1))
    own, skip = along_at(x, ids, classes, 1, 1, (count, 1)), eq(ids, counted(classes, int64, x.device))
    scale = 2.0 / (classes * (count if reduction == "mean" else 1))
    each = times(mul(where(skip, 0.0, shortfall(sub(own, x), margin)), scale), g, reduction)
    each = each if weight is None else mul(each, weight[ids])
    return sub(each, where(skip, sum_op(each, axis=1, keepdims=True), 0.0)), None, None


@composed(home="functional")
def multi_margin_loss(
    x: Any, target: Any, *, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:  # fmt: skip
    """The mean over the classes of max(0, margin - x[id] + x[j])^p, j not the id (Crammer & Singer 2001).
    Shapes: x (rows, classes) or (classes,), ids (rows,) or (); `weight` (classes,) multiplies the loss of a row by that of its id.
    Raises ValueError for a p that is neither 1 nor 2, and what cross_entropy raises for ids.
    >>> F.multi_margin_loss(fp.tensor([[0.0, 1.0]]), [0]).item()
    1.0"""
    name = "multi_margin_loss"
    if p not in (1, 2):
        raise ValueError(f"{name}: p is neither 1 nor 2: {p!r}. Use one of them.")
    x, target = tensors_of(name, x, target)
    rows, shape = rows_of(name, x)
    shape = shape or target.shape[:1]  # a single row's id may have an axis
    ids, text = asked_ids(name, target, x.device, shape, rows.shape[1], reduction)
    margin, weight = checked_number(name, "margin", margin), class_weights(name, weight, rows)
    if weight is not None and weight.requires_grad:
        losses = mul(row_margin(rows, ids, None, text, int(p), margin, "none"), weight[reshape(ids, (ids.size,))])
        return reduced(name, shaped(losses, shape), reduction, x.dtype)
    loss = narrowed(row_margin(rows, ids, weight, text, int(p), margin, reduction), x.dtype)
    return shaped(loss, shape) if reduction == "none" else loss


@custom(inputs=2, kind="as is", title="multilabel_margin_loss", internal=True)
def row_labels(x, ids, reduction="mean"):
    """multilabel_margin_loss of the rows of x. Its gradient is made at once."""
    (rows, classes), losses, dx, listed = x.shape, like(x, x.shape[:1]), like(x), like(ids)
    if rows:
        step = number(1.0 / (classes * (rows if reduction == "mean" else 1)), x.dtype)
        launch("row", multilabel_margin_row, (losses, dx, like(x), listed), (x, ids), (step, rows, classes))
    check_ids(listed, -1, classes, f"multilabel_margin_loss: class id out of range: {{}} at position {{}}. Use 0 to {classes - 1}.")
    return losses if reduction == "none" else (mean if reduction == "mean" else sum_op).body(losses), {"dx": dx}


row_labels.differentiable(lambda g, dx, reduction: (times(dx, g, reduction), None))


@composed(home="functional")
def multilabel_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The sum of max(0, 1 - (x[i] - x[j])) over the classes i that a row has and those j that it has not, divided by their number.
    Shapes: x (rows, classes) or (classes,); target as x, integers: the ids of a row's classes, then -1, then anything.
    Raises ShapeError, DTypeError unless ids are integers, IndexOutOfRange for an id before the -1 that is no class.
    >>> F.multilabel_margin_loss(fp.tensor([0.0, 0.5]), [1, -1]).item()
    0.25"""
    name = "multilabel_margin_loss"
    x, target = tensors_of(name, x, target)
    ids, _ = asked_ids(name, target, x.device, x.shape, 1, reduction)
    rows, shape = rows_of(name, x)
    loss = narrowed(row_labels(rows, reshape(ids, rows.shape), reduction), x.dtype)
    return shaped(loss, shape) if reduction == "none" else loss


@composed(home="functional")
def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """The mean over the classes of the binary cross-entropy of sigmoid(x); `weight` (classes,) multiplies that of each class.
    Shapes: x and target (..., classes). Errors: as mse_loss. No gradient reaches the target.
    >>> round(F.multilabel_soft_margin_loss(fp.tensor([[0.0, 0.0]]), [[1.0, 0.0]]).item(), 4)
    0.6931"""
    name = "multilabel_soft_margin_loss"
    x, target, dtype = pair(name, x, target)
    if not x.ndim:
        raise ShapeError(f"{name}: no axis of classes: shape {x.shape}. Use (..., classes).")
    losses = mean(rescaled(name, bce_logits_op(x, target, 1.0), weight), axis=-1)
    return reduced(name, losses, reduction, dtype)
