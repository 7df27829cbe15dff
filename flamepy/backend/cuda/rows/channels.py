"""Batch norm: a block for each channel of numbers (outer, channels, inner), forward in one launch and backward in one. Few long channels
have as many threads as a block may have: with a block for each, much of a GPU is idle.

A thread adds up TURNS numbers one after the other, then such sums, and threads are added in pairs: no sum loses digits. Deviations are
from a number of the channel; where few digits are left all the same, or squares do not fit, it goes through them again in float64.
"""

from ....core.words import EPS, INF, real, sqrt
from ...formula.row_words import all_max, all_sum, wide
from ..loops.maps import same
from ..loops.words import block, thread
from ..products.tensor import divided
from ..runtime.compat import libdevice
from ..runtime.family import THREADS, F, kernel, launcher, shaped

CROWD = 1024  # threads for each channel, where channels are FEW and have LONG numbers at least
FEW, LONG = 264, 8192
TURNS = 64  # numbers that a thread adds up one after the other


def place(e, c, channels, inner):
    """Where number e of a channel lies."""
    i, j = divided(e, inner)
    return (i * channels + c) * inner + j


def near_of(x, c, outer, channels, inner):
    """A number among those of a channel: the mean of four of them, without overflow, and exact where all are equal."""
    first, last = c * inner, ((outer - 1) * channels + c) * inner
    half = inner // 2
    return (0.25 * x[first] + 0.25 * x[first + half]) + (0.25 * x[last + half] + 0.25 * x[last + inner - 1])


def careful(x, c, channels, inner, count, near):
    """(mean, variance * scale^2, scale) of a channel in float64, by a scale that brings its numbers to where squares fit."""
    total, top = wide(0.0), wide(0.0)
    for e in range(thread(), count, THREADS):
        total += wide(x[place(e, c, channels, inner)]) - wide(near)
    m = wide(near) + all_sum(total) / wide(count)
    for e in range(thread(), count, THREADS):
        value = wide(x[place(e, c, channels, inner)]) - m
        top = max(top, value, -value)
    top = all_max(top)
    scale = wide(1.0) / top if 0.0 < top < INF else wide(1.0)
    rest, square = wide(0.0), wide(0.0)
    for e in range(thread(), count, THREADS):
        value = (wide(x[place(e, c, channels, inner)]) - m) * scale
        rest += value
        square += value * value
    rest, square = all_sum(rest) / wide(count), all_sum(square) / wide(count)
    return m + rest / scale, square - rest * rest, scale


def deviations(x, c, channels, inner, count, near):
    """The sums of x - near and of its square over a channel."""
    total, square = 0.0, 0.0
    for first in range(thread(), count, TURNS * THREADS):
        one, two = 0.0, 0.0
        for e in range(first, min(first + TURNS * THREADS, count), THREADS):
            value = x[place(e, c, channels, inner)] - near
            one += value
            two += value * value
        total, square = total + one, square + two
    return all_sum(total), all_sum(square)


def statistics(x, c, outer, channels, inner, eps):
    """(mean, variance, 1 / sqrt(variance + eps)) of a channel, in float64."""
    near, count = near_of(x, c, outer, channels, inner), outer * inner
    total, square = deviations(x, c, channels, inner, count, near)
    d = wide(total) / wide(count)
    m, v, scale = wide(near) + d, wide(square) / wide(count) - d * d, wide(1.0)
    tiny = wide(EPS) * wide(EPS)
    if d * d > 2.0 * v or not tiny * tiny < v + wide(eps) < 1.0 / (tiny * tiny * tiny):
        m, v, scale = careful(x, c, channels, inner, count, near)
    return m, v / scale / scale, scale / libdevice.sqrt(v + wide(eps) * scale * scale)


def factors(c, rest, s, w, b):
    """(k, shift): a channel is (x - m) * k + shift."""
    k, shift = s, -rest * s
    if w is not None:
        k, shift = k * w[c], shift * w[c]
    if b is not None:
        shift = shift + b[c]
    return k, shift


def put_channel(y, x, residual, c, channels, inner, count, m, k, shift):
    for e in range(thread(), count, THREADS):
        at = place(e, c, channels, inner)
        value = (x[at] - m) * k + shift
        if residual is not None:
            value = value + residual[at]
        y[at] = F(value)


