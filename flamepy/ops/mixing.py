"""Samples of a batch mixed with one another, and their labels: mixup and cutmix. What is drawn, the host draws, in every replay anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.errors import DTypeError, ShapeError
from ..core.op import over
from ..core.ops.axes import composed
from ..core.ops.copy import cast
from ..core.ops.pointwise import where
from ..core.rng import generator
from ..core.tensor import Tensor
from ..dtypes import FLOATS, INTEGERS, float32, float64, is_count, is_number
from ..rng import Moves
from .diagonals import one_hot
from .rearranging import roll


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


def checked_mixing(name: str, alpha: Any, num_classes: Any) -> tuple[float, int | None]:
    if not is_number(alpha) or not 0.0 < float(alpha) < float("inf"):
        raise ValueError(f"{name}: alpha out of range: {alpha!r}. Use a number > 0.")
    if num_classes is not None and not is_count(num_classes, 1):
        raise ValueError(f"{name}: num_classes is no count: {num_classes!r}. Use an int, 1 or more, or None for soft labels.")
    return float(alpha), num_classes


def mixed(
    name: str, x: Any, y: Any, alpha: Any, num_classes: Any, training: bool, mix: Callable[[str, Any, float], tuple[Any, Any]]
) -> tuple[Any, Any]:  # fmt: skip
    """(the batch, soft labels); `mix` gives the share of its own that a sample keeps, and the batch."""
    alpha, num_classes = checked_mixing(name, alpha, num_classes)
    x = Tensor.of(name, x)
    y = Tensor.of(name, y, x.device)
    if not x.ndim or y.shape[:1] != x.shape[:1]:
        raise ShapeError(f"{name}: not a batch and its labels: shapes {x.shape} and {y.shape}. Pass (N, ...) and (N,) or (N, classes).")
    if y.dtype in INTEGERS and y.ndim == 1:
        if num_classes is None:
            raise ValueError(f"{name}: ids without a number of classes: labels {y.shape} of {y.dtype}. Give {name} num_classes.")
        y = cast(one_hot(y, num_classes), float32)
    elif y.dtype not in FLOATS or y.ndim != 2:
        raise DTypeError(f"{name}: neither ids nor soft labels: {y.shape} of {y.dtype}. Pass (N,) integers or (N, classes) floats.")
    if not training or not x.size:
        return x, y
    share, x = mix(name, x, alpha)
    return x, blended(y, share)


def blended(x: Any, share: Any) -> Any:
    """share * x + (1 - share) * the samples before."""
    share = cast(share, x.dtype)
    return x * share + roll(x, 1, 0) * (1.0 - share)


def with_share(name: str, x: Any, alpha: float) -> tuple[Any, Any]:
    if x.dtype not in FLOATS:
        raise DTypeError(f"{name}: a batch that is not of floats cannot be blended: {x.dtype}. Cast it to float32.")
    share = x.device.empty(1, float64)
    x.device.fill(share, Draw(alpha).share)
    share = over(share, ())
    return share, blended(x, share)


def with_box(name: str, x: Any, alpha: float) -> tuple[Any, Any]:
    if x.ndim < 3:
        raise ShapeError(f"{name}: not images: shape {x.shape}. Pass (N, ..., H, W).")
    height, width = x.shape[-2:]
    numbers = x.device.empty(5, float64)
    x.device.fill(numbers, Draw(alpha, height, width).box)
    share, *ends = [over(numbers.part(i, 1), ()) for i in range(5)]
    rows, columns = [Tensor.of(name, np.arange(n, dtype=np.float64), x.device) for n in (height, width)]
    inside = ((rows >= ends[0]) & (rows < ends[1])).reshape(height, 1) & ((columns >= ends[2]) & (columns < ends[3]))
    return share, where(inside, roll(x, 1, 0), x)


@composed(home="functional")
def mixup(x: Any, y: Any, alpha: float = 1.0, num_classes: int | None = None, training: bool = True) -> Any:
    """(x, y) with each sample blended with the one before it in the batch, the first with the last, and their labels: shares l and 1 - l, l
    from Beta(alpha, alpha), one for a batch. When not training x as it is, and the labels soft.
    (Zhang et al. 2017, arXiv:1710.09412; the arithmetic of torchvision.) The draw is of flamepy's random numbers.
    Shapes: x (N, ...); labels y (N,), ids below num_classes, or (N, classes), soft; the results (N, ...) and (N, classes). Raises
    ShapeError, DTypeError, ValueError, IndexOutOfRange.
    >>> F.mixup(fp.ones(2, 1), [0, 1], num_classes=2, training=False)[1].tolist()
    [[1.0, 0.0], [0.0, 1.0]]"""
    return mixed("mixup", x, y, alpha, num_classes, training, with_share)


@composed(home="functional")
def cutmix(x: Any, y: Any, alpha: float = 1.0, num_classes: int | None = None, training: bool = True) -> Any:
    """(x, y) with a box of the sample before it put into each, the same box for a batch, and labels mixed by its area: about 1 - l, l from
    Beta(alpha, alpha). When not training x as it is, and the labels soft.
    (Yun et al. 2019, arXiv:1905.04899; the arithmetic of torchvision.) The draws are of flamepy's random numbers.
    Shapes: x (N, ..., H, W); else as mixup(). Raises what that does.
    >>> F.cutmix(fp.ones(2, 1, 4, 4), [0, 1], num_classes=2)[0].shape
    (2, 1, 4, 4)"""
    return mixed("cutmix", x, y, alpha, num_classes, training, with_box)
