"""Lion: the sign of an average of the gradient, found by a search over programs (Chen et al. 2023, arXiv:2302.06675, algorithm 2)."""

from __future__ import annotations

from typing import Any

from ..core.words import sign
from .base import Optimizer


def lion_update(p, m, g, before, beta1, rise1, rise2, lr, way, *_):
    """The average that is used and the one that is kept forget at different rates."""
    g = way * g
    used = beta1 * m + rise1 * g
    return p * before - lr * sign(used), m + (g - m) * rise2


class Lion(Optimizer):
    """The sign of an average of the gradient: every element moves by lr. The paper takes a tenth to a third of AdamW's lr, and as much more
    weight decay, which is decoupled. `lr` may be a schedule."""

    name = "Lion"
    slots = ("m",)
    formula = staticmethod(lion_update)

    def __init__(
        self, params: Any = None, lr: Any = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0,
        maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, (beta1, beta2) = group["lr"], group["betas"]
        return 1.0 - lr * group["weight_decay"], beta1, 1.0 - beta1, 1.0 - beta2, lr, -1.0 if group["maximize"] else 1.0
