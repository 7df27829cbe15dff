"""MultiHeadAttention, the transformer block built on it, and rotary embedding."""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from ..core.errors import DTypeError, ShapeError
from ..dtypes import checked_number
from ..ops.attention import fused_attention
from ..tensors import Tensor
from . import functional as F
from . import init
from .activation import GELU
from .compute import linear_in
from .containers import Sequential
from .dropping import Dropout
from .linear import Linear, flags, size
from .module import Module
from .norm import LayerNorm, RMSNorm, normed


class RotaryEmbedding(Module):
    """Queries and keys turned by their positions, so that their products depend on distances (Su et al. 2021, arXiv:2104.09864).
    width: how many numbers of a row are turned (None: all); base, scale and interleaved: see nn.functional.rope. No parameters. Goes into
    MultiHeadAttention(rope=...), or stands alone."""

    def __init__(self, width: int | None = None, base: float = 10000.0, *, scale: float = 1.0, interleaved: bool = False):
        self.rotary_width = None if width is None else size("RotaryEmbedding", "width", width, 2)
        self.base, self.scale = checked_number("RotaryEmbedding", "base", base), checked_number("RotaryEmbedding", "scale", scale)
        self.interleaved = bool(interleaved)

    def forward(self, q: Any, k: Any = None, *, positions: Any = None, offset: int = 0, axis: int = -2) -> Any:
        """q, and k if given (then both are returned): (..., T, ..., D) with positions along `axis`, offset, offset + 1, ... or those given
        -> the same shapes. Raises ShapeError."""
        options: dict[str, Any] = {"base": self.base, "scale": self.scale, "width": self.rotary_width, "interleaved": self.interleaved}
        found = [F.rope(x, positions, offset=offset, axis=axis, **options) for x in ((q,) if k is None else (q, k))]
        return found[0] if k is None else tuple(found)

    def extra(self) -> str:
        return f"width={self.rotary_width}, base={self.base}, scale={self.scale}, interleaved={self.interleaved}"


