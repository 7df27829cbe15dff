"""The words of row bodies for a block of threads: a row is shared by LANES of them, a part of a warp, a warp or the whole block.

Lanes of one warp exchange values by shuffles, those of a block through shared memory. What a CPU keeps beside a row, in its nearest
cache, is computed again instead (LINE is 0, there is no run_space).

The words that go over a row come twice. In short rows a lane takes every LANES-th element. In others it takes neighbours at once
(row_vectors.py), four times as many on their way together, and the exponentials of a row are added up while their maximum is still being
found: a row is read once. A lane adds up some 64 sums of such pieces one after the other, then these; lanes are added in pairs: no sum
loses digits, and none needs float64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...formula.bind import Compiler, typed
from ...formula.words import fmax
from ..products.fragments import power2
from ..runtime.compat import cuda, device_function, libdevice, types
from ..runtime.near import shared_span
from .row_vectors import as_it_is, put_taken, room_like, run_size, taken, whole_runs

LANES = 32  # of a row; takes another value in each kernel, as THREADS does
THREADS = 256
ROOM = 128  # numbers of 8 bytes: shared memory for rows, another value in each kernel
FEW, MANY = 24, 47  # KB of it, a ninth of what a GPU's multiprocessor has and, for rows of more lanes, a fifth
DEEP = 4  # pieces of a row that a lane has on their way together
TURNS = 64  # pieces that it adds up one after the other
LOWEST = float(np.finfo(np.float32).min)  # of the type of a kernel
LOG2E = 1.4426950408889634


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


# ---- over a row, element by element ----------------------------------------------------------------------------------------------
def run_at(first, cols):
    """The elements of a run; all of those that a lane has taken, where there is no `first`."""
    if first is None:
        return range(0, cols)
    return range(first + lane(), cols, lanes())


def long_sum(run, cols, *args):
    return all_sum(run(0, cols, *args))


def long_sums(run, cols, *args):
    one, two = run(0, cols, *args)
    return all_sum(one), all_sum(two)


def put_row(run, cols, out, *args):
    run(0, cols, out, *args)


# ---- over a row, neighbours at once ------------------------------------------------------------------------------------------------
def ends(end, cols):
    """How many ends of a row lanes go over one by one: what is before its whole runs, what is behind. Both in one loop: code for one."""
    return 2 if end < cols else 1


def long_sum_wide(run, cols, *args):
    head, end = whole_runs(args, cols)
    total, many = 0.0, run_size(args)
    step = many * lanes()
    for k in range(ends(end, cols)):
        total += run(end if k else 0, cols if k else head, *args)
    for first in range(head, end, TURNS * step):
        part = 0.0
        for i in range(first + many * lane(), min(first + TURNS * step, end), step):  # LLVM makes four turns of it one
            as_it_is()
            part += run(None, many, *taken(args, args, i))
        total += part
    return all_sum(total)


def long_sums_wide(run, cols, *args):
    head, end = whole_runs(args, cols)
    one, two, many = 0.0, 0.0, run_size(args)
    step = many * lanes()
    for k in range(ends(end, cols)):
        p, q = run(end if k else 0, cols if k else head, *args)
        one, two = one + p, two + q
    for first in range(head, end, TURNS * step):
        part, other = 0.0, 0.0
        for i in range(first + many * lane(), min(first + TURNS * step, end), step):
            as_it_is()
            p, q = run(None, many, *taken(args, args, i))
            part, other = part + p, other + q
        one, two = one + part, two + other
    return all_sum(one), all_sum(two)


def put_row_wide(run, cols, out, *args):
    every = (out, *args)
    head, end = whole_runs(every, cols)
    for k in range(ends(end, cols)):
        run(end if k else 0, cols if k else head, out, *args)
    many = run_size(every)
    step = many * lanes()
    i = head + many * lane()
    while i + step < end:
        a, b, p, q = taken(every, args, i), taken(every, args, i + step), room_like(every, out), room_like(every, out)
        run(None, many, p, *a)
        run(None, many, q, *b)
        put_taken(every, out, i, p)
        put_taken(every, out, i + step, q)
        i += 2 * step
    if i < end:
        p = room_like(every, out)
        run(None, many, p, *taken(every, args, i))
        put_taken(every, out, i, p)


def top_and_sum_wide(e, x, cols):
    """In one pass: what was added up below a maximum is scaled when a larger one comes."""
    like = (x,)
    head, end = whole_runs(like, cols)
    top, total, many = LOWEST, 0.0, run_size(like)
    step = many * lanes()
    for j in range(lane(), head + (cols - end), lanes()):
        top, total = with_one(top, total, x[j if j < head else end - head + j])
    i = head + many * lane()
    while i + (DEEP - 1) * step < end:
        (a,), (b,) = taken(like, like, i), taken(like, like, i + step)
        (c,), (d,) = taken(like, like, i + 2 * step), taken(like, like, i + 3 * step)
        found = fmax(fmax(top_of_run(a, many), top_of_run(b, many)), fmax(top_of_run(c, many), top_of_run(d, many)))
        found = fmax(top, found)
        part = (sum_of_run(a, many, found) + sum_of_run(b, many, found)) + (sum_of_run(c, many, found) + sum_of_run(d, many, found))
        top, total = found, total * exp_low(top - found) + part
        i += DEEP * step
    while i < end:
        (a,) = taken(like, like, i)
        found = fmax(top, top_of_run(a, many))
        top, total = found, total * exp_low(top - found) + sum_of_run(a, many, found)
        i += step
    found = all_max(top)
    return found, all_sum(total * exp_low(top - found))


def with_one(top, total, value):
    found = fmax(top, value)
    return found, total * exp_low(top - found) + exp_low(value - found)


def top_of_run(x, many):
    top = x[0]
    for j in range(1, many):
        top = fmax(top, x[j])
    return top


def sum_of_run(x, many, top):
    total = 0.0
    for j in range(many):
        total += exp_low(x[j] - top)
    return total


def exp_low(x):
    """exp(x) of x <= 0 as a sum with terms near 1 wants it: small ones have fewer digits. This is float32's."""
    return power2(x * LOG2E)


