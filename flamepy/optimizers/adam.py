"""Adam and AdamW: one update formula, two places for the weight decay.

Kingma & Ba 2014 (arXiv:1412.6980); decoupled decay: Loshchilov & Hutter 2017 (arXiv:1711.05101). Arithmetic of PyTorch: epsilon is
added outside the square root, after the bias correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..core import optimizers as core
from ..core.optimizers import adam_update
from ..core.words import maximum, sqrt
from .base import Optimizer
from .given import options_of


@dataclass
class AdamConfig:
    """Options of Adam and AdamW; weight_decay None is the optimizer's own default (0 and 0.01)."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float | None = None


def amsgrad_update(p, m, v, top, g, before, l2, after, rise1, rise2, step_size, root, eps, sign, largest, *_):
    """The same by the largest v so far: Reddi et al. 2018 (arXiv:1904.09237). `largest` is 1, or 0 for Adam."""
    p = p * before
    g = sign * g + l2 * p
    m = m + (g - m) * rise1
    v = v + (g * g - v) * rise2
    top = maximum(largest * top, v)
    p = p - step_size * (m / (sqrt(top) / root + eps))
    return p * after, m, v, top


class Adam(core.Adam, Optimizer):
    """Adam; its weight decay is L2: added to the gradient, and 0 by default. Or Adam(params, AdamConfig(...)), or Adam(AdamConfig(...)) for
    FLAME's step([(id, parameter, gradient), ...]). `lr` may be a schedule. Moments are float32 or wider. amsgrad divides by the largest v
    so far; maximize goes up the gradient."""

    name = "Adam"

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float | None = None, groups: dict[str, dict[str, Any]] | None = None, order: str = "torch",
        amsgrad: bool = False, maximize: bool = False, transforms: Any = None,
    ):  # fmt: skip
        if order not in ("torch", "flame"):
            raise ValueError(f"{self.name}: unknown order: {order!r}. Use 'torch' (decay first) or 'flame' (decay after the step).")
        self.order = order
        decay = self.default_decay if weight_decay is None else weight_decay
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": decay, "amsgrad": amsgrad, "maximize": maximize}
        options = options_of(self.name, lr, params, options, asdict(AdamConfig(weight_decay=self.default_decay)))
        Optimizer.__init__(self, params, options, groups, transforms)

    def used_slots(self, groups: Sequence[Any]) -> tuple[str, ...]:
        for group in groups:
            if group["amsgrad"]:
                return (*self.slots, "v_max")
        return self.slots

    @property
    def formula(self) -> Any:  # type: ignore[override]
        return adam_update if self.used_slots(self.groups) is self.slots else amsgrad_update

    def numbers(self, group: Any, step: int) -> tuple[float, ...]:
        kept = group.kept
        if not kept:
            kept.append(self.rule(group))
        return kept[0](step)


class AdamW(Adam, core.AdamW):
    """Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the step (after it with order="flame").

    Same arguments as Adam; weight_decay is 0.01 by default."""

    name = "AdamW"
