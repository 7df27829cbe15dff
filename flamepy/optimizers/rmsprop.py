"""RMSprop: steps divided by a running root mean square of the gradient (Hinton 2012, lecture 6e of "Neural Networks for Machine
Learning"); centered: by a running standard deviation (Graves 2013, arXiv:1308.0850). Arithmetic of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.words import maximum, sqrt
from .base import Optimizer


def rms_update(p, v, g, lr, l2, share, eps, sign, *_):
    g = sign * g + l2 * p
    v = v + (g * g - v) * share
    return p - lr * (g / (sqrt(v) + eps)), v


def momentum_update(p, v, m, g, lr, l2, share, eps, sign, momentum, *_):
    """m is the velocity."""
    g = sign * g + l2 * p
    v = v + (g * g - v) * share
    m = momentum * m + g / (sqrt(v) + eps)
    return p - lr * m, v, m


def centered_update(p, v, a, g, lr, l2, share, eps, sign, momentum, centered, *_):
    """a is the mean of the gradient; `centered` is 1, or 0 for a group that is not."""
    g = sign * g + l2 * p
    v = v + (g * g - v) * share
    a = a + (g - a) * share
    return p - lr * (g / (sqrt(maximum(v - centered * a * a, 0.0)) + eps)), v, a


def both_update(p, v, m, a, g, lr, l2, share, eps, sign, momentum, centered, *_):
    g = sign * g + l2 * p
    v = v + (g * g - v) * share
    a = a + (g - a) * share
    m = momentum * m + g / (sqrt(maximum(v - centered * a * a, 0.0)) + eps)
    return p - lr * m, v, m, a


FORMULAS = {("v",): rms_update, ("v", "m"): momentum_update, ("v", "a"): centered_update, ("v", "m", "a"): both_update}


class RMSprop(Optimizer):
    """Steps divided by a running root mean square of the gradient. alpha: how much of the mean square is kept; centered: the mean of the
    gradient is taken out of it. Weight decay is L2: added to the gradient. `lr` may be a schedule."""

    name = "RMSprop"

    def __init__(
        self, params: Any = None, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0,
        centered: bool = False, maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**options, "centered": centered, "maximize": maximize}, groups, transforms)

    def used_slots(self, groups: Sequence[Any]) -> tuple[str, ...]:
        m, a = any(g["momentum"] for g in groups), any(g["centered"] for g in groups)
        return ("v", *["m"] * m, *["a"] * a)

    @property
    def formula(self) -> Any:  # type: ignore[override]
        return FORMULAS[self.used_slots(self.groups)]

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        sign = -1.0 if group["maximize"] else 1.0
        share, centered = 1.0 - group["alpha"], float(group["centered"])
        return group["lr"], group["weight_decay"], share, group["eps"], sign, group["momentum"], centered