@kernel
def batch_norm(y, mean, rest, rstd, var, x, residual, w, b, outer, channels, inner, eps):
    """The statistics of each channel, and y = F((x - mean) * rstd * w + b + residual); rest: what rounding cut off the mean."""
    c, count = block(), outer * inner
    m, v, s = statistics(x, c, outer, channels, inner, eps)
    near, s = real(m), real(s)
    less = real(m - wide(near))
    if thread() == 0:
        mean[c], rest[c], rstd[c] = near, less, s
        var[c] = v * (wide(count) / (wide(count) - 1.0))
    k, shift = factors(c, less, s, w, b)
    put_channel(y, x, residual, c, channels, inner, count, near, k, shift)


@kernel
def channel_affine(y, rstd, x, residual, mean, var, w, b, outer, channels, inner, eps):
    """The same by statistics that are known: rstd = 1 / sqrt(var + eps) comes out; without var it is 1, without a mean that is 0."""
    c, m, s = block(), real(0), real(1)
    if mean is not None:
        m = real(mean[c])
    if rstd is not None:
        s = real(1) / sqrt(real(var[c]) + eps)
        if thread() == 0:
            rstd[c] = s
    k, shift = factors(c, real(0), s, w, b)
    put_channel(y, x, residual, c, channels, inner, outer * inner, m, k, shift)


def arrived(g, x, y, at, m, k, shift):
    """The cotangent of what the activation got; F(g, v) is its derivative, v the result y where it was kept, else what it got."""
    if y is None:
        return F(real(g[at]), (x[at] - m) * k + shift)
    return F(real(g[at]), real(y[at]))


def gradients(g, x, y, c, channels, inner, count, m, k, shift, s, less):
    """The sums over a channel of the cotangents and of their products with the normalised x."""
    total, dot = 0.0, 0.0
    for first in range(thread(), count, TURNS * THREADS):
        one, two = 0.0, 0.0
        for e in range(first, min(first + TURNS * THREADS, count), THREADS):
            at = place(e, c, channels, inner)
            h = arrived(g, x, y, at, m, k, shift)
            one += h
            two += h * ((x[at] - m) * s - less)
        total, dot = total + one, dot + two
    return all_sum(total), all_sum(dot)


@kernel
def batch_norm_dx(dx, dr, dw, db, g, x, y, w, b, mean, rest, rstd, outer, channels, inner, add_w, add_b, fixed):
    """dx, dw and db of both; dr, that of the residual. `fixed`: the statistics are constants."""
    c, count = block(), outer * inner
    m, less, s, share, slope = real(0), real(0), real(1), real(0), real(0)
    if mean is not None:
        m = real(mean[c])
    if rstd is not None:
        s = real(rstd[c])
    if rest is not None:
        less = real(rest[c])
    k, shift = factors(c, less, s, w, b)
    total, dot = gradients(g, x, y, c, channels, inner, count, m, k, shift, s, less * s)
    if not fixed:
        share, slope = total / real(count), dot / real(count)
    if thread() == 0:
        if dw is not None:
            dw[c] = dot + dw[c] if add_w else dot
        if db is not None:
            db[c] = total + db[c] if add_b else total
    for e in range(thread(), count, THREADS):
        at = place(e, c, channels, inner)
        h = arrived(g, x, y, at, m, k, shift)
        if dr is not None:
            dr[at] = h
        if not fixed:
            h = h - share - ((x[at] - m) * s - less * s) * slope
        dx[at] = k * h


def passed(h, v):
    """The derivative where there is no activation."""
    return h


# ---- launchers -------------------------------------------------------------------------------------------------------------------
CROWDED = {f: shaped(f, CROWD, CROWD) for f in (batch_norm, channel_affine, batch_norm_dx)}


def over_channels(go, function, formula, outs, ins, consts):
    outer, channels, inner = consts[:3]
    many = channels <= FEW and outer * inner >= LONG
    go(CROWDED[function] if many else function, outs, ins, consts, grid=channels, formula=go.formula or formula)


@launcher(name="batch_norm")
def batch_norm_launcher(go, outs, ins, *consts):
    over_channels(go, batch_norm, same, outs, ins, consts)


@launcher(name="channel_affine")
def channel_affine_launcher(go, outs, ins, *consts):
    over_channels(go, channel_affine, same, outs, ins, consts)


@launcher(name="batch_norm_dx")
def batch_norm_dx_launcher(go, outs, ins, *consts):
    over_channels(go, batch_norm_dx, passed, outs, ins, consts)
