"""Relatives of Adam: RAdam, whose first steps do without the second moment (Liu et al. 2019, arXiv:1908.03265); NAdam, with Nesterov's
look-ahead (Dozat 2016, ICLR workshop); Adamax, which divides by the largest gradient (Kingma & Ba 2014, arXiv:1412.6980, section 7);
AdaBelief, which divides by how far gradients are from what was expected (Zhuang et al. 2020, arXiv:2010.07468).

Arithmetic of PyTorch; AdaBelief's is its paper's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ..core.words import abs, maximum, select, sqrt
from .base import Optimizer


def radam_update(p, m, v, g, before, l2, rise1, rise2, step_size, adaptive, eps, sign, *_):
    """`adaptive` is 0 where the second moment is known too badly to be used."""
    p = p * before
    g = sign * g + l2 * p
    m = m + (g - m) * rise1
    v = v + (g * g - v) * rise2
    return p - step_size * (m / select(adaptive > 0.0, sqrt(v) + eps, 1.0)), m, v


def nadam_update(p, m, v, g, before, l2, rise1, rise2, g_size, m_size, root, eps, sign, *_):
    """The step is by this gradient and by the moment as it will be weighted next time."""
    p = p * before
    g = sign * g + l2 * p
    m = m + (g - m) * rise1
    v = v + (g * g - v) * rise2
    return p - (g_size * g + m_size * m) / (sqrt(v) / root + eps), m, v


def adamax_update(p, m, u, g, l2, rise1, beta2, step_size, eps, sign, *_):
    """u is the largest gradient, slowly forgotten."""
    g = sign * g + l2 * p
    m = m + (g - m) * rise1
    u = maximum(beta2 * u, abs(g) + eps)
    return p - step_size * (m / u), m, u


def adabelief_update(p, m, s, g, before, rise1, rise2, step_size, root, eps, sign, *_):
    """s is the mean of the squared surprise."""
    p = p * before
    g = sign * g
    m = m + (g - m) * rise1
    s = s + ((g - m) * (g - m) - s) * rise2 + eps
    return p - step_size * (m / (sqrt(s) / root + eps)), m, s


class Relative(Optimizer):
    """What RAdam and NAdam share: two moments, and weight decay of either kind."""

    slots = ("m", "v")

    def first(self, group: dict[str, Any]) -> tuple[float, ...]:
        """The first numbers of both formulas."""
        decoupled, decay = group["decoupled_weight_decay"], group["weight_decay"]
        keep, l2 = (1.0 - group["lr"] * decay, 0.0) if decoupled else (1.0, decay)
        return keep, l2, 1.0 - group["betas"][0], 1.0 - group["betas"][1]


class RAdam(Relative):
    """Adam whose first steps do without the second moment, and need no warm-up. Weight decay is L2, or with decoupled_weight_decay as in
    AdamW. `lr` may be a schedule."""

    name = "RAdam"
    formula = staticmethod(radam_update)

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False, maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None,
        transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**options, "decoupled_weight_decay": decoupled_weight_decay}, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        known, most = 1.0 - beta2**step, 2.0 / (1.0 - beta2) - 1.0
        length = most - 2.0 * step * beta2**step / known  # of a plain average that would be as good as the second moment
        adaptive, size = length > 5.0, group["lr"] / (1.0 - beta1**step)
        if adaptive:
            size *= ((length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length) * known) ** 0.5
        return *self.first(group), size, float(adaptive), group["eps"], -1.0 if group["maximize"] else 1.0


class NAdam(Relative):
    """Adam with Nesterov's look-ahead: at step t the first moment counts beta1 * (1 - 0.5 * 0.96^(t * momentum_decay)). Weight decay is
    L2, or with decoupled_weight_decay as in AdamW. `lr` may be a schedule."""

    name = "NAdam"
    formula = staticmethod(nadam_update)

    def __init__(
        self, params: Any = None, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False, maximize: bool = False,
        groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay}
        options |= {"decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize}
        super().__init__(params, options, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["momentum_decay"]
        mu, mu_next, product = weight_at(step, beta1, decay), weight_at(step + 1, beta1, decay), product_at(step, beta1, decay)
        g_size, m_size = lr * (1.0 - mu) / (1.0 - product), lr * mu_next / (1.0 - product * mu_next)
        root = (1.0 - beta2**step) ** 0.5
        return *self.first(group), g_size, m_size, root, group["eps"], -1.0 if group["maximize"] else 1.0


def weight_at(step: int, beta1: float, decay: float) -> float:
    """How much the first moment counts at a step."""
    return beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))


@lru_cache(maxsize=64)
def products(beta1: float, decay: float) -> list[float]:
    """The products of the weights of steps 1 to t, for each t so far: product_at() makes it longer."""
    return [1.0]


def product_at(step: int, beta1: float, decay: float) -> float:
    """The product of the weights of all steps so far; 0 once 1 minus it rounds to 1."""
    found = products(beta1, decay)
    while len(found) <= step and found[-1] > 1e-20:
        found.append(found[-1] * weight_at(len(found), beta1, decay))
    return found[step] if step < len(found) else 0.0


class Moments(Optimizer):
    """Base of those that have the options of Adam alone."""

    def __init__(
        self, params: Any = None, lr: Any = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, groups, transforms)


class Adamax(Moments):
    """Adam that divides by the largest gradient, of which betas[1] is kept at each step. Weight decay is L2. `lr` may be a schedule."""

    name = "Adamax"
    slots = ("m", "u")
    formula = staticmethod(adamax_update)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        sign = -1.0 if group["maximize"] else 1.0
        return group["weight_decay"], 1.0 - beta1, beta2, group["lr"] / (1.0 - beta1**step), group["eps"], sign


class AdaBelief(Moments):
    """Adam that divides by how far gradients are from what was expected: steps are long where they are as their mean foretells. Weight
    decay is decoupled, as in AdamW. `lr` may be a schedule."""

    name = "AdaBelief"
    slots = ("m", "s")
    formula = staticmethod(adabelief_update)

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-16, weight_decay: float = 0.0,
        maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, maximize, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, (beta1, beta2) = group["lr"], group["betas"]
        keep, size, root = 1.0 - lr * group["weight_decay"], lr / (1.0 - beta1**step), (1.0 - beta2**step) ** 0.5
        return keep, 1.0 - beta1, 1.0 - beta2, size, root, group["eps"], -1.0 if group["maximize"] else 1.0
