"""Words that move short runs of numbers: a line of an image is shorter than what a vectorised loop does at once.

    as_stored(x)                               x as kernels see it that move numbers without looking at them: 16-bit floats as integers
    copy_vector(out, at, x, start, count)      out[at : at + count] = x[start : start + count]; numbers of one size
    add_vector(out, at, x, start, count)       out[at : at + count] += x[start : start + count]; floats of one type

`count` is written as a number, 4, 8 or 16: it is the length of a vector.

Read next: windows.py.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .halves import Halves


def as_stored(x):
    """The word in plain Python."""
    return x


def copy_vector(out, at, x, start, count):
    """The word in plain Python."""
    out[int(at) : int(at) + count] = x[int(start) : int(start) + count]


def add_vector(out, at, x, start, count):
    """The word in plain Python."""
    out[int(at) : int(at) + count] += x[int(start) : int(start) + count]


@intrinsic
def raw_array(typing: Any, x: Any) -> Any:
    return (x.raw if isinstance(x, Halves) else x)(x), lambda context, builder, signature, args: args[0]


def place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """The address of an array's number."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


def vector_word(adds: bool) -> Any:
    def word(typing: Any, out: Any, at: Any, x: Any, start: Any, count: Any) -> Any:
        if not isinstance(count, types.IntegerLiteral):
            return None

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, source = place(context, builder, out, *args[:2]), place(context, builder, x, *args[2:4])
            size = context.get_abi_sizeof(to.type.pointee)
            vector = ir.VectorType(to.type.pointee, count.literal_value).as_pointer()
            to, value = builder.bitcast(to, vector), builder.load(builder.bitcast(source, vector), align=size)
            builder.store(builder.fadd(builder.load(to, align=size), value) if adds else value, to, align=size)
            return context.get_dummy_value()

        return types.void(out, types.uint64, x, types.uint64, count), code

    return intrinsic(prefer_literal=True)(word)


WORDS = {"as_stored": raw_array, "copy_vector": vector_word(False), "add_vector": vector_word(True)}
