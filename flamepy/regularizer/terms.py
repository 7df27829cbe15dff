"""Terms of a loss: penalties on numbers and derivatives, on distributions along an axis, on weights as matrices; and max_norm, which is no
term but a constraint.

Each is a function of a Tensor of floats (DTypeError for another) whose result is a Tensor of shape (), float32 for 16-bit numbers too, as
cross_entropy's is. Sums, not means: the gradient of l1 is sign(x), whatever the size of x. Terms on distributions, of shape (..., classes)
along `axis`, are means over all other axes; `of` says what the numbers are: "logits" (the default: any numbers, softmax makes them a
distribution), "probs" (not negative, sum 1; nobody checks), "logprobs" (their logarithms). 0 log 0 is 0, and its gradient 0. A weight of
more than two axes is taken as (first axis, all others), as for the filters of a convolution. Two inputs have one shape, or ShapeError.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..autograd import enable_grad, is_grad_enabled, no_grad
from ..core.errors import GradientError, ShapeError
from ..creation import eye
from ..dtypes import HALF, check_function, checked_number, float32, is_count
from ..ops.reduce_more import floats_only
from ..ops.variance import root
from ..ops.widening import widened
from ..parameter import Parameter
from ..tensors import Tensor, tensor
from .paths import gradient_of, stand_in

LOG_2 = 0.6931471805599453


def floats(name: str, x: Any) -> Any:
    """x as a Tensor of floats, of float32 instead of 16 bits; DTypeError for other types."""
    return widened(floats_only(name, x))


def check_word(wrong: str, given: str, *words: str) -> None:
    """Raise ValueError unless `given` is one of these words."""
    if given not in words:
        raise ValueError(f"{wrong}{given!r}. Use {', '.join(map(repr, words[:-1]))} or {words[-1]!r}.")


def l1(x: Any) -> Tensor:
    """sum |x| (Tibshirani 1996, the lasso). The gradient is sign(x), 0 at 0."""
    return ops.sum(ops.abs(floats("l1", x)))


def l2(x: Any) -> Tensor:
    """sum x^2 (Hoerl and Kennard 1970, ridge), without a factor 1/2: the gradient is 2x."""
    return ops.sum(ops.square(floats("l2", x)))


def elastic_net(x: Any, l1_ratio: float = 0.5) -> Tensor:
    """l1_ratio * l1(x) + (1 - l1_ratio) * l2(x) (Zou and Hastie 2005). Raises ValueError for a ratio outside [0, 1]."""
    if not 0.0 <= checked_number("elastic_net", "l1_ratio", l1_ratio) <= 1.0:
        raise ValueError(f"elastic_net: l1_ratio outside [0, 1]: {l1_ratio}. Use 1 for the lasso, 0 for ridge.")
    return l1(x) * l1_ratio + l2(x) * (1.0 - l1_ratio)


def gradient_penalty(x: Any, fn: Callable[[Any], Any], kind: str = "wgan") -> Tensor:
    """A penalty on g = d fn(x) / dx, the gradient of a critic at its input, averaged over the samples (the first axis of x).

    kind "wgan": (|g| - 1)^2, for x between real and made samples (Gulrajani et al. 2017, arXiv:1704.00028). "r1": |g|^2 / 2, for real
    samples; the weight is the paper's gamma (Mescheder et al. 2018, arXiv:1801.04406). |g| is the L2 norm over all axes but the first.
    It is differentiable: gradients reach the parameters of fn, and x if it requires grad. Where g is 0 the gradient of |g| is 0.

    fn returns a Tensor of any shape, whose element sums are differentiated: each sample's score must depend on that sample alone (no
    norm over the batch). Raises GradientError where no gradient of fn reaches x, or for an op that has no second derivative."""
    check_word("gradient_penalty: unknown kind: ", kind, "wgan", "r1")
    check_function("gradient_penalty", "fn", fn)
    x = floats_only("gradient_penalty", x)
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


# ---- distributions -----------------------------------------------------------------------------------------------------------------------
class Distribution(NamedTuple):
    """Probabilities, and their logarithms where these were there first: None otherwise."""

    p: Any
    log: Any

    def log_where(self, live: Any) -> Any:
        """log p where `live`, 0 elsewhere; so is its gradient."""
        return ops.log(ops.where(live, self.p, 1.0)) if self.log is None else ops.where(live, self.log, 0.0)


def distribution(name: str, x: Any, of: str, axis: int) -> Distribution:
    check_word(f"{name}: unknown kind of numbers: of=", of, "logits", "probs", "logprobs")
    if not x.ndim:
        raise ShapeError(f"{name}: no axis of classes: shape (). Use (..., classes).")
    if of == "probs":
        return Distribution(x, None)
    log = ops.log_softmax(x, axis=axis) if of == "logits" else x
    return Distribution(ops.exp(log), log)


def pair(name: str, x: Any, target: Any, of: str, axis: int) -> list[Distribution]:
    """Both as distributions."""
    return [distribution(name, t, of, axis) for t in two(name, x, target)]


def two(name: str, x: Any, other: Any) -> tuple[Tensor, Tensor]:
    x, other = floats(name, x), floats(name, other)
    if x.shape != other.shape:
        raise ShapeError(f"{name}: shapes differ: {x.shape} and {other.shape}. Terms do not broadcast; reshape one of them.")
    return x, other


def divergence(p: Distribution, q: Distribution, axis: int) -> Tensor:
    """KL(p || q): the mean over rows of sum p (log p - log q)."""
    live = ops.ne(p.p, 0)
    return ops.mean(ops.sum(p.p * (p.log_where(live) - q.log_where(live)), axis=axis))


def entropy(x: Any, of: str = "logits", axis: int = -1, maximize: bool = False) -> Tensor:
    """-sum p log p, averaged over rows, in nats; with `maximize` its negative, so that a loss raises it (Williams and Peng 1991)."""
    p = distribution("entropy", floats("entropy", x), of, axis)
    found = ops.mean(ops.sum(p.p * p.log_where(ops.ne(p.p, 0)), axis=axis))
    return found if maximize else -found


def kl(x: Any, target: Any, direction: str = "forward", of: str = "logits", axis: int = -1) -> Tensor:
    """The divergence of Kullback and Leibler (1951) between x and a target, both of kind `of`, averaged over rows.

    "forward" is KL(target || x) = sum t (log t - log x), which covers the target; "reverse" is KL(x || target), which seeks a mode of it;
    "symmetric" is the mean of the two. inf where the second is 0 and the first is not. Gradients reach the target too: detach() it to
    keep it fixed."""
    check_word("kl: unknown direction: ", direction, "forward", "reverse", "symmetric")
    p, t = pair("kl", x, target, of, axis)
    if direction == "symmetric":
        return (divergence(t, p, axis) + divergence(p, t, axis)) * 0.5
    return divergence(t, p, axis) if direction == "forward" else divergence(p, t, axis)


def js(x: Any, target: Any, of: str = "logits", axis: int = -1) -> Tensor:
    """The divergence of Jensen and Shannon: KL(x || m) / 2 + KL(target || m) / 2 with m the mean of both, averaged over rows; symmetric,
    between 0 and log 2 (Lin 1991). Gradients reach the target too."""
    p, t = pair("js", x, target, of, axis)
    both = Distribution(p.p + t.p, None)  # twice the mean: halving would lose the smallest probabilities
    return (divergence(p, both, axis) + divergence(t, both, axis)) * 0.5 + LOG_2


def consistency(x: Any, target: Any, kind: str = "mse", axis: int = -1, eps: float = 1e-8) -> Tensor:
    """How much two outputs for one input differ, such as under two augmentations (Laine and Aila 2017, arXiv:1610.02242).

    "mse": the mean of (x - target)^2. "kl": kl(x, target) of logits (Xie et al. 2020, arXiv:1904.12848). "cosine": the mean over rows of
    1 - x.t / (max(|x|, eps) max(|t|, eps)), features along `axis`. Gradients reach both: detach() the one that teaches."""
    check_word("consistency: unknown kind: ", kind, "mse", "kl", "cosine")
    x, target = two("consistency", x, target)
    if kind == "mse":
        return ops.mean(ops.square(x - target))
    if kind == "kl":
        return kl(x, target, axis=axis)
    if not x.ndim:
        raise ShapeError("consistency: no axis of features: shape (). Use (..., features).")
    lengths = [ops.rsqrt(ops.clamp(ops.sum(ops.square(t), axis=axis), min=eps * eps)) for t in (x, target)]
    return 1.0 - ops.mean(ops.sum(x * target, axis=axis) * lengths[0] * lengths[1])


# ---- weights as matrices -----------------------------------------------------------------------------------------------------------------
def matrix(name: str, w: Any) -> Tensor:
    """w as (rows, the rest). Raises ShapeError for less than two axes."""
    w = floats(name, w)
    if w.ndim < 2:
        raise ShapeError(f"{name}: not a matrix: shape {w.shape}. Use (rows, columns), or (rows, ...).")
    return w if w.ndim == 2 else ops.reshape(w, (w.shape[0], math.prod(w.shape[1:])))


def orthogonality(w: Any) -> Tensor:
    """|W W^T - I|^2, the sum of squares: 0 where the rows are orthonormal (Brock et al. 2017, arXiv:1609.07093).

    For a matrix with more rows than columns it cannot be 0: pass w.T. The gradient is 4 (W W^T - I) W."""
    w = matrix("orthogonality", w)
    return ops.sum(ops.square(ops.matmul(w, ops.transpose(w)) - eye(w.shape[0], dtype=w.dtype, device=w.device)))


def spectral_norm(w: Any, iterations: int = 20) -> Tensor:
    """The largest singular value, by power iteration (Yoshida and Miyato 2017, arXiv:1705.10941).

    From a fixed start (so the same matrix gives the same bits), v = W^T u and u = W v are normalised `iterations` times; with s1, s2
    the two largest values, the error of u and v shrinks as (s2 / s1)^(2 iterations), that of the value u^T W v as the square of this. The
    gradient is u v^T: u and v count as constants. A matrix of zeros has the value 0 and the gradient 0."""
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
    row, is left to the weight). The gradient of a row is row / |row|, 0 for a row of zeros."""
    return ops.sum(root(ops.sum(ops.square(matrix("group_lasso", w)), axis=1)))


