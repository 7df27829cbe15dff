"""Convolution of 16-bit numbers on the tensor cores: products of matrices that are never made, as in conv.py.

A block has a tile of ROWS channels by 64 pixels (for dw: of the weight's channels and taps), four warps two by two. What pixels see is
gathered, two pixels a thread, into registers while the step before is multiplied, then put into shared memory beside what is copied in the
background. Marks, where a step of the sum lies in an image, are found once for the block, a step ahead. dw's sum goes over pixels.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from ....dtypes import HALF, bfloat16
from ..attention.tensor_cores import THREADS_OF, put_rows
from ..loops.maps import fill_launcher
from ..loops.vectors import aligned
from ..loops.words import barrier, block, index, thread
from ..products.fragments import copy_one, left_factor, times, times_turned
from ..products.tensor import PITCH as SPREAD
from ..products.tensor import commit, divided, shared, spread, wait
from ..products.tile_words import copy_pieces, piece_from, piece_place, piece_to, short
from ..products.tiles import filled, sized
from ..runtime.compat import cuda
from ..runtime.family import blocks, kernel
from .gather_words import MARK, gather_pairs, number_at, put_mark, put_words

DEEP, PITCH = 32, 80  # steps of the sum that are staged at once; bytes from row to row of the left factor
COLS, STEP = 64, 144  # pixels of a tile; bytes from step to step of what they see
APART = 4 * STEP  # of a thread's pairs
TALL, LINES, ROWS, SUMS = 4, 8, 128, 64  # a warp's rows / 16, of which a lane has a part of LINES; rows of a tile; numbers of a lane
G_TURNS = 16  # pairs of g that a thread gathers for dw
SEEN = 10240  # where in a stage that begins, behind the left factor
STAGE = 14848
MARKS, BYTES = 29696, 30720  # where those of two stages begin, behind the stages
FAR = 1 << 24  # rows away from any image
LARGE = 1 << 31


def sizes_of(rows: int) -> dict[str, int]:
    """The sizes of a kernel for so many rows."""
    tall = 2 if rows <= 64 else 4
    seen = 32 * tall * PITCH
    stage = seen + DEEP * STEP
    room = max(2 * stage, 4 * 64 * SPREAD)
    return {
        "TALL": tall, "LINES": 2 * tall, "ROWS": 32 * tall, "SUMS": 16 * tall, "SEEN": seen, "STAGE": stage, "MARKS": room,
        "BYTES": room + 2 * DEEP * MARK,
    }  # fmt: skip


def dw_sizes_of(rows: int) -> dict[str, int]:
    """The same for dw, whose columns lie as its rows do."""
    tall = 2 if rows <= 64 else 4
    seen = 32 * tall * PITCH
    stage = seen + 64 * PITCH
    return {
        "TALL": tall, "LINES": 2 * tall, "ROWS": 32 * tall, "SUMS": 16 * tall, "SEEN": seen, "STAGE": stage, "MARKS": 2 * stage,
        "BYTES": 2 * stage + (32 * tall + 64) * MARK, "APART": 8 * PITCH, "G_TURNS": 4 * tall,
    }  # fmt: skip


# ---- what is staged ----------------------------------------------------------------------------------------------------------------
def stage_rows(to, w, at, depth, low, left, fast):
    """Begin to copy DEEP steps of the sum of the tile's rows of w, `depth` numbers each; `to`, `at`: of this thread's first piece."""
    if fast:
        copy_pieces(to, w, at + low, depth, left, min(DEEP, depth - low), ROWS, DEEP, PITCH, THREADS_OF)
    else:
        row, column = piece_place(DEEP)
        while row < ROWS:
            for c in range(8):
                copy_one(to + 2 * c, w, at + low + c, row < left and low + column + c < depth)
            row, to, at = short(row + 32), short(to + 32 * PITCH), at + 32 * depth


def mark_steps(to, low, depth, taps, sizes, first):
    """DEEP marks, from step `low` of the sum on: channel and tap. first: the group's first channel."""
    i = thread()
    if i < DEEP:
        channel, tap = divided(min(low + i, depth - 1), taps)
        row, column = divided(tap, sizes[7])
        down, across = row * sizes[12], column * sizes[13]
        offset = ((first + channel) * sizes[2] + down) * sizes[3] + across
        put_mark(to + i * MARK, offset, down if low + i < depth else FAR, across)


