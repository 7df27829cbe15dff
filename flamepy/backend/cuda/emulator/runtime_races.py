"""Who touched a word of memory, and whether two accesses of a launch are a race.

For each 4-byte word four records are kept: its last writer, its last atomic writer (an atomic does not order the plain write that it
follows), the first reader of a phase and the latest reader. Two accesses by different
threads, one of them a write, are in order if a barrier of the block lies between them, or, in one warp, a barrier of the warp
(or a shuffle or vote). Blocks are never in order, unless the writer made a fence and an atomic, and the reader an atomic after it.
Phases are numbered through all launches, so a record of an earlier launch is known by its number. Read next: runtime_atomics.py.
"""

from __future__ import annotations

from .layout import (
    ATOMIC_SEEN,
    ATOMICS,
    BLOCK_PHASE,
    FIRST,
    LATEST,
    PHASE,
    PUBLISHED,
    R_ATOMIC,
    R_BYTES,
    R_INSTRUCTIONS,
    R_PHASE,
    R_SYNC,
    R_THREAD,
    RACE,
    READ_RACE,
    READS,
    SYNCED,
    WRITES,
)
from .runtime_words import fail, inlined, peek64, plain, poke64, set_word, word


@inlined
def record(launch, warp, thread, instruction, bytes_, strong):
    synced = word(warp, SYNCED) & 255
    low = (bytes_ << R_BYTES) | (strong << R_ATOMIC) | instruction
    return (word(launch, PHASE) << R_PHASE) | (thread << R_THREAD) | (synced << R_SYNC) | low


@inlined
def conflict(launch, group, old, new):
    """Whether an earlier access and this one are unordered. The caller knows that one of them is a write."""
    phase = old >> R_PHASE
    if phase < word(group, FIRST) or (old & new) >> R_BYTES & 15 == 0 or (old & new) >> R_ATOMIC & 1:
        return False
    if phase < word(launch, BLOCK_PHASE):
        return phase > word(launch, PUBLISHED)
    if phase != word(launch, PHASE):
        return False
    thread, mine = old >> R_THREAD & 1023, new >> R_THREAD & 1023
    if thread == mine:
        return False
    return thread >> 5 != mine >> 5 or (old ^ new) >> R_SYNC & 255 == 0


@inlined
def limits(launch, group):
    """The oldest records that can matter: of this launch, this block, this phase."""
    return word(group, FIRST) << R_PHASE, word(launch, BLOCK_PHASE) << R_PHASE, word(launch, PHASE) << R_PHASE


@inlined
def is_over(old, first, block, phase):
    """Whether a reader's record may give way to that of a reader now: of another launch, or ordered by a barrier of this block."""
    return (old < first) | ((old >= block) & (old < phase))


@inlined
def bytes_of(offset, size, k):
    """Which bytes of the k-th word an access touches."""
    if size >= 4:
        return 15
    return ((1 << size) - 1) << (offset & 3)


@plain
def tell(launch, old, new, code, detail, address):
    fail(
        launch, code, new & R_INSTRUCTIONS, new >> R_THREAD & 1023, address, detail | (old >> R_PHASE) << 8,
        old & R_INSTRUCTIONS, old >> R_THREAD & 1023,
    )  # fmt: skip


@plain
def read_word(launch, warp, group, offset, size, thread, instruction, strong, address):
    """A lane reads: against the last writers."""
    place = (offset >> 2) * 8
    first, block, phase = limits(launch, group)
    new = record(launch, warp, thread, instruction, bytes_of(offset, size, 0), strong)
    for k in range(max(size >> 2, 1)):
        at = place + 8 * k
        for which in (WRITES, ATOMICS):
            old = peek64(word(group, which) + at)
            if old >= first and conflict(launch, group, old, new):
                tell(launch, old, new, RACE, 0, address + 4 * k)
        if is_over(peek64(word(group, READS) + at), first, block, phase):
            poke64(word(group, READS) + at, new)
        poke64(word(group, LATEST) + at, new)


@plain
def write_word(launch, warp, group, offset, size, thread, instruction, strong, same, address):
    """A lane writes: against the last writer and the readers. One value written by many lanes of one instruction is no race."""
    place = (offset >> 2) * 8
    for k in range(max(size >> 2, 1)):
        new = record(launch, warp, thread, instruction, bytes_of(offset, size, k), strong)
        at = place + 8 * k
        for which in (WRITES, ATOMICS):
            old = peek64(word(group, which) + at)
            together = same and (old ^ new) & R_INSTRUCTIONS == 0 and (old ^ new) >> (R_THREAD + 5) == 0
            if not together and conflict(launch, group, old, new):
                tell(launch, old, new, RACE, 1, address + 4 * k)
        for which in (READS, LATEST):
            old = peek64(word(group, which) + at)
            if conflict(launch, group, old, new):
                tell(launch, old, new, READ_RACE, 1, address + 4 * k)
        poke64(word(group, ATOMICS if strong else WRITES) + at, new)
    if strong:
        set_word(launch, ATOMIC_SEEN, 1)
