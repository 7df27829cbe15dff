"""Padding of lines, images and volumes, as modules."""

from __future__ import annotations

from typing import Any

from ..core.errors import ShapeError
from ..dtypes import is_count
from . import functional as F
from .module import Module


class Padding(Module):
    """The base of all: `axes` of x get more around them, as `mode` says. padding: an int, or (left, right, top, bottom, ...), the last
    axis first; below 0 it cuts off."""

    axes, mode, value = 2, "constant", 0.0

    def __init_subclass__(cls, axes: int = 0, mode: str = "") -> None:
        cls.axes, cls.mode = axes or cls.axes, mode or cls.mode

    def __init__(self, padding: Any):
        given = tuple(padding) if isinstance(padding, tuple | list) else (padding,) * (2 * self.axes)
        if len(given) != 2 * self.axes or not all([is_count(n, -(2**62)) for n in given]):
            raise ShapeError(f"{type(self).__name__}: not a padding: {padding!r}. Use an int or {2 * self.axes} of them.")
        self.padding = given

    def forward(self, x: Any) -> Any:
        """x (N, C, ...) or (C, ...) -> its last axes longer by the padding. Raises ShapeError where the mode has not so many numbers."""
        return F.pad(x, self.padding, self.mode, self.value if self.mode == "constant" else None)

    def extra(self) -> str:
        return str(self.padding)


class ConstantPad(Padding):
    """The base of ConstantPad1d, ConstantPad2d and ConstantPad3d."""

    def __init__(self, padding: Any, value: float):
        super().__init__(padding)
        self.value = value

    def extra(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(ConstantPad, axes=1):
    """A value around lines."""


class ConstantPad2d(ConstantPad, axes=2):
    """A value around images."""


class ConstantPad3d(ConstantPad, axes=3):
    """A value around volumes."""


class ZeroPad1d(Padding, axes=1):
    """Zeros around lines."""


class ZeroPad2d(Padding, axes=2):
    """Zeros around images."""


class ZeroPad3d(Padding, axes=3):
    """Zeros around volumes."""


class ReflectionPad1d(Padding, axes=1, mode="reflect"):
    """Around lines what is inside, reflected at the last number."""


class ReflectionPad2d(Padding, axes=2, mode="reflect"):
    """Around images what is inside, reflected at the last number."""


class ReflectionPad3d(Padding, axes=3, mode="reflect"):
    """Around volumes what is inside, reflected at the last number."""


class ReplicationPad1d(Padding, axes=1, mode="replicate"):
    """Around lines their last number."""


class ReplicationPad2d(Padding, axes=2, mode="replicate"):
    """Around images their last number."""


class ReplicationPad3d(Padding, axes=3, mode="replicate"):
    """Around volumes their last number."""


class CircularPad1d(Padding, axes=1, mode="circular"):
    """Around lines their other end."""


class CircularPad2d(Padding, axes=2, mode="circular"):
    """Around images their other end."""


class CircularPad3d(Padding, axes=3, mode="circular"):
    """Around volumes their other end."""
