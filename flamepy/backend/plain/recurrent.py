"""Recurrent layers on the plain device: one time step of the whole batch after the other, the cells on arrays of places."""

import numpy as np

from ...core.kernels import kernel


@kernel
def recurrent(F, outs, ins, consts):
    """y (steps, batch, units) and the last h and c; kept: what CELLS of ops/recurrent.py says, of all steps, or of the last."""
    (y, h, c, kept), (gx, h0, c0, w, bias, lengths) = outs, ins
    _, steps, batch, units, gates, keeps, whole, reverse = consts
    wide, ends = gates * units, np.full(batch, steps) if lengths is None else lengths
    for state, start in ((h, h0), (c, c0)):
        if state is not None:
            state[...] = 0 if start is None else start
    y[...] = 0
    for t in range(steps)[:: -1 if reverse else 1]:
        at = t if whole else 0
        z = h.reshape(batch, units) @ w.reshape(wide, units).T
        kept.reshape(-1, batch, keeps * units)[at, :, :wide] = z if bias is None else z + bias
        rows = np.flatnonzero(t < ends)[:, None]
        u, row = np.arange(units), t * batch + rows
        F(y, row * units + u, kept, (at * batch + rows) * keeps * units + u, h, c, rows * units + u, gx, row * wide + u, units)
        h[rows * units + u] = y[row * units + u]


@kernel
def recurrent_dx(F, outs, ins, consts):
    """dgates, dz the same of what h gives (None: it is equal), dh and dc of the first state; `before`: the h of each step's start."""
    (dgates, dz, dh, dc, before), (g, g_h, g_c, y, kept, h0, c0, w, lengths) = outs, ins
    _, steps, batch, units, gates, keeps, reverse = consts
    wide, ends = gates * units, np.full(batch, steps) if lengths is None else lengths
    for d, given in ((dgates, None), (dz, None), (before, None), (dh, g_h), (dc, g_c)):
        if d is not None:
            d[...] = 0 if given is None else given
    for t in range(steps)[:: 1 if reverse else -1]:
        rows, u = np.flatnonzero(t < ends)[:, None], np.arange(units)
        row, j = t * batch + rows, rows * units + u
        past = row + (batch if reverse else -batch)
        starts = t + 1 >= ends[rows] if reverse else np.full(rows.shape, t == 0)
        inside = np.where(starts, row, past)  # where a number may be read
        before[row * units + u] = np.where(starts, 0 if h0 is None else h0[j], y[inside * units + u])
        last = None
        if dc is not None:
            last = np.where(starts, 0 if c0 is None else c0[j], kept[(inside * keeps + keeps - 1) * units + u])
        if g is not None:
            dh[j] += g[row * units + u]
        F(dgates, dz, row * wide + u, dh, dc, j, y, before, row * units + u, kept, row * keeps * units + u, last, units)
        z = (dgates if dz is None else dz).reshape(steps, batch, wide)[t]
        dh[...] += (z @ w.reshape(wide, units)).reshape(-1)
