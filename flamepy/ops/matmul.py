"""Matrix products: matmul, and linear with what may follow it in the same launch: bias, activation, residual.

Loops in backend/cpu/matmul.py; the arithmetic is a single-threaded BLAS on tiles. The activation's formulas are those of its
own op, found in the registry.

May import: errors, backend, op, op_pointwise. FLAME counterpart: `flame_core::ops::gemm`. Read next: rows.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..backend.plans import ALONE, NOTHING, RESULT, SUM
from ..dtypes import FLOATS, float32
from ..errors import DTypeError, GradientError, ShapeError
from ..op import base as op
from ..op.base import composed, launch, like, share, size_of
from ..op.custom import custom
from ..op.pointwise import Pointwise, on_tensors


@custom(inputs=2, home="")
def product(a, b, ta=False, tb=False):
    """op(a) @ op(b) over the last two axes, other axes broadcasting; ta, tb: use the matrix transposed."""
    shape, count, *offsets, m, n, k = product_plan(a.shape, b.shape, ta, tb)
    y = like(a, shape)
    if y.buffer.size:
        tables = a.device.table(offsets[0]), a.device.table(offsets[1])
        launch("matmul", None, (y,), (a, b), (*tables, count, m, n, k, bool(ta), bool(tb)), work=flops(count * m * n, k))
    return y


@lru_cache(4096)
def product_plan(a: tuple[int, ...], b: tuple[int, ...], ta: bool, tb: bool) -> tuple[Any, ...]:
    """(shape of the result, number of matrices, where each of a's and of b's begins, m, n, k) for inputs of these shapes."""
    m, k = a[-2:] if not ta else a[:-3:-1]
    n = b[-2] if tb else b[-1]
    batch = np.broadcast_shapes(a[:-2], b[:-2])
    return (*batch, m, n), size_of(batch), offsets_of(a, batch), offsets_of(b, batch), m, n, k


def flops(results: int, inner: int) -> int:
    """Work of a product in elements of a map: a BLAS does some 32 multiplications in the time a map takes for one element."""
    return results * (inner + 31) // 32


def offsets_of(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    """Where each matrix of the broadcast stack begins."""
    own = np.arange(size_of(shape[:-2])).reshape(shape[:-2]) * size_of(shape[-2:])
    return tuple(np.broadcast_to(own, batch).ravel().tolist())


@product.backward
def product_dx(g, a, b, wanted, ta, tb):
    p = op.REGISTRY["product"]
    da = None if not wanted[0] else p(b, g, tb, True) if ta else p(g, b, False, not tb)
    db = None if not wanted[1] else p(g, a, True, ta) if tb else p(a, g, not ta, False)
    return da, db


product.differentiable()


@composed
def matmul(a: Any, b: Any) -> Any:
    """a @ b: vectors, matrices, and stacks of matrices that broadcast. Raises ShapeError, DTypeError for integers."""
    a, b = op.Tensor.of("matmul", a), op.Tensor.of("matmul", b)
    if a.dtype is b.dtype is float32 and len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0]:
        return product(a, b)
    for x in (a, b):
        if x.dtype not in FLOATS:
            raise DTypeError(f"matmul: needs floats: {x.dtype}. Cast with .to(flamepy.float32).")
        if not x.ndim:
            raise ShapeError(f"matmul: needs at least one axis: {a.shape} and {b.shape}. Use * for scalars.")
    inner = b.shape[0] if b.ndim == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        hint = "Multiply by w.T." if b.ndim > 1 and b.shape[-1] == a.shape[-1] else "Make x's last size equal to w's next to last."
        raise ShapeError(f"matmul: inner sizes differ: x is {a.shape}, w is {b.shape}. {hint}")
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ShapeError(f"matmul: stacks do not broadcast: {a.shape} and {b.shape}. Make the leading sizes equal or 1.") from None
    rows = a.shape[:-1] if b.ndim <= 2 else a.shape[:-2] if a.ndim == 1 else None
    left = ops.reshape(a, (1, -1) if a.size else (1, a.shape[0])) if a.ndim == 1 else a
    right = ops.reshape(b, (b.shape[0], 1)) if b.ndim == 1 else b
    if right.ndim == 2 and left.ndim > 2:  # one weight for all: a single product of many rows
        left = ops.reshape(left, (size_of(left.shape[:-1]), left.shape[-1]))
    y = op.REGISTRY["product"](left, right)
    columns = () if b.ndim == 1 else (b.shape[-1],)
    if b.ndim <= 2:
        return ops.reshape(y, (*(rows or ()), *columns)) if y.shape != (*(rows or ()), *columns) else y
    return ops.reshape(y, (*y.shape[:-2], y.shape[-1])) if a.ndim == 1 else y


def same(z):
    """What a linear layer without activation computes last."""
    return z


class Follower(NamedTuple):
    """An activation that linear() can compute: its two formulas, and what the derivative reads (SUM or RESULT of the loop)."""

    formula: Any
    derivative: Any
    keep: int


@lru_cache(64)
def follower(name: str) -> Follower:
    """The pointwise op of that name as a linear layer's activation. Raises ValueError if it cannot be one."""
    if not name:
        return Follower(same, None, NOTHING)
    found = op.REGISTRY.get(name)
    if not isinstance(found, Pointwise) or found.attributes or [(n[0], len(n)) for n in found.names] != [("g", 2)]:
        known = [n for n in ("gelu_erf", "gelu_tanh", "relu", "sigmoid", "silu", "tanh") if n in op.REGISTRY]
        raise ValueError(f"linear: not an activation: {name!r}. Use one of {', '.join(known)}.")
    return Follower(found.formula, found.rule[0], RESULT if "y" in found.names[0] else SUM)


