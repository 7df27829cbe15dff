"""Row ops: softmax, log_softmax, layer_norm, rms_norm. A body is written once, over one row, for every backend.

A body gets the row number, outs, ins and constants, then the number of rows and their length; arrays are flat, and it reads and
writes its row through slices. `lane() lanes() all_sum() all_max() barrier()` share a row between workers
(backend/row_words.py). Beside each fused backward stands the same rule in differentiable ops, for create_graph.

May import: errors, backend, op. FLAME counterpart: `flame_core::norm`, `flame_core::ops::softmax`. Read next: losses.py.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..backend.row_words import all_max, all_sum, lane, lanes
from ..backend.words import INF, exp, fmax, log, real, sqrt
from ..errors import ShapeError
from ..op import launch, like, share, size_of
from ..op_custom import custom
from .reduce import one_axis


def along(name: str, x: Any, axis: int) -> tuple[Any, int]:
    """x with `axis` moved to the end, and the axis as a non-negative int."""
    a = one_axis(name, axis, x.ndim)
    return (x if a >= x.ndim - 1 else ops.transpose(x, a, -1)), a


def back(y: Any, a: int) -> Any:
    return y if a >= y.ndim - 1 else ops.transpose(y, a, -1)


def over_rows(body: Any, outs: tuple, ins: tuple, cols: int, consts: tuple = ()) -> None:
    """Run a body over all rows of the first input."""
    rows = ins[0].size // cols if cols else 0
    if rows:
        launch("row", body, outs, ins, (*consts, rows, cols), work=ins[0].size)


# ---- softmax -----------------------------------------------------------------------------------------------------------------
def softmax_row(r, y, x, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    top = -INF
    for j in range(lane(), cols, lanes()):
        top = fmax(top, x[j])
    top = all_max(top)
    total = 0.0
    for j in range(lane(), cols, lanes()):
        e = exp(x[j] - top)
        y[j] = e
        total += e
    scale = 1.0 / all_sum(total)
    for j in range(lane(), cols, lanes()):
        y[j] *= scale


def softmax_dx_row(r, dx, g, y, rows, cols):
    dx, g, y = dx[r * cols : r * cols + cols], g[r * cols : r * cols + cols], y[r * cols : r * cols + cols]
    dot = 0.0
    for j in range(lane(), cols, lanes()):
        dot += g[j] * y[j]
    dot = all_sum(dot)
    for j in range(lane(), cols, lanes()):
        dx[j] = y[j] * (g[j] - dot)


@custom(inputs=1, home="both")
def softmax(x, axis=-1):
    """exp(x) / sum(exp(x)) along one axis, without overflow."""
    x, a = along("softmax", x, axis)
    y = like(x)
    over_rows(softmax_row, (y,), (x,), x.shape[-1] if x.ndim else 1)
    return back(y, a)


@softmax.backward
def softmax_dx(g, y, axis):
    g, a = along("softmax", g, axis)
    y, _ = along("softmax", y, axis)
    dx = like(g)
    over_rows(softmax_dx_row, (dx,), (g, y), g.shape[-1] if g.ndim else 1)
    return back(dx, a)


@softmax.graph
def softmax_ddx(g, y, axis):
    return y * (g - ops.sum(g * y, axis=axis, keepdims=True))


def log_softmax_row(r, y, x, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    top = -INF
    for j in range(lane(), cols, lanes()):
        top = fmax(top, x[j])
    top = all_max(top)
    total = 0.0
    for j in range(lane(), cols, lanes()):
        total += exp(x[j] - top)
    shift = log(all_sum(total))
    for j in range(lane(), cols, lanes()):
        y[j] = (x[j] - top) - shift


def log_softmax_dx_row(r, dx, g, y, rows, cols):
    dx, g, y = dx[r * cols : r * cols + cols], g[r * cols : r * cols + cols], y[r * cols : r * cols + cols]
    total = 0.0
    for j in range(lane(), cols, lanes()):
        total += g[j]
    total = all_sum(total)
    for j in range(lane(), cols, lanes()):
        dx[j] = g[j] - exp(y[j]) * total


@custom(inputs=1, home="both")
def log_softmax(x, axis=-1):
    """log(softmax(x)) along one axis, accurate where softmax is tiny."""
    x, a = along("log_softmax", x, axis)
    y = like(x)
    over_rows(log_softmax_row, (y,), (x,), x.shape[-1] if x.ndim else 1)
    return back(y, a)


@log_softmax.backward
def log_softmax_dx(g, y, axis):
    g, a = along("log_softmax", g, axis)
    y, _ = along("log_softmax", y, axis)
    dx = like(g)
    over_rows(log_softmax_dx_row, (dx,), (g, y), g.shape[-1] if g.ndim else 1)
    return back(dx, a)


@log_softmax.graph
def log_softmax_ddx(g, y, axis):
    return g - ops.exp(y) * ops.sum(g, axis=axis, keepdims=True)


# ---- norms -------------------------------------------------------------------------------------------------------------------
def normalized(name: str, x: Any, shape: Any, *weights: Any) -> int:
    """Elements in a normalised row. Raises ShapeError unless x ends in `shape` and the weights have it."""
    shape = (shape,) if hasattr(shape, "__index__") else tuple(shape) if shape is not None else x.shape[-1:]
    if not shape or x.shape[x.ndim - len(shape) :] != shape or any([w is not None and w.shape != shape for w in weights]):
        given = [None if w is None else w.shape for w in weights]
        raise ShapeError(f"{name}: sizes differ: x is {x.shape}, normalised shape {shape}, weights {given}. x must end in that shape.")
    return size_of(shape)


def layer_norm_row(r, y, mean, rstd, x, w, b, has_w, has_b, eps, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    total = 0.0
    for j in range(lane(), cols, lanes()):
        total += x[j]
    m = all_sum(total) / real(cols)
    total = 0.0
    for j in range(lane(), cols, lanes()):
        total += (x[j] - m) * (x[j] - m)
    s = 1.0 / sqrt(all_sum(total) / real(cols) + eps)
    mean[r] = m
    rstd[r] = s
    for j in range(lane(), cols, lanes()):
        y[j] = (x[j] - m) * s
    if has_w:
        for j in range(lane(), cols, lanes()):
            y[j] *= w[j]
    if has_b:
        for j in range(lane(), cols, lanes()):
            y[j] += b[j]


def norm_dx_row(r, dx, g, x, w, mean, rstd, has_w, centred, rows, cols):
    dx, g, x = dx[r * cols : r * cols + cols], g[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    m, s = mean[r], rstd[r]
    if has_w:
        for j in range(lane(), cols, lanes()):
            dx[j] = g[j] * w[j]
    else:
        for j in range(lane(), cols, lanes()):
            dx[j] = g[j]
    total, dot = 0.0, 0.0
    for j in range(lane(), cols, lanes()):
        total += dx[j]
        dot += dx[j] * ((x[j] - m) * s)
    shift = all_sum(total) / real(cols) if centred else 0.0
    dot = all_sum(dot) / real(cols)
    for j in range(lane(), cols, lanes()):
        dx[j] = s * (dx[j] - shift - (x[j] - m) * s * dot)


def norm_backward(g: Any, x: Any, weight: Any, mean: Any, rstd: Any, wanted: tuple, cols: int, centred: bool) -> tuple[Any, Any]:
    """dx and dw of a norm; dw sums g times the normalised x over the rows."""
    dx = dw = None
    if wanted[0]:
        dx = like(x)
        over_rows(norm_dx_row, (dx,), (g, x, g if weight is None else weight, mean, rstd), cols, (weight is not None, centred))
    if wanted[1]:
        dw = norm_dw(g, x, mean, rstd, cols)
    return dx, dw


def norm_dw(g: Any, x: Any, mean: Any, rstd: Any, cols: int) -> Any:
    rows = x.size // cols if cols else 0
    xn = ops.mul(ops.sub(share(x, (rows, cols)), share(mean, (rows, 1))), share(rstd, (rows, 1)))
    return ops.sum(ops.mul(xn, share(g, (rows, cols))), axis=0)


@custom(inputs=3, home="")
def layer_norm(x, weight=None, bias=None, eps=1e-5, normalized_shape=None):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axes (Ba et al. 2016, arXiv:1607.06450).

    `normalized_shape` (default: that of weight or bias, else the last size) says which axes; weight and bias have it too.
    """
    shape = norm_shape(x, weight, bias, normalized_shape)
    cols = normalized("layer_norm", x, shape, weight, bias)
    rows = x.size // cols if cols else 0
    y, mean, rstd = like(x), like(x, (rows,)), like(x, (rows,))
    w, b = x if weight is None else weight, x if bias is None else bias
    over_rows(layer_norm_row, (y, mean, rstd), (x, w, b), cols, (weight is not None, bias is not None, x.dtype.type(eps)))
    return y, {"mean": mean, "rstd": rstd}


