"""Convolution of images as products of matrices that are never made: a block gathers what its tile needs into shared memory.

Forward, rows are channels of the result, columns its pixels in all images, and the sum goes over channels and taps of the window; for dx
columns are the image's pixels, each of which looks for the windows that saw it; for dw columns are the weight's channels and taps and the
sum goes over pixels, cut into chunks that are added in order. Nothing is added by atomics, so results are the same in every run. 16-bit
numbers go through the tensor cores (tensor_cores.py).

`sizes` is (n, c, h, w, o, groups, kh, kw, sh, sw, ph, pw, dh, dw, rows, columns).
"""

from __future__ import annotations

from typing import Any

from ....core.words import real
from ....dtypes import float64
from ...formula.row_words import wide
from ..loops.words import barrier, block, index, thread
from ..products.tensor import divided
from ..products.tiles import filled, gather, outer, put_columns, put_tile, sized, spread
from ..runtime.compat import cuda, types
from ..runtime.family import THREADS as BLOCK
from ..runtime.family import blocks, kernel, launcher
from . import tensor_cores as conv_mma

SIDE = 16  # a block's threads: 16 by 16
I = J = 4  # a thread's rows and columns  # noqa: E741
R = C = 64  # rows and columns of a tile
OWN = 16  # I * J
DEEP = 16  # steps of the sum that are staged at once
R_LINE, C_LINE = R + 1, C + 1
LEFT, RIGHT = DEEP * R_LINE, DEEP * C_LINE
CHUNK = 512  # pixels a block adds up for dw, at least
BLOCKS = 264  # of a launch for dw, about: two for each of an H100's 132 multiprocessors


def tile_sizes(dtype: Any, rows: int) -> dict[str, int]:
    """The sizes of a kernel whose tiles have so many rows to do."""
    i = 2 if rows <= 32 else 4 if rows <= 64 or dtype == float64 else 8
    j = 4 if dtype == float64 else 8
    r, c = SIDE * i, SIDE * j
    return {
        "R": r, "C": c, "I": i, "J": j, "OWN": i * j, "R_LINE": r + 1, "C_LINE": c + 1, "LEFT": DEEP * (r + 1), "RIGHT": DEEP * (c + 1),
    }  # fmt: skip


def add_step(acc, left, right):
    """acc + what is staged: left (DEEP, R) turned times right (DEEP, C)."""
    ty, tx = thread() // SIDE, thread() % SIDE
    for k in range(DEEP):
        acc = outer(acc, gather(left, k * R_LINE + ty * I, 1, I), gather(right, k * C_LINE + tx, SIDE, J))
    return acc


def tile_place(tiles, tiles_across):
    """(group, tile of rows, tile of columns) of this block: those that share columns run together."""
    rest, down = divided(block(), tiles)
    group, across = divided(rest, tiles_across)
    return group, down, across


