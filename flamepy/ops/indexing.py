"""Indexing and joining: x[...], cat, stack, split, chunk, gather, index_select.

Basic indices (ints, slices, None, ...) are strided reads. Anything else becomes a list of flat positions, computed by NumPy from
the index alone, and a row copy; its backward adds rows, so a repeated index adds up.

May import: errors, backend, op, ops.reduce, ops.shape. FLAME counterpart: `flame_core::ops::indexing`. Read next: matmul.py.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .. import op, ops
from ..backend.base import INTEGERS, int64
from ..errors import DTypeError, IndexOutOfRange, ShapeError
from ..op import composed, launch, like, size_of
from ..op_custom import custom
from .copy import filled
from .reduce import one_axis
from .shape import contiguous_strides, write_strided


@custom(inputs=1, kind="move", home="")
def rows_at(x, index=None, inner=1, shape=()):
    """Rows of `inner` elements at the row numbers `index` (int64 Tensor), as a tensor of `shape`."""
    y = like(x, shape)
    if y.size:
        launch("take_rows", None, (y,), (x, index), (inner,))
    return y


@rows_at.backward
def rows_at_dx(g, shapes, index, inner):
    return op.REGISTRY["rows_added"](g, index, inner, shapes[0])


rows_at.differentiable()


@custom(inputs=1, kind="move", home="")
def rows_added(x, index=None, inner=1, shape=()):
    """Rows of x added into zeros of `shape` at the row numbers `index`."""
    y = filled(shape, 0, x.dtype, x.device)
    if x.size:
        launch("add_rows", None, (y,), (x, index), (inner,), work=x.size)
    return y


@rows_added.backward
def rows_added_dx(g, shapes, index, inner):
    return op.REGISTRY["rows_at"](g, index, inner, shapes[0])


rows_added.differentiable()


def positions(array: np.ndarray, x: Any) -> Any:
    """Row numbers as an int64 Tensor on x's device."""
    return op.Tensor.of("index", np.ascontiguousarray(array, np.int64))


def is_basic(key: tuple) -> bool:
    """Whether an index holds only ints, slices, None and '...'."""
    for k in key:
        integer = hasattr(k, "__index__") and not isinstance(k, bool | np.bool_ | np.ndarray | op.Tensor)
        if not (k is None or k is Ellipsis or isinstance(k, slice) or integer):
            return False
    return True


@composed(home="")
def getitem(x: Any, key: Any) -> Any:
    """x[key]: ints, slices (any step), None, ..., integer arrays or tensors, bool masks, as NumPy."""
    keys = key if isinstance(key, tuple) else (key,)
    if is_basic(keys):
        return basic(x, keys)
    numpy_keys = tuple([index_array(k) for k in keys])
    first = numpy_keys[0]
    if len(keys) == 1 and isinstance(first, np.ndarray) and first.dtype.kind in "iu" and x.ndim:
        return select_rows("index", x, 0, first)
    try:
        flat = np.arange(x.size).reshape(x.shape)[numpy_keys]
    except IndexError as problem:
        raise IndexOutOfRange(f"index: {problem}: shape {x.shape}. Use indices inside the shape.") from None
    return op.REGISTRY["rows_at"](x, positions(flat.ravel(), x), 1, flat.shape)


def index_array(key: Any) -> Any:
    if isinstance(key, op.Tensor):
        key = key.numpy()
    if isinstance(key, list | np.ndarray):
        key = np.asarray(key)
        if key.size == 0 and key.dtype.kind == "f":
            key = key.astype(np.int64)
        if key.dtype.kind not in "iub":
            raise DTypeError(f"index: not integers or bools: {key.dtype}. Cast the index to int64.")
    return key


def basic(x: Any, keys: tuple) -> Any:
    """Ints, slices, None and ... as one strided read and a reshape."""
    used = len([k for k in keys if k is not None and k is not Ellipsis])
    if used > x.ndim or len([k for k in keys if k is Ellipsis]) > 1:
        raise IndexOutOfRange(f"index: too many indices: {used} for shape {x.shape}. Use one index an axis and one '...'.")
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
            start, stop, step = k.indices(x.shape[len(walk)])
            size = len(range(start, stop, step))
            walk.append((start if size else 0, step, size))
            shape.append(size)
        else:
            walk.append((in_axis(operator.index(k), len(walk), x.shape), 1, 1))
    starts, steps, sizes = zip(*walk, strict=True) if walk else ((), (), ())
    if sizes != x.shape or any([step < 0 for step in steps]):
        x = op.REGISTRY["sliced"](x, starts, steps, sizes)
    elif tuple(shape) == x.shape:
        return op.REGISTRY["view"](x, x.shape)
    return ops.reshape(x, tuple(shape))


