"""Losses of segmentation: where few pixels belong to anything, and what counts is how far two regions overlap."""

from __future__ import annotations

from typing import Any

from ..backend.formula.words import log1p
from ..core.ops.axes import axes_of, composed
from ..core.ops.pointwise import add, div, mul, sub
from ..core.ops.reduce import sum as sum_op
from ..core.pointwise import pointwise
from ..core.words import abs, exp_down, log, maximum, pow, select
from ..dtypes import checked_number
from .activations import sigmoid
from .losses import pair, reduced


# ---- focal ----------------------------------------------------------------------------------------------------------------------------
def balance(target, alpha):
    return select(alpha < 0.0, 1.0, alpha * target + (1.0 - alpha) * (1.0 - target))


def focal_y(x, target, alpha=0.25, gamma=2.0):
    """Binary cross-entropy of s = sigmoid(x), times what is missing, q = s + t - 2 s t, to the power gamma, times alpha or 1 - alpha."""
    s = sigmoid(x)
    loss = (1.0 - target) * x + log1p(exp_down(-abs(x))) + maximum(-x, 0.0)
    return balance(target, alpha) * loss * pow(s + target - 2.0 * s * target, gamma)


def focal_dx(g, x, target, alpha, gamma):
    s = sigmoid(x)
    q = s + target - 2.0 * s * target
    loss = (1.0 - target) * x + log(1.0 + exp_down(-abs(x))) + maximum(-x, 0.0)
    slope = gamma * s * (1.0 - s) * (1.0 - 2.0 * target) / maximum(q, 1e-30)
    return g * balance(target, alpha) * pow(q, gamma) * (s - target + loss * slope)


def focal_dtarget(g, x, target, alpha, gamma):
    s = sigmoid(x)
    q = s + target - 2.0 * s * target
    loss = (1.0 - target) * x + log(1.0 + exp_down(-abs(x))) + maximum(-x, 0.0)
    slope = gamma * (1.0 - 2.0 * s) / maximum(q, 1e-30)
    return g * pow(q, gamma) * (balance(target, alpha) * (loss * slope - x) + select(alpha < 0.0, 0.0, 2.0 * alpha - 1.0) * loss)


focal_op = pointwise("focal", focal_y, focal_dx, focal_dtarget, title="sigmoid_focal_loss")


@composed(home="functional")
def sigmoid_focal_loss(x: Any, target: Any, *, alpha: float = 0.25, gamma: float = 2.0, reduction: str = "none") -> Any:
    """Binary cross-entropy of sigmoid(x) that counts (1 - p)^gamma, p what the right answer gets (Lin et al. 2017, arXiv:1708.02002).
    Positives count `alpha`, negatives 1 - alpha; a negative alpha: both count 1. As in torchvision nothing is averaged unless asked for.
    Shapes and errors: as mse_loss; ValueError for gamma < 0.
    >>> round(F.sigmoid_focal_loss(fp.tensor([0.0]), [1.0], alpha=-1, reduction="mean").item(), 4)
    0.1733"""
    name = "sigmoid_focal_loss"
    x, target, dtype = pair(name, x, target)
    alpha, gamma = checked_number(name, "alpha", alpha), checked_number(name, "gamma", gamma)
    if not gamma >= 0:
        raise ValueError(f"{name}: gamma must not be negative: {gamma}. Use 0 or more.")
    return reduced(name, focal_op(x, target, alpha=alpha, gamma=gamma), reduction, dtype)


# ---- regions --------------------------------------------------------------------------------------------------------------------------
@composed(home="functional")
def tversky_loss(
    x: Any, target: Any, alpha: float = 0.5, beta: float = 0.5, *, smooth: float = 1.0, axis: Any = None, reduction: str = "mean"
) -> Any:  # fmt: skip
    """1 - (overlap + smooth) / (overlap + alpha only x + beta only target + smooth) for probabilities (Salehi et al. 2017,
    arXiv:1706.05721).
    overlap: the sum of x t, only x: that of x (1 - t), only target: that of (1 - x) t. They are over `axis`, by default all but the
    first two, of (N, classes, d1, ...), or the last one where there is no third; `reduction` is over what is left.
    Shapes and errors: as mse_loss; IndexOutOfRange for an axis that is not there.
    >>> round(F.tversky_loss(fp.tensor([[1.0, 0.0]]), [[1.0, 1.0]], 0.3, 0.7, smooth=0).item(), 4)
    0.4118"""
    return region_loss("tversky_loss", x, target, (alpha, beta), smooth, axis, reduction)


@composed(home="functional")
def dice_loss(x: Any, target: Any, *, smooth: float = 1.0, axis: Any = None, reduction: str = "mean") -> Any:
    """1 - (2 overlap + smooth) / (sum of x + sum of target + smooth) for probabilities (Milletari et al. 2016, arXiv:1606.04797).
    Sums are over `axis`, see tversky_loss. Shapes and errors: as mse_loss.
    >>> round(F.dice_loss(fp.tensor([[1.0, 0.0]]), [[1.0, 1.0]], smooth=0).item(), 4)
    0.3333"""
    return region_loss("dice_loss", x, target, (0.5, 0.5), 0.5 * checked_number("dice_loss", "smooth", smooth), axis, reduction)


def region_loss(name: str, x: Any, target: Any, shares: tuple[Any, Any], smooth: Any, axis: Any, reduction: str) -> Any:
    x, target, dtype = pair(name, x, target)
    alpha, beta = (checked_number(name, what, share) for what, share in zip(("alpha", "beta"), shares, strict=True))
    axes = axes_of(name, axis, x.ndim) if axis is not None else tuple(range(min(2, max(0, x.ndim - 1)), x.ndim))
    smooth = checked_number(name, "smooth", smooth)
    both, whole, wanted = (sum_op(t, axis=axes) for t in (mul(x, target), x, target))
    rest = add(mul(sub(whole, both), alpha), mul(sub(wanted, both), beta))
    losses = sub(1.0, div(add(both, smooth), add(add(both, rest), smooth)))
    return reduced(name, losses, reduction, dtype)
