"""Spec: what is known of a tensor beside its numbers: shape, dtype, device, whether it is tracked."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .dtypes import STORED


class Spec:
    """`size` counts the elements; `computed`: the dtype of numbers beside them."""

    __slots__ = ("computed", "device", "dtype", "shape", "size", "tracked")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: Any, tracked: bool = False):
        self.shape, self.dtype, self.device, self.tracked = shape, dtype, device, tracked
        self.size, self.computed = prod(shape), STORED.get(dtype, dtype)

    def as_tracked(self, flag: bool) -> Any:
        """The spec of a tensor like this that is tracked, or not."""
        return self if self.tracked == flag else Spec(self.shape, self.dtype, self.device, flag)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} on {self.device}{', tracked' if self.tracked else ''}"
