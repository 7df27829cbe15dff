"""Scaled dot-product attention, on (..., rows, width) tensors and on one fused buffer of queries, keys and values.

Loops in backend/cpu/attention.py. A layout says where each operand sits, so the fused form moves nothing about. The softmax
p is kept for the backward rule: (batch, heads, rows, keys) numbers.

May import: errors, backend, op, ops.shape. FLAME counterpart: `flame_core::attention::sdpa`. Read next: conv.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import op, ops
from ..backend.base import FLOATS, bool_
from ..backend.plans import attention_scratch, fused_layout, heads_layout
from ..errors import DTypeError, ShapeError
from ..op import composed, launch, like, new, size_of
from ..op_custom import custom
from .shape import contiguous_strides

Shape = tuple[int, ...]


def mask_layout(mask: Any) -> Shape:
    """Offset and strides of a (B or 1, H or 1, L or 1, S or 1) mask: 0 along an axis that is broadcast."""
    strides = contiguous_strides(mask.shape)
    return (0, *[0 if n == 1 else s for n, s in zip(mask.shape, strides, strict=True)])


def forward_into(y: Any, p: Any, q: Any, k: Any, v: Any, mask: Any, layout: Shape, sizes: Shape, scale: float, is_causal: bool) -> None:
    """y = p v and p = softmax(scale q k^T + mask); sizes: batch, heads, rows, keys, widths of q and v."""
    consts = (y.device.table(layout), *sizes, y.dtype.type(scale), bool(is_causal), mask is not None)
    launch("attention", None, (y, p), (q, k, v, q if mask is None else mask), consts, work=p.size * max(1, sizes[4] + sizes[5]))


def backward_into(outs: tuple, ins: tuple, layout: Shape, sizes: Shape, scale: float, is_causal: bool, keep: bool) -> Any:
    """outs: dq, dk, dv; ins: g, p, q, k, v. Returns the gradient of the scores, of use with `keep` only."""
    p = ins[1]
    batch, heads, rows, keys = p.shape
    ds = like(p, p.shape if keep else (attention_scratch(batch, heads, rows, keys, False),))
    consts = (p.device.table(layout), *sizes, p.dtype.type(scale), bool(is_causal), keep)
    launch("attention_dx", None, (*outs, ds), ins, consts, work=p.size * max(1, sizes[4] + sizes[5]))
    return ds


@custom(inputs=4, home="")
def attention(q, k, v, mask=None, is_causal=False, scale=1.0):
    """softmax(scale q k^T + mask) v for q (B, H, L, D), k (B, H, S, D), v (B, H, S, Dv)."""
    (batch, heads, rows, d), (keys, dv) = q.shape, v.shape[2:]
    y, p = like(q, (batch, heads, rows, dv)), like(q, (batch, heads, rows, keys))
    layout = layouts(q, k, v, y) + ((0,) * 5 if mask is None else mask_layout(mask))
    forward_into(y, p, q, k, v, mask, layout, (batch, heads, rows, keys, d, dv), scale, is_causal)
    return y, {"p": p}


def layouts(*xs: Any) -> Shape:
    """Layouts of contiguous (B, H, rows, width) tensors."""
    return tuple([n for x in xs for n in heads_layout(*x.shape[1:])])


@attention.backward
def attention_dx(g, p, q, k, v, wanted, is_causal, scale):
    outs = dq, dk, dv = like(q), like(k), like(v)
    sizes = (*p.shape, q.shape[3], v.shape[3])
    ds = backward_into(outs, (g, p, q, k, v), layouts(q, k, v, g, *outs), sizes, scale, is_causal, wanted[3])
    return dq, dk, dv, ds if wanted[3] else None


@custom(inputs=1, home="")
def fused_attention(qkv, heads=1, is_causal=False):
    """Self-attention of qkv (B, T, 3 * heads * D), the output of one linear layer: (B, T, heads * D)."""
    batch, rows, width = qkv.shape
    d = width // (3 * heads)
    y, p = like(qkv, (batch, rows, heads * d)), like(qkv, (batch, heads, rows, rows))
    layout = (*fused_layouts(heads, rows, d), *fused_layout(heads, rows, d, 1), 0, 0, 0, 0, 0)
    forward_into(y, p, qkv, qkv, qkv, None, layout, (*p.shape, d, d), scale_of(d), is_causal)
    return y, {"p": p}


def fused_layouts(heads: int, rows: int, d: int) -> Shape:
    """Layouts of q, k and v in the fused buffer."""
    return tuple([n for part in range(3) for n in fused_layout(heads, rows, d, 3, part)])


def scale_of(d: int) -> float:
    return 1 / math.sqrt(max(1, d))


@fused_attention.backward
def fused_attention_dx(g, p, qkv, heads, is_causal):
    rows, d = qkv.shape[1], qkv.shape[2] // (3 * heads)
    dx, parts = like(qkv), fused_layouts(heads, rows, d)
    layout = (*parts, *fused_layout(heads, rows, d, 1), *parts)
    backward_into((dx, dx, dx), (g, p, qkv, qkv, qkv), layout, (*p.shape, d, d), scale_of(d), is_causal, False)
    return dx


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
