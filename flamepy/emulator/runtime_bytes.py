"""Who touched a byte: the records of accesses where some are of one or two bytes.

Most kernels touch whole words, whose records are enough. From the first narrower access of a launch on, a word that is touched in parts
gets records for each of its bytes; its own then names no byte, and tells only that they are there. Neighbours that are written by two
threads are no race, and each is remembered until its own byte is written.
"""

from . import layout
from .runtime_races import bytes_of, conflict, limits, record, tell
from .runtime_readers import add_readers, clash_with_readers
from .runtime_words import inlined, peek64, plain, poke64, set_word, word

WHOLE = 15


@inlined
def touched(record):
    """The bytes of the word, one bit for each; none if they have records of their own."""
    return record >> layout.R_BYTES & WHOLE


@inlined
def word_at(group, which, offset):
    return word(group, which) + (offset >> 2) * 8


@inlined
def byte_at(group, which, offset, byte):
    """Where the record of one byte of a word lies: four for writers, four for atomic ones."""
    return word(group, layout.BYTES) + ((offset >> 2) * 8 + (which == layout.ATOMICS) * 4 + byte) * 8


@inlined
def are_whole(group, place, words, first):
    """Whether all writers of this launch, of a run of words, wrote whole words."""
    parts = 0
    for which in (layout.WRITES, layout.ATOMICS):
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
    poke64(at, new & ~(WHOLE << layout.R_BYTES))


@inlined
def together(old, new):
    """Whether lanes of one warp do it at once."""
    return (old ^ new) & layout.R_INSTRUCTIONS == 0 and (old ^ new) >> (layout.R_THREAD + 5) == 0


@plain
def clash(launch, warp, group, which, offset, new, since, same):
    """The record of an earlier access that is not ordered before this one, or 0. same: what writes the same together is no race."""
    first = limits(launch, group)[0]
    old = peek64(word_at(group, which, offset))
    if old < first:
        return 0
    if touched(old):
        return 0 if (same and together(old, new)) or not conflict(launch, warp, group, old, new, since, 0) else old
    for byte in range(4):
        if touched(new) >> byte & 1:
            old = peek64(byte_at(group, which, offset, byte))
            if conflict(launch, warp, group, old, new, since, 0) and not (same and together(old, new)):
                return old
    return 0


@plain
def record_read(launch, warp, group, offset, size, thread, lanes, instruction, strong, address):
    """Lanes of a warp read one place, among them `thread`: against the last writers, for each of them."""
    if word(launch, layout.WATCHING) == 0:
        return
    if size < 4:
        set_word(launch, layout.NARROW, 1)
    first, block, phase = limits(launch, group)
    for k in range(0, size, 4):
        new = record(launch, warp, thread, instruction, bytes_of(offset, size, k), strong)
        for which in (layout.WRITES, layout.ATOMICS):
            old = peek64(word_at(group, which, offset + k))
            if old >= first and (old < block or old >= phase or touched(old) == 0):
                for lane in range(32):
                    if lanes >> lane & 1:
                        mine = new & ~(31 << layout.R_THREAD) | lane << layout.R_THREAD
                        old = clash(launch, warp, group, which, offset + k, mine, word(warp, layout.ALL_SYNCED), 0)
                        if old:
                            tell(launch, old, mine, layout.RACE, 0, address + k)
        add_readers(launch, warp, group, (offset + k >> 2) * 8, new, lanes)


@plain
def record_write(launch, warp, group, offset, size, thread, instruction, strong, same, address):
    """A lane writes: against the last writer and the readers. One value written by many lanes of one instruction is no race."""
    if word(launch, layout.WATCHING) == 0:
        return
    if size < 4:
        set_word(launch, layout.NARROW, 1)
    if strong:
        set_word(launch, layout.ATOMIC_SEEN, 1)
    for k in range(0, size, 4):
        new = record(launch, warp, thread, instruction, bytes_of(offset, size, k), strong)
        for which in (layout.WRITES, layout.ATOMICS):
            old = clash(launch, warp, group, which, offset + k, new, word(warp, layout.ALL_SYNCED), same)
            if old:
                tell(launch, old, new, layout.RACE, 1, address + k)
        clash_with_readers(launch, warp, group, (offset + k >> 2) * 8, new, address + k)
        leave(group, layout.ATOMICS if strong else layout.WRITES, offset + k, new, limits(launch, group)[0])


@inlined
def leave(group, which, offset, new, first):
    """The record of a write, for the word or for its bytes."""
    if touched(new) == WHOLE or alike(peek64(word_at(group, which, offset)), new, first):
        poke64(word_at(group, which, offset), new)
        return
    for byte in range(4):
        if touched(new) >> byte & 1:
            put(group, which, offset, byte, new, first)
