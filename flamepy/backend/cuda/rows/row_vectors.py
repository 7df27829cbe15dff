"""Neighbouring elements of a row at once: a lane takes 16 bytes of each array, and some such pieces are on their way together.

A body's run, run(first, cols, *arrays and numbers), reads and writes its arrays at the elements of run_at(first, cols) alone. So a lane may
copy WIDE neighbours of each array into registers, and have the run work on these: run(None, WIDE, *copies), see run_at() in row_words.py.
WIDE is as many as 16 bytes hold of the widest numbers. Where the arrays of a row do not reach multiples of 16 bytes together, and at the
ends of a row, lanes take one element each. Whole runs begin where 32 bytes begin, which move together.

    every = (out, *args)                              # all arrays that are gone over together
    first, end = whole_runs(every, cols)              # where whole runs begin and end: both are cols if there are none
    copy = room_like(every, out)
    run(None, run_size(every), copy, *taken(every, args, first))
    put_taken(every, out, first, copy)
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..loops.runs import lanes
from ..loops.vectors import loaded, stored
from ..runtime.compat import cgutils, signature, types, word
from ..runtime.inline import VOID, run
from ..runtime.span import I32, I64, Span

SECTOR = 32  # bytes that move together


def spans_of(args: Any) -> list[tuple[int, Span]]:
    """(place, type) of the arrays among some arguments."""
    return [(k, kind) for k, kind in enumerate(args) if isinstance(kind, Span)]


def width(kind: Span) -> int:
    return kind.stored.bitwidth // 8


def size_of(args: Any) -> int:
    return lanes([width(kind) for _, kind in spans_of(args)])


@word(lambda every: signature(types.int32, every))
def run_size(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """WIDE: how many elements of these arrays a lane takes at once."""
    return I32(size_of(sig.args[0]))


@word(lambda every, cols: types.UniTuple(types.int64, 2)(every, types.int64))
def whole_runs(context: Any, builder: Any, sig: Any, given: Any) -> Any:
    every = sig.args[0]
    many = size_of(every)
    values, size = cgutils.unpack_tuple(builder, given[0], len(every)), given[1]
    starts = [(builder.ptrtoint(builder.extract_value(values[k], 0), I64), width(kind)) for k, kind in spans_of(every)]
    start, least = min(starts, key=lambda pair: pair[1])
    odd = builder.and_(builder.neg(start), I64(SECTOR - 1))
    head, apart = builder.sdiv(odd, I64(least)), I64(0)
    for address, item in starts:
        place = builder.add(address, builder.mul(head, I64(item)))
        apart = builder.or_(apart, builder.and_(place, I64(many * item - 1)))
    fits = builder.and_(builder.icmp_unsigned("==", apart, I64(0)), builder.icmp_signed("<", head, size))
    head = builder.select(fits, head, size)
    whole = builder.and_(builder.sub(size, head), I64(-many))
    return [head, builder.add(head, whole)]


@word(lambda every, args, i: taken_kind(args)(every, args, types.int64))
def taken(context: Any, builder: Any, sig: Any, given: Any) -> Any:
    """The arguments, of whose arrays elements i, i + 1, ... lie in registers."""
    every, args, _ = sig.args
    many = size_of(every)
    values = cgutils.unpack_tuple(builder, given[1], len(args))
    for k, kind in spans_of(args):
        numbers = loaded(context, builder, kind, values[k], given[2], many)
        values[k] = registers(context, builder, kind, numbers, many)
    return values


@word(lambda: signature(types.none))
def as_it_is(context: Any, builder: Any, sig: Any, given: Any) -> None:
    """In a loop: the assembler shall not unroll it, LLVM has."""
    run(builder, VOID, r".pragma \22nounroll\22;", "", [], memory=False, kept=True)


@word(lambda every, out: near_kind(out)(every, out))
def room_like(context: Any, builder: Any, sig: Any, given: Any) -> Any:
    """Registers for a run of `out`."""
    every, out = sig.args
    return registers(context, builder, out, (), size_of(every))


@word(lambda every, out, i, copy: types.none(every, out, types.int64, copy))
def put_taken(context: Any, builder: Any, sig: Any, given: Any) -> None:
    """out[i], out[i + 1], ... = what is in the registers `copy`."""
    every, out, _, _ = sig.args
    many = size_of(every)
    place = builder.extract_value(given[3], 0)
    numbers = [(out.dtype, builder.load(builder.gep(place, [I32(k)]))) for k in range(many)]
    stored(context, builder, out, given[1], given[2], numbers)


def taken_kind(args: Any) -> Any:
    return types.Tuple([near_kind(kind) if isinstance(kind, Span) else kind for kind in args])


def near_kind(kind: Span) -> Span:
    """A Span of numbers as they are read."""
    return Span(kind.dtype, kind.dtype)


def registers(context: Any, builder: Any, kind: Span, numbers: Any, many: int) -> Any:
    """A Span of a thread's own: LLVM keeps it in registers, since loops over it have a length that is known."""
    item = context.get_value_type(kind.dtype)
    memory = cgutils.alloca_once(builder, ir.ArrayType(item, many))
    place = builder.bitcast(memory, item.as_pointer())
    for k, number in enumerate(numbers):
        builder.store(number, builder.gep(place, [I32(k)]))
    found = cgutils.create_struct_proxy(near_kind(kind))(context, builder)
    found.data, found.size = place, I64(many)
    return found._getvalue()
