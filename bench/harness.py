"""How a work is measured: check, warm up, take turns A B A B, and only then say how fast.

Every contender first gives its results. flamepy's must agree with the oracle, a contender's with the oracle and with flamepy's, or
nothing is timed. Turns are short (150 ms), so that whatever else the machine does meets all alike; between two turns 5 ms pass, in
which the other's idle threads stop spinning. What counts is the fastest call: others can only make one slower. Ceilings (sgemm or
multiply-adds on registers, copy) are measured before and after the turns. What other programs disturbed is marked (busy.py).
"""

from __future__ import annotations

import contextlib
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .busy import disturbed
from .work import Disagree, Work, close, missing, suite_of
from .worker import Built, Elsewhere, Failed, Turn

PAUSE = 0.005
COLD = 3.0  # seconds of a first call in which kernels must have been compiled
SETTLE = 0.1  # after the ceilings: NumPy's BLAS threads spin for some 30 ms
Row = tuple[str, str]  # contender and mode; only ours has modes
Say = Callable[[str], None]


class Timing(NamedTuple):
    """Milliseconds of one call (of one op, where a call makes several)."""

    min: float
    median: float
    p90: float
    samples: int
    first_call_s: float
    peak_mb: float | None
    others: float | None = None  # cores that other programs had meanwhile

    @property
    def busy(self) -> bool:
        return disturbed(self.others, self.min, self.median)


class Ceilings(NamedTuple):
    """What this machine does at best, at this moment: GFLOP/s of the work's ceiling, GB/s of a copy of as many bytes."""

    flops: float
    copy: float
    busy: bool = False


@dataclass
class Outcome:
    """Of one work: timings, the ceilings, and whether ours failed or was wrong."""

    suite: str
    work: Work
    ours: str
    timings: dict[Row, Timing] = field(default_factory=dict)
    ceilings: Ceilings | None = None
    wrong: bool = False


@dataclass
class Plan:
    """How to measure, and whom to tell: `note` what the user must know, `progress` what is going on. As a context manager it ends
    every process it started. `place` starts a contender; tests put it into this process."""

    suite: str
    against: list[str]
    modes: list[str]
    threads: int
    rounds: int
    note: Say
    progress: Say
    place: Callable[[str, str, int], Any] = Elsewhere
    seats: dict[Row, Any] = field(default_factory=dict)

    def seat(self, suite: str, row: Row) -> Any:
        """The process of this contender, started at first use."""
        if row not in self.seats:
            with ctrl_c_later():  # or a process that is just starting would be left to nobody
                self.seats[row] = self.place(suite, row[0], self.threads)
        return self.seats[row]

    def leave(self, row: Row) -> None:
        """End its process."""
        if row in self.seats:
            self.seats.pop(row).close()

    def __enter__(self) -> Plan:
        return self

    def __exit__(self, *exc: Any) -> None:
        for row in list(self.seats):
            self.leave(row)


