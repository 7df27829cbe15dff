"""Words of the products' kernels: copies into shared memory that go on in the background, tensor cores, tiles of sums in registers.

Shared memory is addressed by numbers: shared(n) is where n bytes of it begin. What a thread holds of its block's tile is a tuple, so that
it stays in registers. A matrix of 16-bit numbers lies in shared memory as in the device's: row by row, 32 or 64 numbers of k in a row, or
`deep`, as many rows of k; pieces of 16 bytes change places so that eight rows are read from different banks. `deep` is None or not: two
kernels.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ..loops.vectors import pointer
from ..runtime.build import GIVEN, STATIC
from ..runtime.compat import cgutils, literal, signature, types, word
from ..runtime.inline import VOID, run
from ..runtime.span import F32, I32, I64

PITCH = 40  # numbers from row to row where a warp puts its sums, 32 in a row: eight banks apart
DEPTH = {8: 8, 4: 16}  # steps of k in a stage, by the rows of a thread
M16 = {"bf16": "bf16.bf16", "f16": "f16.f16"}


def narrow(builder: Any, value: Any) -> Any:
    """An address in shared memory, or a count."""
    return builder.trunc(value, I32)


# ---- shared memory -------------------------------------------------------------------------------------------------------------
@word(lambda nbytes: types.int64(literal(nbytes)))
def shared(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Where so many bytes (a literal) of the block's shared memory begin: a multiple of 128. More than STATIC, all of a kernel's, are given
    by the launch; the array's name tells it how many (build.py)."""
    many = sig.args[0].literal_value
    given = many > STATIC
    kind = ir.ArrayType(ir.IntType(8), 0 if given else many)
    room = cgutils.add_global_variable(builder.module, kind, f"{GIVEN}{many}" if given else "room", addrspace=3)
    room.align = 1024 if given else 128  # wgmma counts in such tiles
    if not given:
        room.linkage, room.initializer = "internal", ir.Constant(kind, ir.Undefined)
    return builder.ptrtoint(room, I64)


