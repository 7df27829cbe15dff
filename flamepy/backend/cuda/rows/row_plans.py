"""How rows are shared out to blocks: from sizes alone, so that results keep their bits.

A shape says how many threads (lanes) share a row and how many a block has. The first shape in which the rows of a block fit into its room
is taken; where rows are too long for any, they stay in global memory, and a block has one of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .row_words import room_of

COLUMNS = 32  # neighbouring columns of totals that a block adds up
LOSSES = 16384  # losses that one block adds up
BLOCKS = 2048  # enough of them for every GPU: more rows make blocks longer
FEW = 512  # enough to keep one busy: with more, blocks that read what all rows have in common get ROWS rows first
ROWS = 16  # of a block that adds up totals, at least
APART = 16  # bytes: what alignment takes of the room for each operand, at most
WHOLE = 32  # operands begin alike: which numbers a lane takes together depends on their places


class Shape(NamedTuple):
    """Lanes of a row, threads of a block; the longest rows that it is for; whether a lane takes neighbours at once."""

    lanes: int
    threads: int
    longest: int
    wide: bool


ANY = 1 << 40
SHAPES = (
    Shape(8, 256, 16, False),
    Shape(32, 256, 512, False),
    Shape(32, 256, ANY, True),
    Shape(32, 128, 1024, True),
    Shape(32, 64, 2048, True),
    Shape(128, 128, ANY, True),
    Shape(256, 256, ANY, True),
)
FAR, FAR_IN_WARPS = Shape(512, 512, ANY, True), Shape(32, 256, ANY, False)  # where no rows are near


class RowPlan(NamedTuple):
    """The shape, rows of a block, rows at once; where each operand begins in the room (-1: it stays where it is; odd: see moved()), and
    the bytes of a row or of what rows share; for sums over rows, where the groups' totals begin in the room, or -1."""

    shape: Shape
    chunk: int
    per: int
    places: tuple[int, ...]
    lengths: tuple[int, ...]
    start: int = -1


def laid_out(sizes: tuple[int, ...], common: tuple[int, ...], per: int) -> tuple[tuple[int, ...], int]:
    """(where `per` rows of each operand begin, or all it has in common; the end), for operands with so many bytes a row; 0: no place."""
    at, places = 0, []
    for row, all_rows in zip(sizes, common, strict=True):
        size = row * per or all_rows
        places.append(-1 if not size else at if row else at + 1)
        at += -(-(size + APART) // WHOLE) * WHOLE if size else 0
    return tuple(places), at


def both(sizes: tuple[int, ...], common: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([row or all_rows for row, all_rows in zip(sizes, common, strict=True)])


@lru_cache(4096)
def row_plan(rows: int, cols: int, sizes: tuple[int, ...], common: tuple[int, ...], outs: int, ours: bool, absent: int = 0) -> RowPlan:
    """`sizes`: the bytes that each operand has for a row, else 0; `common`: of those that all rows read. Not `ours`: at most a warp, whose
    lanes take one element each, since a user's body may read any. `absent`: bytes of an out that nobody wants, which has a place all the
    same, so that the others have the same bits with and without it."""
    nothing = (0,) * len(sizes)
    ins = (0,) * outs + sizes[outs:]
    for row, all_rows in ((sizes, common), (ins, common), (sizes, nothing), (ins, nothing)):
        for shape in SHAPES:
            groups, room = shape.threads // shape.lanes, 1024 * room_of(shape.lanes)
            whole = (*row, absent if row is sizes else 0), (*all_rows, 0)
            size = laid_out(*whole, groups)[1]
            if not any(row) or cols > shape.longest or size > room or (shape.lanes > 32 and not ours):
                continue
            times = 1
            while laid_out(*whole, 2 * times * groups)[1] <= room and 2 * times * groups * BLOCKS <= rows:
                times *= 2
            per, shape = groups * times, shape._replace(wide=shape.wide and ours)
            chunk = per * max(-(-rows // (per * BLOCKS)), min(-(-ROWS // per), -(-rows // (per * FEW)))) if any(all_rows) else per
            return RowPlan(shape, chunk, per, laid_out(row, all_rows, per)[0], both(row, all_rows))
    if ours and cols > 512:
        return RowPlan(FAR, 1, 1, (), ())
    groups = FAR_IN_WARPS.threads // FAR_IN_WARPS.lanes
    return RowPlan(FAR_IN_WARPS, groups, groups, (-1,) * len(sizes), nothing)


@lru_cache(4096)
def totals_plan(rows: int, cols: int, sizes: tuple[int, ...], common: tuple[int, ...], total: int) -> RowPlan:
    """Behind the rows lie the totals, each group's own, of `total` bytes. Where they are too long they are kept in global memory, by one
    group."""
    nothing, ins = (0,) * len(sizes), (0, *sizes[1:])
    for row, all_rows in ((sizes, common), (ins, common), (sizes, nothing), (ins, nothing), (nothing, common), (nothing, nothing)):
        for shape in SHAPES:
            groups = shape.threads // shape.lanes
            places, start = laid_out(row, all_rows, groups)
            if cols <= shape.longest and start + groups * total <= 1024 * room_of(shape.lanes):
                chunk = groups * max(-(-ROWS // groups), -(-rows // (groups * BLOCKS // 2)))
                return RowPlan(shape, chunk, groups, places, both(row, all_rows), start)
    return RowPlan(FAR, max(ROWS, -(-rows // (BLOCKS // 2))), 1, (-1,) * len(sizes), nothing)
