"""What should not change from commit to commit: Python's loop, NumPy's add, a copy, NumPy's sgemm, multiply-adds on registers. And the
ceilings.

The harness measures two of these beside every work, as ceilings: the rate of sgemm (for products on one core that of its multiply-add
units), and the bandwidth of copying as many bytes as the work moves (`copy@BYTES`), with the threads everybody has.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .work import Job, Work, near

OURS = "numpy"
AGAINST: tuple[str, ...] = ()
DEFAULT = AGAINST
ALONE = False
TOLERANCE = 1e-5
LOOP = 100_000
ROWS = 1024
FULL = 128 << 20  # bytes: far more than caches hold
ARITHMETIC = 3 << 26  # of one timed call of multiply-adds: every register tile divides it
LEAST = 1 << 25  # bytes one timed call copies at least: handing work to threads must not count


def copy_work(name: str) -> Work:
    """`copy@BYTES`: BYTES are read and written together, as often as LEAST asks for."""
    size = int(name.partition("@")[2] or FULL)
    return Work(name, 0, size * max(1, LEAST // size))


WORKS = {
    "python-loop": Work("python-loop"),
    "numpy-add": Work("numpy-add", 1 << 20, 12 << 20),
    "copy": copy_work("copy"),
    "sgemm": Work("sgemm", 2 * ROWS**3, 12 * ROWS**2),
    "fma-float32": Work("fma-float32", ARITHMETIC),
    "fma-float64": Work("fma-float64", ARITHMETIC),
}


def build(contender: str, work: str, mode: str) -> Job:
    if work == "python-loop":
        return Job(count, lambda total: [total])
    random = np.random.default_rng(3)
    if work == "numpy-add":
        x, y = random.standard_normal((2, 1 << 20), np.float32)
        out = np.empty_like(x)
        return Job(lambda: np.add(x, y, out=out), lambda out: [out])
    if work == "sgemm":
        a, b = random.standard_normal((2, ROWS, ROWS), np.float32)
        c = np.empty_like(a)
        return Job(lambda: np.matmul(a, b, out=c), lambda c: [c])
    if work.startswith("fma"):
        return fma_job(np.dtype(work.partition("-")[2]).itemsize)
    if work.startswith("copy"):
        return copy_job(copy_work(work))
    raise KeyError(work)


def count() -> int:
    total = 0
    for i in range(LOOP):
        total += i
    return total


def copy_job(work: Work) -> Job:
    """Each thread copies its part; `np.copyto` lets go of the interpreter."""
    size = int(work.name.partition("@")[2] or FULL)
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    x = np.arange(max(threads, size // 8), dtype=np.float32)
    y = np.zeros_like(x)
    parts = list(zip(np.array_split(y, threads), np.array_split(x, threads), strict=True))
    repeat = range(round(work.nbytes / size))
    pool = ThreadPoolExecutor(threads)

    def copies(part: tuple[np.ndarray, np.ndarray]) -> None:
        for _ in repeat:
            np.copyto(*part)

    return Job(lambda: list(pool.map(copies, parts)), lambda _: [y])


def fma_job(itemsize: int) -> Job:
    """Chains z = z / 2 + 1 on the registers of one core: they end at 2."""
    from flamepy.backend.cpu.runtime import peak

    _, each = peak.chains(itemsize, rounds=1)
    run, _ = peak.chains(itemsize, rounds=round(ARITHMETIC / each))
    return Job(run, lambda z: [z])


def verify(work: str, outputs: list[Any]) -> None:
    random = np.random.default_rng(3)
    if work == "python-loop":
        near(work, outputs[0], LOOP * (LOOP - 1) // 2, 0)
    elif work == "numpy-add":
        x, y = random.standard_normal((2, 1 << 20), np.float32).astype(np.float64)
        near(work, outputs[0], x + y, TOLERANCE)
    elif work == "sgemm":
        a, b = random.standard_normal((2, ROWS, ROWS), np.float32).astype(np.float64)
        near(work, outputs[0], a @ b, TOLERANCE)
    elif work.startswith("fma"):
        near(work, outputs[0], np.full(outputs[0].size, 2.0), TOLERANCE)
    else:
        near(work, outputs[0], np.arange(outputs[0].size, dtype=np.float32), 0)
