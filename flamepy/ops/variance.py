"""Variance, standard deviation and mean of rows in one launch: two passes over each row, in float64.

The second pass takes squares about the mean of the first, and what rounding cut off that mean out again. Numbers are taken less the first
one of their row: where all are equal the variance is 0. 10^20 and 10^-25 are float32 numbers, their squares are not.
"""

from __future__ import annotations

from typing import Any

from ..backend.formula.row_words import all_sum, lane, lanes, put_row, run_at, wide
from ..core.custom import custom
from ..core.op import launch, like, new, share
from ..core.ops.axes import Axis, axes_of, composed
from ..core.ops.copy import cast, filled
from ..core.ops.pointwise import add, div, eq, mul, sub, where
from ..core.ops.reduce import Reduction, fold, gathered, mean, reduction, spread
from ..core.ops.shape import permute, reshape, transpose
from ..core.pointwise import define
from ..core.words import INF, maximum, real, select, sqrt
from ..dtypes import HALF, checked_number, float32, float64
from .reduce_more import floats_only
from .rows import over_rows
from .widening import widened

CHUNK = 8192  # numbers of a long row that one task goes through, where there are few rows
FAR = 2.0**100


def squared(x):
    return wide(x) * wide(x)


root = define(
    "root", "Square root, whose derivative at 0 is 0.", lambda v: sqrt(v),
    lambda g, y: select(y == 0.0, 0.0, g * 0.5 / select(y == 0.0, 1.0, y)), title="std", home="",
)  # fmt: skip


@custom(inputs=1, title="norm", internal=True)
def lengths(x, axis=None, keepdims=False):
    """The root of the sum of x * x over the axes, which is in float64."""
    return cast(root(fold("fold_sum", squared, x, reduction("norm", x.shape, axis, keepdims), 1, float64)), x.dtype)


@lengths.differentiable
def lengths_dx(g, x, y, axis, keepdims):
    if x.dtype in HALF:
        x = cast(x, float32)
        y = lengths(x, axis, keepdims)
    none = eq(y, 0.0)
    return mul(x, spread(where(none, 0.0, div(g, where(none, 1.0, y))), x.shape, axis, keepdims))


# ---- one row ---------------------------------------------------------------------------------------------------------------------
def about_mean(x, cols):
    """(a mean, what it lacks, the sum of squares about it) of a row."""
    total, rest, squares, near = wide(0.0), wide(0.0), wide(0.0), wide(x[0])
    for j in range(lane(), cols, lanes()):
        total += wide(x[j]) - near
    m = near + all_sum(total) / wide(cols)
    for j in range(lane(), cols, lanes()):
        d = wide(x[j]) - m
        rest += d
        squares += d * d
    return m, all_sum(rest) / wide(cols), all_sum(squares)


def put_moments(r, y, means, kept, m, rest, squares, n, divisor, rooted):
    """Write the variance or its root, the mean, and for backward the mean in two parts and the slope of y at deviations."""
    v = select(squares < INF, maximum(squares - n * (rest * rest), 0.0), squares) / divisor
    if rooted:
        v = wide_root(v)
    if lane() == 0:
        y[r] = real(v)
        if means is not None:
            means[r] = real(m + rest)
        if kept is not None:
            kept[3 * r] = real(m)
            kept[3 * r + 1] = real((m - wide(real(m))) + rest)
            kept[3 * r + 2] = real(select(v == 0.0, 0.0, 1.0 / (select(v == 0.0, 1.0, v) * divisor)) if rooted else 2.0 / divisor)


def wide_root(v):
    """The square root of a number in wide(), where sqrt() may take float32 alone."""
    s = wide(select(v < 1.0 / FAR, FAR, select(v > FAR, 1.0 / FAR, 1.0)))
    return wide(sqrt(v * s * s)) / s


def moments_row(r, y, means, kept, x, divisor, rooted, rows, cols):
    m, rest, squares = about_mean(x[r * cols : r * cols + cols], cols)
    put_moments(r, y, means, kept, m, rest, squares, wide(cols), divisor, rooted)


def piece_row(r, sums, x, n, chunks, rows, cols):
    """What a part of a long row comes to: its mean, its sum of squares about that."""
    first, size = r // chunks * n + r % chunks * cols, min(cols, n - r % chunks * cols)
    m, rest, squares = about_mean(x[first : first + size], size)
    if lane() == 0:
        sums[2 * r] = m + rest
        sums[2 * r + 1] = squares - wide(size) * (rest * rest)


def joined_row(r, y, means, kept, sums, n, chunk, divisor, rooted, rows, cols):
    """The same of a row from its parts (Chan, Golub, LeVeque 1983)."""
    sums = sums[2 * r * cols : 2 * r * cols + 2 * cols]
    total, rest, squares, near = wide(0.0), wide(0.0), wide(0.0), wide(sums[0])
    for j in range(lane(), cols, lanes()):
        total += wide(min(chunk, n - j * chunk)) * (wide(sums[2 * j]) - near)
    m = near + all_sum(total) / wide(n)
    for j in range(lane(), cols, lanes()):
        d, size = wide(sums[2 * j]) - m, wide(min(chunk, n - j * chunk))
        rest += size * d
        squares += wide(sums[2 * j + 1]) + size * (d * d)
    put_moments(r, y, means, kept, m, all_sum(rest) / wide(n), all_sum(squares), wide(n), divisor, rooted)


