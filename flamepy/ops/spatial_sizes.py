"""Sizes as users give them to convolutions and pools: of windows, steps and padding along the last axes of x."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import ShapeError
from ..core.ops.axes import composed
from ..dtypes import is_count
from .pads import pad

Sizes = tuple[int, ...]
Sides = tuple[tuple[int, int], ...]  # (before, after) of each axis


def published(make: Callable[[str], Any], **texts: str) -> list[Any]:
    """The function make(name) for each of these names, as part of flamepy.nn.functional with this help text: such as one for lines, one for
    images and one for volumes."""
    found = []
    for name, text in texts.items():
        function = make(name)
        function.__name__ = function.__qualname__ = name
        function.__doc__ = text
        found.append(composed(function, home="functional"))
    return found


def check_axes(op: str, x: Any, axes: int) -> None:
    """Raise ShapeError unless x has this many axes behind channels."""
    if x.ndim not in (axes + 1, axes + 2):
        known = "N, C, D, H, W" if axes == 3 else "N, C, H, W" if axes == 2 else "N, C, L"
        raise ShapeError(f"{op}: x is not ({known}) or ({known[3:]}): {x.shape}. Reshape it.")


def each(op: str, name: str, value: Any, axes: int, least: int) -> Sizes:
    """An int, or one for each axis, as a tuple. Raises ShapeError for anything else, or one below `least`."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,) * axes
    if len(given) == 1 != axes:
        given *= axes
    if len(given) != axes or not all([is_count(n, least) for n in given]):
        what = {1: "", 2: " or a pair of ints", 3: " or three ints"}[axes]
        raise ShapeError(f"{op}: {name} is not an int{what} >= {least}: {value!r}. Use e.g. {max(1, least)}.")
    check_reach(op, name, given)
    return tuple([int(n) for n in given])


def sides(op: str, value: Any, axes: int) -> Sides:
    """Padding as (before, after) of each axis. It is given as an int; one for each axis; pairs (before, after) of each axis; or flat, the
    last axis first: (left, right, top, bottom, front, back). Negative: so much is cut off. Raises ShapeError."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,) * axes
    given = given * axes if len(given) == 1 else given
    pairs: Any = given
    if all([is_whole(n) for n in given]):
        pairs = [(n, n) for n in given] if len(given) == axes else [*zip(given[::2], given[1::2], strict=False)][::-1]
    fits = len(pairs) == axes and len(given) in (axes, 2 * axes)
    if not fits or not all([isinstance(p, tuple | list) and len(p) == 2 and all(map(is_whole, p)) for p in pairs]):
        advice = f"Use an int, {axes} of them, {axes} pairs (before, after), or {2 * axes} ints, the last axis first"
        raise ShapeError(f"{op}: padding is not for {axes} axes: {value!r}. {advice}.")
    check_reach(op, "padding", [n for p in pairs for n in p])
    return tuple([(int(a), int(b)) for a, b in pairs])


def check_reach(op: str, name: str, given: Any) -> None:
    """Raise ShapeError for a size that no memory holds, else loops over it would not end."""
    if (most := max(map(int, given))) >= 1 << 31:
        raise ShapeError(f"{op}: {name} is out of reach: {most}. Use one below 2 ** 31.")


def is_whole(n: Any) -> bool:
    return is_count(n, -(2**62))


def surrounded(x: Any, around: Sides) -> Any:
    """x with so many zeros before and after its last axes, or less of it where that is negative. Raises ShapeError."""
    if all([side == (0, 0) for side in around]):
        return x
    return pad(x, ((0, 0),) * (x.ndim - len(around)) + around)


def evened(x: Any, around: Sides) -> tuple[Any, Sizes]:
    """(x, padding) with the same padding on both sides of an axis, none of it negative: what is left over is around x."""
    same = [max(0, min(side)) for side in around]
    return surrounded(x, tuple([(a - n, b - n) for (a, b), n in zip(around, same, strict=True)])), tuple(same)


def unit_axis(x: Any) -> Any:
    """x with an axis of size 1 before its last one: lines as images."""
    return x.reshape((*x.shape[:-1], 1, x.shape[-1]))


def without_unit_axis(y: Any) -> Any:
    return y.reshape((*y.shape[:-2], y.shape[-1]))
