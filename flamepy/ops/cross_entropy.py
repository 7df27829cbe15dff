"""Cross-entropy, fused over a row for class ids, and composed of ops for class probabilities; nll_loss.

Beside the loss an op keeps what its gradient is made of: in float32 and float64 the gradient itself, made in the same pass.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..backend.formula.row_words import RUN
from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.inputs import common_dtype
from ..core.op import launch, like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.pointwise import add, div, eq, log_op, mul, ne, neg, square, sub, where
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import permute, reshape
from ..core.tensor import Tensor
from ..dtypes import FLOATS, HALF, bfloat16, checked_number, float32
from ..engine.kept import number
from .class_ids import REDUCTIONS, checked, class_ids, class_weights, classes_last, unknown_reduction
from .loss_bodies import cross_entropy_row, half_cross_entropy_dx_row, half_cross_entropy_row, nll_dx_row, nll_row, weights_row
from .reduce_more import logsumexp
from .rounding import clamp
from .rows import log_softmax, softmax
from .widening import narrowed, widened


# ---- class ids, row by row -------------------------------------------------------------------------------------------------------
@custom(inputs=3, kind="as is", title="cross_entropy", internal=True)
def row_cross_entropy(x, ids, weight, text="", smoothing=0.0, z_loss=0.0, ignore=-100, reduction="mean", *, tracked=()):
    """-log softmax(x)[id] of each row of x (rows, classes), or of each column of (N, classes, columns), mixed with the mean over classes
    by `smoothing`, and z_loss times the square of logsumexp(x); 0 where ignored. `weight`: what each class counts, or None; no gradient
    reaches it.
    `text`: what check_ids() says of an id that is no class. Where x is tracked its gradient is made in the same pass and kept."""
    losses, dx = row_losses(x, ids), like(x) if any(tracked) else None
    ids, found = counted(x, ids, weight, text, ignore, reduction)
    if x.size:
        consts = (number(float(smoothing), x.dtype), number(float(z_loss), x.dtype), ignore, reduction == "mean", ids.size, *x.shape[1:])
        launch("row" if x.ndim == 2 else "beside", cross_entropy_row, (losses, dx), (x, ids, found, weight), consts)
    return batch_loss(losses, found, reduction), {"dx": dx, "found": found}


@row_cross_entropy.backward
def row_cross_entropy_dx(g, dx, ids, weight, found, reduction):  # those from ids on: for the rule below
    return times(dx, g, reduction), None, None


def times(dx: Any, g: Any, reduction: str) -> Any:
    """A gradient of rows that was made before, times the cotangent."""
    return dx if g.unit else mul(dx, reshape(g, (dx.shape[0], 1, *dx.shape[2:])) if reduction == "none" else g)


@row_cross_entropy.graph
def row_cross_entropy_ddx(g, dx, ids, weight, found, as_x, smoothing, z_loss, ignore, reduction):
    """The logits are gone, but the kept gradient tells their softmax, and its logarithm does in their place. With a z-loss each row of
    the gradient adds up to more than the target's, by which it tells their logsumexp."""
    shape, dx = dx.shape, in_rows(dx)
    target, share, own = targets(ids, found, weight, dx, smoothing, ignore, reduction)
    y, far = add(dx / where(eq(share, 0), 1.0, share), target), 0.0
    whole = sum_op(y, axis=1, keepdims=True)
    if z_loss:
        far = sub(whole, sum_op(target, axis=1, keepdims=True)) / mul(where(eq(own, 0), 1.0, own), 2.0 * z_loss)
    y = div(y, where(eq(whole, 0), 1.0, whole))
    x = in_rows(as_x(laid(log_op(clamp(y, min=1e-30)) + far, shape)))
    return laid(gradient_of(g, x, target, share, own, z_loss, reduction)[0], shape), None, None


def in_rows(x: Any) -> Any:
    """Columns (N, classes, columns) as rows (N * columns, classes); rows as they are."""
    return x if x.ndim == 2 else reshape(permute(x, (0, 2, 1)), (x.shape[0] * x.shape[2], x.shape[1]))


