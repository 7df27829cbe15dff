"""Convolution where each channel has a window of its own (depthwise): weighted sums of runs in place of products.

A product would have one row: to lay out columns for it takes longer than the sums. Here vectors of neighbouring results stay in registers
while the taps are added, each `offsets` further in a room: the lines of one channel that a tile of whole lines sees. Between two lines lies
padding for both, so where windows move one line at a time all lines of a tile are one run; what falls between lines is not used. The
gradient of x is the same sum over the cotangents, zeros between them where windows are steps apart, with the taps in reverse order. The
gradient of the weight is that of listed_conv.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....core.words import real
from ..loops.moves import taps_vectors
from ..loops.runs import fill_run
from ..runtime.family import loop, table
from ..runtime.parallel import tasks
from ..runtime.processor import tile
from ..runtime.settings import most_threads
from .windows import copy_line

LANES = tile(4).lanes  # numbers of a vector
SLACK = 4 * LANES  # read and written beyond a run, at most
NUMBERS = 1 << 12  # of a channel's lines at once: they stay in the nearest cache


class DepthwisePlan(NamedTuple):
    """lines of results at once; numbers from line to line of a room; workers; a worker's scratch, and how much of it are results."""

    lines: int
    wide: int
    workers: int
    space: int
    results: int


def plan_of(sizes: Any, back: bool, lines: int = 0) -> DepthwisePlan:
    """The plan for results, or with `back` for the gradient of x; `lines` at once, or as many as suit."""
    rows, step, before, padding = sizes[2 if back else 14], 1 if back else sizes[8], (sizes[6] - 1) * sizes[12], sizes[11]
    shared = max(0, (sizes[7] - 1) * sizes[13] - padding) if back else padding
    wide = sizes[3] + (sizes[7] - 1) * sizes[13] - shared if back else sizes[3] + shared
    lines = lines or max(1, min(rows, NUMBERS // max(1, wide * step)))
    across = sizes[3] if back else (sizes[15] - 1) * sizes[9] + 1
    results = (lines - 1) * wide + across + SLACK
    space = results + ((lines - 1) * step + before + 1) * wide + shared + SLACK
    return DepthwisePlan(lines, wide, min(sizes[0] * sizes[1], most_threads()), space, results)


@loop
def conv2d_depthwise(part, y, space, x, w, b, sizes, offsets, plan, has_bias):
    """y = w * x + b. Items: image, channel."""
    lines, wide, rows, columns, step = plan[0], plan[1], sizes[14], sizes[15], sizes[8]
    items, taps, across = sizes[0] * sizes[1], offsets.size, (sizes[15] - 1) * sizes[9] + 1
    for worker in tasks(part, plan[2]):
        own = space[worker * plan[3] : (worker + 1) * plan[3]]
        sums, room = own[: plan[4]], own[plan[4] :]
        fill_run(room, 0.0)  # the padding; what else is here changes
        for plane in range(worker * items // plan[2], (worker + 1) * items // plan[2]):
            channel = plane % sizes[1]
            start = real(b[channel]) if has_bias else real(0.0)
            for first in range(0, rows, lines):
                some = min(lines, rows - first)
                put_plane(room, x, plane, sizes, wide, first * step - sizes[10], (some - 1) * step + (sizes[6] - 1) * sizes[12] + 1)
                if step == 1:
                    weigh(sums, room, 0, offsets, w, channel * taps, start, (some - 1) * wide + across)
                for r in range(some):
                    if step > 1:
                        weigh(sums, room, r * step * wide, offsets, w, channel * taps, start, across)
                    copy_line(y, (plane * rows + first + r) * columns, sums, r * wide if step == 1 else 0, sizes[9], columns)


@loop
def conv2d_dx_depthwise(part, dx, space, g, w, sizes, offsets, plan):
    """Gradient of x. Items as above."""
    lines, wide, h, width = plan[0], plan[1], sizes[2], sizes[3]
    items, taps = sizes[0] * sizes[1], offsets.size
    for worker in tasks(part, plan[2]):
        own = space[worker * plan[3] : (worker + 1) * plan[3]]
        sums, room = own[: plan[4]], own[plan[4] :]
        fill_run(room, 0.0)
        for plane in range(worker * items // plan[2], (worker + 1) * items // plan[2]):
            for first in range(0, h, lines):
                some = min(lines, h - first)
                put_spread(room, g, plane, sizes, wide, first, some)
                weigh(sums, room, 0, offsets, w, plane % sizes[1] * taps, 0.0, (some - 1) * wide + width)
                for r in range(some):
                    copy_line(dx, (plane * h + first + r) * width, sums, r * wide, 1, width)


def put_plane(room, x, plane, sizes, wide, top, lines):
    """A room's lines of a channel, from `top` of the image on; what is padding at their sides stays zero."""
    for line in range(lines):
        y, place = top + line, line * wide + sizes[11]
        if 0 <= y < sizes[2]:
            copy_line(room, place, x, (plane * sizes[2] + y) * sizes[3], 1, sizes[3])
        else:
            fill_run(room[place : place + sizes[3]], 0.0)


def put_spread(room, g, plane, sizes, wide, first, lines):
    """A room for so many lines of the image from `first`: the cotangents of what they gave to, as far apart as windows step. Windows that
    see only padding are left out."""
    step, columns, before, left = sizes[9], sizes[15], (sizes[6] - 1) * sizes[12], (sizes[7] - 1) * sizes[13] - sizes[11]
    low = max(0, -left + step - 1) // step
    high = max(low, min(columns, (wide - 1 - left) // step + 1))
    for line in range(lines + before):
        y, to = first + line + sizes[10] - before, line * wide + left + low * step
        if y < 0 or y % sizes[8] > 0 or y // sizes[8] >= sizes[14]:
            fill_run(room[to : to + (high - low) * step], 0.0)
            continue
        at = (plane * sizes[14] + y // sizes[8]) * columns + low
        if step == 1:
            copy_line(room, to, g, at, 1, high - low)
        else:
            for t in range(np.uintp(high - low)):
                room[np.uintp(to) + t * np.uintp(step)] = g[np.uintp(at) + t]


def weigh(out, room, start, offsets, w, own, value, count):
    """`count` numbers of out, and what fills the last vector, = value + the sum over taps of their weight, from w[own] on, times what they
    see. Eight sums hide each other's latency."""
    t = 0
    while t < count:
        if count - t > 4 * LANES:
            taps_vectors(out, t, room, start + t, offsets, w, own, value, LANES, 8)
            t += 8 * LANES
        elif count - t > LANES:
            taps_vectors(out, t, room, start + t, offsets, w, own, value, LANES, 4)
            t += 4 * LANES
        else:
            taps_vectors(out, t, room, start + t, offsets, w, own, value, LANES, 1)
            t += LANES


# ---- how they are launched ----
def pays(sizes: Any) -> bool:
    return sizes[1] == sizes[4] == sizes[5]


def taps(sizes: Any, wide: int) -> list[int]:
    """Where each tap sees the first position, in a room of lines so wide."""
    return [i * sizes[12] * wide + j * sizes[13] for i in range(sizes[6]) for j in range(sizes[7])]


def conv(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    (x, w, b), plan = ins, plan_of(sizes, False)
    consts = table(sizes), table(tuple(taps(sizes, plan.wide))), table(plan), b is not None
    go(conv2d_depthwise, (*outs, go.empty(plan.workers * plan.space)), (x, w, w if b is None else b), consts, work=work)


def conv_dx(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    plan = plan_of(sizes, True)
    consts = table(sizes), table(tuple(taps(sizes, plan.wide)[::-1])), table(plan)
    go(conv2d_dx_depthwise, (*outs, go.empty(plan.workers * plan.space)), ins, consts, work=work)
