"""Loads and stores of a warp: every lane's address is checked, and who touched what is recorded to find races.

A whole warp that touches a run of memory takes the fast path: the checks are loops that vectorise. Everything else goes lane by lane.
An access that is wrong is not done: the launch stops at the end of the basic block.
"""

from __future__ import annotations

from .layout import (
    ADDRESSES,
    CHANGED,
    DEVICE_BASE,
    FIRST_THREAD,
    FULL,
    GENERIC,
    GLOBAL,
    HOST,
    LAUNCH,
    LOCAL,
    POLLED,
    STATE,
    TOP,
    VALUES,
    WATCHING,
    WRITTEN,
)
from .runtime_bytes import record_read, record_write
from .runtime_check import ALL_ALLOCATED, ALL_WRITTEN, ANY_COPYING, NOT_TO_WRITE, check, copy_number, group_of, offset_of, quick, space_at
from .runtime_races import acquire, release_word
from .runtime_runs import read_run, write_run
from .runtime_words import inlined, peek8, peek32, peek64, plain, poke8, poke32, poke64, set_word, word


@inlined
def is_run(warp, step):
    """Whether the lanes' addresses follow each other."""
    first = peek64(warp + ADDRESSES)
    differs = 0
    for lane in range(32):
        differs |= peek64(warp + ADDRESSES + 8 * lane) ^ (first + step * lane)
    return differs == 0


@inlined
def states_are(states, count, wanted, unwanted):
    """Whether all bytes have these bits, and none of those."""
    both, either = -1, 0
    for k in range(0, count, 8):
        state = peek64(states + k)
        both &= state
        either |= state
    return both & wanted == wanted and either & unwanted == 0


@plain
def load_run(launch, warp, group, offset, size, count, instruction):
    """The whole warp reads a run. False where something needs a closer look."""
    step = size * count
    states = word(group, STATE) + offset
    if not states_are(states, 32 * step, ALL_WRITTEN, ANY_COPYING):
        return False
    if word(launch, WATCHING) and not read_run(launch, warp, group, offset, step, instruction):
        return False
    source = word(group, HOST) + offset
    for k in range(count):
        to = warp + VALUES + 256 * k
        if size == 4:
            for lane in range(32):
                poke32(to + 4 * lane, peek32(source + step * lane + 4 * k))
        else:
            for lane in range(32):
                poke64(to + 8 * lane, peek64(source + step * lane + 8 * k))
    return True


@plain
def store_run(launch, warp, group, offset, size, count, instruction):
    """The whole warp writes a run. False where something needs a closer look."""
    step = size * count
    states = word(group, STATE) + offset
    if not states_are(states, 32 * step, ALL_ALLOCATED, NOT_TO_WRITE):
        return False
    if word(launch, WATCHING) and not write_run(launch, warp, group, offset, step, instruction):
        return False
    to = word(group, HOST) + offset
    for k in range(count):
        source = warp + VALUES + 256 * k
        if size == 4:
            for lane in range(32):
                poke32(to + step * lane + 4 * k, peek32(source + 4 * lane))
        else:
            for lane in range(32):
                poke64(to + step * lane + 8 * k, peek64(source + 8 * lane))
    mark_run(states, 32 * step)
    return True


@inlined
def place_of(launch, group, space, address, size, wanted, unwanted):
    """The offset of one lane's access, or -1 where something needs a closer look."""
    offset = address - DEVICE_BASE if space == GLOBAL else address
    if offset < 0 or offset + size > word(group, TOP) or address & (size - 1):
        return -1
    return offset if quick(word(group, STATE) + offset, size, wanted, unwanted) else -1


@plain
def load_unwatched(launch, warp, mask, size, count, space):
    """Nobody records who reads. False where something needs a closer look."""
    if size < 4 or space >= LOCAL or word(launch, WATCHING):
        return False
    group = group_of(launch, space)
    for lane in range(32):
        if mask >> lane & 1:
            offset = place_of(launch, group, space, peek64(warp + ADDRESSES + 8 * lane), size * count, ALL_WRITTEN, ANY_COPYING)
            if offset < 0:
                return False
            source = word(group, HOST) + offset
            for k in range(count):
                copy_number(warp + VALUES + 256 * k + size * lane, source + k * size, size)
    return True


@plain
def store_unwatched(launch, warp, mask, size, count, space):
    """Nobody records who writes. False where something needs a closer look: lanes before that have written what they write again."""
    if size < 4 or space >= LOCAL or word(launch, WATCHING):
        return False
    group = group_of(launch, space)
    for lane in range(32):
        if mask >> lane & 1:
            offset = place_of(launch, group, space, peek64(warp + ADDRESSES + 8 * lane), size * count, ALL_ALLOCATED, NOT_TO_WRITE)
            if offset < 0:
                return False
            for k in range(count):
                copy_number(word(group, HOST) + offset + k * size, warp + VALUES + 256 * k + size * lane, size)
            for at in range(word(group, STATE) + offset, word(group, STATE) + offset + size * count, 4):
                poke32(at, peek32(at) | WRITTEN * 0x01010101)
    return True


