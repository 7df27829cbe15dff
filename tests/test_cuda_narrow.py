"""Kernels on bytes and on 16-bit numbers: neighbours are no race, and one byte that two threads touch is one whatever the others do.

Oracle: all pairs of accesses, compared byte by byte.
"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, int32

import flamepy as fp

emulate = fp.cuda.emulate


def turns(y, table):
    """Each thread does its list of accesses: (write, where, bytes)."""
    i = cuda.grid(1)
    y2, y4 = y.view(np.int16), y.view(np.int32)
    for k in range(table.shape[1]):
        write, at, size = table[i, k, 0], table[i, k, 1], table[i, k, 2]
        if write == 0:
            table[i, k, 3] = y[at] if size == 1 else y2[at >> 1] if size == 2 else y4[at >> 2]
        elif size == 1:
            y[at] = i + 1
        elif size == 2:
            y2[at >> 1] = i + 1
        else:
            y4[at >> 2] = i + 1


def is_race(table):
    unordered = lambda p, q: (p[0] or q[0]) and p[1] < q[1] + q[2] and q[1] < p[1] + p[2]
    return any(unordered(p, q) for a, b in combinations(table, 2) for p, q in product(a, b))


def test_races_are_told_byte_by_byte() -> None:
    rng, seen = np.random.default_rng(1), [0, 0]
    kernel = fp.cuda.compile(turns, "void(uint8[::1], int32[:, :, ::1])")
    for trial in range(60):
        threads, steps, size = rng.integers(2, 7), rng.integers(1, 5), rng.choice([8, 16, 32, 64])
        table = np.zeros((threads, steps, 4), "i4")
        table[..., 0] = rng.random((threads, steps)) < rng.choice([0.1, 0.3, 0.5])
        table[..., 2] = rng.choice([1, 1, 1, 2, 4], (threads, steps))
        table[..., 1] = rng.integers(0, size, (threads, steps)) // table[..., 2] * table[..., 2]
        want, found = is_race(table), False
        try:
            emulate(kernel, *((int(threads), 1) if trial % 2 else (1, int(threads))), np.zeros(size, "u1"), table.copy())
        except fp.EmulationError as error:
            assert error.kind == "race", error
            found = True
        assert found == want, table
        seen[want] += 1
    assert min(seen) > 20


def by_bytes(y, x, late):
    part, t = cuda.shared.array(16, int32), cuda.threadIdx.x
    own = part.view(np.uint8)
    own[t] = x[t]
    cuda.syncthreads()
    y[t] = own[63 - t]
    if t < 16 and late:
        part[t] = 0  # words whose bytes others may still read


@pytest.mark.parametrize("dtype", ["u1", "i2"])
def test_neighbours_are_each_their_own(dtype: str) -> None:
    x = np.arange(64).astype(dtype)
    emulate(by_bytes, 1, 64, y := np.zeros(64, dtype), x, 0)
    np.testing.assert_array_equal(y, x[::-1])
    with raises(fp.EmulationError, "race: thread ", "what thread ", "shared memory at byte "):
        emulate(by_bytes, 1, 64, y, x, 1)
