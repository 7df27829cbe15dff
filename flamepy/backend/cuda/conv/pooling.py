"""Pooling of images: a thread for each number of the result, in both directions.

Backward, a pixel looks at the windows that cover it, in order, and adds what they have for it: no atomics, the same bits in every run.

`sizes` is for means (planes, h, w, kh, kw, sh, sw, ph, pw, rows, columns), for maxima, of three axes each: planes; their lengths, windows,
steps, padding, dilation, how many windows.
"""

from ....core.words import real
from ..loops.words import index
from ..products.tensor import divided
from ..runtime.family import blocks, kernel, launcher


def windows_at(i, size, steps, around, count):
    """(first, last + 1) of the windows that cover position i of an axis, of `count` ones."""
    first, _ = divided(max(i + around - size + steps, 0), steps)
    last, _ = divided(i + around, steps)
    return first, min(last + 1, count)


def window_span(window, n, k, step, before, gap, count):
    """(first, end) of what a window sees of an axis. Step 0: windows share the axis as evenly as may be."""
    if step == 0:
        return divided(window * n, count)[0], divided((window + 1) * n + count - 1, count)[0]
    first = window * step - before
    end = min(n, first + (k - 1) * gap + 1)
    if first < 0:
        first += divided(gap - 1 - first, gap)[0] * gap
    return min(first, n - 1), end


def spans_over(place, n, k, step, before, gap, count):
    """(first, end) of the windows that may see a place of an axis."""
    if step == 0:
        return divided(place * count, n)[0], divided((place + 1) * count + n - 1, n)[0]
    return windows_at(place, (k - 1) * gap + 1, step, before, count)


@kernel
def max_pool(positions, y, x, sizes):
    """The largest of each window, and its index in the volume. As in PyTorch, the last NaN wins."""
    at = index()
    if at < sizes[0] * sizes[16] * sizes[17] * sizes[18]:
        rest, c = divided(at, sizes[18])
        rest, r = divided(rest, sizes[17])
        plane, z = divided(rest, sizes[16])
        front, back = window_span(z, sizes[1], sizes[4], sizes[7], sizes[10], sizes[13], sizes[16])
        top, bottom = window_span(r, sizes[2], sizes[5], sizes[8], sizes[11], sizes[14], sizes[17])
        left, right = window_span(c, sizes[3], sizes[6], sizes[9], sizes[12], sizes[15], sizes[18])
        start = plane * sizes[1] * sizes[2] * sizes[3]
        place = (front * sizes[2] + top) * sizes[3] + left
        best = x[start + place]
        while front < back:
            i = top
            while i < bottom:
                j = left
                while j < right:
                    here = (front * sizes[2] + i) * sizes[3] + j
                    value = x[start + here]
                    if value > best or value != value:
                        best, place = value, here
                    j += sizes[15]
                i += sizes[14]
            front += sizes[13]
        if y is not None:
            y[at] = best
        if positions is not None:
            positions[at] = place


@kernel
def max_pool_dx(dx, g, positions, sizes):
    """Each place adds up what the windows have that it won."""
    at = index()
    if at < dx.size:
        rest, column = divided(at, sizes[3])
        rest, row = divided(rest, sizes[2])
        plane, deep = divided(rest, sizes[1])
        z, last_z = spans_over(deep, sizes[1], sizes[4], sizes[7], sizes[10], sizes[13], sizes[16])
        r, last_r = spans_over(row, sizes[2], sizes[5], sizes[8], sizes[11], sizes[14], sizes[17])
        c, last_c = spans_over(column, sizes[3], sizes[6], sizes[9], sizes[12], sizes[15], sizes[18])
        place, total = (deep * sizes[2] + row) * sizes[3] + column, real(0)
        while z < last_z:
            i = r
            while i < last_r:
                j = c
                while j < last_c:
                    window = ((plane * sizes[16] + z) * sizes[17] + i) * sizes[18] + j
                    if positions[window] == place:
                        total += real(g[window])
                    j += 1
                i += 1
            z += 1
        dx[at] = total


@kernel
def avg_pool(y, x, sizes, share):
    """The mean of each window; padding counts as zeros. A long window is added up line by line."""
    at = index()
    if at < y.size:
        rest, column = divided(at, sizes[10])
        plane, row = divided(rest, sizes[9])
        top, left = row * sizes[5] - sizes[7], column * sizes[6] - sizes[8]
        bottom, right = min(sizes[1], top + sizes[3]), min(sizes[2], left + sizes[4])
        start, i, left, total = plane * sizes[1] * sizes[2], max(0, top), max(0, left), real(0)
        while i < bottom:
            line, j = real(0), left
            while j < right:
                line += real(x[start + i * sizes[2] + j])
                j += 1
            total += line
            i += 1
        y[at] = total * share


# ---- launchers ----
@launcher(name="avg_pool2d")
def avg_pool_launcher(go, outs, ins, sizes):
    go(avg_pool, outs, ins, (sizes, go.dtype.type(1 / (sizes[3] * sizes[4]))), grid=blocks(outs[0].size))


@launcher(name="max_pool")
def max_pool_launcher(go, outs, ins, sizes):
    go(max_pool, outs, ins, (sizes,), grid=blocks(outs[0].size))


@launcher(name="max_values")
def max_values_launcher(go, outs, ins, sizes):
    go(max_pool, (None, *outs), ins, (sizes,), grid=blocks(outs[0].size))


@launcher(name="max_pool_dx")
def max_pool_dx_launcher(go, outs, ins, sizes):
    go(max_pool_dx, outs, ins, (sizes,), grid=blocks(outs[0].size))