def in_axis(i: int, axis: int, shape: tuple[int, ...]) -> int:
    """An index of an axis counted from its start. Raises IndexOutOfRange."""
    n = shape[axis]
    if not -n <= i < n:
        raise IndexOutOfRange(f"index: out of range: {i} for axis {axis} of {n} elements, shape {shape}. Use {-n} to {n - 1}.")
    return i % n


def checked_index(name: str, index: Any, n: int) -> np.ndarray:
    """An integer index array, negatives counted from the end. Raises DTypeError or IndexOutOfRange with the position."""
    array = index.numpy() if isinstance(index, op.Tensor) else np.asarray(index)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{name}: the index is not integer: {array.dtype}. Cast it to int64.")
    if array.size and (array.min() < -n or array.max() >= n):
        bad = np.argwhere((array < -n) | (array >= n))[0]
        at = tuple(bad.tolist())
        raise IndexOutOfRange(f"{name}: index out of range: {array[at]} at position {at}, axis has {n}. Use 0 to {n - 1}.")
    return np.where(array < 0, array + n, array).astype(np.int64)


def select_rows(name: str, x: Any, axis: int, index: np.ndarray) -> Any:
    """x with one axis replaced by the axes of `index`."""
    index = checked_index(name, index, x.shape[axis])
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    outer = np.arange(size_of(before))[:, None] * x.shape[axis]
    flat = (outer + index.ravel()).ravel()
    return op.REGISTRY["rows_at"](x, positions(flat, x), size_of(after), (*before, *index.shape, *after))


@composed
def index_select(x: Any, axis: int, index: Any) -> Any:
    """The slices of x along `axis` at the integers in the 1-D `index`."""
    x = op.Tensor.of("index_select", x)
    index = index.numpy() if isinstance(index, op.Tensor) else np.asarray(index)
    if index.ndim > 1:
        raise ShapeError(f"index_select: index has {index.ndim} axes: {index.shape}. Pass a 1-D index.")
    if not x.ndim:
        return ops.reshape(select_rows("index_select", ops.reshape(x, (1,)), 0, index.reshape(-1)), ())
    return select_rows("index_select", x, one_axis("index_select", axis, x.ndim), index.reshape(-1))


@composed
def gather(x: Any, axis: int, index: Any) -> Any:
    """y[i, j] = x[index[i, j], j] for axis 0, and so on; index has x's number of axes and sizes at most x's elsewhere."""
    x = op.Tensor.of("gather", x)
    array = index.numpy() if isinstance(index, op.Tensor) else np.asarray(index)
    a = one_axis("gather", axis, x.ndim)
    if array.ndim != x.ndim or any([d != a and m > n for d, (m, n) in enumerate(zip(array.shape, x.shape, strict=True))]):
        raise ShapeError(f"gather: index {array.shape} does not fit x {x.shape}, axis {axis}. Use the same axes, sizes at most x's.")
    if not x.ndim:
        checked_index("gather", array, 1)
        return ops.reshape(x, ())
    array = checked_index("gather", array, x.shape[a])
    flat = array * contiguous_strides(x.shape)[a]
    for d, (m, step) in enumerate(zip(array.shape, contiguous_strides(x.shape), strict=True)):
        if d != a:
            flat = flat + (np.arange(m) * step).reshape((m,) + (1,) * (x.ndim - d - 1))
    return op.REGISTRY["rows_at"](x, positions(flat.ravel(), x), 1, array.shape)


# ---- joining and splitting --------------------------------------------------------------------------------------------------------
@custom(kind="any", home="")
def joined(*xs, axis=0):
    """xs one after the other along `axis`."""
    shape = tuple([sum([x.shape[d] for x in xs]) if d == axis else n for d, n in enumerate(xs[0].shape)])
    y = like(xs[0], shape)
    strides, at = contiguous_strides(shape), 0
    for x in xs:
        write_strided(y, x, strides, at * strides[axis])
        at += x.shape[axis]
    return y


