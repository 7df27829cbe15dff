"""Words that move short runs of numbers: a line of an image is shorter than what a vectorised loop does at once.

    as_stored(x)                               x as kernels see it that move numbers without looking at them: 16-bit floats as integers
    copy_vector(out, at, x, start, count)      out[at : at + count] = x[start : start + count]; numbers of one size
    add_vector(out, at, x, start, count)       out[at : at + count] += x[start : start + count]; floats of one type
    taps_vectors(out, at, apart, x, start, step, offsets, w, places, count, vectors)
        `vectors` of out, `apart` from at on, = the first vector of w + the sum over t of that at places[t] times those of x, `step` apart
        from start + offsets[t] on; floats of one type

`count` is written as a number, 4, 8 or 16: it is the length of a vector. So is `vectors`: as many sums are in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..runtime.halves import Halves


def as_stored(x):
    """The word in plain Python."""
    return x


def copy_vector(out, at, x, start, count):
    """The word in plain Python."""
    out[int(at) : int(at) + count] = x[int(start) : int(start) + count]


def add_vector(out, at, x, start, count):
    """The word in plain Python."""
    out[int(at) : int(at) + count] += x[int(start) : int(start) + count]


def taps_vectors(out, at, apart, x, start, step, offsets, w, places, count, vectors):
    """The word in plain Python."""
    for v in range(vectors):
        total, seen = w[:count].copy(), int(start) + v * int(step)
        for offset, place in zip(offsets, places, strict=True):
            total += w[place : place + count] * x[seen + offset : seen + offset + count]
        out[int(at) + v * int(apart) : int(at) + v * int(apart) + count] = total


@intrinsic
def raw_array(typing: Any, x: Any) -> Any:
    return (x.raw if isinstance(x, Halves) else x)(x), lambda context, builder, signature, args: args[0]


class Run:
    """Vectors of `count` numbers of one array, by index."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, count: int):
        self.builder, self.data = builder, context.make_array(kind)(context, builder, array).data
        self.kind, self.size = ir.VectorType(self.data.type.pointee, count), context.get_abi_sizeof(self.data.type.pointee)

    def place(self, at: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(self.data, [at]), kind.as_pointer())

    def load(self, at: Any, kind: Any = None) -> Any:
        return self.builder.load(self.place(at, kind or self.kind), align=self.size)

    def store(self, value: Any, at: Any) -> None:
        self.builder.store(value, self.place(at, self.kind), align=self.size)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        name = f"llvm.fmuladd.v{self.kind.count}f{8 * self.size}"
        function = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(self.kind, [self.kind] * 3), name)
        return self.builder.call(function, [a, b, c])


def moving(adds: bool) -> Any:
    def word(typing: Any, out: Any, at: Any, x: Any, start: Any, count: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to, source = (Run(context, builder, kind, args[i], count.literal_value) for i, kind in ((0, out), (2, x)))
            value = source.load(args[3], to.kind)
            to.store(builder.fadd(to.load(args[1]), value) if adds else value, args[1])
            return context.get_dummy_value()

        return (types.void(out, types.uint64, x, types.uint64, count), code) if isinstance(count, types.IntegerLiteral) else None

    return intrinsic(prefer_literal=True)(word)


@intrinsic(prefer_literal=True)
def summed_taps(typing, out, at, apart, x, start, step, offsets, w, places, count, vectors):  # type: ignore[no-untyped-def]
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, source, weights = (Run(context, builder, kind, args[i], count.literal_value) for i, kind in ((0, out), (3, x), (7, w)))
        further, own = (Run(context, builder, kind, args[i], 1) for i, kind in ((6, offsets), (8, places)))
        near = ir.Constant(args[1].type, count.literal_value)
        totals = [cgutils.alloca_once_value(builder, weights.load(near.type(0))) for _ in range(vectors.literal_value)]
        with builder.if_else(builder.icmp_unsigned("==", args[5], near)) as branches:
            for branch, step in zip(branches, (near, args[5]), strict=True):  # neighbours at addresses that are known: no additions
                with branch, cgutils.for_range(builder, context.make_array(offsets)(context, builder, args[6]).nitems) as loop:
                    weight = weights.load(builder.load(builder.gep(own.data, [loop.index])))
                    seen = builder.add(args[4], builder.load(builder.gep(further.data, [loop.index])))
                    for total in totals:
                        builder.store(to.multiply_add(weight, source.load(seen), builder.load(total)), total)
                        seen = builder.add(seen, step)
        at = args[1]
        for total in totals:
            to.store(builder.load(total), at)
            at = builder.add(at, args[2])
        return context.get_dummy_value()

    literal = isinstance(count, types.IntegerLiteral) and isinstance(vectors, types.IntegerLiteral)
    signature = types.void(out, *(types.uint64,) * 2, x, *(types.uint64,) * 2, offsets, w, places, count, vectors)
    return (signature, code) if literal else None


WORDS = {"as_stored": raw_array, "copy_vector": moving(False), "add_vector": moving(True), "taps_vectors": summed_taps}