def laid(rows: Any, shape: tuple[int, ...]) -> Any:
    """in_rows() the other way."""
    return rows if len(shape) == 2 else permute(reshape(rows, (shape[0], shape[2], shape[1])), (0, 2, 1))


def targets(ids: Any, found: Any, weight: Any, like: Any, smoothing: float, ignore: int, reduction: str) -> tuple[Any, Any, Any]:
    """(the distribution that each row of logits should have, times what classes count; what a row counts in the result; and as its id),
    shaped and typed as `like`."""
    rows, classes = reshape(ids, (ids.size, 1)), Tensor.of("cross_entropy", np.arange(like.shape[1]), ids.device)
    target, share = cast(eq(rows, classes), like.dtype), cast(ne(rows, ignore), like.dtype)
    own = share if weight is None else sum_op(mul(target, cast(weight, like.dtype)), axis=1, keepdims=True)
    target = target * (1.0 - smoothing) + smoothing / like.shape[1]
    target = target if weight is None else mul(target, cast(weight, like.dtype))
    if reduction == "mean":
        count = found[found.size - 1]
        share = share / cast(where(eq(count, 0), 1, count), like.dtype)
    return target, share, own


def gradient_of(g: Any, x: Any, target: Any, share: Any, own: Any, z_loss: float, reduction: str) -> tuple[Any, None, None]:
    """Cross-entropy's gradient at logits x, in differentiable ops."""
    whole = sum_op(target, axis=1, keepdims=True)
    if z_loss:
        whole = whole + logsumexp(x, 1, True) * own * (2.0 * z_loss)
    return times((softmax(x) * whole - target) * share, g, reduction), None, None


@custom(inputs=3, kind="as is", title="cross_entropy", internal=True)
def half_cross_entropy(x, ids, weight, text="", smoothing=0.0, z_loss=0.0, ignore=-100, reduction="mean"):
    """row_cross_entropy of 16-bit logits, which is float32: backward makes the gradient. Kept, 1 / rows of it would vanish in 16 bits, or
    cost 32."""
    rows, cols = x.shape
    losses, kept = row_losses(x, ids), like(x, (rows, 2), float32)
    ids, found = counted(x, ids, weight, text, ignore, reduction)
    if x.size:
        consts = (number(float(smoothing), float32), number(float(z_loss), float32), ignore, rows, cols)
        launch("row", half_cross_entropy_row, (losses, kept), (x, ids, weight), consts)
    return batch_loss(losses, found, reduction), {"kept": kept, "found": found}


@half_cross_entropy.backward
def half_cross_entropy_dx(g, x, ids, weight, found, kept, narrow_dx, smoothing, z_loss, ignore, reduction):
    dx = like(x, dtype=bfloat16 if narrow_dx and x.dtype == bfloat16 else float32)
    if x.size:
        numbers = number(float(smoothing), float32), number(float(z_loss), float32)
        consts = (*numbers, ignore, reduction == "mean", reduction == "none", *x.shape)
        launch("row", half_cross_entropy_dx_row, (dx,), (None if g.unit else g, x, ids, found, kept, weight), consts)
    return dx, None, None


@half_cross_entropy.graph
def half_cross_entropy_ddx(g, x, ids, weight, found, smoothing, z_loss, ignore, reduction):
    return gradient_of(g, x, *targets(ids, found, weight, x, smoothing, ignore, reduction), z_loss, reduction)


def counted(x: Any, ids: Any, weight: Any, text: str, ignore: int, reduction: str) -> tuple[Any, Any]:
    """The ids in a line, and what has last in it by what a mean divides: what check_ids() found, or the sum of the weights of the ids."""
    ids, found = checked(ids, text, x.shape[1], ignore)
    if weight is not None and reduction == "mean" and x.size:
        found = like(weight, (1,))
        launch("row", weights_row, (found,), (ids, weight), (ignore, x.shape[1], 1, ids.size))
    return ids, found


