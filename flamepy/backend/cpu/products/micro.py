"""The innermost loop of a product: a tile of the result that stays in registers, written in LLVM's language.

*Naive loop*: c[i, j] += a[i, p] * b[p, j] over i, j, p. Two loads for one multiplication, each sum waits for the one before, and b is
read down its columns. Over i, p, j vectors are multiplied and added, but every sum is loaded and stored for each p.

*Register tile*: 6 rows by 4 vectors of sums (2 where registers are few) leave them only after the loop over p, which loads 4 vectors of b
and 6 numbers of a, each spread over a vector, for 24 multiply-adds that wait for nobody. Numba cannot be told to keep an array in
registers, so the tile is emitted as it must be: one phi for each vector.

Rows that six do not divide go to tiles of 4 rows and of 1; columns beyond the last are read from a packed copy's padding and masked where
they are stored. So nothing outside is touched, and a few loops serve all sizes. `flamepy bench products` measures each step.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ..runtime.inner import INNER
from ..runtime.processor import Tile

BYTE, WORD, INT = ir.IntType(1), ir.IntType(64), ir.IntType(32)
ALONE = {**INNER, "forceinline": False}  # one copy, however often it is called

FAR = 4096  # bytes: rows so far apart lie in pages of their own


def word(n: int) -> Any:
    return ir.Constant(WORD, n)


class Vectors:
    """Emits loads, stores and arithmetic on vectors of one kind at addresses (whole numbers)."""

    def __init__(self, builder: Any, itemsize: int, lanes: int):
        self.builder, self.itemsize, self.lanes = builder, itemsize, lanes
        self.number = ir.FloatType() if itemsize == 4 else ir.DoubleType()
        self.kind = ir.VectorType(self.number, lanes)
        self.flags = ir.VectorType(BYTE, lanes)
        self.zero = ir.Constant(self.kind, [0.0] * lanes)
        self.suffix = f"v{lanes}f{8 * itemsize}"

    def pointer(self, address: Any, offset: int = 0, kind: Any = None) -> Any:
        at = self.builder.add(address, word(offset)) if offset else address
        return self.builder.inttoptr(at, (kind or self.kind).as_pointer())

    def load(self, address: Any, offset: int = 0) -> Any:
        return self.builder.load(self.pointer(address, offset), align=self.itemsize)

    def store(self, value: Any, address: Any, offset: int = 0) -> None:
        self.builder.store(value, self.pointer(address, offset), align=self.itemsize)

    def spread(self, number: Any, kind: Any = None) -> Any:
        """A number in every lane."""
        kind = kind or self.kind
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(INT, 0))
        return self.builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(INT, self.lanes), [0] * self.lanes))

    def spread_at(self, address: Any) -> Any:
        return self.spread(self.builder.load(self.pointer(address, kind=self.number), align=self.itemsize))

    def call(self, name: str, result: Any, *args: Any) -> Any:
        kind = ir.FunctionType(result, [a.type for a in args])
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), args)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        """a * b + c, rounded once where the processor has an instruction for it."""
        return self.call(f"llvm.fmuladd.{self.suffix}", self.kind, a, b, c)

    def first(self, count: Any) -> Any:
        """A mask of the first `count` lanes."""
        places = ir.VectorType(WORD, self.lanes)
        return self.builder.icmp_signed("<", ir.Constant(places, list(range(self.lanes))), self.spread(count, places))

    def load_where(self, mask: Any, address: Any, offset: int) -> Any:
        name, align = f"llvm.masked.load.{self.suffix}.p0", ir.Constant(INT, self.itemsize)
        return self.call(name, self.kind, self.pointer(address, offset), align, mask, self.zero)

    def store_where(self, mask: Any, value: Any, address: Any, offset: int) -> None:
        name, align = f"llvm.masked.store.{self.suffix}.p0", ir.Constant(INT, self.itemsize)
        self.call(name, ir.VoidType(), value, self.pointer(address, offset), align, mask)

    def add_up(self, value: Any) -> Any:
        """The sum of a vector's numbers, in any order."""
        kind = ir.FunctionType(self.number, [self.number, self.kind])
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.vector.reduce.fadd.{self.suffix}")
        return self.builder.call(function, [ir.Constant(self.number, -0.0), value], fastmath=("reassoc",))


def at_most(builder: Any, i: int, last: Any) -> Any:
    return builder.select(builder.icmp_signed("<", word(i), last), word(i), last)


# ---- The register tile ----
GROUP = 4  # rows of A that share a pointer: x86 addresses pointer + row, pointer + 2 row; one for each row would not fit its registers


