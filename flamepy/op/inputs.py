"""What comes before a launch: inputs of one dtype on one device, and how their shapes broadcast.

Inputs of one shape take a map; others broadcast without being copied: the common shape is merged into few dimensions, with a stride
of each input in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..backend.base import Device
from ..backend.numbers import number
from ..core.errors import DeviceError, DTypeError, ShapeError
from ..core.tensor import Tensor
from ..dtypes import FLOATS, HALF, INTEGERS, bool_, computed, float32, float64, int64
from . import base


# ---- one dtype, one device ---------------------------------------------------------------------------------------------
def check_one_device(op: base.Op, specs: Sequence[Any]) -> None:
    """Raise DeviceError for inputs on two devices."""
    first: Any = None
    for spec in specs:
        if spec is not None and spec.device is not first:
            if first is not None:
                names = ", ".join(sorted({s.device.name for s in specs if s is not None}))
                raise DeviceError(f"{op.title}: operands are on two devices: {names}. Move one of them with .to(device).")
            first = spec.device


def coerce(name: str, args: Sequence[Any], kind: str, place: Any = None) -> tuple[Sequence[Any], np.dtype, Device]:
    """Inputs as Tensors of one dtype (Python scalars stay scalars of that dtype, or of float32 beside 16 bits), that dtype, the device.

    Beside other floats, 16-bit ones stay as they are: the dtype is float32 then (mixed.py). kind: "float" turns integers into float32,
    "number" also computes integers as they are, "any" takes bools as well. place: the device where there is no Tensor among them.
    """
    dtype: Any = None
    device: Any = None
    for x in args:
        if isinstance(x, Tensor):
            if dtype is not None and x.dtype != dtype:
                return mixed(name, args, kind, place)
            dtype, device = x.dtype, x.device
        elif not isinstance(x, base.SCALARS):
            return mixed(name, args, kind, place)
    if dtype not in FLOATS:
        return mixed(name, args, kind, place)
    wide = computed(dtype)
    try:
        return [x if isinstance(x, Tensor) else number(x, wide) for x in args], dtype, device
    except OverflowError:
        raise too_large(name, args, dtype) from None


Shape = tuple[int, ...]


def mixed(name: str, args: Sequence[Any], kind: str, place: Any) -> tuple[list[Any], np.dtype, Device]:
    """coerce() for everything but tensors of one float type and scalars."""
    if not any(isinstance(x, Tensor) for x in args):
        args = [Tensor.of(name, args[0], place), *args[1:]]
    device = next(x.device for x in args if isinstance(x, Tensor))
    xs = [x if isinstance(x, (Tensor, *base.SCALARS)) else Tensor.of(name, x, device) for x in args]
    dtype = common_dtype(name, xs, kind)
    cast = base.REGISTRY["cast"]
    wide = computed(dtype)
    fits = {dtype, *HALF} if dtype == float32 else {dtype}
    try:
        return [number(x, wide) if not isinstance(x, Tensor) else x if x.dtype in fits else cast(x, dtype) for x in xs], dtype, device
    except OverflowError:
        raise too_large(name, args, dtype) from None


def too_large(name: str, args: Sequence[Any], dtype: Any) -> DTypeError:
    numbers = [x for x in args if isinstance(x, base.SCALARS)]
    return DTypeError(f"{name}: a number does not fit {dtype}: one of {len(numbers)} given. Use smaller numbers or a wider dtype.")


def common_dtype(name: str, xs: Sequence[Any], kind: str) -> np.dtype:
    """The type of the result: the one float type if any, float32 for 16 bits beside float32 or other 16 bits. float64 beside another
    float type is an error, never a silent promotion."""
    tensors = [x.dtype for x in xs if isinstance(x, Tensor)]
    floats = {d for d in tensors if d in FLOATS}
    if len(floats) > 1:
        if float64 not in floats:
            return float32
        raise DTypeError(f"{name}: two different float types: {', '.join(sorted(map(str, floats)))}. Cast one, e.g. x.to(flamepy.float32).")
    if floats:
        return floats.pop()
    scalars = [x for x in xs if not isinstance(x, Tensor)]
    if kind == "float" or any(isinstance(s, float | np.floating) for s in scalars):
        return float32
    integers = [d for d in tensors if d in INTEGERS]
    if integers:
        return max(integers, key=lambda d: d.itemsize)
    if kind == "any" and all(isinstance(s, bool | np.bool_) for s in scalars):
        return bool_
    return int64


# ---- shapes that broadcast ---------------------------------------------------------------------------------------------
def common_shape(name: str, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...]:
    """The shape these broadcast to, by NumPy's rule (None: a number). Raises ShapeError."""
    found: tuple[int, ...] | None = None
    for shape in shapes:
        if shape is not None and shape != found:
            found = shape if found is None else combine(name, found, shape)
    return found or ()


def combine(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ShapeError(f"{name}: shapes do not broadcast: {a} and {b}. Sizes must be equal or 1, counted from the right.") from None


@lru_cache(4096)
def merged_dims(shape: Shape, shapes: tuple[Shape | None, ...]) -> tuple[tuple[int, ...], ...]:
    """The common shape as dimensions (size, stride in each input), outermost first; neighbouring ones along which every input moves
    alike are one. A stride of 0 repeats; numbers (None) have 0 everywhere."""
    rows: list[list[int]] = []  # [size, moves in input 0?, moves in input 1? ...] from the innermost outwards
    for d in range(1, len(shape) + 1):
        moves = [int(s is not None and d <= len(s) and s[-d] != 1) for s in shapes]
        if shape[-d] == 1:
            continue
        if rows and rows[-1][1:] == moves:
            rows[-1][0] *= shape[-d]
        else:
            rows.append([shape[-d], *moves])
    rows = rows or [[1] + [1] * len(shapes)]
    steps = [1] * len(shapes)
    found = []
    for n, *moves in rows:
        found.append((n, *[step if m else 0 for step, m in zip(steps, moves, strict=True)]))
        steps = [step * n if m else step for step, m in zip(steps, moves, strict=True)]
    return tuple(found[::-1])
