"""What orders two accesses, and for whom: fences of one thread, acquires of one lane, barriers of some warps; and pointers that are stale.

Each kernel is compiled once; its argument `how` chooses between right (0) and wrong. Oracles: NumPy, the PTX ISA (memory consistency model,
bar.sync, bar.arrive) and CUDA's programming guide (memory fences).
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32, int32
from ptx_tools import Device, entry

import flamepy as fp
from flamepy.cuda.placing import machine
from flamepy.emulator import EmulationError, Memory

emulate = fp.cuda.emulate
X = np.arange(64, dtype="f4")


def line(function, at: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + at}"


# ---- fences and acquires -----------------------------------------------------------------------------------------------------------
def last_block(y, part, count, how):
    mine, t, b = cuda.shared.array(1, int32), cuda.threadIdx.x, cuda.blockIdx.x
    part[64 * b + t] = 1
    if how == 0 or how == 3:
        cuda.syncthreads()
    if t == 63:
        if how != 3:
            cuda.threadfence()
        mine[0] = cuda.atomic.add(count, 0, 1)
    cuda.syncthreads()
    if mine[0] == cuda.gridDim.x - 1 and t == 5:
        if how == 0:
            cuda.threadfence()
        for k in range(64 * cuda.gridDim.x):
            y[0] += part[k]


@pytest.mark.parametrize("how", [1, 3])
def test_a_fence_of_the_last_thread_holds_for_that_thread(how: int) -> None:
    """1: no barrier brings the others' writes before the fence, though thread 63 runs after all of them; 3: no fence."""
    given = lambda: (np.zeros(1, "f4"), np.zeros(256, "f4"), np.zeros(1, "i4"))
    emulate(last_block, 4, 64, *(right := given()), 0)
    assert right[0][0] == 256
    with raises(fp.EmulationError, "race: thread 5 of block 3 reads at", "wrote at", line(last_block, 2), "which is part[0]"):
        emulate(last_block, 4, 64, *given(), how)


def fenced_by_each(y, part, count):
    mine, t, b = cuda.shared.array(1, int32), cuda.threadIdx.x, cuda.blockIdx.x
    part[64 * b + t] = 1
    cuda.threadfence()
    cuda.syncthreads()
    if t == 0:
        mine[0] = cuda.atomic.add(count, 0, 1)
    cuda.syncthreads()
    if mine[0] == cuda.gridDim.x - 1 and t == 0:
        for k in range(64 * cuda.gridDim.x):
            y[0] += part[k]


def fenced_for_the_warp(y, part, count):
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    part[32 * b + t] = 1
    cuda.syncwarp()
    if t == 3:
        cuda.threadfence()
        if cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1:
            for k in range(32 * cuda.gridDim.x):
                y[0] += part[k]


def test_fences_of_others_that_a_barrier_orders_hold() -> None:
    for kernel, threads in ((fenced_by_each, 64), (fenced_for_the_warp, 32)):
        emulate(kernel, 4, threads, y := np.zeros(1, "f4"), np.zeros(4 * threads, "f4"), np.zeros(1, "i4"))
        assert y[0] == 4 * threads


def flagged(y, data, flag, how):
    t = cuda.threadIdx.x
    if cuda.blockIdx.x == 0:
        if t < 2:
            data[t] = t + 1
        if how != 1:
            cuda.syncwarp()
        if t == 0:
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
    else:
        if t == 0:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
            cuda.threadfence()
        if how != 2:
            cuda.syncwarp()
        y[t] = data[t & 1]


def test_what_a_lane_acquires_its_warp_has_after_syncwarp() -> None:
    """1: lane 1 of the writer's warp is not before the fence; 2: the lanes of the reader's do not wait for lane 0."""
    zeros = lambda: (np.zeros(32, "f4"), np.zeros(2, "f4"), np.zeros(1, "i4"))
    emulate(flagged, 2, 32, *(given := zeros()), 0)
    np.testing.assert_array_equal(given[0], np.tile([1, 2], 16))
    for how, who, of in ((1, 1, 1), (2, 2, 0)):  # lanes that read one word are looked at together
        with raises(fp.EmulationError, f"race: thread {who} of block 1 reads at", f"thread {of} of block 0 wrote", f"which is data[{of}]"):
            emulate(flagged, 2, 32, *zeros(), how)


def look_back(y, x, total, flag):
    """A scan over blocks: each waits for the one before (Merrill and Garland)."""
    part, t, b = cuda.shared.array(32, float32), cuda.threadIdx.x, cuda.blockIdx.x
    part[t] = x[32 * b + t]
    cuda.syncthreads()
    if t == 0:
        before = float32(0)
        if b > 0:
            while cuda.atomic.add(flag, b - 1, 0) == 0:
                pass
            cuda.threadfence()
            before = total[b - 1]
        for k in range(32):
            before += part[k]
            part[k] = before
        total[b] = before
        cuda.threadfence()
        cuda.atomic.exch(flag, b, 1)
    cuda.syncthreads()
    y[32 * b + t] = part[t]


