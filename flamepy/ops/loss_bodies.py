"""The row bodies of losses: what one row of logits computes. A number of a row is written by one of its lanes.

In float32 and float64 the gradient is made with the loss, in one pass. Of 16-bit logits two numbers a row are kept, from which backward
makes it: see half_cross_entropy in cross_entropy.py. `weight`: what each class counts, or None. `found`: its last number is what a mean
divides by.
"""

from ..backend.formula.row_words import (
    LINE,
    RUN,
    TOGETHER,
    barrier,
    element,
    lane,
    lanes,
    line_space,
    long_sum,
    long_sums,
    put_row,
    run_at,
    run_space,
    top_and_sum,
    top_of,
    wide,
)
from ..backend.formula.words import fmax
from ..core.words import INF, exp_down, log, real, select
from .rows import each_column, higher, numbers


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


def gaps(first, cols, x, top, weight):
    total = 0.0
    for j in run_at(first, cols):
        total += (top - x[j]) * of_class(weight, j)
    return total


def of_class(weight, j):
    if weight is None:
        return 1.0
    return weight[j]


def mean_weight(weight, smoothing, cols):
    """The mean over classes, where it is asked for."""
    if weight is None:
        return 1.0
    return long_sum(numbers, cols, weight) / real(cols) if smoothing != 0.0 else 0.0


def target_sum(counts, mean, weight, smoothing):
    """What the numbers of a row's target add up to, whose id `counts` so much. mean: mean_weight()."""
    if weight is None:
        return 1.0
    return (1.0 - smoothing) * counts + smoothing * mean


def loss_of(x, own, top, total, weight, whole, smoothing, z, cols):
    """-log softmax(x)[own], mixed with the mean over classes, and z times the square of logsumexp(x). whole: target_sum()."""
    gap = 0.0
    if smoothing != 0.0:
        gap = long_sum(gaps, cols, x, top, weight) * smoothing / real(cols)
    if z != 0.0:
        gap += z * (top + log(total)) * (top + log(total)) * of_class(weight, own)
    return (1.0 - smoothing) * (top - x[own]) * of_class(weight, own) + gap + whole * log(total)


def growth(top, total, whole, z, counts):
    """What the gradient has of the softmax."""
    return whole if z == 0.0 else whole + 2.0 * z * (top + log(total)) * counts


def passing_sum(x, cols):
    """The largest number of a row, and the sum of its exponentials, of which none is kept."""
    if LINE == 0:
        return top_and_sum(None, x, cols)
    top = top_of(x, cols)
    return top, kept_sum(run_space(x), x, top, cols)


def no_gradient(first, cols, line):
    for j in run_at(first, cols):
        line[j] = 0.0


def kept_gradient(first, cols, e, factor, spread, weight):
    for j in run_at(first, cols):
        e[j] = e[j] * factor - spread * of_class(weight, j)


def gradient(first, cols, dx, x, top, factor, spread, weight):
    for j in run_at(first, cols):
        dx[j] = exp_down(x[j] - top) * factor - spread * of_class(weight, j)


def class_of(ids, r, cols):
    """The id of a row; one that is no class (check_ids() says so, perhaps later) as the nearest class."""
    return min(max(ids[r], 0), cols - 1)


def mean_share(found, mean):
    """What a row counts in the result."""
    return 1.0 / real(found[found.size - 1]) if mean else 1.0


def weights_row(r, total, ids, weight, ignore, classes, rows, cols):
    """The sum of the weights of the ids, of which all are one row."""
    found = long_sum(weights_of, cols, ids, weight, ignore, classes)
    if lane() == 0:
        total[r] = found


def weights_of(first, cols, ids, weight, ignore, classes):
    total = 0.0
    for j in run_at(first, cols):
        if ids[j] != ignore:
            total += weight[class_of(ids, j, classes)]
    return total


def cross_entropy_row(r, loss, dx, x, ids, found, weight, smoothing, z, ignore, mean, rows, cols):
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
    counts = of_class(weight, own)
    whole = target_sum(counts, mean_weight(weight, smoothing, cols), weight, smoothing)
    if dx is not None:
        e, scale = dx[first : first + cols], mean_share(found, mean)
        factor, spread = scale / total * growth(top, total, whole, z, counts), scale * smoothing / real(cols)
        if LINE > 0:
            put_row(kept_gradient, cols, e, factor, spread, weight)
        else:
            put_row(gradient, cols, e, x, top, factor, spread, weight)
        barrier()
        if lane() == 0:
            e[own] -= scale * (1.0 - smoothing) * counts
    value = loss_of(x, own, top, total, weight, whole, smoothing, z, cols)
    if lane() == 0:
        loss[r] = value


