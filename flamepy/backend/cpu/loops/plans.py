"""How work is cut into tasks: from sizes alone, never from the number of threads, so that results keep their bits.

Only how many have scratch of their own follows the threads that there are: the tasks are the same, whoever does them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np

from ..runtime.threads import most_threads

SPAN_TASK = 16384  # elements of a span handled by one task
CHUNK = 8192  # elements folded by one task when a row is split
COLUMNS = 512  # neighbouring columns folded by one task
KEYS = 256  # keys attention looks at at once, at most
ROOM = 128  # scratch is cut into multiples of it: where a vector ends just before another, LLVM's overlap check chooses scalar code
STATE = 5 * ROOM  # what attention keeps of the rows it works on
SMALL = 1_000_000  # multiplications of one product in attention, at most: scores stay in the nearest caches
BLOCK = 32 * 128  # results of one product of bfloat16 matrices: 32 rows of 128 columns stay in the nearest cache
CONV_COLUMNS = 1 << 16  # numbers in one worker's columns, about: 256 KB of float32, within a core's own cache
CONV_TILE = 128  # positions of a bfloat16 convolution's tile: what a block of its products is wide
CONV_ROWS = 256  # rows of its columns at once, about: as results of products they stay in a core's own cache
CONV_PARTIALS = 1 << 22  # numbers in a convolution weight gradient's partial sums, at most (but two chunks always may)

# What a linear layer with an activation writes beside its result. NOTHING: there is no activation; ALONE: nothing; SUM: what the
# activation gets; RESULT: what it gives.
NOTHING, ALONE, SUM, RESULT = range(4)


def fold_plan(outer: int, n: int, inner: int) -> tuple[int, int]:
    """(chunk length, number of chunks) along n for a fold of (outer, n, inner): enough tasks for many cores."""
    if inner == 1:
        chunk = n if outer >= 64 or n <= 2 * CHUNK else CHUNK
    else:
        tasks = outer * -(-inner // COLUMNS)
        chunk = n if tasks >= 16 or n * inner <= 2 * CHUNK else max(64, -(-n // 16))
    return chunk, max(1, -(-n // max(1, chunk)))


def flops(results: int, inner: int) -> int:
    """Work of a product in elements of a map: a product does some 32 multiplications in the time a map takes for one element."""
    return results * (inner + 31) // 32


@lru_cache(4096)
def span_table(segments: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The task table of spans.py for (start, size) segments: first element, end, segment number of each task."""
    rows = [
        (at, min(at + SPAN_TASK, start + size), number)
        for number, (start, size) in enumerate(segments)
        for at in range(start, start + size, SPAN_TASK)
    ]
    return np.array(rows, np.int64).reshape(-1)


@lru_cache(1024)
def norm_tables(buffers: tuple[tuple[tuple[int, int], ...], ...]) -> tuple[list[np.ndarray], np.ndarray]:
    """The task table of each buffer, and for every task of all of them its segment, counted through all buffers."""
    tables = [span_table(segments) for segments in buffers]
    firsts = np.cumsum([0, *[len(segments) for segments in buffers]])
    owner = [table[2::3] + first for table, first in zip(tables, firsts, strict=False)]
    return tables, np.concatenate([*owner, np.empty(0, np.int64)])


