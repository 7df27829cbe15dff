"""The kernels of matrix products: a block makes a tile of the result, k a little at a time through shared memory, sums in registers.

16-bit numbers go through the tensor cores, in tiles of 128 x 128 or 64 x 64, K numbers of k at a time, STAGES times that in shared memory;
float32 and float64 through fused multiply-adds of 8 x 8 or 4 x 4 numbers a thread. What is beyond a matrix is 0 in shared memory. What ends
a layer (bias, activation, residual) is applied to the sums, four neighbours at a time. With few tiles k is cut into parts, which
add_parts adds in their order: a number depends on sizes alone.
"""

from __future__ import annotations

from ..loops.vectors import aligned, plus4, put4, take4
from ..loops.words import barrier, index, thread
from ..runtime.compat import cuda
from ..runtime.family import F, kernel
from .tensor import (
    added,
    bytes_of,
    commit,
    copy1,
    copy8,
    copy16,
    divided,
    multiplied,
    multiplied_group,
    put4_shared,
    quad,
    seen,
    shared,
    shared4,
    spread,
    wait,
)  # fmt: skip
from .tile_words import short
from .tiles import filled

TOGETHER = 16  # parts that are added up by themselves
K, STAGES, BEHIND = 64, 3, 1  # numbers of k in a stage; stages; how many may still come while one is used
ROOMS, GROUP = 3 << 15, 0  # bytes of all stages; whether four warps multiply as one
STRIP = 8  # tiles of rows that are made together, so that blocks which run together read the same columns


# ---- kernels: y, kept: see linear() in core/kernels.py. sizes: (m, n, k, of k a part). starts: (a's, steps between items, b's, ...)
@kernel(threads=128, together=2)
def tensor_large(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    tensor_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, filled(128, 0.0), shared(ROOMS), 128)


@kernel(threads=128)
def tensor_small(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    tensor_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, filled(32, 0.0), shared(ROOMS), 64)


@kernel(threads=256, together=2)
def plain_large(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    plain_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, filled(64, 0.0), shared(16896), 128, 8)


@kernel(threads=256)
def plain_small(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    plain_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, filled(16, 0.0), shared(34816), 64, 16)


@kernel
def add_parts(y, kept, parts, bias, residual, rows, n, count, base, keeps):
    """The sum of so many parts, from y[base] on, with what ends a layer."""
    across = divided(n + 3, 4)[0]
    row, quarter = divided(index(), across)
    if row < rows:
        column, size = 4 * quarter, rows * n
        at = row * n + column
        many, wide = min(4, n - column), n % 4 == 0 and aligned(parts, 4)
        total = (0.0, 0.0, 0.0, 0.0)
        for first in range(0, count, TOGETHER):  # one after the other, hundreds would lose digits
            some = take4(parts, first * size + at, many, wide)
            for part in range(first + 1, min(first + TOGETHER, count)):
                some = plus4(some, take4(parts, part * size + at, many, wide))
            total = plus4(total, some)
        wide = base % 4 == 0 and fits4(y, kept, bias, residual, n)
        finish(y, kept, bias, residual, keeps, total, base + at, column, many, wide)


@kernel
def column_parts(parts, x, rows, n, each):
    """Sums down `each` rows of x (rows, n) a block: 128 columns, eight rows at a time."""
    room = shared(8192)
    lane, line, down = 4 * (thread() & 31), thread() >> 5, cuda.blockIdx.y * each
    column, last = cuda.blockIdx.x * 128 + lane, min(rows, down + each)
    if column < n:
        many, wide = min(4, n - column), n % 4 == 0 and aligned(x, 4)
        total, row = (0.0, 0.0, 0.0, 0.0), down + line
        while row < last:
            total = plus4(total, take4(x, row * n + column, many, wide))
            row += 8
        put4_shared(total, room + 4 * bytes_of(parts) * thread())
    barrier()
    if line == 0 and column < n:
        total = shared4((0.0, 0.0), room + 4 * bytes_of(parts) * thread())
        for other in range(1, 8):
            total = plus4(total, shared4((0.0, 0.0), room + 4 * bytes_of(parts) * (thread() + 32 * other)))
        put4(parts, cuda.blockIdx.y * n + column, total, min(4, n - column), n % 4 == 0 and aligned(parts, 4))


