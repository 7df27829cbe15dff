"""Convolution of bfloat16: that of conv.py, with products of bfloat16 numbers whose sums are float32.

The weight is packed once for all workers. Windows are laid out as columns in bfloat16, a tile of output positions at a time, and packed
from there while they are in the nearest caches; positions of several small images share a tile. Results stay in float32 scratch until
the bias is added, and are rounded once. Gradients are float32, as everywhere; what a product reads of them is rounded, tile by tile.
The weight's gradient is made transposed: then columns, the larger operand, are read as they lie.

The launchers of conv.py come here where such products pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

from ....dtypes import bfloat16
from ..conv.listed_conv import CONV_PARTIALS
from ..conv.windows import add_planes, add_windows, put_columns, put_cotangents, put_results
from ..loops.moves import as_stored
from ..loops.runs import fill_run
from ..products.gemm import turn_matrix
from ..runtime.family import loop, table
from ..runtime.parallel import tasks
from ..runtime.settings import most_threads
from ..runtime.workspace import SIDE, WIDTH, block_space
from .bfloat import multiply, pack_panels, packed_size, tiles_off, tiles_on
from .matmul import pack
from .tiles import AMX, DOT, route

LEAST = {AMX: 1 / 8, DOT: 1 / 2}  # how much of a product's blocks must be of use for them to be faster than float32 numbers
CONV_COLUMNS = 1 << 16  # numbers in one worker's columns, about: 256 KB of float32, within a core's own cache
CONV_TILE = 128  # positions of a bfloat16 convolution's tile: what a block of its products is wide
CONV_ROWS = 256  # rows of its columns at once, about: as results of products they stay in a core's own cache
ROWS = 64  # of the weight's gradient turned by one task


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


@loop
def conv2d_bfloat(part, y, col, panels, x, w, b, sizes, tile, images, workers, has_bias):
    """See listed_conv.conv2d(). w: each group's, in strips. Items: block of images, group, tile of their positions."""
    groups, area = sizes[5], sizes[14] * sizes[15]
    each, outs = sizes[1] // groups, sizes[4] // groups
    depth = each * sizes[6] * sizes[7]
    tiles = (images * area + tile - 1) // tile
    items, z = (sizes[0] + images - 1) // images * groups * tiles, block_space(y)
    tiles_on()
    for worker in tasks(part, workers):
        own, place = worker * (col.size // workers), worker * packed_size(depth, tile)
        room = col[own + depth * tile : own + col.size // workers]
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            group, low, first = item // tiles % groups, item // tiles // groups * images, item % tiles * tile
            width = min(tile, min(images, sizes[0] - low) * area - first)
            if width > 0:
                put_columns(as_stored(col), own, tile, as_stored(room), as_stored(x), sizes, low, group * each, each, first, width)
                pack_panels(False, depth, width, col, own, tile, panels, place)
                for i in range(0, outs, SIDE):
                    high, w_at = min(SIDE, outs - i), group * packed_size(depth, outs) + packed_size(depth, i)
                    multiply(high, width, depth, 1.0, w, w_at, 0, panels, place, False, z, 0, WIDTH)
                    put_results(y, z, 0, WIDTH, b, sizes, low, group * outs + i, high, first, width, has_bias)
    tiles_off()


@loop
def conv2d_dx_bfloat(part, dx, col, rounded, panels, g, w, sizes, tile, images, channels, workers):
    """The gradient of x. w: each group's, transposed, in strips. Items: block of images, group, block of input channels."""
    groups, taps = sizes[5], sizes[6] * sizes[7]
    each, outs = sizes[1] // groups, sizes[4] // groups
    area, blocks = sizes[14] * sizes[15], (each + channels - 1) // channels
    items = (sizes[0] + images - 1) // images * groups * blocks
    tiles_on()
    for worker in tasks(part, workers):
        own, own_g, place = worker * (col.size // workers), worker * outs * tile, worker * packed_size(outs, tile)
        room = col[own + channels * taps * tile : own + col.size // workers]
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            group, low, channel = item // blocks % groups, item // blocks // groups * images, item % blocks * channels
            last, count, fresh = min(sizes[0], low + images), min(channels, each - channel), 0
            w_at = group * packed_size(outs, each * taps) + packed_size(outs, channel * taps)
            for first in range(0, (last - low) * area, tile):
                width = min(tile, (last - low) * area - first)
                put_cotangents(rounded, own_g, tile, g, sizes, low, group * outs, outs, first, width)
                pack_panels(False, outs, width, rounded, own_g, tile, panels, place)
                multiply(count * taps, width, outs, 1.0, w, w_at, 0, panels, place, False, col, own, tile)
                fresh = add_windows(dx, col, own, tile, room, sizes, low, group * each + channel, count, first, width, fresh)
    tiles_off()


@loop
def conv2d_dw_bfloat(part, partial, sums, col, rounded, panels, g, x, sizes, tile, channels, chunks, workers):
    """See listed_conv.conv2d_dw(). A group's part of `partial` is (taps of input channels, output channels)."""
    groups, taps, area = sizes[5], sizes[6] * sizes[7], sizes[14] * sizes[15]
    each, outs = sizes[1] // groups, sizes[4] // groups
    blocks = (each + channels - 1) // channels
    items = chunks * groups * blocks
    tiles_on()
    for worker in tasks(part, workers):
        own, own_g, place = worker * (col.size // workers), worker * outs * tile, worker * packed_size(tile, outs)
        room = col[own + channels * taps * tile : own + col.size // workers]
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            piece, channel = item // blocks, item % blocks * channels
            chunk, group, count = piece // groups, piece % groups, min(channels, each - channel)
            low, last = chunk * sizes[0] // chunks, (chunk + 1) * sizes[0] // chunks
            out = (piece * each + channel) * taps * outs
            for first in range(0, (last - low) * area, tile):
                width = min(tile, (last - low) * area - first)
                deep = (width + SIDE - 1) // SIDE * SIDE
                put_columns(
                    as_stored(col), own, tile, as_stored(room), as_stored(x), sizes, low, group * each + channel, count, first, width
                )
                for r in range(count * taps if deep > width else 0):  # whole steps are read as they lie
                    fill_run(col[own + r * tile + width : own + r * tile + deep], 0.0)
                put_cotangents(rounded, own_g, tile, g, sizes, low, group * outs, outs, first, width)
                pack_panels(True, width, outs, rounded, own_g, tile, panels, place)
                multiply(count * taps, outs, deep, 1.0, col, own, tile, panels, place, first > 0, partial, out, outs)
            if channel == 0:
                total = sums[piece * outs : (piece + 1) * outs]
                fill_run(total, 0.0)
                for image in range(low, last):
                    add_planes(total, g, image * groups + group, area)
    tiles_off()


@loop
def turn_groups(part, dw, turned, groups, depth, outs):
    """dw (groups, outs, depth) from turned (groups, depth, outs)."""
    blocks = (depth + ROWS - 1) // ROWS
    for task in tasks(part, groups * blocks):
        group, row = task // blocks, task % blocks * ROWS
        start = group * depth * outs
        turn_matrix(min(ROWS, depth - row), outs, turned, start + row * outs, outs, dw, start + row, depth)


# ---- how they are launched ----
def pays(x: Any, sizes: Any) -> bool:
    """Whether products of bfloat16 numbers are faster than of the same numbers widened to float32."""
    outs, depth = sizes[4] // sizes[5], sizes[1] // sizes[5] * sizes[6] * sizes[7]
    return x.dtype == bfloat16 and route() in LEAST and outs * depth >= max(1, LEAST[route()] * packed_size(depth, outs))


def strips(go: Any, w: Any, sizes: Any, turned: bool) -> Any:
    """The weight of each group (outs, depth), or turned (depth, outs), as a left operand."""
    outs, depth = sizes[4] // sizes[5], sizes[1] // sizes[5] * sizes[6] * sizes[7]
    starts = tuple(range(0, sizes[4] * depth, outs * depth))
    m, k = (depth, outs) if turned else (outs, depth)
    return pack(go, w, w, starts, starts, m, 0, k, turned, False)[0]


def conv(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    x, w, b = ins
    plan, depth = bfloat_conv_plan(sizes, "y"), sizes[1] // sizes[5] * sizes[6] * sizes[7]
    col = go.empty(plan.workers * (depth * plan.tile + room_size(sizes, plan.tile)), bfloat16)
    panels = go.empty(plan.workers * packed_size(depth, plan.tile), bfloat16)
    given = x, strips(go, w, sizes, False), w if b is None else b
    go(conv2d_bfloat, (*outs, col, panels), given, (table(sizes), plan.tile, plan.images, plan.workers, b is not None), work=work)


def conv_dx(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    g, w = ins
    plan, out = bfloat_conv_plan(sizes, "dx"), sizes[4] // sizes[5]
    col = go.empty(plan.workers * (plan.channels * sizes[6] * sizes[7] * plan.tile + room_size(sizes, plan.tile)))
    rounded = go.empty(plan.workers * out * plan.tile, bfloat16)
    panels = go.empty(plan.workers * packed_size(out, plan.tile), bfloat16)
    consts = (table(sizes), plan.tile, plan.images, plan.channels, plan.workers)
    go(conv2d_dx_bfloat, (*outs, col, rounded, panels), (g, strips(go, w, sizes, True)), consts, work=work)


def conv_dw(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    """The chunks' shares alone."""
    plan, out = bfloat_conv_plan(sizes, "dw"), sizes[4] // sizes[5]
    col = go.empty(plan.workers * (plan.channels * sizes[6] * sizes[7] * plan.tile + room_size(sizes, plan.tile)), bfloat16)
    rounded = go.empty(plan.workers * out * plan.tile, bfloat16)
    panels = go.empty(plan.workers * packed_size(plan.tile, out), bfloat16)
    consts = (table(sizes), plan.tile, plan.channels, plan.chunks, plan.workers)
    go(conv2d_dw_bfloat, (*outs, col, rounded, panels), ins, consts, work=work)
