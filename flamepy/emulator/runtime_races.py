"""Who touched a word of memory, and whether two accesses of a launch are a race.

For each 4-byte word (or for each byte: runtime_bytes.py) two records are kept, its last writer and its last atomic writer (an atomic does
not order the plain write that it follows), and its readers (runtime_readers.py). Two accesses by different
threads, one of them a write, are in order if a barrier of the block lies between them, or, in one warp, a barrier of the warp whose mask
named both. (A shuffle or a vote is none: CUDA promises no order of memory for them. What was read before one is read, though.)
Otherwise, in one block or in two, only if the first made a fence and then an atomic on some word (it releases), and the second an atomic on
that word later (it acquires). That counts for a lane that acquires, not for its warp, and only for what was done by a thread that fenced
itself, or that a barrier orders before one that did (runtime_order.py), and that the one that released it knew of (runtime_heard.py).
A fence of the block is none for other blocks: each word has two such times, the second, of the block alone, in its upper half.
Phases are numbered through all launches, so a record of an earlier launch is known by its number; a barrier or a fence ends one.
"""

from __future__ import annotations

from .layout import (
    ACQUIRED,
    ALL_SYNCED,
    BARRIER_PHASE,
    BLOCK_PHASE,
    FENCE_SEEN,
    FENCED,
    FENCED_HERE,
    FIRST,
    FORGIVING,
    FULL,
    HEARD,
    KNOWN,
    LAUNCH,
    MET,
    PHASE,
    R_ATOMIC,
    R_BYTES,
    R_INSTRUCTIONS,
    R_PHASE,
    R_SYNC,
    R_THREAD,
    RACED_AT,
    RELEASED,
    SHARED,
    STOOD_AT,
    SYNC_TURNS,
    SYNCED,
)
from .runtime_barriers import stands_at
from .runtime_check import group_of
from .runtime_heard import hear_word, heard_of, tell_word
from .runtime_order import at_lane, block_of, known, publish, published
from .runtime_words import fail, inlined, peek64, plain, poke64, set_word, word


@inlined
def record(launch, warp, thread, instruction, bytes_, strong):
    low = (bytes_ << R_BYTES) | (strong << R_ATOMIC) | instruction
    return (word(launch, PHASE) << R_PHASE) | (thread << R_THREAD) | (word(warp, SYNCED) << R_SYNC) | low


@inlined
def time_of(old):
    return (old >> R_PHASE) * SYNC_TURNS + (old >> R_SYNC & (SYNC_TURNS - 1))


@inlined
def conflict(launch, warp, group, old, new, since):
    """Whether an earlier access and this one are unordered. The caller knows that one of them is a write. since: in one warp, all before
    this time is ordered."""
    phase = old >> R_PHASE
    if phase < word(group, FIRST) or (old & new) >> R_BYTES & 15 == 0 or (old & new) >> R_ATOMIC & 1:
        return False
    thread, mine = old >> R_THREAD & 1023, new >> R_THREAD & 1023
    time = time_of(old)
    if phase <= peek64(at_lane(warp, ACQUIRED, mine & 31)):
        block = block_of(launch, phase)
        if time < min(published(launch, block, thread), heard_of(launch, warp, block, thread)):
            return False
    if phase < word(launch, BLOCK_PHASE):
        return True
    if phase < word(launch, BARRIER_PHASE) or thread == mine:
        return False
    if thread >> 5 != mine >> 5:
        return phase >= peek64(at_lane(warp, HEARD, thread >> 5))
    return time >= max(since, peek64(known(warp, KNOWN, mine & 31, thread & 31)))


@plain
def fence(warp, mask, here):
    """What these lanes have done so far is known to whoever sees an atomic that they do from now on; `here`: in their own block."""
    if mask:
        launch = word(warp, LAUNCH)
        set_word(launch, FENCE_SEEN, 1)
        for lane in range(32):
            if mask >> lane & 1:
                poke64(at_lane(warp, FENCED_HERE, lane), word(launch, PHASE))
                if not here:
                    poke64(at_lane(warp, FENCED, lane), word(launch, PHASE))
        publish(launch, warp, mask, met_before(warp))
        set_word(launch, PHASE, word(launch, PHASE) + 1)


@inlined
def acquire(warp, lane, group, offset):
    """A lane sees a word that others may have released."""
    released = peek64(word(group, RELEASED) + 8 * (offset >> 2))
    here = released >> 32 if released >> 32 >= word(word(warp, LAUNCH), BLOCK_PHASE) else 0
    at = at_lane(warp, ACQUIRED, lane)
    poke64(at, max(peek64(at), released & FULL, here))
    if released:
        hear_word(warp, int(group == group_of(word(warp, LAUNCH), SHARED)), offset)


@inlined
def release_word(warp, lane, group, offset):
    """A lane writes atomically: what it did before its fence, others know who see this."""
    fenced, here = peek64(at_lane(warp, FENCED, lane)), peek64(at_lane(warp, FENCED_HERE, lane))
    if here:
        at = word(group, RELEASED) + 8 * (offset >> 2)
        poke64(at, max(peek64(at) & FULL, fenced) | max(peek64(at) >> 32, here) << 32)
        tell_word(warp, lane, int(group == group_of(word(warp, LAUNCH), SHARED)), offset)


@inlined
def limits(launch, group):
    """The oldest records that can matter: of this launch, of this block, since its last barrier."""
    return word(group, FIRST) << R_PHASE, word(launch, BLOCK_PHASE) << R_PHASE, word(launch, BARRIER_PHASE) << R_PHASE


@inlined
def met_before(warp):
    """Until when what lanes of this warp have read is ordered before what any of them writes."""
    return max(word(warp, MET), word(warp, ALL_SYNCED))


@inlined
def bytes_of(offset, size, k):
    """Which bytes of the k-th word an access touches."""
    if size >= 4:
        return 15
    return ((1 << size) - 1) << (offset & 3)


@plain
def tell(launch, old, new, code, detail, address):
    if word(launch, FORGIVING):
        if word(launch, FORGIVING) == 1:
            set_word(launch, FORGIVING, 2)
            set_word(launch, RACED_AT, new & R_INSTRUCTIONS)
            set_word(launch, STOOD_AT, stands_at(launch, old >> R_THREAD & 1023))
        return
    fail(
        launch, code, new & R_INSTRUCTIONS, new >> R_THREAD & 1023, address, detail | (old >> R_PHASE) << 8,
        old & R_INSTRUCTIONS, old >> R_THREAD & 1023,
    )  # fmt: skip
