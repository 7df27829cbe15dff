"""MultiHeadAttention and the transformer block built on it."""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from ..core.errors import DTypeError, ShapeError
from ..ops.attention import fused_attention
from . import functional as F
from . import init
from .activation import GELU
from .compute import linear_in
from .containers import Sequential
from .linear import Dropout, Linear, size
from .module import Module
from .norm import LayerNorm, normed


class MultiHeadAttention(Module):
    """Attention of `heads` heads, each width / heads wide (Vaswani et al. 2017, arXiv:1706.03762).

    Call it with x (..., T, width) for self-attention, or with q (..., L, width), k and v (..., S, width). With `causal` row i sees rows
    0 to i alone, as a language model must; without, all of them. One linear layer `qkv` makes queries, keys and values, `proj` joins
    the heads. Starts as PyTorch's MultiheadAttention does. Raises ShapeError unless heads divides width.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False, bias: bool = True, device: Any = None, dtype: Any = None):
        self.causal = yes_or_no("MultiHeadAttention", causal)
        self.width = size("MultiHeadAttention", "width", width, 1)
        self.heads = size("MultiHeadAttention", "heads", heads, 1)
        if width % heads:
            raise ShapeError(f"MultiHeadAttention: width is not a multiple of heads: width {width}, heads {heads}. Choose a divisor.")
        self.qkv = Linear(width, 3 * width, bias, device, dtype)
        self.proj = Linear(width, width, bias, device, dtype)
        init.xavier_uniform(self.qkv.weight)
        for layer in (self.qkv, self.proj):
            if layer.bias is not None:
                init.zeros(layer.bias)

    def forward(self, q: Any, k: Any = None, v: Any = None, *, attn_mask: Any = None, is_causal: bool | None = None) -> Any:
        """q (..., L, width), k and v (..., S, width), both None for self-attention -> (..., L, width).

        `attn_mask` broadcasts against (..., heads, L, S): False (or -inf) hides a key from a row. `is_causal` overrides the layer's
        `causal` for this call. Raises ShapeError where sizes don't fit, ValueError for a mask and causal together.
        """
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
        for name, x in (("q", q), ("k", k), ("v", v)):
            if x is not None and (getattr(x, "ndim", 0) < 2 or x.shape[-1] != self.width):
                raise ShapeError(
                    f"MultiHeadAttention: {name} does not end in (rows, width): {getattr(x, 'shape', x)}, width {self.width}. Reshape it."
                )
        if (k is None) != (v is None):
            raise ShapeError("MultiHeadAttention: only one of k and v given: None. Pass x alone, or q, k and v.")
        if k is None and attn_mask is None:
            qkv = self.qkv(q)
            if q.ndim == 3:
                return fused_attention(qkv, self.heads, causal)
            flat = ops.reshape(qkv, (math.prod(qkv.shape[:-2]), *qkv.shape[-2:]))
            return ops.reshape(fused_attention(flat, self.heads, causal), q.shape)
        q, k, v = self.projected(q, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=causal)
        y = ops.transpose(y, -3, -2)
        return ops.reshape(y, (*y.shape[:-2], self.width))

    def projected(self, q: Any, k: Any, v: Any) -> list[Any]:
        """Queries, keys and values, each (..., heads, rows, width / heads)."""
        if k is None:
            parts = ops.split(self.qkv(q), self.width, axis=-1)
        else:
            weight, bias = *self.qkv.operands(self.qkv.whole_weight()), self.qkv.bias
            weights = ops.split(weight, self.width, axis=0)
            biases = [None] * 3 if bias is None else ops.split(bias, self.width, axis=0)
            parts = [linear_in(self.qkv.compute_dtype, x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)]
        each = self.width // self.heads
        return [ops.transpose(ops.reshape(x, (*x.shape[:-1], self.heads, each)), -3, -2) for x in parts]

    def extra(self) -> str:
        return f"width={self.width}, heads={self.heads}, causal={self.causal}"


def yes_or_no(layer: str, causal: Any) -> bool:
    if type(causal) is not bool:
        raise DTypeError(f"{layer}: causal is neither True nor False: {causal!r}. True: no row sees a later one. False: each sees all.")
    return causal


class TransformerBlock(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): layer norm first, an MLP four times as wide with gelu between.

    `causal` has no default: True for a language model, where no row may see a later one, False where each row sees all. `dropout` acts
    on what each half adds. Raises ShapeError unless heads divides width.
    """

    def __init__(
        self, width: int, heads: int, *, causal: bool, dropout: float = 0.0, bias: bool = True, device: Any = None, dtype: Any = None
    ):  # fmt: skip
        dropping = Dropout(dropout)  # what may refuse its argument comes before what draws random numbers
        self.norm1 = LayerNorm(width, bias=bias, device=device, dtype=dtype)
        self.attn = MultiHeadAttention(width, heads, causal=yes_or_no("TransformerBlock", causal), bias=bias, device=device, dtype=dtype)
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
