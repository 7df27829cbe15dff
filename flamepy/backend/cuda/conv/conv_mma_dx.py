"""The gradient of a convolution's input on the tensor cores: forward convolutions of g with the window turned, one for each phase.

Where windows step by s, the same taps of a window, n, n + s, ..., see pixels p, p + s, p + 2 s, ... of the image, a phase: there dx is a
convolution that steps by 1, with these taps alone. Where taps lie d apart, those of a phase are s / gcd(s, d) taps apart; phases that no
tap reaches are zeros. Blocks of the same pixels but for the phase run together, so that what they write between each other's numbers meets
in the second cache.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from ..attention.tensor_cores import THREADS_OF
from ..loops.maps import fill_launcher
from ..loops.words import block, index
from ..products.tensor import divided, shared
from ..products.tile_words import short
from ..products.tiles import sized
from ..runtime.family import blocks, kernel
from .tensor_cores import BYTES, COLS, ROWS, own_column, put_pixels, sizes_of, window_sums


# ---- phases ------------------------------------------------------------------------------------------------------------------------
def taps_of(n, k, apart):
    """(how many of k taps are n, n + apart, ..., how many belong to a smaller n)."""
    whole, over = divided(k, apart)
    return (whole + 1 if n < over else whole), n * whole + min(n, over)


def phase_of(n, size, steps):
    """(the first of `size` pixels that taps n, n + apart, ... reach, how many they reach, how far before its own place the first looks)."""
    stride, _, dilation, lift, up = steps
    back, first = divided(n * dilation + lift, stride)
    return first, divided(size - first + stride - 1, stride)[0], back - up


@kernel
def turn_weight(turned, w, each, outs, kh, kw, down, across):
    """w (groups, outs, each, kh, kw) by phases, each (groups, each, outs, its taps). down, across: how far a phase's taps are apart."""
    i = index()
    if i < w.size:
        pair, tap = divided(i, kh * kw)
        rest, channel = divided(pair, each)
        group, out = divided(rest, outs)
        i_tap, j_tap = divided(tap, kw)
        (row, n), (column, m) = divided(i_tap, down), divided(j_tap, across)
        (tall, above), (wide, before) = taps_of(n, kh, down), taps_of(m, kw, across)
        first = (above * kw + tall * before) * divided(w.size, kh * kw)[0]
        turned[first + ((group * each + channel) * outs + out) * (tall * wide) + row * wide + column] = w[i]


# ---- dx ----------------------------------------------------------------------------------------------------------------------------
@kernel(threads=THREADS_OF, together=2)
def conv2d_dx_mma(dx, g, w, sizes, each, outs, down, across, phases, phases_across, tiles, tiles_across):
    """A block: ROWS channels of dx at COLS pixels of one phase. sizes: of the convolution of g, dx its result."""
    rest, tile = divided(block(), tiles)
    rest, phase = divided(rest, phases)
    group, part = divided(rest, tiles_across)
    n, m = divided(phase, phases_across)
    (tall, above), (wide, before) = taps_of(n, sizes[6], down[1]), taps_of(m, sizes[7], across[1])
    (top, rows, up), (beside, columns, left) = phase_of(n, sizes[14], down), phase_of(m, sizes[15], across)
    total, plane = sizes[0] * rows * columns, sizes[14] * sizes[15]
    if part * COLS >= total:
        return
    room, own = short(shared(BYTES)), short(tile * ROWS)
    at = (above * sizes[7] + tall * before) * (sizes[4] * each) + (group * outs + own) * (each * tall * wide)
    seen = (*sizes[:6], tall, wide, 1, 1, up, left, sizes[12], sizes[13], rows, columns)
    acc = window_sums(room, g, w, at, outs - own, group * each, each, part, total, seen)
    column = own_column(part)
    image, pixel = divided(min(column, total - 1), rows * columns)
    line, place = divided(pixel, columns)
    at = image * sizes[4] * plane + (top + line * down[0]) * sizes[15] + beside + place * across[0]
    put_pixels(dx, None, acc, room, group * outs + own, outs - own, at, plane, column < total)


# ---- launchers ----------------------------------------------------------------------------------------------------------------------
def launch_dx(go: Any, outs: Any, ins: Any, sizes: Any) -> None:
    """What conv_dx_launcher() does for operands of 16 bits."""
    (n, c, h, w, o, groups, kh, kw, sh, sw, ph, pw, dh, dw, rows, columns), (g, weight) = sizes, ins
    down, across = steps_of(sh, dh, ph), steps_of(sw, dw, pw)
    turned = go.empty(weight.size, weight.dtype)
    go(turn_weight, (turned,), (weight,), (c // groups, o // groups, kh, kw, down[1], across[1]), grid=blocks(weight.size))
    phases_down, phases_across = min(kh, down[1]), min(kw, across[1])
    phases = phases_down * phases_across
    if phases < sh * sw:
        fill_launcher(go, outs, (), go.dtype.type(0))
    seen = n, o, rows, columns, c, groups, kh, kw, 1, 1, 0, 0, -(dh // gcd(sh, dh)), -(dw // gcd(sw, dw)), h, w
    own, parts = sizes_of(c // groups), blocks(n * blocks(h, sh) * blocks(w, sw), COLS)
    tiles = blocks(c // groups, own["ROWS"])
    consts = seen, o // groups, c // groups, down, across, phases, phases_across, tiles, parts
    go(sized(conv2d_dx_mma, **own), outs, (g, turned), consts, grid=tiles * phases * parts * groups)


def steps_of(stride: int, dilation: int, padding: int) -> tuple[int, ...]:
    """What phase_of() takes: (stride, how far taps of a phase are apart, dilation, what makes the padding whole steps, how many)."""
    lift = -padding % stride
    return stride, stride // gcd(stride, dilation), dilation, lift, (lift + padding) // stride
