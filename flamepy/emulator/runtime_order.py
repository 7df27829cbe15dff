"""What threads know of each other's accesses: what was fenced, and what a barrier of the warp or of some warps brings.

Everything here costs nothing where a kernel has neither fences nor named barriers.
"""

from __future__ import annotations

from .layout import (
    ACQUIRED,
    BARRIER,
    BARRIER_PHASE,
    BLOCK_NOW,
    BLOCK_PHASE,
    BLOCKS,
    EXISTS,
    FENCE_SEEN,
    FENCED,
    FENCED_HERE,
    FIRST_THREAD,
    HEARD,
    INDEX,
    KNOWN,
    MET_OF,
    ORDER,
    PENDING,
    PENDING_WORDS,
    PHASE,
    PUBLISHED,
    ROW_BARRIERS,
    STARTS,
    STEPS,
    SYNC_TURNS,
    THREADS,
    WAITING,
    WARP_BASE,
    WARP_BYTES,
    WARPS,
)
from .runtime_heard import barrier_row, empty_row
from .runtime_words import inlined, peek32, peek64, plain, poke64, set_word, word


@inlined
def known(warp, which, lane, other):
    """Where a warp keeps up to when a lane knows what another one has done (KNOWN), or has read (MET_OF)."""
    return warp + which + 256 * lane + 8 * other


@inlined
def at_lane(warp, which, lane):
    """Where a number of a lane lies, of those that are kept for each."""
    return warp + which + 8 * lane


@inlined
def row_of(launch, block):
    """Where the times of a block lie up to which its accesses are published: that of the block, then those of its threads."""
    return word(launch, PUBLISHED) + 8 * block * (word(launch, THREADS) + 1)


@inlined
def raise_to(at, time):
    poke64(at, max(peek64(at), time))


@plain
def publish(launch, warp, mask, met):
    """Lanes make a fence: it holds for what they did, and for what barriers have ordered before them, up to `met` in their warp."""
    row, first = row_of(launch, word(launch, BLOCK_NOW)), word(warp, FIRST_THREAD)
    raise_to(row, word(launch, BARRIER_PHASE) * SYNC_TURNS)
    for other in range(32):
        if word(warp, EXISTS) >> other & 1:
            time = met
            if mask >> other & 1:
                time = (word(launch, PHASE) + 1) * SYNC_TURNS
            else:
                for lane in range(32):
                    if mask >> lane & 1:
                        time = max(time, peek64(known(warp, KNOWN, lane, other)), peek64(known(warp, MET_OF, lane, other)))
            raise_to(row + 8 * (1 + first + other), time)
    for index in range(word(launch, WARPS)):
        heard = peek64(at_lane(warp, HEARD, index))
        if heard:
            for thread in range(32 * index, min(32 * index + 32, word(launch, THREADS))):
                raise_to(row + 8 * (1 + thread), heard * SYNC_TURNS)


@plain
def block_of(launch, phase):
    """The block that ran in this phase."""
    block, blocks = word(launch, BLOCK_NOW), word(launch, BLOCKS)
    if phase < word(launch, BLOCK_PHASE):  # the last block that began before
        low, high = 0, word(launch, STEPS)
        while high - low > 1:
            middle = (low + high) >> 1
            at = blocks - 1 - middle if word(launch, ORDER) == 2 else middle
            if peek32(word(launch, STARTS) + 4 * at) <= phase:
                low = middle
            else:
                high = middle
        block = blocks - 1 - low if word(launch, ORDER) == 2 else low
    return block


@plain
def published(launch, block, thread):
    """Up to when what this thread did has been fenced by itself or by one that knew of it."""
    row = row_of(launch, block)
    return max(peek64(row), peek64(row + 8 * (1 + thread)))


@plain
def share_fences(launch, warp, lanes):
    """Lanes of a warp met at a barrier: what one acquired and fenced, all have."""
    if word(launch, FENCE_SEEN):
        for which in (ACQUIRED, FENCED, FENCED_HERE):
            most = 0
            for lane in range(32):
                if lanes >> lane & 1:
                    most = max(most, peek64(at_lane(warp, which, lane)))
            for lane in range(32):
                if lanes >> lane & 1:
                    poke64(at_lane(warp, which, lane), most)


@inlined
def pending(launch, barrier):
    return launch + 8 * (PENDING + PENDING_WORDS * barrier)


@plain
def tell_barrier(launch, warp, barrier, phase):
    """A barrier hears what a warp has done before this phase, and what that knows."""
    to = pending(launch, barrier)
    for index in range(word(launch, WARPS)):
        raise_to(to + 8 * index, peek64(at_lane(warp, HEARD, index)))
    raise_to(to + 8 * word(warp, INDEX), phase)
    for k, which in enumerate((ACQUIRED, FENCED, FENCED_HERE)):
        for lane in range(32):
            raise_to(to + 8 * (32 + k), peek64(at_lane(warp, which, lane)))
    barrier_row(launch, warp, barrier, False)


@plain
def hear(launch, warp, barrier, heard):
    """A warp leaves a barrier. heard: whether of some warps alone, which is kept for each."""
    source = pending(launch, barrier)
    if heard:
        for index in range(word(launch, WARPS)):
            raise_to(at_lane(warp, HEARD, index), peek64(source + 8 * index))
    for k, which in enumerate((ACQUIRED, FENCED, FENCED_HERE)):
        for lane in range(32):
            poke64(at_lane(warp, which, lane), peek64(source + 8 * (32 + k)))
    barrier_row(launch, warp, barrier, True)


@plain
def arrive(launch, warp, barrier):
    """A warp tells a barrier that it came, and goes on: what it does from now on is not ordered."""
    set_word(launch, PHASE, word(launch, PHASE) + 1)
    tell_barrier(launch, warp, barrier, word(launch, PHASE))


@plain
def join(launch, barrier, phase, everyone):
    """A barrier opens. everyone: all threads of the block wait at it."""
    if everyone and word(launch, FENCE_SEEN) == 0:
        return
    for leaves in (False, True):
        for index in range(word(launch, WARPS)):
            warp = word(launch, WARP_BASE) + index * word(launch, WARP_BYTES)
            if word(warp, WAITING) and word(warp, BARRIER) == barrier:
                if leaves:
                    hear(launch, warp, barrier, not everyone)
                else:
                    tell_barrier(launch, warp, barrier, phase)
    for k in range(PENDING_WORDS):
        set_word(launch, PENDING + PENDING_WORDS * barrier + k, 0)
    empty_row(launch, ROW_BARRIERS + barrier)
