"""find_lr: which learning rate to begin with (Smith 2015, arXiv:1506.01186).

    found = find_lr(lambda: train_on(next(batches)), optimizer)      # one training step, returning its loss
    found.save("rates.png")
    optimizer.lr = found.suggestion

Each step is made with a larger rate than the one before. Afterwards all is as it was: parameters, optimizer, random numbers.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import DTypeError, NonFiniteError, StateError
from ..disk import TEMPORARY, put_file
from ..dtypes import is_count, is_number
from ..rng import get_rng_state, set_rng_state

KEPT = 0.9  # how much of the smoothed loss the next one keeps
DIVERGED = 4.0  # times the best smoothed loss
LARGEST = 1e100  # beyond it matplotlib's own arithmetic overflows


@dataclass(frozen=True)
class FoundRates:
    """What find_lr() saw: the loss before the update at each rate. `smoothed`: their moving average, each weighing 0.9 of the next.

    `suggestion`: the rate where the smoothed loss falls fastest per factor of the rate; None where it never falls, or was seen at fewer
    than three rates. Only rates up to that of the lowest loss count: beyond it training diverges.
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]

    @property
    def suggestion(self) -> float | None:
        seen = [(rate, loss) for rate, loss in zip(self.rates, self.smoothed, strict=True) if math.isfinite(loss)]
        if len(seen) < 3:
            return None
        slopes = np.gradient([loss for _, loss in seen])  # the rates are at equal ratios
        lowest = int(np.argmin([loss for _, loss in seen]))  # a loss that falls after it has risen first
        before = slopes[: lowest + 1]
        return seen[int(before.argmin())][0] if before.min() < 0 else None

    @property
    def exploded(self) -> float | None:
        """The first rate beyond that of the lowest smoothed loss where it is higher than it ever was before, or not finite; None where the
        rates end earlier."""
        low, high = self.low_and_high()
        return next((rate for rate, loss in list(zip(self.rates, self.smoothed, strict=True))[low:] if not loss <= high), None)

    def low_and_high(self) -> tuple[int, float]:
        """(where the smoothed loss is lowest, the highest up to there)."""
        low = min(range(len(self.smoothed)), key=lambda i: (not math.isfinite(self.smoothed[i]), self.smoothed[i]))
        return low, max(self.smoothed[: low + 1])

    def save(self, path: str | Path) -> None:
        """Draw the curve into a PNG file, whole or not at all."""
        path = Path(path)
        put_file(path, path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}"), [png(self.figure())])

    def figure(self) -> Any:
        """The curve as a figure of matplotlib's: losses up to a little more than before the lowest, as where they explode all others would
        look alike."""
        from matplotlib.figure import Figure  # costs a second

        figure = Figure(figsize=(8, 5), dpi=110, layout="constrained")
        axes = figure.subplots()
        low, high = self.low_and_high()
        lowest = min(drawable(v) for v in (*self.losses[: low + 1], self.smoothed[low]))
        for values, color, width, label in ((self.losses, "#9db8d9", 0.7, "loss"), (self.smoothed, "#1f4e9c", 1.6, "smoothed")):
            axes.plot(self.rates, [drawable(v) for v in values], color=color, linewidth=width, label=label)
        if self.suggestion is not None:
            axes.axvline(self.suggestion, color="#c1440e", linewidth=1.0, label=f"suggestion {self.suggestion:.2g}")
        axes.set_xscale("log")
        axes.set_xlim(self.rates[0], 1.5 * self.rates[-1])
        if lowest < drawable(high):
            axes.set_ylim(lowest - 0.1 * (high - lowest), high + 0.3 * (high - lowest))
        if self.exploded is not None:
            axes.axvspan(self.exploded, 1.5 * self.rates[-1], color="#c1440e", alpha=0.12, label=f"exploded from {self.exploded:.2g} on")
        axes.set_xlabel("learning rate")
        axes.set_ylabel("loss")
        axes.legend(frameon=False, loc="lower left")
        axes.grid(alpha=0.25)
        return figure


