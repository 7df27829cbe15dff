"""Convolution of images in (batch, channel, row, column) order.

A convolution is a matrix product with the image's windows laid out as columns (im2col), made for one tile of output positions at a time so
that they stay in cache; small images share a tile. A fixed number of workers, each with its own part of `col` (columns, then a room of
windows.py), shares out the tiles; the gradient of the weight is summed over fixed chunks of images and then over the chunks. All of it
follows from sizes alone: the same bits for any number of threads. `conv_plan` gives the counts, `sizes` (a table) the geometry. 16-bit
images are widened as columns are made; results of 16 bits wait in float32 scratch to be rounded.

Two kinds need no columns and have files of their own: windows that move one position at a time (line_conv.py), depthwise ones.

FLAME counterpart: `flame_core::ops::conv2d`. Read next: windows.py, line_conv.py.
"""

from __future__ import annotations

from ...dtypes import HALF, float64
from . import bfloat_conv, depthwise, line_conv
from .family import launcher, loop, table
from .loops import map1, same
from .parallel import tasks
from .plans import conv_plan
from .products import SINGLE, N, T, gemm
from .runs import add_run, add_value, fill_run
from .windows import add_planes, add_windows, put_columns, put_cotangents, put_results

PIECE = 1024  # numbers of the weight's gradient added up by one task


