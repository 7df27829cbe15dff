"""Scans: sums, products and extremes of everything up to each element along an axis.

All but the extremes are one linear recurrence, s[i] = a[i] * s[i - 1] + b[i]. Its derivative is a recurrence that runs the other way and
never divides, so products with zeros in them are right, and every higher derivative is there.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..backend.formula.row_words import lane, lanes
from ..backend.formula.words import log1p
from ..core.custom import custom
from ..core.errors import ShapeError
from ..core.op import launch, like, share
from ..core.ops.axes import composed, one_axis
from ..core.ops.copy import cast
from ..core.ops.pointwise import eq, exp_op, mul, ne, sub, where
from ..core.ops.reduce import countable
from ..core.ops.shape import broadcast_to, reshape, unsliced
from ..core.tensor import Tensor
from ..core.words import abs, exp, maximum, select
from ..dtypes import FLOATS, FULL, as_dtype, bool_, checked_int, float64, int64
from .joining import cat
from .picking import picked_along
from .reduce_more import floats_only
from .rows import over_rows
from .shape_more import narrow, shaped
from .widening import narrowed, widened

MANY = 16  # lines that are enough to share among workers


class Found(NamedTuple):
    """Values, and where along the axis they are (int64)."""

    values: Any
    indices: Any


def lines(shape: tuple[int, ...], a: int) -> tuple[int, int, int]:
    """(outer, n, inner) of a shape, with axis a as the middle."""
    return math.prod(shape[:a]), shape[a], math.prod(shape[a + 1 :])


# ---- the recurrence ---------------------------------------------------------------------------------------------------------------
def affine(p, q, a, b):
    """Two stretches of a recurrence as one: q is what it comes to, p what a number before it is multiplied with."""
    return a * p, a * q + b


def recur(y: Any, a: Any, b: Any, axis: int, reverse: bool, start: float) -> Any:
    """Launch it. Sums are kept in float64, of whole numbers in int64."""
    number, wide = y.spec.computed.type, float64.type if y.dtype in FLOATS else int64.type
    if y.size:
        ins = number(1) if a is None else a, number(0) if b is None else b
        launch("scan", affine, (y,), ins, (*lines(y.shape, axis), reverse, wide(1), wide(start)))
    return y


@custom(inputs=1, kind="as is", title="cumsum", internal=True)
def running_sum(x, axis=0, reverse=False):
    """The sum up to each element, or with `reverse` from it on."""
    return recur(like(x), None, x, axis, reverse, 0)


running_sum.differentiable(lambda g, axis, reverse: running_sum(g, axis, not reverse))


@custom(inputs=2, kind="as is", title="scan", internal=True)
def recurrence(a, b, axis=0, reverse=False, start=0):
    """s[i] = a[i] * s[i - 1] + b[i], from the last one back if `reverse`; b may be None. What comes before the first is `start`."""
    return recur(like(a), a, b, axis, reverse, start)


@recurrence.differentiable
def recurrence_dx(g, a, y, wanted, axis, reverse, start):
    """What reaches s[i], from g and by way of s[i + 1]."""
    dy = recurrence(shifted(a, axis, not reverse, 0), g, axis, not reverse, 0)
    return mul(dy, shifted(y, axis, reverse, start)) if wanted[0] else None, dy


def shifted(x: Any, axis: int, back: bool, value: float) -> Any:
    """Each element the one before it, or with `back` the one behind it, and `value` where there is none."""
    n, starts = x.shape[axis], [0] * x.ndim
    starts[axis] = 0 if back else 1
    return unsliced(narrow(x, axis, int(back), n - 1), x.shape, tuple(starts), (1,) * x.ndim, value) if n else x


def lined(name: str, x: Any, axis: int | None, dtype: Any = None) -> tuple[Any, int, tuple[int, ...]]:
    """(x with an axis at least, in which type it is added up; the axis; the shape of the result). Axis None: all as one line."""
    x = Tensor.of(name, x)
    x = x if dtype is None else cast(x, as_dtype(dtype))
    x = x if x.dtype in FLOATS or dtype is not None else countable(x)
    if axis is None:
        return reshape(x, (-1,) if x.size else (0,)), 0, (x.size,)
    return (x if x.ndim else reshape(x, (1,))), one_axis(name, axis, x.ndim), x.shape


@composed
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The sum of the elements up to each one along an axis; without one, of the flattened x. Added up in float64, rounded to x's type.
    Shapes: x's, or (x.size,). Bools and small integers give int64; dtype: the type to cast to before. Raises IndexOutOfRange.
    >>> fp.cumsum(fp.tensor([1.0, 2.0, 3.0]), axis=0).tolist()
    [1.0, 3.0, 6.0]"""
    x, a, shape = lined("cumsum", x, axis, dtype)
    return shaped(running_sum(x, a, False), shape)


