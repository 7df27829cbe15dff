"""Images and volumes at the places of a grid: what counts for a place, and how much, is found once for all channels.

`sizes` (a table): images, channels, the lengths of three axes (an image's first is 1), places, axes of the grid, numbers that count along
an axis, what is outside (0: zeros, 1: the border, 2: a reflection), whether corners are aligned. `shares`: of each axis and each of four
numbers a polynomial of how far on the place is (ops/grids.py).
"""

from __future__ import annotations

import numpy as np

from ....core.words import abs as abs_word
from ....core.words import real, rint, select, sign
from ...formula.row_words import line_space
from ...formula.words import floor
from ..loops.runs import copy_run, fill_run
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks

PLACES = 128  # of a grid, that one task looks up: line_space() holds all that count for them
CHANNELS = 8  # that one task writes the gradient of


@loop
def grid_sample(part, y, x, grid, shares, sizes):
    """y[n, c, p] = the sum of the numbers of x[n, c] around place p of grid n, times their shares."""
    channels, volume, places, blocks = sizes[1], sizes[2] * sizes[3] * sizes[4], sizes[5], (sizes[5] + PLACES - 1) // PLACES
    at, share, spots, parts = line_space(sizes), line_space(x), line_space(sizes), line_space(x)
    for t in tasks(part, sizes[0] * blocks):
        n, low = t // blocks, t % blocks * PLACES
        count = min(PLACES, places - low)
        look_up(at, share, spots, parts, grid[(n * places + low) * sizes[6] :], count, shares, sizes)
        for c in range(n * channels, (n + 1) * channels):
            sample(y[c * places + low : c * places + low + count], x[c * volume : (c + 1) * volume], at, share, corners(sizes))


def sample(out, image, at, share, each):
    if each < 4:
        fill_run(out, 0.0)
    else:
        for i in range(np.uintp(out.size)):
            total = seen(image, at[i]) * share[i]
            for k in range(1, 4):
                total += seen(image, at[i + np.uintp(k * PLACES)]) * share[i + np.uintp(k * PLACES)]
            out[i] = total
    for k in range(0 if each < 4 else 4, each):
        add_seen(out, image, at[k * PLACES :], share[k * PLACES :])


def add_seen(out, image, at, share):
    for i in range(out.size):
        out[i] += seen(image, at[i]) * share[i]


def seen(image, place):
    """The number at a place, 0 outside."""
    return select(place < 0, 0.0, image[np.uintp(max(place, 0))])


@loop
def grid_spread(part, y, x, grid, shares, sizes):
    """The reverse: each x[n, c, p] is added to the numbers of y[n, c] around its place, one corner of so many places after the other."""
    channels, volume, places, groups = sizes[1], sizes[2] * sizes[3] * sizes[4], sizes[5], (sizes[1] + CHANNELS - 1) // CHANNELS
    at, share, spots, parts = line_space(sizes), line_space(x), line_space(sizes), line_space(x)
    for t in tasks(part, sizes[0] * groups):
        n, first = t // groups, t // groups * channels + t % groups * CHANNELS
        end = min(first + CHANNELS, (n + 1) * channels)
        for c in range(first, end):
            fill_run(y[c * volume : (c + 1) * volume], 0.0)
        for low in range(0, places, PLACES):
            count = min(PLACES, places - low)
            look_up(at, share, spots, parts, grid[(n * places + low) * sizes[6] :], count, shares, sizes)
            for c in range(first, end):
                image, given = y[c * volume : (c + 1) * volume], x[c * places + low : c * places + low + count]
                for k in range(corners(sizes)):
                    spread(image, given, at[k * PLACES :], share[k * PLACES :])


def spread(image, x, at, share):
    for i in range(x.size):
        if at[i] >= 0:
            image[np.uintp(at[i])] += x[i] * share[i]


@loop
def grid_slopes(part, y, g, x, grid, shares, sizes, axis):
    """y[n, p, axis] = the sum over c of g[n, c, p] times what grid_sample() gives."""
    channels, volume, places, blocks, axes = sizes[1], sizes[2] * sizes[3] * sizes[4], sizes[5], (sizes[5] + PLACES - 1) // PLACES, sizes[6]
    at, share, spots, parts, found = line_space(sizes), line_space(x), line_space(sizes), line_space(x), line_space(x)
    for t in tasks(part, sizes[0] * blocks):
        n, low = t // blocks, t % blocks * PLACES
        count, first = min(PLACES, places - low), (n * places + low) * axes
        look_up(at, share, spots, parts, grid[first:], count, shares, sizes)
        total = found[PLACES : PLACES + count]
        fill_run(total, 0.0)
        for c in range(n * channels, (n + 1) * channels):
            sample(found[:count], x[c * volume : (c + 1) * volume], at, share, corners(sizes))
            add_products(total, found, g[c * places + low :])
        for i in range(count):
            y[first + i * axes + axis] = total[i]


