"""Recurrent layers on GPUs: a block has a row of the batch and takes it through all time steps, in one launch.

A thread makes some columns of h @ w_hh.T, then the cell of some units (F, of ops/recurrent.py); h, the gates and what is kept lie in
global memory, and a block's barrier stands between those who write and those who read. Neighbouring threads read neighbouring numbers of
the weight: forward it is turned first.
"""

from ...core.words import real
from .loops.words import barrier, block, index, thread
from .products.tensor import divided
from .runtime.family import THREADS, F, blocks, kernel, launcher


@kernel
def turned_weight(out, w, wide, units):
    """out (units, wide) = w (wide, units) transposed."""
    i = index()
    if i < out.size:
        row, column = divided(i, wide)
        out[i] = w[column * units + row]


def start_state(out, given, at, units):
    """A row's state at the start, zeros if none is given."""
    u = thread()
    while u < units:
        out[at + u] = real(0) if given is None else given[at + u]
        u += THREADS


def clear_gates(d, e, at, gates, units):
    """Zeros for one unit of a step that is not there."""
    q = 0
    while q < gates:
        d[at + q * units] = real(0)
        if e is not None:
            e[at + q * units] = real(0)
        q += 1


def add_product(out, at, x, x_at, weight, wide, units):
    """out (units) += x (wide) @ weight (wide, units)."""
    u = thread()
    while u < units:
        total, k = out[at + u], 0
        while k < wide:
            total += x[x_at + k] * weight[k * units + u]
            k += 1
        out[at + u] = total
        u += THREADS


@kernel
def recurrent(y, h, c, kept, gx, h0, c0, weight, bias, lengths, steps, batch, units, gates, keeps, whole, reverse):
    """y (steps, batch, units) and the last h and c. `whole`: kept has all steps; else each is written over the one before."""
    r, wide = block(), gates * units
    start_state(h, h0, r * units, units)
    if c is not None:
        start_state(c, c0, r * units, units)
    barrier()
    end = steps if lengths is None else lengths[r]
    s = 0
    while s < steps:
        t = steps - 1 - s if reverse else s
        row, at = t * batch + r, ((t if whole else 0) * batch + r) * keeps * units
        if t < end:
            j = thread()
            while j < wide:
                total = real(0) if bias is None else bias[j]
                k = 0
                while k < units:
                    total += h[r * units + k] * weight[k * wide + j]
                    k += 1
                kept[at + j] = total
                j += THREADS
            barrier()
        u = thread()
        while u < units:
            if t < end:
                F(y, row * units + u, kept, at + u, h, c, r * units + u, gx, row * wide + u, units)
                h[r * units + u] = y[row * units + u]
            else:
                y[row * units + u] = real(0)
            u += THREADS
        barrier()
        s += 1


@kernel
def recurrent_dx(
    dgates, dz, dh, dc, before, g, g_h, g_c, y, kept, h0, c0, weight, lengths, steps, batch, units, gates, keeps, reverse
):  # fmt: skip
    """dgates, dz the same of what h gives (None: it is equal), dh and dc of the first state; `before`: the h of each step's start."""
    r, wide, size = block(), gates * units, keeps * units
    start_state(dh, g_h, r * units, units)
    if dc is not None:
        start_state(dc, g_c, r * units, units)
    end = steps if lengths is None else lengths[r]
    s = steps - 1
    while s >= 0:
        t = steps - 1 - s if reverse else s
        row, step = t * batch + r, batch if reverse else -batch
        starts = t + 1 >= end if reverse else t == 0
        u = thread()
        while u < units:
            i, j, past, last = row * units + u, r * units + u, real(0), real(0)
            if t < end:
                if not starts:
                    past = y[i + step * units]
                    if dc is not None:
                        last = kept[(row + step) * size + size - units + u]
                elif h0 is not None:
                    past = h0[j]
                    if dc is not None:
                        last = c0[j]
                before[i] = past
                if g is not None:
                    dh[j] += g[i]
                F(dgates, dz, row * wide + u, dh, dc, j, y, before, i, kept, row * size + u, last, units)
            else:
                before[i] = past
                clear_gates(dgates, dz, row * wide + u, gates, units)
            u += THREADS
        barrier()
        if t < end:
            if dz is None:
                add_product(dh, r * units, dgates, row * wide, weight, wide, units)
            else:
                add_product(dh, r * units, dz, row * wide, weight, wide, units)
        s -= 1


# ---- launchers ----
@launcher(name="recurrent")
def recurrent_launcher(go, outs, ins, cell, steps, batch, units, gates, keeps, whole, reverse):
    gx, h0, c0, w, bias, lengths = ins
    weight = go.empty(w.size)
    go(turned_weight, (weight,), (w,), (gates * units, units), grid=blocks(w.size), formula=None)
    go(recurrent, outs, (gx, h0, c0, weight, bias, lengths), (steps, batch, units, gates, keeps, whole, reverse), grid=batch)


@launcher(name="recurrent_dx")
def dx_launcher(go, outs, ins, cell, *sizes_and_reverse):
    go(recurrent_dx, outs, ins, sizes_and_reverse, grid=sizes_and_reverse[1])
