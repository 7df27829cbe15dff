"""Scaled dot-product attention, on (..., rows, width) tensors and on one fused buffer of queries, keys and values.

Loops in backend/cpu/attention.py. A layout says where each operand sits, so the fused form moves nothing about. Beside y only one
number a row is kept for the backward rule, lse; it computes the softmax again. Memory is linear in rows and keys.

May import: errors, backend, op, ops.shape. FLAME counterpart: `flame_core::attention::sdpa`. Read next: conv.py.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..backend.base import Device
from ..backend.plans import AttentionPlan, attention_plan, fused_layout, heads_layout, partial_layout
from ..dtypes import FLOATS, bool_
from ..errors import DTypeError, ShapeError
from ..op import base as op
from ..op.base import composed, launch, like, new, size_of
from ..op.custom import custom
from .shape import contiguous_strides

Shape = tuple[int, ...]


class Geometry(NamedTuple):
    """sizes: batch, heads, rows, keys, widths of q and v; the plans and tables of the loops."""

    is_causal: bool
    sizes: Shape
    forward: AttentionPlan
    backward: AttentionPlan
    table: Any
    table_dx: Any
    table_sum: Any


def geometry(where: Device, is_causal: bool, sizes: Shape, q: Shape, k: Shape, v: Shape, y: Shape, mask: Shape = (0,) * 5) -> Geometry:
    """From layouts; the gradients of q, k, v lie as q, k, v do, y and its cotangent alike."""
    forward, backward = attention_plan(sizes, is_causal, "y"), attention_plan(sizes, is_causal, "dx")
    parts = (*k, *v) if backward.chunks == 1 else partial_layout(sizes[1], *sizes[3:])
    tables = (*q, *k, *v, *y, *mask), (*q, *k, *v, *y, *q, *parts, *mask), (*k, *v)
    return Geometry(bool(is_causal), sizes, forward, backward, *[where.table(t) for t in tables])


@lru_cache(256)
def apart(where: Device, is_causal: bool, q: Shape, v: Shape, mask: Shape | None) -> Geometry:
    """Of contiguous q (B, H, L, D), k (B, H, S, D), v (B, H, S, Dv), and a mask (B or 1, H or 1, L or 1, S or 1)."""
    (batch, heads, rows, d), (keys, dv) = q, v[2:]
    each = [heads_layout(heads, *size) for size in ((rows, d), (keys, d), (keys, dv), (rows, dv))]
    if mask is not None:  # a step of 0 along an axis that is broadcast
        each.append((0, *[0 if n == 1 else s for n, s in zip(mask, contiguous_strides(mask), strict=True)]))
    return geometry(where, is_causal, (batch, heads, rows, keys, d, dv), *each)


@lru_cache(256)
def fused(where: Device, is_causal: bool, qkv: Shape, heads: int) -> Geometry:
    """Of one buffer (B, T, 3 * heads * D)."""
    (batch, rows), d = qkv[:2], qkv[2] // (3 * heads)
    each = [*[fused_layout(heads, rows, d, 3, part) for part in range(3)], fused_layout(heads, rows, d, 1)]
    return geometry(where, is_causal, (batch, heads, rows, rows, d, d), *each)


def work(sizes: Shape) -> int:
    return size_of(sizes[:4]) * max(1, sizes[4] + sizes[5])


def forward_into(y: Any, q: Any, k: Any, v: Any, mask: Any, how: Geometry, scale: float) -> Any:
    """y = softmax(scale q k^T + mask) v. Returns lse, (B, H, rows)."""
    plan, sizes = how.forward, how.sizes
    lse, scratch = like(y, sizes[:3]), like(y, (plan.scratch,))
    consts = (how.table, *sizes, y.dtype.type(scale), plan.height, plan.width, plan.groups, how.is_causal, mask is not None)
    launch("attention", None, (y, lse, scratch), (q, k, v, q if mask is None else mask), consts, work=work(sizes))
    return lse


def backward_into(outs: tuple, ins: tuple, how: Geometry, scale: float, keep: bool = False) -> Any:
    """outs: dq, dk, dv; ins: g, y, lse, q, k, v, mask. Returns the gradient of the mask if `keep`."""
    plan, sizes, lse, mask = how.backward, how.sizes, ins[2], ins[6]
    dq, dk, dv = outs
    scratch = like(lse, (plan.scratch,))
    dmask = like(lse, sizes[:4]) if keep else scratch
    if plan.chunks > 1:
        dk = dv = partial = like(lse, (plan.partial,))
    counts = (plan.height, plan.width, plan.groups, plan.chunks, plan.partial // plan.chunks)
    consts = (how.table_dx, *sizes, lse.dtype.type(scale), *counts, how.is_causal, mask is not None, keep)
    launch("attention_dx", None, (dq, dk, dv, dmask, scratch), (*ins[:6], lse if mask is None else mask), consts, work=work(sizes))
    if plan.chunks > 1:
        consts = (how.table_sum, *sizes[:2], *sizes[3:], plan.chunks)
        launch("attention_dx_sum", None, outs[1:], (partial,), consts, work=plan.partial)
    return dmask if keep else None


@custom(inputs=4, home="")
def attention(q, k, v, mask=None, is_causal=False, scale=1.0):
    """softmax(scale q k^T + mask) v for q (B, H, L, D), k (B, H, S, D), v (B, H, S, Dv)."""
    how = apart(q.device, is_causal, q.shape, v.shape, None if mask is None else mask.shape)
    y = like(q, (*q.shape[:3], v.shape[3]))
    return y, {"lse": forward_into(y, q, k, v, mask, how, scale)}


@attention.backward
def attention_dx(g, y, lse, q, k, v, mask, wanted, is_causal, scale):
    how = apart(q.device, is_causal, q.shape, v.shape, None if mask is None else mask.shape)
    outs = like(q), like(k), like(v)
    return *outs, backward_into(outs, (g, y, lse, q, k, v, mask), how, scale, wanted[3])


@custom(inputs=1, home="")
def fused_attention(qkv, heads=1, is_causal=False):
    """Self-attention of qkv (B, T, 3 * heads * D), the output of one linear layer: (B, T, heads * D)."""
    how = fused(qkv.device, is_causal, qkv.shape, heads)
    d = how.sizes[4]
    y = like(qkv, (*qkv.shape[:2], heads * d))
    return y, {"lse": forward_into(y, qkv, qkv, qkv, None, how, scale_of(d))}


@fused_attention.backward
def fused_attention_dx(g, y, lse, qkv, heads, is_causal):
    how, dx = fused(qkv.device, is_causal, qkv.shape, heads), like(qkv)
    backward_into((dx, dx, dx), (g, y, lse, qkv, qkv, qkv, None), how, scale_of(how.sizes[4]))
    return dx


def scale_of(d: int) -> float:
    return 1 / math.sqrt(max(1, d))


@composed(home="both")
def scaled_dot_product_attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, *, is_causal: bool = False, scale: float | None = None
) -> Any:
    """softmax(scale q k^T + mask) v for q (..., L, D), k (..., S, D), v (..., S, Dv): (..., L, Dv).

    Vaswani et al. 2017, arXiv:1706.03762. Leading axes broadcast. `attn_mask` broadcasts to (..., L, S): bool (True: this key may
    be seen) or float (added; it may require grad). `is_causal`: row i sees keys j <= i. `scale` defaults to 1 / sqrt(D). A row
    that sees no key is zero.
    """
    name = "scaled_dot_product_attention"
    q, k, v = (op.Tensor.of(name, x) for x in (q, k, v))
    lead = leading(name, q, k, v)
    if is_causal and attn_mask is not None:
        raise ValueError(f"{name}: both attn_mask and is_causal=True given: mask {op.Tensor.of(name, attn_mask).shape}. Pass one of them.")
    mask = None if attn_mask is None else additive(name, attn_mask, q, lead, (q.shape[-2], k.shape[-2]))
    q4, k4, v4 = (four_axes(x, lead) for x in (q, k, v))
    y = attention(q4, k4, v4, mask, bool(is_causal), scale_of(q.shape[-1]) if scale is None else float(scale))
    return y if len(lead) == 2 else ops.reshape(y, (*lead, q.shape[-2], v.shape[-1]))


def four_axes(x: Any, lead: Shape) -> Any:
    """x broadcast to the leading axes, as (batch, heads, rows, width)."""
    full = (*lead, *x.shape[-2:])
    if x.shape != full:
        x = ops.broadcast_to(x, full)
    return x if len(lead) == 2 else ops.reshape(x, (size_of(lead[:-1]), lead[-1] if lead else 1, *full[-2:]))


def leading(name: str, q: Any, k: Any, v: Any) -> Shape:
    """The common leading axes. Raises ShapeError when sizes do not fit together."""
    if min(q.ndim, k.ndim, v.ndim) < 2 or q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ShapeError(
            f"{name}: sizes differ: q is {q.shape}, k is {k.shape}, v is {v.shape}. Use q (..., L, D), k (..., S, D), v (..., S, Dv)."
        )
    try:
        return np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"{name}: leading axes do not broadcast: q is {q.shape}, k is {k.shape}, v is {v.shape}. Make them equal or 1."
        ) from None


def additive(name: str, mask: Any, q: Any, lead: Shape, last: Shape) -> Any:
    """The mask as floats to be added, with four axes of which some may have size 1."""
    mask = op.Tensor.of(name, mask)
    if mask.dtype != bool_ and mask.dtype not in FLOATS:
        raise DTypeError(f"{name}: the mask is neither bool nor float: {mask.dtype}. Use bool (True: may be seen) or floats to add.")
    full = (*lead, *last)
    own = (1,) * (len(full) - mask.ndim) + mask.shape
    if len(own) != len(full) or any(n not in (1, w) for n, w in zip(own, full, strict=True)):
        raise ShapeError(
            f"{name}: the mask does not broadcast: {mask.shape}, scores are {full}. Make its sizes equal or 1, counted from the right."
        )
    if mask.dtype == bool_:
        zeros = new(mask.shape, q.dtype, q.device) if mask.size == 0 else ops.filled(mask.shape, 0.0, q.dtype, q.device)
        mask = ops.masked_fill(zeros, ops.logical_not(mask), -math.inf)
    outer, heads = own[:-3], own[-3:-2] or (1,)
    if any(n != 1 for n in outer):  # one flat batch axis: the mask has it whole or not at all
        mask, outer = ops.broadcast_to(ops.reshape(mask, own), (*lead[:-1], *own[-3:])), lead[:-1]
    return ops.reshape(mask, (size_of(outer), *heads, *own[-2:]))