def sizes_of(side: int, cc: tuple[int, ...], group: bool) -> dict[str, int]:
    """The stages of a tile: as many bytes on their way as leave room for two large tiles on a multiprocessor, which has 228 KB of shared
    memory; 164 on sm_80, 100 on sm_86, sm_89 and sm_120. Where `group`, large tiles are made by wgmma, which sm_90 alone has."""
    crowded = (8, 6) <= cc[:2] < (9, 0) or cc >= (12, 0)
    k, stages = (32, 3) if crowded else (32, 4) if side == 128 and cc < (8, 6) else (64, 3)
    return {
        "K": k,
        "STAGES": stages,
        "BEHIND": stages - 2,
        "ROOMS": 4 * side * k * stages,
        "GROUP": int(group and side == 128 and cc[:2] == (9, 0)),
    }


# ---- where a block is ---------------------------------------------------------------------------------------------------------------
def tile_of(m, n, side):
    """The first row and column of this block's tile."""
    down, across = divided(m + side - 1, side)[0], divided(n + side - 1, side)[0]
    strip, rest = divided(cuda.blockIdx.x, STRIP * across)
    column, row = divided(rest, min(STRIP, down - strip * STRIP))
    return (strip * STRIP + row) * side, column * side


# ---- with tensor cores -----------------------------------------------------------------------------------------------------------------
def tensor_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, sums, room, side):
    """A tile of `side` rows and columns: four warps, two by two."""
    m, n, k, each = sizes
    row0, col0 = tile_of(m, n, side)
    k_from = cuda.blockIdx.z * each
    k_left = short(min(k, k_from + each) - k_from)
    a_at = starts[0] + cuda.blockIdx.y * starts[1]
    b_at = starts[2] + cuda.blockIdx.y * starts[3]
    a_ld, b_ld = k if a_deep is None else m, k if b_deep is None else n
    a_fast = aligned(a, 8) and a_at % 8 == 0 and a_ld % 8 == 0
    b_fast = aligned(b, 8) and b_at % 8 == 0 and b_ld % 8 == 0
    (a_row, a_k), (b_row, b_k) = piece_of(a_deep, side), piece_of(b_deep, side)
    a_at, b_at = a_at + first_of(a_deep, row0 + a_row, k_from + a_k, a_ld), b_at + first_of(b_deep, col0 + b_row, k_from + b_k, b_ld)
    a_left, b_left = short(min(side, m - row0) - a_row), short(min(side, n - col0) - b_row)
    a_step, b_step = K if a_deep is None else K * a_ld, K if b_deep is None else K * b_ld
    half, stage = 2 * K * side, 4 * K * side  # bytes of a's part, of both
    a_to, b_to = short(room + place_of(a_deep, a_row, a_k, side)), short(room + half + place_of(b_deep, b_row, b_k, side))
    a_from = short(room + lane_place(a_deep, warp_row(side), thread() >> 3 & 1, thread() >> 4 & 1, side))
    b_from = short(room + half + lane_place(b_deep, warp_column(side), thread() >> 4 & 1, thread() >> 3 & 1, side))
    ahead, ready, last, far = short(0), short(0), short((STAGES - 1) * stage), (STAGES - 1) * K
    while ahead < last:
        if ahead // (4 * side) < k_left:
            fetch(a, a_deep, a_fast, a_to + ahead, a_at, a_ld, a_left, short(k_left - ahead // (4 * side) - a_k), side)
            fetch(b, b_deep, b_fast, b_to + ahead, b_at, b_ld, b_left, short(k_left - ahead // (4 * side) - b_k), side)
        commit()
        a_at, b_at, ahead = a_at + a_step, b_at + b_step, short(ahead + stage)
    while k_left > 0:
        arrive(BEHIND)
        if k_left > far:
            fetch(a, a_deep, a_fast, a_to + ahead, a_at, a_ld, a_left, short(k_left - far - a_k), side)
            fetch(b, b_deep, b_fast, b_to + ahead, b_at, b_ld, b_left, short(k_left - far - b_k), side)
        commit()
        if GROUP:
            sums = multiplied_group(sums, room + ready, room + half + ready, a_deep, b_deep, a)
        else:
            for step in range(K // 16):
                sums = multiplied(sums, a_from + ready, b_from + ready, step, a_deep, b_deep, 2 * K, a)
        a_at, b_at, k_left = a_at + a_step, b_at + b_step, short(k_left - K)
        ahead, ready = short(0) if ahead == last else short(ahead + stage), short(0) if ready == last else short(ready + stage)
    tensor_end(y, kept, bias, residual, keeps, sums, room, row0, col0, m, n, starts[4], side)


def tensor_end(y, kept, bias, residual, keeps, sums, room, row0, col0, m, n, first, side):
    """What follows the product: each warp turns 16 of its rows at a time, by way of shared memory, into rows that threads share."""
    arrive(0)
    wide = side if GROUP else side >> 1  # columns of a warp
    lane, pitch = thread() & 31, 4 * wide + 32
    down, across = divided(lane, wide >> 2)
    mine = room + (thread() >> 5) * (16 * pitch)
    put, take = mine + (lane >> 2) * pitch + (lane & 3) * 8, mine + down * pitch + across * 16
    first_row, first_column = (16 * (thread() >> 5), 0) if GROUP else (warp_row(side), warp_column(side))
    row, column = row0 + first_row + down, col0 + first_column + 4 * across
    at, rows, many = out_base(m, n, first) + row * n + column, short(min(side, m - row)), short(min(4, n - column))
    outs = y, kept, bias, residual, keeps, fits4(y, kept, bias, residual, n)
    tensor_rows(outs, sums, 0, put, take, at, rows, column, many, n, side)
    tensor_rows(outs, sums, 1, put, take, at, rows, column, many, n, side)
    if side == 128 and not GROUP:
        tensor_rows(outs, sums, 2, put, take, at, rows, column, many, n, side)
        tensor_rows(outs, sums, 3, put, take, at, rows, column, many, n, side)


def tensor_rows(outs, sums, part, put, take, at, rows, column, many, n, side):
    """16 rows of a warp; `part`, a constant: a loop over parts would hold all sums in registers to its end."""
    spread(sums, part, put, GROUP)
    cuda.syncwarp()
    apart, wide = (64, side) if GROUP else (16, side >> 1)
    line, last, at = 0, short(min(16, rows - apart * part)), at + apart * part * n
    while line < last:
        finish(outs[0], outs[1], outs[2], outs[3], outs[4], shared4(sums, take), at, column, many, outs[5])
        line, at, take = short(line + 128 // wide), at + 128 // wide * n, take + 128 // wide * (4 * wide + 32)
    cuda.syncwarp()


def arrive(behind):
    """What the block has begun to copy is there, but for so many groups of each thread."""
    wait(behind)
    if GROUP:
        seen()
    barrier()


def warp_row(side):
    """The first row of this warp in a tile: warps are two high."""
    return (thread() >> 5 & 1) * (side >> 1)


def warp_column(side):
    return (thread() >> 6) * (side >> 1)


def piece_of(deep, side):
    """The first of eight numbers that this thread copies: row (or column) of the tile, and step of k."""
    row, piece = divided(thread(), (K if deep is None else side) >> 3)
    return (short(row), short(8 * piece)) if deep is None else (short(8 * piece), short(row))


def first_of(deep, row, k, ld):
    """Where these are in a matrix."""
    return row * ld + k if deep is None else k * ld + row


def place_of(deep, row, k, side):
    """Where it puts them in the matrix's part of a stage."""
    if deep is None:
        return 2 * K * row + 16 * (k >> 3 ^ turn_of(row))
    return 128 * K * (row >> 6) + 128 * k + 16 * ((row >> 3 & 7) ^ (k & 7))


def turn_of(row):
    """How the pieces of a row change places: of 128 bytes, or of 64, which two rows have of all banks."""
    return row & 7 if K == 64 else row >> 1 & 3


def lane_place(deep, first, low, high, side):
    """Where this lane's row begins of those that ldmatrix reads; low: it is in the second eight rows or columns, high: of k."""
    if deep is None:
        row = first + 8 * low + (thread() & 7)
        return 2 * K * row + 16 * (high ^ turn_of(row))
    row = 8 * high + (thread() & 7)
    return 128 * K * (first >> 6) + 128 * row + 16 * (((first >> 3 & 7) + low) ^ (row & 7))


def fetch(x, deep, fast, to, at, ld, rows, k_left, side):
    """This thread's pieces of a stage, of 8 numbers each; rows, k_left: how many there are from its first number on."""
    inside = short(min(8, max(0, k_left if deep is None else rows)))
    left = rows if deep is None else k_left
    apart = 1024 // K if deep is None else 1024 // side
    down = 2048 if deep is None else 128 * apart
    if fast:
        for turn in range(K * side // 1024):
            copy16(to + down * turn, x, at + turn * apart * ld, 2 * inside if left > turn * apart else 0)
    else:
        for turn in range(K * side // 1024):
            copy8(to + down * turn, x, at + turn * apart * ld, inside if left > turn * apart else 0)


# ---- with fused multiply-adds -------------------------------------------------------------------------------------------------------
def plain_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, sums, room, side, depth):
    """A tile of `side` rows and columns, `depth` numbers of k at a time, two such stages: 16 x 16 threads."""
    m, n, k, each = sizes
    row0, col0 = tile_of(m, n, side)
    k_from = cuda.blockIdx.z * each
    k_left = min(k, k_from + each) - k_from
    a_ld, b_ld, item = k if a_deep is None else m, k if b_deep is None else n, cuda.blockIdx.y
    a_at = starts[0] + item * starts[1] + first_plain(a_deep, row0, k_from, a_ld, side, depth)
    b_at = starts[2] + item * starts[3] + first_plain(b_deep, col0, k_from, b_ld, side, depth)
    a_step, b_step = depth if a_deep is None else depth * a_ld, depth if b_deep is None else depth * b_ld
    pitch = (side + 4) * bytes_of(a)
    half, stage = depth * pitch, 2 * depth * pitch
    a_from, b_from, apart = (thread() >> 4) * 4 * bytes_of(a), half + (thread() & 15) * 4 * bytes_of(a), 64 * bytes_of(a)
    ahead = 0
    if k_left > 0:
        fetch_plain(a, a_deep, room, a_at, a_ld, m - row0, k_left, side, depth)
        fetch_plain(b, b_deep, room + half, b_at, b_ld, n - col0, k_left, side, depth)
    commit()
    while k_left > 0:
        ready, ahead = ahead, stage - ahead
        a_at, b_at, k_left = a_at + a_step, b_at + b_step, k_left - depth
        wait(0)
        barrier()
        if k_left > 0:
            fetch_plain(a, a_deep, room + ahead, a_at, a_ld, m - row0, k_left, side, depth)
            fetch_plain(b, b_deep, room + ahead + half, b_at, b_ld, n - col0, k_left, side, depth)
        commit()
        sums = added(sums, room + ready + a_from, room + ready + b_from, pitch, apart)
    plain_end(y, kept, bias, residual, keeps, sums, row0, col0, m, n, starts[4], side)


def plain_end(y, kept, bias, residual, keeps, sums, row0, col0, m, n, first, side):
    """What follows the product; a thread's eight rows are twice four, 64 apart, and so are its columns."""
    row0, col0 = row0 + 4 * (thread() >> 4), col0 + 4 * (thread() & 15)
    base, wide, pairs = out_base(m, n, first), fits4(y, kept, bias, residual, n), side >> 6
    for i in range(4 * pairs):
        for j in range(pairs):
            four = quad(sums, i * pairs + j)
            row, column = row0 + (i & 3) + 64 * (i >> 2), col0 + 64 * j
            many = min(4, n - column) if row < m else 0
            finish(y, kept, bias, residual, keeps, four, base + row * n + column, column, many, wide)


def first_plain(deep, outer, inner, ld, side, depth):
    """Which number of a matrix this thread copies first."""
    if deep is None:
        row, step = divided(thread(), depth)
        return (outer + row) * ld + inner + step
    step, row = divided(thread(), side)
    return (inner + step) * ld + outer + row


def fetch_plain(x, deep, to, at, ld, rows, k_left, side, depth):
    """This thread's four numbers of a stage, where each step of k is a row."""
    nbytes = bytes_of(x)
    pitch = (side + 4) * nbytes
    if deep is None:
        row, step = divided(thread(), depth)
        apart = divided(256, depth)[0]
        for n in range(4):
            copy1(to + step * pitch + (row + n * apart) * nbytes, x, at + n * apart * ld, step < k_left and row + n * apart < rows)
    else:
        step, row = divided(thread(), side)
        apart = divided(256, side)[0]
        for n in range(4):
            copy1(to + (step + n * apart) * pitch + row * nbytes, x, at + n * apart * ld, row < rows and step + n * apart < k_left)


# ---- what follows -------------------------------------------------------------------------------------------------------------------
def out_base(m, n, first):
    """Where this block's item and part of k begin in the result."""
    return first + (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * (m * n)


def fits4(y, kept, bias, residual, n):
    """Whether four neighbours may be read and written at once."""
    return n % 4 == 0 and aligned(y, 4) and aligned(kept, 4) and aligned(bias, 4) and aligned(residual, 4)


def finish(y, kept, bias, residual, keeps, z, at, column, many, wide):
    """F(z + bias) + residual for `many` of four neighbours; none: nothing."""
    if many > 0:
        if bias is not None:
            z = plus4(z, take4(bias, column, many, wide))
        if kept is not None and keeps is None:
            put4(kept, at, z, many, wide)
        result = F(z[0]), F(z[1]), F(z[2]), F(z[3])
        if kept is not None and keeps is not None:
            put4(kept, at, result, many, wide)
        if residual is not None:
            result = plus4(result, take4(residual, at, many, wide))
        put4(y, at, result, many, wide)
