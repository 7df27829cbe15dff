"""Scaled dot-product attention of 16-bit numbers on the tensor cores: products of 16-bit factors with float32 sums, softmax in float32.

As in attention.py a block has a tile of rows, four warps with 16 TALL rows each, and goes over tiles of keys; while one is worked on, keys
and values of the next, with three STAGES of the next two, are copied into shared memory; one barrier a tile. Scores, weights and sums stay
in registers: what one product gives is the left factor of the next (Dao 2023, arXiv:2307.08691). Exponents are counted in powers of two:
`unit` is scale log2(e).
The largest score so far is not followed closely: sums are scaled anew only when one is larger by SLACK.
"""

from __future__ import annotations

from typing import Any

from ....core.words import INF, real
from ..loops.vectors import aligned
from ..loops.words import barrier, block, thread
from ..products.fragments import copy_one, each, folded, mapped, power2, put_pairs, rounded, times
from ..products.tensor import commit, divided, shared, wait
from ..products.tile_words import any_of, copy_pieces, cut, of_mask, own_factor, piece_from, piece_place, piece_to, short, times_own
from ..products.tiles import filled, sized
from ..runtime.compat import cuda, libdevice
from ..runtime.family import blocks, kernel

THREADS_OF = 128  # of a block: four warps
LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453
WIDE = 64  # columns of q, k, v and y in shared memory, the rest zeros
TALL, LINES = 2, 4  # a warp's rows / 16, of which a lane has a part of LINES
ROWS, N = 128, 64  # rows and keys of a tile
DOWN = 16  # rows that the threads of a block copy at once, 16 bytes each
STEP = 144  # bytes from row to row in shared memory: eight rows begin in different banks
DEEP = 4  # WIDE / 16
SCORES, SUMS = 64, 64  # numbers of a tile of scores, and of results, that a lane has
STAGES, BEHIND, AHEAD = 3, 1, 2 * N  # tiles in shared memory; how many may still come while one is used; keys until the last of them
PAIR, LAST = 2 * N * STEP, 4 * N * STEP  # bytes of keys and values of a tile; where the last stage begins
STORED, OWN, ROOMS = 0, PAIR, 3 * PAIR  # whether the block's rows stay in shared memory, where they are; bytes of all
WIDTHS = 16, 32, 64, 80, 96, 128
WIDEST = 128
BESIDE = 64  # pairs of batch and head whose tiles are made side by side: what they read stays in the GPU's cache
SLACK = 8.0  # how much larger a score may be, in powers of two, than what weights are counted from
ALL = 0xFFFFFFFF
FAR = 1 << 30  # more than any number of rows or keys