@word(lambda to, x, i, nbytes: types.none(types.int64, x, types.int64, types.int64))
def copy16(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """16 bytes from x[i] on, of which only the first nbytes are read and the others are 0; both places must be multiples of 16."""
    given = [narrow(builder, args[0]), builder.ptrtoint(pointer(builder, args[1], args[2]), I64), narrow(builder, args[3])]
    run(builder, VOID, "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r", given)


@word(lambda to, x, i, there: types.none(types.int64, x, types.int64, types.boolean))
def copy1(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """One number, or 0 if it isn't `there`, of 4 or 8 bytes."""
    nbytes = sig.args[1].stored.bitwidth // 8
    wanted = builder.select(args[3], I32(nbytes), I32(0))
    given = [narrow(builder, args[0]), builder.ptrtoint(pointer(builder, args[1], args[2]), I64), wanted]
    run(builder, VOID, f"cp.async.ca.shared.global [$0], [$1], {nbytes}, $2;", "r,l,r", given)


@word(lambda: signature(types.none))
def commit(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """The copies since the last commit() are a group."""
    run(builder, VOID, "cp.async.commit_group;", "", [])


@word(lambda groups: types.none(literal(groups)))
def wait(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """Until all groups of this thread but so many, a literal, of the latest are there."""
    run(builder, VOID, f"cp.async.wait_group {sig.args[0].literal_value};", "", [])


@word(lambda to, x, i, many: types.none(types.int64, x, types.int64, types.int64))
def copy8(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """The first `many` of eight numbers of 16 bits from x[i] on, then zeros; x[i] may lie anywhere. Nothing beyond them is read."""
    halves, words = [f"h{n}" for n in range(8)], [f"w{n}" for n in range(4)]
    loads = "".join(f"setp.gt.s32 there, $2, {n}; mov.b16 {h}, 0; @there ld.global.b16 {h}, [$1+{2 * n}]; " for n, h in enumerate(halves))
    pairs = "".join(f"mov.b32 {w}, {{{halves[2 * n]}, {halves[2 * n + 1]}}}; " for n, w in enumerate(words))
    registers = f".reg .pred there; .reg .b16 {', '.join(halves)}; .reg .b32 {', '.join(words)}; "
    given = [narrow(builder, args[0]), builder.ptrtoint(pointer(builder, args[1], args[2]), I64), narrow(builder, args[3])]
    run(builder, VOID, f"{{ {registers}{loads}{pairs}st.shared.v4.b32 [$0], {{{', '.join(words)}}}; }}", "r,l,r", given)


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


@word(lambda sums, at: types.UniTuple(sums.dtype, 4)(sums, types.int64))
def shared4(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Four numbers of the sums' type."""
    return numbers4(builder, sig.return_type.dtype, narrow(builder, args[1]))


@word(lambda values, at: types.none(values, types.int64))
def put4_shared(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """Four numbers into shared memory."""
    numbers, at = cgutils.unpack_tuple(builder, args[0]), narrow(builder, args[1])
    if sig.args[0].dtype == types.float32:
        run(builder, VOID, "st.shared.v4.f32 [$0], {$1, $2, $3, $4};", "r,f,f,f,f", [at, *numbers])
    else:
        for n in (0, 2):
            run(builder, VOID, f"st.shared.v2.f64 [$0+{8 * n}], {{$1, $2}};", "r,d,d", [at, *numbers[n : n + 2]])


# ---- numbers ------------------------------------------------------------------------------------------------------------------------
@word(lambda a, b: types.UniTuple(types.int64, 2)(types.int64, types.int64))
def divided(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """(quotient, remainder) of numbers from 0 to 2**32."""
    a, b = [narrow(builder, v) for v in args]
    both = builder.udiv(a, b), builder.urem(a, b)
    return [builder.zext(v, I64) for v in both]


@word(lambda x: signature(types.int64, x))
def bytes_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """How many bytes a number of x takes in memory."""
    return I64(sig.args[0].stored.bitwidth // 8)


# ---- one thread's part of a tile: len(sums) is 16 or 64 numbers, of 4 or 8 rows ------------------------------------------------------
def side_of(sums: Any) -> int:
    return 8 if len(sums) == 64 else 4


def line_of(builder: Any, sums: Any, at: Any, apart: Any) -> list[Any]:
    """Four numbers, and where a thread has eight rows another four, so many bytes further on."""
    return numbers4(builder, sums.dtype, at) + (numbers4(builder, sums.dtype, builder.add(at, apart)) if side_of(sums) == 8 else [])


@word(lambda sums, a, b, pitch, apart: sums(sums, *[types.int64] * 4))
def added(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The sums with the products of a stage's numbers added: rows of a and b begin at these addresses, `pitch` bytes after each other."""
    sums, values = sig.return_type, cgutils.unpack_tuple(builder, args[0])
    left, right, pitch, apart = [narrow(builder, v) for v in args[1:]]
    side = side_of(sums)
    for _ in range(DEPTH[side]):
        rows, columns = line_of(builder, sums, left, apart), line_of(builder, sums, right, apart)
        values = [builder.fma(rows[n // side], columns[n % side], v) for n, v in enumerate(values)]
        left, right = builder.add(left, pitch), builder.add(right, pitch)
    return values


@word(lambda sums, n: types.UniTuple(sums.dtype, 4)(sums, types.int64))
def quad(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """sums[4 * n : 4 * n + 4]."""
    values, chosen = cgutils.unpack_tuple(builder, args[0]), None
    for part in range(len(values) // 4):
        four = values[4 * part : 4 * part + 4]
        this = builder.icmp_signed("==", args[1], I64(part))
        chosen = four if chosen is None else [builder.select(this, v, c) for v, c in zip(four, chosen, strict=True)]
    return chosen


# ---- one warp's part of a tile: 64 rows of 64 columns where len(sums) is 128, else 32 columns and 16 rows for each 16 sums --------------
def across_of(sums: Any) -> int:
    """How many small tiles, of 8 columns, a warp's tile is wide."""
    return 8 if len(sums) == 128 else 4


def load_matrices(builder: Any, address: Any, offset: int, turned: bool) -> list[Any]:
    """Four 8 x 8 matrices of 16-bit numbers."""
    code = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16 {{$0, $1, $2, $3}}, [$4+{offset}];"
    return cgutils.unpack_tuple(builder, run(builder, ir.LiteralStructType([I32] * 4), code, "=r,=r,=r,=r,r", [address]))


def matrices(builder: Any, at: Any, step: Any, deep: bool, row_bytes: Any, n: int) -> list[Any]:
    """The registers of 16 rows (or columns), the n-th of such, and 16 of k, from the lane's own address in the first step's first ones."""
    far, sixteen = (step, I32(n)) if deep else (I32(n), step)  # how many times 16 rows of shared memory, how many times 16 numbers of them
    place = builder.add(builder.xor(at, builder.shl(sixteen, I32(5))), builder.mul(far, builder.shl(row_bytes, I32(4))))
    return load_matrices(builder, place, 0, deep)


@word(lambda sums, a, b, step, a_deep, b_deep, row_bytes, x: sums(sums, *[types.int64] * 3, a_deep, b_deep, types.int64, x))
def multiplied(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The sums with the products of 16 numbers of k added, by tensor cores: of a step of a stage, where this lane reads a warp's rows from
    address a on, its columns from b on; row_bytes: of shared memory, but where they are steps of k; x: whose numbers they are."""
    sums, _, _, _, *deep, _, x = sig.args
    found, columns, across = cgutils.unpack_tuple(builder, args[0]), [], across_of(sums)
    a_at, b_at, step, line = [narrow(builder, args[n]) for n in (1, 2, 3, 6)]
    (a_deep, a_line), (b_deep, b_line) = [(d != types.none, line if d == types.none else I32(128)) for d in deep]
    mma = f"mma.sync.aligned.m16n8k16.row.col.f32.{M16[x.half]}.f32 {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, "
    for n in range(across // 2):
        columns += matrices(builder, b_at, step, b_deep, b_line, n)
    for i in range(len(sums) // (4 * across)):
        row = matrices(builder, a_at, step, a_deep, a_line, i)
        for j in range(across):
            at = 4 * (i * across + j)
            given, four = row + columns[2 * j : 2 * j + 2] + found[at : at + 4], ir.LiteralStructType([F32] * 4)
            result = run(builder, four, mma + "{$10, $11, $12, $13};", "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", given, memory=False)
            found[at : at + 4] = [builder.extract_value(result, n) for n in range(4)]
    return found


def swizzled(builder: Any, at: Any, lead: int) -> Any:
    """What wgmma is told of a tile in shared memory: swizzled by 128 bytes; 1,024 bytes from 8 lines to the next, and, where k does not lie
    together, `lead` bytes from 64 lines to the next."""
    return builder.or_(builder.lshr(builder.and_(at, I64(0x3FFFF)), I64(4)), I64(1 << 62 | 64 << 32 | lead >> 4 << 16))


@word(lambda sums, a, b, a_deep, b_deep, x: sums(sums, types.int64, types.int64, a_deep, b_deep, x))
def multiplied_group(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The sums with the products of a stage of 64 numbers of k added, by four warps as one (wgmma of sm_90a): twice 64 rows by 128 columns.
    a, b: where their parts of the stage begin, multiples of 1,024. All of it is one piece, or sums would leave their registers."""
    turned = [d != types.none for d in sig.args[3:5]]
    given = [swizzled(builder, args[1 + n], 1 << 13 if turned[n] else 16) for n in (0, 1)]
    kinds, code = M16[sig.args[5].half], ["{ .reg .pred adds; .reg .b64 a, b; setp.ne.b64 adds, $128, 0; wgmma.fence.sync.aligned;"]
    for step in range(4):
        for half in range(2):
            a, b = [(128 if t else 2) * step for t in turned]
            sums = ", ".join(f"${n}" for n in range(64 * half, 64 * half + 64))
            code.append(f"add.s64 a, $128, {a + 512 * half}; add.s64 b, $129, {b}; wgmma.mma_async.sync.aligned.m64n128k16.f32.{kinds}")
            code.append(f"{{{sums}}}, a, b, adds, 1, 1, {int(turned[0])}, {int(turned[1])};")
    code.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    constraints = ",".join(["=f"] * 128 + ["l", "l"] + [str(n) for n in range(128)])
    values = [*given, *cgutils.unpack_tuple(builder, args[0])]
    return cgutils.unpack_tuple(builder, run(builder, ir.LiteralStructType([F32] * 128), " ".join(code), constraints, values))


@word(lambda: signature(types.none))
def seen(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """What this thread's copies have written is there for wgmma too, as soon as other threads hear of it."""
    run(builder, VOID, "fence.proxy.async.shared::cta;", "", [])


@word(lambda sums, part, at, group: types.none(sums, types.int64, types.int64, literal(group)))
def spread(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """16 rows of the warp's sums into shared memory, row by row, 8 numbers more apart than they are long; `at`: the lane's own place;
    group: whether a warp has all columns."""
    values, at, across = (
        cgutils.unpack_tuple(builder, args[0]),
        narrow(builder, args[2]),
        across_of(sig.args[0]) << sig.args[3].literal_value,
    )
    for n in range(len(values) // (4 * across)):
        with builder.if_then(builder.icmp_signed("==", args[1], I64(n))):
            for j in range(across):
                for low in range(2):
                    first = 4 * (across * n + j) + 2 * low
                    offset = 32 * j + 4 * 8 * (8 * across + 8) * low
                    run(builder, VOID, f"st.shared.v2.f32 [$0+{offset}], {{$1, $2}};", "r,f,f", [at, *values[first : first + 2]])
