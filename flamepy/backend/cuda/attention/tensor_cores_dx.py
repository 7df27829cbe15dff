"""Gradients of attention of 16-bit numbers on the tensor cores: see attention.py for what is computed, tensor_cores.py for how.

A warp of attention_mma_dkv has 16 TALL keys and goes over tiles of rows, PART at once: it makes scores and weights turned, keys by rows,
so that they are left factors of the products that give dk and dv. A warp of attention_mma_dq has 16 TALL rows and goes over tiles of keys.
What belongs to a row is made before, by row_stats, where g, float32 as gradients are, is rounded to 16 bits once. The sum of g y, with a
minus, is where the products g v^T begin. Gradients are summed and written in float32.
"""

from __future__ import annotations

from ....core.words import log, real
from ..loops.vectors import aligned, load4, store4
from ..loops.words import barrier, block, thread
from ..products.fragments import each, left_factor, mapped, rounded, times, times_stored, times_turned
from ..products.tensor import copy1, divided, shared
from ..products.tile_words import as_stored, cut, cut_turned, of_columns, of_mask, own_factor, piece_from, piece_to, short, times_own
from ..products.tiles import filled, sized
from ..runtime.compat import cuda
from ..runtime.family import THREADS, blocks, kernel
from .tensor_cores import (
    ALL,
    FAR,
    LOG2E,
    THREADS_OF,
    WIDTHS,
    arrive,
    down_of,
    following,
    is_even,
    longest,
    place_of,
    product,
    put_number,
    put_rows,
    stage_own,
    stage_pair,
    stages_of,
    starts,
    vacant,
    weight,
    with_mask,
)

WIDE, SPAN = 64, 8
TALL, LINES = 2, 4
ROWS, N, PART = 128, 32, 16  # rows (or keys) of a block, of the tiles it goes over, and of what a warp works on at once
STEP, DEEP = 144, 4
SCORES, SUMS = 16, 64
STAGES, BEHIND, AHEAD = 3, 1, 2 * N
PAIR = 2 * N * STEP + 8 * N  # bytes of a stage: dkv's have numbers of their rows, too
LAST, REST = 2 * PAIR, 2 * N * STEP  # where the last stage begins; where the numbers are in one
STORED, STAY, ROOMS = 0, 3 * PAIR, 3 * PAIR + ROWS * STEP  # whether a block's keys (dq: rows of g) stay; where; bytes of all


def sizes_of(width: int, most: int, widest: int, stay: int, cc: tuple[int, ...]) -> dict[str, int]:
    """The sizes of a kernel for rows of so many columns, which goes over tiles of `most` rows, fewer where these are wide. A warp has 32
    rows where registers are enough, else 16: up to the `widest`, where one factor of the block's own is STORED in shared memory besides
    those that `stay` there in any case; where the others lie tiles come, with three stages those after the first."""
    wide = next(w for w in WIDTHS if width <= w)
    n, tall = most if wide <= 80 else most // 2, 2 if wide <= widest else 1
    step, rows, stored, stages = 2 * wide + 16, 64 * tall, int(wide == widest), stages_of(cc)
    rest, pair = 2 * n * step, 2 * n * step + 8 * n * stay
    kept = max(stages * pair, (stages - 2) * pair + (2 - stay - stored) * rows * step)
    return {
        "WIDE": wide, "TALL": tall, "LINES": 2 * tall, "ROWS": rows, "N": n, "STEP": step, "DEEP": wide // 16, "DOWN": down_of(wide),
        "SCORES": tall * PART // 2, "SUMS": tall * wide // 2, "STAGES": stages, "BEHIND": stages - 2, "AHEAD": (stages - 1) * n,
        "PAIR": pair, "LAST": (stages - 1) * pair, "REST": rest, "STORED": stored, "STAY": kept,
        "ROOMS": kept + (stay + stored) * rows * step,
    }  # fmt: skip


# ---- what belongs to rows ------------------------------------------------------------------------------------------------------------
def row_part(packed, g, y, to, at, many, fast):
    """The sum of g y of the next four numbers of a row, where there are so many; packed: g as 16-bit numbers."""
    total = real(0)
    if fast and many >= 4:
        a, b = load4(g, at), load4(y, at)
        if packed is not None:  # what it is there is what the products see
            store4(packed, to, a)
            a = as_stored(a, packed)
        total = (a[0] * b[0] + a[1] * b[1]) + (a[2] * b[2] + a[3] * b[3])
    else:
        for c in range(min(4, many)):
            value = g[at + c]
            if packed is not None:
                packed[to + c] = value
                value = packed[to + c]
            total += value * y[at + c]
    return total


