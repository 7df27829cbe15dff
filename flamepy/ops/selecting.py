"""Numbers taken where masks or indices say: take, take_along_axis, masked_select, nonzero, where with one argument.

How many a mask takes is found out on the host, so no captured step may ask; masked_scatter knows its size.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.methods import uploaded
from ..core.op import like, publish
from ..core.ops.axes import composed, one_axis
from ..core.ops.copy import cast
from ..core.ops.indexing import check_ids
from ..core.ops.pointwise import maximum_op, minimum_op
from ..core.ops.pointwise import where as where_op
from ..core.ops.shape import broadcast_to, reshape
from ..core.pointwise import as_mask
from ..core.tensor import Tensor
from ..dtypes import checked_int, int64
from .picking import along_added, along_at, integers, picked_along, select_rows
from .scans import recur
from .scattering import fitting, spots_of

MODES = ("raise", "wrap", "clip")


@composed
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    """Elements of the flattened x at integer indices, or slices of it along an axis. Negative ones count from the end.
    mode: what is done with an index out of range: "raise", "wrap" or "clip" (then negative ones become 0), as NumPy's.
    Shapes: that of indices, in the place of the axis. Raises IndexOutOfRange, DTypeError, ValueError for another mode.
    >>> fp.take(fp.tensor([[1, 2], [3, 4]]), [3, 0]).tolist()
    [4, 1]"""
    if mode not in MODES:
        raise ValueError(f"take: unknown mode: {mode!r}. Use one of {', '.join(MODES)}.")
    x = Tensor.of("take", x, getattr(indices, "device", None))
    a = 0 if axis is None else one_axis("take", axis, x.ndim)
    whole = axis is None or not x.ndim
    ids, n = integers("take", indices, x.device), x.size if whole else x.shape[a]
    if mode == "wrap" and n:
        ids = ids % n
    if mode == "clip" and n:
        ids = minimum_op(maximum_op(ids, 0), n - 1)
    return along_at(x, ids, n, ids.size, 1, ids.shape, "take") if whole else select_rows("take", x, a, ids)


def along(name: str, x: Any, indices: Any, axis: int | None, values: Any = None) -> tuple[Any, Any, int, Any]:
    """(x, indices and values, which broadcast against each other but at the axis; the axis)."""
    x = Tensor.of(name, x, getattr(indices, "device", None))
    x = reshape(x, (x.size,)) if axis is None else x
    a, ids = one_axis(name, axis or 0, x.ndim), integers(name, indices, x.device)
    if ids.ndim != x.ndim or not x.ndim:
        raise ShapeError(f"{name}: indices {ids.shape} have other axes than x {x.shape}. Use as many, at least one.")
    try:
        beside = (*x.shape[:a], 1, *x.shape[a + 1 :]), () if values is None else np.shape(values)[-x.ndim :]
        shape = np.broadcast_shapes(ids.shape, *beside)
    except ValueError:
        raise ShapeError(f"{name}: indices {ids.shape} do not broadcast to x {x.shape}, axis {axis}. Make the sizes equal or 1.") from None
    whole = (*shape[:a], x.shape[a], *shape[a + 1 :])
    return broadcast_to(x, whole), broadcast_to(ids, shape), a, None if values is None else broadcast_to(fitting(name, x, values), shape)


@composed
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    """y[i, j] = x[indices[i, j], j] for axis 0, and so on: gather(), where x and indices broadcast at the other axes. None: x flattened.
    Shapes: as many axes as x. Raises ShapeError, IndexOutOfRange, DTypeError.
    >>> fp.take_along_axis(fp.tensor([[1, 2], [3, 4]]), [[1], [0]], axis=1).tolist()
    [[2], [3]]"""
    x, ids, a, _ = along("take_along_axis", x, indices, axis)
    return picked_along(x, a, ids, "take_along_axis")


@composed
def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> Any:
    """x with y[indices[i, j], j] = values[i, j] for axis 0, and so on, as a new tensor: scatter(), where all broadcast.
    Shapes: x's. Of several values the last one counts. Raises ShapeError, IndexOutOfRange, DTypeError.
    >>> fp.put_along_axis(fp.zeros(2, 2), [[1], [0]], 5.0, 1).tolist()
    [[0.0, 5.0], [5.0, 0.0]]"""
    shape = np.shape(x)
    x, ids, a, values = along("put_along_axis", x, indices, axis, values)
    _, spots, part = spots_of("put_along_axis", x, a, ids, values)
    return reshape(spots.put(part), shape)


# ---- masks ---------------------------------------------------------------------------------------------------------------------------
def of_size(name: str, rows: np.ndarray, size: int | None, fill: Any) -> np.ndarray:
    """So many rows: more are left out, for those that are missing stands `fill`."""
    if size is None:
        return rows
    if checked_int(name, "size", size) < 0:
        raise ValueError(f"{name}: size is below 0: {size}. Use 0 or more.")
    more = max(0, size - len(rows))
    return np.concatenate([rows[:size], np.full((more, *rows.shape[1:]), fill, rows.dtype)])


@composed
def masked_select(x: Any, mask: Any, *, size: int | None = None, fill_value: float = 0) -> Any:
    """The elements of x where the mask holds, one after the other; x and mask broadcast. size: how many, `fill_value` where there are
    fewer. Reads the mask on the host, so no captured step may call it.
    Shapes: (n,), or (size,). Raises DTypeError for a mask that is not bool, ShapeError.
    >>> fp.masked_select(fp.tensor([1.0, 2.0, 3.0]), [True, False, True]).tolist()
    [1.0, 3.0]"""
    x = Tensor.of("masked_select", x, getattr(mask, "device", None))
    x, mask = together("masked_select", x, as_mask("masked_select", mask, x.device))
    places = of_size("masked_select", mask.numpy().ravel().nonzero()[0], size, -1)
    if not x.size and len(places):
        return Tensor.of("masked_select", np.full(len(places), fill_value), x.device).to(x.dtype)
    y = along_at(x, uploaded(places, x.device), x.spec.size, len(places), 1, (len(places),), "")
    if size is None:
        return y
    return where_op(uploaded(places < 0, x.device), cast(Tensor.of("masked_select", fill_value, x.device), x.dtype), y)


def together(name: str, x: Any, mask: Any) -> tuple[Any, Any]:
    """Both in the shape they broadcast to."""
    if x.shape == mask.shape:
        return x, mask
    try:
        shape = np.broadcast_shapes(x.shape, mask.shape)
    except ValueError:
        raise ShapeError(f"{name}: x {x.shape} and mask {mask.shape} do not broadcast. Make the sizes equal or 1.") from None
    return broadcast_to(x, shape), broadcast_to(mask, shape)


@composed
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """x with its elements where the mask holds replaced by those of source, one after the other.
    Shapes: that x and mask broadcast to; source needs as many elements as the mask holds, else IndexOutOfRange.
    >>> fp.masked_scatter(fp.zeros(3), [True, False, True], fp.tensor([5.0, 6.0])).tolist()
    [5.0, 0.0, 6.0]"""
    x = Tensor.of("masked_scatter", x, getattr(source, "device", None))
    x, mask = together("masked_scatter", x, as_mask("masked_scatter", mask, x.device))
    source = fitting("masked_scatter", x, source)
    return scattered(x, mask, source) if x.size else x


@custom(inputs=3, kind="as is", title="masked_scatter", internal=True)
def scattered(x, mask, source):
    many, n = x.spec.size, source.spec.size
    places = recur(like(mask, (many,), int64), None, mask, 0, False, -1)  # which element each one is that the mask takes
    text = f"masked_scatter: source has {n} elements, the mask takes more: element {{}} at position {{}}. Give more."
    check_ids(places, -1, n, text)
    taken = along_at(source, places, n, many, 1, x.shape) if n else x
    return where_op(mask, taken, x), {"places": places}


@scattered.differentiable
def scattered_dx(g, shapes, mask, places):
    taken = where_op(mask, g, 0.0)
    return where_op(mask, 0.0, g), None, along_added(taken, places, math.prod(shapes[2]), math.prod(shapes[0]), 1, shapes[2])


@composed
def nonzero(x: Any, as_tuple: bool = False, *, size: int | None = None, fill_value: int = 0) -> Any:
    """The indices of the elements that are not zero, a row for each (int64). Also called argwhere. as_tuple: as NumPy's nonzero, a 1-D
    tensor for each axis, which may stand in x[...]. size: how many rows, `fill_value` where there are fewer. Reads x on the host, so no
    captured step may call it. Shapes: (n, x.ndim), or (n,) for each axis.
    >>> [t.tolist() for t in fp.nonzero(fp.tensor([[0, 1], [2, 0]]), as_tuple=True)]
    [[0, 1], [1, 0]]"""
    x = Tensor.of("nonzero", x)
    numbers, axes = x.numpy(), x.ndim
    columns = numbers.nonzero() if axes else numbers.reshape(1).nonzero()
    if size is not None:
        columns = tuple([of_size("nonzero", places, size, int(fill_value)) for places in columns])
    if as_tuple:
        return tuple([uploaded(column, x.device) for column in columns])
    rows = columns[0].base  # NumPy makes the columns as those of one array
    if rows is None or rows.shape != (columns[0].size, axes):
        rows = np.array(columns).T[:, :axes]
    return uploaded(rows, x.device)


@functools.wraps(where_op)
def where(condition: Any, *args: Any, **options: Any) -> Any:  # with the condition alone it is nonzero(as_tuple=True)
    return where_op(condition, *args, **options) if args or options else nonzero(condition, as_tuple=True)


publish("where", where, "flamepy")
publish("argwhere", nonzero, "flamepy")
