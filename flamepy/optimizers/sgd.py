"""Stochastic gradient descent with momentum (Sutskever et al. 2013), the arithmetic of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..core import optimizers as core
from ..core.optimizers import momentum_update, sgd_update
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


class SGD(core.SGD, Optimizer):
    """p -= lr * velocity. `lr` may be a schedule. Weight decay is L2: added to the gradient. The first velocity is the gradient itself.
    Raises ValueError for nesterov without momentum or with dampening."""

    name = "SGD"
    slots = ("m",)

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, groups: dict[str, dict[str, Any]] | None = None, maximize: bool = False, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        options = options_of(self.name, lr, params, {**options, "maximize": maximize}, asdict(SGDConfig()))
        Optimizer.__init__(self, params, options, groups, transforms)

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
