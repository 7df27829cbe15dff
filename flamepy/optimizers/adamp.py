"""AdamP: Adam without the part of a step that would only make weights longer, where a norm behind them makes their length meaningless
(Heo et al. 2021, arXiv:2006.08217). Arithmetic of its authors' code.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..autograd import no_grad
from ..bus import seen
from ..core.words import sqrt
from ..engine.spans import Launch
from ..tensors import Tensor
from .base import Optimizer
from .groups import check_range


def direction_update(u, s, m, v, g, rise1, rise2, root, eps, sign, nesterov, *_):
    """u: Adam's direction; s: the gradient as the moments take it."""
    g = sign * g
    m = m + (g - m) * rise1
    v = v + (g * g - v) * rise2
    return (m + nesterov * (g - m) * rise1) / (sqrt(v) / root + eps), g, m, v


def adamp_update(p, shrinking, u, rise1, rise2, root, eps, sign, nesterov, decay, step_size, *_):
    return p - decay * shrinking - step_size * u, shrinking


class AdamP(Optimizer):
    """Adam without the part of a step that would only make weights longer. A parameter of two or more axes whose gradient stands nearly at
    right angles to it, in each row or as a whole (cosine below delta / sqrt(size)), moves at right angles to it, and its weight decay,
    which is decoupled, is multiplied by wd_ratio. `lr` may be a schedule."""

    name = "AdamP"
    slots = ("m", "v")
    apart = True

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
        delta: float = 0.1, wd_ratio: float = 0.1, nesterov: bool = False, maximize: bool = False,
        groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "delta": delta, "wd_ratio": wd_ratio}
        super().__init__(params, {**options, "nesterov": nesterov, "maximize": maximize}, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        for key in ("delta", "wd_ratio"):
            check_range(self.name, key, options[key], 0.0)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, (beta1, beta2), sign = group["lr"], group["betas"], -1.0 if group["maximize"] else 1.0
        root, size = (1.0 - beta2**step) ** 0.5, lr / (1.0 - beta1**step)
        return 1.0 - beta1, 1.0 - beta2, root, group["eps"], sign, float(group["nesterov"]), lr * group["weight_decay"], size

    def write(self, to: Launch) -> None:
        block, u, signed, shrinking = to.block, to.scratch(), to.scratch(), to.scratch()
        seen(self, "what its projections depend on", self.projections, True)
        to.update(direction_update, (u, signed, *block.state.values()))
        with no_grad():
            for i in to.chosen:
                p, step = block.part(block.master, i).detach(), block.part(u, i).detach()
                if p.size:
                    less = projected(p, block.part(signed, i).detach(), step, block.groups[i]) if p.ndim > 1 else (p, step)
                    for found, place in zip(less, (shrinking, u), strict=True):
                        found.copied_into(block.part(place, i).buffer)
        to.by(u).update(adamp_update, (block.master, shrinking))

    def projections(self) -> str:
        """The options that a recorded step has as they were."""
        return str([[group[key] for key in ("eps", "delta", "wd_ratio")] for group in self.groups])


def projected(p: Tensor, g: Tensor, u: Tensor, group: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """What decays, and the step: of a parameter with its gradient and its step; row by row if all rows are at right angles, else whole."""
    eps, shrinking, step = group["eps"], p, u
    for rows in (1, p.shape[0]):
        w, g, d = [t.reshape(rows, -1) for t in (p, g, u)]
        length, steepness = [(t * t).sum(axis=1, keepdims=True).sqrt() for t in (w, g)]
        cosine = (w * g).sum(axis=1, keepdims=True).abs() / (length.clamp(min=eps) * steepness.clamp(min=eps))
        near = cosine.max() < group["delta"] / w.shape[1] ** 0.5
        way = w / (length + eps)
        across = (d - way * (way * d).sum(axis=1, keepdims=True)).reshape(p.shape)
        shrinking, step = ops.where(near, p * group["wd_ratio"], shrinking), ops.where(near, across, step)  # type: ignore[attr-defined]
    return shrinking, step
