"""16-bit floats by whole-number arithmetic (right on every processor), special functions, and 64-bit division.

Special functions are computed in float64 and rounded once: at least as precise as the device.
"""

import math

import numpy as np
from numba import float32, int64, types, uint64
from numba.extending import intrinsic

from .layout import VALUES
from .runtime_words import inlined, peek16, peek64, peek_float, plain, poke16, poke64, poke_float


def _same_bits(source, target):
    @intrinsic
    def cast(typing, value):
        def generate(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    return cast


bits_of_float, float_of_bits = _same_bits(types.float32, types.int32), _same_bits(types.int32, types.float32)
bits_of_double, double_of_bits = _same_bits(types.float64, types.int64), _same_bits(types.int64, types.float64)


@inlined
def bfloat_value(bits):
    return float_of_bits(np.int32(np.int64(bits) << 16))


@inlined
def bfloat_bits(value):
    """To the nearest, ties to even; NaN as the device writes it."""
    if value != value:
        return np.int64(0x7FFF)
    bits = np.int64(bits_of_float(value)) & 0xFFFFFFFF
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


@plain
def half_value(bits):
    bits = np.int64(bits)
    sign, exponent, fraction = bits >> 15, bits >> 10 & 31, bits & 1023
    if exponent == 31:
        return float_of_bits(np.int32(sign << 31 | 0x7F800000 | fraction << 13))
    if exponent == 0:
        return float32(math.ldexp(float(fraction), -24)) * float32(1 - 2 * sign)
    return float_of_bits(np.int32(sign << 31 | (exponent + 112) << 23 | fraction << 13))


@plain
def half_bits(value):
    """float32 or float64 to half, to the nearest, ties to even, rounded once."""
    wide = np.float64(value)
    sign = (np.int64(bits_of_double(wide)) >> 63 & 1) << 15
    if wide != wide:
        return np.int64(0x7FFF)
    size = abs(wide)
    if size >= 65520.0:
        return sign | 0x7C00
    if size < 2.0**-14:
        return sign | np.int64(round_even(size * 2.0**24))
    exponent = (np.int64(bits_of_double(size)) >> 52) - 1023
    steps = np.int64(round_even(math.ldexp(size, 10 - exponent)))
    return sign | ((exponent + 15) << 10) + steps - 1024


@inlined
def round_even(x):
    """x is below 2**52: adding it there drops the fraction, to the nearest even."""
    return (x + 4503599627370496.0) - 4503599627370496.0


@plain
def to_half(warp, double):
    """Slot 0 (float32, or float64) to slot 1."""
    for lane in range(32):
        if double:
            poke16(warp + VALUES + 256 + 2 * lane, half_bits(double_of_bits(peek64(warp + VALUES + 8 * lane))))
        else:
            poke16(warp + VALUES + 256 + 2 * lane, half_bits(peek_float(warp + VALUES + 4 * lane)))


@plain
def from_half(warp):
    """Slot 0 to slot 1, float32."""
    for lane in range(32):
        poke_float(warp + VALUES + 256 + 4 * lane, half_value(peek16(warp + VALUES + 2 * lane)))


SPECIAL = {name: k for k, name in enumerate(["ex2", "lg2", "sin", "cos", "tanh", "rsqrt"])}


@inlined
def special_of(kind, x):
    if kind == 0:
        return 2.0**x if x == x else x
    if kind == 1:
        return math.log2(x) if x > 0.0 else (-math.inf if x == 0.0 else math.nan)
    if kind == 5:
        return 1.0 / math.sqrt(x) if x != 0.0 else math.copysign(math.inf, x)
    if kind == 4:
        return math.tanh(x)
    if not abs(x) < math.inf:
        return math.nan
    return math.sin(x) if kind == 2 else math.cos(x)


@plain
def special(warp, kind):
    """ex2, lg2, sin, cos, tanh, rsqrt of the float32 numbers in slot 0, to slot 1."""
    for lane in range(32):
        poke_float(warp + VALUES + 256 + 4 * lane, float32(special_of(kind, np.float64(peek_float(warp + VALUES + 4 * lane)))))


@plain
def divide(warp, signed, remainder):
    """64-bit slot 0 by slot 1, to slot 2. By zero: all ones, and the number itself as the remainder."""
    for lane in range(32):
        a, b = peek64(warp + VALUES + 8 * lane), peek64(warp + VALUES + 256 + 8 * lane)
        if b == 0:
            result = a if remainder else int64(-1)
        elif signed:
            if b == -1:
                quotient = -a
            else:
                quotient = int64(abs_bits(a) // abs_bits(b))
                if (a < 0) != (b < 0):
                    quotient = -quotient
            result = a - quotient * b if remainder else quotient
        else:
            result = int64(uint64(a) % uint64(b)) if remainder else int64(uint64(a) // uint64(b))
        poke64(warp + VALUES + 512 + 8 * lane, result)


@inlined
def abs_bits(a):
    return uint64(-a) if a < 0 else uint64(a)
