"""Recurrent layers on the CPU: a worker has rows of the batch and takes them through all time steps, so nobody waits for anybody.

A step is a product of few rows with all of w_hh, which is packed once for all steps, in panels as register tiles read them; then the cell,
a row at a time, in loops of two or three arrays: with more, LLVM's overlap check chooses scalar code. Products are of ROWS rows
at most, so a number does not depend on the others of the batch, nor on who computes it.

`kept` holds, a row of the batch after another, what CELLS of ops/recurrent.py says; the product is written where its gates lie.
"""

from ...core.words import exp, maximum, select, tanh
from ...dtypes import int64
from .loops.maps import F
from .loops.runs import add_run, copy_run, fill_run
from .products.finish import flops
from .products.gemm import N, gemm, turn_matrix
from .runtime.family import launcher, loop
from .runtime.parallel import tasks

ACROSS = 64  # columns of a panel
ROWS = 8  # of a product: two register tiles of four rows; see the top


@loop
def pack_recurrent(part, packed, w, wide, deep, turned):
    """Panels of a matrix (deep, wide), ACROSS columns each, one after the other; `turned`: w is (wide, deep)."""
    for q in tasks(part, (wide + ACROSS - 1) // ACROSS):
        j = q * ACROSS
        cols, at = min(ACROSS, wide - j), j * deep
        if turned:
            turn_matrix(cols, deep, w, j * deep, deep, packed, at, ACROSS)
        else:
            for p in range(deep):
                copy_run(packed[at + p * ACROSS : at + p * ACROSS + cols], w[p * wide + j : p * wide + j + cols])


def times_packed(c, c_at, ldc, x, x_at, ldx, packed, first, last, wide, deep):
    """c (rows first to last, wide) += x (rows, deep) @ packed."""
    for j in range(0, wide, ACROSS):
        for r in range(first, last, ROWS):
            gemm(
                N, N, min(ROWS, last - r), min(ACROSS, wide - j), deep, 1.0, x, x_at + r * ldx, ldx, packed, j * deep, ACROSS, True, c,
                c_at + r * ldc + j, ldc,
            )  # fmt: skip


@loop
def recurrent(
    part, y, h, c, kept, packed, gx, h0, c0, bias, lengths, steps, batch, units, gates, keeps, whole, reverse, has_state, has_bias,
    has_lengths
):  # fmt: skip
    """y (steps, batch, units) and the last h and c; F is the cell. What isn't there isn't read: `has_state` and so on.

    whole: kept has all steps; else each is written over the one before.
    """
    mine, wide, size = tasks(part, batch), gates * units, keeps * units
    first, last = mine.start, mine.stop
    for r in mine:
        a, b = r * units, (r + 1) * units
        if has_state:
            copy_run(h[a:b], h0[a:b])
            copy_run(c[a:b], c0[a:b])
        else:
            fill_run(h[a:b], 0.0)
            fill_run(c[a:b], 0.0)
    for s in range(steps if first < last else 0):
        t = steps - 1 - s if reverse else s
        base = (t if whole else 0) * batch * size
        for r in mine:
            z = kept[base + r * size : base + r * size + wide]
            if has_bias:
                copy_run(z, bias)
            else:
                fill_run(z, 0.0)
        times_packed(kept, base, size, h, 0, units, packed, first, last, wide, units)
        for r in mine:
            a, b, row = r * units, (r + 1) * units, t * batch + r
            now = y[row * units : (row + 1) * units]
            if not has_lengths or t < lengths[r]:
                F(now, kept[base + r * size : base + (r + 1) * size], h[a:b], c[a:b], gx[row * wide : (row + 1) * wide], units)
                copy_run(h[a:b], now)
            else:
                fill_run(now, 0.0)


@loop
def recurrent_dx(
    part, dgates, dz, dh, dc, before, packed, g, g_h, g_c, y, kept, h0, c0, lengths, steps, batch, units, gates, keeps, reverse, has_g,
    has_gh, has_gc, has_state, has_lengths
):  # fmt: skip
    """dgates (steps, batch, gates * units), dz the same of what h gives, dh and dc of the state at the start; `before`: the h that each
    step began with. F is the cell's derivative. g, g_h, g_c: of y and of the last state."""
    mine, wide, size, every = tasks(part, batch), gates * units, keeps * units, batch * units
    for r in mine:
        a, b = r * units, (r + 1) * units
        fill_run(dh[a:b], 0.0)
        fill_run(dc[a:b], 0.0)
        if has_gh:
            copy_run(dh[a:b], g_h[a:b])
        if has_gc:
            copy_run(dc[a:b], g_c[a:b])
    for s in range(steps - 1 if mine.start < mine.stop else -1, -1, -1):
        t = steps - 1 - s if reverse else s
        for r in mine:
            a, b, row = r * units, (r + 1) * units, t * batch + r
            i, j, end = row * units, (row + 1) * units, lengths[r] if has_lengths else steps
            past, d, e = before[i:j], dgates[row * wide : (row + 1) * wide], dz[row * wide : (row + 1) * wide]
            if t < end:
                step = every if reverse else -every
                starts = t + 1 >= end if reverse else t == 0
                old = kept[row * size : (row + 1) * size]
                last_c = past  # of zeros, if there is no state
                if not starts:
                    copy_run(past, y[i + step : j + step])
                    if keeps > gates:
                        at = (row + (batch if reverse else -batch)) * size + size - units
                        last_c = kept[at : at + units]
                elif has_state:
                    copy_run(past, h0[a:b])
                    last_c = c0[a:b]
                else:
                    fill_run(past, 0.0)
                if has_g:
                    add_run(dh[a:b], g[i:j])
                F(d, e, dh[a:b], dc[a:b], y[i:j], old, past, last_c, units)
            else:
                fill_run(past, 0.0)
                fill_run(d, 0.0)
                fill_run(e, 0.0)
        times_packed(dh, 0, units, dz, t * batch * wide, wide, packed, mine.start, mine.stop, units, wide)


# ---- cells: of a row, h and c are the state before -------------------------------------------------------------------------------------
def sigmoid_sums(z, x):
    for i in range(z.size):
        z[i] = 1.0 / (1.0 + exp(-(z[i] + x[i])))


def tanh_sums(z, x):
    for i in range(z.size):
        z[i] = tanh(z[i] + x[i])


def lstm(y, kept, h, c, gx, n):
    """kept: i, f, g, o, c."""
    sigmoid_sums(kept[: 2 * n], gx[: 2 * n])
    tanh_sums(kept[2 * n : 3 * n], gx[2 * n : 3 * n])
    sigmoid_sums(kept[3 * n : 4 * n], gx[3 * n :])
    i, f, g, o = kept[:n], kept[n : 2 * n], kept[2 * n : 3 * n], kept[3 * n : 4 * n]
    for u in range(n):
        c[u] = f[u] * c[u] + i[u] * g[u]
    for u in range(n):
        y[u] = o[u] * tanh(c[u])
    copy_run(kept[4 * n :], c)


def lstm_dx(d, e, dh, dc, y, kept, h, c, n):
    """c: of the step before; kept: see lstm()."""
    i, f, g, o, now = kept[:n], kept[n : 2 * n], kept[2 * n : 3 * n], kept[3 * n : 4 * n], kept[4 * n :]
    di, df, dg, do = d[:n], d[n : 2 * n], d[2 * n : 3 * n], d[3 * n :]
    for u in range(n):
        do[u] = tanh(now[u])
    for u in range(n):
        dc[u] += dh[u] * o[u] * (1.0 - do[u] * do[u])
    for u in range(n):
        do[u] = dh[u] * do[u] * o[u] * (1.0 - o[u])
    for u in range(n):
        di[u] = dc[u] * g[u] * i[u] * (1.0 - i[u])
    for u in range(n):
        dg[u] = dc[u] * i[u] * (1.0 - g[u] * g[u])
    for u in range(n):
        df[u] = dc[u] * c[u] * f[u] * (1.0 - f[u])
    for u in range(n):
        dc[u] *= f[u]
    fill_run(dh, 0.0)


def gru(y, kept, h, c, gx, n):
    """kept: r, z, what h gives n, n."""
    sigmoid_sums(kept[: 2 * n], gx[: 2 * n])
    r, z, hn, new, xn = kept[:n], kept[n : 2 * n], kept[2 * n : 3 * n], kept[3 * n :], gx[2 * n :]
    for u in range(n):
        new[u] = tanh(xn[u] + r[u] * hn[u])
    for u in range(n):
        y[u] = new[u] + z[u] * (h[u] - new[u])


def gru_dx(d, e, dh, dc, y, kept, h, c, n):
    r, z, hn, new = kept[:n], kept[n : 2 * n], kept[2 * n : 3 * n], kept[3 * n :]
    dr, dz, dn, en = d[:n], d[n : 2 * n], d[2 * n :], e[2 * n :]
    for u in range(n):
        dn[u] = dh[u] * (1.0 - z[u]) * (1.0 - new[u] * new[u])
    for u in range(n):
        dz[u] = dh[u] * (h[u] - new[u])
    for u in range(n):
        dz[u] *= z[u] * (1.0 - z[u])
    for u in range(n):
        dr[u] = dn[u] * hn[u] * r[u] * (1.0 - r[u])
    for u in range(n):
        en[u] = dn[u] * r[u]
    copy_run(e[: 2 * n], d[: 2 * n])
    for u in range(n):
        dh[u] *= z[u]


def rnn_tanh(y, kept, h, c, gx, n):
    tanh_sums(kept, gx)
    copy_run(y, kept)


def rnn_tanh_dx(d, e, dh, dc, y, kept, h, c, n):
    for u in range(n):
        d[u] = dh[u] * (1.0 - y[u] * y[u])
    fill_run(dh, 0.0)


def rnn_relu(y, kept, h, c, gx, n):
    for u in range(n):
        y[u] = maximum(kept[u] + gx[u], 0.0)


def rnn_relu_dx(d, e, dh, dc, y, kept, h, c, n):
    for u in range(n):
        d[u] = select(y[u] > 0.0, dh[u], 0.0)
    fill_run(dh, 0.0)


CELLS = {"lstm": (lstm, lstm_dx), "gru": (gru, gru_dx), "rnn_tanh": (rnn_tanh, rnn_tanh_dx), "rnn_relu": (rnn_relu, rnn_relu_dx)}


# ---- launchers: what is absent has a stand-in that is not read ---------------------------------------------------------------------------
def packed_panels(go, w, wide, deep, turned):
    packed = go.empty((wide + ACROSS - 1) // ACROSS * ACROSS * deep)
    go(pack_recurrent, (packed,), (w,), (wide, deep, turned), work=packed.size, formula=None)
    return packed


@launcher(name="recurrent")
def recurrent_launcher(go, outs, ins, cell, steps, batch, units, gates, keeps, whole, reverse):
    (y, h, c, kept), (gx, h0, c0, w, bias, lengths) = outs, ins
    packed = packed_panels(go, w, gates * units, units, True)
    outs = y, h, go.empty(h.size) if c is None else c, kept, packed
    state = (gx, gx) if h0 is None else (h0, h0 if c0 is None else c0)
    flags = h0 is not None, bias is not None, lengths is not None
    given = gx, *state, gx if bias is None else bias, no_lengths(go) if lengths is None else lengths
    consts = steps, batch, units, gates, keeps, whole, reverse, *flags
    go(recurrent, outs, given, consts, work=flops(steps * batch * gates * units, units), formula=CELLS[cell][0])


@launcher(name="recurrent_dx")
def dx_launcher(go, outs, ins, cell, steps, batch, units, gates, keeps, reverse):
    (dgates, dz, dh, dc, before), (g, g_h, g_c, y, kept, h0, c0, w, lengths) = outs, ins
    packed = packed_panels(go, w, units, gates * units, False)
    outs = dgates, dgates if dz is None else dz, dh, go.empty(dh.size) if dc is None else dc, before, packed
    state = (y, y) if h0 is None else (h0, h0 if c0 is None else c0)
    flags = g is not None, g_h is not None, g_c is not None, h0 is not None, lengths is not None
    given = *[y if x is None else x for x in (g, g_h, g_c, y, kept)], *state, no_lengths(go) if lengths is None else lengths
    consts = steps, batch, units, gates, keeps, reverse, *flags
    go(recurrent_dx, outs, given, consts, work=flops(steps * batch * gates * units, units), formula=CELLS[cell][1])


def no_lengths(go):
    return go.empty(1, int64)
