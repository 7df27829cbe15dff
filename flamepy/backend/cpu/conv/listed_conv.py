"""Convolution without columns: what taps see at positions is read from the padded image by two lists (picked.py).

    y[position, o] = sum over taps of room[positions[position] + taps[tap]] * w[tap, o]
    dw[tap, o] = sum over positions of room[taps[tap] + positions[position]] * g[position, o]

A room holds what some positions of some images see of some input channels, with their padding. Nothing else is added up, so a NaN reaches
the windows that see it alone, and windows may have any steps and gaps. Output channels are the vectors; line_conv.py serves few of them.
The gradient of x is a convolution of the cotangents, where windows are steps apart one for each kind of pixel (`kinds`).

Where images are small, many taps see nothing but padding at many positions. These are left out: there are several kinds of positions, and
for each the taps that see something; or for each tap the positions (`kinds_of`).

Some positions: whole lines of some images, or, where lines are long, a part of one. All of it follows from sizes alone: the same bits for
any number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from ..loops.runs import add_value, copy_run, fill_run
from ..products.gemm import turn_matrix
from ..products.picked import dots_picked, gemm_picked, pack_turned
from ..runtime.family import loop, table
from ..runtime.parallel import tasks
from ..runtime.settings import most_threads
from .windows import add_planes, copy_line

LONGEST = 16  # numbers of the longest vectors: panels are padded to that at most
DEPTH = 144  # taps of all input channels at once, at most: as many as are added up in one register, which loses digits
NUMBERS = 1 << 16  # of results or cotangents at once: 256 KB of float32, within a core's own cache
BLOCK = 16  # input channels whose weights are written side by side
CONV_PARTIALS = 1 << 22  # numbers in a convolution weight gradient's partial sums, at most (but two chunks always may)
SHARES = 16  # for the cores, where there are few images
SUMMED = 256  # positions that are worth a weight gradient's partial sums


class ListPlan(NamedTuple):
    """lines, columns, images: positions at once; input channels at once; chunks of images (dw); workers; scratch of each; lines of one
    channel in a room and how wide they are; lines of a room between two taps and between two lines of positions."""

    lines: int
    columns: int
    images: int
    channels: int
    chunks: int
    workers: int
    space: int
    down: int
    wide: int
    apart: int
    step: int


def rounded(n):
    return (n + LONGEST - 1) // LONGEST * LONGEST


def finished(what: str, sizes: Sequence[int], lines: int, columns: int, images: int, channels: int, chunks: int = 0) -> ListPlan:
    """The plan of a pass, "y" or "dw", with these numbers at once. Windows with wide gaps see few of the lines: then a room has those that
    each tap sees, one tap after the other."""
    each, outs, area = sizes[1] // sizes[5], sizes[4] // sizes[5], lines * columns
    span = (lines - 1) * sizes[8] + max(0, sizes[6] - 1) * sizes[12] + 1
    wide = (columns - 1) * sizes[9] + max(0, sizes[7] - 1) * sizes[13] + 1
    down, apart, step = (lines * sizes[6], lines, 1) if lines * sizes[6] < span else (span, sizes[12], sizes[8])
    if what == "y":
        tasks = -(-sizes[0] // images) * sizes[5] * -(-sizes[14] // lines) * -(-sizes[15] // columns)
        beside = rounded(images * area * outs) * (1 + spares(sizes, lines, columns)) + rounded(area * outs)
    else:
        tasks = chunks * sizes[5] * max(1, -(-each // channels))
        beside = images * area * rounded(outs) + rounded(area * outs)
    space = rounded(beside + images * channels * down * wide)
    return ListPlan(lines, columns, images, channels, chunks, min(tasks, most_threads()), space, down, wide, apart, step)


def at_once(sizes: Sequence[int], most: int, images: int) -> tuple[int, int, int]:
    """Lines, columns and images at once: about `most` positions, and rectangles of one size."""
    columns = -(-sizes[15] // -(-sizes[15] // most))
    bands = -(-sizes[14] // max(1, most // columns))
    lines = -(-sizes[14] // bands)
    return lines, columns, max(1, min(most // (lines * columns), images)) if bands == 1 and columns == sizes[15] else 1


@lru_cache(4096)
def y_plan(sizes: Sequence[int]) -> ListPlan:
    area, each, outs = sizes[14] * sizes[15], sizes[1] // sizes[5], max(1, sizes[4] // sizes[5])
    most = min(512, max(128, NUMBERS // outs), max(64, sizes[0] * sizes[5] * area // SHARES))
    return finished("y", sizes, *at_once(sizes, most, sizes[0] // 8), max(1, min(each, DEPTH // max(1, sizes[6] * sizes[7]))))


@lru_cache(4096)
def dw_plan(sizes: Sequence[int]) -> ListPlan:
    taps, each, outs = sizes[6] * sizes[7], sizes[1] // sizes[5], sizes[4] // sizes[5]
    fewest = min(sizes[0], max(1, sizes[0] * sizes[14] * sizes[15] // SUMMED))
    chunks = min(fewest, 16, max(2, CONV_PARTIALS // max(1, sizes[4] * each * taps)))
    blocks = max(1, min(-(-8 // max(1, chunks * sizes[5])), each * taps // 64, each), -(-each // 256))
    channels, most = max(1, -(-each // blocks)), min(512, max(128, NUMBERS // max(outs, each // blocks, 1)))
    return finished("dw", sizes, *at_once(sizes, most, -(-sizes[0] // max(1, chunks))), channels, chunks)


def sights(sizes: Sequence[int]) -> np.ndarray:
    """(taps, positions): whether a tap sees a number of the image there, not padding."""
    along = [np.arange(sizes[6 + i])[:, None] * sizes[12 + i] + np.arange(sizes[14 + i]) * sizes[8 + i] - sizes[10 + i] for i in range(2)]
    down, across = [(places >= 0) & (places < size) for places, size in zip(along, sizes[2:4], strict=True)]
    return (down[:, None, :, None] & across[:, None, :]).reshape(sizes[6] * sizes[7], -1)


@lru_cache(4096)
def spares(sizes: Sequence[int], lines: int, columns: int) -> bool:
    """Whether an eighth of the work may be left out, where whole images are at once; for one output channel never, see is_single."""
    if (lines, columns) != tuple(sizes[14:16]) or is_single(sizes) or min(sizes[:8]) == 0:
        return False
    seen = sights(sizes)
    return 8 * int(seen.sum()) <= 7 * seen.size


def kinds_of(sizes: Sequence[int], plan: ListPlan, order: int) -> list[tuple[list[int], list[int]]]:
    """What is multiplied with each other: lists of taps and positions."""
    window, area = sizes[6] * sizes[7], plan.lines * plan.columns
    if not spares(sizes, plan.lines, plan.columns):
        return [(list(range(window)), list(range(area)))]
    seen = sights(sizes)[::order]
    if plan.chunks:
        return [([t], np.flatnonzero(row).tolist()) for t, row in enumerate(seen)]
    alike: dict[tuple[int, ...], list[int]] = {}
    for p in range(area):
        alike.setdefault(tuple(np.flatnonzero(seen[:, p]).tolist()), []).append(p)
    return [(list(taps), positions) for taps, positions in alike.items()]


@lru_cache(512)  # kilobytes for each
def lists(sizes: Sequence[int], plan: ListPlan, order: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where in a room each tap of each channel sees the first position, and how far from there each position of each image is seen, kind
    by kind; in the second half of both lists their numbers. Then of each kind the taps and positions before it, and its own. order: 1, or
    -1 for the last tap first."""
    plane = plan.down * plan.wide
    taps = [i * plan.apart * plan.wide + j * sizes[13] for i in range(sizes[6]) for j in range(sizes[7])][::order]
    positions = [r * plan.step * plan.wide + q * sizes[9] for r in range(plan.lines) for q in range(plan.columns)]
    sides = (taps, plan.channels, plane), (positions, plan.images, plan.channels * plane)
    wheres, numbers, kinds = ([], []), ([], []), []  # type: ignore[var-annotated]
    before = [0, 0]
    for kind in kinds_of(sizes, plan, order):
        for side, (places, many, apart) in enumerate(sides):
            each, turns = np.array(kind[side], np.int64), np.arange(many)[:, None]
            wheres[side].append((turns * apart + np.array(places, np.int64)[each]).reshape(-1))
            numbers[side].append((turns * len(places) + each).reshape(-1))
            kinds += [before[side], len(each)]
            before[side] += len(each)
    seen, at = [np.concatenate(own + more) for own, more in zip(wheres, numbers, strict=True)]
    return seen, at, np.array(kinds, np.int64)