def down_of(wide: int) -> int:
    """How many rows of so many numbers the threads of a block copy at once: a power of two of them has a row."""
    return THREADS_OF >> (wide // 8 - 1).bit_length()


def stages_of(cc: tuple[int, ...]) -> int:
    """How many tiles lie in shared memory: three where two blocks that have them fit on a multiprocessor, not where it has 100 KB."""
    return 2 if (8, 6) <= cc[:2] < (9, 0) or cc >= (12, 0) else 3


def sizes_of(width: int, masked: bool, cc: tuple[int, ...]) -> dict[str, int]:
    """The sizes of a kernel for rows of so many columns. Tiles are smaller with a mask, whose numbers take registers, too. Wide rows of the
    block's own stay in shared memory, where else the tiles after the first take their place. The assembler spreads sums over more registers
    than there are: of the widest a warp has 16 rows before sm_90, and tiles of 16 from sm_100 on, so that another has room as well."""
    wide = next(w for w in WIDTHS if width <= w)
    tall = 2 if wide <= 96 or cc >= (9, 0) else 1
    least = masked or (wide > 96 and cc >= (10, 0))
    far, n, step, rows = int(wide > 64 and tall == 2), 64 >> (least + (wide > 64)), 2 * wide + 16, 64 * tall
    stages, pair = stages_of(cc), 2 * n * step
    own = stages * pair if far else pair
    return {
        "WIDE": wide, "TALL": tall, "LINES": 2 * tall, "ROWS": rows, "N": n, "DOWN": down_of(wide), "STEP": step, "DEEP": wide // 16,
        "SCORES": tall * n // 2, "SUMS": tall * wide // 2, "STAGES": stages, "BEHIND": stages - 2, "AHEAD": (stages - 1) * n,
        "PAIR": pair, "LAST": (stages - 1) * pair, "STORED": far, "OWN": own, "ROOMS": max(own + rows * step, stages * pair),
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


def outgrown(a, top, factor):
    return a * factor > top + SLACK


def faded(before, now):
    return power2(before - shift_of(now))


def weight(x, shift, factor):
    return power2(x * factor - shift)


def inverse(total):
    return 0.0 if total == 0.0 else 1.0 / total


def with_mask(x, added, unit):
    return x * unit + added * LOG2E


# ---- memory ------------------------------------------------------------------------------------------------------------------------
def stage_own(to, x, at, step, left, width, fast):
    """Begin to copy the block's ROWS rows of x to shared memory, zeros where there are none. `to`, `at`: of this thread's first piece."""
    if fast:
        copy_pieces(to, x, at, step, left, width, ROWS, WIDE, STEP, THREADS_OF)
    else:
        copy_numbers(to, x, at, step, ROWS, left, width)


def stage_tile(to, x, at, step, left, width, fast):
    """The same for the N rows of a tile that the block comes to."""
    if fast:
        copy_pieces(to, x, at, step, left, width, N, WIDE, STEP, THREADS_OF)
    else:
        copy_numbers(to, x, at, step, N, left, width)


def copy_numbers(to, x, at, step, count, left, width):
    """Number by number: rows that begin anywhere."""
    row, column = piece_place(WIDE)
    while row < count and column < WIDE:
        for c in range(8):
            copy_one(to + 2 * c, x, at + c, row < left and column + c < width)
        row, to, at = short(row + DOWN), short(to + DOWN * STEP), at + DOWN * step


def stage_pair(to, x, x_at, x_step, z, z_at, z_step, left, d, e, fast):
    """The same for two buffers, one after the other."""
    stage_tile(to, x, x_at, x_step, left, d, fast)
    stage_tile(to + N * STEP, z, z_at, z_step, left, e, fast)


def arrive(behind):
    """What the block has begun to copy is a group. Wait until all of them but so many are there, and all threads have come so far."""
    commit()
    wait(behind)
    barrier()


def following(room, here):
    """The stage after this one."""
    return room if here == short(room + LAST) else short(here + PAIR)


def vacant(room, here):
    """The stage before this one: a tile that all have done with."""
    return short(room + LAST) if here == room else short(here - PAIR)


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
    if fast and aligned(x, 8):
        put_pairs(x, at, step, left, cols, acc, TALL)
    else:
        each(put_number, LINES, acc, (x, at, step, left, cols))


def keep_row(top, row, column, kept, share, at, left):
    if column < 2 and row < left:
        kept[at + row] = 0.0 if top == -INF else top * LN2
        kept[kept.size // 2 + at + row] = share


def place_of(tiles):
    """(pair of batch and head, tile) of this block. Of the tiles of so many pairs the longest begin, so that no long one is left over."""
    pairs = divided(cuda.gridDim.x, tiles)[0]
    group, rest = divided(block(), BESIDE * tiles)
    tile, pair = divided(rest, min(BESIDE, pairs - group * BESIDE))
    return group * BESIDE + pair, tile


def longest(rows):
    """(pair, first row) of this block: the last rows, which see most keys, begin."""
    tiles = divided(rows + ROWS - 1, ROWS)[0]
    pair, tile = place_of(tiles)
    return pair, short((tiles - 1 - tile) * ROWS)


def grow(s, acc, top, total, factor):
    """(sums, largest scores, totals) that fit to a tile of products. They stay as they are while no score is much larger than before:
    weights are then up to 2 to the SLACK, in the totals as well."""
    if cuda.any_sync(ALL, any_of(mapped(outgrown, LINES, folded(larger, LINES, s, 1), (top, factor)))):
        fresh = mapped(grown, LINES, folded(larger, LINES, s, 4), (top, factor))
        fade = mapped(faded, LINES, top, (fresh,))
        acc, top, total = mapped(product, LINES, acc, (fade,)), fresh, mapped(product, LINES, total, (fade,))
    return acc, top, total


def scores(s, unit, simple, mask, m_at, m_layout, own, at, rows, keys, is_causal):
    """Of a tile of products, rows by keys, -inf where there is no key to be seen; `simple`: not yet times unit."""
    if mask is not None:
        bounds = short(rows - own - 1), short(keys - at - 1), short(FAR), short(own - at if is_causal else FAR)
        place = m_at + own * m_layout[3] + at * m_layout[4]
        return mapped(with_mask, LINES, s, (of_mask(s, LINES, mask, place, m_layout[3], m_layout[4], bounds, 1), unit))
    s = s if simple else mapped(product, LINES, s, (unit,))
    if short(at + N) > keys or (is_causal and short(at + (N - 1)) > own):
        s = cut(s, LINES, keys - at - 1, own - at if is_causal else N, -INF)
    return s


# ---- forward -----------------------------------------------------------------------------------------------------------------------
@kernel(threads=THREADS_OF, together=2)
def attention_mma(y, kept, q, k, v, mask, layout, m_layout, heads, rows, keys, d, e, scale, even, is_causal):
    """y and kept. A block: a tile of rows of one (batch, head). even: everything lies so that 16 bytes can be read at once."""
    room, mine, warp = short(shared(ROOMS)), piece_to(STEP, WIDE), thread() // 32
    pair, first = longest(rows)
    q_at, k_at, v_at, y_at, m_at = starts(layout, m_layout, pair, heads)
    fast = even and aligned(q, 8) and aligned(k, 8) and aligned(v, 8)
    k_at, v_at = k_at + piece_from(layout[7], WIDE), v_at + piece_from(layout[11], WIDE)
    stage_own(room + OWN + mine, q, q_at + first * layout[3] + piece_from(layout[3], WIDE), layout[3], rows - first, d, fast)
    at, here, seen = short(0), room, short(min(keys, first + ROWS) if is_causal else keys)
    stage_pair(room + mine, k, k_at, layout[7], v, v_at, layout[11], keys, d, e, fast)
    arrive(0)
    a = own_factor(room + OWN + warp * (16 * TALL * STEP), STEP, TALL, DEEP, STORED)
    unit, own = scale * LOG2E, short(first + warp * (16 * TALL))
    simple = mask is None and scale > 0.0  # then the largest product has the largest score
    factor = unit if simple else real(1)
    top, total, acc = filled(LINES, -INF), filled(LINES, 0.0), filled(SUMS, 0.0)
    if STAGES > 2:
        barrier()  # all have read what lies there
        if seen > N:
            k_at, v_at = k_at + N * layout[7], v_at + N * layout[11]
            stage_pair(room + PAIR + mine, k, k_at, layout[7], v, v_at, layout[11], keys - N, d, e, fast)
    while at < seen:
        arrive(BEHIND)
        far = short(at + AHEAD)
        if far < seen:
            k_at, v_at = k_at + N * layout[7], v_at + N * layout[11]
            stage_pair(vacant(room, here) + mine, k, k_at, layout[7], v, v_at, layout[11], keys - far, d, e, fast)
        if not is_causal or at < own + 16 * TALL:
            s = times_own(filled(SCORES, 0.0), a, q, here, STEP, TALL, DEEP)
            s = scores(s, unit, simple, mask, m_at, m_layout, own, at, rows, keys, is_causal)
            acc, top, total = grow(s, acc, top, total, factor)
            s = mapped(weight, LINES, s, (mapped(shift_of, LINES, top, ()), factor))
            total = mapped(plus, LINES, total, (folded(plus, LINES, s, 1),))
            acc = times(acc, rounded(s, q), q, here + N * STEP, STEP, TALL)
        at, here = short(at + N), following(room, here)
    share = mapped(inverse, LINES, folded(plus, LINES, total, 4), ())
    each(keep_row, LINES, top, (kept, share, pair * rows + own, rows - own))
    put_rows(y, y_at + own * layout[15], layout[15], rows - own, e, mapped(product, LINES, acc, (share,)), even)


# ---- launchers ---------------------------------------------------------------------------------------------------------------------
def is_even(layout: Any, *widths: int) -> bool:
    """Whether every row begins at a multiple of 8 numbers, and ends at one of 2."""
    return all([n % 8 == 0 for n in layout]) and all([n % 2 == 0 for n in widths])


def launch(go, outs, ins, layout, sizes, scale, is_causal, chosen=None):
    """What attention_launcher() does for operands of 16 bits; chosen: (another kernel, its sizes)."""
    batch, heads, rows, keys, d, e = sizes
    function, own = chosen or (attention_mma, sizes_of(max(d, e), ins[3] is not None, go.device.driver.cc))
    consts = (layout[:16], layout[16:] or (0,) * 5, heads, rows, keys, d, e, scale, is_even(layout[:16], d, e), is_causal)
    go(sized(function, **own), outs, ins, consts, grid=batch * heads * blocks(rows, own["ROWS"]))
