"""Conv2d and MaxPool2d, for images (N, C, H, W) or (C, H, W)."""

from __future__ import annotations

from typing import Any

from ..core.errors import ShapeError
from ..parameter import Parameter
from . import functional as F
from .linear import size
from .module import Module


def two(layer: str, name: str, value: Any) -> tuple[int, int]:
    """An int or a pair as a pair."""
    given = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(given) != 2:
        raise ShapeError(f"{layer}: {name} is not a pair: {value!r}. Use an int or two of them.")
    return size(layer, name, given[0], 1), size(layer, name, given[1], 1)


class Conv2d(Module):
    """A convolution of images; weight is (out_channels, in_channels / groups, rows, columns).

    weight and bias start uniform in +-1 / sqrt(in_channels / groups * rows * columns).
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        for name, value, least in (("in_channels", in_channels, 0), ("out_channels", out_channels, 0), ("groups", groups, 1)):
            size("Conv2d", name, value, least)
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"Conv2d: channels are not multiples of groups: {in_channels} to {out_channels}, groups {groups}. Choose a divisor of both."
            )
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        rows, cols = two("Conv2d", "kernel_size", kernel_size)
        bound = max(1, in_channels // groups * rows * cols) ** -0.5
        shape = (out_channels, in_channels // groups, rows, cols)
        self.weight = Parameter.uniform(shape, -bound, bound, dtype=dtype, device=device)
        self.bias = Parameter.uniform((out_channels,), -bound, bound, dtype=dtype, device=device) if bias else None

    def forward(self, x: Any) -> Any:
        """x (N, in_channels, H, W) -> (N, out_channels, H', W'), H' = (H + 2 padding - dilation (rows - 1) - 1) // stride + 1.

        Raises ShapeError where the channels differ or the kernel is larger than the padded image.
        """
        x, weight, bias = self.operands(x, self.weight, self.bias)
        return F.conv2d(x, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def extra(self) -> str:
        out, each, *kernel = self.weight.shape
        return f"{each * self.groups}, {out}, kernel_size={tuple(kernel)}, stride={self.stride}, padding={self.padding}"


class MaxPool2d(Module):
    """The largest number of each window; the stride is the window's size unless given."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        self.kernel_size = two("MaxPool2d", "kernel_size", kernel_size)
        self.stride, self.padding = stride, padding

    def forward(self, x: Any) -> Any:
        """x (N, C, H, W) -> (N, C, H', W'), H' = (H + 2 padding - kernel) // stride + 1. Raises ShapeError where nothing is left."""
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding)

    def extra(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
