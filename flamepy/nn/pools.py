"""Pools of lines, images and volumes, as modules."""

from __future__ import annotations

from typing import Any

from ..ops.spatial_sizes import each
from . import functional as F
from .activation import Named


class Pool(Named):
    """What pools have in common: `arguments` that the function of nn.functional takes by name."""

    arguments: tuple[str, ...] = ()

    def forward(self, x: Any) -> Any:
        """x (N, C, ...) or (C, ...) -> as many axes, the last ones of other sizes. Raises ShapeError where nothing is left."""
        return getattr(F, self.op)(x, **{name: getattr(self, name) for name in self.arguments})

    def extra(self) -> str:
        return ", ".join([f"{name}={getattr(self, name)}" for name in self.arguments])


class Windowed(Pool):
    """Pools with windows; the stride is the window's size unless given."""

    def window(self, kernel_size: Any, stride: Any) -> None:
        self.kernel_size = each(type(self).__name__, "kernel_size", kernel_size, int(self.op[-2]), 1)
        self.stride = stride


class MaxPool(Windowed):
    """The base of MaxPool1d, MaxPool2d and MaxPool3d."""

    arguments = "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
        ceil_mode: bool = False,
    ):  # fmt: skip
        self.window(kernel_size, stride)
        self.padding, self.dilation, self.return_indices, self.ceil_mode = padding, dilation, return_indices, ceil_mode

    def extra(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxPool1d(MaxPool, op="max_pool1d"):
    """The largest number of each window of lines."""


class MaxPool2d(MaxPool, op="max_pool2d"):
    """The largest number of each window of images; the stride is the window's size unless given."""


class MaxPool3d(MaxPool, op="max_pool3d"):
    """The largest number of each window of volumes."""


class MaxUnpool(Windowed):
    """The base of MaxUnpool1d, MaxUnpool2d and MaxUnpool3d."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        self.window(kernel_size, stride)
        self.padding = padding

    def forward(self, x: Any, indices: Any, output_size: Any = None) -> Any:  # type: ignore[override]
        """x and indices (N, C, ...), as a pool with return_indices gave them -> larger, x at the indices, zeros elsewhere."""
        return getattr(F, self.op)(x, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(MaxUnpool, op="max_unpool1d"):
    """The largest numbers of windows of lines where they were, zeros elsewhere."""


class MaxUnpool2d(MaxUnpool, op="max_unpool2d"):
    """The largest numbers of windows of images where they were, zeros elsewhere."""


class MaxUnpool3d(MaxUnpool, op="max_unpool3d"):
    """The largest numbers of windows of volumes where they were, zeros elsewhere."""


class AvgPool1d(Windowed, op="avg_pool1d"):
    """The mean of each window of lines."""

    arguments: tuple[str, ...] = "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    ):  # fmt: skip
        self.window(kernel_size, stride)
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad


class AvgPool(Windowed):
    """The base of AvgPool2d and AvgPool3d."""

    arguments = *AvgPool1d.arguments, "divisor_override"

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: Any = None,
    ):  # fmt: skip
        self.window(kernel_size, stride)
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(AvgPool, op="avg_pool2d"):
    """The mean of each window of images."""


class AvgPool3d(AvgPool, op="avg_pool3d"):
    """The mean of each window of volumes."""


class LPPool(Windowed):
    """The base of LPPool1d, LPPool2d and LPPool3d."""

    arguments = "norm_type", "kernel_size", "stride", "ceil_mode"

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False):
        self.window(kernel_size, stride)
        self.norm_type, self.ceil_mode = norm_type, ceil_mode


class LPPool1d(LPPool, op="lp_pool1d"):
    """The norm of each window of lines, of power norm_type."""


class LPPool2d(LPPool, op="lp_pool2d"):
    """The norm of each window of images, of power norm_type."""


class LPPool3d(LPPool, op="lp_pool3d"):
    """The norm of each window of volumes, of power norm_type."""


class AdaptiveAvgPool(Pool):
    """The base of AdaptiveAvgPool1d, AdaptiveAvgPool2d and AdaptiveAvgPool3d."""

    arguments = ("output_size",)

    def __init__(self, output_size: Any):
        self.output_size = output_size


class AdaptiveAvgPool1d(AdaptiveAvgPool, op="adaptive_avg_pool1d"):
    """Means of output_size windows of lines."""


class AdaptiveAvgPool2d(AdaptiveAvgPool, op="adaptive_avg_pool2d"):
    """Means of output_size windows of images; AdaptiveAvgPool2d(1) is the mean of all."""


class AdaptiveAvgPool3d(AdaptiveAvgPool, op="adaptive_avg_pool3d"):
    """Means of output_size windows of volumes."""


class AdaptiveMaxPool(Pool):
    """The base of AdaptiveMaxPool1d, AdaptiveMaxPool2d and AdaptiveMaxPool3d."""

    arguments = "output_size", "return_indices"

    def __init__(self, output_size: Any, return_indices: bool = False):
        self.output_size, self.return_indices = output_size, return_indices


class AdaptiveMaxPool1d(AdaptiveMaxPool, op="adaptive_max_pool1d"):
    """The largest numbers of output_size windows of lines."""


class AdaptiveMaxPool2d(AdaptiveMaxPool, op="adaptive_max_pool2d"):
    """The largest numbers of output_size windows of images."""


class AdaptiveMaxPool3d(AdaptiveMaxPool, op="adaptive_max_pool3d"):
    """The largest numbers of output_size windows of volumes."""
