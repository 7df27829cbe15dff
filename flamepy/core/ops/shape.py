"""Shape ops: the same numbers in another arrangement. Tensors are contiguous, so only reshape is free; the others copy.

A transpose, a slice, a broadcast is a strided read; its backward is a strided write into zeros, or a sum for a broadcast.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .. import op
from ..custom import custom
from ..door import Door
from ..errors import ShapeError
from ..op import launch, like, share
from ..tensor import Tensor
from .axes import Shape, as_shape, composed, one_axis, titled
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


view.differentiable(lambda g, shapes: reshape(g, shapes[0]))


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


@custom(inputs=1, kind="as is", title="permute", internal=True)
def permuted(x, axes=()):
    strides = contiguous_strides(x.shape)
    return read_strided(x, tuple([x.shape[a] for a in axes]), tuple([strides[a] for a in axes]), 0)


permuted.differentiable(lambda g, axes: permuted(g, inverse(axes)))


def inverse(axes: Shape) -> Shape:
    """The order that undoes this one."""
    return tuple([axes.index(d) for d in range(len(axes))])


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


expanded.differentiable(lambda g, shapes: op.REGISTRY["sum_to"](g, shapes[0]))


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


sliced.differentiable(lambda g, shapes, starts, steps: unsliced(g, shapes[0], starts, steps))


@custom(inputs=1, kind="as is", title="pad")
def unsliced(x, shape=(), starts=(), steps=(), value=0):
    """x written into a tensor full of `value`: the reverse of sliced."""
    y = filled(shape, value, x.dtype, x.device)
    write_strided(y, x, *sliced_places(shape, starts, steps))
    return y


unsliced.differentiable(lambda g, shapes, starts, steps: sliced(g, starts, steps, shapes[0]))
