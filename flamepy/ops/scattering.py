"""Numbers put where indices say: scatter, index_add and their like. Each gives a new tensor.

Sums are those of the gradient of an embedding: in a fixed order. Where the last one wins, a kernel finds which that is, and everything
else is picked, so that gradients reach x where it stays and of what is put that which won.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.op import SCALARS, launch, like
from ..core.ops.axes import composed, one_axis
from ..core.ops.copy import cast, filled
from ..core.ops.indexing import placed_ids
from ..core.ops.pointwise import add, div, eq, ge, maximum_op, mul, where
from ..core.ops.shape import broadcast_to, contiguous_strides, reshape
from ..core.tensor import Tensor
from ..core.words import maximum, minimum
from ..dtypes import FLOATS, INTEGERS, bool_, checked_int, checked_number, float32, int64
from .picking import added_along, added_slices, along_added, along_at, counted, getitem, index_added, integers, refuse, slices_at
from .shape_more import shaped
from .widening import narrowed, widened


def latest(a, b):
    return b


def larger(a, b):
    return maximum(a, b)


def smaller(a, b):
    return minimum(a, b)


@custom(inputs=3, kind="as is", title="scatter", internal=True)
def put_along(x, src, ids, n=0, m=0, inner=1, name=""):
    """x with y[o, ids[o, j, i], i] = src[o, j, i], as along_at() reads it; of several the last one counts. ids may be m alone."""
    refuse(name, ids, n)
    y = like(x)
    if y.size:
        launch("put_along", latest, (y,), (x, src, ids), (n, m, inner, 0))
    return y


@put_along.differentiable
def put_along_dx(g, shapes, ids, n, m, inner):
    """g where nothing was put, and for what was put g at its place, if it came last there."""
    if not g.size:
        return g, reshape(g, shapes[1]), None
    outer, each = (1, 1) if ids.size == m else (math.prod(shapes[0]) // (n * inner), inner)  # numbers that have ids of their own
    whole = [(math.prod(shapes[0]) // (n * inner), k, inner) for k in (n, m)]
    free, none = [filled((outer, k, each), flag, float32, g.device) for k, flag in ((n, 1), (m, 0))]
    last, free = recurred_along(free, none, None, ids, n, m, each, "", True)  # from the last one on: who finds its place free
    there = slices_at(g, ids, n, whole[1][0], inner, whole[1], "") if each < inner else along_at(g, ids, n, m, inner, whole[1], "")
    dx = where(eq(free, 0), 0.0, reshape(g, whole[0]))
    return reshape(dx, shapes[0]), reshape(where(eq(last, 0), 0.0, there), shapes[1]), None


def fitting(name: str, x: Any, src: Any) -> Any:
    """What is put into x as a Tensor of its type: a Tensor has to have it. Raises DTypeError."""
    if not isinstance(src, Tensor):
        src = Tensor.of(name, np.asarray(src), x.device)
        return src if src.dtype == x.dtype else cast(src, x.dtype)
    if src.dtype != x.dtype:
        raise DTypeError(f"{name}: x and src are of two types: {x.dtype} and {src.dtype}. Cast one, e.g. src.to(x.dtype).")
    return src


class Spots:
    """Where the integers of an index, as scatter() takes it, lie along an axis of x. shape: that of the index, with an axis.
    `place`: ids, n, m, inner and name, as put_along() takes them. If the index reaches only a part of x they are places in x flattened."""

    def __init__(self, name: str, x: Any, axis: int, ids: Any, shape: tuple[int, ...]):
        self.name, self.x, self.axis, self.given, self.shape, self.size = name, x, axis, ids, shape, ids.size
        self.place: tuple[Any, ...] = (ids, x.shape[axis], shape[axis], math.prod(shape[axis + 1 :]), name)
        if self.size and (shape[:axis], shape[axis + 1 :]) != (x.shape[:axis], x.shape[axis + 1 :]):
            self.place = (self.flat, x.size, self.size, 1, "")

    @cached_property
    def flat(self) -> Any:
        """Positions in x flattened, as int64."""
        a, strides = self.axis, contiguous_strides(self.x.shape)
        refuse(self.name, self.given, self.x.shape[a])
        return placed_ids(self.given, self.x.shape[a], self.shape, (*strides[:a], 0, *strides[a + 1 :]), strides[a])

    def put(self, src: Any) -> Any:
        """x with src, as many numbers as the index has or one number, put there."""
        if not self.size or isinstance(src, Tensor):
            return put_along(self.x, src, *self.place) if self.size else self.x
        return where(ge(self.many(float32), 1), src, self.x)

    def many(self, dtype: Any = int64) -> Any:
        """How many come to each place of x."""
        *place, name = self.place
        refuse(name, self.given, self.x.shape[self.axis])
        return along_added(filled((self.size,), 1, dtype, self.x.device), *place, self.x.shape)


def spots_of(name: str, x: Any, axis: int, index: Any, src: Any = None) -> tuple[Any, Spots, Any]:
    """(x with an axis; where an index as scatter() takes it lies in it; the part of src, a Tensor, that goes there)."""
    x = Tensor.of(name, x, getattr(index, "device", None))
    a = one_axis(name, axis, x.ndim)
    index = index if isinstance(index, Tensor) else np.asarray(index)
    line, shape = (x if x.ndim else reshape(x, (1,))), (index.shape if index.ndim else (1,))
    from_src = None if src is None else src.shape or (1,)
    fits = len(shape) == line.ndim and all([d == a or m <= n for d, (m, n) in enumerate(zip(shape, line.shape, strict=True))])
    if not fits or (from_src is not None and (len(from_src) != len(shape) or any([m > n for m, n in zip(shape, from_src, strict=True)]))):
        given = f"index {index.shape}" + ("" if src is None else f", src {src.shape}")
        raise ShapeError(f"{name}: {given} do not fit x {x.shape}, axis {axis}. Use the same axes; the index's sizes at most theirs.")
    if src is not None and shape != from_src:
        src = reshape(src, from_src)[tuple([slice(0, n) for n in shape])]
    return line, Spots(name, line, a, integers(name, index, x.device), shape), src


# ---- scatter -------------------------------------------------------------------------------------------------------------------------
@composed
def scatter(x: Any, axis: int, index: Any, src: Any = None, reduce: str | None = None, value: float | None = None) -> Any:
    """x with y[index[i, j], j] = src[i, j] for axis 0, and so on; src (or value) may be a number. Of several the last one counts.
    reduce: "add" or "multiply", with what is there, as scatter_reduce() does.
    Shapes: x's; index has as many axes, sizes at most src's, and x's but at the axis. Raises ShapeError, DTypeError, IndexOutOfRange.
    >>> fp.scatter(fp.zeros(3), 0, [2, 0], fp.tensor([5.0, 6.0])).tolist()
    [6.0, 0.0, 5.0]"""
    src = value if src is None else src
    if reduce is not None:
        kinds = {"add": "sum", "multiply": "prod"}
        if reduce not in kinds:
            raise ValueError(f"scatter: unknown reduce: {reduce!r}. Use 'add' or 'multiply'.")
        if isinstance(src, SCALARS):
            x = Tensor.of("scatter", x)
            src = filled(index.shape if isinstance(index, Tensor) else np.shape(index), src, x.dtype, x.device)
        return scattered("scatter", x, axis, index, src, kinds[reduce], True)
    if isinstance(src, SCALARS):
        _, spots, _ = spots_of("scatter", x, axis, index)
        return shaped(spots.put(src), np.shape(x) if not isinstance(x, Tensor) else x.shape)
    x = Tensor.of("scatter", x, getattr(src, "device", None))
    _, spots, part = spots_of("scatter", x, axis, index, fitting("scatter", x, src))
    return shaped(spots.put(part), x.shape)


@composed
def scatter_add(x: Any, axis: int, index: Any, src: Any) -> Any:
    """x with src[i, j] added to y[index[i, j], j] for axis 0, and so on; what comes to one place is added up in order.
    Shapes and errors: as scatter.
    >>> fp.scatter_add(fp.zeros(3), 0, [2, 2], fp.tensor([5.0, 6.0])).tolist()
    [0.0, 0.0, 11.0]"""
    return scattered("scatter_add", x, axis, index, src, "sum", True)


@composed
def scatter_reduce(x: Any, axis: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    """x with y[index[i, j], j] the "sum", "prod", "mean", "amax" or "amin" of all src[i, j] that come there, and unless include_self is
    False of what x has there. Of equal extremes each has an equal part of the gradient.
    Shapes and errors: as scatter; ValueError for another reduce.
    >>> fp.scatter_reduce(fp.ones(3), 0, [2, 2], fp.tensor([5.0, 6.0]), "amax").tolist()
    [1.0, 1.0, 6.0]"""
    if reduce not in REDUCES:
        raise ShapeError(f"scatter_reduce: unknown reduce: {reduce!r}. Use one of {', '.join(REDUCES)}.")
    return scattered("scatter_reduce", x, axis, index, src, reduce, include_self)


def scattered(name: str, x: Any, axis: int, index: Any, src: Any, reduce: str, include_self: bool) -> Any:
    x = Tensor.of(name, x, getattr(src, "device", None))
    line, spots, src = spots_of(name, x, axis, index, fitting(name, x, src))
    if not spots.size:
        return x
    return narrowed(shaped(REDUCES[reduce](widened(line), spots, widened(src), bool(include_self)), x.shape), x.dtype)


def summed(x: Any, spots: Spots, src: Any, include_self: bool) -> Any:
    return added_along(x if include_self else where(ge(spots.many(), 1), False, x), src, *spots.place)


def averaged(x: Any, spots: Spots, src: Any, include_self: bool) -> Any:
    total, many = summed(x, spots, src, include_self), spots.many(x.dtype if x.dtype in FLOATS else int64)
    count = add(many, 1) if include_self else maximum_op(many, 1)
    return div(total, count) if x.dtype in FLOATS else cast(total // count, x.dtype)


@custom(inputs=4, kind="as is", title="scatter_reduce", internal=True)
def recurred_along(x, a, b, ids, n=0, m=0, inner=1, name="", reverse=False):
    """(what is at the place of each number when its turn comes, what is there in the end), places as along_at() reads them: from x on, each
    in turn, the last one first if `reverse`, makes s * a + b of what is there. Without b nothing is added."""
    refuse(name, ids, n)
    y, z = like(a), like(x)
    launch("recur_along", None, (z, y), (x, a, x.spec.computed.type(-0.0) if b is None else b, ids), (n, m, inner, reverse))
    return y, z


@recurred_along.differentiable
def recurred_along_dx(gs, shapes, a, ids, y, n, m, inner, reverse):
    """The same the other way round; nothing is divided, so products with zeros are right."""
    g = filled(shapes[0], 0, y.dtype, y.device) if gs[1] is None else gs[1]
    db, dx = recurred_along(g, a, gs[0], ids, n, m, inner, "", not reverse)
    return dx, mul(db, y), db, None


def multiplied(x: Any, spots: Spots, src: Any, include_self: bool) -> Any:
    x = x if include_self else where(ge(spots.many(), 1), True, x)
    return recurred_along(x, src, None, *spots.place)[1]


@custom(inputs=3, kind="as is", title="scatter_reduce", internal=True)
def extreme_along(x, src, ids, n=0, m=0, inner=1, name="", sign=1, include_self=True):
    """x with the largest (sign -1: smallest) of what comes to each place as put_along() puts it, and of what is there if `include_self`."""
    refuse(name, ids, n)
    y = like(x)
    x = x if include_self else put_along(x, src, ids, n, m, inner, "")
    launch("put_along", larger if sign > 0 else smaller, (y,), (x, src, ids), (n, m, inner, sign))
    return y


@extreme_along.differentiable
def extreme_along_dx(g, x, src, ids, y, n, m, inner, include_self):
    """Shared equally by all that reach the extreme."""
    x, src, y, place = x.detach(), src.detach(), y.detach(), (ids, n, m, inner)
    hit, own = cast(eq(src, along_at(y, *place, src.shape, "")), g.dtype), cast(eq(x, y), g.dtype)
    if not include_self:
        own = where(ge(along_added(filled(src.shape, 1, int64, x.device), *place, x.shape), 1), 0.0, own)
    share = div(g, add(along_added(hit, *place, x.shape), own))
    return mul(own, share), mul(hit, along_at(share, *place, src.shape, "")), None


REDUCES = {
    "sum": summed, "prod": multiplied, "mean": averaged,
    "amax": lambda x, spots, src, include_self: extreme_along(x, src, *spots.place, 1, include_self),
    "amin": lambda x, spots, src, include_self: extreme_along(x, src, *spots.place, -1, include_self),
}  # fmt: skip


# ---- slices along an axis --------------------------------------------------------------------------------------------------------------
def slices(name: str, x: Any, axis: int, index: Any, source: Any = None) -> tuple[Any, int, Any, Any]:
    """(x with an axis, that axis, a 1-D index of its slices as int64, what goes there)."""
    x = Tensor.of(name, x, getattr(index, "device", None))
    a, line = one_axis(name, axis, x.ndim), (x if x.ndim else reshape(x, (1,)))
    index = index if isinstance(index, Tensor) else np.asarray(index)
    many = index.size
    wanted = (*line.shape[:a], int(many), *line.shape[a + 1 :])
    if source is not None:
        source = fitting(name, x, source)
        source = source if source.ndim else reshape(source, (1,))
    if index.ndim > 1 or (source is not None and source.shape != wanted):
        given = f"index {index.shape}" + ("" if source is None else f", source {source.shape}")
        raise ShapeError(f"{name}: {given} do not fit x {x.shape}, axis {axis}. Use a 1-D index and a slice for each, {wanted}.")
    return line, a, integers(name, index, x.device), source


def walk(x: Any, a: int) -> tuple[int, int, int]:
    """(how many slices axis a of x has, how often, how many numbers of each lie together)."""
    return x.shape[a], math.prod(x.shape[:a]), math.prod(x.shape[a + 1 :])


def slices_added(name: str, x: Any, a: int, ids: Any, source: Any) -> Any:
    """x with the slices of source added to those of axis a that ids name; 16-bit results are rounded once."""
    (n, before, inner), wide = walk(x, a), (widened(x), widened(source), ids)
    total = index_added(*wide, n, ids.size, 1, name) if inner == 1 else added_slices(*wide, n, before, inner, name)
    return narrowed(total, x.dtype)


@composed
def index_add(x: Any, axis: int, index: Any, source: Any, alpha: float = 1) -> Any:
    """x with alpha times the slices of source added to its own along `axis` at the integers in the 1-D index, in order.
    Shapes: x's; source has index's size at the axis. Raises ShapeError, DTypeError, IndexOutOfRange.
    >>> fp.index_add(fp.zeros(3), 0, [2, 2], fp.tensor([5.0, 6.0])).tolist()
    [0.0, 0.0, 11.0]"""
    line, a, ids, source = slices("index_add", x, axis, index, source)
    if not source.size:
        refuse("index_add", ids, line.shape[a])
        return Tensor.of("index_add", x)
    times = (checked_number if source.dtype in FLOATS else checked_int)("index_add", "alpha", alpha)
    source = source if times == 1 else mul(widened(source), times)
    return shaped(slices_added("index_add", line, a, ids, source), x.shape)


@composed
def index_copy(x: Any, axis: int, index: Any, source: Any) -> Any:
    """x with its slices along `axis` at the integers in the 1-D index replaced by those of source; of several the last one counts.
    Shapes and errors: as index_add.
    >>> fp.index_copy(fp.zeros(3), 0, [2, 0], fp.tensor([5.0, 6.0])).tolist()
    [6.0, 0.0, 5.0]"""
    line, a, ids, source = slices("index_copy", x, axis, index, source)
    n, _, inner = walk(line, a)
    return shaped(put_along(line, source, ids, n, ids.size, inner, "index_copy"), np.shape(x))


@composed
def index_fill(x: Any, axis: int, index: Any, value: float) -> Any:
    """x with a number in its slices along `axis` at the integers in the 1-D index.
    Shapes: x's. Raises ShapeError, IndexOutOfRange, DTypeError for what is no number.
    >>> fp.index_fill(fp.zeros(3), 0, [2, 0], 7.0).tolist()
    [7.0, 0.0, 7.0]"""
    line, a, ids, _ = slices("index_fill", x, axis, index)
    if isinstance(value, Tensor):
        refuse("index_fill", ids, line.shape[a])
        return shaped(where(ids_present(ids, line, a), reshape(fitting("index_fill", line, value), ()), line), np.shape(x))
    value = value if isinstance(value, SCALARS) else checked_number("index_fill", "value", value)  # what is a number otherwise
    return shaped(slices_filled(line, ids, value, a, "index_fill"), np.shape(x))


def ids_present(ids: Any, x: Any, a: int) -> Any:
    """Whether ids name each of x's slices along axis a, with the axes behind it."""
    n = x.shape[a]
    no, yes = [filled((count,), flag, bool_, ids.device) for count, flag in ((n, False), (ids.size, True))]
    return reshape(put_along(no, yes, ids, n, ids.size, 1, ""), (n, *(1,) * (x.ndim - a - 1)))


