"""Adagrad (Duchi, Hazan & Singer 2011, JMLR 12): steps divided by the root of the sum of all squared gradients; and Adadelta (Zeiler
2012, arXiv:1212.5701), which keeps a running mean of them instead and needs no rate. Arithmetic of PyTorch.
"""

from __future__ import annotations

from typing import Any

from ..core.words import sqrt
from .base import Optimizer


def adagrad_update(p, v, g, lr, l2, start, eps, sign, *_):
    """`start`: what v begins with, at the first step; later 0."""
    g = sign * g + l2 * p
    v = v + start + g * g
    return p - lr * (g / (sqrt(v) + eps)), v


def adadelta_update(p, v, u, g, lr, l2, rho, share, eps, sign, *_):
    """v and u: the means of the squared gradients and of the squared steps."""
    g = sign * g + l2 * p
    v = rho * v + share * g * g
    d = sqrt(u + eps) / sqrt(v + eps) * g
    return p - lr * d, v, rho * u + share * d * d


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients: the rate of step t is lr / (1 + (t - 1) * lr_decay). Weight decay is
    L2. `lr` may be a schedule."""

    name = "Adagrad"
    slots = ("v",)
    formula = staticmethod(adagrad_update)

    def __init__(
        self, params: Any = None, lr: Any = 1e-2, lr_decay: float = 0.0, weight_decay: float = 0.0, initial_accumulator_value: float = 0.0,
        eps: float = 1e-10, maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps, "maximize": maximize}
        super().__init__(params, {**options, "initial_accumulator_value": initial_accumulator_value}, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, sign = group["lr"] / (1.0 + (step - 1) * group["lr_decay"]), -1.0 if group["maximize"] else 1.0
        return lr, group["weight_decay"], group["initial_accumulator_value"] if step == 1 else 0.0, group["eps"], sign


class Adadelta(Optimizer):
    """Steps divided by a running root mean square of the gradient, times one of the steps. rho: how much of both means is kept; lr
    multiplies the step. Weight decay is L2. `lr` may be a schedule."""

    name = "Adadelta"
    slots = ("v", "u")
    formula = staticmethod(adadelta_update)

    def __init__(
        self, params: Any = None, lr: Any = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0, maximize: bool = False,
        groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        sign = -1.0 if group["maximize"] else 1.0
        return group["lr"], group["weight_decay"], group["rho"], 1.0 - group["rho"], group["eps"], sign
