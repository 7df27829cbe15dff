"""Scans, and what puts numbers in order, as functions of whole NumPy arrays: each line along an axis is gone through or sorted.

See core/kernels.py for what a kernel gets.
"""

from __future__ import annotations

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
def last_rows(F, outs, ins, consts):
    """y[row] = the last position in the index that names the row, or -1."""
    (y,), (index,), () = outs, ins, consts
    y[...] = -1
    if y.size:
        np.maximum.at(y, inside(index, y.size), np.arange(index.size))


@kernel
def philox_whole(F, outs, ins, consts):
    """Whole numbers from low on, of so many."""
    (out,), (key,), (low, many) = outs, ins, consts
    out[...] = low + drawn(philox.wholes, out, 2, out.dtype, key) % many
