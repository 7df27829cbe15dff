"""Scaled dot-product attention, a block of query rows against a block of keys at a time: memory for one block of scores a worker.

Forward, each row keeps its largest score and its sum so far (online softmax: Milakov and Gimelshein 2018, arXiv:1805.02867; tiled
as in Dao et al. 2022, arXiv:2205.14135) and leaves y and, apart, the largest score and 1 / the sum of exp(score - largest). Backward
makes p = exp(score - largest) / sum again; largest + log(sum) in one number would lose the sum's digits where scores are large.
Scores lie transposed, those of one key side by side: a block's maxima and sums are vectors of rows, and no product
has a transposed second operand, which would have to be packed.

Operands stay where they are: `layout` holds four numbers for each, where it starts, then its strides along batch, head and row; the
last axis is contiguous. Under a causal mask row i sees keys j <= i. A row that sees no key gives zeros, and a zero gradient, as in
PyTorch 2.13 on the CPU. plans.attention_plan says how everything is cut.

FLAME counterpart: `flame_core::attention::sdpa`. Read next: conv.py.
"""

from __future__ import annotations

import numpy as np

from ..formula.words import INF, exp_down, fmax, select
from .family import launcher, loop, table
from .parallel import tasks
from .plans import ROOM, STATE, attention_plan, attention_room, partial_layout
from .products import N, T, gemm, turn_matrix
from .runs import add_run, fill_run


