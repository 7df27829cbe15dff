"""layer_norm and rms_norm over rows, and a residual connection with its layer norm, forward and backward.

The bodies of forward and backward are in norm_bodies.py. Backward: dx, dw and db in one launch. Each chunk of rows adds up a dw and a db
of its own (how many chunks there are follows from sizes alone), and a small launch adds the chunks. Beside each fused backward
stands the same rule in differentiable ops, for create_graph.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like, new, share
from ..core.ops.axes import as_shape, composed
from ..core.ops.pointwise import rsqrt
from ..core.ops.reduce import mean as mean_op
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import reshape
from ..core.tensor import Tensor
from ..dtypes import HALF, checked_number, computed, float32
from ..engine.forms import form, remade
from ..engine.half import together
from ..engine.kept import number
from . import norm_bodies as bodies
from .rows import over_rows


def norm_shape(x: Any, weight: Any, bias: Any, shape: Any) -> tuple[int, ...]:
    """The sizes of the normalised axes: those asked for, else the weight's or bias's, else the last one."""
    if type(shape) is tuple:
        return shape
    if shape is None:
        return weight.shape if weight is not None else bias.shape if bias is not None else x.shape[-1:]
    return as_shape("normalized_shape", shape)


def rows_of(name: str, x: Any, shape: tuple[int, ...], weight: Any, bias: Any = None) -> tuple[int, int]:
    """(rows, elements in a normalised row). Raises ShapeError unless x ends in `shape` and the weights have it."""
    ends = x.shape[len(x.shape) - len(shape) :] == shape != ()
    if not ends or (weight is not None and weight.shape != shape) or (bias is not None and bias.shape != shape):
        given = [None if w is None else w.shape for w in (weight, bias)]
        raise ShapeError(f"{name}: sizes differ: x is {x.shape}, normalised shape {shape}, weights {given}. x must end in that shape.")
    cols = math.prod(shape)
    return x.size // cols if cols else 0, cols


def started(name: str, xs: tuple, weight: Any, bias: Any, eps: float, shape: Any, dtype: Any) -> tuple[Any, ...]:
    """For the norm of x = xs[0], or of x plus a residual: y (in `dtype`, or the inputs' own), mean and rstd of the rows, to be filled in;
    the length of a row; eps as a body takes it; how many axes are normalised. Raises ShapeError."""
    x, shape, own = xs[0], norm_shape(xs[0], weight, bias, shape), together((*xs, weight, bias))
    rows, cols = rows_of(name, x, shape, weight, bias)
    for residual in xs[1:]:
        if residual is not None and residual.shape != x.shape:
            raise ShapeError(f"{name}: shapes differ: x {x.shape}, residual {residual.shape}. They do not broadcast.")
    wide = computed(own)
    y, mean, rstd = like(x, dtype=dtype or own), new((rows, 2), wide, x.device), new((rows,), wide, x.device)
    return y, mean, rstd, cols, (number(float(eps), wide),), len(shape)


# ---- backward, shared --------------------------------------------------------------------------------------------------------
def norm_backward(
    ins: tuple, depth: int, wanted: tuple, places: tuple, shapes: list, body: Any = bodies.norm_dx_row
) -> tuple[Any, Any, Any]:  # fmt: skip
    """dx, dw and db from ins = (g, more, x, weight, mean, rstd); `more`, a cotangent that reached x another way, is added to dx.
    In x's place kept_norm_dx_row takes the normalised x. `depth` counts the normalised axes. `wanted`, `places` (a backward rule's
    `into`) and `shapes` are those of weight and bias."""
    x, mean = ins[2], ins[4]
    cols = math.prod(x.shape[len(x.shape) - depth :])
    dx, rows = like(ins[0]), x.size // cols if cols else 0
    if not any(wanted):
        over_rows(body, (dx,), (None, *ins), cols)
        return dx, None, None
    outs = [(p or (like(dx, shape), False)) if want else (None, False) for want, p, shape in zip(wanted, places, shapes, strict=True)]
    (dw, add_w), (db, add_b) = outs
    launch("row_sums", body, (dx, dw, db), ins, (1 if mean is None else 2, add_w, add_b, rows, cols))
    return dx, dw, db


def norm_graph(g: Any, x: Any, weight: Any, depth: int, eps: float, centred: bool) -> tuple[Any, Any]:
    """dx, and dw before its sum over rows, in differentiable ops."""
    axes = tuple(range(-depth, 0))
    xc = x - mean_op(x, axis=axes, keepdims=True) if centred else x
    rstd = rsqrt(mean_op(xc * xc, axis=axes, keepdims=True) + eps)
    xn = xc * rstd
    gw = g if weight is None else g * weight
    dx = gw - xn * mean_op(gw * xn, axis=axes, keepdims=True)
    if centred:
        dx = dx - mean_op(gw, axis=axes, keepdims=True)
    return rstd * dx, g * xn


def beside_rows(numbers: Any, x: Any, depth: int) -> Any:
    """One number for each row of x, in a shape that broadcasts to it."""
    return reshape(numbers, (*x.shape[: len(x.shape) - depth], *(1,) * depth))


# ---- the ops -----------------------------------------------------------------------------------------------------------------
@form(mixes=0)
@custom(inputs=3, name="row_layer_norm", title="layer_norm", internal=True)
def layer_norm_op(x, weight=None, bias=None, eps=1e-5, normalized_shape=None, dtype=None):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes (Ba et al. 2016, arXiv:1607.06450).
    `normalized_shape` (default: that of weight or bias, else the last size) says which axes; weight and bias have it too.
    `dtype`: what the result is rounded to, where it is another than the inputs'."""
    y, mean, rstd, cols, small, depth = started("layer_norm", (x,), weight, bias, eps, normalized_shape, dtype)
    over_rows(bodies.layer_norm_row, (y, mean, rstd), (x, weight, bias), cols, small, mean.dtype)
    return y, {"mean": mean, "rstd": rstd, "depth": depth}


