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

from . import layout
from .runtime_barriers import stands_at
from .runtime_check import group_of
from .runtime_heard import hear_word, heard_of, tell_word
from .runtime_order import at_lane, block_of, known, publish, published
from .runtime_words import fail, inlined, peek64, plain, poke64, set_word, word


@inlined
def record(launch, warp, thread, instruction, bytes_, strong):
    low = (bytes_ << layout.R_BYTES) | (strong << layout.R_ATOMIC) | instruction
    return (word(launch, layout.PHASE) << layout.R_PHASE) | (thread << layout.R_THREAD) | (word(warp, layout.SYNCED) << layout.R_SYNC) | low


@inlined
def time_of(old):
    return (old >> layout.R_PHASE) * layout.SYNC_TURNS + (old >> layout.R_SYNC & (layout.SYNC_TURNS - 1))


@inlined
def conflict(launch, warp, group, old, new, since, reads):
    """Whether an earlier access and this one are unordered. The caller knows that one of them is a write. since: in one warp, all before
    this time is ordered. reads: whether the earlier one is a read."""
    phase = old >> layout.R_PHASE
    if phase < word(group, layout.FIRST) or (old & new) >> layout.R_BYTES & 15 == 0 or (old & new) >> layout.R_ATOMIC & 1:
        return False
    thread, mine = old >> layout.R_THREAD & 1023, new >> layout.R_THREAD & 1023
    time = time_of(old)
    if phase <= peek64(at_lane(warp, layout.ACQUIRED, mine & 31)):
        block = block_of(launch, phase)
        if time < min(published(launch, block, thread, reads), heard_of(launch, warp, block, thread)):
            return False
    if phase < word(launch, layout.BLOCK_PHASE):
        return True
    if phase < word(launch, layout.BARRIER_PHASE) or thread == mine:
        return False
    if thread >> 5 != mine >> 5:
        return phase >= peek64(at_lane(warp, layout.HEARD, thread >> 5))
    return time >= max(since, peek64(known(warp, layout.KNOWN, mine & 31, thread & 31)))


@plain
def fence(warp, mask, here):
    """What these lanes have done so far is known to whoever sees an atomic that they do from now on; `here`: in their own block."""
    if mask:
        launch = word(warp, layout.LAUNCH)
        set_word(launch, layout.FENCE_SEEN, 1)
        for lane in range(32):
            if mask >> lane & 1:
                poke64(at_lane(warp, layout.FENCED_HERE, lane), word(launch, layout.PHASE))
                if not here:
                    poke64(at_lane(warp, layout.FENCED, lane), word(launch, layout.PHASE))
        for reads in range(2):
            publish(launch, warp, mask, reads)
        set_word(launch, layout.PHASE, word(launch, layout.PHASE) + 1)


@inlined
def acquire(warp, lane, group, offset):
    """A lane sees a word that others may have released; in shared memory, those of its block: what an earlier one left there is gone."""
    launch, released = word(warp, layout.LAUNCH), peek64(word(group, layout.RELEASED) + 8 * (offset >> 2))
    shared = int(group == group_of(launch, layout.SHARED))
    here = released >> 32 if released >> 32 >= word(launch, layout.BLOCK_PHASE) else 0
    seen = here if shared else max(released & layout.FULL, here)
    if seen:
        poke64(at_lane(warp, layout.ACQUIRED, lane), max(peek64(at_lane(warp, layout.ACQUIRED, lane)), seen))
        hear_word(warp, shared, offset)


@inlined
def release_word(warp, lane, group, offset):
    """A lane writes atomically: what it did before its fence, others know who see this."""
    fenced, here = peek64(at_lane(warp, layout.FENCED, lane)), peek64(at_lane(warp, layout.FENCED_HERE, lane))
    if here:
        at = word(group, layout.RELEASED) + 8 * (offset >> 2)
        poke64(at, max(peek64(at) & layout.FULL, fenced) | max(peek64(at) >> 32, here) << 32)
        tell_word(warp, lane, int(group == group_of(word(warp, layout.LAUNCH), layout.SHARED)), offset)


@inlined
def limits(launch, group):
    """The oldest records that can matter: of this launch, of this block, since its last barrier."""
    return (
        word(group, layout.FIRST) << layout.R_PHASE,
        word(launch, layout.BLOCK_PHASE) << layout.R_PHASE,
        word(launch, layout.BARRIER_PHASE) << layout.R_PHASE,
    )


@inlined
def met_before(warp):
    """Until when what lanes of this warp have read is ordered before what any of them writes."""
    return max(word(warp, layout.MET), word(warp, layout.ALL_SYNCED))


@inlined
def bytes_of(offset, size, k):
    """Which bytes of the k-th word an access touches."""
    if size >= 4:
        return 15
    return ((1 << size) - 1) << (offset & 3)


@plain
def tell(launch, old, new, code, detail, address):
    if word(launch, layout.FORGIVING):
        if word(launch, layout.FORGIVING) == 1:
            set_word(launch, layout.FORGIVING, 2)
            set_word(launch, layout.RACED_AT, new & layout.R_INSTRUCTIONS)
            set_word(launch, layout.STOOD_AT, stands_at(launch, old >> layout.R_THREAD & 1023))
        return
    fail(
        launch, code, new & layout.R_INSTRUCTIONS, new >> layout.R_THREAD & 1023, address, detail | (old >> layout.R_PHASE) << 8,
        old & layout.R_INSTRUCTIONS, old >> layout.R_THREAD & 1023,
    )  # fmt: skip
