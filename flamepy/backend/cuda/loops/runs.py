"""Runs: what a formula does to neighbouring elements at once, for any number of arguments of any types, where they lie apart too.

The arguments of a formula are a tuple `c`: Spans, of which it takes elements, and numbers, which stand for themselves. A run is as many
elements as 16 bytes of the widest type hold: rows = load_run(out, c, i) are the formula's arguments for each, apply_run(F, rows) its
results, store_run(out, i, results) writes them. aligned_run(out, c): whether that is allowed. at(c, i): the arguments for one element.

Where inputs are spread over a larger result (broadcast) or elements lie by strides, a table says where position p lies: see table().
place(t, p) is that offset; spread_run(out, c, t, p) and spread_at(c, t, p) load by it: behind each Span in `c` stands
None, or a bool where it repeats along the innermost dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from llvmlite import ir

from ..runtime.compat import cgutils, intrinsic, literal, signature, types, word
from ..runtime.span import I64, Span, get_item, set_item
from .vectors import WIDEST, loaded, misplaced, number_type, stored

MOST = 8  # elements of a run


def lanes(widths: Sequence[int]) -> int:
    """Elements of a run of numbers of so many bytes."""
    return min(MOST, WIDEST // max(widths))


def lanes_of(out: Any, c: Any) -> int:
    return lanes([kind.stored.bitwidth // 8 for kind in (out, *c) if isinstance(kind, Span)])


# ---- one after the other ---------------------------------------------------------------------------------------------------------
@word(lambda out, c: signature(types.int32, out, c))
def run_length(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Elements of a run."""
    return ir.IntType(32)(lanes_of(*sig.args))


