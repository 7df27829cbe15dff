"""Rows of torch_adapters.py: convolutions, pools and resampling."""

from __future__ import annotations

from typing import Any

from torch_adapters import Row

import flamepy.nn.functional as F


def grid_sampler(x: Any, grid: Any, mode: int, padding: int, align_corners: bool) -> Any:
    named = ("bilinear", "nearest", "bicubic")[mode], ("zeros", "border", "reflection")[padding]
    return F.grid_sample(x, grid, *named, align_corners)


SAME = """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d
    avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    interpolate unfold pixel_shuffle pixel_unshuffle channel_shuffle bilinear
    max_unpool1d max_unpool2d max_unpool3d"""
SPATIAL: dict[str, Row] = {f"nn.functional.{name}": Row(name, getattr(F, name)) for name in SAME.split()} | {
    "nn.functional.upsample_bilinear": Row(
        "interpolate", lambda x, size=None, scale_factor=None: F.interpolate(x, size, scale_factor, "bilinear", align_corners=True)
    ),
    "nn.functional.upsample_nearest": Row("interpolate", lambda x, size=None, scale_factor=None: F.interpolate(x, size, scale_factor)),
    **{f"grid_sampler_{n}d": Row("grid_sample", grid_sampler, lambda x, grid, mode, *_: mode == 2) for n in (2, 3)},
    "constant_pad_nd": Row("pad", lambda x, pad, value=0.0: F.pad(x, pad, value=value)),
    # clip's gradient passes at the border's last number, and "nearest" sends the grid none where PyTorch sends zeros
    "nn.functional.grid_sample": Row("grid_sample", F.grid_sample),
}
