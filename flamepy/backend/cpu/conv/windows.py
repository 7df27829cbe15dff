"""The windows of images as columns: im2col lays out what each tap of a window sees, col2im adds columns back to the pixels.

Both work on the channels of one image, `width` output positions from `first`; a row of `col` is one tap of one channel, `ld` numbers after
the last. Numbers are moved, or where the arrays' types differ converted. `sizes` is the table that conv.py's launchers make.

Between the image and the columns stands `room`: the lines of one channel that these positions see, with their padding. There every tap
sees lines of one length, at one distance: short loops without a test. Its numbers are converted once, not once for each tap. Its size is
room_size() (bf16/conv.py).

put_columns() and what follows it work on positions of neighbouring images, counted through them, from `first` of image `low` on.
"""

import numpy as np

from ..loops.maps import same
from ..loops.moves import add_vector, copy_vector
from ..loops.runs import add_value, copy_run, fill_run, long_sum_run


def seen(sizes, first, width):
    """What these positions see: from which line of the image on (below 0: of the padding), over how many lines, in how many lines of the
    room, and how many of these lie between two taps and between two lines of positions. Windows with wide gaps see few of the lines: then
    the room has those that each tap sees, one tap after the other."""
    begin, last = first // sizes[15], (first + width - 1) // sizes[15]
    top, count = begin * sizes[8] - sizes[10], last - begin + 1
    span = (count - 1) * sizes[8] + (sizes[6] - 1) * sizes[12] + 1
    if count * sizes[6] < span:
        return top, span, count * sizes[6], count, 1
    return top, span, span, sizes[12], sizes[8]


def line_of(sizes, top, line, span, lines, down):
    """Which line of the image a room's line is."""
    return top + line if lines == span else top + line // down * sizes[12] + line % down * sizes[8]


def put_image(room, x, c, sizes, top, span, lines, down):
    """A room's lines of channel c; what is padding stays as it is."""
    for line in range(lines):
        y = line_of(sizes, top, line, span, lines, down)
        if 0 <= y < sizes[2]:
            copy_line(room, line * (sizes[3] + 2 * sizes[11]) + sizes[11], x, (c * sizes[2] + y) * sizes[3], 1, sizes[3])


def im2col(col, ld, room, x, sizes, channels, first, width):
    """col (channels * kh * kw, width): what each tap of the window sees."""
    taps, wide = sizes[6] * sizes[7], sizes[3] + 2 * sizes[11]
    top, span, lines, down, apart = seen(sizes, first, width)
    start, head, whole = cut(sizes, first, width)
    next_line = wide * apart if head > 0 else 0
    fill_run(room[: lines * wide], 0.0)  # the padding; what else is here changes with the channel
    for c in range(channels):
        put_image(room, x, c, sizes, top, span, lines, down)
        to, rest = c * taps * ld, head + whole * sizes[15]
        put_taps(col, to, ld, room, start, down, apart, sizes, 1, head)
        put_taps(col, to + head, ld, room, next_line, down, apart, sizes, whole, sizes[15])
        put_taps(col, to + rest, ld, room, next_line + whole * wide * apart, down, apart, sizes, 1, width - rest)


def col2im(x, col, ld, room, sizes, channels, first, width, fresh):
    """The reverse: add each number of col to the pixel it came from. Lines of the image from `fresh` on have no value yet: what comes first
    is stored. Returns the end of the lines that have one."""
    taps, wide = sizes[6] * sizes[7], sizes[3] + 2 * sizes[11]
    top, span, lines, down, apart = seen(sizes, first, width)
    start, head, whole = cut(sizes, first, width)
    next_line = wide * apart if head > 0 else 0
    end = min(max(0, top + span), sizes[2])
    zero_lines(x, sizes, channels, fresh, min(max(0, top), sizes[2]) if lines == span else end)
    for c in range(channels):
        fill_run(room[: lines * wide], 0.0)
        source, rest = c * taps * ld, head + whole * sizes[15]
        add_taps(room, start, down, apart, col, source, ld, sizes, 1, head)
        add_taps(room, next_line, down, apart, col, source + head, ld, sizes, whole, sizes[15])
        add_taps(room, next_line + whole * wide * apart, down, apart, col, source + rest, ld, sizes, 1, width - rest)
        for line in range(lines):
            y = line_of(sizes, top, line, span, lines, down)
            if 0 <= y < sizes[2]:
                if y < fresh or lines != span:
                    add_line(x, (c * sizes[2] + y) * sizes[3], 1, room, line * wide + sizes[11], sizes[3])
                else:
                    copy_line(x, (c * sizes[2] + y) * sizes[3], room, line * wide + sizes[11], 1, sizes[3])
    return max(fresh, end)


def zero_lines(x, sizes, channels, start, end):
    """Lines of each channel that no window sees."""
    for c in range(channels if start < end else 0):
        fill_run(x[(c * sizes[2] + start) * sizes[3] : (c * sizes[2] + end) * sizes[3]], 0.0)


def cut(sizes, first, width):
    """How positions are cut: the end of a line that they begin within, whole lines, and the rest of a line. Returns where in the room the
    first tap sees the first position, how many positions that end of a line has, and the number of whole lines."""
    start = first % sizes[15]
    head = min(sizes[15] - start, width) if start > 0 else 0
    return start * sizes[9], head, (width - head) // sizes[15]


