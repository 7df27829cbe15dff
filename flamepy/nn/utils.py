"""What PyTorch keeps in torch.nn.utils: parameters as one vector, normed weights, layers folded into one, clipping.

Clipping takes what flamepy's takes, a GradientMap or Parameters, and follows its rules: nothing is hidden in `.grad`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import ops
from ..advice import missing_in as _missing_in
from ..autograd import no_grad
from ..core.errors import DTypeError, ShapeError, StateError
from ..parameter import Parameter
from ..tensors import Tensor
from .module import Module
from .weight_norms import remove_spectral_norm as remove_spectral_norm
from .weight_norms import remove_weight_norm as remove_weight_norm
from .weight_norms import spectral_norm as spectral_norm
from .weight_norms import weight_norm as weight_norm


# ---- parameters as one vector ------------------------------------------------------------------------------------------------------------
def parameters_to_vector(parameters: Iterable[Any]) -> Any:
    """All numbers of these parameters, in their order, in one axis; gradients flow back."""
    params = list(parameters)
    if wrong := [p for p in params if not isinstance(p, Tensor)]:
        raise DTypeError(f"parameters_to_vector: not a Parameter: {type(wrong[0]).__name__}. Pass model.parameters().")
    return ops.cat([ops.reshape(p, (p.size,)) for p in params])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Write the numbers of a vector into these parameters, in their order. Raises ShapeError unless they are as many, and then nothing is
    written."""
    params = list(parameters)
    if wrong := [p for p in params if not isinstance(p, Parameter)]:
        raise DTypeError(f"vector_to_parameters: not a Parameter: {type(wrong[0]).__name__}. Pass model.parameters().")
    vec = Tensor.of("vector_to_parameters", vec, params[0].device if params else None).detach()
    total = sum([p.size for p in params])
    if vec.shape != (total,):
        raise ShapeError(f"vector_to_parameters: not so many numbers: {vec.shape}, the parameters have {total}. Pass a vector of all.")
    for p, part in zip(params, ops.split(vec, [p.size for p in params]), strict=True):
        p.set_data(ops.reshape(part, p.shape))


# ---- clipping -----------------------------------------------------------------------------------------------------------------------
def clip_grad_norm_(grads: Any, max_norm: float, norm_type: float = 2.0, *args: Any, **options: Any) -> Any:
    """flamepy.clip_grad_norm: of the GradientMap that backward() returned, or of Parameters' `.grad`."""
    return import_module("flamepy.gradients.clip").clip_grad_norm(grads, max_norm, norm_type, *args, **options)


def clip_grad_value_(grads: Any, clip_value: float) -> Any:
    """flamepy.clip_grad_value: of the GradientMap that backward() returned, or of Parameters' `.grad`."""
    return import_module("flamepy.gradients.clip").clip_grad_value(grads, clip_value)


# ---- layers folded into one ------------------------------------------------------------------------------------------------------
def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution that does what a BatchNorm in eval mode after it does. transpose: it is a transposed one. Raises
    StateError while either trains."""
    return fused("fuse_conv_bn_eval", conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """The same for a Linear."""
    return fused("fuse_linear_bn_eval", linear, bn, 0)


def fused(op: str, layer: Module, bn: Any, axis: int) -> Any:
    if layer.training or bn.training or bn.running_mean is None:
        raise StateError(f"{op}: the norm is not fixed: training, or without running statistics. Call eval() first.")
    if getattr(layer, "groups", 1) > 1 and axis:
        raise StateError(f"{op}: a transposed convolution in groups: {layer!r}. Keep the norm.")
    found = copy.deepcopy(layer)
    with no_grad():
        w: Any = found.weight  # type: ignore[attr-defined]
        scale = (bn.running_var.detach() + bn.eps).rsqrt() * (1.0 if bn.weight is None else bn.weight)
        shift = (0.0 if found.bias is None else found.bias) - bn.running_mean.detach()  # type: ignore[attr-defined]
        shift = shift * scale + (0.0 if bn.bias is None else bn.bias)
        w.set_data(w * ops.reshape(scale, (*(1,) * axis, scale.size, *(1,) * (w.ndim - 1 - axis))))
        found.bias = Parameter(shift.detach())  # type: ignore[attr-defined]
    return found


if not TYPE_CHECKING:
    __getattr__ = _missing_in("nn.utils", globals())
