"""Words that move short runs of numbers: a line of an image is shorter than what a vectorised loop does at once.

    as_stored(x)                            x as kernels see it that move numbers without looking at them: 16-bit floats as integers
    move_run(out, at, x, start, count)      out[at : at + count] = x[start : start + count]; numbers of one size, that do not overlap
    add_eight(out, at, x, start)            out[at : at + 8] += x[start : start + 8]; floats of one type, that do not overlap

Read next: windows.py.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .halves import Halves

EIGHT = 8


def as_stored(x):
    """The word in plain Python."""
    return x


def move_run(out, at, x, start, count):
    """The word in plain Python."""
    out[int(at) : int(at + count)] = x[int(start) : int(start + count)]


def add_eight(out, at, x, start):
    """The word in plain Python."""
    out[int(at) : int(at) + EIGHT] += x[int(start) : int(start) + EIGHT]


@intrinsic
def raw_array(typing: Any, x: Any) -> Any:
    return (x.raw if isinstance(x, Halves) else x)(x), lambda context, builder, signature, args: args[0]


def place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The address of an array's number."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


@intrinsic
def copy_of_run(typing: Any, out: Any, at: Any, x: Any, start: Any, count: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source = place(context, builder, out, *args[:2]), place(context, builder, x, *args[2:4])
        size = context.get_abi_sizeof(to.type.pointee)
        cgutils.raw_memcpy(builder, to, builder.bitcast(source, to.type), args[4], size)
        return context.get_dummy_value()

    return types.void(out, types.uint64, x, types.uint64, types.uint64), code


@intrinsic
def sum_of_eight(typing: Any, out: Any, at: Any, x: Any, start: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source = place(context, builder, out, *args[:2]), place(context, builder, x, *args[2:])
        size = context.get_abi_sizeof(to.type.pointee)
        vector = ir.VectorType(to.type.pointee, EIGHT).as_pointer()
        to, source = builder.bitcast(to, vector), builder.bitcast(source, vector)
        builder.store(builder.fadd(builder.load(to, align=size), builder.load(source, align=size)), to, align=size)
        return context.get_dummy_value()

    return types.void(out, types.uint64, x, types.uint64), code


WORDS = {"as_stored": raw_array, "move_run": copy_of_run, "add_eight": sum_of_eight}
