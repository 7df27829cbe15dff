"""Convolution where each channel has a window of its own (depthwise): weighted sums in place of products, LANES planes side by side.

A plane is one channel of an image. A worker turns the lines of some planes that a strip of results sees, so that a vector holds one pixel
of each, and puts them between padding. Eight results stay in registers while the taps are added, which read a vector for each. The gradient
of x is made of the same sums over cotangents: pixels that windows, steps apart, see by the same taps are of one kind. Taps that see padding
above or below are left out. The gradient of the weight is that of listed_conv.py.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any

import numpy as np

from ..loops.moves import taps_vectors
from ..loops.runs import fill_run
from ..products.gemm import turn_matrix
from ..runtime.family import loop, table
from ..runtime.parallel import tasks
from ..runtime.processor import tile
from ..runtime.settings import most_threads
from . import line_conv
from .windows import copy_line

LANES = tile(4).lanes  # planes side by side: the numbers of a vector
TOGETHER = 8  # results of a line in registers: so many hide each other's latency
NUMBERS = 3 << 15  # of a worker's scratch: 384 KB of float32, within a core's own cache
LONG = 1024  # results of a line

# Planes, channels, groups of planes of different weights; rows and columns of results, and of what they see; windows' steps from result to
# result, kinds of rows and columns of results; what a row's number is shifted by. Of a room: its first and last line beside a base, the
# padding before its lines, their length. Lines of results at once, strips of so many, workers, a worker's scratch.
DepthwisePlan = namedtuple(
    "DepthwisePlan",
    "planes channels period rows columns high across down beside kinds kinds_beside shift above below left wide lines strips workers space",
)


def kinds_of(sizes: Any, back: bool) -> list[Any]:
    """For each kind of results what it sees: (tap, line beside the base) of each line, in one direction, (tap, column) of each column."""
    kh, kw, down, beside, _, left, apart, aside = sizes[6:14]
    if not back:
        return [([(i, i * apart) for i in range(kh)], [(j, j * aside - left) for j in range(kw)])]
    rows = [[(i, (kind - i * apart) // down) for i in range(kh) if (kind - i * apart) % down == 0] for kind in range(down)]
    seen = [[(j, kind + left - j * aside) for j in range(kw)] for kind in range(beside)]
    return [(r, [(j, at // beside) for j, at in c if at % beside == 0]) for r in rows for c in seen]


@lru_cache(4096)
def plan_of(sizes: Any, back: bool, lines: int = 0) -> tuple[DepthwisePlan, np.ndarray]:
    """The plan for results, or with `back` for the gradient of x, and for each kind where its taps are, how many lines they see, how many
    of a line; then of each line its place, of each tap where it sees, and where its weight is. `lines` at once, or as many as suit."""
    (n, channels, h, w), (kh, kw, down, beside, top), (oh, ow) = sizes[:4], sizes[6:11], sizes[14:]
    found = kinds_of(sizes, back)
    rows, columns, high, across = (h, w, oh, ow) if back else (oh, ow, h, w)
    step, kinds, shift = ((1, 1), (down, beside), top) if back else ((down, beside), (1, 1), -top)
    lows, places = [line for r, _ in found for _, line in r], [place for _, c in found for _, place in c]
    before, most = max(0, -min(places)), max(-(-columns // kinds[1]), TOGETHER)
    wide = before + max(across, max(places) + (most - 1) * step[1] + 1)
    halo = max(lows) - min(lows) + 2
    each = (step[0] * (across + wide)) // kinds[0] + columns + 1
    lines = lines or max(1, min(rows, (NUMBERS // LANES - halo * (across + wide)) // each))
    span = ((lines - 1) * step[0]) // kinds[0] + halo
    space = LANES * (kh * kw + 1 + span * (across + wide) + wide + lines * columns + TOGETHER * kinds[1])
    strips, groups = -(-rows // lines), -(-n * channels // LANES)
    period, workers = channels // LANES if channels % LANES == 0 else groups, min(groups * strips, most_threads())
    shape = rows, columns, high, across, *step, *kinds, shift, min(lows), max(lows), before, wide, lines
    plan = DepthwisePlan._make((n * channels, channels, period, *shape, strips, workers, space))
    head, rest = list[int](), list[int]()
    for r, c in found:
        head += [3 * len(found) + len(rest), len(r), len(c)]
        rest += [line for _, line in r]
        rest += [LANES * (line * wide + before + place) for _, line in r for _, place in c]
        rest += [LANES * (1 + i * kw + j) for i, _ in r for j, _ in c]
    return plan, table(tuple(head + rest))


@loop
def conv2d_depthwise(part, y, space, x, w, b, plan, lists, has_bias):
    """y = w * x + b. Items: some planes, strip of results; those of the same weights follow each other."""
    planes, channels, period, rows, columns, high, across = plan[0], plan[1], plan[2], plan[3], plan[4], plan[5], plan[6]
    lines, strips, taps = plan[16], plan[17], w.size // channels
    groups = (planes + LANES - 1) // LANES
    items, times = groups * strips, max(1, groups // max(1, period))
    for worker in tasks(part, plan[18]):
        own, last = space[worker * plan[19] : (worker + 1) * plan[19]], -1
        weights, rest = own[: (taps + 1) * LANES], own[(taps + 1) * LANES :]
        sums = rest[: (lines * columns + TOGETHER * plan[10]) * LANES]
        room = rest[sums.size :]
        fill_run(rest, 0.0)  # the padding, among what changes
        for item in range(worker * items // plan[18], (worker + 1) * items // plan[18]):
            group, first = item // strips % times * period + item // strips // times, item % strips * lines
            plane, some, many = group * LANES, min(lines, rows - first), min(LANES, planes - group * LANES)
            if plane % channels != last:
                put_weights(weights, w, b, plane, many, channels, taps, has_bias)
                last = plane % channels
            top = max(0, (first * plan[7] + plan[11]) // plan[9] + plan[12])
            seen = max(0, min(high, ((first + some - 1) * plan[7] + plan[11]) // plan[9] + plan[13] + 1) - top)
            dense = room[room.size - seen * across * LANES :]
            put_lines(room, dense, x, (plane * high + top) * across, many, high * across, seen, plan)
            for r in range(some):
                weigh_line(sums, room, weights, lists, plan, first + r, r, top)
            turn_matrix(some * columns, many, sums, 0, LANES, y, (plane * rows + first) * columns, rows * columns)


def put_weights(weights, w, b, plane, many, channels, taps, has_bias):
    """The biases of these planes, then for each tap their weights."""
    i = 0
    while i < many:
        first = (plane + i) % channels
        some = min(many - i, channels - first)
        for k in range(some):
            weights[i + k] = b[first + k] if has_bias else 0.0
        turn_matrix(some, taps, w, first * taps, taps, weights, LANES + i, LANES)
        i += some


def put_lines(room, dense, x, start, many, apart, lines, plan):
    """Lines of channels, side by side, between their padding."""
    turn_matrix(many, lines * plan[6], x, start, apart, dense, 0, LANES)
    for line in range(lines):
        copy_line(room, (line * plan[15] + plan[14]) * LANES, dense, line * plan[6] * LANES, 1, plan[6] * LANES)


def weigh_line(sums, room, weights, lists, plan, row, r, top):
    """Row r of the sums. `top`: which line is the first in the room. The last eight of a line may be made twice, or lie beyond it."""
    base, kind = divmod(row * plan[7] + plan[11], plan[9])
    for k in range(plan[10]):
        at = 3 * (kind * plan[10] + k)
        begin, lines, each = lists[at], lists[at + 1], lists[at + 2]
        low, high = 0, lines
        while low < high and not 0 <= base + lists[begin + low] < plan[5]:
            low += 1
        while low < high and not 0 <= base + lists[begin + high - 1] < plan[5]:
            high -= 1
        seen = lists[begin + lines + low * each : begin + lines + high * each]
        places = lists[begin + lines + (lines + low) * each : begin + lines + (lines + high) * each]
        start, count = (base - top) * plan[15] * LANES, (plan[4] - k + plan[10] - 1) // plan[10]
        for t in range(0, count, TOGETHER):
            c = max(0, min(t, count - TOGETHER))
            taps_vectors(
                sums, (r * plan[4] + k + c * plan[10]) * LANES, plan[10] * LANES, room, start + c * plan[8] * LANES, plan[8] * LANES, seen,
                weights, places, LANES, TOGETHER,
            )  # fmt: skip


# ---- how they are launched ----
def pays(sizes: Any) -> bool:
    alone = sizes[2] == 1 and sizes[15] >= LONG and line_conv.pays(sizes)  # one long line: turning it takes longer than its sums
    return sizes[1] == sizes[4] == sizes[5] and not alone


def conv(go: Any, outs: Any, ins: Any, sizes: Any, work: int, back: bool = False) -> None:
    (x, w, b), (plan, lists) = ins, plan_of(tuple(sizes), back)
    scratch, consts = go.empty(plan.workers * plan.space), (table(plan), lists, b is not None)
    go(conv2d_depthwise, (*outs, scratch), (x, w, w if b is None else b), consts, work=work)
