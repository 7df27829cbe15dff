"""Attention's gradients by wgmma of sm_90a, where four warps multiply as one: no mask, rows of 33 to 64 numbers.

A block has two such groups with 64 keys each, for dk and dv, or with 64 rows, for dq. While a group adds what a tile gives to its sums, it
makes the weights of the next, whose products it has begun before; so two stages of shared memory are in use and two on their way. Formulas
and what ends a row are tensor_cores_dx.py's, tiles lie as warp_groups.py says.
"""

from __future__ import annotations

from typing import Any

from ..loops.vectors import aligned
from ..loops.words import thread
from ..products.fragments import each, mapped, rounded
from ..products.tensor import commit, divided, shared
from ..products.tile_words import cut, cut_turned, of_columns, piece_from, short
from ..products.tiles import elements, filled, sized
from ..runtime.compat import types, word
from ..runtime.family import kernel
from .tensor_cores import LOG2E, following, longest, place_of, product, put_rows, stage_own, stage_pair, starts, vacant, weight
from .tensor_cores_dx import other, stage_stats, stat_of
from .warp_groups import FAR, STEP, THREADS_OF, Product, arrive, floats, multiply, piece_of_panel, settled

ROWS, N = 128, 64  # rows (or keys) of a block, of the tiles it goes over
WIDE, DOWN, LINES, TALL, SCORES, SUMS = 64, 32, 2, 1, 32, 32  # as in tensor_cores.py
TWICE = 2 * SUMS  # those of dk and dv
PAIR, LAST, STAY = 1 << 14, 3 << 14, 4 << 14  # bytes of a stage; where the last of four begins, where the block's own rows stay
REST = STAY + 2 * FAR  # where the numbers of a tile's rows are, 2 N for each stage
ROOMS = REST + 4 * 8 * N
SIZES = {
    "ROWS": ROWS, "N": N, "WIDE": WIDE, "DOWN": DOWN, "LINES": LINES, "TALL": TALL, "STEP": STEP, "PAIR": PAIR, "LAST": LAST,
    "THREADS_OF": THREADS_OF,
}  # fmt: skip


def choice(driver: Any, width: int, mask: Any) -> tuple[tuple[Any, int], tuple[Any, int]] | None:
    """What own_kernels() says, where these are asked for and take such rows."""
    takes = driver.wgmma and driver.cc[:2] == (9, 0) and mask is None and 32 < width <= 64
    return ((sized(attention_groups_dkv, **SIZES), ROWS), (sized(attention_groups_dq, **SIZES), ROWS)) if takes else None


