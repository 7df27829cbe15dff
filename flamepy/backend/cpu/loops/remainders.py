"""What a division leaves, and quotients rounded down, of two inputs of floats, packed.

An exact remainder of any two numbers is a call into the C library, one number at a time. Of a quotient below 2**22 (float64: 2**51) it is
one multiply-add: the division rounds to the whole number below or the next one. A block with other numbers in it is done by the formula.
"""

import numpy as np

from ....core.words import EPS, INF, abs, select
from ...formula.words import copysign, floor
from ..runtime.family import loop
from ..runtime.instructions import instruction
from ..runtime.parallel import tasks
from .maps import NEAR, F, at

BLOCK = 1024  # numbers that are done one way or the other


def multiply_add(a, b, c):
    """The word in plain Python: a * b + c, rounded once."""
    return float(np.longdouble(a) * b + c)


WORDS = {"multiply_add": instruction("llvm.fma", 3)}


@loop
def map_floor_divide(part, out, x, y):
    by_blocks(part, out, x, y, near_quotient, F)


@loop
def map_remainder(part, out, x, y):
    by_blocks(part, out, x, y, near_remainder, F)


@loop
def map_fmod(part, out, x, y):
    by_blocks(part, out, x, y, near_fmod, F)


def by_blocks(part, out, x, y, near, exact):
    for t in tasks(part, (out.size + BLOCK - 1) // BLOCK):
        first, end = np.uint64(t * BLOCK), np.uint64(min(out.size, t * BLOCK + BLOCK))
        far = False
        for i in range(first, end):
            value, known = near(at(x, i), at(y, i))
            out[i] = value
            far |= not known
        if far:
            for i in range(first, end):
                out[i] = exact(at(x, i), at(y, i))


def divided(a, b):
    """(what |a| / |b| leaves, its whole part, whether both are known)."""
    p, s = abs(a), abs(b)
    q = floor(p / s)
    r = multiply_add(-q, s, p)
    return select(r < 0.0, r + s, r), select(r < 0.0, q - 1.0, q), (p * (2.0 * EPS) < s) & (s < INF)


def near_fmod(a, b):
    r, _, known = divided(a, b)
    return copysign(r, select(a < 0.0, -1.0, 1.0)), known


def near_remainder(a, b):
    r, _, known = divided(a, b)
    return copysign(select(((a < 0.0) != (b < 0.0)) & (r > 0.0), abs(b) - r, r), b), known


def near_quotient(a, b):
    r, q, known = divided(a, b)
    down = ((a < 0.0) != (b < 0.0)) & (r > 0.0)
    return copysign(select(down, q + 1.0, q), copysign(1.0, a) * copysign(1.0, b)), known


NEAR.update(floor_divide=map_floor_divide, remainder=map_remainder, fmod=map_fmod)
