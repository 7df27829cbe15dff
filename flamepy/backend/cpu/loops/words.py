"""The vocabulary compiled for the CPU: each word jitted for each dtype, made so that loops vectorise.

Numba calls the C library for exp or tanh, one number at a time. These are straight lines of arithmetic
without a branch or a call, so LLVM makes packed instructions of a loop (10 times faster). Each algorithm is
written once; what differs with the precision (constants, polynomials) stands in tables and is swapped in by
core/formula.py. The polynomials are minimax fits of our own; the rational forms are Cephes' (tanh) and
fdlibm's (log). Largest relative errors measured: 1.4e-7 in float32, 2.7e-16 in float64.

Compiled without reassociation, which would undo the split constants, and without reciprocal estimates,
which make 1 / sqrt(0) NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ...formula.bind import Compiler, jitted
from ..runtime.inner import INNER
from ..runtime.instructions import absolute, fmax, instruction, select
from .waves import cos32, quarter_turns, sin32

rint, copysign = instruction("llvm.rint", 1), instruction("llvm.copysign", 2)

# ----- What float64 uses, and float32 where the table below says nothing else -----
INF = math.inf
NAN = math.nan
MANTISSA = 52  # bits after the binary point
BIAS = 1023  # of the exponent
MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number, which the low bits then hold
MAGIC_BITS = 0x4338000000000000
BIASED = 6755399441056767.0  # MAGIC + BIAS: the low bits then hold the exponent as a number of this type has it
LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # so few bits that a product with an exponent is exact
LN2_LOW = 1.90821492927058770002e-10
EXP_TOP = 710.0  # exp is infinite from here on
EXP_BOTTOM = -746.0  # exp is zero from here on
EXP_FLOOR = -708.39641853226  # exp_down is zero from here on: 2**-1022, the smallest power of two with all its digits
EXPM1_BOTTOM = -50.0  # expm1 is -1 from here on
EXP2_TOP = 1025.0  # exp2 is infinite from here on
EXP2_BOTTOM = -1076.0  # exp2 is zero from here on
LN2 = 0.6931471805599453
LOG10_E = 0.4342944819032518
LOG10_2_HIGH = 3.01029995663611771306e-01  # so few bits that a product with an exponent is exact
LOG10_2_LOW = 3.69423907715893078616e-13
SMALLEST = 2.2250738585072014e-308  # the smallest normal number
LIFT = 18014398509481984.0  # 2**54: makes a denormal number normal
LIFTED = 54.0
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD  # of sqrt(0.5)
ERF_ONE = 6.0  # erf is 1 from here on
whole = np.int64
real_type = np.float64


def bits(x):
    return np.float64(x).view(np.int64)


def from_bits(i):
    return np.int64(i).view(np.float64)


def expm1_tail(r):
    """(exp(r) - 1 - r) / r**2 for |r| <= log(2) / 2."""
    p = (2.09245218079161379e-9 * r + 2.51091256348210854e-8) * r + 2.75572425212001979e-7
    p = ((p * r + 2.75572439789465502e-6) * r + 2.48015873608086229e-5) * r + 1.98412698863281752e-4
    p = ((p * r + 1.38888888888667291e-3) * r + 8.3333333333215634e-3) * r + 4.16666666666667015e-2
    return (p * r + 1.66666666666666766e-1) * r + 0.5


def log_tail(f, half_square):
    """log(1 + f) - f + f**2 / 2 for sqrt(1/2) - 1 <= f <= sqrt(2) - 1."""
    s = f / (2.0 + f)
    z = s * s
    p = (1.479819860511658591e-01 * z + 1.531383769920937332e-01) * z + 1.818357216161805012e-01
    p = ((p * z + 2.222219843214978396e-01) * z + 2.857142874366239149e-01) * z + 3.999999999940941908e-01
    return s * (half_square + (p * z + 6.666666666666735130e-01) * z)


def tanh_top(z):
    """tanh(x) = x + x * z * tanh_top(z) / tanh_bottom(z) with z = x**2, |x| < 0.625."""
    return (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z - 1.61468768441708447952e3


def tanh_bottom(z):
    return ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + 4.84406305325125486048e3


def erf_near0(z):
    """erf(x) / x - 1 with z = x**2, |x| < 1."""
    p = (-7.80118527672973702e-10 * z + 1.37229741974378949e-8) * z - 1.62091753946270436e-7
    p = ((p * z + 1.64475176041820383e-6) * z - 1.49247446567421887e-5) * z + 1.2055295320109685e-4
    p = ((p * z - 8.54832598968205239e-4) * z + 5.22397760742310676e-3) * z - 2.68661706432761641e-2
    return ((p * z + 1.12837916709452528e-1) * z - 3.76126389031835466e-1) * z + 1.28379167095512567e-1


def log_erfc(a):
    """log(1 - erf(a)) for 1 <= a <= ERF_ONE, as accurate as erf needs it."""
    p = (1.049223621883065231e-12 * a - 4.794371417189049602e-11) * a + 1.025375538539275686e-9
    p = ((p * a - 1.362277335654612949e-8) * a + 1.256720587285960045e-7) * a - 8.503720328786931296e-7
    p = ((p * a + 4.32609715510305857e-6) * a - 1.651050864599881129e-5) * a + 4.502755838778299534e-5
    p = ((p * a - 7.034427036742348935e-5) * a - 4.486317714352294172e-5) * a + 6.412317935686792461e-4
    p = ((p * a - 1.769068471691962959e-3) * a + 2.80549270796625287e-4) * a + 1.90781143614600328e-2
    p = ((p * a - 1.02747231691052023e-1) * a - 6.36628496055531610e-1) * a - 1.128377327720045542
    return p * a - 1.797758719364236643e-7


# ----- What float32 uses instead -----
def bits32(x):
    return np.float32(x).view(np.int32)


def from_bits32(i):
    return np.int32(i).view(np.float32)


def expm1_tail32(r):
    p = ((1.991419961e-4 * r + 1.394106432e-3) * r + 8.333272975e-3) * r + 4.166635419e-2
    return (p * r + 1.666666682e-1) * r + 0.5


def log_tail32(f, half_square):
    p = ((6.921755777e-2 * f - 1.17810185e-1) * f + 1.186496898e-1) * f - 1.238548468e-1
    p = (((p * f + 1.422003663e-1) * f - 1.666922095e-1) * f + 2.000214542e-1) * f - 2.499998632e-1
    return f * f * f * (p * f + 3.333331195e-1)


def tanh_top32(z):
    p = (-5.72179893e-3 * z + 2.065543735e-2) * z - 5.37452381e-2
    return (p * z + 1.333151667e-1) * z - 3.333328514e-1


def tanh_bottom32(z):
    return 1.0


def erf_near0_32(z):
    p = ((7.889115716e-5 * z - 8.02084458e-4) * z + 5.189536322e-3) * z - 2.68544455e-2
    return ((p * z + 1.128360021e-1) * z - 3.761262714e-1) * z + 1.283791659e-1


def log_erfc32(a):
    p = ((-2.169738899e-5 * a + 4.414698076e-4) * a - 4.205269644e-3) * a + 2.521029597e-2
    return (((p * a - 1.084220248e-1) * a - 6.33216472e-1) * a - 1.12958027) * a + 1.884583055e-4


# ----- The words -----
def power_of_two(k):
    return from_bits((k + BIAS) << MANTISSA)


def reduced(x):
    """(t, r) with x = k * log(2) + r and |r| <= log(2) / 2; t = k + MAGIC. NaN goes into r."""
    t = x * LOG2_E + MAGIC
    n = t - MAGIC
    return t, (x - n * LN2_HIGH) - n * LN2_LOW


def split(x, bottom):
    """(k, r) as above, x bounded first."""
    x = select(x > EXP_TOP, EXP_TOP, x)
    t, r = reduced(select(x < bottom, bottom, x))
    return whole(bits(t) - MAGIC_BITS), r


def exp(x):
    k, r = split(x, EXP_BOTTOM)
    # 2**k in two steps: alone it may be too large or too small to write down.
    half = k >> 1
    return (1.0 + (r + r * r * expm1_tail(r))) * power_of_two(half) * power_of_two(k - half)


def exp2(x):
    x = select(x > EXP2_TOP, EXP2_TOP, x)
    x = select(x < EXP2_BOTTOM, EXP2_BOTTOM, x)
    t = x + MAGIC
    k, r = whole(bits(t) - MAGIC_BITS), (x - (t - MAGIC)) * LN2
    half = k >> 1
    return (1.0 + (r + r * r * expm1_tail(r))) * power_of_two(half) * power_of_two(k - half)


def exp_down(x):
    t = x * LOG2_E + BIASED
    n = t - BIASED
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    # t ends in the bits of 2**n; what else is in it is shifted out.
    return select(x < EXP_FLOOR, 0.0, (1.0 + (r + r * r * expm1_tail(r))) * from_bits(bits(t) << MANTISSA))


def bell(x):
    return exp_down(-0.5 * x * x)


def bell32(x):
    """2**(n + f) = exp(-x**2 / 2) with |f| <= 1/2, which one multiply-add leaves exact but for the constant: log2(e) / 2."""
    u = x * x
    t = BIASED - 0.7213475204444817 * u
    n = t - BIASED
    f = -0.7213475204444817 * u - n
    p = ((1.534581242594868e-4 * f + 1.3399932067841291e-3) * f + 9.618489071726799e-3) * f + 5.550328642129898e-2
    p = ((p * f + 2.402264624834061e-1) * f + 6.931471824645996e-1) * f + 1.0
    return select(u > 174.67, 0.0, p * from_bits(bits(t) << MANTISSA))  # below 2**-126


def expm1(x):
    k, r = split(x, EXPM1_BOTTOM)
    half = k >> 1
    high = power_of_two(half)
    # 2**k * expm1(r) + (2**k - 1), again in two steps.
    return (high * (r + r * r * expm1_tail(r)) + (high - power_of_two(half - k))) * power_of_two(k - half)


def exponent(y):
    """k such that y / 2**k lies between sqrt(1/2) and sqrt(2), for a normal y > 0."""
    return whole(bits(y) - ROOT_HALF_BITS) >> MANTISSA


def log_sum(f, n, rest):
    """log(1 + f) + n * log(2) + rest, small terms first."""
    half_square = 0.5 * f * f
    return n * LN2_HIGH + (f - (half_square - (log_tail(f, half_square) + (n * LN2_LOW + rest))))


def parted(x):
    """(f, n) with x = (1 + f) * 2**n, 1 + f between sqrt(1/2) and sqrt(2)."""
    denormal = x < SMALLEST
    y = select(denormal, x * LIFT, x)
    k = exponent(y)
    n = from_bits(k + MAGIC_BITS) - MAGIC
    return from_bits(bits(y) - (k << MANTISSA)) - 1.0, select(denormal, n - LIFTED, n)


def of_edges(x, result):
    """A logarithm of x, with those of what is no positive finite number."""
    result = select(x == INF, INF, result)
    return select(x > 0.0, result, select(x == 0.0, -INF, NAN))


def log(x):
    f, n = parted(x)
    return of_edges(x, log_sum(f, n, 0.0))


def log2(x):
    f, n = parted(x)
    half_square = 0.5 * f * f
    # f * log2(e) = f + 0.44 * f: the first part has no error.
    rest = f * (LOG2_E - 1.0) - (half_square - log_tail(f, half_square)) * LOG2_E
    return of_edges(x, n + (f + rest))


def log10(x):
    f, n = parted(x)
    half_square = 0.5 * f * f
    rest = f - (half_square - log_tail(f, half_square))
    return of_edges(x, n * LOG10_2_HIGH + (n * LOG10_2_LOW + rest * LOG10_E))


def log1p(x):
    y = 1.0 + x
    k = exponent(y)
    n = from_bits(k + MAGIC_BITS) - MAGIC
    f = from_bits(bits(y) - (k << MANTISSA)) - 1.0
    lost = (x - (y - 1.0)) / y  # what rounding 1 + x cut off
    result = log_sum(select(k == 0, x, f), n, select(k == 0, 0.0, lost))
    result = select(x == INF, INF, result)
    return select(x > -1.0, result, select(x == -1.0, -INF, NAN))


def first_half(x):
    """x with the first 12 of its 24 digits: the product of two such has no error."""
    return from_bits(bits(x) & -4096)


def pow32(x, y):
    """2**(y * log2(|x|)), the logarithm and the product each in two parts (as fdlibm's powf), then the cases that are none."""
    a = absolute(x)
    f, n = parted(a)
    b = 2.0 + f
    s = f / b
    s1, b1 = first_half(s), first_half(b)
    s2 = ((f - s1 * b1) - s1 * (f - (b1 - 2.0))) / b
    z = s * s
    tail = s * z * ((((0.262317 * z + 0.3205989) * z + 0.4121986) * z + 0.57707802) * z + 0.96179669)
    high = s1 * 2.884765625  # 2 * log2(e) in 12 digits
    low = s2 * 2.885390081777927 + (s1 * 6.24456777927e-4 + tail)
    t = first_half(n + (high + low))
    low = low - ((t - n) - high)
    p = select(y > 1e10, 1e10, select(y < -1e10, -1e10, y))
    p1 = first_half(p)
    low, high = (p - p1) * t + p * low, p1 * t
    z = high + low
    inside = (z < EXP2_TOP) & (z > EXP2_BOTTOM)
    z = select(inside, z, select(z < 0.0, EXP2_BOTTOM, EXP2_TOP))
    w = z + MAGIC
    r = select(inside, ((high - (w - MAGIC)) + low) * LN2, 0.0)
    k = whole(bits(w) - MAGIC_BITS)
    half = k >> 1
    result = (1.0 + (r + r * r * expm1_tail(r))) * power_of_two(half) * power_of_two(k - half)
    end = (a == 0.0) | (a == INF) | (absolute(y) == INF)
    result = select(end, select((a > 1.0) == (y > 0.0), INF, 0.0), result)
    v = absolute(y)
    even = (v >= 16777216.0) | (rint(0.5 * v) == 0.5 * v)
    odd = (rint(v) == v) & (even == False)  # noqa: E712  (no branch)
    result = select((x < 0.0) & (rint(v) != v) & (a < INF), NAN, select(odd, copysign(result, x), result))
    result = select((x != x) | (y != y), x + y, result)
    return select((y == 0.0) | (x == 1.0) | ((x == -1.0) & (v == INF)), 1.0, result)


def tanh(x):
    a = absolute(x)
    z = x * x
    small = a < 0.625
    # One division serves both: x + x * top / bottom near 0, 1 - 2 * e / (1 + e) beyond, e = exp(-2 * a).
    e = exp_down(-(a + a))
    d = select(small, z * tanh_top(z), e + e) / select(small, tanh_bottom(z), 1.0 + e)
    return copysign(select(small, a + a * d, 1.0 - d), x)


def erf(x):
    a = absolute(x)
    large = 1.0 - exp_down(log_erfc(select(a > ERF_ONE, ERF_ONE, a)))
    return select(a < 1.0, x + x * erf_near0(x * x), select(x < 0.0, -large, large))


def normal_tail(a, e):
    return 0.5 - 0.5 * erf(0.7071067811865476 * a)


def normal_tail32(a, e):
    """e * 0.5 * erfcx(a / sqrt(2)) with a polynomial in t = 1 / (1 + 0.305 a): accurate relative to the tail, however thin."""
    t = 1.0 / (1.0 + 0.305 * a)
    p = ((3.669925404e-2 * t - 1.529885801e-1) * t + 1.857173677e-1) * t - 3.797725823e-2
    p = (((p * t + 1.210219059e-1) * t + 1.034207981e-1) * t + 1.224668276e-1) * t + 1.21639732e-1
    return e * (t * p)


def sign(x):
    return select(x > 0.0, 1.0, select(x < 0.0, -1.0, x))  # 0 and NaN are their own sign


def real(x):
    return real_type(x)


# ----- The same for integers -----
def absolute_int(x):
    return whole(select(x < 0, -x, x))


def sign_int(x):
    return whole((x > 0) - (x < 0))


def maximum_int(a, b):
    return whole(select(a > b, a, b))


def minimum_int(a, b):
    return whole(select(a < b, a, b))


# ----- Tables -----
F32, F64 = (np.dtype(name) for name in ("float32", "float64"))
WHOLES = [np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)]

