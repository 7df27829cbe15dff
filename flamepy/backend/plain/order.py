"""Scans, and what puts numbers in order, as functions of whole NumPy arrays: each line along an axis is gone through or sorted.

See core/kernels.py for what a kernel gets.
"""

from __future__ import annotations

import numpy as np

from ...core.kernels import kernel


@kernel
def scan(F, outs, ins, consts):
    """y[o, i, j] = q after (p, q) = F(p, q, a[o, i, j], b[o, i, j]) for one i after the other, from the last one on if `reverse`; a and b
    may be numbers, and b None for i itself."""
    (y,), (a, b), (outer, n, inner, reverse, p, q) = outs, ins, consts
    a, b, y = (x.reshape(outer, n, inner) if isinstance(x, np.ndarray) else x for x in (a, b, y))
    for i in range(n)[:: -1 if reverse else 1]:
        p, q = F(p, q, a[:, i] if isinstance(a, np.ndarray) else a, i if b is None else b[:, i] if isinstance(b, np.ndarray) else b)
        y[:, i] = q
