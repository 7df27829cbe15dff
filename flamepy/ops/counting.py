"""How often numbers occur: unique, bincount, histc. What depends on the numbers in its size is found out on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.custom import custom
from ..core.errors import DTypeError, ShapeError
from ..core.methods import uploaded
from ..core.ops.axes import composed, one_axis
from ..core.ops.copy import cast, filled
from ..core.ops.indexing import rows_added
from ..core.ops.pointwise import add, mul, sub
from ..core.ops.reduce import max as max_op
from ..core.ops.reduce import min as min_op
from ..core.ops.shape import reshape, sliced
from ..core.pointwise import pointwise
from ..core.tensor import Tensor
from ..core.words import minimum, select
from ..dtypes import FLOATS, INTEGERS, checked_int, checked_number, float32, float64, int64
from .picking import index_select
from .reduce_more import floats_only


@composed
def unique(
    x: Any, *, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None,
    sorted: bool = True,
) -> Any:  # fmt: skip
    """The different numbers of x, or slices along an axis, in order whatever `sorted` says; as asked for also, in this order: where each
    is first, where each element of x is among them, how often each occurs (all int64).
    Shapes: (n,), or x's with n at the axis. The gradient goes to the first of each. Reads x on the host, so no captured step may call it.
    >>> [t.tolist() for t in fp.unique(fp.tensor([2, 1, 2]), return_counts=True)]
    [[1, 2], [1, 2]]"""
    x = Tensor.of("unique", x)
    a = None if axis is None else one_axis("unique", axis, x.ndim)
    numbers = x.numpy().astype(float32) if x.dtype.kind == "V" else x.numpy()
    from_x = x.requires_grad or x.broken is not None or x.dtype.kind == "V"
    if not (from_x or return_index or return_inverse or return_counts or a is not None):
        values = np.sort(numbers, axis=None)
        anew = (values[1:] != values[:-1]) & (values[:-1] == values[:-1])  # of several NaN the first
        return uploaded(values[np.concatenate([np.ones(min(values.size, 1), bool), anew])], x.device)
    values, first, *more = np.unique(numbers, True, return_inverse, return_counts, a)  # type: ignore[call-overload]
    if from_x:
        y = index_select(reshape(x, (-1,) if x.size else (0,)) if a is None else x, a or 0, first)
    else:
        y = uploaded(values, x.device)
    found = [uploaded(t, x.device) for t in (*([first] if return_index else []), *more)]
    return (y, *found) if found else y


@composed
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each whole number from 0 on occurs in x (int64), or the sum of its weights (float64 for integers).
    Shapes: (n,) gives (max(x) + 1,), or minlength if that is more. Gradients reach the weights. Reads x on the host, so no captured step
    may call it. Raises DTypeError unless x is of integers, ShapeError for other shapes, ValueError for a number below 0.
    >>> fp.bincount(fp.tensor([1, 3, 1])).tolist()
    [0, 2, 0, 1]"""
    x = Tensor.of("bincount", x)
    least = checked_int("bincount", "minlength", minlength)
    if x.dtype not in INTEGERS:
        raise DTypeError(f"bincount: not integers: {x.dtype}. Cast to flamepy.int64.")
    if weights is not None:
        weights = Tensor.of("bincount", weights, x.device)
        weights = weights if weights.dtype in FLOATS else cast(weights, float64)
    shape = x.shape if weights is None else weights.shape
    if x.ndim != 1 or shape != x.shape:
        raise ShapeError(f"bincount: no row of numbers, each with a weight: x {x.shape}, weights {shape}. Flatten both.")
    numbers = x.numpy() if x.dtype is int64 else x.numpy().astype(np.int64)
    if weights is None or (weights.dtype.kind == "f" and not weights.requires_grad and weights.broken is None):
        try:
            found = np.bincount(numbers, None if weights is None else weights.numpy(), least)
            return uploaded(found if weights is None else found.astype(weights.dtype), x.device)
        except (ValueError, MemoryError):  # said below
            weights = filled(x.shape, 1, int64, x.device)
    if least < 0 or numbers.min(initial=0) < 0:
        raise ValueError(f"bincount: below 0: minlength {least}, the least number {numbers.min(initial=0)}. Use numbers from 0 on.")
    return rows_added(weights, cast(x, int64), 1, (max(least, int(numbers.max(initial=-1)) + 1),))


@custom(home="flamepy")
def histc(x, bins=100, min=0, max=0):
    """How many numbers lie in each of `bins` equal parts from min to max, or where both are alike between x's own least and largest one.
    Shapes: (bins,), of x's type. Other numbers and NaN are left out; max belongs to the last part. Between a least and a largest number
    that are not finite there are no parts: NaN. Raises ValueError for bins below 1.
    >>> fp.histc(fp.tensor([1.0, 2.0, 1.0]), bins=2, min=0, max=3).tolist()
    [2.0, 1.0]"""
    bins, low, high = checked_int("histc", "bins", bins), checked_number("histc", "min", min), checked_number("histc", "max", max)
    if bins < 1 or not low <= high:
        raise ValueError(f"histc: no parts: bins {bins}, from {low} to {high}. Use bins >= 1 and min <= max.")
    x = reshape(floats_only("histc", x), (x.size,))
    if low == high and x.size:
        bottom, top = min_op(x), max_op(x)
    else:
        bottom, top = (filled((), n, x.dtype, x.device) for n in (low, high))
    ids = cast(part_op(x, bottom, top, bins=bins), int64)
    found = rows_added(filled(x.shape, 1, x.dtype, x.device), ids, 1, (bins + 1,))
    return add(sliced(found, (0,), (1,), (bins,), (bins,)), mul(sub(top, bottom), 0.0))


def part_of_y(x, low, high, bins=1.0):
    """Which of `bins` equal parts from low to high x is in; bins for none. Ends that are alike count as one less and one more."""
    low, high = low - select(low == high, 1.0, 0.0), high + select(low == high, 1.0, 0.0)
    part = (x - low) / (high - low) * bins
    return select((x >= low) & (x <= high) & (part >= 0.0), minimum(part, bins - 1.0), bins)


part_op = pointwise("part_of", part_of_y, home="")