@custom(inputs=4, home="functional")
def linear(x, weight, bias=None, residual=None, activation="", keep=True):
    """activation(x @ weight.T + bias) + residual: x (..., n_in), weight (n_out, n_in), bias (n_out), residual as the result, or None.

    activation: the name of a pointwise op, e.g. "relu", "gelu_erf" (gelu), "gelu_tanh", "silu"; "" for none. keep=False: there will
    be no backward, so keep nothing for it.
    """
    plan = linear_plan(x.shape, weight.shape, bias is not None and bias.shape, residual is not None and residual.shape, activation, keep)
    y = like(x, plan.shape)
    kept = like(y) if plan.keep > ALONE else share(y, y.shape) if keep and plan.keep == ALONE else None
    if y.buffer.size:
        ins = (x, weight, x if bias is None else bias, x if residual is None else residual)
        launch("linear", plan.formula, (y, y if kept is None else kept), ins, plan.consts, work=plan.work)
    return y, {"kept": kept}


class LinearPlan(NamedTuple):
    """What a linear layer's launch needs beside its inputs."""

    shape: tuple[int, ...]
    formula: Any
    keep: int
    consts: tuple
    work: int


@lru_cache(4096)
def linear_plan(x: Any, weight: Any, bias: Any, residual: Any, activation: str, keep: bool) -> LinearPlan:
    """For inputs of these shapes (False: not given). Raises ShapeError, ValueError."""
    if len(weight) != 2 or not x or x[-1] != weight[1] or (bias is not False and bias != weight[:1]):
        given = "" if bias is False else f", bias is {bias}"
        raise ShapeError(
            f"linear: sizes differ: x is {x}, weight is {weight}{given}. Use x (..., n_in), weight (n_out, n_in), bias (n_out,)."
        )
    n_out, n_in = weight
    shape, rows = (*x[:-1], n_out), size_of(x[:-1])
    if residual is not False and residual != shape:
        raise ShapeError(f"linear: residual has another shape than the result: {residual}, expected {shape}. Add it afterwards.")
    act = follower(activation)
    what = act.keep if keep and not (act.keep == RESULT and residual is False) else min(act.keep, ALONE)
    flags = (False, bias is not False, residual is not False, what)
    return LinearPlan(shape, act.formula, what, (rows, n_out, n_in, *flags), flops(rows * n_out, n_in))


@linear.backward
def linear_dx(g, x, weight, bias, kept, wanted, into, activation):
    n_out, n_in = weight.shape
    rows = size_of(x.shape[:-1])
    dz, dx, db = g, None, None
    if wanted[0]:
        dx = like(x)
    if activation and kept is None:
        raise GradientError("linear: nothing was kept for a backward: keep=False. Leave keep out.")
    if activation:
        dz = derived(g, kept, weight, dx, rows, follower(activation).derivative)
    elif wanted[0] and dx.size:
        sizes = (rows, n_in, n_out, True, False, False, NOTHING)
        launch("linear", same, (dx, dx), (g, weight, g, g), sizes, work=flops(rows * n_in, n_out))
    if not wanted[1]:
        return dx, None, ops.sum(share(dz, (rows, n_out)), axis=0) if wanted[2] else None, g
    dw, add_w = into[1] or (like(weight), False)
    db, add_b = (into[2] or (like(weight, (n_out,)), False)) if wanted[2] else (dw, False)
    flags = (wanted[2], add_w, add_b)
    launch("linear_dw", None, (dw, db), (dz, x), (rows, n_out, n_in, *flags), work=flops(rows * n_out, n_in))
    return dx, dw, db if wanted[2] else None, g


def derived(g: Any, kept: Any, weight: Any, dx: Any, rows: int, derivative: Any) -> Any:
    """The cotangent before the activation; with a dx, that too in the same launch."""
    n_out, n_in = weight.shape
    dz = like(g)
    if dx is not None and dx.size:
        launch("linear_dx", derivative, (dx, dz), (g, kept, weight), (rows, n_out, n_in), work=flops(rows * n_in, n_out))
    elif dz.size:
        launch("map2", derivative, (dz,), (g, kept))
    return dz


@linear.graph
def linear_ddx(g, x, weight, bias, wanted, activation):
    n_out, n_in = weight.shape
    rows = size_of(x.shape[:-1])
    dz = g
    if activation:
        act, z = op.REGISTRY[activation], op.REGISTRY["linear"](x, weight, bias)
        values = {"g": g, act.inputs[0]: z, "y": act(z) if "y" in act.names[0] else None}
        dz = on_tensors(act.rule[0], g.dtype)(*[values[name] for name in act.names[0]])
    g2, x2 = ops.reshape(dz, (rows, n_out)), ops.reshape(x, (rows, n_in))
    dx = ops.reshape(ops.matmul(g2, weight), x.shape) if wanted[0] else None
    dw = op.REGISTRY["product"](g2, x2, True, False) if wanted[1] else None
    return dx, dw, ops.sum(g2, axis=0) if wanted[2] else None, g