def row_losses(x: Any, ids: Any) -> Any:
    """A loss for each row, to be filled in; zeros where there are no classes, since then all ids are ignored."""
    losses = like(x, (ids.size,), x.spec.computed)
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
    x: Any, target: Any, weight: Any = None, *, ignore_index: int = -100, label_smoothing: float = 0.0, z_loss: float = 0.0,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """-log softmax(x)[id], averaged over the ids that are not ignored; float32 for 16-bit logits too.
    Ignored rows have the gradient 0, whatever they hold. A float target of the logits' shape is a probability for each class: the loss
    is -sum(target * log_softmax(x)) over the classes, its mean over all of them, and the gradient reaches the target, too.
    Shapes: logits x (rows, classes), (classes,), (N, T, ..., classes) or (N, classes, d1, ...); ids: integers of that shape without
    classes. Where both of the last two would fit: ShapeError. Beside probabilities the classes are the second axis.
    `label_smoothing` in [0, 1] mixes in the mean over all classes (Szegedy et al. 2015, arXiv:1512.00567); `weight` (classes,): what
    each class counts, also in the mean; `z_loss` adds so much of logsumexp(x)^2 to each row's loss, which keeps logits near 0
    (Chowdhery et al. 2022, arXiv:2204.02311).
    Raises ShapeError for ids of another shape, DTypeError unless they are integers, IndexOutOfRange for an id that is no class.
    >>> round(fp.cross_entropy(fp.tensor([[0.0, 0.0]]), [1]).item(), 4)
    0.6931
    >>> round(fp.cross_entropy(fp.tensor([[0.0, 0.0]]), [[0.5, 0.5]]).item(), 4)
    0.6931"""
    x, target = tensors_of("cross_entropy", x, target)
    label_smoothing, z_loss = smoothed("cross_entropy", label_smoothing, z_loss)
    if target.dtype in FLOATS and target.shape == x.shape:
        if ignore_index >= 0:
            raise ValueError(f"cross_entropy: no ids to ignore among probabilities: ignore_index={ignore_index}. Multiply them by 0.")
        return soft_cross_entropy(x, target, weight, label_smoothing, z_loss, reduction)
    rows, shape = classes_last("cross_entropy", x, target, 0 if getattr(weight, "requires_grad", False) else RUN)
    ids, text = class_ids("cross_entropy", target, x.device, shape, rows.shape[1], ignore_index, reduction)
    rows, ignore = rows if rows.dtype in FLOATS else cast(rows, float32), int(ignore_index)
    weight = class_weights("cross_entropy", weight, rows)
    if weight is not None and weight.requires_grad:
        more = mul(square(logsumexp(widened(rows), 1)), z_loss) if z_loss else 0.0
        loss = learned(log_softmax(widened(rows)), ids, text, weight, more, label_smoothing, ignore, reduction)
    else:
        run = half_cross_entropy if rows.dtype in HALF else row_cross_entropy
        loss = run(rows, ids, weight, text, label_smoothing, z_loss, ignore, reduction)
    return reshape(loss, shape) if reduction == "none" and loss.shape != shape else loss


def learned(logs: Any, ids: Any, text: str, weight: Any, more: Any, smoothing: float, ignore: int, reduction: str) -> Any:
    """The loss of log-probabilities under weights that are tracked, in ops. `more`: what each row has beside, as much as its id counts."""
    ids, found = checked(ids, text, logs.shape[1], ignore)
    target, share, own = targets(ids, found, weight, logs, smoothing, ignore, "sum")
    share, own = reshape(ne(share, 0), (ids.size,)), reshape(own, (ids.size,))
    losses = sub(mul(own, more), sum_op(where(eq(target, 0), 0.0, mul(target, logs)), axis=1))
    losses = where(share, losses, 0.0)
    if reduction == "none":
        return losses
    return sum_op(losses) if reduction == "sum" else div(sum_op(losses), sum_op(where(share, own, 0.0)))


def smoothed(name: str, label_smoothing: Any, z_loss: Any) -> tuple[float, float]:
    """Both as numbers. Raises ValueError for those that make no sense."""
    label_smoothing, z_loss = checked_number(name, "label_smoothing", label_smoothing), checked_number(name, "z_loss", z_loss)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"{name}: label_smoothing outside [0, 1]: {label_smoothing}. Use a small number such as 0.1.")
    if not z_loss >= 0.0:
        raise ValueError(f"{name}: z_loss must not be negative: {z_loss}. Use a small number such as 1e-4.")
    return label_smoothing, z_loss