@contextlib.contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Ctrl-C inside the block is answered when the block ends. (Blocking the signal would leave it to another thread.)"""
    if threading.current_thread() is not threading.main_thread():  # it gets no signals
        yield
        return
    asked: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    if asked and callable(before):  # a signal of our own would count as the second Ctrl-C
        before(signal.SIGINT, asked[0])
    elif asked:
        signal.raise_signal(signal.SIGINT)


def summary(turns: list[Turn], per: int, built: Built) -> Timing:
    """Minimum, median and 90th percentile of all calls, in milliseconds of one op."""
    ms = sorted(s * 1e3 / per for turn in turns for s in turn.calls)
    rank = 0.9 * (len(ms) - 1)
    low, high = ms[int(rank)], ms[min(int(rank) + 1, len(ms) - 1)]
    p90 = low + (high - low) * (rank % 1)
    return Timing(ms[0], statistics.median(ms), p90, len(ms), built.first_call_s, built.peak_mb, others_of(turns))


def others_of(turns: list[Turn]) -> float | None:
    """How many cores other programs had during these turns; None where that is not known."""
    known = [(turn.others, turn.seconds) for turn in turns if turn.others is not None]
    return max(0.0, sum(others for others, _ in known) / sum(seconds for _, seconds in known)) if known else None


def present(against: list[str], note: Say) -> list[str]:
    """The contenders that can run here; each of the others is named once."""
    found = []
    for contender in against:
        if reason := missing(contender):
            note(reason)
        else:
            found.append(contender)
    return found


def measure(plan: Plan, work: Work) -> Outcome:
    """One work, as said at the top of this file. What cannot be measured is told and left out."""
    suite = suite_of(plan.suite)
    outcome = Outcome(plan.suite, work, suite.OURS)
    modes = [mode for mode in work.modes if mode in plan.modes]
    others = [c for c in plan.against if work.shared and c in (work.against or plan.against)]
    ready: dict[Row, Built] = {}
    for row in [(suite.OURS, mode) for mode in modes] + [(c, "") for c in others]:
        if row[0] == suite.OURS or ready:  # without ours there is nothing to compare
            built = prepare(plan, outcome, row, next(iter(ready.values()), None))
            if built is not None:
                ready[row] = built
    if any(contender == suite.OURS for contender, _ in ready):
        before = measure_ceilings(plan, work)
        take_turns(plan, outcome, ready)
        outcome.ceilings = best(before, measure_ceilings(plan, work))
    if suite.ALONE:
        for row in list(plan.seats):
            plan.leave(row)
    return outcome


def prepare(plan: Plan, outcome: Outcome, row: Row, ours: Built | None) -> Built | None:
    """Build the job of one contender and check what it gives; None (and a note) if it cannot be timed."""
    suite, name, who = suite_of(plan.suite), outcome.work.name, " ".join(row).strip()
    plan.progress(f"{plan.suite} {name}: {who}: first calls, checks")
    try:
        built = build(plan, row, name, suite.ALONE)
        suite.verify(name, built.outputs)
        if ours is not None:
            agree = getattr(suite, "agree", lambda _, ours, theirs: close(ours, theirs, suite.TOLERANCE))
            agree(name, built.outputs, ours.outputs)
        return built
    except Disagree as problem:
        plan.note(f"{name}: {who}: outputs differ, so no speed is shown: {problem}")
    except Failed as problem:
        plan.note(f"{name}: {who}: {problem}")
        plan.leave(row)
    outcome.wrong = outcome.wrong or row[0] == suite.OURS
    return None


def build(plan: Plan, row: Row, name: str, alone: bool) -> Built:
    """The first calls. Where kernels were compiled, once more in a new process that finds them on disk: compilers leave memory
    behind that no step needs."""
    built = plan.seat(plan.suite, row).build(name, row[1] or "eager")
    if alone and row[1] and built.first_call_s > COLD:
        plan.leave(row)
        built = plan.seat(plan.suite, row).build(name, row[1])._replace(first_call_s=built.first_call_s)
    return built


def take_turns(plan: Plan, outcome: Outcome, ready: dict[Row, Built]) -> None:
    """A B A B: a turn for each in every round."""
    turns: dict[Row, list[Turn]] = {row: [] for row in ready}
    plan.progress(f"{plan.suite} {outcome.work.name}: {plan.rounds} rounds")
    for _ in range(plan.rounds):
        for row, taken in turns.items():
            time.sleep(PAUSE)
            taken.append(plan.seats[row].block())
    for row, taken in turns.items():
        outcome.timings[row] = summary(taken, outcome.work.per, ready[row])


def measure_ceilings(plan: Plan, work: Work) -> Ceilings:
    """The fastest of some calls of the work's ceiling, and of copying as many bytes as the work moves."""
    home = getattr(suite_of(plan.suite), "CONTROL", "control")
    control, seat = suite_of(home), plan.seat(home, ("ceilings", ""))
    size = min(max(int(work.nbytes) or control.FULL, 1 << 14), control.FULL) // 8 * 8
    rates, turns = [], []
    for item in (control.WORKS[work.ceiling], control.copy_work(f"copy@{size}")):
        seat.build(item.name, "eager")
        turns.append(seat.block())
        rates.append((item.flops or item.nbytes) / min(turns[-1].calls) / 1e9)
    time.sleep(SETTLE)
    spread = max(statistics.median(turn.calls) / min(turn.calls) for turn in turns)
    return Ceilings(rates[0], rates[1], disturbed(others_of(turns), 1.0, spread))


def best(before: Ceilings, after: Ceilings) -> Ceilings:
    return Ceilings(max(before.flops, after.flops), max(before.copy, after.copy), before.busy or after.busy)


def percent(work: Work, ms: float, ceilings: Ceilings) -> float | None:
    """What part of `ms` the ceilings ask for: the slower of arithmetic at its ceiling and bytes at copying speed."""
    least = max(work.flops / ceilings.flops, work.nbytes / ceilings.copy) / 1e6 / work.per
    return 100 * least / ms if least else None