class MultiHeadAttention(Module):
    """Attention of `heads` heads, each width / heads wide (Vaswani et al. 2017, arXiv:1706.03762).
    Call it with x (..., T, width) for self-attention, or with q (..., L, width), k and v (..., S, width). With `causal` row i sees rows
    0 to i alone, as a language model must; without, all of them. One linear layer `qkv` makes queries, keys and values, `proj` joins
    the heads. Starts as PyTorch's MultiheadAttention does. Raises ShapeError unless heads divides width, and kv_heads heads.
    kv_heads: so many heads of keys and values, each for heads / kv_heads of the queries' (Ainslie et al. 2023, arXiv:2305.13245). rope: a
    RotaryEmbedding for queries and keys, or True for one as it starts. qk_norm: an RMSNorm of each head's queries and of its keys, before
    that (Henry et al. 2020, arXiv:2010.04245)."""

    def __init__(
        self, width: int, heads: int, *, causal: bool = False, bias: bool = True, kv_heads: int | None = None, rope: Any = None,
        qk_norm: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        self.causal = yes_or_no("MultiHeadAttention", causal)
        self.width = size("MultiHeadAttention", "width", width, 1)
        self.heads = size("MultiHeadAttention", "heads", heads, 1)
        if width % heads:
            raise ShapeError(f"MultiHeadAttention: width is not a multiple of heads: width {width}, heads {heads}. Choose a divisor.")
        self.kv_heads = self.heads if kv_heads is None else size("MultiHeadAttention", "kv_heads", kv_heads, 1)
        if heads % self.kv_heads:
            what = f"heads {heads}, kv_heads {self.kv_heads}"
            raise ShapeError(f"MultiHeadAttention: heads is not a multiple of kv_heads: {what}. Choose a divisor.")
        if rope is not None and type(rope) is not bool and not isinstance(rope, Module):
            raise DTypeError(f"MultiHeadAttention: rope is no RotaryEmbedding: {rope!r}. Pass one, or True.")
        flags("MultiHeadAttention", qk_norm=qk_norm)
        each = width // heads
        self.rope = RotaryEmbedding() if rope is True else rope or None
        self.q_norm, self.k_norm = [RMSNorm(each, device=device, dtype=dtype) if qk_norm else None for _ in range(2)]
        self.sizes = width, self.kv_heads * each, self.kv_heads * each
        self.qkv = Linear(width, sum(self.sizes), bias, device, dtype)
        self.proj = Linear(width, width, bias, device, dtype)
        init.xavier_uniform(self.qkv.weight)
        for layer in (self.qkv, self.proj):
            if layer.bias is not None:
                init.zeros(layer.bias)

    def forward(self, q: Any, k: Any = None, v: Any = None, *, attn_mask: Any = None, is_causal: bool | None = None) -> Any:
        """q (..., L, width), k and v (..., S, width), both None for self-attention -> (..., L, width).
        `attn_mask` broadcasts against (..., heads, L, S): False (or -inf) hides a key from a row. `is_causal` overrides the layer's
        `causal` for this call. Raises ShapeError where sizes don't fit, ValueError for a mask and causal together."""
        return self.proj(self.heads_joined(q, k, v, attn_mask, is_causal))

    def add_to(self, residual: Any, *args: Any, **options: Any) -> Any:
        """residual + self(...): `proj` adds it in its own launch."""
        if not self.as_written(MultiHeadAttention):
            return super().add_to(residual, *args, **options)
        return self.proj.add_to(residual, self.heads_joined(*args, **options))

    def heads_joined(self, q: Any, k: Any = None, v: Any = None, attn_mask: Any = None, is_causal: bool | None = None) -> Any:
        """What `proj` gets: the results of all heads side by side."""
        causal = self.causal if is_causal is None else bool(is_causal)
        if causal and attn_mask is not None and is_causal is None:
            raise ValueError(
                "MultiHeadAttention: a mask for a causal layer: causal=True. Pass is_causal=False with it and hide later rows in the mask."
            )
        q, k, v = (Tensor.of("MultiHeadAttention", x, self.qkv.weight.device) if isinstance(x, list) else x for x in (q, k, v))
        for name, x in (("q", q), ("k", k), ("v", v)):
            if x is not None and (getattr(x, "ndim", 0) < 2 or x.shape[-1] != self.width):
                raise ShapeError(
                    f"MultiHeadAttention: {name} does not end in (rows, width): {getattr(x, 'shape', x)}, width {self.width}. Reshape it."
                )
        if (k is None) != (v is None):
            raise ShapeError("MultiHeadAttention: only one of k and v given: None. Pass x alone, or q, k and v.")
        if k is None and attn_mask is None and self.rope is None and self.q_norm is None and self.kv_heads == self.heads:
            qkv = self.qkv(q)
            if q.ndim == 3:
                return fused_attention(qkv, self.heads, causal)
            flat = ops.reshape(qkv, (math.prod(qkv.shape[:-2]), *qkv.shape[-2:]))
            return ops.reshape(fused_attention(flat, self.heads, causal), q.shape)
        q, k, v = self.projected(q, k, v)
        grouped = self.kv_heads < self.heads
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=causal, enable_gqa=grouped)
        y = ops.transpose(y, -3, -2)
        return ops.reshape(y, (*y.shape[:-2], self.width))

    def projected(self, q: Any, k: Any, v: Any) -> list[Any]:
        """Queries, keys and values, each (..., heads or kv_heads, rows, width / heads), normed and turned as they are to be."""
        if k is None:
            parts = ops.split(self.qkv(q), self.sizes, axis=-1)
        else:
            weight, bias = *self.qkv.operands(self.qkv.whole_weight()), self.qkv.bias
            weights = ops.split(weight, self.sizes, axis=0)
            biases = [None] * 3 if bias is None else ops.split(bias, self.sizes, axis=0)
            parts = [linear_in(self.qkv.compute_dtype, x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)]
        each = self.width // self.heads
        found = [ops.reshape(x, (*x.shape[:-1], n // each, each)) for x, n in zip(parts, self.sizes, strict=True)]
        for i, norm in enumerate((self.q_norm, self.k_norm)):
            found[i] = found[i] if norm is None else norm(found[i])
            found[i] = found[i] if self.rope is None else self.rope(found[i], axis=-3)
        return [ops.transpose(x, -3, -2) for x in found]

    def extra(self) -> str:
        grouped = "" if self.kv_heads == self.heads else f", kv_heads={self.kv_heads}"
        return f"width={self.width}, heads={self.heads}{grouped}, causal={self.causal}"


def yes_or_no(layer: str, causal: Any) -> bool:
    if type(causal) is not bool:
        raise DTypeError(f"{layer}: causal is neither True nor False: {causal!r}. True: no row sees a later one. False: each sees all.")
    return causal


class TransformerBlock(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): layer norm first, an MLP four times as wide with gelu between.
    `causal` has no default: True for a language model, where no row may see a later one, False where each row sees all. `dropout` acts
    on what each half adds; `kv_heads`, `rope` and `qk_norm`: see MultiHeadAttention. Raises ShapeError unless heads divides width."""

    def __init__(
        self, width: int, heads: int, *, causal: bool, dropout: float = 0.0, bias: bool = True, kv_heads: int | None = None,
        rope: Any = None, qk_norm: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        dropping = Dropout(dropout)  # what may refuse its argument comes before what draws random numbers
        self.norm1 = LayerNorm(width, bias=bias, device=device, dtype=dtype)
        options = {"bias": bias, "kv_heads": kv_heads, "rope": rope, "qk_norm": qk_norm, "device": device, "dtype": dtype}
        self.attn = MultiHeadAttention(width, heads, causal=yes_or_no("TransformerBlock", causal), **options)
        self.norm2 = LayerNorm(width, bias=bias, device=device, dtype=dtype)
        self.mlp = Sequential(Linear(width, 4 * width, bias, device, dtype), GELU(), Linear(4 * width, width, bias, device, dtype))
        self.dropout = dropping

    def forward(self, x: Any, *, attn_mask: Any = None, is_causal: bool | None = None) -> Any:
        """x (..., T, width) -> the same shape. `attn_mask` and `is_causal` go to the attention; see MultiHeadAttention.forward."""
        x, y = normed(self.norm1, x)
        x, y = normed(self.norm2, self.added(self.attn, x, y, attn_mask=attn_mask, is_causal=is_causal))
        return self.added(self.mlp, x, y)

    def added(self, half: Module, x: Any, y: Any, **options: Any) -> Any:
        """x + dropout(half(y)); without dropout the half adds x itself."""
        if type(self.dropout) is Dropout and self.dropout.as_written(Dropout) and not (self.dropout.p and self.dropout.training):
            return half.add_to(x, y, **options)
        return x + self.dropout(half(y, **options))
