"""Who touched a byte: the records of accesses where some are of one or two bytes.

Most kernels touch whole words, whose records are enough. From the first narrower access of a launch on, a word that is touched in parts
gets records for each of its bytes; its own then names no byte, and tells only that they are there. Neighbours that are written by two
threads are no race, and each is remembered until its own byte is written. Read next: runtime_access.py.
"""

from __future__ import annotations

from .layout import (
    ALL_SYNCED,
    ATOMIC_SEEN,
    ATOMICS,
    BYTES,
    LATEST,
    NARROW,
    R_BYTES,
    R_INSTRUCTIONS,
    R_THREAD,
    RACE,
    READ_RACE,
    READS,
    WATCHING,
    WRITES,
)
from .runtime_races import bytes_of, conflict, gives_way, limits, met_before, read_word, record, tell, write_word
from .runtime_words import inlined, peek64, plain, poke64, set_word, word

WHOLE = 15


@inlined
def touched(record):
    """The bytes of the word, one bit for each; none if they have records of their own."""
    return record >> R_BYTES & WHOLE


@inlined
def word_at(group, which, offset):
    return word(group, which) + (offset >> 2) * 8


@inlined
def byte_at(group, which, offset, byte):
    """Where the record of one byte of a word lies: four for each of four kinds."""
    return word(group, BYTES) + ((offset >> 2) * 16 + (which - WRITES) * 4 + byte) * 8


@inlined
def are_whole(group, place, words, first):
    """Whether all records of this launch, of a run of words, are of whole words."""
    parts = 0
    for which in (WRITES, READS, LATEST, ATOMICS):
        records = word(group, which) + place
        for k in range(words):
            record = peek64(records + 8 * k)
            parts |= (record >= first) & (touched(record) != WHOLE)
    return parts == 0


@inlined
def alike(old, new, first):
    """Whether one record can stand for both: nothing else is known of the word."""
    return old < first or touched(old) == touched(new)


@plain
def put(group, which, offset, byte, new, first):
    """The record of one byte. Where the word has still one for all, each gets what that says of it."""
    at = word_at(group, which, offset)
    old = peek64(at)
    if old < first or touched(old):
        for k in range(4):
            poke64(byte_at(group, which, offset, k), old if touched(old) >> k & 1 else 0)
    poke64(byte_at(group, which, offset, byte), new)
    poke64(at, new & ~(WHOLE << R_BYTES))


@inlined
def together(old, new):
    """Whether lanes of one warp do it at once."""
    return (old ^ new) & R_INSTRUCTIONS == 0 and (old ^ new) >> (R_THREAD + 5) == 0


@plain
def clash(launch, warp, group, which, offset, new, since, same):
    """The record of an earlier access that is not ordered before this one, or 0. same: what writes the same together is no race."""
    first = limits(launch, group)[0]
    old = peek64(word_at(group, which, offset))
    if old < first:
        return 0
    if touched(old):
        return 0 if (same and together(old, new)) or not conflict(launch, warp, group, old, new, since) else old
    for byte in range(4):
        if touched(new) >> byte & 1:
            old = peek64(byte_at(group, which, offset, byte))
            if conflict(launch, warp, group, old, new, since) and not (same and together(old, new)):
                return old
    return 0


@plain
def read_bytes(launch, warp, group, offset, new, address):
    first, block, phase = limits(launch, group)
    since = met_before(warp)
    for which in (WRITES, ATOMICS):
        old = clash(launch, warp, group, which, offset, new, word(warp, ALL_SYNCED), 0)
        if old:
            tell(launch, old, new, RACE, 0, address)
    reader, latest = peek64(word_at(group, READS, offset)), peek64(word_at(group, LATEST, offset))
    if alike(reader, new, first) and alike(latest, new, first):
        poke64(word_at(group, READS if gives_way(reader, new, first, block, phase, since) else LATEST, offset), new)
        return
    for byte in range(4):
        if touched(new) >> byte & 1:
            reader = peek64(word_at(group, READS, offset))
            if reader >= first and touched(reader) == 0:
                reader = peek64(byte_at(group, READS, offset, byte))
            elif touched(reader) >> byte & 1 == 0:
                reader = 0
            put(group, READS if gives_way(reader, new, first, block, phase, since) else LATEST, offset, byte, new, first)


@plain
def write_bytes(launch, warp, group, offset, new, strong, same, address):
    first = limits(launch, group)[0]
    for which in (WRITES, ATOMICS, READS, LATEST):
        writers = which != READS and which != LATEST
        old = clash(launch, warp, group, which, offset, new, word(warp, ALL_SYNCED) if writers else met_before(warp), writers and same)
        if old:
            tell(launch, old, new, RACE if writers else READ_RACE, 1, address)
    if strong:
        set_word(launch, ATOMIC_SEEN, 1)
    which = ATOMICS if strong else WRITES
    if touched(new) == WHOLE or alike(peek64(word_at(group, which, offset)), new, first):
        poke64(word_at(group, which, offset), new)
        return
    for byte in range(4):
        if touched(new) >> byte & 1:
            put(group, which, offset, byte, new, first)


@plain
def record_read(launch, warp, group, offset, size, thread, instruction, strong, address):
    """A lane reads: against the last writers."""
    if word(launch, WATCHING) == 0:
        return
    if size < 4:
        set_word(launch, NARROW, 1)
    if word(launch, NARROW) == 0:
        read_word(launch, warp, group, offset, size, thread, instruction, strong, address)
        return
    for k in range(0, size, 4):
        new = record(launch, warp, thread, instruction, bytes_of(offset, size, k), strong)
        read_bytes(launch, warp, group, offset + k, new, address + k)


@plain
def record_write(launch, warp, group, offset, size, thread, instruction, strong, same, address):
    """A lane writes: against the last writer and the readers. One value written by many lanes of one instruction is no race."""
    if word(launch, WATCHING) == 0:
        return
    if size < 4:
        set_word(launch, NARROW, 1)
    if word(launch, NARROW) == 0:
        write_word(launch, warp, group, offset, size, thread, instruction, strong, same, address)
        return
    for k in range(0, size, 4):
        new = record(launch, warp, thread, instruction, bytes_of(offset, size, k), strong)
        write_bytes(launch, warp, group, offset + k, new, strong, same, address + k)
