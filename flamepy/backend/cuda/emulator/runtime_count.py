"""What a memory access costs on a device: sectors of 32 bytes in global memory, wavefronts over 32 banks in shared memory.

Only done when a launch is counted. Read next: count.py.
"""

from __future__ import annotations

from .layout import (
    ADDRESSES,
    ATOMIC_SECTORS,
    COUNTED,
    COUNTING,
    DEVICE_BASE,
    GENERIC,
    GLOBAL,
    LAUNCH,
    LEAST_LOAD,
    LEAST_STORE,
    LEAST_WAVES,
    LOAD_SECTORS,
    LOADED,
    LOCAL_WINDOW,
    READ_NOW,
    SHARED,
    SHARED_WINDOW,
    SPACES,
    STATE,
    STORE_SECTORS,
    STORED,
    TOP,
    WAVES,
    WRITTEN_NOW,
)
from .runtime_words import inlined, peek8, peek64, plain, poke8, poke64, word


@inlined
def add(launch, which, amount):
    at = word(launch, COUNTED) + 8 * which
    poke64(at, peek64(at) + amount)


@plain
def distinct(warp, mask, size, unit, first, last):
    """How many units (sectors, words) the lanes first..last of the mask touch, each counted once."""
    found = 0
    for lane in range(first, last):
        if mask >> lane & 1:
            begin = peek64(warp + ADDRESSES + 8 * lane)
            for place in range(begin // unit, (begin + size - 1) // unit + 1):
                new = 1
                for other in range(first, lane):
                    if mask >> other & 1:
                        low = peek64(warp + ADDRESSES + 8 * other)
                        if low // unit <= place <= (low + size - 1) // unit:
                            new = 0
                            break
                found += new
    return found


@plain
def wavefronts(warp, mask, size, first, last):
    """The most words that one bank has to give to these lanes."""
    most = 1
    for bank in range(32):
        found = 0
        for lane in range(first, last):
            if mask >> lane & 1:
                begin = peek64(warp + ADDRESSES + 8 * lane)
                for place in range(begin >> 2, (begin + size - 1 >> 2) + 1):
                    if place & 31 == bank:
                        new = 1
                        for other in range(first, lane):
                            low = peek64(warp + ADDRESSES + 8 * other)
                            if mask >> other & 1 and low >> 2 <= place <= (low + size - 1) >> 2:
                                new = 0
                                break
                        found += new
        most = max(most, found)
    return most


@plain
def count_shared(launch, warp, mask, size):
    """A device serves 128 bytes at a time: all lanes of 4 bytes, half of those of 8, a quarter of those of 16."""
    lanes = 32 if size <= 4 else 128 // size
    for first in range(0, 32, lanes):
        if mask >> first & ((1 << lanes) - 1):
            add(launch, WAVES, wavefronts(warp, mask, size, first, first + lanes))
            add(launch, LEAST_WAVES, 1)


@plain
def count_access(warp, mask, size, space, kind):
    """Before an access: kind 0 load, 1 store, 2 atomic."""
    launch = word(warp, LAUNCH)
    if word(launch, COUNTING) == 0 or mask == 0:
        return
    first = 0
    while mask >> first & 1 == 0:  # what stands in the place of a lane that takes no part is old
        first += 1
    low = peek64(warp + ADDRESSES + 8 * first)
    if space == SHARED or (space == GENERIC and low >= SHARED_WINDOW and low < LOCAL_WINDOW):
        count_shared(launch, warp, mask, size)
    elif space == GLOBAL or (space == GENERIC and low < SHARED_WINDOW):
        count_global(launch, warp, mask, size, kind)


@plain
def count_global(launch, warp, mask, size, kind):
    sectors = distinct(warp, mask, size, 32, 0, 32)
    unit = 1 if size < 4 else 4
    touched = unit * distinct(warp, mask, size, unit, 0, 32)
    if kind == 2:
        add(launch, ATOMIC_SECTORS, sectors)
    else:
        add(launch, STORE_SECTORS if kind else LOAD_SECTORS, sectors)
        add(launch, LEAST_STORE if kind else LEAST_LOAD, (touched + 31) // 32)
        add(launch, STORED if kind else LOADED, touched)
    group = launch + 8 * SPACES
    for lane in range(32):
        offset = peek64(warp + ADDRESSES + 8 * lane) - DEVICE_BASE
        if mask >> lane & 1 and offset >= 0 and offset + size <= word(group, TOP):
            for k in range(size):
                at = word(group, STATE) + offset + k
                poke8(at, peek8(at) | (READ_NOW if kind == 0 else WRITTEN_NOW))
