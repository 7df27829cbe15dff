"""pad: numbers put around a tensor, or taken off its sides.

A constant is written around x by strides; in the other modes one kernel reads all of it from x. Three ways to say
how much: NumPy's pairs in flamepy.pad(), PyTorch's flat list in F.pad(), last axis first; x.pad() takes both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.door import Door
from ..core.errors import DTypeError, FlameError, ShapeError
from ..core.ops.axes import composed
from ..core.ops.pointwise import add
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import contiguous_strides, read_strided, sliced, unsliced, write_strided
from ..core.tensor import Tensor
from ..dtypes import is_number
from .rearranging import surrounded

Pairs = list[tuple[int, int]]


class UnknownMode(FlameError, ValueError, NotImplementedError):
    """A mode of padding that is not here; PyTorch raises NotImplementedError."""


Ends = tuple[tuple[int, int], tuple[int, int]]
# Of an axis of n that gets b numbers in front: where those in front and those behind are read, the first of each and the step to the next;
# and how many there may be.
MODES: dict[str, tuple[Callable[[int, int], Ends], Callable[[int], float]]] = {
    "reflect": (lambda b, n: ((b, -1), (n - 2, -1)), lambda n: n - 1),
    "symmetric": (lambda b, n: ((b - 1, -1), (n - 1, -1)), lambda n: n),
    "replicate": (lambda b, n: ((0, 0), (n - 1, 0)), lambda n: np.inf if n else 0),
    "circular": (lambda b, n: ((n - b, 1), (0, 1)), lambda n: n),
}
NUMPYS = {"edge": "replicate", "wrap": "circular"}


# ---- how much ----------------------------------------------------------------------------------------------------------------------
def is_width(n: Any) -> bool:
    return is_number(n) and hasattr(n, "__index__")


def as_pairs(widths: Any, ndim: int) -> Pairs:
    """NumPy's form: a pair for each axis (None: nothing), one pair for the only axis, or one number for all sides. Raises ShapeError."""
    if is_width(widths):
        return [(int(widths), int(widths))] * ndim
    given = list(widths) if isinstance(widths, tuple | list | np.ndarray) else []
    if ndim == 1 and len(given) == 2 and all(map(is_width, given)):
        given = [given]
    pairs = [(0, 0) if p is None else tuple(p) if isinstance(p, tuple | list | np.ndarray) else () for p in given]
    if len(pairs) != ndim or not all([len(p) == 2 and all(map(is_width, p)) for p in pairs]):
        flat = " F.pad() takes PyTorch's flat list." if given and all(map(is_width, given)) else ""
        raise ShapeError(f"pad: needs a pair (before, after) for each of {ndim} axes: {widths}. Use (0, 0) for an axis left alone.{flat}")
    return [(int(b), int(a)) for b, a in pairs]


def from_flat(widths: Any, ndim: int) -> Any:
    """PyTorch's form, before and after of the last axis, then of the one before it, as pairs; another form as it is. Raises ShapeError."""
    if not isinstance(widths, tuple | list) or not all(map(is_width, widths)):
        return widths
    if len(widths) % 2 or len(widths) > 2 * ndim:
        raise ShapeError(f"pad: no before and after for at most {ndim} axes: {widths}. Use an even number, last axis first.")
    pairs = list(zip(widths[::2], widths[1::2], strict=True))[::-1]
    return [(0, 0)] * (ndim - len(pairs)) + pairs


# ---- what is around, and back -------------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", title="pad", internal=True)
def around(x, pairs=(), mode=""):
    """x, and around it what `mode` says."""
    return surrounded(x, [piece(mode, n, b, a) for n, (b, a) in zip(x.shape, pairs, strict=True)])


def piece(mode: str, n: int, b: int, a: int) -> tuple[int, ...]:
    """Of an axis what surrounded() takes."""
    if not b and not a:
        return n, 0, 0, 0, 1, 0, 1
    (first, step), (after, by) = MODES[mode][0](b, n)
    return n, b, a, first, step, after, by


around.differentiable(lambda g, pairs, mode: folded(g, pairs, mode))


@custom(inputs=1, kind="as is", title="pad", internal=True)
def folded(x, pairs=(), mode=""):
    """The middle of x, with what is around it added to where around() would have taken it from."""
    for axis, (b, a) in enumerate(pairs):
        if not b and not a:
            continue
        n, before, behind, strides = x.shape[axis] - b - a, x.shape[:axis], x.shape[axis + 1 :], contiguous_strides(x.shape)
        y = read_strided(x, (*before, n, *behind), strides, b * strides[axis])
        own = contiguous_strides(y.shape)
        for first, step, place, count in ends(mode, n, b, a):
            edge = read_strided(x, (*before, count, *behind), strides, place * strides[axis])
            if not step:
                edge = sum_op(edge, axis=axis, keepdims=True)
            where, base = turned(own, axis, step), first * own[axis]
            write_strided(y, add(read_strided(y, edge.shape, where, base), edge), where, base)
        x = y
    return x


