"""The row bodies of cross_entropy: what one row of logits computes. A number of a row is written by one of its lanes.

In float32 and float64 the gradient is made with the loss, in one pass. Of 16-bit logits two numbers a row are kept, from which backward
makes it: see half_cross_entropy in losses.py.
"""

from __future__ import annotations

from ..backend.formula.row_words import (
    LINE,
    RUN,
    TOGETHER,
    barrier,
    element,
    lane,
    line_space,
    long_sum,
    put_row,
    run_at,
    run_space,
    top_and_sum,
    top_of,
    wide,
)
from ..backend.formula.words import fmax
from ..core.words import INF, exp_down, log, real


def kept_sum(e, x, top, cols):
    """The sum of a row's exponentials, which stay in e; where e has room for a run alone, those of the last run do.

    A nest of loops is one function to the compiler: the same code, so the same bits, with a gradient and without. What is added up where it
    is made need not be read back, which in vectors of another length has to wait for the writing."""
    total = wide(0.0)
    for first in range(0, cols, RUN):
        at = first if cols <= e.size else 0
        run, kept = x[first : first + RUN], e[at : at + RUN]
        short = 0.0
        for j in run_at(0, min(RUN, cols - first)):
            value = exp_down(run[j] - top)
            kept[j] = value
            short += value
        total += wide(short)
    return real(total)


def gaps(first, cols, x, top):
    total = 0.0
    for j in run_at(first, cols):
        total += top - x[j]
    return total


def loss_of(x, own, top, total, smoothing, z, cols):
    """-log softmax(x)[own], mixed with the mean over classes, and z times the square of logsumexp(x)."""
    gap = 0.0
    if smoothing != 0.0:
        gap = long_sum(gaps, cols, x, top) * smoothing / real(cols)
    if z != 0.0:
        gap += z * (top + log(total)) * (top + log(total))
    return (1.0 - smoothing) * (top - x[own]) + gap + log(total)


def growth(top, total, z):
    """What the z-loss multiplies the softmax with in the gradient."""
    return 1.0 if z == 0.0 else 1.0 + 2.0 * z * (top + log(total))


def passing_sum(x, cols):
    """The largest number of a row, and the sum of its exponentials, of which none is kept."""
    if LINE == 0:
        return top_and_sum(None, x, cols)
    top = top_of(x, cols)
    return top, kept_sum(run_space(x), x, top, cols)


def no_gradient(first, cols, line):
    for j in run_at(first, cols):
        line[j] = 0.0


def kept_gradient(first, cols, e, factor, spread):
    for j in run_at(first, cols):
        e[j] = e[j] * factor - spread


def gradient(first, cols, dx, x, top, factor, spread):
    for j in run_at(first, cols):
        dx[j] = exp_down(x[j] - top) * factor - spread


def class_of(ids, r, cols):
    """The id of a row; one that is no class (check_ids() says so, perhaps later) as the nearest class."""
    return min(max(ids[r], 0), cols - 1)


def cross_entropy_row(r, loss, dx, x, ids, found, smoothing, z, ignore, mean, rows, cols):
    """The loss of one row, and (unless dx is None) its gradient: softmax minus the target distribution, over the ids that count."""
    first, own = r * cols, class_of(ids, r, cols)
    x = x[first : first + cols]
    if ids[r] == ignore:
        if lane() == 0:
            loss[r] = 0.0
        if dx is not None:
            put_row(no_gradient, cols, dx[first : first + cols])
        return
    if dx is not None and LINE > 0:  # what is written into dx stays near
        top = top_of(x, cols)
        total = kept_sum(dx[first : first + cols], x, top, cols)
    else:
        top, total = passing_sum(x, cols)
    if dx is not None:
        e = dx[first : first + cols]
        scale = 1.0 / real(found[2]) if mean else 1.0
        factor, spread = scale / total * growth(top, total, z), scale * smoothing / real(cols)
        if LINE > 0:
            put_row(kept_gradient, cols, e, factor, spread)
        else:
            put_row(gradient, cols, e, x, top, factor, spread)
        barrier()
        if lane() == 0:
            e[own] -= scale * (1.0 - smoothing)
    value = loss_of(x, own, top, total, smoothing, z, cols)
    if lane() == 0:
        loss[r] = value


