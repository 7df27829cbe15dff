"""Losses that compare element by element, composed of pointwise ops. Shapes must be equal; nothing broadcasts but weights.

`reduction` is "none", "mean" or "sum". Gradients reach targets, too; not a pos_weight.
"""

from __future__ import annotations

import math
from typing import Any

from ..backend.formula.words import log1p
from ..core import op
from ..core.errors import ShapeError
from ..core.inputs import common_dtype
from ..core.ops.axes import composed, tensors_of
from ..core.ops.pointwise import abs_op, add, div, mul, square, sub
from ..core.ops.reduce import mean
from ..core.ops.reduce import min as min_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..core.pointwise import define, pointwise
from ..core.words import abs, exp, exp_down, log, maximum, select, sign
from ..definitions import broadcasts
from ..dtypes import checked_number
from .activations import sigmoid
from .class_ids import REDUCTIONS, unknown_reduction
from .random import checked_share
from .widening import narrowed, widened


def reduced(name: str, losses: Any, reduction: str, dtype: Any) -> Any:
    """The losses, or their mean or sum, rounded to this type."""
    if reduction not in REDUCTIONS:
        raise unknown_reduction(name, reduction)
    return narrowed(losses if reduction == "none" else mean(losses) if reduction == "mean" else sum_op(losses), dtype)


# ---- distances ---------------------------------------------------------------------------------------------------------------------
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
    2.0"""
    x, target, dtype = pair("mse_loss", x, target)
    return reduced("mse_loss", square(sub(x, target)), reduction, dtype)


@composed(home="both")
def l1_loss(x: Any, target: Any, *, reduction: str = "mean") -> Any:
    """|x - target|.
    Shapes and errors: as mse_loss.
    >>> fp.l1_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    1.0"""
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
    0.75"""
    x, target, dtype = pair("huber_loss", x, target)
    if not checked_number("huber_loss", "delta", delta) > 0:
        raise ValueError(f"huber_loss: delta must be positive: {delta}. Use a positive number.")
    return reduced("huber_loss", huber_op(sub(x, target), delta=delta), reduction, dtype)


@composed(home="both")
def smooth_l1_loss(x: Any, target: Any, *, beta: float = 1.0, reduction: str = "mean") -> Any:
    """huber_loss(delta=beta) / beta; beta 0 is l1_loss.
    Shapes and errors: as mse_loss; ValueError for beta < 0.
    >>> fp.smooth_l1_loss(fp.tensor([1.0, 2.0]), [1.0, 4.0]).item()
    0.75"""
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
    lambda g, x, target: g * (x - target) / maximum(x * (1.0 - x), 1e-12),
    None, title="binary_cross_entropy", home="",
)  # fmt: skip
bce_logits_op = pointwise("bce_logits", bce_logits_y, bce_logits_dx, None, None, title="binary_cross_entropy_with_logits")


def rescaled(name: str, losses: Any, weight: Any) -> Any:
    """The losses times weights that broadcast to them, if there are some. Raises ShapeError."""
    return losses if weight is None else mul(losses, widened(spread_weight(name, "weight", weight, losses)))


def spread_weight(name: str, what: str, weight: Any, x: Any) -> Any:
    """A weight as a Tensor that broadcasts to x. Raises ShapeError."""
    weight = tensors_of(name, x, weight)[1]
    if not broadcasts(weight.shape, x.shape):
        raise ShapeError(f"{name}: {what} {weight.shape} does not broadcast to {x.shape}. Give one weight a class.")
    return weight


@composed(home="both")
def binary_cross_entropy(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    """-(t log x + (1 - t) log(1 - x)) for probabilities x in [0, 1]; `weight`, which broadcasts to x, multiplies each.
    Shapes and errors: as mse_loss; ValueError for x outside [0, 1]. No gradient reaches the target.
    >>> round(fp.binary_cross_entropy(fp.tensor([0.5]), [1.0]).item(), 4)
    0.6931"""
    name = "binary_cross_entropy"
    x, target, dtype = pair(name, x, target)
    losses = bce_op(checked_share(name, x, advice="binary_cross_entropy_with_logits for other numbers"), target)
    return reduced(name, rescaled(name, losses, weight), reduction, dtype)


@composed(home="both")
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, *, pos_weight: Any = None, reduction: str = "mean"
) -> Any:  # fmt: skip
    """Binary cross-entropy of sigmoid(x); pos_weight (number or tensor that broadcasts) weighs the positives, `weight` each element.
    Shapes and errors: as mse_loss. No gradient reaches the target or a pos_weight.
    >>> round(fp.binary_cross_entropy_with_logits(fp.tensor([0.0]), [1.0]).item(), 4)
    0.6931"""
    name = "binary_cross_entropy_with_logits"
    x, target, dtype = pair(name, x, target)
    positives = 1.0 if pos_weight is None else pos_weight
    if not isinstance(positives, op.SCALARS):
        positives = spread_weight(name, "pos_weight", positives, x)
    return reduced(name, rescaled(name, bce_logits_op(x, target, positives), weight), reduction, dtype)


# ---- likelihoods ---------------------------------------------------------------------------------------------------------------------
kl_op = define(
    "kl", "t (log t - x), 0 where t is 0; there the derivative for t is -x, without log 0.",
    lambda x, target: select(target == 0.0, 0.0, target * (log(target) - x)), lambda g, target: -g * target,
    lambda g, x, target: g * (select(target > 0.0, 1.0 + log(select(target > 0.0, target, 1.0)), 0.0) - x), title="kl_div", home="",
)  # fmt: skip
kl_log_op = define(
    "kl_log", "exp(t) (t - x), 0 where exp(t) is 0.",
    lambda x, target: select(exp(target) == 0.0, 0.0, exp(target) * (target - x)), lambda g, target: -g * exp(target),
    lambda g, x, target: select(exp(target) == 0.0, 0.0, g * exp(target) * (1.0 + target - x)), title="kl_div", home="",
)  # fmt: skip