@word(lambda out, c: signature(types.boolean, out, c))
def aligned_run(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    out, c = sig.args
    values = cgutils.unpack_tuple(builder, args[1], len(c))
    return all_aligned(builder, lanes_of(out, c), [(out, args[0]), *zip(c, values, strict=True)])


def all_aligned(builder: Any, n: int, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """Whether runs of n elements of each (type, value) may be loaded and stored at once."""
    total = I64(0)
    for kind, value in pairs:
        total = builder.or_(total, misplaced(builder, kind, value, n))
    return builder.icmp_unsigned("==", total, I64(0))


@word(lambda out, c, i: types.UniTuple(arguments_of(c), lanes_of(out, c))(out, c, types.int64))
def load_run(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    c, n = sig.args[1], sig.return_type.count
    given = cgutils.unpack_tuple(builder, args[1], len(c))
    columns = [loaded(context, builder, kind, v, args[2], n) for kind, v in zip(c, given, strict=True)]
    return rows(context, builder, arguments_of(c), n, columns)


@word(lambda c, i: arguments_of(c)(c, types.int64))
def at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    given = cgutils.unpack_tuple(builder, args[0], len(sig.args[0]))
    return [element(context, builder, kind, v, args[1]) for kind, v in zip(sig.args[0], given, strict=True)]


def arguments_of(c: Any) -> Any:
    return types.Tuple([number_type(kind) for kind in c])


def element(context: Any, builder: Any, kind: Any, value: Any, index: Any) -> Any:
    if not isinstance(kind, Span):
        return value
    return get_item(context, builder, kind.dtype(kind, types.int64), (value, index))


def rows(context: Any, builder: Any, one: Any, n: int, columns: Sequence[Sequence[Any]]) -> Any:
    """Loaded columns as a tuple of rows, each of type `one`."""
    found = [context.make_tuple(builder, one, [column[k] for column in columns]) for k in range(n)]
    return context.make_tuple(builder, types.UniTuple(one, n), found)


# ---- formulas ---------------------------------------------------------------------------------------------------------------------
@intrinsic
def apply_run(typing: Any, formula: Any, given: Any) -> Any:
    call = typing.resolve_function_type(formula, given.dtype.types, {})

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = context.get_function(formula, call)
        found = []
        for row in cgutils.unpack_tuple(builder, args[1], len(given)):
            values = cgutils.unpack_tuple(builder, row, len(given.dtype))
            wanted = [context.cast(builder, v, a, b) for v, a, b in zip(values, given.dtype, call.args, strict=True)]
            found.append(function(builder, wanted))
        return context.make_tuple(builder, signature.return_type, found)

    return types.UniTuple(call.return_type, len(given))(formula, given), code


@word(lambda out, i, values: types.none(out, types.int64, values))
def store_run(context: Any, builder: Any, sig: Any, args: Any) -> None:
    out, _, values = sig.args
    given = cgutils.unpack_tuple(builder, args[2], len(values))
    stored(context, builder, out, args[0], args[1], [*zip(values, given, strict=True)])


# ---- places -----------------------------------------------------------------------------------------------------------------------
WIDE = 1 << 40  # in a table of 64-bit numbers


@lru_cache(4096)
def table(dims: tuple[tuple[int, ...], ...], wide: bool, base: int = 0) -> tuple[int, ...]:
    """For dimensions (size, strides ...), outermost first: what finds the offsets of position p in them, without division.

    p // size is p * factor >> (bits + shift). The table: WIDE or 0; what all offsets begin with; then from the innermost dimension on
    size, factor, shift, strides; of the outermost one only the strides. `wide`: whether positions or offsets may be 2**31 and more.
    """
    dims, bits = tuple([d for d in dims if d[0] != 1]) or dims[-1:], 64 if wide else 32
    found = [WIDE if wide else 0, base]
    for size, *strides in dims[:0:-1]:
        shift = (size - 1).bit_length() - 1
        factor = -(-(1 << (bits + shift)) // size)
        found += [size, factor - (1 << bits), shift, *strides]
    return (*found, *dims[0][1:])


def strided(builder: Any, i: Any, strides: Sequence[Any]) -> list[Any]:
    return [builder.mul(i, stride) for stride in strides]


def offsets(builder: Any, t: Any, values: Sequence[Any], p: Any, ways: int, far: Any = strided, results: int = 0) -> list[Any]:
    """The offsets (int64) of position p by each of `ways` strides; or so many results that `far` makes, of an axis's place and numbers."""
    word = ir.IntType(t.dtype.bitwidth)
    double, cut = ir.IntType(2 * word.width), (lambda v: v if word.width == 64 else builder.trunc(v, word))
    p, total, values = cut(p), [values[1]] * (results or ways), list(values[2:])
    while len(values) > ways:
        size, factor, shift, *strides = values[: 3 + ways]
        high = builder.mul(builder.zext(p, double), builder.zext(factor, double))
        q = builder.lshr(builder.trunc(builder.lshr(high, double(word.width)), word), shift)
        rest = builder.sub(p, builder.mul(q, size))
        total = [builder.add(a, b) for a, b in zip(total, far(builder, rest, strides), strict=True)]
        p, values = q, values[3 + ways :]
    total = [builder.add(a, b) for a, b in zip(total, far(builder, p, values), strict=True)]
    return [v if word.width == 64 else builder.sext(v, I64) for v in total]


@word(lambda t, p: types.int64(t, types.int64))
def place(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Where position p lies."""
    t = sig.args[0]
    return offsets(builder, t, cgutils.unpack_tuple(builder, args[0], len(t)), args[1], 1)[0]


@word(lambda t, p: types.int64(t, types.int64))
def place_around(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Where surround() reads what comes to position p."""
    t = sig.args[0]
    return offsets(builder, t, cgutils.unpack_tuple(builder, args[0], len(t)), args[1], 7, around, 1)[0]


def around(builder: Any, i: Any, axis: Sequence[Any]) -> list[Any]:
    many, front, first, step, after, by, stride = axis
    inside = builder.sub(i, front)
    more = builder.add(after, builder.mul(builder.sub(inside, many), by))
    found = builder.select(builder.icmp_signed("<", inside, many), inside, more)
    found = builder.select(builder.icmp_signed("<", i, front), builder.add(first, builder.mul(i, step)), found)
    return [builder.mul(found, stride)]


def taken(c: Any, values: Sequence[Any]) -> list[tuple[Any, Any, bool]]:
    """What a formula takes: (type, value, whether it repeats); what stands behind a Span in `c` is no argument."""
    found, rest = [], iter(zip(c, values, strict=True))
    for kind, value in rest:
        found.append((kind, value, isinstance(kind, Span) and next(rest)[0] is types.boolean))
    return found


@word(lambda out, c: signature(types.boolean, out, c))
def aligned_spread(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """aligned_run() of the Spans that do not repeat."""
    out, c = sig.args
    given = taken(c, cgutils.unpack_tuple(builder, args[1], len(c)))
    return all_aligned(builder, lanes_of(out, c), [(out, args[0]), *[(kind, value) for kind, value, repeats in given if not repeats]])


def formula_arguments(c: Any) -> Any:
    return arguments_of([kind for kind, _, _ in taken(c, c)])


def spread(context: Any, builder: Any, sig: Any, args: Any, n: int) -> Any:
    """n rows; the last arguments are c, t and p."""
    (c, t, _), (given, values, p) = sig.args[-3:], args[-3:]
    ways = len([kind for kind, _, _ in taken(c, c) if isinstance(kind, Span)])
    found = iter(offsets(builder, t, cgutils.unpack_tuple(builder, values, len(t)), p, ways))
    columns = []
    for kind, value, repeats in taken(c, cgutils.unpack_tuple(builder, given, len(c))):
        index = next(found) if isinstance(kind, Span) else None
        many = isinstance(kind, Span) and not repeats and n > 1
        columns.append(loaded(context, builder, kind, value, index, n) if many else [element(context, builder, kind, value, index)] * n)
    return rows(context, builder, formula_arguments(c), n, columns)


@word(lambda out, c, t, p: types.UniTuple(formula_arguments(c), lanes_of(out, c))(out, c, t, types.int64))
def spread_run(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return spread(context, builder, sig, args, sig.return_type.count)


@word(lambda c, t, p: formula_arguments(c)(c, t, types.int64))
def spread_at(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The same for one element."""
    return builder.extract_value(spread(context, builder, sig, args, 1), 0)


# ---- several buffers at one place: a parameter and its moments, which an update reads and writes together ----
#     p = load_all4(outs, i)                   # four tuples, each with element i, i + 1, ... of every Span in the tuple `outs`
#     store_all4(outs, i, (a, b, c, d))        # the reverse; of one Span also four numbers
#     store_all(outs, i, a)                    # element i alone
#     if aligned_all(outs, 4):                 # whether the first two may be used where i is a multiple of 4
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
