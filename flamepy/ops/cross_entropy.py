"""Cross-entropy, fused over a row for class ids, and composed of ops for class probabilities; nll_loss.

Beside the loss an op keeps what its gradient is made of: in float32 and float64 the gradient itself, made in the same pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.inputs import common_dtype
from ..core.op import launch, like
from ..core.ops.axes import composed, tensors_of
from ..core.ops.copy import cast
from ..core.ops.pointwise import add, div, eq, log_op, maximum_op, mul, ne, neg, square, where
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import permute, reshape
from ..core.tensor import Tensor
from ..dtypes import FLOATS, HALF, bfloat16, checked_number, float32
from ..engine.kept import number
from .class_ids import REDUCTIONS, checked, class_ids, class_weights, classes_last, unknown_reduction, weighted, weighted_cross_entropy
from .loss_bodies import cross_entropy_row, half_cross_entropy_dx_row, half_cross_entropy_row, nll_dx_row, nll_row
from .reduce_more import logsumexp
from .rounding import clamp
from .rows import log_softmax, softmax
from .widening import narrowed, widened


# ---- class ids, row by row -------------------------------------------------------------------------------------------------------
@custom(inputs=3, kind="as is", title="cross_entropy", internal=True)
def row_cross_entropy(x, ids, found, smoothing=0.0, z_loss=0.0, ignore=-100, reduction="mean", *, tracked=()):
    """-log softmax(x)[id] of each row of x (rows, classes), mixed with the mean over classes by `smoothing`, and z_loss times the square
    of logsumexp(x); 0 where ignored.

    `found` is what check_ids() found out about the ids. Where x is tracked its gradient is made in the same pass and kept."""
    rows, cols = x.shape
    losses, dx = row_losses(x), like(x) if any(tracked) else None
    if x.size:
        consts = (number(float(smoothing), x.dtype), number(float(z_loss), x.dtype), ignore, reduction == "mean", rows, cols)
        launch("row", cross_entropy_row, (losses, dx), (x, ids, found), consts)
    return batch_loss(losses, found, reduction), {"dx": dx}


@row_cross_entropy.backward
def row_cross_entropy_dx(g, dx, ids, found, reduction):  # ids and found: for the rule below
    if not g.unit:
        dx = mul(dx, reshape(g, (g.size, 1)) if reduction == "none" else g)
    return dx, None, None


@row_cross_entropy.graph
def row_cross_entropy_ddx(g, dx, ids, found, as_x, smoothing, z_loss, ignore, reduction):
    """The logits are gone, but the kept gradient tells their softmax, and its logarithm does in their place. With a z-loss each row of
    the gradient adds up to more than the target's, by which it tells their logsumexp."""
    target, share = targets(ids, found, dx, smoothing, ignore, reduction)
    y, far = dx / where(share > 0, share, 1.0) + target, 0.0
    if z_loss:
        growth = where(share > 0, sum_op(y, axis=1, keepdims=True), 1.0)
        y, far = y / growth, (growth - 1.0) / (2.0 * z_loss)
    return gradient_of(g, as_x(log_op(clamp(y, min=1e-30)) + far), target, share, z_loss, reduction)


def targets(ids: Any, found: Any, like: Any, smoothing: float, ignore: int, reduction: str) -> tuple[Any, Any]:
    """(the distribution that each row of logits should have, what a row counts), shaped and typed as `like`."""
    rows, classes = reshape(ids, (ids.size, 1)), Tensor.of("cross_entropy", np.arange(like.shape[1]), ids.device)
    target = cast(eq(rows, classes), like.dtype) * (1.0 - smoothing) + smoothing / like.shape[1]
    share = cast(ne(rows, ignore), like.dtype)
    return target, share / cast(maximum_op(found[2], 1), like.dtype) if reduction == "mean" else share


def gradient_of(g: Any, x: Any, target: Any, share: Any, z_loss: float, reduction: str) -> tuple[Any, None, None]:
    """Cross-entropy's gradient at logits x, in differentiable ops."""
    y = softmax(x)
    if z_loss:
        y = y * (1.0 + 2.0 * z_loss * logsumexp(x, 1, True))
    return (y - target) * share * (reshape(g, (g.size, 1)) if reduction == "none" else g), None, None


