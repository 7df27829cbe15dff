"""Norms by channel: batch, group, instance and local response norm of x (N, C, ...), and weights standardised for convolutions.

Batch norm is one launch forward, which makes the statistics and the result, and one backward for dx, dw and db. With statistics that are
known it is an affine map of each channel, which also gives group and instance norm their weights. Beside each fused backward stands the
same rule in differentiable ops, for create_graph.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.custom import custom
from ..core.errors import DTypeError, GradientError, ShapeError
from ..core.op import launch, like, new
from ..core.ops.axes import composed
from ..core.ops.copy import cast
from ..core.ops.pointwise import rsqrt
from ..core.ops.reduce import mean as mean_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..core.parameter import Stored
from ..core.pointwise import define
from ..core.tensor import Tensor
from ..dtypes import FLOATS, checked_int, checked_number, computed, float32
from ..engine.entries import own_state
from ..engine.forms import form
from ..engine.half import together
from ..engine.kept import number
from .pads import pad
from .pools import avg_pool2d
from .row_norms import layer_norm_op, tensors_or_none
from .widening import narrowed, widened

Sizes = tuple[int, ...]


# ---- sizes -------------------------------------------------------------------------------------------------------------------
def channel_sizes(shape: Sizes) -> Sizes:
    """(outer, channels, inner) of x (N, C, ...)."""
    return shape[0], shape[1], math.prod(shape[2:])


def check_channels(name: str, x: Any, **others: Any) -> None:
    """Raise ShapeError unless x has channels and the others are one number for each."""
    if x.ndim < 2:
        raise ShapeError(f"{name}: x has no axis of channels: {x.shape}. Use (N, C) or (N, C, ...).")
    for key, t in others.items():
        if t is not None and t.shape != x.shape[1:2]:
            raise ShapeError(
                f"{name}: sizes differ: x is {x.shape}, {key} is {t.shape}. It has one number for each of {x.shape[1]} channels."
            )


def beside_channels(t: Any, x: Any) -> Any:
    """One number for each channel in a shape that broadcasts to x (N, C, ...)."""
    return reshape(t, (1, -1, *(1,) * (x.ndim - 2)))


def channel_sum(x: Any) -> Any:
    return sum_op(x, axis=tuple([a for a in range(x.ndim) if a != 1]))


def gradients(g: Any, x: Any, weight: Any, statistics: tuple, wanted: Any, into: Any, fixed: bool) -> tuple[Any, Any, Any]:
    """dx, dw and db in one launch. `statistics`: mean, rest, rstd."""
    fresh = lambda: (new(g.shape[1:2], computed(g.dtype), g.device), False)
    sums = [(p or fresh()) if w else (None, False) for w, p in zip(wanted[1:3], into[1:3], strict=True)]
    (dw, add_w), (db, add_b) = sums
    dx = like(g)
    if g.size:
        consts = (*channel_sizes(x.shape), add_w, add_b, fixed)
        launch("batch_norm_dx", None, (dx, None, dw, db), (g, x, None, weight, None, *statistics), consts)
    else:
        for t, add in sums:
            if t is not None and not add:
                launch("fill", None, (t,), (), (t.dtype.type(0),))
    return dx, dw, db


# ---- batch norm ---------------------------------------------------------------------------------------------------------------
@form(mixes=0)
@custom(inputs=3, title="batch_norm", internal=True)
def channel_norm(x, weight=None, bias=None, eps=1e-5, dtype=None):
    """(y, mean, variance): x (N, C, ...) normalised by channel (Ioffe & Szegedy 2015, arXiv:1502.03167), its mean, its unbiased variance.
    `dtype`: what y is rounded to, where it is another than the inputs'. The mean is kept as two numbers, see norm_bodies.py."""
    own, sizes = together((x, weight, bias)), channel_sizes(x.shape)
    wide = computed(own)
    y = like(x, dtype=dtype or own)
    mean, rest, rstd, var = [new(sizes[1:2], wide, x.device) for _ in range(4)]
    launch("batch_norm", None, (y, mean, rest, rstd, var), (x, None, weight, bias), (*sizes, number(eps, wide)))
    return (y, mean, var), {"mean": mean, "rest": rest, "rstd": rstd}


