"""Norms of gradients, clipping and the updates of optimizers, as functions of whole NumPy arrays. See core/kernels.py.

A segment is (start, size): where one parameter lies in a buffer.
"""

import numpy as np

from ...core import philox
from ...core.formula import ON_ARRAYS, typed
from ...core.kernels import drawn, kernel
from ..formula import clip

F64 = np.dtype("float64")


@kernel
def norm(F, outs, ins, consts):
    """found = what formula/clip.py says, from F(x), a power of |x|, of each segment of each buffer. Order 0: the largest."""
    (found,), (before, mark, *buffers), (segments, order, limit, other, keep, *numbers) = outs, ins, consts
    parts = [x[at : at + n].astype(F64) for x, each in zip(buffers, segments, strict=True) for at, n in each]
    sums = [(F(x, *numbers).max() if order == 0 else F(x, *numbers).sum()) if x.size else 0.0 for x in parts]
    total = np.max([0.0, *sums]) if order == 0 else np.sum(sums)
    scale = float(before[clip.FACTOR])
    value = clip.scaled(clip.norm_of(float(total), order), scale)
    factor = clip.clip_factor(value, limit, other)
    norms = [clip.scaled(clip.norm_of(float(part), order), scale) for part in sums]
    found[...] = [value, scale * factor, float(mark[clip.USE]) * clip.kept(value, limit, keep), factor, *norms]


@kernel
def limits(F, outs, ins, consts):
    """The factor of a norm that was measured, for limits that are known only then: (limit, norm above which no step is taken, what all
    gradients are multiplied with besides)."""
    (found,), (limits, before, mark) = outs, ins
    factor = float(limits[2]) * clip.clip_factor(float(found[clip.NORM]), float(limits[0]), 1.0)
    found[clip.FACTOR], found[clip.OWN] = before[clip.FACTOR] * factor, factor
    found[clip.USE] = mark[clip.USE] * clip.within(float(found[clip.NORM]), float(limits[1]))


@kernel
def scaler(F, outs, ins, consts):
    """What a GradScaler does after a step: the next scale and the counts, see formula/clip.py."""
    (state, limits, scale), (found,), (interval, moves) = outs, ins, consts
    state[2] += 1.0 - found[clip.USE]
    state[:2] = clip.next_scale(float(state[0]), float(state[1]), float(found[clip.USE]), interval, moves)
    limits[2] = 1.0 / state[0]
    scale[0] = state[0]


@kernel
def scale(F, outs, ins, consts):
    """The segments of x times factor[clip.FACTOR]; 0 gives zeros whatever was there."""
    (x,), (factor,), (segments,) = outs, ins, consts
    for start, size in segments:
        part = slice(start, start + size)
        x[part] = times(x[part], factor[clip.FACTOR])


@kernel
def scale_each(F, outs, ins, consts):
    """Each segment of x times its factor."""
    (x,), (factors,), (segments,) = outs, ins, consts
    for (start, size), factor in zip(segments, factors, strict=True):
        part = slice(start, start + size)
        x[part] = times(x[part], factor)


@kernel
def philox_add(F, outs, ins, consts):
    """x += width * normal numbers, those from number `start` of the stream on; the width is there in float64."""
    (x,), (key, width), (start,) = outs, ins, consts
    x += x.dtype.type(width[0]) * drawn(philox.normals, x, 16 // x.itemsize, x.dtype, key, start)


@kernel
def center(F, outs, ins, consts):
    """Subtract from each row of each segment its mean."""
    (x,), (), (segments,) = outs, ins, consts
    for start, size, cols in segments:
        rows = x[start : start + size].reshape(-1, cols)
        rows -= rows.mean(1, F64, keepdims=True).astype(x.dtype)


@kernel
def update(F, outs, ins, consts):
    """An optimizer's step: for segment s, (start, size), (p, moments) = F(p, moments, clipped g, the segment's numbers)."""
    (g, factor, mark, hyper), (segments,) = ins, consts
    for s, (start, size) in enumerate(segments if mark[clip.USE] else ()):
        part = slice(start, start + size)
        found = F(*[out[part] for out in outs], times(g[part], factor[clip.FACTOR]), *hyper[12 * s : 12 * s + 12])
        for out, value in zip(outs, found if isinstance(found, tuple) else (found,), strict=True):
            out[part] = value


def times(g, factor):
    """Gradients times a clip factor, which is there in float64."""
    return typed(clip.scaled, g.dtype, ON_ARRAYS)(g, g.dtype.type(factor))
