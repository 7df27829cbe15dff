"""Who reads a word of memory, all of them: a writer has to be in order with each.

A word has a cell: a record, as of a writer, and the lanes of that warp that read it then; further cells follow it in a list, whose room
(POOL) all words share. A cell is free again when what it tells cannot matter any more: its lanes read the word again, or who reads now
stands for them, since a barrier of the block came, or they have met all others of their warp. In a kernel without fences and without
barriers of some warps nothing but a barrier of the block orders warps: there two readers of different warps, or one of an earlier block,
are enough, since one of them is in the way of whoever writes.
"""

from . import layout
from .runtime_check import group_of
from .runtime_order import block_of, known, published
from .runtime_races import conflict, limits, met_before, tell, time_of
from .runtime_words import inlined, peek64, plain, poke64, set_word, word

LONGEST = 64  # cells of a word
LANE_AND_LINE = 31 << layout.R_THREAD | layout.R_INSTRUCTIONS  # what may differ in records that one cell holds


@inlined
def covers(one, other):
    """Whether who is in the way of the other access is in the way of this one: it has its bytes, and is atomic only if that is."""
    return (other & ~one) >> layout.R_BYTES & 15 == 0 and one >> layout.R_ATOMIC & 1 <= other >> layout.R_ATOMIC & 1


@inlined
def rest_of(launch, at, to):
    """Where the next cell of a word is, though the first is free: cells of this launch are used again."""
    begun = word(group_of(launch, layout.GLOBAL), layout.FIRST) << layout.R_PHASE
    return peek64(to) & ~layout.FULL if peek64(at) >= begun else 0


@inlined
def not_fenced(launch, old):
    return published(launch, block_of(launch, old >> layout.R_PHASE), old >> layout.R_THREAD & 1023, 1) <= time_of(old)


@plain
def add_readers(launch, warp, group, place, new, lanes):
    """These lanes read a word. new: the record of one of them; place: of the word's record among those of its space."""
    at, to = word(group, layout.READS) + place, word(group, layout.READERS) + place
    first, block, phase = limits(launch, group)
    if peek64(at) < first:
        poke64(to, rest_of(launch, at, to) | lanes)
        poke64(at, new)
        return
    since, loose, other = met_before(warp), word(launch, layout.LOOSE), -1
    free, free_to, length = 0, 0, 0
    while True:
        old, who = peek64(at), peek64(to)
        apart = (old ^ new) >> (layout.R_THREAD + 5) & 31
        mine = old >= block and apart == 0
        if mine and (old ^ new) & ~LANE_AND_LINE == 0:
            poke64(at, new)
            poke64(to, who | lanes)
            return
        if mine and covers(new, old):
            who &= ~lanes
            poke64(to, who)
        past = block <= old < phase
        if who & layout.FULL == 0 or old < first or (covers(new, old) and (past or (mine and time_of(old) < since))):
            if free == 0:
                free, free_to = at, to
        elif not mine and not past and covers(old, new):
            never = old < block and (loose == 0 or not_fenced(launch, old))
            if never or (loose == 0 and other >= 0 and other != apart):
                return
            other = apart
        length += 1
        if who >> 32 == 0:
            break
        at = word(launch, layout.POOL) + 16 * (who >> 32)
        to = at + 8
    if free == 0:
        free_to = another(launch, to) if length < LONGEST else to
        free = at if free_to == to else free_to - 8
    poke64(free, new)
    poke64(free_to, peek64(free_to) & ~layout.FULL | lanes)


@inlined
def another(launch, to):
    """A new cell behind one, by the place of its lanes; the one itself where there is no room: the latest reader is told of, then."""
    used = word(launch, layout.POOL_USED) + 1
    if used == layout.POOL_CELLS:
        return to
    set_word(launch, layout.POOL_USED, used)
    poke64(to, peek64(to) | used << 32)
    poke64(word(launch, layout.POOL) + 16 * used + 8, 0)
    return word(launch, layout.POOL) + 16 * used + 8


@plain
def clash_with_readers(launch, warp, group, place, new, address):
    """A lane writes: against all that have read."""
    at, to = word(group, layout.READS) + place, word(group, layout.READERS) + place
    first, block, phase = limits(launch, group)
    if peek64(at) < first:
        return
    since = met_before(warp)
    while True:
        old, who = peek64(at), peek64(to)
        if old < block or old >= phase:
            for lane in range(32):
                reader = old & ~(31 << layout.R_THREAD) | lane << layout.R_THREAD
                met = max(since, peek64(known(warp, layout.MET_OF, new >> layout.R_THREAD & 31, lane)))
                if who >> lane & 1 and conflict(launch, warp, group, reader, new, met, 1):
                    tell(launch, reader, new, layout.READ_RACE, 1, address)
        if who >> 32 == 0:
            return
        at = word(launch, layout.POOL) + 16 * (who >> 32)
        to = at + 8
