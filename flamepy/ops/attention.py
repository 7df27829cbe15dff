"""Scaled dot-product attention, on (..., rows, width) tensors and on one fused buffer of queries, keys and values.

Loops in backend/cpu/attention. A layout says where each operand sits, so the fused form moves nothing about. Beside y only two
numbers a row are kept for the backward rule, the largest score and 1 / the sum; it computes the softmax again. Memory is linear in
rows and keys. 16-bit operands are read as they are, a block at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.op import launch, like, new, share
from ..core.ops.axes import Shape, composed, tensors_of
from ..core.ops.copy import filled
from ..core.ops.pointwise import add
from ..core.ops.reduce import reduction, sum_of
from ..core.ops.shape import broadcast_to, contiguous_strides, expanded, permute, reshape
from ..core.tensor import Tensor
from ..dtypes import FLOATS, bool_, checked_number
from ..engine.forms import form
from ..engine.half import together
from ..engine.kept import number
from .activations import masked_fill
from .attention_options import alibi_mask, attention_of_ops, gradients_of_ops, window_mask
from .joining import cat, split
from .logic import logical_not
from .shape_more import narrow


def heads_layout(heads: int, rows: int, width: int) -> Shape:
    """Where a contiguous (B, heads, rows, width) tensor lies: its start, then its strides along batch, head and row."""
    return (0, heads * rows * width, rows * width, width)


def fused_layout(heads: int, rows: int, width: int, parts: int = 3, part: int = 0) -> Shape:
    """Where part number `part` of a (B, rows, parts, heads, width) tensor lies; parts=1 is (B, rows, heads * width)."""
    return (part * heads * width, rows * parts * heads * width, width, parts * heads * width)


def apart(q: Shape, v: Shape, mask: Shape | None) -> tuple[Shape, Shape]:
    """(layouts of q, k, v, y and the mask, sizes) for contiguous q (B, H, L, D), k (B, G, S, D), v (B, G, S, Dv), and a mask of
    (B or 1, H or 1, L or 1, S or 1). Where G is smaller than H, H / G neighbouring heads see the same keys: each of these groups is
    then an item of the batch, with a step of 0 from head to head of k and v."""
    (batch, heads, rows, d), (_, groups, keys, dv), shared = q, v, v[1] != q[1]
    batch, heads = (batch * groups, heads // groups) if shared else (batch, heads)
    each = [heads_layout(heads, *size) for size in ((rows, d), (keys, d), (keys, dv), (rows, dv))]
    if shared:
        each[1], each[2] = (0, keys * d, 0, d), (0, keys * dv, 0, dv)
    if mask is not None:  # a step of 0 along an axis that is broadcast
        outer, per_head, *last = [0 if n == 1 else s for n, s in zip(mask, contiguous_strides(mask), strict=True)]
        each.append((0, per_head * heads if shared else outer, per_head, *last))
    return tuple([n for layout in each for n in layout]), (batch, heads, rows, keys, d, dv)


def fused(qkv: Shape, heads: int) -> tuple[Shape, Shape]:
    """The same for one tensor (B, T, 3 * heads * D)."""
    (batch, rows), d = qkv[:2], qkv[2] // (3 * heads)
    each = [*[fused_layout(heads, rows, d, 3, part) for part in range(3)], fused_layout(heads, rows, d, 1)]
    return tuple([n for layout in each for n in layout]), (batch, heads, rows, rows, d, d)


@form(mixes=3)
@custom(inputs=4, title="scaled_dot_product_attention", internal=True)
def attention(q, k, v, mask=None, is_causal=False, scale=1.0):
    """softmax(scale q k^T + mask) v for q (B, H, L, D), k (B, G, S, D), v (B, G, S, Dv), where G divides H: see apart()."""
    layout, sizes = apart(q.shape, v.shape, None if mask is None else mask.shape)
    y, kept = like(q, (*q.shape[:3], v.shape[3]), together((q, k, v, mask))), like(q, (2, *q.shape[:3]), q.spec.computed)
    launch("attention", None, (y, kept), (q, k, v, mask), (layout, sizes, number(float(scale), kept.dtype), is_causal))
    return y, {"kept": kept}


@attention.backward
def attention_dx(g, y, kept, q, k, v, mask, wanted, is_causal, scale):
    """Each head gives gradients of its own for the keys and values, which lie as these do: what a group has in common is repeated for
    it, and its gradients are added up."""
    groups = k.shape[1]
    k, v = (for_each_head(x, q.shape[1]) for x in (k, v))
    layout, sizes = apart(q.shape, v.shape, None if mask is None else mask.shape)
    dmask = like(kept, sizes[:4]) if wanted[3] else None
    outs = like(g, q.shape), like(g, k.shape), like(g, v.shape), dmask
    launch("attention_dx", None, outs, (g, y, kept, q, k, v, mask), (layout, sizes, number(float(scale), kept.dtype), is_causal))
    return outs[0], of_groups(outs[1], groups), of_groups(outs[2], groups), dmask


@attention.graph
def attention_ddx(g, q, k, v, mask, wanted, is_causal, scale):
    *dx, scores = gradients_of_ops("scaled_dot_product_attention", g, q, k, v, mask, is_causal, scale)
    return *dx, scores if wanted[3] else None


def for_each_head(x: Any, heads: int) -> Any:
    """(B, G, S, D) repeated to (B, heads, S, D)."""
    batch, groups, *last = x.shape
    if groups == heads:
        return x
    return share(expanded.body(share(x, (batch, groups, 1, *last)), (batch, groups, heads // groups, *last)), (batch, heads, *last))


def of_groups(dx: Any, groups: int) -> Any:
    """(B, heads, S, D) added up to (B, groups, S, D)."""
    batch, heads, *last = dx.shape
    if groups == heads:
        return dx
    return sum_of(share(dx, (batch, groups, heads // groups, *last)), reduction("sum", (batch, groups, heads // groups, *last), 2, False))


@custom(inputs=1, title="scaled_dot_product_attention", internal=True)
def fused_attention(qkv, heads=1, is_causal=False):
    """Self-attention of qkv (B, T, 3 * heads * D), the output of one linear layer: (B, T, heads * D)."""
    layout, sizes = fused(qkv.shape, heads)
    y, kept = like(qkv, (*qkv.shape[:2], heads * sizes[4])), like(qkv, (2, *sizes[:3]), qkv.spec.computed)
    launch("attention", None, (y, kept), (qkv, qkv, qkv, None), (layout, sizes, kept.dtype.type(scale_of(sizes[4])), is_causal))
    return y, {"kept": kept}


@fused_attention.backward
def fused_attention_dx(g, y, kept, qkv, heads, is_causal):
    layout, sizes = fused(qkv.shape, heads)
    dx, scale = like(g, qkv.shape), kept.dtype.type(scale_of(sizes[4]))
    launch("attention_dx", None, (dx, dx, dx, None), (g, y, kept, qkv, qkv, qkv, None), (layout, sizes, scale, is_causal))
    return dx


@fused_attention.graph
def fused_attention_ddx(g, qkv, heads, is_causal):
    (batch, rows), d = qkv.shape[:2], qkv.shape[2] // (3 * heads)
    q, k, v = (permute(reshape(x, (batch, rows, heads, d)), (0, 2, 1, 3)) for x in split(qkv, heads * d, 2))
    g = permute(reshape(g, (batch, rows, heads, d)), (0, 2, 1, 3))
    dx = gradients_of_ops("scaled_dot_product_attention", g, q, k, v, None, is_causal, scale_of(d))[:3]
    return cat([reshape(permute(x, (0, 2, 1, 3)), (batch, rows, heads * d)) for x in dx], axis=2)


def scale_of(d: int) -> float:
    return 1 / math.sqrt(max(1, d))


@composed(home="both")
def scaled_dot_product_attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
    enable_gqa: bool = False, softcap: float | None = None, window: Any = None, alibi: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale q k^T + mask) v for q (..., L, D), k (..., S, D), v (..., S, Dv): (..., L, Dv).
    Vaswani et al. 2017, arXiv:1706.03762. Shapes: leading axes broadcast. `attn_mask` broadcasts to (..., L, S): bool (True: this key may
    be seen) or float (added; it may require grad). `is_causal`: row i sees keys j <= i. `scale` defaults to 1 / sqrt(D). A row
    that sees no key is zero. `enable_gqa`: k and v may have fewer heads (axis -3), a divisor; neighbouring heads of q share them, which
    are read where they are (Ainslie et al. 2023, arXiv:2305.13245). `window`: n, only keys less than n away are seen, or (left, right).
    `alibi`: True, or a slope for each head: slope |i - j| is subtracted (Press et al. 2021, arXiv:2108.12409); window and alibi need
    memory for (L, S), alibi for each head. `softcap`: scores are softcap tanh(scores / softcap) (Gemma 2, arXiv:2408.00118) before any
    mask; `dropout_p`: weights are dropped. These two keep all weights in memory: they are composed of ops. Normed queries and keys are a
    norm of q and k before, such as F.rms_norm. Integers give float32.
    Raises ShapeError, also for a mask beside is_causal, DTypeError for another mask, ValueError for an option that makes no sense.
    >>> fp.scaled_dot_product_attention(fp.zeros(1, 2), fp.ones(2, 2), fp.tensor([[1.0], [3.0]])).tolist()
    [[2.0]]"""
    name = "scaled_dot_product_attention"
    q, k, v = tensors_of(name, q, k, v)
    lead = grouped(name, q, k, v) if enable_gqa else leading(name, q, k, v)
    if is_causal and attn_mask is not None:
        raise ShapeError(f"{name}: both attn_mask and is_causal=True given: mask {np.shape(attn_mask)}. Pass one of them.")
    last = q.shape[-2], k.shape[-2]
    mask = None if attn_mask is None else additive(name, attn_mask, q, lead, last)
    for option, make in ((window, window_mask), (alibi, alibi_mask)):
        if option is not None and option is not False:
            more = additive(name, make(name, option, q, lead, last), q, lead, last)
            mask = more if mask is None else add(mask, more)
    q4 = four_axes(q, lead)
    k4, v4 = (four_axes(x, (*lead[:-1], x.shape[-3]) if enable_gqa else lead) for x in (k, v))
    scale = scale_of(q.shape[-1]) if scale is None else checked_number(name, "scale", scale)
    if softcap is None and dropout_p == 0:
        y = attention(q4, k4, v4, spread_mask(mask, q4.shape, k4.shape), bool(is_causal), scale)
    else:
        y = attention_of_ops(name, q4, k4, v4, mask, bool(is_causal), scale, softcap, dropout_p)
    return y if len(lead) == 2 else reshape(y, (*lead, q.shape[-2], v.shape[-1]))


