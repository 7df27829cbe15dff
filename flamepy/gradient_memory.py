"""What is done to the memory of gradients in place: scaled, added to, multiplied by the factor that clipping found.

A gradient of a packed model is a part of a span. `no_factor` is what an update reads where nobody has clipped: formula/clip.py says
what stands in such a buffer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .backend.base import Buffer
from .backend.formula.clip import FACTOR, NORMS, USE
from .backend.numbers import number
from .core.errors import DeviceError, ShapeError

Segments = tuple[tuple[int, int], ...]  # (start, size) of parts of a buffer, in elements


def scale_y(x, s):
    return x * s


def add_y(x, y):
    return x + y


def checked_steps(name: str, what: str, n: Any) -> int:
    """A number of steps. Raises ValueError for what is no int, or below 1."""
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise ValueError(f"{name}: {what} must be a number of steps: {n!r}. Use 1 or more.")
    return n


def scale_buffer(buffer: Any, factor: float, by: str) -> None:
    """Multiply a buffer in place."""
    buffer.device.launch("map", scale_y, (buffer,), (buffer,), (number(factor, buffer.dtype),), buffer.dtype)
    buffer.wrote(by)


def add_to_buffer(buffer: Any, other: Any, by: str) -> None:
    """Add `other` to a buffer of the same size and dtype in place."""
    buffer.device.launch("map", add_y, (buffer,), (buffer, other), (), buffer.dtype)
    buffer.wrote(by)


def scale_by_factor(buffer: Any, factor: Any, segments: Segments | None = None, by: str = "clip_grad_norm") -> None:
    """Multiply a buffer, or these segments of it, in place by the factor that a launch "norm" found."""
    buffer.device.launch("scale", None, (buffer,), (factor,), (segments or ((0, buffer.size),),), buffer.dtype)
    buffer.device.stream.after(lambda b, found: b.wrote(by) if b.device.download(found)[FACTOR] != 1.0 else None, buffer, factor)


@cache
def no_factor(device: Any) -> Buffer:
    """What clipping would leave for gradients that need no factor and may be used."""
    return mark_of(1.0, device)


EARLIER = "scaled before a state was saved"  # stands for the scaler of sums that were restored


def mark_of(keep: float, device: Any) -> Buffer:
    """What says of gradients whether a step may use them."""
    return device.direct.upload(np.array([0.0, 1.0, keep, 1.0]))  # type: ignore[no-any-return]


def kept_by(mark: Buffer) -> float:
    """Whether a step may use the gradients that are so marked: 1 or 0."""
    return float(mark.device.direct.download(mark)[USE])


def both_marks(x: Buffer, y: Buffer) -> Buffer:
    """What says of gradients whether a step may use them, where two such buffers say it."""
    parts = [b.device.slot(b, 0, NORMS, b.dtype) for b in (x, y)]
    both = x.device.empty(NORMS, x.dtype)
    x.device.launch("map", scale_y, (both,), parts, (), x.dtype)
    return both


def check_device(name: str, label: str, wanted: Any, gradient: Any) -> None:
    """Raise DeviceError unless the gradient is on the device `wanted`."""
    if gradient.device is not wanted:
        raise DeviceError(
            f"{name}: gradient is on another device for {label}: expected {wanted}, got {gradient.device}. Move it with .to('{wanted}')."
        )


def check_fits(name: str, label: str, like: Any, gradient: Any) -> None:
    """Raise ShapeError or DeviceError unless the gradient has the shape of `like` and is on its device."""
    if tuple(like.shape) != tuple(gradient.shape):
        shapes = f"expected {like.shape}, got {gradient.shape}"
        raise ShapeError(f"{name}: gradient shape differs for {label}: {shapes}. Pass a gradient of the tensor's shape.")
    check_device(name, label, like.device, gradient)


def label_of(number: int, name: str) -> str:
    """How an error text names a gradient."""
    return f"'{name}'" if name else f"tensor {number}"