def norm_shape(x: Any, weight: Any, bias: Any, shape: Any) -> Any:
    return shape if shape is not None else weight.shape if weight is not None else bias.shape if bias is not None else x.shape[-1:]


@layer_norm.backward
def layer_norm_dx(g, x, weight, bias, mean, rstd, wanted, normalized_shape):
    shape = norm_shape(x, weight, bias, normalized_shape)
    cols = normalized("layer_norm", x, shape)
    dx, dw = norm_backward(g, x, weight, mean, rstd, wanted, cols, True)
    db = ops.sum(share(g, (x.size // cols if cols else 0, cols)), axis=0) if wanted[2] else None
    return dx, dw if dw is None else share(dw, weight.shape), db if db is None else share(db, bias.shape)


@layer_norm.graph
def layer_norm_ddx(g, x, weight, bias, eps, normalized_shape):
    shape = norm_shape(x, weight, bias, normalized_shape)
    axes = tuple(range(-len(tuple(shape) if not hasattr(shape, "__index__") else (shape,)), 0))
    centred = x - ops.mean(x, axis=axes, keepdims=True)
    rstd = ops.rsqrt(ops.mean(centred * centred, axis=axes, keepdims=True) + eps)
    xn = centred * rstd
    gw = g if weight is None else g * weight
    dx = rstd * (gw - ops.mean(gw, axis=axes, keepdims=True) - xn * ops.mean(gw * xn, axis=axes, keepdims=True))
    return dx, None if weight is None else g * xn, None if bias is None else g


def rms_norm_row(r, y, mean, rstd, x, w, has_w, eps, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    total = 0.0
    for j in range(lane(), cols, lanes()):
        total += x[j] * x[j]
    s = 1.0 / sqrt(all_sum(total) / real(cols) + eps)
    mean[r] = 0.0
    rstd[r] = s
    if has_w:
        for j in range(lane(), cols, lanes()):
            y[j] = x[j] * s * w[j]
    else:
        for j in range(lane(), cols, lanes()):
            y[j] = x[j] * s


@custom(inputs=2, home="")
def rms_norm(x, weight=None, eps=1e-5, normalized_shape=None):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes (Zhang & Sennrich 2019, arXiv:1910.07467)."""
    shape = norm_shape(x, weight, None, normalized_shape)
    cols = normalized("rms_norm", x, shape, weight)
    rows = x.size // cols if cols else 0
    y, mean, rstd = like(x), like(x, (rows,)), like(x, (rows,))
    over_rows(rms_norm_row, (y, mean, rstd), (x, x if weight is None else weight), cols, (weight is not None, x.dtype.type(eps)))
    return y, {"mean": mean, "rstd": rstd}


@rms_norm.backward
def rms_norm_dx(g, x, weight, mean, rstd, wanted, normalized_shape):
    shape = norm_shape(x, weight, None, normalized_shape)
    cols = normalized("rms_norm", x, shape)
    dx, dw = norm_backward(g, x, weight, mean, rstd, wanted, cols, False)
    return dx, dw if dw is None else share(dw, weight.shape)


@rms_norm.graph
def rms_norm_ddx(g, x, weight, eps, normalized_shape):
    shape = norm_shape(x, weight, None, normalized_shape)
    axes = tuple(range(-len(tuple(shape) if not hasattr(shape, "__index__") else (shape,)), 0))
    rstd = ops.rsqrt(ops.mean(x * x, axis=axes, keepdims=True) + eps)
    gw = g if weight is None else g * weight
    dx = rstd * (gw - x * rstd * rstd * ops.mean(gw * x, axis=axes, keepdims=True))
    return dx, None if weight is None else g * x * rstd
