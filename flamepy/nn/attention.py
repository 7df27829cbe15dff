"""MultiHeadAttention and the transformer block built on it.

FLAME counterpart: `flame_core::attention`. Read next: conv.py.
"""

from __future__ import annotations

from typing import Any

from .. import ops
from ..errors import ShapeError
from ..op.base import size_of
from ..ops.attention import fused_attention
from . import functional as F
from . import init
from .activation import GELU
from .linear import Dropout, Linear, size
from .module import Module, Sequential
from .norm import LayerNorm


class MultiHeadAttention(Module):
    """Attention of `heads` heads, each width / heads wide (Vaswani et al. 2017, arXiv:1706.03762).

    Call it with x (..., T, width) for self-attention, or with q (..., L, width), k and v (..., S, width). One linear layer
    `qkv` makes queries, keys and values, `proj` joins the heads. Starts as PyTorch's MultiheadAttention does.
    """

    def __init__(self, width: int, heads: int, bias: bool = True, device: Any = None, dtype: Any = None):
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

    def forward(self, q: Any, k: Any = None, v: Any = None, *, attn_mask: Any = None, is_causal: bool = False) -> Any:
        return self.proj(self.heads_joined(q, k, v, attn_mask, is_causal))

    def add_to(self, residual: Any, *args: Any, **options: Any) -> Any:
        """residual + self(...): `proj` adds it in its own launch."""
        if not self.as_written(MultiHeadAttention):
            return super().add_to(residual, *args, **options)
        return self.proj.add_to(residual, self.heads_joined(*args, **options))

    def heads_joined(self, q: Any, k: Any = None, v: Any = None, attn_mask: Any = None, is_causal: bool = False) -> Any:
        """What `proj` gets: the results of all heads side by side."""
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
                return fused_attention(qkv, self.heads, bool(is_causal))
            flat = ops.reshape(qkv, (size_of(qkv.shape[:-2]), *qkv.shape[-2:]))
            return ops.reshape(fused_attention(flat, self.heads, bool(is_causal)), q.shape)
        q, k, v = self.projected(q, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, is_causal=is_causal)
        y = ops.transpose(y, -3, -2)
        return ops.reshape(y, (*y.shape[:-2], self.width))

    def projected(self, q: Any, k: Any, v: Any) -> list[Any]:
        """Queries, keys and values, each (..., heads, rows, width / heads)."""
        if k is None:
            parts = ops.split(self.qkv(q), self.width, axis=-1)
        else:
            weights = ops.split(self.qkv.weight, self.width, axis=0)
            biases = [None] * 3 if self.qkv.bias is None else ops.split(self.qkv.bias, self.width, axis=0)
            parts = [F.linear(x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)]
        each = self.width // self.heads
        return [ops.transpose(ops.reshape(x, (*x.shape[:-1], self.heads, each)), -3, -2) for x in parts]

    def extra(self) -> str:
        return f"width={self.width}, heads={self.heads}"


class TransformerBlock(Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): layer norm first, an MLP four times as wide with gelu between.

    `dropout` acts on what each half adds. x is (..., T, width).
    """

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ):
        self.norm1 = LayerNorm(width, bias=bias, device=device, dtype=dtype)
        self.attn = MultiHeadAttention(width, heads, bias, device, dtype)
        self.norm2 = LayerNorm(width, bias=bias, device=device, dtype=dtype)
        self.mlp = Sequential(
            Linear(width, 4 * width, bias, device, dtype),
            GELU(),
            Linear(4 * width, width, bias, device, dtype),
        )
        self.dropout = Dropout(dropout)

    def forward(self, x: Any, *, attn_mask: Any = None, is_causal: bool = False) -> Any:
        x, y = self.norm1.residual(x)
        x, y = self.norm2.residual(self.added(self.attn, x, y, attn_mask=attn_mask, is_causal=is_causal))
        return self.added(self.mlp, x, y)

    def added(self, half: Module, x: Any, y: Any, **options: Any) -> Any:
        """x + dropout(half(y)); without dropout the half adds x itself."""
        if type(self.dropout) is Dropout and not (self.dropout.p and self.dropout.training):
            return half.add_to(x, y, **options)
        return x + self.dropout(half(y, **options))
