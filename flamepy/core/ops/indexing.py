"""Indexing: x[...] and embedding.

Ints, slices, None and ... are strided reads. Rows by their ids are a row copy; its backward adds rows, so a repeated id adds up. Ids are
checked and turned into row numbers by kernels, without a look at them from the host (a recorded step may be replayed with others).
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from ..custom import custom
from ..dtypes import INTEGERS, int64
from ..errors import DTypeError, IndexOutOfRange, ShapeError
from ..op import launch, like
from ..tensor import Tensor
from .axes import composed, tensors_of, titled
from .copy import cast
from .shape import reshape, sliced


@custom(inputs=2, kind="as is", title="index", internal=True)
def rows_at(x, index, inner=1, shape=()):
    """Rows of `inner` elements at the row numbers `index` (int64 Tensor), as a tensor of `shape`."""
    y = like(x, shape)
    if y.size:
        launch("take_rows", None, (y,), (x, index), (inner,))
    return y


rows_at.differentiable(lambda g, shapes, index, inner: (rows_added(g, index, inner, shapes[0]), None))


@custom(inputs=2, kind="as is", title="add_rows", internal=True)
def rows_added(x, index, inner=1, shape=()):
    """Rows of x added into zeros of `shape` at the row numbers `index`."""
    y = like(x, shape, x.spec.computed)
    add_rows(y, x, index, inner, False)
    return y if y.dtype == x.dtype else cast(y, x.dtype)


rows_added.differentiable(lambda g, shapes, index, inner: (rows_at(g, index, inner, shapes[0]), None))
embedded = titled(rows_at, "embedding")


def add_rows(y: Any, x: Any, index: Any, inner: int, add: bool) -> None:
    """Add rows of x to rows of y, which starts at zero unless `add`, in the order of the index."""
    if y.size:
        launch("add_rows", None, (y,), (x, index), (inner, add))


def is_basic(key: tuple) -> bool:
    """Whether an index holds only ints, slices, None and '...'."""
    return all([k is None or k is Ellipsis or isinstance(k, slice) or is_integer(k) for k in key])


def is_integer(k: Any) -> bool:
    return hasattr(k, "__index__") and not isinstance(k, (bool, np.bool_, np.ndarray, Tensor))


def getitem(x: Any, key: Any) -> Any:
    """x[key] for ints, slices (any step), None and ...; arrays and masks as index are in flamepy/ops/picking.py."""
    keys = key if isinstance(key, tuple) else (key,)
    if not is_basic(keys):
        raise DTypeError(f"index: not in core: {key!r}. Use ints, slices, None and ...; embedding() for rows by their ids.")
    return basic(x, keys)


def basic(x: Any, keys: tuple) -> Any:
    """Ints, slices, None and ... as one strided read and a reshape."""
    used = len([k for k in keys if k is not None and k is not Ellipsis])
    if used > x.ndim or len([k for k in keys if k is Ellipsis]) > 1:
        wrong = "too many indices" if used > x.ndim else "more than a single ellipsis"
        raise IndexOutOfRange(f"index: {wrong}: {used} for shape {x.shape}. Use one index an axis and one '...'.")
    if Ellipsis not in keys:
        keys = (*keys, Ellipsis)
    walk: list[tuple[int, int, int]] = []  # (start, step, size) of each axis of x
    shape: list[int] = []
    for k in keys:
        if k is None:
            shape.append(1)
        elif k is Ellipsis:
            rest = x.shape[len(walk) : len(walk) + x.ndim - used]
            walk += [(0, 1, n) for n in rest]
            shape += rest
        elif isinstance(k, slice):
            try:
                start, stop, step = k.indices(x.shape[len(walk)])
            except (TypeError, ValueError) as problem:
                kind = DTypeError if isinstance(problem, TypeError) else ShapeError
                raise kind(f"index: not a slice of ints: {k}: {problem}. Use ints, and a step other than 0.") from None
            size = len(range(start, stop, step))
            walk.append((start if size else 0, step, size))
            shape.append(size)
        else:
            walk.append((in_axis(operator.index(k), len(walk), x.shape), 1, 1))
    starts, steps, sizes = zip(*walk, strict=True) if walk else ((), (), ())
    if sizes != x.shape or any([step < 0 for step in steps]):
        return sliced(x, starts, steps, sizes, tuple(shape))
    return reshape(x, tuple(shape))


def in_axis(i: int, axis: int, shape: tuple[int, ...]) -> int:
    """An index of an axis counted from its start. Raises IndexOutOfRange."""
    n = shape[axis]
    if not -n <= i < n:
        raise IndexOutOfRange(f"index: out of bounds: {i} for axis {axis} of {n} elements, shape {shape}. Use {-n} to {n - 1}.")
    return i % n


# ---- ids ------------------------------------------------------------------------------------------------------------------------
@custom(inputs=1, kind="as is", internal=True)
def id_counts(ids, low=0, high=0, ignores=False, ignore=0):
    """(position of the first id outside [low, high) or -1, that id, number of ids that are not ignored)."""
    found = like(ids, (3,), int64)
    launch("check_ids", None, (found,), (ids,), (low, high, ignores, ignore))
    return found


def check_ids(ids: Any, low: int, high: int, text: Any, ignore: int | None = None, error: type[Exception] = IndexOutOfRange) -> Any:
    """Raise IndexOutOfRange (or another error) unless low <= id < high for every id but `ignore`. `text` has places for the value and
    the position, or takes them.
    Returns what the kernel found: three int64 numbers, the last of which counts the ids that are not `ignore`."""
    found, shape = id_counts(ids, low, high, ignore is not None, ignore or 0), ids.shape

    def check(buffer: Any) -> None:
        at, value, _ = buffer.device.download(buffer).tolist()
        if at >= 0:
            position = tuple([int(i) for i in np.unravel_index(at, shape)]) if shape else ()
            raise error(text(value, position) if callable(text) else text.format(value, position))

    ids.device.require(check, found.buffer, within=((-1, -1),))
    return found


@custom(inputs=1, kind="as is", internal=True)
def placed_ids(ids, n=0, sizes=(), strides=(), step=1):
    """For each position in `sizes`, where it begins by `strides`, plus `step` times its id (of n, negative ones from the end).
    ids repeats along the first axes of `sizes`."""
    out = like(ids, (math.prod(sizes),))
    if out.size:
        launch("place_ids", None, (out,), (ids,), (sizes, strides, n, step))
    return out


def picked_from_rows(x: Any, ids: Any) -> Any:
    """x[i, ids[i]] for each row i of a matrix; the ids have been checked."""
    rows, cols = x.shape
    return rows_at(x, placed_ids(ids, cols, (rows,), (cols,), 1), 1, (rows,))


# ---- embedding ----------------------------------------------------------------------------------------------------------------------
@composed(home="functional")
def embedding(ids: Any, weight: Any) -> Any:
    """Rows of weight at the integer ids; its gradient adds up over repeated ids. Raises DTypeError, IndexOutOfRange for an id of no row.
    Shapes: ids any, weight (n, width); the result (*ids.shape, width).
    >>> F.embedding([1, 0], fp.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [1.0, 2.0]]"""
    weight, ids = tensors_of("embedding", weight, ids)
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"embedding: ids are not integer: {ids.dtype}. Cast them to int64.")
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight is not a matrix: {weight.shape}. Pass (n, width).")
    rows, width = weight.shape
    index = ids if ids.dtype == int64 else cast(ids, int64)
    check_ids(index, 0, rows, f"embedding: id out of range: {{}} at position {{}}, the table has {rows} rows. Use 0 to {rows - 1}.")
    return embedded(weight, index, width, (*ids.shape, width))
