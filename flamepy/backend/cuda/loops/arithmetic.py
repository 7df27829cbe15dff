"""Arithmetic of kernels that Numba has otherwise: sine and cosine, // and %, how range() counts.

Sine and cosine are right for any argument, without local memory and without a call:

x = n * pi / 2 + r with |r| <= pi / 4: up to LARGE by products of n with parts of pi / 2. Beyond, as Payne and Hanek (1983): of 2 / pi only
the bits matter that are multiplied to the last bits of n and to the fraction, and these products are made with integers. The polynomials
are minimax fits (float32) and fdlibm's (float64). Largest errors: 1.5 units in the last place.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..runtime.compat import RefType, cgutils, cuda, iternext_impl, libdevice, numbers, ranges, types


def two_over_pi() -> np.ndarray:
    """2 / pi as a binary fraction, after 32 zeros, in words of 32 bits; pi by Machin's formula."""
    one = 1 << 1400

    def arctan(x: int) -> int:
        """arctan(1 / x)."""
        power, total, n = one // x, one // x, 1
        while power:
            power, n = -power // (x * x), n + 2
            total += power // n
        return total

    fraction = (2 * one * one) // (4 * (4 * arctan(5) - arctan(239))) >> 1400 - 1280
    return np.array([0] + [fraction >> 1280 - 32 * n - 32 & 0xFFFFFFFF for n in range(40)], np.uint64)


BITS = two_over_pi()


def window(start):
    """64 bits of BITS from a bit on."""
    words = cuda.const.array_like(BITS)
    n, shift = start >> 5, types.uint64(start & 31)
    pair = (words[n] << types.uint64(32)) | words[n + 1]
    return (pair << shift) | (words[n + 2] >> (types.uint64(32) - shift))


# ---- float32 ----------------------------------------------------------------------------------------------------------------------------
LARGE32 = 105615.0


def reduced32(x):
    """(n, r)."""
    if libdevice.fabsf(x) <= LARGE32:
        t = libdevice.rintf(x * 0.6366197723675814)
        r = libdevice.fmaf(t, -1.5707963705062866, x)
        r = libdevice.fmaf(t, 4.371138828673793e-08, r)
        return types.int32(t), libdevice.fmaf(t, 1.7151245100058819e-15, r) if t != 0.0 else x  # -0 stays
    bits = libdevice.float_as_int(x)
    k = types.int32(((bits >> 23) & 255) - 150)
    if k == 105:
        return types.int32(0), x - x  # NaN
    m = types.uint64((bits & 0x7FFFFF) | 0x800000)
    low = window(k + 30 + 64) >> types.uint64(32)
    p = m * window(k + 30) + ((m * low) >> types.uint64(32))
    n = types.uint64(p + types.uint64(1 << 61)) >> types.uint64(62)
    r = types.float32(types.int64(p - (n << types.uint64(62)))) * 3.4061215800865545e-19
    return (types.int32(n), r) if x > 0.0 else (-types.int32(n), -r)


def wave32(n, r):
    """The sine of n quarter turns and r. The 0 that is added keeps -0."""
    z = r * r
    s = libdevice.fmaf(libdevice.fmaf(2.86567956e-6, z, -1.98559923e-4), z, 8.33338592e-3)
    s = libdevice.fmaf(libdevice.fmaf(libdevice.fmaf(s, z, -1.66666672e-1), z, 0.0), r, r)
    c = libdevice.fmaf(libdevice.fmaf(2.44677067e-5, z, -1.38877297e-3), z, 4.16666567e-2)
    c = libdevice.fmaf(libdevice.fmaf(c, z, -0.5), z, 1.0)
    found = c if n & 1 else s
    return -found if n & 2 else found


def sin32(x):
    n, r = reduced32(x)
    return wave32(n, r)


def cos32(x):
    n, r = reduced32(x)
    return wave32(n + 1, r)


# ---- float64 ----------------------------------------------------------------------------------------------------------------------------
LARGE64 = 1e8


