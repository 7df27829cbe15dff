"""PyTorch's transformer, part by part: its names, its order of axes, its masks. Its state dicts load as they are.

Here a True in a mask of bools hides, as there; in nn.functional.scaled_dot_product_attention, and in MultiHeadAttention, it shows. What
is built anew is shorter with TransformerBlock.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import ops
from ..core.errors import DTypeError, ShapeError
from ..dtypes import FLOATS, bool_, checked_number
from ..parameter import Parameter
from ..tensors import Tensor
from . import functional as F
from . import init
from .activation import GELU, ReLU
from .compute import linear_in
from .containers import ModuleList
from .dropping import Dropout
from .linear import Linear, flags, size
from .module import Module
from .norm import LayerNorm


class MultiheadAttention(Module):
    """PyTorch's module of that name (Vaswani et al. 2017, arXiv:1706.03762), with its state, its masks, and the weights as a second result.
    MultiHeadAttention is the shorter one. kdim, vdim, add_bias_kv and add_zero_attn are refused. Raises ShapeError unless num_heads divides
    embed_dim."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        name, width = "MultiheadAttention", size("MultiheadAttention", "embed_dim", embed_dim, 1)
        flags(name, bias=bias, batch_first=batch_first)
        refused = {
            "add_bias_kv": add_bias_kv,
            "add_zero_attn": add_zero_attn,
            "kdim": kdim not in (None, width),
            "vdim": vdim not in (None, width),
        }
        if any(refused.values()):
            named = ", ".join([option for option, given in refused.items() if given])
            raise ValueError(f"{name}: no such option: {named}. Use keys and values of embed_dim, and append rows to them yourself.")
        if width % size(name, "num_heads", num_heads, 1):
            raise ShapeError(f"{name}: embed_dim is not a multiple of num_heads: {width}, {num_heads}. Choose a divisor.")
        self.embed_dim, self.num_heads, self.batch_first, self.dropout = width, int(num_heads), batch_first, Dropout(dropout).p
        self.in_proj_weight = Parameter.zeros((3 * width, width), dtype=dtype, device=device)
        self.in_proj_bias = Parameter.zeros((3 * width,), dtype=dtype, device=device) if bias else None
        self.out_proj = Linear(width, width, bias, device, dtype)
        init.xavier_uniform(self.in_proj_weight)
        if self.out_proj.bias is not None:
            init.zeros(self.out_proj.bias)

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """query (L, B, E), key and value (S, B, E), with batch_first (B, L, E) and (B, S, E), or each without B -> (result like query,
        weights (B, L, S), with average_attn_weights=False (B, heads, L, S), without need_weights None).
        key_padding_mask (B, S) or (S,) and attn_mask (L, S) or (B * heads, L, S): True hides, floats are added. `is_causal` without
        attn_mask: no row sees a later one. Raises ShapeError, DTypeError."""
        q, k, v = (Tensor.of("MultiheadAttention", x, self.in_proj_weight.device) for x in (query, key, value))
        single = q.ndim == 2
        if not q.ndim == k.ndim == v.ndim or q.ndim not in (2, 3) or {x.shape[-1] for x in (q, k, v)} != {self.embed_dim}:
            shapes = f"{q.shape}, {k.shape}, {v.shape}"
            raise ShapeError(f"MultiheadAttention: sizes differ: {shapes}, embed_dim {self.embed_dim}. Use (L, B, E) and (S, B, E).")
        same = query is key and key is value
        if not self.batch_first or single:
            q, k, v = (ops.unsqueeze(x, 0) if single else ops.transpose(x, 0, 1) for x in (q, k, v))
        q_heads, k_heads, v_heads = self.projected(q, k, v, same)
        mask = merged(attn_mask, key_padding_mask, q_heads, k.shape[1])
        y, weights = self.attended(q_heads, k_heads, v_heads, mask, bool(is_causal) and attn_mask is None, need_weights)
        y = self.out_proj(ops.reshape(ops.transpose(y, 1, 2), q.shape))
        y = ops.squeeze(y, 0) if single else y if self.batch_first else ops.transpose(y, 0, 1)
        if weights is not None:
            weights = weights.mean(axis=1) if average_attn_weights else weights
            weights = ops.squeeze(weights, 0) if single else weights
        return y, weights

    def projected(self, q: Any, k: Any, v: Any, same: bool) -> list[Any]:
        """Queries, keys and values, each (B, heads, rows, E / heads)."""
        width, weight, bias = self.embed_dim, self.in_proj_weight, self.in_proj_bias
        if same:
            parts = ops.split(linear_in(self.compute_dtype, q, weight, bias), width, axis=-1)
        else:
            weights, biases = ops.split(weight, width), [None] * 3 if bias is None else ops.split(bias, width)
            parts = [linear_in(self.compute_dtype, x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)]
        return [ops.transpose(ops.reshape(x, (*x.shape[:-1], self.num_heads, width // self.num_heads)), 1, 2) for x in parts]

    def attended(self, q: Any, k: Any, v: Any, mask: Any, causal: bool, need_weights: bool) -> tuple[Any, Any]:
        """(the results of all heads, their weights if these are wanted)."""
        dropping = self.dropout if self.training else 0.0
        if causal and mask is not None:
            hides = ops.logical_not(Tensor.of("MultiheadAttention", lower(q.shape[2], k.shape[2]), q.device))
            mask, causal = mask + as_floats(hides, q), False
        if not need_weights:
            return F.scaled_dot_product_attention(q, k, v, mask, dropping, causal), None
        scores = ops.matmul(q * (1 / math.sqrt(q.shape[-1])), ops.transpose(k, -2, -1))
        if causal:
            mask = as_floats(ops.logical_not(Tensor.of("MultiheadAttention", lower(q.shape[2], k.shape[2]), q.device)), q)
        weights = ops.softmax(scores if mask is None else scores + mask, axis=-1)
        weights = F.dropout(weights, dropping, True) if dropping else weights
        return ops.matmul(weights, v), weights

    def extra(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}"


def lower(rows: int, keys: int) -> Any:
    """What a causal row sees, as an array of bools."""
    return np.tri(rows, keys, dtype=bool)


def as_floats(mask: Any, q: Any) -> Any:
    """A mask as floats to be added: bools that are True hide."""
    if mask.dtype == bool_:
        return ops.masked_fill(ops.filled(mask.shape, 0.0, q.dtype, q.device), mask, -math.inf)
    if mask.dtype not in FLOATS:
        raise DTypeError(f"MultiheadAttention: a mask is neither bool nor float: {mask.dtype}. Use bool (True hides) or floats to add.")
    return mask


def merged(attn_mask: Any, padding: Any, q: Any, keys: int) -> Any:
    """Both masks as one that is added to scores (B, heads, L, S), or None."""
    (batch, heads, rows, _), found = q.shape, None
    if attn_mask is not None:
        found = as_floats(Tensor.of("MultiheadAttention", attn_mask, q.device), q)
        if found.shape not in ((rows, keys), (batch * heads, rows, keys)):
            known = f"({rows}, {keys}) or ({batch * heads}, {rows}, {keys})"
            raise ShapeError(f"MultiheadAttention: attn_mask has another shape: {found.shape}. Use {known}.")
        found = ops.reshape(found, (batch if found.ndim == 3 else 1, heads if found.ndim == 3 else 1, rows, keys))
    if padding is not None:
        padding = as_floats(Tensor.of("MultiheadAttention", padding, q.device), q)
        if padding.shape not in ((batch, keys), (keys,)):
            raise ShapeError(f"MultiheadAttention: key_padding_mask has another shape: {padding.shape}. Use ({batch}, {keys}).")
        padding = ops.reshape(padding, (padding.shape[0] if padding.ndim == 2 else 1, 1, 1, keys))
        found = padding if found is None else found + padding
    return found


ACTIVATIONS = {"relu": ReLU, "gelu": GELU}


class Layer(Module):
    """What a layer of the encoder and one of the decoder have in common: self-attention, the MLP, dropout, norms before or after."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        name = type(self).__name__
        if not callable(activation) and activation not in ACTIVATIONS:
            raise ValueError(f"{name}: unknown activation: {activation!r}. Use 'relu', 'gelu' or a function.")
        checked_number(name, "layer_norm_eps", layer_norm_eps)
        flags(name, norm_first=norm_first)
        place = {"device": device, "dtype": dtype}
        self.norm_first = norm_first
        for attention in self.attentions:
            setattr(self, attention, MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place))
        self.linear1, self.linear2 = Linear(d_model, dim_feedforward, bias, **place), Linear(dim_feedforward, d_model, bias, **place)
        for n in range(len(self.attentions) + 1):
            setattr(self, f"norm{n + 1}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
        self.dropout = Dropout(dropout)
        self.activation = activation if callable(activation) else ACTIVATIONS[activation]()

    attentions: tuple[str, ...] = ()

    def mlp(self, x: Any) -> Any:
        both = self.linear1.with_next(self.activation) if isinstance(self.activation, Module) else None
        return self.linear2(self.dropout(both(x) if both else self.activation(self.linear1(x))))

    def residual(self, x: Any, norm: Any, half: Callable[[Any], Any]) -> Any:
        """x + dropout(half(x)), normed before or after."""
        return x + self.dropout(half(norm(x))) if self.norm_first else norm(x + self.dropout(half(x)))


class TransformerEncoderLayer(Layer):
    """Self-attention and an MLP, each added to what it reads (Vaswani et al. 2017); norm_first: the norm before each of them."""

    attentions = ("self_attn",)

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        """src (T, B, d_model), with batch_first (B, T, d_model) -> the same shape. Masks: see MultiheadAttention.forward."""

        def attend(x: Any) -> Any:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]  # type: ignore[attr-defined]

        return self.residual(self.residual(src, self.norm1, attend), self.norm2, self.mlp)  # type: ignore[attr-defined]


class TransformerDecoderLayer(Layer):
    """The same with attention to a memory between them."""

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None, tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """tgt (T, B, d_model) and memory (S, B, d_model), or batch first -> the shape of tgt. Masks: see MultiheadAttention.forward."""

        def attend(x: Any) -> Any:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]  # type: ignore[attr-defined]

        def look(x: Any) -> Any:
            options = {"attn_mask": memory_mask, "is_causal": memory_is_causal}
            return self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, **options)[0]  # type: ignore[attr-defined]

        x = self.residual(tgt, self.norm1, attend)  # type: ignore[attr-defined]
        x = self.residual(x, self.norm2, look)  # type: ignore[attr-defined]
        return self.residual(x, self.norm3, self.mlp)  # type: ignore[attr-defined]


class Stack(Module):
    """`num_layers` copies of a layer, one after the other, and a norm at the end."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None):
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(size(type(self).__name__, "num_layers", num_layers))])
        self.norm = norm

    def run(self, x: Any, *args: Any, **options: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *args, **options)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(Stack):
    """Layers that begin with the same numbers, as in PyTorch; its nested tensors and check of masks change no result: taken, not used."""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True, mask_check: bool = True
    ):  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)

    def forward(self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None) -> Any:
        """src as a layer takes it -> the same shape."""
        return self.run(src, mask, src_key_padding_mask, bool(is_causal))


class TransformerDecoder(Stack):
    """Layers that begin with the same numbers, as in PyTorch."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """tgt and memory as a layer takes them -> the shape of tgt."""
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.run(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)


class Transformer(Module):
    """An encoder and a decoder that looks at what it gives (Vaswani et al. 2017), as PyTorch has them: a norm at the end of each."""

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True, **place: Any,
    ):  # fmt: skip
        given = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        norms = [LayerNorm(d_model, layer_norm_eps, bias=bias, **place) for _ in range(2)]
        self.encoder = TransformerEncoder(TransformerEncoderLayer(*given, **place), num_encoder_layers, norms[0])
        self.decoder = TransformerDecoder(TransformerDecoderLayer(*given, **place), num_decoder_layers, norms[1])
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform(p)

    def forward(
        self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None, src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Any:  # fmt: skip
        """src (S, B, d_model) and tgt (T, B, d_model), or batch first -> the shape of tgt. Masks: see MultiheadAttention.forward."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Any:
        """A mask (sz, sz) of floats to be added, -inf where a row would see a later one."""
        shape = np.full((size("Transformer", "sz", sz),) * 2, -np.inf, np.float32)
        return Tensor.of("Transformer", np.triu(shape, 1), device).to(dtype)
