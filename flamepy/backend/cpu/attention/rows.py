"""How attention is cut, and what it does with a block of rows beside its products: where operands start, masks, softmax both ways.

Scores lie transposed, those of one key side by side.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ....core.words import INF, exp_down, select
from ...formula.words import fmax
from ..loops.runs import add_run, copy_run, fill_run
from ..runtime.settings import most_threads

KEYS = 256  # keys attention looks at at once, at most
ROOM = 128  # scratch is cut into multiples of it: where a vector ends just before another, LLVM's overlap check chooses scalar code
STATE = 5 * ROOM  # what attention keeps of the rows it works on
SMALL = 1_000_000  # multiplications of one product in attention, at most: scores stay in the nearest caches


def attention_room(height: int, width: int, d: int, dv: int) -> int:
    """Size of one worker's scratch: five vectors of rows, q and g transposed (forward: q, and sums of y), scores
    (and their gradient)."""
    return STATE + ((d + dv) * height + ROOM - 1) // ROOM * ROOM + width * height


class AttentionPlan(NamedTuple):
    """height: query rows at once; width: keys at once; groups of items, each for one worker; chunks of a pair's blocks of rows;
    sizes of scratch and of the chunks' parts of dk and dv."""

    height: int
    width: int
    groups: int
    chunks: int
    scratch: int
    partial: int


