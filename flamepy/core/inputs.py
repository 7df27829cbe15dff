"""What comes before a launch: inputs of one dtype on one device, and the shape that theirs broadcast to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .device import Device
from .door import Door
from .dtypes import FLOATS, INTEGERS, bool_, computed, float32, int64
from .errors import DeviceError, DTypeError, ShapeError
from .op import REGISTRY, SCALARS, Op
from .tensor import Tensor

KINDS = {  # what an op takes, and makes of it
    "float": "floats; integers and bools are computed in float32",
    "number": "floats and integers; bools are computed in int64",
    "any": "floats, integers and bools",
    "as is": "any",
}


# ---- one dtype, one device ---------------------------------------------------------------------------------------------
def check_one_device(op: Op, specs: Sequence[Any]) -> None:
    """Raise DeviceError for inputs on two devices."""
    first: Any = None
    for spec in specs:
        if spec is not None and spec.device is not first:
            if first is not None:
                names = ", ".join(sorted({s.device.name for s in specs if s is not None}))
                raise DeviceError(f"{op.title}: operands are on two devices: {names}. Move one of them with .to(device).")
            first = spec.device


def coerce(name: str, args: Sequence[Any], kind: str, place: Any = None) -> tuple[Sequence[Any], np.dtype, Device]:
    """Inputs as Tensors of one dtype (Python scalars stay scalars of the type it is computed in), that dtype, the device.
    Beside other floats, those that are stored in fewer bits stay as they are: the dtype is then what they are computed in. kind: "float"
    turns integers into float32, "number" also computes integers as they are, "any" takes bools as well. place: the device where there is
    no Tensor among them."""
    found: list[Any] = list(args)
    device = next((x.device for x in args if isinstance(x, Tensor)), None)
    if device is None:
        found[0] = Tensor.of(name, args[0], place)
        device = found[0].device
    for i, x in enumerate(found):
        if not isinstance(x, (Tensor, *SCALARS)):
            found[i] = Tensor.of(name, x, device)
    dtype = common_dtype(name, found, kind)
    try:
        for i, x in enumerate(found):
            if not isinstance(x, Tensor):
                found[i] = Door.number(x, computed(dtype))
            elif dtype not in (x.dtype, x.spec.computed):
                found[i] = REGISTRY["cast"](x, dtype)
    except OverflowError:
        numbers = [x for x in args if isinstance(x, SCALARS)]
        advice = "Use smaller numbers or a wider dtype"
        raise DTypeError(f"{name}: a number does not fit {dtype}: one of {len(numbers)} given. {advice}.") from None
    return found, dtype, device


def common_dtype(name: str, xs: Sequence[Any], kind: str) -> np.dtype:
    """The type of the result: the one float type if any, what they are computed in if several. float64 beside another float type is an
    error, never a silent promotion."""
    tensors = {x.dtype for x in xs if isinstance(x, Tensor)}
    floats = tensors & FLOATS
    if len(floats) > 1:
        wide = {computed(d) for d in floats}
        if len(wide) > 1:
            named = ", ".join(sorted(map(str, floats)))
            raise DTypeError(f"{name}: two different float types: {named}. Cast one, e.g. x.to(flamepy.float32).")
        floats = wide
    if floats:
        return floats.pop()
    scalars = [x for x in xs if not isinstance(x, Tensor)]
    if kind == "float" or any(isinstance(s, float | np.floating) for s in scalars):
        return float32
    if integers := tensors & INTEGERS:
        found = np.result_type(*integers)
        if found not in INTEGERS:
            raise DTypeError(f"{name}: no integer type holds both: {', '.join(sorted(map(str, integers)))}. Cast one, e.g. to int64.")
        return found
    return bool_ if kind == "any" and all(isinstance(s, bool | np.bool_) for s in scalars) else int64


# ---- shapes that broadcast ---------------------------------------------------------------------------------------------
def common_shape(name: str, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...]:
    """The shape these broadcast to, by NumPy's rule (None: a number). Raises ShapeError."""
    found: Any = None
    for shape in shapes:
        try:
            found = found if shape is None or shape == found else shape if found is None else np.broadcast_shapes(found, shape)
        except ValueError:
            advice = "Sizes must be equal or 1, counted from the right"
            raise ShapeError(f"{name}: shapes do not broadcast: {found} and {shape}. {advice}.") from None
    return found or ()
