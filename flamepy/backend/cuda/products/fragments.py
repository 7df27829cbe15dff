"""Tiles of the tensor cores: what a warp has of a small matrix, as tuples, and the words for them.

Of 16 rows by 8 columns lane 4 r + c of a warp has columns 2c and 2c + 1 of rows r and r + 8 (PTX ISA, mma.m16n8k16). A tile of 16 m rows
and 8 n columns is a tuple of 4 n numbers for the first 16 rows, then those of the next; `rows` = 2 m is how many rows a lane has a part
of, `tall` = m. Factors are 16-bit numbers in pairs. each() calls a function of a kernel for every number, so formulas stay Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from ..runtime.compat import cgutils, intrinsic, literal, types, word
from ..runtime.inline import VOID, run
from ..runtime.span import F32, I32, I64
from .tensor import load_matrices
from .tiles import constant, elements, plain


def lane_of(builder: Any) -> Any:
    return register(builder, "laneid")


def register(builder: Any, name: str) -> Any:
    """A number of the GPU's own, such as "tid.x", as LLVM knows it: it may be read once for all its uses."""
    kind = ir.FunctionType(I32, [])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.nvvm.read.ptx.sreg.{name}"), [])


def called(context: Any, typing: Any, function: Any, kinds: Any) -> tuple[Any, Any]:
    """(type of the result, call(builder, values)) of a device function."""
    sig = typing.resolve_function_type(function, tuple(kinds), {})

    def call(builder: Any, values: Any) -> Any:
        found = context.get_function(function, sig)
        for library in getattr(found, "libs", ()):
            context.active_code_library.add_linking_library(library)
        return found(builder, values)

    return sig.return_type, call


def beside(builder: Any, rows: int, count: int, kinds: Any, values: Any) -> Callable[[int], list[Any]]:
    """For number i of a tile: what each of the other arguments has for it."""
    parts = [elements(builder, v) if isinstance(k, types.UniTuple) else v for k, v in zip(kinds, values, strict=True)]

    def at(i: int) -> list[Any]:
        row = row_of(i, rows, count)
        return [p if not isinstance(p, list) else p[i] if len(p) == count else p[row] for p in parts]

    return at


def row_of(i: int, rows: int, count: int) -> int:
    """Which of the lane's rows number i is in."""
    return i if count == rows else i // (2 * count // rows) * 2 + i % 4 // 2


def single(kind: Any) -> Any:
    return kind.dtype if isinstance(kind, types.UniTuple) else plain(kind)


def mapping(typing: Any, function: Any, rows: Any, acc: Any, others: Any, placed: bool) -> Any:
    """each() and mapped()."""
    lines, count = constant(rows), acc.count
    given = list(others)
    kinds = [acc.dtype, *[types.int32] * (2 * placed), *map(single, given)]
    result = typing.resolve_function_type(function, tuple(kinds), {}).return_type
    kind = types.none if result == types.none else types.UniTuple(result, count)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        call = called(context, typing, function, kinds)[1]
        others_at = beside(builder, lines, count, given, elements(builder, args[3]))
        lane = lane_of(builder) if placed else None
        found = []
        for i, value in enumerate(elements(builder, args[2])):
            place = position(builder, lane, i, lines, count) if placed else []
            found.append(call(builder, [value, *place, *others_at(i)]))
        return context.get_dummy_value() if kind == types.none else context.make_tuple(builder, kind, found)

    return kind(function, rows, acc, others), make


