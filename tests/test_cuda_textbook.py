"""Kernels as textbooks write them, right and with one fault each, through flamepy.cuda.emulate: what races behind an atomic, arrays that
are one, sizes that no GPU takes, arrays that may not be written.

Oracles: NumPy, and CUDA's rules (programming guide: memory ordering, limits by compute capability).
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32, int32

import flamepy as fp

BINS = np.arange(256, dtype="i4") % 64
emulate = fp.cuda.emulate


def histogram(counts, bins):
    own, t = cuda.shared.array(64, int32), cuda.threadIdx.x
    if t < 64:
        own[t] = 0
    cuda.syncthreads()
    cuda.atomic.add(own, bins[cuda.grid(1)], 1)
    cuda.syncthreads()
    if t < 64:
        cuda.atomic.add(counts, t, own[t])


def histogram_in_a_hurry(counts, bins):
    own, t = cuda.shared.array(64, int32), cuda.threadIdx.x
    if t < 64:
        own[t] = 0
    cuda.atomic.add(own, bins[cuda.grid(1)], 1)  # thread t adds to what it has set itself, then others add to it
    cuda.syncthreads()
    if t < 64:
        cuda.atomic.add(counts, t, own[t])


def total(out, x):
    i = cuda.grid(1)
    if i == 0:
        out[0] = 0  # another block may have added by then
    cuda.syncthreads()
    cuda.atomic.add(out, 0, x[i])


def doubled(y, x):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = 2 * x[i]


def reader_between(y, x):
    t = cuda.threadIdx.x
    v = x[0] if t == 0 else float32(0)
    cuda.syncthreads()
    if t == 5:
        v = x[0]
    if t == 40:
        v = x[0]
        x[0] = v + 1
    y[t] = v


def many_warp_barriers(y, x):
    kept, t = cuda.shared.array(256, float32), cuda.threadIdx.x
    for j in range(256):
        if t == 0:
            kept[j] = x[j]
        cuda.syncwarp()
    v = float32(0)
    for j in range(256):
        v += kept[j]
        cuda.syncwarp()
    y[t] = v


def one_for_all(y, x):
    one, t = cuda.shared.array(1, float32), cuda.threadIdx.x
    for j in range(4):
        if t == j * 32:
            one[0] = x[j]
        cuda.syncthreads()
        y[t] += one[0]


def turned_block(y, x):
    part, t = cuda.shared.array(0, float32), cuda.threadIdx.x
    part[t] = x[t]
    cuda.syncthreads()
    y[t] = part[cuda.blockDim.x - 1 - t]


def two_parts(y, x):
    whole, t, n = cuda.shared.array(0, float32), cuda.threadIdx.x, x.size
    left, right = whole[:n], whole[n:]
    left[t], right[t] = x[t], 10 * x[t]
    cuda.syncthreads()
    y[t] = left[n - 1 - t] + whole[-1 - t]


def large(y, x):
    part, t = cuda.shared.array(13_000, float32), cuda.threadIdx.x
    part[t] = x[t]
    cuda.syncthreads()
    y[t] = part[31 - t]


def cleared(y, x):
    i = cuda.grid(1)
    y[i] = x[i]
    x[i] = 0


def counted(y, x):
    cuda.atomic.add(x, 0, 1)


def talking(y, x):
    i = cuda.grid(1)
    if i == 0:
        print(i)


def scaled(y, n, by):
    y[0] = n * by


def beyond_a_column(y, x):
    y[2, 1] = x[3, 1]


def test_an_atomic_does_not_hide_the_plain_write_before_it() -> None:
    emulate(histogram, 4, 64, counts := np.zeros(64, "i4"), BINS)
    assert (counts == np.bincount(BINS)).all()
    line = histogram_in_a_hurry.__code__.co_firstlineno + 3
    with raises(fp.EmulationError, "race: thread 64 of block 0 writes", f"what thread 0 of block 0 wrote at {__file__}:{line}, ") as error:
        emulate(histogram_in_a_hurry, 1, 256, np.zeros(64, "i4"), BINS)
    assert error.value.kind == "race"
    emulate(total, 1, 256, out := np.ones(1, "i4"), BINS)  # one block: the barrier orders it
    assert out[0] == BINS.sum()
    with raises(fp.EmulationError, "of block 1 writes", "what thread 0 of block 0 wrote", "which is out[0]. Blocks are not ordered"):
        emulate(total, 4, 64, np.zeros(1, "i4"), BINS)


def test_readers_of_one_phase_are_all_seen() -> None:
    with raises(fp.EmulationError, "race: thread 40 of block 0 writes", "what thread 5 of block 0 read"):
        emulate(reader_between, 1, 64, np.zeros(64, "f4"), np.ones(1, "f4"))


def test_256_barriers_of_a_warp_are_not_none() -> None:
    emulate(many_warp_barriers, 1, 32, y := np.zeros(32, "f4"), np.arange(256, dtype="f4"))
    assert (y == np.arange(256).sum()).all()


def test_an_unrolled_loop_with_shared_memory_is_compiled_with_its_lines() -> None:
    line = one_for_all.__code__.co_firstlineno + 4
    with raises(fp.EmulationError, f"race: thread 32 of block 0 writes at {__file__}:{line} what"):
        emulate(one_for_all, 1, 128, np.zeros(128, "f4"), np.ones(4, "f4"))


def test_an_array_given_twice_is_one() -> None:
    emulate(doubled, 2, 32, x := np.arange(64, dtype="f4"), x)
    np.testing.assert_array_equal(x, 2 * np.arange(64))
    emulate(doubled, 1, 32, x[:16], x[16:32])  # neighbours are two
    np.testing.assert_array_equal(x[:32], [*range(64, 128, 4), *range(32, 64, 2)])
    every = np.arange(8, dtype="f4")
    emulate(doubled, 1, 32, every[::2], every[::2])
    np.testing.assert_array_equal(every, [0, 1, 4, 3, 8, 5, 12, 7])


def test_arrays_that_overlap_do_so_there_too() -> None:
    x = np.arange(33, dtype="f4")
    with raises(fp.EmulationError, "race: ", "(lanes of a warp are not in step)") as error:
        emulate(doubled, 1, 32, x[1:], x[:-1])
    assert error.value.kind == "race"
    np.testing.assert_array_equal(x, np.arange(33))
    emulate(doubled, 1, 1, x[4:8], x[3:4])  # one thread: in order
    assert x[4] == 6 and x[5] == 5
    with raises(fp.ShapeError, "doubled: arrays share memory and are not contiguous: y and x. Give copies"):
        emulate(doubled, 1, 8, x[::2], x[:16])


def test_what_is_read_only_is_not_written() -> None:
    x = np.ones(32, "f4")
    x.flags.writeable = False
    for kernel, line, element in ((cleared, 3, "x[0], by thread 0"), (counted, 1, "x[0], by thread 0")):
        place = f"test_cuda_textbook.py:{kernel.__code__.co_firstlineno + line}"
        with raises(fp.EmulationError, "array that is read-only: 4 bytes at", f"which is {element} of block 0", place) as error:
            emulate(kernel, 1, 32, np.zeros(32, "f4"), x)
        assert error.value.kind == "out of bounds"
    emulate(doubled, 1, 32, y := np.zeros(32, "f4"), x)
    assert (y == 2).all()


def test_elements_of_columns_are_named() -> None:
    y = np.zeros((3, 4), "f4", order="F")
    y.flags.writeable = False
    with raises(fp.EmulationError, "which is y[2, 1], by"):
        emulate(beyond_a_column, 1, 1, y, np.zeros((4, 4), "f4"))


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((1, 65_536), 1), ((1, 1, 65_536), 1), (1 << 31, 1), (1, (1, 1, 65)), (1, (1, 1, 1, 1)), ((), 1), (1.5, 32), ("1", 32), (True, 32),
        (None, 1),
    ],
)  # fmt: skip
def test_sizes_that_no_gpu_takes(grid, block) -> None:
    with raises(fp.EmulationError, "doubled: not a size of a launch: grid "):
        emulate(doubled, grid, block, np.zeros(1, "f4"), np.zeros(1, "f4"))


def test_shared_memory_of_the_launch() -> None:
    x = np.arange(64, dtype="f4")
    emulate(turned_block, [1], [64], y := np.zeros(64, "f4"), x, shared=256)
    np.testing.assert_array_equal(y, x[::-1])
    emulate(two_parts, 1, 32, y, x[:32], shared=256)  # its length is what the launch gives
    np.testing.assert_array_equal(y[:32], 11 * x[31::-1])
    with raises(fp.EmulationError, "out of bounds: 4 bytes at shared memory at byte 252", "the launch says how long it is: 252 bytes"):
        emulate(turned_block, 1, 64, y, x, shared=252)
    with raises(fp.EmulationError, "large: too much shared memory: it declares 52,000 bytes. A kernel may declare 49,152;"):
        emulate(large, 1, 32, y, x)
    with raises(fp.DeviceError, "cuda: NVIDIA's compiler refuses the kernel: ", "too much shared data"):
        _ = fp.cuda.compile(large, "void(float32[::1], float32[::1])").cubin
    for shared in (-1, 1.5):
        with raises(fp.EmulationError, f"turned_block: not a size of shared memory: {shared}. Give"):
            emulate(turned_block, 1, 32, y, x, shared=shared)


def test_what_is_no_argument_is_said() -> None:
    y = np.zeros(4, "f4")
    with raises(fp.EmulationError, f"talking: no kernel prints here: print() at {__file__}:{talking.__code__.co_firstlineno + 3}. Write"):
        emulate(talking, 1, 4, y, y)
    for value in ([1, 2], fp.zeros(4), "x", None):
        with raises(TypeError, f"doubled: not an argument of a kernel: {repr(value)[:8]}"):
            emulate(doubled, 1, 4, y, value)
    with raises(TypeError, "doubled: wrong number of arguments: 1. It takes 2: y, x."):
        emulate(doubled, 1, 4, y)
    kernel = fp.cuda.compile(scaled, "void(float32[::1], int32, float32)")
    for wrong in (2.5, 1 << 40, 1j, "2"):
        with raises(TypeError, f"scaled: not what n is: {wrong!r}. It takes n: int32."):
            emulate(kernel, 1, 1, y, wrong, 2)
    emulate(kernel, 1, 1, y, -3, 2)
    assert y[0] == -6
    with raises(TypeError, "emulate: not a kernel: 'gelu'. Give what flamepy.cuda.compile('gelu') returns."):
        emulate("gelu", 1, 4, y, y)


def halved_range(y, x):
    i = cuda.grid(1)
    a, b = x[i], x[i + 1]
    y[0, i], y[1, i], y[2, i] = a + b, -a - b, a * b
    y[3, i] = (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a >= b) + 32 * (a > b)
    if b != 0:
        y[4, i] = a / b


def magnitude(y, x):
    y[0] = abs(x[0])


def test_float16_is_computed_without_nvidias_functions() -> None:
    x = np.array([*np.random.default_rng(4).standard_normal(28), np.nan, 0, 1, 1, np.inf], "f2")
    y = np.zeros((5, 32), "f2")
    emulate(halved_range, 1, 32, y, x)
    a, b = x[:-1], x[1:]
    bits = sum(2.0**k * found for k, found in enumerate((a < b, a <= b, a == b, a != b, a >= b, a > b)))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y, [a + b, -a - b, a * b, bits, np.where(b != 0, a / b, 0)])
    place = f"{__file__}:{halved_range.__code__.co_firstlineno + 2}"
    with raises(fp.EmulationError, "index out of bounds: 32 on axis 0, which has 32", f"thread 31 of block 0, {place}"):
        emulate(halved_range, 1, 32, y, x[:32])
    with raises(fp.EmulationError, "magnitude: a function of float16 that is linked: ", ". Compute in float32: float32(x)."):
        emulate(magnitude, 1, 1, y[0], x)


def around(y, x):
    part, t = cuda.shared.array(64, float32), cuda.threadIdx.x
    part[t] = x[t]
    if t < 32:
        cuda.syncthreads()
    y[t] = part[63 - t]


def flagged(y, x, how):
    done, t, k = cuda.shared.array(1, int32), cuda.threadIdx.x, 0
    if t == 0:
        done[0] = 0
    cuda.syncthreads()
    while done[0] == 0:
        if how == 0:
            cuda.syncthreads()
        k += 1
        if t == 0 and k == x.size:
            done[0] = 1
        cuda.syncthreads()
    y[t] = k


def test_a_race_around_a_barrier_is_told_from_a_barrier_missed_by_a_race() -> None:
    x = np.arange(64, dtype="f4")
    place = f"barrier of {__file__}:{around.__code__.co_firstlineno + 4}, which not all threads reach: thread "
    with raises(fp.EmulationError, "around: deadlock: thread ", place) as error:
        emulate(around, 1, 64, x.copy(), x)
    assert error.value.kind == "barrier"
    emulate(flagged, 1, 64, y := np.zeros(64, "i4"), x[:3], 0)
    assert (y == 3).all()
    with raises(fp.EmulationError, "flagged: race: ") as error:
        emulate(flagged, 1, 64, y, x[:3], 1)
    assert error.value.kind == "race"
