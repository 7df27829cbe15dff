"""How a GradientAccumulator is set up, and what it tells of itself."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..dtypes import is_count, is_number
from ..errors import AccumulationError, DTypeError


@dataclass(frozen=True)
class AccumulationConfig:
    """How many micro-batches make one update (below 1: 1), whether they are averaged or summed, and the norm to clip to (None, 0: off)."""

    accumulation_steps: int = 4
    normalize: bool = True
    max_grad_norm: float | None = None

    def __post_init__(self) -> None:
        n, limit = self.accumulation_steps, self.max_grad_norm
        if not is_count(n, -sys.maxsize):
            raise DTypeError(f"AccumulationConfig: accumulation_steps is no whole number: {n!r}. Use an int.")
        if limit is not None and not (is_number(limit) and float(limit) >= 0):
            raise ValueError(f"AccumulationConfig: max_grad_norm must not be negative or NaN: {limit!r}. Use a number, or None for off.")
        object.__setattr__(self, "accumulation_steps", max(1, int(n)))

    def effective_batch_size(self, micro_batch_size: int) -> int:
        """How many examples one update sees."""
        return micro_batch_size * self.accumulation_steps


class AccumulationStats(NamedTuple):
    """What stats() tells."""

    total_micro_batches: int
    total_updates: int
    accumulation_steps: int
    registered_params: int
    total_param_elements: int

    def effective_batch_multiplier(self) -> int:
        return self.accumulation_steps


def checked_weight(weight: Any) -> float:
    """What a micro-batch weighs, as a float."""
    if not is_number(weight):
        raise DTypeError(f"accumulate: weight is no number: {weight!r}. Use the number of tokens or examples.")
    share = float(weight)
    if not 0 <= share < math.inf:
        raise AccumulationError(f"accumulate: weight out of range: {share}. Use a number >= 0.")
    return share
