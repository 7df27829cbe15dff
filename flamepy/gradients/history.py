"""Norms of past steps: a window of numbers on the host, its statistics, what they say of the newest, and transforms that limit it.

tracker = GradientNormTracker(window=100)
tracker.record(fp.clip_grad_norm(grads, 1.0))
if tracker.exploding(100.0): ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..core.errors import NonFiniteError, StateError
from ..dtypes import checked_number, checked_steps, float64
from ..gradient import GradientMap
from .clip import apply_factor, require_finite
from .norm import factor_and_mark, norm_of, places_of
from .transforms import Clip


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
        return self.moving_average  # type: ignore[no-any-return]

    @property
    def last(self) -> float:
        """The newest norm; NaN before the first."""
        return self.norms[-1] if self.norms else math.nan

    @property
    def finite(self) -> list[float]:
        """The norms in the window that are numbers."""
        return [x for x in self.norms if math.isfinite(x)]

    # Of the finite norms in the window; NaN when there are none.
    moving_average = property(lambda self: mean_and_std(self.finite)[0])
    std = property(lambda self: mean_and_std(self.finite)[1])
    min = property(lambda self: min(self.finite, default=math.nan))
    max = property(lambda self: max(self.finite, default=math.nan))

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


# ---- limits from past norms --------------------------------------------------------------------------------------------------------------
class Remembering(Clip):
    """Base of those whose limits come from the norms of past steps, the last `window`; there are none for the first `warmup` steps."""

    strict = True  # a norm that is not finite raises
    counts: tuple[str, ...] = ()  # attributes that count steps

    def __init__(self, window: int, warmup: int, params: Any):
        super().__init__(params)
        self.window, self.warmup = checked_steps(self.name, "window", window), checked_steps(self.name, "warmup", warmup)
        if warmup > window:
            raise ValueError(f"{self.name}: warmup is longer than the window: {warmup} > {window}. Make it shorter.")
        self._past: tuple[float, ...] = ()

    def limits(self) -> list[float]:
        """(limit of the norm, 0 for none; norm above which no step is taken, NaN for never; 1.0) for the next step."""
        raise NotImplementedError

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        places = places_of(self.name, grads, params)
        if not places.buffers:
            return
        found = norm_of(grads, places, 2.0)
        device = found.device
        limits = device.empty(3, float64)
        device.stream.before(self.limits, limits)
        device.launch("limits", None, (found,), (limits, *factor_and_mark(grads, device)), (), float64)
        if self.strict:
            require_finite(places, found, marked=True)
        device.stream.after(partial(self.record, places.ids, places.names), found)
        apply_factor(grads, places, found)
        grads.mark = found

    def record(self, ids: list[int], names: dict[int, str], found: Buffer) -> None:
        """What the norm was."""
        self.known(ids, names, found)
        self.remember(float(self.result or 0.0))

    def remember(self, norm: float) -> None:
        self._past = (*self._past, norm)[-self.window :]

    # ---- state, also of a replay that fails (engine/capture) -----------------------------------------------------------------
    def saved(self) -> Any:
        return self._past, [getattr(self, key) for key in self.counts]

    def restore(self, saved: Any) -> None:
        self._past = saved[0]
        for key, n in zip(self.counts, saved[1], strict=True):
            setattr(self, key, n)

    def state_dict(self) -> dict[str, Any]:
        return {"class": self.name, "past": list(self._past), **{key: getattr(self, key) for key in self.counts}}

    def check_state(self, state: dict[str, Any]) -> None:
        past, counts = state.get("past"), [state.get(key) for key in self.counts]
        if not isinstance(past, list) or not all([isinstance(x, int | float) for x in past]):
            raise StateError(f"{self.name}: not the norms of past steps: {str(past)[:80]}. Restore what state_dict() returned.")
        if not all([isinstance(x, int) and x >= 0 for x in counts]):
            raise StateError(f"{self.name}: not counts of skipped steps: {counts}. Restore what state_dict() returned.")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.restore((tuple([float(x) for x in state["past"]])[-self.window :], [state[key] for key in self.counts]))


class ClipHistory(Remembering):
    """Limit the joint norm to a quantile of the past norms (AutoClip: Seetharaman et al. 2020, arXiv:2007.14469), or with `z` to so many
    standard deviations above their mean. A norm that is not finite raises NonFiniteError."""

    def __init__(self, quantile: float = 0.9, z: float | None = None, window: int = 100, warmup: int = 10, params: Any = None):
        super().__init__(window, warmup, params)
        if not 0.0 <= checked_number("ClipHistory", "quantile", quantile) <= 1.0:
            raise ValueError(f"ClipHistory: quantile outside [0, 1]: {quantile}. Use a share of the past norms.")
        self.quantile, self.z = float(quantile), None if z is None else checked_number("ClipHistory", "z", z)

    def limits(self) -> list[float]:
        if len(self._past) < self.warmup:
            return [0.0, math.nan, 1.0]
        if self.z is None:
            return [quantile(self._past, self.quantile), math.nan, 1.0]
        mean, std = mean_and_std(self._past)
        return [mean + self.z * std, math.nan, 1.0]


class SkipSpikes(Remembering):
    """Take no step when the joint norm lies more than `z` standard deviations above the mean of the past ones, or is not finite.

    At most `most` steps in a row are skipped: then a spike is taken for the new level, and a norm that is not finite raises
    NonFiniteError. `skipped` counts them in a row, `total` all of them.
    """

    strict, counts = False, ("skipped", "total")

    def __init__(self, z: float = 6.0, most: int = 5, window: int = 100, warmup: int = 10, params: Any = None):
        super().__init__(window, warmup, params)
        if not checked_number("SkipSpikes", "z", z) > 0:
            raise ValueError(f"SkipSpikes: z must be positive: {z}. Use how many standard deviations are too many.")
        self.z, self.most, self.skipped, self.total = z, checked_steps(self.name, "most", most), 0, 0

    def limits(self) -> list[float]:
        if len(self._past) < self.warmup or self.skipped >= self.most:
            return [0.0, np.finfo(np.float64).max, 1.0]
        mean, std = mean_and_std(self._past)
        return [0.0, mean + self.z * std, 1.0]

    def record(self, ids: list[int], names: dict[int, str], found: Buffer) -> None:
        self.known(ids, names, found)
        norm = float(self.result or 0.0)
        if self.result is not None and self.result.skipped:
            if self.skipped >= self.most:
                raise NonFiniteError(
                    f"SkipSpikes: {self.skipped + 1} steps in a row without finite gradients: norm {norm}. Lower the rate."
                )
            self.skipped += 1
            self.total += 1
        else:
            self.skipped = 0
            self.remember(norm)
