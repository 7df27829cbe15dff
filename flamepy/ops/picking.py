"""Elements picked by integers and masks: x[...] in general, index_select, gather; gradients of rows that were picked, written where they
belong.

An index that is not basic becomes a list of row numbers and a row copy. Integers side by side are checked and turned into row
numbers by kernels, without a look at them from the host; bool masks and what slices part are worked out by NumPy.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.door import Door
from ..core.errors import DeviceError, DTypeError, IndexOutOfRange, ShapeError
from ..core.methods import uploaded
from ..core.op import launch, like
from ..core.ops.axes import composed, one_axis, titled
from ..core.ops.copy import cast, copy_into
from ..core.ops.indexing import add_rows, basic, check_ids, embedded, is_basic, is_integer, placed_ids, rows_added, rows_at
from ..core.ops.shape import broadcast_to, reshape, sliced
from ..core.tensor import Tensor
from ..core.words import select
from ..dtypes import int64

KEPT = 1 << 12  # numbers of a row that is made once


def rows_at_dx(g, shapes, index, inner, into):
    y, add = into[0] or (like(g, shapes[0]), False)
    add_rows(y, g, index, inner, add)
    return y, None


# What takes the name of who gave the ids refuses those that are out of range, before anything else; without one they are known to be right.
def refuse(name: str, ids: Any, n: int) -> None:
    """Raise IndexOutOfRange, with the position, unless these int64 ids are of n elements, negative ones from the end. "": not asked."""
    if name:
        check_ids(ids, -n, n, f"{name}: index out of range: {{}} at position {{}}, axis has {n}. Use 0 to {n - 1}.")


@custom(inputs=2, kind="as is", title="index", internal=True)
def slices_at(x, ids, n=0, before=1, inner=1, shape=(), name=""):
    """y[o, j] = x[o, ids[j]], as a tensor of `shape`: x is `before` times n slices of `inner` numbers."""
    refuse(name, ids, n)
    rows, y = placed_ids(ids, n, (before, ids.size), (n, 0), 1), like(x, shape)
    if y.size:
        launch("take_rows", None, (y,), (x, rows), (inner,))
    return y, {"index": rows}


slices_at.differentiable(lambda g, shapes, index, inner: (rows_added(g, index, inner, shapes[0]), None))
for _op in (rows_at, embedded.op, slices_at):
    _op.backward(rows_at_dx)


@custom(inputs=2, kind="as is", title="index", internal=True)
def along_at(x, ids, n=0, m=0, inner=1, shape=(), name=""):
    """y[o, j, i] = x[o, ids[o, j, i], i], as a tensor of `shape`: x has n and y has m rows of `inner` numbers for each o. Where inner is 1
    ids (int64, negative ones from the end) may be m alone, the same for each o."""
    refuse(name, ids, n)
    y = like(x, shape)
    if x.size and y.size:
        launch("take_along", None, (y,), (x, ids), (n, m, inner))
    return y


@custom(inputs=2, kind="as is", title="add_along", internal=True)
def along_added(x, ids, n=0, m=0, inner=1, shape=()):
    """The reverse: y[o, ids[o, j, i], i] += x[o, j, i], in the order of j, from zeros of `shape`."""
    y = like(x, shape, x.spec.computed)
    add_along(y, x, ids, n, m, inner, False)
    return y if y.dtype == x.dtype else cast(y, x.dtype)


along_at.differentiable(lambda g, shapes, ids, n, m, inner: (along_added(g, ids, n, m, inner, shapes[0]), None))
along_added.differentiable(lambda g, shapes, ids, n, m, inner: (along_at(g, ids, n, m, inner, shapes[0], ""), None))


def along_at_dx(g, shapes, ids, n, m, inner, into):
    y, add = into[0] or (like(g, shapes[0]), False)
    add_along(y, g, ids, n, m, inner, add)
    return y, None


def add_along(y: Any, x: Any, ids: Any, n: int, m: int, inner: int, add: bool) -> None:
    if y.size:
        launch("add_along", None, (y,), (x, ids), (n, m, inner, add))


along_at.backward(along_at_dx)


@custom(inputs=3, kind="as is", title="scatter_add", internal=True)
def added_along(x, src, ids, n=0, m=0, inner=1, name=""):
    """x with y[o, ids[o, j, i], i] += src[o, j, i], in the order of j, as along_at() reads it; x and src have one type."""
    refuse(name, ids, n)
    y = like(x)
    copy_into(y, x)
    add_along(y, src, ids, n, m, inner, True)
    return y


@added_along.differentiable
def added_along_dx(g, shapes, ids, n, m, inner):
    return g, along_at(g, ids, n, m, inner, shapes[1], ""), None


@custom(inputs=3, kind="as is", title="index_add", internal=True)
def added_slices(x, src, ids, n=0, before=1, inner=1, name=""):
    """x with y[o, ids[j]] += src[o, j], in the order of j, as slices_at() reads it; x and src have one type."""
    refuse(name, ids, n)
    rows, y = placed_ids(ids, n, (before, ids.size), (n, 0), 1), like(x)
    copy_into(y, x)
    add_rows(y, src, rows, inner, True)
    return y, {"index": rows}


@added_slices.differentiable
def added_slices_dx(g, shapes, index, inner):
    return g, rows_at(g, index, inner, shapes[1]), None


gathered, index_added = titled(along_at, "gather"), titled(added_along, "index_add")
selected = titled(slices_at, "index_select"), titled(along_at, "index_select")


@composed(home="")
def getitem(x: Any, key: Any) -> Any:
    """x[key]: ints, slices (any step), None, ..., integer arrays or tensors, bool masks, as NumPy."""
    keys = key if isinstance(key, tuple) else (key,)
    if keys and all([type(k) is np.ndarray and k.dtype.kind in "iu" for k in keys]):  # by the route of tensors
        return getitem(x, tuple([uploaded_ids(k, x.device) for k in keys]))
    if is_basic(keys):
        return basic(x, keys)
    for k in keys:
        if isinstance(k, Tensor) and k.device is not x.device:
            names = ", ".join(sorted([x.device.name, k.device.name]))
            raise DeviceError(f"index: operands are on two devices: {names}. Move one of them with .to(device).")
    keys = tuple([index_array(k) for k in keys])
    k = keys[0]
    if len(keys) == 1 and isinstance(k, Tensor | np.ndarray) and k.dtype.kind == "b" and k.ndim and k.shape == x.shape[: k.ndim]:
        mask, rest = k.numpy() if isinstance(k, Tensor) else k, x.shape[k.ndim :]
        held = uploaded(mask.ravel().nonzero()[0], x.device)
        return rows_at(x, held, math.prod(rest), (*held.shape, *rest))
    if (y := beside_slices(x, keys)) is not None:
        return y
    try:
        flat = np.arange(x.size).reshape(x.shape)[tuple([np.asarray(k) if isinstance(k, Tensor) else k for k in keys])]
    except IndexError as problem:
        raise IndexOutOfRange(f"index: {problem}: shape {x.shape}. Use indices inside the shape.") from None
    return rows_at(x, integers("index", flat.ravel(), x.device), 1, flat.shape)


def beside_slices(x: Any, keys: tuple) -> Any:
    """x[keys] of integer arrays side by side, with ints, among slices, None and ...: what is basic, then rows of their axes. Else None."""
    arrays = [k for k in keys if isinstance(k, Tensor | np.ndarray)]
    plain = tuple([slice(None) if isinstance(k, Tensor | np.ndarray) else k for k in keys])
    at = [i for i, k in enumerate(keys) if isinstance(k, Tensor | np.ndarray) or is_integer(k)]
    if not arrays or not is_basic(plain) or at[-1] - at[0] >= len(at) or any([k.dtype.kind == "b" for k in arrays]):
        return None
    try:
        picked = np.broadcast_shapes(*[k.shape for k in arrays])
    except ValueError:
        return None
    hidden = x.ndim - 1 - len([k for k in plain if k is not None and k is not Ellipsis])
    axis, x = at[0] + hidden * (Ellipsis in plain[: at[0]]), x if len(arrays) == len(keys) <= x.ndim else basic(x, plain)
    same = [k if k.shape == picked else broadcast_to(k, picked) for k in [integers("index", k, x.device) for k in arrays]]
    rows, n, rest = same[0], x.shape[axis], x.shape[axis + len(same) :]
    if len(same) == 1:
        return select_rows("index", x, axis, rows)
    for a, ids in enumerate(same[1:], axis + 1):
        rows, n = rows_of(rows, ids, n, x.shape[a], a, x.shape), n * x.shape[a]
    if not axis:
        return rows_at(x, rows, math.prod(rest), (*picked, *rest))
    return select_rows("", reshape(x, (*x.shape[:axis], n, *rest)), axis, reshape(rows, picked))


def row_number(i, j, n, m):
    return select(i < 0, i + n, i) * m + select(j < 0, j + m, j)


@custom(inputs=2, kind="as is", title="index", internal=True)
def rows_of(rows, ids, n=0, m=0, axis=1, shape=()):
    """Row numbers by two axes of a tensor of `shape`: `rows` of n, each of m that ids name, along this axis. Both are looked at."""
    for own, many, a in ((rows, n, axis - 1), (ids, m, axis)):
        text = f"index: index {{0}} is out of bounds for axis {a} with size {many}: shape {shape}. Use indices inside the shape."
        check_ids(own, -many, many, text)
    y = like(ids, (ids.size,))
    if y.size:
        launch("map", row_number, (y,), (rows, ids, int64.type(n), int64.type(m)))
    return y


class NoIndex(DTypeError, IndexOutOfRange):
    """A key that holds no integers: a TypeError as for other types that do not fit, and an IndexError as in NumPy."""


def index_array(key: Any) -> Any:
    if isinstance(key, list | tuple | np.ndarray):
        key = np.asarray(key)
        if key.size == 0 and key.dtype.kind == "f":
            key = key.astype(np.int64)
    if isinstance(key, Tensor | np.ndarray) and key.dtype.kind not in "iub":
        raise NoIndex(f"index: not integers or bools: {key.dtype}. Cast the index to int64.")
    return key


# ---- integers along one axis ----------------------------------------------------------------------------------------------------
def integers(name: str, index: Any, device: Any) -> Any:
    """An integer index as an int64 Tensor. Raises DTypeError."""
    array = index if isinstance(index, Tensor) else np.asarray(index)
    if array.dtype.kind not in "iu":
        raise NoIndex(f"{name}: the index is not integer: {array.dtype}. Cast it to int64.")
    if isinstance(array, Tensor):
        return array if array.dtype == int64 else cast(array, int64)
    return uploaded_ids(array, device)


def uploaded_ids(array: np.ndarray, device: Any) -> Any:
    return Door.tensor(array if array.dtype is int64 else array.astype(np.int64), None, device)


def counted(n: int, dtype: np.dtype, device: Any) -> Any:
    """0, 1, 2 ... n - 1 in one row, not to be written: few are made once."""
    return (kept_count if n <= KEPT else kept_count.__wrapped__)(int(n), dtype, device)


@lru_cache(256)
def kept_count(n: int, dtype: np.dtype, device: Any) -> Any:
    return Tensor.of("arange", np.arange(n, dtype=dtype), device)


def select_rows(name: str, x: Any, axis: int, index: Any, ops: Any = (slices_at, along_at)) -> Any:
    """x with one axis replaced by the axes of `index`, by the op that takes slices, or for the last axis the one that picks along it."""
    n, before, after = x.shape[axis], x.shape[:axis], x.shape[axis + 1 :]
    ids, (take, pick) = integers(name, index, x.device), ops
    if not after:
        return pick(x, ids, n, ids.size, 1, (*before, *ids.shape), name)
    return take(x, ids, n, math.prod(before), math.prod(after), (*before, *ids.shape, *after), name)


@composed
def index_select(x: Any, axis: int, index: Any) -> Any:
    """The slices of x along `axis` at the integers in the 1-D `index`. Shapes: x's with index's size at the axis.
    >>> fp.index_select(fp.tensor([1.0, 2.0, 3.0]), 0, [2, 0]).tolist()
    [3.0, 1.0]"""
    x = Tensor.of("index_select", x, getattr(index, "device", None))
    index = index if isinstance(index, Tensor) else np.asarray(index)
    if index.ndim > 1:
        raise ShapeError(f"index_select: index has {index.ndim} axes: {index.shape}. Pass a 1-D index.")
    index = index if index.ndim else index.reshape((1,))
    if not x.ndim:
        return reshape(select_rows("index_select", reshape(x, (1,)), 0, index, selected), ())
    return select_rows("index_select", x, one_axis("index_select", axis, x.ndim), index, selected)


@composed
def gather(x: Any, axis: int, index: Any) -> Any:
    """y[i, j] = x[index[i, j], j] for axis 0, and so on. Shapes: that of index, as many axes as x, sizes at most x's elsewhere.
    >>> fp.gather(fp.tensor([[1, 2], [3, 4]]), 1, [[1], [0]]).tolist()
    [[2], [3]]"""
    x = Tensor.of("gather", x, getattr(index, "device", None))
    shape = index.shape if isinstance(index, Tensor) else np.shape(index)
    a = one_axis("gather", axis, x.ndim)
    if len(shape) != x.ndim or any([d != a and m > n for d, (m, n) in enumerate(zip(shape, x.shape, strict=True))]):
        raise ShapeError(f"gather: index {shape} does not fit x {x.shape}, axis {axis}. Use the same axes, sizes at most x's.")
    if not x.ndim:
        return select_rows("gather", reshape(x, (1,)), 0, index)
    return picked_along(x, a, integers("gather", index, x.device), "gather")


def picked_along(x: Any, a: int, ids: Any, name: str = "") -> Any:
    """The elements of x at these places along axis a, for ids (int64) with as many axes as x."""
    return gathered(within(x, a, ids.shape), ids, x.shape[a], ids.shape[a], math.prod(ids.shape[a + 1 :]), ids.shape, name)


def within(x: Any, a: int, shape: tuple[int, ...]) -> Any:
    """The part of x that an index of this shape can reach along axis a."""
    sizes = (*shape[:a], x.shape[a], *shape[a + 1 :])
    return x if sizes == x.shape else sliced(x, (0,) * x.ndim, (1,) * x.ndim, sizes, sizes)
