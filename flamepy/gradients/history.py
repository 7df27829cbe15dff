"""Norms of past steps: a window of numbers on the host, its statistics, and what they say of the newest.

tracker = GradientNormTracker(window=100)
tracker.record(fp.clip_grad_norm(grads, 1.0))
if tracker.exploding(100.0): ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..dtypes import checked_number
from ..errors import StateError
from ..gradient_memory import checked_steps


def quantile(numbers: Sequence[float], share: float) -> float:
    """The number below which that share of the numbers lies, interpolated as numpy.quantile() does; NaN when there are none."""
    if not numbers:
        return math.nan
    ordered = sorted(numbers)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def mean_and_std(numbers: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation (over n); NaN when there are none."""
    if not numbers:
        return math.nan, math.nan
    mean = math.fsum(numbers) / len(numbers)
    return mean, math.sqrt(math.fsum([(x - mean) ** 2 for x in numbers]) / len(numbers))


def z_score(value: float, numbers: Sequence[float]) -> float:
    """How many standard deviations a value lies above the mean; 0 where all the numbers are equal to it, NaN when there are none."""
    mean, std = mean_and_std(numbers)
    if std == 0.0:
        return 0.0 if value == mean else math.copysign(math.inf, value - mean)
    return (value - mean) / std


class GradientNormTracker:
    """The last `window` norms, and verdicts on the newest. Raises ValueError for a window below 1."""

    def __init__(self, window: int = 100):
        self.window = checked_steps("GradientNormTracker", "the window", window)
        self.norms: list[float] = []
        self.steps = 0

    def record(self, norm: float) -> float:
        """Take the norm of one more step; returns the moving average."""
        value = checked_number("GradientNormTracker", "the norm", norm)
        if value < 0:
            raise ValueError(f"GradientNormTracker: a norm is negative: {value}. Pass what clip_grad_norm() returned.")
        self.norms = [*self.norms, value][-self.window :]
        self.steps += 1
        return self.moving_average

    @property
    def last(self) -> float:
        """The newest norm; NaN before the first."""
        return self.norms[-1] if self.norms else math.nan

    @property
    def finite(self) -> list[float]:
        """The norms in the window that are numbers."""
        return [x for x in self.norms if math.isfinite(x)]

    @property
    def moving_average(self) -> float:
        """The mean of the finite norms in the window; NaN when there are none."""
        return mean_and_std(self.finite)[0]

    @property
    def std(self) -> float:
        return mean_and_std(self.finite)[1]

    @property
    def min(self) -> float:
        return min(self.finite, default=math.nan)

    @property
    def max(self) -> float:
        return max(self.finite, default=math.nan)

    def quantile(self, share: float) -> float:
        if not 0.0 <= checked_number("quantile", "share", share) <= 1.0:
            raise ValueError(f"quantile: share outside [0, 1]: {share}. Use 0.5 for the median.")
        return quantile(self.finite, share)

    def exploding(self, threshold: float) -> bool:
        """Whether the newest norm is above the threshold, or no number."""
        return not self.last <= checked_number("exploding", "threshold", threshold) if self.norms else False

    def vanishing(self, threshold: float) -> bool:
        """Whether the newest norm is below the threshold."""
        return self.last < checked_number("vanishing", "threshold", threshold)

    @property
    def healthy(self) -> bool:
        """Whether the newest norm is finite, above 1e-7 and below 1e3."""
        return 1e-7 < self.last < 1e3

    def spike(self, z: float = 4.0) -> bool:
        """Whether the newest norm lies more than z standard deviations above the mean of those before it, or is no number."""
        before = [x for x in self.norms[:-1] if math.isfinite(x)]
        if not self.norms or (len(before) < 2 and math.isfinite(self.last)):
            return False
        return not z_score(self.last, before) <= checked_number("spike", "z", z)

    def state_dict(self) -> dict[str, Any]:
        return {"window": self.window, "norms": list(self.norms), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Raises StateError for what it did not return, and changes nothing then."""
        norms = state.get("norms") if isinstance(state, dict) else None
        if not isinstance(norms, list) or not all([isinstance(x, int | float) for x in norms]) or state.get("window") != self.window:
            raise StateError(
                f"GradientNormTracker: not a state of a window of {self.window}: {str(state)[:80]}. Pass what state_dict() gave."
            )
        self.norms, self.steps = [float(x) for x in norms], int(state["steps"])

    def __repr__(self) -> str:
        average, count = f"{self.moving_average:.4g}", f"{len(self.norms)} of {self.window}"
        return f"GradientNormTracker(last={self.last:.4g}, mean={average}, std={self.std:.4g}, {count})"
