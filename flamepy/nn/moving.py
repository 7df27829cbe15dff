"""Module.to(): all parameters and buffers as another float type or on another device.

Everything is converted first and put in place at the end: a failure changes nothing.
"""

from __future__ import annotations

from typing import Any

from ..backend.base import Device, is_device_name
from ..backend.base import device as device_of
from ..core.errors import DTypeError
from ..dtypes import FLOATS, as_dtype
from ..parameter import move_parameters


def move(module: Any, target: Any, dtype: Any, device: Any) -> None:
    """See Module.to()."""
    if isinstance(target, Device) or is_device_name(target):
        device = target
    elif target is not None:
        dtype = target
    if hasattr(dtype, "dtype") and not isinstance(dtype, type):  # NumPy would take its dtype
        raise DTypeError(f"to: neither a dtype nor a device: a {type(dtype).__name__}. Use to(dtype=x.dtype, device=x.device).")
    if dtype is not None:
        dtype = as_dtype(dtype, f"to: neither a dtype nor a device: {dtype!r}")
        if dtype not in FLOATS:
            raise DTypeError(f"to: parameters are floats: {dtype}. Use float32, float64, float16 or bfloat16.")
    device = None if device is None else device_of(device)
    places = module.buffer_places(persistent=False)
    moved = {name: t.to(dtype if t.dtype in FLOATS else None, device=device) for name, t in module.named_buffers()}
    move_parameters(module.parameters(), dtype, device)
    for name, t in moved.items():
        owner, attribute = places[name]
        if getattr(owner, attribute) is not t:
            setattr(owner, attribute, t)