@lru_cache(4096)
def attention_plan(sizes: tuple[int, ...], is_causal: bool, what: str, half: bool = False) -> AttentionPlan:
    """The decomposition of one pass ("y" or "dx") for sizes batch, heads, rows, keys, width of q, width of v.

    Under a causal mask half of a block on the diagonal is wasted: fewer rows at once where there are few rows. Backward, fewer than 8
    (batch, head) pairs are cut into chunks: enough tasks for the cores, and parts of dk and dv that stay linear in keys. half: blocks
    are those of bfloat16 products, 32 numbers wide.
    """
    batch, heads, rows, keys, d, dv = sizes
    pairs = batch * heads
    height = max(1, min(rows, 64 if rows >= 1024 or not is_causal else 32 if rows >= 256 else 16))
    width = max(1, min(keys, KEYS, max(16, SMALL // (height * max(1, d, dv)) // 16 * 16)))
    if half:
        height, width = max(1, min(rows, 64 if rows >= 256 else 32)), max(1, min(keys, KEYS))
    blocks = -(-rows // height)
    if what == "y":
        groups = min(pairs * blocks, most_threads())
        return AttentionPlan(height, width, groups, 1, groups * attention_room(height, width, d, dv), 0)
    chunks = max(1, min(blocks, -(-8 // max(1, pairs))))
    groups = min(pairs * chunks, most_threads())
    partial = chunks * pairs * keys * (d + dv) if chunks > 1 else 0
    return AttentionPlan(height, width, groups, chunks, groups * attention_room(height, 2 * width, d, dv), partial)


def partial_layout(heads: int, keys: int, d: int, dv: int) -> tuple[int, ...]:
    """Layouts of dk and dv in the first chunk's parts, (B, heads, keys, d + dv)."""
    strides = heads * keys * (d + dv), keys * (d + dv), d + dv
    return (0, *strides, d, *strides)


def start_of(layout, operand, b, h, row):
    """Where a row of an operand starts."""
    return layout[operand] + b * layout[operand + 1] + h * layout[operand + 2] + row * layout[operand + 3]


def starts_y(layout, b, h, first):
    """Where a block of rows of q, y and the mask starts, and k and v."""
    rows = start_of(layout, 0, b, h, first), start_of(layout, 12, b, h, first), start_of(layout, 16, b, h, first)
    return rows, start_of(layout, 4, b, h, 0), start_of(layout, 8, b, h, 0)


def starts_dx(layout, b, h, first):
    """Where a block of rows of q, g, dq and the mask starts, and k and v."""
    q_at, g_at = start_of(layout, 0, b, h, first), start_of(layout, 12, b, h, first)
    dq_at, m_at = start_of(layout, 16, b, h, first), start_of(layout, 28, b, h, first)
    return q_at, g_at, dq_at, m_at, start_of(layout, 4, b, h, 0), start_of(layout, 8, b, h, 0)


def block_of(first, rows, keys, height, is_causal):
    """How many rows a block has, and how many keys they see."""
    high = min(height, rows - first)
    return high, min(keys, first + high) if is_causal else keys


def rooms_y(scratch, own, height, width, d, dv):
    """A worker's scratch: state, q turned (for bfloat16 sums of y), scores."""
    size = attention_room(height, width, d, dv)
    return thirds(scratch[own * size : own * size + size], STATE, size - STATE - width * height)


def rooms_dx(scratch, own, height, width, d, e):
    """A worker's scratch: delta, q and g turned, scores, and their gradient."""
    size = attention_room(height, 2 * width, d, e)
    delta, turned, scores = thirds(scratch[own * size : own * size + size], STATE, size - STATE - 2 * width * height)
    p, ds, _ = thirds(scores, height * width, height * width)
    return delta, turned, p, ds


def from_both_ends(i, n):
    """0, n - 1, 1, n - 2, ...: under a causal mask two neighbours together cost what any other two do."""
    return n - 1 - i // 2 if i % 2 else i // 2


# Helpers take slices and unsigned numbers: an index that cannot be negative needs no check, and the loop vectorises.


def thirds(run, first, second):
    """Numbers up to `first`, the `second` numbers after it, the rest."""
    return run[:first], run[first : first + second], run[first + second :]


def add_mask(scores, mask, at, row_step, col_step, high, wide):
    n, step = np.uintp(high), np.uintp(row_step)
    for j in range(np.uintp(wide)):
        line = np.uintp(at) + j * np.uintp(col_step)
        for r in range(n):
            scores[j * n + r] += mask[line + r * step]


def hide(scores, high, wide, ahead):
    """Row r sees key j only if j + ahead <= r."""
    n = np.uintp(high)
    for j in range(max(0, 1 - ahead), wide):
        line, shown = np.uintp(j) * n, np.uintp(j + ahead)
        for r in range(n):
            scores[line + r] = select(r < shown, -INF, scores[line + r])


def mask_scores(scores, mask, at, row_step, col_step, high, wide, ahead, has_mask, is_causal):
    """What the masks do to a block of scores, keys x rows."""
    if has_mask:
        add_mask(scores, mask, at, row_step, col_step, high, wide)
    if is_causal:
        hide(scores, high, wide, ahead)


def online_softmax(scores, state, high, wide):
    """scores = exp(scores - largest so far). state: five vectors of rows, ROOM apart: largest, sum, factor (what the sum before this
    block was multiplied with), base (the largest, or 0 where every score so far is -inf: -inf minus -inf would be NaN), the block's own
    sum (added one after the other, thousands of keys would lose digits)."""
    best, total = state[:high], state[ROOM : ROOM + high]
    factor, base = state[2 * ROOM : 2 * ROOM + high], state[3 * ROOM : 3 * ROOM + high]
    block = state[4 * ROOM : 4 * ROOM + high]
    for r in range(high):
        factor[r] = best[r]
    largest(best, scores, wide)
    change_base(best, total, factor, base)
    fill_run(block, 0.0)
    exp_and_sum(block, scores, base, wide)
    add_run(total, block)


def begin(state, high):
    """No key seen yet."""
    fill_run(state[:high], -INF)
    fill_run(state[ROOM : ROOM + high], 0.0)


def largest(best, scores, wide):
    n = np.uintp(best.size)
    last = np.uintp(max(wide, 1) - 1) * n
    for j in range(np.uintp(0), np.uintp(wide), np.uintp(4)):  # four keys at once: best goes through memory
        a = j * n
        b, c, d = min(a + n, last), min(a + n + n, last), min(a + n + n + n, last)
        for r in range(n):
            best[r] = fmax(best[r], fmax(fmax(scores[a + r], scores[b + r]), fmax(scores[c + r], scores[d + r])))


def change_base(best, total, factor, base):
    for r in range(best.size):
        base[r] = select(best[r] == -INF, 0.0, best[r])
        factor[r] = exp_down(factor[r] - base[r])
        total[r] *= factor[r]


def exp_and_sum(total, scores, base, wide):
    n, pairs = np.uintp(total.size), np.uintp(wide // 2 * 2)
    for j in range(np.uintp(0), pairs, np.uintp(2)):  # two keys at once: total goes through memory
        a, b = j * n, j * n + n
        for r in range(n):
            one, two = exp_down(scores[a + r] - base[r]), exp_down(scores[b + r] - base[r])
            scores[a + r] = one
            scores[b + r] = two
            total[r] += one + two
    if wide % 2 == 1:
        for r in range(n):
            one = exp_down(scores[pairs * n + r] - base[r])
            scores[pairs * n + r] = one
            total[r] += one


def finish(kept, at, state, high):
    """What is kept of the rows from `at`, and 1 / sum as the factor. A row that saw no key has 0 for both: p is then 0, as it must be."""
    total, factor, base = state[ROOM : ROOM + high], state[2 * ROOM : 2 * ROOM + high], state[3 * ROOM : 3 * ROOM + high]
    top, share = kept[at : at + high], kept[kept.size // 2 + at : kept.size // 2 + at + high]
    for r in range(high):
        factor[r] = select(total[r] == 0.0, 0.0, 1.0 / total[r])
        top[r] = base[r]
        share[r] = factor[r]


def scale_rows(y, at, step, factor, cols):
    for r in range(factor.size):
        line = y[at + r * step : at + r * step + cols]
        f = factor[r]
        if f != 1.0:
            for c in range(line.size):
                line[c] *= f


def put_rows(y, y_at, step, sums, at, rows, cols):
    """Rows of y, rounded once; their sums lie one after the other."""
    for r in range(rows):
        copy_run(y[y_at + r * step : y_at + r * step + cols], sums[at + r * cols : at + r * cols + cols])


def dots(out, g, y, at, step, cols):
    """out[r] = row r of g times row r of y."""
    for r in range(out.size):
        a, b = g[at + r * step : at + r * step + cols], y[at + r * step : at + r * step + cols]
        total = 0.0
        for c in range(a.size):
            total += a[c] * b[c]
        out[r] = total


def softmax_dx(ds, p, kept, at, delta, wide):
    """p = exp(p - largest) / sum, ds = p * (ds - delta), for `wide` keys."""
    n = np.uintp(delta.size)
    top, share = kept[at : at + delta.size], kept[kept.size // 2 + at : kept.size // 2 + at + delta.size]
    for j in range(np.uintp(wide)):
        for r in range(n):
            e = exp_down(p[j * n + r] - top[r]) * share[r]
            p[j * n + r] = e
            ds[j * n + r] = e * (ds[j * n + r] - delta[r])


def clear_hidden(dmask, first, high, seen, keys):
    """The mask's gradient where no row of a block looks."""
    for r in range(first, first + high):
        fill_run(dmask[r * keys + seen : (r + 1) * keys], 0.0)


def sum_parts(out, partial, at, step, chunks):
    fill_run(out, 0.0)
    for n in range(chunks):
        add_run(out, partial[at + n * step : at + n * step + out.size])
