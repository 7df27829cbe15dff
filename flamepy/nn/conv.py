"""Convolutions of lines (N, C, L), images (N, C, H, W) and volumes (N, C, D, H, W), or of one without N, and transposed ones."""

from __future__ import annotations

import math
from typing import Any

from .. import ops
from ..core.errors import ShapeError
from ..ops.conv import around_window
from ..ops.spatial_sizes import each, sides
from ..parameter import Parameter
from . import functional as F
from .activation import Named
from .linear import flags, size

MODES = "zeros", "reflect", "replicate", "circular"


class Windows(Named):
    """What convolutions have in common: `axes` of a window, `op` of nn.functional, and weights that start uniform in
    +-1 / sqrt(numbers that a result is a sum of)."""

    stride: Any
    padding: Any

    @property
    def axes(self) -> int:
        return int(self.op[-2])

    def set_up(self, channels: tuple[int, int], kernel_size: Any, groups: int, bias: bool, dtype: Any, device: Any, turned: bool) -> None:
        """The parameters; turned: the weight is (in, out / groups, ...), not (out, in / groups, ...). Raises ShapeError."""
        layer, (ins, outs) = type(self).__name__, channels
        flags(layer, bias=bias)
        for name, value, least in (("in_channels", ins, 0), ("out_channels", outs, 0), ("groups", groups, 1)):
            size(layer, name, value, least)
        if ins % groups or outs % groups:
            raise ShapeError(f"{layer}: channels are not multiples of groups: {ins} to {outs}, groups {groups}. Choose a divisor of both.")
        self.in_channels, self.out_channels, self.groups = ins, outs, groups
        self.kernel_size = each(layer, "kernel_size", kernel_size, self.axes, 1)
        shape = (ins, outs // groups) if turned else (outs, ins // groups)
        bound = max(1, shape[1] * math.prod(self.kernel_size)) ** -0.5
        self.weight = Parameter.uniform((*shape, *self.kernel_size), -bound, bound, dtype=dtype, device=device)
        self.bias = Parameter.uniform((outs,), -bound, bound, dtype=dtype, device=device) if bias else None

    def set_mode(self, padding_mode: str, known: tuple[str, ...] = MODES) -> None:
        if padding_mode not in known:
            raise ValueError(f"{type(self).__name__}: unknown padding_mode: {padding_mode!r}. Use one of {', '.join(known)}.")
        self.padding_mode = padding_mode

    def extra(self) -> str:
        shown = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
        more = [("output_padding", 0), ("dilation", 1), ("groups", 1), ("padding_mode", "zeros")]
        shown += "".join([f", {name}={value}" for name, usual in more if (value := getattr(self, name, usual)) != usual])
        return shown if self.bias is not None else f"{shown}, bias=False"


class Convolution(Windows):
    """The base of Conv1d, Conv2d and Conv3d."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.set_mode(padding_mode)
        self.set_up((in_channels, out_channels), kernel_size, groups, bias, dtype, device, False)

    def forward(self, x: Any) -> Any:
        """x (N, in_channels, ...) -> (N, out_channels, ...), each axis (size + 2 padding - dilation (window - 1) - 1) // stride + 1.
        Raises ShapeError where the channels differ or the window is larger than what it slides over."""
        padding = self.padding
        if self.padding_mode != "zeros":
            x, padding = self.bordered(x), 0
        x, weight, bias = self.operands(x, self.weight, self.bias)
        return getattr(F, self.op)(x, weight, bias, self.stride, padding, self.dilation, self.groups)

    def bordered(self, x: Any) -> Any:
        """x with numbers of its own around it, as padding_mode says."""
        layer, gaps = type(self).__name__, each(type(self).__name__, "dilation", self.dilation, self.axes, 1)
        steps = each(layer, "stride", self.stride, self.axes, 1)
        around = around_window(layer, self.padding, self.kernel_size, steps, gaps)
        return ops.pad(x, ((0, 0),) * (len(x.shape) - self.axes) + around, mode=self.padding_mode)


class Conv1d(Convolution, op="conv1d"):
    """A convolution of lines; weight is (out_channels, in_channels / groups, window)."""


class Conv2d(Convolution, op="conv2d"):
    """A convolution of images; weight is (out_channels, in_channels / groups, rows, columns).
    weight and bias start uniform in +-1 / sqrt(in_channels / groups * rows * columns)."""


class Conv3d(Convolution, op="conv3d"):
    """A convolution of volumes; weight is (out_channels, in_channels / groups, depth, rows, columns)."""


class Transposed(Windows):
    """The base of ConvTranspose1d, ConvTranspose2d and ConvTranspose3d."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        self.stride, self.padding, self.output_padding, self.dilation = stride, padding, output_padding, dilation
        self.set_mode(padding_mode, MODES[:1])
        self.set_up((in_channels, out_channels), kernel_size, groups, bias, dtype, device, True)

    def forward(self, x: Any, output_size: Any = None) -> Any:
        """x (N, in_channels, ...) -> (N, out_channels, ...), each axis of (size - 1) stride - 2 padding + dilation (window - 1)
        + output_padding + 1. output_size: of the last axes, from which output_padding follows. Raises ShapeError."""
        more = self.output_padding if output_size is None else self.more_for(x, output_size)
        x, weight, bias = self.operands(x, self.weight, self.bias)
        return getattr(F, self.op)(x, weight, bias, self.stride, self.padding, more, self.groups, self.dilation)

    def more_for(self, x: Any, output_size: Any) -> tuple[int, ...]:
        """The output_padding that gives this size."""
        layer, axes = type(self).__name__, self.axes
        wanted = each(layer, "output_size", tuple(output_size)[-axes:], axes, 1)
        steps, gaps = each(layer, "stride", self.stride, axes, 1), each(layer, "dilation", self.dilation, axes, 1)
        rows = zip(x.shape[-axes:], steps, sides(layer, self.padding, axes), gaps, self.kernel_size, strict=True)
        least = [(n - 1) * s - a - b + d * (k - 1) + 1 for n, s, (a, b), d, k in rows]
        if any([not 0 <= w - n < s for w, n, s in zip(wanted, least, steps, strict=True)]):
            most = [n + s - 1 for n, s in zip(least, steps, strict=True)]
            raise ShapeError(f"{layer}: output_size is out of reach: {wanted}. Use from {tuple(least)} to {tuple(most)}.")
        return tuple([w - n for w, n in zip(wanted, least, strict=True)])


class ConvTranspose1d(Transposed, op="conv_transpose1d"):
    """A transposed convolution of lines; weight is (in_channels, out_channels / groups, window)."""


class ConvTranspose2d(Transposed, op="conv_transpose2d"):
    """A transposed convolution of images; weight is (in_channels, out_channels / groups, rows, columns)."""


class ConvTranspose3d(Transposed, op="conv_transpose3d"):
    """A transposed convolution of volumes; weight is (in_channels, out_channels / groups, depth, rows, columns)."""
