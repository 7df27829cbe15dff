"""Norms by channel of x (N, C, ...): BatchNorm and InstanceNorm with running statistics, GroupNorm, LocalResponseNorm.

Running statistics are buffers, written in place: by a captured step in each replay, and once only by a block under checkpoint().
"""

from __future__ import annotations

from typing import Any

from ..core.creation import ones, zeros
from ..core.errors import ShapeError
from ..dtypes import checked_number, int64
from ..engine.entries import own_state
from ..ops.channel_norms import batch_norm_in, group_norm_in, instance_norm_in
from ..ops.shape_more import unsqueeze
from ..parameter import Parameter
from ..tensors import Tensor
from . import functional as F
from .linear import flags, size
from .module import Module


class RunningNorm(Module):
    """What BatchNorm and InstanceNorm have: weight and bias (affine), running statistics (track_running_stats)."""

    axes: tuple[int, ...] = ()  # how many an input may have
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        layer = type(self).__name__
        flags(layer, affine=affine, track_running_stats=track_running_stats, bias=bias)
        self.num_features, self.eps = size(layer, "num_features", num_features), checked_number(layer, "eps", eps)
        self.momentum = None if momentum is None else checked_number(layer, "momentum", momentum)
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = Parameter.ones(num_features, dtype=dtype, device=device) if affine else None
        self.bias = Parameter.zeros(num_features, dtype=dtype, device=device) if affine and bias else None
        tracks = bool(track_running_stats)
        self.register_buffer("running_mean", zeros(num_features, dtype=dtype, device=device) if tracks else None)
        self.register_buffer("running_var", ones(num_features, dtype=dtype, device=device) if tracks else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=int64, device=device) if tracks else None)

    def reset_running_stats(self) -> None:
        """Running statistics as they were at first: mean 0, variance 1, no batches."""
        for t, value in ((self.running_mean, 0.0), (self.running_var, 1.0), (self.num_batches_tracked, 0)):
            if t is not None:
                t.set_data(t.detach() * 0 + value)

    def is_one(self, x: Any) -> bool:
        """Whether x is one example, without an axis for the batch."""
        return False

    def checked(self, x: Any) -> Any:
        """x as a Tensor. Raises ShapeError for one of other axes or channels."""
        if not isinstance(x, Tensor):
            known = [t for t in (self.weight, self.running_mean) if t is not None]
            x = Tensor.of(type(self).__name__, x, known[0].device if known else None)
        if len(x.shape) not in self.axes or x.shape[0 if self.is_one(x) else 1] != self.num_features:
            what = f"needs {' or '.join(map(str, self.axes))} axes, {self.num_features} channels: x is {x.shape}"
            raise ShapeError(f"{type(self).__name__}: {what}. Reshape it, or set num_features.")
        return x

    def extra(self) -> str:
        flags = f"affine={self.affine}, track_running_stats={self.track_running_stats}"
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, {flags}"


class BatchNorm(RunningNorm):
    def forward(self, x: Any) -> Any:
        """x (N, num_features, ...) -> the same shape. Raises ShapeError, while training for a single number a channel too."""
        x = self.checked(x)
        known, momentum, batches = (self.running_mean, self.running_var), self.momentum, self.num_batches_tracked
        if not self.training or batches is None:
            batch = self.training or known[0] is None
            return batch_norm_in(self.compute_dtype, x, *known, self.weight, self.bias, batch, momentum or 0.0, self.eps)
        with own_state():
            following = batches.detach() + 1
            momentum = following.to(self.running_mean.dtype).reciprocal() if momentum is None else momentum
        y = batch_norm_in(self.compute_dtype, x, *known, self.weight, self.bias, True, momentum, self.eps)
        with own_state() as first:
            if first:
                batches.set_data(following)
        return y


class BatchNorm1d(BatchNorm):
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel of x (N, C) or (N, C, L) (Ioffe & Szegedy 2015, arXiv:1502.03167).
    While training, mean and variance are the batch's, and the running ones move towards them by `momentum` (None: they are the mean of all
    batches so far); after eval() it is these. Without them (track_running_stats=False) it is always the batch's."""

    axes = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm1d for images, x (N, C, H, W)."""

    axes = (4,)


class BatchNorm3d(BatchNorm):
    """BatchNorm1d for volumes, x (N, C, D, H, W)."""

    axes = (5,)


class InstanceNorm(RunningNorm):
    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False, track_running_stats: bool = False,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def is_one(self, x: Any) -> bool:
        return len(x.shape) == min(self.axes)

    def forward(self, x: Any) -> Any:
        """x (N, num_features, ...), or without N -> the same shape. Raises ShapeError, for a single number a channel too."""
        x = self.checked(x)
        own, one = self.training or self.running_mean is None, self.is_one(x)
        known = self.running_mean, self.running_var
        x = unsqueeze(x, 0) if one else x
        y = instance_norm_in(self.compute_dtype, x, *known, self.weight, self.bias, own, self.momentum or 0.0, self.eps)
        return y[0] if one else y


class InstanceNorm1d(InstanceNorm):
    """BatchNorm1d of each example by itself, x (N, C, L) or (C, L) (Ulyanov et al. 2016, arXiv:1607.08022).
    Without weights and running statistics unless they are asked for."""

    axes = (2, 3)


class InstanceNorm2d(InstanceNorm):
    """InstanceNorm1d for images, x (N, C, H, W) or (C, H, W)."""

    axes = (3, 4)


class InstanceNorm3d(InstanceNorm):
    """InstanceNorm1d for volumes, x (N, C, D, H, W) or (C, D, H, W)."""

    axes = (4, 5)


class GroupNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias, where mean and variance are those of a group of channels of one example
    (Wu & He 2018, arXiv:1803.08494)."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ):  # fmt: skip
        flags("GroupNorm", affine=affine, bias=bias)
        self.num_groups, self.num_channels = size("GroupNorm", "num_groups", num_groups, 1), size("GroupNorm", "num_channels", num_channels)
        if num_channels % num_groups:
            raise ShapeError(f"GroupNorm: channels are no multiple of the groups: {num_channels}, groups {num_groups}. Choose a divisor.")
        self.eps, self.affine = checked_number("GroupNorm", "eps", eps), affine
        self.weight = Parameter.ones(num_channels, dtype=dtype, device=device) if affine else None
        self.bias = Parameter.zeros(num_channels, dtype=dtype, device=device) if affine and bias else None

    def forward(self, x: Any) -> Any:
        """x (N, num_channels, ...) -> the same shape. Raises ShapeError."""
        x = x if isinstance(x, Tensor) else Tensor.of("GroupNorm", x, None if self.weight is None else self.weight.device)
        if len(x.shape) < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(f"GroupNorm: needs (N, {self.num_channels}, ...): x is {x.shape}. Reshape it, or set num_channels.")
        return group_norm_in(self.compute_dtype, x, self.num_groups, self.weight, self.bias, self.eps)

    def extra(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels) ** beta (Krizhevsky et al. 2012)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Any) -> Any:
        """x (N, C, ...) with three axes or more -> the same shape. Raises ShapeError."""
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