folded.differentiable(lambda g, pairs, mode: around(g, pairs, mode))


def ends(mode: str, n: int, b: int, a: int) -> list[tuple[int, int, int, int]]:
    """Of each end of an axis that has one: where to read it, by which step, where it is, its length."""
    return [(*read, place, count) for read, place, count in zip(MODES[mode][0](b, n), (0, b + n), (b, a), strict=True) if count]


def turned(strides: tuple[int, ...], axis: int, step: int) -> tuple[int, ...]:
    return (*strides[:axis], step * strides[axis], *strides[axis + 1 :])


# ---- padding -----------------------------------------------------------------------------------------------------------------------
def cropped(x: Any, pairs: Pairs) -> Any:
    """x without what widths below 0 take off its sides."""
    sizes = tuple([n + min(b, 0) + min(a, 0) for n, (b, a) in zip(x.shape, pairs, strict=True)])
    if sizes == x.shape:
        return x
    return sliced(x, tuple([max(-b, 0) for b, _ in pairs]), (1,) * x.ndim, sizes, sizes)


def padded(x: Any, widths: Any, mode: Any, value: Any) -> Any:
    x = Tensor.of("pad", x)
    pairs = as_pairs(widths, x.ndim)
    if is_number(mode):
        mode, value = "constant", mode
    mode = NUMPYS.get(mode, mode) if isinstance(mode, str) else mode
    shape = tuple([b + n + a for (b, a), n in zip(pairs, x.shape, strict=True)])
    if any([b + n < 0 or n + a < 0 or m < 0 for (b, a), n, m in zip(pairs, x.shape, shape, strict=True)]):
        raise ShapeError(f"pad: takes off more than there is: {pairs} of shape {x.shape}. Use smaller numbers.")
    if mode == "constant":
        value, x = 0 if value is None else value, cropped(x, pairs)
        return x if x.shape == shape else unsliced(x, shape, tuple([max(b, 0) for b, _ in pairs]), (1,) * x.ndim, value)
    if not isinstance(mode, str) or mode not in MODES:
        raise UnknownMode(f"pad: unknown mode: {mode!r}. Use one of constant, {', '.join((*MODES, *NUMPYS))}.")
    if value:
        raise DTypeError(f"pad: mode {mode!r} takes no value: {value!r}. Use mode='constant'.")
    if mode == "circular":  # goes round what is left of x
        x, pairs = cropped(x, pairs), [(max(b, 0), max(a, 0)) for b, a in pairs]
    for axis, ((b, a), n) in reversed([*enumerate(zip(pairs, x.shape, strict=True))]):
        if max(b, a, 0) > (most := max(MODES[mode][1](n), 0)):
            raise ShapeError(f"pad: {mode} cannot go so far: {(b, a)} of axis {axis}, which has {n}. Use up to {most:g}.")
    added = tuple([(max(b, 0), max(a, 0)) for b, a in pairs])
    return cropped(around(x, added, mode) if any(map(any, added)) else x, [(min(b, 0), min(a, 0)) for b, a in pairs])


@composed
def pad(x: Any, widths: Any, mode: Any = "constant", value: Any = None) -> Any:
    """x with more around it; widths is ((before, after), ...), a pair for each axis, or one number for all sides; below 0 they cut off.
    mode: "constant", "reflect" (at the ends, which are not repeated), "symmetric" (they are), "replicate" or "edge", "circular" or "wrap".
    value: what a constant is (0); pad(x, widths, 1.5) is short for it. x.pad() and F.pad() take PyTorch's flat widths, too.
    Shapes: before + n + after. Raises ShapeError, ValueError for an unknown mode.
    >>> fp.pad(fp.tensor([1.0, 2.0]), ((1, 2),)).tolist()
    [0.0, 1.0, 2.0, 0.0, 0.0]"""
    return padded(x, widths, mode, value)


def flat_pad(x: Any, pad: Any, mode: Any = "constant", value: Any = None) -> Any:
    """x with more around it; pad is (left, right, top, bottom, ...), the last axis first, or a pair (before, after) for each axis.
    Modes and errors: as flamepy.pad(). Shapes: before + n + after.
    >>> F.pad(fp.tensor([[1.0, 2.0]]), (1, 0)).tolist()
    [[0.0, 1.0, 2.0]]"""
    x = Tensor.of("pad", x)
    return padded(x, from_flat(pad, x.ndim), mode, value)


flat_pad.__name__ = flat_pad.__qualname__ = "pad"
flat_pad = Door.composed("pad", flat_pad)
