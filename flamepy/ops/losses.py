"""Losses: cross-entropy fused over a row, the others composed of ops. Shapes must be equal; nothing broadcasts.

`reduction` is "none", "mean" or "sum". Gradients reach the targets of mse, l1, smooth_l1 and huber, not those of the others.

May import: errors, backend, autograd, op. FLAME counterpart: `flame_core::loss`. Read next: random.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import op, ops
from ..backend.base import INTEGERS, int64
from ..backend.row_words import all_max, all_sum, lane, lanes
from ..backend.words import INF, abs, exp, fmax, log, log1p, maximum, real, select, sign
from ..errors import DTypeError, IndexOutOfRange, ShapeError
from ..op import composed, launch, like, size_of
from ..op_custom import custom
from ..op_pointwise import pointwise


def reduced(name: str, losses: Any, reduction: str) -> Any:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{name}: unknown reduction: {reduction!r}. Use 'none', 'mean' or 'sum'.")
    return losses if reduction == "none" else ops.mean(losses) if reduction == "mean" else ops.sum(losses)


# ---- cross-entropy ---------------------------------------------------------------------------------------------------------------
def cross_entropy_row(r, loss, lse, x, ids, smoothing, ignore, rows, cols):
    x = x[r * cols : r * cols + cols]
    top = -INF
    for j in range(lane(), cols, lanes()):
        top = fmax(top, x[j])
    top = all_max(top)
    total, plain = 0.0, 0.0
    for j in range(lane(), cols, lanes()):
        total += exp(x[j] - top)
        plain += x[j]
    top = top + log(all_sum(total))
    plain = all_sum(plain)
    lse[r] = top
    if ids[r] == ignore:
        loss[r] = 0.0
    elif smoothing == 0.0:
        loss[r] = top - x[ids[r]]
    else:
        share = smoothing / real(cols)
        loss[r] = (1.0 - smoothing) * (top - x[ids[r]]) + share * (real(cols) * top - plain)


def cross_entropy_dx_row(r, dx, g, x, lse, ids, smoothing, ignore, rows, cols):
    dx, x = dx[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    if ids[r] == ignore:
        for j in range(lane(), cols, lanes()):
            dx[j] = 0.0
    else:
        top, scale = lse[r], g[r]
        share = scale * smoothing / real(cols)
        for j in range(lane(), cols, lanes()):
            dx[j] = scale * exp(x[j] - top) - share
        dx[ids[r]] -= scale * (1.0 - smoothing)


@custom(inputs=1, home="")
def row_cross_entropy(x, ids=None, smoothing=0.0, ignore=-100):
    """-log softmax(x)[id] of each row of x (rows, classes), mixed with the mean over classes by `smoothing`; 0 where ignored."""
    rows, cols = x.shape
    loss, lse = like(x, (rows,)), like(x, (rows,))
    if x.size:
        launch("row", cross_entropy_row, (loss, lse), (x, ids), (x.dtype.type(smoothing), ignore, rows, cols), work=x.size)
    return loss, {"lse": lse}


@row_cross_entropy.backward
def row_cross_entropy_dx(g, x, lse, ids, smoothing, ignore):
    rows, cols = x.shape
    dx = like(x)
    if x.size:
        launch("row", cross_entropy_dx_row, (dx,), (g, x, lse, ids), (x.dtype.type(smoothing), ignore, rows, cols), work=x.size)
    return dx


def class_ids(name: str, ids: Any, shape: tuple[int, ...], classes: int, ignore: int) -> tuple[Any, np.ndarray]:
    """ids as int64, and which of them count. Raises DTypeError, ShapeError, IndexOutOfRange with value and position."""
    ids = op.Tensor.of(name, ids)
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"{name}: class ids are not integer: {ids.dtype}. Cast them to int64.")
    if ids.shape != shape:
        raise ShapeError(f"{name}: sizes differ: class ids {ids.shape}, expected {shape}. Give one id for each row of logits.")
    array = ids.numpy()
    if array.size and (array.min() < 0 or array.max() >= classes):
        bad = ((array < 0) | (array >= classes)) & (array != ignore)
        if bad.any():
            at = tuple(np.argwhere(bad)[0].tolist())
            advice = f"Use 0 to {classes - 1}, or ignore_index={ignore}."
            raise IndexOutOfRange(f"{name}: class id out of range: {array[at]} at position {at}. {advice}")
    return ids if ids.dtype == int64 else ops.cast(ids, int64), array


def classes_last(name: str, x: Any) -> Any:
    """Logits (N, C, d1, ...) or (C,) as (rows, C)."""
    if not x.ndim:
        raise ShapeError(f"{name}: logits have no class axis: shape {x.shape}. Use (rows, classes).")
    if x.ndim > 2:
        x = ops.permute(x, (0, *range(2, x.ndim), 1))
    return ops.reshape(x, (size_of(x.shape[:-1]), x.shape[-1]))


def class_loss(name: str, losses: Any, array: np.ndarray, shape: tuple[int, ...], ignore: int, reduction: str) -> Any:
    if reduction == "mean":
        counted = array.size - int(np.count_nonzero(array == ignore))
        return ops.div(ops.sum(losses), float(counted)) if counted else ops.mul(ops.sum(losses), float("nan"))
    return ops.reshape(losses, shape) if reduction == "none" else reduced(name, losses, reduction)


@composed(home="both")
def cross_entropy(x: Any, ids: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean") -> Any:
    """-log softmax(x)[id], averaged over the ids that are not ignored.

    x: logits (rows, classes), (classes,) or (N, classes, d1, ...); ids: integers of that shape without classes.
    `label_smoothing` in [0, 1] mixes in the mean over all classes (Szegedy et al. 2015, arXiv:1512.00567).
    """
    x = op.Tensor.of("cross_entropy", x)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"cross_entropy: label_smoothing outside [0, 1]: {label_smoothing}. Use a small number such as 0.1.")
    rows = classes_last("cross_entropy", x)
    shape = x.shape[:1] * (x.ndim > 1) + x.shape[2:]
    ids, array = class_ids("cross_entropy", ids, shape, rows.shape[-1], ignore_index)
    flat = ops.reshape(ids, (rows.shape[0],))
    losses = op.REGISTRY["row_cross_entropy"](rows, flat, float(label_smoothing), int(ignore_index))
    return class_loss("cross_entropy", losses, array, shape, ignore_index, reduction)


@composed(home="both")
def nll_loss(x: Any, ids: Any, *, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """-x[id] for log-probabilities x; shapes as in cross_entropy."""
    x = op.Tensor.of("nll_loss", x)
    rows = classes_last("nll_loss", x)
    shape = x.shape[:1] * (x.ndim > 1) + x.shape[2:]
    ids, array = class_ids("nll_loss", ids, shape, rows.shape[-1], ignore_index)
    keep = (array != ignore_index).reshape(-1)
    picked = ops.gather(rows, 1, np.where(keep, array.reshape(-1), 0)[:, None]) if rows.size else rows
    losses = ops.where(keep, ops.neg(ops.reshape(picked, keep.shape)), 0.0)
    return class_loss("nll_loss", losses, array, shape, ignore_index, reduction)


# ---- distances: both sides may be tracked ----------------------------------------------------------------------------------------
def pair(name: str, x: Any, target: Any) -> tuple[Any, Any]:
    x, target = op.Tensor.of(name, x), op.Tensor.of(name, target)
    if x.shape != target.shape:
        raise ShapeError(f"{name}: shapes differ: {x.shape} and {target.shape}. Losses do not broadcast; reshape one of them.")
    return x, target


@composed(home="both")
def mse_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """(x - target)^2."""
    x, target = pair("mse_loss", x, target)
    return reduced("mse_loss", ops.square(ops.sub(x, target)), reduction)


@composed(home="both")
def l1_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """|x - target|."""
    x, target = pair("l1_loss", x, target)
    return reduced("l1_loss", ops.abs(ops.sub(x, target)), reduction)


def huber_y(d, delta=1.0):
    """0.5 d^2 up to |d| = delta, delta (|d| - delta / 2) beyond (Huber 1964)."""
    return select(abs(d) <= delta, 0.5 * d * d, delta * (abs(d) - 0.5 * delta))


def huber_dd(g, d, delta):
    return g * select(abs(d) <= delta, d, delta * sign(d))


pointwise("huber", huber_y, huber_dd, home="")


@composed(home="both")
def huber_loss(x: Any, target: Any, *, delta: float = 1.0, reduction: str = "mean") -> Any:
    """Quadratic up to |x - target| = delta, linear beyond, slope delta."""
    x, target = pair("huber_loss", x, target)
    if not delta > 0:
        raise ValueError(f"huber_loss: delta must be positive: {delta}. Use a positive number.")
    return reduced("huber_loss", op.REGISTRY["huber"](ops.sub(x, target), delta=delta), reduction)


@composed(home="both")
def smooth_l1_loss(x: Any, target: Any, *, beta: float = 1.0, reduction: str = "mean") -> Any:
    """huber_loss(delta=beta) / beta; beta 0 is l1_loss."""
    x, target = pair("smooth_l1_loss", x, target)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta must not be negative: {beta}. Use 0 or more.")
    if beta == 0:
        return l1_loss(x, target, reduction=reduction)
    return reduced("smooth_l1_loss", ops.div(op.REGISTRY["huber"](ops.sub(x, target), delta=beta), float(beta)), reduction)


# ---- probabilities ---------------------------------------------------------------------------------------------------------------
def bce_y(x, target):
    """-(t log x + (1 - t) log(1 - x)), each logarithm at least -100."""
    return -(target * maximum(log(x), -100.0) + (1.0 - target) * maximum(log1p(-x), -100.0))


def bce_dx(g, x, target):
    return g * (x - target) / maximum(x * (1.0 - x), 1e-12)


def bce_logits_y(x, target, pos_weight):
    """BCE of sigmoid(x), without overflow; positives count pos_weight times."""
    weight = 1.0 + (pos_weight - 1.0) * target
    return (1.0 - target) * x + weight * (log1p(exp(-abs(x))) + maximum(-x, 0.0))


def bce_logits_dx(g, x, target, pos_weight):
    s = 1.0 / (1.0 + exp(-x))
    return g * ((1.0 - target) * s - target * pos_weight * (1.0 - s))


pointwise("bce", bce_y, bce_dx, None, home="")
pointwise("bce_logits", bce_logits_y, bce_logits_dx, None, None, home="")


@composed(home="both")
def binary_cross_entropy(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1]."""
    x, target = pair("binary_cross_entropy", x, target)
    values = x.numpy()
    if values.size and not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            f"binary_cross_entropy: not probabilities: from {values.min()} to {values.max()}. Use binary_cross_entropy_with_logits."
        )
    return reduced("binary_cross_entropy", op.REGISTRY["bce"](x, target), reduction)


@composed(home="both")
def binary_cross_entropy_with_logits(x: Any, target: Any, *, pos_weight: Any = None, reduction: str = "mean") -> Any:
    """Binary cross-entropy of sigmoid(x); pos_weight (number or tensor that broadcasts) weighs the positives."""
    name = "binary_cross_entropy_with_logits"
    x, target = pair(name, x, target)
    weight = 1.0 if pos_weight is None else pos_weight if isinstance(pos_weight, op.SCALARS) else op.Tensor.of(name, pos_weight)
    if isinstance(weight, op.Tensor) and np.broadcast_shapes(weight.shape, x.shape) != x.shape:
        raise ShapeError(f"{name}: pos_weight {weight.shape} does not broadcast to {x.shape}. Give one weight a class.")
    return reduced(name, op.REGISTRY["bce_logits"](x, target, weight), reduction)
