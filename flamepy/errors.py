"""Every error flamepy raises, as one tree, and its warnings.

    FlameError
    |- ShapeError(ValueError, RuntimeError)  sizes that do not fit together
    |- DTypeError(TypeError, RuntimeError)  a type an op does not take, or two float types mixed
    |  `- NumberTooLarge(OverflowError)  a number that an integer type cannot hold
    |- ArgumentError(ValueError, RuntimeError)  a value that an option does not take
    |- IndexOutOfRange(IndexError)       an index or class id outside its axis
    |- DeviceError(RuntimeError)         a device or library that is not there
    |  `- EmulationError                 what the PTX emulator found wrong in a kernel
    |- GradientError(RuntimeError)       a derivative that cannot be computed
    |  `- VersionError                   a saved value was overwritten before backward
    |- NonFiniteError(ArithmeticError)   NaN or inf where training cannot go on
    |- StateError(ValueError)            saved state or names that do not match
    |- CaptureError(RuntimeError)        a step that cannot be recorded, or replayed as it was recorded
    `- AccumulationError(ValueError)
       |- ShapeMismatch   |- NoGradients   `- AccumulatorFull

FlameWarning(UserWarning) stands beside them, and the commands add InputError(ValueError), see train/problems.py. What core raises is in
core/errors.py. FLAME's counterpart is `flame_core::Error`.
"""

from __future__ import annotations

import contextlib
import copyreg
import os
import sys
import warnings
from types import FrameType

from .core.errors import ArgumentError as ArgumentError
from .core.errors import DeviceError as DeviceError
from .core.errors import DTypeError as DTypeError
from .core.errors import FlameError as FlameError
from .core.errors import GradientError as GradientError
from .core.errors import IndexOutOfRange as IndexOutOfRange
from .core.errors import NonFiniteError as NonFiniteError
from .core.errors import NumberTooLarge as NumberTooLarge
from .core.errors import ShapeError as ShapeError
from .core.errors import StateError as StateError
from .core.errors import VersionError as VersionError

Shape = tuple[int, ...]
INSIDE = os.path.dirname(__file__) + os.sep, contextlib.__file__  # files that no warning points to


def reduced(error: FlameError) -> tuple:
    """Errors go to other processes with their text and values, also those that __init__ takes in another form."""
    return copyreg.__newobj__, (type(error), *error.args), error.__dict__  # type: ignore[attr-defined]


FlameError.__reduce__ = reduced  # type: ignore[assignment, method-assign]


class EmulationError(DeviceError):
    """What the PTX emulator found wrong in a kernel, or cannot run. `kind`: "out of bounds", "misaligned", "uninitialised", "race" or
    "barrier"; "" where it is none of these."""

    kind = ""


class CaptureError(FlameError, RuntimeError):
    """A step cannot be recorded, or not be replayed as it was recorded."""


class AccumulationError(FlameError, ValueError):
    """Gradient accumulation was used wrongly."""


class ShapeMismatch(AccumulationError):
    """A gradient of the wrong shape reached the accumulator."""

    def __init__(self, name: str, expected: Shape, got: Shape):
        self.name, self.expected, self.got = name, tuple(expected), tuple(got)
        super().__init__(
            f"accumulate: gradient shape mismatch for '{name}': expected {self.expected}, got {self.got}. "
            "Pass a gradient of the parameter's shape."
        )


class NoGradients(AccumulationError):
    """No gradients were accumulated, or the name was never registered."""

    def __init__(self, name: str = ""):
        self.name = name
        what = f"not registered: '{name}'" if name else "no gradients accumulated: 0 micro-batches"
        super().__init__(f"accumulate: {what}. Register the parameter and accumulate at least one micro-batch.")


class AccumulatorFull(AccumulationError):
    """The window already holds its configured number of micro-batches."""

    def __init__(self, count: int):
        self.count = count
        super().__init__(
            f"accumulate: accumulator already full: {count} micro-batches. Take the gradients and call reset() before adding more."
        )


# ---- warnings ---------------------------------------------------------------------------------------------------------------------
class FlameWarning(UserWarning):
    """Something is probably not what you meant, but the result is well defined."""


def warn(text: str) -> None:
    """Give a FlameWarning that points to the line of the user's which led here, however many of flamepy's are between."""
    warnings.warn(text, FlameWarning, stacklevel=users_frame(INSIDE)[1])


def users_frame(inside: tuple[str, ...]) -> tuple[FrameType, int]:
    """The frame of the user's that led to the caller of this function, and which level above the caller warnings.warn() calls it.
    `inside`: how the names of files begin that are not the user's."""
    frame, level = sys._getframe(2), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(inside):
        frame, level = frame.f_back, level + 1
    return frame, level