def losses_and_factors(many, tops, totals, gaps, counts, usual, weight, scale, smoothing, z, cols):
    """Of each row what the loss has beside the id's own logit goes into gaps, and what the gradient has of the softmax into totals."""
    for r in range(many):
        whole = target_sum(counts[r], usual, weight, smoothing)
        gaps[r] = (gaps[r] * smoothing / real(cols) if smoothing != 0.0 else 0.0) + whole * log(totals[r])
        if z != 0.0:
            gaps[r] += z * (tops[r] + log(totals[r])) * (tops[r] + log(totals[r])) * counts[r]
        totals[r] = scale / totals[r] * growth(tops[r], totals[r], whole, z, counts[r])


def cross_entropy_rows(first, loss, dx, x, ids, found, weight, smoothing, z, ignore, mean, rows, cols):
    """cross_entropy_row for the TOGETHER rows from `first` on, of which some may be missing: a vector has one number of each of them."""
    e, tops, totals, gaps = line_space(x), run_space(x)[:TOGETHER], run_space(x)[:TOGETHER], run_space(x)[:TOGETHER]
    counts = run_space(x)[:TOGETHER]
    many, scale, usual = min(TOGETHER, rows - first), mean_share(found, mean), mean_weight(weight, smoothing, cols)
    for r in range(TOGETHER):
        tops[r], totals[r], gaps[r] = -INF, 0.0, 0.0
        counts[r] = of_class(weight, class_of(ids, element(first + min(r, many - 1)), cols))
    for j in range(cols):
        column, from_here = e[j * TOGETHER : j * TOGETHER + TOGETHER], x[first * cols + j :]
        for r in range(TOGETHER):
            column[r] = from_here[element(min(r, many - 1) * cols)]
            tops[r] = fmax(tops[r], column[r])
    for j in range(cols):
        column, times = e[j * TOGETHER : j * TOGETHER + TOGETHER], of_class(weight, j)
        for r in range(TOGETHER):
            gaps[r] += (tops[r] - column[r]) * times
            column[r] = exp_down(column[r] - tops[r])
            totals[r] += column[r]
    losses_and_factors(TOGETHER, tops, totals, gaps, counts, usual, weight, scale, smoothing, z, cols)
    if dx is not None:
        for j in range(cols):
            column, line, times = e[j * TOGETHER : j * TOGETHER + TOGETHER], dx[first * cols + j :], of_class(weight, j)
            for r in range(TOGETHER):
                line[element(min(r, many - 1) * cols)] = column[r] * totals[r] - scale * smoothing / real(cols) * times
    for r in range(many):
        at, kept = (first + r) * cols, ids[element(first + r)] != ignore
        own = element(at + class_of(ids, element(first + r), cols))
        loss[element(first + r)] = (1.0 - smoothing) * (tops[r] - x[own]) * counts[r] + gaps[r] if kept else 0.0
        if dx is not None and kept:
            dx[own] -= scale * (1.0 - smoothing) * counts[r]
        elif dx is not None:
            for j in range(cols):
                dx[element(at + j)] = 0.0