@layer_norm_op.backward
def layer_norm_dx(g, x, weight, mean, rstd, depth, wanted, into, shapes):
    return norm_backward((g, None, x, weight, mean, rstd), depth, wanted[1:], into[1:], shapes[1:])


layer_norm_op.graph(lambda g, x, weight, depth, eps: (*norm_graph(g, x, weight, depth, eps, True), g))


@form(mixes=0)
@custom(inputs=4, internal=True)
def residual_layer_norm(x, residual=None, weight=None, bias=None, eps=1e-5, normalized_shape=None, dtype=None):
    """(s, layer_norm(s)) with s = x + residual, or s = x without a residual: a residual stream and what the next layer reads.
    Backward adds the cotangents of both in one launch. The axes and `dtype`, that of the norm, are those of layer_norm."""
    y, mean, rstd, cols, small, depth = started("residual_layer_norm", (x, residual), weight, bias, eps, normalized_shape, dtype)
    if residual is None:
        s = share(x, x.shape)
        over_rows(bodies.layer_norm_row, (y, mean, rstd), (x, weight, bias), cols, small, mean.dtype)
    else:
        s = like(x, dtype=together((x, residual)))
        body = bodies.half_residual_norm_row if s.dtype in HALF else bodies.residual_norm_row
        over_rows(body, (s, y, mean, rstd), (x, residual, weight, bias), cols, small, mean.dtype)
    return (s, y), {"mean": mean, "rstd": rstd, "depth": depth}


@residual_layer_norm.backward
def residual_layer_norm_dx(gs, y, weight, mean, rstd, depth, wanted, into, shapes):
    g_s, g_y = gs  # here y, the first output, is s
    if g_y is None:
        return g_s, g_s, None, None
    ds, dw, db = norm_backward((g_y, g_s, y, weight, mean, rstd), depth, wanted[2:], into[2:], shapes[2:])
    return ds, ds, dw, db


@residual_layer_norm.graph
def residual_layer_norm_ddx(gs, y, weight, depth, eps):
    g_s, g_y = gs
    if g_y is None:
        return g_s, g_s, None, None
    ds, dw = norm_graph(g_y, y, weight, depth, eps, True)
    ds = ds if g_s is None else ds + g_s
    return ds, ds, dw, g_y