# What typed() puts in the place of a global of this file.
SWAPS: dict[np.dtype, dict[str, Any]] = {F32: {}, F64: {}, **{dtype: {"whole": dtype.type} for dtype in WHOLES}}


def jit(function: Callable, reorder: bool = False) -> Any:
    return numba.njit(fastmath={"contract", "nsz"}, **INNER)(function)


BUILDER = Compiler(SWAPS.__getitem__, (__name__,), jit)

SWAPS[F32].update({
    "MANTISSA": 23, "BIAS": 127, "MAGIC_BITS": 0x4B400000, "ROOT_HALF_BITS": 0x3F3504F3, "whole": np.int32,
    "real_type": np.float32,
})  # fmt: skip
FLOATS32 = {
    "MAGIC": 12582912.0, "BIASED": 12583039.0, "LN2_HIGH": 0.693359375, "LN2_LOW": -2.12194440e-4, "EXP_TOP": 89.0, "ERF_ONE": 4.0,
    "EXP_BOTTOM": -105.0, "EXP_FLOOR": -87.3365, "EXPM1_BOTTOM": -25.0, "SMALLEST": 2.0**-126, "LIFT": 2.0**25, "LIFTED": 25.0,
    "EXP2_TOP": 129.0, "EXP2_BOTTOM": -151.0, "LOG10_2_HIGH": 3.0102920532e-01, "LOG10_2_LOW": 7.9034151668e-07,
}  # fmt: skip
PIECES32: dict[str, Any] = {
    "bits": bits32, "from_bits": from_bits32, "expm1_tail": expm1_tail32, "log_tail": log_tail32,
    "tanh_top": tanh_top32, "tanh_bottom": tanh_bottom32, "erf_near0": erf_near0_32, "log_erfc": log_erfc32,
}  # fmt: skip
SWAPS[F32].update((name, np.float32(value)) for name, value in FLOATS32.items())
SWAPS[F32].update((name, jitted(piece, F32, BUILDER)) for name, piece in PIECES32.items())