@custom(inputs=2, kind="as is", title="index_fill")
def slices_filled(x, ids, value=0.0, a=0, name=""):
    """x with a number in the slices of axis a that ids name."""
    refuse(name, ids, x.shape[a])
    return where(ids_present(ids, x, a), value, x)


slices_filled.differentiable(lambda g, ids, a: (slices_filled(g, ids, 0, a, ""), None))


@composed
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """x with values at x[indices], which is a tuple of what may stand in x[...]; accumulate: added there, in order.
    Shapes: x's; values broadcast to the shape of x[indices]. Raises ShapeError, DTypeError, IndexOutOfRange.
    >>> fp.index_put(fp.zeros(3), ([2, 2],), fp.tensor([5.0, 6.0]), accumulate=True).tolist()
    [0.0, 0.0, 11.0]"""
    x = Tensor.of("index_put", x)
    keys = tuple(indices) if isinstance(indices, list | tuple) else (indices,)
    if len(keys) == 1 and isinstance(keys[0], Tensor) and keys[0].dtype in INTEGERS and x.ndim:
        places, shape, line = integers("index_put", keys[0], x.device), (*keys[0].shape, *x.shape[1:]), x
    else:
        places = getitem(reshape(counted(x.size, int64, x.device), x.shape), keys)
        shape, line = places.shape, reshape(x, (x.size,))
    values, (n, _, inner) = broadcast_to(fitting("index_put", x, values), shape), walk(line, 0)
    if not values.size:
        refuse("index_put", places, n)
        return x
    if accumulate:
        return shaped(slices_added("index_put", line, 0, places, values), x.shape)
    return shaped(put_along(line, values, places, n, places.size, inner, "index_put"), x.shape)
