"""Idioms of CUDA through flamepy.cuda.emulate, right and with one fault each: records, device functions with lines of their own, cas loops,
fences of a block, a flag that one thread sets for all, copies in the background that come too early, locks that nobody opens.

Oracles: NumPy, the PTX ISA (memory consistency, cp.async) and CUDA's programming guide.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32, int32
from numba.cuda.random import init_xoroshiro128p_states_cpu, xoroshiro128p_dtype, xoroshiro128p_uniform_float32
from ptx_tools import Device, entry

import flamepy as fp
from flamepy.cuda.placing import machine
from flamepy.emulator import EmulationError

emulate = fp.cuda.emulate
PARTICLE = np.dtype([("mass", "f4"), ("kind", "i2"), ("place", "f8", 3)], align=True)


def line(function, at: int) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + at}"


# ---- records ---------------------------------------------------------------------------------------------------------------------
def moves(y, p, past):
    i = cuda.grid(1)
    if i < p.size + past:
        p[i].place[2] += p[i].mass * p[i]["kind"]
        y[i] = p[i].place[2]


def test_arrays_of_records_are_arguments() -> None:
    particles = np.zeros(10, PARTICLE)
    particles["mass"], particles["kind"], particles["place"] = np.arange(10) / 2, np.arange(10) % 3, 1
    want = 1 + particles["mass"] * particles["kind"]
    emulate(moves, 1, 32, y := np.zeros(10), particles, 0)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(particles["place"], np.stack([np.ones(10), np.ones(10), want], 1))
    with raises(fp.EmulationError, "which would be element 10 of p, an array of 10 (shape (10,), records of mass, kind, place)"):
        emulate(moves, 1, 32, y, particles, 1)
    with raises(TypeError, "moves: not an argument of a kernel: "):
        emulate(moves, 1, 32, y, particles[0], 1)


def draws(y, states):
    i = cuda.grid(1)
    y[i] = xoroshiro128p_uniform_float32(states, i)


def test_numbas_random_numbers() -> None:
    states = np.zeros(32, xoroshiro128p_dtype)
    init_xoroshiro128p_states_cpu(states, 7, 0)
    want = ((states["s0"] + states["s1"]) >> np.uint64(11)) * 2.0**-53  # Vigna, xoroshiro128+
    emulate(draws, 1, 32, y := np.zeros(32, "f4"), states)
    np.testing.assert_array_equal(y, want.astype("f4"))
    with raises(fp.EmulationError, "element 31 of states", f"{line(draws, 2)}. "):
        emulate(draws, 1, 32, y, states[:31])


def tries(y, x):
    try:
        y[0] = x[1]
    except Exception:
        y[0] = 0


def test_what_numba_stumbles_over_is_said_of_the_kernel() -> None:
    with raises(fp.DeviceError, "tries: cannot be compiled for CUDA: "):
        emulate(tries, 1, 1, np.zeros(1, "f4"), np.zeros(2, "f4"))


@cuda.jit(device=True)
def twice(v):
    if v < 0:
        raise ValueError("negative")
    return 2 * v


def doubles(y, x):
    i = cuda.grid(1)
    if i >= x.size:  # pytest makes something else of an assert
        raise AssertionError
    y[i] = twice(x[i])


def test_a_thread_that_raises_is_told() -> None:
    """On a GPU it ends, and nobody hears of it unless the kernel is compiled with debug=True."""
    emulate(doubles, 1, 4, y := np.zeros(4), np.arange(4.0))
    np.testing.assert_array_equal(y, 2 * np.arange(4.0))
    inside = f"{__file__}:{twice.py_func.__code__.co_firstlineno + 3} (called at {line(doubles, 4)})"
    for threads, x, who, place in ((5, np.arange(4.0), 4, line(doubles, 3)), (4, -np.arange(4.0), 1, inside)):
        with raises(
            fp.EmulationError, f"doubles: trap: thread {who} of block 0 gave up, by raise, assert or trap, {place}. Look at the check"
        ):
            emulate(doubles, 1, threads, y, x)
    assert "trap" not in fp.cuda.compile(doubles, "void(float64[::1], float64[::1])").ptx  # what a GPU gets is as it was


def meets(y, x):
    grid = cuda.cg.this_grid()
    y[cuda.grid(1)] = x[0]
    grid.sync()


def reshapes(y, x):
    y[0] = x.reshape(2, 2)[1, 1]


def test_what_is_linked_on_a_gpu_is_refused_with_another_way() -> None:
    for kernel, at, words in (
        (meets, 1, ("meets: blocks run one after the other here: cuda.cg.this_grid() at ", "Make two kernels of it")),
        (reshapes, 1, ("reshapes: a function that is linked: reshape() at ", "Reshape the array before the launch")),
    ):
        with raises(fp.EmulationError, *words, line(kernel, at)):
            emulate(kernel, 2, 2, np.zeros(4, "f4"), np.zeros(4, "f4"))


# ---- device functions ------------------------------------------------------------------------------------------------------------
@cuda.jit(device=True)
def put(part, t, value):
    part[t + 1] = value * 0.1
    return value


def puts(y, x):
    part, t = cuda.shared.array(32, float32), cuda.threadIdx.x
    y[t] = put(part, t, x[t])


def test_a_device_functions_own_line_is_told_and_that_of_its_call() -> None:
    inside = f"{__file__}:{put.py_func.__code__.co_firstlineno + 2}"
    with raises(fp.EmulationError, f"by thread 31 of block 0, {inside} (called at {line(puts, 2)}). Check"):
        emulate(puts, 1, 32, np.zeros(32, "f4"), np.ones(32, "f4"))
    report = emulate(puts, 1, 31, np.zeros(32, "f4"), np.ones(32, "f4"))
    assert list(report.float64) == [inside]


# ---- what orders, and what need not be ordered -------------------------------------------------------------------------------------
def largest(found, x):
    i = cuda.grid(1)
    old = found[0]
    while x[i] > old:
        assumed = old
        old = cuda.atomic.cas(found, 0, assumed, x[i])
        if old == assumed:
            break


def test_what_cas_compares_may_be_read_plainly_before() -> None:
    x = np.random.default_rng(0).permutation(128).astype("i4")
    emulate(largest, 2, 64, found := np.zeros(1, "i4"), x)
    assert found[0] == 127


def publishes(y, data, flag, block):
    if cuda.blockIdx.x == block and cuda.threadIdx.x == 0:
        data[0] = 42
        cuda.threadfence_block()
        cuda.atomic.exch(flag, 0, 1)
    if cuda.blockIdx.x == 1 and cuda.threadIdx.x == 32:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        y[0] = data[0]


def test_a_fence_of_the_block_is_none_for_other_blocks() -> None:
    zeros = lambda: [np.zeros(1, "i4") for _ in range(3)]
    emulate(publishes, 2, 64, *(given := zeros()), 1)
    assert given[0][0] == 42
    with raises(fp.EmulationError, "race: thread 32 of block 1 reads", "thread 0 of block 0 wrote", "which is data[0]"):
        emulate(publishes, 2, 64, *zeros(), 0)


def passes_on(y, x, fenced):
    queue, full, t = cuda.shared.array(4, int32), cuda.shared.array(4, int32), cuda.threadIdx.x
    if t < 4:
        full[t] = 0
    cuda.syncthreads()
    for i in range(x.size):
        if t == 0:
            while cuda.atomic.add(full, i % 4, 0) == 1:
                pass
            queue[i % 4] = x[i]
            cuda.threadfence_block()
            cuda.atomic.exch(full, i % 4, 1)
        elif t == 32:
            while cuda.atomic.add(full, i % 4, 0) == 0:
                pass
            cuda.threadfence_block()
            y[i] = queue[i % 4]
            if fenced:
                cuda.threadfence_block()
            cuda.atomic.exch(full, i % 4, 0)


def test_who_only_asks_publishes_nothing() -> None:
    """What was read before no fence of its own is not known to who sees the slot free, though the reader asks on behind later fences."""
    x = np.arange(20, dtype="i4")
    emulate(passes_on, 1, 64, y := np.zeros(20, "i4"), x, 1)
    np.testing.assert_array_equal(y, x)
    with raises(fp.EmulationError, "race: thread 0 of block 0 writes at", "what thread 32 of block 0 read at", line(passes_on, 16)):
        emulate(passes_on, 1, 64, y, x, 0)


def hands_out(y, x, counter):
    tile, t = cuda.shared.array(1, int32), cuda.threadIdx.x
    while True:
        if t == 0:
            tile[0] = cuda.atomic.add(counter, 0, 1)
        cuda.syncthreads()
        mine = tile[0]
        cuda.syncthreads()
        if mine >= 10:
            break
        y[mine * 32 + t] = x[mine * 32 + t] * 2


def hands_out_early(y, x, counter):
    tile, t = cuda.shared.array(1, int32), cuda.threadIdx.x
    while True:
        if t == 0:
            tile[0] = cuda.atomic.add(counter, 0, 1)
        mine = tile[0]
        cuda.syncthreads()
        if mine >= 10:
            break
        y[mine * 32 + t] = x[mine * 32 + t] * 2


def test_a_flag_that_is_read_too_early_is_a_race_though_threads_then_miss_a_barrier() -> None:
    x = np.arange(320)
    emulate(hands_out, 3, 32, y := np.zeros(320, "i8"), x, np.zeros(1, "i4"))
    np.testing.assert_array_equal(y, 2 * x)
    with raises(fp.EmulationError, "race: ", f" at {line(hands_out_early, 4)}", f" at {line(hands_out_early, 5)}") as error:
        emulate(hands_out_early, 3, 32, y, x, np.zeros(1, "i4"))
    assert error.value.kind == "race"


def some_wait(y, x):
    part, t = cuda.shared.array(64, float32), cuda.threadIdx.x
    part[t] = x[t]
    if t % 2 == 0:
        cuda.syncthreads()
    cuda.syncthreads()
    y[t] = part[63 - t]


def test_threads_at_two_barriers_are_told_apart() -> None:
    with raises(fp.EmulationError, f"thread 0 of block 0 at {line(some_wait, 4)}", f"thread 1 of block 0 at {line(some_wait, 5)}"):
        emulate(some_wait, 1, 64, np.zeros(64, "f4"), np.ones(64, "f4"))


def test_a_copy_in_the_background_does_not_come_before_what_others_still_read() -> None:
    body = """.shared .align 16 .b8 tile[512]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 4; mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;
        ld.param.u64 %rd1, [x]; cvt.u64.u32 %rd2, %r2; add.u64 %rd3, %rd1, %rd2;
        cp.async.ca.shared.global [%r4], [%rd3], 16; cp.async.wait_all; bar.sync 0;
        sub.u32 %r5, 496, %r2; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5]; FIRST
        cp.async.ca.shared.global [%r4], [%rd3], 16; bar.sync 0; cp.async.wait_all; bar.sync 0; ld.shared.u32 %r7, [%r5];
        ld.param.u64 %rd4, [y]; add.u64 %rd5, %rd4, %rd2; add.u32 %r6, %r6, %r7; st.global.u32 [%rd5], %r6;"""
    text, device = entry("k", "u64 x, u64 y", body), Device()
    x, y = np.arange(128, dtype=np.uint32).reshape(32, 4), device.empty(128, np.uint32)
    device.run(text.replace("FIRST", "bar.sync 0;"), 1, 32, device.array(x), y)
    np.testing.assert_array_equal(device.memory.read(y, 128, np.uint32).reshape(32, 4)[:, 0], 2 * x[::-1, 0])
    with raises(EmulationError, "k: race: thread 0 of block 0 writes", "what thread 31 of block 0 read"):
        device.run(text.replace("FIRST", ""), 1, 32, device.array(x), y)


def locks(total, lock, x):
    i, done = cuda.grid(1), False
    while not done:
        if cuda.atomic.cas(lock, 0, 0, 1) == 0:
            cuda.threadfence()
            total[0] += x[i]
            done = True


def test_what_nobody_will_open_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine(), "limit", 1 << 20)
    with raises(fp.EmulationError, "locks: does not end: 6", f"It waits for what is read at {line(locks, 3)}, and no thread writes"):
        emulate(locks, 1, 32, np.zeros(1), np.zeros(1, "i4"), np.ones(32))


# ---- lines that the compiler copies into branches ----------------------------------------------------------------------------------
def works(done, counter, tiles):
    lane = cuda.laneid
    while True:
        tile = 0
        if lane == 0:  # NVVM makes two loops of this one: lane 0 runs the other copy of the shuffle
            tile = cuda.atomic.add(counter, 0, 1)
        tile = cuda.shfl_sync(0xFFFFFFFF, tile, 0)
        if tile >= tiles:
            break
        done[tile, lane] += tile


def works_in_part(done, counter, tiles):
    lane = cuda.laneid
    while True:
        tile = 0
        if lane == 0:
            tile = cuda.atomic.add(counter, 0, 1)
        if lane < 31:
            tile = cuda.shfl_sync(0xFFFFFFFF, tile, 0)
        if tile >= tiles:
            break
        done[tile, lane] += tile


def asks(found, x, counter):
    lane, number = cuda.laneid, 0
    for row in range(x.shape[0]):
        if lane < 8:
            number = cuda.atomic.add(counter, 0, 1)
        number += 1000 * cuda.popc(cuda.ballot_sync(0xFFFFFFFF, x[row, lane] > 0))
        number += cuda.popc(cuda.match_any_sync(0xFFFFFFFF, x[row, lane]))
    found[lane] = number // 1000 % 100


def test_lanes_meet_at_two_copies_of_one_line() -> None:
    """The PTX ISA, shfl.sync: a lane waits until all of its mask have executed one with the same qualifiers and mask; not the same one."""
    emulate(works, 2, 64, done := np.zeros((20, 32), "i8"), counter := np.zeros(1, "i8"), 20)
    np.testing.assert_array_equal(done, np.arange(20)[:, None] + np.zeros((20, 32), "i8"))
    assert counter[0] == 24
    with raises(fp.EmulationError, "mask names lanes that are not here", line(works_in_part, 7), "missing are lanes 31. ") as error:
        emulate(works_in_part, 2, 64, done, counter * 0, 20)
    assert error.value.kind == "barrier"
    x = np.array([np.arange(32) % 2, np.arange(32) < 5], "i8")
    emulate(asks, 1, 32, found := np.zeros(32, "i8"), x, np.zeros(1, "i8"))
    np.testing.assert_array_equal(found, np.where(np.arange(32) < 8, 5, 21))
