"""Making tensors: zeros, ones, full, randn, uniform."""

from __future__ import annotations

import math
from typing import Any

from .changes import heard
from .device import device as device_of
from .door import Door
from .dtypes import FLOATS, as_dtype, checked_number, float32
from .errors import DTypeError, ShapeError
from .op import launch, new, over
from .ops.axes import as_shape
from .ops.copy import filled
from .rng import next_key
from .tensor import Tensor


def full(shape: Any, value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of `shape` filled with `value` (float32 unless said otherwise)."""
    heard(None, (value,), None)
    t = filled(shape, value, float32 if dtype is None else as_dtype(dtype), device_of(device))
    return t.requires_grad_(requires_grad) if requires_grad else t


def zeros(*shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros; zeros((2, 3)) or zeros(2, 3)."""
    return full(shape_of("zeros", shape), 0, dtype, device, requires_grad)


def ones(*shape: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones; ones((2, 3)) or ones(2, 3)."""
    return full(shape_of("ones", shape), 1, dtype, device, requires_grad)


def randn(
    *shape: Any, mean: float = 0.0, std: float = 1.0, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    generator: Any = None,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers."""
    return random_tensor("randn", "philox_normal", shape_of("randn", shape), mean, std, dtype, device, requires_grad, generator)


def uniform(
    shape: Any, low: float = 0.0, high: float = 1.0, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    generator: Any = None,
) -> Tensor:  # fmt: skip
    """Uniform numbers in [low, high)."""
    return random_tensor("uniform", "philox_uniform", shape_of("uniform", (shape,)), low, high, dtype, device, requires_grad, generator)


def shape_of(name: str, given: tuple) -> tuple[int, ...]:
    shape = as_shape(name, given[0], given[1:]) if given else ()
    if min(shape, default=0) < 0:
        raise ShapeError(f"{name}: negative size: {shape}. Pass sizes as non-negative ints.")
    return shape


def random_tensor(
    name: str, loop: str, shape: Any, a: float, b: float, dtype: Any, device: Any, requires_grad: bool, generator: Any = None
) -> Tensor:  # fmt: skip
    kind = float32 if dtype is None else as_dtype(dtype)
    if kind not in FLOATS:
        raise DTypeError(f"{name}: makes floats: asked for {kind}. Cast the result.")
    names = ("mean", "std") if name == "randn" else ("low", "high")
    a, b = checked_number(name, names[0], a), checked_number(name, names[1], b)
    if not 0.0 <= (b if name == "randn" else b - a) < math.inf or not math.isfinite(a):
        given = f"mean {a}, std {b}. Use a finite mean and std >= 0" if name == "randn" else f"low {a}, high {b}. Use finite low <= high"
        raise ValueError(f"{name}: no such distribution: {given}.")
    heard(None, (a, b), None)
    t: Tensor = new(shape, kind, device_of(device))
    if t.size:
        consts = Door.number(a, t.spec.computed), Door.number(b, t.spec.computed)
        launch(loop, None, (t,), (over(next_key(t.device, generator), (3,)),), consts)
    return t.requires_grad_(requires_grad) if requires_grad else t