@composed
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """The product of the elements up to each one along an axis; without one, of the flattened x. Gradients are right at zeros, too.
    Shapes and types: as cumsum.
    >>> fp.cumprod(fp.tensor([1.0, 2.0, 3.0]), axis=0).tolist()
    [1.0, 2.0, 6.0]"""
    x, a, shape = lined("cumprod", x, axis, dtype)
    return shaped(recurrence(x, None, a, False, 1), shape)


def log_added(p, q, a, b):
    apart = abs(q - b)  # of the same infinity twice it is NaN
    return p, select(apart == apart, maximum(q, b) + log1p(exp(-apart)), maximum(q, b))


@custom(inputs=1, title="logcumsumexp", internal=True)
def running_log(x, axis=0, *, tracked=()):
    """logcumsumexp() along an axis; backward gets it in float64."""
    y = like(x, dtype=float64 if any(tracked) else None)
    if y.size:
        one, zero, least = [float64.type(v) for v in (1, 0, -math.inf)]
        launch("scan", log_added, (y,), (one, x), (*lines(y.shape, axis), False, zero, least), dtype=float64)
    return cast(y, x.dtype) if y.dtype != x.dtype else y, {"wide": share(y, y.shape)}


@running_log.backward
def running_log_dx(g, x, wide, axis):
    """The sum of g[j] * exp(x[i] - y[j]) over j from i on, by steps from one y to the next, which are never up."""
    total = recurrence(exp_op(apart(wide, shifted(wide, axis, True, math.inf))), cast(g, float64), axis, True, 0)
    return cast(mul(exp_op(apart(cast(x, float64), wide)), total), x.spec.computed)


running_log.graph(lambda g, x, axis: running_log_dx(g, x, running_log(cast(x, float64), axis), axis))


def apart(a: Any, b: Any) -> Any:
    """a - b, 0 between an infinity and itself."""
    d = sub(a, b)
    return where(ne(d, d) & eq(a, b), 0.0, d)


@composed
def logcumsumexp(x: Any, axis: int = 0) -> Any:
    """log(cumsum(exp(x))) along an axis, without overflow; computed in float64.
    Shapes: x's. Raises DTypeError unless x is of floats.
    >>> [round(v, 4) for v in fp.logcumsumexp(fp.tensor([0.0, 0.0])).tolist()]
    [0.0, 0.6931]"""
    x, a, shape = lined("logcumsumexp", floats_only("logcumsumexp", x), axis)
    return shaped(running_log(x, a), shape)


# ---- extremes ------------------------------------------------------------------------------------------------------------------------
def later_max(v, i, x, j):
    """The larger one and where it is, of equal ones the later one; NaN wins."""
    later = (x >= v) | (x != x)
    return select(later, x, v), select(later, j, i)


def later_min(v, i, x, j):
    later = (x <= v) | (x != x)
    return select(later, x, v), select(later, j, i)


@custom(inputs=1, kind="as is", title="cummax", internal=True)
def running_place(x, axis=0, sign=1):
    """Where the largest (sign -1: smallest) element up to each one is."""
    y, number = like(x, dtype=int64), x.spec.computed.type
    least = number(-sign * math.inf) if x.dtype in FLOATS else number(np.iinfo(number).min if sign > 0 else np.iinfo(number).max)
    if y.size:
        formula = later_max if sign > 0 else later_min
        launch("scan", formula, (y,), (x, None), (*lines(x.shape, axis), False, least, int64.type(0)), dtype=x.dtype)
    return y


