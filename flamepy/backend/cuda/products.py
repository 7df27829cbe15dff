"""The kernels of matrix products: a block makes a tile of the result, k a little at a time through shared memory, sums in registers.

16-bit numbers go through the tensor cores, in tiles of 128 x 128 or 64 x 64, 32 numbers of k at a time, three such stages in flight;
float32 and float64 through fused multiply-adds of 8 x 8 or 4 x 4 numbers a thread. What is beyond a matrix is 0 in shared memory. What ends
a layer (bias, activation, residual) is applied to the sums, four neighbours at a time. With few tiles k is cut into parts, which
add_parts adds in their order: a number depends on sizes alone.

FLAME counterpart: `flame_core::ops::gemm` (cuBLAS). Read next: matmul.py (how they are launched), blas.py.
"""

from __future__ import annotations

from .compat import cuda
from .family import F, kernel
from .tensor import (
    PITCH,
    added,
    bytes_of,
    commit,
    copy1,
    copy16,
    divided,
    left,
    multiplied,
    put4_shared,
    put8,
    quad,
    right,
    shared,
    shared4,
    spread,
    sums_of,
    wait,
)  # fmt: skip
from .vectors import aligned, load4, store4
from .words import barrier, index, thread

TOGETHER = 16  # parts that are added up by themselves
STRIP = 8  # tiles of rows that are made together, so that blocks which run together read the same columns


# ---- kernels: y, kept: see linear() in plain/kernels.py. sizes: (m, n, k, of k a part). starts: (a's, steps between items, b's, ...)
@kernel(threads=256, together=2)
def tensor_large(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    tensor_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, sums_of(64, 0.0), shared(49152), 128)


@kernel(threads=128)
def tensor_small(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    tensor_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, sums_of(32, 0.0), shared(24576), 64)


@kernel(threads=256, together=2)
def plain_large(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    plain_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, sums_of(64, 0.0), shared(16896), 128, 8)


@kernel(threads=256)
def plain_small(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps):
    plain_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, sums_of(16, 0.0), shared(34816), 64, 16)


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
        finish(y, kept, bias, residual, keeps, total, row, column, rows, n, base, base % 4 == 0 and fits4(y, kept, bias, residual, n))


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


# ---- where a block is ---------------------------------------------------------------------------------------------------------------
def tile_of(m, n, side):
    """The first row and column of this block's tile."""
    down, across = divided(m + side - 1, side)[0], divided(n + side - 1, side)[0]
    strip, rest = divided(cuda.blockIdx.x, STRIP * across)
    column, row = divided(rest, min(STRIP, down - strip * STRIP))
    return (strip * STRIP + row) * side, column * side


# ---- with tensor cores -----------------------------------------------------------------------------------------------------------------
def tensor_tile(y, kept, a, b, bias, residual, sizes, starts, a_deep, b_deep, keeps, sums, room, side):
    """A tile of `side` rows and columns: warps of half as many rows and 32 columns."""
    m, n, k, each = sizes
    row0, col0 = tile_of(m, n, side)
    k_from = cuda.blockIdx.z * each
    k_left = min(k, k_from + each) - k_from
    a_at = starts[0] + cuda.blockIdx.y * starts[1]
    b_at = starts[2] + cuda.blockIdx.y * starts[3]
    a_ld, b_ld = k if a_deep is None else m, k if b_deep is None else n
    a_fast = aligned(a, 8) and a_at % 8 == 0 and a_ld % 8 == 0
    b_fast = aligned(b, 8) and b_at % 8 == 0 and b_ld % 8 == 0
    a_at, b_at = a_at + first_of(a_deep, row0, k_from, a_ld, side), b_at + first_of(b_deep, col0, k_from, b_ld, side)
    a_step, b_step = 32 if a_deep is None else 32 * a_ld, 32 if b_deep is None else 32 * b_ld
    a_to, b_to = place_of(a_deep, side), 64 * side + place_of(b_deep, side)
    a_from = lane_place(a_deep, warp_row(side), thread() >> 3 & 1, thread() >> 4 & 1, side)
    b_from = 64 * side + lane_place(b_deep, warp_column(side), thread() >> 4 & 1, thread() >> 3 & 1, side)
    stage, ready = 128 * side, 0
    for ahead in range(2):
        if ahead * 32 < k_left:
            to, k_rest = room + ahead * stage, k_left - 32 * ahead
            fetch(a, a_deep, a_fast, to + a_to, a_at + ahead * a_step, a_ld, m - row0, k_rest, side)
            fetch(b, b_deep, b_fast, to + b_to, b_at + ahead * b_step, b_ld, n - col0, k_rest, side)
        commit()
    a_at, b_at, ahead = a_at + 2 * a_step, b_at + 2 * b_step, 2 * stage
    while k_left > 0:
        wait(1)
        barrier()
        if k_left > 64:
            fetch(a, a_deep, a_fast, room + ahead + a_to, a_at, a_ld, m - row0, k_left - 64, side)
            fetch(b, b_deep, b_fast, room + ahead + b_to, b_at, b_ld, n - col0, k_left - 64, side)
        commit()
        for step in range(2):
            rows = left(sums, room + ready + a_from, step, a_deep, 2 * side)
            sums = multiplied(sums, rows, right(room + ready + b_from, step, b_deep, 2 * side), a)
        a_at, b_at, k_left = a_at + a_step, b_at + b_step, k_left - 32
        ahead = 0 if ahead == 2 * stage else ahead + stage
        ready = 0 if ready == 2 * stage else ready + stage
    tensor_end(y, kept, bias, residual, keeps, sums, room, row0, col0, m, n, starts[4], side)


