"""Prodigy: Adam that finds its rate by itself, from how far it has come and how steep it was there (Mishchenko & Defazio 2023,
arXiv:2306.06101). Arithmetic of its authors' code, but for two factors of 1 / d0, which cancel.

The distance d, its largest estimate and what the estimate is made of are three numbers for all parameters, and lie on their device: a
replay needs no look at them. Two numbers of each segment are d, before and after the step; they are put there by a launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..autograd import no_grad
from ..backend.formula.clip import NORMS
from ..core.errors import DeviceError, StateError
from ..core.op import over
from ..core.words import maximum, minimum, select, sqrt
from ..dtypes import float64, is_number
from ..engine.spans import NUMBERS, Launch
from ..gradients.norm import norms_in
from ..parameter import Parameter
from ..tensors import Tensor, tensor
from .base import Optimizer
from .groups import check_range
from .state import Acts


def progress_update(u, start, p, g, first, rise1, rise2, beta3, rate, sum_rate, l2, decay, eps, sign, now, d, *_):
    """u: the gradient along the way from the start, which is where p is at its first step."""
    start = select(first > 0.0, p, start)
    return d * d * rate * (sign * g + l2 * p) * (start - p), start, p


def moments_update(m, v, s, p, g, first, rise1, rise2, beta3, rate, sum_rate, l2, decay, eps, sign, now, d, *_):
    """s: the sum of the gradients, slowly forgotten."""
    g = d * (sign * g + l2 * p)
    m = m + (g - m) * rise1
    v = v + (g * g - v) * rise2
    return m, v, beta3 * s + d * sum_rate * g, p


def prodigy_update(p, m, v, g, first, rise1, rise2, beta3, rate, sum_rate, l2, decay, eps, sign, now, d, *_):
    return p * (1.0 - decay * rate * d) - d * rate * (m / (sqrt(v) + now * eps)), m, v


def distance_update(d, most, above, below, g, beta3, coefficient, d0, growth, *_):
    """The distance from the progress, above, and the size of the sums, below."""
    above = beta3 * above + g
    found = select(below > 0.0, coefficient * above / below, d)
    most = maximum(most, found)
    return minimum(most, select(d <= d0, maximum(d, found), d) * growth), most, above, below


def upward(x):
    return maximum(x, 0.0)


def downward(x):
    return maximum(-x, 0.0)


def size(x):
    return maximum(x, -x)


class Prodigy(Optimizer):
    """Adam that finds its rate by itself: leave lr at 1, or use a schedule that falls from 1; d_coef makes all steps longer or shorter.

    d0 is the first distance, which grows by at most growth_rate a step; beta3, None for sqrt(beta2), says how fast its estimate forgets.
    safeguard_warmup: for a schedule that begins near 0. Weight decay is as in AdamW, or L2 with decouple=False. `optimizer.d`: the
    distance now; times lr it is the rate. beta3, d0, d_coef and growth_rate are the first group's. All parameters lie on one device."""

    name = "Prodigy"
    slots = ("m", "v", "s", "start")
    apart = together = True
    contained = ("groups", "state", "distance")

    def __init__(
        self, params: Any = None, lr: Any = 1.0, betas: tuple[float, float] = (0.9, 0.999), beta3: float | None = None, eps: float = 1e-8,
        weight_decay: float = 0.0, decouple: bool = True, use_bias_correction: bool = False, safeguard_warmup: bool = False,
        d0: float = 1e-6, d_coef: float = 1.0, growth_rate: float = math.inf, maximize: bool = False,
        groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None,
    ):  # fmt: skip
        options = {"lr": lr, "betas": betas, "beta3": beta3, "eps": eps, "weight_decay": weight_decay, "decouple": decouple}
        options |= {"use_bias_correction": use_bias_correction, "safeguard_warmup": safeguard_warmup, "d0": d0, "d_coef": d_coef}
        self.distance: Any = [d0, d0, 0.0]  # numbers until the first step, then a Tensor
        self.parts: list[Any] = []  # within a step: what its blocks give
        super().__init__(params, {**options, "growth_rate": growth_rate, "maximize": maximize}, groups, transforms)

    def check(self, options: dict[str, Any]) -> None:
        super().check(options)
        if options["beta3"] is not None:
            check_range(self.name, "beta3", options["beta3"], 0.0, 1.0)
        for key in ("d0", "d_coef"):
            check_range(self.name, key, options[key], 5e-324)
        check_range(self.name, "growth_rate", min(options["growth_rate"], 1e300) if is_number(options["growth_rate"]) else None, 1.0)

    def arriving(self, params: Iterable[Parameter]) -> dict[str, Parameter]:
        new = super().arriving(params)
        if len(found := sorted({p.device.name for p in (*self.params, *new.values())})) > 1:
            raise DeviceError(f"Prodigy: parameters are on several devices: {', '.join(found)}. Make an optimizer for each.")
        return new

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        beta1, beta2 = group["betas"]
        corrected = (1.0 - beta2**step) ** 0.5 / (1.0 - beta1**step) if group["use_bias_correction"] else 1.0
        rate, decay = group["lr"] * corrected, group["weight_decay"]
        l2, decay = (0.0, decay) if group["decouple"] else (decay, 0.0)
        sum_rate, sign = 1.0 if group["safeguard_warmup"] else rate, -1.0 if group["maximize"] else 1.0
        return float(step == 1), 1.0 - beta1, 1.0 - beta2, self.beta3(self.groups[0]), rate, sum_rate, l2, decay, group["eps"], sign

    def beta3(self, group: dict[str, Any]) -> float:
        return group["betas"][1] ** 0.5 if group["beta3"] is None else group["beta3"]  # type: ignore[no-any-return]

    # ---- the step: the distance is that of all parameters, so they are moved when all have been looked at ---------------------------
    def write(self, to: Launch) -> None:
        """Take the gradients in; the parameters stay."""
        with no_grad():
            before = self.parts[0][1] if self.parts else self.located(to.device).detach().clone()[:1]
            self.parts.append((to, before, *self.sums(with_distances(to, before, before))))

    def finish(self, stepped: Any, by: Any) -> None:
        """Have another distance, and move the parameters."""
        parts, self.parts = self.parts, []
        with no_grad():
            above, below = [ops.cat(sums).sum(axis=0, keepdims=True) for sums in list(zip(*parts, strict=True))[2:]]
            self.move(self.distance, above, below, parts[0][0])
            now = self.distance.detach()[:1]
            for to, before, *_ in parts:
                m, v, *_ = to.block.state.values()
                with_distances(to, now, before).update(prodigy_update, (to.block.master, m, v))
                to.block.wrote(to.chosen, by)

    def sums(self, to: Launch) -> tuple[Tensor, Tensor]:
        """Take a gradient in; the progress of each segment, and the size of its sums."""
        (m, v, s, start), p, u = to.block.state.values(), to.block.master, to.scratch()
        to.update(progress_update, (u, start, p))
        to.update(moments_update, (m, v, s, p))
        up, down, sizes = [self.totals(to, buffer, f) for buffer, f in ((u, upward), (u, downward), (s, size))]
        return up - down, sizes

    def totals(self, to: Launch, buffer: Any, formula: Any) -> Tensor:
        """A sum for each segment, in float64."""
        n = len(to.segments)
        return over(norms_in(to.device, (buffer,), (to.segments,), formula, 1.0).part(NORMS, n), (n,))  # type: ignore[no-any-return]

    def move(self, d: Tensor, above: Tensor, below: Tensor, to: Launch) -> None:
        """Have another distance, unless the gradients are marked."""
        hyper, outs = to.device.empty(NUMBERS, float64), [*[d.buffer.part(i, 1) for i in range(3)], below.buffer]
        to.device.stream.before(self.distance_numbers, hyper)
        ins = (above.buffer, to.block.one, to.mark, hyper)
        to.device.launch("update", distance_update, outs, ins, (((0, 1),),), float64)

    def distance_numbers(self) -> Sequence[float]:
        first = self.groups[0]
        return [self.beta3(first), first["d_coef"], first["d0"], first["growth_rate"], *[0.0] * (NUMBERS - 4)]

    def located(self, device: Any) -> Tensor:
        """The three numbers where the parameters are."""
        if not isinstance(self.distance, Tensor) or self.distance.device is not device:
            with device.stream.aside():
                self.distance = tensor(np.asarray(self.numbers_of_distance()), float64, device)
        return self.distance

    def numbers_of_distance(self) -> list[float]:
        return self.distance.tolist() if isinstance(self.distance, Tensor) else list(self.distance)

    @property
    def d(self) -> float:
        """The distance that the steps are measured by."""
        return self.numbers_of_distance()[0]

    # ---- state -----------------------------------------------------------------------------------------------------------------------
    def contents(self) -> dict[str, Any]:
        return {**super().contents(), "distance": self.numbers_of_distance()}

    def checked(self, found: dict[str, Any]) -> Acts:
        numbers = found["distance"]
        if not isinstance(numbers, list | tuple | np.ndarray) or len(numbers) != 3 or not all([is_number(x) for x in numbers]):
            raise StateError(f"Prodigy: not three numbers: distance is {numbers!r:.80}. Pass what state_dict() returned.")
        return [*super().checked(found), partial(self.put_distance, [float(x) for x in numbers])]

    def put_distance(self, numbers: list[float]) -> None:
        if isinstance(self.distance, Tensor):
            tensor(np.asarray(numbers), float64, self.distance.device).copied_into(self.distance.buffer)
        else:
            self.distance = numbers


def with_distances(to: Launch, now: Tensor, before: Tensor) -> Launch:
    """The same with the last two numbers of each segment as these."""
    n = len(to.segments)
    own = over(to.hyper, (n, NUMBERS))[:, : NUMBERS - 2]
    both = ops.cat([now, before]).to(to.block.dtype).reshape(1, 2).broadcast_to((n, 2))
    return to._replace(hyper=ops.cat([own, both], axis=1).buffer)
