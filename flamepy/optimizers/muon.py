"""Muon: momentum whose singular values are all made about 1 (Jordan et al. 2024, kellerjordan.github.io/posts/muon).

Arithmetic of torch.optim.Muon, but for one thing: the iteration, which PyTorch does in bfloat16, is done in the parameter's own type.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..autograd import no_grad
from ..bus import seen
from ..core.errors import ShapeError
from ..engine.autocast import autocast
from ..engine.spans import Launch
from ..parameter import Parameter
from ..tensors import Tensor
from .base import Optimizer
from .groups import check_range

LENGTHS = {  # by what the rate of a matrix of (rows, cols) is multiplied
    None: lambda rows, cols: math.sqrt(max(1.0, rows / cols)),
    "original": lambda rows, cols: math.sqrt(max(1.0, rows / cols)),
    "match_rms_adamw": lambda rows, cols: 0.2 * math.sqrt(max(rows, cols)),
}


def momentum_update(u, m, g, share, momentum, *_):
    """u: what is to be made orthogonal. `momentum` is how much of the velocity enters it: all of it without Nesterov's look-ahead."""
    m = m + (g - m) * share
    return g + (m - g) * momentum, m


def muon_update(p, u, share, momentum, before, lr, *_):
    return p * before - lr * u


class Muon(Optimizer):
    """Momentum whose singular values are all made about 1, for matrices of hidden layers; all else is for another optimizer, with ByName.

    The step is brought near an orthogonal matrix by `ns_steps` iterations X <- aX + (bA + cAA)X with A = XX^T. adjust_lr_fn: None or
    "original" multiplies the rate by sqrt(max(1, rows / cols)), "match_rms_adamw" by 0.2 sqrt(max(rows, cols)), which suits AdamW's rates
    (Liu et al. 2025, arXiv:2502.16982). Weight decay is decoupled. `lr` may be a schedule."""

    name = "Muon"
    slots = ("m",)
    apart = True

    def __init__(
        self, params: Any = None, lr: Any = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95, nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: float = 1e-7, ns_steps: int = 5,
        adjust_lr_fn: str | None = None, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps, "ns_steps": ns_steps}
        options |= {"ns_coefficients": ns_coefficients, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, options, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        numbers, steps, length = options["ns_coefficients"], options["ns_steps"], options["adjust_lr_fn"]
        check_range(self.name, "momentum", options["momentum"], 0.0, 1.0)
        if not isinstance(numbers, tuple | list) or len(numbers) != 3:
            raise ValueError(f"Muon: ns_coefficients must be three: {numbers}. Use three numbers.")
        for number in numbers:
            check_range(self.name, "ns_coefficients", number, -math.inf)
        if not isinstance(steps, int) or isinstance(steps, bool) or not 0 < steps < 100:
            raise ValueError(f"Muon: ns_steps out of range: {steps!r}. Use a whole number from 1 to 99.")
        if not isinstance(length, str | None) or length not in LENGTHS:
            raise ValueError(f"Muon: adjust_lr_fn is unknown: {length!r}. Use None, 'original' or 'match_rms_adamw'.")

    def arriving(self, params: Iterable[Parameter]) -> dict[str, Parameter]:
        new = super().arriving(params)
        for p in new.values():
            if p.ndim != 2:
                advice = 'Give it to another optimizer: ByName(model, {"hidden.*.weight": (Muon, {}), "*": (AdamW, {})})'
                raise ShapeError(f"Muon: not a matrix: {p.label} has shape {p.shape}. {advice}.")
        return new

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, momentum = group["lr"], group["momentum"]
        return 1.0 - momentum, momentum if group["nesterov"] else 1.0, 1.0 - lr * group["weight_decay"], lr

    def write(self, to: Launch) -> None:
        block, u = to.block, to.scratch()
        seen(self, "what its iterations depend on", self.iterations, True)
        to.update(momentum_update, (u, *block.state.values()))
        with no_grad():
            for i in to.chosen:
                if block.params[i].size:
                    part = block.part(u, i).detach()
                    orthogonal(part, block.groups[i]).copied_into(part.buffer)
        to.by(u).update(muon_update, (block.master,))

    def iterations(self) -> str:
        """The options that a recorded step has as they were."""
        return str([[group[key] for key in ("ns_coefficients", "ns_steps", "eps", "adjust_lr_fn")] for group in self.groups])


@autocast(enabled=False)
def orthogonal(g: Tensor, group: dict[str, Any]) -> Tensor:
    """Near the orthogonal matrix nearest to g, by Newton and Schulz's iteration, and as long as the rate is to be."""
    (rows, cols), (a, b, c) = g.shape, group["ns_coefficients"]
    x = g.T if rows > cols else g
    x = x / (x * x).sum().sqrt().clamp(min=group["eps"])
    for _ in range(group["ns_steps"]):
        square = x @ x.T
        x = a * x + (b * square + c * (square @ square)) @ x
    x = LENGTHS[group["adjust_lr_fn"]](rows, cols) * x
    return x.T if rows > cols else x