@loop
def attention(
    part, y, kept, scratch, q, k, v, mask, layout, batch, heads, rows, keys, d, dv, scale, height, width, groups, is_causal, has_mask
):  # fmt: skip
    """y = softmax(scale q k^T + mask) v and kept (2, B, H, rows): largest scores, 1 / sums. Items: (batch, head) pair, `height` rows.

    q, k: d wide; v, y: dv wide. layout: q, k, v, y (four numbers each), then the mask's offset, batch, head, row and column strides,
    0 where it is broadcast. The mask is added; without has_mask it isn't read.
    """
    blocks = (rows + height - 1) // height
    items = batch * heads * blocks
    size = attention_room(height, width, d, 0)
    own = groups * part[0] // part[1] * size  # a worker has the scratch of its first group
    state, qt, scores = thirds(scratch[own : own + size], STATE, size - STATE - width * height)
    for group in tasks(part, groups):
        for item in range(group * items // groups, (group + 1) * items // groups):
            pair = item // blocks
            b, h = pair // heads, pair % heads
            first = from_both_ends(item % blocks, blocks) * height
            high = min(height, rows - first)
            seen = min(keys, first + high) if is_causal else keys
            k_at, v_at = start_of(layout, 4, b, h, 0), start_of(layout, 8, b, h, 0)
            y_at, m_at = start_of(layout, 12, b, h, first), start_of(layout, 16, b, h, first)
            turn_matrix(high, d, q, start_of(layout, 0, b, h, first), layout[3], qt, 0, high)
            fill_run(state[:high], -INF)
            fill_run(state[ROOM : ROOM + high], 0.0)
            for at in range(0, max(1, seen), width):
                wide = min(width, seen - at)
                k_row, v_row = k_at + at * layout[7], v_at + at * layout[11]
                gemm(N, N, wide, high, d, scale, k, k_row, layout[7], qt, 0, high, False, scores, 0, high)
                if has_mask:
                    add_mask(scores, mask, m_at + at * layout[20], layout[19], layout[20], high, wide)
                if is_causal:
                    hide(scores, high, wide, at - first)
                online_softmax(scores, state, high, wide)
                if at > 0:
                    scale_rows(y, y_at, layout[15], state[2 * ROOM : 2 * ROOM + high], dv)
                gemm(T, N, high, dv, wide, 1.0, scores, 0, high, v, v_row, layout[11], at > 0, y, y_at, layout[15])
            finish(kept, pair * rows + first, state, high)
            scale_rows(y, y_at, layout[15], state[2 * ROOM : 2 * ROOM + high], dv)


@loop
def attention_dx(
    part, dq, dk, dv, dmask, scratch, g, y, kept, q, k, v, mask, layout, batch, heads, rows, keys, d, e, scale, height, width, groups,
    chunks, step, is_causal, has_mask, keep
):  # fmt: skip
    """Gradients from g, that of y. q: d wide, v: e. layout: q, k, v, g (and y), dq, dk, dv, four numbers each, then the mask's five.

    Items: pair, chunk of its blocks of rows. The parts that chunks add to dk and dv lie `step` apart; attention_dx_sum adds them
    up. Within a chunk they are added block after block, the last one first. With `keep`, dmask is the gradient of the mask,
    (B, H, rows, keys); else it isn't touched.
    """
    blocks = (rows + height - 1) // height
    items = batch * heads * chunks
    size = attention_room(height, 2 * width, d, e)
    own = groups * part[0] // part[1] * size
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
                    seen = rows_dx(
                        dq, dk, dv, dmask, scratch[own : own + size], g, y, kept, q, k, v, mask, layout, b, h, pair, block * height,
                        dk_at, dv_at, rows, keys, d, e, scale, height, width, done, is_causal, has_mask, keep,
                    )  # fmt: skip
                    done = max(done, seen)
            for j in range(done, keys):
                fill_run(dk[dk_at + j * layout[23] : dk_at + j * layout[23] + d], 0.0)
                fill_run(dv[dv_at + j * layout[27] : dv_at + j * layout[27] + e], 0.0)


def rows_dx(
    dq, dk, dv, dmask, scratch, g, y, kept, q, k, v, mask, layout, b, h, pair, first, dk_at, dv_at, rows, keys, d, e, scale, height,
    width, done, is_causal, has_mask, keep
):  # fmt: skip
    """The gradients one block of rows gives; returns how many keys it sees. Where done > 0, dk and dv are added to."""
    high = min(height, rows - first)
    seen = min(keys, first + high) if is_causal else keys
    q_at, g_at = start_of(layout, 0, b, h, first), start_of(layout, 12, b, h, first)
    dq_at, m_at = start_of(layout, 16, b, h, first), start_of(layout, 28, b, h, first)
    k_at, v_at = start_of(layout, 4, b, h, 0), start_of(layout, 8, b, h, 0)
    q_step, k_step, v_step, g_step = layout[3], layout[7], layout[11], layout[15]
    delta, turned, scores = thirds(scratch, STATE, scratch.size - STATE - 2 * width * height)
    qt, gt, _ = thirds(turned, height * d, height * e)
    p, ds, _ = thirds(scores, height * width, height * width)
    turn_matrix(high, d, q, q_at, q_step, qt, 0, high)
    turn_matrix(high, e, g, g_at, g_step, gt, 0, high)
    dots(delta[:high], g, y, g_at, g_step, e)
    add = done > 0
    for at in range(0, max(1, seen), width):
        wide = min(width, seen - at)
        k_row, v_row, dk_row, dv_row = k_at + at * k_step, v_at + at * v_step, dk_at + at * layout[23], dv_at + at * layout[27]
        gemm(N, N, wide, high, d, scale, k, k_row, k_step, qt, 0, high, False, p, 0, high)
        gemm(N, N, wide, high, e, 1.0, v, v_row, v_step, gt, 0, high, False, ds, 0, high)
        if has_mask:
            add_mask(p, mask, m_at + at * layout[32], layout[31], layout[32], high, wide)
        if is_causal:
            hide(p, high, wide, at - first)
        softmax_dx(ds, p, kept, pair * rows + first, delta[:high], wide)
        gemm(N, N, wide, e, high, 1.0, p, 0, high, g, g_at, g_step, add, dv, dv_row, layout[27])
        gemm(N, N, wide, d, high, scale, ds, 0, high, q, q_at, q_step, add, dk, dk_row, layout[23])
        gemm(T, N, high, d, wide, scale, ds, 0, high, k, k_row, k_step, at > 0, dq, dq_at, layout[19])
        if keep:
            turn_matrix(wide, high, ds, 0, high, dmask, (pair * rows + first) * keys + at, keys)
    if keep:
        for r in range(first, first + high):
            fill_run(dmask[(pair * rows + r) * keys + seen : (pair * rows + r + 1) * keys], 0.0)
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


def start_of(layout, operand, b, h, row):
    """Where a row of an operand starts."""
    return layout[operand] + b * layout[operand + 1] + h * layout[operand + 2] + row * layout[operand + 3]


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


def sum_parts(out, partial, at, step, chunks):
    fill_run(out, 0.0)
    for n in range(chunks):
        add_run(out, partial[at + n * step : at + n * step + out.size])


# ---- launchers ----
@launcher(name="attention")
def attention_launcher(go, outs, ins, layout, sizes, scale, is_causal):
    y, kept = outs
    q, k, v, mask = ins
    plan = attention_plan(sizes, is_causal, "y")
    consts = (table(layout), *sizes, scale, plan.height, plan.width, plan.groups, is_causal, mask is not None)
    go(attention, (y, kept, go.empty(plan.scratch)), (q, k, v, q if mask is None else mask), consts, work=work_of(sizes))


@launcher(name="attention_dx")
def dx_launcher(go, outs, ins, layout, sizes, scale, is_causal):
    """The gradients of q, k, v lie as q, k, v do; cut into chunks, those of k and v are summed from parts."""
    dq, dk, dv, dmask = outs
    *rest, mask = ins
    plan = attention_plan(sizes, is_causal, "dx")
    batch, heads, _, *widths = sizes
    own, scratch = layout[4:12], go.empty(plan.scratch)
    parts, dest = own, (dk, dv)
    if plan.chunks > 1:
        parts, partial = partial_layout(heads, *widths), go.empty(plan.partial)
        dest = (partial, partial)
    places = table((*layout[:16], *layout[:4], *parts, *(layout[16:] or (0,) * 5)))
    counts = (plan.height, plan.width, plan.groups, plan.chunks, plan.partial // plan.chunks)
    consts = (places, *sizes, scale, *counts, is_causal, mask is not None, dmask is not None)
    given = (*rest, rest[0] if mask is None else mask)
    go(attention_dx, (dq, *dest, scratch if dmask is None else dmask, scratch), given, consts, work=work_of(sizes))
    if plan.chunks > 1:
        go(attention_dx_sum, (dk, dv), (partial,), (table(own), batch, heads, *widths, plan.chunks), work=plan.partial)


def work_of(sizes):
    """In elements of a map."""
    return sizes[0] * sizes[1] * sizes[2] * sizes[3] * max(1, sizes[4] + sizes[5])
