"""Memory for what products pack: too large for the stacks some programs give their threads.

There are SPACES rooms of ROOM bytes in the process. take_space() claims one by an atomic swap, first that which a thread with this stack
had before, whose memory is in its core's cache; give_space() returns it. Only memory that is used becomes real. A child of a fork begins
with all rooms free: threads of its parent that held some are not there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils

from .inner import INNER, word
from .pool import LINE, pause, store, swap

SPACES = 128  # more than threads that multiply at once; one that finds none waits
ROOM = 1 << 21  # bytes
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


@word(types.int64)
def spaces(builder: Any) -> Any:
    """The address of the flags."""
    return builder.ptrtoint(cgutils.add_global_variable(builder.module, ir.IntType(8), "flamepy_spaces"), ir.IntType(64))


@word(types.int64)
def stack_place(builder: Any) -> Any:
    """An address on this thread's stack."""
    with builder.goto_entry_block():
        memory = builder.alloca(ir.IntType(64))
    return builder.ptrtoint(memory, ir.IntType(64))


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
