"""The row bodies of layer_norm and rms_norm: what one row computes, forward and backward.

A row is read twice while it stays in cache: for its mean and variance, for its result. Rows that lie far from zero keep what
rounding cut off their mean; rows whose squares are too large or too small for the type are scaled by a power of two first.
"""

from ..backend.formula.row_words import LINE, all_max, barrier, lane, lanes, long_sum, long_sums, put_row, run_at
from ..backend.formula.words import fmax
from ..core.words import EPS, INF, abs, maximum, real, sqrt


def layer_norm_row(r, y, mean, rstd, x, w, b, eps, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    near = middle(x, cols)
    total, square = long_sums(deviations, cols, x, None, near)
    normalise(r, y, mean, rstd, x, None, near, total / real(cols), square / real(cols), w, b, eps, cols)


def residual_norm_row(r, s, y, mean, rstd, x, residual, w, b, eps, rows, cols):
    first = r * cols
    s, y, x, residual = s[first : first + cols], y[first : first + cols], x[first : first + cols], residual[first : first + cols]
    near = middle(x, cols) + middle(residual, cols)
    total, square = sums_of_added(cols, s, x, residual, near)
    if LINE > 0:
        normalise(r, y, mean, rstd, s, None, near, total / real(cols), square / real(cols), w, b, eps, cols)
    else:  # other lanes may have written s
        normalise(r, y, mean, rstd, x, residual, near, total / real(cols), square / real(cols), w, b, eps, cols)


def half_residual_norm_row(r, s, y, mean, rstd, x, residual, w, b, eps, rows, cols):
    """The same for an s that rounds the sum, of which y is made before: it is computed twice."""
    first = r * cols
    s, y, x, residual = s[first : first + cols], y[first : first + cols], x[first : first + cols], residual[first : first + cols]
    near = middle(x, cols) + middle(residual, cols)
    total, square = sums_of_added(cols, s, x, residual, near)
    normalise(r, y, mean, rstd, x, residual, near, total / real(cols), square / real(cols), w, b, eps, cols)


def rounding_norm_row(r, y, xn, mean, rstd, s, x, residual, w, b, eps, rows, cols):
    """A norm whose result is rounded; xn, the row before w and b, is kept for backward. s = x + residual, where there is one."""
    first = r * cols
    y, xn, x, more = y[first : first + cols], xn[first : first + cols], x[first : first + cols], None
    if residual is None:
        near = middle(x, cols)
        total, square = long_sums(deviations, cols, x, None, near)
    else:
        s, residual = s[first : first + cols], residual[first : first + cols]
        near = middle(x, cols) + middle(residual, cols)
        total, square = sums_of_added(cols, s, x, residual, near)
        if LINE > 0:
            x = s
        else:  # other lanes may have written s
            more = residual
    m, k, shift = statistics(r, mean, rstd, x, more, near, total / real(cols), square / real(cols), eps, cols)
    put_row(normalised, cols, xn, x, more, None, None, m, k, shift)
    put_row(normalised, cols, y, x, more, w, b, m, k, shift)


def remade_norm_row(r, y, xn, w, b, rows, cols):
    """y of a norm whose row before w and b was kept."""
    put_row(weighted_run, cols, y[r * cols : r * cols + cols], xn[r * cols : r * cols + cols], w, b)


def weighted_run(first, cols, y, xn, w, b):
    for j in run_at(first, cols):
        y[j] = weighted(xn[j], w, b, j)


def weighted(value, w, b, j):
    if w is not None:
        value = value * w[j]
    if b is not None:
        value = value + b[j]
    return value


def middle(x, cols):
    """A number among those of a row: the mean of four of them, without overflow, and exact where all are equal."""
    step = cols // 4
    return (0.25 * x[0] + 0.25 * x[step]) + (0.25 * x[2 * step] + 0.25 * x[3 * step])


def deviations(first, cols, x, more, near):
    """The sums of x (+ more) - near and of its square."""
    total, square = 0.0, 0.0
    for j in run_at(first, cols):
        value = summed(x, more, j) - near
        total += value
        square += value * value
    return total, square


def sums_of_added(cols, s, x, residual, near):
    """The deviations() of s = x + residual, which is written."""
    if LINE > 0:
        return long_sums(added, cols, s, x, residual, near)
    put_row(plus, cols, s, x, residual)
    return long_sums(deviations, cols, x, residual, near)


def plus(first, cols, s, x, residual):
    for j in run_at(first, cols):
        s[j] = x[j] + residual[j]


def added(first, cols, s, x, residual, near):
    """s = x + residual, and its deviations()."""
    total, square = 0.0, 0.0
    for j in run_at(first, cols):
        value = x[j] + residual[j]
        s[j] = value
        value = value - near
        total += value
        square += value * value
    return total, square


def summed(x, more, j):
    """x[j], with what is added to it."""
    return x[j] if more is None else x[j] + more[j]


def normalise(r, y, mean, rstd, x, more, near, d, square, w, b, eps, cols):
    """y = (x - mean) / sqrt(var + eps) * w + b for one row of x (+ more); see statistics()."""
    m, s, shift = statistics(r, mean, rstd, x, more, near, d, square, eps, cols)
    put_row(normalised, cols, y, x, more, w, b, m, s, shift)


def normalised(first, cols, y, x, more, w, b, m, s, shift):
    for j in run_at(first, cols):
        y[j] = weighted((summed(x, more, j) - m) * s - shift, w, b, j)


def statistics(r, mean, rstd, x, more, near, d, square, eps, cols):
    """(m, s, shift), with which a row of x (+ more) is normalised: (x - m) * s - shift. d and `square` are the means of x - near and of
    its square.
    The mean is near + d, kept as two numbers: where a row lies far from zero, what rounding cuts off counts too. The variance is
    square - d * d, as long as d is not large beside the deviations (Chan, Golub, LeVeque 1983); else sums are made again about the mean."""
    var = square - d * d
    m = real(near + d)
    rest, s = d - (m - near), 1.0 / sqrt(var + eps)
    if d * d > 2.0 * var or out_of_range(var + eps):
        scale = scale_of(x, more, cols) if out_of_range(square + eps) else 1.0
        m = long_sum(scaled, cols, x, more, scale) / real(cols)
        m = real(m + long_sums(scaled_deviations, cols, x, more, m, scale)[0] / real(cols))
        rest, square = long_sums(scaled_deviations, cols, x, more, m, scale)
        rest, square = rest / real(cols), square / real(cols)
        var = maximum(square - rest * rest, 0.0)
        s = 1.0 / sqrt(eps) if var == 0.0 else scale / sqrt(var + eps * scale * scale)
        m, rest = m / scale, rest / scale
    if lane() == 0:
        mean[2 * r] = m
        mean[2 * r + 1] = rest
        rstd[r] = s
    return m, s, rest * s


def scaled_deviations(first, cols, x, more, m, scale):
    """The sums of scale * x - m and of its square."""
    total, square = 0.0, 0.0
    for j in run_at(first, cols):
        value = summed(x, more, j) * scale - m
        total += value
        square += value * value
    return total, square


def squares(first, cols, x, scale):
    total = 0.0
    for j in run_at(first, cols):
        total += (x[j] * scale) * (x[j] * scale)
    return total


def scaled(first, cols, x, more, scale):
    total = 0.0
    for j in run_at(first, cols):
        total += summed(x, more, j) * scale
    return total


def out_of_range(square):
    """Whether squares were too large to be written down, or so small that they lost digits."""
    return not EPS * EPS * EPS * EPS < square < INF


def scale_of(x, more, cols):
    """A power of two that brings a row to where its squares have all their digits."""
    top = 0.0
    for j in range(lane(), cols, lanes()):
        top = fmax(top, abs(summed(x, more, j)))
    top = all_max(top)
    scale = 1.0
    if 0.0 < top < INF:
        while top * scale > 1.0 / EPS:
            scale *= EPS
        while top * scale < EPS * EPS:
            scale /= EPS
    return scale


def rms_norm_row(r, y, rstd, x, w, eps, rows, cols):
    y, x = y[r * cols : r * cols + cols], x[r * cols : r * cols + cols]
    put_row(rms_normalised, cols, y, x, w, rms_statistics(r, rstd, x, eps, cols))


def rounding_rms_row(r, y, xn, rstd, x, w, eps, rows, cols):
    """The same for a result that is rounded; xn, the row before w, is kept for backward."""
    first = r * cols
    x = x[first : first + cols]
    s = rms_statistics(r, rstd, x, eps, cols)
    put_row(rms_normalised, cols, xn[first : first + cols], x, None, s)
    put_row(rms_normalised, cols, y[first : first + cols], x, w, s)


def rms_statistics(r, rstd, x, eps, cols):
    """1 / sqrt(mean(x^2) + eps) of a row."""
    square = long_sum(squares, cols, x, 1.0) / real(cols)
    s = 1.0 / sqrt(square + eps)
    if out_of_range(square + eps):
        scale = scale_of(x, None, cols)
        s = scale / sqrt(long_sum(squares, cols, x, scale) / real(cols) + eps * scale * scale)
    if lane() == 0:
        rstd[r] = s
    return s


def rms_normalised(first, cols, y, x, w, s):
    for j in run_at(first, cols):
        y[j] = x[j] * s if w is None else x[j] * s * w[j]


def norm_dx_row(r, dx, sums, g, more, x, w, mean, rstd, rows, cols):
    """dx (+ more) of one row; its dw and db are added to `sums`. Without a mean: rms_norm."""
    m = 0.0 if mean is None else mean[2 * r]
    rest = 0.0 if mean is None else mean[2 * r + 1] * rstd[r]
    norm_dx(r, dx, sums, g, more, x, w, mean, m, rstd[r], rest, rstd[r], cols)


def kept_norm_dx_row(r, dx, sums, g, more, xn, w, mean, rstd, rows, cols):
    """The same, where the normalised row itself was kept."""
    norm_dx(r, dx, sums, g, more, xn, w, mean, 0.0, 1.0, 0.0, rstd[r], cols)


def norm_dx(r, dx, sums, g, more, x, w, mean, m, k, rest, s, cols):
    """dx (+ more) of one row, which is (x - m) * k - rest when it is normalised."""
    first = r * cols
    dx, g, x = dx[first : first + cols], g[first : first + cols], x[first : first + cols]
    if sums is None or LINE == 0:
        total, dot = long_sums(norm_dx_run, cols, g, x, w, m, rest, k)
    else:
        total, dot = long_sums(norm_dx_sums, cols, sums[:cols], None if mean is None else sums[cols:], g, x, w, m, rest, k)
    if sums is not None and LINE == 0:
        barrier()  # other lanes may have had these columns of the row before
        put_row(add_dw, cols, sums[:cols], sums[:cols], g, x, m, rest, k)
        if mean is not None:
            put_row(add_db, cols, sums[cols:], sums[cols:], g)
    shift = 0.0 if mean is None else total / real(cols)
    dot = dot / real(cols)
    line = None if more is None else more[first : first + cols]
    if cols == 1 and mean is not None:  # the norm is b whatever x is; rounding would leave a trace of s, which may be large
        if lane() == 0:
            zero = (x[0] - m) * 0.0  # NaN for a NaN
            dx[0] = zero if more is None else zero + line[0]
        return
    put_row(norm_dx_of, cols, dx, g, line, x, w, m, k, rest, s, shift, dot)


def norm_dx_of(first, cols, dx, g, more, x, w, m, k, rest, s, shift, dot):
    for j in run_at(first, cols):
        value = g[j] if w is None else g[j] * w[j]
        value = s * (value - shift - ((x[j] - m) * k - rest) * dot)
        dx[j] = value if more is None else value + more[j]


def norm_dx_run(first, cols, g, x, w, m, rest, s):
    """The sums of g * w and of that times the normalised x."""
    total, dot = 0.0, 0.0
    for j in run_at(first, cols):
        value = g[j] if w is None else g[j] * w[j]
        total += value
        dot += value * ((x[j] - m) * s - rest)
    return total, dot


def norm_dx_sums(first, cols, dw, db, g, x, w, m, rest, s):
    """The same; dw and db are added up on the way, where what was written stays near."""
    total, dot = 0.0, 0.0
    for j in run_at(first, cols):
        value = g[j]
        xn = (x[j] - m) * s - rest
        dw[j] += value * xn
        if db is not None:
            db[j] += value
        if w is not None:
            value = value * w[j]
        total += value
        dot += value * xn
    return total, dot


def add_dw(first, cols, dw, before, g, x, m, rest, s):
    for j in run_at(first, cols):
        dw[j] = before[j] + g[j] * ((x[j] - m) * s - rest)


def add_db(first, cols, db, before, g):
    for j in run_at(first, cols):
        db[j] = before[j] + g[j]
