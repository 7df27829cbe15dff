"""The compute dtype of a model: products from 16-bit operands, everything that is kept in float32.

    model.compute_dtype = flamepy.bfloat16      # None, the default: everything in the parameters' own type

Parameters, their gradients, the optimizer's state, the residual stream, the statistics of norms, softmax, cross-entropy and every sum
stay float32. Product layers (Linear, Conv2d, attention, LoRA) round their operands, sum in float32 and give results in the compute dtype;
norms compute in float32 and give it too, since products read them. Everything else follows its inputs: 16 bits give 16 bits, rounded
once, and 16 bits beside float32 give float32. A weight is rounded whenever a layer uses it, and its gradient comes out in float32, not
rounded; cotangents are float32, so float16 needs no GradScaler for small gradients. Only what a bfloat16 product reads of them is
rounded, as all that it reads; between two such layers it is rounded at once.

Backward keeps what products read and little else: of a norm its normalised rows, in 16 bits, of an activation what it got. From these
what the next layer read is made again.

bfloat16's linear layers round the float32 weight themselves, as they pack it, and add the bias as it is: nothing holds a rounded copy.
Elsewhere (convolutions, float16, operands()) weights and biases are rounded by a cast on the tape.

Setting the attribute sets it for all modules inside; one that is put inside later takes it over. A part may be set otherwise afterwards
(model.head.compute_dtype = None). It may change between steps, is no part of state_dict(), and goes along with copies and pickles.

flamepy.autocast() does for a block of ops what this does for layers (engine/autocast.py).

On a processor without instructions for bfloat16 its numbers are multiplied as float32; that is said once in a process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import ops
from ..dtypes import FLOATS, HALF, as_dtype, bfloat16, float32
from ..errors import DTypeError, warn
from ..ops.products import rounding_linear
from ..tensors import Tensor
from . import functional as F


def checked(module: Any, value: Any) -> np.dtype | None:
    """A compute dtype of a module; float32 is None where all parameters are float32. Raises DTypeError for anything but these, bfloat16
    and float16."""
    layer, known = type(module).__name__, "flamepy.bfloat16, flamepy.float16, or None for the parameters' own type"
    wrong = f"{layer}: not a compute dtype: {value!r}. Use {known}."
    if value is None:
        return None
    try:
        dtype = as_dtype(value)
    except DTypeError:
        raise DTypeError(wrong) from None
    own = dtype == float32 and all([p.dtype == float32 for p in module.parameters()])
    if isinstance(value, Tensor | np.ndarray) or not (own or dtype in HALF):
        raise DTypeError(wrong)
    return None if own else dtype


def rounded(xs: tuple[Any, ...], dtype: np.dtype, beside: Any = None) -> tuple[Any, ...]:
    """Those that are floats in `dtype`; arrays and lists become tensors where the first tensor is, `beside` among them."""
    place = next((x.device for x in (*xs, beside) if isinstance(x, Tensor)), None)
    xs = tuple([x if x is None or isinstance(x, Tensor) else Tensor.of("compute_dtype", x, place) for x in xs])
    return tuple([ops.cast(x, dtype) if x is not None and x.dtype != dtype and x.dtype in FLOATS else x for x in xs])


_said: set[np.dtype] = set()


def say_if_widened(dtype: np.dtype | None, on: Any) -> None:
    """Warn, once, where this compute dtype saves memory alone; `on`: the device."""
    why = "" if dtype is None or dtype in _said else on.why_widened(dtype)
    if dtype is not None and why:
        _said.add(dtype)
        what = f"{dtype} saves memory here, but no time: its numbers are multiplied as float32"
        warn(f"compute_dtype: {what}: {why}. Use None where memory is not short.")


def linear_in(dtype: np.dtype | None, x: Any, weight: Any, bias: Any = None, residual: Any = None, activation: str = "") -> Any:
    """F.linear() from operands of a compute dtype."""
    if dtype is not None:
        (x,) = rounded((x,), dtype, weight)
        others = [t for t in (weight, bias, residual) if t is not None]
        if dtype == bfloat16 and x is not None and x.dtype == dtype and all([t.dtype in (float32, bfloat16) for t in others]):
            return rounding_linear(x, weight, bias, residual, activation)
        weight, bias = rounded((weight, bias), dtype)
    return F.linear(x, weight, bias, residual, activation) if activation else F.linear(x, weight, bias, residual)
