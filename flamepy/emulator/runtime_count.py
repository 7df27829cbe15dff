"""What a memory access costs on a device: sectors of 32 bytes in global memory, wavefronts over 32 banks in shared memory.

Only done when a launch is counted.
"""

from . import layout
from .runtime_access import is_run
from .runtime_words import inlined, peek8, peek64, plain, poke8, poke64, word


@inlined
def add(launch, which, amount):
    at = word(launch, layout.COUNTED) + 8 * which
    poke64(at, peek64(at) + amount)


@plain
def distinct(warp, mask, size, shift):
    """How many units (sectors, words) of 1 << shift bytes the lanes of the mask touch, each counted once. Only what lies neither beyond all
    that came before nor in the unit of the lane before is looked for."""
    found, highest, low, high = 0, -1, 0, -1
    for lane in range(32):
        if mask >> lane & 1:
            begin = peek64(warp + layout.ADDRESSES + 8 * lane)
            before, until = low, high
            low, high = begin >> shift, begin + size - 1 >> shift
            for place in range(low, high + 1):
                if place > highest:
                    found, highest = found + 1, place
                elif place < before or place > until:
                    found += not touched_before(warp, mask, size, shift, lane, place)
    return found


@inlined
def touched_before(warp, mask, size, shift, lane, place):
    """Whether an earlier lane touches this unit."""
    for other in range(lane):
        if mask >> other & 1:
            begin = peek64(warp + layout.ADDRESSES + 8 * other)
            if begin >> shift <= place <= begin + size - 1 >> shift:
                return True
    return False


@plain
def wavefronts(warp, mask, size, first, last):
    """The most words that one bank has to give to these lanes. The words of a bank are a chain of (word, one before, how many), for which
    the room of a product is free now."""
    for bank in range(32):
        poke64(warp + layout.TILE + 8 * bank, 0)
    most, free = 1, warp + layout.TILE + 8 * 32
    for lane in range(first, last):
        if mask >> lane & 1:
            begin = peek64(warp + layout.ADDRESSES + 8 * lane)
            for place in range(begin >> 2, (begin + size - 1 >> 2) + 1):
                bank = warp + layout.TILE + 8 * (place & 31)
                latest = peek64(bank)
                at = latest
                while at and peek64(at) != place:
                    at = peek64(at + 8)
                if at == 0:
                    many = peek64(latest + 16) + 1 if latest else 1
                    poke64(free, place)
                    poke64(free + 8, latest)
                    poke64(free + 16, many)
                    poke64(bank, free)
                    free, most = free + 24, max(most, many)
    return most


@plain
def count_shared(launch, warp, mask, size):
    """A device serves 128 bytes at a time: all lanes of 4 bytes, half of those of 8, a quarter of those of 16."""
    lanes = 32 if size <= 4 else 128 // size
    alike = mask == layout.FULL and (is_run(warp, size) or is_run(warp, 0))  # no bank has to give two words
    for first in range(0, 32, lanes):
        if mask >> first & ((1 << lanes) - 1):
            add(launch, layout.WAVES, 1 if alike else wavefronts(warp, mask, size, first, first + lanes))
            add(launch, layout.LEAST_WAVES, 1)


@plain
def count_access(warp, mask, size, space, kind):
    """Before an access: kind 0 load, 1 store, 2 atomic."""
    launch = word(warp, layout.LAUNCH)
    if word(launch, layout.COUNTING) == 0 or mask == 0:
        return
    first = 0
    while mask >> first & 1 == 0:  # what stands in the place of a lane that takes no part is old
        first += 1
    low = peek64(warp + layout.ADDRESSES + 8 * first)
    if space == layout.SHARED or (space == layout.GENERIC and low >= layout.SHARED_WINDOW and low < layout.LOCAL_WINDOW):
        count_shared(launch, warp, mask, size)
    elif space == layout.GLOBAL or (space == layout.GENERIC and low < layout.SHARED_WINDOW):
        count_global(launch, warp, mask, size, kind)


@inlined
def extent(warp, mask, size):
    """How many bytes the whole warp touches from the first lane's on, without a gap; 0 where there may be one."""
    if mask != layout.FULL:
        return 0
    return 32 * size if is_run(warp, size) else (size if is_run(warp, 0) else 0)


@inlined
def units(begin, size, shift):
    """How many units so many bytes touch."""
    return (begin + size - 1 >> shift) - (begin >> shift) + 1


@plain
def count_global(launch, warp, mask, size, kind):
    shift = 0 if size < 4 else 2
    whole, begin = extent(warp, mask, size), peek64(warp + layout.ADDRESSES)
    sectors = units(begin, whole, 5) if whole else distinct(warp, mask, size, 5)
    touched = (units(begin, whole, shift) if whole else distinct(warp, mask, size, shift)) << shift
    if kind == 2:
        add(launch, layout.ATOMIC_SECTORS, sectors)
    else:
        add(launch, layout.STORE_SECTORS if kind else layout.LOAD_SECTORS, sectors)
        add(launch, layout.LEAST_STORE if kind else layout.LEAST_LOAD, (touched + 31) // 32)
        add(launch, layout.STORED if kind else layout.LOADED, touched)
    group, mark = launch + 8 * layout.SPACES, layout.READ_NOW if kind == 0 else layout.WRITTEN_NOW
    states, top = word(group, layout.STATE) - layout.DEVICE_BASE, word(group, layout.TOP) + layout.DEVICE_BASE
    if whole and layout.DEVICE_BASE <= begin <= top - whole:
        mark_bytes(states + begin, whole, mark)
        return
    for lane in range(32):
        begin = peek64(warp + layout.ADDRESSES + 8 * lane)
        if mask >> lane & 1 and layout.DEVICE_BASE <= begin <= top - size:
            mark_bytes(states + begin, size, mark)


@inlined
def mark_bytes(states, size, mark):
    for k in range(size):
        poke8(states + k, peek8(states + k) | mark)
