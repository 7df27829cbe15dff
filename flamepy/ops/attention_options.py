"""What attention may be asked for beside its kernels: windows, alibi as masks; soft caps, dropout and higher derivatives, made of ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.ops.axes import Shape
from ..core.ops.matrices import matmul
from ..core.ops.pointwise import add, div, eq, mul, neg, sub, where
from ..core.ops.reduce import max as max_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import broadcast_to, reshape, transpose
from ..core.tensor import Tensor
from ..dtypes import FLOATS, checked_number, is_count
from .random import dropout
from .rows import softmax
from .widening import narrowed, widened


def apart_by(last: Shape) -> np.ndarray:
    """How far each key is behind each row, (L, S)."""
    return np.arange(last[0])[:, None] - np.arange(last[1])


def window_mask(name: str, window: Any, q: Any, lead: Shape, last: Shape) -> Any:
    """Which keys a row sees, (L, S). Raises ValueError."""
    given = tuple(window) if isinstance(window, tuple | list) else (window - 1,) * 2 if is_count(window, 1) else ()
    if len(given) != 2 or not all([is_count(n) for n in given]):
        raise ValueError(f"{name}: not a window: {window!r}. Use how many keys a row sees on each side with its own, or (left, right).")
    behind = apart_by(last)
    return Tensor.of(name, (behind <= given[0]) & (-behind <= given[1]), q.device)


def alibi_slopes(heads: int) -> list[float]:
    """2 to the power -8 i / n for i from 1 to n; where the number of heads is no power of two, between these those of twice as many."""
    n = 2 ** int(math.log2(max(1, heads)))
    more = [2.0 ** (-4 * i / n) for i in range(1, 2 * (heads - n), 2)]
    return [2.0 ** (-8 * i / n) for i in range(1, n + 1)] + more


def alibi_mask(name: str, slopes: Any, q: Any, lead: Shape, last: Shape) -> Any:
    """What is added to scores, (heads, L, S). Raises ShapeError unless there is a slope for each head."""
    heads = lead[-1] if lead else 1
    dtype = q.dtype if q.dtype in FLOATS else np.dtype(np.float32)
    if not isinstance(slopes, Tensor):
        slopes = Tensor.of(name, np.array(alibi_slopes(heads) if slopes is True else slopes, "f8"), q.device).to(dtype)
    if slopes.shape != (heads,):
        raise ShapeError(f"{name}: not a slope for each head: alibi {slopes.shape}, heads {heads}. Pass True for the usual ones.")
    distance = Tensor.of(name, np.abs(apart_by(last)).astype("f8"), q.device).to(slopes.dtype)
    return neg(mul(reshape(slopes, (heads, 1, 1)), distance))


def weights_of_ops(name: str, q: Any, k: Any, mask: Any, is_causal: bool, scale: float, softcap: Any = None) -> Any:
    """The weights (B, H, L, S) of attention, for q (B, H, L, D) and k (B, G, S, D), G a divisor of H; not of 16 bits."""
    (batch, heads, rows, d), (_, groups, keys, _) = q.shape, k.shape
    q, k = reshape(widened(q), (batch, groups, heads // groups, rows, d)), reshape(widened(k), (batch, groups, 1, keys, d))
    scores = mul(matmul(q, transpose(k, -1, -2)), scale)
    if softcap is not None:
        softcap = checked_number(name, "softcap", softcap)
        if not softcap > 0:
            raise ValueError(f"{name}: softcap must be positive: {softcap}. Use a number such as 50, or None.")
        scores = mul(div(scores, softcap).tanh(), softcap)
    scores = reshape(scores, (batch, heads, rows, keys))
    if is_causal:
        causal = Tensor.of(name, apart_by((rows, keys)) >= 0, q.device)
        scores = where(causal, scores, -math.inf)
    if mask is not None:
        scores = add(scores, widened(mask))
    if (mask is not None or is_causal) and scores.size:  # a row that sees no key
        blind = eq(max_op(scores.detach(), axis=-1, keepdims=True), -math.inf)
        return where(blind, 0.0, softmax(where(blind, 0.0, scores)))
    return softmax(scores)


def attention_of_ops(
    name: str, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float, softcap: Any, dropout_p: float
) -> Any:  # fmt: skip
    """Attention with all scores in memory, for q (B, H, L, D), k (B, G, S, D), v (B, G, S, Dv), G a divisor of H."""
    weights = dropout(weights_of_ops(name, q, k, mask, is_causal, scale, softcap), dropout_p)
    (batch, heads, rows, keys), groups = weights.shape, k.shape[1]
    v = reshape(widened(v), (batch, groups, 1, *v.shape[2:]))
    y = matmul(reshape(weights, (batch, groups, heads // groups, rows, keys)), v)
    return narrowed(reshape(y, (batch, heads, rows, v.shape[-1])), q.dtype)


def gradients_of_ops(name: str, g: Any, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: float) -> tuple[Any, ...]:
    """Those of q, k, v and the scores where g arrived at attention_of_ops()'s result: differentiable again."""
    weights, groups = weights_of_ops(name, q, k, mask, is_causal, scale), k.shape[1]
    lead, shared = q.shape[:2], (q.shape[0], groups, q.shape[1] // groups)
    g, q, k, v = (widened(x) for x in (g, q, k, v))
    spread = (broadcast_to(reshape(x, (*shared[:2], 1, *x.shape[2:])), (*shared, *x.shape[2:])) for x in (k, v))
    k, v = (reshape(x, (*lead, *x.shape[3:])) for x in spread)
    dp = matmul(g, transpose(v, -1, -2))
    scores = mul(weights, sub(dp, sum_op(mul(dp, weights), axis=-1, keepdims=True)))
    each = mul(matmul(transpose(scores, -1, -2), q), scale), matmul(transpose(weights, -1, -2), g)
    dk, dv = (sum_op(reshape(x, (*shared, *x.shape[2:])), axis=2) for x in each)
    return mul(matmul(scores, k), scale), dk, dv, scores
