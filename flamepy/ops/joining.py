"""Joining and splitting: cat, stack, split, chunk. What is joined is written piece by piece into new memory; a piece is a slice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import IndexOutOfRange, ShapeError
from ..core.op import like
from ..core.ops.axes import composed, one_axis, tensors_of
from ..core.ops.shape import contiguous_strides, reshape, write_strided
from ..core.tensor import Tensor
from ..dtypes import is_count
from .shape_more import narrow


@custom(kind="any", title="cat", internal=True)
def joined(*xs, axis=0, new=False):
    """xs one after the other along `axis`, which is a `new` one of theirs or one that they have."""
    counts = [1 if new else x.shape[axis] for x in xs]
    shape = (*xs[0].shape[:axis], sum(counts), *xs[0].shape[axis + (not new) :])
    y, strides, at = like(xs[0], shape), contiguous_strides(shape), 0
    for x, count in zip(xs, counts, strict=True):
        write_strided(y, x, strides[:axis] + strides[axis + new :], at * strides[axis])
        at += count
    return y


@joined.differentiable
def joined_dx(g, shapes, wanted, axis, new):
    found, at = [], 0
    for shape, want in zip(shapes, wanted, strict=True):
        count = 1 if new else shape[axis]
        part = narrow(g, axis, at, count) if want else None
        found.append(reshape(part, shape) if want and new else part)
        at += count
    return tuple(found)


def listed(name: str, tensors: Any) -> list[Any]:
    if not hasattr(tensors, "__iter__"):
        raise ShapeError(f"{name}: no list of tensors: {type(tensors).__name__}. Pass [x, y, ...].")
    return list(tensors)


@composed
def cat(tensors: Any, axis: int = 0) -> Any:
    """The tensors one after the other along `axis`; all other sizes must be equal. Shapes: (n, k), (m, k) give (n + m, k).
    >>> fp.cat([fp.tensor([1.0]), fp.tensor([2.0, 3.0])]).tolist()
    [1.0, 2.0, 3.0]"""
    if type(tensors) is not list:
        tensors = listed("cat", tensors)
    xs = tensors_of("cat", *tensors)
    if not xs:
        raise ShapeError("cat: nothing to join: no tensors. Pass at least one.")
    a = one_axis("cat", axis, xs[0].ndim)
    shapes = [x.shape for x in xs]
    if not xs[0].ndim:
        raise IndexOutOfRange(f"cat: axis out of range: {axis} for 0 axes, shapes {shapes}. Use stack() for scalars.")
    if any([len(s) != len(shapes[0]) or s[:a] + s[a + 1 :] != shapes[0][:a] + shapes[0][a + 1 :] for s in shapes]):
        raise ShapeError(f"cat: shapes differ outside axis {axis}: {shapes}. Make all other sizes equal.")
    return joined(*xs, axis=a)


@composed
def stack(tensors: Any, axis: int = 0) -> Any:
    """The tensors along a new axis; all shapes must be equal. Shapes: n of (m,) give (n, m). Raises ShapeError.
    >>> fp.stack([fp.tensor([1.0]), fp.tensor([2.0])]).tolist()
    [[1.0], [2.0]]"""
    xs = tensors_of("stack", *listed("stack", tensors))
    if not xs or any([x.shape != xs[0].shape for x in xs]):
        raise ShapeError(f"stack: shapes differ or nothing to stack: {[x.shape for x in xs]}. Pass tensors of one shape.")
    return joined(*xs, axis=one_axis("unsqueeze", axis, xs[0].ndim + 1), new=True)


@composed
def split(x: Any, sizes: Any, axis: int = 0) -> list[Any]:
    """Pieces of `sizes` (an int: equal pieces, the last may be smaller; a list: these sizes) along `axis`. Shapes: x's elsewhere.
    >>> [t.tolist() for t in fp.split(fp.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]"""
    x = Tensor.of("split", x)
    a = one_axis("split", axis, x.ndim)
    if not x.ndim:
        raise ShapeError("split: no axis to split: shape (). Pass a tensor of one axis or more.")
    n = x.shape[a]
    if is_count(sizes, 1):
        sizes = [min(int(sizes), n - i) for i in range(0, n, int(sizes))] or [0]
    if not isinstance(sizes, list | tuple) or not all([is_count(m) for m in sizes]):
        raise ShapeError(f"split: neither a size nor a list of sizes: {sizes!r}. Use an int >= 1, or ints that add up to the axis.")
    if sum(sizes) != n:
        raise ShapeError(f"split: sizes do not add up to {n}: {list(sizes)}. Make them sum to the axis.")
    starts = np.cumsum([0, *sizes]).tolist()
    return [narrowed(x, a, s, m) for s, m in zip(starts, sizes, strict=False)]


def narrowed(x: Any, axis: int, start: int, size: int) -> Any:
    return reshape(x, x.shape) if size == x.shape[axis] else narrow(x, axis, start, size)


@composed
def chunk(x: Any, pieces: int, axis: int = 0) -> list[Any]:
    """`pieces` pieces of equal size along `axis` (the last may be smaller, and there may be fewer). Shapes: x's elsewhere.
    >>> [t.tolist() for t in fp.chunk(fp.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]"""
    x = Tensor.of("chunk", x)
    if not is_count(pieces, 1):
        raise ShapeError(f"chunk: needs at least one piece: {pieces!r}. Use an int >= 1.")
    n = x.shape[one_axis("chunk", axis, x.ndim)] if x.ndim else 0
    return split(x, max(1, -(-n // pieces)) if n else [0] * pieces, axis)
