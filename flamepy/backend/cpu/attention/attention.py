"""Scaled dot-product attention, a block of query rows against a block of keys at a time: memory for one block of scores a worker.

Forward, each row keeps its largest score and its sum so far (online softmax: Milakov and Gimelshein 2018, arXiv:1805.02867; tiled
as in Dao et al. 2022, arXiv:2205.14135) and leaves y and, apart, the largest score and 1 / the sum of exp(score - largest). Backward
makes p = exp(score - largest) / sum again; largest + log(sum) in one number would lose the sum's digits where scores are large.
Scores lie transposed, those of one key side by side: a block's maxima and sums are vectors of rows, and no product
has a transposed second operand, which would have to be packed.

Operands stay where they are: `layout` holds four numbers for each, where it starts, then its strides along batch, head and row; the
last axis is contiguous. Under a causal mask row i sees keys j <= i. A row that sees no key gives zeros, and a zero gradient, as in
PyTorch 2.13 on the CPU. attention_plan() in rows.py says how everything is cut.
"""

from ....dtypes import bfloat16, float16
from ..bf16 import attention as bfloat_attention
from ..bf16.bfloat import load
from ..loops.maps import F
from ..loops.runs import fill_run
from ..products import half_products
from ..products.gemm import N, T, gemm, turn_matrix
from ..runtime.family import launcher, loop, table
from ..runtime.parallel import tasks
from .rows import (
    ROOM,
    STATE,
    attention_plan,
    attention_room,
    begin,
    block_of,
    clear_hidden,
    dots,
    finish,
    from_both_ends,
    mask_scores,
    online_softmax,
    partial_layout,
    put_rows,
    rooms_dx,
    rooms_y,
    scale_rows,
    softmax_dx,
    start_of,
    starts_dx,
    starts_y,
    sum_parts,
    thirds,
)


