"""A recorded step as lists of launches that compiled code walks: no Python, and no GIL in a step that takes long.

Each kernel is called once in a way that only notes its launch (pool.note): the task, and its arguments as compiled code has them. Launches
that follow each other and do not depend on each other make a group; a group is cut into shares, one for each thread, and is one launch
on the pool. So threads wait for each other only between groups; small groups that one thread runs are joined to one. A check that only
compares numbers with limits is a row of the list as well; Python is asked where one fails. What Python has to do itself (other checks,
conversions by NumPy) stands between two lists.

A list that takes less than HOLD seconds is walked with the GIL: a thread that wants it has to wait for longer anyway, and a short step
loses no time in getting it back. In a longer one other threads run, and every SLICE Python looks for Ctrl-C.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from llvmlite import ir
from numba import njit, types

from ...base import Buffer
from ...run import Action, Required, Run, Step
from . import pool
from .inner import INNER, word
from .pool import call, load, store
from .settings import counter


# ---- compiled: what walks a list ----
@word(types.int64)
def ticks(builder: Any) -> Any:
    """The processor's own clock: rdtsc, CNTVCT_EL0; 0 for ever on one for which LLVM knows none, where no walk stops before its end."""
    return builder.call(builder.module.declare_intrinsic("llvm.readcyclecounter", (), ir.FunctionType(pool.WORD, [])), [])


def read_ticks(_):
    return ticks()


def float_at(kind: Any) -> Any:
    """A function that reads a number of this LLVM type at an address, as float64."""

    @word(types.float64, types.int64)
    def at(builder: Any, address: Any) -> Any:
        found = builder.load(builder.inttoptr(address, kind.as_pointer()))
        return found if kind == DOUBLE else builder.fpext(found, DOUBLE)

    return at


DOUBLE = ir.DoubleType()
float32_at, float64_at = float_at(ir.FloatType()), float_at(DOUBLE)
FLOAT32, FLOAT64, INT64 = range(3)  # kinds of numbers that are compared with limits
KINDS = {"float32": FLOAT32, "float64": FLOAT64, "int64": INT64}


# By name, as kernels do: so the disk cache need not know what is in pool.py.
launch = types.ExternalFunction("flamepy_launch", types.void(types.int64, types.int64, types.int64, types.int64))


def run_units(bounds, share):
    """The units of a share, each (task, data, worker): from bounds[share] to bounds[share + 1], which are addresses."""
    for unit in range(load(bounds + 8 * share), load(bounds + 8 * share + 8), 24):
        call(load(unit), load(unit + 8), load(unit + 16))


@njit(**INNER)
def holds(test):
    """Whether low <= number <= high. A test is: which kind of number, its address, low, high, which are float64 beside a float."""
    kind, at = load(test), load(test + 8)
    if kind == INT64:
        return load(test + 16) <= load(at) <= load(test + 24)
    x = float32_at(at) if kind == FLOAT32 else float64_at(at)
    return float64_at(test + 16) <= x <= float64_at(test + 24)


def walk(head):
    """Launch the groups, each a row (shares, address of the bounds, steps of the program that have begun when it is done).

    A test is a row without shares, with its address. head: address of the row to begin with, of what is behind the last, of run_units,
    of the word that is told how many steps have begun; a budget of ticks; where to leave the row to go on with. Stops behind a test
    that fails, and after a group when more ticks than the budget are over. Returns OVER, LATE (over, after more than the budget),
    STOPPED, or FAILED.
    """
    began = ticks()
    row, last, run, begun, budget = load(head), load(head + 8), load(head + 16), load(head + 24), load(head + 32)
    while row < last:
        shares, bounds = load(row), load(row + 8)
        if shares == 0:
            store(begun, load(row + 16))
            row += 24
            if not holds(bounds):
                store(load(head + 40), row)
                return FAILED
            continue
        if shares == 1:
            call(run, bounds, 0)
        else:
            launch(run, bounds, shares, 0)
        store(begun, load(row + 16))
        row += 24
        if ticks() - began > budget:
            store(load(head + 40), row)
            return LATE if row == last else STOPPED
    return OVER


OVER, LATE, STOPPED, FAILED = range(4)


@cache
def walkers() -> tuple[Callable[..., int], Callable[..., int], int]:
    """walk() that holds the GIL, walk() that lets go of it, the address of run_units()."""
    pool.start()
    address, arguments = pool.compiled(walk, types.int64, 1).address, (ctypes.c_int64,) * 2
    held, free = ctypes.PYFUNCTYPE(*arguments)(address), ctypes.CFUNCTYPE(*arguments)(address)
    return held, free, pool.compiled(run_units, types.void, 2).address


