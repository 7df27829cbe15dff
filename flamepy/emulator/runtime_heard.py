"""Whose accesses an acquire orders: of each word that was released, who released it and what that thread knew.

A row is a time for each thread of the launch: what it did before then is known. Rows are kept for words (those that share one know what
either does), for warps and for barriers. A row may say too much, never too little: it is asked beside runtime_races.py's numbers of phases.
"""

from . import layout
from .runtime_words import inlined, peek64, plain, poke64, set_bytes, set_word, word


@inlined
def row_at(launch, row):
    """Where a row lies: its stamp (0: it is empty), then the times."""
    return word(launch, layout.ROWS) + 8 * row * (word(launch, layout.BLOCKS) * word(launch, layout.THREADS) + 1)


@plain
def add_row(launch, to, source, stamp):
    """One row knows what another one does."""
    to, source = row_at(launch, to), row_at(launch, source)
    if peek64(source) == 0:
        return
    for k in range(1, word(launch, layout.BLOCKS) * word(launch, layout.THREADS) + 1):
        poke64(to + 8 * k, max(peek64(to + 8 * k), peek64(source + 8 * k)))
    poke64(to, stamp)


@plain
def empty_row(launch, row):
    if word(launch, layout.ROWS) and peek64(row_at(launch, row)):
        set_bytes(row_at(launch, row), 0, 8 * (word(launch, layout.BLOCKS) * word(launch, layout.THREADS) + 1))


@inlined
def row_of_word(space, offset):
    return (offset >> 2 & layout.ROW_WORDS // 2 - 1) + space * (layout.ROW_WORDS // 2)


@plain
def hear_word(warp, space, offset):
    """A lane sees a word. What it has seen already in this state, as who waits for it does again and again, costs nothing."""
    launch = word(warp, layout.LAUNCH)
    if word(launch, layout.ROWS):
        row, mine = row_of_word(space, offset), layout.ROW_WARPS + word(warp, layout.INDEX)
        stamp = peek64(row_at(launch, row))
        if stamp != peek64(row_at(launch, mine)):
            add_row(launch, mine, row, stamp)


@plain
def tell_word(warp, lane, space, offset):
    """A lane that made a fence writes a word: who sees it knows what the lane did, and what others did that it knew of."""
    launch = word(warp, layout.LAUNCH)
    if word(launch, layout.ROWS) == 0:
        return
    row, stamp = row_of_word(space, offset), word(launch, layout.ROW_STAMP) + 2
    to = row_at(launch, row) + 8 * (1 + word(launch, layout.BLOCK_NOW) * word(launch, layout.THREADS))
    if space and peek64(to) < word(launch, layout.BLOCK_PHASE) * layout.SYNC_TURNS:
        empty_row(launch, row)  # shared memory, and an earlier block released it
    set_word(launch, layout.ROW_STAMP, stamp)
    add_row(launch, row, layout.ROW_WARPS + word(warp, layout.INDEX), stamp)
    first, met = word(warp, layout.FIRST_THREAD), max(word(warp, layout.MET), word(warp, layout.ALL_SYNCED))
    for thread in range(word(launch, layout.THREADS)):
        time, other = word(launch, layout.BARRIER_PHASE) * layout.SYNC_TURNS, thread - first
        if other == lane:
            time = max(time, (peek64(warp + layout.FENCED_HERE + 8 * lane) + 1) * layout.SYNC_TURNS)
        elif 0 <= other < 32:
            at = 256 * lane + 8 * other
            time = max(time, met, peek64(warp + layout.KNOWN + at), peek64(warp + layout.MET_OF + at))
        else:
            time = max(time, peek64(warp + layout.HEARD + 8 * (thread >> 5)) * layout.SYNC_TURNS)
        poke64(to + 8 * thread, max(peek64(to + 8 * thread), time))
    poke64(row_at(launch, row), stamp)


@plain
def barrier_row(launch, warp, barrier, leaves):
    """A warp tells a barrier what it knows, or hears what that does."""
    if word(launch, layout.ROWS):
        mine, row = layout.ROW_WARPS + word(warp, layout.INDEX), layout.ROW_BARRIERS + barrier
        if leaves:
            add_row(launch, mine, row, 1)
        else:
            add_row(launch, row, mine, 1)


@plain
def heard_of(launch, warp, block, thread):
    """Up to when a warp has heard of a thread by what it saw released."""
    if word(launch, layout.ROWS) == 0:  # the launch has too many threads to keep it
        return (word(launch, layout.PHASE) + 2) * layout.SYNC_TURNS
    return peek64(row_at(launch, layout.ROW_WARPS + word(warp, layout.INDEX)) + 8 * (1 + block * word(launch, layout.THREADS) + thread))