def running_extreme(name: str, x: Any, axis: int, sign: int) -> Found:
    given = Tensor.of(name, x)
    x = cast(given, int64) if given.dtype == bool_ else given
    a = one_axis(name, axis, x.ndim)
    x = x if x.ndim else reshape(x, (1,))
    places = running_place(x, a, sign)
    y = shaped(picked_along(x, a, places), given.shape)
    return Found(cast(y, bool_) if given.dtype == bool_ else y, shaped(places, given.shape))


@composed
def cummax(x: Any, axis: int = 0) -> Any:
    """(values, indices) of the largest element up to each one along an axis; of equal ones the last, NaN wins, as in PyTorch.
    Shapes: x's, both. The gradient goes to the elements that were taken.
    >>> [t.tolist() for t in fp.cummax(fp.tensor([1.0, 3.0, 2.0, 3.0]))]
    [[1.0, 3.0, 3.0, 3.0], [0, 1, 1, 3]]"""
    return running_extreme("cummax", x, axis, 1)


@composed
def cummin(x: Any, axis: int = 0) -> Any:
    """(values, indices) of the smallest element up to each one along an axis; of equal ones the last, NaN wins, as in PyTorch.
    Shapes: x's, both. The gradient goes to the elements that were taken.
    >>> [t.tolist() for t in fp.cummin(fp.tensor([3.0, 1.0, 2.0]))]
    [[3.0, 1.0, 1.0], [0, 1, 1]]"""
    return running_extreme("cummin", x, axis, -1)


# ---- differences ---------------------------------------------------------------------------------------------------------------------
def difference_row(r, y, x, step, sign, rows, cols):
    first = r * (cols + step)
    y, x, after = y[r * cols : r * cols + cols], x[first : first + cols], x[first + step : first + step + cols]
    for j in range(lane(), cols, lanes()):
        y[j] = after[j] - x[j] if sign > 0 else x[j] - after[j]


@custom(inputs=1, kind="as is", title="diff", internal=True)
def differences(x, axis=0, sign=1):
    """Each element along an axis less the one before it (sign -1: behind it), in one pass over its lines."""
    _, n, inner = lines(x.shape, axis)
    y = like(x, (*x.shape[:axis], n - 1, *x.shape[axis + 1 :]))
    over_rows(difference_row, (y,), (x,), (n - 1) * inner, (inner, sign))
    return y


@differences.differentiable
def differences_dx(g, shapes, axis, sign):
    starts = [0] * g.ndim
    starts[axis] = 1
    shape = (*g.shape[:axis], g.shape[axis] + 2, *g.shape[axis + 1 :])
    return differences(unsliced(g, shape, tuple(starts), (1,) * g.ndim, 0), axis, -sign)


@composed
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours along an axis, n times over; before that, `prepend` and `append` (numbers too) are put to its ends.
    Shapes: x's with n less at the axis. Of bools: whether neighbours differ. Raises ShapeError for a scalar, ValueError for n below 0.
    >>> fp.diff(fp.tensor([1.0, 4.0, 9.0])).tolist()
    [3.0, 5.0]"""
    x, n = Tensor.of("diff", x), checked_int("diff", "n", n)
    if not x.ndim or n < 0:
        text = f"needs an axis: shape {x.shape}. Give it one" if not x.ndim else f"n is below 0: {n}. Use 0 or more"
        raise (ShapeError if not x.ndim else ValueError)(f"diff: {text}.")
    a = one_axis("diff", axis, x.ndim)
    if not n:
        return x
    x, dtype = widened(x) if n > 1 else x, x.dtype
    one = (*x.shape[:a], 1, *x.shape[a + 1 :])
    for end, first in ((prepend, True), (append, False)):
        if end is not None:
            if not isinstance(end, Tensor):
                end = np.asarray(end)
                fits = end.dtype.kind in "fiub" and (x.dtype in FLOATS or (not end.ndim and end.astype(x.dtype) == end))
                end = Tensor.of("diff", end.astype(x.dtype) if fits else end, x.device)
            end = end if end.ndim else broadcast_to(end, one)
            x = cat([end, x] if first else [x, end], a)
    for _ in range(min(n, x.shape[a])):
        size = x.shape[a] - 1
        if x.dtype in FULL and lines(x.shape, a)[0] >= MANY:
            x = differences(x, a)
            continue
        x = (ne if x.dtype == bool_ else sub)(narrow(x, a, 1, size), narrow(x, a, 0, size))
    return narrowed(x, dtype)
