"""Pooling of images: a thread for each number of the result, in both directions.

Backward, a pixel looks at the windows that cover it, in order, and adds what they have for it: no atomics, the same bits in every run.

`sizes` is (planes, h, w, kh, kw, sh, sw, ph, pw, rows, columns).
"""

from __future__ import annotations

from ....core.words import INF, real
from ..loops.words import index
from ..products.tensor import divided
from ..runtime.family import blocks, kernel, launcher


def windows_at(i, size, steps, around, count):
    """(first, last + 1) of the windows that cover position i of an axis, of `count` ones."""
    first, _ = divided(max(i + around - size + steps, 0), steps)
    last, _ = divided(i + around, steps)
    return first, min(last + 1, count)


def seen(at, sizes):
    """What the window of result `at` sees: where its plane begins, its rows [top, bottom) and columns [left, right) inside the image."""
    rest, column = divided(at, sizes[10])
    plane, row = divided(rest, sizes[9])
    top, left = row * sizes[5] - sizes[7], column * sizes[6] - sizes[8]
    bottom, right = min(sizes[1], top + sizes[3]), min(sizes[2], left + sizes[4])
    return plane * sizes[1] * sizes[2], max(0, top), bottom, max(0, left), right


def covering(at, sizes):
    """Which windows cover pixel `at`: where those of its plane begin, their rows [r, last_r) and columns [first, last); the pixel's place
    in its plane."""
    rest, column = divided(at, sizes[2])
    plane, row = divided(rest, sizes[1])
    r, last_r = windows_at(row, sizes[3], sizes[5], sizes[7], sizes[9])
    first, last = windows_at(column, sizes[4], sizes[6], sizes[8], sizes[10])
    return plane * sizes[9] * sizes[10], r, last_r, first, last, row * sizes[2] + column


@kernel
def max_pool(y, positions, x, sizes):
    """The largest of each window, and its index in the plane. As in PyTorch, the last NaN wins."""
    at = index()
    if at < y.size:
        start, i, bottom, left, right = seen(at, sizes)
        best, place = real(-INF), i * sizes[2] + left
        while i < bottom:
            j = left
            while j < right:
                value = real(x[start + i * sizes[2] + j])
                if value > best or value != value:
                    best, place = value, i * sizes[2] + j
                j += 1
            i += 1
        y[at] = best
        positions[at] = place


@kernel
def max_pool_dx(dx, g, positions, sizes):
    """Each pixel adds up what the windows have that it won."""
    at = index()
    if at < dx.size:
        start, r, last_r, first, last, place = covering(at, sizes)
        total = real(0)
        while r < last_r:
            c = first
            while c < last:
                window = start + r * sizes[10] + c
                if positions[window] == place:
                    total += real(g[window])
                c += 1
            r += 1
        dx[at] = total


@kernel
def avg_pool(y, x, sizes, share):
    """The mean of each window; padding counts as zeros. A long window is added up line by line."""
    at = index()
    if at < y.size:
        start, i, bottom, left, right = seen(at, sizes)
        total = real(0)
        while i < bottom:
            line, j = real(0), left
            while j < right:
                line += real(x[start + i * sizes[2] + j])
                j += 1
            total += line
            i += 1
        y[at] = total * share


@kernel
def avg_pool_dx(dx, g, sizes, share):
    """Each pixel adds up its shares of the windows that cover it."""
    at = index()
    if at < dx.size:
        start, r, last_r, first, last, _ = covering(at, sizes)
        total = real(0)
        while r < last_r:
            c = first
            while c < last:
                total += real(g[start + r * sizes[10] + c])
                c += 1
            r += 1
        dx[at] = total * share


# ---- launchers: in a mean, a number counts for one of its window's ----
def launched(name, run, *share):
    """The launcher of that name."""

    @launcher(name=name)
    def launch(go, outs, ins, sizes):
        go(run, outs, ins, (sizes, *[go.dtype.type(one / (sizes[3] * sizes[4])) for one in share]), grid=blocks(outs[0].size))


launched("max_pool2d", max_pool)
launched("max_pool2d_dx", max_pool_dx)
launched("avg_pool2d", avg_pool, 1)
launched("avg_pool2d_dx", avg_pool_dx, 1)
