"""Learning-rate schedules: pure functions of the number of finished steps, so that resuming needs no state.

    optimizer = AdamW(model, lr=warmup_cosine(1e-3, warmup=100, n=2000, end=1e-4))

FLAME counterpart: its lr schedulers. Read next: optimizers/base.py.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec

Schedule = Callable[[int], float]
P = ParamSpec("P")


class Named:
    """A schedule that shows how it was made, and is pickled so."""

    def __init__(self, make: Callable[..., Schedule], args: tuple[Any, ...], options: dict[str, Any]):
        self.made = make, args, options
        self.lr_at = make(*args, **options)

    def __call__(self, step: int) -> float:
        return self.lr_at(step)

    def __reduce__(self) -> tuple[Any, ...]:
        make, args, options = self.made
        return partial(globals()[make.__name__], *args, **options), ()

    def __repr__(self) -> str:
        make, args, options = self.made
        return f"{make.__name__}({', '.join([*map(repr, args), *[f'{key}={value!r}' for key, value in options.items()]])})"


def named(make: Callable[P, Schedule]) -> Callable[P, Schedule]:
    """Decorator: what the function returns is a Named."""

    @wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> Schedule:
        return Named(make, args, options)

    return made


def positive(name: str, what: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name}: {what} must be positive: {value}. Use a positive number.")


@named
def constant(lr: float) -> Schedule:
    """Always lr."""
    return lambda step: lr


@named
def step(lr: float, every: int, gamma: float = 0.1) -> Schedule:
    """lr * gamma^(steps // every)."""
    positive("step", "every", every)
    return lambda step: lr * gamma ** (step // every)


@named
def multistep(lr: float, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """lr, times gamma at each milestone passed."""
    marks = sorted(milestones)
    return lambda step: lr * gamma ** bisect.bisect_right(marks, step)


@named
def exponential(lr: float, gamma: float) -> Schedule:
    """lr * gamma^steps."""
    return lambda step: lr * gamma**step


@named
def linear(start: float, end: float, n: int) -> Schedule:
    """From start to end in n steps, then end."""
    positive("linear", "n", n)
    return lambda step: start + (end - start) * min(step, n) / n


@named
def warmup(lr: float, n: int) -> Schedule:
    """lr * (steps + 1) / n during the first n steps, then lr: the first step already moves."""
    return lambda step: lr * min(1.0, (step + 1) / n) if n > 0 else lr


@named
def cosine(lr: float, n: int, end: float = 0.0) -> Schedule:
    """Half a cosine from lr to end in n steps, then end (Loshchilov & Hutter 2016, arXiv:1608.03983)."""
    positive("cosine", "n", n)
    return lambda step: end + 0.5 * (lr - end) * (1.0 + math.cos(math.pi * min(step, n) / n))


@named
def warmup_cosine(lr: float, warmup: int, n: int, end: float = 0.0) -> Schedule:
    """Linear warm-up over `warmup` steps, then a cosine from lr to end until step n."""
    positive("warmup_cosine", "n", n)
    fall = cosine(lr, max(1, n - warmup), end)
    return lambda step: lr * (step + 1) / warmup if step < warmup else fall(step - warmup)


@named
def poly(lr: float, n: int, end: float = 0.0, power: float = 1.0) -> Schedule:
    """end + (lr - end) * (1 - steps / n)^power, then end."""
    positive("poly", "n", n)
    return lambda step: end + (lr - end) * (1.0 - min(step, n) / n) ** power


@named
def warmdown(lr: float, warmup: int, warmdown: int, total: int, final: float = 0.0) -> Schedule:
    """Linear up over `warmup` steps, flat, then linear down to lr * final over the last `warmdown` steps of `total`."""
    positive("warmdown", "total", total)
    if warmup + warmdown > total:
        raise ValueError(f"warmdown: longer than the run: {warmup} + {warmdown} > {total}. Shorten the warm-up or the warm-down.")

    def lr_at(step: int) -> float:
        if step < warmup:
            return lr * (step + 1) / warmup
        left = total - step
        if left >= warmdown or warmdown == 0:
            return lr
        share = max(0.0, left / warmdown)
        return lr * (share + (1.0 - share) * final)

    return lr_at


@named
def one_cycle(lr: float, n: int, rise: float = 0.3, start: float = 25.0, end: float = 1e4) -> Schedule:
    """Cosine from lr / start up to lr during the share `rise` of n steps, then down to lr / start / end at the last of them.

    The arithmetic of PyTorch's OneCycleLR (arXiv:1708.07120): the top is at step rise * n - 1, the end at step n - 1.
    """
    positive("one_cycle", "n", n)
    top, last = rise * n - 1, n - 1

    def between(a: float, b: float, share: float) -> float:
        return b + 0.5 * (a - b) * (1.0 + math.cos(math.pi * share))

    def lr_at(step: int) -> float:
        if step <= top:
            return between(lr / start, lr, step / top) if top else lr
        return between(lr, lr / start / end, (step - top) / (last - top)) if step < last else lr / start / end

    return lr_at
