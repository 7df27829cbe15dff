"""Gradients of attention of 16-bit numbers on the tensor cores: see attention_dx.py for what is computed, attention_mma.py for how.

A warp of attention_mma_dkv has 16 keys and goes over tiles of rows: it makes scores and weights turned, keys by rows, so that they are
left factors of the products that give dk and dv. A warp of attention_mma_dq has 16 TALL rows and goes over tiles of keys. g, as float32 as
gradients are, is rounded to 16 bits once, by row_dots. Gradients are summed and written in float32.

Read next: conv.py.
"""

from __future__ import annotations

from ..formula.words import real
from .attention_mma import LOG2E, THREADS_OF, arrive, is_even, product, put_number, put_rows, shown, stage_pair, stage_tile, starts
from .compat import cuda
from .family import blocks, kernel
from .fragments import begins_at_16, each, exp2, left_factor, mapped, rounded, times, times_turned
from .tensor import divided, shared, wait
from .tiles import filled, sized
from .words import barrier, block, thread

WIDE = 64
TALL, LINES = 1, 2
ROWS, N = 64, 64  # rows (or keys) of a block, and of the tiles it goes over
STEP, DEEP = 144, 4
SCORES, SUMS = 32, 32
PAIR, STAGES = 2 * N * STEP, 4 * N * STEP
ROOMS = (4 * N + ROWS) * STEP  # with the values of a block's keys
STATS, BOTH = 3 * N, 6 * N  # largest score, 1 / sum and delta of the rows of a tile; of two


def sizes_of(width: int, most: int) -> dict[str, int]:
    """The sizes of a kernel for rows of so many columns, which goes over tiles of `most` rows or fewer."""
    wide = next(w for w in (16, 32, 64, 96, 128) if width <= w)
    n = min(most, 64 if wide <= 64 else 32 if wide == 96 else 16)
    step = 2 * wide + 16
    return {
        "WIDE": wide, "TALL": 1, "LINES": 2, "ROWS": 64, "N": n, "STEP": step, "DEEP": wide // 16,
        "SCORES": n // 2, "SUMS": wide // 2, "PAIR": 2 * n * step,
        "STAGES": max(2 * 64, 4 * n) * step, "ROOMS": (max(64, 4 * n) + 64) * step, "STATS": 3 * n, "BOTH": 6 * n,
    }  # fmt: skip