def position(builder: Any, lane: Any, i: int, rows: int, count: int) -> list[Any]:
    """(row, column) of a lane's number i in its tile."""
    row, each = row_of(i, rows, count), 2 * count // rows
    down = builder.add(builder.lshr(lane, I32(2)), I32(8 * row))
    across = builder.add(builder.shl(builder.and_(lane, I32(3)), I32(1)), I32(i % each // 4 * 8 + i % 2))
    return [down, across]


@intrinsic
def each(typing: Any, function: Any, rows: Any, acc: Any, others: Any) -> Any:
    """function(number, row, column, ...) for each number of a tile (rows and columns of the tile): the tile of what it returns, if
    anything. A tuple among the others has a number for each one, or for each row that this lane has; the rest is given to all."""
    return mapping(typing, function, rows, acc, others, True)


@intrinsic
def mapped(typing: Any, function: Any, rows: Any, acc: Any, others: Any) -> Any:
    """The same without row and column."""
    return mapping(typing, function, rows, acc, others, False)


@intrinsic
def folded(typing: Any, function: Any, rows: Any, acc: Any, lanes: Any) -> Any:
    """function(a, b) over each row of a tile, in a fixed order: a tuple of rows, the same in the four lanes that have them; lanes = 1: of
    what this lane has alone."""
    lines, count, kind = constant(rows), acc.count, types.UniTuple(acc.dtype, constant(rows))

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        call = called(context, typing, function, (acc.dtype, acc.dtype))[1]
        parts: list[list[Any]] = [[] for _ in range(lines)]
        for i, value in enumerate(elements(builder, args[2])):
            parts[row_of(i, lines, count)].append(value)
        found = []
        for part in parts:
            while len(part) > 1:  # pairs, then pairs of pairs
                part = [call(builder, part[i : i + 2]) if i + 1 < len(part) else part[i] for i in range(0, len(part), 2)]
            value = part[0]
            for far in (1, 2)[: constant(lanes) - 1]:
                value = call(builder, [value, from_lane(builder, value, far)])
            found.append(value)
        return context.make_tuple(builder, kind, found)

    return kind(function, rows, acc, lanes), make


def from_lane(builder: Any, value: Any, far: int) -> Any:
    """What the lane whose number differs in these bits has, of 32 bits."""
    code = f"shfl.sync.bfly.b32 $0, $1, {far}, 31, -1;"
    kind = "=r,r" if value.type == I32 else "=f,f"
    return run(builder, value.type, code, kind, [value], memory=False, kept=True)


# ---- shared memory by address ------------------------------------------------------------------------------------------------------
@word(lambda to, x, i, there: types.none(types.int32, x, types.int64, types.boolean))
def copy_one(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """x[i], 16 bits, to an address, or 0 if it isn't `there`."""
    index = builder.select(args[3], args[2], I64(0))
    found = builder.load(builder.gep(builder.extract_value(args[1], 0), [index]), align=2)
    run(builder, VOID, "st.shared.b16 [$0], $1;", "r,h", [args[0], builder.select(args[3], found, found.type(0))])


@word(lambda x, at, step, left, cols, acc, tall: types.none(x, *[types.int64] * 4, acc, literal(tall)))
def put_pairs(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """A tile to a buffer: number (i, j) to x[at + i step + j] where i < left and j < cols, which is even; rows begin at 16 bytes."""
    x, _, _, _, _, acc, tall = sig.args
    lines, nbytes = 2 * constant(tall), x.stored.bitwidth // 8
    width = acc.count // lines  # numbers of a row that a lane has
    values, lane = elements(builder, args[5]), lane_of(builder)
    row, column = position(builder, lane, 0, lines, acc.count)
    first = builder.add(args[1], builder.add(builder.mul(builder.zext(row, I64), args[2]), builder.zext(column, I64)))
    place = builder.ptrtoint(builder.gep(builder.extract_value(args[0], 0), [first]), I64)
    further, whole = builder.mul(args[2], I64(8 * nbytes)), builder.icmp_signed("==", args[4], I64(4 * width))
    for line in range(lines):
        own = [v for i, v in enumerate(values) if row_of(i, lines, acc.count) == line]
        words = [paired(builder, x.half, *own[i : i + 2]) if x.half else own[i : i + 2] for i in range(0, width, 2)]
        shift, wide = exchanged(builder, lane, words) if x.half else (I64(0), words)
        there = builder.icmp_signed("<", builder.zext(builder.add(row, I32(8 * line)), I64), args[3])
        with builder.if_then(there), builder.if_else(whole) as (all_columns, some_columns):
            with all_columns:
                for j, pair in enumerate(wide):
                    put_pair(builder, builder.add(place, shift), 32 * j, pair)
            with some_columns:
                for j, pair in enumerate(words):
                    with builder.if_then(builder.icmp_signed("<", builder.zext(builder.add(column, I32(8 * j)), I64), args[4])):
                        put_pair(builder, place, 8 * nbytes * j, pair)
        place = builder.add(place, further)


def exchanged(builder: Any, lane: Any, words: list[Any]) -> tuple[Any, list[Any]]:
    """Pairs of neighbours in a row, 32 bytes apart, for pairs of numbers 16 bytes apart: even lanes take what belongs beside their own in
    one part of 8 columns, odd lanes in the next. And how much further these begin."""
    odd, found = builder.icmp_unsigned("!=", builder.and_(lane, I32(1)), I32(0)), []
    for low, high in zip(words[::2], words[1::2], strict=True):
        got = from_lane(builder, builder.select(odd, low, high), 1)
        found.append([builder.select(odd, got, low), builder.select(odd, high, got)])
    return builder.select(odd, I64(12), I64(0)), found


def put_pair(builder: Any, place: Any, offset: int, pair: Any) -> None:
    """A word, or two, to an address."""
    if not isinstance(pair, list):
        run(builder, VOID, f"st.global.b32 [$0+{offset}], $1;", "l,r", [place, pair])
    else:
        code = "r" if pair[0].type == I32 else "f"
        run(builder, VOID, f"st.global.v2.b32 [$0+{offset}], {{$1, $2}};", f"l,{code},{code}", [place, *pair])


# ---- products ----------------------------------------------------------------------------------------------------------------------
def lane_address(builder: Any, address: Any, step: int, row_from: int) -> Any:
    """Which row of which of four matrices this lane gives the address of. row_from: the bit of the matrix' number that says whether it
    is the lower one; the other says whether it is the right one."""
    lane = lane_of(builder)
    lower = builder.and_(builder.lshr(lane, I32(3 + row_from)), I32(1))
    right = builder.and_(builder.lshr(lane, I32(4 - row_from)), I32(1))
    row = builder.add(builder.and_(lane, I32(7)), builder.shl(lower, I32(3)))
    return builder.add(address, builder.add(builder.mul(row, I32(step)), builder.shl(right, I32(4))))


@intrinsic
def left_factor(typing: Any, address: Any, step: Any, tall: Any, deep: Any) -> Any:
    """16 tall rows of 16 deep 16-bit numbers, from shared memory whose rows are `step` bytes apart: the left factor of a product."""
    kind, make = left_factor_of(step, tall, deep)
    return kind(types.int32, step, tall, deep), make


def left_factor_of(step: Any, tall: Any, deep: Any) -> tuple[Any, Any]:
    """Its type, and what makes it of an address."""
    m, k, by = constant(tall), constant(deep), constant(step)
    kind = types.UniTuple(types.uint32, 4 * m * k)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at, found = lane_address(builder, args[0], by, 0), []
        for i in range(m):
            for j in range(k):
                found += load_matrices(builder, at, 16 * by * i + 32 * j, False)
        return context.make_tuple(builder, kind, found)

    return kind, make


def multiply(builder: Any, half: str, acc: list[Any], a: list[Any], b: list[Any]) -> list[Any]:
    """acc + a b for a of 16 x 16 and b of 16 x 8."""
    code = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{half}.{half}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )
    found = run(builder, ir.LiteralStructType([F32] * 4), code, "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3", [*a, *b, *acc], memory=False)
    return [builder.extract_value(found, i) for i in range(4)]


def product(acc: Any, a: Any, x: Any, address: Any, step: Any, tall: Any, turned: bool, depth: Any = None) -> Any:
    """times_turned(), times() and times_stored(), whose a is a place, too, and `depth` a constant."""
    m, by, half, stored = constant(tall), constant(step), x.half, depth is not None
    deep, across = constant(depth) if stored else a.count // (4 * m), acc.count // (4 * m)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        sums = elements(builder, args[0])
        left = None if stored else elements(builder, args[1])
        at, left_at = lane_address(builder, args[3], by, 0 if turned else 1), lane_address(builder, args[1], by, 0) if stored else None
        for k in range(deep):
            rows = [left_part(builder, left, left_at, by, i, k, deep) for i in range(m)]
            for pair in range(across // 2):
                offset = 16 * by * k + 32 * pair if turned else 16 * by * pair + 32 * k
                right = load_matrices(builder, at, offset, turned)
                for i in range(m):
                    for n in range(2):
                        own = 4 * (i * across + 2 * pair + n)
                        sums[own : own + 4] = multiply(builder, half, sums[own : own + 4], rows[i], right[2 * n : 2 * n + 2])
        return context.make_tuple(builder, acc, sums)

    return acc(acc, types.int32 if stored else a, x, types.int32, step, tall, *([depth] if stored else [])), make


def left_part(builder: Any, left: Any, at: Any, step: int, i: int, k: int, deep: int) -> list[Any]:
    """The left factor's numbers of rows 16 i and columns 16 k on: in registers, or from shared memory."""
    if left is None:
        return load_matrices(builder, at, 16 * step * i + 32 * k, False)
    return left[4 * (i * deep + k) : 4 * (i * deep + k) + 4]  # type: ignore[no-any-return]


@intrinsic
def times_turned(typing: Any, acc: Any, a: Any, x: Any, address: Any, step: Any, tall: Any) -> Any:
    """acc + a b^T, b in shared memory: a row for each column of acc. x: a buffer of the factors' type."""
    return product(acc, a, x, address, step, tall, False)


@intrinsic
def times_stored(typing: Any, acc: Any, a: Any, x: Any, address: Any, step: Any, tall: Any, deep: Any) -> Any:
    """times_turned() for a left factor that is in shared memory too, 16 deep numbers wide."""
    return product(acc, a, x, address, step, tall, False, deep)


@intrinsic
def times(typing: Any, acc: Any, a: Any, x: Any, address: Any, step: Any, tall: Any) -> Any:
    """acc + a b, b in shared memory: a column for each column of acc."""
    return product(acc, a, x, address, step, tall, True)


@word(lambda acc, x: types.UniTuple(types.uint32, acc.count // 2)(acc, x))
def rounded(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A tile as the left factor of a product of x's type."""
    e = elements(builder, args[0])
    return [paired(builder, sig.args[1].half, e[i], e[i + 1]) for i in range(0, len(e), 2)]


def paired(builder: Any, half: str, low: Any, high: Any) -> Any:
    """Two numbers rounded to 16 bits, side by side."""
    return run(builder, I32, f"cvt.rn.{half}x2.f32 $0, $1, $2;", "=r,f,f", [high, low], memory=False)


@word(lambda x: types.float32(types.float32))
def power2(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """2^x by one instruction, right to 2 units in the last place. The word exp2 takes four: it has results below 2^-126, too."""
    return run(builder, F32, "ex2.approx.ftz.f32 $0, $1;", "=f,f", list(args), memory=False)
