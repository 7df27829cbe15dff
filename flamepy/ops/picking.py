"""Elements picked by integers along one axis: index_select, gather; gradients of rows that were picked, written where they belong."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.op import like
from ..core.ops.axes import composed, one_axis, titled
from ..core.ops.indexing import add_rows, checked_index, embedded, placed_ids, rows_at, select_rows
from ..core.ops.shape import contiguous_strides, reshape
from ..core.tensor import Tensor


def rows_at_dx(g, shapes, index, inner, into):
    y, add = into[0] or (like(g, shapes[0]), False)
    add_rows(y, g, index, inner, add)
    return y, None


for _op in (rows_at, embedded.op):
    _op.backward(rows_at_dx)
gathered, selected = titled(rows_at, "gather"), titled(rows_at, "index_select")


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
    ids = checked_index("gather", index, x.shape[a] if x.ndim else 1, x.device)
    if not x.ndim:
        return reshape(x, ())
    strides = contiguous_strides(x.shape)
    flat = placed_ids(ids, x.shape[a], shape, (*strides[:a], 0, *strides[a + 1 :]), strides[a])
    return gathered(x, flat, 1, shape)
