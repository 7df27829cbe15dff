"""The tables that loops of convolution and pooling take, for arguments as users give them."""

from __future__ import annotations

import math
from typing import Any

from flamepy.ops.conv import geometry
from flamepy.ops.spatial_sizes import each


def two(*values: Any) -> list[tuple[int, ...]]:
    return [each("sizes", "a number", v, 2, 0) for v in values]


def conv_sizes(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> tuple[int, ...]:
    return geometry(x, w, *two(stride, padding, dilation), groups)


def pool_sizes(x: Any, window: Any, stride: Any, padding: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(for means, for maxima) of images of shape x."""
    window, stride, padding = two(window, stride, padding)
    rows = zip(x[-2:], window, stride, padding, strict=True)
    counts = tuple((n + 2 * p - k) // s + 1 for n, k, s, p in rows)
    planes = math.prod(x[:-2])
    maxima = [(1, *x[-2:]), (1, *window), (1, *stride), (0, *padding), (1, 1, 1), (1, *counts)]
    return (planes, *x[-2:], *window, *stride, *padding, *counts), (planes, *[n for numbers in maxima for n in numbers])
