"""Activations as modules, for Sequential.

May import: nn.module, nn.functional. FLAME counterpart: `flame_core::activations`. Read next: init.py.
"""

from __future__ import annotations

from typing import Any

from . import functional as F
from .module import Module


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Any) -> Any:
        return F.relu(x)


class GELU(Module):
    """x * Phi(x); approximate="tanh" for the formula with tanh."""

    def __init__(self, approximate: str = "none"):
        if approximate not in ("none", "tanh"):
            raise ValueError(f"GELU: unknown approximation: {approximate!r}. Use 'none' or 'tanh'.")
        self.approximate = approximate

    def forward(self, x: Any) -> Any:
        return F.gelu(x, approximate=self.approximate)

    def extra(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Any) -> Any:
        return F.silu(x)


class Tanh(Module):
    """tanh(x)."""

    def forward(self, x: Any) -> Any:
        return F.tanh(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Any) -> Any:
        return F.sigmoid(x)
