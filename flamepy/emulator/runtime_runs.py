"""Who touches a run of memory: 32 lanes beside each other leave their records at once."""

from __future__ import annotations

from .layout import (
    ATOMIC_SEEN,
    ATOMICS,
    FIRST_THREAD,
    FULL,
    NARROW,
    PHASE,
    R_BYTES,
    R_PHASE,
    R_SYNC,
    R_THREAD,
    READERS,
    READS,
    SYNCED,
    WRITES,
)
from .runtime_bytes import are_whole
from .runtime_races import limits
from .runtime_readers import add_readers, rest_of
from .runtime_words import inlined, peek64, poke64, word


@inlined
def record_of(launch, warp, instruction):
    """What lane 0 leaves behind; the other lanes' differ in the thread. All four bytes of a word."""
    time = (word(launch, PHASE) << R_PHASE) | (word(warp, SYNCED) << R_SYNC)
    return time | (word(warp, FIRST_THREAD) << R_THREAD) | (15 << R_BYTES) | instruction


@inlined
def run_is_clean(records, words, shift, launch_record, block_record, phase_record, mine):
    """Whether no record of another thread is in the way of this run."""
    bad = 0
    for k in range(words):
        record = peek64(records + 8 * k)
        own = (record ^ (mine + ((k >> shift) << R_THREAD))) >> R_THREAD == 0
        past = (record >= block_record) & (record < phase_record)
        bad |= (record >= launch_record) & (not own) & (not past)
    return bad == 0


@inlined
def shift_of(step):
    """How many 4-byte words a lane touches, as a power of two."""
    return 0 if step == 4 else (1 if step == 8 else 2)


@inlined
def read_run(launch, warp, group, offset, step, instruction):
    """Record who reads a run, if no record is in the way."""
    mine = record_of(launch, warp, instruction)
    first, block, phase = limits(launch, group)
    shift = shift_of(step)
    words, place = 32 << shift, 2 * offset
    if word(launch, NARROW) and not are_whole(group, place, words, first):
        return False
    for which in (WRITES, ATOMICS):
        seen = which == WRITES or word(launch, ATOMIC_SEEN)
        if seen and not run_is_clean(word(group, which) + place, words, shift, first, block, phase, mine):
            return False
    reads, readers, bad = word(group, READS) + place, word(group, READERS) + place, 0
    for k in range(words):
        old, who = peek64(reads + 8 * k), peek64(readers + 8 * k)
        again = ((old ^ (mine + ((k >> shift) << R_THREAD))) >> R_THREAD & 1023 == 0) & (who == 1 << (k >> shift))
        bad |= (old >= first) & ((old < block) | (((old >= phase) | (who > FULL)) & (not again)))
    for k in range(words):
        record, lane = mine + ((k >> shift) << R_THREAD), k >> shift
        if bad:
            add_readers(launch, warp, group, place + 8 * k, record, 1 << lane)
        else:
            poke64(readers + 8 * k, rest_of(launch, reads + 8 * k, readers + 8 * k) | 1 << lane)
            poke64(reads + 8 * k, record)
    return True


@inlined
def write_run(launch, warp, group, offset, step, instruction):
    """Record who writes a run, if no record is in the way."""
    mine = record_of(launch, warp, instruction)
    first, block, phase = limits(launch, group)
    shift = shift_of(step)
    words, place = 32 << shift, 2 * offset
    if word(launch, NARROW) and not are_whole(group, place, words, first):
        return False
    for which in (WRITES, READS, ATOMICS):
        seen = which != ATOMICS or word(launch, ATOMIC_SEEN)
        if seen and not run_is_clean(word(group, which) + place, words, shift, first, block, phase, mine):
            return False
    readers, reads, bad = word(group, READERS) + place, word(group, READS) + place, 0
    for k in range(words):  # a record tells one of the readers
        old, who = peek64(reads + 8 * k), peek64(readers + 8 * k)
        past = (old >= block) & (old < phase) & (who <= FULL)
        bad |= (old >= first) & (not past) & (who != 1 << (k >> shift))
    if bad:
        return False
    writes = word(group, WRITES) + place
    for k in range(words):
        poke64(writes + 8 * k, mine + ((k >> shift) << R_THREAD))
    return True
