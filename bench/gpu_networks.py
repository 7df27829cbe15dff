"""Attention and convolution of suite `gpu`, and what one small op and one number on the host cost.

The first and the last head, or one image, are compared with the plain device in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from .gpu_works import Sides

SMALL = 100  # calls of an op of few numbers


@cache
def numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


class Attention(NamedTuple):
    """Causal attention over (batch, heads, rows, width); `asked`: the inputs whose gradients are taken, by a backward alone. `products`:
    how many of (rows, width) with (width, rows) that needs, of which causal attention needs half."""

    name: str
    shape: tuple[int, int, int, int]
    asked: str = ""
    products: int = 2
    dtype: str = "bfloat16"
    tolerance: float = 2e-2  # probabilities are rounded, too

    @property
    def flops(self) -> float:
        batch, heads, rows, width = self.shape
        return float(batch * heads * rows * rows * width * self.products)

    def prepare(self, sides: Sides, ends: bool = False) -> Callable[[], Any]:
        """ends: of the first and the last head alone."""
        arrays = [numbers(self.shape, seed) for seed in range(4)]
        arrays = [np.stack([a[0, 0], a[-1, -1]])[:, None] for a in arrays] if ends else arrays
        xs = [sides.put(a, self.dtype, name in self.asked) for name, a in zip("qkv", arrays, strict=False)]
        if not self.asked:
            return lambda: [sides.F.scaled_dot_product_attention(*xs, is_causal=True)]
        y, g = sides.F.scaled_dot_product_attention(*xs, is_causal=True), sides.put(arrays[3], self.dtype)
        tracked = [x for x in xs if x.requires_grad]
        return lambda: sides.backward(y, tracked, g.to(y.dtype))

    def shown(self, sides: Sides, found: list[Any]) -> list[np.ndarray]:
        return [sides.host(t[at, at]) for t in found for at in (0, -1)]

    def expected(self) -> list[np.ndarray]:
        sides = Sides("oracle")
        return self.shown(sides, self.prepare(sides, True)())


class Convolution(NamedTuple):
    """3 x 3 over images of as many channels before as after; `backward`: both gradients, alone."""

    name: str
    images: int
    channels: int
    side: int
    backward: bool = False
    dtype: str = "bfloat16"
    tolerance: float = 2e-2

    @property
    def flops(self) -> float:
        return 2.0 * self.images * self.side**2 * self.channels**2 * 9 * (1 + self.backward)

    def prepare(self, sides: Sides, images: int = 0) -> Callable[[], Any]:
        """The images are two, again and again."""
        shape = 2, self.channels, self.side, self.side
        x, g = (np.tile(numbers(shape, seed), ((images or self.images) // 2, 1, 1, 1)) for seed in range(2))
        w = numbers((self.channels, self.channels, 3, 3), 2) / (3 * self.channels**0.5)
        xs = [sides.put(a.astype(np.float32), self.dtype, self.backward) for a in (x, w)]
        if not self.backward:
            return lambda: [sides.F.conv2d(*xs, padding=1)]
        y = sides.F.conv2d(*xs, padding=1)
        cotangent = sides.put(g, self.dtype).to(y.dtype)
        return lambda: sides.backward(y, xs, cotangent)

    def shown(self, sides: Sides, found: list[Any]) -> list[np.ndarray]:
        return [sides.host(found[0][0]), *[sides.host(t) for t in found[1:]]]

    def expected(self) -> list[np.ndarray]:
        sides = Sides("oracle")
        y, *dw = self.shown(sides, self.prepare(sides, 2)())
        return [y, *[t * (self.images // 2) for t in dw]]


class Small(NamedTuple):
    """SMALL eager calls on 16 numbers; `read`: each result is read by the host."""

    name: str
    read: bool = False
    dtype: str = "float32"
    tolerance: float = 1e-6
    flops: float = 0.0

    def prepare(self, sides: Sides) -> Callable[[], Any]:
        x = sides.put(numbers((16,), 0))

        def calls() -> Any:
            for _ in range(SMALL):
                y = x + x
                if self.read:
                    y[0].item()
            return y

        return calls

    def shown(self, sides: Sides, y: Any) -> list[np.ndarray]:
        return [sides.host(y)]

    def expected(self) -> list[np.ndarray]:
        return [2.0 * numbers((16,), 0)]


GPT2, WIDE = (16, 12, 1024, 64), (16, 6, 1024, 128)
NETWORKS = {
    work.name: work
    for work in (
        Attention("attention@16x12x1024x64", GPT2),
        Attention("attention-dx@16x12x1024x64", GPT2, "qkv", 5),
        Attention("attention-dkdv@16x12x1024x64", GPT2, "kv", 4),
        Attention("attention-dq@16x12x1024x64", GPT2, "q", 3),
        Attention("attention-groups@16x12x1024x64", GPT2),
        Attention("attention-groups-dx@16x12x1024x64", GPT2, "qkv", 5),
        Attention("attention-groups-dkdv@16x12x1024x64", GPT2, "kv", 4),
        Attention("attention-groups-dq@16x12x1024x64", GPT2, "q", 3),
        Attention("attention@16x6x1024x128", WIDE),
        Attention("attention-groups@16x6x1024x128", WIDE),
        Attention("attention-dx@16x6x1024x128", WIDE, "qkv", 5),
        Convolution("conv@64x128x28x28", 64, 128, 28),
        Convolution("conv-dx@64x128x28x28", 64, 128, 28, True),
    )
}
SMALLS = {work.name: work for work in (Small("add@16"), Small("number@16", read=True))}
