"""Batch norm as whole NumPy arrays (outer, channels, inner), channel by channel, in float64."""

import numpy as np

from ...core.kernels import kernel
from .rows import put


def channelwise(x, sizes):
    """x (outer, channels, inner), or one number a channel so that it broadcasts to that; in float64. None stays None."""
    return None if x is None else x.astype(np.float64).reshape(sizes if x.size != sizes[1] or sizes[0] * sizes[2] == 1 else (1, -1, 1))


def weighted(xn, sizes, w, b):
    xn = xn if w is None else xn * channelwise(w, sizes)
    return xn if b is None else xn + channelwise(b, sizes)


def followed(F, z, residual, sizes, y):
    """F(z + residual) in y's type, as what is not fused would have it."""
    z = z if residual is None else z + channelwise(residual, sizes)
    return z.reshape(-1) if F is None else F(z.astype(y.dtype).reshape(-1))


@kernel
def batch_norm(F, outs, ins, consts):
    """The statistics of each channel, and y = F((x - mean) * rstd * w + b + residual); rest: what rounding cut off the mean."""
    (y, mean, rest, rstd, var), (x, residual, w, b), (*sizes, eps) = outs, ins, consts
    x = channelwise(x, sizes)
    m = x.mean((0, 2))
    d = x - m[:, None]
    count, v = sizes[0] * sizes[2], np.square(d).mean((0, 2))
    mean[...] = m
    rest[...] = m - mean
    rstd[...] = s = 1 / np.sqrt(v + eps)
    var[...] = v * (count / (np.float64(count) - 1))
    y[...] = followed(F, weighted(d * s[:, None], sizes, w, b), residual, sizes, y)


@kernel
def channel_affine(F, outs, ins, consts):
    """The same by statistics that are known: rstd = 1 / sqrt(var + eps) comes out; without var it is 1, without a mean that is 0."""
    (y, rstd), (x, residual, mean, var, w, b), (*sizes, eps) = outs, ins, consts
    x = channelwise(x, sizes)
    x = x if mean is None else x - channelwise(mean, sizes)
    if rstd is not None:
        rstd[...] = s = 1 / np.sqrt(var + eps)
        x = x * channelwise(s, sizes)
    y[...] = followed(F, weighted(x, sizes, w, b), residual, sizes, y)


@kernel
def batch_norm_dx(F, outs, ins, consts):
    """dx, dw and db of both; dr, that of the residual. F(g, y) is the activation's derivative; without y it gets what the activation got.
    fixed: the statistics are constants."""
    (dx, dr, dw, db), (g, x, y, w, b, mean, rest, rstd), (*sizes, add_w, add_b, fixed) = outs, ins, consts
    x = channelwise(x, sizes)
    x = x if mean is None else x - channelwise(mean, sizes)
    x = x if rest is None else x - channelwise(rest, sizes)
    s = 1.0 if rstd is None else channelwise(rstd, sizes)
    x = x * s
    if F is not None:
        g = F(g, weighted(x, sizes, w, b).astype(g.dtype).reshape(-1) if y is None else y)
    put(dr, g, False)
    g = channelwise(g, sizes)
    total, dot = g.sum((0, 2)), (g * x).sum((0, 2))
    put(dw, dot, add_w)
    put(db, total, add_b)
    if not fixed:
        g = g - (total[:, None] + x * dot[:, None]) / (sizes[0] * sizes[2])
    dx[...] = (g * s * (1.0 if w is None else channelwise(w, sizes))).reshape(-1)
