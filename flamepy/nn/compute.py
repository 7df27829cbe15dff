"""The compute dtype of a model: products from 16-bit operands, everything that is kept in float32.

    model.compute_dtype = flamepy.bfloat16      # None, the default: everything in the parameters' own type

Parameters, their gradients, the optimizer's state, the residual stream, the statistics of norms, softmax, cross-entropy and every sum
stay float32. Product layers (Linear, Conv2d, attention, LoRA) round their operands, sum in float32 and give results in the compute dtype;
norms compute in float32 and give it too, since products read them. Everything else follows its inputs: 16 bits give 16 bits, rounded
once, and 16 bits beside float32 give float32. A weight is rounded whenever a layer uses it, on the tape, so its gradient comes out in
float32, not rounded; cotangents are float32 everywhere, so float16 needs no GradScaler for small gradients. Only
what a bfloat16 product reads of them is rounded, as all that it reads.

Setting the attribute sets it for all modules inside; one that is put inside later takes it over. A part may be set otherwise afterwards
(model.head.compute_dtype = None). It may change between steps, is no part of state_dict(), and goes along with copies and pickles.

On a processor without instructions for bfloat16 its numbers are multiplied as float32; that is said once in a process.

Read next: linear.py.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .. import ops
from ..dtypes import FLOATS, HALF, as_dtype
from ..errors import DTypeError, FlameWarning
from ..tensors import Tensor


def checked(layer: str, value: Any) -> np.dtype | None:
    """A compute dtype. Raises DTypeError for anything but bfloat16, float16 and None."""
    wrong = f"{layer}: not a compute dtype: {value!r}. Use flamepy.bfloat16, flamepy.float16, or None for the parameters' own type."
    if value is None:
        return None
    try:
        dtype = as_dtype(value)
    except DTypeError:
        raise DTypeError(wrong) from None
    if isinstance(value, Tensor | np.ndarray) or dtype not in HALF:
        raise DTypeError(wrong)
    return dtype


def rounded(xs: tuple[Any, ...], dtype: np.dtype) -> tuple[Any, ...]:
    """Those that are float tensors in `dtype`."""
    return tuple([ops.cast(x, dtype) if isinstance(x, Tensor) and x.dtype != dtype and x.dtype in FLOATS else x for x in xs])


_said: set[np.dtype] = set()


def say_if_widened(dtype: np.dtype | None, on: Any) -> None:
    """Warn, once, where this compute dtype saves memory alone; `on`: the device."""
    why = "" if dtype is None or dtype in _said else on.why_widened(dtype)
    if dtype is not None and why:
        _said.add(dtype)
        what = f"{dtype} saves memory here, but no time: its numbers are multiplied as float32"
        warnings.warn(f"compute_dtype: {what}: {why}. Use None where memory is not short.", FlameWarning, stacklevel=3)
