"""LAMB: Adam's direction, as long for each parameter as a share of the parameter itself (You et al. 2019, arXiv:1904.00962, algorithm 2).

Two launches over the memory, and one for the norms between them.
"""

from __future__ import annotations

from typing import Any

from ..backend.formula.clip import NORMS
from ..core.words import select, sqrt
from ..dtypes import float64
from ..engine.spans import Launch
from ..gradients.norm import norms_in
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


class LAMB(Moments):
    """LAMB(params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, maximize=False, groups=None, transforms=None).

    For large batches. Each parameter moves by lr times its own L2 norm; weight decay is part of the direction. `lr` may be a schedule.
    """

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


def scale_by_norms(to: Launch, values: Any, formula: Any, more: Any = list) -> None:
    """Multiply each segment of `values` by formula(norm of the parameter, norm of the values, ...): what more() gives, some numbers for
    each segment, filled in by the host."""
    n, device = len(to.segments), to.device
    found = norms_in(device, (to.block.master, values), (to.segments, to.segments))
    ins = [found.part(NORMS + i * n, n) for i in (0, 1)]
    if count := len(more()):
        numbers = device.empty(count, float64)
        device.stream.before(more, numbers)
        ins += [numbers.part(i * n, n) for i in range(count // n)]
    factors = device.empty(n, float64)
    device.launch("map", formula, (factors,), ins, (), float64)
    device.launch("scale_each", None, (values,), (factors,), (to.segments,), to.block.dtype)