def reduced64(x):
    if libdevice.fabs(x) <= LARGE64:
        t = libdevice.rint(x * 0.6366197723675814)
        r = libdevice.fma(t, -1.5707963267948966, x)
        r = libdevice.fma(t, -6.123233995736766e-17, r)
        return types.int32(t), libdevice.fma(t, 1.4973849048591698e-33, r) if t != 0.0 else x
    bits = libdevice.double_as_longlong(x)
    k = types.int32(((bits >> 52) & 2047) - 1075)
    if k == 972:
        return types.int32(0), x - x  # NaN
    m = types.uint64((bits & 0xFFFFFFFFFFFFF) | 0x10000000000000)
    middle = window(k + 30 + 64)
    low = m * middle + high_half(m, window(k + 30 + 128))
    p = m * window(k + 30) + high_half(m, middle) + (types.uint64(1) if low < m * middle else types.uint64(0))
    n = types.uint64(p + types.uint64(1 << 61)) >> types.uint64(62)
    r = types.float64(types.int64(p - (n << types.uint64(62)))) + types.float64(low) * 5.421010862427522e-20
    r *= 3.4061215800865545e-19
    return (types.int32(n), r) if x > 0.0 else (-types.int32(n), -r)


def high_half(a, b):
    return types.uint64(libdevice.umul64hi(a, b))


def wave64(n, r):
    z = r * r
    s = (1.58969099521155010221e-10 * z - 2.50507602534068634195e-08) * z + 2.75573137070700676789e-06
    s = ((s * z - 1.98412698298579493134e-04) * z + 8.33333333332248946124e-03) * z - 1.66666666666666324348e-01
    s = libdevice.fma(libdevice.fma(s, z, 0.0), r, r)
    c = (-1.13596475577881948265e-11 * z + 2.08757232129817482790e-09) * z - 2.75573143513906633035e-07
    c = ((c * z + 2.48015872894767294178e-05) * z - 1.38888888888741095749e-03) * z + 4.16666666666666019037e-02
    half = 0.5 * z
    c = (1.0 - half) + ((1.0 - (1.0 - half) - half) + z * z * c)
    found = c if n & 1 else s
    return -found if n & 2 else found


def sin64(x):
    n, r = reduced64(x)
    return wave64(n, r)


def cos64(x):
    n, r = reduced64(x)
    return wave64(n + 1, r)


# ---- what // and % of floats give: Python's and NumPy's numbers, to the bit ----
# Numba's own way takes LLVM's remainder, which on a GPU is x - trunc(x / y) * y with the errors of these three. libdevice's is exact; from
# it comes the quotient as NumPy makes it. This takes its place for every kernel.
def division(kind: Any, fmod: Any, floor: Any, copysign: Any) -> tuple[Any, Any]:
    """What % and // of this type are, by its functions of libdevice."""
    zero, half, one = kind(0), kind(0.5), kind(1)

    def remainder(x, y):
        r = fmod(x, y)
        if r == zero:
            return copysign(r, y)
        return r + y if (y < zero) != (r < zero) else r

    def quotient(x, y):
        if y == zero:
            return x / y
        r = fmod(x, y)
        q = (x - r) / y
        if r != zero and (y < zero) != (r < zero):
            q -= one
        if q == zero:
            return copysign(q, x / y)
        whole = floor(q)
        return whole + one if q - whole > half else whole

    return remainder, quotient


def lower(sign: Any, function: Any, kind: Any) -> None:
    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.compile_internal(builder, function, sig, args)

    numbers.lower(sign, kind, kind)(build)


for kind, *functions in (
    (types.float32, libdevice.fmodf, libdevice.floorf, libdevice.copysignf),
    (types.float64, libdevice.fmod, libdevice.floor, libdevice.copysign),
):
    remainder, quotient = division(kind, *functions)
    lower(operator.mod, remainder, kind)
    lower(operator.floordiv, quotient, kind)


# ---- how range() counts: an index that is compared with the end and added to ----
# Numba's own way counts how many steps are left beside the index, which costs a division before each loop and four instructions more in
# each turn, and leaves its loops as they are. This takes its place for every kernel; it means the same.
def begin(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    given = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    found = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    found.iter = found.count = cgutils.alloca_once_value(builder, given.start)  # nobody asks for the count
    found.stop, found.step = given.stop, given.step
    return found._getvalue()


@iternext_impl(RefType.BORROWED)
def advance(context: Any, builder: Any, sig: Any, args: Any, result: Any) -> None:
    """The index is told and moved in any case: a choice would stay in the loop."""
    given = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    at = builder.load(given.iter)
    up, down = builder.icmp_signed("<", at, given.stop), builder.icmp_signed(">", at, given.stop)
    result.set_valid(builder.select(builder.icmp_signed(">", given.step, given.step.type(0)), up, down))
    result.yield_(at)
    builder.store(builder.add(at, given.step, flags=["nsw"]), given.iter)


for state in (types.range_state32_type, types.range_state64_type):
    ranges.lower("getiter", state)(begin)
    ranges.lower("iternext", state.iterator_type)(advance)
