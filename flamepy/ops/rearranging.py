"""Elements in another order, or several times: flip, roll, rot90, tile, repeat, windows; axes moved and merged.

Made of core's strided reads where a stride can say it, of an index map along one axis (rows_at) where it cannot.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import IndexOutOfRange, ShapeError
from ..core.op import launch, like, publish
from ..core.ops.axes import as_shape, axes_of, composed, one_axis, titled
from ..core.ops.copy import filled
from ..core.ops.indexing import placed_ids, rows_added, rows_at
from ..core.ops.shape import contiguous_strides, expanded, permute, permuted, read_strided, reshape, sliced, transpose, write_strided
from ..core.tensor import Tensor
from ..dtypes import checked_int, is_count
from ..engine.routes import routed
from .shape_more import flatten


# ---- one axis read by a list of places -------------------------------------------------------------------------------------------
def taken(x: Any, axis: int, places: np.ndarray, title: Any = rows_at) -> Any:
    """x with one axis read at these places (an array of ints inside it), whose axes stand in its place; gradients add up in order."""
    n, before, after = x.shape[axis], x.shape[:axis], x.shape[axis + 1 :]
    ids = Tensor.of("index", np.ascontiguousarray(places, np.int64), x.device)
    flat = placed_ids(ids, n, (math.prod(before), ids.size), (n, 0), 1) if before else ids
    return title(x, flat, math.prod(after), (*before, *places.shape, *after))


# ---- places by strides -----------------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", title="strided", internal=True)
def strided(x, shape=(), strides=(), base=0):
    """x[base + index . strides], each element at most once."""
    return read_strided(x, shape, strides, base)


strided.differentiable(lambda g, shapes, strides, base: unstrided(g, shapes[0], strides, base))


@custom(inputs=1, kind="as is", title="strided", internal=True)
def unstrided(x, shape=(), strides=(), base=0):
    """Zeros of `shape` with x where strided() reads it."""
    y = filled(shape, 0, x.dtype, x.device)
    write_strided(y, x, strides, base)
    return y


unstrided.differentiable(lambda g, shapes, strides, base: strided(g, shapes[0], strides, base))


# ---- turned round ----------------------------------------------------------------------------------------------------------------
flipping = titled(sliced, "flip")


@composed
def flip(x: Any, axis: Any = None, *rest: int) -> Any:
    """The order of elements reversed along all axes, or the ones named: flip(x, (0, 1)) or flip(x, 0, 1). Shapes: x's.
    >>> fp.flip(fp.tensor([[1, 2], [3, 4]]), 1).tolist()
    [[2, 1], [4, 3]]"""
    x = Tensor.of("flip", x)
    axes = [a for a in axes_of("flip", (axis, *rest) if rest else axis, x.ndim) if x.ndim and x.shape[a] > 1]
    if not axes or not x.size:
        return x
    starts = tuple([n - 1 if d in axes else 0 for d, n in enumerate(x.shape)])
    return flipping(x, starts, tuple([-1 if d in axes else 1 for d in range(x.ndim)]), x.shape, x.shape)


@composed
def fliplr(x: Any) -> Any:
    """Columns in reverse order: flip(x, 1). Shapes: x's, of two axes or more, else IndexOutOfRange.
    >>> fp.fliplr(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 1], [4, 3]]"""
    return flip(needs_axes("fliplr", x, 2), 1)


@composed
def flipud(x: Any) -> Any:
    """Rows in reverse order: flip(x, 0). Shapes: x's, of one axis or more, else IndexOutOfRange.
    >>> fp.flipud(fp.tensor([1, 2, 3])).tolist()
    [3, 2, 1]"""
    return flip(needs_axes("flipud", x, 1), 0)


def needs_axes(name: str, x: Any, least: int) -> Any:
    x = Tensor.of(name, x)
    if x.ndim < least:
        raise IndexOutOfRange(f"{name}: too few axes: shape {x.shape}. Pass a tensor of {least} or more.")
    return x


def surrounded(x: Any, pieces: list[tuple[int, ...]]) -> Any:
    """x read along each axis at `front` places, from `first` on by a step, then at the first `many`, then at `behind` ones, from `after`
    on by another step: (many, front, behind, first, step, after, by)."""
    y = like(x, tuple([sum(piece[:3]) for piece in pieces]))
    axes: list[tuple[int, ...]] = []
    for n, size, (many, front, _, *ends), stride in zip(x.shape, y.shape, pieces, contiguous_strides(x.shape), strict=True):
        if axes and size == many == n and axes[-1][4] == axes[-1][6] == 1:  # as part of the axis before it
            axes[-1] = (*[v * n for v in axes[-1][:4]], 1, axes[-1][5] * n, 1, stride)
        else:
            axes.append((size, many, front, *ends, stride))
    if y.size:
        launch("surround", None, (y,), (x,), (tuple(axes),))
    return y


@custom(inputs=1, kind="as is", title="roll", internal=True)
def rolled(x, shifts=()):
    """x moved on by a shift along each axis, what leaves at its end comes in at its start."""
    return surrounded(x, [(n - s, s, 0, n - s, 1, 0, 1) for n, s in zip(x.shape, shifts, strict=True)])


rolled.differentiable(lambda g, shapes, shifts: rolled(g, tuple([(n - s) % (n or 1) for n, s in zip(shapes[0], shifts, strict=True)])))


@composed
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved on by `shift` along each axis named, those that leave at the end come in at the start; without axes x is rolled flat.
    Shapes: x's. Raises ShapeError unless there is one shift for each axis.
    >>> fp.roll(fp.tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]"""
    x = Tensor.of("roll", x)
    many = isinstance(axis, tuple | list)
    shifts = tuple(shift) if isinstance(shift, tuple | list) else (shift,) * (1 if many is False else max(len(axis), 1))
    if axis is None or (many and not axis):
        if len(shifts) != 1:
            raise ShapeError(f"roll: several shifts and no axes: {shifts}. Name an axis for each.")
        return reshape(roll(reshape(x, (-1,)) if x.size else reshape(x, (0,)), shifts[0], 0), x.shape)
    axes = tuple(axis) if many else (axis,)
    if (many and not isinstance(shift, tuple | list) and len(axes) > 1) or len(shifts) != len(axes):
        raise ShapeError(f"roll: not one shift for each axis: {shift} for axes {axis}. Give as many.")
    total = [0] * x.ndim
    for s, a in zip(shifts, axes, strict=True):
        a, s = one_axis("roll", a, x.ndim), checked_int("roll", "shift", s)
        if x.size and x.ndim:
            total[a] = (total[a] + s) % x.shape[a]
    return rolled(x, tuple(total)) if any(total) else x


