"""Dropout, and what else draws: whole numbers, permutations, choices by probability, other distributions.

All come from the counters of core/rng.py, of this thread or of a Generator, so they are the same for any number of threads and on every
device, are drawn anew by each replay of a captured step, and again by a checkpointed block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.creation import random_tensor, shape_of
from ..core.custom import custom
from ..core.device import device as device_of
from ..core.errors import ShapeError
from ..core.op import launch, like, new, over, publish
from ..core.ops.axes import composed, one_axis
from ..core.ops.copy import cast
from ..core.ops.indexing import check_ids
from ..core.ops.pointwise import add, div, log_op, mul, neg, sub, where
from ..core.ops.shape import broadcast_to, reshape
from ..core.pointwise import define
from ..core.rng import next_key
from ..core.tensor import Tensor
from ..core.words import select
from ..dtypes import FLOATS, as_dtype, bool_, checked_int, checked_number, float32, float64, int64, is_number
from ..engine.kept import number
from ..engine.routes import routed
from .picking import index_select
from .reduce_more import argmax
from .reductions import count_nonzero
from .scans import cumsum
from .sorting import row_order, searchsorted, topk
from .widening import widened


@custom(inputs=1, title="dropout", internal=True)
def dropped(x, p=0.5, generator=None):
    y, mask = like(x), like(x, dtype=bool_)
    if x.size:
        scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
        wide = x.spec.computed
        key = over(next_key(x.device, generator), (3,))
        launch("philox_dropout", None, (y, mask), (x, key), (number(float(p), wide), number(scale, wide)))
    return y, {"mask": mask}


dropped.differentiable(lambda g, mask, p: where(mask, mul(g, 0.0 if p == 1 else 1.0 / (1.0 - p)), 0.0))


@composed(home="both")
def dropout(x: Any, p: float = 0.5, training: bool = True, generator: Any = None) -> Any:
    """Zero each element, a NaN too, with probability p and scale the others by 1 / (1 - p); x itself when not training or p is 0.
    (Srivastava et al. 2014.) The mask depends on the seed and the position, not on threads; see rng.py.
    Shapes: any; the result has that of x. Integers give float32. Raises ValueError for p outside [0, 1].
    >>> fp.dropout(fp.ones(2), p=0.5, training=False).tolist()
    [1.0, 1.0]"""
    p = checked_number("dropout", "p", p)
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout: p outside [0, 1]: {p}. Use a probability.")
    return dropped(x, p, generator) if training and p > 0 else x


# ---- whole numbers -------------------------------------------------------------------------------------------------------------------
@routed
def randint(
    low: int, high: Any = None, size: Any = None, dtype: Any = None, device: Any = None, *, generator: Any = None
) -> Any:  # fmt: skip
    """Whole numbers from low up to, not including, high; of one bound, from 0 up to it (int64 unless said otherwise).
    randint(low, high, size), as NumPy's, and as PyTorch's also randint(high, size). Raises ValueError for no numbers to choose from."""
    if size is None and isinstance(high, list | tuple):
        high, size = None, high
    first, last = (0, low) if high is None else (low, high)
    first, last = checked_int("randint", "low", first), checked_int("randint", "high", last)
    if not first < last or not -(1 << 63) <= first < 1 << 63 or last - first >= 1 << 63:
        raise ValueError(f"randint: no numbers to choose from: {first} up to {last}. Use low < high, less than 2^63 apart.")
    t = new(shape_of("randint", () if size is None else (size,)), int64, device_of(device))
    if t.size:
        launch("philox_whole", None, (t,), (over(next_key(t.device, generator), (3,)),), (int64.type(first), int64.type(last - first)))
    return t if dtype is None or as_dtype(dtype) == int64 else cast(t, dtype)


@routed
def randperm(n: int, dtype: Any = None, device: Any = None, *, generator: Any = None) -> Any:
    """The whole numbers below n in random order (int64 unless said otherwise)."""
    if checked_int("randperm", "n", n) < 0:
        raise ValueError(f"randperm: below 0: n={n}. Use 0 or more.")
    order = row_order.body(randint(0, (1 << 63) - 1, (n,), device=device, generator=generator))
    return order if dtype is None or as_dtype(dtype) == int64 else cast(order, dtype)


@composed
def permutation(x: Any, axis: int = 0, generator: Any = None) -> Any:
    """The slices of x along an axis in random order; of a whole number: randperm(). As NumPy's. Also called shuffle: x stays as it is.
    Shapes: x's.
    >>> sorted(fp.permutation(fp.tensor([1.0, 2.0])).tolist())
    [1.0, 2.0]"""
    if is_number(x) and not isinstance(x, Tensor):
        return randperm(x, generator=generator)
    x = Tensor.of("permutation", x)
    a = one_axis("permutation", axis, x.ndim)
    return index_select(x, a, randperm(x.shape[a] if x.ndim else 1, device=x.device, generator=generator))


publish("shuffle", permutation, "flamepy")


# ---- choices by probability ------------------------------------------------------------------------------------------------------------
def drawn(shape: Any, device: Any, generator: Any, dtype: Any = float32) -> Any:
    """Uniform numbers in [0, 1)."""
    return random_tensor("uniform", "philox_uniform", shape, 0.0, 1.0, dtype, device, False, generator)


is_share = define("is_share", "Whether 0 <= p <= most.", lambda p, most=1.0: (p >= 0.0) & (p <= most), out=bool_, home="")


def checked_share(name: str, p: Any, most: float = 1.0, advice: str = "numbers that are") -> Any:
    """Probabilities as floats, none of which is NaN, below 0 or above `most`. Raises ValueError with the position of one that is."""
    p = cast(p, float32) if (p := Tensor.of(name, p)).dtype not in FLOATS else p
    text = f"{name}: no probability: element {{1}} is not from 0 to {most}. Use {advice}."
    check_ids(is_share(p, most=most), 1, 2, text, error=ValueError)
    return p


def is_below(noise, p):
    return select(noise < p, 1.0, 0.0)


@custom(inputs=1, kind="as is", title="bernoulli", internal=True)
def ones_of(p, generator=None):
    """1 with probability p, else 0. Raises ValueError for what is no probability."""
    checked_share("bernoulli", p)
    y, noise = like(p), like(p, dtype=p.spec.computed)
    if p.size:
        ends = number(0.0, noise.dtype), number(1.0, noise.dtype)
        launch("philox_uniform", None, (noise,), (over(next_key(p.device, generator), (3,)),), ends)
        launch("map", is_below, (y,), (noise, p))
    return y


ones_of.differentiable(lambda g: mul(g, 0.0))


@composed
def bernoulli(p: Any, generator: Any = None) -> Any:
    """1 with probability p, else 0, for each number of p, in its type. Records a zero gradient.
    Shapes: p's. Raises ValueError for what is no probability.
    >>> fp.bernoulli(fp.tensor([0.0, 1.0])).tolist()
    [0.0, 1.0]"""
    p = Tensor.of("bernoulli", p)
    return ones_of(p if p.dtype in FLOATS else cast(p, float32), generator)


def exponentials(shape: Any, device: Any, generator: Any, dtype: Any) -> Any:
    """Exponentially distributed numbers above 0."""
    return neg(log_op(sub(1.0, drawn(shape, device, generator, dtype))))


@composed
def categorical(logits: Any, axis: int = -1, generator: Any = None) -> Any:
    """A class id (int64) for each row of logits along an axis, drawn with the probabilities softmax(logits). (By Gumbel's maximum.)
    Shapes: logits' without the axis.
    >>> fp.categorical(fp.tensor([[0.0, 99.0], [99.0, 0.0]])).tolist()
    [1, 0]"""
    logits = widened(Tensor.of("categorical", logits)).detach()
    logits = logits if logits.dtype in FLOATS else cast(logits, float32)
    noise = neg(log_op(add(exponentials(logits.shape, logits.device, generator, logits.dtype), 1e-37)))
    return argmax(add(logits, noise), axis=axis)


@custom(inputs=1, kind="as is", title="multinomial", internal=True)
def drawn_ids(p, many=1, replacement=False, generator=None):
    """Ids drawn from each row. Raises ValueError for what is no probability, and rows with too few above 0."""
    p = checked_share("multinomial", p, 1e300 if p.dtype == float64 else 3e38)  # of which no sum is infinite
    rows, least = reshape(widened(p), (-1, p.shape[-1])), 1 if replacement else many
    text = f"multinomial: too few that can be drawn: {{}} above 0 in row {{}}, {least} needed. Use other rows, or fewer numbers."
    check_ids(count_nonzero(rows, axis=1), least, p.shape[-1] + 1, text, error=ValueError)
    if replacement:
        sums = cumsum(cast(rows, float64), 1)
        ids = searchsorted(sums, mul(drawn((rows.shape[0], many), p.device, generator, float64), sums[:, -1:]), side="right")
    else:
        ids = topk(div(rows, exponentials(rows.shape, p.device, generator, rows.dtype)), many, 1).indices
    return reshape(ids, (*p.shape[:-1], many))


@composed
def multinomial(probs: Any, num_samples: int, replacement: bool = False, generator: Any = None) -> Any:
    """Ids (int64) drawn with probabilities proportional to each row of `probs`, with or without putting them back. As PyTorch's.
    Shapes: (n,) or (rows, n) give (num_samples,) or (rows, num_samples). Raises ShapeError for more than n that are not put back,
    ValueError for numbers that are no probabilities, and rows with too few above 0.
    >>> fp.multinomial(fp.tensor([0.0, 1.0]), 3, replacement=True).tolist()
    [1, 1, 1]"""
    p, many = Tensor.of("multinomial", probs), checked_int("multinomial", "num_samples", num_samples)
    if p.ndim not in (1, 2) or not p.shape[-1] or many < 1 or (not replacement and many > p.shape[-1]):
        text = f"multinomial: cannot draw {many} from {p.shape}. Use rows of probabilities, replacement=True for more than they have."
        raise ShapeError(text)
    return drawn_ids(p.detach(), many, bool(replacement), generator)


# ---- other distributions ---------------------------------------------------------------------------------------------------------------
def common_size(name: str, size: Any, a: Any, b: Any, device: Any) -> tuple[Any, Any]:
    """The shape that is drawn: `size`, or what the parameters broadcast to, if one of them has a shape; and the device. Raises ValueError
    where nobody says a size."""
    tensors = [x for x in (a, b) if isinstance(x, Tensor)]
    shapes = [x.shape if isinstance(x, Tensor) else np.shape(x) for x in (a, b)]
    if size is None and not tensors and shapes == [(), ()]:
        raise ValueError(f"{name}: no size: of two numbers. Pass size=, e.g. size=(2, 3).")
    shape = np.broadcast_shapes(*shapes) if size is None else shape_of(name, (size,))
    return shape, tensors[0].device if tensors and device is None else device_of(device)


@routed
def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, dtype: Any = None, device: Any = None, *, generator: Any = None
) -> Any:  # fmt: skip
    """Normally distributed numbers; mean and std may be tensors, which get gradients, then size is what they broadcast to."""
    if is_number(std) and checked_number("normal", "std", std) < 0:
        raise ValueError(f"normal: std is below 0: {std}. Use 0 or more.")
    shape, place = common_size("normal", size, mean, std, device)
    if is_number(mean) and is_number(std):
        return random_tensor("randn", "philox_normal", shape, mean, std, dtype, place, False, generator)
    kind = next((x.spec.computed for x in (mean, std) if isinstance(x, Tensor) and x.dtype in FLOATS), float32)
    noise = random_tensor("randn", "philox_normal", shape, 0.0, 1.0, kind if dtype is None else dtype, place, False, generator)
    return broadcast_to(add(mul(noise, std), mean), shape)


@routed
def exponential(
    scale: Any = 1.0, size: Any = None, dtype: Any = None, device: Any = None, *, generator: Any = None
) -> Any:  # fmt: skip
    """Exponentially distributed numbers of that mean, which may be a tensor: scale is NumPy's, PyTorch's lambd is 1 / scale."""
    shape, place = common_size("exponential", size, scale, 0.0, device)
    kind = scale.spec.computed if isinstance(scale, Tensor) and scale.dtype in FLOATS else float32
    if is_number(scale) and checked_number("exponential", "scale", scale) < 0:
        raise ValueError(f"exponential: scale is below 0: {scale}. Use 0 or more.")
    return mul(exponentials(shape, place, generator, kind if dtype is None else as_dtype(dtype)), scale)
