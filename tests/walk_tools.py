"""Launches to be walked, for test_walk.py and test_walk_checks.py."""

from __future__ import annotations

import numpy as np

from flamepy.backend.base import Buffer, device
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.run import Step
from flamepy.core.op import REGISTRY
from flamepy.dtypes import float32

CPU = device("cpu")


def add(out: Buffer, x: Buffer, y: Buffer, wide: bool = False) -> Step:
    """out = x + y."""
    kernel = CPU.kernel(loop_named("map2"), REGISTRY["add"].formula, float32, 1 << 20 if wide else 1)  # type: ignore[attr-defined]
    return Step(kernel, (out,), (x, y), ())


def buffers(*sizes: int) -> list[Buffer]:
    return [CPU.upload(np.arange(size, dtype="f4")) for size in sizes]
