"""Convolution of images in (batch, channel, row, column) order: which loops a convolution takes, and what the files of loops share.

A convolution is a matrix product whose operand, what each tap of a window sees at each position, is an image many times over. Nothing lays
it out (im2col): tiles of products read padded images. Where there are many output channels, these are the vectors (listed_conv.py); where
there are few, positions are, and windows move one at a time (line_conv.py). A 1 x 1 window's operand is the image (here); windows for one
channel each are sums, not products (depthwise.py). bfloat16 is rearranged for its own products (bf16/conv.py).

The gradient of the weight is summed over fixed chunks of images and then over the chunks. All of it follows from sizes alone: the same bits
for any number of threads. `sizes` (a table) is the geometry. Numbers of 16 bits are widened on the way.
"""

from ....dtypes import HALF, float64
from ..bf16 import conv as bfloat_conv
from ..loops.maps import fill, map1, same
from ..loops.runs import add_run, add_value, fill_run
from ..products.gemm import N, gemm
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks
from . import depthwise, line_conv, listed_conv

PIECE = 1024  # numbers of the weight's gradient added up by one task
TILE = 1 << 16  # numbers of an image that one product of a 1 x 1 window reads, about


@loop
def conv2d_pointwise(part, y, x, w, b, sizes, tile, turned, has_bias):
    """y = w * x + b for 1 x 1 windows; turned: the gradient of x = w.T * y. Items: image, group, tile of positions."""
    groups, area = sizes[5], sizes[14] * sizes[15]
    each, outs = sizes[1] // groups, sizes[4] // groups
    rows, depth, tiles = each if turned else outs, outs if turned else each, (area + tile - 1) // tile
    for item in tasks(part, sizes[0] * groups * tiles):
        plane, first = item // tiles, item % tiles * tile
        group, width = plane % groups, min(tile, area - first)
        at, x_at = plane * rows * area + first, plane * depth * area + first
        gemm(turned, N, rows, width, depth, 1.0, w, group * outs * each, each, x, x_at, area, False, y, at, area)
        for r in range(rows if has_bias else 0):
            add_value(y[at + r * area : at + r * area + width], b[group * outs + r])


@loop
def conv2d_dw_sum(part, dw, db, partial, sums, chunks, has_bias):
    """dw and, with has_bias, db: the chunks' shares added in order."""
    runs = (dw.size + PIECE - 1) // PIECE
    for block in tasks(part, runs + (db.size + PIECE - 1) // PIECE if has_bias else runs):
        if block < runs:
            add_chunks(dw, partial, chunks, block * PIECE)
        else:
            add_chunks(db, sums, chunks, (block - runs) * PIECE)


def add_chunks(out, partial, chunks, low):
    """out[low : low + PIECE] = the sum of its parts in the chunks, in order."""
    run = out[low : min(out.size, low + PIECE)]
    fill_run(run, 0.0)
    for chunk in range(chunks):
        at = chunk * out.size + low
        add_run(run, partial[at : at + run.size])


# ---- launchers ----
def multiplications(sizes):
    return sizes[0] * sizes[14] * sizes[15] * sizes[4] * max(1, sizes[1] // sizes[5]) * sizes[6] * sizes[7]


def is_pointwise(sizes, y, x):
    """A 1 x 1 window, one step at a time, no padding; of the types of products."""
    return sizes[6] * sizes[7] * sizes[8] * sizes[9] == 1 and sizes[10] + sizes[11] == 0 and y.dtype not in HALF and x.dtype not in HALF


def pointwise(go, outs, ins, sizes, turned, work):
    (x, w, b), groups, area = ins, sizes[5], sizes[14] * sizes[15]
    tile = min(area, max(64, TILE // max(1, (sizes[4] if turned else sizes[1]) // groups) // 16 * 16))
    go(conv2d_pointwise, outs, (x, w, w if b is None else b), (table(sizes), tile, turned, b is not None), work=work)


@launcher(name="conv2d")
def conv_launcher(go, outs, ins, sizes):
    (x, w, b), work = ins, multiplications(sizes)
    if bfloat_conv.pays(x, sizes):
        return bfloat_conv.conv(go, outs, ins, sizes, work // 2)
    ins = x, widened(go, w), b
    if depthwise.pays(sizes):
        return depthwise.conv(go, outs, ins, sizes, work)
    if is_pointwise(sizes, *outs, x):
        return pointwise(go, outs, ins, sizes, False, work)
    loops_of(x, sizes).conv(go, outs, ins, sizes, work)


def loops_of(x, sizes):
    return line_conv if x.dtype != float64 and line_conv.pays(sizes) else listed_conv


@launcher(name="conv2d_dx")
def conv_dx_launcher(go, outs, ins, sizes):
    (g, w), work = ins, multiplications(sizes)
    if bfloat_conv.pays(w, sizes):
        return bfloat_conv.conv_dx(go, outs, ins, sizes, work // 2)
    w = widened(go, w)
    if depthwise.pays(sizes):
        return depthwise.conv(go, outs, (g, w, None), sizes, work, back=True)
    if is_pointwise(sizes, *outs, g):
        return pointwise(go, outs, (g, w, None), sizes, True, work)
    found = listed_conv.kinds(sizes)
    if len(found) < min(sizes[8], sizes[2]) * min(sizes[9], sizes[3]):
        go(fill, outs, (), (0.0,))
    for size, taps, place in found:
        exchanged = go.empty(sizes[4] // sizes[5] * sizes[1] * len(taps))
        go(listed_conv.exchange, (exchanged,), (w,), (table(sizes), table(taps)))
        loops_of(g, size).conv(go, outs, (g, exchanged, None), size, work * len(taps) // (sizes[6] * sizes[7]), place)


@launcher(name="conv2d_dw")
def conv_dw_launcher(go, outs, ins, sizes):
    dw, db = outs
    halves = bfloat_conv.pays(ins[1], sizes)
    chunks = bfloat_conv.bfloat_conv_plan(sizes, "dw").chunks if halves else listed_conv.dw_plan(sizes).chunks
    partial, sums, total = go.empty(chunks * dw.size), go.empty(chunks * sizes[4], float64), go.empty(dw.size)
    if halves:
        bfloat_conv.conv_dw(go, (partial, sums), ins, sizes, multiplications(sizes) // 2)
    else:
        listed_conv.conv_dw(go, (partial, sums), ins, sizes, multiplications(sizes))
    go(conv2d_dw_sum, (total, dw if db is None else db), (partial, sums), (chunks, db is not None), work=partial.size)
    go(bfloat_conv.turn_groups, (dw,), (total,), (sizes[5], dw.size // max(1, sizes[4]), sizes[4] // sizes[5]))


def widened(go, w):
    """A weight as products read it, in its own type or from 16 bits in float32: it is read for every tile."""
    if w.dtype not in HALF:
        return w
    wide = go.empty(w.size)
    go(map1, (wide,), (w,), formula=same)
    return wide
