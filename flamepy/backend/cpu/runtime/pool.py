"""The threads that parallel launches run on: helpers that wait beside the thread that launches.

A launch cuts its workers into shares, one for each thread, and publishes them. Whoever comes first claims a share by one atomic
compare-and-swap: its helper, another helper that is done, or the launching thread, which works too and takes every share that
nobody has begun. So a launch never waits for a thread that has no processor; it waits only for shares that are being run. That is
why a busy machine costs a launch little, why the child of a fork (which has no helpers) computes the same, and why nothing can
deadlock: a launch that finds the pool in use, from another thread or from inside a share, runs all of its shares itself.

Helpers watch for the next launch for a while, then sleep on one of Python's locks. Compiled code finds `launch` and the pool's
words by symbol name, so kernels stay in the disk cache.
"""

from __future__ import annotations

import _thread
import ctypes
import os
import time
from functools import cache
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from ....disk_cache import cache_of
from .inner import ALWAYS, INNER

SPIN = 200e-6  # seconds a thread watches before it sleeps: longer than the gap between two parallel launches of an eager step

# The words of the pool, as offsets in bytes. Words that different threads write lie LINE apart: two cache lines, fetched together.
LINE = 128
BUSY = 0  # 1: a launch is under way
NUMBER = LINE  # of the last launch, times COUNT, plus its shares: who reads it knows both; what it runs lies behind
TASK, DATA, WORKERS = (NUMBER + 8 * i for i in range(1, 4))
HELPERS, ROUNDS = 2 * LINE, 2 * LINE + 8  # threads beside the launching one; how often a thread looks before it sleeps
# One for each thread, the launching one first: the last launch whose share was claimed, the last whose share is done; and on a line
# that is hardly ever written, whether the thread sleeps, and its lock.
SLOT, SLOTS = 2 * LINE, 3 * LINE
CLAIMED, DONE, ASLEEP, LOCK = 0, 8, LINE, LINE + 8
MOST = 255  # helpers
COUNT = 512

WORD = ir.IntType(64)