@joined.backward
def joined_dx(g, shapes, wanted, axis):
    found, at = [], 0
    for shape, want in zip(shapes, wanted, strict=True):
        found.append(ops.narrow(g, axis, at, shape[axis]) if want else None)
        at += shape[axis]
    return tuple(found)


joined.differentiable()


@composed
def cat(tensors: Any, axis: int = 0) -> Any:
    """The tensors one after the other along `axis`; all other sizes must be equal."""
    xs = [op.Tensor.of("cat", t) for t in tensors]
    if not xs:
        raise ShapeError("cat: nothing to join: no tensors. Pass at least one.")
    a = one_axis("cat", axis, xs[0].ndim)
    shapes = [x.shape for x in xs]
    if not xs[0].ndim or any([len(s) != len(shapes[0]) or s[:a] + s[a + 1 :] != shapes[0][:a] + shapes[0][a + 1 :] for s in shapes]):
        raise ShapeError(f"cat: shapes differ outside axis {axis}: {shapes}. Make all other sizes equal; use stack() for scalars.")
    return op.REGISTRY["joined"](*xs, axis=a)


@composed
def stack(tensors: Any, axis: int = 0) -> Any:
    """The tensors along a new axis; all shapes must be equal."""
    xs = [op.Tensor.of("stack", t) for t in tensors]
    if not xs or any([x.shape != xs[0].shape for x in xs]):
        raise ShapeError(f"stack: shapes differ or nothing to stack: {[x.shape for x in xs]}. Pass tensors of one shape.")
    return cat([ops.unsqueeze(x, axis) for x in xs], one_axis("stack", axis, xs[0].ndim + 1))


@composed
def split(x: Any, sizes: Any, axis: int = 0) -> list[Any]:
    """Pieces of `sizes` (an int: equal pieces, the last may be smaller; a list: these sizes) along `axis`."""
    x = op.Tensor.of("split", x)
    a = one_axis("split", axis, x.ndim)
    n = x.shape[a] if x.ndim else 0
    if hasattr(sizes, "__index__"):
        if int(sizes) <= 0:
            raise ShapeError(f"split: piece size must be positive: {sizes}. Use an int >= 1.")
        sizes = [min(int(sizes), n - i) for i in range(0, n, int(sizes))] or [0]
    if sum(sizes) != n or min(sizes, default=0) < 0:
        raise ShapeError(f"split: sizes {list(sizes)} do not add up to {n}. Make them sum to the axis.")
    starts = np.cumsum([0, *sizes]).tolist()
    return [narrowed(x, a, s, m) for s, m in zip(starts, sizes, strict=False)]


def narrowed(x: Any, axis: int, start: int, size: int) -> Any:
    return ops.reshape(x, x.shape) if size == x.shape[axis] else ops.narrow(x, axis, start, size)


@composed
def chunk(x: Any, pieces: int, axis: int = 0) -> list[Any]:
    """`pieces` pieces of equal size along `axis` (the last may be smaller, and there may be fewer)."""
    x = op.Tensor.of("chunk", x)
    if pieces < 1:
        raise ShapeError(f"chunk: needs at least one piece: {pieces}. Use an int >= 1.")
    n = x.shape[one_axis("chunk", axis, x.ndim)] if x.ndim else 0
    return split(x, max(1, -(-n // pieces)), axis)


# ---- embedding ----------------------------------------------------------------------------------------------------------------------
@composed(home="functional")
def embedding(ids: Any, weight: Any) -> Any:
    """Rows of weight (n, width) at the integer ids: shape (*ids.shape, width). Its gradient adds up over repeated ids."""
    weight = op.Tensor.of("embedding", weight)
    ids = op.Tensor.of("embedding", ids)
    if ids.dtype not in INTEGERS:
        raise DTypeError(f"embedding: ids are not integer: {ids.dtype}. Cast them to int64.")
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight is not a matrix: {weight.shape}. Pass (n, width).")
    array = ids.numpy()
    rows = weight.shape[0]
    if array.size and (array.min() < 0 or array.max() >= rows):
        at = tuple(np.argwhere((array < 0) | (array >= rows))[0].tolist())
        raise IndexOutOfRange(f"embedding: id out of range: {array[at]} at position {at}, the table has {rows} rows. Use 0 to {rows - 1}.")
    index = ids if ids.dtype == int64 else ops.cast(ids, int64)
    return op.REGISTRY["rows_at"](weight, index, weight.shape[1], (*ids.shape, weight.shape[1]))
