"""What networks are made of, from basic ops: softmax, layer_norm, cross_entropy, gelu. flamepy has the same in one launch each."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .indexing import check_ids, picked_from_rows
from .pointwise import add, div, erf_op, exp_op, log_op, mul, neg, rsqrt, square, sub
from .reduce import max, mean, sum


def softmax(x: Any, axis: int = -1) -> Any:
    """exp(x) / sum(exp(x)) along one axis, without overflow: what is subtracted first does not change it, and so is not recorded."""
    e = exp_op(sub(x, max(x.detach(), axis=axis, keepdims=True)))
    return div(e, sum(e, axis=axis, keepdims=True))


def log_softmax(x: Any, axis: int = -1) -> Any:
    """log(softmax(x)) along one axis, accurate where softmax is tiny."""
    x = sub(x, max(x.detach(), axis=axis, keepdims=True))
    return sub(x, log_op(sum(exp_op(x), axis=axis, keepdims=True)))


def layer_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis (Ba et al. 2016, arXiv:1607.06450)."""
    centred = sub(x, mean(x, axis=-1, keepdims=True))
    y = mul(centred, rsqrt(add(mean(square(centred), axis=-1, keepdims=True), eps)))
    y = y if weight is None else mul(y, weight)
    return y if bias is None else add(y, bias)


def cross_entropy(x: Any, ids: Any) -> Any:
    """Mean of -log softmax(x)[id] over the rows of x (rows, classes); ids: int64 of shape (rows,). Raises ShapeError, DTypeError, and
    IndexOutOfRange for an id that is no class."""
    ids = Tensor.of("cross_entropy", ids, x.device)
    if x.ndim != 2 or ids.shape != x.shape[:1]:
        raise ShapeError(f"cross_entropy: sizes differ: logits {x.shape}, class ids {ids.shape}. Use (rows, classes) and (rows,).")
    if ids.dtype != "int64":
        raise DTypeError(f"cross_entropy: class ids are not int64: {ids.dtype}. Cast them.")
    check_ids(ids, 0, x.shape[1], f"cross_entropy: class id out of range: {{}} at position {{}}. Use 0 to {x.shape[1] - 1}.")
    return neg(mean(picked_from_rows(log_softmax(x, axis=1), ids)))


def gelu(x: Any) -> Any:
    """x times the normal distribution's share below x (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""
    return mul(mul(x, 0.5), add(erf_op(mul(x, 0.7071067811865476)), 1.0))
