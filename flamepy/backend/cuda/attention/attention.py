"""Scaled dot-product attention in plain tiles: float32, float64, and 16-bit numbers whose width the tensor cores' kernels do not take.

A block has a tile of rows and goes over tiles of keys: scores in shared memory, softmax with the largest score and the sum so far (Milakov
and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135), results in registers. Backward makes the scores again, once for
dk and dv, a block for a tile of keys, and once for dq, a block for a tile of rows, so nothing is added by atomics. Wide results are cut
into parts of W columns, a block each. Launches, layouts and `kept` are those of plain/networks.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ....dtypes import HALF, float64
from ...formula.words import INF, exp, maximum, real
from ..loops.words import barrier, block, thread
from ..products.tensor import divided
from ..products.tiles import filled, gather, outer, put_shared, put_tile, sized, times_rows
from ..runtime.compat import cuda
from ..runtime.family import THREADS, blocks, kernel, launcher
from . import cudnn
from . import tensor_cores as attention_mma

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
        cudnn.launch(go, outs, ins, (layout, sizes, scale, is_causal), partial(attention_mma.launch, go), False)
        return
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_causal)
    own = plain_sizes(go.dtype, e)
    tiles = batch * heads * blocks(rows, own["R"]) * max(1, blocks(e, own["W"]))
    go(sized(attention_tiles, **own), outs, ins, consts, grid=tiles)


def is_half(operands: Any) -> bool:
    """Whether all are of the same 16-bit type."""
    return operands[0].dtype in HALF and all([x.dtype == operands[0].dtype for x in operands])
