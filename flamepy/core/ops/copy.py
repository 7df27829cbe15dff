"""Filling, copying, casting: new memory with the same numbers, or with one number."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..custom import custom
from ..door import Door
from ..dtypes import INTEGERS, STORED, as_dtype, checked_number, computed, float32
from ..errors import ShapeError
from ..op import SCALARS, launch, like, new
from ..pointwise import pass_g
from .axes import as_shape


@custom(inputs=1, kind="as is", title="to", internal=True)
def moved(x, device=None):
    """The same numbers on another device."""
    y = new(x.shape, x.dtype, device)
    copy_into(y, x)
    return y


moved.differentiable(lambda g, origin: moved(g, origin))


def move(x: Any, device: Any) -> Any:
    """x on that device; x itself if it is there."""
    return x if x.device is device else moved(x, device)


def filled(shape: Any, value: Any, dtype: np.dtype, device: Any) -> Any:
    """A new Tensor full of one value."""
    shape = as_shape("full", shape)
    if min(shape, default=0) < 0:
        raise ShapeError(f"full: negative size: {shape}. Pass sizes as non-negative ints.")
    y = new(shape, dtype, device)
    if y.size:
        value = value if isinstance(value, SCALARS) else checked_number("full", "the value", value)
        launch("fill", None, (y,), (), (Door.number(value, computed(dtype)),))
    return y


def copy_into(y: Any, x: Any) -> None:
    """Overwrite y's buffer with x's numbers (same size), without counting a write; converts, and crosses devices."""
    if x.size:
        y.device.copy(y.buffer, x.buffer)


@custom(kind="as is", home="flamepy")
def clone(x):
    """A copy.
    Shapes: any; the result has that of x.
    >>> fp.clone(fp.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]"""
    y = like(x)
    copy_into(y, x)
    return y


clone.differentiable(pass_g)


@custom(inputs=1, kind="as is", home="flamepy")
def cast(x, dtype=float32):
    """The same numbers as another dtype; x itself if it has that dtype. Towards integers the fraction is cut off.
    Shapes: any; the result has that of x. Raises DTypeError for a dtype that is not supported.
    >>> fp.cast(fp.tensor([1.7, -1.7]), fp.int64).tolist()
    [1, -1]"""
    y = like(x, dtype=as_dtype(dtype, "cast: not supported: {}"))
    if not {x.dtype, y.dtype}.isdisjoint(STORED) and not {x.dtype, y.dtype}.isdisjoint(INTEGERS):
        between = like(x, dtype=computed(x.dtype if x.dtype in STORED else y.dtype))  # no device converts these at once
        copy_into(between, x)
        x = between
    copy_into(y, x)
    return y


@cast.differentiable
def cast_dx(g, shapes, source):
    # Cotangents of 16-bit tensors are float32: rounding them would lose small gradients.
    return cast(g, computed(source)) if g.dtype != source else g