def cross_entropy_rows(first, loss, dx, x, ids, found, smoothing, z, ignore, mean, rows, cols):
    """cross_entropy_row for the TOGETHER rows from `first` on, of which some may be missing: a vector has one number of each of them."""
    e, tops, totals, gaps = line_space(x), run_space(x)[:TOGETHER], run_space(x)[:TOGETHER], run_space(x)[:TOGETHER]
    many, scale = min(TOGETHER, rows - first), 1.0 / real(found[2]) if mean else 1.0
    for r in range(TOGETHER):
        tops[r], totals[r], gaps[r] = -INF, 0.0, 0.0
    for j in range(cols):
        column, from_here = e[j * TOGETHER : j * TOGETHER + TOGETHER], x[first * cols + j :]
        for r in range(TOGETHER):
            column[r] = from_here[element(min(r, many - 1) * cols)]
            tops[r] = fmax(tops[r], column[r])
    for at in range(0, cols * TOGETHER, TOGETHER):
        column = e[at : at + TOGETHER]
        for r in range(TOGETHER):
            gaps[r] += tops[r] - column[r]
            column[r] = exp_down(column[r] - tops[r])
            totals[r] += column[r]
    for r in range(TOGETHER):
        gaps[r] = (gaps[r] * smoothing / real(cols) if smoothing != 0.0 else 0.0) + log(totals[r])
        if z != 0.0:
            gaps[r] += z * (tops[r] + log(totals[r])) * (tops[r] + log(totals[r]))
        totals[r] = scale / totals[r] * growth(tops[r], totals[r], z)
    if dx is not None:
        for j in range(cols):
            column, line = e[j * TOGETHER : j * TOGETHER + TOGETHER], dx[first * cols + j :]
            for r in range(TOGETHER):
                line[element(min(r, many - 1) * cols)] = column[r] * totals[r] - scale * smoothing / real(cols)
    for r in range(many):
        at, counts = (first + r) * cols, ids[element(first + r)] != ignore
        own = element(at + class_of(ids, element(first + r), cols))
        loss[element(first + r)] = (1.0 - smoothing) * (tops[r] - x[own]) + gaps[r] if counts else 0.0
        if dx is not None and counts:
            dx[own] -= scale * (1.0 - smoothing)
        elif dx is not None:
            for j in range(cols):
                dx[element(at + j)] = 0.0


cross_entropy_row.together = cross_entropy_rows  # type: ignore[attr-defined]


def half_cross_entropy_row(r, loss, kept, x, ids, smoothing, z, ignore, rows, cols):
    """The loss of one row, and what its gradient will be made of: the largest number, and the sum of the exponentials."""
    x, own = x[r * cols : r * cols + cols], class_of(ids, r, cols)
    if ids[r] == ignore:
        if lane() == 0:
            loss[r] = kept[2 * r] = kept[2 * r + 1] = 0.0
        return
    top, total = passing_sum(x, cols)
    value = loss_of(x, own, top, total, smoothing, z, cols)
    if lane() == 0:
        kept[2 * r] = top
        kept[2 * r + 1] = total
        loss[r] = value


def half_cross_entropy_dx_row(r, dx, g, x, ids, found, kept, smoothing, z, ignore, mean, each, rows, cols):
    """g: the cotangent, None for 1; with `each` it has a number for each row."""
    first, own = r * cols, class_of(ids, r, cols)
    dx, x = dx[first : first + cols], x[first : first + cols]
    if ids[r] == ignore:
        put_row(no_gradient, cols, dx)
        return
    scale = 1.0 / real(found[2]) if mean else 1.0
    if g is not None:
        scale = scale * g[r if each else 0]
    top, total, spread = kept[2 * r], kept[2 * r + 1], scale * smoothing / real(cols)
    factor = scale / total * growth(top, total, z)
    put_row(gradient, cols, dx, x, top, factor, spread)
    barrier()
    if lane() == 0:  # rounded once: near 1 a bfloat16 has no digits of what is left to 1
        dx[own] = (exp_down(x[own] - top) * factor - spread) - scale * (1.0 - smoothing)


# ---- losses of log-probabilities ---------------------------------------------------------------------------------------------------
def nll_row(r, loss, x, ids, ignore, classes, rows, cols):
    """-x[id]. A row reads one number, so that its length, `cols`, is 1 to whoever plans the launch."""
    if lane() == 0:
        loss[r] = 0.0 if ids[r] == ignore else -x[r * classes + class_of(ids, r, classes)]


def nll_dx_row(r, dx, g, ids, found, ignore, mean, each, rows, cols):
    """g: the cotangent; with `each` it has a number for each row."""
    line, own = dx[r * cols : r * cols + cols], class_of(ids, r, cols)
    put_row(no_gradient, cols, line)
    barrier()
    if lane() == 0 and ids[r] != ignore:
        line[own] = -(g[r if each else 0] / real(found[2]) if mean else g[r if each else 0])