@channel_norm.backward
def channel_norm_dx(gs, x, weight, mean, rest, rstd, wanted, into):
    return gradients(gs[0], x, weight, (mean, rest, rstd), wanted, into, False)


@channel_norm.graph
def channel_norm_ddx(gs, x, weight, eps):
    axes = tuple([a for a in range(x.ndim) if a != 1])
    g, xc = gs[0], x - mean_op(x, axis=axes, keepdims=True)
    rstd = rsqrt(mean_op(xc * xc, axis=axes, keepdims=True) + eps)
    xn = xc * rstd
    gw = g if weight is None else g * beside_channels(weight, x)
    dx = rstd * (gw - mean_op(gw, axis=axes, keepdims=True) - xn * mean_op(gw * xn, axis=axes, keepdims=True))
    return dx, channel_sum(g * xn), channel_sum(g)


@form(mixes=0)
@custom(inputs=5, title="batch_norm", internal=True)
def channel_affine(x, weight=None, bias=None, mean=None, var=None, eps=1e-5, dtype=None):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of x (N, C, ...); all but x may be None. Mean and var are constants."""
    own, sizes = together((x, weight, bias)), channel_sizes(x.shape)
    wide = computed(own)
    y, rstd = like(x, dtype=dtype or own), None if var is None else new(sizes[1:2], wide, x.device)
    if y.size:
        launch("channel_affine", None, (y, rstd), (x, None, mean, var, weight, bias), (*sizes, number(eps, wide)))
    return y, {"rstd": rstd}


@channel_affine.backward
def channel_affine_dx(g, x, weight, mean, rstd, wanted, into):
    return *gradients(g, x, weight, (mean, None, rstd), wanted, into, True), None, None


@channel_affine.graph
def channel_affine_ddx(g, x, weight, mean, rstd):
    xn = x if mean is None else x - beside_channels(mean, x)
    xn = xn if rstd is None else xn * beside_channels(rstd, x)
    dx = g if rstd is None else g * beside_channels(rstd, x)
    return dx if weight is None else dx * beside_channels(weight, x), channel_sum(g * xn), channel_sum(g), None, None


# ---- running statistics ---------------------------------------------------------------------------------------------------------
running = define(
    "running", "A running statistic moved towards a new one.", lambda old, new, momentum: momentum * new + (1.0 - momentum) * old,
    title="batch_norm", home="",
)  # fmt: skip


def checked_statistics(name: str, x: Any, mean: Any, var: Any, writes: bool) -> dict[str, Any]:
    """Running statistics by name: constants, or with `writes` tensors that are written in place. Raises DTypeError, GradientError."""
    found = {"running_mean": mean, "running_var": var}
    for key, t in found.items():
        if t is not None and not isinstance(t, Tensor):
            if writes:
                raise DTypeError(f"{name}: {key} is not a tensor: {type(t).__name__}. It is written in place: pass a Tensor, or None.")
            found[key] = t = Tensor.of(name, t, x.device)
        if t is not None and t.requires_grad:
            raise GradientError(f"{name}: no derivative for {key}, which requires grad: shape {t.shape}. Pass {key}.detach().")
        if writes and type(t) is Tensor:
            t.__class__ = Stored
    return found


def update(statistics: dict[str, Any], now: tuple[Any, Any], momentum: Any) -> None:
    """Move running statistics towards those of now, in place, unless there are none. Where a checkpointed block runs again, it is done."""
    with own_state() as first:
        for t, new in zip(statistics.values(), now, strict=True):
            if t is not None and first:
                t.set_data(running(t.detach(), new.detach().to(t.dtype), momentum))


# ---- as users call them -------------------------------------------------------------------------------------------------------------
def batch_norm_in(
    dtype: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any, training: bool, momentum: Any, eps: float
) -> Any:  # fmt: skip
    """batch_norm() with a result that is rounded to `dtype`, which may be None."""
    x, weight, bias = tensors_or_none("batch_norm", x, weight, bias)
    if x.shape == (0,):  # PyTorch asks nothing more of nothing
        return x
    known = checked_statistics("batch_norm", x, mean, var, training)
    check_channels("batch_norm", x, weight=weight, bias=bias, **known)
    eps = checked_number("batch_norm", "eps", eps)
    if not training:
        if mean is None or var is None:
            what = f"running_mean {type(mean).__name__}, running_var {type(var).__name__}"
            raise ShapeError(f"batch_norm: no running statistics: {what}. Pass both, or training=True for those of the batch.")
        return channel_affine(x, weight, bias, *[t.detach() for t in known.values()], eps, dtype)
    if x.size == 0:
        return channel_affine(x, weight, bias, None, None, eps, dtype)
    check_many("batch_norm", "numbers in a channel", x.size // x.shape[1], x)
    y, *now = channel_norm(x, weight, bias, eps, dtype)
    update(known, tuple(now), momentum)
    return y


def check_many(name: str, what: str, count: int, x: Any) -> None:
    """Raise ShapeError for a single number, which has no variance; as in PyTorch."""
    if count == 1:
        raise ShapeError(f"{name}: expected more than 1 of the {what} in training: x is {x.shape}. Use larger batches, or eval().")


@composed(home="functional")
def batch_norm(
    x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel (Ioffe & Szegedy 2015, arXiv:1502.03167).
    In training mean and variance are the batch's, and running_mean and running_var, unless they are None, move towards them in place by
    `momentum` (the variance as n - 1 numbers of n show it); else they are what is normalised by, and are constants.
    Shapes: x (N, C) or (N, C, ...), the others (C,); the result has x's. Integers give float32. Raises ShapeError, in training for a
    single number a channel too, GradientError for running statistics that require grad.
    >>> F.batch_norm(fp.tensor([[1.0], [3.0]]), None, None, training=True).numpy().round(2).tolist()
    [[-1.0], [1.0]]"""
    return batch_norm_in(
        None, x, running_mean, running_var, weight, bias, training, checked_number("batch_norm", "momentum", momentum), eps
    )


