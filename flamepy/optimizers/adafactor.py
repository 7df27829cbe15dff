"""Adafactor: Adam's second moment of a matrix from its row and column means alone (Shazeer & Stern 2018, arXiv:1804.04235).

Arithmetic of torch.optim.Adafactor, which differs from the paper in where eps[0] stands and in what lr is. A matrix of n rows and m
columns keeps n + m numbers; a tensor of more axes is a stack of matrices; a vector keeps its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..autograd import no_grad
from ..core.words import EPS, maximum, select, sqrt
from ..engine.marks import Segments
from ..engine.spans import NUMBERS, Launch
from ..parameter import Parameter
from ..tensors import Tensor
from .base import Optimizer
from .groups import check_range
from .lamb import scale_by_norms


def signed_gradient(_, g, sign, *__):
    return sign * g


def blended(kept, mean, sign, share, *_):
    return kept + (mean - kept) * share


def row_share(row, mean, sign, share, eps, *_):
    """A row's mean as a share of the mean of all rows; eps < 0: the dtype's."""
    return row / maximum(mean, select(eps < 0.0, EPS, eps))


def divided(estimate, g, sign, share, eps, *_):
    """The gradient divided by the root of its estimated square. 1e-18: its square is still a number of 32 bits."""
    least = maximum(select(eps < 0.0, EPS, eps), 1e-18)
    return g / sqrt(maximum(estimate, least * least))


def adafactor_update(p, u, sign, share, eps, before, rho, *_):
    return p * before - rho * u


def relative_size(p_norm, u_norm, least, most):
    """The norm of the parameter, at least `least`, over that of the step, at least `most`. The rate is multiplied by d for this."""
    return maximum(least, p_norm) / maximum(most, u_norm)


class Adafactor(Optimizer):
    """Adam with the second moment of a matrix from its row and column means alone (Shazeer & Stern 2018, arXiv:1804.04235).

    At step t a parameter moves by about min(lr, 1 / sqrt(t)) times its root mean square, at least times eps[1]; eps[0], by default
    the dtype's, is the least divisor; d limits the root mean square of a step; the means forget as 1 - t^beta2_decay. Weight decay is
    decoupled. `lr` may be a schedule."""

    name = "Adafactor"
    apart = True

    def __init__(
        self, params: Any = None, lr: Any = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0,
        weight_decay: float = 0.0, maximize: bool = False, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, options, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check({key: value for key, value in options.items() if key != "eps"})
        eps, decay = options["eps"], options["beta2_decay"]
        if not isinstance(eps, tuple | list) or len(eps) != 2:
            raise ValueError(f"Adafactor: eps must be two: {eps}. Use two numbers >= 0, the first one or None.")
        for least in eps[eps[0] is None :]:
            check_range(self.name, "eps", least, 0.0)
        check_range(self.name, "d", options["d"], 1.0)
        check_range(self.name, "beta2_decay", decay, -math.inf)
        if decay > 0:
            raise ValueError(f"Adafactor: beta2_decay out of range: {decay}. Use a number <= 0.")

    def shapes_of(self, p: Parameter, slots: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        if p.ndim < 2:
            return {"variance": p.shape}
        return {"row": (*p.shape[:-1], 1), "col": (*p.shape[:-2], 1, p.shape[-1])}

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        lr, least = group["lr"], group["eps"][0]
        sign, keep = -1.0 if group["maximize"] else 1.0, 1.0 - lr * group["weight_decay"]
        return sign, step ** group["beta2_decay"], -1.0 if least is None else least, keep, group["d"] * min(lr, step**-0.5)

    def write(self, to: Launch) -> None:
        block, signed, steps = to.block, to.scratch(), to.scratch()
        to.update(signed_gradient, (signed,))
        with no_grad():
            for k, i in enumerate(to.chosen):
                if block.params[i].size:
                    estimate = estimated(to, k, block.part(signed, i).detach(), block.kept[i])
                    estimate.copied_into(block.part(steps, i).buffer)
        to.by(signed).update(divided, (steps,))
        scale_by_norms(to, steps, relative_size, partial(sizes, [block.groups[i] for i in to.chosen], to.segments))
        to.by(steps).update(adafactor_update, (block.master,))


def sizes(groups: list[Any], segments: Segments) -> list[float]:
    """What relative_size() needs: the norms of segments whose root mean squares are eps[1] and d."""
    rows = [(group, size**0.5) for group, (_, size) in zip(groups, segments, strict=True)]
    return [*[group["eps"][1] * root for group, root in rows], *[group["d"] * root for group, root in rows]]


def estimated(to: Launch, k: int, g: Tensor, kept: dict[str, Tensor]) -> Tensor:
    """The squared gradient of parameter k of those chosen as its means say, after they took this gradient in."""
    squares = g * g
    if "variance" in kept:
        launch(to, k, blended, kept["variance"], squares)
        return kept["variance"]
    row, col = kept["row"], kept["col"]
    launch(to, k, blended, row, squares.mean(-1, keepdims=True))
    launch(to, k, blended, col, squares.mean(-2, keepdims=True))
    shares = row.clone()
    launch(to, k, row_share, shares, row.mean(-2, keepdims=True).broadcast_to(row.shape))
    return shares * col  # type: ignore[no-any-return]


def launch(to: Launch, k: int, formula: Callable, kept: Tensor, other: Tensor) -> None:
    """kept = formula(kept, other, numbers of the k-th segment), unless the gradients are marked."""
    one = to.by(other.buffer)._replace(segments=((0, kept.size),), hyper=to.hyper.part(NUMBERS * k, NUMBERS))
    one.update(formula, (kept.buffer,))
