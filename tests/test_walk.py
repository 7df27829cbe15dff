"""Recorded steps walked by compiled code: the same bits however many threads, Ctrl-C heard, other threads running, what a failure leaves.

Eager results are the oracle, NumPy that of launches.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest
from walk_tools import CPU, add, buffers

import flamepy as fp
import flamepy.nn.functional as F
from flamepy import nn
from flamepy.backend.base import Buffer
from flamepy.backend.cpu.device import CpuStream
from flamepy.backend.cpu.runtime import walk
from flamepy.backend.run import Action, Required

F4 = np.dtype("f4")


# ---- lists of launches -----------------------------------------------------------------------------------------------------------
def test_noting_a_launch_runs_nothing_and_knows_its_memory():
    out, x = buffers(100, 100)
    found = walk.noted(7, add(out, x, x, wide=True), 3)
    assert (found.number, found.workers, found.weight) == (7, 3, 800)
    address = out.data.ctypes.data
    assert found.writes == [(address, address + 400)]
    assert found.data[0] == 3  # the first thing a task gets
    assert address in found.data
    assert (out.data == np.arange(100)).all()


def test_a_launch_with_more_arguments_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(walk, "ROOM", 16)
    out, x = buffers(100, 100)
    walk.CpuRun([add(out, x, x)])()
    assert (out.data == 2 * np.arange(100)).all()


def test_what_depends_on_each_other_waits():
    """Reading what was written, writing what was read, writing what was written; parts of one memory that overlap, and others."""
    a, b, c, d, whole = buffers(8, 8, 8, 8, 24)
    low, middle, high = (CPU.slot(whole, 32 * i, 8, F4) for i in range(3))
    across = CPU.slot(whole, 16, 8, F4)
    steps = [
        *(add(b, a, a), add(c, a, a)),  # read the same
        *(add(d, b, a), add(low, a, a), add(high, a, a)),  # d reads b
        *(add(a, c, c), add(middle, c, c)),  # writes what was read
        *(add(across, c, c), add(high, c, c)),  # overlaps middle, and not high
        *(add(b, low, d), add(c, d, d)),  # across was written, which is a part of low
        add(c, d, d),  # written twice
    ]
    groups = walk.grouped([walk.noted(n, s, 2) for n, s in enumerate(steps)])
    assert [[launch.number for launch in group] for group in groups] == [[0, 1], [2, 3, 4], [5, 6], [7, 8], [9, 10], [11]]
    many = [walk.noted(n, add(b, a, a), 1) for n, b in enumerate(buffers(*[4] * 130))]
    assert [len(group) for group in walk.grouped(many)] == [64, 64, 2]


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_every_worker_of_every_launch_is_in_one_share(width):
    out = buffers(*[40, 4000, 10, 4000, 30_000, 20, 3000, 50_000])
    launches = [walk.noted(n, add(b, b, b, wide=n in (4, 7)), width) for n, b in enumerate(out)]
    shares = walk.shared_out(launches, width)
    units = [(launch.number, worker) for share in shares for launch, worker in share]
    assert sorted(units) == [(launch.number, worker) for launch in launches for worker in range(launch.workers)]
    assert len(shares) == width and all([launch.workers in (1, width) for launch in launches])
    small = [walk.noted(n, add(b, b, b), width) for n, b in enumerate(buffers(10, 20))]
    assert len(walk.shared_out(small, width)) == 1


def test_small_groups_that_one_thread_runs_are_one_row():
    """One after the other, as many as a group may have; not with what all threads run, what touches much memory, or across a check."""
    a, b, c, large = buffers(8, 8, 8, 1 << 16)
    chain = [add(b, a, a), add(c, b, a), add(b, c, c)]
    check = Action(Required(lambda *_: None, [(0.0, 8.0)]), (a,), False)

    def rows(steps: list[Any], width: int) -> list[int]:
        (walked,) = (run := walk.CpuRun(steps)).parts or run.build(width) or run.parts
        return walked.rows[:, 0].tolist()  # type: ignore[no-any-return]

    assert rows(chain, 2) == [1] and rows([*chain, check, *chain], 2) == [1, 0, 1]
    assert rows([*chain, add(large, large, large), *chain], 1) == [1, 1, 1]  # independent of the chain, but in a group of its own size
    assert rows([*chain, add(large, large, large, wide=True), add(c, c, c)], 2)[0] == 1
    assert rows(chain * 30, 2) == [1, 1]
    walk.CpuRun([*chain, check, *chain])()
    assert (b.data == 6 * np.arange(8)).all()


def test_steps_of_python_stand_between_lists():
    x, y = buffers(50, 50)
    seen: list[float] = []
    look = Action(lambda b: seen.append(float(b.data[49])), (x,), False)
    run = walk.CpuRun([look, add(x, y, y), look, look, add(x, x, y), add(y, x, x), look])
    run()
    assert seen == [49.0, 98.0, 98.0, 147.0] and y.data[49] == 294.0
    assert [type(call) is walk.Walk for call in run.parts] == [False, True, False, False, True, False]
    assert run.begun.value == 7


def test_a_failing_step_says_how_far_it_came():
    x, y = buffers(5, 5)

    def fail() -> None:
        raise ArithmeticError("no")

    run = walk.CpuRun([add(x, y, y), add(y, x, x), Action(fail, (), False), add(x, y, y)])
    with pytest.raises(ArithmeticError):
        run()
    assert run.begun.value == 3


def test_kernels_write_into_their_outs_alone(monkeypatch):
    """What groups rely on: that of two launches that only read the same memory, neither changes it."""
    whole, seen = CpuStream.run, set()

    def run(self: Any, kernel: Any, outs: Any, ins: Any, consts: Any) -> None:
        mine = [b.data for b in outs if isinstance(b, Buffer)]
        others = [b.data for b in ins if isinstance(b, Buffer) and not any(np.shares_memory(b.data, out) for out in mine)]
        before = [array.tobytes() for array in others]
        whole(self, kernel, outs, ins, consts)
        assert [array.tobytes() for array in others] == before, kernel
        seen.add(kernel.loop.__name__)

    monkeypatch.setattr(CpuStream, "run", run)
    fp.manual_seed(1)
    table, convolution, block = nn.Embedding(5, 16), nn.Conv2d(1, 2, 3, padding=1), nn.TransformerBlock(16, 2, causal=True)
    o = fp.AdamW(nn.ModuleList([table, convolution, block]), lr=0.1)

    def step(ids: Any, y: Any) -> Any:
        x = F.max_pool2d(convolution(table(ids).reshape((3, 1, 8, 16))), 2)
        grads = (loss := F.cross_entropy(F.dropout(block(x.reshape((3, 4, 16))), 0.5).reshape((12, 16)), y)).backward()
        fp.clip_grad_norm(grads, 0.1)
        o.step(grads)
        return loss

    fp.capture(step)(np.arange(24).reshape(3, 8) % 5, np.arange(12))  # recorded, so each launch goes through the stream
    assert {"attention_dx", "conv2d_dw", "max_pool_dx", "add_rows", "row_sums", "linear_dw", "norm_factor", "span_update2"} <= seen


# ---- whole steps -----------------------------------------------------------------------------------------------------------------
STEPS = """
import hashlib, os, sys, threading, warnings
import numpy as np, numba
import flamepy as fp, flamepy.nn.functional as F
from flamepy import nn
warnings.simplefilter("ignore", DeprecationWarning)

