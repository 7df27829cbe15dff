"""Words of attention's tiles beside products: rows copied into shared memory, causal bounds, what belongs to columns, votes of a warp.

All of them count in 32 bits and unroll while they are compiled: Python's integers are 64 bits wide here, and an instruction more for each
number of a tile costs as much as the tensor cores' work on it. Places in tiles are those of fragments.py.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from llvmlite import ir

from ..loops.vectors import as_number, packed, unpacked
from ..runtime.compat import intrinsic, literal, signature, types, word
from ..runtime.inline import VOID, run
from ..runtime.span import I16, I32, I64
from .fragments import F32, lane_of, left_factor_of, position, product, register, row_of
from .tiles import constant, elements

MINUS = {"bf16": "0xff80", "f16": "0xfc00"}  # -inf


# ---- rows into shared memory -------------------------------------------------------------------------------------------------------
def pieces_of(wide: Any) -> tuple[int, int]:
    """(pieces of 16 bytes in a row, threads that share it: a power of two, those beyond its pieces rest)."""
    pieces = constant(wide) // 8
    return pieces, 1 << (pieces - 1).bit_length()


def row_and_piece(builder: Any, across: int) -> tuple[Any, Any]:
    """This thread's row and piece, if so many threads share a row. Eight threads, which write together, have rows in different banks: the
    lowest bits of rows change places where rows are short."""
    thread, turn = register(builder, "tid.x"), {2: 2, 4: 1}.get(across, 0)
    row, piece = builder.lshr(thread, I32(across.bit_length() - 1)), builder.and_(thread, I32(across - 1))
    if turn:
        low = builder.and_(row, I32(7))
        turned = builder.or_(builder.lshr(low, I32(turn)), builder.and_(builder.shl(low, I32(3 - turn)), I32(7)))
        row = builder.or_(builder.and_(row, I32(-8)), turned)
    return row, piece


@word(lambda value: types.int32(types.int64))
def short(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """An integer of 32 bits."""
    return builder.trunc(args[0], I32)


@word(lambda step, wide: types.int64(types.int32, literal(wide)))
def piece_from(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """How far into a tile, whose rows are `step` apart, this thread's first piece of 8 numbers begins."""
    row, piece = row_and_piece(builder, pieces_of(sig.args[1])[1])
    down = builder.mul(builder.zext(row, I64), builder.sext(args[0], I64))
    return builder.add(down, builder.zext(builder.shl(piece, I32(3)), I64))


