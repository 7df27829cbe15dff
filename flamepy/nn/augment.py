"""Layers that act while training alone: StochasticDepth and DropBlock2d inside a model; MixUp and CutMix on its batches and labels.

mix = nn.CutMix(num_classes=10)
x, targets = mix(images, labels)                        # targets: (N, 10), soft
loss = -(targets * F.log_softmax(model(x), axis=-1)).sum(axis=-1).mean()
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..core.op import over
from ..core.rng import generator
from ..dtypes import FLOATS, INTEGERS, checked_number, float32, float64, is_count, is_number
from ..errors import DTypeError, ShapeError
from ..rng import Moves
from ..tensors import Tensor
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


class Draw(Moves):
    """What the host draws for a batch: the share of its own that a sample keeps, and the box (top, bottom, left, right) that it gives away;
    in every replay of a step anew."""

    def __init__(self, alpha: float, height: int = 0, width: int = 0):
        self.alpha, self.height, self.width = alpha, height, width

    def __eq__(self, other: object) -> bool:
        """For a check of a captured step: each call makes one anew, which does the same."""
        return type(other) is Draw and vars(other) == vars(self)

    __hash__ = object.__hash__

    def share(self) -> list[float]:
        return self.shared()[1]

    def shared(self) -> tuple[np.random.Generator, list[float]]:
        """The next place in flamepy's random numbers, as a sequence of its own, and the first number of it."""
        seed, stream, step = generator.take()
        numbers = np.random.Generator(np.random.Philox(key=seed, counter=[stream, step, 0, 0]))
        return numbers, [float(numbers.beta(self.alpha, self.alpha))]

    def box(self) -> list[float]:
        numbers, (share,) = self.shared()
        ends = []
        for n in (self.height, self.width):
            center, half = int(numbers.integers(n)), int(0.5 * (1.0 - share) ** 0.5 * n)
            ends += [max(0, center - half), min(n, center + half)]
        top, bottom, left, right = ends
        return [1.0 - (bottom - top) * (right - left) / (self.height * self.width), *map(float, ends)]


class Mixing(Module):
    """Base of both: each sample is mixed with the one before it in the batch, the first with the last."""

    def __init__(self, alpha: float = 1.0, num_classes: int | None = None):
        name = type(self).__name__
        if not is_number(alpha) or not 0.0 < float(alpha) < float("inf"):
            raise ValueError(f"{name}: alpha out of range: {alpha!r}. Use a number > 0.")
        if num_classes is not None and not is_count(num_classes, 1):
            raise ValueError(f"{name}: num_classes is no count: {num_classes!r}. Use an int, 1 or more, or None for soft labels.")
        self.alpha, self.num_classes = float(alpha), num_classes

    def forward(self, x: Any, y: Any) -> tuple[Any, Any]:
        """A batch (N, ...) and labels, ids (N,) or soft ones (N, classes) -> the batch mixed, and soft labels; after eval() the batch as it
        is, and the labels soft. Raises ShapeError, DTypeError, and IndexOutOfRange for ids that are not below num_classes."""
        name = type(self).__name__
        x = Tensor.of(name, x)
        y = Tensor.of(name, y, x.device)
        if not x.ndim or y.shape[:1] != x.shape[:1]:
            raise ShapeError(f"{name}: not a batch and its labels: shapes {x.shape} and {y.shape}. Pass (N, ...) and (N,) or (N, classes).")
        y = self.soft(name, y)
        if not self.training or not x.size:
            return x, y
        share, x = self.mixed(name, x)
        return x, blended(y, share)

    def soft(self, name: str, y: Any) -> Any:
        if y.dtype in INTEGERS and y.ndim == 1:
            if self.num_classes is None:
                raise ValueError(f"{name}: ids without a number of classes: labels {y.shape} of {y.dtype}. Give {name} num_classes.")
            return ops.cast(ops.one_hot(y, self.num_classes), float32)  # type: ignore[attr-defined]
        if y.dtype not in FLOATS or y.ndim != 2:
            raise DTypeError(f"{name}: neither ids nor soft labels: {y.shape} of {y.dtype}. Pass (N,) integers or (N, classes) floats.")
        return y

    def mixed(self, name: str, x: Any) -> tuple[Any, Any]:
        """The share of its own that a sample keeps, and the batch."""
        raise NotImplementedError

    def extra(self) -> str:
        return f"alpha={self.alpha}, num_classes={self.num_classes}"


def blended(x: Any, share: Any) -> Any:
    """share * x + (1 - share) * the samples before."""
    share = share.to(x.dtype)
    return x * share + ops.roll(x, 1, 0) * (1.0 - share)  # type: ignore[attr-defined]


class MixUp(Mixing):
    """While training, blend each sample with another, and their labels: shares l and 1 - l, l from Beta(alpha, alpha), one for a batch.

    (Zhang et al. 2017, arXiv:1710.09412; the arithmetic of torchvision.) MixUp(alpha=1.0, num_classes=None).
    """

    def mixed(self, name: str, x: Any) -> tuple[Any, Any]:
        if x.dtype not in FLOATS:
            raise DTypeError(f"{name}: a batch that is not of floats cannot be blended: {x.dtype}. Cast it to float32.")
        share = x.device.empty(1, float64)
        x.device.fill(share, Draw(self.alpha).share)
        share = over(share, ())
        return share, blended(x, share)


class CutMix(Mixing):
    """While training, put a box of another sample into each, and mix the labels by its area, about 1 - l, l from Beta(alpha, alpha); the
    same box for a batch.

    (Yun et al. 2019, arXiv:1905.04899; the arithmetic of torchvision.) CutMix(alpha=1.0, num_classes=None); batches (N, ..., H, W).
    """

    def mixed(self, name: str, x: Any) -> tuple[Any, Any]:
        if x.ndim < 3:
            raise ShapeError(f"{name}: not images: shape {x.shape}. Pass (N, ..., H, W).")
        height, width = x.shape[-2:]
        numbers = x.device.empty(5, float64)
        x.device.fill(numbers, Draw(self.alpha, height, width).box)
        share, *ends = [over(numbers.part(i, 1), ()) for i in range(5)]
        rows, columns = [Tensor.of(name, np.arange(n, dtype=np.float64), x.device) for n in (height, width)]
        inside = ((rows >= ends[0]) & (rows < ends[1])).reshape(height, 1) & ((columns >= ends[2]) & (columns < ends[3]))
        return share, ops.where(inside, ops.roll(x, 1, 0), x)  # type: ignore[attr-defined]
