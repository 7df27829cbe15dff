"""Scratch that lives while a loop or a product runs.

Words, on a worker's stack, not initialised:
    wide_space(x): COLUMNS numbers of the type that sums of x's are kept in (float64, int64)
    run_space(x): RUN numbers of x's type

What products pack is too large for the stacks some programs give their threads, so there are SPACES rooms of ROOM bytes in the process:
take_space() claims one by an atomic swap, first that which a thread with this stack had before, whose memory is in its core's cache, and
give_space() returns it. Only memory that is used becomes real. FLAME counterpart: CUDA's local memory. Read next: runs.py.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from ..formula.row_words import RUN
from .inner import INNER
from .plans import COLUMNS
from .pool import LINE, pause, store, swap


def wide_space(x):
    """The word in plain Python."""
    return np.empty(COLUMNS, np.float64 if x.dtype.kind == "f" else np.int64)


def stack_space(numbers: int, wide: bool) -> Any:
    """A word for memory on the stack of the function that calls it, as an array."""

    def space(typing: Any, x: Any) -> Any:
        number = x.dtype if not wide else types.float64 if isinstance(x.dtype, types.Float) else types.int64
        kind = types.Array(number, 1, "C")

        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            item = context.get_data_type(number)
            with builder.goto_entry_block():  # not cgutils.alloca_once: that fills with zeros
                memory = builder.alloca(ir.ArrayType(item, numbers))
            memory.align = 64
            made = context.make_array(kind)(context, builder)
            size, step = (context.get_constant(types.intp, n) for n in (numbers, context.get_abi_sizeof(item)))
            data = builder.bitcast(memory, made.data.type)
            populate_array(made, data=data, shape=(size,), strides=(step,), itemsize=step, meminfo=None)
            return made._getvalue()

        return kind(x), code

    return intrinsic(space)


WORDS = {"run_space": stack_space(RUN, False), "wide_space": stack_space(COLUMNS, True)}


# ---- rooms for products ----------------------------------------------------------------------------------------------------------
SPACES = 128  # more than threads that multiply at once; one that finds none waits
ROOM = 1 << 19  # bytes
FLAGS = SPACES * LINE  # a flag for each room, LINE apart; the rooms lie behind, at a multiple of a page


@cache
def load_spaces() -> mmap.mmap:
    """Make the rooms known to compiled code."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}  # not shared with forks
    memory = mmap.mmap(-1, FLAGS + SPACES * ROOM, **private)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=free_spaces)
    llvmlite.binding.add_symbol("flamepy_spaces", ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    return memory


def free_spaces() -> None:
    """In the child of a fork: rooms that threads of the parent had are nobody's here."""
    load_spaces()[:FLAGS] = bytes(FLAGS)


@intrinsic
def spaces(typing: Any) -> Any:
    """The address of the flags."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ptrtoint(cgutils.add_global_variable(builder.module, ir.IntType(8), "flamepy_spaces"), ir.IntType(64))

    return types.int64(), code


@intrinsic
def stack_place(typing: Any) -> Any:
    """An address on this thread's stack."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        with builder.goto_entry_block():
            memory = builder.alloca(ir.IntType(64))
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.int64(), code


@njit(**INNER)
def take_space():
    """The number of a room that is this thread's until give_space(number)."""
    flags, number = spaces(), stack_place() // ROOM % SPACES
    while not swap(flags + number * LINE, 0, 1):
        number = (number + 1) % SPACES
        pause()
    return number


@njit(**INNER)
def address_of(number):
    return spaces() + FLAGS + number * ROOM


@njit(**INNER)
def give_space(number):
    store(spaces() + number * LINE, 0)
