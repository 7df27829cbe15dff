"""The oracle: what every op should compute, written a second time in plain NumPy.

`REFERENCE[name]` says how to make inputs for the op `name` (shapes, domains, attributes: see cases.py) and what
the answer is: a NumPy function that gets float64 arrays whatever dtype the op is tested in. It shares nothing
with the library, so one mistake cannot be made twice. Adding an op adds one line here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from cases import GRID, IDS3, IDS4, MASK, POSITIVE, UNIT, Case, Input, R, case, fixed
from reference_arrays import FAMILIES_OF_ARRAYS, INTERNAL_OF_ARRAYS
from reference_channels import CHANNELS, CHANNELS_INTERNAL
from reference_linalg import INTERNAL_OF_LINALG, LINALG
from reference_losses import LOSSES, LOSSES_INTERNAL
from reference_pointwise import INTERNAL as INTERNAL_POINTWISE
from reference_pointwise import POINTWISE as MORE_POINTWISE
from reference_policy import POLICY
from reference_recurrent import INTERNAL_OF_POSITIONS, RECURRENT
from reference_shapes import FAMILIES_OF_SHAPES, INTERNAL_OF_SHAPES, PAD
from reference_spatial import INTERNAL_OF_SPATIAL, SPATIAL

# The tables are laid out by hand: one op, one line where it fits.
# fmt: off
# ---- pointwise
erf = np.vectorize(math.erf, otypes=[float])


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 as its paper writes it, on Python integers."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k, q % 2**32, (p >> 32) ^ d ^ m, p % 2**32
        k, m = (k + 0x9E3779B9) % 2**32, (m + 0xBB67AE85) % 2**32
    return [a, b, c, d]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * x))


def softplus(x: np.ndarray, beta: float = 1.0, threshold: float = 20.0) -> np.ndarray:
    return np.where(x * beta > threshold, x, np.logaddexp(0, x * beta) / beta)


def gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


POINTWISE = {
    "mul": case(np.multiply, R, R),
    "floor_divide": case(np.floor_divide, R, POSITIVE, smooth=False),
    "remainder": case(np.remainder, R, POSITIVE),
    "neg": case(np.negative),
    "abs": case(np.abs),
    "sign": case(np.sign, GRID, smooth=False),
    "exp": case(np.exp),
    "log": case(np.log, domain=(0.2, 4)),
    "sqrt": case(np.sqrt, domain=(0.2, 4)),
    "rsqrt": case(lambda x: x**-0.5, domain=(0.2, 4)),
    "reciprocal": case(lambda x: 1 / x, domain=(0.2, 4)),
    "square": case(np.square),
    "pow": case(np.power, POSITIVE, R),
    "sin": case(np.sin, domain=(-9, 9)), "cos": case(np.cos, domain=(-9, 9)),
    "tanh": case(np.tanh, domain=(-3, 3)),
    "sigmoid": case(sigmoid, domain=(-6, 6)),
    "erf": case(erf, domain=(-3, 3)),
    "relu": case(lambda x: np.maximum(x, 0)),
    "leaky_relu": case(lambda x, negative_slope=0.01: np.where(x > 0, x, negative_slope * x), attrs=[{}, {"negative_slope": 0.3}]),
    "elu": case(lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)), attrs=[{}, {"alpha": 0.7}]),
    "gelu": case(gelu, domain=(-4, 4), attrs=[{}, {"approximate": "none"}, {"approximate": "tanh"}]),
    "silu": case(lambda x: x * sigmoid(x), domain=(-6, 6)),
    "softplus": case(softplus, domain=(-25, 25)),
    "clamp": case(lambda x, min=None, max=None: np.clip(x, min, max), attrs=[{"min": -0.5, "max": 0.7}, {"min": 0.1}, {"max": 0.1}]),
    "maximum": case(np.maximum, R, R),
    "minimum": case(np.minimum, R, R),
    "where": case(np.where, MASK, R, R, shapes=[
        ((3, 4), (3, 4), (3, 4)), ((4,), (3, 4), ()), ((3, 1), (4,), (2, 1, 4)), ((), (3,), (3,)), ((0,), (0,), ())]),
    "masked_fill": case(lambda x, mask, value: np.where(mask, value, x), R, MASK, args=[(-7.5,), (0.0,)],
                        shapes=[((3, 4), (3, 4)), ((2, 3, 4), (3, 1)), ((3,), ()), ((), ()), ((0, 3), (3,))]),
    "eq": case(np.equal, GRID, GRID, smooth=False),
    "ne": case(np.not_equal, GRID, GRID, smooth=False),
    "lt": case(np.less, GRID, GRID, smooth=False),
    "le": case(np.less_equal, GRID, GRID, smooth=False),
    "gt": case(np.greater, GRID, GRID, smooth=False),
    "ge": case(np.greater_equal, GRID, GRID, smooth=False),
    "logical_and": case(np.logical_and, MASK, MASK, smooth=False),
    "logical_or": case(np.logical_or, MASK, MASK, smooth=False),
    "logical_not": case(np.logical_not, MASK, smooth=False),
    "isnan": case(np.isnan, smooth=False),
    "isinf": case(np.isinf, smooth=False), "isfinite": case(np.isfinite, smooth=False),
    "floor": case(np.floor, domain=(-5, 5), smooth=False),
    "ceil": case(np.ceil, domain=(-5, 5), smooth=False),
    "round": case(np.round, Input("real", -5, 5, 0.5), smooth=False, attrs=[{}, {"decimals": 1}, {"decimals": -1}]),
}

# ---- reduce
SOLID = [((2, 3, 4),)]
AXES: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)},
        {"axis": (0, -1), "keepdims": True}, {"axis": ()}, {"axis": None, "keepdims": True}, {"axis": 0}]
SCALAR = [(((),), (), {}), (((),), (), {"axis": ()})]
EMPTY = [(((0, 3),), (), {}), (((0, 3),), (), {"axis": 0}), (((0, 3),), (), {"axis": 1})]
EMPTY_AXIS = [(((0, 3),), (), {"axis": 1})]
ARG = [{}, {"axis": 0}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": None, "keepdims": True}]


def variance(x: np.ndarray, axis: Any = None, correction: float = 0, keepdims: bool = False) -> np.ndarray:
    offset = x - x.mean(axis, keepdims=True)
    count = x.size / offset.sum(axis).size
    return (offset**2).sum(axis, keepdims=keepdims) / (count - correction)


SPREAD = [{**a, **c} for a in AXES if a.get("axis") != () for c in ({}, {"correction": 1})]
REDUCE = {
    "sum": case(np.sum, shapes=SOLID, attrs=AXES, also=SCALAR + EMPTY),
    "mean": case(np.mean, shapes=SOLID, attrs=AXES, also=SCALAR + EMPTY_AXIS),
    "max": case(np.max, shapes=SOLID, attrs=AXES, also=SCALAR + EMPTY_AXIS),
    "min": case(np.min, shapes=SOLID, attrs=AXES, also=SCALAR + EMPTY_AXIS),
    "argmax": case(np.argmax, shapes=SOLID, attrs=ARG, smooth=False, also=[(((),), (), {})]),
    "argmin": case(np.argmin, shapes=SOLID, attrs=ARG, smooth=False, also=[(((),), (), {})]),
    "var": case(variance, shapes=SOLID, attrs=SPREAD),
    "std": case(lambda x, **a: np.sqrt(variance(x, **a)), shapes=SOLID, attrs=SPREAD),
    "logsumexp": case(lambda x, **a: np.log(np.exp(x).sum(**a)), shapes=SOLID, attrs=AXES, also=SCALAR),
    "prod": case(np.prod, shapes=SOLID, attrs=AXES, also=SCALAR + EMPTY),
}

# ---- matrix

MATRIX = {
    "matmul": case(np.matmul, R, R, shapes=[
        ((3,), (3,)), ((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)), ((2, 1, 2, 3), (4, 3, 2)), ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)), ((0, 3), (3, 4)), ((2, 0), (0, 3)), ((4, 2, 0), (0, 3)), ((1, 1), (1, 1))]),
    "linear": case(lambda x, w, b=0.0: x @ w.T + b, R, R, R, shapes=[
        ((2, 3), (4, 3), (4,)), ((3,), (4, 3), (4,)), ((5, 2, 3), (4, 3), (4,)), ((0, 3), (4, 3), (4,)),
        ((2, 3), (4, 3)), ((2, 5, 3), (1, 3))]),
}

# ---- shape

def split(x: np.ndarray, sizes: Any, axis: int = 0) -> list[np.ndarray]:
    stops = range(sizes, x.shape[axis], sizes) if isinstance(sizes, int) else np.cumsum(sizes)[:-1]
    return np.split(x, stops, axis)


def flatten(x: np.ndarray, start: int = 0, end: int = -1) -> np.ndarray:
    end = end % max(x.ndim, 1)
    return x.reshape(x.shape[:start] + (-1,) + x.shape[end + 1:])


PICK = np.array([2, 0, 2])
TABLE = np.array([[1, 0], [3, 3]])
HALF = np.array([True, False])
KEYS = [0, -1, slice(None), slice(1, None), slice(0, 2, 2), slice(-2, None), slice(2, 1), None, Ellipsis,
        (1, 2), (1, 2, 3), (slice(None), 1), (Ellipsis, -1), (Ellipsis, None, 2), (0, None, slice(1, 3)),
        (slice(None), PICK), (slice(None), slice(None), TABLE), (0, PICK), np.array([], dtype=np.int64),
        (np.array([0, 1]), np.array([2, 0])), (slice(None), np.array([0, -1]), np.array([-4, 3])),
        (np.array([[1], [0]]), slice(None), np.array([0, 3])), (np.array([[1], [0]]), np.array([0, 2])),
        (HALF,), (slice(None), np.array([True, False, True])), np.arange(24).reshape(2, 3, 4) % 3 == 0]
SHAPE = {
    "reshape": case(np.reshape, shapes=SOLID, args=[((6, 4),), ((-1,),), ((2, -1, 2),), ((2, 3, 4),)], also=[
        (((1, 1),), ((),), {}), (((),), ((1,),), {}), (((0, 3),), ((3, 0),), {})]),
    "transpose": case(lambda x, a=-2, b=-1: np.swapaxes(x, a, b), shapes=SOLID,
                      args=[(), (0, 2), (-1, 0), (1, 1)], also=[(((0, 3),), (), {})]),
    "permute": case(np.transpose, shapes=SOLID, args=[((2, 0, 1),), ((0, 1, 2),), ((-1, 1, 0),)], also=[
        (((0, 3),), ((1, 0),), {}), (((),), ((),), {})]),
    "squeeze": case(np.squeeze, shapes=[((1, 3, 1, 2),)],
                    attrs=[{}, {"axis": 0}, {"axis": -2}, {"axis": (0, 2)}],
                    also=[(((1, 1),), (), {}), (((),), (), {}), (((1, 0),), (), {})]),
    "unsqueeze": case(np.expand_dims, shapes=[*SOLID, ((),)], args=[(0,), (-1,)],
                      also=[(((0, 3),), (1,), {})]),
    "flatten": case(flatten, shapes=SOLID, args=[(), (1,), (0, 1), (-2,), (1, 1)], also=[
        (((),), (), {}), (((0, 3),), (), {})]),
    "broadcast_to": case(np.broadcast_to, shapes=[((3, 1),)],
                         args=[((3, 4),), ((2, 3, 5),), ((3, 1),), ((2, 0, 3, 1),)], also=[
                             (((),), ((2, 2),), {}), (((1, 3),), ((0, 3),), {})]),
    "narrow": case(lambda x, axis, start, length: np.take(x, range(start, start + length), axis),
                   shapes=SOLID, args=[(0, 1, 1), (1, 0, 2), (-1, 1, 3), (2, 0, 4), (1, 1, 0)]),
    "getitem": case(lambda x, key: x[key], shapes=SOLID, args=[(k,) for k in KEYS], also=[
        (((),), ((),), {}), (((),), (Ellipsis,), {}), (((),), (None,), {}), (((0, 3),), (slice(None),), {}),
        (((0, 3),), ((slice(None), 1),), {}),
        (((2, 3),), (np.array([[True, False, True], [False] * 3]),), {})]),
    "cat": case(np.concatenate, listed=True, shapes=[((2, 3), (2, 3)), ((2, 3),)],
                attrs=[{}, {"axis": 1}, {"axis": -2}], also=[
                    (((2, 3), (2, 1), (2, 0)), (), {"axis": 1}), (((2,), (3,), (1,)), (), {}),
                    (((0, 3), (2, 3)), (), {})]),
    "stack": case(np.stack, listed=True, shapes=[((2, 3), (2, 3), (2, 3)), ((2, 3),)],
                  attrs=[{}, {"axis": 1}, {"axis": -1}], also=[
                      (((), ()), (), {}), (((0, 2), (0, 2)), (), {"axis": 2})]),
    "split": case(split, shapes=[((2, 5),)], args=[
        (2, 1), (3, -1), ([1, 4], 1), ([0, 5], 1), ([2, 1, 2], -1), (1,), (9,)]),
    "chunk": case(lambda x, pieces, axis=0: split(x, -(-x.shape[axis] // pieces), axis), shapes=[((2, 5),)],
                  args=[(2, 1), (3, -1), (2,), (5, 1), (1, 1)]),
    "gather": case(np.take_along_axis, R, IDS3, args=[(0,), (-1,)], shapes=[
        ((3, 3), (3, 3)), ((3,), (5,)), ((4, 3, 3), (4, 3, 3))]),
    "index_select": case(np.take, R, IDS3, args=[(0,), (-1,)],
                         shapes=[((3, 3), (5,)), ((3, 4, 3), (2,)), ((3,), (0,))]),
    "pad": PAD,
    "tril": case(np.tril, shapes=[((3, 4),), ((2, 4, 3),), ((0, 3),)], args=[(), (1,), (-1,), (9,)]),
    "triu": case(np.triu, shapes=[((3, 4),), ((2, 4, 3),), ((0, 3),)], args=[(), (1,), (-1,), (-9,)]),
    "clone": case(np.array),
    "cast": case(lambda x, dtype: x.astype(dtype), args=[("float64",)]),
}

# ---- rows

def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x)
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: np.ndarray, w: Any = 1.0, b: Any = 0.0, eps: float = 1e-5) -> np.ndarray:
    axis = tuple(range(-max(np.ndim(w), 1), 0))
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps) * w + b


def rms_norm(x: np.ndarray, w: Any = 1.0, eps: float = 1e-5) -> np.ndarray:
    axis = tuple(range(-max(np.ndim(w), 1), 0))
    return x / np.sqrt((x**2).mean(axis, keepdims=True) + eps) * w


def reduced(x: np.ndarray, reduction: str) -> np.ndarray:
    return {"none": x, "sum": x.sum(), "mean": x.sum() / max(x.size, 1)}[reduction]


def loss(elementwise: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, t, reduction="mean", **options: reduced(elementwise(x, t, **options), reduction)


def nll_loss(x: np.ndarray, t: np.ndarray, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> np.ndarray:
    kept = (t != ignore_index) * (1 if weight is None else weight[t])
    losses = -np.take_along_axis(x, np.where(kept, t, 0)[:, None], 1)[:, 0] * kept
    return losses.sum() / kept.sum() if reduction == "mean" else reduced(losses, reduction)


def cross_entropy(x: np.ndarray, t: np.ndarray, label_smoothing: float = 0.0, z_loss: float = 0.0, **options: Any) -> np.ndarray:
    lse = np.log(np.exp(x).sum(1, keepdims=True))
    flat = np.broadcast_to((x - lse).mean(1, keepdims=True), x.shape)
    return nll_loss((1 - label_smoothing) * (x - lse) + label_smoothing * flat - z_loss * lse**2, t, **options)


def bce_with_logits(x: np.ndarray, t: np.ndarray, pos_weight: Any = 1.0) -> np.ndarray:
    return t * pos_weight * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: Any = None, is_causal: bool = False, **options: Any) -> Any:
    if options.get("enable_gqa"):
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if cap := options.get("softcap"):
        scores = cap * np.tanh(scores / cap)
    behind = np.arange(scores.shape[-2])[:, None] - np.arange(scores.shape[-1])
    hidden = (behind < 0) & is_causal | (np.abs(behind) >= options.get("window", 1e9))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if options.get("alibi") is not None:
        scores = scores - options["alibi"][:, None, None] * np.abs(behind)
    return softmax(np.where(hidden, -np.inf, scores)) @ v


EACH = [{}, {"axis": 1}, {"axis": 0}]
LINES: list[Any] = [(((0, 3),), (), {}), (((5,),), (), {})]
REDUCTIONS: list[dict[str, Any]] = [{}, {"reduction": "none"}, {"reduction": "sum"}]
PAIRS = [((3, 4), (3, 4)), ((5,), (5,)), ((), ())]
CLASSES: list[dict[str, Any]] = [*REDUCTIONS, {"ignore_index": 1}, {"ignore_index": 1, "reduction": "none"}, {"weight": np.arange(1.0, 5)}]
SMOOTHED: list[dict[str, Any]] = [
    {"label_smoothing": 0.1}, {"label_smoothing": 0.2, "ignore_index": 0}, {"z_loss": 0.1}, {"z_loss": 0.1, "label_smoothing": 0.2},
    {"z_loss": 0.1, "weight": np.arange(1.0, 5), "ignore_index": 1, "reduction": "none"}]
HEADS = [((2, 3, 4), (2, 5, 4), (2, 5, 6)), ((2, 2, 4, 3), (2, 2, 4, 3), (2, 2, 4, 3))]
GROUPS = ((2, 4, 4, 3), (2, 2, 5, 3), (2, 2, 5, 6))
ROWS = {
    "softmax": case(softmax, shapes=SOLID, attrs=EACH, also=LINES),
    "log_softmax": case(lambda x, axis=-1: np.log(softmax(x, axis)), shapes=SOLID, attrs=EACH, also=LINES),
    "layer_norm": case(layer_norm, R, R, R, attrs=[{}, {"eps": 0.1}], shapes=[
        ((2, 3, 4), (4,), (4,)), ((2, 3, 4), (3, 4), (3, 4)), ((3, 5), (5,)), ((3, 5),), ((0, 3), (3,), (3,))]),
    "rms_norm": case(rms_norm, R, R, attrs=[{}, {"eps": 0.1}], shapes=[
        ((2, 3, 4), (4,)), ((2, 3, 4), (3, 4)), ((3, 5),), ((0, 3), (3,))]),
    "embedding": case(lambda i, w: w[i], IDS4, R, second=False, shapes=[
        ((3,), (4, 5)), ((2, 6), (4, 3)), ((), (4, 3)), ((0,), (4, 3))]),
    "dropout": case(lambda x, p=0.5, training=True: x, attrs=[
        {"p": 0.0}, {"training": False}, {"p": 0.9, "training": False}]),
    "stochastic_depth": case(lambda x, p=0.0, mode="row", training=True: x, shapes=[((2, 3, 4),), ((3,),), ((0, 2),)], attrs=[
        {"p": 0.0, "mode": "row"}, {"p": 0.5, "mode": "batch", "training": False}]),
    "drop_block2d": case(lambda x, p=0.0, block_size=1, training=True: x, shapes=[((2, 3, 4, 5),), ((0, 2, 3, 3),)], attrs=[
        {"p": 0.0, "block_size": 2}, {"p": 0.5, "block_size": 3, "training": False}]),
    **{name: case(lambda x, y, training: (x, y), R, R, shapes=[((3, 4), (3, 4)), ((3, 2, 4, 5), (3, 4))],
                  attrs=[{"training": False}])
       for name in ("mixup", "cutmix")},
    "cross_entropy": case(cross_entropy, R, IDS4, shapes=[((6, 4), (6,))], attrs=CLASSES + SMOOTHED),
    "nll_loss": case(nll_loss, R, IDS4, shapes=[((6, 4), (6,))], attrs=CLASSES),
    "mse_loss": case(loss(lambda x, t: (x - t)**2), R, R, shapes=PAIRS, attrs=REDUCTIONS),
    "l1_loss": case(loss(lambda x, t: np.abs(x - t)), R, R, shapes=PAIRS, attrs=REDUCTIONS),
    "smooth_l1_loss": case(loss(lambda x, t, beta=1.0: np.where(
        np.abs(x - t) < beta, 0.5 * (x - t)**2 / beta, np.abs(x - t) - 0.5 * beta)), R, R, shapes=PAIRS,
        attrs=[*REDUCTIONS, {"beta": 0.6}]),
    "huber_loss": case(loss(lambda x, t, delta=1.0: np.where(
        np.abs(x - t) < delta, 0.5 * (x - t)**2, delta * (np.abs(x - t) - 0.5 * delta))), R, R, shapes=PAIRS,
        attrs=[*REDUCTIONS, {"delta": 0.6}]),
    "binary_cross_entropy": case(
        loss(lambda x, t, weight=1.0: -weight * (t * np.log(x) + (1 - t) * np.log1p(-x))), UNIT, fixed(UNIT), shapes=PAIRS,
        attrs=REDUCTIONS, also=[(PAIRS[0], (), {"weight": np.array([0.5, 1.0, 2.0, 3.0])})]),
    "binary_cross_entropy_with_logits": case(
        loss(lambda x, t, weight=1.0, **o: weight * bce_with_logits(x, t, **o)), R, fixed(UNIT), shapes=PAIRS, attrs=REDUCTIONS, also=[
            (PAIRS[0], (), {"pos_weight": np.array([0.5, 1.0, 2.0, 3.0]), "weight": np.array([[0.5], [1.0], [2.0]])})]),
    "scaled_dot_product_attention": case(attention, R, R, R, shapes=HEADS, attrs=[{}, {"is_causal": True}],
                                         second=False, also=[
        (HEADS[1], (np.tri(4, dtype=np.bool_),), {}),
        (HEADS[1], (np.linspace(-1.0, 1.0, 16).reshape(4, 4),), {}), (GROUPS, (), {"enable_gqa": True, "is_causal": True}),
        (GROUPS, (np.linspace(-1.0, 1.0, 80).reshape(4, 4, 5),), {"enable_gqa": True}), (GROUPS, (), {"enable_gqa": True, "softcap": 2.0}),
        (HEADS[1], (), {"window": 2, "is_causal": True}), (HEADS[1], (), {"alibi": np.array([0.5, 0.25])})]),
}

FAMILIES = {"pointwise": POINTWISE | MORE_POINTWISE, "reduce": REDUCE, "matrix": MATRIX, "shape": SHAPE, "rows": ROWS,
            "spatial": SPATIAL, "channels": CHANNELS, "recurrent": RECURRENT, **FAMILIES_OF_ARRAYS,
            "losses": LOSSES | POLICY, **FAMILIES_OF_SHAPES, "linalg": LINALG}
REFERENCE: dict[str, Case] = {name: line for family in FAMILIES.values() for name, line in family.items()}

# Ops without a public name, and the public one whose line exercises them.
INTERNAL = {
    **CHANNELS_INTERNAL,
    **INTERNAL_POINTWISE,
    "power": "pow", "whole_power": "pow", "clip": "clamp", "gelu_erf": "gelu", "gelu_tanh": "gelu", "bell": "gelu", "normal_tail": "gelu",
    "sum_to": "add", "moments": "var", "root": "std", "lengths": "norm", "power_norm": "norm", "strided_sum": "trace", "ones_at": "one_hot",
    "crossed": "cross", "added_product": "addmm", "product": "matmul", "wide_product": "matmul",
    "rounding_linear": "linear", "view": "reshape", "permuted": "permute", "expanded": "broadcast_to", "sliced": "getitem",
    "unsliced": "pad", "rows_at": "getitem", "rows_added": "getitem", "along_at": "gather", "along_added": "scatter_add",
    "slices_at": "getitem", "added_along": "scatter_add", "added_slices": "index_add", "slices_filled": "index_fill", "rows_of": "getitem",
    "put_along": "scatter", "joined": "cat", "row_cross_entropy": "cross_entropy", "huber": "huber_loss", "bce": "binary_cross_entropy",
    "bce_logits": "binary_cross_entropy_with_logits", "dropped": "dropout", "attention": "scaled_dot_product_attention",
    "half_cross_entropy": "cross_entropy", "fused_attention": "scaled_dot_product_attention", "residual_layer_norm": "layer_norm",
    "rounding_layer_norm": "layer_norm", "row_layer_norm": "layer_norm", "row_rms_norm": "rms_norm", "rounding_rms_norm": "rms_norm",
    "third_power": "pow", "moved": "clone", "id_counts": "embedding", "is_share": "dropout", "ones_of": "dropout",
    "drawn_ids": "dropout", "placed_ids": "gather", **INTERNAL_OF_ARRAYS,
    **INTERNAL_OF_SHAPES, **INTERNAL_OF_LINALG,
    **INTERNAL_OF_SPATIAL,
    **INTERNAL_OF_POSITIONS,
    **LOSSES_INTERNAL,
}
# fmt: on
