"""Penalties on numbers and on derivatives: l1, l2, elastic_net, gradient_penalty.

Sums, not means: the gradient of l1 is sign(x), that of l2 is 2x, whatever the size of x. Like cross_entropy, every term is float32 for
16-bit numbers too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import ops
from ..autograd import enable_grad, is_grad_enabled
from ..dtypes import FLOATS, check_function, checked_number
from ..errors import DTypeError, GradientError, ShapeError
from ..ops.copy import widened
from ..tensors import Tensor
from .paths import gradient_of, stand_in


def checked_floats(name: str, x: Any) -> Tensor:
    """x as a Tensor; DTypeError unless it is of floats."""
    x = Tensor.of(name, x)
    if x.dtype not in FLOATS:
        raise DTypeError(f"{name}: needs floats: {x.dtype}. Cast with .to(flamepy.float32).")
    return x


def floats(name: str, x: Any) -> Any:
    """The same, of float32 instead of 16 bits."""
    return widened(checked_floats(name, x))


def root(squares: Any) -> Tensor:
    """The square root; where it is 0 the gradient is 0, one of the subgradients of a norm, and not NaN."""
    above = ops.ne(squares, 0)
    return ops.where(above, ops.sqrt(ops.where(above, squares, 1.0)), 0.0)


def l1(x: Any) -> Tensor:
    """sum |x| (Tibshirani 1996, the lasso). The gradient is sign(x), 0 at 0.

    Shapes: x any, of floats; the result is (). Raises DTypeError for integers.
    """
    return ops.sum(ops.abs(floats("l1", x)))


def l2(x: Any) -> Tensor:
    """sum x^2 (Hoerl and Kennard 1970, ridge), without a factor 1/2: the gradient is 2x.

    Shapes: x any, of floats; the result is (). Raises DTypeError for integers.
    """
    return ops.sum(ops.square(floats("l2", x)))


def elastic_net(x: Any, l1_ratio: float = 0.5) -> Tensor:
    """l1_ratio * l1(x) + (1 - l1_ratio) * l2(x) (Zou and Hastie 2005).

    Shapes: x any, of floats; the result is (). Raises DTypeError for integers, ValueError for a ratio outside [0, 1].
    """
    if not 0.0 <= checked_number("elastic_net", "l1_ratio", l1_ratio) <= 1.0:
        raise ValueError(f"elastic_net: l1_ratio outside [0, 1]: {l1_ratio}. Use 1 for the lasso, 0 for ridge.")
    return l1(x) * l1_ratio + l2(x) * (1.0 - l1_ratio)


def gradient_penalty(x: Any, fn: Callable[[Any], Any], kind: str = "wgan") -> Tensor:
    """A penalty on g = d fn(x) / dx, the gradient of a critic at its input, averaged over the samples (the first axis of x).

    kind "wgan": (|g| - 1)^2, for x between real and made samples (Gulrajani et al. 2017, arXiv:1704.00028). "r1": |g|^2 / 2, for real
    samples; the weight is the paper's gamma (Mescheder et al. 2018, arXiv:1801.04406). |g| is the L2 norm over all axes but the first.
    It is differentiable: gradients reach the parameters of fn, and x if it requires grad. Where g is 0 the gradient of |g| is 0.

    Shapes: x (samples, ...); fn returns a Tensor of any shape, whose element sums are differentiated: each sample's score must
    depend on that sample alone (no norm over the batch). The result is (). Raises GradientError where no gradient of fn reaches x, or
    for an op that has no second derivative; ShapeError for x without axes, ValueError for another kind.
    """
    if kind not in ("wgan", "r1"):
        raise ValueError(f"gradient_penalty: unknown kind: {kind!r}. Use 'wgan' or 'r1'.")
    check_function("gradient_penalty", "fn", fn)
    x = checked_floats("gradient_penalty", x)
    if not x.ndim:
        raise ShapeError("gradient_penalty: x has no axis of samples: shape (). Use (samples, ...).")
    recording = is_grad_enabled()
    with enable_grad():  # the gradient is part of the value: under no_grad() too
        at = x if x.requires_grad else stand_in(x)
        found = gradient_of(ops.sum(fn(at)), at, create_graph=recording)
    if found is None:
        raise GradientError(
            "gradient_penalty: no gradient reaches the input: fn does not use it, or cuts the path. Return fn(x) on the tape."
        )
    squares = ops.sum(ops.square(ops.reshape(found, (x.shape[0], math.prod(x.shape[1:])))), axis=1)
    return ops.mean(ops.square(root(squares) - 1.0)) if kind == "wgan" else ops.mean(squares) * 0.5
