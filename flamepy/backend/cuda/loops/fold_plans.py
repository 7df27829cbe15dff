"""How folds are cut into blocks: from sizes alone, so that results keep their bits."""

from __future__ import annotations

from functools import lru_cache

from ..rows.row_words import room_of

LINE = 16384  # numbers of a long line that a block folds: 64 a thread
DEEP = 128  # numbers that a thread folds in a column, at most
BLOCKS = 1024  # enough of them for every GPU
THREADS = 256
NEAR = 4096  # bytes: what a result is folded from lies in shared memory up to this size
MANY = 256  # results of a block there that warps find
ALONE = 32  # numbers that a single thread folds there


@lru_cache(4096)
def near_plan(outer: int, n: int, inner: int, itemsize: int) -> tuple[int, int]:
    """(how many of outer a block takes, lanes of a result) where they fit into shared memory, else (0, 0)."""
    slab = n * inner * itemsize
    if slab > NEAR or not slab or (outer < 32 and n > ALONE):
        return 0, 0
    lanes = 1 if n <= ALONE else 32
    most = (1024 * room_of(lanes) - 64) // slab
    if lanes > 1:
        most = min(most, MANY // inner)
    return max(1, min(most, outer // BLOCKS)), lanes


@lru_cache(4096)
def fold_plan(outer: int, n: int, inner: int) -> tuple[int, int, int]:
    """(length of a chunk, chunks, columns of a block). Columns 0: lines, by vectors."""
    if inner == 1:
        chunk = min(n, LINE)
        return chunk, -(-n // chunk), 0
    columns = 1
    while columns < min(inner, 32):
        columns *= 2
    while columns < THREADS and columns < inner and n * columns <= 16 * THREADS and inner % (2 * columns) == 0:
        columns *= 2
    rows = THREADS // columns
    found = outer * -(-inner // columns)
    chunk = max(8 * rows, min(DEEP * rows, -(-n * found // BLOCKS)))
    chunk = min(n, -(-chunk // (4 * rows)) * 4 * rows)
    return chunk, -(-n // chunk), columns