def tensor_end(y, kept, bias, residual, keeps, sums, room, row0, col0, m, n, first, side):
    """What follows the product: each warp turns 16 of its rows at a time, by way of shared memory, into rows that threads share."""
    wait(0)
    barrier()
    lane, base = thread() & 31, out_base(m, n, first)
    mine = room + (thread() >> 5) * (64 * PITCH)
    row0, col0 = row0 + warp_row(side), col0 + warp_column(side) + 4 * (lane & 7)
    wide = fits4(y, kept, bias, residual, n)
    for part in range(side // 32):
        spread(sums, part, mine + (lane >> 2) * (4 * PITCH) + (lane & 3) * 8)
        cuda.syncwarp()
        for turn in range(4):
            row = (lane >> 3) + 4 * turn
            four = shared4(sums, mine + row * (4 * PITCH) + (lane & 7) * 16)
            finish(y, kept, bias, residual, keeps, four, row0 + 16 * part + row, col0, m, n, base, wide)
        cuda.syncwarp()


def warp_row(side):
    """The first row of this warp in a tile: warps are two high."""
    return (thread() >> 5 & 1) * (side >> 1)


def warp_column(side):
    return (thread() >> 6) * 32


def first_of(deep, outer, inner, ld, side):
    """Which number of a matrix this thread copies first, 8 at a time."""
    if deep is None:
        return (outer + (thread() >> 2)) * ld + inner + 8 * (thread() & 3)
    row, piece = divided(thread(), side >> 3)
    return (inner + row) * ld + outer + 8 * piece


def place_of(deep, side):
    """Where it puts them in the matrix's part of a stage."""
    if deep is None:
        row, piece = thread() >> 2, thread() & 3
        return 64 * row + 16 * (piece ^ (row >> 1 & 3))
    row, piece = divided(thread(), side >> 3)
    return 2 * side * row + 16 * (piece ^ (row & 7))


def lane_place(deep, first, low, high, side):
    """Where this lane's row begins of those that ldmatrix reads; low: it is in the second eight rows or columns, high: of k."""
    if deep is None:
        row = first + 8 * low + (thread() & 7)
        return 64 * row + 16 * (high ^ (row >> 1 & 3))
    row = 8 * high + (thread() & 7)
    return 2 * side * row + 16 * (((first >> 3) + low) ^ (row & 7))


def fetch(x, deep, fast, to, at, ld, rows, k_left, side):
    """This thread's two pieces of a stage, of 8 numbers each; rows, k_left: how many there are from the tile's first on."""
    if deep is None:
        row, inside = thread() >> 2, min(8, max(0, k_left - 8 * (thread() & 3)))
        piece(x, fast, to, at, inside if row < rows else 0)
        piece(x, fast, to + 32 * side, at + (side >> 1) * ld, inside if row + (side >> 1) < rows else 0)
    else:
        row, eight = divided(thread(), side >> 3)
        inside = min(8, max(0, rows - 8 * eight))
        piece(x, fast, to, at, inside if row < k_left else 0)
        piece(x, fast, to + 32 * side, at + 16 * ld, inside if row + 16 < k_left else 0)


def piece(x, fast, to, at, many):
    """The first `many` numbers of eight, then zeros."""
    if fast:
        copy16(to, x, at, 2 * many)
    else:
        low = some(x, at, 0, many), some(x, at, 1, many), some(x, at, 2, many), some(x, at, 3, many)
        put8(to, x, (*low, some(x, at, 4, many), some(x, at, 5, many), some(x, at, 6, many), some(x, at, 7, many)))


def some(x, at, offset, many):
    found = x[at + offset if offset < many else 0]
    return found if offset < many else 0.0


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
            finish(y, kept, bias, residual, keeps, four, row0 + (i & 3) + 64 * (i >> 2), col0 + 64 * j, m, n, base, wide)


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


def finish(y, kept, bias, residual, keeps, z, row, column, m, n, base, wide):
    """F(z + bias) + residual for four neighbours."""
    if row < m and column < n:
        at, many = base + row * n + column, min(4, n - column)
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


def plus4(a, b):
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def take4(x, at, many, wide):
    """x[at] and the three numbers behind it, of which only so many are there."""
    if wide:
        return load4(x, at)
    return x[at], x[at + min(1, many - 1)], x[at + min(2, many - 1)], x[at + min(3, many - 1)]


def put4(x, at, values, many, wide):
    if wide:
        store4(x, at, values)
    else:
        x[at] = values[0]
        if many > 1:
            x[at + 1] = values[1]
        if many > 2:
            x[at + 2] = values[2]
        if many > 3:
            x[at + 3] = values[3]
