"""Who released what: an acquire orders what the one that released did or knew of, and nothing that others fenced.

Oracles: NumPy and the PTX ISA (memory consistency: causality order).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32, int32

import flamepy as fp

emulate = fp.cuda.emulate


def handed_on(y, data, flag, size, how):
    """Group 0 writes, group 1 hears of it (but if how is 1 or 2) and tells group 2."""
    group = cuda.grid(1) // size
    if cuda.grid(1) % size == 0:
        if group == 0:
            data[0] = 5
            cuda.threadfence()
            if how != 1:
                cuda.atomic.exch(flag, 1, 1)
        if group == 1:
            while how == 0 and cuda.atomic.add(flag, 1, 0) == 0:
                pass
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
        if group == 2:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
            cuda.threadfence()
            y[0] = data[0]


def asks_for_one(y, data, flag, size, how):
    """Two groups write and raise a flag each; a third asks for both, or for one."""
    group = cuda.grid(1) // size
    if cuda.grid(1) % size == 0:
        if group < 2:
            data[group] = group + 2
            cuda.threadfence()
            cuda.atomic.exch(flag, group, 1)
        else:
            for k in range(2):
                while how in (0, k + 1) and cuda.atomic.add(flag, k, 0) == 0:
                    pass
            cuda.threadfence()
            y[0] = data[0] + data[1]


@pytest.mark.parametrize(("grid", "block", "size"), [(3, 32, 32), (1, 96, 32)])
@pytest.mark.parametrize("kernel", [handed_on, asks_for_one])
def test_a_flag_of_another_says_nothing_of_what_it_did_not_know(kernel: Any, grid: int, block: int, size: int) -> None:
    given = lambda: (np.zeros(1, "f4"), np.zeros(2, "f4"), np.zeros(2, "i4"), size)
    emulate(kernel, grid, block, *(right := given()), 0)
    assert right[0][0] == 5
    for how in (1, 2):
        with raises(fp.EmulationError, "race: thread", "reads at", "wrote at", "which is data["):
            emulate(kernel, grid, block, *given(), how)


def fenced_by_all(y, part, count, how):
    last, t, i = cuda.shared.array(1, int32), cuda.threadIdx.x, cuda.grid(1)
    part[i] = 1
    cuda.threadfence()
    if how == 0:
        cuda.syncthreads()
    if t == 0:
        last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
        cuda.threadfence()
    cuda.syncthreads()
    if last[0]:
        s = float32(0)
        for k in range(t, part.size, cuda.blockDim.x):
            s += part[k]
        cuda.atomic.add(y, 0, s)


@pytest.mark.parametrize("block", [32, 96])
def test_one_counts_for_a_block_that_it_did_not_wait_for(block: int) -> None:
    """Every thread makes its fence, but nothing orders the others before the one that counts."""
    given = lambda: (np.zeros(1, "f4"), np.zeros(4 * block, "f4"), np.zeros(1, "i4"))
    emulate(fenced_by_all, 4, block, *(right := given()), 0)
    assert right[0][0] == 4 * block
    with raises(fp.EmulationError, "race: thread", "of block 0 wrote at", "which is part[1]"):
        emulate(fenced_by_all, 4, block, *given(), 1)


def knows_by_barrier(y, data, flag, how):
    """Warp 0 hears of block 0; a barrier tells warp 1 (but if how is 1), which tells block 2."""
    b, t = cuda.blockIdx.x, cuda.threadIdx.x
    if b == 0 and t == 0:
        data[0] = 5
        cuda.threadfence()
        cuda.atomic.exch(flag, 0, 1)
    if b == 1:
        while t == 0 and cuda.atomic.add(flag, 0, 0) == 0:
            pass
        if how == 0:
            cuda.syncthreads()
        if t == 32:
            cuda.threadfence()
            cuda.atomic.exch(flag, 1, 1)
    if b == 2 and t == 0:
        while cuda.atomic.add(flag, 1, 0) == 0:
            pass
        cuda.threadfence()
        y[0] = data[0]


def test_a_barrier_hands_on_what_was_heard() -> None:
    emulate(knows_by_barrier, 3, 64, y := np.zeros(1, "f4"), np.zeros(1, "f4"), np.zeros(2, "i4"), 0)
    assert y[0] == 5
    with raises(fp.EmulationError, "race: thread 0 of block 2 reads", "what thread 0 of block 0 wrote", "which is data[0]"):
        emulate(knows_by_barrier, 3, 64, y, np.zeros(1, "f4"), np.zeros(2, "i4"), 1)


def counted(y, part, count):
    i = cuda.grid(1)
    part[i] = 1
    cuda.threadfence()
    if cuda.atomic.add(count, 0, 1) == cuda.gridsize(1) - 1:
        cuda.threadfence()
        for k in range(cuda.gridsize(1)):
            y[0] += part[k]


def test_more_threads_than_rows_are_kept_for_are_not_accused() -> None:
    emulate(counted, 72, 128, y := np.zeros(1, "f4"), np.zeros(72 * 128, "f4"), np.zeros(1, "i4"))
    assert y[0] == 72 * 128


def left_in_shared_memory(y, data, how):
    """Block 0 writes and raises a flag in its shared memory; block 1 raises its own, which lies in the same place."""
    flag, t, b = cuda.shared.array(1, int32), cuda.threadIdx.x, cuda.blockIdx.x
    if t == 0:
        flag[0] = 0
    cuda.syncthreads()
    if t == 0:
        if b == 0:
            data[0] = 5
        if b == 0 or how == 1:
            cuda.threadfence()
        cuda.atomic.add(flag, 0, 1)
        if b == 1 and how == 0:
            y[0] = data[0]
    elif t == 32 and b == 1 and how == 1:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        y[0] = data[0]


@pytest.mark.parametrize("how", [0, 1])
def test_a_flag_in_shared_memory_is_of_one_block(how: int) -> None:
    with raises(fp.EmulationError, "race: thread", "of block 1 reads", "what thread 0 of block 0 wrote", "which is data[0]"):
        emulate(left_in_shared_memory, 2, 64, np.zeros(1, "f4"), np.zeros(1, "f4"), how)


def met_in_a_shuffle(y, data, flag, how):
    """Lane 1 writes (0, 1) or reads (2); lane 0 tells block 1 so, after a barrier of the warp (0) or a shuffle."""
    t, b = cuda.threadIdx.x, cuda.blockIdx.x
    if b == 0:
        if t == 1:
            if how == 2:
                y[0] = data[0]
            else:
                data[0] = 5
        if how == 0:
            cuda.syncwarp()
        else:
            y[1 + t] = cuda.shfl_sync(-1, t, 0)
        if t == 0:
            cuda.threadfence()
            cuda.atomic.exch(flag, 0, 1)
    elif t == 0:
        while cuda.atomic.add(flag, 0, 0) == 0:
            pass
        cuda.threadfence()
        data[0] = data[0] + 1 if how < 2 else 7


def test_a_fence_holds_for_what_others_read_before_a_shuffle_but_not_for_what_they_wrote() -> None:
    """CUDA promises no order of memory by shuffles; a lane that takes part has its numbers, though."""
    given = lambda: (np.zeros(33, "f4"), np.zeros(1, "f4"), np.zeros(1, "i4"))
    for how, found in ((0, 6), (2, 7)):
        emulate(met_in_a_shuffle, 2, 32, *(right := given()), how)
        assert right[1][0] == found
    with raises(fp.EmulationError, "race: thread 0 of block 1 reads", "what thread 1 of block 0 wrote", "which is data[0]"):
        emulate(met_in_a_shuffle, 2, 32, *given(), 1)
