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

Read next: linear.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..dtypes import FLOATS, HALF, as_dtype
from ..errors import DTypeError
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
    """Those that are floats in `dtype`; arrays and lists become tensors where the first tensor is."""
    place = next((x.device for x in xs if isinstance(x, Tensor)), None)
    xs = tuple([x if x is None or isinstance(x, Tensor) else Tensor.of("compute_dtype", x, place) for x in xs])
    return tuple([ops.cast(x, dtype) if x is not None and x.dtype != dtype and x.dtype in FLOATS else x for x in xs])