def atomic(arity: int, emit: Any) -> Any:
    """A function of `arity` integers, the first the address of a word, for compiled code; emit(builder, pointer, numbers)."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        found = emit(builder, builder.inttoptr(values[0], WORD.as_pointer()), values[1:])
        return context.get_dummy_value() if found is None else found

    def word1(typing: Any, address: Any) -> Any:
        return types.int64(types.int64), code

    def word2(typing: Any, address: Any, a: Any) -> Any:
        return types.int64(types.int64, types.int64), code

    def word3(typing: Any, address: Any, a: Any, b: Any) -> Any:
        return types.int64(types.int64, types.int64, types.int64), code

    return intrinsic((word1, word2, word3)[arity - 1])


def emit_store(builder: Any, word: Any, values: Any) -> Any:
    builder.store_atomic(values[0], word, "release", 8)
    return values[0]


def emit_swap(builder: Any, word: Any, values: Any) -> Any:
    return builder.zext(builder.extract_value(builder.cmpxchg(word, *values, "seq_cst", "seq_cst"), 1), WORD)


load = atomic(1, lambda builder, word, _: builder.load_atomic(word, "seq_cst", 8))
store = atomic(2, emit_store)
add = atomic(2, lambda builder, word, values: builder.atomic_rmw("add", word, values[0], "seq_cst"))  # returns what was there
exchange = atomic(2, lambda builder, word, values: builder.atomic_rmw("xchg", word, values[0], "seq_cst"))
swap = atomic(3, emit_swap)  # swap(word, old, new): 1 if the word was `old` and is `new` now


@intrinsic
def pause(typing: Any) -> Any:
    """Tell the processor that this thread only watches a word."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        machine = llvmlite.binding.get_process_triple().split("-")[0]
        if machine == "x86_64":
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), ir.FunctionType(ir.VoidType(), [])), [])
        elif machine in ("aarch64", "arm64"):
            hint = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            builder.call(builder.module.declare_intrinsic("llvm.aarch64.hint", (), hint), [ir.Constant(ir.IntType(32), 1)])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def words(typing: Any) -> Any:
    """The address of the pool's words."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ptrtoint(cgutils.add_global_variable(builder.module, ir.IntType(8), "flamepy_pool"), WORD)

    return types.int64(), code


@intrinsic
def call(typing: Any, task: Any, data: Any, worker: Any) -> Any:
    """task(data, worker)"""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [WORD, WORD])
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), values[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


acquire = types.ExternalFunction("flamepy_acquire", types.int32(types.int64, types.int32))
release = types.ExternalFunction("flamepy_release", types.void(types.int64))


@njit(**INNER)
def spin(word, value, rounds):
    """Watch until the word is no longer `value`; False if it still is after so many rounds."""
    for _ in range(rounds):
        if load(word) != value:
            return True
        pause()
    return False


@njit(**INNER)
def wait(word, value, slot, rounds):
    """Return when the word may be another than `value`: watch, then sleep until wake(slot)."""
    if spin(word, value, rounds):
        return
    swap(slot + ASLEEP, 0, 1)
    # Whoever changes the word looks at ASLEEP afterwards, we the other way round: one of us sees the other.
    if load(word) == value or not swap(slot + ASLEEP, 1, 0):
        acquire(load(slot + LOCK), 1)


@njit(**INNER)
def wake(slot):
    if load(slot + ASLEEP) and swap(slot + ASLEEP, 1, 0):
        release(load(slot + LOCK))


@njit(**INNER)
def run_share(pool, number, share):
    """Claim a share of launch `number` and run it; 0 if somebody else did.

    What the launch runs is read before the claim, which succeeds only while that launch is the current one: it is not over before
    somebody has claimed each of its shares.
    """
    task, data, workers, shares = load(pool + TASK), load(pool + DATA), load(pool + WORKERS), number % COUNT
    claim = pool + SLOTS + share * SLOT + CLAIMED
    last = load(claim)
    if last >= number or not swap(claim, last, number):
        return 0
    for worker in range(workers * share // shares, workers * (share + 1) // shares):
        call(task, data, worker)
    return 1


@njit(**INNER)
def work_with_helpers(pool, task, data, workers):
    slots = pool + SLOTS
    shares = min(workers, load(pool + HELPERS) + 1)
    before = load(pool + NUMBER)
    number = (before // COUNT + 1) * COUNT + shares
    store(pool + TASK, task)
    store(pool + DATA, data)
    store(pool + WORKERS, workers)
    add(pool + NUMBER, number - before)
    for helper in range(1, shares):
        wake(slots + helper * SLOT)
    for share in range(shares):
        done = slots + share * SLOT + DONE
        if load(done) != number and run_share(pool, number, share):
            store(done, number)
    for share in range(shares):
        done = slots + share * SLOT + DONE
        before = load(done)
        while before != number:  # somebody is at work on it: watch for longer than helpers do for the next launch
            wait(done, before, slots, 8 * load(pool + ROUNDS))
            before = load(done)


@njit(**INNER)
def share_out(task, data, workers):
    """task(data, worker) for every worker; returns when all are done."""
    pool = words()
    if load(pool + HELPERS) == 0 or not swap(pool + BUSY, 0, 1):
        for worker in range(workers):
            call(task, data, worker)
    else:
        work_with_helpers(pool, task, data, workers)
        store(pool + BUSY, 0)


@njit(**INNER)
def note(place, task, data, size):
    """Write down a launch instead of running it: at `place` stands how many bytes fit; the task, how many bytes its data has, and these
    bytes go behind."""
    store(place + 8, task)
    store(place + 16, size)
    for at in range(0, min(size, load(place)), 8):
        store(place + 24 + at, load(data + at))


def launch(task, data, workers, size):
    """What kernels call: share_out(), or where `workers` is an address, negative, note()."""
    if workers < 0:
        note(-workers, task, data, size)
    else:
        share_out(task, data, workers)


def help_launches(helper):
    """What the thread with this number does for ever."""
    pool = words()
    slots = pool + SLOTS
    number = load(pool + NUMBER)
    while True:
        wait(pool + NUMBER, number, slots + helper * SLOT, load(pool + ROUNDS))
        number = load(pool + NUMBER)
        shares = number % COUNT
        for n in range(shares):
            share = (helper + n) % shares
            if run_share(pool, number, share):
                exchange(slots + share * SLOT + DONE, number)
                wake(slots)


MEMORY = ctypes.create_string_buffer(SLOTS + (MOST + 1) * SLOT + LINE)  # one LINE more, so that the words can begin at a multiple of it
WORDS = -(-ctypes.addressof(MEMORY) // LINE) * LINE


def word(offset: int) -> ctypes.c_int64:
    """A word of the pool for Python, which reads and writes `.value`."""
    return ctypes.c_int64.from_address(WORDS + offset)


@cache
def compiled(function: Any, result: Any, arity: int) -> Any:
    """A function of this file as one of C, taken from the disk cache when it is there."""
    made = CFunc(function, ((types.int64,) * arity, result), {}, dict(ALWAYS))
    made._cache = cache_of(function)  # type: ignore[attr-defined]
    made.compile()
    return made


@cache
def load_launch() -> None:
    """Make `launch` known to compiled code. This starts no thread: until start(), every launch runs alone."""
    llvmlite.binding.add_symbol("flamepy_pool", WORDS)
    for name in ("acquire", "release"):
        function = getattr(ctypes.pythonapi, f"PyThread_{name}_lock")
        llvmlite.binding.add_symbol(f"flamepy_{name}", ctypes.cast(function, ctypes.c_void_p).value)
    llvmlite.binding.add_symbol("flamepy_launch", compiled(launch, types.void, 4).address)


@cache
def start() -> None:
    """Start the helpers: one thread less than Numba's setting, which heeds NUMBA_NUM_THREADS and the processors of this process."""
    load_launch()
    helpers = min(int(config.NUMBA_NUM_THREADS) - 1, MOST)  # type: ignore[attr-defined]
    word(ROUNDS).value = rounds_of_spin()
    for n in range(helpers + 1):
        word(SLOTS + n * SLOT + LOCK).value = taken_lock()
    body = compiled(help_launches, types.void, 1).ctypes
    for n in range(1, helpers + 1):
        _thread.start_new_thread(body, (n,))
    word(HELPERS).value = helpers
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget_helpers)


def forget_helpers() -> None:
    """In the child of a fork, which has no thread but the one that forked: launches run alone from now on."""
    global forked
    forked = True
    word(HELPERS).value = 0


forked = False  # whether this process is such a child


def helpers() -> int:
    """How many threads there are beside the launching one."""
    return word(HELPERS).value


def taken_lock() -> int:
    """The address of a new lock that is taken: who acquires it sleeps until somebody releases it."""
    allocate = ctypes.pythonapi.PyThread_allocate_lock
    allocate.restype = ctypes.c_void_p
    lock = int(allocate())
    ctypes.pythonapi.PyThread_acquire_lock(ctypes.c_void_p(lock), 1)
    return lock


def rounds_of_spin() -> int:
    """How many rounds of spin() take SPIN seconds: a pause takes 10 to 140 cycles, as the processor likes."""
    watch = compiled(spin.py_func, types.boolean, 3).ctypes
    times = []
    for _ in range(5):
        started = time.perf_counter()
        watch(WORDS + BUSY, 0, 1000)
        times.append(time.perf_counter() - started)
    return int(SPIN / min(times) * 1000)