def moments_dx_row(r, dx, g, g_mean, x, kept, rows, cols):
    k = 0.0 if g is None else g[r] * kept[3 * r + 2]
    shift = (0.0 if g_mean is None else g_mean[r] / real(cols)) - kept[3 * r + 1] * k
    put_row(moments_dx_run, cols, dx[r * cols : r * cols + cols], x[r * cols : r * cols + cols], kept[3 * r], k, shift)


def moments_dx_run(first, cols, dx, x, m, k, shift):
    for j in run_at(first, cols):
        dx[j] = (x[j] - m) * k + shift


# ---- the op ------------------------------------------------------------------------------------------------------------------------
def in_rows(x: Any, plan: Reduction) -> Any:
    """x with the reduced axes as its last ones."""
    x = gathered(x, plan)
    return x if plan.inner == 1 else transpose(share(x, (plan.outer, plan.n, plan.inner)), 1, 2)


def from_rows(y: Any, shape: tuple[int, ...], plan: Reduction) -> Any:
    """The reverse: a tensor of this shape."""
    return regained(y if plan.inner == 1 else transpose(share(y, (plan.outer, plan.inner, plan.n)), 1, 2), shape, plan)


def regained(y: Any, shape: tuple[int, ...], plan: Reduction) -> Any:
    """The reverse of gathered(): a tensor of this shape."""
    if plan.order is None:
        return reshape(y, shape)
    return permute(reshape(y, [shape[d] for d in plan.order]), sorted(range(len(shape)), key=plan.order.__getitem__))


@custom(inputs=1, title="var", internal=True)
def moments(x, axis=None, correction=0.0, keepdims=False, rooted=False, both=False, *, tracked=()):
    """The variance over the axes, with `rooted` the standard deviation, with `both` and the mean."""
    plan = reduction("var", x.shape, axis, keepdims)
    n, rows = plan.n, plan.outer * plan.inner
    y, *means = [like(x, plan.shape) for _ in range(1 + both)]
    kept = new((rows, 3), x.spec.computed, x.device) if any(tracked) else None
    if not n:
        y, *means = [filled(plan.shape, float("nan"), x.dtype, x.device) for _ in range(1 + both)]
    elif rows:
        outs, ends = (y, means[0] if both else None, kept), (float64.type(max(n - correction, 0.0)), bool(rooted))
        x, chunks = in_rows(x, plan), 1 if rows >= 64 or n <= 2 * CHUNK else -(-n // CHUNK)
        if chunks == 1:
            launch("row", moments_row, outs, (x,), (*ends, rows, n))
        else:
            sums = new((rows, chunks, 2), float64, x.device)
            launch("row", piece_row, (sums,), (x,), (n, chunks, rows * chunks, CHUNK), x.dtype)
            launch("row", joined_row, outs, (sums,), (n, CHUNK, *ends, rows, chunks), x.dtype)
    return ((y, *means) if both else y), {"kept": kept}


@moments.backward
def moments_dx(gs, x, kept, axis, keepdims):
    plan = reduction("var", x.shape, axis, keepdims)
    given = in_rows(x, plan)
    dx = like(given, dtype=x.spec.computed)
    if dx.size:
        over_rows(moments_dx_row, (dx,), (gs[0], gs[1] if len(gs) > 1 else None, given, kept), plan.n)
    return from_rows(dx, x.shape, plan)


@moments.graph
def moments_ddx(gs, x, axis, correction, keepdims, rooted):
    x, n = widened(x), reduction("var", x.shape, axis, keepdims).n
    parts, divisor = [], max(n - correction, 0.0)
    if gs[0] is not None:
        slope = mul(gs[0], (1 if rooted else 2) / divisor if divisor else float("inf"))
        if rooted:
            y = moments(x, axis, correction, keepdims, True, False)
            slope = where(eq(y, 0.0), 0.0, div(slope, where(eq(y, 0.0), 1.0, y)))
        parts.append(mul(sub(x, mean(x, axis=axis, keepdims=True)), spread(slope, x.shape, axis, keepdims)))
    if gs[-1] is not None and len(gs) > 1:
        parts.append(spread(mul(gs[1], 1 / (n or 1)), x.shape, axis, keepdims))
    return parts[0] if len(parts) == 1 else add(*parts)


def moments_of(name: str, x: Any, axis: Axis, correction: Any, keepdims: bool, rooted: bool, both: bool = False) -> Any:
    x = floats_only(name, x)
    axes = axes_of("var", axis, x.ndim)
    correction = checked_number("var", "correction", int(correction) if isinstance(correction, bool) else correction)
    return moments(x, axes, float(correction), bool(keepdims), rooted, both)


@composed
def var(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Variance over the axes: sum of squared deviations / (n - correction). Accurate far from zero too.
    The default is NumPy's and the array API's; PyTorch's is correction=1, which unbiased=True is another name of.
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.var(fp.tensor([1.0, 3.0])).item()
    1.0"""
    return moments_of("var", x, axis, correction, keepdims, False)


@composed
def std(x: Any, axis: Axis = None, correction: float = 0, keepdims: bool = False) -> Any:
    """Square root of var(); its gradient where the variance is zero is zero.
    Right also where the variance itself would be too large or too small for the type. The default is NumPy's and the array API's;
    PyTorch's is correction=1.
    Shapes: as sum. Raises DTypeError unless x is of floats.
    >>> fp.std(fp.tensor([1.0, 3.0])).item()
    1.0"""
    return moments_of("std", x, axis, correction, keepdims, True)