@inlined
def run_offset(launch, warp, mask, size, count, space):
    """The offset of a run that the whole warp touches, or -1."""
    step = size * count
    if mask != FULL or size < 4 or space >= LOCAL or not is_run(warp, step):
        return -1
    address = peek64(warp + ADDRESSES)
    offset = address - DEVICE_BASE if space == GLOBAL else address
    if offset < 0 or offset + 32 * step > word(group_of(launch, space), TOP) or address & (step - 1):
        return -1
    return offset


@plain
def load(warp, mask, size, count, instruction, space, strong):
    """ld: `count` numbers of `size` bytes for each lane of the mask, from ADDRESSES to VALUES. strong: 1 for a read that sees what others
    do meanwhile, 2 for one that an atomic compares afterwards, which is no race with atomics."""
    launch = word(warp, LAUNCH)
    offset = -1 if strong else run_offset(launch, warp, mask, size, count, space)
    if offset >= 0 and load_run(launch, warp, group_of(launch, space), offset, size, count, instruction):
        return
    if strong != 1 and load_unwatched(launch, warp, mask, size, count, space):
        return
    load_lanes(launch, warp, mask, size, count, instruction, space, strong)


@inlined
def load_lanes(launch, warp, mask, size, count, instruction, space, strong):
    """All lanes that read one place at a time; local memory is each lane's own."""
    left = mask
    for lane in range(32):
        if left >> lane & 1:
            address, same = peek64(warp + ADDRESSES + 8 * lane), 0
            for other in range(32):
                same |= (peek64(warp + ADDRESSES + 8 * other) == address) << other
            same = 1 << lane if space_at(space, address) == LOCAL else same & left
            load_place(launch, warp, lane, same, size, count, instruction, space, strong)
            left &= ~same


@plain
def load_place(launch, warp, first, lanes, size, count, instruction, space, strong):
    """These lanes, of which one is the `first`, read from one address."""
    address = peek64(warp + ADDRESSES + 8 * first)
    where = space_at(space, address)
    group = group_of(launch, where)
    thread = word(warp, FIRST_THREAD) + first
    offset = offset_of(group, where, address, thread, space == GENERIC)
    offset = check(launch, group, where, offset, size * count, thread, instruction, 0, address)
    if offset < 0:
        return
    if where != LOCAL:
        if strong == 1:
            set_word(warp, POLLED, 1)
            for lane in range(32):
                if lanes >> lane & 1:
                    acquire(warp, lane, group, offset)
        record_read(launch, warp, group, offset, size * count, thread, lanes, instruction, strong > 0, address)
    source = word(group, HOST) + offset
    for lane in range(32):
        if lanes >> lane & 1:
            for k in range(count):
                copy_number(warp + VALUES + 256 * k + size * lane, source + k * size, size)


@plain
def store(warp, mask, size, count, instruction, space, strong):
    """st: the same the other way."""
    launch = word(warp, LAUNCH)
    set_word(launch, CHANGED, 1)
    offset = -1 if strong else run_offset(launch, warp, mask, size, count, space)
    if offset >= 0 and store_run(launch, warp, group_of(launch, space), offset, size, count, instruction):
        return
    if not strong and store_unwatched(launch, warp, mask, size, count, space):
        return
    for lane in range(32):
        if mask >> lane & 1:
            store_lane(launch, warp, lane, size, count, instruction, space, strong)


@plain
def store_lane(launch, warp, lane, size, count, instruction, space, strong):
    address = peek64(warp + ADDRESSES + 8 * lane)
    where = space_at(space, address)
    group = group_of(launch, where)
    thread = word(warp, FIRST_THREAD) + lane
    offset = offset_of(group, where, address, thread, space == GENERIC)
    offset = check(launch, group, where, offset, size * count, thread, instruction, 1, address)
    if offset < 0:
        return
    to = word(group, HOST) + offset
    same = 1
    for k in range(count):
        for byte in range(size):
            if peek8(to + k * size + byte) != peek8(warp + VALUES + 256 * k + size * lane + byte):
                same = 0
    if where != LOCAL:
        if strong:
            release_word(warp, lane, group, offset)
        record_write(launch, warp, group, offset, size * count, thread, instruction, strong, same, address)
    for k in range(count):
        copy_number(to + k * size, warp + VALUES + 256 * k + size * lane, size)
    mark_written(word(group, STATE) + offset, size * count)


@inlined
def mark_written(states, size):
    for k in range(size):
        poke8(states + k, peek8(states + k) | WRITTEN)


@inlined
def mark_run(states, count):
    for k in range(0, count, 8):
        poke64(states + k, peek64(states + k) | ALL_WRITTEN)