@custom(inputs=3, kind="as is", title="cross_entropy", internal=True)
def half_cross_entropy(x, ids, found, smoothing=0.0, z_loss=0.0, ignore=-100, reduction="mean"):
    """row_cross_entropy of 16-bit logits, which is float32: backward makes the gradient. Kept, 1 / rows of it would vanish in 16 bits, or
    cost 32."""
    rows, cols = x.shape
    losses, kept = row_losses(x), like(x, (rows, 2), float32)
    if x.size:
        consts = (number(float(smoothing), float32), number(float(z_loss), float32), ignore, rows, cols)
        launch("row", half_cross_entropy_row, (losses, kept), (x, ids), consts)
    return batch_loss(losses, found, reduction), {"kept": kept}


@half_cross_entropy.backward
def half_cross_entropy_dx(g, x, ids, found, kept, narrow_dx, smoothing, z_loss, ignore, reduction):
    dx = like(x, dtype=bfloat16 if narrow_dx and x.dtype == bfloat16 else float32)
    if x.size:
        numbers = number(float(smoothing), float32), number(float(z_loss), float32)
        consts = (*numbers, ignore, reduction == "mean", reduction == "none", *x.shape)
        launch("row", half_cross_entropy_dx_row, (dx,), (None if g.unit else g, x, ids, found, kept), consts)
    return dx, None, None


@half_cross_entropy.graph
def half_cross_entropy_ddx(g, x, ids, found, smoothing, z_loss, ignore, reduction):
    return gradient_of(g, x, *targets(ids, found, x, smoothing, ignore, reduction), z_loss, reduction)


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
    rows, shape = classes_last("cross_entropy", x, target)
    ids, text = class_ids("cross_entropy", target, x.device, shape, rows.shape[-1], ignore_index, reduction)
    ids, found = checked(ids, text, rows.shape[-1], int(ignore_index))
    rows = rows if rows.dtype in FLOATS else cast(rows, float32)
    run = half_cross_entropy if rows.dtype in HALF else row_cross_entropy
    if weight is None:
        loss = run(rows, ids, found, label_smoothing, z_loss, int(ignore_index), reduction)
    else:
        loss = weighted_cross_entropy(run, rows, ids, found, weight, label_smoothing, z_loss, int(ignore_index), reduction)
    return reshape(loss, shape) if reduction == "none" and loss.shape != shape else loss


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
@custom(inputs=2, kind="as is", title="nll_loss", internal=True)
def row_nll(x, ids, text="", ignore=-100, reduction="mean"):
    """-x[id] of each row of x (rows, classes), 0 where ignored. `text`: what check_ids() says of an id that is no class."""
    losses, (_, found) = row_losses(x), checked(ids, text, x.shape[1], ignore)
    if x.size:
        launch("row", nll_row, (losses,), (x, ids), (ignore, x.shape[1], x.shape[0], 1))
    return batch_loss(losses, found, reduction), {"found": found}


@row_nll.backward
def row_nll_dx(g, ids, found, shapes, ignore, reduction):
    dx = like(g, shapes[0])
    if dx.size:
        launch("row", nll_dx_row, (dx,), (g, ids, found), (ignore, reduction == "mean", reduction == "none", *shapes[0]))
    return dx, None


@row_nll.graph
def row_nll_ddx(g, ids, found, shapes, ignore, reduction):
    target, share = targets(ids, found, like(g, shapes[0]), 0.0, ignore, reduction)
    return neg(target * share * (reshape(g, (g.size, 1)) if reduction == "none" else g)), None


@composed(home="both")
def nll_loss(x: Any, target: Any, weight: Any = None, *, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """-x[id] for log-probabilities x; shapes and `weight` as in cross_entropy.
    Shapes: x (rows, classes), ids (rows,); the others of cross_entropy too. Raises what it raises.
    >>> fp.nll_loss(fp.tensor([[-0.5, -1.5]]), [1]).item()
    1.5"""
    x, target = tensors_of("nll_loss", x, target)
    rows, shape = classes_last("nll_loss", x, target)
    ids, text = class_ids("nll_loss", target, x.device, shape, rows.shape[-1], ignore_index, reduction)
    rows, ignore = rows if rows.dtype in FLOATS else cast(rows, float32), int(ignore_index)
    if weight is None:
        loss = row_nll(rows, ids, text, ignore, reduction)
    else:
        losses = row_nll(rows, ids, text, ignore, "none")
        loss = weighted(losses, reshape(ids, (ids.size,)), class_weights("nll_loss", weight, rows), ignore, reduction)
    loss = narrowed(loss, rows.dtype)
    return reshape(loss, shape) if reduction == "none" and loss.shape != shape else loss