def max_norm(params: Any, limit: float) -> None:
    """Scale every row that is longer than `limit` to that length (Srivastava et al. 2014). Call it after the optimizer's step.

    This is a constraint, not a term: it writes with set_data(). Rows within the limit keep their bits; so do parameters that don't
    require grad. `params`: a Parameter, a ParameterDict, a module or a list; a row is what one index of the first axis holds, a
    parameter with one axis (a bias) is one row. Raises ValueError unless the limit is positive, TypeError for what is no Parameter."""
    if not 0 < checked_number("max_norm", "the limit", limit) < math.inf:
        raise ValueError(f"max_norm: the limit must be positive and finite: {limit}. Use a number such as 3.0.")
    with no_grad():
        for p in parameters_of("max_norm", params):
            if p.requires_grad and p.size:
                p.set_data(limited(p.detach(), limit))


def parameters_of(name: str, params: Any) -> list[Parameter]:
    """From a Parameter, a ParameterDict, a module or a list; each once. Raises TypeError for what is no Parameter."""
    several: Any = [params] if isinstance(params, Parameter) else params.parameters() if hasattr(params, "parameters") else params
    found = list(several) if hasattr(several, "__iter__") else [several]
    for p in found:
        if not isinstance(p, Parameter):
            raise TypeError(f"{name}: not a Parameter: {type(p).__name__}. Pass a Parameter, a ParameterDict, a module or a list.")
    return list(dict.fromkeys(found))


def limited(w: Any, limit: float) -> Tensor:
    wide = w.to(float32) if w.dtype in HALF else w
    rows = ops.reshape(wide, (w.shape[0], -1) if w.ndim > 1 else (1, w.size))
    norms = ops.sqrt(ops.sum(ops.square(rows), axis=1, keepdims=True))
    found = ops.where(ops.gt(norms, limit), rows * (limit / norms), rows)
    return ops.reshape(found, w.shape).to(w.dtype)
