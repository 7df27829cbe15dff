"""Several buffers at one place: a parameter and its moments, which an update reads and writes together.

p = load_all4(outs, i)                   # four tuples, each with element i, i + 1, ... of every Span in the tuple `outs`
store_all4(outs, i, (a, b, c, d))        # the reverse; of one Span also four numbers
store_all(outs, i, a)                    # element i alone
if aligned_all(outs, 4):                 # whether the first two may be used where i is a multiple of 4
"""

from __future__ import annotations

from typing import Any

from ..runtime.compat import cgutils, literal, types, word
from ..runtime.span import set_item
from .runs import all_aligned, arguments_of, rows
from .vectors import loaded, stored

FOUR = 4


@word(lambda outs, i: types.UniTuple(arguments_of(outs), FOUR)(outs, types.int64))
def load_all4(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    outs = sig.args[0]
    given = cgutils.unpack_tuple(builder, args[0], len(outs))
    columns = [loaded(context, builder, kind, value, args[1], FOUR) for kind, value in zip(outs, given, strict=True)]
    return rows(context, builder, arguments_of(outs), FOUR, columns)


@word(lambda outs, i, values: types.none(outs, types.int64, values))
def store_all4(context: Any, builder: Any, sig: Any, args: Any) -> None:
    outs, _, values = sig.args
    results = [*zip(values, cgutils.unpack_tuple(builder, args[2], FOUR), strict=True)]
    for k, out in enumerate(outs):
        numbers = [number_of(builder, kind, result, k) for kind, result in results]
        stored(context, builder, out, builder.extract_value(args[0], k), args[1], numbers)


@word(lambda outs, i, values: types.none(outs, types.int64, values))
def store_all(context: Any, builder: Any, sig: Any, args: Any) -> None:
    outs, _, values = sig.args
    for k, out in enumerate(outs):
        kind, value = number_of(builder, values, args[2], k)
        set_item(context, builder, types.none(out, types.int64, kind), (builder.extract_value(args[0], k), args[1], value))


def number_of(builder: Any, kind: Any, result: Any, k: int) -> tuple[Any, Any]:
    """(type, value) of the k-th number of a result."""
    if isinstance(kind, types.BaseTuple):
        return kind.types[k], builder.extract_value(result, k)
    return kind, result


@word(lambda outs, lanes: types.boolean(outs, literal(lanes)))
def aligned_all(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    outs, lanes = sig.args
    return all_aligned(builder, lanes.literal_value, [*zip(outs, cgutils.unpack_tuple(builder, args[0], len(outs)), strict=True)])
