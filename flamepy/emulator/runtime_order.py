"""What threads know of each other's accesses: what was fenced, and what a barrier of the warp or of some warps brings.

Everything here costs nothing where a kernel has neither fences nor named barriers.
"""

from . import layout
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
def row_of(launch, block, reads):
    """Where the times of a block lie up to which its writes, or its reads, are published: that of the block, then those of its threads."""
    return word(launch, layout.PUBLISHED) + 8 * (2 * block + reads) * (word(launch, layout.THREADS) + 1)


@inlined
def raise_to(at, time):
    poke64(at, max(peek64(at), time))


@plain
def publish(launch, warp, mask, reads):
    """Lanes make a fence: it holds for what they did, and for what barriers have ordered before them. reads: whether for what was read, not
    for what was written; that is done, too, when lanes only meet."""
    row, first = row_of(launch, word(launch, layout.BLOCK_NOW), reads), word(warp, layout.FIRST_THREAD)
    raise_to(row, word(launch, layout.BARRIER_PHASE) * layout.SYNC_TURNS)
    for other in range(32):
        if word(warp, layout.EXISTS) >> other & 1:
            time = max(word(warp, layout.ALL_SYNCED), word(warp, layout.MET) if reads else 0)
            if mask >> other & 1:
                time = (word(launch, layout.PHASE) + 1) * layout.SYNC_TURNS
            else:
                for lane in range(32):
                    if mask >> lane & 1:
                        time = max(time, peek64(known(warp, layout.MET_OF if reads else layout.KNOWN, lane, other)))
            raise_to(row + 8 * (1 + first + other), time)
    for index in range(word(launch, layout.WARPS)):
        heard = peek64(at_lane(warp, layout.HEARD, index))
        if heard:
            for thread in range(32 * index, min(32 * index + 32, word(launch, layout.THREADS))):
                raise_to(row + 8 * (1 + thread), heard * layout.SYNC_TURNS)


@plain
def block_of(launch, phase):
    """The block that ran in this phase."""
    block, blocks = word(launch, layout.BLOCK_NOW), word(launch, layout.BLOCKS)
    if phase < word(launch, layout.BLOCK_PHASE):  # the last block that began before
        low, high = 0, word(launch, layout.STEPS)
        while high - low > 1:
            middle = (low + high) >> 1
            at = blocks - 1 - middle if word(launch, layout.ORDER) == 2 else middle
            if peek32(word(launch, layout.STARTS) + 4 * at) <= phase:
                low = middle
            else:
                high = middle
        block = blocks - 1 - low if word(launch, layout.ORDER) == 2 else low
    return block


@plain
def published(launch, block, thread, reads):
    """Up to when what this thread did has been fenced by itself or by one that knew of it."""
    row = row_of(launch, block, reads)
    return max(peek64(row), peek64(row + 8 * (1 + thread)))


@plain
def share_fences(launch, warp, lanes):
    """Lanes of a warp met at a barrier: what one acquired and fenced, all have."""
    if word(launch, layout.FENCE_SEEN):
        for which in (layout.ACQUIRED, layout.FENCED, layout.FENCED_HERE):
            most = 0
            for lane in range(32):
                if lanes >> lane & 1:
                    most = max(most, peek64(at_lane(warp, which, lane)))
            for lane in range(32):
                if lanes >> lane & 1:
                    poke64(at_lane(warp, which, lane), most)


@inlined
def pending(launch, barrier):
    return launch + 8 * (layout.PENDING + layout.PENDING_WORDS * barrier)


@plain
def tell_barrier(launch, warp, barrier, phase):
    """A barrier hears what a warp has done before this phase, and what that knows."""
    to = pending(launch, barrier)
    for index in range(word(launch, layout.WARPS)):
        raise_to(to + 8 * index, peek64(at_lane(warp, layout.HEARD, index)))
    raise_to(to + 8 * word(warp, layout.INDEX), phase)
    for k, which in enumerate((layout.ACQUIRED, layout.FENCED, layout.FENCED_HERE)):
        for lane in range(32):
            raise_to(to + 8 * (32 + k), peek64(at_lane(warp, which, lane)))
    barrier_row(launch, warp, barrier, False)


@plain
def hear(launch, warp, barrier, heard):
    """A warp leaves a barrier. heard: whether of some warps alone, which is kept for each."""
    source = pending(launch, barrier)
    if heard:
        for index in range(word(launch, layout.WARPS)):
            raise_to(at_lane(warp, layout.HEARD, index), peek64(source + 8 * index))
    for k, which in enumerate((layout.ACQUIRED, layout.FENCED, layout.FENCED_HERE)):
        for lane in range(32):
            poke64(at_lane(warp, which, lane), peek64(source + 8 * (32 + k)))
    barrier_row(launch, warp, barrier, True)


@plain
def arrive(launch, warp, barrier):
    """A warp tells a barrier that it came, and goes on: what it does from now on is not ordered."""
    set_word(launch, layout.PHASE, word(launch, layout.PHASE) + 1)
    tell_barrier(launch, warp, barrier, word(launch, layout.PHASE))


@plain
def join(launch, barrier, phase, everyone):
    """A barrier opens. everyone: all threads of the block wait at it."""
    if everyone and word(launch, layout.FENCE_SEEN) == 0:
        return
    for leaves in (False, True):
        for index in range(word(launch, layout.WARPS)):
            warp = word(launch, layout.WARP_BASE) + index * word(launch, layout.WARP_BYTES)
            if word(warp, layout.WAITING) and word(warp, layout.BARRIER) == barrier:
                if leaves:
                    hear(launch, warp, barrier, not everyone)
                else:
                    tell_barrier(launch, warp, barrier, phase)
    for k in range(layout.PENDING_WORDS):
        set_word(launch, layout.PENDING + layout.PENDING_WORDS * barrier + k, 0)
    empty_row(launch, layout.ROW_BARRIERS + barrier)
