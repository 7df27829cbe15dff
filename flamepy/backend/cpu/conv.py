"""Convolution of images in (batch, channel, row, column) order.

A convolution is a matrix product with the image's windows laid out as columns (im2col), made for one tile of
output positions at a time so that they stay in cache. A fixed number of workers, each with its own part of
`col`, shares out the tiles; the gradient of the weight is summed over fixed chunks of images and then over
the chunks. All of it follows from sizes alone: the same bits for any number of threads. `conv_plan` gives
the counts, `sizes` (a table) the geometry. 16-bit images are widened as columns are made; results of 16 bits
wait in float32 scratch to be rounded.

FLAME counterpart: `flame_core::ops::conv2d`. Read next: windows.py.
"""

from __future__ import annotations

from ...dtypes import HALF, float64
from . import bfloat_conv, depthwise
from .family import launcher, loop, table
from .loops import map1, same
from .parallel import tasks
from .plans import conv_plan
from .products import SINGLE, N, T, gemm
from .runs import add_run, add_value, copy_run, fill_run
from .windows import add_planes, col2im, im2col, zero_lines

PIECE = 1024  # numbers of the weight's gradient added up by one task


@loop
def conv2d(part, y, z, col, x, w, b, sizes, tile, workers, has_bias, narrow):
    """y = w * x + b. Without has_bias, b isn't read. Items: image, group, tile of positions.

    z, which products are written into: y, or with `narrow` a tile for each worker.
    """
    groups = sizes[5]
    each, outs = sizes[1] // groups, sizes[4] // groups
    depth = each * sizes[6] * sizes[7]
    pixels, area = sizes[2] * sizes[3], sizes[14] * sizes[15]
    tiles = (area + tile - 1) // tile
    items = sizes[0] * groups * tiles
    for worker in tasks(part, workers):
        own = worker * (col.size // workers)
        room = col[own + depth * tile : own + col.size // workers]
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            plane = item // tiles
            first = item % tiles * tile
            width = min(tile, area - first)
            y_at = plane * outs * area + first
            w_at = plane % groups * outs * depth
            z_at, step = (worker * outs * tile, tile) if narrow else (y_at, area)
            x_at = plane * each * pixels
            if is_pointwise(sizes, x):
                x_at += first
                gemm(N, N, outs, width, depth, 1.0, w, w_at, depth, x, x_at, pixels, False, z, z_at, step)
            else:
                im2col(col[own : own + depth * width], width, room, x[x_at : x_at + each * pixels], sizes, each, first, width)
                gemm(N, N, outs, width, depth, 1.0, w, w_at, depth, col, own, width, False, z, z_at, step)
            for r in range(outs if has_bias else 0):
                add_value(z[z_at + r * step : z_at + r * step + width], b[plane % groups * outs + r])
            for r in range(outs if narrow else 0):
                copy_run(y[y_at + r * area : y_at + r * area + width], z[z_at + r * tile : z_at + r * tile + width])


@loop
def conv2d_dx(part, dx, col, g, w, sizes, tile, channels, workers):
    """Gradient of x. Items: image, group, block of input channels."""
    groups = sizes[5]
    each, outs, taps = sizes[1] // groups, sizes[4] // groups, sizes[6] * sizes[7]
    pixels, area = sizes[2] * sizes[3], sizes[14] * sizes[15]
    blocks = (each + channels - 1) // channels
    items = sizes[0] * groups * blocks
    for worker in tasks(part, workers):
        own = worker * (col.size // workers)
        room = col[own + channels * taps * tile : own + col.size // workers]
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            plane = item // blocks
            low = item % blocks * channels
            count = min(channels, each - low)
            w_at = (plane % groups * outs * each + low) * taps
            dx_at = (plane * each + low) * pixels
            image = dx[dx_at : dx_at + count * pixels]
            fresh = sizes[2] if is_pointwise(sizes, g) else 0
            for first in range(0, area, tile):
                rows, width = count * taps, min(tile, area - first)
                g_at = plane * outs * area + first
                if is_pointwise(sizes, g):
                    at = dx_at + first
                    gemm(T, N, rows, width, outs, 1.0, w, w_at, each, g, g_at, area, False, dx, at, pixels)
                else:
                    depth = each * taps
                    gemm(T, N, rows, width, outs, 1.0, w, w_at, depth, g, g_at, area, False, col, own, width)
                    fresh = col2im(image, col[own : own + rows * width], width, room, sizes, count, first, width, fresh)
            zero_lines(image, sizes, count, fresh, sizes[2])


@loop
def conv2d_dw(part, partial, sums, col, g, x, sizes, tile, channels, chunks, workers):
    """Each chunk of images' share of the gradients of w and b. Items: chunk of images, group, block of input channels."""
    groups = sizes[5]
    blocks = (sizes[1] // groups + channels - 1) // channels
    items = chunks * groups * blocks
    own = col.size // workers
    for worker in tasks(part, workers):
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            columns = col[worker * own : (worker + 1) * own]
            dw_chunk(partial, sums, columns, g, x, sizes, tile, channels, chunks, item // blocks, item % blocks)


@loop
def conv2d_dw_sum(part, dw, db, partial, sums, chunks, has_bias):
    """dw and, with has_bias, db: the chunks' shares added in order."""
    runs = (dw.size + PIECE - 1) // PIECE
    for block in tasks(part, runs + (db.size + PIECE - 1) // PIECE if has_bias else runs):
        if block < runs:
            add_chunks(dw, partial, chunks, block * PIECE)
        else:
            add_chunks(db, sums, chunks, (block - runs) * PIECE)


def dw_chunk(partial, sums, col, g, x, sizes, tile, channels, chunks, piece, block):
    """One (chunk, group) = `piece` and channel block of the weight gradient, into its place in `partial`; of the bias's into `sums`."""
    groups = sizes[5]
    each, outs, taps = sizes[1] // groups, sizes[4] // groups, sizes[6] * sizes[7]
    pixels, area = sizes[2] * sizes[3], sizes[14] * sizes[15]
    chunk, group = piece // groups, piece % groups
    low = block * channels
    count = min(channels, each - low)
    room = col[channels * taps * tile :]
    out = (piece * each + low) * taps * outs if is_turned(sizes) else (piece * outs * each + low) * taps
    own = sums[chunk * sizes[4] + group * outs : chunk * sizes[4] + group * outs + outs]
    add = False
    if block == 0:
        fill_run(own, 0.0)
    for image in range(chunk * sizes[0] // chunks, (chunk + 1) * sizes[0] // chunks):
        plane = image * groups + group
        x_at = (plane * each + low) * pixels
        for first in range(0, area, tile):
            rows, width = count * taps, min(tile, area - first)
            g_at = plane * outs * area + first
            if is_pointwise(sizes, x):
                dw_product(partial, out, x, x_at + first, pixels, g, g_at, sizes, rows, width, add)
            else:
                im2col(col[: rows * width], width, room, x[x_at : x_at + count * pixels], sizes, count, first, width)
                dw_product(partial, out, col, 0, width, g, g_at, sizes, rows, width, add)
            add = True
        if block == 0:
            add_planes(own, g, plane, area)


def is_turned(sizes):
    """Whether dw is made transposed: then the smaller operand is packed. Few output channels are read row by row."""
    return sizes[4] // sizes[5] > SINGLE


def dw_product(partial, out, x, at, ld, g, g_at, sizes, rows, width, add):
    """partial (rows, outs), or if it isn't turned (outs, depth): = or += the columns (rows, width) times the cotangents."""
    outs, area = sizes[4] // sizes[5], sizes[14] * sizes[15]
    if is_turned(sizes):
        gemm(N, T, rows, outs, width, 1.0, x, at, ld, g, g_at, area, add, partial, out, outs)
    else:
        depth = sizes[1] // sizes[5] * sizes[6] * sizes[7]
        gemm(N, T, outs, rows, width, 1.0, g, g_at, area, x, at, ld, add, partial, out, depth)


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
    plan, narrow = conv_plan(sizes, "y"), y.dtype in HALF
    z = go.empty(plan.workers * sizes[4] // sizes[5] * plan.tile) if narrow else y
    consts = (table(sizes), plan.tile, plan.workers, b is not None, narrow)
    go(conv2d, (y, z, go.empty(plan.col)), (x, widened(go, w), w if b is None else b), consts, work=multiplications(sizes))


@launcher(name="conv2d_dx")
def conv_dx_launcher(go, outs, ins, sizes):
    g, w = ins
    if bfloat_conv.pays(w, sizes):
        return bfloat_conv.conv_dx(go, outs, ins, sizes, multiplications(sizes) // 2)
    if depthwise.pays(sizes):
        return depthwise.conv_dx(go, outs, (g, widened(go, w)), sizes, multiplications(sizes))
    plan = conv_plan(sizes, "dx")
    consts = (table(sizes), plan.tile, plan.channels, plan.workers)
    go(conv2d_dx, (*outs, go.empty(plan.col)), (g, widened(go, w)), consts, work=multiplications(sizes))


@launcher(name="conv2d_dw")
def conv_dw_launcher(go, outs, ins, sizes):
    dw, db = outs
    plan, halves = conv_plan(sizes, "dw"), bfloat_conv.pays(ins[1], sizes)
    partial, sums = go.empty(plan.partial), go.empty(plan.chunks * sizes[4], float64)
    if halves:
        bfloat_conv.conv_dw(go, (partial, sums), ins, sizes, multiplications(sizes) // 2)
    else:
        consts = (table(sizes), plan.tile, plan.channels, plan.chunks, plan.workers)
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
