"""Words of the products' kernels: copies into shared memory that go on in the background, tensor cores, tiles of sums in registers.

Shared memory is addressed by numbers: shared(n) is where n bytes of it begin. What a thread holds of its block's tile is a tuple, so that
it stays in registers. A matrix of 16-bit numbers lies in shared memory as in the device's: row by row, 32 numbers of k in a row, or `deep`,
32 rows of k; pieces of 16 bytes change places so that eight rows are read from different banks. `deep` is None or not: two kernels.

FLAME counterpart: what cuBLAS does for it. Read next: products.py.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from .compat import cgutils, intrinsic, types
from .span import F32, I32, I64
from .vectors import packed, pointer

VOID = ir.VoidType()
ACROSS = 4  # a warp's tile is 4 small ones, of 8 columns, wide
PITCH = 40  # numbers from row to row where a warp puts its sums: eight banks apart
DEPTH = {8: 8, 4: 16}  # steps of k in a stage, by the rows of a thread
M16 = {"bf16": "bf16.bf16", "f16": "f16.f16"}


def literal(kind: Any) -> bool:
    return isinstance(kind, types.IntegerLiteral)


def narrow(builder: Any, value: Any) -> Any:
    """An address in shared memory, or a count."""
    return builder.trunc(value, I32)


def run(builder: Any, result: Any, code: str, constraints: str, args: list[Any], memory: bool = True) -> Any:
    """An instruction. `memory`: it is neither left out nor moved across others that use memory."""
    kind = ir.FunctionType(result, [a.type for a in args])
    marks = [c for c in (constraints, "~{memory}" if memory else "") if c]
    return builder.asm(kind, code, ",".join(marks), args, side_effect=memory)


# ---- shared memory -------------------------------------------------------------------------------------------------------------
@intrinsic
def shared(typing: Any, nbytes: Any) -> Any:
    """Where so many bytes (a literal) of the block's shared memory begin: a multiple of 128."""
    if not literal(nbytes):
        return None

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.ArrayType(ir.IntType(8), nbytes.literal_value)
        room = cgutils.add_global_variable(builder.module, kind, "room", addrspace=3)
        room.linkage, room.align, room.initializer = "internal", 128, ir.Constant(kind, ir.Undefined)
        return builder.ptrtoint(room, I64)

    return types.int64(nbytes), code


@intrinsic
def copy16(typing: Any, to: Any, x: Any, i: Any, nbytes: Any) -> Any:
    """16 bytes from x[i] on, of which only the first nbytes are read and the others are 0; both places must be multiples of 16."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given = [narrow(builder, args[0]), builder.ptrtoint(pointer(builder, args[1], args[2]), I64), narrow(builder, args[3])]
        run(builder, VOID, "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r", given)
        return context.get_dummy_value()

    return types.none(types.int64, x, types.int64, types.int64), code


@intrinsic
def copy1(typing: Any, to: Any, x: Any, i: Any, there: Any) -> Any:
    """One number, or 0 if it isn't `there`, of 4 or 8 bytes."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        nbytes = x.stored.bitwidth // 8
        wanted = builder.select(args[3], I32(nbytes), I32(0))
        given = [narrow(builder, args[0]), builder.ptrtoint(pointer(builder, args[1], args[2]), I64), wanted]
        run(builder, VOID, f"cp.async.ca.shared.global [$0], [$1], {nbytes}, $2;", "r,l,r", given)
        return context.get_dummy_value()

    return types.none(types.int64, x, types.int64, types.boolean), code


@intrinsic
def commit(typing: Any) -> Any:
    """The copies since the last commit() are a group."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        run(builder, VOID, "cp.async.commit_group;", "", [])
        return context.get_dummy_value()

    return types.none(), code


@intrinsic
def wait(typing: Any, groups: Any) -> Any:
    """Until all groups of this thread but so many, a literal, of the latest are there."""
    if not literal(groups):
        return None

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        run(builder, VOID, f"cp.async.wait_group {groups.literal_value};", "", [])
        return context.get_dummy_value()

    return types.none(groups), code


@intrinsic
def put8(typing: Any, to: Any, x: Any, values: Any) -> Any:
    """Eight numbers, as they are stored in x, of 16 bits."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words = packed(builder, x, cgutils.unpack_tuple(builder, args[2]))
        run(builder, VOID, "st.shared.v4.b32 [$0], {$1, $2, $3, $4};", "r,r,r,r,r", [narrow(builder, args[0]), *words])
        return context.get_dummy_value()

    return types.none(types.int64, x, values), code