def drawable(value: float) -> float:
    """The value, or NaN, which leaves a gap in the curve, where none can be drawn."""
    return value if abs(value) < LARGEST else math.nan


def png(figure: Any) -> bytes:
    """A picture of matplotlib's as a file's bytes."""
    memory = io.BytesIO()
    figure.savefig(memory, format="png")
    return memory.getvalue()


class Before:
    """Everything a training step with the optimizer changes, to be put back bit for bit."""

    def __init__(self, optimizer: Any):
        self.optimizer = optimizer
        self.numbers = [(p, p.detach().clone(), p.kept_grad()) for p in optimizer.params]
        model: Any = optimizer.model.module() if hasattr(optimizer, "model") else None
        self.buffers = [(t, t.detach().clone()) for t in (model.buffers() if hasattr(model, "buffers") else ())]
        self.state, self.rates, self.random = optimizer.state_dict(), optimizer.rates.saved(), get_rng_state()

    def put_back(self) -> None:
        for p, numbers, gradient in self.numbers:
            p.set_data(numbers)
            p.set_grad(gradient)
        for t, was in self.buffers:
            t.set_data(was)
        self.optimizer.load_state_dict(self.state)
        self.optimizer.rates.restore(self.rates)
        set_rng_state(self.random)


def find_lr(step: Callable[[], Any], optimizer: Any, start: float = 1e-7, end: float = 10.0, steps: int = 100) -> FoundRates:
    """Call step(), which makes one training step with `optimizer` and returns its loss, at `steps` rates from start to end.

    Ends early where the loss is not finite (or clipping raised NonFiniteError), or its moving average is four times its best. Whatever
    happens, the parameters of the optimizer, its state and rate, the buffers of the model that it was made for, as running statistics are,
    and this thread's random numbers are put back; not what else step() changes: batches taken from an iterator, an EMA, a count. A captured
    step has to be captured again afterwards: the optimizer's state was restored.
    """
    for what, value in (("start", start), ("end", end)):
        if not is_number(value) or not 0 < float(value) < math.inf:
            raise ValueError(f"find_lr: {what} must be positive and finite: {value!r}. Use a learning rate.")
    if not start < end or not is_count(steps, 3):
        raise ValueError(f"find_lr: no range of rates: {start} to {end} in {steps!r} steps. Let end be larger than start, steps 3 or more.")
    if not callable(step) or not hasattr(optimizer, "params"):
        kind = type(step if not callable(step) else optimizer).__name__
        raise DTypeError(f"find_lr: takes a function and an optimizer: got a {kind}. Use find_lr(lambda: train(batch), optimizer).")
    if not optimizer.params:
        raise StateError("find_lr: the optimizer knows no parameters: 0. Give it the model when it is made.")
    found = FoundRates([], [], [])
    before, best, smoothed = Before(optimizer), math.inf, 0.0
    try:
        for i in range(steps):
            optimizer.lr = rate = float(start * (end / start) ** (i / (steps - 1)))
            loss = loss_of(step)
            smoothed += (loss - smoothed) * (1.0 - KEPT) / (1.0 - KEPT ** (i + 1))  # the first weighs 1
            found.rates.append(rate)
            found.losses.append(loss)
            found.smoothed.append(smoothed)
            best = min(best, smoothed)
            if not math.isfinite(loss) or (smoothed > DIVERGED * best and smoothed > 0):
                break
    finally:
        before.put_back()
    return found


def loss_of(step: Callable[[], Any]) -> float:
    """The loss of one step; NaN where clipping refused its gradients."""
    try:
        loss = step()
    except NonFiniteError:
        return math.nan
    if not hasattr(loss, "__float__") or getattr(loss, "size", 1) != 1:
        raise DTypeError(f"find_lr: step() returned no loss: {type(loss).__name__}. Return the loss, a number or a tensor of one element.")
    return float(loss)
