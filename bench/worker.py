"""A contender in a process of its own: two thread pools in one process would fight for the cores.

`Elsewhere` starts another Python, out of reach of Ctrl-C and with its own number of threads, and talks to a `Server` there in pickled
messages. Closing ends it, and all that it started where the system has sessions (not on Windows).

    build(work, mode)  ->  Built: make the job, call it for the first time, keep what it gives for the comparison, warm up
    block()            ->  Turn: seconds of each call, for about 150 ms
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from flamepy.train.lines import fitted

from .busy import other_seconds
from .work import suite_of

TURN = 0.15  # seconds of one contender's turn
WARM = 0.1  # seconds of calls, after those that are compared, before any is timed
STATUS = Path("/proc/self/status")


class Failed(Exception):
    """A contender raised an error or died."""


class Built(NamedTuple):
    first_call_s: float
    outputs: list[Any]
    peak_mb: float | None
    calls: int


class Turn(NamedTuple):
    """`calls`: seconds of each; `seconds` of the whole turn, and what other programs had of this process's cores meanwhile, if known."""

    calls: list[float]
    seconds: float
    others: float | None


class Server:
    """Does the work; lives in the contender's process (or, in tests, in this one)."""

    def __init__(self, suite: str, contender: str):
        self.suite, self.contender = suite_of(suite), contender
        self.run: Any = None
        self.calls = 1

    def build(self, work: str, mode: str) -> Built:
        """First calls and warm-up of a job. Memory is what a process of its own grows by from just before the first step, at the
        height of later steps, when everything is compiled."""
        import numpy as np

        self.run = None
        job = self.suite.build(self.contender, work, mode)
        before = memory("VmRSS")
        results, first = [], 0.0
        for _ in range(job.calls):
            start = time.perf_counter()
            result = job.run()
            first = first or time.perf_counter() - start
            results.append([np.array(a) for a in job.outputs(result)])
            del result
        reset_peak()
        self.run = job.run
        self.calls = self.calibrate()
        peak = memory("VmHWM")
        grown = None if before is None or peak is None or not self.suite.ALONE else max(0.0, peak - before)
        if hasattr(self.suite, "peak_mb"):
            grown = self.suite.peak_mb(self.contender)
        outputs = results[0] if job.calls == 1 else [np.stack(column) for column in zip(*results, strict=True)]
        return Built(first, outputs, grown, self.calls)

    def calibrate(self) -> int:
        """Warm up; how many calls make one turn."""
        times: list[float] = []
        while len(times) < 3 or sum(times) < WARM:
            start = time.perf_counter()
            self.run()
            times.append(time.perf_counter() - start)
        return max(2, round(TURN / statistics.median(times)))

    def block(self) -> Turn:
        """One turn. The first call finds the caches full of another contender's data: it is not counted."""
        times, run, clock = [], self.run, time.perf_counter
        before, begin = other_seconds(), clock()
        for _ in range(self.calls):
            start = clock()
            run()
            times.append(clock() - start)
        seconds, after = clock() - begin, other_seconds()
        others = None if before is None or after is None else after - before
        return Turn(times[1:] if len(times) > 1 else times, seconds, others)

    def close(self) -> None:
        self.run = None


def memory(field: str) -> float | None:
    """VmRSS or VmHWM of this process in MB; None where there is no /proc."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), re.M)
        return int(found[1]) * 1024 / 1e6 if found else None
    return None


def reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


class Elsewhere:
    """A Server in another process, with the same methods."""

    def __init__(self, suite: str, contender: str, threads: int):
        package = __package__ or "bench"
        root = str(Path(__file__).parents[package.count(".") + 1])
        env = {**os.environ, **environment(threads), "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
        quiet = [] if contender == "flamepy" else ["-W", "ignore"]
        call = f"from {package}.worker import serve; serve({suite!r}, {contender!r}, {threads})"
        command = [sys.executable, "-P", *quiet, "-c", call]
        self.contender = contender
        group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # Windows's way to keep Ctrl-C away
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, start_new_session=True, creationflags=group)

    def ask(self, *message: Any) -> Any:
        """Send a request and wait for its answer. Raises Failed with what the other side said."""
        assert self.process.stdin and self.process.stdout
        try:
            pickle.dump(message, self.process.stdin)
            self.process.stdin.flush()
            kind, answer = pickle.load(self.process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise Failed(f"{self.contender}: its process ended with code {self.process.wait()}") from None
        if kind == "failed":
            raise Failed(answer)
        return answer

    def build(self, work: str, mode: str) -> Built:
        return self.ask("build", work, mode)

    def block(self) -> Turn:
        return self.ask("block")

    def close(self) -> None:
        """End the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


def environment(threads: int) -> dict[str, str]:
    """The same number of threads for everybody, whichever library starts them."""
    n = str(threads)
    names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    flags = f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'} intra_op_parallelism_threads={n}"
    return {**dict.fromkeys(names, n), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def serve(suite: str, contender: str, threads: int) -> None:
    """Answer requests from standard input until it closes. What libraries print goes to standard error."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    warnings.showwarning = told
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    server = None
    while message := receive(requests):
        verb, *arguments = message
        try:
            server = server or Server(suite, contender)
            answer = ("done", getattr(server, verb)(*arguments))
        except Exception as problem:  # whatever a contender raises is told, and the others go on
            answer = ("failed", f"{contender}: {type(problem).__name__}: {next(iter(str(problem).splitlines()), '')}")
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:  # nobody waits for it any more
            return


def told(message: Warning | str, *where: Any, **more: Any) -> None:
    """A warning without the line that led to it, which is none of the user's."""
    print(fitted(f"bench: {message}"), file=sys.stderr, flush=True)


def receive(pipe: Any) -> Any:
    """The next message; None when the other side has closed the pipe."""
    try:
        return pickle.load(pipe)
    except EOFError:
        return None
