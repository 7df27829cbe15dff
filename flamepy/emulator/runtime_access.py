"""Loads and stores of a warp: every lane's address is checked, and who touched what is recorded to find races.

What a warp touches is looked at as a whole, lanes together; only where that finds something, or races are watched for and the lanes' words
are no run, it goes lane by lane.
An access that is wrong is not done: the launch stops at the end of the basic block.
"""

import numpy as np

from . import layout
from .runtime_bytes import record_read, record_write
from .runtime_check import ALL_ALLOCATED, ALL_WRITTEN, ANY_COPYING, NOT_TO_WRITE, check, copy_number, group_of, offset_of, space_at
from .runtime_races import acquire, release_word
from .runtime_runs import read_run, write_run
from .runtime_words import inlined, peek8, peek32, peek64, plain, poke8, poke32, poke64, set_word, word


@inlined
def is_run(warp, step):
    """Whether the lanes' addresses follow each other."""
    first = peek64(warp + layout.ADDRESSES)
    differs = 0
    for lane in range(32):
        differs |= peek64(warp + layout.ADDRESSES + 8 * lane) ^ (first + step * lane)
    return differs == 0


@inlined
def run_is_right(states, span, wanted, unwanted):
    """Whether all bytes from here on have these bits, and none of those. `span`: a multiple of 4."""
    last = np.int64(peek32(states + span - 4)) & layout.FULL
    both, either = last | last << 32, last
    for k in range(0, span - 4, 8):
        state = peek64(states + k)
        both &= state
        either |= state
    return both & wanted == wanted and either & unwanted == 0


@inlined
def lanes_are_right(warp, states, step, wanted, unwanted):
    """The same of the bytes that lanes touch, and not of those between. `states`: what to add to an address."""
    both, either = -1, 0
    for lane in range(32):
        at = states + peek64(warp + layout.ADDRESSES + 8 * lane)
        for k in range(0, step, 4):
            state = np.int64(peek32(at + k)) & layout.FULL
            both &= state
            either |= state
    return both & wanted & layout.FULL == wanted & layout.FULL and either & unwanted == 0


@inlined
def reach(launch, warp, mask, step, space, wanted, unwanted):
    """(whether these lanes may touch what they do, all in one space, in bytes with these bits and none of those; the space's words; the
    place of the lowest address; what to add to an address to get its place). Lanes that take no part get the address of one that does."""
    first = 0
    while not mask >> first & 1:
        first += 1
    first = peek64(warp + layout.ADDRESSES + 8 * first)
    low, high, bits = first, first, 0
    for lane in range(32):
        address = peek64(warp + layout.ADDRESSES + 8 * lane) if mask >> lane & 1 else first
        poke64(warp + layout.ADDRESSES + 8 * lane, address)
        low, high, bits = min(low, address), max(high, address), bits | address
    where = space_at(space, low)
    group, offset, span = group_of(launch, where), offset_of(where, low, space == layout.GENERIC), high - low + step
    right = where != layout.LOCAL and space_at(space, high) == where and 0 <= offset <= word(group, layout.TOP) - step - (high - low)
    right = right and bits & (step - 1) == 0
    states = word(group, layout.STATE) + offset
    if right and (span > 64 * step or not run_is_right(states, span, wanted, unwanted)):
        right = lanes_are_right(warp, states - low, step, wanted, unwanted)
    return right, group, offset, offset - low


@plain
def load_quick(launch, warp, mask, size, count, instruction, space):
    """All lanes at once. False where something needs a closer look: an address, or who else touches the same when races are watched for."""
    step = size * count
    right, group, offset, place = reach(launch, warp, mask, step, space, ALL_WRITTEN, ANY_COPYING)
    if right and word(launch, layout.WATCHING):
        right = mask == layout.FULL and is_run(warp, step) and read_run(launch, warp, group, offset, step, instruction)
    if not right:
        return False
    source = word(group, layout.HOST) + place
    for k in range(count):
        to = warp + layout.VALUES + 256 * k
        if size == 4:
            for lane in range(32):
                poke32(to + 4 * lane, peek32(source + peek64(warp + layout.ADDRESSES + 8 * lane) + 4 * k))
        else:
            for lane in range(32):
                poke64(to + 8 * lane, peek64(source + peek64(warp + layout.ADDRESSES + 8 * lane) + 8 * k))
    return True