# ---- forward ---------------------------------------------------------------------------------------------------------------------
@kernel
def conv2d_tiles(y, x, w, b, sizes, each, outs, taps, total, tiles, tiles_across):
    """A block: R channels of the result at C pixels of all images, of which there are `total`."""
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    places, bias = cuda.shared.array(C, types.int64), cuda.shared.array(R, real)
    group, tile, across = tile_place(tiles, tiles_across)
    t, depth, area, first = thread(), each * taps, sizes[14] * sizes[15], group * outs + tile * R
    column = across * C + t % C
    image, pixel = divided(min(column, total - 1), area)
    line, place = divided(pixel, sizes[15])
    top, beside = line * sizes[8] - sizes[10], place * sizes[9] - sizes[11]
    if t < C:
        places[t] = image * sizes[4] * area + pixel if column < total else -1
    if t < R:
        bias[t] = real(0)
        if b is not None:  # noqa: SIM102  (what asks for None is left out)
            if tile * R + t < outs:
                bias[t] = real(b[first + t])
    barrier()
    acc = spread(gather(bias, t // SIDE * I, 1, I), J)
    low = 0
    while low < depth:
        barrier()
        stage_weight(left, w, first, outs - tile * R, depth, low)
        k = t // C
        while k < DEEP:
            value = real(0)
            if low + k < depth and column < total:
                channel, tap = divided(low + k, taps)
                i, j = divided(tap, sizes[7])
                row, at = top + i * sizes[12], beside + j * sizes[13]
                if row >= 0 and row < sizes[2] and at >= 0 and at < sizes[3]:
                    value = real(x[((image * sizes[1] + group * each + channel) * sizes[2] + row) * sizes[3] + at])
            right[k * C_LINE + t % C] = value
            k += BLOCK // C
        barrier()
        acc = add_step(acc, left, right)
        low += DEEP
    down = t // SIDE * I
    put_columns(y, (first + down) * area, area, outs - tile * R - down, places, t % SIDE, SIDE, acc, I)


def stage_weight(to, w, first, count, depth, low):
    """to (DEEP, R) = columns `low` on of `count` rows of w from row `first` on, turned."""
    i = thread()
    while i < R * DEEP:
        row, k = i // DEEP, i % DEEP
        value = real(0)
        if row < count and low + k < depth:
            value = real(w[(first + row) * depth + low + k])
        to[k * R_LINE + row] = value
        i += BLOCK


# ---- the gradient of x -------------------------------------------------------------------------------------------------------------
@kernel
def conv2d_dx_tiles(dx, g, w, sizes, each, outs, taps, total, tiles, tiles_across):
    """A block: R channels of x at C pixels of all images, of which there are `total`."""
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    places = cuda.shared.array(C, types.int64)
    group, tile, across = tile_place(tiles, tiles_across)
    t, depth, area, pixels = thread(), outs * taps, sizes[14] * sizes[15], sizes[2] * sizes[3]
    column = across * C + t % C
    image, pixel = divided(min(column, total - 1), pixels)
    line, place = divided(pixel, sizes[3])
    if t < C:
        places[t] = image * sizes[1] * pixels + pixel if column < total else -1
    barrier()
    acc = filled(OWN, real(0))
    low = 0
    while low < depth:
        barrier()
        stage_turned_weight(left, w, group * outs, tile * R, each, taps, depth, low)
        k = t // C
        while k < DEEP:
            value = real(0)
            if low + k < depth and column < total:
                out, tap = divided(low + k, taps)
                i, j = divided(tap, sizes[7])
                row, at = line + sizes[10] - i * sizes[12], place + sizes[11] - j * sizes[13]
                if row >= 0 and at >= 0:
                    row, over = divided(row, sizes[8])
                    at, past = divided(at, sizes[9])
                    if over + past == 0 and row < sizes[14] and at < sizes[15]:
                        value = real(g[(image * sizes[4] + group * outs + out) * area + row * sizes[15] + at])
            right[k * C_LINE + t % C] = value
            k += BLOCK // C
        barrier()
        acc = add_step(acc, left, right)
        low += DEEP
    down = t // SIDE * I
    put_columns(dx, (group * each + tile * R + down) * pixels, pixels, each - tile * R - down, places, t % SIDE, SIDE, acc, I)


def stage_turned_weight(to, w, out, first, each, taps, depth, low):
    """to (DEEP, R) = steps `low` on, (channel of the result, tap), for channels `first` on of x."""
    i = thread()
    while i < R * DEEP:
        row, k = i // DEEP, i % DEEP
        value = real(0)
        if first + row < each and low + k < depth:
            step, tap = divided(low + k, taps)
            value = real(w[((out + step) * each + first + row) * taps + tap])
        to[k * R_LINE + row] = value
        i += BLOCK


# ---- the gradients of w and b ------------------------------------------------------------------------------------------------------
@kernel
def conv2d_dw_tiles(dw, g, x, sizes, each, outs, taps, total, tiles, tiles_across, chunk):
    """A block: R rows and C columns of a group's weight, over one chunk of the `total` pixels of all results. dw: one for each chunk."""
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    channels, downs = cuda.shared.array(C, types.int32), cuda.shared.array(C, types.int32)
    acrosses = cuda.shared.array(C, types.int32)
    part, place = divided(block(), tiles * tiles_across * sizes[5])
    rest, tile = divided(place, tiles)
    group, across = divided(rest, tiles_across)
    t, depth, area = thread(), each * taps, sizes[14] * sizes[15]
    if t < C:
        channel, tap = divided(min(across * C + t, depth - 1), taps)
        i, j = divided(tap, sizes[7])
        channels[t], downs[t], acrosses[t] = group * each + channel, i * sizes[12] - sizes[10], j * sizes[13] - sizes[11]
    acc = filled(OWN, real(0))
    low, end = part * chunk, min(total, (part + 1) * chunk)
    while low < end:
        barrier()
        image, pixel = divided(min(low + t % DEEP, end - 1), area)
        line, place = divided(pixel, sizes[15])
        inside = low + t % DEEP < end
        stage_images(left, g, (image * sizes[4] + group * outs + tile * R) * area + pixel, area, outs - tile * R, inside)
        c = t // DEEP
        while c < C:
            value = real(0)
            row, at = line * sizes[8] + downs[c], place * sizes[9] + acrosses[c]
            if inside and row >= 0 and row < sizes[2] and at >= 0 and at < sizes[3]:
                value = real(x[((image * sizes[1] + channels[c]) * sizes[2] + row) * sizes[3] + at])
            right[t % DEEP * C_LINE + c] = value
            c += BLOCK // DEEP
        barrier()
        acc = add_step(acc, left, right)
        low += DEEP
    down = t // SIDE * I
    at = (part * sizes[4] + group * outs + tile * R + down) * depth
    put_tile(dw, at, depth, outs - tile * R - down, across * C + t % SIDE, SIDE, depth, acc, I)


def stage_images(to, g, at, step, count, inside):
    """to (DEEP, R) = this thread's pixel of `count` planes of g, `step` apart."""
    row = thread() // DEEP
    while row < R:
        value = real(0)
        if inside and row < count:
            value = real(g[at + row * step])
        to[thread() % DEEP * R_LINE + row] = value
        row += BLOCK // DEEP


@kernel
def add_parts(out, parts, count):
    """out = the sum of its parts, one after the other."""
    i = index()
    if i < out.size:
        total = wide(0)
        part = i
        for _ in range(count):
            total += wide(parts[part])
            part += out.size
        out[i] = real(total)


@kernel
def plane_sums(sums, g, channels, area, total, chunk):
    """sums (parts, channels), in float64: of each channel's pixels in all images, `chunk` of the `total` ones for a part; a block each."""
    held = cuda.shared.array(BLOCK, types.float64)
    part, channel = divided(block(), channels)
    found, i, end = wide(0), part * chunk + thread(), min(total, (part + 1) * chunk)
    while i < end:
        image, pixel = divided(i, area)
        found += wide(g[(image * channels + channel) * area + pixel])
        i += BLOCK
    held[thread()] = found
    far = BLOCK // 2
    while far > 0:
        barrier()
        if thread() < far:
            held[thread()] += held[thread() + far]
        far //= 2
    if thread() == 0:
        sums[block()] = held[0]


# ---- launchers ----
def tiles_of(go, sizes, rows, columns):
    """(sizes of the kernel, its counts, tiles down and across, blocks) for so many rows and columns in each group."""
    own = tile_sizes(go.dtype, rows)
    tiles, across = blocks(rows, own["R"]), blocks(columns, own["C"])
    counts = sizes[1] // sizes[5], sizes[4] // sizes[5], sizes[6] * sizes[7]
    return own, counts, (tiles, across), tiles * across * sizes[5]


def in_tiles(go, kernel, outs, ins, sizes, rows, total):
    own, counts, tiles, grid = tiles_of(go, sizes, rows // sizes[5], total)
    go(sized(kernel, **own), outs, ins, (sizes, *counts, total, *tiles), grid=grid)


@launcher(name="conv2d")
def conv_launcher(go, outs, ins, sizes):
    if conv_mma.suits(*ins[:2], sizes):
        conv_mma.launch(go, outs, ins, sizes)
    else:
        in_tiles(go, conv2d_tiles, outs, ins, sizes, sizes[4], sizes[0] * sizes[14] * sizes[15])


@launcher(name="conv2d_dx")
def conv_dx_launcher(go, outs, ins, sizes):
    if conv_mma.suits(*ins, sizes):
        conv_mma.launch_dx(go, outs, ins, sizes)
    else:
        in_tiles(go, conv2d_dx_tiles, outs, ins, sizes, sizes[1], sizes[0] * sizes[2] * sizes[3])


@launcher(name="conv2d_dw")
def conv_dw_launcher(go, outs, ins, sizes):
    dw, db = outs
    g, x = ins
    area = sizes[14] * sizes[15]
    total = sizes[0] * area
    if dw is not None:
        own, counts, tiles, grid = tiles_of(go, sizes, sizes[4] // sizes[5], sizes[1] // sizes[5] * sizes[6] * sizes[7])
        if half := conv_mma.suits(g, x, sizes):
            own, *tiles = conv_mma.dw_tiles(sizes)
            grid = tiles[0] * tiles[1] * sizes[5]
        chunk = chunk_of(total, grid)
        parts = blocks(total, chunk)
        to = dw if parts == 1 else go.empty(parts * dw.size)
        if half:
            conv_mma.launch_dw(go, to, (g, x), sizes, chunk)
        else:
            go(sized(conv2d_dw_tiles, **own), (to,), (g, x), (sizes, *counts, total, *tiles, chunk), grid=parts * grid)
        if parts != 1:
            go(add_parts, (dw,), (to,), (parts,), grid=blocks(dw.size))
    if db is not None:
        chunk = chunk_of(total, sizes[4])
        parts = blocks(total, chunk)
        sums = go.empty(parts * sizes[4], float64)
        go(plane_sums, (sums,), (g,), (sizes[4], area, total, chunk), grid=parts * sizes[4])
        go(add_parts, (db,), (sums,), (parts,), grid=blocks(db.size))


def chunk_of(total, grid):
    """Pixels a block adds up, so that there are BLOCKS of them where there are enough."""
    return max(CHUNK, DEEP * blocks(total * max(1, grid), BLOCKS * DEEP))
