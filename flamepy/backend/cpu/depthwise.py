"""Convolution where each channel has a window of its own (depthwise): weighted sums of lines in place of products.

A product would have one row: to lay out columns for it takes longer than the sums. Here a vector of neighbouring results stays in a
register while the taps are added, each `offsets` further in a room: the lines of one channel that a tile of whole lines sees, with their
padding. The gradient of x is the same sum over the cotangents, zeros between them where windows are steps apart, with the taps in reverse
order. The gradient of the weight is that of listed_conv.py.

FLAME counterpart: `flame_core::ops::conv2d`. Read next: windows.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..formula.words import real
from .family import loop, table
from .moves import taps_vector
from .parallel import tasks
from .plans import depthwise_lines
from .runs import fill_run
from .threads import most_threads
from .windows import copy_line, put_image


@loop
def conv2d_depthwise(part, y, rooms, x, w, b, sizes, offsets, lines, workers, has_bias):
    """y = w * x + b. Items: image, channel. A worker's part of `rooms`: a line of sums, then a room."""
    pixels, wide, rows, columns = sizes[2] * sizes[3], sizes[3] + 2 * sizes[11], sizes[14], sizes[15]
    items = sizes[0] * sizes[1]
    for worker in tasks(part, workers):
        own = rooms[worker * (rooms.size // workers) : (worker + 1) * (rooms.size // workers)]
        line, room = own[:wide], own[wide:]
        for plane in range(worker * items // workers, (worker + 1) * items // workers):
            channel = plane % sizes[1]
            for first in range(0, rows, lines):
                some = min(lines, rows - first)
                count = (some - 1) * sizes[8] + (sizes[6] - 1) * sizes[12] + 1
                fill_run(room[: count * wide], 0.0)
                put_image(room, x[plane * pixels : (plane + 1) * pixels], 0, sizes, first * sizes[8] - sizes[10], count, count, 1)
                for r in range(some):
                    start = real(b[channel]) if has_bias else real(0.0)
                    weigh(line, 0, room, r * sizes[8] * wide, offsets, w, channel * offsets.size, start, (columns - 1) * sizes[9] + 1)
                    copy_line(y, (plane * rows + first + r) * columns, line, 0, sizes[9], columns)


@loop
def conv2d_dx_depthwise(part, dx, rooms, g, w, sizes, offsets, lines, workers):
    """Gradient of x. Items as above."""
    h, width, wide, area = sizes[2], sizes[3], sizes[3] + (sizes[7] - 1) * sizes[13], sizes[14] * sizes[15]
    items = sizes[0] * sizes[1]
    for worker in tasks(part, workers):
        room = rooms[worker * (rooms.size // workers) : (worker + 1) * (rooms.size // workers)]
        for plane in range(worker * items // workers, (worker + 1) * items // workers):
            for first in range(0, h, lines):
                some = min(lines, h - first)
                put_spread(room, g[plane * area : (plane + 1) * area], sizes, first, some)
                for r in range(some):
                    at = (plane * h + first + r) * width
                    weigh(dx, at, room, r * wide, offsets, w, plane % sizes[1] * offsets.size, 0.0, width)


def put_spread(room, g, sizes, first, lines):
    """A room for so many lines of the image from `first`: the cotangents of what they gave to, as far apart as windows step. Windows that
    see only padding are left out."""
    wide, step, columns = sizes[3] + (sizes[7] - 1) * sizes[13], sizes[9], sizes[15]
    before, left = (sizes[6] - 1) * sizes[12], (sizes[7] - 1) * sizes[13] - sizes[11]
    low = max(0, -left + step - 1) // step
    high = max(low, min(columns, (wide - 1 - left) // step + 1))
    fill_run(room[: (lines + before) * wide], 0.0)
    for line in range(lines + before):
        y = first + line + sizes[10] - before
        if y >= 0 and y % sizes[8] == 0 and y // sizes[8] < sizes[14]:
            at, to = y // sizes[8] * columns + low, line * wide + left + low * step
            if step == 1:
                copy_line(room, to, g, at, 1, high - low)
            else:
                for t in range(np.uintp(high - low)):
                    room[np.uintp(to) + t * np.uintp(step)] = g[np.uintp(at) + t]


def weigh(out, at, room, start, offsets, w, own, value, count):
    """`count` numbers of out = value + the sum over taps of their weight, w[own] and after, times what they see."""
    if count >= 16:
        for t in range(0, count - 16, 16):
            taps_vector(out, at + t, room, start + t, offsets, w, own, value, 16)
        taps_vector(out, at + count - 16, room, start + count - 16, offsets, w, own, value, 16)
    elif count >= 4:
        for t in range(0, count - 4, 4):
            taps_vector(out, at + t, room, start + t, offsets, w, own, value, 4)
        taps_vector(out, at + count - 4, room, start + count - 4, offsets, w, own, value, 4)
    else:
        for t in range(count):
            total = value
            for tap in range(offsets.size):
                total += w[own + tap] * room[start + t + offsets[tap]]
            out[at + t] = total


# ---- how they are launched ----
def pays(sizes: Any) -> bool:
    return sizes[1] == sizes[4] == sizes[5]


def taps(sizes: Any, wide: int) -> list[int]:
    """Where each tap sees the first position, in a room of lines so wide."""
    return [i * sizes[12] * wide + j * sizes[13] for i in range(sizes[6]) for j in range(sizes[7])]


def conv(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    (x, w, b), wide = ins, sizes[3] + 2 * sizes[11]
    workers, lines = min(sizes[0] * sizes[1], most_threads()), depthwise_lines(sizes[14], wide * sizes[8])
    rooms = go.empty(workers * (2 + (lines - 1) * sizes[8] + (sizes[6] - 1) * sizes[12]) * wide)
    consts = table(sizes), table(tuple(taps(sizes, wide))), lines, workers, b is not None
    go(conv2d_depthwise, (*outs, rooms), (x, w, w if b is None else b), consts, work=work)


def conv_dx(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    wide = sizes[3] + (sizes[7] - 1) * sizes[13]
    workers, lines = min(sizes[0] * sizes[1], most_threads()), depthwise_lines(sizes[2], wide)
    rooms = go.empty(workers * (lines + (sizes[6] - 1) * sizes[12]) * wide)
    consts = table(sizes), table(tuple(taps(sizes, wide)[::-1])), lines, workers
    go(conv2d_dx_depthwise, (*outs, rooms), ins, consts, work=work)
