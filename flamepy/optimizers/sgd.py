"""Stochastic gradient descent with momentum (Sutskever et al. 2013), the arithmetic of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .base import Optimizer
from .given import options_of


@dataclass
class SGDConfig:
    """Options of SGD."""

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False


def sgd_update(p, g, lr, l2, momentum, share, nesterov, sign, *_):
    return p - lr * (sign * g + l2 * p)


def momentum_update(p, m, g, lr, l2, momentum, share, nesterov, sign, *_):
    """m is the velocity; `share` is how much of the gradient enters it; `nesterov` is 1 for the look-ahead, else 0."""
    g = sign * g + l2 * p
    m = momentum * m + share * g
    return p - lr * (nesterov * (g + momentum * m) + (1.0 - nesterov) * m), m


class SGD(Optimizer):
    """p -= lr * velocity. SGD(params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, groups=None,
    maximize=False, transforms=None).

    `lr` may be a schedule. Weight decay is L2: added to the gradient. The first velocity is the gradient itself. Raises ValueError for
    nesterov without momentum or with dampening.
    """

    name = "SGD"
    slots = ("m",)

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, groups: dict[str, dict[str, Any]] | None = None, maximize: bool = False, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        options = options_of(self.name, lr, params, {**options, "maximize": maximize}, asdict(SGDConfig()))
        super().__init__(params, options, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            given = f"{options['momentum']}, {options['dampening']}"
            raise ValueError(f"SGD: nesterov needs momentum and no dampening: {given}. Set momentum > 0 and dampening 0.")

    def used_slots(self, groups: Sequence[Any]) -> tuple[str, ...]:
        return self.slots if any(g["momentum"] for g in groups) else ()

    @property
    def formula(self) -> Any:  # type: ignore[override]
        return momentum_update if self.used_slots(self.groups) else sgd_update

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        momentum = group["momentum"]
        share = 1.0 if step == 1 or not momentum else 1.0 - group["dampening"]
        sign = -1.0 if group["maximize"] else 1.0
        return group["lr"], group["weight_decay"], momentum, share, float(bool(group["nesterov"])), sign