@plain
def store_quick(launch, warp, mask, size, count, instruction, space):
    """The same the other way."""
    step = size * count
    right, group, offset, place = reach(launch, warp, mask, step, space, ALL_ALLOCATED, NOT_TO_WRITE)
    if right and word(launch, layout.WATCHING):
        right = mask == layout.FULL and is_run(warp, step) and write_run(launch, warp, group, offset, step, instruction)
    if not right:
        return False
    for lane in range(32):
        if mask >> lane & 1:
            to = place + peek64(warp + layout.ADDRESSES + 8 * lane)
            for k in range(count):
                copy_number(word(group, layout.HOST) + to + size * k, warp + layout.VALUES + 256 * k + size * lane, size)
            for at in range(word(group, layout.STATE) + to, word(group, layout.STATE) + to + step, 4):
                poke32(at, peek32(at) | layout.WRITTEN * 0x01010101)
    return True


@plain
def load(warp, mask, size, count, instruction, space, strong):
    """ld: `count` numbers of `size` bytes for each lane of the mask, from ADDRESSES to VALUES. strong: 1 for a read that sees what others
    do meanwhile, 2 for one that an atomic compares afterwards, which is no race with atomics."""
    launch = word(warp, layout.LAUNCH)
    closer = strong == 1 or (strong and word(launch, layout.WATCHING)) or size < 4
    if mask and (closer or not load_quick(launch, warp, mask, size, count, instruction, space)):
        load_lanes(launch, warp, mask, size, count, instruction, space, strong)


@inlined
def load_lanes(launch, warp, mask, size, count, instruction, space, strong):
    """All lanes that read one place at a time; local memory is each lane's own."""
    left = mask
    for lane in range(32):
        if left >> lane & 1:
            address, same = peek64(warp + layout.ADDRESSES + 8 * lane), 0
            for other in range(32):
                same |= (peek64(warp + layout.ADDRESSES + 8 * other) == address) << other
            same = 1 << lane if space_at(space, address) == layout.LOCAL else same & left
            load_place(launch, warp, lane, same, size, count, instruction, space, strong)
            left &= ~same


@plain
def load_place(launch, warp, first, lanes, size, count, instruction, space, strong):
    """These lanes, of which one is the `first`, read from one address."""
    address = peek64(warp + layout.ADDRESSES + 8 * first)
    where = space_at(space, address)
    group = group_of(launch, where)
    thread = word(warp, layout.FIRST_THREAD) + first
    offset = offset_of(where, address, space == layout.GENERIC)
    offset = check(launch, group, where, offset, size * count, thread, instruction, 0, address)
    if offset < 0:
        return
    if where != layout.LOCAL:
        if strong == 1:
            set_word(warp, layout.POLLED, 1)
            for lane in range(32):
                if lanes >> lane & 1:
                    acquire(warp, lane, group, offset)
        record_read(launch, warp, group, offset, size * count, thread, lanes, instruction, strong > 0, address)
    source = word(group, layout.HOST) + offset
    for lane in range(32):
        if lanes >> lane & 1:
            for k in range(count):
                copy_number(warp + layout.VALUES + 256 * k + size * lane, source + k * size, size)


@plain
def store(warp, mask, size, count, instruction, space, strong):
    """st: the same the other way."""
    launch = word(warp, layout.LAUNCH)
    set_word(launch, layout.CHANGED, 1)
    if mask and not strong and size >= 4 and store_quick(launch, warp, mask, size, count, instruction, space):
        return
    for lane in range(32):
        if mask >> lane & 1:
            store_lane(launch, warp, lane, size, count, instruction, space, strong)


@plain
def store_lane(launch, warp, lane, size, count, instruction, space, strong):
    address = peek64(warp + layout.ADDRESSES + 8 * lane)
    where = space_at(space, address)
    group = group_of(launch, where)
    thread = word(warp, layout.FIRST_THREAD) + lane
    offset = offset_of(where, address, space == layout.GENERIC)
    offset = check(launch, group, where, offset, size * count, thread, instruction, 1, address)
    if offset < 0:
        return
    to = word(group, layout.HOST) + offset
    same = 1
    for k in range(count):
        for byte in range(size):
            if peek8(to + k * size + byte) != peek8(warp + layout.VALUES + 256 * k + size * lane + byte):
                same = 0
    if where != layout.LOCAL:
        if strong:
            release_word(warp, lane, group, offset)
        record_write(launch, warp, group, offset, size * count, thread, instruction, strong, same, address)
    for k in range(count):
        copy_number(to + k * size, warp + layout.VALUES + 256 * k + size * lane, size)
    mark_written(word(group, layout.STATE) + offset, size * count)


@inlined
def mark_written(states, size):
    for k in range(size):
        poke8(states + k, peek8(states + k) | layout.WRITTEN)
