"""PyTorch's names of methods of tensors and modules that flamepy has under others, each with the same meaning.

A name whose meaning would be another one has advice instead: advice.py. Nothing in its classes may be annotated with float, int or bool,
which are methods there.
"""

from __future__ import annotations

from typing import Any

from .core import creation
from .dtypes import bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8


class Converted:
    """Methods named after the type or the place that to() is called with."""

    def float(self: Any) -> Any:
        return self.to(float32)

    def double(self: Any) -> Any:
        return self.to(float64)

    def half(self: Any) -> Any:
        return self.to(float16)

    def bfloat16(self: Any) -> Any:
        return self.to(bfloat16)

    def cpu(self: Any) -> Any:
        return self.to(device="cpu")

    def cuda(self: Any, device: Any = None) -> Any:
        return self.to(device="cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


class PortedTensor(Converted):
    def long(self: Any) -> Any:
        return self.to(int64)

    def int(self: Any) -> Any:
        return self.to(int32)

    def short(self: Any) -> Any:
        return self.to(int16)

    def char(self: Any) -> Any:
        return self.to(int8)

    def byte(self: Any) -> Any:
        return self.to(uint8)

    def bool(self: Any) -> Any:
        return self.to(bool_)

    def type_as(self: Any, other: Any) -> Any:
        return self.to(dtype=other.dtype, device=other.device)

    def contiguous(self: Any) -> Any:
        """The tensor itself: every tensor is contiguous."""
        return self

    def is_contiguous(self: Any) -> Any:
        return True

    def nelement(self: Any) -> Any:
        return self.numel()

    def ndimension(self: Any) -> Any:
        return self.ndim

    def clamp_min(self: Any, min: Any) -> Any:
        return self.clamp(min=min)

    def clamp_max(self: Any, max: Any) -> Any:
        return self.clamp(max=max)

    def new_zeros(self: Any, *shape: Any, dtype: Any = None, device: Any = None) -> Any:
        return creation.zeros(*shape, dtype=dtype or self.dtype, device=device or self.device)

    def new_ones(self: Any, *shape: Any, dtype: Any = None, device: Any = None) -> Any:
        return creation.ones(*shape, dtype=dtype or self.dtype, device=device or self.device)

    def new_full(self: Any, shape: Any, value: Any, dtype: Any = None, device: Any = None) -> Any:
        return creation.full(shape, value, dtype=dtype or self.dtype, device=device or self.device)


class PortedModule(Converted):
    def requires_grad_(self: Any, requires_grad: Any = True) -> Any:
        """Unfreeze or freeze all parameters."""
        (self.unfreeze if requires_grad else self.freeze)()
        return self