def cross_entropy_beside(first, many, loss, dx, x, ids, found, weight, smoothing, z, ignore, mean, rows, cols, apart):
    """cross_entropy_row for rows side by side: see rows.py. The exponentials are written with a gradient and without, for the same bits."""
    tops, totals, gaps, counts = run_space(x)[:many], run_space(x)[:many], run_space(x)[:many], run_space(x)[:many]
    spare, scale, r = run_space(x)[:many], mean_share(found, mean), first // (cols * apart) * apart + first % apart
    loss, ids = loss[r : r + many], ids[r : r + many]
    for i in range(many):
        tops[i], totals[i], gaps[i] = -INF, 0.0, 0.0
    each_column(higher, None, x, None, tops, totals, first, cols, apart)
    for j in range(cols):
        at, times = first + j * apart, of_class(weight, j)
        column, e = x[at : at + many], spare if dx is None else dx[at : at + many]
        for i in range(many):
            gaps[i] += (tops[i] - column[i]) * times
            value = exp_down(column[i] - tops[i])
            e[i] = value
            totals[i] += value
    for i in range(many):
        own = class_of(ids, i, cols)
        counts[i], spare[i] = of_class(weight, own), x[element(first + own * apart + i)]
    usual = mean_weight(weight, smoothing, cols)
    losses_and_factors(many, tops, totals, gaps, counts, usual, weight, scale, smoothing, z, cols)
    for i in range(many):
        kept = ids[i] != ignore
        loss[i] = select(kept, (1.0 - smoothing) * (tops[i] - spare[i]) * counts[i] + gaps[i], 0.0)
        gaps[i], counts[i] = select(kept, 1.0, 0.0), select(kept, scale * (1.0 - smoothing) * counts[i], 0.0)
    if dx is not None:
        for j in range(cols):
            e, spread = dx[first + j * apart :], scale * smoothing / real(cols) * of_class(weight, j)
            for i in range(many):
                e[i] = select(gaps[i] == 0.0, 0.0, e[i] * totals[i] - spread)
        for i in range(many):
            dx[element(first + class_of(ids, i, cols) * apart + i)] -= counts[i]


cross_entropy_row.together, cross_entropy_row.beside = cross_entropy_rows, cross_entropy_beside  # type: ignore[attr-defined]


def half_cross_entropy_row(r, loss, kept, x, ids, weight, smoothing, z, ignore, rows, cols):
    """The loss of one row, and what its gradient will be made of: the largest number, and the sum of the exponentials."""
    x, own = x[r * cols : r * cols + cols], class_of(ids, r, cols)
    if ids[r] == ignore:
        if lane() == 0:
            loss[r] = kept[2 * r] = kept[2 * r + 1] = 0.0
        return
    top, total = passing_sum(x, cols)
    whole = target_sum(of_class(weight, own), mean_weight(weight, smoothing, cols), weight, smoothing)
    value = loss_of(x, own, top, total, weight, whole, smoothing, z, cols)
    if lane() == 0:
        kept[2 * r] = top
        kept[2 * r + 1] = total
        loss[r] = value


def half_cross_entropy_dx_row(r, dx, g, x, ids, found, kept, weight, smoothing, z, ignore, mean, each, rows, cols):
    """g: the cotangent, None for 1; with `each` it has a number for each row."""
    first, own = r * cols, class_of(ids, r, cols)
    dx, x = dx[first : first + cols], x[first : first + cols]
    if ids[r] == ignore:
        put_row(no_gradient, cols, dx)
        return
    scale, counts = mean_share(found, mean), of_class(weight, own)
    if g is not None:
        scale = scale * g[r if each else 0]
    top, total, spread = kept[2 * r], kept[2 * r + 1], scale * smoothing / real(cols)
    whole = target_sum(counts, mean_weight(weight, smoothing, cols), weight, smoothing)
    factor = scale / total * growth(top, total, whole, z, counts)
    put_row(gradient, cols, dx, x, top, factor, spread, weight)
    barrier()
    if lane() == 0:  # rounded once: near 1 a bfloat16 has no digits of what is left to 1
        dx[own] = (exp_down(x[own] - top) * factor - spread * counts) - scale * (1.0 - smoothing) * counts


# ---- losses of log-probabilities ---------------------------------------------------------------------------------------------------
def nll_row(r, loss, x, ids, weight, ignore, classes, rows, cols):
    """-x[id]. A row reads one number, so that its length, `cols`, is 1 to whoever plans the launch."""
    if lane() == 0:
        own = class_of(ids, r, classes)
        loss[r] = 0.0 if ids[r] == ignore else -x[r * classes + own] * of_class(weight, own)


def nll_dx_row(r, dx, g, ids, found, weight, ignore, mean, each, rows, cols):
    """g: the cotangent; with `each` it has a number for each row."""
    line, own = dx[r * cols : r * cols + cols], class_of(ids, r, cols)
    put_row(no_gradient, cols, line)
    barrier()
    if lane() == 0 and ids[r] != ignore:
        counts = of_class(weight, own)
        line[own] = -(g[r if each else 0] * counts / real(found[found.size - 1]) if mean else g[r if each else 0] * counts)


