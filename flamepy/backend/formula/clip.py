"""The rule of gradient clipping on single numbers: a norm from a sum, the factor from a norm, a gradient times that factor.

A backend adds up the powers |x|**p of all gradients in float64 in its own way, asks these functions for what it leaves in a small
buffer, and multiplies with the factor wherever gradients are read. The fields of that buffer have names here.
"""

from ...core.words import maximum, pow, select, sqrt

NORM = 0  # of all gradients together
FACTOR = 1  # by which they still have to be multiplied
USE = 2  # whether a step may use them (1) or not (0)
OWN = 3  # the factor of this clipping alone
NORMS = 4  # and on: of each segment, each parameter's gradient


def norm_of(total, p):
    """The norm of order p from the sum of |x|**p; p = 0: from the largest |x|, which is the norm already."""
    if p == 2.0:
        return sqrt(total)
    if p == 1.0 or p == 0.0:
        return total
    return pow(total, 1.0 / p)


def clip_factor(norm, limit, other):
    """limit / (norm + 1e-6) where the norm is above the limit, `other` where it is NaN or infinite, else 1. limit 0: no limit."""
    if limit > 0.0:
        if norm - norm != 0.0:  # NaN or infinite
            return other
        if norm > limit:
            return limit / (norm + 1e-6)
    return 1.0


def kept(norm, limit, keep):
    """Whether a step may use these gradients, 1 or 0: `keep` where there is a limit and the norm is NaN or infinite."""
    return keep if limit > 0.0 and norm - norm != 0.0 else 1.0


def within(norm, most):
    """Whether a step may use gradients of this norm, 1 or 0: it is finite and at most `most`. NaN: it may, whatever the norm is."""
    if most != most:
        return 1.0
    return 1.0 if norm <= most and norm - norm == 0.0 else 0.0


def next_scale(scale, good, keep, interval, moves):
    """Loss scaling: (scale, good steps since it last changed) after a step; keep 0: its gradients overflowed."""
    if keep == 0.0:
        return maximum(0.5 * scale, 1.0) if moves else scale, 0.0
    if moves and good + 1.0 >= interval:
        return 2.0 * scale, 0.0
    return scale, good + 1.0


def scaled(g, factor):
    """A gradient times the clip factor; 0 makes NaN and inf zero as well."""
    return select(factor == 0.0, 0.0, g * factor)
