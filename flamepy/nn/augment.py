"""Layers that act while training alone: StochasticDepth and DropBlock2d inside a model; MixUp and CutMix on its batches and labels.

mix = nn.CutMix(num_classes=10)
x, targets = mix(images, labels)                        # targets: (N, 10), soft
loss = -(targets * F.log_softmax(model(x), axis=-1)).sum(axis=-1).mean()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import checked_number
from ..ops.mixing import checked_mixing
from . import functional as F
from .module import Module


class StochasticDepth(Module):
    """While training, zero whole samples with probability p and scale the others by 1 / (1 - p); mode "row" or "batch"."""

    def __init__(self, p: float, mode: str = "row"):
        F.stochastic_depth(np.zeros(1), p, mode, training=False)
        self.p, self.mode = checked_number("StochasticDepth", "p", p), mode

    def forward(self, x: Any) -> Any:
        """x (N, ...) -> the same shape; after eval() x itself."""
        return F.stochastic_depth(x, self.p, self.mode, self.training)

    def extra(self) -> str:
        return f"p={self.p}, mode={self.mode}"


class DropBlock2d(Module):
    """While training, zero square regions of about a share p of all elements."""

    def __init__(self, p: float, block_size: int):
        F.drop_block2d(np.zeros((0, 1, 1, 1)), p, block_size, training=False)
        self.p, self.block_size = checked_number("DropBlock2d", "p", p), int(block_size)

    def forward(self, x: Any) -> Any:
        """x (N, C, H, W) -> the same shape; after eval() x itself."""
        return F.drop_block2d(x, self.p, self.block_size, self.training)

    def extra(self) -> str:
        return f"p={self.p}, block_size={self.block_size}"


class Mixing(Module):
    """Base of both: each sample is mixed with the one before it in the batch, the first with the last."""

    function: Callable[..., Any]

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None):
        self.alpha, self.num_classes = checked_mixing(type(self).__name__, alpha, num_classes)

    def forward(self, x: Any, y: Any) -> tuple[Any, Any]:
        """A batch (N, ...) and labels, ids (N,) or soft ones (N, classes) -> the batch mixed, and soft labels; after eval() the batch as it
        is, and the labels soft. Raises ShapeError, DTypeError, and IndexOutOfRange for ids that are not below num_classes."""
        return self.function(x, y, self.alpha, self.num_classes, self.training)  # type: ignore[no-any-return]

    def extra(self) -> str:
        return f"alpha={self.alpha}, num_classes={self.num_classes}"


class MixUp(Mixing):
    """While training, blend each sample with another, and their labels: F.mixup(). MixUp(alpha=1.0, num_classes=None)."""

    function = staticmethod(F.mixup)


class CutMix(Mixing):
    """While training, put a box of another sample into each, and mix the labels by its area: F.cutmix().
    CutMix(alpha=1.0, num_classes=None); batches (N, ..., H, W)."""

    function = staticmethod(F.cutmix)