@composed(home="functional")
def kl_div(x: Any, target: Any, *, reduction: str = "mean", log_target: bool = False) -> Any:
    """t (log t - x) for log-probabilities x and probabilities t (Kullback & Leibler 1951), or their logarithms with `log_target`.
    "mean" is over all elements, as in PyTorch; the divergence of distributions is "batchmean": the sum divided by the first size.
    Shapes and errors: as mse_loss.
    >>> round(F.kl_div(fp.tensor([[0.5, 0.5]]).log(), [[1.0, 0.0]], reduction="batchmean").item(), 4)
    0.6931"""
    x, target, dtype = pair("kl_div", x, target)
    losses = (kl_log_op if log_target else kl_op)(x, target)
    if reduction == "batchmean":
        return narrowed(div(sum_op(losses), float(x.shape[0] if x.ndim else 1)), dtype)
    return reduced("kl_div", losses, reduction, dtype)


poisson_log_op = define(
    "poisson_log", "exp(x) - t x.", lambda x, target: exp(x) - target * x, lambda g, x, target: g * (exp(x) - target),
    lambda g, x: -g * x, title="poisson_nll_loss", home="",
)  # fmt: skip
poisson_op = define(
    "poisson", "x - t log(x + eps).", lambda x, target, eps=1e-8: x - target * log(x + eps),
    lambda g, x, target, eps: g * (1.0 - target / (x + eps)), lambda g, x, eps: -g * log(x + eps), title="poisson_nll_loss", home="",
)  # fmt: skip
stirling_op = define(
    "stirling", "Stirling's approximation of log(t!), 0 for t <= 1.",
    lambda x: select(x > 1.0, x * log(x) - x + 0.5 * log(6.283185307179586 * x), 0.0),
    lambda g, x: g * select(x > 1.0, log(x) + 0.5 / x, 0.0), title="poisson_nll_loss", home="",
)  # fmt: skip


@composed(home="functional")
def poisson_nll_loss(
    x: Any, target: Any, *, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Any:  # fmt: skip
    """Minus the logarithm of a count's probability: exp(x) - t x for the logarithm x of the rate, else x - t log(x + eps).
    `full` adds Stirling's approximation of log(t!) where t > 1. Shapes and errors: as mse_loss.
    >>> F.poisson_nll_loss(fp.tensor([0.0]), [2.0]).item()
    1.0"""
    name = "poisson_nll_loss"
    (x, target, dtype), eps = pair(name, x, target), checked_number(name, "eps", eps)
    losses = poisson_log_op(x, target) if log_input else poisson_op(x, target, eps=eps)
    return reduced(name, add(losses, stirling_op(target)) if full else losses, reduction, dtype)


gaussian_op = define(
    "gaussian", "0.5 (log v + (x - t)^2 / v) with v = var, at least eps; the derivative for var does not see that.",
    lambda x, target, var, eps=1e-6: 0.5 * (log(maximum(var, eps)) + (x - target) * (x - target) / maximum(var, eps)),
    lambda g, x, target, var, eps: g * (x - target) / maximum(var, eps),
    lambda g, x, target, var, eps: g * (target - x) / maximum(var, eps),
    lambda g, x, target, var, eps: 0.5 * g * (1.0 - (x - target) * (x - target) / maximum(var, eps)) / maximum(var, eps),
    title="gaussian_nll_loss", home="",
)  # fmt: skip


def check_variance(smallest: Any) -> None:
    low = smallest.device.download(smallest)[0]
    if low < 0:
        raise ValueError(f"gaussian_nll_loss: a negative variance: {low}. Use positive numbers, such as exp() of what a layer gives.")


@composed(home="functional")
def gaussian_nll_loss(x: Any, target: Any, var: Any, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> Any:
    """Minus the logarithm of a normal density: 0.5 (log var + (x - t)^2 / var) (Nix & Weigend 1994).
    Variances below `eps` count as eps. `full` adds the constant log(2 pi) / 2.
    Shapes: target and var broadcast to x; var may be a number, or lack x's last axis. Raises ShapeError, ValueError for a variance below 0.
    >>> F.gaussian_nll_loss(fp.tensor([1.0]), [3.0], fp.tensor([1.0])).item()
    2.0"""
    name = "gaussian_nll_loss"
    given = tensors_of(name, x, target, var)
    (x, target, var), dtype, eps = map(widened, given), common_dtype(name, given, "float"), checked_number(name, "eps", eps)
    if var.ndim and var.shape != x.shape and var.shape == x.shape[:-1]:
        var = reshape(var, (*var.shape, 1))
    if not broadcasts(var.shape, x.shape) or not broadcasts(target.shape, x.shape):
        advice = "Give one of each for each element, or for each row"
        raise ShapeError(f"{name}: sizes differ: x is {x.shape}, target {target.shape}, var {var.shape}. {advice}.")
    if var.size:
        var.device.require(check_variance, min_op(var.detach()).buffer, within=((0.0, math.inf),))
    losses = gaussian_op(x, target, var, eps=eps)
    return reduced(name, add(losses, 0.9189385332046727) if full else losses, reduction, dtype)