# ---- products ------------------------------------------------------------------------------------------------------------------------
def both(builder: Any, dp: list[Any], left: Any, right: Any, at: Any) -> list[Product]:
    """Products of the block's two kinds of rows with those of a stage; dp: what the second are added to."""
    return [Product(len(dp), None, left, at, WIDE // 16), Product(len(dp), dp, right, builder.add(at, at.type(N * STEP)), WIDE // 16)]


def added(builder: Any, acc: list[Any], p: list[Any], at: Any) -> list[Product]:
    """acc + p times a stage's rows: for each SUMS of acc those of the next of its tiles."""
    parts, half = range(len(acc) // SUMS), SCORES // 2
    return [Product(SUMS, acc[n * SUMS :][:SUMS], p[n * half :][:half], builder.add(at, at.type(n * N * STEP))) for n in parts]


@word(lambda dp, left, right, at, x: floats(2 * dp.count)(dp, types.int32, types.int32, types.int32, x))
def begun(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The first tile's products: of left with its first rows, then dp + those of right with its second ones."""
    return multiply(builder, sig.args[4], both(builder, elements(builder, args[0]), *args[1:4]), 0)


@word(lambda dp, acc, p, left, right, at, here, x: floats(2 * dp.count + acc.count)(dp, acc, p, *[types.int32] * 4, x))
def continued(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The same of the next tile, and acc + p times the rows `here`; all but the first go on: nothing may touch them until settled()."""
    dp, acc, p = (elements(builder, v) for v in args[:3])
    products = [*both(builder, dp, *args[3:6]), *added(builder, acc, p, args[6])]
    return multiply(builder, sig.args[7], products, len(products) - 1)


@word(lambda acc, p, here, x: acc(acc, p, types.int32, x))
def ended(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """acc + p times the rows `here`."""
    acc, p = (elements(builder, v) for v in args[:2])
    return multiply(builder, sig.args[3], added(builder, acc, p, args[2]), 0)


# ---- dk and dv -----------------------------------------------------------------------------------------------------------------------
def told_of(room, here):
    """Where the numbers of a stage's rows are."""
    return short(room + REST + (here - room) // (PAIR // (8 * N)))


def bring_own(to, x, x_at, x_step, z, z_at, z_step, first, many, d, e, fast):
    """Begin to copy the block's own rows of two buffers, which have so many, from the first on."""
    stage_own(to, x, x_at + first * x_step + piece_from(x_step, WIDE), x_step, many - first, d, fast)
    stage_own(to + FAR, z, z_at + first * z_step + piece_from(z_step, WIDE), z_step, many - first, e, fast)


def bring_rows(to, told, q, q_at, g, g_at, layout, stats, s_at, at, least, rows, d, e, fast):
    """Begin to copy the tile of rows that begins at `at`, if it is one: what one group of copies has."""
    if at >= least:
        stage_stats(told, stats, s_at + at, rows - at)
        stage_pair(to, q, q_at + at * layout[3], layout[3], g, g_at + at * layout[15], layout[15], rows - at, d, e, fast)
    commit()


@kernel(threads=THREADS_OF)
def attention_groups_dkv(dk, dv, g, stats, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """dk and dv. A block: a tile of keys of one (batch, head), which goes over tiles of rows from the last to the first."""
    room, mine, group = short(shared(ROOMS)), piece_of_panel(), short(64 * (thread() >> 7))
    pair, tile = place_of(divided(keys + ROWS - 1, ROWS)[0])
    first, s_at = short(tile * ROWS), pair * rows
    q_at, k_at, v_at, g_at, _ = starts(layout, m_layout, pair, heads)
    fast = even and aligned(q, 8) and aligned(k, 8) and aligned(v, 8) and aligned(g, 8)
    least, last = short(first if is_causal else 0), short(first + group if is_causal else 0)  # row of the block's last tile, the group's
    at, here = short(least + (max(rows - least, 1) - 1) // N * N), room
    q_at, g_at = q_at + piece_from(layout[3], WIDE), g_at + piece_from(layout[15], WIDE)
    bring_own(room + STAY + mine, k, k_at, layout[7], v, v_at, layout[11], first, keys, d, e, fast)
    for n in range(3):
        to = short(room + n * PAIR)
        bring_rows(to + mine, told_of(room, to), q, q_at, g, g_at, layout, stats, s_at, short(at - n * N), least, rows, d, e, fast)
    own_k, unit, own = short(room + STAY + STEP * group), scale * LOG2E, short(first + group + 16 * (thread() >> 5 & 3))
    own_v, none, acc = short(own_k + FAR), filled(SCORES, 0.0), filled(TWICE, 0.0)
    arrive(2)
    both = begun(of_columns(none, LINES, told_of(room, here) + 4 * N), own_k, own_v, here, q)
    p = mapped(weight, LINES, both[:SCORES], (of_columns(none, LINES, told_of(room, here)), unit))
    p = cut_turned(p, LINES, at - own, 0.0) if is_causal and at < short(own + 15) else p
    p = rounded(mapped(product, LINES, p, (both[SCORES:],)), q) + rounded(p, q)
    while at >= least:
        arrive(1)
        to, after = vacant(room, here), following(room, here)
        bring_rows(to + mine, told_of(room, to), q, q_at, g, g_at, layout, stats, s_at, short(at - 3 * N), least, rows, d, e, fast)
        at = short(at - N)
        if at >= last:
            told = told_of(room, after)
            all_of_them = continued(of_columns(none, LINES, told + 4 * N), acc, p, own_k, own_v, after, here, q)
            fresh = mapped(weight, LINES, all_of_them[:SCORES], (of_columns(none, LINES, told), unit))
            if is_causal and at < short(last + 64):
                rest, fresh = settled(all_of_them[SCORES:], p, cut_turned(fresh, LINES, at - own, 0.0))
            else:
                rest, fresh = settled(all_of_them[SCORES:], p, fresh)
            p, acc = rounded(mapped(product, LINES, fresh, (rest[:SCORES],)), q) + rounded(fresh, q), rest[SCORES:]
        elif at + N >= last:
            acc = ended(acc, p, here, q)
        here = after
    put_rows(dv, v_at + own * layout[11], layout[11], keys - own, e, acc[SUMS:], even)
    put_rows(dk, k_at + own * layout[7], layout[7], keys - own, d, mapped(product, LINES, acc[:SUMS], (scale,)), even)


# ---- dq ------------------------------------------------------------------------------------------------------------------------------
def bring_keys(to, k, k_at, v, v_at, layout, at, end, keys, d, e, fast):
    """Begin to copy the tile of keys that begins at `at`, if it is one."""
    if at < end:
        stage_pair(to, k, k_at + at * layout[7], layout[7], v, v_at + at * layout[11], layout[11], keys - at, d, e, fast)
    commit()


@kernel(threads=THREADS_OF)
def attention_groups_dq(dq, dmask, g, stats, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """dq. A block: a tile of rows of one (batch, head), which goes over tiles of keys."""
    room, mine, group = short(shared(ROOMS)), piece_of_panel(), short(64 * (thread() >> 7))
    pair, first = longest(rows)
    q_at, k_at, v_at, g_at, _ = starts(layout, m_layout, pair, heads)
    fast = even and aligned(q, 8) and aligned(k, 8) and aligned(v, 8) and aligned(g, 8)
    end, least = short(min(keys, first + ROWS) if is_causal else keys), short(first + group)
    last = short(0 if least >= rows else min(keys, least + 64) if is_causal else keys)  # of the keys that the group's rows see
    bring_own(room + STAY + mine, q, q_at, layout[3], g, g_at, layout[15], first, rows, d, e, fast)
    at, here, k_at, v_at = short(0), room, k_at + piece_from(layout[7], WIDE), v_at + piece_from(layout[11], WIDE)
    for n in range(3):
        bring_keys(room + n * PAIR + mine, k, k_at, v, v_at, layout, short(n * N), end, keys, d, e, fast)
    own_q, unit, own = short(room + STAY + STEP * group), scale * LOG2E, short(least + 16 * (thread() >> 5 & 3))
    own_g, base, acc, none = short(own_q + FAR), pair * rows + own, filled(SUMS, 0.0), filled(LINES, 0.0)
    level = each(stat_of, LINES, none, (stats, base, rows - own))
    sums = mapped(other, LINES, filled(SCORES, 0.0), (each(stat_of, LINES, none, (stats, stats.size // 2 + base, rows - own)),))
    arrive(2)
    both = begun(sums, own_q, own_g, here, q)
    p = cut(mapped(weight, LINES, both[:SCORES], (level, unit)), LINES, keys - 1, own if is_causal else N, 0.0)
    p = rounded(mapped(product, LINES, p, (both[SCORES:],)), q)
    while at < end:
        arrive(1)
        bring_keys(vacant(room, here) + mine, k, k_at, v, v_at, layout, short(at + 3 * N), end, keys, d, e, fast)
        after, at = following(room, here), short(at + N)
        if at < last:
            all_of_them = continued(sums, acc, p, own_q, own_g, after, here, q)
            fresh = mapped(weight, LINES, all_of_them[:SCORES], (level, unit))
            if short(at + N) > keys or (is_causal and short(at + N) > least):
                rest, fresh = settled(all_of_them[SCORES:], p, cut(fresh, LINES, keys - at - 1, own - at if is_causal else N, 0.0))
            else:
                rest, fresh = settled(all_of_them[SCORES:], p, fresh)
            p, acc = rounded(mapped(product, LINES, fresh, (rest[:SCORES],)), q), rest[SCORES:]
        elif at < short(last + N):
            acc = ended(acc, p, here, q)
        here = after
    put_rows(dq, q_at + own * layout[3], layout[3], rows - own, d, mapped(product, LINES, acc, (scale,)), even)
