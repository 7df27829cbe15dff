"""Several buffers at one place: a parameter and its moments, which an update reads and writes together.

    p = load_all4(outs, i)                   # four tuples, each with element i, i + 1, ... of every Span in the tuple `outs`
    store_all4(outs, i, (a, b, c, d))        # the reverse; of one Span also four numbers
    store_all(outs, i, a)                    # element i alone
    if aligned_all(outs, 4):                 # whether the first two may be used where i is a multiple of 4

Read next: spans.py, vectors.py.
"""

from __future__ import annotations

from typing import Any

from .compat import cgutils, intrinsic, types
from .runs import arguments_of, rows
from .span import I64, set_item
from .vectors import loaded, misplaced, stored

FOUR = 4


@intrinsic
def load_all4(typing: Any, outs: Any, i: Any) -> Any:
    one = arguments_of(outs)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = cgutils.unpack_tuple(builder, args[0], len(outs))
        columns = [loaded(context, builder, kind, value, args[1], FOUR) for kind, value in zip(outs, given, strict=True)]
        return rows(context, builder, one, FOUR, columns)

    return types.UniTuple(one, FOUR)(outs, types.int64), code


@intrinsic
def store_all4(typing: Any, outs: Any, i: Any, values: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        results = [*zip(values, cgutils.unpack_tuple(builder, args[2], FOUR), strict=True)]
        for k, out in enumerate(outs):
            numbers = [number_of(builder, kind, result, k) for kind, result in results]
            stored(context, builder, out, builder.extract_value(args[0], k), args[1], numbers)
        return context.get_dummy_value()

    return types.none(outs, types.int64, values), code


@intrinsic
def store_all(typing: Any, outs: Any, i: Any, values: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for k, out in enumerate(outs):
            kind, value = number_of(builder, values, args[2], k)
            set_item(context, builder, types.none(out, types.int64, kind), (builder.extract_value(args[0], k), args[1], value))
        return context.get_dummy_value()

    return types.none(outs, types.int64, values), code


def number_of(builder: Any, kind: Any, result: Any, k: int) -> tuple[Any, Any]:
    """(type, value) of the k-th number of a result."""
    if isinstance(kind, types.BaseTuple):
        return kind.types[k], builder.extract_value(result, k)
    return kind, result


@intrinsic
def aligned_all(typing: Any, outs: Any, lanes: Any) -> Any:
    if not isinstance(lanes, types.IntegerLiteral):
        return None  # Numba asks again with the literal

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total = I64(0)
        for kind, value in zip(outs, cgutils.unpack_tuple(builder, args[0], len(outs)), strict=True):
            total = builder.or_(total, misplaced(builder, kind, value, lanes.literal_value))
        return builder.icmp_unsigned("==", total, I64(0))

    return types.boolean(outs, lanes), code
