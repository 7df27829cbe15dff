"""Who touches a run of memory: 32 lanes beside each other leave their records at once."""

from . import layout
from .runtime_bytes import are_whole
from .runtime_races import limits
from .runtime_readers import add_readers, rest_of
from .runtime_words import inlined, peek64, poke64, word


@inlined
def record_of(launch, warp, instruction):
    """What lane 0 leaves behind; the other lanes' differ in the thread. All four bytes of a word."""
    time = (word(launch, layout.PHASE) << layout.R_PHASE) | (word(warp, layout.SYNCED) << layout.R_SYNC)
    return time | (word(warp, layout.FIRST_THREAD) << layout.R_THREAD) | (15 << layout.R_BYTES) | instruction


@inlined
def run_is_clean(records, words, shift, launch_record, block_record, phase_record, mine):
    """Whether no record of another thread is in the way of this run."""
    bad = 0
    for k in range(words):
        record = peek64(records + 8 * k)
        own = (record ^ (mine + ((k >> shift) << layout.R_THREAD))) >> layout.R_THREAD == 0
        past = (record >= block_record) & (record < phase_record)
        bad |= (record >= launch_record) & (not own) & (not past)
    return bad == 0


@inlined
def shift_of(step):
    """How many 4-byte words a lane touches, as a power of two."""
    return 0 if step == 4 else (1 if step == 8 else (2 if step == 16 else 3))


@inlined
def read_run(launch, warp, group, offset, step, instruction):
    """Record who reads a run, if no record is in the way."""
    mine = record_of(launch, warp, instruction)
    first, block, phase = limits(launch, group)
    shift = shift_of(step)
    words, place = 32 << shift, 2 * offset
    if word(launch, layout.NARROW) and not are_whole(group, place, words, first):
        return False
    for which in (layout.WRITES, layout.ATOMICS):
        seen = which == layout.WRITES or word(launch, layout.ATOMIC_SEEN)
        if seen and not run_is_clean(word(group, which) + place, words, shift, first, block, phase, mine):
            return False
    reads, readers, bad = word(group, layout.READS) + place, word(group, layout.READERS) + place, 0
    for k in range(words):
        old, who = peek64(reads + 8 * k), peek64(readers + 8 * k)
        again = ((old ^ (mine + ((k >> shift) << layout.R_THREAD))) >> layout.R_THREAD & 1023 == 0) & (who == 1 << (k >> shift))
        bad |= (old >= first) & ((old < block) | (((old >= phase) | (who > layout.FULL)) & (not again)))
    for k in range(words):
        record, lane = mine + ((k >> shift) << layout.R_THREAD), k >> shift
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
    if word(launch, layout.NARROW) and not are_whole(group, place, words, first):
        return False
    for which in (layout.WRITES, layout.READS, layout.ATOMICS):
        seen = which != layout.ATOMICS or word(launch, layout.ATOMIC_SEEN)
        if seen and not run_is_clean(word(group, which) + place, words, shift, first, block, phase, mine):
            return False
    readers, reads, bad = word(group, layout.READERS) + place, word(group, layout.READS) + place, 0
    for k in range(words):  # a record tells one of the readers
        old, who = peek64(reads + 8 * k), peek64(readers + 8 * k)
        past = (old >= block) & (old < phase) & (who <= layout.FULL)
        bad |= (old >= first) & (not past) & (who != 1 << (k >> shift))
    if bad:
        return False
    writes = word(group, layout.WRITES) + place
    for k in range(words):
        poke64(writes + 8 * k, mine + ((k >> shift) << layout.R_THREAD))
    return True
