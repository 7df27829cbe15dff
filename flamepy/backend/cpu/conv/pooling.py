"""Pooling of images in (batch, channel, row, column) order: the largest number or the mean of each window, one plane after the other.

`sizes` (a table) holds the geometry: planes, h, w, the window's lines and columns, steps, padding, lines and columns of the result.
"""

from __future__ import annotations

import numpy as np

from ....core.words import INF, real
from ...formula.row_words import wide
from ..loops.runs import fill_run
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks

LINES = 8  # lines of a window added up in their own type


@loop
def max_pool2d(part, y, positions, x, sizes):
    """The largest of each window, and its index in the plane (int64). As in PyTorch, the last NaN wins."""
    h, w, kh, kw = sizes[1], sizes[2], sizes[3], sizes[4]
    down, across, up, before, rows, columns = sizes[5], sizes[6], sizes[7], sizes[8], sizes[9], sizes[10]
    for plane in tasks(part, sizes[0]):
        image = x[plane * h * w : (plane + 1) * h * w]
        for r in range(rows):
            low, high = max(0, r * down - up), min(h, r * down - up + kh)
            for c in range(columns):
                left, right = max(0, c * across - before), min(w, c * across - before + kw)
                at = largest(image, low, high, left, right, w)
                out = (plane * rows + r) * columns + c
                y[out] = image[at]
                positions[out] = at


def largest(image, low, high, left, right, w):
    """Where in the plane the largest number of these lines and columns is: the first one, or the last NaN. Two comparisons of each number
    would wait for each other, so NaN is looked for in the sum."""
    best, at, total = -INF, np.uintp(low * w + left), 0.0
    for i in range(low, high):
        line = np.uintp(i * w)
        for j in range(np.uintp(left), np.uintp(right)):
            value = image[line + j]
            total += value
            if value > best:
                best = value
                at = line + j
    if total != total:
        for i in range(low, high):
            for j in range(left, right):
                if image[i * w + j] != image[i * w + j]:
                    at = np.uintp(i * w + j)
    return at


@loop
def max_pool2d_dx(part, dx, g, positions, sizes):
    """Each cotangent goes to the pixel that won."""
    pixels, area = sizes[1] * sizes[2], sizes[9] * sizes[10]
    for plane in tasks(part, sizes[0]):
        image = dx[plane * pixels : (plane + 1) * pixels]
        fill_run(image, 0.0)
        for i in range(plane * area, (plane + 1) * area):
            image[positions[i]] += g[i]


def lines_sum(x, first, last, w, start, stop):
    """The sum of columns start to stop of the lines first to last."""
    total = 0.0
    for i in range(first, last):
        line = 0.0
        for j in range(start, stop):
            line += x[i * w + j]
        total += line
    return total


@loop
def avg_pool2d(part, y, x, sizes):
    """The mean of each window; padding counts as zeros."""
    h, w, kh, kw = sizes[1], sizes[2], sizes[3], sizes[4]
    share = 1.0 / real(kh * kw)
    for plane in tasks(part, sizes[0]):
        for r in range(sizes[9]):
            top = r * sizes[5] - sizes[7]
            for c in range(sizes[10]):
                left = c * sizes[6] - sizes[8]
                low, high = max(0, top), min(h, top + kh)
                start, stop = max(0, left), min(w, left + kw)
                total = lines_sum(x, plane * h + low, plane * h + min(low + LINES, high), w, start, stop)
                if high > low + LINES:
                    longer = wide(total)
                    for i in range(low + LINES, high, LINES):
                        longer += wide(lines_sum(x, plane * h + i, plane * h + min(i + LINES, high), w, start, stop))
                    total = real(longer)
                y[(plane * sizes[9] + r) * sizes[10] + c] = total * share


@loop
def avg_pool2d_dx(part, dx, g, sizes):
    """Each cotangent is shared out evenly over its window."""
    h, w, kh, kw = sizes[1], sizes[2], sizes[3], sizes[4]
    share = 1.0 / real(kh * kw)
    for plane in tasks(part, sizes[0]):
        image = dx[plane * h * w : (plane + 1) * h * w]
        fill_run(image, 0.0)
        for r in range(sizes[9]):
            top = r * sizes[5] - sizes[7]
            for c in range(sizes[10]):
                left = c * sizes[6] - sizes[8]
                part = g[(plane * sizes[9] + r) * sizes[10] + c] * share
                for i in range(max(0, top), min(h, top + kh)):
                    for j in range(max(0, left), min(w, left + kw)):
                        image[i * w + j] += part


# ---- launchers ----
@launcher(name="max_pool2d")
def max_pool_launcher(go, outs, ins, sizes):
    go(max_pool2d, outs, ins, (table(sizes),), work=outs[0].size * sizes[3] * sizes[4])


@launcher(name="max_pool2d_dx")
def max_pool_dx_launcher(go, outs, ins, sizes):
    go(max_pool2d_dx, outs, ins, (table(sizes),))


@launcher(name="avg_pool2d")
def avg_pool_launcher(go, outs, ins, sizes):
    go(avg_pool2d, outs, ins, (table(sizes),), work=outs[0].size * sizes[3] * sizes[4])


@launcher(name="avg_pool2d_dx")
def avg_pool_dx_launcher(go, outs, ins, sizes):
    go(avg_pool2d_dx, outs, ins, (table(sizes),), work=ins[0].size * sizes[3] * sizes[4])
