"""Row ops: softmax and log_softmax; the norms are in row_norms.py. A body is written once, over one row, for every backend.

A body gets the row number, outs, ins and constants, then the number of rows and their length; arrays are flat, and it reads and
writes its row through slices. An operand that is not there is None: the compiler leaves out what asks for it. long_sum() adds up a row,
put_row() writes one, run by run (backend/formula/row_words.py). Beside each fused backward stands the same rule in ops, for create_graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..backend.formula.row_words import LINE, RUN, line_space, long_sum, put_row, run_at, run_space, top_and_sum
from ..backend.formula.words import fmax
from ..core.custom import custom
from ..core.op import launch, like
from ..core.ops.axes import one_axis
from ..core.ops.pointwise import exp_op
from ..core.ops.reduce import in_type
from ..core.ops.reduce import sum as sum_op
from ..core.ops.shape import transpose
from ..core.words import INF, exp_down, log
from ..dtypes import HALF, computed


def along(name: str, x: Any, axis: int) -> tuple[Any, int]:
    """x with `axis` moved to the end, and the axis as a non-negative int."""
    a = one_axis(name, axis, x.ndim)
    return (x if a >= x.ndim - 1 else transpose(x, a, -1)), a


def back(y: Any, a: int) -> Any:
    return y if a >= y.ndim - 1 else transpose(y, a, -1)


def over_rows(body: Any, outs: Sequence[Any], ins: Sequence[Any], cols: int, consts: tuple = (), dtype: Any = None) -> None:
    """Run a body over all rows of the first out; `dtype`: see launch()."""
    rows = outs[0].size // cols if cols else 0
    if rows:
        launch("row", body, outs, ins, (*consts, rows, cols), dtype)


def along_axis(name: str, body: Any, axis: int, *xs: Any) -> Any:
    """What a body makes of the rows along an axis of xs, which are of one shape: a Tensor of that shape, typed like the first."""
    a, shape = one_axis(name, axis, xs[0].ndim), xs[0].shape
    cols, inner = (shape[a], math.prod(shape[a + 1 :])) if shape else (1, 1)
    if inner > 1 and 0 < cols <= RUN and xs[0].device.beside and not any([x.dtype in HALF for x in xs]):
        y = like(xs[0])
        if y.size:
            launch("beside", body, (y,), (*xs, None)[:2], (y.size // cols, cols, inner))
        return y
    if inner > 1:  # as matrices: turned block by block, and faster than two axes of many
        xs = tuple([transpose(x.reshape((math.prod(shape[:a]), cols, inner)), 1, 2) for x in xs])
    y = like(xs[0])
    over_rows(body, (y,), xs, cols)
    return transpose(y, 1, 2).reshape(shape) if inner > 1 else y


# What long_sum() adds up a run of.
def numbers(first, cols, x):
    total = 0.0
    for j in run_at(first, cols):
        total += x[j]
    return total


def products(first, cols, x, y):
    total = 0.0
    for j in run_at(first, cols):
        total += x[j] * y[j]
    return total


# What a body does with rows side by side is body.beside: number j of row i is at first + j * apart + i, so that a vector holds one number
# each of many rows. It goes through them by each_column().
def each_column(run, y, x, z, top, total, first, cols, apart):
    """run(y, x, z, top, total) for one number of each row after the other; y and z may be None."""
    for at in range(first, first + cols * apart, apart):
        end = at + total.size
        run(None if y is None else y[at:end], x[at:end], None if z is None else z[at:end], top, total)


def higher(y, x, z, top, total):
    for i in range(x.size):
        top[i] = fmax(top[i], x[i])


def grown(e, x, z, top, total):
    for i in range(x.size):
        value = exp_down(x[i] - top[i])
        if e is not None:
            e[i] = value
        total[i] += value


def tops_and_totals(e, x, top, total, first, cols, apart):
    """top_and_sum() of each row."""
    for i in range(top.size):
        top[i], total[i] = -INF, 0.0
    each_column(higher, None, x, None, top, total, first, cols, apart)
    each_column(grown, e, x, None, top, total, first, cols, apart)


def totals(g, y, total, first, cols, apart):
    """The sum of each row of g, or of g * y."""
    for i in range(total.size):
        total[i] = 0.0
    each_column(more, None, g, y, total, total, first, cols, apart)


def more(_, g, y, top, total):
    for i in range(g.size):
        total[i] += g[i] if y is None else g[i] * y[i]


# ---- softmax -----------------------------------------------------------------------------------------------------------------
def softmax_row(r, y, x, rows, cols):
    """The exponentials are kept in y, unless nothing that was written stays near."""
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    if LINE > 0:
        _, total = top_and_sum(y, x, cols)
        put_row(scaled, cols, y, y, 1.0 / total)
    else:
        softmax_again(y, x, cols)


def half_softmax_row(r, y, x, rows, cols):
    """The same for a y that would round the exponentials: they are kept aside, or where they are too many computed twice."""
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    if 0 < cols <= LINE:  # never where LINE is 0, and the compiler sees it
        e = line_space(x)[:cols]
        _, total = top_and_sum(e, x, cols)
        put_row(scaled, cols, y, e, 1.0 / total)
    else:
        softmax_again(y, x, cols)


def softmax_again(y, x, cols):
    """The same with each exponential computed twice, and y written once."""
    top, total = top_and_sum(None, x, cols)
    put_row(weights, cols, y, x, top, 1.0 / total)


def scaled(first, cols, y, e, scale):
    for j in run_at(first, cols):
        y[j] = e[j] * scale


def weights(first, cols, y, x, top, scale):
    for j in run_at(first, cols):
        y[j] = exp_down(x[j] - top) * scale


def softmax_dx_row(r, dx, g, y, rows, cols):
    dx, g, y = dx[r * cols : r * cols + cols], g[r * cols : r * cols + cols], y[r * cols : r * cols + cols]
    put_row(softmax_dx_run, cols, dx, g, y, long_sum(products, cols, g, y))


def softmax_dx_run(first, cols, dx, g, y, dot):
    for j in run_at(first, cols):
        dx[j] = y[j] * (g[j] - dot)


def softmax_beside(first, many, y, x, _, rows, cols, apart):
    top, total = run_space(x)[:many], run_space(x)[:many]
    tops_and_totals(y, x, top, total, first, cols, apart)
    each_column(shared, y, x, None, top, total, first, cols, apart)


def shared(y, x, z, top, total):
    for i in range(y.size):
        y[i] /= total[i]


def softmax_dx_beside(first, many, dx, g, y, rows, cols, apart):
    total = run_space(g)[:many]
    totals(g, y, total, first, cols, apart)
    each_column(softmax_dx_column, dx, g, y, total, total, first, cols, apart)


def softmax_dx_column(dx, g, y, top, total):
    for i in range(g.size):
        dx[i] = y[i] * (g[i] - total[i])


softmax_row.beside, softmax_dx_row.beside = softmax_beside, softmax_dx_beside  # type: ignore[attr-defined]


@custom(inputs=1, home="both")
def softmax(x, axis=-1, dtype=None):
    """exp(x) / sum(exp(x)) along one axis, without overflow, of x in another dtype if one is given.
    Shapes: any; the result has that of x. Raises IndexOutOfRange for an axis that x does not have.
    >>> fp.softmax(fp.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]"""
    x = x if dtype is None else in_type(x, dtype)
    return along_axis("softmax", softmax_row if x.dtype == x.spec.computed else half_softmax_row, axis, x)


softmax.backward(lambda g, y, source, axis: in_type(along_axis("softmax", softmax_dx_row, axis, g, y), computed(source)))
softmax.graph(lambda g, y, source, axis: in_type(y * (g - sum_op(g * y, axis=axis, keepdims=True)), computed(source)))


def log_softmax_row(r, y, x, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    top, total = top_and_sum(None, x, cols)
    put_row(logarithms, cols, y, x, top, log(total))


def logarithms(first, cols, y, x, top, shift):
    for j in run_at(first, cols):
        y[j] = (x[j] - top) - shift


def log_softmax_dx_row(r, dx, g, y, rows, cols):
    dx, g, y = dx[r * cols : r * cols + cols], g[r * cols : r * cols + cols], y[r * cols : r * cols + cols]
    put_row(log_softmax_dx_run, cols, dx, g, y, long_sum(numbers, cols, g))


def log_softmax_dx_run(first, cols, dx, g, y, total):
    for j in run_at(first, cols):
        dx[j] = g[j] - exp_down(y[j]) * total


def log_softmax_beside(first, many, y, x, _, rows, cols, apart):
    top, total = run_space(x)[:many], run_space(x)[:many]
    tops_and_totals(None, x, top, total, first, cols, apart)
    for i in range(many):
        total[i] = log(total[i])
    each_column(log_column, y, x, None, top, total, first, cols, apart)


def log_column(y, x, z, top, shift):
    for i in range(y.size):
        y[i] = (x[i] - top[i]) - shift[i]


def log_softmax_dx_beside(first, many, dx, g, y, rows, cols, apart):
    total = run_space(g)[:many]
    totals(g, None, total, first, cols, apart)
    each_column(log_softmax_dx_column, dx, g, y, total, total, first, cols, apart)


def log_softmax_dx_column(dx, g, y, top, total):
    for i in range(g.size):
        dx[i] = g[i] - exp_down(y[i]) * total[i]


log_softmax_row.beside, log_softmax_dx_row.beside = log_softmax_beside, log_softmax_dx_beside  # type: ignore[attr-defined]


@custom(inputs=1, home="both")
def log_softmax(x, axis=-1, dtype=None):
    """log(softmax(x)) along one axis, accurate where softmax is tiny, of x in another dtype if one is given.
    Shapes: any; the result has that of x. Raises IndexOutOfRange for an axis that x does not have.
    >>> [round(v, 4) for v in fp.log_softmax(fp.tensor([0.0, 0.0])).tolist()]
    [-0.6931, -0.6931]"""
    return along_axis("log_softmax", log_softmax_row, axis, x if dtype is None else in_type(x, dtype))


log_softmax.backward(lambda g, y, source, axis: in_type(along_axis("log_softmax", log_softmax_dx_row, axis, g, y), computed(source)))
log_softmax.graph(lambda g, y, source, axis: in_type(g - exp_op(y) * sum_op(g, axis=axis, keepdims=True), computed(source)))
