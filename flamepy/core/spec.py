"""Spec: what a planned call needs to know of a tensor: shape, dtype, device, whether it is tracked.

There is one object for each combination, so that a plan is found by the identity of the specs of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .dtypes import computed
from .errors import IndexOutOfRange

MOST = 1 << 12  # specs kept: after so many shapes they are forgotten, and calls with them are planned anew


class Count(int):
    """How many elements a tensor has. Called, as PyTorch's x.size(), it gives the shape, or the size of one axis."""

    axes: tuple[int, ...]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """For NumPy an int like any other: a subclass would make float64 of float32."""
        return getattr(ufunc, method)(*[int(x) if type(x) is Count else x for x in inputs], **options)

    def __call__(self, dim: int | None = None) -> Any:
        if dim is None:
            return self.axes
        try:
            return self.axes[dim]
        except IndexError:
            raise IndexOutOfRange(f"size: no such axis: {dim}, shape {self.axes}. Use 0 to {len(self.axes) - 1}.") from None


class Spec:
    """Made by spec_of() only. `size` counts the elements, `count` also answers to x.size(); `computed`: the dtype of numbers beside them;
    `twin` is the same with `tracked` the other way round, once it was asked for; `kind` is the same for a single number: what tensors of
    every shape have in common."""

    __slots__ = ("computed", "count", "device", "dtype", "kind", "shape", "size", "tracked", "twin")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: Any, tracked: bool):
        self.shape, self.dtype, self.device, self.tracked = shape, dtype, device, tracked
        self.size, self.computed = size_of(shape), computed(dtype)
        self.count = Count(self.size)
        self.count.axes = shape
        self.twin: Spec | None = None
        self.kind: Spec = spec_of((), dtype, device, tracked) if shape else self

    def of_shape(self, shape: tuple[int, ...]) -> Spec:
        return spec_of(shape, self.dtype, self.device, self.tracked)

    def as_tracked(self, flag: bool) -> Spec:
        """The spec of a tensor like this that is tracked, or not."""
        if self.tracked == flag:
            return self
        if self.twin is None:
            self.twin = spec_of(self.shape, self.dtype, self.device, flag)
        return self.twin

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} on {self.device}{', tracked' if self.tracked else ''}"


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


def size_of(shape: Sequence[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size
