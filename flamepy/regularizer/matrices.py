"""Terms on weights as matrices: orthogonality, spectral_norm, group_lasso; and max_norm, which is no term but a constraint.

A weight of more than two axes is taken as (first axis, all others), as for the filters of a convolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import ops
from ..autograd import no_grad
from ..creation import eye
from ..dtypes import HALF, checked_number, float32, is_count
from ..errors import ShapeError
from ..parameter import Parameter
from ..tensors import Tensor, tensor
from .penalties import floats, root


def matrix(name: str, w: Any) -> Tensor:
    """w as (rows, the rest). Raises ShapeError for less than two axes."""
    w = floats(name, w)
    if w.ndim < 2:
        raise ShapeError(f"{name}: not a matrix: shape {w.shape}. Use (rows, columns), or (rows, ...).")
    return w if w.ndim == 2 else ops.reshape(w, (w.shape[0], math.prod(w.shape[1:])))


def orthogonality(w: Any) -> Tensor:
    """|W W^T - I|^2, the sum of squares: 0 where the rows are orthonormal (Brock et al. 2017, arXiv:1609.07093).

    For a matrix with more rows than columns it cannot be 0: pass w.T. The gradient is 4 (W W^T - I) W.
    Shapes: w (rows, ...), two axes or more; the result is (). Raises ShapeError, DTypeError.
    """
    w = matrix("orthogonality", w)
    return ops.sum(ops.square(ops.matmul(w, ops.transpose(w)) - eye(w.shape[0], dtype=w.dtype, device=w.device)))


def spectral_norm(w: Any, iterations: int = 20) -> Tensor:
    """The largest singular value, by power iteration (Yoshida and Miyato 2017, arXiv:1705.10941).

    From a fixed start (so the same matrix gives the same bits), v = W^T u and u = W v are normalised `iterations` times; with s1, s2
    the two largest values, the error of u and v shrinks as (s2 / s1)^(2 iterations), that of the value u^T W v as the square of this. The
    gradient is u v^T: u and v count as constants. A matrix of zeros has the value 0 and the gradient 0.
    Shapes: w (rows, ...), two axes or more; the result is (). Raises ShapeError, DTypeError, ValueError for less than one iteration.
    """
    if not is_count(iterations, 1):
        raise ValueError(f"spectral_norm: needs at least one iteration, a whole number: {iterations!r}. Use 20.")
    w = matrix("spectral_norm", w)
    with no_grad():
        fixed = w.detach()
        flipped = ops.transpose(fixed)
        start = np.random.default_rng(0).standard_normal(w.shape[1])
        v = unit(tensor(start, dtype=float32, device=w.device).to(w.dtype))
        for _ in range(iterations):
            u = unit(ops.matmul(fixed, v))
            v = unit(ops.matmul(flipped, u))
        u = unit(ops.matmul(fixed, v))
    return ops.sum(u * ops.matmul(w, v))


def unit(v: Any) -> Tensor:
    """v with norm 1; zeros stay zeros. Divided by the largest first: squares of large numbers would overflow, of small ones vanish."""
    if not v.size:
        return v
    top = ops.max(ops.abs(v))
    v = v / ops.where(ops.ne(top, 0), top, 1.0)
    norm = ops.sqrt(ops.sum(ops.square(v)))
    return v / ops.where(ops.ne(norm, 0), norm, 1.0)


def group_lasso(w: Any) -> Tensor:
    """The sum over rows of their L2 norms, which makes whole rows zero (Yuan and Lin 2006; their factor sqrt(columns), the same for each
    row, is left to the weight). The gradient of a row is row / |row|, 0 for a row of zeros.

    Shapes: w (rows, ...), two axes or more; the result is (). Raises ShapeError, DTypeError.
    """
    return ops.sum(root(ops.sum(ops.square(matrix("group_lasso", w)), axis=1)))


def max_norm(params: Any, limit: float) -> None:
    """Scale every row that is longer than `limit` to that length (Srivastava et al. 2014). Call it after the optimizer's step.

    This is a constraint, not a term: it writes with set_data(). Rows within the limit keep their bits; so do parameters that don't
    require grad. `params`: a Parameter, a ParameterDict, a module or a list; a row is what one index of the first axis holds, a
    parameter with one axis (a bias) is one row. Raises ValueError unless the limit is positive, TypeError for what is no Parameter.
    """
    if not 0 < checked_number("max_norm", "the limit", limit) < math.inf:
        raise ValueError(f"max_norm: the limit must be positive and finite: {limit}. Use a number such as 3.0.")
    found = given(params)
    for p in found:
        if not isinstance(p, Parameter):
            raise TypeError(f"max_norm: not a Parameter: {type(p).__name__}. Pass a Parameter, a ParameterDict, a module or a list.")
    with no_grad():
        for p in dict.fromkeys(found):
            if p.requires_grad and p.size:
                p.set_data(limited(p.detach(), limit))


def given(params: Any) -> list[Any]:
    if isinstance(params, Parameter):
        return [params]
    found: Iterable[Any] = params.parameters() if hasattr(params, "parameters") else params
    return list(found) if hasattr(found, "__iter__") else [found]


def limited(w: Any, limit: float) -> Tensor:
    wide = w.to(float32) if w.dtype in HALF else w
    rows = ops.reshape(wide, (w.shape[0], -1) if w.ndim > 1 else (1, w.size))
    norms = ops.sqrt(ops.sum(ops.square(rows), axis=1, keepdims=True))
    found = ops.where(ops.gt(norms, limit), rows * (limit / norms), rows)
    return ops.reshape(found, w.shape).to(w.dtype)
