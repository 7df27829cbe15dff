"""Schedules that go one way: flat, in steps, down a line or a curve, with or without a warm-up.

    optimizer = AdamW(model, lr=warmup_cosine(1e-3, warmup=100, n=2000, end=1e-4))

A schedule is a function of the number of finished steps and of nothing else, so that resuming needs no state.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from .base import Schedule, count, marks, named, power, rate, rates


@named
def constant(lr: float) -> Schedule:
    """Always lr."""
    lr = rate("constant", "lr", lr)
    return lambda step: lr


@named
def step(lr: float, every: int, gamma: float = 0.1) -> Schedule:
    """lr * gamma^(steps // every)."""
    lr, gamma = rates("step", lr=lr, gamma=gamma)
    n = count("step", "every", every)
    return lambda step: lr * power(gamma, step // n)


@named
def multistep(lr: float, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """lr, times gamma at each milestone passed, in whichever order they are listed."""
    lr, gamma = rates("multistep", lr=lr, gamma=gamma)
    passed = sorted(marks("multistep", milestones))
    return lambda step: lr * power(gamma, bisect.bisect_right(passed, step))


@named
def exponential(lr: float, gamma: float) -> Schedule:
    """lr * gamma^steps."""
    lr, gamma = rates("exponential", lr=lr, gamma=gamma)
    return lambda step: lr * power(gamma, step)


@named
def linear(start: float, end: float, n: int) -> Schedule:
    """From start to end in n steps, then end."""
    start, end = rates("linear", start=start, end=end)
    n = count("linear", "n", n)
    return lambda step: start + (end - start) * min(step, n) / n


@named
def warmup(lr: float, n: int) -> Schedule:
    """lr * (steps + 1) / n during the first n steps, then lr: the first step already moves."""
    lr = rate("warmup", "lr", lr)
    n = count("warmup", "n", n, 0)
    return lambda step: lr * min(1.0, (step + 1) / n) if n > 0 else lr


@named
def cosine(lr: float, n: int, end: float = 0.0) -> Schedule:
    """Half a cosine from lr to end in n steps, then end (Loshchilov & Hutter 2016, arXiv:1608.03983)."""
    lr, end = rates("cosine", lr=lr, end=end)
    n = count("cosine", "n", n)
    return lambda step: end + 0.5 * (lr - end) * (1.0 + math.cos(math.pi * min(step, n) / n))


@named
def warmup_cosine(lr: float, warmup: int, n: int, end: float = 0.0) -> Schedule:
    """Linear warm-up over `warmup` steps, then a cosine from lr to end until step n."""
    lr, end = rates("warmup_cosine", lr=lr, end=end)
    n, up = count("warmup_cosine", "n", n), count("warmup_cosine", "warmup", warmup, 0)
    if up > n:
        raise ValueError(f"warmup_cosine: the warm-up is longer than the run: {up} > {n}. Shorten it; n counts all steps.")
    fall = cosine(lr, max(1, n - up), end)
    return lambda step: lr * (step + 1) / up if step < up else fall(step - up)


@named
def poly(lr: float, n: int, end: float = 0.0, power: float = 1.0) -> Schedule:
    """end + (lr - end) * (1 - steps / n)^power, then end."""
    lr, end, power = rates("poly", lr=lr, end=end, power=power)
    n = count("poly", "n", n)
    return lambda step: end + (lr - end) * (1.0 - min(step, n) / n) ** power if step < n else end


@named
def noam(width: int, warmup: int, factor: float = 1.0) -> Schedule:
    """factor * width^-0.5 * min(t^-0.5, t * warmup^-1.5) for step number t = 1, 2, ... (Vaswani et al. 2017, arXiv:1706.03762)."""
    width, up = count("noam", "width", width), count("noam", "warmup", warmup)
    factor = rate("noam", "factor", factor)
    return lambda step: factor * width**-0.5 * min((step + 1) ** -0.5, (step + 1) * up**-1.5)


@named
def warmdown(lr: float, warmup: int, warmdown: int, total: int, final: float = 0.0) -> Schedule:
    """Linear up over `warmup` steps, flat, then linear down to lr * final over the last `warmdown` steps of `total`."""
    lr, final = rates("warmdown", lr=lr, final=final)
    total = count("warmdown", "total", total)
    up, down = count("warmdown", "warmup", warmup, 0), count("warmdown", "warmdown", warmdown, 0)
    if up + down > total:
        raise ValueError(f"warmdown: longer than the run: {up} + {down} > {total}. Shorten the warm-up or the warm-down.")

    def lr_at(step: int) -> float:
        if step < up:
            return lr * (step + 1) / up
        left = total - step
        if left >= down or down == 0:
            return lr
        share = max(0.0, left / down)
        return lr * (share + (1.0 - share) * final)

    return lr_at
