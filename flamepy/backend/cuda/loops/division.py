"""What // and % of floats give in kernels: Python's and NumPy's numbers, to the bit.

Numba's own way takes LLVM's remainder, which on a GPU is x - trunc(x / y) * y with the errors of these three. libdevice's is exact; from
it comes the quotient as NumPy makes it. This takes its place for every kernel.
"""

from __future__ import annotations

import operator
from typing import Any

from ..runtime.compat import libdevice, numbers, types


def remainder32(x, y):
    r = libdevice.fmodf(x, y)
    if r == types.float32(0):
        return libdevice.copysignf(r, y)
    return r + y if (y < types.float32(0)) != (r < types.float32(0)) else r


def quotient32(x, y):
    zero, one = types.float32(0), types.float32(1)
    if y == zero:
        return x / y
    r = libdevice.fmodf(x, y)
    q = (x - r) / y
    if r != zero and (y < zero) != (r < zero):
        q -= one
    if q == zero:
        return libdevice.copysignf(q, x / y)
    whole = libdevice.floorf(q)
    return whole + one if q - whole > types.float32(0.5) else whole


def remainder64(x, y):
    r = libdevice.fmod(x, y)
    if r == 0.0:
        return libdevice.copysign(r, y)
    return r + y if (y < 0.0) != (r < 0.0) else r


def quotient64(x, y):
    if y == 0.0:
        return x / y
    r = libdevice.fmod(x, y)
    q = (x - r) / y
    if r != 0.0 and (y < 0.0) != (r < 0.0):
        q -= 1.0
    if q == 0.0:
        return libdevice.copysign(q, x / y)
    whole = libdevice.floor(q)
    return whole + 1.0 if q - whole > 0.5 else whole


def lower(sign: Any, function: Any, kind: Any) -> None:
    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.compile_internal(builder, function, sig, args)

    numbers.lower(sign, kind, kind)(build)


for kind, remainder, quotient in ((types.float32, remainder32, quotient32), (types.float64, remainder64, quotient64)):
    lower(operator.mod, remainder, kind)
    lower(operator.floordiv, quotient, kind)