@loop(reorders=True)
def attention(
    part, y, kept, scratch, packed, q, k, v, mask, layout, batch, heads, rows, keys, d, dv, scale, height, width, groups, is_causal,
    has_mask
):  # fmt: skip
    """y = softmax(scale q k^T + mask) v and kept (2, B, H, rows): largest scores, 1 / sums. Items: (batch, head) pair, `height` rows.

    q, k: d wide; v, y: dv wide. layout: q, k, v, y (four numbers each), then the mask's offset, batch, head, row and column strides,
    0 where it is broadcast. The mask is added; without has_mask it isn't read. F does an item, in the worker's own part of `scratch` and
    `packed`: rows_y(), or for bfloat16 rows_y_bfloat().
    """
    blocks = (rows + height - 1) // height
    items = batch * heads * blocks
    own = groups * part[0] // part[1]  # a worker has the scratch of its first group
    for group in tasks(part, groups):
        for item in range(group * items // groups, (group + 1) * items // groups):
            pair, first = item // blocks, from_both_ends(item % blocks, blocks) * height
            F(
                y, kept, scratch, packed, own, q, k, v, mask, layout, pair // heads, pair % heads, pair, first, rows, keys, d, dv, scale,
                height, width, is_causal, has_mask,
            )  # fmt: skip


def rows_y(
    y, kept, scratch, z, own, q, k, v, mask, layout, b, h, pair, first, rows, keys, d, dv, scale, height, width, is_causal, has_mask
):  # fmt: skip
    """y of one block of rows. float16 is widened by its products, block by block. z, where sums are made: y, or for float16 the scratch."""
    (high, seen), (state, qt, scores) = block_of(first, rows, keys, height, is_causal), rooms_y(scratch, own, height, width, d, dv)
    (q_at, y_at, m_at), k_at, v_at = starts_y(layout, b, h, first)
    apart = z.itemsize != y.itemsize
    z_at, z_step = (own * attention_room(height, width, d, dv) + STATE + height * d, dv) if apart else (y_at, layout[15])
    turn_matrix(high, d, q, q_at, layout[3], qt, 0, high)
    begin(state, high)
    for at in range(0, max(1, seen), width):
        wide = min(width, seen - at)
        k_row, v_row = k_at + at * layout[7], v_at + at * layout[11]
        gemm(N, N, wide, high, d, scale, k, k_row, layout[7], qt, 0, high, False, scores, 0, high)
        mask_scores(scores, mask, m_at + at * layout[20], layout[19], layout[20], high, wide, at - first, has_mask, is_causal)
        online_softmax(scores, state, high, wide)
        if at > 0:
            scale_rows(z, z_at, z_step, state[2 * ROOM : 2 * ROOM + high], dv)
        gemm(T, N, high, dv, wide, 1.0, scores, 0, high, v, v_row, layout[11], at > 0, z, z_at, z_step)
    finish(kept, pair * rows + first, state, high)
    scale_rows(z, z_at, z_step, state[2 * ROOM : 2 * ROOM + high], dv)
    if apart:
        put_rows(y, y_at, layout[15], z, z_at, high, dv)


@loop(reorders=True)
def attention_dx(
    part, dq, dk, dv, dmask, scratch, packed, g, y, kept, q, k, v, mask, layout, batch, heads, rows, keys, d, e, scale, height, width,
    groups, chunks, step, is_causal, has_mask, keep
):  # fmt: skip
    """Gradients from g, that of y. q: d wide, v: e. layout: q, k, v, g (and y), dq, dk, dv, four numbers each, then the mask's five.

    Items: pair, chunk of its blocks of rows. The parts that chunks add to dk and dv lie `step` apart; attention_dx_sum adds them
    up. Within a chunk they are added block after block, the last one first. With `keep`, dmask is the gradient of the mask,
    (B, H, rows, keys); else it isn't touched. F does a block: rows_dx(), or for bfloat16 rows_dx_bfloat().
    """
    blocks = (rows + height - 1) // height
    items = batch * heads * chunks
    own = groups * part[0] // part[1]
    for group in tasks(part, groups):
        for item in range(group * items // groups, (group + 1) * items // groups):
            pair, chunk = item // chunks, item % chunks
            b, h = pair // heads, pair % heads
            dk_at = start_of(layout, 20, b, h, 0) + chunk * step
            dv_at = start_of(layout, 24, b, h, 0) + chunk * step
            done = 0  # keys whose gradients hold something
            for turn in range((blocks - 1) // chunks, -1, -1):
                # Every other turn goes backwards, so that chunks cost the same under a causal mask.
                block = turn * chunks + (chunk if turn % 2 == 0 else chunks - 1 - chunk)
                if block < blocks:
                    seen = F(
                        dq, dk, dv, dmask, scratch, packed, own, g, y, kept, q, k, v, mask, layout, b, h, pair, block * height,
                        dk_at, dv_at, rows, keys, d, e, scale, height, width, done, is_causal, has_mask, keep,
                    )  # fmt: skip
                    done = max(done, seen)
            for j in range(done, keys):
                fill_run(dk[dk_at + j * layout[23] : dk_at + j * layout[23] + d], 0.0)
                fill_run(dv[dv_at + j * layout[27] : dv_at + j * layout[27] + e], 0.0)


def rows_dx(
    dq, dk, dv, dmask, scratch, packed, own, g, y, kept, q, k, v, mask, layout, b, h, pair, first, dk_at, dv_at, rows, keys, d, e, scale,
    height, width, done, is_causal, has_mask, keep
):  # fmt: skip
    """The gradients one block of rows gives; returns how many keys it sees. Where done > 0, dk and dv are added to."""
    high, seen = block_of(first, rows, keys, height, is_causal)
    q_at, g_at, dq_at, m_at, k_at, v_at = starts_dx(layout, b, h, first)
    delta, turned, p, ds = rooms_dx(scratch, own, height, width, d, e)
    q_step, k_step, v_step, g_step = layout[3], layout[7], layout[11], layout[15]
    qt, gt, _ = thirds(turned, height * d, height * e)
    turn_matrix(high, d, q, q_at, q_step, qt, 0, high)
    turn_matrix(high, e, g, g_at, g_step, gt, 0, high)
    dots(delta[:high], g, y, g_at, g_step, e)
    add = done > 0
    for at in range(0, max(1, seen), width):
        wide = min(width, seen - at)
        k_row, v_row, dk_row, dv_row = k_at + at * k_step, v_at + at * v_step, dk_at + at * layout[23], dv_at + at * layout[27]
        gemm(N, N, wide, high, d, scale, k, k_row, k_step, qt, 0, high, False, p, 0, high)
        gemm(N, N, wide, high, e, 1.0, v, v_row, v_step, gt, 0, high, False, ds, 0, high)
        mask_scores(p, mask, m_at + at * layout[32], layout[31], layout[32], high, wide, at - first, has_mask, is_causal)
        softmax_dx(ds, p, kept, pair * rows + first, delta[:high], wide)
        gemm(N, N, wide, e, high, 1.0, p, 0, high, g, g_at, g_step, add, dv, dv_row, layout[27])
        gemm(N, N, wide, d, high, scale, ds, 0, high, q, q_at, q_step, add, dk, dk_row, layout[23])
        gemm(T, N, high, d, wide, scale, ds, 0, high, k, k_row, k_step, at > 0, dq, dq_at, layout[19])
        if keep:
            turn_matrix(wide, high, ds, 0, high, dmask, (pair * rows + first) * keys + at, keys)
    if keep:
        clear_hidden(dmask, pair * rows + first, high, seen, keys)
    return seen


@loop
def attention_dx_sum(part, dk, dv, partial, layout, batch, heads, keys, d, e, chunks):
    """dk and dv from their parts, (chunks, B, H, keys, d + e). layout: dk, dv."""
    total = batch * heads * keys
    for row in tasks(part, total):
        b, h, j = row // keys // heads, row // keys % heads, row % keys
        k_at, v_at = start_of(layout, 0, b, h, j), start_of(layout, 4, b, h, j)
        sum_parts(dk[k_at : k_at + d], partial, row * (d + e), total * (d + e), chunks)
        sum_parts(dv[v_at : v_at + e], partial, row * (d + e) + d, total * (d + e), chunks)


# ---- launchers ----
@launcher(name="attention")
def attention_launcher(go, outs, ins, layout, sizes, scale, is_causal):
    y, kept = outs
    q, k, v, mask = ins
    half = q.dtype == bfloat16
    plan = attention_plan(sizes, is_causal, "y", half)
    consts = (table(layout), *sizes, scale, plan.height, plan.width, plan.groups, is_causal, mask is not None)
    scratch, packed = rooms(go, plan, q.dtype, bfloat_attention.packed_room(plan.height, plan.width, *sizes[4:]))
    places = y, kept, scratch, packed if half or y.dtype == float16 else y
    given = (q, k, v, q if mask is None else mask)
    go(attention, places, given, consts, work=work_of(sizes), formula=bfloat_attention.rows_y_bfloat if half else rows_y)


def rooms(go, plan, dtype, packed):
    """Each worker's scratch, and for bfloat16 room for so many packed numbers; what such operands are multiplied with is loaded."""
    scratch = go.empty(plan.scratch)
    if dtype == float16:
        half_products.load()
    if dtype != bfloat16:
        return scratch, scratch
    load()
    return scratch, go.empty(plan.groups * packed, bfloat16)


@launcher(name="attention_dx")
def dx_launcher(go, outs, ins, layout, sizes, scale, is_causal):
    """The gradients of q, k, v lie as q, k, v do; cut into chunks, those of k and v are summed from parts."""
    dq, dk, dv, dmask = outs
    *rest, mask = ins
    half = rest[3].dtype == bfloat16
    plan = attention_plan(sizes, is_causal, "dx", half)
    batch, heads, _, *widths = sizes
    own = layout[4:12]
    scratch, packed = rooms(go, plan, rest[3].dtype, bfloat_attention.packed_room_dx(plan.height, plan.width, *sizes[4:]))
    parts, dest = own, (dk, dv)
    if plan.chunks > 1:
        parts, partial = partial_layout(heads, *widths), go.empty(plan.partial)
        dest = (partial, partial)
    places = table((*layout[:16], *layout[:4], *parts, *(layout[16:] or (0,) * 5)))
    counts = (plan.height, plan.width, plan.groups, plan.chunks, plan.partial // plan.chunks)
    consts = (places, *sizes, scale, *counts, is_causal, mask is not None, dmask is not None)
    given = (*rest, rest[0] if mask is None else mask)
    outs = [dq, *dest, scratch if dmask is None else dmask, scratch, packed]
    go(attention_dx, outs, given, consts, work=work_of(sizes), formula=bfloat_attention.rows_dx_bfloat if half else rows_dx)
    if plan.chunks > 1:
        consts = (table(own), batch, heads, *widths, plan.chunks)
        go(attention_dx_sum, (dk, dv), (partial,), consts, work=plan.partial, formula=None)


def work_of(sizes):
    """In elements of a map."""
    return sizes[0] * sizes[1] * sizes[2] * sizes[3] * max(1, sizes[4] + sizes[5])