@lru_cache(1024)
def row_table(segments: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """Tasks of whole rows for (start, size, length of a row) segments: first element, end, length of a row."""
    rows = [
        (at, min(at + step, start + size), cols)
        for start, size, cols in segments
        for step in [cols * max(1, SPAN_TASK // cols)]
        for at in range(start, start + size, step)
    ]
    return np.array(rows, np.int64).reshape(-1)


# ---- attention -----
def attention_room(height: int, width: int, d: int, dv: int) -> int:
    """Size of one worker's scratch: five vectors of rows, q and g transposed (forward: q, and sums of y), scores
    (and their gradient)."""
    return STATE + ((d + dv) * height + ROOM - 1) // ROOM * ROOM + width * height


class AttentionPlan(NamedTuple):
    """height: query rows at once; width: keys at once; groups of items, each for one worker; chunks of a pair's blocks of rows;
    sizes of scratch and of the chunks' parts of dk and dv."""

    height: int
    width: int
    groups: int
    chunks: int
    scratch: int
    partial: int


@lru_cache(4096)
def attention_plan(sizes: tuple[int, ...], is_causal: bool, what: str, half: bool = False) -> AttentionPlan:
    """The decomposition of one pass ("y" or "dx") for sizes batch, heads, rows, keys, width of q, width of v.

    Under a causal mask half of a block on the diagonal is wasted: fewer rows at once where there are few rows. Backward, fewer than 8
    (batch, head) pairs are cut into chunks: enough tasks for the cores, and parts of dk and dv that stay linear in keys. half: blocks
    are those of bfloat16 products, 32 numbers wide.
    """
    batch, heads, rows, keys, d, dv = sizes
    pairs = batch * heads
    height = max(1, min(rows, 64 if rows >= 1024 or not is_causal else 32 if rows >= 256 else 16))
    width = max(1, min(keys, KEYS, max(16, SMALL // (height * max(1, d, dv)) // 16 * 16)))
    if half:
        height, width = max(1, min(rows, 64 if rows >= 256 else 32)), max(1, min(keys, KEYS))
    blocks = -(-rows // height)
    if what == "y":
        groups = min(pairs * blocks, most_threads())
        return AttentionPlan(height, width, groups, 1, groups * attention_room(height, width, d, dv), 0)
    chunks = max(1, min(blocks, -(-8 // max(1, pairs))))
    groups = min(pairs * chunks, most_threads())
    partial = chunks * pairs * keys * (d + dv) if chunks > 1 else 0
    return AttentionPlan(height, width, groups, chunks, groups * attention_room(height, 2 * width, d, dv), partial)


def partial_layout(heads: int, keys: int, d: int, dv: int) -> tuple[int, ...]:
    """Layouts of dk and dv in the first chunk's parts, (B, heads, keys, d + dv)."""
    strides = heads * keys * (d + dv), keys * (d + dv), d + dv
    return (0, *strides, d, *strides)


# ---- convolution -----
def room_size(sizes: Sequence[int], positions: int) -> int:
    """Numbers in a room (windows.py) for so many positions, wherever they begin: lines of one channel with their padding."""
    count = (positions + max(1, sizes[15]) - 2) // max(1, sizes[15]) + 1
    lines = min(count * sizes[6], (count - 1) * sizes[8] + (sizes[6] - 1) * sizes[12] + 1)
    return lines * (sizes[3] + 2 * sizes[11])


class BfloatConvPlan(NamedTuple):
    """tile: output positions at once; images whose positions lie one after the other; input channels at once; chunks of images; workers."""

    tile: int
    images: int
    channels: int
    chunks: int
    workers: int


@lru_cache(4096)
def bfloat_conv_plan(sizes: Sequence[int], what: str) -> BfloatConvPlan:
    """The decomposition of one pass of bfloat16 numbers. Blocks of channels begin where strips of 32 rows do."""
    images, groups, taps, area = sizes[0], sizes[5], sizes[6] * sizes[7], sizes[14] * sizes[15]
    each, step = sizes[1] // groups, 32 // gcd(32, taps)
    channels = max(1, min(each, max(1, CONV_ROWS // (step * taps)) * step))
    if what == "dw":
        chunks = min(images, 16, max(2, CONV_PARTIALS // max(1, sizes[4] * each * taps)))
        positions = -(-images // max(1, chunks)) * area
        tile = min(max(CONV_TILE, 2 * CONV_COLUMNS // (channels * taps) // 32 * 32), -(-positions // 32) * 32)
        return BfloatConvPlan(tile, 1, channels, chunks, min(chunks * groups * -(-each // channels), most_threads()))
    together = max(1, min(-(-4 * CONV_TILE // area), images // 8))  # few tiles with room left over, and enough tasks for the cores
    pieces = -(-together * area // CONV_TILE) if what == "y" else -(-each // channels)
    return BfloatConvPlan(CONV_TILE, together, channels, 0, min(-(-images // together) * groups * pieces, most_threads()))