@loop
def conv2d(part, y, space, x, panels, b, sizes, place, plan, taps, positions, kinds, has_bias):
    """y = w * x + b. Without has_bias, b isn't read. place: see turn_results. Items: block of images, group, band of lines, columns."""
    outs, most = sizes[4] // sizes[5], plan[0] * plan[1]
    bands = (sizes[14] + plan[0] - 1) // plan[0] * ((sizes[15] + plan[1] - 1) // plan[1])
    items, sorts = (sizes[0] + plan[2] - 1) // plan[2] * sizes[5] * bands, kinds.size > 4
    turned, room = rounded(plan[2] * most * outs), rounded(most * outs)
    first = turned if sorts else 0  # sums by kinds, before they are sorted
    for worker in tasks(part, plan[5]):
        sums = space[worker * plan[6] : (worker + 1) * plan[6]]
        own = sums[first:]
        fill_run(own[turned + room :], 0.0)  # the padding; what else is here changes
        for item in range(worker * items // plan[5], (worker + 1) * items // plan[5]):
            where = rectangle(sizes, plan, item)
            sum_taps(sums, own[turned + room :], x, panels, sizes, plan, taps, positions, kinds, where)
            if sorts:
                sort_positions(own, sums, plan, positions, kinds, outs, where[1])
            turn_results(y, own, own[turned:], b, sizes, place, where, has_bias)


def rectangle(sizes, plan, item):
    """First image, images, group, first line, lines, first column, columns."""
    across, bands = (sizes[15] + plan[1] - 1) // plan[1], (sizes[14] + plan[0] - 1) // plan[0]
    left, top, low = item % across * plan[1], item // across % bands * plan[0], item // (across * bands * sizes[5]) * plan[2]
    group, some = item // (across * bands) % sizes[5], min(plan[2], sizes[0] - low)
    return low, some, group, top, min(plan[0], sizes[14] - top), left, min(plan[1], sizes[15] - left)


def sum_taps(z, room, x, panels, sizes, plan, taps, positions, kinds, where):
    """z (positions by kinds, outs) = the sums over all input channels, some of them after the others."""
    low, some, group, top, lines, left, long = where
    each, outs, window = sizes[1] // sizes[5], sizes[4] // sizes[5], sizes[6] * sizes[7]
    for channel in range(0, max(1, each), plan[3]):
        count, at = min(plan[3], each - channel), (group * each + channel) * window * rounded(outs)
        put_room(room, x, sizes, plan, low, some, group * each + channel, count, top, left)
        for kind in range(0, kinds.size, 4):
            own, many, before = kinds[kind + 1], min(kinds[kind + 3], lines * long), kinds[kind + 2]
            seen, start = positions[plan[2] * before :], plan[3] * kinds[kind]
            inner, picks = taps[start:], taps[taps.size // 2 + start :]
            m, k, deep, to = some * many, count * own, count * window, some * before * outs
            gemm_picked(m, outs, k, room, 0, seen, inner, picks, panels, at, deep, channel > 0, z, to, outs)


def sort_positions(z, sums, plan, positions, kinds, outs, images):
    """z: the sums in the order of images, lines and columns."""
    for kind in range(0, kinds.size, 4):
        before, first = images * kinds[kind + 2], positions.size // 2 + plan[2] * kinds[kind + 2]
        for q in range(images * kinds[kind + 3]):
            to = positions[first + q] * outs
            copy_run(z[to : to + outs], sums[(before + q) * outs : (before + q + 1) * outs])


def put_room(room, x, sizes, plan, low, images, channel, channels, top, left):
    """What the windows at the positions from `top` and `left` on see of these images and channels; beside an image it is zero."""
    down, wide, line, first = plan[7], plan[8], top * sizes[8] - sizes[10], left * sizes[9] - sizes[11]
    start, end, whole = max(0, -first), min(wide, sizes[3] - first), plan[9] == sizes[12] and plan[10] == sizes[8]
    together = whole and wide == sizes[3] and first == 0 and line >= 0 and line + down <= sizes[2]  # as they lie
    for image in range(images):
        for c in range(channels):
            at, to = ((low + image) * sizes[1] + channel + c) * sizes[2], (image * plan[3] + c) * down * wide
            if together:
                copy_run(room[to : to + down * wide], x[(at + line) * wide : (at + line + down) * wide])
                continue
            for i in range(down):
                y = line + (i if whole else i // plan[0] * sizes[12] + i % plan[0] * sizes[8])
                own, inside = to + i * wide, 0 <= y < sizes[2] and start < end
                if not inside or plan[1] < sizes[15]:
                    fill_run(room[own : own + wide], 0.0)
                if inside:
                    copy_line(room, own + start, x, (at + y) * sizes[3] + first + start, 1, end - start)


def turn_results(y, z, turned, b, sizes, place, where, has_bias):
    """Results to where they belong, with their bias. place: lines and columns of y, its line and column of the first result, and how far
    apart results lie there."""
    low, images, group, top, lines, left, long = where
    outs, count, step = sizes[4] // sizes[5], lines * long, place[4] * place[1]
    for image in range(images):
        turn_matrix(count, outs, z, image * count * outs, outs, turned, 0, count)
        for r in range(outs):
            channel, own = group * outs + r, turned[r * count : (r + 1) * count]
            if has_bias:
                add_value(own, b[channel])
            at = (((low + image) * sizes[4] + channel) * place[0] + place[2] + top * place[4]) * place[1] + place[3] + left * place[5]
            if place[4] * place[5] == 1 and long == place[1]:
                copy_run(y[at : at + count], own)
                continue
            for line in range(lines):
                for q in range(np.uintp(long)):
                    y[np.uintp(at + line * step) + q * np.uintp(place[5])] = own[np.uintp(line * long) + q]


@loop
def pack_weights(part, panels, w, sizes, channels):
    """The panels of each group and block of input channels."""
    window, each, outs = sizes[6] * sizes[7], sizes[1] // sizes[5], sizes[4] // sizes[5]
    blocks = (each + channels - 1) // channels
    for task in tasks(part, sizes[5] * blocks):
        group, channel = task // blocks, task % blocks * channels
        deep, at = min(channels, each - channel) * window, (group * each + channel) * window * rounded(outs)
        pack_turned(panels, at, deep, 0, deep, w, (group * outs * each + channel) * window, each * window, outs)


@loop
def conv2d_dw(part, partial, sums, space, g, x, sizes, plan, taps, positions, kinds):
    """Each chunk of images' share of the gradients of w, as (groups, taps, outs), and of b. Items: chunk, group, block of channels."""
    outs, blocks = sizes[4] // sizes[5], max(1, (sizes[1] // sizes[5] + plan[3] - 1) // plan[3])
    items = plan[4] * sizes[5] * blocks
    for worker in tasks(part, plan[5]):
        own = space[worker * plan[6] : (worker + 1) * plan[6]]
        fill_run(own, 0.0)
        for item in range(worker * items // plan[5], (worker + 1) * items // plan[5]):
            piece, channel = item // blocks, item % blocks * plan[3]
            dw_chunk(partial, own, g, x, sizes, plan, taps, positions, kinds, piece, channel)
            if channel == 0:
                chunk, total = piece // sizes[5], sums[piece * outs : (piece + 1) * outs]
                fill_run(total, 0.0)
                for image in range(chunk * sizes[0] // plan[4], (chunk + 1) * sizes[0] // plan[4]):
                    add_planes(total, g, image * sizes[5] + piece % sizes[5], sizes[14] * sizes[15])


def dw_chunk(partial, own, g, x, sizes, plan, taps, positions, kinds, piece, channel):
    """The share of one (chunk, group) = `piece` in the gradient of the weights of a block of channels, into its place in `partial`."""
    each, outs, window, most = sizes[1] // sizes[5], sizes[4] // sizes[5], sizes[6] * sizes[7], plan[0] * plan[1]
    side = most * plan[2] * rounded(outs)
    chunk, group, count, room = piece // sizes[5], piece % sizes[5], min(plan[3], each - channel), own[side + rounded(outs * most) :]
    out, start, end = (piece * each + channel) * window * outs, chunk * sizes[0] // plan[4], (chunk + 1) * sizes[0] // plan[4]
    for low in range(start, end, plan[2]):
        for top in range(0, sizes[14], plan[0]):
            for left in range(0, sizes[15], plan[1]):
                some, lines, long = min(plan[2], end - low), min(plan[0], sizes[14] - top), min(plan[1], sizes[15] - left)
                put_room(room, x, sizes, plan, low, some, group * each + channel, count, top, left)
                pack_cotangents(own, side, g, sizes, low, some, group, top, left, lines * long)
                add = low > start or top + left > 0
                if is_single(sizes):
                    dots_picked(count * window, some * lines, long, room, taps, positions, own, add, partial, out)
                    continue
                for kind in range(0, kinds.size, 4):
                    first, tap, before = kinds[kind + 1], kinds[kind], plan[2] * kinds[kind + 2]
                    seen, inner, picks = taps[plan[3] * tap :], positions[before:], positions[positions.size // 2 + before :]
                    k, deep, ldc = some * min(kinds[kind + 3], lines * long), some * lines * long, window // max(1, first) * outs
                    gemm_picked(count * first, outs, k, room, 0, seen, inner, picks, own, 0, deep, add, partial, out + tap * outs, ldc)


def is_single(sizes):
    """One output channel would leave vectors empty; where windows move step by step along a line, positions can be the vectors."""
    return sizes[4] // sizes[5] * sizes[9] == 1


def pack_cotangents(panels, side, g, sizes, low, images, group, top, left, area):
    """Panels of the cotangents of `area` positions of each image, or for one output channel a line of them. Those of 16 bits are widened at
    `side` before."""
    outs, plane = sizes[4] // sizes[5], sizes[14] * sizes[15]
    for image in range(images):
        at = ((low + image) * sizes[4] + group * outs) * plane + top * sizes[15] + left
        if is_single(sizes):
            copy_run(panels[image * area : (image + 1) * area], g[at : at + area])
        elif g.itemsize > 2:
            pack_turned(panels, 0, images * area, image * area, area, g, at, plane, outs)
        else:
            for r in range(outs):
                copy_run(panels[side + r * area : side + (r + 1) * area], g[at + r * plane : at + r * plane + area])
            pack_turned(panels, 0, images * area, image * area, area, panels, side, area, outs)


@loop
def exchange(part, out, w, sizes, taps):
    """out (C, O / groups, some taps) = w (O, C / groups, taps): channels exchanged within each group."""
    window, each, outs = sizes[6] * sizes[7], sizes[1] // sizes[5], sizes[4] // sizes[5]
    blocks = (each + BLOCK - 1) // BLOCK
    for task in tasks(part, sizes[5] * blocks):
        group, first = task // blocks, task % blocks * BLOCK
        for o in range(outs):
            for c in range(first, min(each, first + BLOCK)):
                to, at = ((group * each + c) * outs + o) * taps.size, ((group * outs + o) * each + c) * window
                if taps.size == window:
                    copy_line(out, to, w, at, 1, window)
                    continue
                for t in range(taps.size):
                    out[to + t] = w[at + taps[t]]


# ---- how they are launched ----
def conv(go: Any, outs: Any, ins: Any, sizes: Any, work: int, place: Any = None) -> None:
    """place: see turn_results. Given, the weight has the last tap first."""
    (x, w, b), plan = ins, y_plan(sizes)
    panels = go.empty(sizes[1] * sizes[6] * sizes[7] * rounded(sizes[4] // sizes[5]))
    go(pack_weights, (panels,), (w,), (table(sizes), plan.channels))
    own, order = (place, -1) if place else ((*sizes[14:], 0, 0, 1, 1), 1)
    consts = table(sizes), table(own), table(plan), *lists(sizes, plan, order), b is not None
    go(conv2d, (*outs, go.empty(plan.workers * plan.space)), (x, panels, panels if b is None else b), consts, work=work)


@lru_cache(4096)
def kinds(sizes: Sequence[int]) -> list[tuple[Any, Any, Any]]:
    """The convolutions of the cotangents that are the gradient of x, one for each kind of pixel, which differ by the taps that reach them:
    geometry, taps, and where in dx (see turn_results). Pixels of one kind lie as far apart as windows; what no tap reaches has none."""
    n, c, h, w, o, groups, _, kw, sh, sw, _, _, _, _, rows, columns = sizes
    return [
        (
            (n, o, rows, columns, c, groups, len(i), len(j), 1, 1, down[0], across[0], down[1], across[1], down[2], across[2]),
            tuple([a * kw + b for a in i for b in j]),
            (h, w, down[3], across[3], sh, sw),
        )
        for i, down in kinds_along(sizes, 0)
        for j, across in kinds_along(sizes, 1)
    ]


def kinds_along(sizes: Sequence[int], axis: int) -> list[Any]:
    """The same along one axis: taps, and padding, distance of taps, number of pixels, the first of them."""
    size, (window, step, padding, gap) = sizes[2 + axis], sizes[6 + axis : 14 : 2]
    found, between = [], step // gcd(step, gap)
    for first in range(min(step, size)):
        taps = [t for t in range(window) if (first + padding - t * gap) % step == 0]
        if taps:
            found.append((taps, ((taps[-1] * gap - first - padding) // step, between * gap // step, -(-(size - first) // step), first)))
    return found


def conv_dw(go: Any, outs: Any, ins: Any, sizes: Any, work: int) -> None:
    plan = dw_plan(sizes)
    consts = table(sizes), table(plan), *lists(sizes, plan, 1)
    go(conv2d_dw, (*outs, go.empty(plan.workers * plan.space)), ins, consts, work=work)
