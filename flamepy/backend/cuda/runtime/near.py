"""Memory near the threads of a block: shared memory as Spans, and rows that are copied there before a body works on them.

A block copies its rows, which lie one after the other, 16 bytes at a time by copies that no thread waits for; what does not begin or
end at a multiple of 16 bytes goes alone. An operand's copy begins as far after a multiple of 16 bytes as the operand does. moved() gives
the body Spans whose element [r * cols + j] lies in the copy, so it reads as if nothing had been moved; so with the one or two numbers that
an operand has for each row, the mean of a norm. What all rows have in common, the weights of a norm, is copied once a block.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .compat import cgutils, literal, signature, types, word
from .inline import VOID, run
from .span import I32, I64, Span

ALIGN = 16
ANY, GLOBAL, SHARED = 0, 1, 3  # LLVM's numbers for kinds of memory
VECTOR = ir.VectorType(I32, 4)


# ---- shared memory ---------------------------------------------------------------------------------------------------------------
def room_of(context: Any, builder: Any, item: Any, many: int) -> Any:
    """A pointer to shared memory for so many items."""
    kind = ir.ArrayType(item, many)
    memory = cgutils.add_global_variable(builder.module, kind, "near", SHARED)
    memory.linkage, memory.align = "internal", ALIGN
    memory.initializer = ir.Constant(kind, ir.Undefined)
    return builder.bitcast(builder.addrspacecast(memory, kind.as_pointer()), item.as_pointer())


@word(lambda like, many: span_like(like)(like, literal(many)))
def shared_span(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Shared memory for `many` (a literal) numbers of the type of `like`, a number or a Span, common to the block, not initialised."""
    kind, many = sig.return_type, sig.args[1].literal_value
    found = cgutils.create_struct_proxy(kind)(context, builder)
    found.data = room_of(context, builder, context.get_data_type(kind.stored), many)
    found.size = I64(many)
    return found._getvalue()


def span_like(kind: Any) -> Span:
    number = kind.dtype if isinstance(kind, Span) else types.unliteral(kind)
    return Span(number, types.uint8 if number is types.boolean else number)


@word(lambda like, start, size: like(like, types.int64, types.int64))
def span_at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A Span like another one, of so many numbers from an address on."""
    found = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    found.data = builder.inttoptr(args[1], found.data.type)
    found.size = args[2]
    return found._getvalue()


@word(lambda x: signature(types.int64, x))
def address_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Where a Span begins, in bytes."""
    return builder.ptrtoint(builder.extract_value(args[0], 0), I64)


# ---- rows ------------------------------------------------------------------------------------------------------------------------
@word(lambda args: types.UniTuple(types.int64, len(args))(args))
def addresses(context: Any, builder: Any, sig: Any, given: Any) -> Any:
    """Where each of these arguments begins; 0 for what is no Span."""
    kinds = sig.args[0]
    pairs = zip(kinds, cgutils.unpack_tuple(builder, given[0], len(kinds)), strict=True)
    return [builder.ptrtoint(builder.extract_value(v, 0), I64) if isinstance(k, Span) else I64(0) for k, v in pairs]


@word(lambda args: types.UniTuple(types.int32, len(args))(args))
def widths(context: Any, builder: Any, sig: Any, given: Any) -> Any:
    """The bytes of a number of each of these arguments."""
    return [I32(k.stored.bitwidth // 8 if isinstance(k, Span) else 1) for k in sig.args[0]]


@word(lambda args, places, lengths, room, first: args(args, places, lengths, room, types.int64))
def moved(context: Any, builder: Any, sig: Any, given: Any) -> Any:
    """The arguments, of which those with a place >= 0 lie that far in `room`: from row `first` on, which has `lengths` bytes, or where the
    place is odd from their first number on, one byte before."""
    args, places, lengths, _, _ = sig.args
    values = cgutils.unpack_tuple(builder, given[0], len(args))
    at, size = [
        [context.cast(builder, v, kind, types.int64) for v, kind in zip(cgutils.unpack_tuple(builder, values), kinds, strict=True)]
        for values, kinds in ((given[1], places), (given[2], lengths))
    ]
    start = builder.ptrtoint(builder.extract_value(given[3], 0), I64)
    found = []
    for k, (kind, value) in enumerate(zip(args, values, strict=True)):
        if isinstance(kind, Span) and k < len(places):
            data = builder.extract_value(value, 0)
            whole = builder.trunc(at[k], ir.IntType(1))
            before = builder.select(whole, I64(0), builder.mul(given[4], size[k]))
            odd = builder.and_(builder.add(builder.ptrtoint(data, I64), before), I64(ALIGN - 1))
            place = builder.and_(at[k], I64(-2))
            near = builder.add(builder.add(start, place), builder.sub(odd, before))
            is_near = builder.icmp_signed(">=", at[k], I64(0))
            value = builder.insert_value(value, builder.select(is_near, builder.inttoptr(near, data.type), data), 0)
        found.append(value)
    return found


# ---- copies ----------------------------------------------------------------------------------------------------------------------
def copier(size: int, source: int, target: int) -> Any:
    """copy(to, address): so many bytes between two kinds of memory."""

    @word(lambda to, start: types.none(types.int64, types.int64))
    def copy(context: Any, builder: Any, sig: Any, args: Any) -> None:
        kind = VECTOR if size == 16 else ir.IntType(8 * size)
        value = builder.load(builder.inttoptr(args[1], kind.as_pointer(source)), align=size)
        builder.store(value, builder.inttoptr(args[0], kind.as_pointer(target)), align=size)

    return copy


put16, copy2 = copier(16, ANY, GLOBAL), copier(2, ANY, ANY)


@word(lambda to, start: types.none(types.int64, types.int64))
def fetch16(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """Begin to copy 16 bytes from global to shared memory; see arrived()."""
    byte = ir.IntType(8)
    near = builder.ptrtoint(builder.addrspacecast(builder.inttoptr(args[0], byte.as_pointer()), byte.as_pointer(SHARED)), I32)
    run(builder, VOID, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l", [near, args[1]])


@word(lambda: signature(types.none))
def arrived(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """Wait until what this thread fetches is there."""
    run(builder, VOID, "cp.async.wait_all;", "", [])
