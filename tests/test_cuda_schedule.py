"""Faults that show in few orders of the warps: a producer that does not wait for who reads what it wrote.

Oracles: NumPy and CUDA's programming guide (memory fences).
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, int32

import flamepy as fp

emulate = fp.cuda.emulate


def handed_over(y, data, flag, rounds, waits):
    """Warp 0 hands numbers to warp 1, one at a time: flag[0] counts what was written, flag[1] what was read, if anyone `waits`."""
    t = cuda.threadIdx.x
    if t == 0:
        for k in range(rounds):
            if waits:
                while cuda.atomic.add(flag, 1, 0) < k:
                    pass
                cuda.threadfence()
            data[0] = 10 * k
            cuda.threadfence()
            cuda.atomic.add(flag, 0, 1)
    if t == 32:
        for k in range(rounds):
            while cuda.atomic.add(flag, 0, 0) <= k:
                pass
            cuda.threadfence()
            y[k] = data[0]
            if waits:
                cuda.threadfence()
                cuda.atomic.add(flag, 1, 1)


def test_a_producer_that_does_not_wait() -> None:
    zeros = lambda: (np.zeros(6, "f4"), np.zeros(1, "f4"), np.zeros(2, "i4"))
    for threads in (64, 128):
        emulate(handed_over, 1, threads, *(right := zeros()), 6, 1)
        np.testing.assert_array_equal(right[0], 10 * np.arange(6))
        with raises(fp.EmulationError, "handed_over: race: thread ", "which is data[0]"):
            emulate(handed_over, 1, threads, *(wrong := zeros()), 6, 0)
        assert not any(a.any() for a in wrong)  # as they were


def one_buffer(y, x, ready, two):
    """Warp 0 fills a buffer, or two in turns, and warp 1 says nothing when it is done."""
    many, t = cuda.shared.array(8, int32), cuda.threadIdx.x
    for k in range(2):
        if t == 0:
            many[k * two] = x[k]
            cuda.threadfence_block()
            cuda.atomic.add(ready, 0, 1)
        if t == 32:
            while cuda.atomic.add(ready, 0, 0) <= k:
                pass
            cuda.threadfence_block()
            y[k] = many[k * two]


def test_a_buffer_that_is_filled_again_at_once() -> None:
    x = np.array([3, 4], "i4")
    emulate(one_buffer, 1, 64, y := np.zeros(2, "i4"), x, np.zeros(1, "i4"), 1)
    np.testing.assert_array_equal(y, x)
    with raises(fp.EmulationError, "one_buffer: race: thread ", "bytes into"):
        emulate(one_buffer, 1, 64, y, x, np.zeros(1, "i4"), 0)


def lock(y, held, x):
    i = cuda.grid(1)
    done = False
    while not done:
        if cuda.atomic.cas(held, 0, 0, 1) == 0:
            cuda.threadfence()
            y[0] += x[i]
            cuda.threadfence()
            cuda.atomic.exch(held, 0, 0)
            done = True


def test_a_lock_is_right_in_any_order() -> None:
    emulate(lock, 2, 96, y := np.zeros(1, "f4"), np.zeros(1, "i4"), np.ones(192, "f4"))
    assert y[0] == 192
