"""Terms on distributions along an axis: entropy, kl, js, and consistency of two outputs.

`of` says what the numbers are: "logits" (the default: any numbers, softmax makes them a distribution), "probs" (not negative, sum 1;
nobody checks), "logprobs" (their logarithms). 0 log 0 is 0, and its gradient 0. Means are over all other axes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import ops
from ..errors import ShapeError
from ..tensors import Tensor
from .penalties import floats

KINDS = ("logits", "probs", "logprobs")


class Distribution(NamedTuple):
    """Probabilities, and their logarithms where these were there first: None otherwise."""

    p: Any
    log: Any

    def log_where(self, live: Any) -> Any:
        """log p where `live`, 0 elsewhere; so is its gradient."""
        return ops.log(ops.where(live, self.p, 1.0)) if self.log is None else ops.where(live, self.log, 0.0)


def distribution(name: str, x: Any, of: str, axis: int) -> Distribution:
    if of not in KINDS:
        raise ValueError(f"{name}: unknown kind of numbers: of={of!r}. Use 'logits', 'probs' or 'logprobs'.")
    if not x.ndim:
        raise ShapeError(f"{name}: no axis of classes: shape (). Use (..., classes).")
    if of == "probs":
        return Distribution(x, None)
    log = ops.log_softmax(x, axis=axis) if of == "logits" else x
    return Distribution(ops.exp(log), log)


def pair(name: str, x: Any, target: Any, of: str, axis: int) -> tuple[Distribution, Distribution]:
    """Both as distributions. Raises ShapeError unless they have one shape."""
    x, target = two(name, x, target)
    return distribution(name, x, of, axis), distribution(name, target, of, axis)


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
    """-sum p log p, averaged over rows, in nats; with `maximize` its negative, so that a loss raises it (Williams and Peng 1991).

    Shapes: x (..., classes) along `axis`; the result is (). Raises ShapeError for x without axes, ValueError for another `of`,
    DTypeError for integers.
    """
    p = distribution("entropy", floats("entropy", x), of, axis)
    found = ops.mean(ops.sum(p.p * p.log_where(ops.ne(p.p, 0)), axis=axis))
    return found if maximize else -found


def kl(x: Any, target: Any, direction: str = "forward", of: str = "logits", axis: int = -1) -> Tensor:
    """The divergence of Kullback and Leibler (1951) between x and a target, both of kind `of`, averaged over rows.

    "forward" is KL(target || x) = sum t (log t - log x), which covers the target; "reverse" is KL(x || target), which seeks a mode of it;
    "symmetric" is the mean of the two. inf where the second is 0 and the first is not. Gradients reach the target too: detach() it to
    keep it fixed.

    Shapes: x and target (..., classes), equal; the result is (). Raises ShapeError, ValueError for a direction or `of`, DTypeError.
    """
    if direction not in ("forward", "reverse", "symmetric"):
        raise ValueError(f"kl: unknown direction: {direction!r}. Use 'forward', 'reverse' or 'symmetric'.")
    p, t = pair("kl", x, target, of, axis)
    if direction == "symmetric":
        return (divergence(t, p, axis) + divergence(p, t, axis)) * 0.5
    return divergence(t, p, axis) if direction == "forward" else divergence(p, t, axis)


def js(x: Any, target: Any, of: str = "logits", axis: int = -1) -> Tensor:
    """The divergence of Jensen and Shannon: KL(x || m) / 2 + KL(target || m) / 2 with m the mean of both, averaged over rows; symmetric,
    between 0 and log 2 (Lin 1991). Gradients reach the target too.

    Shapes: x and target (..., classes), equal; the result is (). Raises ShapeError, ValueError for another `of`, DTypeError.
    """
    p, t = pair("js", x, target, of, axis)
    both = Distribution(p.p + t.p, None)  # twice the mean: halving would lose the smallest probabilities
    return (divergence(p, both, axis) + divergence(t, both, axis)) * 0.5 + LOG_2


LOG_2 = 0.6931471805599453


def consistency(x: Any, target: Any, kind: str = "mse", axis: int = -1, eps: float = 1e-8) -> Tensor:
    """How much two outputs for one input differ, such as under two augmentations (Laine and Aila 2017, arXiv:1610.02242).

    "mse": the mean of (x - target)^2. "kl": kl(x, target) of logits (Xie et al. 2020, arXiv:1904.12848). "cosine": the mean over rows of
    1 - x.t / (max(|x|, eps) max(|t|, eps)). Gradients reach both: detach() the one that teaches.

    Shapes: x and target equal, for "kl" and "cosine" (..., features) along `axis`; the result is (). Raises ShapeError, DTypeError,
    ValueError for another kind.
    """
    if kind not in ("mse", "kl", "cosine"):
        raise ValueError(f"consistency: unknown kind: {kind!r}. Use 'mse', 'kl' or 'cosine'.")
    x, target = two("consistency", x, target)
    if kind == "mse":
        return ops.mean(ops.square(x - target))
    if kind == "kl":
        return kl(x, target, axis=axis)
    if not x.ndim:
        raise ShapeError("consistency: no axis of features: shape (). Use (..., features).")
    lengths = [ops.rsqrt(ops.clamp(ops.sum(ops.square(t), axis=axis), min=eps * eps)) for t in (x, target)]
    return 1.0 - ops.mean(ops.sum(x * target, axis=axis) * lengths[0] * lengths[1])
