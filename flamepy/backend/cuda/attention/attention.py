"""Scaled dot-product attention in plain tiles: float32, float64, and 16-bit numbers whose width the tensor cores' kernels do not take.

A block has a tile of rows and goes over tiles of keys: scores in shared memory, softmax with the largest score and the sum so far (Milakov
and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135), results in registers. Backward makes the scores again, once for
dk and dv, a block for a tile of keys, and once for dq, a block for a tile of rows, so nothing is added by atomics. Wide results are cut
into parts of W columns, a block each. Launches, layouts and `kept` are those of plain/networks.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ....core.words import INF, exp, maximum, real
from ....dtypes import HALF, bfloat16, float64
from ..loops.words import barrier, block, thread
from ..products.tensor import divided
from ..products.tiles import filled, gather, outer, put_shared, put_tile, sized, times_rows
from ..runtime.compat import cuda
from ..runtime.family import THREADS, WARP, blocks, kernel, launcher
from . import cudnn, warp_groups, warp_groups_dx
from . import tensor_cores as attention_mma
from . import tensor_cores_dx as attention_mma_dx

SIDE = 16  # a block's threads: 16 by 16, each with I rows and J columns
I = J = 4  # noqa: E741
EACH = 16  # I * J
R = C = 64  # rows and keys of a tile
W, ACROSS, OWN = 64, 4, 16  # columns of a part of the result; a thread's columns and numbers of it
DEEP, DOWN = 16, 8  # columns (of rows times keys) and keys (of weights times values) that are staged at once
PITCH = C + 1  # of scores in shared memory
SCORES, LEFT, RIGHT = R * PITCH, DEEP * (R + 1), DEEP * (C + 1)
GROUP = 4  # threads that share a row of scores
ALL = 0xFFFFFFFF


def plain_sizes(dtype: Any, width: int) -> dict[str, int]:
    """The sizes of a kernel of this dtype for results of so many columns."""
    i = 2 if dtype == float64 else 4
    tile = SIDE * i
    w = next((w for w in (16, 32, 64) if width <= w), 64 if dtype == float64 else 128)
    right = max(DEEP * (tile + 1), DOWN * w)
    return {
        "W": w, "R": tile, "C": tile, "I": i, "J": i, "EACH": i * i, "ACROSS": w // SIDE,
        "OWN": i * w // SIDE, "PITCH": tile + 1, "SCORES": tile * (tile + 1),
        "LEFT": DEEP * (tile + 1), "RIGHT": right, "GROUP": 256 // tile,
    }  # fmt: skip


# ---- products of tiles -----------------------------------------------------------------------------------------------------------
def stage_columns(to, x, at, step, left, first, width, tile):
    """to (DEEP, tile + 1) = columns `first` on of `tile` rows of x, turned; zeros where there are none."""
    i = thread()
    while i < tile * DEEP:
        row, column = i // DEEP, i % DEEP
        value = real(0)
        if row < left and first + column < width:
            value = real(x[at + row * step + first + column])
        to[column * (tile + 1) + row] = value
        i += THREADS


def stage_rows(to, x, at, step, left, first, width):
    """to (DOWN, W) = DOWN rows of x from column `first` on; zeros where there are none."""
    i = thread()
    while i < DOWN * W:
        row, column = i // W, first + i % W
        value = real(0)
        if row < left and column < width:
            value = real(x[at + row * step + column])
        to[i] = value
        i += THREADS


def dots(x, x_at, x_step, x_left, z, z_at, z_step, z_left, width, left, right):
    """Products of R rows of x with C rows of z: this thread's."""
    ty, tx = thread() // SIDE, thread() % SIDE
    found = filled(EACH, real(0))
    first = 0
    while first < width:
        barrier()
        stage_columns(left, x, x_at, x_step, x_left, first, width, R)
        stage_columns(right, z, z_at, z_step, z_left, first, width, C)
        barrier()
        for c in range(DEEP):
            found = outer(found, gather(left, c * (R + 1) + ty * I, 1, I), gather(right, c * (C + 1) + tx, SIDE, J))
        first += DEEP
    return found


def add_products(acc, weights, z, z_at, z_step, z_left, first, width, right):
    """acc + weights (R, C) times C rows of z, columns `first` to first + W."""
    ty, tx = thread() // SIDE, thread() % SIDE
    low = 0
    while low < min(C, z_left):
        barrier()
        stage_rows(right, z, z_at + low * z_step, z_step, z_left - low, first, width)
        barrier()
        for c in range(DOWN):
            acc = outer(acc, gather(weights, ty * I * PITCH + low + c, PITCH, I), gather(right, c * W + tx, SIDE, ACROSS))
        low += DOWN
    barrier()
    return acc


