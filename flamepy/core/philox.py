"""Random numbers from counters: Philox 4x32-10 (Salmon et al., 2011), and what uniform and normal numbers are made of its words.

There is no hidden state: a block of four 32-bit words is a function of (seed, stream, step, block index), so an element's number
does not depend on threads, chunks or devices, and a replayed or recomputed step draws the same numbers again. The block index is
the element's index divided by the number of elements a block serves: 4, or 2 in float64, which takes two words for each. A dropout
mask takes one word for each element, so it is the same in every dtype.

Each function is plain arithmetic on integers and numbers, or on whole arrays of them.
"""

from __future__ import annotations

from .words import EPS, log, real, rint, select, sqrt

LOW = 0xFFFFFFFF  # the low 32 bits
KEY_STEP_0 = 0x9E3779B9
KEY_STEP_1 = 0xBB67AE85
TURN = 6.283185307179586
STEP_24 = 2.0**-24  # the spacing of float32 numbers just below 1
STEP_53 = 2.0**-53  # the same in float64
SINGLE = 1e-9  # EPS is larger than this in float32, smaller in float64; known when the kernel is compiled


def mix(c0, c1, c2, c3, k0, k1):
    """One round: two multiplications, whose high and low halves change places."""
    p = c0 * 0xD2511F53
    q = c2 * 0xCD9E8D57
    # An int64 product may wrap into the sign bit; the mask removes what the shift then copies.
    return ((q >> 32) ^ c1 ^ k0) & LOW, q & LOW, ((p >> 32) ^ c3 ^ k1) & LOW, p & LOW


def philox4x32(c0, c1, c2, c3, k0, k1):
    """Four random words from a counter (four words) and a key (two words); a loop would not vectorise."""
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 0 * KEY_STEP_0, k1 + 0 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 1 * KEY_STEP_0, k1 + 1 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 2 * KEY_STEP_0, k1 + 2 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 3 * KEY_STEP_0, k1 + 3 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 4 * KEY_STEP_0, k1 + 4 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 5 * KEY_STEP_0, k1 + 5 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 6 * KEY_STEP_0, k1 + 6 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 7 * KEY_STEP_0, k1 + 7 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 8 * KEY_STEP_0, k1 + 8 * KEY_STEP_1)
    c0, c1, c2, c3 = mix(c0, c1, c2, c3, k0 + 9 * KEY_STEP_0, k1 + 9 * KEY_STEP_1)
    return c0, c1, c2, c3


def words_at(block, seed, stream, step):
    """The four words of block number `block`."""
    return philox4x32(block & LOW, (block >> 32) & LOW, stream & LOW, step & LOW, seed & LOW, (seed >> 32) & LOW)


def unit24(a):
    """A number in [0, 1) from 24 bits."""
    return real(a >> 8) * STEP_24


def unit53(a, b):
    """A number in [0, 1) from 53 bits; float64 only."""
    return real(((a >> 5) << 26) | (b >> 6)) * STEP_53


def whole63(a, b):
    """A whole number from 63 bits."""
    return ((a & 0x7FFFFFFF) << 32) | b


def wholes(block, seed, stream, step):
    """A block's whole numbers: two."""
    a, b, c, d = words_at(block, seed, stream, step)
    return whole63(a, b), whole63(c, d)


def between(u, low, high):
    """low + u * (high - low), kept below high where rounding would reach it."""
    value = low + u * (high - low)
    return select(value < high, value, low)


def gauss(u, v):
    """Two independent normal numbers from two uniform ones (Box-Muller); u must not be 0."""
    radius = sqrt(-2.0 * log(u))
    x, y = circle(v)
    return radius * x, radius * y


def circle(v):
    """(cos, sin) of v turns, 0 <= v < 1, as Taylor series: the words cos and sin do not vectorise."""
    quarter = rint(4.0 * v)
    a = TURN * (v - 0.25 * quarter)
    z = a * a
    s = ((-7.647163731819816e-13 * z + 1.6059043836821613e-10) * z - 2.505210838544172e-08) * z + 2.7557319223985893e-06
    s = ((s * z - 1.984126984126984e-4) * z + 8.333333333333333e-3) * z - 1.6666666666666666e-1
    s = a + a * z * s
    c = ((4.779477332387385e-14 * z - 1.1470745597729725e-11) * z + 2.08767569878681e-09) * z - 2.755731922398589e-07
    c = (((c * z + 2.48015873015873e-05) * z - 1.388888888888889e-3) * z + 4.1666666666666664e-2) * z - 0.5
    c = 1.0 + z * c
    odd = (quarter == 1.0) | (quarter == 3.0)
    x, y = select(odd, s, c), select(odd, c, s)
    return select((quarter == 1.0) | (quarter == 2.0), -x, x), select((quarter == 2.0) | (quarter == 3.0), -y, y)


def uniforms(block, seed, stream, step):
    """A block's numbers in [0, 1): four, or two and two zeros in float64."""
    a, b, c, d = words_at(block, seed, stream, step)
    if EPS > SINGLE:
        return unit24(a), unit24(b), unit24(c), unit24(d)
    return unit53(a, b), unit53(c, d), 0.0, 0.0


def normals(block, seed, stream, step):
    """A block's normal numbers: four, or two and two zeros in float64."""
    a, b, c, d = words_at(block, seed, stream, step)
    if EPS > SINGLE:
        x, y = gauss(unit24(a) + STEP_24, unit24(b))
        z, w = gauss(unit24(c) + STEP_24, unit24(d))
        return x, y, z, w
    x, y = gauss(unit53(a, b) + STEP_53, unit53(c, d))
    return x, y, 0.0, 0.0
