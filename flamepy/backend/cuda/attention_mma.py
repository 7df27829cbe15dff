"""Scaled dot-product attention of 16-bit numbers on the tensor cores: products of 16-bit factors with float32 sums, softmax in float32.

As in attention.py a block has a tile of rows, four warps with 16 TALL rows each, and goes over tiles of keys; the next tile's keys and
values are copied into shared memory while this one is worked on. Scores, weights and sums stay in registers: what one product gives is
the left factor of the next (Dao 2023, arXiv:2307.08691). Exponents are counted in powers of two: `unit` is scale log2(e).

Read next: fragments.py, attention_mma_dx.py.
"""

from __future__ import annotations

from typing import Any

from ..formula.words import INF, real
from .compat import libdevice
from .family import blocks, kernel
from .fragments import (
    begins_at_16,
    copy_one,
    each,
    exp2,
    folded,
    left_factor,
    mapped,
    put_pairs,
    rounded,
    times,
    times_turned,
)
from .tensor import commit, copy16, divided, shared, wait
from .tiles import filled, sized
from .words import barrier, block, thread

THREADS_OF = 128  # of a block: four warps
LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453
WIDE = 64  # columns of q, k, v and y in shared memory, the rest zeros
TALL, LINES = 2, 4  # a warp's rows / 16, of which a lane has a part of LINES
ROWS, N = 128, 64  # rows and keys of a tile
STEP = 144  # bytes from row to row in shared memory: eight rows begin in different banks
DEEP = 4  # WIDE / 16
SCORES, SUMS = 64, 64  # numbers of a tile of scores, and of results, that a lane has
PAIR, STAGES = 2 * N * STEP, 4 * N * STEP  # bytes of keys and values; of two of these
WIDEST = 128


def sizes_of(width: int) -> dict[str, int]:
    """The sizes of a kernel for rows of so many columns."""
    wide = next(w for w in (16, 32, 64, 96, 128) if width <= w)
    tall, n = (2, 64) if wide <= 64 else (1, 32)
    step, rows = 2 * wide + 16, 64 * tall
    return {
        "WIDE": wide, "TALL": tall, "LINES": 2 * tall, "ROWS": rows, "N": n, "STEP": step, "DEEP": wide // 16,
        "SCORES": tall * n // 2, "SUMS": tall * wide // 2, "PAIR": 2 * n * step, "STAGES": max(rows, 4 * n) * step,
    }  # fmt: skip


# ---- formulas of a number ----------------------------------------------------------------------------------------------------------
def larger(a, b):
    return libdevice.fmaxf(a, b)


def plus(a, b):
    return a + b


def product(a, b):
    return a * b


def grown(a, top, factor):
    return libdevice.fmaxf(a * factor, top)


def shift_of(top):
    return 0.0 if top == -INF else top


def faded(before, shift):
    return exp2(before - shift)


def weight(x, shift, factor):
    return exp2(x * factor - shift)


def followed(total, fade, added):
    return total * fade + added


def inverse(total):
    return 0.0 if total == 0.0 else 1.0 / total


def shown(x, row, column, unit, mask, m_at, m_row, m_col, first, at, rows, keys, is_causal):
    """A score: the product times unit (+ mask), -inf where there is no key to be seen."""
    i, j = row + first, column + at
    if i >= rows or j >= keys or (is_causal and j > i):
        return real(-INF)
    score = x * unit
    if mask is not None:
        score += mask[m_at + i * m_row + j * m_col] * LOG2E
    return score