class Trial:
    def __init__(self, wrap):
        fp.manual_seed(1)
        self.m = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 10))
        self.m.params.pack()
        self.o = fp.AdamW(self.m, lr=1e-2)
        def step(x, y):
            loss = F.cross_entropy(self.m(x), y)
            grads = loss.backward()
            norm = fp.clip_grad_norm(grads, 1.0)
            self.o.step(grads)
            return loss, norm
        self.step = wrap(step)
        self.draw = np.random.default_rng(2)
        self.hash = hashlib.sha256()
    def go(self, n):
        for _ in range(n):
            loss, norm = self.step(self.draw.standard_normal((80, 64)).astype("f4"), self.draw.integers(0, 10, 80))
            self.hash.update(loss.numpy().tobytes() + np.float64(norm).tobytes())
        for array in self.m.state_dict().values():
            self.hash.update(array.tobytes())
        return self.hash.hexdigest()

eager, replayed = Trial(lambda f: f), Trial(fp.capture)
for width in (4, 1, 3, 2, 4):
    numba.set_num_threads(width)
    assert eager.go(8) == replayed.go(8), width
both = [Trial(fp.capture) for _ in range(2)]
crowd = [threading.Thread(target=t.go, args=(300,)) for t in both]
[t.start() for t in crowd]
[t.join() for t in crowd]
alone = Trial(fp.capture).go(300)
assert [t.hash.hexdigest() for t in both] == [alone, alone]
pid = os.fork()
if pid == 0:
    os._exit(eager.go(4) != replayed.go(4))
