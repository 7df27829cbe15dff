"""How rows are shared out to blocks: from sizes alone, so that results keep their bits.

A shape says how many threads (lanes) share a row and how many a block has. The first shape in which the rows of a block fit into its room
is taken; where rows are too long for any, they stay in global memory and have the largest block. Read next: rows.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from .row_words import ROOMS

COLUMNS = 32  # neighbouring columns of totals that a block adds up
LOSSES = 16384  # losses that one block adds up
BLOCKS = 1024  # enough of them for every GPU: more rows make blocks longer
ROWS = 16  # of a block that adds up totals, at least
APART = 32  # bytes: what alignment takes of the room for each operand, at most


class Shape(NamedTuple):
    """Threads of a block; the longest rows that it is for."""

    threads: int
    longest: int


SHAPES = {
    8: Shape(256, 16),
    32: Shape(256, 1024),
    128: Shape(128, 2048),
    256: Shape(256, 8192),
    512: Shape(512, 1 << 40),
    1024: Shape(1024, 1 << 40),
}
FAR = {True: ((32, 512), (256, 4096), (1024, 1 << 40)), False: ((8, 16), (32, 1 << 40))}  # lanes and longest rows where none are near


class RowPlan(NamedTuple):
    """Lanes of a row, rows of a block, where each operand's rows begin in the room (-1: they stay where they are)."""

    lanes: int
    per: int
    places: tuple[int, ...]


class TotalsPlan(NamedTuple):
    """The same for sums over rows; `per` rows at once, `chunk` in all, and where the groups' totals begin in the room, or -1."""

    lanes: int
    per: int
    places: tuple[int, ...]
    chunk: int
    start: int


def room_for(lanes: int) -> int:
    return 1024 * ROOMS.get(lanes, 0)


def laid_out(sizes: tuple[int, ...], per: int) -> tuple[tuple[int, ...], int]:
    """(where `per` rows of each operand begin, the end of all), for operands with so many bytes a row; 0: it has no place."""
    at, places = 0, []
    for size in sizes:
        places.append(at if size else -1)
        at += -(-size * per // 16) * 16 + APART // 2 if size else 0
    return tuple(places), at


@lru_cache(4096)
def row_plan(rows: int, cols: int, widths: tuple[int, ...], outs: int, ours: bool) -> RowPlan:
    """`widths`: of the operands that hold whole rows, else 0. Not `ours`: a warp for a row at most."""
    sizes = tuple([cols * width for width in widths])
    for chosen in (sizes, (0,) * outs + sizes[outs:]):
        for lanes, shape in SHAPES.items():
            groups = shape.threads // lanes
            if cols > shape.longest or laid_out(chosen, groups)[1] > room_for(lanes) or (lanes > 32 and not ours):
                continue
            times = 1 if groups == 1 else max(1, min(room_for(lanes) // max(1, laid_out(chosen, groups)[1]), rows // (groups * BLOCKS)))
            return RowPlan(lanes, groups * times, laid_out(chosen, groups * times)[0])
    lanes = next(lanes for lanes, longest in FAR[ours] if cols <= longest)
    return RowPlan(lanes, SHAPES[lanes].threads // lanes, (-1,) * len(widths))


@lru_cache(4096)
def totals_plan(rows: int, cols: int, widths: tuple[int, ...], total: int) -> TotalsPlan:
    """The totals come first, each group's own; `total` bytes each. Totals too long for any room are kept in global memory, by one group."""
    chunk = max(ROWS, -(-rows // BLOCKS))
    sizes = tuple([cols * width for width in widths])
    nothing = (0,) * len(sizes)
    for chosen in (sizes, (0, *sizes[1:]), nothing):
        for lanes, shape in SHAPES.items():
            groups, room = shape.threads // lanes, room_for(lanes)
            start = laid_out(chosen, groups)[1]
            if cols <= shape.longest and start + groups * total <= room:
                return TotalsPlan(lanes, groups, laid_out(chosen, groups)[0], max(chunk, 2 * groups), start)
    return TotalsPlan(1024, 1, (-1,) * len(sizes), chunk, -1)