def keep_scores(to, found):
    """This thread's products to shared memory."""
    put_shared(to, (thread() // SIDE) * I * PITCH + thread() % SIDE, PITCH, SIDE, found, I)


def score_at(product, scale, mask, m_at, m_row, m_col, row, column, rows, keys, is_causal):
    """The score of a row and a key from their product: scale times it + mask, -inf where there is none."""
    if row >= rows or column >= keys or (is_causal and column > row):
        return real(-INF)
    score = product * scale
    if mask is not None:
        score += mask[m_at + row * m_row + column * m_col]
    return score


# ---- forward ---------------------------------------------------------------------------------------------------------------------
def softmax_rows(scores, top, total, fade, scale, mask, m_at, m_row, m_col, first, at, rows, keys, is_causal):
    """exp(score - largest) of a tile of products, with the largest so far; fade: what the sums before this tile are multiplied with."""
    row, part = thread() // GROUP, thread() % GROUP
    largest = real(-INF)
    column = part
    while column < C:
        value = score_at(scores[row * PITCH + column], scale, mask, m_at, m_row, m_col, first + row, at + column, rows, keys, is_causal)
        scores[row * PITCH + column] = value
        largest = maximum(largest, value)
        column += GROUP
    far = 1
    while far < GROUP:
        largest = maximum(largest, cuda.shfl_xor_sync(ALL, largest, far))
        far *= 2
    before = top[row]
    largest = maximum(before, largest)
    shift = real(0) if largest == -INF else largest
    added = real(0)
    column = part
    while column < C:
        value = exp(scores[row * PITCH + column] - shift)
        scores[row * PITCH + column] = value
        added += value
        column += GROUP
    far = 1
    while far < GROUP:
        added += cuda.shfl_xor_sync(ALL, added, far)
        far *= 2
    if part == 0:
        factor = exp(before - shift)
        top[row], fade[row] = largest, factor
        total[row] = total[row] * factor + added


@kernel
def attention_tiles(y, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, is_causal):
    """y and kept. A block: a tile of rows of one (batch, head), a part of the columns."""
    scores = cuda.shared.array(SCORES, real)
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    top, total, fade = cuda.shared.array(R, real), cuda.shared.array(R, real), cuda.shared.array(R, real)
    tiles, parts = (rows + R - 1) // R, max(1, (e + W - 1) // W)
    rest, part = divided(block(), parts)
    pair, tile = divided(rest, tiles)
    b, h = divided(pair, heads)
    column, first = part * W, (tiles - 1 - tile) * R  # the tiles that see most keys begin
    q_at = layout[0] + b * layout[1] + h * layout[2] + first * layout[3]
    k_at, v_at = layout[4] + b * layout[5] + h * layout[6], layout[8] + b * layout[9] + h * layout[10]
    m_at = m_layout[0] + b * m_layout[1] + h * m_layout[2]
    if thread() < R:
        top[thread()], total[thread()] = real(-INF), real(0)
    acc = filled(OWN, real(0))
    at, seen = 0, min(keys, first + R) if is_causal else keys
    while at < seen:
        found = dots(q, q_at, layout[3], rows - first, k, k_at + at * layout[7], layout[7], keys - at, d, left, right)
        keep_scores(scores, found)
        barrier()
        softmax_rows(scores, top, total, fade, scale, mask, m_at, m_layout[3], m_layout[4], first, at, rows, keys, is_causal)
        barrier()
        acc = times_rows(acc, gather(fade, thread() // SIDE * I, 1, I))
        acc = add_products(acc, scores, v, v_at + at * layout[11], layout[11], keys - at, column, e, right)
        at += C
    barrier()
    i = thread()
    if i < R:
        share = real(0) if total[i] == 0 else 1.0 / total[i]
        fade[i] = share
        if first + i < rows and column == 0:
            kept[pair * rows + first + i] = real(0) if top[i] == -INF else top[i]
            kept[kept.size // 2 + pair * rows + first + i] = share
    barrier()
    ty = thread() // SIDE
    acc = times_rows(acc, gather(fade, ty * I, 1, I))
    y_at = layout[12] + b * layout[13] + h * layout[14] + (first + ty * I) * layout[15]
    put_tile(y, y_at, layout[15], rows - first - ty * I, column + thread() % SIDE, SIDE, e, acc, I)


# ---- launchers ----
@launcher(name="attention")
def attention_launcher(go, outs, ins, layout, sizes, scale, is_causal):
    batch, heads, rows, keys, d, e = sizes
    if is_half(ins[:3]) and max(d, e) <= attention_mma.WIDEST:
        chosen = warp_groups.choice(go.device.driver, max(d, e), ins[3])
        cudnn.launch(go, outs, ins, (layout, sizes, scale, is_causal), partial(attention_mma.launch, go, chosen=chosen), False)
        return
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_causal)
    own = plain_sizes(go.dtype, e)
    tiles = batch * heads * blocks(rows, own["R"]) * max(1, blocks(e, own["W"]))
    go(sized(attention_tiles, **own), outs, ins, consts, grid=tiles)


def is_half(operands: Any) -> bool:
    """Whether all are of the same 16-bit type."""
    return operands[0].dtype in HALF and all([x.dtype == operands[0].dtype for x in operands])


# ---- gradients ----
# With p = exp(score - largest) / sum and delta = the sums of g y along rows (row_dots), ds = p (g v^T - delta): then dv = p^T g,
# dk = scale ds^T q, dq = scale ds k, and ds is the mask's gradient (Dao et al. 2022, appendix B). Two kernels make p and ds again, tile by
# tile: one with keys as rows, for dk and dv, one with rows as rows, for dq and the mask.


@kernel
def row_dots(delta, g, y, layout, heads, rows, e):
    """delta = the sums of g y along rows (batch, heads, rows), a warp each."""
    row = block() * (THREADS // WARP) + thread() // WARP
    if row < delta.size:
        pair, line = divided(row, rows)
        b, h = divided(pair, heads)
        at = layout[12] + b * layout[13] + h * layout[14] + line * layout[15]
        total = real(0)
        column = thread() % WARP
        while column < e:
            total += g[at + column] * y[at + column]
            column += WARP
        far = WARP // 2
        while far > 0:
            total += cuda.shfl_xor_sync(ALL, total, far)
            far //= 2
        if thread() % WARP == 0:
            delta[row] = total


def weights_dx(s, dp, kept, delta, scale, mask, m_at, m_row, m_col, first, at, rows, keys, base, turned, is_causal):
    """Products q k^T and g v^T of a tile, in shared memory, become p and ds. turned: rows of the tile are keys."""
    i = thread()
    while i < R * C:
        place = i // C * PITCH + i % C
        row = (at + i % C) if turned else (first + i // C)
        column = (first + i // C) if turned else (at + i % C)
        p = real(0)
        ds = real(0)
        if row < rows and column < keys:
            score = score_at(s[place], scale, mask, m_at, m_row, m_col, row, column, rows, keys, is_causal)
            p = exp(score - kept[base + row]) * kept[kept.size // 2 + base + row]
            ds = p * (dp[place] - delta[base + row])
        s[place], dp[place] = p, ds
        i += THREADS


@kernel
def attention_tiles_dkv(dk, dv, g, delta, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, is_causal):
    """dk and dv. A block: a tile of keys of one (batch, head), a part of the columns."""
    s, dp = cuda.shared.array(SCORES, real), cuda.shared.array(SCORES, real)
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    count, parts = (keys + R - 1) // R, max(1, (max(d, e) + W - 1) // W)
    rest, part = divided(block(), parts)
    pair, tile = divided(rest, count)
    b, h = divided(pair, heads)
    first, column = tile * R, part * W
    q_at, g_at = layout[0] + b * layout[1] + h * layout[2], layout[12] + b * layout[13] + h * layout[14]
    k_at = layout[4] + b * layout[5] + h * layout[6] + first * layout[7]
    v_at = layout[8] + b * layout[9] + h * layout[10] + first * layout[11]
    m_at = m_layout[0] + b * m_layout[1] + h * m_layout[2]
    acc_k, acc_v = filled(OWN, real(0)), filled(OWN, real(0))
    at = first // C * C if is_causal else 0
    while at < rows:
        q_row, g_row = q_at + at * layout[3], g_at + at * layout[15]
        keep_scores(s, dots(k, k_at, layout[7], keys - first, q, q_row, layout[3], rows - at, d, left, right))
        keep_scores(dp, dots(v, v_at, layout[11], keys - first, g, g_row, layout[15], rows - at, e, left, right))
        barrier()
        weights_dx(s, dp, kept, delta, scale, mask, m_at, m_layout[3], m_layout[4], first, at, rows, keys, pair * rows, True, is_causal)
        acc_v = add_products(acc_v, s, g, g_row, layout[15], rows - at, column, e, right)
        acc_k = add_products(acc_k, dp, q, q_row, layout[3], rows - at, column, d, right)
        at += C
    down, col = thread() // SIDE * I, column + thread() % SIDE
    put_tile(dv, v_at + down * layout[11], layout[11], keys - first - down, col, SIDE, e, acc_v, I)
    put_tile(dk, k_at + down * layout[7], layout[7], keys - first - down, col, SIDE, d, times_rows(acc_k, filled(I, scale)), I)


@kernel
def attention_tiles_dq(dq, dmask, g, delta, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, is_causal):
    """dq, and dmask (batch, heads, rows, keys). A block: a tile of rows of one (batch, head), a part of the columns."""
    s, dp = cuda.shared.array(SCORES, real), cuda.shared.array(SCORES, real)
    left, right = cuda.shared.array(LEFT, real), cuda.shared.array(RIGHT, real)
    count, parts = (rows + R - 1) // R, max(1, (d + W - 1) // W)
    rest, part = divided(block(), parts)
    pair, tile = divided(rest, count)
    b, h = divided(pair, heads)
    first, column = tile * R, part * W
    q_at = layout[0] + b * layout[1] + h * layout[2] + first * layout[3]
    g_at = layout[12] + b * layout[13] + h * layout[14] + first * layout[15]
    k_at, v_at = layout[4] + b * layout[5] + h * layout[6], layout[8] + b * layout[9] + h * layout[10]
    m_at = m_layout[0] + b * m_layout[1] + h * m_layout[2]
    acc = filled(OWN, real(0))
    at, seen = 0, min(keys, first + R) if is_causal and dmask is None else keys
    while at < seen:
        k_row, v_row = k_at + at * layout[7], v_at + at * layout[11]
        keep_scores(s, dots(q, q_at, layout[3], rows - first, k, k_row, layout[7], keys - at, d, left, right))
        keep_scores(dp, dots(g, g_at, layout[15], rows - first, v, v_row, layout[11], keys - at, e, left, right))
        barrier()
        weights_dx(s, dp, kept, delta, scale, mask, m_at, m_layout[3], m_layout[4], first, at, rows, keys, pair * rows, False, is_causal)
        if dmask is not None and column == 0:
            barrier()
            put_scores(dmask, dp, pair * rows, first, at, rows, keys)
        acc = add_products(acc, dp, k, k_row, layout[7], keys - at, column, d, right)
        at += C
    down, col = thread() // SIDE * I, column + thread() % SIDE
    put_tile(dq, q_at + down * layout[3], layout[3], rows - first - down, col, SIDE, d, times_rows(acc, filled(I, scale)), I)


def put_scores(out, s, base, first, at, rows, keys):
    """A tile to (batch, heads, rows, keys)."""
    i = thread()
    while i < R * C:
        row, column = first + i // C, at + i % C
        if row < rows and column < keys:
            out[(base + row) * keys + column] = s[i // C * PITCH + i % C]
        i += THREADS


# ---- launchers ----
@launcher(name="attention_dx")
def dx_launcher(go, outs, ins, layout, sizes, scale, is_causal):
    if takes_tensor_cores(*ins[3:6], *sizes[4:]):
        cudnn.launch(go, outs, ins, (layout, sizes, scale, is_causal), partial(own_dx, go), True)
    else:
        own_dx(go, outs, ins, layout, sizes, scale, is_causal)


def takes_tensor_cores(q, k, v, d, e):
    """They read g in 16 bits: float16 has no room for small gradients."""
    return q.dtype == bfloat16 and is_half((q, k, v)) and max(d, e) <= attention_mma.WIDEST


def own_dx(go, outs, ins, layout, sizes, scale, is_causal):
    """The gradients by our own kernels."""
    batch, heads, rows, keys, d, e = sizes
    dq, dk, dv, dmask = outs
    g, y, kept, q, k, v, mask = ins
    if takes_tensor_cores(q, k, v, d, e):
        chosen = warp_groups_dx.choice(go.device.driver, max(d, e), mask)
        attention_mma_dx.launch(go, outs, ins, layout, sizes, scale, is_causal, chosen)
        return
    delta = go.empty(batch * heads * rows)
    go(row_dots, (delta,), (g, y), (layout[:16], heads, rows, e), grid=blocks(delta.size, row_dots.threads // WARP))
    given = g, delta, kept, q, k, v, mask
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_causal)
    own = plain_sizes(go.dtype, max(d, e))
    tiles, parts = batch * heads * blocks(keys, own["R"]), max(1, blocks(max(d, e), own["W"]))
    go(sized(attention_tiles_dkv, **own), (dk, dv), given, consts, grid=tiles * parts)
    own = plain_sizes(go.dtype, d)
    tiles, parts = batch * heads * blocks(rows, own["R"]), max(1, blocks(d, own["W"]))
    go(sized(attention_tiles_dq, **own), (dq, dmask), given, consts, grid=tiles * parts)