assert os.waitpid(pid, 0)[1] == 0
assert eager.go(4) == replayed.go(4)
print("same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_same_bits_for_any_number_of_threads_in_two_threads_and_in_a_forked_child():
    env = {**os.environ, "NUMBA_NUM_THREADS": "4"}  # more than there are processors, as a rule
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, timeout=300, check=False, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "same\n", "")


def long_step(first: fp.Parameter, last: fp.Parameter, products: int) -> Any:
    def step(x: Any) -> Any:
        first.apply_update(fp.ones(2))
        for _ in range(products):
            x = x @ x
        last.apply_update(fp.ones(2))
        return x.sum()

    return step


def test_ctrl_c_is_heard_between_launches_and_leaves_what_was_done(monkeypatch):
    """Without the slices it would be heard when the step is over."""
    monkeypatch.setattr(walk, "SLICE", 2e-3)
    first, last = fp.Parameter(fp.zeros(2)), fp.Parameter(fp.zeros(2))
    captured = fp.capture(long_step(first, last, 60))
    x = fp.tensor(np.eye(640, dtype="f4"))
    for _ in range(3):
        captured(x)
    squares = [(p * p).sum() for p in (first, last)]
    began = time.perf_counter()
    timer = threading.Thread(target=lambda: (time.sleep(0.02), os.kill(os.getpid(), signal.SIGINT)))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        captured(x)
        timer.join()  # should the step be over before
    timer.join()
    interrupted = time.perf_counter() - began
    assert (first.tolist(), last.tolist()) == ([-4.0, -4.0], [-3.0, -3.0])
    with pytest.raises(fp.VersionError, match="a replay of step"):
        squares[0].backward()
    assert squares[1].backward()[last].tolist() == [-6.0, -6.0]
    began = time.perf_counter()
    assert captured(x).item() == 640.0
    assert interrupted < time.perf_counter() - began


def test_other_threads_run_during_a_long_replay():
    """One that wakes up every millisecond. With the GIL held during each launch it would once a launch, or once in all."""
    captured = fp.capture(long_step(fp.Parameter(fp.zeros(2)), fp.Parameter(fp.zeros(2)), 4))
    x = fp.tensor(np.eye(1536, dtype="f4"))
    for _ in range(3):
        captured(x)
    times: list[float] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            times.append(time.perf_counter())
            time.sleep(1e-3)

    thread = threading.Thread(target=watch)
    thread.start()
    began = time.perf_counter()
    captured(x)
    ended = time.perf_counter()
    stop.set()
    thread.join()
    woken = sum(began < t < ended for t in times)
    assert woken > (ended - began) / 8e-3, (woken, ended - began)


def test_a_short_step_keeps_the_gil_and_a_long_one_does_not(monkeypatch):
    held, free, _ = walk.walkers()
    x, y = buffers(1 << 20, 1 << 20)
    for steps in (1, 30):  # over at once, but late, and stopped
        monkeypatch.setattr(walk, "HOLD", 1e-6 if steps == 1 else 1e-3)
        run = walk.CpuRun([add(x, y, y)] * steps)
        run()
        assert run.parts[0].way is free and run.begun.value == steps
    monkeypatch.setattr(walk, "HOLD", 1.0)
    run = walk.CpuRun([add(*buffers(4, 4, 4))])
    run()
    assert run.parts[0].way is held


def test_memory_stays_where_it_is():
    w = fp.Parameter(fp.ones(300))
    captured = fp.capture(lambda x: ((w * x).sum(), x.softmax()))
    x = fp.ones(300)
    for _ in range(20):
        captured(x)
    gc.collect()
    before = sys.getallocatedblocks(), CPU.memory()["current"]
    for _ in range(2000):
        captured(x)
    gc.collect()
    after = sys.getallocatedblocks(), CPU.memory()["current"]
    assert after[0] - before[0] < 100 and after[1] == before[1]


def test_an_error_before_the_launches_changes_nothing():
    rates = iter([0.1] * 3)
    w = fp.Parameter(fp.ones(2))
    rate: list[Any] = [lambda n: 0.5]
    o = fp.SGD([w], lr=lambda n: rate[0](n))  # noqa: PLW0108  (which function it is changes)

    def step(x: Any) -> Any:
        o.step((w * x).sum().backward())
        return w.sum()

    captured = fp.capture(step)
    for _ in range(3):
        captured(fp.ones(2))
    before = w.tolist(), o.state_dict()
    del rates
    rate[0] = lambda n: -1.0
    with pytest.raises(ValueError, match="lr out of range"):
        captured(fp.ones(2))
    rate[0] = lambda n: 0.5
    assert (w.tolist(), o.state_dict()) == before
    captured(fp.ones(2))
    assert w.tolist() == [-1.0, -1.0]
