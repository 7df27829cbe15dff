"""16-bit floats in kernels: stored in 16 bits, computed in float32.

The array of a bfloat16 buffer is one of uint16, that of a float16 buffer one of int16: NumPy's own types, which Numba looks up fast. A
kernel that computes gets them as Halves: x[i] is a float32, and what is stored is rounded to the nearest, of two equally near ones to the
even one. A kernel bound for integers of 8 or 16 bits gets them as they are: as the integers that they may be as well, or, where numbers
are only moved (WHOLE), as whatever they are. Each array has a
type of its own, so one kernel may read float32 and write bfloat16.

What a kernel computes has the bits of the float32 kernel, rounded once; on ARM sums over a row may differ before they are rounded, as LLVM
cuts them otherwise there.

bfloat16 is rounded by integer arithmetic: the processors' own instruction flushes denormal numbers, and few have it. float16 is left to
the processor where it can do it (F16C, ARM).
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import register_default
from numba.core.datamodel.models import ArrayModel, StructModel
from numba.core.imputils import lower_builtin, lower_getattr

from . import processor

STRIP = 16
I16, I32, F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()


class Halves(types.Array):  # type: ignore[misc]
    """An array of 16-bit floats; `stored`: types.uint16 for bfloat16, types.int16 for float16."""

    def __init__(self, stored: Any, ndim: int, layout: Any, readonly: bool = False):
        self.stored = stored
        super().__init__(types.float32, ndim, layout, readonly, f"halves({stored}, {ndim}d, {layout}, {readonly})")

    @property
    def key(self) -> Any:
        return self.stored, self.ndim, self.layout, self.mutable

    def copy(self, dtype: Any = None, ndim: Any = None, layout: Any = None, readonly: Any = None) -> Any:
        """What a slice of it is."""
        ndim, layout = self.ndim if ndim is None else ndim, layout or self.layout
        return Halves(self.stored, ndim, layout, not self.mutable if readonly is None else readonly)

    @property
    def raw(self) -> Any:
        """The same memory as integers."""
        return types.Array(self.stored, self.ndim, self.layout, not self.mutable)


@register_default(Halves)
class HalvesModel(ArrayModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any):
        members = [("meminfo", types.MemInfoPointer(kind.stored)), ("parent", types.pyobject)]
        members += [("nitems", types.intp), ("itemsize", types.intp), ("data", types.CPointer(kind.stored))]
        members += [(name, types.UniTuple(types.intp, kind.ndim)) for name in ("shape", "strides")]
        StructModel.__init__(self, manager, kind, members)


def in_kernel(kind: Any, dtype: np.dtype) -> Any:
    """The type of an argument inside a kernel that is bound for `dtype`."""
    raw = dtype.kind in "iu" and dtype.itemsize <= 2  # there they are integers
    halves = isinstance(kind, types.Array) and kind.dtype in (types.uint16, types.int16) and not raw
    return Halves(kind.dtype, kind.ndim, kind.layout, not kind.mutable) if halves else kind


@lower_builtin(operator.getitem, Halves, types.Integer)
def get_item(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array, index = signature.args
    found = context.get_function(operator.getitem, array.stored(array.raw, index))(builder, args)
    return (from_bfloat16 if array.stored == types.uint16 else from_float16)(builder, found)


@lower_builtin(operator.setitem, Halves, types.Integer, types.Any)
def set_item(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array, index, kind = signature.args
    value = context.cast(builder, args[2], kind, types.float32)
    value = (to_bfloat16 if array.stored == types.uint16 else to_float16)(builder, value)
    put = context.get_function(operator.setitem, types.none(array.raw, index, array.stored))
    return put(builder, (args[0], args[1], value))


@lower_getattr(Halves, "ctypes")
def get_ctypes(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """What x.ctypes.data, the address, is made of."""
    array, found = context.make_array(kind)(context, builder, value), context.make_helper(builder, types.ArrayCTypes(kind))
    found.data, found.meminfo = builder.bitcast(array.data, found.data.type), array.meminfo
    return found._getvalue()


def turn_halves(rows, cols, a, a_off, lda, c, c_off, ldc):
    """The word `turn_matrix` for what is only moved: by strips of STRIP rows, whose lines stay in the nearest cache."""
    for first in range(0, rows, STRIP):
        for j in range(np.uintp(cols)):
            for i in range(np.uintp(first), np.uintp(min(rows, first + STRIP))):
                c[np.uintp(c_off) + j * np.uintp(ldc) + i] = a[np.uintp(a_off) + i * np.uintp(lda) + j]


# ---- bfloat16: the upper half of a float32 ---------------------------------------------------------------------------------------
def from_bfloat16(b: Any, x: Any) -> Any:
    return b.bitcast(b.shl(b.zext(x, I32), I32(16)), F32)


def to_bfloat16(b: Any, x: Any) -> Any:
    """Half of the last place is added, less one bit where that would make an odd number of an even one."""
    bits = b.bitcast(x, I32)
    rounded = b.add(bits, b.add(b.and_(b.lshr(bits, I32(16)), I32(1)), I32(0x7FFF)))
    nan = b.or_(bits, I32(0x400000))
    return b.trunc(b.lshr(b.select(b.fcmp_unordered("uno", x, x), nan, rounded), I32(16)), I16)


# ---- float16 ----------------------------------------------------------------------------------------------------------------------
def from_float16(b: Any, x: Any) -> Any:
    if processor.converts_float16():
        return b.fpext(b.bitcast(x, ir.HalfType()), F32)
    x = b.zext(x, I32)
    bits = b.shl(b.and_(x, I32(0x7FFF)), I32(13))
    exponent = b.and_(bits, I32(0x7C00 << 13))
    normal = b.add(bits, I32((127 - 15) << 23))
    small = b.fsub(b.bitcast(b.add(normal, I32(1 << 23)), F32), F32(2.0**-14))
    endless = b.add(normal, I32((128 - 16) << 23))
    found = b.select(b.icmp_unsigned("==", exponent, I32(0)), b.bitcast(small, I32), normal)
    found = b.select(b.icmp_unsigned("==", exponent, I32(0x7C00 << 13)), endless, found)
    return b.bitcast(b.or_(found, b.shl(b.and_(x, I32(0x8000)), I32(16))), F32)


def to_float16(b: Any, x: Any) -> Any:
    if processor.converts_float16():
        return b.bitcast(b.fptrunc(x, ir.HalfType()), I16)
    bits = b.bitcast(x, I32)
    size = b.and_(bits, I32(0x7FFFFFFF))
    odd = b.and_(b.lshr(size, I32(13)), I32(1))
    normal = b.lshr(b.add(b.sub(size, I32(((127 - 15) << 23) - 0xFFF)), odd), I32(13))
    # Added to 0.5, a number below 2**-14 is rounded to the last place of a float16's.
    small = b.sub(b.bitcast(b.fadd(b.bitcast(size, F32), F32(0.5)), I32), I32(126 << 23))
    found = b.select(b.icmp_unsigned("<", size, I32(113 << 23)), small, normal)
    large = b.select(b.icmp_unsigned(">", size, I32(255 << 23)), I32(0x7E00), I32(0x7C00))
    found = b.select(b.icmp_unsigned(">=", size, I32((127 + 16) << 23)), large, found)
    return b.trunc(b.or_(found, b.and_(b.lshr(bits, I32(16)), I32(0x8000))), I16)
