"""The GPT that `flamepy train` trains: about the smallest transformer that is one.

    bytes -> token vector + position vector -> blocks -> norm -> one score for each possible next byte

The scores are products with the token vectors themselves (tied weights). Weights start at N(0, 0.02), those that add to the
stream of vectors at 0.02 / sqrt(2 layers), so that the stream does not grow with depth; biases start at 0.

Two ways through it: forward() for training, and extend(), which remembers the keys and values of what it has seen, for
sampling.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import nn, ops, tensors
from ..backend.base import device
from ..nn import functional as F
from ..nn import init
from .config import GptConfig
from .data import VOCABULARY

STD = 0.02


class Past:
    """Keys and values of one block, (1, heads, time, width / heads) each."""

    def __init__(self) -> None:
        self.seen: tuple[Any, Any] | None = None

    def add(self, k: Any, v: Any) -> tuple[Any, Any]:
        """Append; returns all there are."""
        if self.seen is not None:
            k, v = ops.cat([self.seen[0], k], axis=2), ops.cat([self.seen[1], v], axis=2)
        self.seen = (k, v)
        return self.seen

    def __len__(self) -> int:
        return 0 if self.seen is None else self.seen[0].shape[2]


Cache = list[Past]


class GPT(nn.Module):
    """ids (batch, time) -> scores (batch, time, 256)."""

    def __init__(self, config: GptConfig):
        on, width = device(config.device), config.width
        self.context, self.device = config.context, on
        self.token = nn.Embedding(VOCABULARY, width, device=on)
        self.position = nn.Embedding(config.context, width, device=on)
        self.blocks = nn.ModuleList(
            nn.TransformerBlock(width, config.heads, causal=True, dropout=config.dropout, device=on) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(width, device=on)
        self.start(config.layers)
        self.params.pack()
        self.compute_dtype = config.compute_dtype  # type: ignore[assignment]

    def start(self, layers: int) -> None:
        """The first numbers of all parameters."""
        for name, p in self.named_parameters():
            if p.ndim == 2:
                adds = name.endswith(("attn.proj.weight", "mlp.2.weight"))
                init.normal(p, 0.0, STD / math.sqrt(2 * layers) if adds else STD)
            elif name.endswith("bias"):
                init.zeros(p)

    def forward(self, ids: Any) -> Any:
        """ids (batch, time), time <= context -> scores (batch, time, 256)."""
        x = self.embed(ids, 0)
        for block in self.blocks:
            x = block(x)
        return self.scores(x)

    def embed(self, ids: Any, first: int) -> Any:
        """Vectors for ids whose first one stands at position `first`."""
        positions = tensors.tensor(np.arange(first, first + ids.shape[1]), device=self.device)
        return self.token(ids) + self.position(positions)

    def scores(self, x: Any) -> Any:
        return F.linear(*self.operands(self.norm(x), self.token.weight))

    # ---- sampling -----------------------------------------------------------------------------------------------------

    def empty_cache(self) -> Cache:
        return [Past() for _ in self.blocks]

    def extend(self, ids: Any, cache: Cache) -> Any:
        """The scores after the last of `ids` (1, time), which follow what the cache has seen: all of them at first, then one
        by one."""
        x = self.embed(ids, len(cache[0]))
        for block, past in zip(self.blocks, cache, strict=True):
            q, k, v = block.attn.projected(block.norm1(x), None, None)
            k, v = past.add(k, v)
            # One new position may see everything; of several, each sees only what is before it.
            y = F.scaled_dot_product_attention(q, k, v, is_causal=ids.shape[1] > 1)
            x = x + block.attn.proj(ops.transpose(y, 1, 2).reshape(x.shape))
            x = x + block.mlp(block.norm2(x))
        return self.scores(x[:, -1])
