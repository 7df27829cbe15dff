"""Pooling: the largest number of each window of lines, images or volumes, the mean of those of images, one plane after the other.

`sizes` (a table) holds the geometry. For means: planes, h, w, the window's lines and columns, steps, padding, lines and columns of the
result. For maxima, of three axes each: planes; their lengths, windows, steps, padding, dilation, how many windows.
"""

import math

import numpy as np

from ....core.words import select
from ....dtypes import HALF
from ..loops.maps import F
from ..loops.runs import copy_run, fill_run
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks

WINDOWS = 4096  # windows of a line that one task looks at


@loop
def max_pool(part, positions, y, x, sizes):
    """The largest of each window, unless y is None, and its index in the volume (int64). As in PyTorch, the last NaN wins."""
    volume, deep, rows, columns = sizes[1] * sizes[2] * sizes[3], sizes[16], sizes[17], sizes[18]
    for item in tasks(part, sizes[0] * deep):
        image = x[item // deep * volume : (item // deep + 1) * volume]
        front, back = seen(item % deep, sizes, 0)
        out = item * rows * columns
        for r in range(rows):
            top, bottom = seen(r, sizes, 1)
            for c in range(columns):
                left, right = seen(c, sizes, 2)
                at = largest(image, front, back, top, bottom, left, right, sizes)
                if y is not None:
                    y[out] = image[at]
                positions[out] = at
                out += 1


@loop
def along_axis(part, y, x, sizes, axis, inner, scale):
    """F of each window along one axis, whose numbers are `inner` apart, times scale. With larger() a window's first number of the largest
    wins, or the last NaN: along one axis after the other, the last axis first, that is what max_pool() finds."""
    n, k, step, before, gap, count = sizes[1 + axis], sizes[4 + axis], sizes[7 + axis], sizes[10 + axis], sizes[13 + axis], sizes[16 + axis]
    if inner > 1:
        for t in tasks(part, y.size // inner):
            first, end = seen(t % count, sizes, axis)
            line, start = y[t * inner : t * inner + inner], t // count * n
            copy_run(line, x[(start + first) * inner : (start + first + 1) * inner])
            for i in range(start + first + gap, start + end, gap):
                more_run(line, x[i * inner : i * inner + inner])
            scale_run(line, scale)
    else:
        low = (before + step - 1) // max(step, 1)
        high = max(low, min(count, (n - (k - 1) * gap - 1 + before) // step + 1)) if step else low  # these see no padding
        blocks = (count + WINDOWS - 1) // WINDOWS
        for t in tasks(part, y.size // count * blocks):
            o, begin = t // blocks, t % blocks * WINDOWS
            line, image, end = y[o * count : o * count + count], x[o * n : o * n + n], min(count, begin + WINDOWS)
            start, stop = min(max(begin, low), high), min(end, high)
            for c in range(begin, min(low, end)):
                line[c] = one_window(image, seen(c, sizes, axis), gap)
            if start < stop:
                whole_windows(line[start:stop], image[start * step - before :], k, step, gap)
            for c in range(max(begin, high), end):
                line[c] = one_window(image, seen(c, sizes, axis), gap)
            scale_run(line[begin:end], scale)


def larger(best, value):
    return select((value > best) | (value != value), value, best)


def added(total, value):
    return total + value


def scale_run(line, scale):
    if scale != 1:
        for j in range(line.size):
            line[j] *= scale


def more_run(out, x):
    for j in range(out.size):
        out[j] = F(out[j], x[j])


def one_window(image, span, gap):
    """Four parts of a long one side by side: each waits for itself alone."""
    first, end = span
    best, rest, apart = image[first], first + gap, np.uintp(end - first) // np.uintp(4)
    if gap == 1 and apart > 3:
        at, rest = np.uintp(first), first + 4 * np.intp(apart)
        b, c, d = image[at + apart], image[at + apart + apart], image[at + apart + apart + apart]
        for i in range(at + np.uintp(1), at + apart):
            best, b = F(best, image[i]), F(b, image[i + apart])
            c, d = F(c, image[i + apart + apart]), F(d, image[i + apart + apart + apart])
        best = F(F(best, b), F(c, d))
    for i in range(rest, end, gap):
        best = F(best, image[i])
    return best


def whole_windows(out, x, k, step, gap):
    """out[c] = F of x[c * step + t * gap] for t < k: all windows at once, the first taps together, then tap by tap."""
    together = step if 1 < step <= min(k, 8) and gap == 1 else 1
    if step == 1 and k > 1:
        together = 2
        first_two(out, x, x[gap:])
    elif together == 2:
        first_taps(out, x, 2)
    elif together == 3:
        first_taps(out, x, 3)
    elif together == 4:
        first_taps(out, x, 4)
    elif together == 5:
        first_taps(out, x, 5)
    elif together == 6:
        first_taps(out, x, 6)
    elif together == 7:
        first_taps(out, x, 7)
    elif together == 8:
        first_taps(out, x, 8)
    else:
        for c in range(np.uintp(out.size)):
            out[c] = x[c * np.uintp(step)]
    for t in range(together, k):
        further_tap(out, x[t * gap :], step)


def first_two(out, x, y):
    for c in range(out.size):
        out[c] = F(x[c], y[c])


def first_taps(out, x, step):
    """The taps of a step that is written as a number: then the loop vectorises."""
    for c in range(np.uintp(out.size)):
        i = c * np.uintp(step)
        best = F(x[i], x[i + np.uintp(1)])
        for tap in range(2, step):
            best = F(best, x[i + np.uintp(tap)])
        out[c] = best


def further_tap(out, x, step):
    if step == 1:
        more_run(out, x)
    elif step == 2:
        for c in range(np.uintp(out.size)):
            out[c] = F(out[c], x[c + c])
    else:
        for c in range(np.uintp(out.size)):
            out[c] = F(out[c], x[c * np.uintp(step)])


def seen(window, sizes, axis):
    """(first, end) of what a window sees of an axis: `sizes` hold its length, window, step, padding, dilation, number of windows. Step 0:
    windows share the axis as evenly as may be."""
    n, step, gap = sizes[1 + axis], sizes[7 + axis], sizes[13 + axis]
    if step == 0:
        return window * n // sizes[16 + axis], ((window + 1) * n + sizes[16 + axis] - 1) // sizes[16 + axis]
    first = window * step - sizes[10 + axis]
    end = min(n, first + (sizes[4 + axis] - 1) * gap + 1)
    if first < 0:
        first += (gap - 1 - first) // gap * gap
    return min(first, n - 1), end


def largest(image, front, back, top, bottom, left, right, sizes):
    """Where in the volume the largest number of a window is: the first one, or the last NaN. Two comparisons of each number would wait for
    each other, so NaN is looked for in the sum."""
    h, w = sizes[2], sizes[3]
    far, down, across = sizes[13], sizes[14], np.uintp(sizes[15])
    at = np.uintp((front * h + top) * w + left)
    best, total = image[at], image[at]
    z = front
    while z < back:
        i = top
        while i < bottom:
            j, end = np.uintp((z * h + i) * w + left), np.uintp((z * h + i) * w + right)
            while j < end:
                value = image[j]
                total += value
                if value > best:
                    best = value
                    at = j
                j += across
            i += down
        z += far
    if total != total:
        for z in range(front, back, far):
            for i in range(top, bottom, down):
                for j in range(left, right, across):
                    place = np.uintp((z * h + i) * w + j)
                    if image[place] != image[place]:
                        at = place
    return at


@loop(launched=True, table=table)
def max_pool_dx(part, dx, g, positions, sizes):
    """Each cotangent goes to the place that won."""
    volume, each = sizes[1] * sizes[2] * sizes[3], sizes[16] * sizes[17] * sizes[18]
    for plane in tasks(part, sizes[0]):
        image = dx[plane * volume : (plane + 1) * volume]
        fill_run(image, 0.0)
        for i in range(plane * each, (plane + 1) * each):
            image[positions[i]] += g[i]


# ---- launchers ----
@launcher(name="max_pool")
def max_pool_launcher(go, outs, ins, sizes):
    go(max_pool, outs, ins, (table(sizes),), work=outs[0].size * sizes[4] * sizes[5] * sizes[6])


@launcher(name="max_values")
def max_values_launcher(go, outs, ins, sizes):
    by_axes(go, outs, ins, sizes, (2, 1, 0), larger, 1)


def by_axes(go, outs, ins, sizes, order, formula, scale):
    """Along one axis after the other. Neighbouring lines that windows share out evenly are one."""
    (y,), (x,), shape = outs, ins, [*sizes[:4]]
    moving = [a for a in order if sizes[4 + a] > 1 or sizes[16 + a] != sizes[1 + a]] or [2]
    for axis in moving:
        shape[1 + axis], own, last = sizes[16 + axis], [*sizes], axis == moving[-1]
        inner, size = math.prod(shape[2 + axis :]), math.prod(shape)
        n, k, step, before, gap, count = sizes[1 + axis :: 3]
        if inner == 1 and n == count * step and k <= step and gap == 1 and before == 0:
            own[1 + axis], own[16 + axis] = size // count * n, size
        out = y if last else go.empty(size, y.dtype)
        go(along_axis, (out,), (x,), (table(tuple(own)), axis, inner, go.dtype.type(scale if last else 1)), work=x.size, formula=formula)
        x = out


@launcher(name="avg_pool2d")
def avg_pool_launcher(go, outs, ins, sizes):
    planes, h, w, kh, kw, *moves, oh, ow = sizes
    volumes = (planes, 1, h, w, 1, kh, kw, 1, *moves[:2], 0, *moves[2:], 1, 1, 1, 1, oh, ow)
    y = outs[0] if outs[0].dtype not in HALF else go.empty(outs[0].size)
    by_axes(go, (y,), ins, volumes, (1, 2), added, 1.0 / (kh * kw))
    if y is not outs[0]:
        go.device.copy(outs[0], y)  # rounded once
