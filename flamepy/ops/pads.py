"""pad: numbers put around a tensor, or taken off its sides.

A constant is written around x by strides; the other modes read x at the places that an index map names, axis by axis. Three ways to say
how much: NumPy's pairs in flamepy.pad(), PyTorch's flat list in F.pad(), last axis first; x.pad() takes both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.errors import DTypeError, FlameError, ShapeError
from ..core.ops.axes import composed
from ..core.ops.shape import sliced, unsliced
from ..core.tensor import Tensor
from ..dtypes import is_number
from .rearranging import taken

Pairs = list[tuple[int, int]]


class UnknownMode(FlameError, ValueError, NotImplementedError):
    """A mode of padding that is not here; PyTorch raises NotImplementedError."""


def mirrored(i: np.ndarray, n: int) -> np.ndarray:
    """Places beyond the ends counted back from these, which are not repeated."""
    return n - 1 - abs(n - 1 - abs(i))


# How places beyond the ends of an axis of n are read, and how far beyond they may be.
MODES: dict[str, tuple[Callable[[np.ndarray, int], np.ndarray], Callable[[int], float]]] = {
    "reflect": (mirrored, lambda n: n - 1),
    "symmetric": (lambda i, n: np.where(i < 0, -1 - i, np.where(i >= n, 2 * n - 1 - i, i)), lambda n: n),
    "replicate": (lambda i, n: np.clip(i, 0, n - 1), lambda n: np.inf if n else 0),
    "circular": (lambda i, n: i % n, lambda n: n),
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


# ---- padding -----------------------------------------------------------------------------------------------------------------------
def cropped(x: Any, pairs: Pairs) -> Any:
    """x without what widths below 0 take off its sides."""
    sizes = tuple([n + min(b, 0) + min(a, 0) for n, (b, a) in zip(x.shape, pairs, strict=True)])
    if sizes == x.shape:
        return x
    return sliced(x, tuple([max(-b, 0) for b, _ in pairs]), (1,) * x.ndim, sizes)


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
        return unsliced(x, shape, tuple([max(b, 0) for b, _ in pairs]), (1,) * x.ndim, value)
    if not isinstance(mode, str) or mode not in MODES:
        raise UnknownMode(f"pad: unknown mode: {mode!r}. Use one of constant, {', '.join((*MODES, *NUMPYS))}.")
    if value:
        raise DTypeError(f"pad: mode {mode!r} takes no value: {value!r}. Use mode='constant'.")
    if mode == "circular":  # goes round what is left of x
        x, pairs = cropped(x, pairs), [(max(b, 0), max(a, 0)) for b, a in pairs]
    places, most = MODES[mode]
    for axis in reversed(range(x.ndim)):
        (b, a), n = pairs[axis], x.shape[axis]
        if max(b, a, 0) > max(most(n), 0):
            raise ShapeError(f"pad: {mode} cannot go so far: {(b, a)} of axis {axis}, which has {n}. Use up to {max(most(n), 0):g}.")
        if b or a:
            x = taken(x, axis, places(np.arange(-b, n + a), n))
    return x


@composed
def pad(x: Any, widths: Any, mode: Any = "constant", value: Any = None) -> Any:
    """x with more around it; widths is ((before, after), ...), a pair for each axis, or one number for all sides; below 0 they cut off.

    mode: "constant", "reflect" (at the ends, which are not repeated), "symmetric" (they are), "replicate" or "edge", "circular" or "wrap".
    value: what a constant is (0); pad(x, widths, 1.5) is short for it. x.pad() and F.pad() take PyTorch's flat widths, too.
    Shapes: before + n + after. Raises ShapeError, ValueError for an unknown mode.
    >>> fp.pad(fp.tensor([1.0, 2.0]), ((1, 2),)).tolist()
    [0.0, 1.0, 2.0, 0.0, 0.0]
    """
    return padded(x, widths, mode, value)


def flat_pad(x: Any, pad: Any, mode: Any = "constant", value: Any = None) -> Any:
    """x with more around it; pad is (left, right, top, bottom, ...), the last axis first, or a pair (before, after) for each axis.

    Modes and errors: as flamepy.pad(). Shapes: before + n + after.
    >>> F.pad(fp.tensor([[1.0, 2.0]]), (1, 0)).tolist()
    [[0.0, 1.0, 2.0]]
    """
    x = Tensor.of("pad", x)
    return padded(x, from_flat(pad, x.ndim), mode, value)


flat_pad.__name__ = flat_pad.__qualname__ = "pad"
