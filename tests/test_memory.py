"""What the CPU's allocator keeps of freed blocks: a share of the peak, more where steps ask for the same again; the rest is the system's.

Each test has an allocator of its own, or a process.
"""

from __future__ import annotations

import dis
import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from thread_tools import at_once

import flamepy as fp
from flamepy.backend.cpu.runtime import memory
from flamepy.backend.cpu.runtime.memory import LEAST, Allocator, CpuBuffer, Pool

ROOT = Path(__file__).resolve().parent.parent
CPU = fp.device("cpu")
MB = 1 << 20


class Blocks:
    """Buffers of an allocator of its own, whose peak is at least `peak` bytes."""

    def __init__(self, peak: int):
        self.allocator = Allocator()
        self.allocator.peak = peak
        self.pools: dict[int, Pool] = {}

    def take(self, nbytes: int) -> tuple[Pool, np.ndarray]:
        if nbytes not in self.pools:
            self.pools[nbytes] = Pool(nbytes, np.dtype("uint8"), CPU, self.allocator)
            self.allocator.pools[CPU, np.dtype("uint8"), nbytes] = self.pools[nbytes]
        pool = self.pools[nbytes]
        block = pool.pop() if pool else self.allocator.make(pool)
        self.allocator.current += nbytes
        self.allocator.peak = max(self.allocator.peak, self.allocator.current)
        return pool, block

    def give(self, pool: Pool, block: np.ndarray) -> None:
        self.allocator.current -= pool.nbytes
        pool.append(block)
        if self.allocator.current < self.allocator.least:
            self.allocator.shrink()

    def step(self, sizes: list[int]) -> int:
        """Take all, then free all; how many bytes went back to the system."""
        before = self.allocator.returned
        taken = [self.take(n) for n in sizes]
        while taken:
            self.give(*taken.pop())
        return self.allocator.returned - before


