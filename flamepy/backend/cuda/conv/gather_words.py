"""Words of convolution on the tensor cores: what a thread's two pixels see, as pairs of 16-bit numbers, on their way to shared memory.

A mark is four integers in shared memory: how far a step of the sum (channel, tap) lies from what a pixel begins at, and how many rows and
columns of the image. A thread has a pair of pixels and goes over `turns` marks, so every mark is read by all lanes at once.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..products.fragments import paired
from ..products.tiles import constant, elements
from ..runtime.compat import intrinsic, literal, types, word
from ..runtime.inline import VOID, run
from ..runtime.span import F32, I16, I32, I64

MARK = 16  # bytes


@word(lambda to, offset, down, across: types.none(*[types.int32] * 4))
def put_mark(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """A mark to shared memory."""
    run(builder, VOID, "st.shared.v4.b32 [$0], {$1, $2, $3, $3};", "r,r,r,r", list(args))


@intrinsic
def gather_pairs(
    typing: Any, x: Any, z: Any, begins: Any, tops: Any, besides: Any, height: Any, width: Any, marks: Any, turns: Any, apart: Any
) -> Any:  # fmt: skip
    """For each of `turns` marks, `apart` from each other: both pixels' numbers of x as z's 16 bits, 0 where a pixel would look outside of
    the image. begins, tops, besides: where they begin in x, and at which row and column."""
    many, by = constant(turns), constant(apart) * MARK
    kind = types.UniTuple(types.uint32, many)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        starts, tops, besides = (elements(builder, a) for a in args[2:5])
        starts, found = [builder.ptrtoint(builder.gep(builder.extract_value(args[0], 0), [start]), I64) for start in starts], []
        for turn in range(many):
            code = f"ld.shared.v4.b32 {{$0, $1, $2, $3}}, [$4+{by * turn}];"
            four = run(builder, ir.LiteralStructType([I32] * 4), code, "=r,=r,=r,=r,r", [args[7]])
            offset, down, across = (builder.extract_value(four, n) for n in range(3))
            pair = []
            for n in range(2):
                inside = builder.and_(
                    builder.icmp_unsigned("<", builder.add(tops[n], down), args[5]),
                    builder.icmp_unsigned("<", builder.add(besides[n], across), args[6]),
                )
                pair.append(loaded_if(builder, x.half, inside, starts[n], offset))
            found.append(side_by_side(builder, x.half, z.half, pair))
        return context.make_tuple(builder, kind, found)

    less, both = types.int32, types.UniTuple(types.int32, 2)
    return kind(x, z, types.UniTuple(types.int64, 2), both, both, less, less, less, turns, apart), make


def loaded_if(builder: Any, half: str, there: Any, start: Any, offset: Any) -> Any:
    """Number `offset` from an address on if it is `there`, else 0: some lanes pass over the instruction. Nobody writes what it reads."""
    kind, letter, bits, nbytes = (I16, "h", "b16", 2) if half else (F32, "f", "f32", 4)
    code = (
        f"{{ .reg .pred there; .reg .b64 at; mad.wide.s32 at, $3, {nbytes}, $1; setp.ne.b32 there, $2, 0; "
        f"mov.{bits} $0, {'0' if half else '0f00000000'}; @there ld.global.{bits} $0, [at]; }}"
    )
    given = [start, builder.zext(there, I32), offset]
    return run(builder, kind, code, f"={letter},l,r,r", given, memory=False)


def side_by_side(builder: Any, stored: str, wanted: str, pair: list[Any]) -> Any:
    if not stored:
        return paired(builder, wanted, *pair)
    low, high = (builder.zext(v, I32) for v in pair)
    return builder.or_(low, builder.shl(high, I32(16)))


@word(lambda to, values, apart: types.none(types.int32, values, literal(apart)))
def put_words(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """Words to shared memory, so many bytes apart."""
    by = constant(sig.args[2])
    for i, value in enumerate(elements(builder, args[1])):
        run(builder, VOID, f"st.shared.b32 [$0+{by * i}], $1;", "r,r", [args[0], value])


@word(lambda address: types.float32(types.int32))
def number_at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A float32 in shared memory."""
    return run(builder, F32, "ld.shared.f32 $0, [$1];", "=f,r", list(args))