def numbers4(builder: Any, kind: Any, at: Any) -> list[Any]:
    """Four numbers from an address in shared memory on."""
    if kind == types.float32:
        found = run(builder, ir.LiteralStructType([F32] * 4), "ld.shared.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,r", [at])
        return [builder.extract_value(found, n) for n in range(4)]
    pair, numbers = ir.LiteralStructType([ir.DoubleType()] * 2), []
    for offset in (0, 16):
        found = run(builder, pair, f"ld.shared.v2.f64 {{$0, $1}}, [$2+{offset}];", "=d,=d,r", [at])
        numbers += [builder.extract_value(found, n) for n in range(2)]
    return numbers


@intrinsic
def shared4(typing: Any, sums: Any, at: Any) -> Any:
    """Four numbers of the sums' type."""
    found = types.UniTuple(sums.dtype, 4)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_tuple(builder, found, numbers4(builder, sums.dtype, narrow(builder, args[1])))

    return found(sums, types.int64), code


@intrinsic
def put4_shared(typing: Any, values: Any, at: Any) -> Any:
    """Four numbers into shared memory."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers, at = cgutils.unpack_tuple(builder, args[0]), narrow(builder, args[1])
        if values.dtype == types.float32:
            run(builder, VOID, "st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "r,f,f,f,f", [at, *numbers])
        else:
            for n in (0, 2):
                run(builder, VOID, f"st.shared.v2.f64 [$0+{8 * n}], {{$1, $2}};", "r,d,d", [at, *numbers[n : n + 2]])
        return context.get_dummy_value()

    return types.none(values, types.int64), code


# ---- numbers ------------------------------------------------------------------------------------------------------------------------
@intrinsic
def divided(typing: Any, a: Any, b: Any) -> Any:
    """(quotient, remainder) of numbers from 0 to 2**32."""
    found = types.UniTuple(types.int64, 2)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b = [narrow(builder, v) for v in args]
        both = builder.udiv(a, b), builder.urem(a, b)
        return context.make_tuple(builder, found, [builder.zext(v, I64) for v in both])

    return found(types.int64, types.int64), code


@intrinsic
def bytes_of(typing: Any, x: Any) -> Any:
    """How many bytes a number of x takes in memory."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return I64(x.stored.bitwidth // 8)

    return types.int64(x), code


@intrinsic
def sums_of(typing: Any, count: Any, zero: Any) -> Any:
    """A tuple of so many (a literal) zeros."""
    if not literal(count):
        return None
    found = types.UniTuple(zero, count.literal_value)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_tuple(builder, found, [args[1]] * count.literal_value)

    return found(count, zero), code


# ---- one thread's part of a tile: len(sums) is 16 or 64 numbers, of 4 or 8 rows ------------------------------------------------------
def side_of(sums: Any) -> int:
    return 8 if len(sums) == 64 else 4


def line_of(builder: Any, sums: Any, at: Any, apart: Any) -> list[Any]:
    """Four numbers, and where a thread has eight rows another four, so many bytes further on."""
    return numbers4(builder, sums.dtype, at) + (numbers4(builder, sums.dtype, builder.add(at, apart)) if side_of(sums) == 8 else [])