def pixel_of(column, total, sizes):
    """(where a result's pixel begins in x, at which row, at which column); a row that is nowhere, if there is no such pixel."""
    image, pixel = divided(min(column, total - 1), sizes[14] * sizes[15])
    line, place = divided(pixel, sizes[15])
    top, beside = line * sizes[8] - sizes[10], place * sizes[9] - sizes[11]
    begin = (image * sizes[1] * sizes[2] + top) * sizes[3] + beside
    return begin, short(top if column < total else -2 * FAR), short(beside)


# ---- forward -------------------------------------------------------------------------------------------------------------------------
@kernel(threads=THREADS_OF, together=2)
def conv2d_mma(y, x, w, b, sizes, each, outs, total, tiles, tiles_across):
    """A block: ROWS channels of the result at COLS pixels of all images, of which there are `total`."""
    rest, tile = divided(block(), tiles)
    group, across = divided(rest, tiles_across)
    room, own, area = short(shared(BYTES)), short(tile * ROWS), sizes[14] * sizes[15]
    acc = window_sums(room, x, w, (group * outs + own) * (each * sizes[6] * sizes[7]), outs - own, group * each, each, across, total, sizes)
    column = own_column(across)
    image, pixel = divided(min(column, total - 1), area)
    put_pixels(y, b, acc, room, group * outs + own, outs - own, image * sizes[4] * area + pixel, area, column < total)


