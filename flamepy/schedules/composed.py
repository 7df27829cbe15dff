"""Schedules made of schedules: one after the other, or multiplied.

    lr = sequence([warmup(1e-3, 100), cosine(1e-3, 900)], [100])
    lr = product(warmup(1.0, 100), ReduceOnPlateau(1e-3))

Wherever a schedule stands a number may stand, for a constant.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

from ..dtypes import is_number
from ..errors import DTypeError
from .base import Schedule, marks, named, rate
from .curves import constant


def schedule_of(op: str, given: Any) -> Schedule:
    """A schedule, or a number as one."""
    if is_number(given) and not callable(given):
        return constant(rate(op, "a schedule", given))
    if not callable(given):
        raise DTypeError(f"{op}: neither a schedule nor a number: {given!r}. Use constant(lr), or a function of the step number.")
    return given  # type: ignore[no-any-return]


@named
def sequence(schedules: Sequence[Schedule | float], milestones: Sequence[int]) -> Schedule:
    """The first schedule until the first milestone, then the second, which begins at its own step 0, and so on; SequentialLR."""
    parts = schedules if isinstance(schedules, Sequence) else []
    found, at = [schedule_of("sequence", s) for s in parts], marks("sequence", milestones)
    if not found or len(found) != len(at) + 1:
        raise ValueError(f"sequence: {len(found)} schedules have {len(found) - 1} milestones between them: {at}. Give one for each change.")
    if sorted(set(at)) != at or at[:1] == [0]:
        raise ValueError(f"sequence: milestones do not rise: {at}. Give step numbers in order, from 1 on.")

    def lr_at(step: int) -> float:
        i = bisect.bisect_right(at, step)
        return found[i](step - (at[i - 1] if i else 0))

    return lr_at


@named
def product(*schedules: Schedule | float) -> Schedule:
    """All of them multiplied at each step: a schedule scaled by a number, or shaped by another (ChainedScheduler)."""
    if not schedules:
        raise ValueError("product: nothing to multiply: 0 schedules. Give at least one.")
    found = [schedule_of("product", s) for s in schedules]
    return lambda step: math.prod([s(step) for s in found])
