"""Launches to be walked, for test_walk.py and test_walk_checks.py."""

from __future__ import annotations

import numpy as np

from flamepy.backend.base import Buffer, device
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.run import Step
from flamepy.dtypes import float32
from flamepy.ops import pointwise

CPU = device("cpu")


def add(out: Buffer, x: Buffer, y: Buffer, wide: bool = False) -> Step:
    """out = x + y."""
    return Step(CPU.kernel(loop_named("map2"), pointwise.add_y, float32, 1 << 20 if wide else 1), (out,), (x, y), ())  # type: ignore[attr-defined]


def buffers(*sizes: int) -> list[Buffer]:
    return [CPU.upload(np.arange(size, dtype="f4")) for size in sizes]