def emit_sums(v: Vectors, tile: Tile, a: Any, row: Any, step: Any, b: Any, deep: Any, k: Any, listed: bool = False) -> list[list[Any]]:
    """The loop over k, and the tile's sums after it. `listed`: `deep` is where B's rows are listed, by their distance from b."""
    builder = v.builder
    jumps = [builder.mul(row, word(i)) for i in range(GROUP)]
    lines = [builder.add(a, builder.mul(row, word(i))) for i in range(0, tile.rows, GROUP)]

    def one(now: list[Any]) -> list[Any]:
        place, lines_now, sums = now[0], now[1 : 1 + len(lines)], now[1 + len(lines) :]
        panel = builder.add(b, builder.load(v.pointer(place, kind=WORD), align=8)) if listed else place
        columns = [v.load(panel, n * tile.lanes * v.itemsize) for n in range(tile.across)]
        for i in range(tile.rows):
            x = v.spread_at(builder.add(lines_now[i // GROUP], jumps[i % GROUP]))
            for n, y in enumerate(columns):
                sums[i * tile.across + n] = v.multiply_add(x, y, sums[i * tile.across + n])
        return [builder.add(place, word(8) if listed else deep), *[builder.add(line, step) for line in lines_now], *sums]

    now = emit_loop(builder, k, [deep if listed else b, *lines, *[v.zero] * (tile.rows * tile.across)], one)
    sums = now[1 + len(lines) :]
    return [sums[i : i + tile.across] for i in range(0, len(sums), tile.across)]


def emit_loop(builder: Any, count: Any, carried: list[Any], body: Any) -> list[Any]:
    """carried = body(carried), `count` times; each value has a phi, so that it may stay in a register."""
    before = builder.block
    loop, done = builder.append_basic_block("k"), builder.append_basic_block("done")
    builder.cbranch(builder.icmp_signed(">", count, word(0)), loop, done)
    builder.position_at_end(loop)
    left, *now = [builder.phi(value.type) for value in (count, *carried)]
    after = [builder.sub(left, word(1)), *body(list(now))]
    for phi, start, end in zip((left, *now), (count, *carried), after, strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(end, loop)
    builder.cbranch(builder.icmp_signed(">", after[0], word(0)), loop, done)
    builder.position_at_end(done)
    ends = [builder.phi(value.type) for value in carried]
    for phi, start, end in zip(ends, carried, after[1:], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(end, loop)
    return ends


def emit_stores(v: Vectors, sums: list[list[Any]], c: Any, ldc: Any, cols: Any, add: Any, masked: bool) -> None:
    """c = or += sums, for the columns that are there."""
    builder, size = v.builder, v.lanes * v.itemsize
    masks = [v.first(builder.sub(cols, word(n * v.lanes))) for n in range(len(sums[0]))] if masked else []
    with builder.if_else(add) as (more, fresh):
        for adds, block in ((True, more), (False, fresh)):
            with block:
                for i, own in enumerate(sums):
                    line = builder.add(c, builder.mul(ldc, word(i)))
                    for n, total in enumerate(own):
                        if masked:
                            y = builder.fadd(total, v.load_where(masks[n], line, n * size)) if adds else total
                            v.store_where(masks[n], y, line, n * size)
                        else:
                            v.store(builder.fadd(total, v.load(line, n * size)) if adds else total, line, n * size)


def emit_prefetches(v: Vectors, tile: Tile, c: Any, ldc: Any) -> None:
    """Have the tile's lines of C fetched while its sums are made."""
    byte, to_write, near, data = ir.IntType(8), *(ir.Constant(INT, n) for n in (1, 3, 1))
    for i in range(tile.rows):
        line = v.builder.add(c, v.builder.mul(ldc, word(i)))
        for at in range(0, tile.across * tile.lanes * v.itemsize, 64):
            v.call("llvm.prefetch.p0", ir.VoidType(), v.pointer(line, at, byte), to_write, near, data)


def micro_kernel(itemsize: int, tile: Tile, apart: bool, listed: bool = False) -> Any:
    """A jitted (c, ldc, a, row, step, b, deep, k, count, cols, alpha, add): c (rows, cols) = or += alpha * A (rows, k) @ B (k, cols) for
    `count` tiles one below the other: rows = count * tile.rows.

    Addresses and strides are in bytes: ldc from row to row of c, `row` and `step` along the rows and the k of A, `deep` from row to row
    of B, whose rows hold tile.across whole vectors. `apart`: A's rows lie `row` apart, and numbers along k side by side; else the other
    way round. `listed`: B's rows lie anywhere, and `deep` is the address of a list of their distances from b.
    """
    number = types.float32 if itemsize == 4 else types.float64

    def typed(typing, c, ldc, a, row, step, b, deep, k, cols, alpha, add):  # type: ignore[no-untyped-def]
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            c, ldc, a, row, step, b, deep, k, cols, alpha, add = values
            v, one = Vectors(builder, itemsize, tile.lanes), word(itemsize)
            if not apart:
                with builder.if_then(builder.icmp_signed(">=", ldc, word(FAR))):
                    emit_prefetches(v, tile, c, ldc)
            sums = emit_sums(v, tile, a, *((row, one) if apart else (one, step)), b, deep, k, listed)
            factor = v.spread(alpha)
            sums = [[builder.fmul(total, factor) for total in own] for own in sums]
            with builder.if_else(builder.icmp_signed("==", cols, word(tile.lanes * tile.across))) as (whole, part):
                for masked, block in ((False, whole), (True, part)):
                    with block:
                        emit_stores(v, sums, c, ldc, cols, add, masked)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9, number, types.boolean), code

    emit, high = intrinsic(typed), tile.rows

    def micro(c, ldc, a, row, step, b, deep, k, count, cols, alpha, add):
        for i in range(0, count * high, high):
            emit(c + i * ldc, ldc, a + i * row, row, step, b, deep, k, cols, alpha, add)

    return njit(**ALONE)(micro)


def by_width(kernels: list[Any]) -> Any:
    """Kernels for tiles of one, two and more vectors as one function, told how many: (vectors, what the kernels take)."""
    one, two, three, four = (*kernels, None, None)[:4]
    most = len(kernels)

    def tiles(vectors, *others):
        if vectors == 1:
            one(*others)
        elif most < 3 or vectors == 2:
            two(*others)
        elif most < 4 or vectors == 3:
            three(*others)
        else:
            four(*others)

    return njit(**INNER)(tiles)


def dot_kernel(itemsize: int, lanes: int) -> Any:
    """A jitted (c, a, b, ldb, k, rows, alpha, add): c[i] = or += alpha * (row i of b times a), k long, for the first `rows` of four rows.

    Lane by lane along k: for one row of A and a transposed B, which a register tile would have to pack first. Bytes.
    """
    number = types.float32 if itemsize == 4 else types.float64

    def typed(typing: Any, c: Any, a: Any, b: Any, ldb: Any, k: Any, rows: Any, alpha: Any, add: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            c, a, b, ldb, k, rows, alpha, add = values
            v = Vectors(builder, itemsize, lanes)
            sums = emit_dots(v, a, b, ldb, k, builder.sub(rows, word(1)))
            for i, total in enumerate(sums):
                with builder.if_then(builder.icmp_signed("<", word(i), rows)):
                    place = v.pointer(c, i * itemsize, v.number)
                    old = builder.select(add, builder.load(place, align=itemsize), ir.Constant(v.number, -0.0))
                    builder.store(builder.fadd(old, builder.fmul(total, alpha)), place, align=itemsize)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6, number, types.boolean), code

    emit = intrinsic(typed)

    def dot(c, a, b, ldb, k, rows, alpha, add):
        emit(c, a, b, ldb, k, rows, alpha, add)

    return njit(**ALONE)(dot)


def emit_dots(v: Vectors, a: Any, b: Any, ldb: Any, k: Any, last: Any) -> list[Any]:
    """Four sums: of a times each of four rows of b."""
    builder, size = v.builder, v.lanes * v.itemsize
    lines = [builder.add(b, builder.mul(ldb, at_most(builder, i, last))) for i in range(4)]
    places = [cgutils.alloca_once_value(builder, v.zero) for _ in lines]

    def more(at: Any, load: Any) -> None:
        x = load(builder.add(a, at))
        for line, place in zip(lines, places, strict=True):
            builder.store(v.multiply_add(load(builder.add(line, at)), x, builder.load(place)), place)

    whole = builder.sdiv(k, word(v.lanes))
    with cgutils.for_range(builder, whole, intp=WORD) as loop:
        more(builder.mul(loop.index, word(size)), v.load)
    mask = v.first(builder.sub(k, builder.mul(whole, word(v.lanes))))
    more(builder.mul(whole, word(size)), lambda address: v.load_where(mask, address, 0))
    return [v.add_up(builder.load(place)) for place in places]