COMPILED: dict[str, Any] = {
    "exp": exp, "exp_down": exp_down, "bell": bell, "log": log, "log1p": log1p, "expm1": expm1, "tanh": tanh, "erf": erf,
    "normal_tail": normal_tail, "sign": sign, "real": real, "exp2": exp2, "log2": log2, "log10": log10,
}  # fmt: skip
INSTRUCTIONS: dict[str, Any] = {
    "abs": absolute, "fmax": fmax, "select": select,
    "sqrt": instruction("llvm.sqrt", 1), "floor": instruction("llvm.floor", 1),
    "ceil": instruction("llvm.ceil", 1), "rint": rint,
    "maximum": instruction("llvm.maximum", 2), "minimum": instruction("llvm.minimum", 2),
    "copysign": copysign,
    # These three are calls into the C library, right for any argument and not vectorised; float32 has its own.
    "sin": instruction("llvm.sin", 1), "cos": instruction("llvm.cos", 1), "pow": instruction("llvm.pow", 2),
}  # fmt: skip
INTEGER: dict[str, Any] = {
    "abs": absolute_int, "sign": sign_int, "maximum": maximum_int, "minimum": minimum_int,
    "fmax": maximum_int,
}  # fmt: skip

WORDS: dict[str, dict[np.dtype, Any]] = {word: dict.fromkeys((F32, F64), found) for word, found in INSTRUCTIONS.items()}
for word, found in COMPILED.items():
    WORDS[word] = {dtype: jitted(found, dtype, BUILDER) for dtype in (F32, F64)}
SWAPS[F32]["quarter_turns"] = jitted(quarter_turns, F64, BUILDER)
for word, found in (("bell", bell32), ("normal_tail", normal_tail32), ("pow", pow32), ("sin", sin32), ("cos", cos32)):
    WORDS[word][F32] = jitted(found, F32, BUILDER)
for dtype in WHOLES:
    WORDS["select"][dtype] = select
    for word, found in INTEGER.items():
        WORDS[word][dtype] = jitted(found, dtype, BUILDER)

CONSTANTS: dict[str, dict[np.dtype, Any]] = {
    "INF": {dtype: dtype.type(np.inf) for dtype in (F32, F64)},
    "EPS": {dtype: np.finfo(dtype).eps for dtype in (F32, F64)},
}
