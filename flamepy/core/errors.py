"""The errors that core raises. flamepy/errors.py has the whole tree.

What is only a wrong argument may be Python's own TypeError, ValueError or KeyError. Text is always
`<op>: <what is wrong>: <values>. <what to do>`.
"""

from __future__ import annotations


class FlameError(Exception):
    """Base of every error raised by flamepy."""


class ShapeError(FlameError, ValueError, RuntimeError):
    """Sizes do not fit together: a ValueError in NumPy, a RuntimeError in PyTorch."""


class DTypeError(FlameError, TypeError, RuntimeError):
    """An element type the op does not take: a TypeError in NumPy, a RuntimeError in PyTorch."""


class NumberTooLarge(DTypeError, OverflowError):
    """A number that an integer type cannot hold."""


class ArgumentError(FlameError, ValueError, RuntimeError):
    """A value that an option does not take: a ValueError in NumPy, a RuntimeError in PyTorch."""


class IndexOutOfRange(FlameError, IndexError):
    """An index lies outside its axis."""


class DeviceError(FlameError, RuntimeError):
    """A device or a native library is not available."""


class GradientError(FlameError, RuntimeError):
    """A derivative cannot be computed."""


class VersionError(GradientError):
    """A value saved for backward was overwritten before backward ran."""


class NonFiniteError(FlameError, ArithmeticError):
    """NaN or infinity where a finite number is needed."""


class StateError(FlameError, ValueError):
    """Saved state, or a name, does not match what is there."""
