"""Timing that can be trusted: check against the contender, warm up, then interleave A B A B in one run and report medians.

Absolute times on a shared machine mean little; the ratio of two medians taken in the same minute does.
May import: flamepy, NumPy. Read next: step.py.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def agree(name: str, ours: Any, theirs: Any, rtol: float = 2e-3, atol: float = 1e-4) -> None:
    """Raise unless two results are close: no speed is printed for a wrong answer."""
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, err_msg=f"{name}: results differ, nothing is timed")


class Elsewhere:
    """A contender in a process of its own: two thread pools in one process would fight for the cores.

    `make(*arguments)` is called there once and returns the function to time. Calling this object runs it once and returns its
    result; `ms` is how long it took.
    """

    def __init__(self, make: Callable[..., Callable[[], Any]], *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        self.ms = 0.0

    def __call__(self) -> Any:
        self.pipe.send("run")
        result, self.ms = self.pipe.recv()
        return result

    def close(self) -> None:
        self.pipe.send("stop")
        self.process.join()


def serve(pipe: Any, make: Callable[..., Callable[[], Any]], arguments: tuple) -> None:
    """The other process: make the function, then run it whenever asked."""
    run = make(*arguments)
    while pipe.recv() == "run":
        pipe.send(timed(run))


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """A result, and the milliseconds it took."""
    start = time.perf_counter()
    result = run()
    return result, (time.perf_counter() - start) * 1e3


def interleaved(contenders: dict[str, Callable[[], Any]], rounds: int, warm: int = 3) -> dict[str, dict[str, float]]:
    """Milliseconds a call: min, median, 90th percentile for each contender, taken in turns."""
    for run in contenders.values():
        for _ in range(warm):
            run()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            ms = timed(run)[1]
            times[name].append(run.ms if isinstance(run, Elsewhere) else ms)
    return {n: {"min": min(t), "median": float(np.median(t)), "p90": float(np.percentile(t, 90))} for n, t in times.items()}


def report(suite: str, work: str, results: dict[str, dict[str, float]], ours: str = "flamepy") -> None:
    """One line for people and one JSON line for each contender."""
    mine = results[ours]["median"]
    for name, r in results.items():
        if name == ours:
            continue
        ratio = mine / r["median"]
        print(f"{suite:9} {work:10} flamepy {mine:9.3f} ms   {name} {r['median']:9.3f} ms   ratio {ratio:.2f}")
        row = {"suite": suite, "work": work, "mode": "eager", "contender": name, "ours_ms": mine, "theirs_ms": r["median"], "ratio": ratio}
        print(json.dumps(row))
    if len(results) == 1:
        print(f"{suite:9} {work:10} flamepy {mine:9.3f} ms   (no contender installed)")