@form(mixes=0)
@custom(inputs=4, title="residual_layer_norm", internal=True)
def rounding_layer_norm(x, residual=None, weight=None, bias=None, eps=1e-5, normalized_shape=None, dtype=None):
    """residual_layer_norm() of a float32 stream whose norm is rounded to `dtype`, which has 16 bits. So is what backward reads of the
    stream: the normalised rows, in place of s."""
    y, mean, rstd, cols, small, depth = started("residual_layer_norm", (x, residual), weight, bias, eps, normalized_shape, dtype)
    xn, s = like(y), share(x, x.shape) if residual is None else like(x, dtype=float32)
    added = None if residual is None else s
    over_rows(bodies.rounding_norm_row, (y, xn, mean, rstd, added), (x, residual, weight, bias), cols, small, mean.dtype)
    return (s, y), {"xn": xn, "mean": mean, "rstd": rstd, "depth": depth}


@rounding_layer_norm.backward
def rounding_layer_norm_dx(gs, xn, weight, mean, rstd, depth, wanted, into, shapes):
    g_s, g_y = gs
    if g_y is None:
        return g_s, g_s, None, None
    ins = (g_y, g_s, xn, weight, mean, rstd)
    ds, dw, db = norm_backward(ins, depth, wanted[2:], into[2:], shapes[2:], bodies.kept_norm_dx_row)
    return ds, ds, dw, db


@rounding_layer_norm.graph
def rounding_layer_norm_ddx(gs, xn, weight, mean, rstd, depth, eps, as_y):
    s = xn / beside_rows(rstd, xn, depth) + beside_rows(sum_op(mean, axis=1), xn, depth)
    return residual_layer_norm_ddx(gs, as_y(s), weight, depth, eps)


@remade(rounding_layer_norm, 1)
def rounding_layer_norm_y(xn, weight, bias, depth):
    y = like(xn)
    over_rows(bodies.remade_norm_row, (y,), (xn, weight, bias), math.prod(xn.shape[len(xn.shape) - depth :]), (), computed(xn.dtype))
    return y


def residual_norm_in(dtype: Any, x: Any, residual: Any, weight: Any, bias: Any, eps: float, shape: tuple[int, ...]) -> Any:
    """residual_layer_norm() whose norm is rounded to `dtype`, which may be None."""
    x = x if isinstance(x, Tensor) else Tensor.of("layer_norm", x, None if weight is None else weight.device)
    run = rounding_layer_norm if dtype in HALF and together((x, residual)) == float32 else residual_layer_norm
    return run(x, residual, weight, bias, eps, shape, dtype)


