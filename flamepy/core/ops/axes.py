"""Shapes and axes as users give them: sizes, an int or several, negative ones counted from the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..door import Door
from ..dtypes import float64, is_count
from ..errors import IndexOutOfRange, ShapeError
from ..op import publish
from ..tensor import Tensor

Shape = tuple[int, ...]
Axis = int | tuple[int, ...] | None


def as_shape(name: str, first: Any, rest: tuple = ()) -> Shape:
    """A shape as a tuple of ints >= -1: reshape((2, 3)) and reshape(2, 3) alike. Raises ShapeError."""
    given = (first, *rest) if rest else first
    if type(given) is not tuple:
        given = tuple(given) if hasattr(given, "__iter__") and not hasattr(given, "__index__") else (given,)
    if {*map(type, given)} <= {int} and min(given, default=0) >= -1:
        return given
    if not all([is_count(n, -1) for n in given]):
        raise ShapeError(f"{name}: not a shape: {given}. Pass sizes as non-negative ints.")
    return tuple([int(n) for n in given])


def axes_of(name: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes as sorted non-negative ints. Raises IndexOutOfRange or ShapeError."""
    if axis is None:
        return tuple(range(ndim))
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    found = sorted({one_axis(name, a, ndim) for a in given})
    if len(found) != len(given):
        raise ShapeError(f"{name}: an axis is given twice: {given}. Name each axis once.")
    return tuple(found)


def one_axis(name: str, axis: Any, ndim: int) -> int:
    """A single axis as a non-negative int; a scalar counts as having one axis."""
    shape = getattr(axis, "shape", ())
    if shape or not hasattr(axis, "__index__") or isinstance(axis, type | bool):
        given = f"{type(axis).__name__} of shape {shape}" if shape else repr(axis)
        other = f" Of two tensors: {name}imum(a, b)." if shape and name in ("max", "min") else ""
        raise TypeError(f"{name}: axis must be an int: {given}. Pass an int, a tuple of ints or None.{other}")
    a, bound = int(axis), ndim or 1
    if not -bound <= a < bound:
        raise IndexOutOfRange(f"{name}: axis out of range: {a} for {ndim} axes. Use {-bound} to {bound - 1}.")
    return a % bound


def kept_shape(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with keepdims: 1 at reduced axes."""
    return tuple([1 if d in axes else n for d, n in enumerate(shape)])


def squeezed_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    return kept_shape(shape, axes) if keepdims else tuple([n for d, n in enumerate(shape) if d not in axes])


def tensors_of(name: str, *xs: Any) -> list[Any]:
    """These as Tensors, arrays and numbers on the device of the tensor beside them, whose float64 numbers take."""
    beside = next((x for x in xs if isinstance(x, Tensor)), None)
    device, wide = (None, False) if beside is None else (beside.device, beside.dtype == float64)
    return [Tensor.of(name, np.array(x, float64) if wide and isinstance(x, float | np.floating) else x, device) for x in xs]


def composed(function: Any = None, *, home: str = "flamepy") -> Any:
    """Decorator: a public function made of ops, with nothing of its own on the tape."""
    if function is None:
        return lambda f: composed(f, home=home)
    function = Door.composed(function.__name__, function)
    publish(function.__name__, function, home)
    return function


def titled(op: Any, title: str) -> Any:
    """The same op under another title, as the tape shows it: `rows_at` is an embedding or a gather, as its caller says."""
    twin = object.__new__(type(op))
    vars(twin).update(vars(op))
    twin.title = title
    twin.function = Door.caller(twin)
    twin.function.op = twin
    return twin.function