@intrinsic
def added(typing: Any, sums: Any, a: Any, b: Any, pitch: Any, apart: Any) -> Any:
    """The sums with the products of a stage's numbers added: rows of a and b begin at these addresses, `pitch` bytes after each other."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[0])
        left, right, pitch, apart = [narrow(builder, v) for v in args[1:]]
        side = side_of(sums)
        for _ in range(DEPTH[side]):
            rows, columns = line_of(builder, sums, left, apart), line_of(builder, sums, right, apart)
            values = [builder.fma(rows[n // side], columns[n % side], v) for n, v in enumerate(values)]
            left, right = builder.add(left, pitch), builder.add(right, pitch)
        return context.make_tuple(builder, sums, values)

    return sums(sums, *[types.int64] * 4), code


@intrinsic
def quad(typing: Any, sums: Any, n: Any) -> Any:
    """sums[4 * n : 4 * n + 4]."""
    found = types.UniTuple(sums.dtype, 4)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, chosen = cgutils.unpack_tuple(builder, args[0]), None
        for part in range(len(sums) // 4):
            four = values[4 * part : 4 * part + 4]
            this = builder.icmp_signed("==", args[1], I64(part))
            chosen = four if chosen is None else [builder.select(this, v, c) for v, c in zip(four, chosen, strict=True)]
        return context.make_tuple(builder, found, chosen)

    return found(sums, types.int64), code


# ---- one warp's part of a tile: len(sums) is 16 for each 16 rows; 32 columns -----------------------------------------------------------
def matrices(builder: Any, at: Any, step: Any, deep: bool, row_bytes: Any, count: int) -> list[Any]:
    """The registers of `count` times 16 rows (or columns) and 16 of k, from the lane's own address in the first step's first ones."""
    found = []
    for n in range(count):
        if deep:
            place = builder.add(builder.xor(at, I32(32 * n)), builder.mul(step, builder.shl(row_bytes, I32(4))))
        else:
            place = builder.add(builder.xor(at, builder.shl(step, I32(5))), I32(1024 * n))
        turn = ".trans" if deep else ""
        code = f"ldmatrix.sync.aligned.m8n8.x4{turn}.shared.b16 {{$0, $1, $2, $3}}, [$4];"
        four = run(builder, ir.LiteralStructType([I32] * 4), code, "=r,=r,=r,=r,r", [place])
        found += [builder.extract_value(four, r) for r in range(4)]
    return found


@intrinsic
def left(typing: Any, sums: Any, at: Any, step: Any, deep: Any, row_bytes: Any) -> Any:
    """This warp's rows of the left operand, for step 0 or 1 of 16 numbers of k."""
    found = types.UniTuple(types.int32, len(sums) // 4)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at, step, wide = [narrow(builder, args[n]) for n in (1, 2, 4)]
        return context.make_tuple(builder, found, matrices(builder, at, step, deep != types.none, wide, len(sums) // 16))

    return found(sums, types.int64, types.int64, deep, types.int64), code


@intrinsic
def right(typing: Any, at: Any, step: Any, deep: Any, row_bytes: Any) -> Any:
    """This warp's 32 columns of the right operand."""
    found = types.UniTuple(types.int32, 2 * ACROSS)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        at, step, wide = [narrow(builder, args[n]) for n in (0, 1, 3)]
        return context.make_tuple(builder, found, matrices(builder, at, step, deep != types.none, wide, ACROSS // 2))

    return found(types.int64, types.int64, deep, types.int64), code


@intrinsic
def multiplied(typing: Any, sums: Any, a: Any, b: Any, x: Any) -> Any:
    """The sums with the products of 16 numbers of k added, by tensor cores; x: whose numbers they are."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, rows, columns = [cgutils.unpack_tuple(builder, v) for v in args[:3]]
        added = list(values)
        four = ir.LiteralStructType([F32] * 4)
        for i in range(len(rows) // 4):
            for j in range(ACROSS):
                at = 4 * (i * ACROSS + j)
                given = rows[4 * i : 4 * i + 4] + columns[2 * j : 2 * j + 2] + added[at : at + 4]
                code = f"mma.sync.aligned.m16n8k16.row.col.f32.{M16[x.half]}.f32 {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, "
                result = run(builder, four, code + "{$10, $11, $12, $13};", "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", given, memory=False)
                added[at : at + 4] = [builder.extract_value(result, n) for n in range(4)]
        return context.make_tuple(builder, sums, added)

    return sums(sums, a, b, x), code


@intrinsic
def spread(typing: Any, sums: Any, part: Any, at: Any) -> Any:
    """16 rows of the warp's sums into shared memory, row by row, PITCH numbers apart; `at`: the lane's own place there."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values, at = cgutils.unpack_tuple(builder, args[0]), narrow(builder, args[2])
        for n in range(len(sums) // 16):
            with builder.if_then(builder.icmp_signed("==", args[1], I64(n))):
                for j in range(ACROSS):
                    for low in range(2):
                        first = 16 * n + 4 * j + 2 * low
                        offset = 32 * j + 4 * 8 * PITCH * low
                        run(builder, VOID, f"st.shared.v2.f32 [$0+{offset}], {{$1, $2}};", "r,f,f", [at, *values[first : first + 2]])
        return context.get_dummy_value()

    return types.none(sums, types.int64, types.int64), code