def test_a_scan_that_looks_back() -> None:
    x = np.arange(128, dtype="f4")
    emulate(look_back, 4, 32, y := np.zeros(128, "f4"), x, np.zeros(4, "f4"), np.zeros(4, "i4"))
    np.testing.assert_array_equal(y, np.cumsum(x))


def tickets(y, lock, x):
    i, done = cuda.grid(1), False
    mine = cuda.atomic.add(lock, 0, 1)
    while not done:
        if cuda.atomic.add(lock, 1, 0) == mine:
            cuda.threadfence()
            y[0] += x[i]
            cuda.threadfence()
            cuda.atomic.add(lock, 1, 1)
            done = True


def test_a_ticket_lock() -> None:
    emulate(tickets, 2, 32, y := np.zeros(1, "f4"), np.zeros(2, "i4"), X)
    assert y[0] == X.sum()


def locked_by_one(y, lock, x, how):
    t = cuda.threadIdx.x
    if t == 0:
        while cuda.atomic.cas(lock, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
    cuda.syncthreads()
    y[t] += x[t]
    if how == 0:
        cuda.syncthreads()
    if t == 0:
        cuda.threadfence()
        cuda.atomic.exch(lock, 0, 0)


def test_one_thread_holds_a_lock_for_its_block() -> None:
    """1: it gives the lock back before the others are done."""
    emulate(locked_by_one, 4, 64, y := np.zeros(64, "f4"), np.zeros(1, "i4"), X, 0)
    np.testing.assert_array_equal(y, 4 * X)
    with raises(fp.EmulationError, "race: thread 1 of block 1 reads", f"what thread 1 of block 0 wrote at {line(locked_by_one, 7)}"):
        emulate(locked_by_one, 4, 64, y, np.zeros(1, "i4"), X, 1)


def last_thread(y, part, count, how):
    i, n = cuda.grid(1), cuda.gridsize(1)
    part[i] = 1
    if how == 0 or i != 40:
        cuda.threadfence()
    if cuda.atomic.add(count, 0, 1) == n - 1:
        cuda.threadfence()
        for k in range(n):
            y[0] += part[k]


def test_each_thread_counts_itself() -> None:
    """1: one thread of 128 makes no fence."""
    emulate(last_thread, 2, 64, y := np.zeros(1, "f4"), np.zeros(128, "f4"), np.zeros(1, "i4"), 0)
    assert y[0] == 128
    with raises(fp.EmulationError, "what thread 40 of block 0 wrote at", "which is part[40]"):
        emulate(last_thread, 2, 64, y, np.zeros(128, "f4"), np.zeros(1, "i4"), 1)


# ---- barriers of some warps ----------------------------------------------------------------------------------------------------------
START = """.shared .align 4 .b32 tile[128]; mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 4, %r2;
shr.u32 %r9, %r1, 5; setp.lt.u32 %p1, %r9, 2; setp.ne.u32 %p2, %r9, 0; setp.eq.u32 %p3, %r9, 0;
xor.b32 %r4, %r1, 32; mad.lo.u32 %r5, %r4, 4, %r2; ld.param.u64 %rd1, [y]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
"""
PAIRS = START + "st.shared.u32 [%r3], %r1; @%p1 bar.sync 1, 64; @!%p1 bar.sync 2, 64; ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3], %r6;"
# Warps 0 and 1 meet; warps 1 and 2 do afterwards; then 0 and 2 touch what the other wrote, or what warp 3 did.
CHAIN = (
    START
    + """st.shared.u32 [%r3], %r1; mov.u32 %r6, 0; setp.eq.u32 %p4, %r9, 1; setp.eq.u32 %p5, %r9, 2;
@%p1 bar.sync 1, 64; or.pred %p6, %p4, %p5; @%p6 bar.sync 2, 64; @%p5 ld.shared.u32 %r6, [%r3+FROM]; st.global.u32 [%rd3], %r6;"""
)
# Warp 0 writes and goes on; warp 1 waits for it, and may not touch what warp 0 does afterwards.
ARRIVES = (
    START
    + """@%p3 st.shared.u32 [%r3], %r1; @%p3 bar.arrive 1, 64; EARLY @!%p3 bar.sync 1, 64; mov.u32 %r6, 0;
@!%p3 ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3], %r6;"""
)

# Warp 0 fills a buffer again and again, warp 1 empties it: barrier 1 says that it is full, barrier 2 that it is empty.
QUEUE = (
    START
    + """mov.u32 %r7, 0; mov.u32 %r8, 0; @%p2 bra CONSUMER;
PRODUCER: bar.sync 2, 64; add.u32 %r6, %r1, %r7; st.shared.u32 [%r3], %r6; bar.arrive 1, 64;
add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 4; @%p4 bra PRODUCER; bra.uni DONE;
CONSUMER: bar.arrive 2, 64;
MORE: bar.sync 1, 64; EARLY ld.shared.u32 %r6, [%r5]; add.u32 %r8, %r8, %r6; LATE
add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 4; @%p4 bra MORE; st.global.u32 [%rd3], %r8; DONE:"""
)


def run(body: str, threads: int, order: str) -> np.ndarray:
    device = Device()
    (kernel,) = device.machine.load(entry("k", "u64 y", body)).values()
    y = device.memory.allocate(4 * threads)
    device.machine.launch(kernel, 1, threads, [y], order=order)
    return device.memory.read(y, threads, np.uint32)


@pytest.mark.parametrize("order", ["all", "first", "last"])
def test_a_barrier_of_two_warps_orders_these_two(order: str) -> None:
    np.testing.assert_array_equal(run(PAIRS, 128, order), np.arange(128) ^ 32)
    with raises(EmulationError, "race: thread", "bytes into tile"):
        run(PAIRS.replace("xor.b32 %r4, %r1, 32", "xor.b32 %r4, %r1, 64"), 128, order)
    np.testing.assert_array_equal(run(CHAIN.replace("FROM", "-256"), 96, order)[64:], np.arange(32))
    with raises(EmulationError, "race: thread"):  # warp 3 meets nobody
        run(CHAIN.replace("FROM", "128"), 128, order)


@pytest.mark.parametrize("order", ["all", "first", "last"])
def test_who_only_arrives_is_before_those_that_wait(order: str) -> None:
    np.testing.assert_array_equal(run(ARRIVES.replace("EARLY", ""), 64, order)[32:], np.arange(32))
    with raises(EmulationError, "race: thread"):
        run(ARRIVES.replace("EARLY", "@%p3 st.shared.u32 [%r3], %r9;"), 64, order)


@pytest.mark.parametrize("order", ["all", "first", "last"])
def test_a_producer_and_a_consumer_with_two_barriers(order: str) -> None:
    empty = "bar.arrive 2, 64;"
    got = run(QUEUE.replace("EARLY", "").replace("LATE", empty), 64, order)[32:]
    np.testing.assert_array_equal(got, 4 * np.arange(32) + 6)
    with raises(EmulationError, "race: thread"):  # the buffer is called empty before it is read
        run(QUEUE.replace("EARLY", empty).replace("LATE", ""), 64, order)


# ---- parts of arrays, freed memory, loops ----------------------------------------------------------------------------------------------
def sliced(y, x, past):
    both, t = cuda.shared.array(64, float32), cuda.threadIdx.x
    left, right = both[:32], both[32:]
    left[t] = x[t]
    right[t] = x[t + 32]
    cuda.syncthreads()
    y[t] = left[t + past] + right[t]


def test_an_index_beside_a_slice_is_beside_it() -> None:
    emulate(sliced, 1, 32, y := np.zeros(32, "f4"), X, 0)
    np.testing.assert_array_equal(y, X[:32] + X[32:])
    with raises(fp.EmulationError, "index out of bounds: 32 on axis 0, which has 32 elements", "by thread 31 of block 0", line(sliced, 6)):
        emulate(sliced, 1, 32, y, X, 1)


def test_a_freed_block_is_kept_back_and_named() -> None:
    device = Device()
    body = "ld.param.u64 %rd1, [y]; mov.u32 %r1, 1; st.global.u32 [%rd1+4], %r1;"
    (kernel,) = device.machine.load(entry("k", "u64 y", body)).values()
    stale = device.memory.allocate(64)
    device.memory.free(stale)
    other = device.memory.allocate(64)
    with raises(EmulationError, "write out of bounds", f", 4 bytes into the 64 bytes at {stale:#x}, which were freed, by thread 0"):
        device.machine.launch(kernel, 1, 1, [stale])
    device.machine.launch(kernel, 1, 1, [other])
    for _ in range(200):  # it comes back
        device.memory.free(address := device.memory.allocate(64))
    assert device.memory.top < 200 * 320 and address


def test_memory_that_was_freed_is_used_before_there_is_none() -> None:
    memory = Memory(1 << 24)
    for _ in range(4):
        memory.free(memory.allocate(10 << 20))
    assert memory.top < 1 << 24


def steps_over(y, n):
    i, end = 0, n[0]
    while i != end:
        i = i * 5 + 2 & 7
        y[0] = i


def test_a_loop_that_misses_its_end_is_told_its_own_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine(), "limit", 20_000)
    emulate(steps_over, 1, 1, y := np.zeros(1, "i4"), np.array([6], "i4"))
    assert y[0] == 6
    with raises(fp.EmulationError, "steps_over: does not end", f"Check the loop's condition at {line(steps_over, 2)}, or raise"):
        emulate(steps_over, 1, 1, y, np.array([3], "i4"))
