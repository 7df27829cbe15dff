"""Schedules that go up and down: one cycle, many cycles, a cosine that starts again."""

from __future__ import annotations

import math

from .base import Schedule, count, named, power, rate, rates

MODES = "triangular", "triangular2", "exp_range"


@named
def one_cycle(lr: float, n: int, rise: float = 0.3, start: float = 25.0, end: float = 1e4) -> Schedule:
    """Cosine from lr / start up to lr during the share `rise` of n steps, then down to lr / start / end at the last of them.

    The arithmetic of PyTorch's OneCycleLR (arXiv:1708.07120): the top is at step rise * n - 1, the end at step n - 1.
    """
    lr = rate("one_cycle", "lr", lr)
    start = rate("one_cycle", "start", start, above=0.0)
    end = rate("one_cycle", "end", end, above=0.0)
    n = count("one_cycle", "n", n)
    if rate("one_cycle", "rise", rise) > 1:
        raise ValueError(f"one_cycle: rise is a share of the run: {rise}. Use a number in [0, 1].")
    top, last = rise * n - 1, n - 1

    def between(a: float, b: float, share: float) -> float:
        return b + 0.5 * (a - b) * (1.0 + math.cos(math.pi * share))

    def lr_at(step: int) -> float:
        if step <= top:
            return between(lr / start, lr, step / top) if top else lr
        return between(lr, lr / start / end, (step - top) / (last - top)) if step < last else lr / start / end

    return lr_at


@named
def cyclic(low: float, high: float, up: int = 2000, down: int | None = None, mode: str = "triangular", gamma: float = 1.0) -> Schedule:
    """From low to high in `up` steps and back in `down` (None: as many), again and again (Smith 2015, arXiv:1506.01186).

    mode "triangular2" halves the height with each cycle, "exp_range" multiplies it by gamma^steps; PyTorch's CyclicLR.
    """
    low, high, gamma = rates("cyclic", low=low, high=high, gamma=gamma)
    up = count("cyclic", "up", up)
    whole = up + (up if down is None else count("cyclic", "down", down))
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"cyclic: unknown mode: {mode!r}. Use one of {', '.join(MODES)}.")

    def lr_at(step: int) -> float:
        cycle, at = divmod(step, whole)
        height = at / up if at <= up else (whole - at) / (whole - up)
        scale = power(0.5, cycle) if mode == "triangular2" else power(gamma, step) if mode == "exp_range" else 1.0
        return low + (high - low) * height * scale

    return lr_at


@named
def cosine_restarts(lr: float, n: int, factor: int = 1, end: float = 0.0) -> Schedule:
    """A cosine from lr to end in n steps, then again from lr, each time `factor` times as long (SGDR, arXiv:1608.03983).

    PyTorch's CosineAnnealingWarmRestarts, with T_0 = n and T_mult = factor.
    """
    lr, end = rates("cosine_restarts", lr=lr, end=end)
    n, factor = count("cosine_restarts", "n", n), count("cosine_restarts", "factor", factor)

    def lr_at(step: int) -> float:
        at, length = step, n
        if factor == 1:
            at %= n
        while at >= length:
            at, length = at - length, length * factor
        return end + 0.5 * (lr - end) * (1.0 + math.cos(math.pi * at / length))

    return lr_at
