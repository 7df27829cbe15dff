"""The residual network of suite `step`: ResNet-18 as for images of 32 x 32 (He et al. 2016, arXiv:1512.03385), with batch norm, trained by
SGD with momentum. One model text, for flamepy.nn and torch.nn, which agree on the names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

MOMENTUM = 0.9


class ResNet(NamedTuple):
    """`stages` of `blocks` blocks; each stage after the first has twice the channels and half the lines and columns."""

    width: int
    batch: int
    stages: int = 4
    blocks: int = 2
    size: int = 32
    classes: int = 10
    decay: float = 0.0

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size


def blocks_of(shape: ResNet) -> Iterator[tuple[str, int, int, int]]:
    """(name, channels in, channels out, step) of every block."""
    channels = shape.width
    for i in range(shape.stages * shape.blocks):
        stage, first = divmod(i, shape.blocks)
        out = shape.width << stage
        yield f"blocks.{i}.", channels, out, 2 if stage and not first else 1
        channels = out


def convolutions(shape: ResNet) -> Iterator[tuple[str, str, int, int, int, int]]:
    """(name, that of its norm, channels in, channels out, window, lines and columns of the result)."""
    yield "conv", "norm", 3, shape.width, 3, shape.size
    size = shape.size
    for at, n_in, n_out, step in blocks_of(shape):
        size = -(-size // step)
        yield at + "conv1", at + "norm1", n_in, n_out, 3, size
        yield at + "conv2", at + "norm2", n_out, n_out, 3, size
        if n_in != n_out:
            yield at + "skip", at + "skip_norm", n_in, n_out, 1, size


def sizes(shape: ResNet) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, norm, n_in, n_out, window, _ in convolutions(shape):
        yield f"{name}.weight", (n_out, n_in, window, window)
        yield f"{norm}.weight", (n_out,)
        yield f"{norm}.bias", (n_out,)
    yield "head.weight", (shape.classes, shape.width << (shape.stages - 1))
    yield "head.bias", (shape.classes,)


def flops(shape: ResNet) -> float:
    each = [n_in * n_out * (window * size) ** 2 for _, _, n_in, n_out, window, size in convolutions(shape)]
    return shape.batch * (6.0 * sum(each) - 2.0 * each[0] + 6.0 * math.prod(list(sizes(shape))[-2][1]))


def model(nn: Any, shape: ResNet) -> Any:
    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, n_in: int, n_out: int, step: int):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(n_in, n_out, 3, step, 1, bias=False), nn.BatchNorm2d(n_out)
            self.conv2, self.norm2, self.relu = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU()
            if n_in != n_out:
                self.skip, self.skip_norm = nn.Conv2d(n_in, n_out, 1, step, bias=False), nn.BatchNorm2d(n_out)
            self.skips = n_in != n_out

        def forward(self, x: Any) -> Any:
            y = self.relu(self.norm1(self.conv1(x)))
            y = self.norm2(self.conv2(y))
            return self.relu(y + (self.skip_norm(self.skip(x)) if self.skips else x))

    class Network(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.relu = nn.Conv2d(3, shape.width, 3, 1, 1, bias=False), nn.BatchNorm2d(shape.width), nn.ReLU()
            self.blocks = nn.Sequential(*[Block(*block) for _, *block in blocks_of(shape)])
            self.head = nn.Linear(shape.width << (shape.stages - 1), shape.classes)

        def forward(self, x: Any) -> Any:
            return self.head(self.blocks(self.relu(self.norm(self.conv(x)))).mean((2, 3)))

    return Network()
