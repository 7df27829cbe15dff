"""The oracle of losses beside those of reference.py: each in plain NumPy, on float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import IDS4, POSITIVE, UNIT, Case, Input, R, case, fixed

# fmt: off
REDUCTIONS: list[dict[str, Any]] = [{}, {"reduction": "none"}, {"reduction": "sum"}]
PAIRS = [((3, 4), (3, 4)), ((), ())]
SIGNS = Input("real", -1.4, 1.4, 1.0)  # -1, 0 or 1
ROWS = [((6, 4), (6,))]


def reduced(x: Any, reduction: str) -> Any:
    return {"none": x, "sum": np.sum(x), "mean": np.sum(x) / max(np.size(x), 1)}[reduction]


def loss(each: Callable[..., Any], usual: str = "mean") -> Callable[..., Any]:
    """An oracle with a reduction from one without."""
    return lambda *xs, reduction=usual, **options: reduced(each(*xs, **options), reduction)


def sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


def log_softmax(x: Any) -> Any:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def soft_cross_entropy(x: Any, t: Any, weight: Any = 1.0, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Any:
    if x.ndim > 2:
        x, t = (np.moveaxis(a, 1, -1) for a in (x, t))
    t = (1 - label_smoothing) * t + label_smoothing / x.shape[-1]
    return -(t * log_softmax(x) * weight).sum(-1) + z_loss * np.log(np.exp(x).sum(-1))**2


def kl(x: Any, t: Any, log_target: bool = False, reduction: str = "mean") -> Any:
    each = np.exp(t) * (t - x) if log_target else t * (np.log(t) - x)
    return each.sum() / (x.shape[0] if x.ndim else 1) if reduction == "batchmean" else reduced(each, reduction)


def poisson(x: Any, t: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8) -> Any:
    big = np.maximum(t, 1.0)
    rest = np.where(t > 1, big * np.log(big) - big + 0.5 * np.log(2 * math.pi * big), 0) if full else 0
    return (np.exp(x) - t * x if log_input else x - t * np.log(x + eps)) + rest


def gaussian(x: Any, t: Any, v: Any, full: bool = False, eps: float = 1e-6) -> Any:
    v = v[..., None] if v.ndim < x.ndim else v
    return 0.5 * (np.log(v) + (x - t)**2 / v) + (0.5 * math.log(2 * math.pi) if full else 0)


def focal(x: Any, t: Any, alpha: float = 0.25, gamma: float = 2.0) -> Any:
    p = sigmoid(x)
    right = p * t + (1 - p) * (1 - t)
    return (1 if alpha < 0 else alpha * t + (1 - alpha) * (1 - t)) * (t * softplus(-x) + (1 - t) * softplus(x)) * (1 - right)**gamma


def tversky(x: Any, t: Any, alpha: float = 0.5, beta: float = 0.5, smooth: float = 1.0, axis: Any = None) -> Any:
    axis = axis if axis is not None else tuple(range(min(2, x.ndim - 1), x.ndim))
    both = (x * t).sum(axis) + smooth
    return 1 - both / (both + alpha * (x * (1 - t)).sum(axis) + beta * ((1 - x) * t).sum(axis))


def multi_margin(x: Any, ids: Any, p: int = 1, margin: float = 1.0, weight: Any = None) -> Any:
    own = np.take_along_axis(x, ids[:, None], 1)
    each = np.maximum(0, margin - own + x)**p * (np.arange(x.shape[1]) != ids[:, None])
    return each.mean(1) * (1 if weight is None else weight[ids])


def multilabel_margin(x: Any, ids: Any) -> Any:
    def of_row(row: Any, line: Any) -> float:
        own = [int(i) for i in line[: np.argmax(line < 0) if (line < 0).any() else len(line)]]
        return sum(max(0.0, 1 - (row[i] - row[j])) for i in own for j in range(len(row)) if j not in own) / len(row)

    return np.array([of_row(row, line) for row, line in zip(x, ids, strict=True)])


def distance(a: Any, b: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Any:
    return np.linalg.norm(a - b + eps, p, -1, keepdim)


def cosine(a: Any, b: Any, axis: int = 1) -> Any:
    a, b = np.broadcast_arrays(a, b)
    return (a * b).sum(axis) / np.sqrt((a * a).sum(axis) * (b * b).sum(axis))


def triplet(a: Any, near: Any, n: Any, margin: float = 1.0, swap: bool = False, **options: Any) -> Any:
    far = distance(a, n, **options)
    return np.maximum(0, margin + distance(a, near, **options) - (np.minimum(far, distance(near, n, **options)) if swap else far))


def contrastive(a: Any, b: Any, t: Any, margin: float = 1.0) -> Any:
    d = np.sqrt(((a - b)**2).sum(-1))
    return 0.5 * (t * d**2 + (1 - t) * np.maximum(0, margin - d)**2)


WEIGHT = np.array([0.5, 1.0, 2.0, 0.25])
TRIPLES = [((3, 4), (3, 4), (3, 4))]
LOSSES: dict[str, Case] = {
    "soft_cross_entropy": case(loss(soft_cross_entropy), R, UNIT, shapes=[((6, 4), (6, 4)), ((2, 4, 3), (2, 4, 3)), ((4,), (4,))],
                               attrs=[*REDUCTIONS, {"label_smoothing": 0.2, "weight": WEIGHT, "z_loss": 0.1}]),
    "kl_div": case(kl, R, UNIT, shapes=PAIRS, attrs=[*REDUCTIONS, {"log_target": True}, {"reduction": "batchmean"}]),
    "poisson_nll_loss": case(loss(poisson), POSITIVE, Input("real", 1.1, 4.0), shapes=PAIRS,
                             attrs=[*REDUCTIONS, {"full": True}, {"log_input": False}]),
    "gaussian_nll_loss": case(loss(gaussian), R, R, POSITIVE, attrs=[*REDUCTIONS, {"full": True}],
                              shapes=[*TRIPLES, ((3, 4), (3, 4), (3,)), ((3, 4), (3, 4), (3, 1)), ((3, 4), (3, 4), ())]),
    "sigmoid_focal_loss": case(loss(focal, "none"), R, UNIT, shapes=PAIRS, attrs=[
        {}, {"reduction": "mean"}, {"alpha": -1.0}, {"alpha": 0.7, "gamma": 1.5}]),
    "tversky_loss": case(loss(tversky), UNIT, UNIT, shapes=[((2, 3, 2, 2), (2, 3, 2, 2)), ((3, 4), (3, 4)), ((4,), (4,))],
                         attrs=[*REDUCTIONS, {"alpha": 0.3, "beta": 0.7, "smooth": 0.0}, {"axis": 0}]),
    "dice_loss": case(loss(lambda x, t, smooth=1.0: tversky(x, t, smooth=smooth / 2)), UNIT, UNIT,
                      shapes=[((2, 3, 4), (2, 3, 4))], attrs=[*REDUCTIONS, {"smooth": 0.0}]),
    "hinge_embedding_loss": case(loss(lambda x, t, margin=1.0: np.where(t != 1, np.maximum(0, margin - x), 0) + np.where(t != -1, x, 0)),
                                 R, fixed(SIGNS), shapes=PAIRS, attrs=[*REDUCTIONS, {"margin": 0.3}]),
    "soft_margin_loss": case(loss(lambda x, t: softplus(-t * x)), R, fixed(SIGNS), shapes=PAIRS, attrs=REDUCTIONS),
    "margin_ranking_loss": case(loss(lambda a, b, t, margin=0.0: np.maximum(0, margin - t * (a - b))), R, R, fixed(SIGNS),
                                shapes=TRIPLES, attrs=[*REDUCTIONS, {"margin": 0.3}]),
    "multi_margin_loss": case(loss(multi_margin), R, IDS4, shapes=ROWS, attrs=[
        *REDUCTIONS, {"p": 2, "weight": WEIGHT}, {"margin": 0.3}]),
    "multilabel_margin_loss": case(loss(multilabel_margin), R, Input("ids", -1, 4), shapes=[((5, 4), (5, 4))], attrs=REDUCTIONS),
    "multilabel_soft_margin_loss": case(
        loss(lambda x, t, weight=1.0: (weight * (t * softplus(-x) + (1 - t) * softplus(x))).mean(-1)), R, fixed(UNIT),
        shapes=[((3, 4), (3, 4))], attrs=[*REDUCTIONS, {"weight": WEIGHT}]),
    "pairwise_distance": case(distance, R, R, shapes=[((3, 4), (3, 4)), ((4,), (4,))], attrs=[
        {}, {"p": 1.0}, {"p": 3.0, "keepdim": True}, {"p": math.inf}, {"eps": 0.1}]),
    "cosine_similarity": case(cosine, R, R, shapes=[((3, 4), (3, 4)), ((2, 3, 4), (3, 1))], attrs=[{}, {"axis": -1}]),
    "cosine_embedding_loss": case(
        loss(lambda a, b, t, margin=0.0: np.where(t == 1, 1 - cosine(a, b, -1), 0) + np.where(
            t == -1, np.maximum(0, cosine(a, b, -1) - margin), 0)),
        R, R, fixed(SIGNS), shapes=[((3, 4), (3, 4), (3,)), ((4,), (4,), ())], attrs=[*REDUCTIONS, {"margin": 0.1}]),
    "contrastive_loss": case(loss(contrastive), R, R, fixed(UNIT), shapes=[((3, 4), (3, 4), (3,))], attrs=[*REDUCTIONS, {"margin": 3.0}]),
    "triplet_margin_loss": case(loss(triplet), R, R, R, shapes=TRIPLES, attrs=[
        *REDUCTIONS, {"swap": True}, {"p": 1.0, "margin": 0.5}]),
    "triplet_margin_with_distance_loss": case(loss(triplet), R, R, R, shapes=TRIPLES, attrs=[{}, {"swap": True}]),
}
GATES = [((3, 4), (3, 4)), ((2, 6),), ((4, 3), (3,))]
erf = np.vectorize(math.erf, otypes=[float])


def gated(activation: Callable[..., Any]) -> Callable[..., Any]:
    def oracle(x: Any, y: Any = None, axis: int = -1) -> Any:
        x, y = np.split(x, 2, axis) if y is None else (x, y)
        return activation(x) * y

    return oracle


GATED: dict[str, Case] = {
    "swiglu": case(gated(lambda x: x * sigmoid(x)), R, R, shapes=GATES, also=[(((4, 3),), (), {"axis": 0})]),
    "geglu": case(gated(lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))), R, R, shapes=GATES),
    "reglu": case(gated(lambda x: np.maximum(x, 0)), R, R, shapes=GATES),
}


def ctc(x: Any, ids: Any, times: Any, sizes: Any, blank: int = 0, reduction: str = "mean") -> Any:
    """Every path of classes, and whether it says the labels."""
    losses = []
    for n, (steps, size) in enumerate(zip(times, sizes, strict=True)):
        right = 0.0
        for path in itertools.product(range(x.shape[2]), repeat=steps):
            said = [c for c, before in zip(path, (None, *path), strict=False) if c not in (before, blank)]
            right += math.exp(sum(x[t, n, c] for t, c in enumerate(path))) if said == list(ids[n, :size]) else 0.0
        losses.append(-math.log(right))
    each = np.array(losses)
    return np.mean(each / np.maximum(1, sizes)) if reduction == "mean" else reduced(each, reduction)


def linear_loss(x: Any, w: Any, ids: Any, b: Any = 0.0, chunk: Any = None, **options: Any) -> Any:
    return reduced(soft_cross_entropy(x @ w.T + b, np.eye(w.shape[0])[ids], **options), "mean")


LOSSES |= GATED
LOSSES["ctc_loss"] = case(ctc, R, Input("ids", 1, 3), shapes=[((4, 3, 3), (3, 2))], args=[((4, 3, 4), (1, 1, 0)), ((4, 4, 3), (2, 2, 1))],
                          attrs=REDUCTIONS, second=False)
LOSSES["linear_cross_entropy"] = case(
    linear_loss, R, R, IDS4, R, shapes=[((6, 3), (4, 3), (6,), (4,)), ((6, 3), (4, 3), (6,))],
    attrs=[{}, {"chunk": 2}, {"chunk": 4, "label_smoothing": 0.1, "z_loss": 0.1}])
LOSSES_INTERNAL = {
    "row_ctc": "ctc_loss", "chunked_loss": "linear_cross_entropy", "swiglu_op": "swiglu", "geglu_op": "geglu", "reglu_op": "reglu",
    "row_nll": "nll_loss", "kl": "kl_div", "kl_log": "kl_div", "poisson": "poisson_nll_loss", "poisson_log": "poisson_nll_loss",
    "stirling": "poisson_nll_loss", "gaussian": "gaussian_nll_loss", "focal": "sigmoid_focal_loss",
    "soft_margin": "soft_margin_loss", "row_margin": "multi_margin_loss", "row_labels": "multilabel_margin_loss",
}
# fmt: on