@word(lambda pitch, wide: types.int32(literal(pitch), literal(wide)))
def piece_to(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The same in shared memory, in bytes."""
    pitch, wide = sig.args
    row, piece = row_and_piece(builder, pieces_of(wide)[1])
    return builder.add(builder.mul(row, I32(constant(pitch))), builder.shl(piece, I32(4)))


@word(lambda wide: types.UniTuple(types.int32, 2)(literal(wide)))
def piece_place(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """(row, column) of this thread's first piece."""
    row, piece = row_and_piece(builder, pieces_of(sig.args[0])[1])
    return [row, builder.shl(piece, I32(3))]


@intrinsic
def copy_pieces(
    typing: Any, to: Any, x: Any, at: Any, step: Any, left: Any, width: Any, count: Any, wide: Any, pitch: Any, threads: Any
) -> Any:  # fmt: skip
    """Begin to copy this thread's pieces of `count` rows of x to shared memory, from piece_from() to piece_to() on. There are `left` rows
    of `width` numbers, zeros beyond."""
    many, by, (pieces, across) = constant(count), constant(pitch), pieces_of(wide)
    down = constant(threads) // across

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        to, x, at, step, left, width = args[:6]
        row, piece = row_and_piece(builder, across)
        source = builder.ptrtoint(builder.gep(builder.extract_value(x, 0), [at]), I64)
        further = builder.mul(builder.sext(step, I64), I64(2 * down))
        there = builder.and_(builder.icmp_signed(">=", left, I32(many)), builder.icmp_signed("==", width, I32(8 * pieces)))

        def copy(sizes: Any) -> None:
            begin = source
            for i in range(0, many, down):
                takes = [] if across == pieces else [builder.icmp_unsigned("<", piece, I32(pieces))]
                takes += [builder.icmp_unsigned("<", row, I32(many - i))] if many - i < down else []
                size = [] if sizes is None else [builder.select(builder.icmp_signed(">", left, builder.add(row, I32(i))), sizes, I32(0))]
                with builder.if_then(takes[0] if len(takes) == 1 else builder.and_(*takes)) if takes else nullcontext():
                    code = f"cp.async.cg.shared.global [$0+{by * i}], [$1], 16{', $2' if size else ''};"
                    run(builder, VOID, code, "r,l,r" if size else "r,l", [to, begin, *size])
                begin = builder.add(begin, further)

        with builder.if_else(there) as (whole, partial):
            with whole:
                copy(None)
            with partial:
                size = builder.shl(builder.sub(width, builder.shl(piece, I32(3))), I32(1))
                size = builder.select(builder.icmp_signed("<", size, I32(16)), size, I32(16))
                copy(builder.select(builder.icmp_signed(">", size, I32(0)), size, I32(0)))
        return context.get_dummy_value()

    less = types.int32
    return types.none(less, x, types.int64, less, less, less, count, wide, pitch, threads), make


# ---- bounds ------------------------------------------------------------------------------------------------------------------------
def smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def column_of(i: int, rows: int, count: int) -> int:
    """The column of number i but for what the lane adds."""
    return i % (2 * count // rows) // 4 * 8 + i % 2


@word(lambda acc, rows, last, shift, value: acc(acc, literal(rows), types.int32, types.int32, acc.dtype))
def cut(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """`value` for numbers beyond column `last`, and beyond their row + `shift`."""
    lines, count = constant(sig.args[1]), sig.return_type.count
    lane, bounds = lane_of(builder), []
    across = builder.shl(builder.and_(lane, I32(3)), I32(1))
    for row in range(lines):
        bound = builder.add(builder.add(builder.lshr(lane, I32(2)), I32(8 * row)), args[3])
        bounds.append(builder.sub(smaller(builder, bound, args[2]), across))
    found = []
    for i, number in enumerate(elements(builder, args[0])):
        inside = builder.icmp_signed("<=", I32(column_of(i, lines, count)), bounds[row_of(i, lines, count)])
        found.append(builder.select(inside, number, args[4]))
    return found


@word(lambda acc, rows, shift, value: acc(acc, literal(rows), types.int32, acc.dtype))
def cut_turned(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """`value` for numbers whose column + `shift` comes before their row."""
    lines, count = constant(sig.args[1]), sig.return_type.count
    lane = lane_of(builder)
    least = builder.sub(builder.sub(builder.lshr(lane, I32(2)), args[2]), builder.shl(builder.and_(lane, I32(3)), I32(1)))
    found = []
    for i, number in enumerate(elements(builder, args[0])):
        far = column_of(i, lines, count) - 8 * row_of(i, lines, count)
        found.append(builder.select(builder.icmp_signed(">=", I32(far), least), number, args[3]))
    return found


@intrinsic
def of_mask(typing: Any, acc: Any, rows: Any, mask: Any, at: Any, down: Any, across: Any, bounds: Any, near: Any) -> Any:
    """A tile like acc of the mask's numbers: mask[at] is its first, rows are `down` apart, columns `across`. bounds: the last row, the last
    column, how much less and how much more than its row a column may be; -inf beyond them. A tile that lies within them, and whose columns
    (near = 1) or rows (2) are neighbours in memory or all the same, is read without a look at each number."""
    lines, count, turned = constant(rows), acc.count, constant(near) == 2
    places = [(row_of(i, lines, count), column_of(i, lines, count)) for i in range(count)]

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        first, lane = builder.gep(builder.extract_value(args[2], 0), [args[3]]), lane_of(builder)
        down, across, limits = builder.sext(args[4], I64), builder.sext(args[5], I64), elements(builder, args[6])
        row, column = position(builder, lane, 0, lines, count)
        begin = builder.add(builder.mul(builder.zext(row, I64), down), builder.mul(builder.zext(column, I64), across))
        begin = builder.gep(first, [begin])
        lefts = {n: builder.gep(begin, [builder.mul(down, I64(8 * n))]) for n, _ in places}
        tops = {far: builder.gep(begin, [builder.mul(across, I64(far))]) for _, far in places}
        step = down if turned else across
        with builder.if_else(is_inside(builder, limits, lines, count, step)) as (whole, partial):
            with whole:
                runs = [(tops[far], 8 * n) if turned else (lefts[n], far) for n, far in places]
                easy = unlike_or_like(builder, mask, builder.icmp_signed("==", step, I64(0)), runs)
                easy_end = builder.block
            with partial:
                spans = [row_bounds(builder, builder.add(row, I32(8 * line)), column, limits) for line in range(lines)]
                hard = []
                for n, far in places:
                    low, high = spans[n]
                    inside = builder.and_(builder.icmp_signed(">=", I32(far), low), builder.icmp_signed("<=", I32(far), high))
                    hard.append(number_if(builder, mask, inside, builder.gep(lefts[n], [builder.mul(across, I64(far))])))
                hard_end = builder.block
        return context.make_tuple(builder, acc, either(builder, easy, easy_end, hard, hard_end))

    return acc(acc, rows, mask, types.int64, types.int32, types.int32, types.UniTuple(types.int32, 4), near), make


def either(builder: Any, left: list[Any], left_end: Any, right: list[Any], right_end: Any) -> list[Any]:
    """Numbers that two ways led to."""
    found = []
    for a, b in zip(left, right, strict=True):
        number = builder.phi(F32)
        number.add_incoming(a, left_end)
        number.add_incoming(b, right_end)
        found.append(number)
    return found


def unlike_or_like(builder: Any, mask: Any, alike: Any, runs: list[tuple[Any, int]]) -> list[Any]:
    """The mask's numbers so many after the places where their runs begin; of a run that is `alike` one number is read."""

    def load(place: Any) -> Any:
        found = builder.load(place)
        return as_number(builder, mask, found) if mask.half else found

    with builder.if_else(alike) as (one, all_of_them):
        with one:
            begins = dict.fromkeys([place for place, _ in runs])
            once = {place: load(place) for place in begins}
            same, same_end = [once[place] for place, _ in runs], builder.block
        with all_of_them:
            own, own_end = [load(builder.gep(place, [I64(far)])) for place, far in runs], builder.block
    return either(builder, same, same_end, own, own_end)


def is_inside(builder: Any, limits: list[Any], lines: int, count: int, step: Any) -> Any:
    """Whether every number of a tile is within of_mask()'s bounds, and steps between neighbours are 0 or 1."""
    high, wide, found = 8 * lines - 1, 4 * count // lines - 1, builder.icmp_unsigned("<=", step, I64(1))
    for limit, most in zip(limits, (high, wide, high, wide), strict=True):
        found = builder.and_(found, builder.icmp_signed(">=", limit, I32(most)))
    return found


def row_bounds(builder: Any, own: Any, column: Any, limits: list[Any]) -> tuple[Any, Any]:
    """The first and the last column of a row that are within of_mask()'s bounds, counted from the lane's own."""
    last_row, last, less, more = limits
    high = builder.select(builder.icmp_signed("<=", own, last_row), smaller(builder, last, builder.add(own, more)), I32(-1))
    return builder.sub(builder.sub(own, less), column), builder.sub(high, column)


def number_if(builder: Any, mask: Any, there: Any, place: Any) -> Any:
    """A mask's number if it is `there`, else -inf: some lanes pass over the instruction. Nobody writes what it reads."""
    kind, letter, bits, none = (I16, "h", "b16", MINUS[mask.half]) if mask.half else (F32, "f", "f32", "0fFF800000")
    code = f"{{ .reg .pred there; setp.ne.b32 there, $2, 0; mov.{bits} $0, {none}; @there ld.global.{bits} $0, [$1]; }}"
    given = [builder.ptrtoint(place, I64), builder.zext(there, I32)]
    found = run(builder, kind, code, f"=&{letter},l,r", given, memory=False)
    return as_number(builder, mask, found) if mask.half else found


# ---- numbers of columns ------------------------------------------------------------------------------------------------------------
@word(lambda acc, rows, address: acc(acc, literal(rows), types.int32))
def of_columns(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A tile like acc whose numbers are those of their columns, float32 from a place in shared memory on."""
    lines, count = constant(sig.args[1]), sig.return_type.count
    at = builder.add(args[2], builder.shl(builder.and_(lane_of(builder), I32(3)), I32(3)))
    pair, pairs = ir.LiteralStructType([F32] * 2), []
    for j in range(count // (2 * lines)):
        code = f"ld.shared.v2.f32 {{$0, $1}}, [$2+{32 * j}];"
        found = run(builder, pair, code, "=f,=f,r", [at])
        pairs.append([builder.extract_value(found, n) for n in range(2)])
    return [pairs[column_of(i, lines, count) // 8][i % 2] for i in range(count)]


@word(lambda values, x: values(values, x))
def as_stored(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Numbers as x would hold them."""
    x = sig.args[1]
    return unpacked(builder, x, packed(builder, x, elements(builder, args[0])))


# ---- left factors: in registers, or where they lie in shared memory ---------------------------------------------------------------
@intrinsic
def own_factor(typing: Any, address: Any, step: Any, tall: Any, deep: Any, stored: Any) -> Any:
    """left_factor(), or the address itself where `stored`: times_own() takes both."""
    if not constant(stored):
        kind, make = left_factor_of(step, tall, deep)
        return kind(types.int32, step, tall, deep, stored), make
    return types.int32(types.int32, step, tall, deep, stored), lambda context, builder, sig, args: args[0]


@intrinsic
def times_own(typing: Any, acc: Any, a: Any, x: Any, address: Any, step: Any, tall: Any, deep: Any) -> Any:
    """times_turned() or times_stored(), as own_factor() is."""
    if not isinstance(a, types.UniTuple):
        return product(acc, a, x, address, step, tall, False, deep)
    sig, make = product(acc, a, x, address, step, tall, False)
    return sig.return_type(*sig.args, deep), make


# ---- votes -------------------------------------------------------------------------------------------------------------------------
@word(lambda flags: signature(types.boolean, flags))
def any_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Whether one of a lane's flags is set."""
    found, *rest = elements(builder, args[0])
    for flag in rest:
        found = builder.or_(found, flag)
    return found
