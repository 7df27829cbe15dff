"""LAMB: Adam's direction, as long for each parameter as a share of the parameter itself (You et al. 2019, arXiv:1904.00962, algorithm 2);
LARS: the same of SGD's with momentum (You, Gitman & Ginsburg 2017, arXiv:1708.03888, algorithm 1).

Two launches over the memory, and one for the norms between them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..backend.formula.clip import NORMS
from ..core.words import select, sqrt
from ..dtypes import float64
from ..engine.spans import Launch
from ..gradients.norm import norms_in
from .base import Optimizer
from .groups import check_range
from .radam import Moments


def direction_update(d, m, v, p, g, l2, rise1, rise2, one, root, eps, sign, *_):
    """d: Adam's direction and the decay; p stays as it is."""
    g = sign * g
    m = m + (g - m) * rise1
    v = v + (g * g - v) * rise2
    return m / one / (sqrt(v) / root + eps) + l2 * p, m, v, p


def lamb_update(p, d, l2, rise1, rise2, one, root, eps, sign, lr, *_):
    return p - lr * d


def trust(p_norm, d_norm):
    """How long the step is, measured by the direction: 1 where one of the norms is 0."""
    return select(p_norm > 0.0, select(d_norm > 0.0, p_norm / d_norm, 1.0), 1.0)


def decayed_gradient(d, s, p, g, l2, sign, *_):
    """d: the gradient with the decay, s: without; p stays as it is."""
    return sign * g + l2 * p, sign * g, p


def lars_update(p, v, d, l2, sign, momentum, lr, *_):
    v = momentum * v + lr * d
    return p - v, v


def local_rate(p_norm, g_norm, l2, share):
    """1 where a norm or the share is 0."""
    return select(share * p_norm * g_norm > 0.0, share * p_norm / (g_norm + l2 * p_norm), 1.0)


class LAMB(Moments):
    """Adam for large batches: each parameter moves by lr times its own L2 norm; weight decay is part of the direction. `lr` may be a
    schedule."""

    name = "LAMB"
    slots = ("m", "v")
    apart = True

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6, weight_decay: float = 0.01,
        maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, maximize, groups, transforms)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        one, root = 1.0 - beta1**step, (1.0 - beta2**step) ** 0.5
        sign = -1.0 if group["maximize"] else 1.0
        return group["weight_decay"], 1.0 - beta1, 1.0 - beta2, one, root, group["eps"], sign, group["lr"]

    def write(self, to: Launch) -> None:
        master, (m, v), direction = to.block.master, to.block.state.values(), to.scratch()
        to.update(direction_update, (direction, m, v, master))
        scale_by_norms(to, direction, trust)
        to.by(direction).update(lamb_update, (master,))


class LARS(Optimizer):
    """SGD with momentum for large batches: the rate of a parameter is lr * trust_coefficient * |p| / (|g| + weight_decay * |p|), and is
    part of the velocity, as in the paper. Weight decay is L2. trust_coefficient=0 is SGD with momentum, which suits biases and norms:
    groups={"*.bias": {"trust_coefficient": 0, "weight_decay": 0, "lr_scale": 0.1}}. `lr` may be a schedule."""

    name = "LARS"
    slots = ("v",)
    apart = True

    def __init__(
        self, params: Any = None, lr: Any = 1.0, momentum: float = 0.9, weight_decay: float = 0.0, trust_coefficient: float = 1e-3,
        maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**options, "trust_coefficient": trust_coefficient}, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        check_range(self.name, "trust_coefficient", options["trust_coefficient"], 0.0)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        return group["weight_decay"], -1.0 if group["maximize"] else 1.0, group["momentum"], group["lr"]

    def write(self, to: Launch) -> None:
        master, (v,), direction, gradient = to.block.master, to.block.state.values(), to.scratch(), to.scratch()
        groups = [to.block.groups[i] for i in to.chosen]
        to.update(decayed_gradient, (direction, gradient, master))
        scale_by_norms(to, direction, local_rate, partial(options_of, groups, ("weight_decay", "trust_coefficient")), gradient)
        to.by(direction).update(lars_update, (master, v))


def options_of(groups: list[Any], keys: tuple[str, ...]) -> list[float]:
    """An option of each segment, then the next one."""
    return [group[key] for key in keys for group in groups]


def scale_by_norms(to: Launch, values: Any, formula: Any, more: Any = list, of: Any = None) -> None:
    """Multiply each segment of `values` by formula(norm of the parameter, norm of the values, or of what is laid out like them, ...):
    what more() gives, some numbers for each segment, filled in by the host."""
    n, device = len(to.segments), to.device
    found = norms_in(device, (to.block.master, of or values), (to.segments, to.segments))
    ins = [found.part(NORMS + i * n, n) for i in (0, 1)]
    if count := len(more()):
        numbers = device.empty(count, float64)
        device.stream.before(more, numbers)
        ins += [numbers.part(i * n, n) for i in range(count // n)]
    factors = device.empty(n, float64)
    device.launch("map", formula, (factors,), ins, (), float64)
    device.launch("scale_each", None, (values,), (factors,), (to.segments,), to.block.dtype)