@loop
def conv2d(part, y, z, col, x, w, b, sizes, plan, has_bias, narrow):
    """y = w * x + b. Without has_bias, b isn't read. Items: block of images, group, tile of their positions.

    z, which products are written into: y, or with `narrow` a tile for each worker.
    """
    tile, images, channels, workers = plan[0], plan[1], plan[2], plan[3]
    groups, area, taps = sizes[5], sizes[14] * sizes[15], sizes[6] * sizes[7]
    each, outs = sizes[1] // groups, sizes[4] // groups
    depth, tiles = each * taps, (images * area + tile - 1) // tile
    items = (sizes[0] + images - 1) // images * groups * tiles
    for worker in tasks(part, workers):
        own = worker * (col.size // workers)
        room = col[own + channels * taps * tile : own + col.size // workers]
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            group, low, first = item // tiles % groups, item // tiles // groups * images, item % tiles * tile
            width = min(tile, min(images, sizes[0] - low) * area - first)
            if width <= 0:  # the last block may have fewer images
                continue
            w_at, y_at = group * outs * depth, (low * groups + group) * outs * area + first
            z_at, step = (worker * outs * tile, tile) if narrow else (y_at, area)
            if images == 1 and is_pointwise(sizes, x):
                x_at = (low * groups + group) * each * area + first
                gemm(N, N, outs, width, depth, 1.0, w, w_at, depth, x, x_at, area, False, z, z_at, step)
            else:
                for channel in range(0, max(1, each), channels):
                    count = min(channels, each - channel)
                    put_columns(col, own, width, room, x, sizes, low, group * each + channel, count, first, width)
                    rows, at = count * taps, w_at + channel * taps
                    gemm(N, N, outs, width, rows, 1.0, w, at, depth, col, own, width, channel > 0, z, z_at, step)
            if narrow:
                put_results(y, z, z_at, step, b, sizes, low, group * outs, outs, first, width, has_bias)
            else:
                for r in range(outs if has_bias else 0):
                    add_value(z[z_at + r * step : z_at + r * step + width], b[group * outs + r])


@loop
def conv2d_dx(part, dx, col, g, w, sizes, plan):
    """Gradient of x. Items: block of images, group, block of input channels. A worker's part of `col`: columns, a room, and the cotangents
    of several images side by side."""
    tile, images, channels, workers = plan[0], plan[1], plan[2], plan[3]
    groups, area, taps = sizes[5], sizes[14] * sizes[15], sizes[6] * sizes[7]
    each, outs = sizes[1] // groups, sizes[4] // groups
    depth, blocks = each * taps, (each + channels - 1) // channels
    items = (sizes[0] + images - 1) // images * groups * blocks
    for worker in tasks(part, workers):
        own, end = worker * (col.size // workers), (worker + 1) * (col.size // workers)
        room, side = col[own + channels * taps * tile : end], end - outs * tile
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            group, low, channel = item // blocks % groups, item // blocks // groups * images, item % blocks * channels
            rows, w_at = min(channels, each - channel) * taps, (group * outs * each + channel) * taps
            total, fresh = min(images, sizes[0] - low) * area, 0
            for first in range(0, total, tile):
                width, g_at = min(tile, total - first), (low * groups + group) * outs * area + first
                if images == 1 and is_pointwise(sizes, g):
                    at = ((low * groups + group) * each + channel) * area + first
                    gemm(T, N, rows, width, outs, 1.0, w, w_at, depth, g, g_at, area, False, dx, at, area)
                    continue
                if images == 1:
                    gemm(T, N, rows, width, outs, 1.0, w, w_at, depth, g, g_at, area, False, col, own, width)
                else:
                    put_cotangents(col, side, width, g, sizes, low, group * outs, outs, first, width)
                    gemm(T, N, rows, width, outs, 1.0, w, w_at, depth, col, side, width, False, col, own, width)
                fresh = add_windows(dx, col, own, width, room, sizes, low, group * each + channel, rows // taps, first, width, fresh)


@loop
def conv2d_dw(part, partial, sums, col, g, x, sizes, plan):
    """Each chunk of images' share of the gradients of w and b. Items: chunk of images, group, block of input channels. `col` as above."""
    groups, chunks, channels, workers = sizes[5], plan[4], plan[2], plan[3]
    blocks = (sizes[1] // groups + channels - 1) // channels
    items = chunks * groups * blocks
    own = col.size // max(1, workers)
    for worker in tasks(part, workers):
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            dw_chunk(partial, sums, col[worker * own : (worker + 1) * own], g, x, sizes, plan, item // blocks, item % blocks)


@loop
def conv2d_dw_sum(part, dw, db, partial, sums, chunks, has_bias):
    """dw and, with has_bias, db: the chunks' shares added in order."""
    runs = (dw.size + PIECE - 1) // PIECE
    for block in tasks(part, runs + (db.size + PIECE - 1) // PIECE if has_bias else runs):
        if block < runs:
            add_chunks(dw, partial, chunks, block * PIECE)
        else:
            add_chunks(db, sums, chunks, (block - runs) * PIECE)


def dw_chunk(partial, sums, col, g, x, sizes, plan, piece, block):
    """One (chunk, group) = `piece` and channel block of the weight gradient, into its place in `partial`; of the bias's into `sums`."""
    tile, images, channels, chunks = plan[0], plan[1], plan[2], plan[4]
    groups, area, taps = sizes[5], sizes[14] * sizes[15], sizes[6] * sizes[7]
    each, outs = sizes[1] // groups, sizes[4] // groups
    chunk, group, channel = piece // groups, piece % groups, block * channels
    count, room, side = min(channels, each - channel), col[channels * taps * tile :], col.size - outs * tile
    rows, out = count * taps, (piece * each + channel) * taps * outs if is_turned(sizes) else (piece * outs * each + channel) * taps
    start, end = chunk * sizes[0] // chunks, (chunk + 1) * sizes[0] // chunks
    for low in range(start, end, images):
        total = min(images, end - low) * area
        for first in range(0, total, tile):
            width, g_at, add = min(tile, total - first), (low * groups + group) * outs * area + first, low > start or first > 0
            if images == 1 and is_pointwise(sizes, x):
                at = ((low * groups + group) * each + channel) * area + first
                dw_product(partial, out, x, at, area, g, g_at, area, sizes, rows, width, add)
                continue
            put_columns(col, 0, width, room, x, sizes, low, group * each + channel, count, first, width)
            if images == 1:
                dw_product(partial, out, col, 0, width, g, g_at, area, sizes, rows, width, add)
            else:
                put_cotangents(col, side, width, g, sizes, low, group * outs, outs, first, width)
                dw_product(partial, out, col, 0, width, col, side, width, sizes, rows, width, add)
    if block == 0:
        own = sums[piece * outs : (piece + 1) * outs]
        fill_run(own, 0.0)
        for image in range(start, end):
            add_planes(own, g, image * groups + group, area)


def is_turned(sizes):
    """Whether dw is made transposed: then the smaller operand is packed. Few output channels are read row by row."""
    return sizes[4] // sizes[5] > SINGLE


def dw_product(partial, out, x, at, ld, g, g_at, g_ld, sizes, rows, width, add):
    """partial (rows, outs), or if it isn't turned (outs, depth): = or += the columns (rows, width) times the cotangents."""
    outs = sizes[4] // sizes[5]
    if is_turned(sizes):
        gemm(N, T, rows, outs, width, 1.0, x, at, ld, g, g_at, g_ld, add, partial, out, outs)
    else:
        depth = sizes[1] // sizes[5] * sizes[6] * sizes[7]
        gemm(N, T, outs, rows, width, 1.0, g, g_at, g_ld, x, at, ld, add, partial, out, depth)


def add_chunks(out, partial, chunks, low):
    """out[low : low + PIECE] = the sum of its parts in the chunks, in order."""
    run = out[low : min(out.size, low + PIECE)]
    fill_run(run, 0.0)
    for chunk in range(chunks):
        at = chunk * out.size + low
        add_run(run, partial[at : at + run.size])


def is_pointwise(sizes, x):
    """A 1 x 1 window, one step at a time, no padding: the image is its own columns, if it has the type of products."""
    return sizes[6] * sizes[7] * sizes[8] * sizes[9] == 1 and sizes[10] + sizes[11] == 0 and x.itemsize > 2


# ---- launchers ----
def multiplications(sizes):
    return sizes[0] * sizes[14] * sizes[15] * sizes[4] * max(1, sizes[1] // sizes[5]) * sizes[6] * sizes[7]


@launcher(name="conv2d")
def conv_launcher(go, outs, ins, sizes):
    if bfloat_conv.pays(ins[0], sizes):
        return bfloat_conv.conv(go, outs, ins, sizes, multiplications(sizes) // 2)
    if depthwise.pays(sizes):
        return depthwise.conv(go, outs, (ins[0], widened(go, ins[1]), ins[2]), sizes, multiplications(sizes))
    (y,), (x, w, b) = outs, ins
    if y.dtype != float64 and line_conv.pays(sizes):
        return line_conv.conv(go, outs, (x, widened(go, w), b), sizes, multiplications(sizes))
    plan = conv_plan(sizes, "y")
    narrow = y.dtype in HALF or plan.counts[1] > 1
    z = go.empty(plan.workers * (sizes[4] // sizes[5]) * plan.tile) if narrow else y
    consts = (table(sizes), table(plan.counts), b is not None, narrow)
    go(conv2d, (y, z, go.empty(plan.col)), (x, widened(go, w), w if b is None else b), consts, work=multiplications(sizes))


@launcher(name="conv2d_dx")
def conv_dx_launcher(go, outs, ins, sizes):
    g, w = ins
    if bfloat_conv.pays(w, sizes):
        return bfloat_conv.conv_dx(go, outs, ins, sizes, multiplications(sizes) // 2)
    if depthwise.pays(sizes):
        return depthwise.conv_dx(go, outs, (g, widened(go, w)), sizes, multiplications(sizes))
    if w.dtype != float64 and line_conv.dx_pays(sizes):
        return line_conv.conv_dx(go, outs, ins, sizes, multiplications(sizes))
    plan = conv_plan(sizes, "dx")
    consts = (table(sizes), table(plan.counts))
    go(conv2d_dx, (*outs, go.empty(plan.col)), (g, widened(go, w)), consts, work=multiplications(sizes))


@launcher(name="conv2d_dw")
def conv_dw_launcher(go, outs, ins, sizes):
    dw, db = outs
    plan, halves = conv_plan(sizes, "dw"), bfloat_conv.pays(ins[1], sizes)
    partial, sums = go.empty(plan.partial), go.empty(plan.chunks * sizes[4], float64)
    if halves:
        bfloat_conv.conv_dw(go, (partial, sums), ins, sizes, multiplications(sizes) // 2)
    else:
        consts = (table(sizes), table(plan.counts))
        go(conv2d_dw, (partial, sums, go.empty(plan.col)), ins, consts, work=multiplications(sizes))
    turned = halves or is_turned(sizes)
    total = go.empty(dw.size) if turned else dw
    go(conv2d_dw_sum, (total, dw if db is None else db), (partial, sums), (plan.chunks, db is not None), work=plan.partial)
    if turned:
        go(bfloat_conv.turn_groups, (dw,), (total,), (sizes[5], dw.size // sizes[4], sizes[4] // sizes[5]))


def widened(go, w):
    """A weight as products read it, in its own type or from 16 bits in float32: it is read for every tile."""
    if w.dtype not in HALF:
        return w
    wide = go.empty(w.size)
    go(map1, (wide,), (w,), formula=same)
    return wide
