"""One lane's access: which memory its address lies in, and whether it may touch those bytes."""

import numpy as np

from . import layout
from .runtime_words import fail, inlined, peek8, peek16, peek32, peek64, plain, poke8, poke16, poke32, poke64, set_bytes, word

ALL_WRITTEN = int.from_bytes(bytes([layout.ALLOCATED | layout.WRITTEN]) * 8, "little")
ALL_ALLOCATED = int.from_bytes(bytes([layout.ALLOCATED]) * 8, "little")
ANY_COPYING = int.from_bytes(bytes([layout.COPYING]) * 8, "little")
NOT_TO_WRITE = int.from_bytes(bytes([layout.COPYING | layout.CONSTANT]) * 8, "little")


@inlined
def group_of(launch, space):
    """Where a space's words lie in the launch."""
    return launch + 8 * (layout.SPACES + layout.GROUP * space)


@inlined
def space_at(space, address):
    """Global, shared or local, for a generic address too."""
    if space != layout.GENERIC:
        return space
    if address < layout.SHARED_WINDOW:
        return layout.GLOBAL
    return layout.SHARED if address < layout.LOCAL_WINDOW else layout.LOCAL


@inlined
def offset_of(space, address, generic):
    """The place of an address in its space, counted from the space's beginning."""
    if space == layout.GLOBAL:
        return address - layout.DEVICE_BASE
    if space == layout.SHARED:
        return address - layout.SHARED_WINDOW if generic else address
    return address - layout.LOCAL_WINDOW if generic else address


@plain
def check(launch, group, space, offset, size, thread, instruction, writes, address):
    """Bounds, alignment and state of one lane's access. `writes`: 0, 1, or 2 for an atomic, which reads, too. Returns the offset in the
    space's memory, or -1."""
    if offset < 0 or offset > word(group, layout.TOP) - size:
        fail(launch, layout.BOUNDS, instruction, thread, address, size, space, writes)
        return -1
    if space == layout.LOCAL:
        offset += thread * word(group, layout.TOP)
    states = word(group, layout.STATE) + offset
    wanted, unwanted = ALL_ALLOCATED if writes == 1 else ALL_WRITTEN, NOT_TO_WRITE if writes else ANY_COPYING
    if not quick(states, size, wanted, unwanted) and not each_byte(launch, states, space, size, thread, instruction, writes, address):
        return -1
    if address & (size - 1):
        fail(launch, layout.ALIGNMENT, instruction, thread, address, size, space, writes)
        return -1
    return offset


@plain
def own(warp, mask, size):
    """A local array begins: nothing is written there yet (Numba's zeros come once, not where the array is made), beside it is nothing."""
    group = group_of(word(warp, layout.LAUNCH), layout.LOCAL)
    for lane in range(32):
        if mask >> lane & 1:
            offset = (
                (word(warp, layout.FIRST_THREAD) + lane) * word(group, layout.TOP)
                + peek64(warp + layout.ADDRESSES + 8 * lane)
                - layout.LOCAL_WINDOW
            )
            states = word(group, layout.STATE) + offset
            set_bytes(states - layout.APART, 0, layout.APART)
            set_bytes(states, layout.ALLOCATED, size)
            set_bytes(states + size, 0, -size % 16 + layout.APART)


@plain
def within(warp, mask, axis, instruction):
    """Each lane's index is less than the size of the axis."""
    for lane in range(32):
        index, size = peek64(warp + layout.VALUES + 8 * lane), peek64(warp + layout.VALUES + 256 + 8 * lane)
        if mask >> lane & 1 and not 0 <= index < size:
            array = peek64(warp + layout.VALUES + 512 + 8 * lane)
            fail(
                word(warp, layout.LAUNCH), layout.INDEX_FAULT, instruction, word(warp, layout.FIRST_THREAD) + lane, array, index, axis, size
            )


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
        if state & layout.ALLOCATED == 0:
            fail(launch, layout.BOUNDS, instruction, thread, address, size, space, writes)
            return False
        if state & layout.COPYING:
            fail(launch, layout.STILL_COPYING, instruction, thread, address, size, space, writes)
            return False
        if writes and state & layout.CONSTANT:
            fail(launch, layout.READ_ONLY, instruction, thread, address, size, space, writes)
            return False
        if writes != 1 and state & layout.WRITTEN == 0:
            fail(launch, layout.UNWRITTEN, instruction, thread, address, size, space, k)
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
