"""Losses of policies: PPO's clipped surrogate with its value loss and entropy, and DPO, which learns from pairs of answers.

`reduction` is "none", "mean" or "sum". All take log-probabilities of what was done, such as
fp.gather(F.log_softmax(logits, axis=-1), -1, actions.unsqueeze(-1)).squeeze(-1); of a text, the sum over its tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.ops.axes import composed
from ..core.ops.pointwise import add, exp_op, maximum_op, minimum_op, mul, neg, square, sub
from ..core.ops.reduce import sum as sum_op
from ..core.tensor import Tensor
from ..dtypes import checked_number
from .losses import pair, reduced
from .more_activations import logsigmoid
from .rounding import clamp
from .rows import log_softmax
from .widening import narrowed, widened


def positive(name: str, what: str, value: Any, below: float = float("inf")) -> float:
    """A number above 0."""
    number = checked_number(name, what, value)
    if not 0.0 < number < below:
        raise ValueError(f"{name}: {what} out of range: {value}. Use a number above 0{f' and below {below:g}' if below < 1e300 else ''}.")
    return number


@composed(home="functional")
def ppo_loss(log_probs: Any, old_log_probs: Any, advantages: Any, *, clip: float = 0.2, reduction: str = "mean") -> Any:
    """-min(r A, clamp(r, 1 - clip, 1 + clip) A) with r = exp(log_probs - old_log_probs), how much likelier an action became.
    (Schulman et al. 2017, arXiv:1707.06347, equation 7.) Add coefficients times ppo_value_loss() and subtract one of entropy() as you want
    them. Shapes: all the same, else ShapeError. Raises ValueError for clip outside (0, 1).
    >>> F.ppo_loss(fp.tensor([0.0]), [0.0], [2.0]).item()
    -2.0"""
    clip = positive("ppo_loss", "clip", clip, 1.0)
    new, old, dtype = pair("ppo_loss", log_probs, old_log_probs)
    _, gain, _ = pair("ppo_loss", new, advantages)
    ratio = exp_op(sub(new, old))
    return reduced("ppo_loss", neg(minimum_op(mul(ratio, gain), mul(clamp(ratio, 1.0 - clip, 1.0 + clip), gain))), reduction, dtype)


@composed(home="functional")
def ppo_value_loss(
    values: Any, returns: Any, old_values: Any = None, *, clip: float = 0.2, reduction: str = "mean"
) -> Any:  # fmt: skip
    """(values - returns)^2 / 2; with `old_values` the larger one of that and of the same with values at most `clip` away from these.
    Shapes: all the same, else ShapeError. Raises ValueError for clip <= 0.
    >>> F.ppo_value_loss(fp.tensor([1.0]), [3.0]).item()
    2.0"""
    new, aim, dtype = pair("ppo_value_loss", values, returns)
    losses = square(sub(new, aim))
    if old_values is not None:
        clip = positive("ppo_value_loss", "clip", clip)
        _, old, _ = pair("ppo_value_loss", new, old_values)
        losses = maximum_op(losses, square(sub(add(old, clamp(sub(new, old), -clip, clip)), aim)))
    return reduced("ppo_value_loss", mul(losses, 0.5), reduction, dtype)


@composed(home="functional")
def entropy(logits: Any, axis: int = -1) -> Any:
    """-sum p log p of the softmax of scores: how undecided a policy is; scores of -inf, what it may not do, add nothing. Shapes: without
    `axis`.
    >>> round(F.entropy(fp.zeros(4)).item(), 4)
    1.3863"""
    given = Tensor.of("entropy", logits)
    logs = log_softmax(widened(given), axis=axis)
    logs = clamp(logs, float(np.finfo(logs.dtype).min))  # 0 times it is 0, as 0 times -inf is not
    return narrowed(neg(sum_op(mul(exp_op(logs), logs), axis=axis)), given.dtype)


@composed(home="functional")
def dpo_loss(
    chosen: Any, rejected: Any, reference_chosen: Any, reference_rejected: Any, *, beta: float = 0.1, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    """-log sigmoid(beta ((chosen - rejected) - (reference_chosen - reference_rejected))): log-probabilities of the better and the worse
    answer, by the policy and by the model that it began as.
    (Rafailov et al. 2023, arXiv:2305.18290, equation 7; label_smoothing: how often a label is wrong, Mitchell 2023.) Shapes: all the same,
    else ShapeError. Raises ValueError for beta <= 0 and label_smoothing outside [0, 0.5).
    >>> round(F.dpo_loss(fp.tensor([0.0]), [0.0], [0.0], [0.0]).item(), 4)
    0.6931"""
    beta, wrong = positive("dpo_loss", "beta", beta), checked_number("dpo_loss", "label_smoothing", label_smoothing)
    if not 0.0 <= wrong < 0.5:
        raise ValueError(f"dpo_loss: label_smoothing out of range: {label_smoothing}. Use a number in [0, 0.5).")
    better, worse, dtype = pair("dpo_loss", chosen, rejected)
    _, before_better, _ = pair("dpo_loss", better, reference_chosen)
    _, before_worse, _ = pair("dpo_loss", better, reference_rejected)
    margin = mul(sub(sub(better, worse), sub(before_better, before_worse)), beta)
    losses = neg(logsigmoid(margin))
    if wrong:
        losses = sub(mul(losses, 1.0 - wrong), mul(logsigmoid(neg(margin)), wrong))
    return reduced("dpo_loss", losses, reduction, dtype)