@cache
def rate() -> float:
    """Ticks in a second."""
    read = pool.compiled(read_ticks, types.int64, 1).ctypes
    began, first = time.perf_counter(), read(0)
    while time.perf_counter() - began < 1e-3:
        pass
    return float((read(0) - first) / (time.perf_counter() - began))


# ---- how a step becomes lists ----
HOLD, SLICE = 1e-3, 20e-3
ROOM = 4096  # bytes for the arguments of a kernel, at first
TOGETHER = 64  # launches in a group, at most: each is compared with those before it
# Bytes: what a launch touches that is given to another thread, and one that is cut for all of them though eager runs it on one.
FEW, CUT = 1 << 14, 1 << 16


class Launch(NamedTuple):
    """A noted launch: its number in the program, task and data, how many workers, which memory it reads and writes."""

    number: int
    task: int
    data: np.ndarray
    workers: int
    reads: list[tuple[int, int]]
    writes: list[tuple[int, int]]
    weight: int  # bytes


Shares = list[list[tuple[Launch, int]]]  # of a group: the launches of each thread, each with the number of a worker


class Test(NamedTuple):
    """A check: its number in the program, what is asked when one fails, and for each number that is compared a row of words."""

    number: int
    check: Callable[[], Any]
    words: np.ndarray


def test_of(number: int, s: Action) -> Test | None:
    """A check as compiled code makes it; None for one that Python must make."""
    pairs = list(zip(s.buffers, s.act.within, strict=False)) if type(s.act) is Required else []
    if not pairs or not all([str(b.dtype) in KINDS and b.size for b, _ in pairs]):
        return None
    words = np.zeros((len(pairs), 4), np.int64)
    for row, (b, ends) in zip(words, pairs, strict=True):
        row[:2] = KINDS[str(b.dtype)], b.data.ctypes.data
        row[2:] = ends if row[0] == INT64 else np.array(ends, np.float64).view(np.int64)
    return Test(number, partial(s.act, *s.buffers), words)


def overlap(these: list[tuple[int, int]], those: list[tuple[int, int]]) -> bool:
    return any([a < d and c < b for a, b in these for c, d in those])


def arguments_of(s: Step) -> list[Any]:
    return [*[b.data if isinstance(b, Buffer) else b for b in (*s.outs, *s.ins)], *s.consts]


def memory_of(arguments: Sequence[Any]) -> list[tuple[int, int]]:
    """First and last address of each array."""
    arrays = [b.data for b in arguments if isinstance(b, Buffer)]
    return [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays if a.nbytes]