def nll_beside(first, many, loss, x, ids, weight, ignore, rows, cols, apart):
    """nll_row for rows side by side: see rows.py."""
    r = first // (cols * apart) * apart + first % apart
    for i in range(many):
        own = class_of(ids, element(r + i), cols)
        value = -x[element(first + own * apart + i)] * of_class(weight, own)
        loss[element(r + i)] = select(ids[element(r + i)] == ignore, 0.0, value)


def nll_dx_beside(first, many, dx, g, ids, found, weight, ignore, mean, each, rows, cols, apart):
    """nll_dx_row for rows side by side."""
    share, r = run_space(dx)[:many], first // (cols * apart) * apart + first % apart
    ids, g = ids[r : r + many], g[r : r + many] if each else g
    for i in range(many):
        counts = -(g[i if each else 0] * of_class(weight, class_of(ids, i, cols)))
        share[i] = select(ids[i] == ignore, 0.0, counts / real(found[found.size - 1]) if mean else counts)
    for j in range(cols):
        line = dx[first + j * apart : first + j * apart + many]
        for i in range(many):
            line[i] = select(class_of(ids, i, cols) == j, share[i], 0.0)


nll_row.beside, nll_dx_row.beside = nll_beside, nll_dx_beside  # type: ignore[attr-defined]


# ---- margins ------------------------------------------------------------------------------------------------------------------------
def short_by(x, own, j, margin):
    """How much the class `own` lacks to be so much better than class j; NaN passes."""
    gap = margin - (x[own] - x[j])
    return select(gap <= 0.0, 0.0, gap)


def shortfalls(first, cols, x, own, margin, square):
    total = 0.0
    for j in run_at(first, cols):
        gap = short_by(x, own, j, margin)
        total += select(j == own, 0.0, gap * gap if square else gap)
    return total


def slopes(first, cols, dx, x, own, margin, square, scale):
    for j in run_at(first, cols):
        gap = short_by(x, own, j, margin)
        dx[j] = select((j == own) | (gap <= 0.0), 0.0, 2.0 * gap * scale if square else scale)


def multi_margin_row(r, loss, dx, x, ids, found, weight, margin, square, mean, rows, cols):
    """The mean over the classes of what the row's own lacks, or of its square, and (unless dx is None) its gradient."""
    first, own = r * cols, class_of(ids, r, cols)
    x, scale = x[first : first + cols], of_class(weight, own) / real(cols)
    total = long_sum(shortfalls, cols, x, own, margin, square)
    if lane() == 0:
        loss[r] = scale * total
    if dx is not None:
        dx = dx[first : first + cols]
        put_row(slopes, cols, dx, x, own, margin, square, scale * mean_share(found, mean))
        barrier()
        total = long_sum(numbers, cols, dx)
        if lane() == 0:
            dx[own] = -total


def outside(first, cols, dx, x, has, own, step):
    """What class `own` lacks beside all that the row has not, added up, and for how many; their steps of the gradient."""
    total, count = 0.0, 0.0
    for j in run_at(first, cols):
        gap = select(has[j] != 0.0, 0.0, short_by(x, own, j, 1.0))
        total += gap
        count += select(gap == 0.0, 0.0, 1.0)
        if has[j] == 0.0:  # the others are lane 0's
            dx[j] += select(gap == 0.0, 0.0, step)
    return total, count


def multilabel_margin_row(r, loss, dx, has, listed, x, ids, step, rows, cols):
    """The sum over the classes that a row has of what they lack, divided by how many there are, and its gradient. has: which those are;
    listed: the ids before the first that is negative, then -1; step: one of the gradient."""
    first, many, total = r * cols, 0, 0.0
    dx, has, x, ids = dx[first : first + cols], has[first : first + cols], x[first : first + cols], ids[first : first + cols]
    while many < cols and ids[many] >= 0:
        many += 1
    for j in range(lane(), cols, lanes()):
        listed[first + j] = ids[j] if j < many else -1
    put_row(no_gradient, cols, has)
    put_row(no_gradient, cols, dx)
    barrier()
    for d in range(many if lane() == 0 else 0):
        has[class_of(ids, d, cols)] = 1.0
    barrier()
    for d in range(many):
        own = class_of(ids, d, cols)
        lacks, count = long_sums(outside, cols, dx, x, has, own, step)
        total += lacks
        if lane() == 0:
            dx[own] -= step * count
    if lane() == 0:
        loss[r] = total / real(cols)
