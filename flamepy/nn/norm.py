"""LayerNorm and RMSNorm."""

from __future__ import annotations

from typing import Any

from ..dtypes import checked_number
from ..ops.row_norms import layer_norm_in, residual_norm_in, rms_norm_in
from ..parameter import Parameter
from .linear import flags, size
from .module import Module


def sizes(layer: str, shape: Any) -> tuple[int, ...]:
    """The normalised axes as a tuple; an int means one axis."""
    given = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    return tuple([size(layer, "normalized_shape", n) for n in given])


class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes; weight starts at 1, bias at 0."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        flags("LayerNorm", elementwise_affine=elementwise_affine, bias=bias)
        self.normalized_shape, self.eps = sizes("LayerNorm", normalized_shape), checked_number("LayerNorm", "eps", eps)
        affine = elementwise_affine
        self.weight = Parameter.ones(self.normalized_shape, dtype=dtype, device=device) if affine else None
        self.bias = Parameter.zeros(self.normalized_shape, dtype=dtype, device=device) if affine and bias else None

    def forward(self, x: Any) -> Any:
        """x (..., *normalized_shape) -> the same shape. Raises ShapeError where x ends otherwise."""
        return layer_norm_in(self.compute_dtype, x, self.normalized_shape, self.weight, self.bias, self.eps)

    def residual(self, x: Any, residual: Any = None) -> tuple[Any, Any]:
        """(s, the norm of s) with s = x + residual (s is x where there is none): a residual stream and what the next layer reads.
        One launch forward, and backward the two cotangents meet in one."""
        found = residual_norm_in(self.compute_dtype, x, residual, self.weight, self.bias, self.eps, self.normalized_shape)
        return found  # type: ignore[no-any-return]

    def extra(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


def normed(norm: Module, x: Any, residual: Any = None) -> tuple[Any, Any]:
    """LayerNorm.residual() of any module that stands in a LayerNorm's place."""
    if isinstance(norm, LayerNorm) and norm.as_written(LayerNorm):
        return norm.residual(x, residual)
    s = x if residual is None else x + residual
    return s, norm(s)


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes; weight starts at 1.
    eps is 1e-5 unless given (PyTorch's default depends on the dtype)."""

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, device: Any = None, dtype: Any = None
    ):  # fmt: skip
        flags("RMSNorm", elementwise_affine=elementwise_affine)
        self.normalized_shape, self.eps = sizes("RMSNorm", normalized_shape), checked_number("RMSNorm", "eps", eps)
        self.weight = Parameter.ones(self.normalized_shape, dtype=dtype, device=device) if elementwise_affine else None

    def forward(self, x: Any) -> Any:
        """x (..., *normalized_shape) -> the same shape. Raises ShapeError where x ends otherwise."""
        return rms_norm_in(self.compute_dtype, x, self.normalized_shape, self.weight, self.eps)

    def extra(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"
