"""The threads of parallel launches: right with any number of workers, asleep or awake, forked, at exit, on a busy machine."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from numba import types

from flamepy.backend.base import device
from flamepy.backend.cpu.device import loop_named
from flamepy.backend.cpu.runtime import findings, pool
from flamepy.backend.cpu.runtime.settings import threads
from flamepy.core.op import REGISTRY
from flamepy.dtypes import float32

pytestmark = pytest.mark.skipif(int(threads()) < 2, reason="one thread: nothing is launched on the pool")
X = np.linspace(-3, 3, 50_001, dtype="f4")


def square(workers: int) -> np.ndarray:
    """X * X by a kernel on so many workers."""
    kernel = device("cpu").kernel(loop_named("map2"), REGISTRY["mul"].formula, float32, 1)
    out = np.zeros_like(X)
    kernel.call(workers, out, X, X)
    return out


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False, env={**os.environ, **env})


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 300])
def test_right_with_any_number_of_workers(workers):
    for _ in range(20):
        assert (square(workers) == X * X).all()


def test_each_part_is_run_by_one_thread_only():
    """A part that is run twice adds twice."""
    kernel = device("cpu").kernel(loop_named("map2"), REGISTRY["add"].formula, float32, 1)
    total, one = np.zeros(100_000, "f4"), np.ones(100_000, "f4")
    for _ in range(2000):
        kernel.call(5, total, total, one)
    assert (total == 2000).all()


TASK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)


def launch(task: Callable[[int], None], workers: int) -> None:
    """A launch whose work is a Python function; the GIL is free while threads wait for each other."""
    pool.start()
    compiled = TASK(lambda data, worker: task(worker))
    pool.compiled(pool.launch, types.void, 4).ctypes(ctypes.cast(compiled, ctypes.c_void_p).value, 0, workers, 0)


@pytest.mark.parametrize("rest", [0.0, 0.05])
def test_shares_run_at_the_same_time(rest):
    """Each of two shares waits until the other has begun: with one thread alone this would never end. `rest`: helpers sleep."""
    for _ in range(20):
        time.sleep(rest)
        meeting = threading.Barrier(2, timeout=30)
        launch(lambda worker: meeting.wait(), 2)
        assert not meeting.broken


def test_the_caller_takes_what_nobody_has_begun():
    """The helper is kept from its share as on a machine without a free processor: asleep, with nobody to wake it."""
    every = [pool.word(pool.SLOTS + n * pool.SLOT + pool.ASLEEP) for n in range(1, pool.helpers() + 1)]
    deadline = time.monotonic() + 10
    while not all(asleep.value for asleep in every) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert all(asleep.value for asleep in every)
    every[0].value = 0  # wake() believes that it watches
    try:
        found: list[tuple[int, int]] = []
        launch(lambda worker: found.append((worker, threading.get_ident())), 2)
        assert found == [(0, threading.get_ident()), (1, threading.get_ident())]
    finally:
        every[0].value = 1


@pytest.mark.parametrize("workers", [2, 3, 7, 300])
def test_launches_from_several_threads_and_from_inside_shares(workers):
    counts = [0] * 4

    def work(mine: int) -> None:
        lock = threading.Lock()

        def one(worker: int) -> None:
            with lock:
                counts[mine] += 1

        for _ in range(10):
            launch(lambda worker: launch(one, 2) if worker % 2 else one(worker), workers)

    crowd = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(timeout=60)
    assert counts == [10 * (workers + workers // 2)] * 4


def test_threads_follow_numba():
    code = """
import numba, flamepy.backend.cpu.runtime.settings as cpu
seen = [cpu.threads(), numba.np.ufunc.parallel._is_initialized]
numba.set_num_threads(1)
print(*seen, cpu.threads())
"""
    assert run(code, NUMBA_NUM_THREADS="3").stdout.split() == ["3", "False", "1"]


def test_numbas_own_threads_are_not_loaded():
    code = """
import flamepy as fp
x = fp.randn(300, 300, requires_grad=True)
(x @ x).gelu().sum().backward()
from numba.np.ufunc import parallel
print(parallel._is_initialized, any("gomp" in line for line in open("/proc/self/maps")))
"""
    if sys.platform == "linux":
        assert run(code).stdout.split() == ["False", "False"]


def child(queue) -> None:
    queue.put((square(2).tobytes(), pool.helpers(), [value for label, value, _ in findings.launches(0.01) if label == "helper threads"]))


def test_a_forked_child_computes_the_same_bits_on_one_thread():
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork here")
    want = square(2).tobytes()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # Python 3.12 warns of any fork beside threads
        process.start()
    found, helpers, findings = queue.get(timeout=60)
    process.join(timeout=60)
    assert process.exitcode == 0
    assert found == want and helpers == 0
    assert len(findings) == 1 and "forked" in findings[0]
    assert square(2).tobytes() == want and pool.helpers() > 0  # the parent keeps its own


FORK = """
import os, hashlib, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)
import flamepy as fp
def step():
    fp.manual_seed(1)
    x, w = fp.randn(300, 200, requires_grad=True), fp.randn(200, 300, requires_grad=True)
    grads = (x @ w).gelu().softmax().square().sum().backward()
    return hashlib.sha256(grads[x].numpy().tobytes() + grads[w].numpy().tobytes()).hexdigest()
want = step()
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(step() != want)
        os._exit(step() != want or os.waitpid(grandchild, 0)[1] != 0)
    assert step() == want
    assert os.waitpid(pid, 0)[1] == 0
print("same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_after_a_parallel_step():
    done = run(FORK)
    assert (done.returncode, done.stdout, done.stderr) == (0, "same\n", "")


@pytest.mark.parametrize("rest", [0.0, 0.2])
def test_the_interpreter_exits_quietly(rest):
    """While helpers watch, and while they sleep."""
    code = f"import flamepy as fp, time; x = fp.randn(300, 300); x @ x; (x.gelu() + x).sum().item(); time.sleep({rest})"
    for _ in range(3):
        done = run(code)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


STEPS = """
import subprocess, sys, time
import numpy as np
import flamepy as fp, flamepy.nn as nn, flamepy.nn.functional as F
from flamepy import optimizers
fp.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64))
optimizer = optimizers.AdamW(model.params, lr=1e-3)
x, y = fp.randn(256, 128), [i % 64 for i in range(256)]
def learn(x):
    loss = F.cross_entropy(model(x), y)
    grads = loss.backward()
    optimizer.step(grads)
    return loss
step = fp.capture(learn)
def seconds(n):
    times = []
    for _ in range(n):
        began = time.perf_counter()
        step(x)
        times.append(time.perf_counter() - began)
    return float(np.mean(times))
seconds(20)
idle = min(seconds(20) for _ in range(5))
loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(int(sys.argv[1]))]
try:
    time.sleep(0.3)
    busy = seconds(160)
finally:
    for loop in loops:
        loop.kill()
print(busy / idle)
"""


def test_a_busy_machine_costs_a_step_little():
    """As many busy processes as processors: half of the processor time is left. With spinning barriers it was 100 times slower."""
    count = str(threads())
    done = subprocess.run([sys.executable, "-c", STEPS, count], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 6