def window_sums(room, x, w, at, left, first, each, across, total, sizes):
    """A warp's part of the products of what a tile's pixels see, of `each` channels from `first` on, and `left` rows of w from w[at] on."""
    t, taps = thread(), sizes[6] * sizes[7]
    depth, column = each * taps, across * COLS + t % 32
    begin, top, beside = pixel_of(column, total, sizes)
    begin2, top2, beside2 = pixel_of(column + 32, total, sizes)
    begins, tops, besides = (begin, begin2), (top, top2), (beside, beside2)
    put, fast = SEEN + t // 32 * STEP + t % 32 * 4, (at | depth) & 7 == 0 and aligned(w, 8)
    at, mine = at + piece_from(short(depth), DEEP), piece_to(PITCH, DEEP)
    stage_rows(room + mine, w, at, depth, 0, left, fast)
    commit()
    mark_steps(room + MARKS, 0, depth, taps, sizes, first)
    barrier()
    marks = short(room + MARKS + t // 32 * MARK)
    words = gather_pairs(x, w, begins, tops, besides, sizes[2], sizes[3], marks, 8, 4)
    put_words(room + put, words, APART)
    mark_steps(room + MARKS + DEEP * MARK, DEEP, depth, taps, sizes, first)
    acc, here, low, turn = filled(SUMS, 0.0), room, short(0), short(1)
    while low < depth:
        wait(0)
        barrier()
        there, low = short(2 * room + STAGE - here), short(low + DEEP)
        if low < depth:
            stage_rows(there + mine, w, at, depth, low, left, fast)
            commit()
            words = gather_pairs(x, w, begins, tops, besides, sizes[2], sizes[3], marks + turn * (DEEP * MARK), 8, 4)
            mark_steps(room + MARKS + (1 - turn) * (DEEP * MARK), low + DEEP, depth, taps, sizes, first)
        a = left_factor(here + (t >> 5 & 1) * (16 * TALL * PITCH), PITCH, TALL, 2)
        acc = times(acc, a, w, here + SEEN + (t >> 6) * 64, STEP, TALL)
        if low < depth:
            put_words(there + put, words, APART)
        here, turn = there, short(1 - turn)
    barrier()
    return acc


def own_column(across):
    """Which pixel this lane writes."""
    return across * COLS + (thread() >> 6) * 16 + (thread() & 15) + (thread() & 16) * 2


def put_pixels(y, b, acc, room, first, left, at, plane, there):
    """A warp's tile of results, 16 rows at a time by way of shared memory, so that neighbours are written together: a pixel a lane, if it
    is `there`, y[at] in the first of the planes."""
    lane, warp = thread() & 31, thread() >> 5
    row, mine = (warp & 1) * (16 * TALL), room + warp * (64 * SPREAD)
    at += (first + row) * plane
    for part in range(TALL):
        spread(acc, part, mine + (lane >> 2) * (4 * SPREAD) + (lane & 3) * 8, 0)
        cuda.syncwarp()
        for i in range(16):
            value = number_at(mine + i * (4 * SPREAD) + 8 * (lane & 15) + 4 * (lane >> 4))
            if there and row + i < left:
                if b is not None:
                    value += b[first + row + i]
                y[at + i * plane] = value
        row, at = row + 16, at + 16 * plane
        cuda.syncwarp()


# ---- the gradient of w -----------------------------------------------------------------------------------------------------------------
def mark_rows(to, count, left, step):
    """Marks of rows `step` apart, of which there are `left`."""
    i = thread()
    if i < count:
        put_mark(to + i * MARK, i * step, 0 if i < left else FAR, 0)


def gather_step(g, x, g_at, low, end, sizes, marks, columns):
    """What this thread has of DEEP pixels from `low` on: of the tile's rows of g, and of what its columns see of x."""
    first = short(low + (thread() & 15))
    begin, top, beside = pixel_of(first, end, sizes)
    begin2, top2, beside2 = pixel_of(first + 16, end, sizes)
    area = sizes[14] * sizes[15]
    image, pixel = divided(min(first, end - 1), area)
    image2, pixel2 = divided(min(first + 16, end - 1), area)
    g_begins = g_at + image * sizes[4] * area + pixel, g_at + image2 * sizes[4] * area + pixel2
    g_tops = short(0 if first < end else -2 * FAR), short(0 if first + 16 < end else -2 * FAR)
    rows = gather_pairs(g, x, g_begins, g_tops, (short(0), short(0)), 1, 1, marks, G_TURNS, 8)
    return rows, gather_pairs(x, x, (begin, begin2), (top, top2), (beside, beside2), sizes[2], sizes[3], columns, 8, 8)


@kernel(threads=THREADS_OF, together=2)
def conv2d_dw_mma(dw, g, x, sizes, each, outs, taps, total, tiles, tiles_across, chunk, even):
    """A block: ROWS rows and 64 columns of a group's weight, over a chunk of the `total` pixels of all results. dw: one for each chunk."""
    room, t = short(shared(BYTES)), thread()
    part, place = divided(block(), tiles * tiles_across * sizes[5])
    rest, tile = divided(place, tiles)
    group, across = divided(rest, tiles_across)
    depth, own, area = each * taps, short(tile * ROWS), sizes[14] * sizes[15]
    mark_rows(room + MARKS, ROWS, outs - own, area)
    mark_steps(room + MARKS + ROWS * MARK, across * 64, depth, taps, sizes, group * each)
    mark_steps(room + MARKS + (ROWS + DEEP) * MARK, across * 64 + DEEP, depth, taps, sizes, group * each)
    barrier()
    row = (t >> 5) + (t >> 2 & 4)  # rows of a warp's halves are four apart: other banks
    marks, columns = short(room + MARKS + row * MARK), short(room + MARKS + (ROWS + row) * MARK)
    g_at, put = (group * outs + own) * area, row * PITCH + (t & 15) * 4
    low, end = short(part * chunk), short(min(total, (part + 1) * chunk))
    rows, seen = gather_step(g, x, g_at, low, end, sizes, marks, columns)
    put_words(room + put, rows, APART)
    put_words(room + SEEN + put, seen, APART)
    acc, here = filled(SUMS, 0.0), room
    while low < end:
        barrier()
        there, low = short(2 * room + STAGE - here), short(low + DEEP)
        if low < end:
            rows, seen = gather_step(g, x, g_at, low, end, sizes, marks, columns)
        a = left_factor(here + (t >> 5 & 1) * (16 * TALL * PITCH), PITCH, TALL, 2)
        acc = times_turned(acc, a, x, here + SEEN + (t >> 6) * (32 * PITCH), PITCH, TALL)
        if low < end:
            put_words(there + put, rows, APART)
            put_words(there + SEEN + put, seen, APART)
        here = there
    down, column = (t >> 5 & 1) * (16 * TALL), across * 64 + (t >> 6) * 32
    at = (part * sizes[4] + group * outs + own + down) * depth + column
    put_rows(dw, at, depth, outs - own - down, min(32, depth - column), acc, even)


# ---- launchers -------------------------------------------------------------------------------------------------------------------------
def suits(x: Any, w: Any, sizes: Any) -> bool:
    """Whether the tensor cores take it: w of 16 bits, x of the same, or float32 beside bfloat16 (float16 has no room for small gradients);
    some channels; images that 32 bits count."""
    small = max((sizes[1] + 1) * sizes[2] * sizes[3], (sizes[4] + 1) * sizes[14] * sizes[15]) < LARGE
    same = x.dtype == w.dtype or (w.dtype == bfloat16 and x.dtype not in HALF)
    return small and all(sizes[:8]) and w.dtype in HALF and same


def launch(go: Any, outs: Any, ins: Any, sizes: Any) -> None:
    """What conv_launcher() does for operands of 16 bits."""
    rows, total = sizes[4] // sizes[5], sizes[0] * sizes[14] * sizes[15]
    own, across = sizes_of(rows), blocks(total, COLS)
    tiles = blocks(rows, own["ROWS"])
    consts = sizes, sizes[1] // sizes[5], rows, total, tiles, across
    go(sized(conv2d_mma, **own), outs, ins, consts, grid=tiles * across * sizes[5])


def dw_tiles(sizes: Any) -> tuple[dict[str, int], int, int]:
    """(sizes of the kernel, tiles down and across) of dw of a group."""
    own = dw_sizes_of(sizes[4] // sizes[5])
    return own, blocks(sizes[4] // sizes[5], own["ROWS"]), blocks(sizes[1] // sizes[5] * sizes[6] * sizes[7], COLS)


def launch_dw(go: Any, dw: Any, ins: Any, sizes: Any, chunk: int) -> None:
    """dw, or its parts, over chunks of so many pixels of the results."""
    each, rows, taps = sizes[1] // sizes[5], sizes[4] // sizes[5], sizes[6] * sizes[7]
    total, (own, tiles, across) = sizes[0] * sizes[14] * sizes[15], dw_tiles(sizes)
    consts = sizes, each, rows, taps, total, tiles, across, chunk, each * taps % 8 == 0
    go(sized(conv2d_dw_mma, **own), (dw,), ins, consts, grid=blocks(total, chunk) * tiles * across * sizes[5])


# ---- the gradient of the input: forward convolutions of g with the window turned, one for each phase ----
# Where windows step by s, the same taps of a window, n, n + s, ..., see pixels p, p + s, p + 2 s, ... of the image, a phase: there dx is a
# convolution that steps by 1, with these taps alone. Where taps lie d apart, those of a phase are s / gcd(s, d) taps apart; phases that no
# tap reaches are zeros. Blocks of the same pixels but for the phase run together, so that what they write between each other's numbers
# meets in the second cache.
# ---- phases ------------------------------------------------------------------------------------------------------------------------
def taps_of(n, k, apart):
    """(how many of k taps are n, n + apart, ..., how many belong to a smaller n)."""
    whole, over = divided(k, apart)
    return (whole + 1 if n < over else whole), n * whole + min(n, over)


def phase_of(n, size, steps):
    """(the first of `size` pixels that taps n, n + apart, ... reach, how many they reach, how far before its own place the first looks)."""
    stride, _, dilation, lift, up = steps
    back, first = divided(n * dilation + lift, stride)
    return first, divided(size - first + stride - 1, stride)[0], back - up


@kernel
def turn_weight(turned, w, each, outs, kh, kw, down, across):
    """w (groups, outs, each, kh, kw) by phases, each (groups, each, outs, its taps). down, across: how far a phase's taps are apart."""
    i = index()
    if i < w.size:
        pair, tap = divided(i, kh * kw)
        rest, channel = divided(pair, each)
        group, out = divided(rest, outs)
        i_tap, j_tap = divided(tap, kw)
        (row, n), (column, m) = divided(i_tap, down), divided(j_tap, across)
        (tall, above), (wide, before) = taps_of(n, kh, down), taps_of(m, kw, across)
        first = (above * kw + tall * before) * divided(w.size, kh * kw)[0]
        turned[first + ((group * each + channel) * outs + out) * (tall * wide) + row * wide + column] = w[i]


# ---- dx ----------------------------------------------------------------------------------------------------------------------------
@kernel(threads=THREADS_OF, together=2)
def conv2d_dx_mma(dx, g, w, sizes, each, outs, down, across, phases, phases_across, tiles, tiles_across):
    """A block: ROWS channels of dx at COLS pixels of one phase. sizes: of the convolution of g, dx its result."""
    rest, tile = divided(block(), tiles)
    rest, phase = divided(rest, phases)
    group, part = divided(rest, tiles_across)
    n, m = divided(phase, phases_across)
    (tall, above), (wide, before) = taps_of(n, sizes[6], down[1]), taps_of(m, sizes[7], across[1])
    (top, rows, up), (beside, columns, left) = phase_of(n, sizes[14], down), phase_of(m, sizes[15], across)
    total, plane = sizes[0] * rows * columns, sizes[14] * sizes[15]
    if part * COLS >= total:
        return
    room, own = short(shared(BYTES)), short(tile * ROWS)
    at = (above * sizes[7] + tall * before) * (sizes[4] * each) + (group * outs + own) * (each * tall * wide)
    seen = (*sizes[:6], tall, wide, 1, 1, up, left, sizes[12], sizes[13], rows, columns)
    acc = window_sums(room, g, w, at, outs - own, group * each, each, part, total, seen)
    column = own_column(part)
    image, pixel = divided(min(column, total - 1), rows * columns)
    line, place = divided(pixel, columns)
    at = image * sizes[4] * plane + (top + line * down[0]) * sizes[15] + beside + place * across[0]
    put_pixels(dx, None, acc, room, group * outs + own, outs - own, at, plane, column < total)


# ---- launchers ----------------------------------------------------------------------------------------------------------------------
def launch_dx(go: Any, outs: Any, ins: Any, sizes: Any) -> None:
    """What conv_dx_launcher() does for operands of 16 bits."""
    (n, c, h, w, o, groups, kh, kw, sh, sw, ph, pw, dh, dw, rows, columns), (g, weight) = sizes, ins
    down, across = steps_of(sh, dh, ph), steps_of(sw, dw, pw)
    turned = go.empty(weight.size, weight.dtype)
    go(turn_weight, (turned,), (weight,), (c // groups, o // groups, kh, kw, down[1], across[1]), grid=blocks(weight.size))
    phases_down, phases_across = min(kh, down[1]), min(kw, across[1])
    phases = phases_down * phases_across
    if phases < sh * sw:
        fill_launcher(go, outs, (), go.dtype.type(0))
    seen = n, o, rows, columns, c, groups, kh, kw, 1, 1, 0, 0, -(dh // gcd(sh, dh)), -(dw // gcd(sw, dw)), h, w
    own, parts = sizes_of(c // groups), blocks(n * blocks(h, sh) * blocks(w, sw), COLS)
    tiles = blocks(c // groups, own["ROWS"])
    consts = seen, o // groups, c // groups, down, across, phases, phases_across, tiles, parts
    go(sized(conv2d_dx_mma, **own), outs, (g, turned), consts, grid=tiles * phases * parts * groups)


def steps_of(stride: int, dilation: int, padding: int) -> tuple[int, ...]:
    """What phase_of() takes: (stride, how far taps of a phase are apart, dilation, what makes the padding whole steps, how many)."""
    lift = -padding % stride
    return stride, stride // gcd(stride, dilation), dilation, lift, (lift + padding) // stride
