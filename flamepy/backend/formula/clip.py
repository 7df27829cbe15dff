"""The rule of gradient clipping on single numbers: a norm from a sum, the factor from a norm, a gradient times that factor.

A backend adds up the powers |x|**p of all gradients in float64 in its own way, asks these functions for (norm, factor) and multiplies
with the factor wherever gradients are read.

FLAME counterpart: `flame_core::gradient_clip`. Read next: ../plain/kernels.py, ../cpu/spans.py.
"""

from __future__ import annotations

from .words import pow, select, sqrt


def norm_of(total, p):
    """The norm of order p from the sum of |x|**p; p = 0: from the largest |x|, which is the norm already."""
    if p == 2.0:
        return sqrt(total)
    if p == 1.0 or p == 0.0:
        return total
    return pow(total, 1.0 / p)


def clip_factor(norm, before, limit, other):
    """`before`, a factor the gradients still have to be multiplied with and this norm has been, times the factor of this clipping:
    limit / (norm + 1e-6) where the norm is above the limit, `other` where it is NaN or infinite, else 1. limit 0: no limit."""
    if limit > 0.0:
        if norm - norm != 0.0:  # NaN or infinite
            return before * other
        if norm > limit:
            return before * (limit / (norm + 1e-6))
    return before


def scaled(g, factor):
    """A gradient times the clip factor; 0 makes NaN and inf zero as well."""
    return select(factor == 0.0, 0.0, g * factor)
