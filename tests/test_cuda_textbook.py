"""Kernels as textbooks write them, right and with one fault each, through flamepy.cuda.emulate: what races behind an atomic, arrays that
are one, sizes that no GPU takes, arrays that may not be written.

Oracles: NumPy, and CUDA's rules (programming guide: memory ordering, limits by compute capability). Read next: test_cuda_public.py.
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: pip install 'flamepy[cuda-emulator]'")
from error_text import raises
from numba import cuda, float32

import flamepy as fp

BINS = np.arange(256, dtype="i4") % 64
emulate = fp.cuda.emulate


def one_for_all(y, x):
    one, t = cuda.shared.array(1, float32), cuda.threadIdx.x
    for j in range(4):
        if t == j * 32:
            one[0] = x[j]
        cuda.syncthreads()
        y[t] += one[0]


def test_an_unrolled_loop_with_shared_memory_is_compiled_with_its_lines() -> None:
    line = one_for_all.__code__.co_firstlineno + 4
    with raises(fp.EmulationError, f"race: thread 32 of block 0 writes at {__file__}:{line} what"):
        emulate(one_for_all, 1, 128, np.zeros(128, "f4"), np.ones(4, "f4"))
