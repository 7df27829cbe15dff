"""Schedule-free SGD and AdamW: an average of the iterates in the place of a falling rate (Defazio et al. 2024, arXiv:2405.15682).
Arithmetic of its authors' code.

    optimizer = fp.AdamWScheduleFree(model, lr=2.5e-3)
    ... optimizer.step(loss.backward()) ...
    optimizer.eval()                         # the parameters are the average: evaluate and save them
    optimizer.train()                        # and go on

Gradients are taken at y, which is what the parameters are while training; z is where plain steps lead, x their weighted average. Beside a
parameter only z is kept, since y = beta * x + (1 - beta) * z.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..autograd import no_grad
from ..bus import changed, outside, seen
from ..core.errors import DTypeError, StateError
from ..core.words import select, sqrt
from ..dtypes import is_count
from .base import Optimizer
from .groups import Rates, check_range
from .state import Acts


def free_sgd_update(p, z, g, first, decay, share, pull, lr, sign, *_):
    """p is y; the average moves towards z by `share`; z is where p is at its first step."""
    z = select(first > 0.0, p, z)
    g = sign * g + decay * p
    return p + share * (z - p) - pull * g, z - lr * g


def free_adamw_update(p, v, z, g, first, decay, share, pull, lr, sign, rise, root, eps, *_):
    z = select(first > 0.0, p, z)
    g = sign * g
    v = v + (g * g - v) * rise
    g = g / (sqrt(v) / root + eps) + decay * p
    return p + share * (z - p) - pull * g, v, z - lr * g


class FreeRates(Rates):
    """Rates that warm up, and the weights of the average, which each group keeps among its options."""

    before: list[tuple[float, float]]  # the weights before the newest step

    def begin(self) -> None:
        super().begin()
        self.before = self.weights()
        for group in self.groups:
            most = max(group["lr_max"], group["lr"] * self.rise(group))
            group.put("lr_max", most)
            group.put("weight_sum", group["weight_sum"] + self.weight(group))

    def rise(self, group: Any) -> float:
        """How much of the rate there is in a warm-up."""
        return min(1.0, self.finished / group["warmup_steps"]) if group["warmup_steps"] else 1.0

    def weight(self, group: Any) -> float:
        """How much this step counts in the average."""
        return self.finished ** group["r"] * group["lr_max"] ** group["weight_lr_power"]  # type: ignore[no-any-return]

    def back(self) -> None:
        super().back()
        self.put_weights(self.before)

    def rows(self) -> list[dict[str, Any]]:
        found = super().rows()
        return [{**found[0], "finished": self.finished}, *found[1:]]

    def weights(self) -> list[tuple[float, float]]:
        return [(group["lr_max"], group["weight_sum"]) for group in self.groups]

    def put_weights(self, found: list[tuple[float, float]]) -> None:
        for group, (most, total) in zip(self.groups, found, strict=True):
            group.put("lr_max", most)
            group.put("weight_sum", total)

    def saved(self) -> Any:
        return super().saved(), self.weights()

    def restore(self, state: Any) -> None:
        rates, weights = state
        super().restore(rates)
        self.put_weights(weights)


class ScheduleFree(Optimizer):
    """Base of both. `training`: whether the parameters are y, or the average x."""

    beta: str  # the option that says how much of x there is in y
    make_rates = FreeRates
    contained = ("groups", "state", "training")

    def __init__(self, params: Any, options: dict[str, Any], groups: Any, transforms: Any):
        self.training = True
        super().__init__(params, {**options, "lr_max": 0.0, "weight_sum": 0.0}, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        if not is_count(options["warmup_steps"]):
            raise ValueError(f"{self.name}: warmup_steps is no count: {options['warmup_steps']!r}. Use a whole number, 0 for none.")
        for key in ("r", "weight_lr_power", "lr_max", "weight_sum"):
            check_range(self.name, key, options[key], 0.0)
        if not 0.0 < (beta := self.beta_of(options)) < 1.0:
            raise ValueError(f"{self.name}: {self.beta} out of range: {beta}. Use a number in (0, 1).")

    def beta_of(self, group: dict[str, Any]) -> float:
        return group[self.beta] if self.beta == "momentum" else group[self.beta][0]  # type: ignore[no-any-return]

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        rates: Any = self.rates
        lr, total = group["lr"] * rates.rise(group), group["weight_sum"]
        share = rates.weight(group) / total if total else 0.0
        pull = lr * (1.0 - self.beta_of(group) * (1.0 - share))
        return float(step == 1), group["weight_decay"], share, pull, lr, -1.0 if group["maximize"] else 1.0

    def step(self, grads: Any = None) -> Any:
        seen(self, "whether it trains", lambda: self.training, True)
        if not self.training:
            raise StateError(f"{self.name}: step() after eval(): the parameters are averages. Call optimizer.train() first.")
        return super().step(grads)

    step.__doc__ = Optimizer.step.__doc__

    def eval(self) -> None:
        """Make the parameters the average, to evaluate and save them; nothing if they are."""
        self._turn(False)

    def train(self, mode: bool = True) -> None:
        """Make the parameters what training goes on with; nothing if they are. train(False) is eval()."""
        if not isinstance(mode, bool | np.bool_):
            raise DTypeError(f"{self.name}.train: no yes or no: {mode!r}. Use True or False.")
        self._turn(bool(mode))

    def _turn(self, training: bool) -> None:
        what = "train()" if training else "eval()"
        outside(f"{self.name}: every replay would do it again: {what}. Call it between the captured steps.")
        if self.training is training:
            return
        self._arrange()
        with no_grad():
            for block in self.blocks:
                block.refresh()
                chosen = [i for i, step in enumerate(block.steps) if step]
                for i in chosen:
                    beta, z = self.beta_of(block.groups[i]), block.kept[i]["z"]
                    p = block.part(block.master, i).detach()
                    (p + (z - p) * (1.0 - (beta if training else 1.0 / beta))).copied_into(p.buffer)
                block.wrote(chosen, f"{self.name}.{what}")
        self.training = training
        changed(self)

    # ---- state -----------------------------------------------------------------------------------------------------------------------
    def contents(self) -> dict[str, Any]:
        return {**super().contents(), "training": self.training}

    def checked(self, found: dict[str, Any]) -> Acts:
        if not isinstance(found["training"], bool):
            raise StateError(f"{self.name}: training is no yes or no: {found['training']!r:.80}. Pass what state_dict() returned.")
        return [*super().checked(found), partial(setattr, self, "training", found["training"])]


class SGDScheduleFree(ScheduleFree):
    """SGD that needs no schedule, only a warm-up; rates are some ten times SGD's. `momentum` is how much of the average there is in the
    parameters. Step t has the weight t^r * (largest rate so far)^weight_lr_power. Weight decay is taken at the parameters."""

    name = "SGDScheduleFree"
    slots = ("z",)
    formula = staticmethod(free_sgd_update)
    beta = "momentum"

    def __init__(
        self, params: Any = None, lr: Any = 1.0, momentum: float = 0.9, weight_decay: float = 0.0, warmup_steps: int = 0, r: float = 0.0,
        weight_lr_power: float = 2.0, maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "warmup_steps": warmup_steps, "r": r}
        super().__init__(params, {**options, "weight_lr_power": weight_lr_power, "maximize": maximize}, groups, transforms)


class AdamWScheduleFree(ScheduleFree):
    """AdamW that needs no schedule, only a warm-up; rates are one to ten times AdamW's. betas[0] is how much of the average there is in the
    parameters. Step t has the weight t^r * (largest rate so far)^weight_lr_power. Weight decay is decoupled, taken at the parameters."""

    name = "AdamWScheduleFree"
    slots = ("v", "z")
    formula = staticmethod(free_adamw_update)
    beta = "betas"

    def __init__(
        self, params: Any = None, lr: Any = 2.5e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, warmup_steps: int = 0, r: float = 0.0, weight_lr_power: float = 2.0, maximize: bool = False,
        groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "warmup_steps": warmup_steps, "r": r}
        super().__init__(params, {**options, "weight_lr_power": weight_lr_power, "maximize": maximize}, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        beta2 = group["betas"][1]
        return *super().numbers(group, step), 1.0 - beta2, (1.0 - beta2**step) ** 0.5, group["eps"]
