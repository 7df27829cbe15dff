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


class ConstantPad1d(ConstantPad):
    """A value around lines."""

    axes = 1


class ConstantPad2d(ConstantPad):
    """A value around images."""


class ConstantPad3d(ConstantPad):
    """A value around volumes."""

    axes = 3


class ZeroPad1d(Padding):
    """Zeros around lines."""

    axes = 1


class ZeroPad2d(Padding):
    """Zeros around images."""


class ZeroPad3d(Padding):
    """Zeros around volumes."""

    axes = 3


class ReflectionPad1d(Padding):
    """Around lines what is inside, reflected at the last number."""

    axes, mode = 1, "reflect"


class ReflectionPad2d(Padding):
    """Around images what is inside, reflected at the last number."""

    mode = "reflect"


class ReflectionPad3d(Padding):
    """Around volumes what is inside, reflected at the last number."""

    axes, mode = 3, "reflect"


class ReplicationPad1d(Padding):
    """Around lines their last number."""

    axes, mode = 1, "replicate"


class ReplicationPad2d(Padding):
    """Around images their last number."""

    mode = "replicate"


class ReplicationPad3d(Padding):
    """Around volumes their last number."""

    axes, mode = 3, "replicate"


class CircularPad1d(Padding):
    """Around lines their other end."""

    axes, mode = 1, "circular"


class CircularPad2d(Padding):
    """Around images their other end."""

    mode = "circular"


class CircularPad3d(Padding):
    """Around volumes their other end."""

    axes, mode = 3, "circular"
