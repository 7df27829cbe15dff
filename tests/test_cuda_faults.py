"""Faults that are hard to see, planted in kernels, and the same kernels right: masks of warps, locks, rows, local arrays, float64.

Each kernel is compiled once; its argument `how` chooses between right and wrong. Oracles: NumPy, and CUDA's rules (programming guide:
independent thread scheduling, memory fences; PTX: bar.warp.sync).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from llvmlite import ir
from numba import cuda, float32, float64, int32

import flamepy as fp
from flamepy.cuda.placing import machine

emulate = fp.cuda.emulate
X = np.arange(64, dtype="f4")


def line(function: Callable[..., Any], plus: int) -> str:
    """`file:number` of the line so many below a function's first."""
    code = getattr(function, "py_func", function).__code__
    return f"{__file__}:{code.co_firstlineno + plus}"


# ---- lanes of a warp -------------------------------------------------------------------------------------------------------------
def halves(y, x, how):
    part, t = cuda.shared.array(32, float32), cuda.threadIdx.x
    part[t] = x[t]
    if t < 16:
        cuda.syncwarp(0xFFFF)
        y[t] = part[15 - t] if how == 0 else part[t + 16]
    else:
        y[t] = x[t]


def passed_on(y, x, how):
    one, t = cuda.shared.array(2, float32), cuda.threadIdx.x
    if t == 0:
        one[0] = x[5]
    if t < 2:
        cuda.syncwarp(0b11)
    if t == 1 and how == 1:
        one[1] = x[6]
    if 0 < t < 3:
        cuda.syncwarp(0b110)
    if t == 2:
        y[0] = one[0]  # lane 1 has told it
    if t == 1 and how == 2:
        one[1] = x[6]
    if t == 2 and how:
        y[1] = one[1]


def kept_long(y, x):
    one, t = cuda.shared.array(1, float32), cuda.threadIdx.x
    if t == 0:
        one[0] = x[1]
    cuda.syncwarp()
    total = float32(0)
    for _ in range(1000):
        total += one[0]
        cuda.syncwarp()
    y[t] = total


def read_by_two(y, x):
    t = cuda.threadIdx.x
    if t == 0:
        y[0] = x[0]
    if t == 9:
        y[9] = x[0]
    if t == 0:
        y[1] = x[0] + 2
        x[0] = 3


def test_a_mask_orders_the_lanes_that_it_names() -> None:
    emulate(halves, 1, 32, y := X[:32].copy(), X, 0)
    np.testing.assert_array_equal(y[:16], X[15::-1])
    with raises(fp.EmulationError, f"race: thread 0 of block 0 reads at {line(halves, 5)} what thread 16", f"wrote at {line(halves, 2)},"):
        emulate(halves, 1, 32, y, X, 1)
    emulate(passed_on, 1, 32, y, X, 1)
    assert y[0] == 5 and y[1] == 6
    with raises(fp.EmulationError, "race: thread 2 of block 0 reads at", "what thread 1 of block 0 wrote", "cuda.syncwarp()"):
        emulate(passed_on, 1, 32, y, X, 2)


def test_what_was_written_once_is_read_after_any_number_of_barriers() -> None:
    emulate(kept_long, 1, 32, y := np.zeros(32, "f4"), X)
    assert (y == 1000).all()


def test_a_reader_is_seen_between_two_reads_of_the_writer() -> None:
    with raises(fp.EmulationError, "race: thread 0 of block 0 writes", "what thread 9 of block 0 read", "which is x[0]"):
        emulate(read_by_two, 1, 32, np.zeros(64, "f4"), X.copy())


# ---- locks -----------------------------------------------------------------------------------------------------------------------
def locked_sum(y, lock, x, how):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    y[0] += x[cuda.grid(1)]
    if how == 0:
        cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


def locked_in_turns(y, lock, x):
    done = False
    while not done:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            y[0] += x[cuda.grid(1)]
            cuda.threadfence()
            cuda.atomic.exch(lock, 0, 0)
            done = True


