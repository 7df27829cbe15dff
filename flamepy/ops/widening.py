"""Ops made of several ops compute 16-bit floats in float32, and round their result once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.ops.copy import cast
from ..core.tensor import Tensor
from ..dtypes import HALF, float32
from ..engine.autocast import here


def widened(x: Any) -> Any:
    """In float32 if it is a Tensor of 16 bits: several ops compute there, and their result is rounded once."""
    return cast(x, float32) if isinstance(x, Tensor) and x.dtype in HALF else x


def narrowed(y: Any, dtype: np.dtype) -> Any:
    """What several ops made of widened() inputs, rounded once if it should have 16 bits; in an autocast() block it stays as it is."""
    return cast(y, dtype) if dtype in HALF and here.dtype is None else y