def soft_cross_entropy(x: Any, target: Any, weight: Any, smoothing: float, z_loss: float, reduction: str) -> Any:
    """Cross-entropy of probabilities, whose classes are the second axis, or the only one."""
    if not x.ndim:
        raise ShapeError(f"cross_entropy: logits have no class axis: shape {x.shape}. Use (rows, classes).")
    if reduction not in REDUCTIONS:
        raise unknown_reduction("cross_entropy", reduction)
    common_dtype("cross_entropy", (x, target), "float")
    shape = x.shape[:1] * (x.ndim > 1) + x.shape[2:]
    x, target = (reshape(t, (1, *t.shape)) if t.ndim == 1 else t for t in (widened(x), widened(target)))
    classes, order = x.shape[1], (0, *range(2, x.ndim), 1)
    x, target = (t if t.ndim == 2 else permute(t, order) for t in (x, target))
    if smoothing:
        target = add(mul(target, 1.0 - smoothing), smoothing / classes)
    each = mul(target, log_softmax(x, axis=-1))
    if weight is not None:
        each = mul(each, class_weights("cross_entropy", weight, reshape(x, (-1, classes))))
    losses = neg(sum_op(each, axis=-1))
    if z_loss:
        losses = add(losses, mul(square(logsumexp(x, -1)), z_loss))
    if reduction == "none":
        return reshape(losses, shape)
    return sum_op(losses) if reduction == "sum" else div(sum_op(losses), float(losses.size))


# ---- log-probabilities ---------------------------------------------------------------------------------------------------------------
@custom(inputs=3, kind="as is", title="nll_loss", internal=True)
def row_nll(x, ids, weight, text="", ignore=-100, reduction="mean"):
    """-x[id] of each row of x (rows, classes), or column of (N, classes, columns); 0 where ignored. The others: as in row_cross_entropy."""
    losses, (ids, found) = row_losses(x, ids), counted(x, ids, weight, text, ignore, reduction)
    if x.size and x.ndim == 2:
        launch("row", nll_row, (losses,), (x, ids, weight), (ignore, x.shape[1], x.shape[0], 1))
    elif x.size:
        launch("beside", nll_row, (losses,), (x, ids, weight), (ignore, ids.size, *x.shape[1:]))
    return batch_loss(losses, found, reduction), {"found": found}


@row_nll.backward
def row_nll_dx(g, ids, weight, found, shapes, ignore, reduction):
    dx = like(g, shapes[0])
    if dx.size:
        consts = (ignore, reduction == "mean", reduction == "none", ids.size, *shapes[0][1:])
        launch("row" if dx.ndim == 2 else "beside", nll_dx_row, (dx,), (g, ids, found, weight), consts)
    return dx, None, None


@row_nll.graph
def row_nll_ddx(g, ids, weight, found, shapes, ignore, reduction):
    target, share, _ = targets(ids, found, weight, like(g, shapes[0]), 0.0, ignore, reduction)
    return neg(times(laid(target * share, shapes[0]), g, reduction)), None, None


@composed(home="both")
def nll_loss(x: Any, target: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """-x[id] for log-probabilities x; shapes and `weight` as in cross_entropy.
    Shapes: x (rows, classes), ids (rows,); the others of cross_entropy too. Raises what it raises.
    >>> fp.nll_loss(fp.tensor([[-0.5, -1.5]]), [1]).item()
    1.5"""
    x, target = tensors_of("nll_loss", x, target)
    rows, shape = classes_last("nll_loss", x, target, 0 if getattr(weight, "requires_grad", False) else math.inf)
    ids, text = class_ids("nll_loss", target, x.device, shape, rows.shape[1], ignore_index, reduction)
    rows, ignore = rows if rows.dtype in FLOATS else cast(rows, float32), int(ignore_index)
    weight = class_weights("nll_loss", weight, rows)
    if weight is not None and weight.requires_grad:
        loss = learned(widened(rows), ids, text, weight, 0.0, 0.0, ignore, reduction)
    else:
        loss = row_nll(rows, ids, weight, text, ignore, reduction)
    loss = narrowed(loss, rows.dtype)
    return reshape(loss, shape) if reduction == "none" and loss.shape != shape else loss