@form(mixes=0)
@custom(inputs=2, name="row_rms_norm", title="rms_norm", internal=True)
def rms_norm_op(x, weight=None, eps=1e-5, normalized_shape=None, dtype=None):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang & Sennrich 2019, arXiv:1910.07467)."""
    y, _, rstd, cols, small, depth = started("rms_norm", (x,), weight, None, eps, normalized_shape, dtype)
    over_rows(bodies.rms_norm_row, (y, rstd), (x, weight), cols, small, rstd.dtype)
    return y, {"rstd": rstd, "depth": depth}


@rms_norm_op.backward
def rms_norm_dx(g, x, weight, rstd, depth, wanted, into, shapes):
    dx, dw, _ = norm_backward((g, None, x, weight, None, rstd), depth, (wanted[1], False), (into[1], None), [shapes[1], ()])
    return dx, dw


rms_norm_op.graph(lambda g, x, weight, depth, eps: norm_graph(g, x, weight, depth, eps, False))


@form(mixes=0)
@custom(inputs=2, title="rms_norm", internal=True)
def rounding_rms_norm(x, weight=None, eps=1e-5, normalized_shape=None, dtype=None):
    """(x, rms_norm(x)) of a float32 x, the norm rounded to `dtype`, which has 16 bits. So is what backward reads: the normalised rows, in
    place of x."""
    y, _, rstd, cols, small, depth = started("rms_norm", (x,), weight, None, eps, normalized_shape, dtype)
    xn = like(y)
    over_rows(bodies.rounding_rms_row, (y, xn, rstd), (x, weight), cols, small, rstd.dtype)
    return (share(x, x.shape), y), {"xn": xn, "rstd": rstd, "depth": depth}


@rounding_rms_norm.backward
def rounding_rms_norm_dx(gs, xn, weight, rstd, depth, wanted, into, shapes):
    g_x, g_y = gs
    if g_y is None:
        return g_x, None
    ins = (g_y, g_x, xn, weight, None, rstd)
    dx, dw, _ = norm_backward(ins, depth, (wanted[1], False), (into[1], None), [shapes[1], ()], bodies.kept_norm_dx_row)
    return dx, dw


@rounding_rms_norm.graph
def rounding_rms_norm_ddx(gs, xn, weight, rstd, depth, eps, as_y):
    g_x, g_y = gs
    if g_y is None:
        return g_x, None
    dx, dw = norm_graph(g_y, as_y(xn / beside_rows(rstd, xn, depth)), weight, depth, eps, False)
    return dx if g_x is None else dx + g_x, dw


@remade(rounding_rms_norm, 1)
def rounding_rms_norm_y(xn, weight, depth):
    return rounding_layer_norm_y(xn, weight, None, depth)


# ---- as users call them: torch.nn.functional's order of arguments, or the weights straight after x -----------------------------
def tensors_or_none(name: str, x: Any, *weights: Any) -> list[Any]:
    """x and its weights as Tensors on one device; None stays None."""
    x = Tensor.of(name, x)
    return [x, *[None if w is None else Tensor.of(name, w, x.device) for w in weights]]


@composed(home="functional")
def layer_norm(x: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes (Ba et al. 2016, arXiv:1607.06450).
    normalized_shape: the sizes of those axes (default: the weight's, else the last). layer_norm(x, weight, bias) works too.
    Shapes: x (..., *normalized_shape), weight and bias normalized_shape; the result has x's. Integers give float32. Raises ShapeError.
    >>> [round(v, 2) for v in F.layer_norm(fp.tensor([1.0, 3.0])).tolist()]
    [-1.0, 1.0]"""
    shape = normalized_shape
    if isinstance(shape, Tensor | np.ndarray) and shape.dtype.kind in "fV":  # sizes are whole numbers: it is the weight
        if weight is not None and bias is not None:
            raise TypeError("layer_norm: two weights: one in the place of normalized_shape. Call layer_norm(x, shape, weight, bias).")
        shape, weight, bias = None, shape, weight if bias is None else bias
    return layer_norm_in(None, x, shape, weight, bias, eps)


def layer_norm_in(dtype: Any, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """layer_norm() with a result that is rounded to `dtype`, which may be None."""
    x, weight, bias = tensors_or_none("layer_norm", x, weight, bias)
    shape = norm_shape(x, weight, bias, shape)
    if dtype in HALF and x.dtype == float32:
        return rounding_layer_norm(x, None, weight, bias, float(eps), shape, dtype)[1]
    return layer_norm_op(x, weight, bias, checked_number("layer_norm", "eps", eps), shape, dtype)


@composed(home="functional")
def rms_norm(x: Any, normalized_shape: Any = None, weight: Any = None, eps: float = 1e-5) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang & Sennrich 2019, arXiv:1910.07467).
    normalized_shape as in layer_norm; rms_norm(x, weight) works too. PyTorch's eps is finfo(x.dtype).eps where none is given.
    Shapes: x (..., *normalized_shape), weight normalized_shape; the result has x's. Integers give float32. Raises ShapeError.
    >>> [round(v, 2) for v in F.rms_norm(fp.tensor([1.0, 7.0])).tolist()]
    [0.2, 1.4]"""
    shape = normalized_shape
    if isinstance(shape, Tensor | np.ndarray) and shape.dtype.kind in "fV":  # sizes are whole numbers: it is the weight
        if weight is not None:
            raise TypeError("rms_norm: two weights: one in the place of normalized_shape. Call rms_norm(x, shape, weight).")
        shape, weight = None, shape
    return rms_norm_in(None, x, shape, weight, eps)


def rms_norm_in(dtype: Any, x: Any, shape: Any, weight: Any, eps: float) -> Any:
    """rms_norm() with a result that is rounded to `dtype`, which may be None."""
    x, weight = tensors_or_none("rms_norm", x, weight)
    shape = norm_shape(x, weight, None, shape)
    if dtype in HALF and x.dtype == float32:
        return rounding_rms_norm(x, weight, float(eps), shape, dtype)[1]
    return rms_norm_op(x, weight, checked_number("rms_norm", "eps", eps), shape, dtype)