def stage_stats(stats, to, kept, delta, base, at, rows):
    """Largest score in powers of two, 1 / sum and delta of N rows from row `at` on; a row that isn't there has no weights."""
    i = thread()
    while i < N:
        there = at + i < rows
        place = base + at + i if there else base
        stats[to + i] = kept[place] * LOG2E if there else 0.0
        stats[to + N + i] = kept[kept.size // 2 + place] if there else 0.0
        stats[to + 2 * N + i] = delta[place] if there else 0.0
        i += THREADS_OF


def free_weight(x, key, row, unit, stats, to):
    """The weight of a key that its row may see, turned."""
    return exp2(x * unit - stats[to + row]) * stats[to + N + row]


def turned_weight(x, key, row, unit, stats, to, mask, m_at, m_row, m_col, first, at, rows, keys, is_causal):
    return (
        exp2(shown(x, at + row, first + key, unit, mask, m_at, m_row, m_col, 0, 0, rows, keys, is_causal) - stats[to + row])
        * stats[to + N + row]
    )


def turned_weights(p, unit, stats, to, mask, m_at, m_layout, own, at, rows, keys, is_causal):
    """Of a tile of products, keys by rows."""
    if mask is not None or own + 16 > keys or (is_causal and at < own + 16):
        more = mask, m_at, m_layout[3], m_layout[4], own, at, rows, keys, is_causal
        return each(turned_weight, LINES, p, (unit, stats, to, *more))
    return each(free_weight, LINES, p, (unit, stats, to))


def turned_slope(p, key, row, dp, stats, to):
    return p * (dp - stats[to + 2 * N + row])


@kernel(threads=THREADS_OF)
def attention_mma_dkv(dk, dv, g, delta, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """dk and dv. A block: a tile of keys of one (batch, head)."""
    room, stats, warp = shared(ROOMS), cuda.shared.array(BOTH, real), thread() // 32
    pair, tile = divided(block(), (keys + ROWS - 1) // ROWS)
    first = tile * ROWS  # the tiles that are seen by most rows begin
    q_at, k_at, v_at, g_at, m_at = starts(layout, m_layout, pair, heads)
    fast = even and begins_at_16(q) and begins_at_16(k) and begins_at_16(v) and begins_at_16(g)
    values = room + 4 * N * STEP  # they stay there: registers are few
    stage_tile(room, k, k_at + first * layout[7], layout[7], ROWS, keys - first, d, fast)
    stage_tile(values, v, v_at + first * layout[11], layout[11], ROWS, keys - first, e, fast)
    arrive()
    a_k = left_factor(room + warp * (16 * STEP), STEP, TALL, DEEP)
    barrier()
    unit, own = scale * LOG2E, first + warp * 16
    acc_k, acc_v = filled(SUMS, 0.0), filled(SUMS, 0.0)
    at, turn = first // N * N if is_causal else 0, 0
    stage_stats(stats, 0, kept, delta, pair * rows, at, rows)
    stage_pair(room, q, q_at, layout[3], g, g_at, layout[15], at, rows, rows, d, e, fast)
    while at < rows:
        here, there, low = room + turn * PAIR, room + (1 - turn) * PAIR, at + N
        stage_stats(stats, (1 - turn) * STATS, kept, delta, pair * rows, low, rows)
        stage_pair(there, q, q_at, layout[3], g, g_at, layout[15], low, rows, rows, d, e, fast)
        wait(1)
        barrier()
        if not is_causal or low > own:
            s = times_turned(filled(SCORES, 0.0), a_k, q, here, STEP, TALL)
            p = turned_weights(s, unit, stats, turn * STATS, mask, m_at, m_layout, own, at, rows, keys, is_causal)
            acc_v = times(acc_v, rounded(p, q), q, here + N * STEP, STEP, TALL)
            a_v = left_factor(values + warp * (16 * STEP), STEP, TALL, DEEP)
            dp = times_turned(filled(SCORES, 0.0), a_v, q, here + N * STEP, STEP, TALL)
            ds = each(turned_slope, LINES, p, (dp, stats, turn * STATS))
            acc_k = times(acc_k, rounded(ds, q), q, here, STEP, TALL)
        barrier()
        at, turn = low, 1 - turn
    wait(0)
    put_rows(dv, v_at + own * layout[11], layout[11], keys - own, e, acc_v, even)
    put_rows(dk, k_at + own * layout[7], layout[7], keys - own, d, mapped(product, LINES, acc_k, (scale,)), even)


# ---- dq and the mask's gradient ------------------------------------------------------------------------------------------------------
def stat_of(zero, row, column, stats, at, left, factor):
    return stats[at + row] * factor if row < left else zero


def row_weight(score, top, share):
    return exp2(score - top) * share


def free_row_weight(x, top, share, unit):
    return exp2(x * unit - top) * share


def row_stats(kept, delta, at, left):
    """(largest scores in powers of two, 1 / sums, deltas) of the rows of which this lane has a part."""
    none = filled(LINES, 0.0)
    top = each(stat_of, LINES, none, (kept, at, left, LOG2E))
    share = each(stat_of, LINES, none, (kept, kept.size // 2 + at, left, 1.0))
    return top, share, each(stat_of, LINES, none, (delta, at, left, 1.0))


def row_weights(s, unit, top, share, mask, m_at, m_layout, own, at, rows, keys, is_causal):
    """Of a tile of products, rows by keys."""
    if mask is not None or at + N > keys or (is_causal and at + N > own + 1):
        s = each(shown, LINES, s, (unit, mask, m_at, m_layout[3], m_layout[4], own, at, rows, keys, is_causal))
        return mapped(row_weight, LINES, s, (top, share))
    return mapped(free_row_weight, LINES, s, (top, share, unit))


def slope(p, dp, delta):
    return p * (dp - delta)


@kernel(threads=THREADS_OF)
def attention_mma_dq(dq, dmask, g, delta, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """dq, and dmask (batch, heads, rows, keys). A block: a tile of rows of one (batch, head)."""
    room, warp = shared(STAGES), thread() // 32
    tiles = (rows + ROWS - 1) // ROWS
    pair, tile = divided(block(), tiles)
    first = (tiles - 1 - tile) * ROWS
    q_at, k_at, v_at, g_at, m_at = starts(layout, m_layout, pair, heads)
    fast = even and begins_at_16(q) and begins_at_16(k) and begins_at_16(v) and begins_at_16(g)
    stage_tile(room, q, q_at + first * layout[3], layout[3], ROWS, rows - first, d, fast)
    stage_tile(room + ROWS * STEP, g, g_at + first * layout[15], layout[15], ROWS, rows - first, e, fast)
    arrive()
    a_q = left_factor(room + warp * (16 * TALL * STEP), STEP, TALL, DEEP)
    a_g = left_factor(room + ROWS * STEP + warp * (16 * TALL * STEP), STEP, TALL, DEEP)
    barrier()
    unit, own = scale * LOG2E, first + warp * (16 * TALL)
    base = pair * rows + own
    top, share, sums = row_stats(kept, delta, base, rows - own)
    acc = filled(SUMS, 0.0)
    at, turn, seen = 0, 0, min(keys, first + ROWS) if is_causal and dmask is None else keys
    stage_pair(room, k, k_at, layout[7], v, v_at, layout[11], 0, seen, keys, d, e, fast)
    while at < seen:
        here, there, low = room + turn * PAIR, room + (1 - turn) * PAIR, at + N
        stage_pair(there, k, k_at, layout[7], v, v_at, layout[11], low, seen, keys, d, e, fast)
        wait(1)
        barrier()
        if not is_causal or dmask is not None or at < own + 16 * TALL:
            s = times_turned(filled(SCORES, 0.0), a_q, q, here, STEP, TALL)
            p = row_weights(s, unit, top, share, mask, m_at, m_layout, own, at, rows, keys, is_causal)
            dp = times_turned(filled(SCORES, 0.0), a_g, q, here + N * STEP, STEP, TALL)
            ds = mapped(slope, LINES, p, (dp, sums))
            if dmask is not None:
                each(put_number, LINES, ds, (dmask, base * keys + at, keys, rows - own, keys - at))
            acc = times(acc, rounded(ds, q), q, here, STEP, TALL)
        barrier()
        at, turn = low, 1 - turn
    wait(0)
    put_rows(dq, q_at + own * layout[3], layout[3], rows - own, d, mapped(product, LINES, acc, (scale,)), even)


# ---- launchers ---------------------------------------------------------------------------------------------------------------------
def launch(go, outs, ins, layout, sizes, scale, is_causal):
    """What dx_launcher() does for operands of 16 bits; g is of their type."""
    batch, heads, rows, keys, d, e = sizes
    dq, dk, dv, dmask = outs
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_even(layout[:16], d, e), is_causal)
    own = sizes_of(max(d, e), 64)
    go(sized(attention_mma_dkv, **own), (dk, dv), ins, consts, grid=batch * heads * blocks(keys, ROWS))
    go(sized(attention_mma_dq, **own), (dq, dmask), ins, consts, grid=batch * heads * blocks(rows, ROWS))