def noted(number: int, s: Step, width: int) -> Launch:
    """Have a kernel note its launch. Compiles the kernel if nobody has."""
    reads, writes, room = memory_of(s.ins), memory_of(s.outs), ROOM
    weight = sum([end - start for start, end in {*reads, *writes}])
    workers = width if s.kernel.wide or (weight >= CUT and not s.kernel.loop.fixed) else 1
    while True:
        place = np.zeros(3 + room // 8, np.int64)
        place[0] = room
        s.kernel.call(-place.ctypes.data, *arguments_of(s))
        _, task, room = place[:3].tolist()
        if room <= place.nbytes - 24:
            break
    data = place[3 : 3 + room // 8].copy()
    data[0] = workers  # in the place of the address
    return Launch(number, task, data, workers, reads, writes, weight)


def grouped(launches: Sequence[Launch]) -> list[list[Launch]]:
    """Neighbours together, as long as none writes what another one reads or writes."""
    groups: list[list[Launch]] = []
    touched: list[tuple[int, int]] = []
    written: list[tuple[int, int]] = []
    for launch in launches:
        if not groups or len(groups[-1]) == TOGETHER or overlap(launch.writes, touched) or overlap(launch.reads, written):
            groups.append([])
            touched, written = [], []
        groups[-1].append(launch)
        touched += launch.reads + launch.writes
        written += launch.writes
    return groups


def together(entries: Sequence[Launch | Test]) -> Iterator[list[Launch] | Test]:
    """Each test, and between tests the groups."""
    launches: list[Launch] = []
    for entry in entries:
        if isinstance(entry, Launch):
            launches.append(entry)
            continue
        yield from grouped(launches)
        yield entry
        launches = []
    yield from grouped(launches)


def shared_out(group: Sequence[Launch], width: int) -> Shares:
    """What each thread does of a group: one worker of each wide launch, and the narrow ones so that all touch about as much memory."""
    most = max([launch.workers for launch in group])
    weights = [launch.weight for launch in group]
    if most == 1 and sum(weights) - max(weights) >= FEW:
        most = width
    loads, owners = [0] * most, {}
    for launch, weight in sorted(zip(group, weights, strict=True), key=lambda pair: -pair[1]):
        if launch.workers == 1:
            owners[launch.number] = n = loads.index(min(loads))
            loads[n] += weight
    return [
        [(launch, n if launch.workers > 1 else 0) for launch in group if launch.workers > 1 or owners[launch.number] == n]
        for n in range(most)
    ]


def joined(entries: Sequence[Launch | Test], width: int) -> list[Shares | Test]:
    """Each test, and between tests the shares of the groups. Small groups of one share each, which one thread runs anyway, are one."""
    found: list[Shares | Test] = []
    for entry in together(entries):
        now = entry if isinstance(entry, Test) else shared_out(entry, width)
        last = found[-1] if found else now
        if last is not now and is_small(last) and is_small(now) and len(last[0]) + len(now[0]) <= TOGETHER:
            last[0].extend(now[0])
        else:
            found.append(now)
    return found


def is_small(found: Shares | Test) -> TypeGuard[Shares]:
    return not isinstance(found, Test) and len(found) == 1 and all([launch.weight < CUT for launch, _ in found[0]])


class Walk:
    """A list of launches and tests in memory, as walk() reads it."""

    def __init__(self, entries: Sequence[Launch | Test], width: int, where: int):
        self.held, self.free, run = walkers()
        self.way = self.held
        self.entries = entries  # whose memory is named below
        self.checks: dict[int, Callable[[], Any]] = {}  # by the row behind a test
        rows: list[tuple[int, ...]] = []
        units: list[tuple[int, ...]] = []
        bounds: list[int] = []
        for entry in joined(entries, width):
            if isinstance(entry, Test):
                rows += [(0, row.ctypes.data, entry.number + 1) for row in entry.words]
                self.checks |= {len(rows) - i: entry.check for i in range(len(entry.words))}
                continue
            rows.append((len(entry), 8 * len(bounds), max([launch.number for share in entry for launch, _ in share]) + 1))
            for share in entry:
                bounds.append(len(units))
                units += [(launch.task, launch.data.ctypes.data, worker) for launch, worker in share]
            bounds.append(len(units))
        self.units = np.array(units, np.int64)
        self.bounds = np.array(bounds, np.int64) * 24 + self.units.ctypes.data
        self.rows = np.array(rows, np.int64)
        self.rows[:, 1] += np.where(self.rows[:, 0] > 0, self.bounds.ctypes.data, 0)
        self.first = self.rows.ctypes.data
        last, again = self.first + self.rows.nbytes, np.zeros(6, np.int64)
        heads = [(self.first, last, run, where, int(budget * rate()), again.ctypes.data) for budget in (HOLD, SLICE)]
        again[:] = heads[1]
        self.words = np.array(heads[0], np.int64), again  # of the first part of a walk, and of the others
        self.begin, self.again = (ctypes.c_int64(words.ctypes.data) for words in self.words)  # of C's type: handed over in half the time

    def go_on(self, found: int) -> None:
        """After the first part, which found this. The way that it was walked says whether the next one holds the GIL from the beginning."""
        if found != FAILED:
            self.way = self.free if found else self.held
        while found >= STOPPED:
            if found == FAILED:
                self.checks[(int(self.words[1][0]) - self.first) // 24]()
            found = self.free(self.again)


class Act:
    """An action that only Python can do, to be called as the first part of a walk is."""

    def __init__(self, act: Callable[[Action], None], action: Action):
        self.way = self.held = act
        self.begin = action


class CpuRun(Run):
    """A recorded step, made ready for the number of threads there is. `begun` is set before an action, and by walk() as it goes."""

    def __init__(self, steps: Sequence[Step | Action]):
        super().__init__([])
        self.steps, self.width, self.count = steps, 0, counter()
        self.parts: list[Any] = []  # walks and acts

    def __call__(self, undo: Callable[[Any, int], Any] | None = None, states: Any = None) -> None:
        if self.count() != self.width:
            self.build(self.count())
        for part in self.parts:
            found = part.way(part.begin)
            if found or part.way is not part.held:
                part.go_on(found)

    def act(self, begun: int, action: Action) -> None:
        self.begun.value = begun
        action.act(*action.buffers)

    def build(self, width: int) -> None:
        """Steps that compiled code can take, as walks; the others as they are."""
        self.width, self.parts = 0, []
        entries: list[Launch | Test] = []
        for number, s in enumerate(self.steps):
            if isinstance(s, Step):
                entries.append(noted(number, s, width))
            elif (test := test_of(number, s)) is not None:
                entries.append(test)
            else:
                self.add_walk(entries, width)
                entries = []
                self.parts.append(Act(partial(self.act, number + 1), s))
        self.add_walk(entries, width)
        self.width = width

    def add_walk(self, entries: list[Launch | Test], width: int) -> None:
        if entries:
            self.parts.append(Walk(entries, width, ctypes.addressof(self.begun)))
