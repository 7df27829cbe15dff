"""The words of row bodies for a block of threads: a row is shared by LANES of them, a part of a warp, a warp or the whole block.

Lanes of one warp exchange values by shuffles, those of a block through shared memory. What a CPU keeps beside a row, in its nearest
cache, is computed again instead (LINE is 0, there is no run_space). A lane adds up some 64 numbers one after the other, in long rows
then the sums of such runs; lanes are added in pairs: no sum loses digits, and none needs float64.

FLAME counterpart: warp and block reductions of its CUDA kernels. Read next: near.py, rows.py.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..formula.bind import Dialect, typed
from .compat import cuda, device_function, types
from .near import shared_span

LANES = 32  # of a row; takes another value in each kernel, as THREADS does
THREADS = 256
RUN = 1 << 16
LONG = 1024  # lanes of the longest rows
RUN_OF_LANE = 64  # numbers that one of these adds up one after the other
ROOM = 128  # numbers of 8 bytes: shared memory for rows, another value in each kernel
FEW, MANY = 24, 47  # KB of it, a ninth of what a GPU's multiprocessor has and, for rows of more lanes, a fifth


def lane():
    return types.int32(cuda.threadIdx.x) & types.int32(LANES - 1)


def lanes():
    return types.int32(LANES)


def members():
    """The lanes of this row, as a mask of the warp's threads."""
    if LANES >= 32:
        return types.uint32(0xFFFFFFFF)
    return types.uint32((1 << LANES) - 1) << (types.uint32(cuda.threadIdx.x) & types.uint32(32 - LANES))


def barrier():
    if LANES > 32:
        cuda.syncthreads()
    else:
        cuda.syncwarp(members())


def all_sum(value):
    value = part_sum(value, LANES)
    if LANES > 32:
        value = part_sum(of_warps(value), LANES // 32)
    return value


def all_max(value):
    value = part_max(value, LANES)
    if LANES > 32:
        value = part_max(of_warps(value), LANES // 32)
    return value


def long_sum(run, cols, *args):
    total = run(0, cols, *args)
    if LANES == LONG:  # rows of less are one run
        for first in range(RUN, cols, RUN):
            total += run(first, cols, *args)
    return all_sum(total)


def long_sums(run, cols, *args):
    one, two = run(0, cols, *args)
    if LANES == LONG:
        for first in range(RUN, cols, RUN):
            a, b = run(first, cols, *args)
            one += a
            two += b
    return all_sum(one), all_sum(two)


def of_warps(value):
    """The value of warp number (this thread's number modulo the number of warps): as many neighbouring lanes as warps have them all."""
    values = shared_span(value, 32)
    cuda.syncthreads()  # what was here before has been read
    if cuda.threadIdx.x & 31 == 0:
        values[cuda.threadIdx.x >> 5] = value
    cuda.syncthreads()
    return values[cuda.threadIdx.x & (LANES // 32 - 1)]


def part_sum(value, many):
    """The sum over so many neighbouring lanes (a power of two, 32 at most), the same bits in all of them."""
    mask = members()
    if many > 16:
        value += cuda.shfl_xor_sync(mask, value, 16)
    if many > 8:
        value += cuda.shfl_xor_sync(mask, value, 8)
    if many > 4:
        value += cuda.shfl_xor_sync(mask, value, 4)
    if many > 2:
        value += cuda.shfl_xor_sync(mask, value, 2)
    if many > 1:
        value += cuda.shfl_xor_sync(mask, value, 1)
    return value


def part_max(value, many):
    """The maximum over so many neighbouring lanes; NaN wins."""
    mask = members()
    if many > 16:
        value = larger(value, cuda.shfl_xor_sync(mask, value, 16))
    if many > 8:
        value = larger(value, cuda.shfl_xor_sync(mask, value, 8))
    if many > 4:
        value = larger(value, cuda.shfl_xor_sync(mask, value, 4))
    if many > 2:
        value = larger(value, cuda.shfl_xor_sync(mask, value, 2))
    if many > 1:
        value = larger(value, cuda.shfl_xor_sync(mask, value, 1))
    return value


def larger(a, b):
    return a if a > b or a != a else b


def run_space(x):
    """There is none: what asks for it computes again."""
    return None


def line_space(x):
    """Never asked for: LINE is 0."""
    return x


FUNCTIONS = (
    lane, lanes, barrier, all_sum, all_max, long_sum, long_sums, run_space, line_space,
)  # fmt: skip


def room_of(lanes: int) -> int:
    """KB of the room for rows of so many lanes."""
    return FEW if lanes <= 128 else MANY if lanes <= 256 else 0


@cache
def row_words(dtype: np.dtype, threads: int, lanes: int) -> dict[str, Any]:
    """The words for rows that are shared by so many lanes, in blocks of so many threads."""
    numbers = {
        "LANES": lanes,
        "THREADS": threads,
        "LINE": 0,
        "RUN": RUN_OF_LANE * lanes if lanes == LONG else 1 << 30,
        "ROOM": 128 * room_of(lanes),
    }
    dialect = Dialect(lambda function, reorder: device_function(function), lambda dtype: numbers, (), homes=(__name__,))
    return numbers | {f.__name__: device_function(typed(f, dtype, dialect, False)) for f in FUNCTIONS}