def put_taps(col, to, ld, room, at, down, apart, sizes, lines, count):
    """What each tap sees of `lines` lines of `count` positions, the first tap from room[at] on. down, apart: see seen()."""
    kw, step, across, columns, wide = sizes[7], sizes[9], sizes[13], sizes[15], sizes[3] + 2 * sizes[11]
    apart, down = wide * apart, wide * down
    for i in range(sizes[6]):
        for j in range(kw):
            place, source = to + (i * kw + j) * ld, at + i * down + j * across
            for line in range(lines):
                copy_line(col, place + line * columns, room, source + line * apart, step, count)


def add_taps(room, at, down, apart, col, source, ld, sizes, lines, count):
    """The reverse."""
    kw, step, across, columns, wide = sizes[7], sizes[9], sizes[13], sizes[15], sizes[3] + 2 * sizes[11]
    apart, down = wide * apart, wide * down
    for i in range(sizes[6]):
        for j in range(kw):
            place, own = at + i * down + j * across, source + (i * kw + j) * ld
            for line in range(lines):
                add_line(room, place + line * apart, step, col, own + line * columns, count)


def copy_line(out, to, x, at, step, count):
    """out = `count` numbers of x, which lie `step` apart. Short lines too are moved as vectors: the last overlaps the one before."""
    if step != 1 or out.itemsize != x.itemsize or count < 4:
        for t in range(np.uintp(max(0, count))):
            out[np.uintp(to) + t] = x[np.uintp(at) + t * np.uintp(step)]
    elif count >= 16:
        for t in range(0, count - 16, 16):
            copy_vector(out, to + t, x, at + t, 16)
        copy_vector(out, to + count - 16, x, at + count - 16, 16)
    elif count >= 8:
        copy_vector(out, to, x, at, 8)
        copy_vector(out, to + count - 8, x, at + count - 8, 8)
    else:
        copy_vector(out, to, x, at, 4)
        copy_vector(out, to + count - 4, x, at + count - 4, 4)


def add_line(out, to, step, x, at, count):
    """Numbers of `out`, which lie `step` apart, += `count` numbers of x."""
    done = 0
    if step == 1:
        for t in range(0, count - 15, 16):
            add_vector(out, to + t, x, at + t, 16)
        done = count // 16 * 16
        if count & 8:
            add_vector(out, to + done, x, at + done, 8)
            done += 8
        if count & 4:
            add_vector(out, to + done, x, at + done, 4)
            done += 4
    for t in range(np.uintp(done), np.uintp(max(0, count))):
        out[np.uintp(to) + t * np.uintp(step)] += x[np.uintp(at) + t]


def add_planes(total, g, first, area):
    """total[r] += the sum of g's plane first * total.size + r."""
    for r in range(total.size):
        at = (first * total.size + r) * area
        total[r] += long_sum_run(g[at : at + area], same)


# ---- positions of neighbouring images -----
def put_columns(col, own, ld, room, x, sizes, low, channel, channels, first, width):
    """What the windows at `width` positions see of these channels."""
    pixels, area = sizes[2] * sizes[3], sizes[14] * sizes[15]
    done = 0
    while done < width:
        number, at = low + (first + done) // area, (first + done) % area
        run, x_at = min(area - at, width - done), (number * sizes[1] + channel) * pixels
        im2col(col[own + done :], ld, room, x[x_at : x_at + channels * pixels], sizes, channels, at, run)
        done += run


def add_windows(dx, col, own, ld, room, sizes, low, channel, channels, first, width, fresh):
    """The reverse. `fresh`, 0 at first and then what came back: see col2im."""
    pixels, area = sizes[2] * sizes[3], sizes[14] * sizes[15]
    done = 0
    while done < width:
        number, at = low + (first + done) // area, (first + done) % area
        run, x_at = min(area - at, width - done), (number * sizes[1] + channel) * pixels
        image = dx[x_at : x_at + channels * pixels]
        fresh = col2im(image, col[own + done :], ld, room, sizes, channels, at, run, fresh)
        if at + run == area:
            zero_lines(image, sizes, channels, fresh, sizes[2])
            fresh = 0
        done += run
    return fresh


def put_cotangents(out, own, ld, g, sizes, low, channel, channels, first, width):
    """Cotangents of these output channels, in the type of `out`."""
    area = sizes[14] * sizes[15]
    done = 0
    while done < width:
        number, at = low + (first + done) // area, (first + done) % area
        run, g_at = min(area - at, width - done), (number * sizes[4] + channel) * area + at
        for r in range(channels):
            to = own + r * ld + done
            copy_run(out[to : to + run], g[g_at + r * area : g_at + r * area + run])
        done += run


def put_results(y, z, own, ld, b, sizes, low, channel, channels, first, width, has_bias):
    """Results of these output channels, with their bias, rounded to the type of y."""
    area = sizes[14] * sizes[15]
    for r in range(channels if has_bias else 0):
        add_value(z[own + r * ld : own + r * ld + width], b[channel + r])
    done = 0
    while done < width:
        number, at = low + (first + done) // area, (first + done) % area
        run, y_at = min(area - at, width - done), (number * sizes[4] + channel) * area + at
        for r in range(channels):
            from_z = own + r * ld + done
            copy_run(y[y_at + r * area : y_at + r * area + run], z[from_z : from_z + run])
        done += run