# ---- memory ------------------------------------------------------------------------------------------------------------------------
def stage_tile(to, x, at, step, count, left, width, fast):
    """Begin to copy `count` rows of x to shared memory, zeros where there are none."""
    piece = thread()
    while piece < count * (WIDE // 8):
        row, column = piece // (WIDE // 8), piece % (WIDE // 8) * 8
        place = to + row * STEP + 2 * column
        if fast:
            nbytes = min(16, max(0, 2 * (width - column))) if row < left else 0
            copy16(place, x, at + row * step + column if nbytes > 0 else at, nbytes)
        else:
            for c in range(8):
                copy_one(place + 2 * c, x, at + row * step + column + c, row < left and column + c < width)
        piece += THREADS_OF


def stage_pair(to, x, x_at, x_step, z, z_at, z_step, at, end, count, d, e, fast):
    """Begin to copy N rows of x and of z from row `at` on, where there are any before `end`; a group of copies."""
    if at < end:
        stage_tile(to, x, x_at + at * x_step, x_step, N, count - at, d, fast)
        stage_tile(to + N * STEP, z, z_at + at * z_step, z_step, N, count - at, e, fast)
    commit()


def arrive():
    """Wait until all that the block has begun to copy is there."""
    commit()
    wait(0)
    barrier()


def starts(layout, m_layout, pair, heads):
    """Where q, k, v, y and the mask of a (batch, head) begin."""
    b, h = divided(pair, heads)
    q, k = layout[0] + b * layout[1] + h * layout[2], layout[4] + b * layout[5] + h * layout[6]
    v, y = layout[8] + b * layout[9] + h * layout[10], layout[12] + b * layout[13] + h * layout[14]
    return q, k, v, y, m_layout[0] + b * m_layout[1] + h * m_layout[2]


def put_number(value, row, column, x, at, step, left, cols):
    if row < left and column < cols:
        x[at + row * step + column] = value


def put_rows(x, at, step, left, cols, acc, fast):
    """A warp's tile of results."""
    if fast and begins_at_16(x):
        put_pairs(x, at, step, left, cols, acc, TALL)
    else:
        each(put_number, LINES, acc, (x, at, step, left, cols))


def keep_row(top, row, column, kept, share, at, left):
    if column < 2 and row < left:
        kept[at + row] = 0.0 if top == -INF else top * LN2
        kept[kept.size // 2 + at + row] = share


def softmax(s, top, total, factor):
    """(weights of a tile of products, what sums before it are multiplied with, the largest score so far, the sums so far)."""
    fresh = mapped(grown, LINES, folded(larger, LINES, s, 4), (top, factor))
    shift = mapped(shift_of, LINES, fresh, ())
    fade = mapped(faded, LINES, top, (shift,))
    s = mapped(weight, LINES, s, (shift, factor))
    return s, fade, fresh, mapped(followed, LINES, total, (fade, folded(plus, LINES, s, 1)))


# ---- forward -----------------------------------------------------------------------------------------------------------------------
@kernel(threads=THREADS_OF)
def attention_mma(y, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """y and kept. A block: a tile of rows of one (batch, head). even: everything lies so that 16 bytes can be read at once."""
    room, warp = shared(STAGES), thread() // 32
    tiles = (rows + ROWS - 1) // ROWS
    pair, tile = divided(block(), tiles)
    first = (tiles - 1 - tile) * ROWS  # the tiles that see most keys begin
    q_at, k_at, v_at, y_at, m_at = starts(layout, m_layout, pair, heads)
    fast = even and begins_at_16(q) and begins_at_16(k) and begins_at_16(v)
    stage_tile(room, q, q_at + first * layout[3], layout[3], ROWS, rows - first, d, fast)
    arrive()
    a = left_factor(room + warp * (16 * TALL * STEP), STEP, TALL, DEEP)
    barrier()
    unit, own = scale * LOG2E, first + warp * (16 * TALL)
    simple = mask is None and scale > 0.0  # then the largest product has the largest score
    factor, other = (unit, real(1)) if simple else (real(1), unit)
    top, total, acc = filled(LINES, -INF), filled(LINES, 0.0), filled(SUMS, 0.0)
    at, here, seen = 0, room, min(keys, first + ROWS) if is_causal else keys
    stage_pair(here, k, k_at, layout[7], v, v_at, layout[11], 0, seen, keys, d, e, fast)
    while at < seen:
        there = room + PAIR if here == room else room
        low = at + N
        stage_pair(there, k, k_at, layout[7], v, v_at, layout[11], low, seen, keys, d, e, fast)
        wait(1)
        barrier()
        if not is_causal or at < own + 16 * TALL:
            s = times_turned(filled(SCORES, 0.0), a, q, here, STEP, TALL)
            if not simple or low > keys or (is_causal and low > own + 1):
                s = each(shown, LINES, s, (other, mask, m_at, m_layout[3], m_layout[4], own, at, rows, keys, is_causal))
            s, fade, top, total = softmax(s, top, total, factor)
            acc = times(mapped(product, LINES, acc, (fade,)), rounded(s, q), q, here + N * STEP, STEP, TALL)
        barrier()
        at, here = low, there
    wait(0)
    share = mapped(inverse, LINES, folded(plus, LINES, total, 4), ())
    each(keep_row, LINES, top, (kept, share, pair * rows + own, rows - own))
    put_rows(y, y_at + own * layout[15], layout[15], rows - own, e, mapped(product, LINES, acc, (share,)), even)


# ---- launchers ---------------------------------------------------------------------------------------------------------------------
def is_even(layout: Any, *widths: int) -> bool:
    """Whether every row begins at a multiple of 8 numbers, and ends at one of 2."""
    return all([n % 8 == 0 for n in layout]) and all([n % 2 == 0 for n in widths])


def launch(go, outs, ins, layout, sizes, scale, is_causal):
    """What attention_launcher() does for operands of 16 bits."""
    batch, heads, rows, keys, d, e = sizes
    own = sizes_of(max(d, e))
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_even(layout[:16], d, e), is_causal)
    go(sized(attention_mma, **own), outs, ins, consts, grid=batch * heads * blocks(rows, own["ROWS"]))
