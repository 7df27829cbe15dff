"""Other sizes and orders of what images hold, as modules: upsampling, windows and pixels moved about."""

from __future__ import annotations

from typing import Any

from . import functional as F
from .activation import Options
from .module import Module


class Upsample(Module):
    """F.interpolate() to a size or by a factor."""

    def __init__(
        self, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None,
        recompute_scale_factor: Any = None,
    ):  # fmt: skip
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, x: Any) -> Any:
        """x (N, C, ...) -> the last one to three axes of the wanted size. Raises ShapeError, ValueError."""
        return F.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor)

    def extra(self) -> str:
        size = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images enlarged by the nearest number."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Images enlarged between their numbers; corners stay where they are."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Options, op="pixel_shuffle"):
    """Channels as pixels: (..., C r r, H, W) -> (..., C, H r, W r)."""

    def __init__(self, upscale_factor: int):
        self.keep(upscale_factor=upscale_factor)


class PixelUnshuffle(Options, op="pixel_unshuffle"):
    """Pixels as channels: (..., C, H r, W r) -> (..., C r r, H, W)."""

    def __init__(self, downscale_factor: int):
        self.keep(downscale_factor=downscale_factor)


class ChannelShuffle(Options, op="channel_shuffle"):
    """Channels dealt out anew, one of each group after the other: (N, C, ...) of C a multiple of groups -> the same shape."""

    def __init__(self, groups: int):
        self.keep(groups=groups)


class Unfold(Options, op="unfold"):
    """Each window of images as a column: (N, C, H, W) -> (N, C * rows * columns, positions)."""

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        self.keep(kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)


class Fold(Options, op="fold"):
    """Columns added up where they were in images of output_size: (N, C * rows * columns, positions) -> (N, C, *output_size)."""

    def __init__(self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1):
        self.keep(output_size=output_size, kernel_size=kernel_size, dilation=dilation, padding=padding, stride=stride)