@composed(home="functional")
def instance_norm(
    x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """batch_norm() of each example by itself (Ulyanov et al. 2016, arXiv:1607.08022).
    Running statistics, where they are given, move towards the mean of the examples' ones; use_input_stats=False normalises by them.
    Shapes: x (N, C, ...), the others (C,); the result has x's. Raises ShapeError, for a single number a channel of an example too.
    >>> F.instance_norm(fp.tensor([[[1.0, 3.0], [4.0, 8.0]]])).numpy().round(2).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]"""
    return instance_norm_in(None, x, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def instance_norm_in(
    dtype: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any, use_input_stats: bool, momentum: Any, eps: float
) -> Any:  # fmt: skip
    """instance_norm() with a result that is rounded to `dtype`, which may be None."""
    if not use_input_stats:
        return batch_norm_in(dtype, x, mean, var, weight, bias, False, 0.0, eps)
    x, weight, bias = tensors_or_none("instance_norm", x, weight, bias)
    x = as_floats(x, weight, bias)
    known = checked_statistics("instance_norm", x, mean, var, True)
    check_channels("instance_norm", x, weight=weight, bias=bias, **known)
    n, channels, inner = channel_sizes(x.shape)
    check_many("instance_norm", "numbers in a channel of an example", inner, x)
    eps = checked_number("instance_norm", "eps", eps)
    if x.size == 0:
        return channel_affine(x, weight, bias, None, None, eps, dtype)
    y, *now = channel_norm(reshape(x, (1, n * channels, inner)), None, None, eps, between(x, weight, bias, dtype))
    if mean is not None or var is not None:
        update(known, tuple([mean_op(reshape(t.detach(), (n, channels)), axis=0) for t in now]), momentum)
    return with_weights(reshape(y, x.shape), weight, bias, dtype or x.dtype)


def as_floats(x: Any, *weights: Any) -> Any:
    """x, and in the place of integers floats, of the type that the weights have."""
    return x if x.dtype in FLOATS else cast(x, next((w.dtype for w in weights if w is not None), float32))


def between(x: Any, weight: Any, bias: Any, dtype: Any) -> Any:
    """The type of what is normalised: that of the result, but rounded only once where weights follow."""
    return dtype if weight is None and bias is None else computed(x.dtype)


def with_weights(y: Any, weight: Any, bias: Any, dtype: Any) -> Any:
    """y * weight + bias by channel; one of 16 bits is rounded here."""
    return y if weight is None and bias is None else channel_affine(y, weight, bias, None, None, 0.0, dtype)


@composed(home="functional")
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias, where mean and variance are those of `num_groups` groups of channels of each example
    (Wu & He 2018, arXiv:1803.08494).
    Shapes: x (N, C) or (N, C, ...), weight and bias (C,); the result has x's. Integers give float32. Raises ShapeError.
    >>> F.group_norm(fp.tensor([[1.0, 3.0, 4.0, 8.0]]), 2).numpy().round(2).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]"""
    return group_norm_in(None, x, num_groups, weight, bias, eps)


def group_norm_in(dtype: Any, x: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    """group_norm() with a result that is rounded to `dtype`, which may be None."""
    x, weight, bias = tensors_or_none("group_norm", x, weight, bias)
    x = as_floats(x, weight, bias)
    check_channels("group_norm", x, weight=weight, bias=bias)
    groups, (n, channels, inner) = checked_int("group_norm", "num_groups", num_groups), channel_sizes(x.shape)
    if groups < 1 or channels % groups:
        raise ShapeError(f"group_norm: channels are no multiple of the groups: x is {x.shape}, num_groups {groups}. Choose a divisor.")
    check_many("group_norm", "numbers in all groups", n * channels // groups * inner, x)
    cols, eps = channels // groups * inner, checked_number("group_norm", "eps", eps)
    y = layer_norm_op(reshape(x, (n * groups, cols)), None, None, eps, (cols,), between(x, weight, bias, dtype))
    return with_weights(reshape(y, x.shape), weight, bias, dtype or x.dtype)


@composed(home="functional")
def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels) ** beta (Krizhevsky et al. 2012).
    Shapes: x (N, C, ...) with three axes or more; the result has x's. Beyond the first and last channel are zeros. Raises ShapeError.
    >>> F.local_response_norm(fp.ones(1, 3, 1), 2, alpha=2.0, beta=1.0, k=0.0).numpy().round(2).ravel().tolist()
    [1.0, 0.5, 0.5]"""
    size, (x,) = checked_int("local_response_norm", "size", size), tensors_or_none("local_response_norm", x)
    if x.ndim < 3 or size < 1:
        raise ShapeError(f"local_response_norm: x has no (N, C, ...), or size is below 1: x is {x.shape}, size {size}. Use size 5, say.")
    alpha, beta, k = [checked_number("local_response_norm", n, v) for n, v in (("alpha", alpha), ("beta", beta), ("k", k))]
    if x.size == 0:
        return x * 1.0
    dtype, x = x.dtype if x.dtype in FLOATS else float32, widened(x)
    n, channels, inner = channel_sizes(x.shape)
    squares = pad(reshape(x * x, (n, 1, channels, inner)), ((0, 0), (0, 0), (size // 2, (size - 1) // 2), (0, 0)))
    means = reshape(avg_pool2d(squares, (size, 1), 1), x.shape)
    return narrowed(x / (k + alpha * means) ** beta, dtype)


@composed(home="functional")
def weight_standardize(weight: Any, eps: float = 1e-5) -> Any:
    """(weight - mean) / sqrt(var + eps) for each output channel, over all other axes (Qiao et al. 2019, arXiv:1903.10520); for use as
    F.conv2d(x, F.weight_standardize(conv.weight)).
    Shapes: weight (O, ...), with two axes or more; the result has the same. Raises ShapeError.
    >>> F.weight_standardize(fp.tensor([[1.0, 3.0], [4.0, 8.0]])).numpy().round(2).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]"""
    (weight,) = tensors_or_none("weight_standardize", weight)
    if weight.ndim < 2:
        raise ShapeError(f"weight_standardize: no axis to normalise over: weight is {weight.shape}. Use (O, I, ...).")
    return layer_norm_op(weight, None, None, checked_number("weight_standardize", "eps", eps), weight.shape[1:], None)
