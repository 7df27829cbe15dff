"""Several tensors put side by side, grids of coordinates, one tensor taken apart: what NumPy and PyTorch make of cat and split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.ops.axes import composed, one_axis, tensors_of
from ..core.ops.copy import filled
from ..core.ops.shape import broadcast_to, contiguous_strides, read_strided, reshape
from ..core.tensor import Tensor
from ..dtypes import is_count
from .joining import cat, joined, listed, narrowed
from .shape_more import shaped


# ---- more axes -------------------------------------------------------------------------------------------------------------------
def with_axes(name: str, xs: tuple, more: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Any:
    """One tensor, or a list of several, each with more axes of size 1."""
    given = xs[0] if len(xs) == 1 and isinstance(xs[0], list | tuple) and any([isinstance(x, Tensor) for x in xs[0]]) else xs
    found = [shaped(x, more(x.shape)) for x in tensors_of(name, *given)]
    return found[0] if given is xs and len(found) == 1 else found


@composed
def atleast_1d(*xs: Any) -> Any:
    """Tensors with an axis at least; several give a list. Shapes: () gives (1,).
    >>> fp.atleast_1d(fp.tensor(2.0)).tolist()
    [2.0]"""
    return with_axes("atleast_1d", xs, lambda shape: shape or (1,))


@composed
def atleast_2d(*xs: Any) -> Any:
    """Tensors with two axes at least; several give a list. Shapes: (n,) gives (1, n).
    >>> fp.atleast_2d(fp.ones(3)).shape
    (1, 3)"""
    return with_axes("atleast_2d", xs, lambda shape: (1,) * (2 - len(shape)) + shape)


@composed
def atleast_3d(*xs: Any) -> Any:
    """Tensors with three axes at least; several give a list. Shapes: (n,) gives (1, n, 1), (n, m) gives (n, m, 1).
    >>> fp.atleast_3d(fp.ones(2, 3)).shape
    (2, 3, 1)"""
    return with_axes("atleast_3d", xs, lambda s: s if len(s) > 2 else ((1, 1, 1), (1, *s, 1), (*s, 1))[len(s)])


# ---- side by side ----------------------------------------------------------------------------------------------------------------
def side_by_side(name: str, tensors: Any, prepared: Callable[[Any], Any], axis: Callable[[int], int]) -> Any:
    xs = [prepared(x) for x in tensors_of(name, *listed(name, tensors))]
    if not xs:
        raise ShapeError(f"{name}: nothing to join: no tensors. Pass at least one.")
    return cat(xs, axis(xs[0].ndim))


@composed
def hstack(tensors: Any) -> Any:
    """Tensors side by side: along the second axis, those of one axis along it. Shapes: (n, a), (n, b) give (n, a + b).
    >>> fp.hstack([fp.ones(2, 1), fp.ones(2, 3)]).shape
    (2, 4)"""
    return side_by_side("hstack", tensors, atleast_1d, lambda ndim: 0 if ndim == 1 else 1)


@composed
def vstack(tensors: Any) -> Any:
    """Tensors below each other, those of one axis as rows. Shapes: (n,), (m, n) give (m + 1, n).
    >>> fp.vstack([fp.tensor([1, 2]), fp.tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]"""
    return side_by_side("vstack", tensors, atleast_2d, lambda ndim: 0)


@composed
def dstack(tensors: Any) -> Any:
    """Tensors behind each other, along the third axis. Shapes: (n, m), (n, m) give (n, m, 2).
    >>> fp.dstack([fp.tensor([1, 2]), fp.tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]"""
    return side_by_side("dstack", tensors, atleast_3d, lambda ndim: 2)


@composed
def column_stack(tensors: Any) -> Any:
    """Tensors side by side, those of one axis as columns. Shapes: (n,), (n, m) give (n, m + 1).
    >>> fp.column_stack([fp.tensor([1, 2]), fp.tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]"""
    return side_by_side("column_stack", tensors, lambda x: reshape(x, (x.size, 1)) if x.ndim < 2 else x, lambda ndim: 1)


# ---- one shape, coordinates ------------------------------------------------------------------------------------------------------
@composed
def broadcast_tensors(*xs: Any) -> list[Any]:
    """The tensors, each repeated to the shape that all broadcast to. Shapes: as there, else ShapeError.
    >>> [t.shape for t in fp.broadcast_tensors(fp.ones(3, 1), fp.ones(4))]
    [(3, 4), (3, 4)]"""
    tensors = tensors_of("broadcast_tensors", *xs)
    try:
        shape = np.broadcast_shapes(*[x.shape for x in tensors])
    except ValueError:
        shapes = [x.shape for x in tensors]
        raise ShapeError(f"broadcast_tensors: shapes do not broadcast: {shapes}. Sizes must be equal or 1, from the right.") from None
    return [broadcast_to(x, shape) for x in tensors]


@composed
def expand_as(x: Any, other: Any) -> Any:
    """broadcast_to() the shape of another tensor. Shapes: as there.
    >>> fp.expand_as(fp.ones(3), fp.ones(2, 3)).shape
    (2, 3)"""
    return broadcast_to(x, Tensor.of("expand_as", other).shape)


@composed
def meshgrid(*xs: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates of the grid of these 1-D tensors, one tensor for each. indexing "xy", as in NumPy, has the first along columns, "ij"
    along rows. Shapes: (n,), (m,) give (m, n), with "ij" (n, m). Raises ShapeError.
    >>> [t.tolist() for t in fp.meshgrid(fp.tensor([1, 2]), fp.tensor([3, 4]), indexing="ij")]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]"""
    if indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: unknown indexing: {indexing!r}. Use 'xy' or 'ij'.")
    tensors = tensors_of("meshgrid", *(xs[0] if len(xs) == 1 and isinstance(xs[0], list | tuple) else xs))
    if any([x.ndim > 1 for x in tensors]):
        raise ShapeError(f"meshgrid: more than one axis: {[x.shape for x in tensors]}. Pass 1-D tensors.")
    places = [*range(len(tensors))]
    if indexing == "xy" and len(places) > 1:
        places[:2] = 1, 0
    shape = [1] * len(places)
    for place, x in zip(places, tensors, strict=True):
        shape[place] = x.size
    own = [tuple([x.size if d == place else 1 for d in range(len(places))]) for place, x in zip(places, tensors, strict=True)]
    return [broadcast_to(reshape(x, s), tuple(shape)) for x, s in zip(tensors, own, strict=True)]


# ---- taken apart -----------------------------------------------------------------------------------------------------------------
@composed
def unbind(x: Any, axis: int = 0) -> list[Any]:
    """The parts of x along an axis, each without it. Shapes: (n, m) gives n of (m,). Raises ShapeError for a tensor without axes.
    >>> [t.tolist() for t in fp.unbind(fp.tensor([[1, 2], [3, 4]]), 1)]
    [[1, 3], [2, 4]]"""
    x = Tensor.of("unbind", x)
    if not x.ndim:
        raise ShapeError("unbind: no axis to take apart: shape (). Pass a tensor of one axis or more.")
    a = one_axis("unbind", axis, x.ndim)
    return [*taken_apart(x, a)] if x.shape[a] else []


@custom(inputs=1, kind="as is", title="unbind", internal=True)
def taken_apart(x, axis=0):
    strides, rest = contiguous_strides(x.shape), slice(axis + 1, None)
    shape, steps = (*x.shape[:axis], *x.shape[rest]), (*strides[:axis], *strides[rest])
    return tuple([read_strided(x, shape, steps, i * strides[axis]) for i in range(x.shape[axis])])


@taken_apart.differentiable
def taken_apart_dx(gs, axis):
    one = next(g for g in gs if g is not None)
    return joined(*[filled(one.shape, 0, one.dtype, one.device) if g is None else g for g in gs], axis=axis, new=True)


@composed
def tensor_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """x in so many parts of nearly one size, the first ones larger, or cut before each of these places. (NumPy's array_split.) Shapes: x's
    elsewhere. Raises ShapeError.
    >>> [t.tolist() for t in fp.tensor_split(fp.tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]"""
    x = Tensor.of("tensor_split", x)
    if not x.ndim:
        raise ShapeError("tensor_split: no axis to cut: shape (). Pass a tensor of one axis or more.")
    a, cuts = one_axis("tensor_split", axis, x.ndim), indices_or_sections
    cuts, n = cuts.tolist() if hasattr(cuts, "tolist") else cuts, x.shape[a]
    if is_count(cuts, 1) and cuts < 1 << 31:
        each, more = divmod(n, int(cuts))
        cuts = [i * each + min(i, more) for i in range(1, int(cuts))]
    elif not isinstance(cuts, list | tuple) or not all([hasattr(c, "__index__") for c in cuts]):
        raise ShapeError(f"tensor_split: neither a number of parts nor places: {cuts!r}. Use an int >= 1, below 2 ** 31, or ints.")
    pieces = [range(n)[start:stop] for start, stop in zip([None, *cuts], [*cuts, None], strict=True)]
    return [narrowed(x, a, p.start if len(p) else 0, len(p)) for p in pieces]
