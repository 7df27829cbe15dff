"""Shape ops: the same numbers in another arrangement. Tensors are contiguous, so only reshape is free; the others copy.

A transpose, a slice, a broadcast is a strided read; its backward is a strided write into zeros, or a sum for a broadcast.
"""

from __future__ import annotations

from math import prod
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
    x, asked = x if isinstance(x, Tensor) else Tensor.of("reshape", x), as_shape("reshape", shape, rest)
    size, known, unknown = x.size, abs(prod(asked)), asked.count(-1)
    if unknown and known == size == 0:
        raise ShapeError(f"reshape: -1 could be any size: {x.shape} has no elements, asked for {asked}. Say which size it is.")
    wanted = tuple([size // (known or 1) if n == -1 else n for n in asked]) if unknown else asked
    if unknown > 1 or prod(wanted) != size:
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
    order = tuple([one_axis("permute", a, x.ndim) for a in given])
    if sorted(order) != [*range(x.ndim)]:
        raise ShapeError(f"permute: not an order of {x.ndim} axes: {tuple([int(a) for a in given])}. Name each axis once.")
    return permuted(x, order) if order != (*range(x.ndim),) else x


swapping = titled(permuted, "transpose")


@composed
def transpose(x: Any, axis0: int = -2, axis1: int = -1) -> Any:
    """Two axes swapped. Shapes: (..., n, m) gives (..., m, n).
    >>> fp.transpose(fp.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]"""
    x = Tensor.of("transpose", x)
    a, b, order = one_axis("transpose", axis0, x.ndim), one_axis("transpose", axis1, x.ndim), [*range(x.ndim)]
    if a == b:
        return x
    order[a], order[b] = b, a
    return swapping(x, tuple(order))


@composed(home="")
def T(x: Any) -> Any:
    """The two axes of a matrix swapped; a vector is itself."""
    if x.ndim > 2:
        raise ShapeError(f"T: more than two axes: shape {x.shape}. Use .mT for stacks of matrices or .permute(axes).")
    return x if x.ndim < 2 else transpose(x)


# ---- one-to-many, many-to-one ------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", title="broadcast_to", internal=True)
def expanded(x, shape=()):
    steps = [0 if n == 1 else step for n, step in zip(x.shape, contiguous_strides(x.shape), strict=True)]
    return read_strided(x, shape, (*[0] * (len(shape) - len(x.shape)), *steps), 0)  # a step of 0 repeats


expanded.differentiable(lambda g, shapes: op.REGISTRY["sum_to"](g, shapes[0]))


@composed
def broadcast_to(x: Any, shape: Any, *rest: int) -> Any:
    """x repeated to `shape` by the broadcasting rule; -1 keeps a size. Also called expand.
    Shapes: to one that x's broadcasts to, else ShapeError.
    >>> fp.broadcast_to(fp.tensor([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]"""
    x = Tensor.of("broadcast_to", x)
    wanted = as_shape("broadcast_to", shape, rest)
    own = (1,) * (len(wanted) - len(x.shape)) + x.shape
    full = tuple([n if w == -1 else w for n, w in zip(own, wanted, strict=False)]) if -1 in wanted else wanted
    if len(own) != len(wanted) or any([n not in (1, w) for n, w in zip(own, full, strict=True)]):
        raise ShapeError(f"broadcast_to: {x.shape} does not broadcast to {wanted}. Sizes must be equal or 1, counted from the right.")
    return expanded(x, full) if full != x.shape else x


@custom(inputs=1, kind="as is", title="index", internal=True)
def sliced(x, starts=(), steps=(), sizes=(), shape=()):
    """Every axis from start, by step (may be negative), as many as size; as a tensor of `shape`."""
    strides, base = sliced_places(x.shape, starts, steps)
    return share(read_strided(x, sizes, strides, base), shape)


def sliced_places(shape: Shape, starts: Shape, steps: Shape) -> tuple[Shape, int]:
    """(strides, position of the first element)."""
    strides = contiguous_strides(shape)
    base = sum([s * t for s, t in zip(strides, starts, strict=True)])
    return tuple([s * t for s, t in zip(strides, steps, strict=True)]), base


@sliced.differentiable
def sliced_dx(g, shapes, starts, steps, sizes):
    return unsliced(g if g.shape == sizes else reshape(g, sizes), shapes[0], starts, steps)


@custom(inputs=1, kind="as is", title="pad")
def unsliced(x, shape=(), starts=(), steps=(), value=0):
    """x written into a tensor full of `value`: the reverse of sliced."""
    y = filled(shape, value, x.dtype, x.device)
    write_strided(y, x, *sliced_places(shape, starts, steps))
    return y


unsliced.differentiable(lambda g, shapes, starts, steps: sliced(g, starts, steps, shapes[0], shapes[0]))
