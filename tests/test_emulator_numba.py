"""Kernels that numba-cuda compiles, run in the emulator: right results, and planted faults told with the line of Python.

Oracles: NumPy in float64, the published answers of Philox. Skipped where numba-cuda is not installed.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from error_text import raises

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda]'")
pytest.importorskip("cuda.bindings.nvvm", reason="NVVM is not installed: pip install 'flamepy[cuda]'")
from ptx_tools import Device

from flamepy.backend.cuda.runtime.compat import cuda, target, types
from flamepy.emulator import EmulationError
from flamepy.emulator.machine import Kernel

float32, int32, uint32, uint64 = types.float32, types.int32, types.uint32, types.uint64
P, N = types.CPointer(types.float32), types.int32
FULL = 0xFFFFFFFF
rng = np.random.default_rng(2)
floats = lambda *shape: rng.standard_normal(shape).astype(np.float32)


@pytest.fixture
def device() -> Device:
    return Device()


def load(device: Device, function: Callable, *arguments: Any, lines: bool = True) -> Kernel:
    """Compile for an H100, load into the emulator."""
    with target((9, 0)):
        text, _ = cuda.compile(function, types.void(*arguments), device=False, abi="numba", cc=(9, 0), lineinfo=lines)
    (kernel,) = device.machine.load(text).values()
    return kernel


def line(function: Callable, text: str) -> str:
    """`file:number` of the only line of a function that holds a text."""
    source, first = inspect.getsourcelines(function)
    (found,) = (k for k, row in enumerate(source) if text in row)
    return f"{inspect.getsourcefile(function)}:{first + found}"


# ---- right kernels -------------------------------------------------------------------------------------------------------------------
def sum_of_squares(x, part, n):
    smem = cuda.shared.array(32, dtype=float32)
    tid = cuda.threadIdx.x
    acc = float32(0.0)
    i = int32(cuda.blockIdx.x * cuda.blockDim.x + tid)
    step = int32(cuda.gridDim.x * cuda.blockDim.x)
    while i < n:
        acc += x[i] * x[i]
        i = int32(i + step)
    for k in range(5):
        acc += cuda.shfl_down_sync(FULL, acc, 16 >> k)
    if tid & 31 == 0:
        smem[tid >> 5] = acc
    cuda.syncthreads()
    if tid < 32:
        acc = float32(0.0)
        if tid < (cuda.blockDim.x >> 5):
            acc = smem[tid]
        for k in range(5):
            acc += cuda.shfl_down_sync(FULL, acc, 16 >> k)
        if tid == 0:
            part[cuda.blockIdx.x] = acc


@pytest.mark.parametrize("order", ["all", "first", "last"])
def test_sum_of_squares(device: Device, order: str) -> None:
    x, part = floats(5000), device.empty(4)
    kernel = load(device, sum_of_squares, P, P, N, lines=False)  # numba-cuda's own shuffles cannot be compiled with lines
    device.machine.launch(kernel, 4, 256, (device.array(x), part, 5000), order=order)
    found = device.memory.read(part, 4, np.float32)
    np.testing.assert_allclose(found.sum(dtype=np.float64), (x.astype(np.float64) ** 2).sum(), rtol=1e-6)


def tiled_product(a, b, c, n):
    """c = a b, n x n, tiles of 16 x 16; n need not be a multiple."""
    ta = cuda.shared.array((16, 16), dtype=float32)
    tb = cuda.shared.array((16, 16), dtype=float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = int32(cuda.blockIdx.y * 16 + y), int32(cuda.blockIdx.x * 16 + x)
    total = float32(0.0)
    for k in range(0, n, 16):
        ta[y, x] = a[row * n + k + x] if row < n and k + x < n else float32(0.0)
        tb[y, x] = b[(k + y) * n + column] if column < n and k + y < n else float32(0.0)
        cuda.syncthreads()
        for j in range(16):
            total += ta[y, j] * tb[j, x]
        cuda.syncthreads()
    if row < n and column < n:
        c[row * n + column] = total


def test_tiled_product_and_its_conflicts(device: Device) -> None:
    n = 37
    a, b, c = floats(n, n), floats(n, n), device.empty(n * n)
    kernel = load(device, tiled_product, P, P, P, N)
    counts = device.machine.launch(kernel, (3, 3), (16, 16), (device.array(a), device.array(b), c, n), count=True)
    np.testing.assert_allclose(device.memory.read(c, n * n, np.float32).reshape(n, n), a.astype("f8") @ b, rtol=1e-4, atol=1e-5)
    assert counts.distinct_read == 2 * 4 * n * n and counts.distinct_written == 4 * n * n
    assert counts.bank_conflicts == 0 and counts.instructions["barrier"] == 9 * 8 * 6


def philox(out, n, offset, seed):
    i = cuda.grid(1)
    if i < n:
        c0, c1, c2, c3 = uint32(i), uint32(0), uint32(offset), uint32(0)
        k0, k1 = uint32(seed), uint32(0)
        for _ in range(10):
            a = uint64(c0) * uint64(0xD2511F53)
            b = uint64(c2) * uint64(0xCD9E8D57)
            c0 = uint32(uint32(b >> uint64(32)) ^ c1 ^ k0)
            c1 = uint32(b)
            c2 = uint32(uint32(a >> uint64(32)) ^ c3 ^ k1)
            c3 = uint32(a)
            k0 = uint32(k0 + uint32(0x9E3779B9))
            k1 = uint32(k1 + uint32(0xBB67AE85))
        out[4 * i] = c0
        out[4 * i + 1] = c1
        out[4 * i + 2] = c2
        out[4 * i + 3] = c3


def test_philox(device: Device) -> None:
    kernel = load(device, philox, types.CPointer(uint32), N, uint32, uint32)
    out = device.empty(400, np.uint32)
    device.machine.launch(kernel, 1, 128, (out, 100, 0, 0))
    found = device.memory.read(out, 400, np.uint32)
    assert found[:4].tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's known answer for zeros
    assert len(set(found.tolist())) == 400


def add_rows(dy, ids, dw, d):
    row = cuda.blockIdx.x
    j = int32(cuda.threadIdx.x)
    while j < d:
        cuda.atomic.add(dw, int32(ids[row]) * d + j, dy[row * d + j])
        j = int32(j + cuda.blockDim.x)


def test_gradient_of_an_embedding(device: Device) -> None:
    rows, d, vocabulary = 50, 70, 8
    dy, ids = floats(rows, d), rng.integers(0, vocabulary, rows).astype(np.int32)
    kernel = load(device, add_rows, P, types.CPointer(int32), types.float32[::1], N)
    dw = device.array(np.zeros(vocabulary * d, np.float32))
    device.machine.launch(kernel, rows, 32, (device.array(dy), device.array(ids), 0, 0, vocabulary * d, 4, dw, vocabulary * d, 4, d))
    want = np.zeros((vocabulary, d))
    np.add.at(want, ids, dy.astype(np.float64))
    np.testing.assert_allclose(device.memory.read(dw, want.size, np.float32).reshape(want.shape), want, rtol=1e-5, atol=1e-5)


def steps_to_one(x, y, n):
    i = cuda.grid(1)
    if i < n:
        v, count = x[i], int32(0)
        while v != 1:
            if v & 1:
                v = 3 * v + 1
            else:
                v >>= 1
            count += 1
            if count > 200:
                break
        y[i] = count


def test_loops_that_part(device: Device) -> None:
    q = types.CPointer(int32)
    kernel = load(device, steps_to_one, q, q, N)
    y = device.empty(100, np.int32)
    device.machine.launch(kernel, 2, 64, (device.array(np.arange(1, 101, dtype=np.int32)), y, 100))

    def steps(v: int) -> int:
        return 0 if v == 1 else 1 + steps(3 * v + 1 if v & 1 else v // 2)

    assert device.memory.read(y, 100, np.int32).tolist() == [steps(v) for v in range(1, 101)]


def waves(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = math.sin(x[i]) + 2.0 * math.cos(x[i])


def test_sines_of_large_numbers(device: Device) -> None:
    """float64: the slow path is a function that is called, with a table and local memory."""
    p = types.CPointer(types.float64)
    kernel = load(device, waves, p, p, N)
    x = np.array([0.1, 3.0, -200.0, 1e9, -3e15, 1e300, 0.0, 2.0**70])
    y = device.empty(8, np.float64)
    device.machine.launch(kernel, 1, 32, (device.array(x), y, 8))
    np.testing.assert_allclose(device.memory.read(y, 8, np.float64), np.sin(x) + 2 * np.cos(x), rtol=1e-14)


def by_local_array(x, y, n):
    seen = cuda.local.array(8, dtype=float32)
    t = cuda.threadIdx.x
    for k in range(8):
        seen[k] = x[t * 8 + k]
    y[t] = seen[(t * n) % 8]  # an index that is not known: the array lies in local memory


def test_local_arrays(device: Device) -> None:
    kernel = load(device, by_local_array, P, P, N)
    assert kernel.local_bytes >= 32
    x, y = floats(64, 8), device.empty(64)
    device.machine.launch(kernel, 1, 64, (device.array(x), y, 3))
    np.testing.assert_array_equal(device.memory.read(y, 64, np.float32), x[np.arange(64), 3 * np.arange(64) % 8])


# ---- planted faults ------------------------------------------------------------------------------------------------------------------
def turned(x, y, n):
    s = cuda.shared.array(64, dtype=float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if n > 0:
        cuda.syncthreads()
    y[t] = s[63 - t]


def test_a_missing_barrier_is_told_with_both_lines(device: Device) -> None:
    x, y = floats(64), device.empty(64)
    kernel = load(device, turned, P, P, N)
    device.machine.launch(kernel, 1, 64, (device.array(x), y, 1))
    np.testing.assert_array_equal(device.memory.read(y, 64, np.float32), x[::-1])
    for _ in range(2):  # the first time nobody has written there; a block before leaves nothing behind
        with raises(EmulationError, "turned: read of memory that nothing has written", "shared memory", line(turned, "y[t] = s")):
            device.machine.launch(kernel, 1, 64, (device.array(x), y, 0), order="first")


def halved(x, n):
    s = cuda.shared.array(128, dtype=float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    k = int32(64)
    while k > 0:
        if t < k:
            s[t] += s[t + k]
        if k > n:
            cuda.syncthreads()
        k >>= 1
    if t == 0:
        x[0] = s[0]


def test_a_tree_without_its_last_barriers(device: Device) -> None:
    values = floats(128)
    kernel = load(device, halved, P, N)
    x = device.array(values)
    device.machine.launch(kernel, 1, 128, (x, 0))
    np.testing.assert_allclose(device.memory.read(x, 1, np.float32)[0], values.sum(dtype="f8"), rtol=1e-4)
    where = line(halved, "s[t] += ")
    with raises(EmulationError, "halved: race: ", where, "cuda.syncwarp()"):  # within one warp
        device.machine.launch(kernel, 1, 128, (x, 16))
    with raises(EmulationError, "halved: race: ", where, "cuda.syncthreads()"):
        device.machine.launch(kernel, 1, 128, (x, 64), order="last")


def smoothed(x, n):
    i = cuda.grid(1)
    if 0 < i < n:
        x[i] = float32(0.5) * (x[i - 1] + x[i])


def off_by_one(x, y, n):
    i = cuda.grid(1)
    if i <= n:
        y[i] = x[i]


def leaves_early(x, n):
    t = cuda.threadIdx.x
    if t >= n:
        return
    cuda.syncthreads()
    x[t] = float32(0.0)


def test_other_faults_are_told_with_their_lines(device: Device) -> None:
    kernel = load(device, smoothed, P, N)
    with raises(EmulationError, "smoothed: race: ", line(smoothed, "x[i] = ")):
        device.machine.launch(kernel, 2, 64, (device.array(floats(128)), 128))
    kernel = load(device, off_by_one, P, P, N)
    x, y = device.array(floats(100)), device.empty(100)
    with raises(EmulationError, "off_by_one: read out of bounds", f"past the end of the 400 bytes at {x:#x}", line(off_by_one, "y[i] = ")):
        device.machine.launch(kernel, 1, 128, (x, y, 100))
    kernel = load(device, leaves_early, P, N)
    with raises(EmulationError, "leaves_early: deadlock: ", line(leaves_early, "cuda.syncthreads()"), "thread 40 has ended"):
        device.machine.launch(kernel, 1, 64, (device.empty(64), 40))
