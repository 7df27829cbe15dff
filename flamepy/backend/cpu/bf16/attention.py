"""What attention.py does with a block of rows where operands are bfloat16: products of bfloat16 numbers whose sums are float32.

Scores, softmax and all sums are float32; what a product reads of them is rounded while it is packed. A block of keys lies as the left
operand of its products with rows; what else is multiplied is packed block by block, which takes a small part of the time of its
product. Gradients are float32, as everywhere.
"""

from ..attention.rows import (
    ROOM,
    begin,
    block_of,
    clear_hidden,
    dots,
    finish,
    mask_scores,
    online_softmax,
    put_rows,
    rooms_dx,
    rooms_y,
    scale_rows,
    softmax_dx,
    starts_dx,
    starts_y,
)
from .bfloat import multiply, pack_panels, pack_strips, packed_size, tiles_off, tiles_on


def rows_y_bfloat(
    y, kept, scratch, packed, own, q, k, v, mask, layout, b, h, pair, first, rows, keys, d, dv, scale, height, width, is_causal, has_mask
):  # fmt: skip
    """See attention(). packed: for each worker room for a block of rows, one of values, and the softmax between them."""
    (high, seen), (state, sums, scores) = block_of(first, rows, keys, height, is_causal), rooms_y(scratch, own, height, width, d, dv)
    (q_at, y_at, m_at), k_at, v_at = starts_y(layout, b, h, first)
    rows_at = own * packed_room(height, width, d, dv)
    v_panels = rows_at + packed_size(d, height)
    strips = v_panels + packed_size(width, dv)
    tiles_on()
    pack_panels(True, d, high, q, q_at, layout[3], packed, rows_at)
    begin(state, high)
    for at in range(0, max(1, seen), width):
        wide = min(width, seen - at)
        multiply(wide, high, d, 1.0, k, k_at + at * layout[7], layout[7], packed, rows_at, False, scores, 0, high)
        scale_run(scores[: wide * high], scale)
        mask_scores(scores, mask, m_at + at * layout[20], layout[19], layout[20], high, wide, at - first, has_mask, is_causal)
        online_softmax(scores, state, high, wide)
        if at > 0:
            scale_rows(sums, 0, dv, state[2 * ROOM : 2 * ROOM + high], dv)
        pack_strips(True, high, wide, scores, 0, high, packed, strips)
        pack_panels(False, wide, dv, v, v_at + at * layout[11], layout[11], packed, v_panels)
        multiply(high, dv, wide, 1.0, packed, strips, 0, packed, v_panels, at > 0, sums, 0, dv)
    tiles_off()
    finish(kept, pair * rows + first, state, high)
    scale_rows(sums, 0, dv, state[2 * ROOM : 2 * ROOM + high], dv)
    put_rows(y, y_at, layout[15], sums, 0, high, dv)


def rows_dx_bfloat(
    dq, dk, dv, dmask, scratch, packed, own, g, y, kept, q, k, v, mask, layout, b, h, pair, first, dk_at, dv_at, rows, keys, d, e, scale,
    height, width, done, is_causal, has_mask, keep
):  # fmt: skip
    """See rows_dx()."""
    high, seen = block_of(first, rows, keys, height, is_causal)
    q_at, g_at, dq_at, m_at, k_at, v_at = starts_dx(layout, b, h, first)
    delta, _, p, ds = rooms_dx(scratch, own, height, width, d, e)
    k_step, v_step, g_step, add = layout[7], layout[11], layout[15], done > 0
    q_rows = own * packed_room_dx(height, width, d, e)
    g_rows, q_cols, g_cols, k_cols, strips = places_dx(q_rows, height, width, d, e)
    tiles_on()
    pack_both(high, d, q, q_at, layout[3], packed, q_rows, q_cols)
    pack_both(high, e, g, g_at, g_step, packed, g_rows, g_cols)
    dots(delta[:high], g, y, g_at, g_step, e)
    for at in range(0, max(1, seen), width):
        wide = min(width, seen - at)
        k_row, v_row = k_at + at * k_step, v_at + at * v_step
        multiply(wide, high, d, 1.0, k, k_row, k_step, packed, q_rows, False, p, 0, high)
        multiply(wide, high, e, 1.0, v, v_row, v_step, packed, g_rows, False, ds, 0, high)
        scale_run(p[: wide * high], scale)
        mask_scores(p, mask, m_at + at * layout[32], layout[31], layout[32], high, wide, at - first, has_mask, is_causal)
        softmax_dx(ds, p, kept, pair * rows + first, delta[:high], wide)
        if keep:
            put_turned(dmask, ds, (pair * rows + first) * keys + at, keys, high, wide)
        scale_run(ds[: wide * high], scale)
        pack_strips(False, wide, high, p, 0, high, packed, strips)
        multiply(wide, e, high, 1.0, packed, strips, 0, packed, g_cols, add, dv, dv_at + at * layout[27], layout[27])
        pack_strips(False, wide, high, ds, 0, high, packed, strips)
        multiply(wide, d, high, 1.0, packed, strips, 0, packed, q_cols, add, dk, dk_at + at * layout[23], layout[23])
        pack_strips(True, high, wide, ds, 0, high, packed, strips)
        pack_panels(False, wide, d, k, k_row, k_step, packed, k_cols)
        multiply(high, d, wide, 1.0, packed, strips, 0, packed, k_cols, at > 0, dq, dq_at, layout[19])
    tiles_off()
    if keep:
        clear_hidden(dmask, pair * rows + first, high, seen, keys)
    return seen


def pack_both(high, d, x, at, step, packed, rows, cols):
    """A block of rows, turned and as it is."""
    pack_panels(True, d, high, x, at, step, packed, rows)
    pack_panels(False, high, d, x, at, step, packed, cols)


def packed_room(height, width, d, dv):
    """bfloat16 numbers that one worker packs, forward."""
    return packed_size(d, height) + packed_size(width, dv) + packed_size(width, height)


def places_dx(at, height, width, d, e):
    """Where backward packs what comes after rows of q: rows of g, both of these the other way, a block of keys, scores."""
    g_rows = at + packed_size(d, height)
    q_cols = g_rows + packed_size(e, height)
    g_cols = q_cols + packed_size(height, d)
    k_cols = g_cols + packed_size(height, e)
    return g_rows, q_cols, g_cols, k_cols, k_cols + packed_size(width, d)


def packed_room_dx(height, width, d, e):
    """The same backward."""
    return places_dx(0, height, width, d, e)[4] + max(packed_size(width, height), packed_size(height, width))


def scale_run(run, factor):
    for i in range(run.size):
        run[i] *= factor


def put_turned(dmask, ds, at, step, high, wide):
    for r in range(high):
        line = dmask[at + r * step : at + r * step + wide]
        for j in range(line.size):
            line[j] = ds[j * high + r]
