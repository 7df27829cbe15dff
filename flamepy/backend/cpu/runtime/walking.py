"""The compiled side of walk.py: the function that walks the list of a recorded step, as data in memory.

A list has rows, of launches and of tests; what a row says stands at walk(). Tests compare numbers with limits as Python does. Compiled
once, or taken from the disk cache; called in two ways, with the GIL and without.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir
from numba import njit, types

from . import pool
from .inner import INNER, word
from .pool import call, load, store


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