@kernel
def row_stats(stats, packed, g, y, kept, layout, heads, rows, e, count, even):
    """Of each of `count` rows (batch, heads, rows): down from what power of two its weights are counted; then the sum of g y, with a minus.
    packed: g as 16-bit numbers, contiguous. SPAN threads a row, twice four numbers each."""
    row, column = block() * (THREADS // SPAN) + thread() // SPAN, thread() % SPAN * 4
    total = real(0)
    if row < count:
        pair, line = divided(row, rows)
        b, h = divided(pair, heads)
        at, to = layout[12] + b * layout[13] + h * layout[14] + line * layout[15] + column, row * e + column
        fast, half = even and aligned(g, 8) and aligned(y, 8), 4 * SPAN
        total = row_part(packed, g, y, to, at, e - column, fast)
        total += row_part(packed, g, y, to + half, at + half, e - column - half, fast)
    far = SPAN // 2
    while far > 0:
        total += cuda.shfl_xor_sync(ALL, total, far)
        far //= 2
    if row < count and column == 0:
        stats[row] = (kept[row] - log(kept[count + row])) * LOG2E
        stats[count + row] = -total


def stage_both(to, x, x_at, x_step, there, z, z_at, z_step, left, d, e, fast):
    """Begin to copy the block's ROWS rows of two buffers to shared memory."""
    mine = piece_to(STEP, WIDE)
    stage_own(to + mine, x, x_at + piece_from(x_step, WIDE), x_step, left, d, fast)
    stage_own(there + mine, z, z_at + piece_from(z_step, WIDE), z_step, left, e, fast)


# ---- dk and dv -----------------------------------------------------------------------------------------------------------------------
def stage_stats(to, stats, at, left):
    """What row_stats has found for N rows; zeros where there are none."""
    i = thread()
    if i < 2 * N:
        row = i & (N - 1)
        copy1(to + 4 * i, stats, (stats.size // 2 if i >= N else 0) + at + row, row < left)


def turned_weights(s, unit, stats, mask, m_at, m_layout, own, at, rows, keys, is_causal):
    """Of a tile of products, keys by rows. Keys that aren't there have weights, too: they lead nowhere."""
    level = of_columns(s, LINES, stats)
    if mask is not None:
        bounds = short(keys - own - 1), short(rows - at - 1), short(at - own if is_causal else FAR), short(FAR)
        place = m_at + at * m_layout[3] + own * m_layout[4]
        s = mapped(with_mask, LINES, s, (of_mask(s, LINES, mask, place, m_layout[4], m_layout[3], bounds, 2), unit))
        return mapped(weight, LINES, s, (level, real(1)))
    p = mapped(weight, LINES, s, (level, unit))
    return cut_turned(p, LINES, at - own, 0.0) if is_causal and at < short(own + (16 * TALL - 1)) else p


@kernel(threads=THREADS_OF, together=2)
def attention_mma_dkv(dk, dv, g, stats, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """dk and dv. A block: a tile of keys of one (batch, head)."""
    room, mine, warp = short(shared(ROOMS)), piece_to(STEP, WIDE), thread() // 32
    pair, tile = place_of(divided(keys + ROWS - 1, ROWS)[0])
    first = short(tile * ROWS)  # the first are seen by most rows
    q_at, k_at, v_at, g_at, m_at = starts(layout, m_layout, pair, heads)
    fast = even and aligned(q, 8) and aligned(k, 8) and aligned(v, 8) and aligned(g, 8)
    values, own_k = room + STAY, room + (STAY + ROWS * STEP if STORED else BEHIND * PAIR)  # values stay: registers are few
    stage_both(own_k, k, k_at + first * layout[7], layout[7], values, v, v_at + first * layout[11], layout[11], keys - first, d, e, fast)
    at, here, s_at = short(first if is_causal else 0), room, pair * rows
    q_to, g_to = q_at + at * layout[3] + piece_from(layout[3], WIDE), g_at + at * layout[15] + piece_from(layout[15], WIDE)
    if STAGES > 2:
        stage_stats(room + REST, stats, s_at + at, rows - at)
        stage_pair(room + mine, q, q_to, layout[3], g, g_to, layout[15], rows - at, d, e, fast)
        q_to, g_to = q_to + N * layout[3], g_to + N * layout[15]
    arrive(0)
    a_k = own_factor(own_k + warp * (16 * TALL * STEP), STEP, TALL, DEEP, STORED)
    barrier()
    far, acc_k, acc_v = short(at + BEHIND * N), filled(SUMS, 0.0), filled(SUMS, 0.0)
    if far < rows:
        stage_stats(room + (BEHIND * PAIR + REST), stats, s_at + far, rows - far)
        stage_pair(room + BEHIND * PAIR + mine, q, q_to, layout[3], g, g_to, layout[15], rows - far, d, e, fast)
    unit, own, v_own = scale * LOG2E, short(first + warp * (16 * TALL)), short(values + warp * (16 * TALL * STEP))
    while at < rows:
        arrive(BEHIND)
        low, told, far, there = short(at + N), short(here + REST), short(at + AHEAD), vacant(room, here)
        if far < rows:
            q_to, g_to = q_to + N * layout[3], g_to + N * layout[15]
            stage_stats(there + REST, stats, s_at + far, rows - far)
            stage_pair(there + mine, q, q_to, layout[3], g, g_to, layout[15], rows - far, d, e, fast)
        while at < low:
            if at < rows and (not is_causal or short(at + PART) > own):
                s = times_own(filled(SCORES, 0.0), a_k, q, here, STEP, TALL, DEEP)
                dp = times_stored(of_columns(s, LINES, told + 4 * N), v_own, q, here + N * STEP, STEP, TALL, DEEP)
                p = turned_weights(s, unit, told, mask, m_at, m_layout, own, at, rows, keys, is_causal)
                acc_v = times(acc_v, rounded(p, q), q, here + N * STEP, STEP, TALL)
                acc_k = times(acc_k, rounded(mapped(product, LINES, p, (dp,)), q), q, here, STEP, TALL)
            at, here, told = short(at + PART), short(here + PART * STEP), short(told + 4 * PART)
        here = following(room, short(here - N * STEP))
    put_rows(dv, v_at + own * layout[11], layout[11], keys - own, e, acc_v, even)
    put_rows(dk, k_at + own * layout[7], layout[7], keys - own, d, mapped(product, LINES, acc_k, (scale,)), even)


# ---- dq and the mask's gradient ------------------------------------------------------------------------------------------------------
def stat_of(zero, row, column, stats, at, left):
    return stats[at + row] if row < left else zero


def other(a, b):
    return b


def weights(s, unit, level, mask, m_at, m_layout, own, at, rows, keys, is_causal):
    """Of a tile of products, rows by keys."""
    if mask is not None:
        bounds = short(rows - own - 1), short(keys - at - 1), short(FAR), short(own - at if is_causal else FAR)
        place = m_at + own * m_layout[3] + at * m_layout[4]
        s = mapped(with_mask, LINES, s, (of_mask(s, LINES, mask, place, m_layout[3], m_layout[4], bounds, 1), unit))
        return mapped(weight, LINES, s, (level, real(1)))
    p = mapped(weight, LINES, s, (level, unit))
    if short(at + PART) > keys or (is_causal and short(at + (PART - 1)) > own):
        return cut(p, LINES, keys - at - 1, own - at if is_causal else PART, 0.0)
    return p


@kernel(threads=THREADS_OF, together=2)
def attention_mma_dq(dq, dmask, g, stats, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """dq, and dmask (batch, heads, rows, keys). A block: a tile of rows of one (batch, head)."""
    room, piece, warp = short(shared(ROOMS)), piece_to(STEP, WIDE), thread() // 32
    pair, first = longest(rows)
    q_at, k_at, v_at, g_at, m_at = starts(layout, m_layout, pair, heads)
    fast = even and aligned(q, 8) and aligned(k, 8) and aligned(v, 8) and aligned(g, 8)
    q_to, g_to = room + BEHIND * PAIR, room + (STAY if STORED else BEHIND * PAIR + ROWS * STEP)
    stage_both(q_to, q, q_at + first * layout[3], layout[3], g_to, g, g_at + first * layout[15], layout[15], rows - first, d, e, fast)
    k_at, v_at, whole = k_at + piece_from(layout[7], WIDE), v_at + piece_from(layout[11], WIDE), not is_causal or dmask is not None
    at, here, seen = short(0), room, short(keys if whole else min(keys, first + ROWS))
    if STAGES > 2:
        stage_pair(room + piece, k, k_at, layout[7], v, v_at, layout[11], keys, d, e, fast)
        k_at, v_at = k_at + N * layout[7], v_at + N * layout[11]
    arrive(0)
    a_q = left_factor(q_to + warp * (16 * TALL * STEP), STEP, TALL, DEEP)
    a_g = own_factor(g_to + warp * (16 * TALL * STEP), STEP, TALL, DEEP, STORED)
    barrier()
    if seen > BEHIND * N:
        stage_pair(room + BEHIND * PAIR + piece, k, k_at, layout[7], v, v_at, layout[11], keys - BEHIND * N, d, e, fast)
    unit, own, none, acc = scale * LOG2E, short(first + warp * (16 * TALL)), filled(LINES, 0.0), filled(SUMS, 0.0)
    base, mine = pair * rows + own, short(keys if whole else min(keys, own + 16 * TALL))  # what the warp sees
    level = each(stat_of, LINES, none, (stats, base, rows - own))
    sums = each(stat_of, LINES, none, (stats, stats.size // 2 + base, rows - own))
    while at < seen:
        arrive(BEHIND)
        low, far = short(at + N), short(at + AHEAD)
        if far < seen:
            k_at, v_at = k_at + N * layout[7], v_at + N * layout[11]
            stage_pair(vacant(room, here) + piece, k, k_at, layout[7], v, v_at, layout[11], keys - far, d, e, fast)
        while at < low:
            if at < mine:
                s = times_turned(filled(SCORES, 0.0), a_q, q, here, STEP, TALL)
                dp = times_own(mapped(other, LINES, s, (sums,)), a_g, q, here + N * STEP, STEP, TALL, DEEP)
                p = weights(s, unit, level, mask, m_at, m_layout, own, at, rows, keys, is_causal)
                ds = mapped(product, LINES, p, (dp,))
                if dmask is not None:
                    each(put_number, LINES, ds, (dmask, base * keys + at, keys, rows - own, keys - at))
                acc = times(acc, rounded(ds, q), q, here, STEP, TALL)
            at, here = short(at + PART), short(here + PART * STEP)
        here = following(room, short(here - N * STEP))
    put_rows(dq, q_at + own * layout[3], layout[3], rows - own, d, mapped(product, LINES, acc, (scale,)), even)


# ---- launchers ---------------------------------------------------------------------------------------------------------------------
def own_kernels(width, cc):
    """(kernel, keys of a block) for dk and dv, (kernel, rows) for dq."""
    over_rows, over_keys = sizes_of(width, 32, 80, 1, cc), sizes_of(width, 64, 96, 0, cc)
    return (sized(attention_mma_dkv, **over_rows), over_rows["ROWS"]), (sized(attention_mma_dq, **over_keys), over_keys["ROWS"])


def launch(go, outs, ins, layout, sizes, scale, is_causal, chosen=None):
    """What dx_launcher() does for operands of 16 bits; chosen: other kernels than own_kernels()."""
    batch, heads, rows, keys, d, e = sizes
    (dq, dk, dv, dmask), (g, y, kept, q, k, v, mask) = outs, ins
    count, span = batch * heads * rows, THREADS_OF // down_of(next(w for w in WIDTHS if e <= w))
    stats, packed = go.empty(2 * count), None if g.dtype == q.dtype else go.empty(count * e, q.dtype)
    consts = layout[:16], heads, rows, e, count, e % 4 == 0 and is_even(layout[12:16])
    go(sized(row_stats, SPAN=span), (stats, packed), (g, y, kept), consts, grid=blocks(count, THREADS // span))
    if packed is not None:
        g, layout = packed, (*layout[:12], 0, heads * rows * e, rows * e, e, *layout[16:])
    given = g, stats, q, k, v, mask
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_even(layout[:16], d, e), is_causal)
    (over_rows, many_keys), (over_keys, many) = chosen or own_kernels(max(d, e), go.device.driver.cc)
    go(over_rows, (dk, dv), given, consts, grid=batch * heads * blocks(keys, many_keys))
    go(over_keys, (dq, dmask), given, consts, grid=batch * heads * blocks(rows, many))
