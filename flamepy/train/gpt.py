"""The GPT that `flamepy train` trains: about the smallest transformer that is one.

    bytes -> token vector + position vector -> blocks -> norm -> one score for each possible next byte

The scores are products with the token vectors themselves (tied weights). Weights start at N(0, 0.02), those that add to the
stream of vectors at 0.02 / sqrt(2 layers), so that the stream does not grow with depth; biases start at 0.

Two ways through it: forward() for training, and extend(), which remembers the keys and values of what it has seen, for
sampling.

May import: everything of flamepy but cli. FLAME counterpart: none. Read next: nn/.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import creation, nn, ops, tensors
from ..nn import functional as F
from .config import GptConfig
from .tokens import VOCABULARY

STD = 0.02


class Attention(nn.Module):
    """Every position looks at itself and those before it."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Any, past: Past | None = None) -> Any:
        batch, time, width = x.shape
        q, k, v = self.qkv(x).reshape((batch, time, 3, self.heads, width // self.heads)).permute((2, 0, 3, 1, 4))
        if past is not None:
            k, v = past.add(k, v)
        # One new position may see everything; of several, each sees only what is before it.
        y = F.scaled_dot_product_attention(q, k, v, is_causal=time > 1)
        return self.proj(y.permute((0, 2, 1, 3)).reshape((batch, time, width)))


class Past:
    """Keys and values of one block so far."""

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None

    def add(self, k: Any, v: Any) -> tuple[Any, Any]:
        if self.keys is None:
            self.keys, self.values = k, v
        else:
            self.keys, self.values = ops.cat([self.keys, k], axis=2), ops.cat([self.values, v], axis=2)
        return self.keys, self.values


Cache = list[Past]
