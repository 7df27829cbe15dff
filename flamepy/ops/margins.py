"""Losses that ask for a margin: nothing is lost where an answer is right by so much. Composed of ops, so differentiable as often as these.

`reduction` is "none", "mean" or "sum".
"""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import log1p
from ..core.errors import DTypeError, ShapeError
from ..core.inputs import common_dtype
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.indexing import check_ids
from ..core.ops.pointwise import add, div, eq, lt, mul, square, sub, where
from ..core.ops.reduce import mean
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..core.pointwise import define
from ..core.words import abs, exp_down, maximum, select
from ..dtypes import INTEGERS, checked_number, int64
from .activations import sigmoid
from .class_ids import asked_ids, checked, class_weights
from .losses import bce_logits_op, pair, reduced, rescaled
from .picking import along_at, counted
from .rounding import clamp
from .scans import cumsum
from .shape_more import shaped, unsqueeze
from .widening import widened

soft_margin_op = define(
    "soft_margin", "log(1 + exp(-t x)), without overflow.",
    lambda x, target: log1p(exp_down(-abs(target * x))) + maximum(-target * x, 0.0),
    lambda g, x, target: -g * target * sigmoid(-target * x), None, title="soft_margin_loss", home="",
)  # fmt: skip

gap_op = define(
    "gap", "max(0, margin - own + x), 0 where it is to be skipped; NaN passes; the derivative at 0 is 0.",
    lambda skip, own, x, margin=1.0: select(skip, 0.0, select(margin - (own - x) <= 0.0, 0.0, margin - (own - x))), None,
    lambda g, y: select(y <= 0.0, 0.0, -g), lambda g, y: select(y <= 0.0, 0.0, g), masks=1, title="margin_loss", home="",
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
    ids, _ = checked(*asked_ids(name, target, x.device, shape, rows.shape[1]), rows.shape[1])
    count, classes = rows.shape
    own, skip = along_at(rows, ids, classes, 1, 1, (count, 1)), eq(reshape(ids, (count, 1)), counted(classes, int64, rows.device))
    losses = gap_op(skip, own, rows, margin=checked_number(name, "margin", margin))
    losses = mean(losses if p == 1 else square(losses), axis=1)
    if weight is not None:
        losses = mul(losses, class_weights(name, weight, rows)[ids])
    return reduced(name, shaped(losses, shape), reduction, x.dtype)


@composed(home="functional")
def multilabel_margin_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """The sum of max(0, 1 - (x[i] - x[j])) over the classes i that a row has and those j that it has not, divided by their number.
    Shapes: x (rows, classes) or (classes,); target as x, integers: the ids of a row's classes, then -1, then anything.
    Raises ShapeError, DTypeError unless ids are integers, IndexOutOfRange for an id before the -1 that is no class.
    >>> F.multilabel_margin_loss(fp.tensor([0.0, 0.5]), [1, -1]).item()
    0.25"""
    name = "multilabel_margin_loss"
    x, target = tensors_of(name, x, target)
    if target.dtype not in INTEGERS:
        raise DTypeError(f"{name}: class ids are not integer: {target.dtype}. Cast them to int64.")
    if target.shape != x.shape:
        raise ShapeError(f"{name}: sizes differ: class ids {target.shape}, scores {x.shape}. Fill up with -1.")
    rows, shape = rows_of(name, x)
    ids, classes = cast(reshape(target, rows.shape), int64), rows.shape[1]
    listed = eq(cumsum(lt(ids, 0), 1), 0)  # before the first -1
    ids = where(listed, ids, 0)
    check_ids(ids, 0, classes, f"{name}: class id out of range: {{}} at position {{}}. Use 0 to {classes - 1}.")
    listed = unsqueeze(cast(listed, rows.dtype), 2)  # as what follows (rows, places, classes)
    own = mul(cast(eq(unsqueeze(ids, 2), counted(rows.shape[1], int64, rows.device)), rows.dtype), listed)
    counts = mul(listed, cast(eq(sum_op(own, axis=1, keepdims=True), 0), rows.dtype))
    own = along_at(rows, ids, classes, classes, 1, (*ids.shape, 1))
    losses = div(sum_op(gap_op(eq(counts, 0.0), own, unsqueeze(rows, 1)), axis=(1, 2)), float(classes))
    return reduced(name, shaped(losses, shape), reduction, x.dtype)


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
