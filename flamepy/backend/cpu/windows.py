"""The windows of images as columns: im2col lays out what each tap of a window sees, col2im adds columns back to the pixels.

Both work on the channels of one image, `width` output positions from `first`; a row of `col` is one tap of one channel, `ld` numbers after
the last. Numbers are moved, or where the arrays' types differ converted. `sizes` is the table that conv.py's loops get.

Which positions of a line see a pixel is found before it: then its loops are copies without a test. They index with unsigned numbers: only
then does no index need a check for a negative value, and a loop vectorises. What one needs of `sizes` is read before it: the compiler can't
know that writing a pixel leaves `sizes` as it is.

Read next: bfloat_conv.py.
"""

from __future__ import annotations

import numpy as np

from .loops import same
from .moves import add_eight, move_run
from .runs import long_sum_run

EIGHT = np.uintp(8)


def im2col(col, ld, x, sizes, channels, first, width):
    """col (channels * kh * kw, width): what each tap of the window sees."""
    over_lines(put_line, col, ld, x, sizes, channels, first, width)


def col2im(x, col, ld, sizes, channels, first, width):
    """The reverse: add each number of col to the pixel it came from."""
    over_lines(add_line, col, ld, x, sizes, channels, first, width)


def over_lines(do, col, ld, x, sizes, channels, first, width):
    """do(), put_line() or add_line(), for one line of positions after the other."""
    h, w, kh, kw, step, columns = sizes[2], sizes[3], sizes[6], sizes[7], sizes[9], sizes[15]
    top = first // columns * sizes[8] - sizes[10]
    for r in range(channels * kh * kw):
        y = top + r // kw % kh * sizes[12]
        left = r % kw * sizes[13] - sizes[11]
        low, high = before(left, step, 0), before(left, step, w)
        start = first % columns
        done = 0
        while done < width:
            run = min(columns - start, width - done)
            begin, end = limits(low, high, start, run, y, h)
            line = (r // (kh * kw) * h + y) * w + left + (start + begin) * step
            do(col, r * ld + done, run, x, line, step, begin, end)
            done += run
            start = 0
            y += sizes[8]


def before(left, step, column):
    """How many positions of a line see something left of this column, the first one `left`."""
    return max(0, (column - left + step - 1) // step)


def limits(low, high, start, run, y, h):
    """Of `run` positions from `start`, the first that sees a pixel of the image and the one after the last; low, high: of the line."""
    begin, end = min(max(low - start, 0), run), min(max(high - start, 0), run)
    return begin, end if 0 <= y < h and begin < end else begin


def put_line(col, at, run, x, line, step, begin, end):
    """Zeros, then pixels, then zeros."""
    out = np.uintp(at)
    for t in range(np.uintp(begin)):
        col[out + t] = 0.0
    take(col, np.uintp(at + begin), x, np.uintp(line), np.uintp(step), np.uintp(end - begin))
    for t in range(np.uintp(end), np.uintp(run)):
        col[out + t] = 0.0


def take(col, out, x, line, step, count):
    if step != 1:
        for t in range(count):
            col[out + t] = x[line + t * step]
    elif col.itemsize == x.itemsize:
        move_run(col, out, x, line, count)
    else:
        for t in range(count):
            col[out + t] = x[line + t]


def add_line(col, at, run, x, line, step, begin, end):
    """The pixels, from `begin` to `end`."""
    add(x, np.uintp(line), col, np.uintp(at + begin), np.uintp(step), np.uintp(end - begin))


def add(x, line, col, source, step, count):
    done = np.uintp(0)
    while step == 1 and done + EIGHT <= count:
        add_eight(x, line + done, col, source + done)
        done += EIGHT
    for t in range(done, count):
        x[line + t * step] += col[source + t]


def add_planes(total, g, first, area):
    """total[r] += the sum of g's plane first * total.size + r."""
    for r in range(total.size):
        at = (first * total.size + r) * area
        total[r] += long_sum_run(g[at : at + area], same)
