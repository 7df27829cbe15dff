"""What the register tiles read, copied together: panels of B, and lines of an A that lies transposed.

A tile reads 4 vectors of b for each p; in a row-major b the next four lie a row further, mostly in another page. So a panel of b, four
vectors wide, is copied such that the loop reads it from front to end, and serves all rows of A. A transposed A has the same trouble:
six of its rows are 24 bytes of a line of memory, and the next of those lies a page further. Lines of 16 numbers are copied, four of them
at once: 256 bytes in a row come faster from memory than four times 64.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ..runtime.inner import INNER
from ..runtime.processor import Tile
from .micro import ALONE, INT, Vectors, at_most, word

LINE = 16  # numbers of a transposed A side by side: strips of 6, 6 and 4 rows


class Packing:
    """The functions for numbers of one size. Addresses are whole numbers, strides bytes."""

    def __init__(self, itemsize: int, tile: Tile):
        self.size, self.tile = itemsize, tile
        self.turn, self.move = turning(itemsize, tile.lanes), moving(itemsize, tile.lanes)
        self.copy = copying(itemsize)
        self.panel = self.panel_packer()
        self.block, self.lines = self.block_packer(), self.line_packer()

    def panel_packer(self) -> Any:
        """panel(to, b, ldb, turned, k, cols): a panel: op(b)'s `cols` columns, k rows of whole vectors."""
        size, lanes, turn, move, copy = self.size, self.tile.lanes, self.turn, self.move, self.copy

        def panel(to, b, ldb, turned, k, cols):
            wide = (cols + lanes - 1) // lanes * lanes * size
            if turned:
                for j in range(0, cols, lanes):
                    for p in range(0, k - lanes + 1, lanes):
                        turn(to + p * wide + j * size, wide, b + j * ldb + p * size, ldb, min(lanes, cols - j))
                for p in range(k // lanes * lanes, k):
                    for j in range(cols):
                        copy(to + p * wide + j * size, b + j * ldb + p * size)
            else:
                for p in range(k):
                    for j in range(0, cols, lanes):
                        move(to + p * wide + j * size, b + p * ldb + j * size, cols - j, lanes)

        return njit(**ALONE)(panel)

    def block_packer(self) -> Any:
        """block(to, b, down, along, k, wide, direct): the panels of a block of B, one after the other; those that are read where they
        lie keep their place empty."""
        size, lanes, pack = self.size, self.tile.lanes, self.panel
        panel, line = lanes * self.tile.across, lanes * size

        def block(to, b, down, along, k, wide, direct):
            for q in range(0, wide, panel):
                cols = min(panel, wide - q)
                if not direct or cols % lanes != 0:
                    pack(to, b + q * along, max(down, along), along != size, k, cols)
                to += k * ((cols + lanes - 1) // lanes * line)

        return njit(**INNER)(block)

    def line_packer(self) -> Any:
        """lines(to, a, step, k, count): `count` columns of a, LINE numbers wide, one line of k rows after the other."""
        size, lanes, move = self.size, self.tile.lanes, self.move

        def lines(to, a, step, k, count):
            for p in range(k):
                for i in range(0, count, lanes):
                    move(to + (i // LINE * LINE * k + p * LINE + i % LINE) * size, a + p * step + i * size, count - i, lanes)

        return njit(**ALONE)(lines)


# ---- What moves numbers -----
def turning(itemsize: int, lanes: int) -> Any:
    """A jitted (to, to_step, source, step, rows): a block of lanes x lanes numbers, transposed in registers; of the source's rows only
    `rows` are there. Bytes. Each round swaps the halves off the diagonal of blocks twice as large as the round's before."""

    def typed(typing: Any, to: Any, to_step: Any, source: Any, step: Any, rows: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            to, to_step, source, step, rows = values
            v = Vectors(builder, itemsize, lanes)
            last = builder.sub(rows, word(1))
            lines = [v.load(builder.add(source, builder.mul(step, at_most(builder, i, last)))) for i in range(lanes)]
            size = 1
            while size < lanes:
                lows = [i - size + lanes if i & size else i for i in range(lanes)]
                highs = [i + lanes if i & size else i + size for i in range(lanes)]
                masks = [ir.Constant(ir.VectorType(INT, lanes), places) for places in (lows, highs)]
                for i in range(lanes):
                    if not i & size:
                        lines[i], lines[i + size] = (builder.shuffle_vector(lines[i], lines[i + size], mask) for mask in masks)
                size *= 2
            for i, line in enumerate(lines):
                v.store(line, builder.add(to, builder.mul(to_step, word(i))))
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), code

    emit = intrinsic(typed)

    def turn(to, to_step, source, step, rows):
        emit(to, to_step, source, step, rows)

    return njit(**ALONE)(turn)


def moving(itemsize: int, lanes: int) -> Any:
    """A jitted move(to, source, count, wide): `wide` numbers, of which the first `count` come from the source and the others are zero;
    at most a vector."""

    def typed(typing: Any, to: Any, source: Any, count: Any, wide: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            to, source, count, wide = values
            v = Vectors(builder, itemsize, lanes)
            with builder.if_else(builder.icmp_signed("<", count, word(lanes))) as (part, whole):
                with part:
                    v.store_where(v.first(wide), v.load_where(v.first(count), source, 0), to, 0)
                with whole:
                    v.store(v.load(source), to)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 4), code

    return intrinsic(typed)


def copying(itemsize: int) -> Any:
    """A jitted copy(to, source) of one number."""

    def typed(typing: Any, to: Any, source: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            v = Vectors(builder, itemsize, 1)
            to, source = (v.pointer(address, kind=v.number) for address in values)
            builder.store(builder.load(source, align=itemsize), to, align=itemsize)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return intrinsic(typed)