def test_all_lanes_take_one_lock() -> None:
    """Since Volta each lane goes on by itself: who holds the lock is not kept waiting by those that want it."""
    for grid, kernel, how in ((1, locked_sum, (0,)), (2, locked_in_turns, ())):
        emulate(kernel, grid, 64 // grid, y := np.zeros(1, "f4"), np.zeros(1, "i4"), X, *how)
        assert y[0] == X.sum()
    with raises(fp.EmulationError, f"race: thread 1 of block 0 reads at {line(locked_sum, 3)} what thread 0 of block 0 wrote at"):
        emulate(locked_sum, 1, 64, y, np.zeros(1, "i4"), X, 1)


# ---- between blocks --------------------------------------------------------------------------------------------------------------
def last_adds(y, part, count, how):
    mine, t, b = cuda.shared.array(1, int32), cuda.threadIdx.x, cuda.blockIdx.x
    if how == 1:
        cuda.threadfence()
    part[64 * b + t] = 1
    if how == 0:
        cuda.threadfence()
    if how != 3:
        cuda.syncthreads()
    if t == 0:
        if how == 3:
            cuda.threadfence()
        mine[0] = cuda.atomic.add(count, 0, 1)
    cuda.syncthreads()
    if t == 40 and (mine[0] == 3 or how == 4):
        for k in range(64 * cuda.gridDim.x):
            y[0] += part[k]


@pytest.mark.parametrize("how", [1, 2, 3, 4])
def test_the_last_block_reads_what_is_behind_fences(how: int) -> None:
    """1: the fence comes before the write, 2: there is none, 3: no barrier brings the writes of others before it, 4: not only the last."""
    given = lambda: (np.zeros(1, "f4"), np.zeros(256, "f4"), np.zeros(1, "i4"))
    emulate(last_adds, 4, 64, *(right := given()), 0)
    assert right[0][0] == 256
    with raises(fp.EmulationError, "race: ", "wrote at " if how < 4 else " read at ", "which is part["):
        emulate(last_adds, 4, 64, *given(), how)


# ---- loops that do not end -------------------------------------------------------------------------------------------------------
def waits(flag, how):
    if cuda.blockIdx.x == 0:
        if how == 0:
            while flag[0] == 0:
                pass
        else:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
    else:
        cuda.atomic.add(flag, 0, 1)


def test_what_a_loop_waits_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine(), "limit", 20_000)
    with raises(fp.EmulationError, "waits: does not end", f"It waits for what is read plainly at {line(waits, 3)}, which the compiler may"):
        emulate(waits, 2, 32, np.zeros(1, "i4"), 0)
    with raises(fp.EmulationError, "waits: does not end", f"waits for what is read at {line(waits, 6)}, and no thread writes", "Blocks"):
        emulate(waits, 2, 32, np.zeros(1, "i4"), 1)


# ---- arrays of several axes: past the end of a row is the next row ---------------------------------------------------------------
@cuda.jit(device=True)
def right_of(x, i, j):
    return x[i, j + 1]


def by_rows(y, x, how):
    tile, i, j = cuda.shared.array((3, 4), float32), cuda.threadIdx.x, cuda.threadIdx.y
    if i < x.shape[0] and j < x.shape[1] + (how == 1):
        tile[i, j] = x[i - 3, j]  # counted from the end
        value = tile[i, j]
        if how == 2:
            value += x[i][j + 1]
        if how == 3:
            cuda.atomic.add(y, (i, j + 1), value)
        if how == 4:
            value += right_of(x, i, j)
        if how == 5:
            value += tile[i - 4, j]
        y[i, j] += 2 * value + x[3:, 0].size  # an empty slice may begin past the end


def test_each_index_is_compared_with_its_axis() -> None:
    x = X[:12].reshape(3, 4)
    emulate(by_rows, 1, (4, 6), y := np.zeros_like(x), x, 0)
    np.testing.assert_array_equal(y, 2 * x)
    for how, index, axis, size, array, plus in (
        (1, 4, 1, 4, "which is x[0, 0]", 3), (2, 4, 0, 4, "which is x[0, 0]", 6), (3, 4, 1, 4, "which is y[0, 0]", 8),
        (4, 4, 1, 4, "which is x[0, 0]", 10), (5, -1, 0, 3, "shared memory at byte 0", 12),
    ):  # fmt: skip
        words = f"{index} on axis {axis}, which has {size} elements, of the array at", array, "by thread (0, ", line(by_rows, plus)
        with raises(fp.EmulationError, "by_rows: index out of bounds: ", *words) as caught:
            emulate(by_rows, 1, (4, 6), y, x, how)
        assert caught.value.kind == "out of bounds"


# ---- local arrays ----------------------------------------------------------------------------------------------------------------
@cuda.jit(device=True)
def helper(x, n):
    own = cuda.local.array(4, float32)
    for k in range(4):
        own[k] = x[k]
    return own[n]


def past_its_end(y, x):
    y[0] = helper(x, 4)


def at_its_end(y, x):
    y[0] = helper(x, 3)


def written_past(y, x):
    own = cuda.local.array((2, 2), float64)
    for k in range(3):
        own[k, 1] = x[k]
    y[0] = own[1, 1]


