"""Shape ops: the same numbers in another arrangement. Tensors are contiguous, so only reshape is free; the others copy.

A transpose, a slice, a broadcast is a strided read; its backward is a strided write into zeros, or a sum for a broadcast.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .. import op
from ..custom import custom
from ..door import Door
from ..dtypes import checked_int, is_count
from ..errors import IndexOutOfRange, ShapeError
from ..op import launch, like, share
from ..spec import size_of
from ..tensor import Tensor
from .axes import Shape, as_shape, axes_of, composed, one_axis, titled
from .copy import filled


# ---- moving by strides --------------------------------------------------------------------------------------------------------
def contiguous_strides(shape: Shape) -> Shape:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(strides[::-1])


def read_strided(x: Any, shape: Shape, strides: Shape, base: int) -> Any:
    """A new Tensor of `shape` whose elements are x[base + index . strides]."""
    y = like(x, shape)
    if y.size:
        launch("strided_get", None, (y,), (x,), (shape, strides, base))
    return y


def write_strided(y: Any, x: Any, strides: Shape, base: int) -> None:
    """y[base + index . strides] = x, in place, for a y that nobody has seen yet."""
    if x.size:
        launch("strided_put", None, (y,), (x,), (x.shape, strides, base))


# ---- one-to-one -----------------------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", title="reshape", internal=True)
def view(x, shape=()):
    return share(x, shape)


@view.backward
def view_dx(g, shapes):
    return reshape(g, shapes[0])


view.differentiable()


@composed
def reshape(x: Any, shape: Any, *rest: int) -> Any:
    """Another shape on the same memory; one size may be -1. reshape(x, (2, 3)) or reshape(x, 2, 3).
    Shapes: any to any of as many elements, else ShapeError.
    >>> fp.reshape(fp.tensor([1, 2, 3, 4]), (2, -1)).tolist()
    [[1, 2], [3, 4]]"""
    if not isinstance(x, Tensor):
        x = Tensor.of("reshape", x)
    asked = as_shape("reshape", shape, rest)
    known, unknown = 1, 0
    for n in asked:
        if n == -1:
            unknown += 1
        else:
            known *= n
    size, wanted = x.size, asked
    if unknown == 1:
        guess = size // known if known else 0
        wanted = tuple([guess if n == -1 else n for n in asked])
        known *= guess
    if unknown and not size and known == 0 and 0 in [n for n in asked if n != -1]:
        raise ShapeError(f"reshape: -1 could be any size: {x.shape} has no elements, asked for {asked}. Say which size it is.")
    if known != size or unknown > 1:
        raise ShapeError(f"reshape: sizes differ: {x.shape} has {size} elements, asked for {asked}. Use sizes of the same product.")
    return Door.call(view, (x,), {"shape": wanted})


@composed
def flatten(x: Any, start_axis: int = 0, end_axis: int = -1) -> Any:
    """Merge the axes from start_axis to end_axis into one. Shapes: (a, b, c) gives (a * b * c,). Raises ShapeError.
    >>> fp.flatten(fp.ones(2, 3, 4), start_axis=1).shape
    (2, 12)"""
    x = Tensor.of("flatten", x)
    first, last = one_axis("flatten", start_axis, x.ndim), one_axis("flatten", end_axis, x.ndim)
    if first > last:
        raise ShapeError(f"flatten: start after end: {start_axis}, {end_axis}. Give axes in order.")
    return reshape(x, (*x.shape[:first], size_of(x.shape[first : last + 1]), *x.shape[last + 1 :]))


@composed
def squeeze(x: Any, axis: Any = None) -> Any:
    """Without axes of size 1: all of them, or the ones named (which must have size 1). Shapes: (n, 1) gives (n,).
    >>> fp.squeeze(fp.ones(2, 1, 3)).shape
    (2, 3)"""
    x = Tensor.of("squeeze", x)
    if axis is None:
        axes = tuple([d for d, n in enumerate(x.shape) if n == 1])
    else:
        axes = axes_of("squeeze", axis, x.ndim)
        if any([x.ndim and x.shape[a] != 1 for a in axes]):
            raise ShapeError(f"squeeze: axis {axis} does not have size 1: shape {x.shape}. Name axes of size 1.")
    return reshape(x, tuple([n for d, n in enumerate(x.shape) if d not in axes]))


@composed
def unsqueeze(x: Any, axis: int) -> Any:
    """A new axis of size 1 at `axis` of the result. Shapes: (n,) gives (1, n) or (n, 1).
    >>> fp.unsqueeze(fp.ones(3), -1).shape
    (3, 1)"""
    x = Tensor.of("unsqueeze", x)
    a = one_axis("unsqueeze", axis, x.ndim + 1)
    return reshape(x, (*x.shape[:a], 1, *x.shape[a:]))


@custom(inputs=1, kind="as is", title="permute", internal=True)
def permuted(x, axes=()):
    strides = contiguous_strides(x.shape)
    return read_strided(x, tuple([x.shape[a] for a in axes]), tuple([strides[a] for a in axes]), 0)


@permuted.backward
def permuted_dx(g, axes):
    return permuted(g, inverse(axes))


def inverse(axes: Shape) -> Shape:
    """The order that undoes this one."""
    return tuple([axes.index(d) for d in range(len(axes))])


permuted.differentiable()


@composed
def permute(x: Any, axes: Any, *rest: int) -> Any:
    """The axes in another order; permute(x, (1, 0)) or permute(x, 1, 0). Shapes: sizes in that order. Raises ShapeError.
    >>> fp.permute(fp.ones(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)"""
    x = Tensor.of("permute", x)
    given = tuple(axes) if not rest and (isinstance(axes, tuple | list) or (hasattr(axes, "ndim") and axes.ndim)) else (axes, *rest)
    order = permutation(tuple([a if type(a) is int else one_axis("permute", a, x.ndim) for a in given]), x.ndim)
    return x if order is None else permuted(x, order)


@lru_cache(4096)
def permutation(given: tuple, ndim: int) -> Shape | None:
    """The order of axes as non-negative ints, None for the order as it is. Raises ShapeError, IndexOutOfRange."""
    order = tuple([one_axis("permute", a, ndim) for a in given])
    if len(order) != ndim or len(set(order)) != ndim:
        raise ShapeError(f"permute: not an order of {ndim} axes: {given}. Name each axis once.")
    return None if order == tuple(range(ndim)) else order


swapping = titled(permuted, "transpose")


@composed
def transpose(x: Any, axis0: int = -2, axis1: int = -1) -> Any:
    """Two axes swapped. Shapes: (..., n, m) gives (..., m, n).
    >>> fp.transpose(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]"""
    x = Tensor.of("transpose", x)
    order = swapped(*[a if type(a) is int else one_axis("transpose", a, x.ndim) for a in (axis0, axis1)], x.ndim)
    return x if order is None else swapping(x, order)


@lru_cache(4096)
def swapped(axis0: int, axis1: int, ndim: int) -> Shape | None:
    """The order of axes with two of them swapped, None for the order as it is. Raises IndexOutOfRange."""
    a, b = one_axis("transpose", axis0, ndim), one_axis("transpose", axis1, ndim)
    order = list(range(ndim))
    if order:
        order[a], order[b] = b, a
    return permutation(tuple(order), ndim)


# ---- one-to-many, many-to-one ------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", title="broadcast_to", internal=True)
def expanded(x, shape=()):
    return read_strided(x, shape, expanded_strides(x.shape, len(shape)), 0)


def expanded_strides(shape: Shape, ndim: int) -> Shape:
    """Strides that repeat a tensor along its axes of size 1 and along new ones in front."""
    own = zip(shape, contiguous_strides(shape), strict=True)
    return (0,) * (ndim - len(shape)) + tuple([0 if n == 1 else s for n, s in own])


@expanded.backward
def expanded_dx(g, shapes):
    return op.REGISTRY["sum_to"](g, shapes[0])


expanded.differentiable()


@composed
def broadcast_to(x: Any, shape: Any, *rest: int) -> Any:
    """x repeated to `shape` by the broadcasting rule; -1 keeps a size. Also called expand.
    Shapes: to one that x's broadcasts to, else ShapeError.
    >>> fp.broadcast_to(fp.tensor([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]"""
    x = Tensor.of("broadcast_to", x)
    full = target(x.shape, as_shape("broadcast_to", shape, rest))
    return x if full == x.shape else expanded(x, full)


@lru_cache(4096)
def target(shape: Shape, wanted: Shape) -> Shape:
    """The shape wanted with sizes in place of -1. Raises ShapeError."""
    own = (1,) * (len(wanted) - len(shape)) + shape
    full = tuple([n if w == -1 else w for n, w in zip(own, wanted, strict=False)])
    if len(own) != len(wanted) or any([n not in (1, w) for n, w in zip(own, full, strict=True)]):
        raise ShapeError(f"broadcast_to: {shape} does not broadcast to {wanted}. Sizes must be equal or 1, counted from the right.")
    return full


@composed
def expand(x: Any, shape: Any, *rest: int) -> Any:
    """broadcast_to(). Shapes: as there.
    >>> fp.expand(fp.tensor([[1], [2]]), -1, 2).tolist()
    [[1, 1], [2, 2]]"""
    return broadcast_to(x, shape, *rest)


@custom(inputs=1, kind="as is", title="index", internal=True)
def sliced(x, starts=(), steps=(), sizes=()):
    """Every axis from start, by step (may be negative), as many as size."""
    strides, base = sliced_places(x.shape, starts, steps)
    return read_strided(x, sizes, strides, base)


def sliced_places(shape: Shape, starts: Shape, steps: Shape) -> tuple[Shape, int]:
    """(strides, position of the first element)."""
    strides = contiguous_strides(shape)
    base = sum([s * t for s, t in zip(strides, starts, strict=True)])
    return tuple([s * t for s, t in zip(strides, steps, strict=True)]), base


@sliced.backward
def sliced_dx(g, shapes, starts, steps):
    return unsliced(g, shapes[0], starts, steps)


sliced.differentiable()


@custom(inputs=1, kind="as is", title="pad")
def unsliced(x, shape=(), starts=(), steps=(), value=0):
    """x written into a tensor full of `value`: the reverse of sliced."""
    y = filled(shape, value, x.dtype, x.device)
    write_strided(y, x, *sliced_places(shape, starts, steps))
    return y


@unsliced.backward
def unsliced_dx(g, shapes, starts, steps):
    return sliced(g, starts, steps, shapes[0])


unsliced.differentiable()


narrowing = titled(sliced, "narrow")


@composed
def narrow(x: Any, axis: int, start: int, length: int) -> Any:
    """`length` elements of one axis, from `start`. Shapes: x's with `length` at that axis. Raises IndexOutOfRange.
    >>> fp.narrow(fp.tensor([1, 2, 3, 4]), 0, 1, 2).tolist()
    [2, 3]"""
    x = Tensor.of("narrow", x)
    a = one_axis("narrow", axis, x.ndim)
    n, start, length = x.shape[a] if x.ndim else 0, checked_int("narrow", "start", start), checked_int("narrow", "length", length)
    first = start + n if start < 0 else start
    if length < 0 or first < 0 or first + length > n:
        raise IndexOutOfRange(f"narrow: out of range: start {start}, length {length}, axis {axis} has {n}. Stay inside the axis.")
    if length == n:
        return x
    starts, sizes = [0] * x.ndim, list(x.shape)
    starts[a], sizes[a] = first, length
    return narrowing(x, tuple(starts), (1,) * x.ndim, tuple(sizes))


@composed
def pad(x: Any, widths: Any, value: float = 0) -> Any:
    """x with `value` around it; widths is ((before, after), ...), one pair for each axis. Shapes: before + n + after.
    >>> fp.pad(fp.tensor([1.0, 2.0]), ((1, 2),)).tolist()
    [0.0, 1.0, 2.0, 0.0, 0.0]"""
    x = Tensor.of("pad", x)
    pairs = widths if isinstance(widths, tuple | list) else ()
    if len(pairs) != x.ndim or not all([isinstance(p, tuple | list) and len(p) == 2 and all(map(is_count, p)) for p in pairs]):
        raise ShapeError(f"pad: needs a pair (before, after) for each of {x.ndim} axes: {widths}. Use (0, 0) for an axis left alone.")
    shape = tuple([b + n + a for (b, a), n in zip(pairs, x.shape, strict=True)])
    return unsliced(x, shape, tuple([b for b, _ in pairs]), (1,) * x.ndim, value)


def triangle(name: str, x: Any, diagonal: int, upper: bool) -> Any:
    if x.ndim < 2:
        raise ShapeError(f"{name}: needs a matrix: shape {x.shape}. Give it two axes or more.")
    y = like(x)
    if x.size:
        launch("tri", None, (y,), (x,), (x.shape[-2], x.shape[-1], checked_int(name, "diagonal", diagonal), upper))
    return y


@custom(inputs=1, kind="as is", home="flamepy")
def tril(x, diagonal=0):
    """The matrix on and below the diagonal, zeros above. Shapes: (..., n, m), else ShapeError; the result has x's.
    >>> fp.tril(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 0], [3, 4]]"""
    return triangle("tril", x, diagonal, False)


@tril.backward
def tril_dx(g, diagonal):
    return tril(g, diagonal)


tril.differentiable()


@custom(inputs=1, kind="as is", home="flamepy")
def triu(x, diagonal=0):
    """The matrix on and above the diagonal, zeros below. Shapes: (..., n, m), else ShapeError; the result has x's.
    >>> fp.triu(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 2], [0, 4]]"""
    return triangle("triu", x, diagonal, True)


@triu.backward
def triu_dx(g, diagonal):
    return triu(g, diagonal)


triu.differentiable()