def add_products(out, x, g):
    for i in range(out.size):
        out[i] += x[i] * g[i]


# ---- around a place ----
def corners(sizes):
    """How many numbers count for a place."""
    return sizes[7] ** sizes[6]


def look_up(at, share, spots, parts, grid, count, shares, sizes):
    """For each number that counts for so many places: where in the image it is (-1: outside), and its share. spots and parts have both for
    each axis by itself. PLACES apart: the four numbers of an axis, the corners."""
    axes, taps = sizes[6], sizes[7]
    for a in range(axes):  # a place names the last axis first
        on, n = slice(4 * a * PLACES, (4 * a + 4) * PLACES), sizes[4 - a]
        along_axis(spots[on], parts[on], grid[a:], count, n, axes, taps, sizes[8], sizes[9] != 0, shares[20 * a : 20 * a + 20])
    for k in range(corners(sizes)):
        own, mine, rest, step = at[k * PLACES : k * PLACES + count], share[k * PLACES : k * PLACES + count], k, 1
        for a in range(axes):
            tap = (4 * a + rest % taps) * PLACES
            if a == 0:
                copy_run(own, spots[tap:])
                copy_run(mine, parts[tap:])
            else:
                joined(own, mine, spots[tap:], parts[tap:], step)
            rest //= taps
            step *= sizes[4 - a]


def joined(at, share, spots, parts, step):
    for i in range(at.size):
        at[i] = select((at[i] < 0) | (spots[i] < 0), -1, at[i] + step * spots[i])
        share[i] *= parts[i]


def along_axis(spots, parts, grid, count, n, axes, taps, outside, align, shares):
    """Of an axis of n numbers those around each place. Of four they are brought inside, of fewer the place is; where shares have a slope
    it turns with a reflection, and is 0 at the border."""
    for i in range(count):
        place = grid[i * axes] + 1.0
        place = place * (real(n - 1) / 2.0) if align else (place * real(n) - 1.0) / 2.0
        slope = 1.0
        if taps < 4:
            place, slope = inside(place, n, outside, align)
        first = rint(place) if taps == 1 else floor(place)
        t = 0.0 if taps == 1 else place - first
        for k in range(taps):
            c, spot = 5 * k, first + real(k - taps // 4)
            spot = inside(spot, n, outside, align)[0] if taps == 4 else spot
            there = (spot >= 0.0) & (spot <= real(n - 1))
            spots[k * PLACES + i] = select(there, np.int64(select(there, spot, 0.0)), -1)
            share = shares[c] + t * (shares[c + 1] + t * (shares[c + 2] + t * shares[c + 3]))
            parts[k * PLACES + i] = share * slope if shares[c + 4] != 0 else share


def inside(place, n, outside, align):
    """(a place brought inside as the mode says, how fast it moves there)."""
    slope, last = 1.0, real(n - 1)
    if outside == 2:
        low, span = (0.0, last) if align else (-0.5, real(n))
        if span == 0.0:
            return place * 0.0, 0.0
        away = abs_word(place - low)
        turns = floor(away / span)
        rest, back = away - turns * span, floor(turns * 0.5) * 2.0 != turns
        slope = sign(place - low) * select(back, -1.0, 1.0)
        place = select(back, (span + low) - rest, rest + low)
    if outside > 0:
        slope = select((place > 0.0) & (place < last), slope, 0.0)
        place = select(place < 0.0, 0.0, select(place > last, last, place))
    return place, slope


# ---- launchers ----
@launcher(name="grid_sample")
def grid_sample_launcher(go, outs, ins, sizes):
    go(grid_sample, outs, ins, (table(sizes),), work=outs[0].size * corners(sizes))


@launcher(name="grid_spread")
def grid_spread_launcher(go, outs, ins, sizes):
    go(grid_spread, outs, ins, (table(sizes),), work=ins[0].size * corners(sizes))


@launcher(name="grid_slopes")
def grid_slopes_launcher(go, outs, ins, sizes, axis):
    go(grid_slopes, outs, ins, (table(sizes), axis), work=ins[0].size * corners(sizes))