# ---- among lanes -------------------------------------------------------------------------------------------------------------------
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
    lane, lanes, barrier, run_at, all_sum, all_max, long_sum, long_sums, put_row, run_space, line_space,
)  # fmt: skip
WIDE = {"long_sum": long_sum_wide, "long_sums": long_sums_wide, "put_row": put_row_wide, "top_and_sum": top_and_sum_wide}


def room_of(lanes: int) -> int:
    """KB of the room for rows of so many lanes."""
    return FEW if lanes <= 128 else MANY if lanes <= 256 else 0


@cache
def row_words(dtype: np.dtype, threads: int, lanes: int, wide: bool) -> dict[str, Any]:
    """The words for rows that are shared by so many lanes, in blocks of so many threads; `wide`: lanes take neighbours at once."""
    numbers: dict[str, Any] = {"LANES": lanes, "THREADS": threads, "LINE": 0, "RUN": 1 << 30, "ROOM": 128 * room_of(lanes)}
    own = numbers | (OF_FLOATS.get(dtype, {}))
    dialect = Compiler(lambda dtype: own, (__name__,), lambda function, reorder: device_function(function))
    functions = {f.__name__: f for f in FUNCTIONS} | (WIDE if wide else {})
    return numbers | {name: device_function(typed(f, dtype, dialect, False)) for name, f in functions.items()}


OF_FLOATS: dict[np.dtype, dict[str, Any]] = {
    np.dtype("float32"): {"fmax": libdevice.fmaxf, "LOWEST": np.finfo("f4").min},
    np.dtype("float64"): {"fmax": libdevice.fmax, "LOWEST": np.finfo("f8").min, "exp_low": libdevice.exp},
}
