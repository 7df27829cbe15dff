"""Images and volumes at the places of a grid: what counts for a place, and how much, is found once for all channels.

`sizes` (a table): images, channels, the lengths of three axes (an image's first is 1), places, axes of the grid, numbers that count along
an axis, what is outside (0: zeros, 1: the border, 2: a reflection), whether corners are aligned. `shares`: of each axis and each of four
numbers a polynomial of how far on the place is (ops/grids.py).
"""

import numpy as np

from ....core.words import abs as abs_word
from ....core.words import real, rint, select, sign
from ...formula.row_words import line_space
from ...formula.words import floor
from ..loops.runs import fill_run
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks

PLACES = 256  # of a grid, that one task looks up: line_space() holds all that count for them
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
    if each == 1:
        for i in range(np.uintp(out.size)):
            out[i] = seen(image, at[i]) * share[i]
    else:
        for i in range(np.uintp(out.size)):
            total = seen(image, at[i]) * share[i]
            for k in range(1, 4):
                total += seen(image, at[i + np.uintp(k * PLACES)]) * share[i + np.uintp(k * PLACES)]
            out[i] = total
    for k in range(4, each):
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
    room = share[:count], share[PLACES : PLACES + count], share[2 * PLACES : 2 * PLACES + count], share[3 * PLACES : 3 * PLACES + count]
    for a in range(axes):  # a place names the last axis first
        on, n = slice(4 * a * PLACES, (4 * a + 4) * PLACES), sizes[4 - a]
        along_axis(spots[on], parts[on], room, grid[a:], axes, n, taps, sizes[8], sizes[9] != 0, shares[20 * a : 20 * a + 20])
    for k in range(corners(sizes)):
        own, mine = at[k * PLACES : k * PLACES + count], share[k * PLACES : k * PLACES + count]
        one, two, three = k % taps * PLACES, (4 + k // taps % taps) * PLACES, (8 + k // (taps * taps)) * PLACES
        joined(own, mine, spots[one:], parts[one:], spots[two:], parts[two:], sizes[4])
        if axes == 3:
            joined_more(own, mine, spots[three:], parts[three:], sizes[3] * sizes[4])


def joined(at, share, spots, parts, others, factors, step):
    for i in range(at.size):
        at[i] = select((spots[i] < 0) | (others[i] < 0), -1, spots[i] + step * others[i])
        share[i] = parts[i] * factors[i]


def joined_more(at, share, spots, parts, step):
    for i in range(at.size):
        at[i] = select((at[i] < 0) | (spots[i] < 0), -1, at[i] + step * spots[i])
        share[i] *= parts[i]


def along_axis(spots, parts, room, grid, axes, n, taps, outside, align, shares):
    """Of an axis of n numbers those around each place. Of four they are brought inside, of fewer the place is; where shares have a slope
    it turns with a reflection, and is 0 at the border. One step after the other for all places: each of them vectorises."""
    first, on, turns = room[0], room[1], shares[4] != 0
    slope = room[2][: first.size if turns else 0]
    scale, shift, half = (real(n - 1) / 2.0, 0.0, 1.0) if align else (real(n), 1.0, 0.5)
    for i in range(np.uintp(first.size)):
        first[i] = ((grid[i * np.uintp(axes)] + 1.0) * scale - shift) * half
    fill_run(slope, 1.0)
    if taps < 4:
        bring_inside(first, slope, n, outside, align)
    for i in range(first.size):
        spot = rint(first[i]) if taps == 1 else floor(first[i])
        on[i] = 0.0 if taps == 1 else first[i] - spot
        first[i] = spot
    for k in range(taps):
        own, share, c = spots[k * PLACES : k * PLACES + first.size], parts[k * PLACES : k * PLACES + first.size], shares[5 * k : 5 * k + 5]
        if taps == 4:
            for i in range(share.size):
                share[i] = first[i] + real(k - 1)
            bring_inside(share, room[3][:0], n, outside, align)
            put_spots(own, share, 0.0, real(n - 1))
            put_cubic(share, on, c[0], c[1], c[2], c[3])
        else:
            put_spots(own, first, real(k), real(n - 1))
            for i in range(share.size):
                share[i] = c[0] + on[i] * c[1]
            for i in range(slope.size):
                share[i] *= slope[i]


def put_spots(spots, places, more, last):
    for i in range(spots.size):
        place = places[i] + more
        there = (place >= 0.0) & (place <= last)
        spots[i] = select(there, np.int64(np.int32(select(there, place, 0.0))), -1)


def put_cubic(out, on, a, b, c, d):
    for i in range(out.size):
        out[i] = a + on[i] * (b + on[i] * (c + on[i] * d))


def bring_inside(places, slopes, n, outside, align):
    """Bring places inside as the mode says, NaN to the first number; slopes: how fast they move there."""
    last, low, span = real(n - 1), 0.0 if align else -0.5, real(n - 1) if align else real(n)
    if outside == 2 and span == 0.0:
        fill_run(places, 0.0)
        fill_run(slopes, 0.0)
    elif outside == 2:
        for i in range(slopes.size):
            turns = floor(abs_word(places[i] - low) / span)
            slopes[i] = sign(places[i] - low) * select(floor(turns * 0.5) * 2.0 != turns, -1.0, 1.0)
        for i in range(places.size):
            away = abs_word(places[i] - low)
            turns = floor(away / span)
            rest, back = away - turns * span, floor(turns * 0.5) * 2.0 != turns
            places[i] = select(back, (span + low) - rest, rest + low)
    if outside > 0:
        for i in range(slopes.size):
            slopes[i] = select((places[i] > 0.0) & (places[i] < last), slopes[i], 0.0)
        for i in range(places.size):
            places[i] = select(places[i] > 0.0, select(places[i] > last, last, places[i]), 0.0)


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