def test_a_quarter_of_the_peak_is_kept_of_steps_that_never_come_again() -> None:
    blocks = Blocks(0)
    for n in range(60):
        blocks.step([4 * MB + 70_000 * (20 * n + k) for k in range(20)])
        found = blocks.allocator
        assert found.current == 0 and found.cached <= found.limit == max(LEAST, found.peak // 4)
    assert found.returned > 30 * found.peak


def test_steps_of_the_same_sizes_soon_find_all_their_blocks() -> None:
    blocks = Blocks(0)
    sizes = [(3 + k) * MB for k in range(20)]
    given = [blocks.step(sizes) for _ in range(10)]
    assert given[0] > 0 and given[4:] == [0] * 6, given
    assert blocks.allocator.cached == sum(sizes) <= blocks.allocator.limit <= 1.25 * blocks.allocator.peak
    for n in range(40):  # new sizes lower the limit again
        blocks.step([5 * MB + 70_000 * (20 * n + k) for k in range(20)])
    assert blocks.allocator.limit == blocks.allocator.peak // 4 >= blocks.allocator.cached


def test_freed_blocks_of_any_thread_are_counted_and_limited() -> None:
    gc.collect()
    CPU.trim()
    before = CPU.memory()

    def work() -> None:
        for n in range(30):
            kept = [CPU.empty(MB + 4096 * (n % 9) + k, fp.float32) for k in range(3)]
            del kept

    at_once(work)
    made = [CPU.empty(MB + k, fp.float32) for k in range(8)]

    def drop() -> None:
        while made:
            try:
                made.pop()
            except IndexError:
                return

    at_once(drop)
    gc.collect()
    after = CPU.memory()
    assert after["current"] == before["current"]
    assert 0 <= after["cached"] <= after["limit"] and after["returned"] >= before["returned"]


def test_memory_is_given_back_while_other_threads_make_pools() -> None:
    """In a process: what a thread raises ends it. Four threads make pools of new sizes, and each gives everything back."""
    done = subprocess.run([sys.executable, "-c", RACE], cwd=ROOT / "tests", capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


RACE = """
import itertools, sys
import numpy as np
import flamepy as fp
from flamepy.backend.cpu.runtime.memory import Allocator, Pool
from thread_tools import at_once

allocator, sizes = Allocator(), itertools.count(1)

def work():
    for _ in range(2000):
        size = next(sizes)
        allocator.pools[size] = pool = Pool(size, np.dtype("u1"), fp.device("cpu"), allocator)
        allocator.release()

at_once(work)
"""


def test_to_free_a_block_costs_no_more_than_with_a_fixed_limit() -> None:
    """Bytecodes, beside those of a limit that never moves. To take a block looks at no limit at all."""
    names: dict = {}
    exec(FIXED, names)
    count = lambda f: sum(i.opname not in ("CACHE", "NOP") for i in dis.get_instructions(f))
    assert count(CpuBuffer.__del__) <= count(names["__del__"])
    make = memory.maker(memory.pool_of(8, np.dtype("f4"), CPU))
    assert not {"least", "limit", "shrink", "asked"} & set(make.__code__.co_names)


FIXED = """
def __del__(self, allocator, count, alone, keep):
    pool = self.pool
    allocator.current -= pool.nbytes
    if count(self.data) == alone:
        pool.append(self.data)
        if allocator.total - allocator.current > keep:
            allocator.release()
    else:
        allocator.total -= pool.nbytes
"""

SHAPES = """
import os, resource, sys
from pathlib import Path
import flamepy as fp

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

w = fp.Parameter(fp.ones(1))
def step(n):
    ((fp.ones((n, 1000)) * w).tanh() * 2.0).exp().sum().backward()

for n in (3, 4):
    step(n)
before, most = resident(), 0
for n in range(200):
    step(500 + n * 7919 % 1500)
    most = max(most, resident())
found = fp.device("cpu").memory()
faults = []
for _ in range(6):
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step(2000)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
print(before, most, resident(), found["peak"], found["cached"], found["limit"], max(faults[-2:]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells how much memory a process has")
def test_steps_of_new_shapes_stay_within_one_and_a_half_times_the_peak_and_the_same_shapes_ask_the_system_for_nothing() -> None:
    out = subprocess.run([sys.executable, "-c", SHAPES], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    before, most, last, peak, cached, limit, faults = map(int, out.split())
    assert peak > 20e6 and cached <= limit
    assert most - before <= 1.5 * peak and last - before <= 1.5 * peak
    assert faults < 100, "a step of the same shapes as the last goes back to the system"


def test_memory_given_back_leaves_the_process() -> None:
    """A block of its own mapping: when the last array in it dies, its pages go."""
    raw = memory.mapped(8 * MB)
    assert raw.base is not None and memory.mapped(memory.MAPPED - 1).base is None
    view = memory.aligned(MB, np.dtype("f4"), raw)[5:]
    del raw
    view[:] = 3.0  # it holds the memory
    assert view.sum() == 3.0 * (MB - 5)


@pytest.mark.parametrize("device", ["cpu", "plain", "cuda"], indirect=True)
def test_memory_tells_the_same_of_each_device(device: str) -> None:
    found = fp.device(device).memory()
    assert list(found) == ["current", "peak", "cached", "limit", "returned"] and all(type(v) is int for v in found.values())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_has_memory_of_its_own_and_gives_it_back_too() -> None:
    t = fp.full((MB,), 1.0)  # a mapping: shared, the child's write would be seen here
    with memory.allocator.shrinking:  # as of another thread at that moment
        child = os.fork()
        if child == 0:
            free = False
            try:
                t.buffer.data[:] = 2.0
                free = memory.allocator.shrinking.acquire(blocking=False)
            finally:
                os._exit(not free)
    assert os.waitpid(child, 0)[1] == 0
    assert (t.numpy() == 1.0).all()
