"""One lane's access: which memory its address lies in, and whether it may touch those bytes."""

from __future__ import annotations

import numpy as np

from .layout import (
    ADDRESSES,
    ALIGNMENT,
    ALLOCATED,
    APART,
    BOUNDS,
    CONSTANT,
    COPYING,
    DEVICE_BASE,
    FIRST_THREAD,
    GENERIC,
    GLOBAL,
    GROUP,
    INDEX_FAULT,
    LAUNCH,
    LOCAL,
    LOCAL_WINDOW,
    READ_ONLY,
    SHARED,
    SHARED_WINDOW,
    SPACES,
    STATE,
    STILL_COPYING,
    TOP,
    UNWRITTEN,
    VALUES,
    WRITTEN,
)
from .runtime_words import fail, inlined, peek8, peek16, peek32, peek64, plain, poke8, poke16, poke32, poke64, set_bytes, word

ALL_WRITTEN = int.from_bytes(bytes([ALLOCATED | WRITTEN]) * 8, "little")
ALL_ALLOCATED = int.from_bytes(bytes([ALLOCATED]) * 8, "little")
ANY_COPYING = int.from_bytes(bytes([COPYING]) * 8, "little")
NOT_TO_WRITE = int.from_bytes(bytes([COPYING | CONSTANT]) * 8, "little")


@inlined
def group_of(launch, space):
    """Where a space's words lie in the launch."""
    return launch + 8 * (SPACES + GROUP * space)


@inlined
def space_at(space, address):
    """Global, shared or local, for a generic address too."""
    if space != GENERIC:
        return space
    if address < SHARED_WINDOW:
        return GLOBAL
    return SHARED if address < LOCAL_WINDOW else LOCAL


@inlined
def offset_of(space, address, generic):
    """The place of an address in its space, counted from the space's beginning."""
    if space == GLOBAL:
        return address - DEVICE_BASE
    if space == SHARED:
        return address - SHARED_WINDOW if generic else address
    return address - LOCAL_WINDOW if generic else address


@plain
def check(launch, group, space, offset, size, thread, instruction, writes, address):
    """Bounds, alignment and state of one lane's access. `writes`: 0, 1, or 2 for an atomic, which reads, too. Returns the offset in the
    space's memory, or -1."""
    if offset < 0 or offset + size > word(group, TOP):
        fail(launch, BOUNDS, instruction, thread, address, size, space, writes)
        return -1
    if space == LOCAL:
        offset += thread * word(group, TOP)
    states = word(group, STATE) + offset
    wanted, unwanted = ALL_ALLOCATED if writes == 1 else ALL_WRITTEN, NOT_TO_WRITE if writes else ANY_COPYING
    if not quick(states, size, wanted, unwanted) and not each_byte(launch, states, space, size, thread, instruction, writes, address):
        return -1
    if address & (size - 1):
        fail(launch, ALIGNMENT, instruction, thread, address, size, space, writes)
        return -1
    return offset


@plain
def own(warp, mask, size):
    """A local array begins: nothing is written there yet (Numba's zeros come once, not where the array is made), beside it is nothing."""
    group = group_of(word(warp, LAUNCH), LOCAL)
    for lane in range(32):
        if mask >> lane & 1:
            offset = (word(warp, FIRST_THREAD) + lane) * word(group, TOP) + peek64(warp + ADDRESSES + 8 * lane) - LOCAL_WINDOW
            states = word(group, STATE) + offset
            set_bytes(states - APART, 0, APART)
            set_bytes(states, ALLOCATED, size)
            set_bytes(states + size, 0, -size % 16 + APART)


@plain
def within(warp, mask, axis, instruction):
    """Each lane's index is less than the size of the axis."""
    for lane in range(32):
        index, size = peek64(warp + VALUES + 8 * lane), peek64(warp + VALUES + 256 + 8 * lane)
        if mask >> lane & 1 and not 0 <= index < size:
            array = peek64(warp + VALUES + 512 + 8 * lane)
            fail(word(warp, LAUNCH), INDEX_FAULT, instruction, word(warp, FIRST_THREAD) + lane, array, index, axis, size)


@inlined
def quick(states, size, wanted, unwanted):
    """Whether all bytes are as wanted, looked at together."""
    if size == 4:
        state = np.int64(peek32(states))
        return state & wanted & 0xFFFFFFFF == wanted & 0xFFFFFFFF and state & unwanted & 0xFFFFFFFF == 0
    if size == 8:
        return peek64(states) & (wanted | unwanted) == wanted
    if size == 16:
        return peek64(states) & (wanted | unwanted) == wanted and peek64(states + 8) & (wanted | unwanted) == wanted
    return False


@plain
def each_byte(launch, states, space, size, thread, instruction, writes, address):
    """Byte by byte, to say what is wrong."""
    for k in range(size):
        state = peek8(states + k)
        if state & ALLOCATED == 0:
            fail(launch, BOUNDS, instruction, thread, address, size, space, writes)
            return False
        if state & COPYING:
            fail(launch, STILL_COPYING, instruction, thread, address, size, space, writes)
            return False
        if writes and state & CONSTANT:
            fail(launch, READ_ONLY, instruction, thread, address, size, space, writes)
            return False
        if writes != 1 and state & WRITTEN == 0:
            fail(launch, UNWRITTEN, instruction, thread, address, size, space, k)
            return False
    return True


@inlined
def copy_number(to, source, size):
    if size == 4:
        poke32(to, peek32(source))
    elif size == 8:
        poke64(to, peek64(source))
    elif size == 2:
        poke16(to, peek16(source))
    else:
        poke8(to, peek8(source))
