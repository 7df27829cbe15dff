"""Scans, and what puts numbers in order, as functions of whole NumPy arrays: each line along an axis is gone through or sorted.

See core/kernels.py for what a kernel gets.
"""

import numpy as np

from ...core import philox
from ...core.kernels import drawn, inside, kernel


@kernel
def scan(F, outs, ins, consts):
    """y[o, i, j] = q after (p, q) = F(p, q, a[o, i, j], b[o, i, j]) for one i after the other, from the last one on if `reverse`; a and b
    may be numbers, and b None for i itself."""
    (y,), (a, b), (outer, n, inner, reverse, p, q) = outs, ins, consts
    a, b, y = (x.reshape(outer, n, inner) if isinstance(x, np.ndarray) else x for x in (a, b, y))
    for i in range(n)[:: -1 if reverse else 1]:
        p, q = F(p, q, a[:, i] if isinstance(a, np.ndarray) else a, i if b is None else b[:, i] if isinstance(b, np.ndarray) else b)
        y[:, i] = q


@kernel
def argsort(F, outs, ins, consts):
    """The places of each row's k first numbers in order, of equal ones in the order they come; NaN is the largest."""
    (y,), (x,), (n, descending, k) = outs, ins, consts
    x = x.reshape(-1, n)
    found = n - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1] if descending else np.argsort(x, axis=1, kind="stable")
    y[...] = found[:, :k].reshape(-1)


@kernel
def search(F, outs, ins, consts):
    """How many numbers of a sorted row are less than each value (right: or equal); each row has `many` values, or all share one row."""
    (y,), (x, values), (n, many, right) = outs, ins, consts
    for r, row in enumerate(x.reshape(-1, n) if n else np.zeros((values.size // many, 0))):
        y[r * many : r * many + many] = np.searchsorted(row, values[r * many : r * many + many], "right" if right else "left")


@kernel
def take_along(F, outs, ins, consts):
    """y[o, j, i] = x[o, ids[o, j, i], i], of n and m rows of `inner`; ids repeat, negative ones count from the end."""
    (y,), (x, ids), (n, m, inner) = outs, ins, consts
    y[...] = np.take_along_axis(x.reshape(-1, n, inner), ids_along(ids, x.size // (n * inner), n, m, inner), 1).reshape(-1)


@kernel
def add_along(F, outs, ins, consts):
    """The reverse: y[o, ids[o, j, i], i] += x[o, j, i], from zeros unless `add`."""
    (y,), (x, ids), (n, m, inner, add) = outs, ins, consts
    total = np.zeros((y.size // (n * inner), n, inner), np.float64 if y.dtype.kind == "f" else np.int64)
    ids = ids_along(ids, len(total), n, m, inner)
    outer, _, columns = np.indices(ids.shape, sparse=True)
    np.add.at(total, (outer, ids, columns), x.reshape(ids.shape))
    y[...] = y + total.reshape(-1) if add else total.reshape(-1)


@kernel
def put_along(F, outs, ins, consts):
    """y = x with y[o, ids[o, j, i], i] = F(that, src[o, j, i]), j in order."""
    (y,), (x, src, ids), (n, m, inner, _) = outs, ins, consts
    y[...] = x
    if not src.size:
        return
    y, src, ids = y.reshape(-1, n, inner), src.reshape(-1, m, inner), ids_along(ids, x.size // (n * inner), n, m, inner)
    for j in range(m):
        at = ids[:, j : j + 1]
        np.put_along_axis(y, at, F(np.take_along_axis(y, at, 1), src[:, j : j + 1]), 1)


@kernel
def recur_along(F, outs, ins, consts):
    """z = x with z[o, ids[o, j, i], i] = that * a[o, j, i] + b[o, j, i], j in order or from the last one on; y: what that was."""
    (z, y), (x, a, b, ids), (n, m, inner, reverse) = outs, ins, consts
    ids = ids_along(ids, x.size // (n * inner), n, m, inner)
    own = x.reshape(-1, n, inner).astype(np.float64 if x.dtype.kind == "f" else np.int64)
    y, a, b = y.reshape(ids.shape), a.reshape(ids.shape), np.broadcast_to(b, a.shape).reshape(ids.shape)
    for j in range(m)[:: -1 if reverse else 1]:
        at = ids[:, j : j + 1]
        now = np.take_along_axis(own, at, 1)
        y[:, j : j + 1] = now
        np.put_along_axis(own, at, now * a[:, j : j + 1] + b[:, j : j + 1], 1)
    z[...] = own.reshape(-1)


def ids_along(ids, outer, n, m, inner):
    ids = inside(np.where(ids < 0, ids + n, ids), n)
    return np.resize(np.repeat(ids, inner) if ids.size == m else ids, (outer, m, inner))


@kernel
def philox_whole(F, outs, ins, consts):
    """Whole numbers from low on, of so many."""
    (out,), (key,), (low, many) = outs, ins, consts
    out[...] = low + drawn(philox.wholes, out, 2, out.dtype, key) % many