def spread_mask(mask: Any, q: Shape, k: Shape) -> Any:
    """The mask where groups of heads are items of the batch: all items have it, or each head of each has its own."""
    if mask is None or q[1] == k[1] or mask.shape[:2] in ((1, 1), q[:2]):
        return mask
    return broadcast_to(mask, (*q[:2], *mask.shape[2:]))


def grouped(name: str, q: Any, k: Any, v: Any) -> Shape:
    """The leading axes where k and v have fewer heads than q. Raises ShapeError."""
    heads = [x.shape[-3] if x.ndim > 2 else 0 for x in (q, k, v)]
    if not all(heads) or heads[1] != heads[2] or heads[0] % heads[1]:
        raise ShapeError(
            f"{name}: heads do not group: q is {q.shape}, k is {k.shape}, v is {v.shape}. With enable_gqa=True use (..., heads, L, D) and "
            "a divisor of heads for k and v."
        )
    return (*leading(name, *[narrow(x, -3, 0, 1) for x in (q, k, v)])[:-1], heads[0])


def four_axes(x: Any, lead: Shape) -> Any:
    """x broadcast to the leading axes, as (batch, heads, rows, width)."""
    full = (*lead, *x.shape[-2:])
    if x.shape != full:
        x = broadcast_to(x, full)
    return x if len(lead) == 2 else reshape(x, (math.prod(lead[:-1]), lead[-1] if lead else 1, *full[-2:]))


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
    mask = Tensor.of(name, mask, q.device)
    if mask.dtype != bool_ and mask.dtype not in FLOATS:
        raise DTypeError(f"{name}: the mask is neither bool nor float: {mask.dtype}. Use bool (True: may be seen) or floats to add.")
    full = (*lead, *last)
    own = (1,) * (len(full) - mask.ndim) + mask.shape
    if len(own) != len(full) or any(n not in (1, w) for n, w in zip(own, full, strict=True)):
        raise ShapeError(
            f"{name}: the mask does not broadcast: {mask.shape}, scores are {full}. Make its sizes equal or 1, counted from the right."
        )
    if mask.dtype == bool_:
        zeros = new(mask.shape, q.dtype, q.device) if mask.size == 0 else filled(mask.shape, 0.0, q.dtype, q.device)
        mask = masked_fill(zeros, logical_not(mask), -math.inf)
    outer, heads = own[:-3], own[-3:-2] or (1,)
    if any(n != 1 for n in outer):  # one flat batch axis: the mask has it whole or not at all
        mask, outer = broadcast_to(reshape(mask, own), (*lead[:-1], *own[-3:])), lead[:-1]
    return reshape(mask, (math.prod(outer), *heads, *own[-2:]))