@composed
def rot90(x: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """x turned by 90 degrees k times, from the first of two axes towards the second. Shapes: (n, m) gives (m, n) for odd k.
    >>> fp.rot90(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]"""
    x, given = Tensor.of("rot90", x), tuple(axes)
    a, b = given if len(given) == 2 else (0, 0)
    a, b, turns = one_axis("rot90", a, x.ndim), one_axis("rot90", b, x.ndim), checked_int("rot90", "k", k) % 4
    if a == b:
        raise ShapeError(f"rot90: not two axes: {given}, shape {x.shape}. Name two different ones.")
    if turns % 2 == 0:
        return flip(x, (a, b)) if turns else x
    return flip(transpose(x, a, b), a) if turns == 1 else transpose(flip(x, a), a, b)


# ---- several times ---------------------------------------------------------------------------------------------------------------
@composed
def tile(x: Any, reps: Any, *rest: int) -> Any:
    """All of x repeated along each axis: tile(x, (2, 3)) or tile(x, 2, 3), the last count for the last axis. Shapes: (n, m) gives
    (2 n, 3 m); more counts than axes make new ones in front. Raises ShapeError.
    >>> fp.tile(fp.tensor([1, 2]), 2).tolist()
    [1, 2, 1, 2]"""
    x, given = Tensor.of("tile", x), as_shape("tile", reps, rest)
    if min(given, default=0) < 0:
        raise ShapeError(f"tile: a negative count: {given}. Use counts of 0 or more.")
    counts = (1,) * (x.ndim - len(given)) + given
    own = (1,) * (len(counts) - x.ndim) + x.shape
    pairs = [(1, n) for n in own]
    wide = expanded(reshape(x, sum(pairs, ())), sum([(r, n) for r, n in zip(counts, own, strict=True)], ()))
    return reshape(wide, tuple([r * n for r, n in zip(counts, own, strict=True)]))


@composed
def repeat_interleave(x: Any, repeats: Any, axis: Any = None, *, output_size: int | None = None) -> Any:
    """Each element of x repeated, along `axis` or of x made flat; `repeats` is a count, or one for each element of the axis.
    Shapes: n at the axis becomes n * repeats, or their sum, which is `output_size` if one is given. Also called repeat, as in NumPy. Raises
    ShapeError.
    >>> fp.repeat_interleave(fp.tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]"""
    y = repeated("repeat_interleave", x, repeats, axis)
    if output_size is not None and y.shape[axis or 0] != output_size:
        raise ShapeError(
            f"repeat_interleave: not so many elements: output_size={output_size!r}, there are {y.shape[axis or 0]}. Leave it out."
        )
    return y


@composed
def repeat(x: Any, repeats: Any, axis: Any = None) -> Any:
    """Each element of x repeated: repeat_interleave(); NumPy's repeat. (PyTorch's is tile().) The method x.repeat() takes the forms of both
    where they cannot be confused. Shapes: n at the axis becomes n * repeats, or their sum.
    >>> fp.repeat(fp.tensor([[1, 2]]), 2, axis=0).tolist()
    [[1, 2], [1, 2]]"""
    return repeated("repeat", x, repeats, axis)


def repeated(name: str, x: Any, repeats: Any, axis: Any) -> Any:
    x = Tensor.of(name, x)
    x, axis = (reshape(x, (x.size,)), 0) if axis is None or not x.ndim else (x, one_axis(name, axis, x.ndim))
    n, counts = x.shape[axis], repeats if is_count(repeats) else np.asarray(repeats)
    if isinstance(counts, np.ndarray):
        if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any() or counts.size not in (1, n):
            raise ShapeError(f"{name}: neither a count nor one for each of {n}: {repeats}. Use whole numbers, 0 or more.")
        if counts.size != 1:
            return taken(x, axis, np.repeat(np.arange(n), counts))
        counts = counts.item()
    count, before, after = int(counts), x.shape[:axis], x.shape[axis + 1 :]
    wide = expanded(reshape(x, (*before, n, 1, *after)), (*before, n, count, *after))
    return reshape(wide, (*before, n * count, *after))


def repeat_method(x: Any, *repeats: Any, axis: Any = None) -> Any:
    """x.repeat(): NumPy's (each element, `axis=` by name) and PyTorch's (all of x, a count for each axis). Raises ShapeError for a call
    that both take and mean differently."""
    if axis is not None or len(repeats) == 0:
        return repeat(x, *repeats, axis=axis)
    one = repeats[0]
    listed = len(repeats) == 1 and isinstance(one, list | tuple)
    if len(repeats) == 1 and not listed and not is_count(one):  # an array of counts
        return repeat(x, one)
    counts = tuple(one) if listed else repeats
    whole = len(counts) >= x.ndim  # PyTorch takes it
    if listed:
        each = len(counts) in (1, x.size)
    else:
        each = len(counts) == 1 or (len(counts) == 2 and -x.ndim <= counts[1] < x.ndim)
    if whole and each and x.size > 1:
        spelt = ", ".join(map(str, counts))
        raise ShapeError(
            f"repeat: NumPy and PyTorch differ: x.repeat({spelt}), shape {x.shape}. Use x.tile({spelt}) to repeat all of x, "
            f"x.repeat_interleave({spelt}) to repeat each element."
        )
    if whole:
        return tile(x, counts)
    if not each:
        raise ShapeError(f"repeat: too few counts: {counts} for shape {x.shape}. Give one for each axis, or use repeat_interleave().")
    return repeat(x, one, *repeats[1:])


# ---- windows ---------------------------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", title="unfold", internal=True)
def axis_windows(x, axis=0, size=1, step=1):
    n, strides = x.shape[axis], contiguous_strides(x.shape)
    shape = (*x.shape[:axis], (n - size) // step + 1, *x.shape[axis + 1 :], size)
    return read_strided(x, shape, (*strides[:axis], step * strides[axis], *strides[axis + 1 :], strides[axis]), 0)


@axis_windows.differentiable
def axis_windows_dx(g, shapes, axis, size, step):
    """What windows share adds up, one window after the other."""
    shape = shapes[0]
    places = np.arange(g.shape[axis])[:, None] * step + np.arange(size)
    inner, n = math.prod(shape[axis + 1 :]), shape[axis]
    order = (*range(axis + 1), g.ndim - 1, *range(axis + 1, g.ndim - 1))
    ids = placed_ids(Tensor.of("unfold", places, g.device), n, (math.prod(shape[:axis]), places.size), (n, 0), 1)
    return rows_added(permuted(g, order), ids, inner, shape)


@routed
def unfold(x: Any, axis: int, size: int, step: int) -> Any:
    """x.unfold(axis, size, step): all windows of `size` neighbours along an axis, `step` apart, their elements along a new last axis.
    Shapes: n at the axis becomes (n - size) // step + 1. Raises ShapeError. (F.unfold, PyTorch's other function of this name, is of
    images.)"""
    a, full = one_axis("unfold", axis, x.ndim), x if x.ndim else reshape(x, (1,))
    n, size, step = full.shape[a], checked_int("unfold", "size", size), checked_int("unfold", "step", step)
    if not 0 <= size <= n or step < 1:
        raise ShapeError(
            f"unfold: no such windows: size {size}, step {step}, axis {axis} has {n}. Use a size up to {n}, a step of 1 or more."
        )
    y = axis_windows(full, a, size, step)
    return y if x.ndim else reshape(y, (size,))


# ---- axes ------------------------------------------------------------------------------------------------------------------------
@composed
def unflatten(x: Any, axis: int, sizes: Any) -> Any:
    """One axis as several, one of whose sizes may be -1. Shapes: (6, n), axis 0, sizes (2, 3) give (2, 3, n). Raises ShapeError.
    >>> fp.unflatten(fp.ones(6, 4), 0, (2, -1)).shape
    (2, 3, 4)"""
    x = Tensor.of("unflatten", x)
    a, parts = one_axis("unflatten", axis, x.ndim), as_shape("unflatten", sizes)
    n, known = x.shape[a], abs(math.prod(parts))
    if parts.count(-1) == 1 and known:
        parts = tuple([n // known if m == -1 else m for m in parts])
    if math.prod(parts) != n or -1 in parts or not parts:
        raise ShapeError(f"unflatten: sizes do not make the axis: {tuple(sizes)} for {n}, axis {axis}. Use sizes whose product it is.")
    return reshape(x, (*x.shape[:a], *parts, *x.shape[a + 1 :]))


@composed
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """Axes moved to other places, the others in their order. Also called movedim. Shapes: (a, b, c), 0, 2 give (b, c, a).
    >>> fp.moveaxis(fp.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)"""
    x = Tensor.of("moveaxis", x)
    old, new = ([one_axis("moveaxis", a, x.ndim) for a in (g if isinstance(g, tuple | list) else (g,))] for g in (source, destination))
    if len(old) != len(new) or len({*old}) != len(old) or len({*new}) != len(new):
        raise ShapeError(f"moveaxis: places do not match: {source} to {destination}. Name each axis once, and as many places.")
    if not x.ndim:
        return x
    order = [d for d in range(x.ndim) if d not in old]
    for place, d in sorted(zip(new, old, strict=True)):
        order.insert(place, d)
    return permute(x, tuple(order))


@composed
def swapaxes(x: Any, axis0: int, axis1: int) -> Any:
    """Two axes swapped: transpose(). Also called swapdims. Shapes: (n, m) gives (m, n).
    >>> fp.swapaxes(fp.ones(2, 3, 4), 0, 2).shape
    (4, 3, 2)"""
    return transpose(x, axis0, axis1)


@composed
def t(x: Any) -> Any:
    """A matrix transposed; a vector or number is itself. Shapes: (n, m) gives (m, n); more axes are a ShapeError.
    >>> fp.t(fp.ones(2, 3)).shape
    (3, 2)"""
    x = Tensor.of("t", x)
    if x.ndim > 2:
        raise ShapeError(f"t: more than two axes: shape {x.shape}. Use .mT for stacks of matrices or .permute(axes).")
    return x if x.ndim < 2 else transpose(x)


@composed
def ravel(x: Any) -> Any:
    """All elements along one axis: flatten(). Shapes: (n, m) gives (n * m,).
    >>> fp.ravel(fp.ones(2, 3)).shape
    (6,)"""
    return flatten(x)


@composed
def reshape_as(x: Any, other: Any) -> Any:
    """reshape() to the shape of another tensor. Also called view_as. Shapes: as there.
    >>> fp.reshape_as(fp.ones(6), fp.ones(2, 3)).shape
    (2, 3)"""
    return reshape(x, Tensor.of("reshape_as", other).shape)


for _name, _own in (("movedim", moveaxis), ("swapdims", swapaxes), ("view_as", reshape_as)):
    publish(_name, _own, "flamepy")
