"""The U-Net of suite `step` (Ronneberger et al. 2015, arXiv:1505.04597): on each level two convolutions, half the lines and columns on the
way down, transposed convolutions and what the way down had on the way up; classes of pixels; SGD with momentum. One model text, for
flamepy.nn and torch.nn, which agree on the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple


class UNet(NamedTuple):
    """Each level has twice the channels of the one above it and half the lines and columns."""

    width: int
    batch: int
    levels: int = 3
    size: int = 64
    classes: int = 4
    channels: int = 3
    decay: float = 0.0

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.size, self.size


def pairs(shape: UNet) -> Iterator[tuple[str, int, int, int]]:
    """(name, channels in, channels out, lines) of each two convolutions, in their order."""
    for i in range(shape.levels):
        yield f"down.{i}.", shape.width << (i - 1) if i else shape.channels, shape.width << i, shape.size >> i
    for i in reversed(range(shape.levels - 1)):
        yield f"up.{i}.", shape.width << (i + 1), shape.width << i, shape.size >> i


def sizes(shape: UNet) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name, n_in, n_out, _ in pairs(shape):
        yield f"{name}0.weight", (n_out, n_in, 3, 3)
        yield f"{name}0.bias", (n_out,)
        yield f"{name}2.weight", (n_out, n_out, 3, 3)
        yield f"{name}2.bias", (n_out,)
    for i in range(shape.levels - 1):
        yield f"wider.{i}.weight", (shape.width << (i + 1), shape.width << i, 2, 2)
        yield f"wider.{i}.bias", (shape.width << i,)
    yield "head.weight", (shape.classes, shape.width, 1, 1)
    yield "head.bias", (shape.classes,)


def flops(shape: UNet) -> float:
    each = [9 * n_out * (n_in + n_out) * lines**2 for _, n_in, n_out, lines in pairs(shape)]
    each += [(2 * shape.width**2 << (2 * i)) * (shape.size >> i) ** 2 for i in range(shape.levels - 1)]
    first = 9 * shape.channels * shape.width * shape.size**2
    return shape.batch * (6.0 * (sum(each) + shape.width * shape.classes * shape.size**2) - 2.0 * first)


def model(nn: Any, cat: Callable[[list[Any], int], Any], shape: UNet) -> Any:
    """The network, which gives (pixels, classes); `cat` joins tensors along an axis."""

    class Network(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            rows = {name: two(n_in, n_out) for name, n_in, n_out, _ in pairs(shape)}
            above = range(shape.levels - 1)
            self.down = nn.ModuleList([rows[f"down.{i}."] for i in range(shape.levels)])
            self.up = nn.ModuleList([rows[f"up.{i}."] for i in above])
            self.wider = nn.ModuleList([nn.ConvTranspose2d(shape.width << (i + 1), shape.width << i, 2, 2) for i in above])
            self.pool, self.head = nn.MaxPool2d(2), nn.Conv2d(shape.width, shape.classes, 1)

        def forward(self, x: Any) -> Any:
            seen = []
            for i, level in enumerate(self.down):
                x = level(self.pool(x) if i else x)
                seen.append(x)
            for i in reversed(range(shape.levels - 1)):
                x = self.up[i](cat([seen[i], self.wider[i](x)], 1))
            return self.head(x).permute((0, 2, 3, 1)).reshape((-1, shape.classes))

    def two(n_in: int, n_out: int) -> Any:
        return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.Conv2d(n_out, n_out, 3, padding=1), nn.ReLU())

    return Network()