def never_written(y, x):
    for k in range(2):
        own = cuda.local.array(4, float32)
        if k == 0:
            own[1] = x[0]
        y[k] = own[1]


def test_local_arrays_have_ends_where_all_indices_are_known() -> None:
    """NVVM keeps such an array in registers: in PTX there is nothing to see."""
    y = np.zeros(2, "f4")
    for kernel, found, place in (
        (past_its_end, "4 on axis 0, which has 4 elements, of the array at local memory, 0 bytes into an array of 16 bytes", ""),
        (written_past, "2 on axis 0, which has 2 elements, of the array at local memory, 0 bytes into an array", line(written_past, 3)),
        (never_written, "nothing has written: 4 bytes at local memory, 4 bytes into an array of 16 bytes", line(never_written, 5)),
    ):
        with raises(fp.EmulationError, f"{kernel.__name__}: ", found, f"thread 0 of block 0, {place}"):
            emulate(kernel, 1, 1, y, X)
    emulate(at_its_end, 1, 1, y, X)  # the device function was compiled before
    assert y[0] == 3
    kernel = fp.cuda.compile(at_its_end, "void(float32[::1], float32[::1])")
    assert not kernel.local and "own.local" not in kernel.ptx  # what a GPU gets is as it was


@cuda.jit(device=True)
def twice(v):
    return v + v


def doubled(y, x):
    y[0] = twice(x[0])


def doubled_and_more(y, x):
    y[0] = twice(x[0]) + 1


def test_of_a_device_function_only_its_text_is_kept() -> None:
    """Numba keeps device functions for ever, with all that their compilation needed: 10 MB for a kernel of flamepy's."""
    for kernel in (doubled, doubled_and_more):
        emulate(kernel, 1, 1, y := np.zeros(1, "f4"), X[3:].copy())
        (kept,) = twice.overloads.values()
        assert not any(isinstance(m, ir.Module) for m in kept.library.modules)
        assert not kept.type_annotation.blocks and not kept.fndesc.typemap
    assert y[0] == 7


# ---- what is not an error --------------------------------------------------------------------------------------------------------
def creeping(y, x):
    i = cuda.grid(1)
    y[i] = x[i] * 0.1
    x[i] = math.exp(x[i]) * float32(0.1)


def test_float64_is_counted_by_line() -> None:
    report = emulate(creeping, 2, 32, np.zeros(64, "f4"), np.zeros(64, "f4"))
    assert list(report.float64) == [line(creeping, 2)] and report.float64[line(creeping, 2)] == 2 == report.instructions["fp64"]
    assert str(report).endswith(f"\n  in float64                        2  at {line(creeping, 2)}")
    assert " instructions, 1 of them in float64 (" in str(fp.cuda.compile(creeping, "void(float32[::1], float32[::1])"))


# ---- places ----------------------------------------------------------------------------------------------------------------------
def as_wider(y, x):
    y[cuda.threadIdx.x] = x.view(np.float64)[cuda.threadIdx.x]


def two_in_one(y, x):
    a, b, t = cuda.shared.array(0, float32), cuda.shared.array(0, int32), cuda.threadIdx.x
    a[t] = x[t]
    if y.size == 64:
        b[63 - t] = t
    y[t] = a[t]


def test_parts_of_arrays_lie_where_they_do_on_a_gpu() -> None:
    y = np.zeros(16)
    emulate(as_wider, 1, 16, y, X[:32])
    np.testing.assert_array_equal(y, X[:32].view("f8"))
    with raises(fp.EmulationError, "misaligned access: 8 bytes", "which is x[0], by thread 0") as error:
        emulate(as_wider, 1, 16, y, X[1:33])
    assert error.value.kind == "misaligned"


def test_shared_arrays_of_the_launch_are_at_one_place() -> None:
    emulate(two_in_one, 1, 64, y := np.zeros(65, "f4"), X, shared=256)
    np.testing.assert_array_equal(y[:64], X)
    with raises(fp.EmulationError, "race: thread ", line(two_in_one, 2), line(two_in_one, 4)):
        emulate(two_in_one, 1, 64, y[:64], X, shared=256)


# ---- what is not compiled --------------------------------------------------------------------------------------------------------
@cuda.jit(device=True)
def factorial(n):
    return int32(1) if n < 2 else n * factorial(n - int32(1))


def recursive(y):
    y[0] = factorial(int32(y[0]))


def test_recursion_is_refused_by_name() -> None:
    place = line(factorial, 2)
    with raises(fp.DeviceError, f"factorial: cannot be compiled for CUDA: factorial() calls itself, {place}: Numba compiles no recursion"):
        emulate(recursive, 1, 1, np.ones(1, "i4"))
