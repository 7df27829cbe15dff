"""What is made once and kept: the Spec of each shape, dtype, device and trackedness, for a plan is found by the identity of the specs of
its inputs; and Python's numbers as kernels take them: rounded, so that two may look like one to it (`time.time()` in float32 is the same
for two minutes). Who has to tell them apart hears of each that is rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from typing import Any

import numpy as np

from ..bus import Topic
from ..core import spec as core

MOST = 1 << 12  # specs: after so many shapes they are forgotten, and calls with them are planned anew
MOST_NUMBERS = 8192
NUMBERS: dict[tuple[np.dtype, Any], Any] = {}
rounded = Topic()  # (value, scalar): a number was rounded


class Spec(core.Spec):
    """Made by spec_of() only. `count` is its size, and answers to x.size(); `twin` is the same with `tracked` the other way round, once it
    was asked for; `kind` is the same for a single number: what tensors of every shape have in common."""

    __slots__ = ("count", "kind", "twin")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: Any, tracked: bool):
        super().__init__(shape, dtype, device, tracked)
        self.count: Any = super().count  # type: ignore[misc]  # habits.py
        self.twin: Spec | None = None
        self.kind: Spec = spec_of((), dtype, device, tracked) if shape else self

    def of_shape(self, shape: tuple[int, ...]) -> Spec:
        return spec_of(shape, self.dtype, self.device, self.tracked)

    def as_tracked(self, flag: bool) -> Spec:
        if self.tracked == flag:
            return self
        if self.twin is None:
            self.twin = spec_of(self.shape, self.dtype, self.device, flag)
        return self.twin


_specs: dict[Any, Spec] = {}
forgetting: list[Callable[[], None]] = []  # called when specs are forgotten: a new one may be where an old one was, and have its hash


def spec_of(shape: tuple[int, ...], dtype: np.dtype, device: Any, tracked: bool = False) -> Spec:
    """The one spec of these."""
    key = (shape, dtype, device.name, tracked)
    found = _specs.get(key)
    if found is None:
        if len(_specs) >= MOST:
            _specs.clear()
            for forget in forgetting:
                forget()
        found = _specs.setdefault(key, Spec(shape, dtype, device, tracked))
    return found


def number(value: Any, dtype: np.dtype) -> Any:
    """A number as kernels take it, a scalar of `dtype`. NumPy needs 200 ns to make one, so they are kept."""
    if value == 0 and copysign(1, value) < 0:  # -0.0, which as a key equals 0.0
        return dtype.type(value)
    scalar = NUMBERS.get((dtype, value))
    if scalar is None:
        scalar = dtype.type(value)
        if rounded:  # nothing is kept meanwhile, so that who listens hears of every number
            rounded(value, scalar)
        else:
            if len(NUMBERS) >= MOST_NUMBERS:
                NUMBERS.clear()
            NUMBERS[dtype, value] = scalar
    return scalar
