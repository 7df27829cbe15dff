"""Numbers in order: sort, topk, medians and quantiles, the most frequent one, where numbers belong in a sorted row.

One kernel finds the order of rows, and the values are picked by it: their gradient goes back to where they came from. NaN is larger than
every number; what is equal keeps its order.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..backend.formula.row_words import lane, lanes
from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import SCALARS, launch, like
from ..core.ops.axes import Axis, axes_of, composed, one_axis, squeezed_shape, tensors_of
from ..core.ops.copy import cast, filled
from ..core.ops.pointwise import eq, maximum_op, mul, ne, sub, where
from ..core.ops.reduce import gathered, reduction, spread
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import broadcast_to, permute, reshape, transpose
from ..core.tensor import Tensor
from ..core.words import select
from ..dtypes import FLOATS, checked_int, float32, float64, int32, int64
from .picking import integers, picked_along
from .reduce_more import no_pair
from .rows import over_rows
from .scans import Found
from .shape_more import narrow, shaped
from .spellings import lerp
from .variance import from_rows, in_rows
from .widening import narrowed


@custom(inputs=1, kind="as is", title="argsort", internal=True)
def row_order(x, descending=False, first=-1, axis=-1):
    """The places of the numbers of each row along an axis, in order; of the `first` ones alone, unless that is -1."""
    if axis not in (-1, x.ndim - 1):
        return transpose(row_order(transpose(x, axis, -1), descending, first, -1), axis, -1)
    k = x.shape[-1] if first < 0 else first
    y = like(x, (*x.shape[:-1], k), int64)
    if y.size:
        launch("argsort", None, (y,), (x,), (x.shape[-1], descending, k), dtype=x.dtype)
    return y


def order_along(x: Any, a: int, descending: bool, first: int = -1) -> Any:
    """The places along axis a of its numbers in order (of the `first` ones alone, unless that is -1), for a Tensor with an axis."""
    return row_order(sortable(x), descending, first, a)


def sortable(x: Any) -> Any:
    return x if x.dtype in FLOATS or x.dtype.itemsize > 2 else cast(x, int32)


def with_axis(name: str, x: Any, axis: int) -> tuple[Any, int, tuple[int, ...]]:
    """(x, which has an axis; the axis; x's own shape)."""
    x = Tensor.of(name, x)
    return (x if x.ndim else reshape(x, (1,))), one_axis(name, axis, x.ndim), x.shape


@composed
def sort(x: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> Found:
    """(values, indices) of x in order along an axis, as PyTorch's sort; what is equal keeps its order whatever `stable` says.
    Shapes: x's, both. NaN is the largest. Raises IndexOutOfRange.
    >>> [t.tolist() for t in fp.sort(fp.tensor([3.0, 1.0, 2.0]))]
    [[1.0, 2.0, 3.0], [1, 2, 0]]"""
    x, a, shape = with_axis("sort", x, axis)
    order = order_along(x, a, bool(descending))
    return Found(shaped(picked_along(x, a, order), shape), shaped(order, shape))


@composed
def argsort(x: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The indices that sort() gives (int64). Records nothing.
    Shapes: x's.
    >>> fp.argsort(fp.tensor([3.0, 1.0, 2.0])).tolist()
    [1, 2, 0]"""
    x, a, shape = with_axis("argsort", x, axis)
    return shaped(order_along(x, a, bool(descending)), shape)


@composed
def msort(x: Any) -> Any:
    """x in order along its first axis: the values alone.
    Shapes: x's.
    >>> fp.msort(fp.tensor([3.0, 1.0, 2.0])).tolist()
    [1.0, 2.0, 3.0]"""
    return sort(x, 0).values


@composed
def topk(x: Any, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> Found:
    """(values, indices) of the k largest elements along an axis, the largest first (largest=False: smallest); of equal ones the first.
    Shapes: x's with k at the axis. They are in order whatever `sorted` says. Raises ShapeError for more than there are.
    >>> [t.tolist() for t in fp.topk(fp.tensor([1.0, 3.0, 2.0]), 2)]
    [[3.0, 2.0], [1, 2]]"""
    x, a, shape = with_axis("topk", x, axis)
    k = checked_int("topk", "k", k)
    if not 0 <= k <= x.shape[a]:
        raise ShapeError(f"topk: k is out of range: {k} of {x.shape[a]} elements, axis {axis}. Use 0 to {x.shape[a]}.")
    places = order_along(x, a, bool(largest), k)
    values = picked_along(x, a, places)
    return Found(values, places) if shape else Found(reshape(values, shape), reshape(places, shape))


@composed
def kthvalue(x: Any, k: int, axis: int = -1, keepdims: bool = False) -> Found:
    """(value, index) of the k-th smallest element along an axis, from 1. PyTorch's median is that of k = (n + 1) // 2.
    Shapes: x's without the axis, or 1 there with keepdims. Raises ShapeError for a k that there is not.
    >>> [t.item() for t in fp.kthvalue(fp.tensor([3.0, 1.0, 2.0]), 2)]
    [2.0, 2]"""
    x, a, shape = with_axis("kthvalue", x, axis)
    k = checked_int("kthvalue", "k", k)
    if not 1 <= k <= x.shape[a]:
        raise ShapeError(f"kthvalue: k is out of range: {k} of {x.shape[a]} elements, axis {axis}. Use 1 to {x.shape[a]}.")
    return kept(x, a, narrow(order_along(x, a, False, k), a, k - 1, 1), shape, keepdims)


def kept(x: Any, a: int, places: Any, shape: tuple[int, ...], keepdims: bool) -> Found:
    """What is at one place along axis a, without that axis unless `keepdims`. shape: x's own."""
    wanted = squeezed_shape(shape, (a,) if shape else (), keepdims)
    return Found(reshape(picked_along(x, a, places), wanted), reshape(places, wanted))


def mode_row(r, at, x, order, rows, cols):
    """Where the longest run of equal numbers ends, the first of several, in the order of the row."""
    x, order, run, most, best = x[r * cols : r * cols + cols], order[r * cols : r * cols + cols], 0, 0, 0
    if lane() == 0:
        for j in range(cols):
            run = run + 1 if x[order[j]] == x[order[max(j - 1, 0)]] else 1
            if run > most:
                most, best = run, j
        at[r] = order[best]


@custom(inputs=1, kind="as is", title="mode", internal=True)
def mode_place(x, axis=-1):
    """Where along an axis the most frequent number is; the axis stays, with one place."""
    moved = transpose(x, axis, -1) if axis != x.ndim - 1 else x
    order, at = like(moved, dtype=int64), like(moved, (*moved.shape[:-1], 1), int64)
    if at.size:
        launch("argsort", None, (order,), (moved,), (x.shape[axis], False, x.shape[axis]), dtype=x.dtype)
        launch("row", mode_row, (at,), (moved, order), (at.size, x.shape[axis]), x.dtype)
    return transpose(at, axis, -1) if moved is not x else at


@composed
def mode(x: Any, axis: int = -1, keepdims: bool = False) -> Found:
    """(value, index) of the most frequent element along an axis: of several the smallest, and where it is last.
    Shapes: x's without the axis, or 1 there with keepdims. Raises ShapeError for an axis without elements.
    >>> [t.item() for t in fp.mode(fp.tensor([2.0, 1.0, 2.0]))]
    [2.0, 2]"""
    x, a, shape = with_axis("mode", x, axis)
    check_some("mode", x, axis, x.shape[a])
    return kept(x, a, mode_place(sortable(x).detach(), a), shape, keepdims)


# ---- quantiles -----------------------------------------------------------------------------------------------------------------------
METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def axes_last(name: str, x: Any, axis: Axis, keepdims: bool) -> tuple[Any, tuple[int, ...]]:
    """(x with these axes as the last one, the shape of a result without them). Integers become float32."""
    x = Tensor.of(name, x)
    x = x if x.dtype in FLOATS else cast(x, float32)
    plan = reduction(name, x.shape, axis, keepdims)
    check_some(name, x, axis, plan.n)
    x = gathered(x, plan)
    if plan.inner > 1:
        x = transpose(reshape(x, (plan.outer, plan.n, plan.inner)), 1, 2)
    return reshape(x, (plan.outer * plan.inner, plan.n)), plan.shape


def quantiles(name: str, x: Any, q: Any, axis: Axis, keepdims: bool, method: str, skips: bool) -> Any:
    """quantile() and its like; `skips`: of the numbers that are not NaN."""
    if method not in METHODS:
        raise ValueError(f"{name}: unknown method: {method!r}. Use one of {', '.join(METHODS)}.")
    x, shape = axes_last(name, x, axis, keepdims)
    shares = q.detach().numpy() if isinstance(q, Tensor) else np.asarray(q)
    if shares.ndim > 1 or shares.dtype.kind not in "fiub" or not ((shares >= 0) & (shares <= 1)).all():
        raise ValueError(f"{name}: no number from 0 to 1, nor a list of them: q={q!r}. Use 0.5 for the median.")
    wide = reshape(cast(q, float64), (1, q.size)) if isinstance(q, Tensor) else row_of(x.device, *shares.ravel().tolist())
    order = order_along(x, 1, False)
    count = sum_op(cast(eq(x.detach(), x.detach()), float64), axis=1, keepdims=True) if skips else x.shape[1]
    ranks = mul(wide, maximum_op(sub(count, 1.0), 0.0) if skips else count - 1.0)
    y = at_ranks(x, order, broadcast_to(ranks, (x.shape[0], wide.size)), method)
    if not skips:
        last = picked_along(x, 1, narrow(order, 1, x.shape[1] - 1, 1))
        y = where(ne(last.detach(), last.detach()), last, y)
    return narrowed(reshape(permute(y, (1, 0)) if shares.ndim else y, (*shares.shape, *shape)), x.dtype)


@lru_cache(256)
def row_of(device: Any, *shares: float) -> Any:
    """These numbers as a row, made once."""
    return Tensor.of("quantile", np.array([shares], np.float64), device)


def at_ranks(x: Any, order: Any, ranks: Any, method: str) -> Any:
    """The numbers of rows at these ranks (float64), which may lie between two. order: where the numbers of each row are, in order."""
    low, high = ranks.floor(), ranks.ceil()
    if method == "nearest":
        low = high = ranks.round()
    if method in ("lower", "higher", "nearest"):
        return at_rank(x, order, high if method == "higher" else low)
    below, above = (at_rank(x, order, rank) for rank in (low, high))
    share = cast(sub(ranks, low), x.spec.computed) if method == "linear" else 0.5
    apart = sub(above.detach(), below.detach())
    return where(ne(apart, apart), below, lerp(below, above, share))  # the same infinity twice


def at_rank(x: Any, order: Any, rank: Any) -> Any:
    return picked_along(x, 1, picked_along(order, 1, cast(rank, int64)))


@composed
def quantile(
    x: Any, q: Any, axis: Axis = None, keepdims: bool = False, method: str = "linear", interpolation: str | None = None,
) -> Any:  # fmt: skip
    """What a share q (0 to 1, or a list of such) of the numbers along the axes lies below; NaN where there is one.
    method (or interpolation): between two numbers "linear", "lower", "higher", "midpoint" or "nearest".
    Shapes: that of q, then x's without the axes (1 there with keepdims). Integers give float32. Raises ValueError, ShapeError.
    >>> fp.quantile(fp.tensor([1.0, 2.0, 4.0]), 0.75).item()
    3.0"""
    return quantiles("quantile", x, q, axis, keepdims, interpolation or method, False)


@composed
def nanquantile(
    x: Any, q: Any, axis: Axis = None, keepdims: bool = False, method: str = "linear", interpolation: str | None = None,
) -> Any:  # fmt: skip
    """quantile() of the numbers that are not NaN; NaN where there are none.
    Shapes: as there.
    >>> fp.nanquantile(fp.tensor([1.0, float("nan"), 3.0]), 0.5).item()
    2.0"""
    return quantiles("nanquantile", x, q, axis, keepdims, interpolation or method, True)


# ---- medians -------------------------------------------------------------------------------------------------------------------------
def middle_row(r, y, at, x, order, skips, rows, cols):
    """The middle of a row, or the mean of the two that are, and where they lie; `order`: where its numbers lie in order, NaN last."""
    x, order, count = x[r * cols : r * cols + cols], order[r * cols : r * cols + cols], cols
    while skips and count > 1 and x[order[count - 1]] != x[order[count - 1]]:
        count -= 1
    low, high, last = order[(count - 1) // 2], order[count // 2], order[count - 1]
    if x[last] != x[last]:
        low, high = last, last
    apart = x[high] - x[low]
    if apart != apart:  # the same infinity twice, or NaN
        high = low
    if lane() == 0:
        y[r] = x[low] if low == high else x[high] - apart * 0.5
        at[2 * r], at[2 * r + 1] = low, high


def middle_dx_row(r, dx, g, at, rows, cols):
    dx, half = dx[r * cols : r * cols + cols], g[r] * 0.5
    for j in range(lane(), cols, lanes()):
        dx[j] = select(j == at[2 * r], half, 0.0) + select(j == at[2 * r + 1], half, 0.0)


@custom(inputs=1, title="median", internal=True)
def middle(x, axis=None, keepdims=False, skips=False):
    """The median over the axes; with `skips` of what is not NaN."""
    plan = reduction("median", x.shape, axis, keepdims)
    y, at = like(x, plan.shape), like(x, (*plan.shape, 2), int64)
    if y.size:
        rows = in_rows(x, plan)
        order = like(rows, dtype=int64)
        launch("argsort", None, (order,), (rows,), (plan.n, False, plan.n), dtype=x.dtype)
        launch("row", middle_row, (y, at), (rows, order), (bool(skips), y.size, plan.n))
    return y, {"at": at}


@middle.backward
def middle_dx(g, at, shapes, axis, keepdims):
    plan = reduction("median", shapes[0], axis, keepdims)
    dx = like(g, (plan.outer, plan.inner, plan.n), g.spec.computed)
    over_rows(middle_dx_row, (dx,), (g, at), plan.n)
    return from_rows(dx, shapes[0], plan)


@middle.graph
def middle_ddx(g, at, shapes, axis, keepdims):
    ones = filled(g.shape, 1, g.spec.computed, g.device)
    return mul(middle_dx(ones, at, shapes, axis, keepdims), spread(g, shapes[0], axis, keepdims))


def middle_of(name: str, x: Any, axis: Axis, keepdims: bool, skips: bool) -> Any:
    """median(). Raises ShapeError where there are no elements."""
    x = Tensor.of(name, x)
    x = x if x.dtype in FLOATS else cast(x, float32)
    axes = axes_of(name, axis, x.ndim)
    check_some(name, x, axis, reduction(name, x.shape, axes, False).n)
    return middle(x, axes, bool(keepdims), skips)


def check_some(name: str, x: Any, axis: Axis, n: int) -> None:
    if not n:
        raise ShapeError(f"{name}: no elements to choose from: shape {x.shape}, axis {axis}. Give the axis at least one element.")


@composed
def median(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """The middle number along the axes, of an even number of them the mean of two, as NumPy's; NaN where there is one.
    PyTorch's median is the lower of two, with its index: kthvalue(x, (n + 1) // 2).
    Shapes: as sum. Integers give float32. Raises ShapeError where there are no elements.
    >>> fp.median(fp.tensor([1.0, 4.0, 2.0, 3.0])).item()
    2.5"""
    return middle_of("median", x, axis, keepdims, False)


@composed
def nanmedian(x: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """median() of the numbers that are not NaN; NaN where there are none.
    Shapes: as sum.
    >>> fp.nanmedian(fp.tensor([1.0, float("nan"), 3.0])).item()
    2.0"""
    return middle_of("nanmedian", x, axis, keepdims, True)


median, nanmedian = no_pair("median", median), no_pair("nanmedian", nanmedian)


# ---- where numbers belong ------------------------------------------------------------------------------------------------------------
@custom(inputs=2, kind="any", title="searchsorted", internal=True)
def places_in(x, values, many=1, right=False):
    """For each value how many numbers of its sorted row of x are less; `many` values, one after the other, share a row."""
    y = like(values, dtype=int64)
    if y.size:
        launch("search", None, (y,), (x, values), (x.shape[-1], many, bool(right)), dtype=x.dtype)
    return y


@composed
def searchsorted(
    x: Any, values: Any, side: str | None = None, sorter: Any = None, right: bool = False, out_int32: bool = False,
) -> Any:  # fmt: skip
    """For each value the index (int64) at which it would keep the sorted x in order: before what is equal ("left")
    or behind it ("right", or right=True).
    x: one row, or rows (..., n) for values (..., m), each of which has a row of its own. sorter: the indices that sort x.
    Shapes: that of values. NaN is the largest. Raises ShapeError for rows that do not fit, ValueError for another
    side, and for "left" with right=True.
    >>> fp.searchsorted(fp.tensor([1.0, 2.0, 3.0]), [2.0, 5.0]).tolist()
    [1, 3]"""
    if isinstance(values, SCALARS) and getattr(x, "dtype", None) in FLOATS:
        values = np.asarray(values, x.dtype)
    x, values = tensors_of("searchsorted", x, values)
    if side == "left" and right:
        raise ValueError("searchsorted: two sides: side='left' and right=True. Leave one out.")
    if side not in ("left", "right", None):
        raise ValueError(f"searchsorted: unknown side: {side!r}. Use 'left' or 'right'.")
    if not x.ndim or (x.ndim > 1 and (values.ndim != x.ndim or values.shape[:-1] != x.shape[:-1])):
        raise ShapeError(f"searchsorted: rows do not fit: x {x.shape}, values {values.shape}. Make x one row, or a row for each of values.")
    if sorter is not None:
        x = picked_along(x, x.ndim - 1, integers("searchsorted", sorter, x.device))
    many = values.size if x.ndim == 1 else values.shape[-1]
    found = places_in(x, values, many or 1, bool(right) or side == "right")
    return cast(found, int32) if out_int32 else found


@composed
def bucketize(x: Any, boundaries: Any, right: bool = False, out_int32: bool = False) -> Any:
    """For each number the index of its bucket between sorted boundaries: searchsorted(boundaries, x).
    Shapes: x's. right: what equals a boundary belongs behind it. Raises ShapeError unless boundaries is one row.
    >>> fp.bucketize(fp.tensor([0.5, 1.5, 9.0]), [1.0, 2.0]).tolist()
    [0, 1, 2]"""
    x, boundaries = tensors_of("bucketize", x, boundaries)
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: boundaries are not one row: {boundaries.shape}. Pass a 1-D tensor.")
    return searchsorted(boundaries, x, right=right, out_int32=out_int32)
