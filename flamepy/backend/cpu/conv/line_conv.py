"""Convolution to few channels: where windows move one position at a time, what a tap sees is the padded image itself, shifted.

    y[o, r * wide + q] = sum over c, i, j of w[o, c, i, j] * padded[c, (r + i) * wide + q + j]

For all r and q at once this is a product whose second operand has its rows at places that a list says (listed.py). `wide` is the length of
a line with its padding on the left, which is the right padding of the line before; the last results of a line belong to no position and
are left out when lines are copied to y. Positions are the vectors, so one output channel fills them; the arithmetic grows by the padding,
so lines must be long beside it. The gradient of x is made of such convolutions of the cotangents (listed_conv.kinds), with channels
exchanged and taps in reverse order (the list's, not the weight's).

A worker's scratch: results of some lines of some images for all output channels, then a room: the lines that these see of some input
channels. All of it follows from sizes alone: the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..loops.runs import add_value, fill_run
from ..products.listed import VECTOR, gemm_listed
from ..runtime.family import loop, table
from ..runtime.parallel import tasks
from ..runtime.settings import most_threads
from .windows import copy_line

FEW = 32  # output channels: of so many on listed_conv.py is faster
POSITIONS = 512  # results of one channel at once, about
LEAST = 64  # and no fewer, so that there are
SHARES = 16  # for the cores where images are few
RESULTS = 1 << 16  # of all channels: 256 KB of float32, within a core's own cache
DEPTH = 144  # taps of all input channels at once, see listed_conv.py


class LinePlan(NamedTuple):
    """rows: lines of results at once; images side by side; input channels at once; workers; scratch of each."""

    rows: int
    images: int
    channels: int
    workers: int
    space: int


@lru_cache(4096)
def line_plan(sizes: Sequence[int]) -> LinePlan:
    wide, taps, each, outs = sizes[3] + sizes[11], sizes[6] * sizes[7], sizes[1] // sizes[5], sizes[4] // sizes[5]
    most = min(POSITIONS, max(128, RESULTS // outs))
    enough = min(-(-SHARES // (sizes[0] * sizes[5])), sizes[14] * wide // LEAST)
    bands = max(-(-sizes[14] // max(1, most // wide)), enough)
    rows = -(-sizes[14] // bands)
    images = max(1, min(most // (2 * rows * wide), sizes[0] // 8)) if bands == 1 else 1
    channels = max(1, min(each, DEPTH // taps))
    room = channels * (rows + (sizes[6] - 1) * sizes[12]) * wide + (sizes[7] - 1) * sizes[13] + 4 * VECTOR
    workers = min(-(-sizes[0] // images) * sizes[5] * bands, most_threads())
    return LinePlan(rows, images, channels, workers, outs * images * rows * wide + room)


@lru_cache(4096)
def places(sizes: Sequence[int], plan: LinePlan, order: int) -> tuple[int, ...]:
    """Where in a room each tap of each channel sees the first position, in bytes. order: 1, or -1 for the last tap first."""
    wide, down = sizes[3] + sizes[11], plan.rows + (sizes[6] - 1) * sizes[12]
    taps = [i * sizes[12] * wide + j * sizes[13] for i in range(sizes[6]) for j in range(sizes[7])]
    return tuple([4 * (c * down * wide + tap) for c in range(plan.channels) for tap in taps[::order]])


@loop
def conv2d_lines(part, y, space, x, w, b, sizes, place, places, plan, has_bias):
    """y = w * x + b. Without has_bias, b isn't read. Items: block of images, group, band of lines."""
    rows, images, workers = plan[0], plan[1], plan[3]
    wide, groups, outs = sizes[3] + sizes[11], sizes[5], sizes[4] // sizes[5]
    bands = (sizes[14] + rows - 1) // rows
    items = (sizes[0] + images - 1) // images * groups * bands
    for worker in tasks(part, workers):
        own = space[worker * plan[4] : (worker + 1) * plan[4]]
        z, room = own[: outs * images * rows * wide], own[outs * images * rows * wide :]
        fill_run(room, 0.0)  # the padding; what else is here changes
        for item in range(worker * items // workers, (worker + 1) * items // workers):
            group, low, top = item // bands % groups, item // bands // groups * images, item % bands * rows
            some, lines = min(images, sizes[0] - low), min(rows, sizes[14] - top)
            sum_products(z, room, x, w, sizes, places, plan, group, low, some, top, lines)
            put_lines(y, z, b, sizes, place, plan, group, low, some, top, lines, has_bias)


def sum_products(z, room, x, w, sizes, places, plan, group, low, images, top, lines):
    """z = the sums over all input channels, some of them after the others."""
    wide, taps, each, outs = sizes[3] + sizes[11], sizes[6] * sizes[7], sizes[1] // sizes[5], sizes[4] // sizes[5]
    width = (lines - 1) * wide + sizes[15]
    for channel in range(0, each, plan[2]):
        count, at = min(plan[2], each - channel), group * outs * each * taps + channel * taps
        for image in range(images):
            put_padded(room, x, sizes, plan, ((low + image) * sizes[5] + group) * each + channel, count, top, lines)
            to = image * plan[0] * wide
            gemm_listed(outs, width, count * taps, w, at, each * taps, room, 0, places, channel > 0, z, to, plan[1] * plan[0] * wide)


def put_padded(room, x, sizes, plan, plane, channels, top, lines):
    """The lines of these channels that so many lines of results from `top` see; left and right of them the room is zero."""
    wide, before, height = sizes[3] + sizes[11], (sizes[6] - 1) * sizes[12], sizes[2]
    for c in range(channels):
        for line in range(lines + before):
            place, y = (c * (plan[0] + before) + line) * wide + sizes[11], top + line - sizes[10]
            if 0 <= y < height:
                copy_line(room, place, x, ((plane + c) * height + y) * sizes[3], 1, sizes[3])
            else:
                fill_run(room[place : place + sizes[3]], 0.0)


def put_lines(y, z, b, sizes, place, plan, group, low, images, top, lines, has_bias):
    """Lines of results to where they belong (see listed_conv.turn_results), with their bias."""
    wide, outs, columns, step = sizes[3] + sizes[11], sizes[4] // sizes[5], sizes[15], place[4] * place[1]
    for image in range(images):
        for r in range(outs):
            channel, at = group * outs + r, (r * plan[1] + image) * plan[0] * wide
            if has_bias:
                add_value(z[at : at + lines * wide], b[channel])
            to = (((low + image) * sizes[4] + channel) * place[0] + place[2] + top * place[4]) * place[1] + place[3]
            for line in range(lines):
                if place[5] == 1:
                    copy_line(y, to + line * step, z, at + line * wide, 1, columns)
                    continue
                for q in range(np.uintp(columns)):
                    y[np.uintp(to + line * step) + q * np.uintp(place[5])] = z[np.uintp(at + line * wide) + q]


# ---- how they are launched ----
def pays(sizes: Any) -> bool:
    """Few output channels, whose vectors would be short; windows move one position at a time, and the padding is short beside the lines: no
    longer on the right than on the left, as it is for some kinds of pixels."""
    wide, fits = sizes[3] + sizes[11], min(sizes[:6]) > 0 and min(sizes[10:12]) >= 0
    fits = fits and sizes[15] + (sizes[7] - 1) * sizes[13] <= wide + sizes[11]
    return fits and sizes[4] // sizes[5] < FEW and sizes[8] == sizes[9] == 1 and 10 * wide <= 11 * sizes[15] <= 11 * wide


def conv(go: Any, outs: Any, ins: Any, sizes: Any, work: int, place: Any = None) -> None:
    """place: see listed_conv.turn_results. Given, the weight has the last tap first."""
    (x, w, b), plan = ins, line_plan(sizes)
    own, order = (place, -1) if place else ((*sizes[14:], 0, 0, 1, 1), 1)
    consts = table(sizes), table(own), table(places(sizes, plan, order)), table(tuple(plan)), b is not None
    go(conv2d_lines, (*outs, go.empty(plan.workers * plan.space)), (x, w, w if b is None else b), consts, work=work)
