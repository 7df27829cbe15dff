"""layer_norm and rms_norm as users call them: torch.nn.functional's order of arguments, or the weights straight after x.

May import: op, ops.row_norms. FLAME counterpart: `flame_core::norm`. Read next: losses.py.
"""

from __future__ import annotations

from typing import Any

from ..op import base as op
from ..op.base import composed
from . import row_norms


@composed(home="functional")
def layer_norm(x: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes (Ba et al. 2016, arXiv:1607.06450).

    normalized_shape: the sizes of those axes (default: the weight's, else the last). layer_norm(x, weight, bias) works too.
    """
    shape = normalized_shape
    if isinstance(shape, op.Tensor):
        if weight is not None and bias is not None:
            raise TypeError("layer_norm: two weights: one in the place of normalized_shape. Call layer_norm(x, shape, weight, bias).")
        shape, weight, bias = None, shape, weight if bias is None else bias
    return row_norms.layer_norm(x, weight, bias, eps=eps, normalized_shape=shape)


@composed(home="functional")
def rms_norm(x: Any, normalized_shape: Any = None, weight: Any = None, eps: float = 1e-5) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang & Sennrich 2019, arXiv:1910.07467).

    normalized_shape as in layer_norm; rms_norm(x, weight) works too.
    """
    shape = normalized_shape
    if isinstance(shape, op.Tensor):
        if weight is not None:
            raise TypeError("rms_norm: two weights: one in the place of normalized_shape. Call rms_norm(x, shape, weight).")
        shape, weight = None, shape
    return row_norms.rms_norm(x, weight, eps=eps, normalized_shape=shape)
