"""Which lanes of a warp run next, and barriers: who waits, when a barrier lets go, and when nobody can go on."""

from . import layout
from .runtime_check import group_of
from .runtime_order import join
from .runtime_words import fail, inlined, ones, peek32, plain, poke32, set_word, word


@inlined
def warp_at(launch, index):
    return word(launch, layout.WARP_BASE) + index * word(launch, layout.WARP_BYTES)


@inlined
def runnable(warp):
    """Lanes that have not ended and do not wait."""
    return word(warp, layout.EXISTS) & ~word(warp, layout.EXITED) & ~word(warp, layout.WAITING) & ~word(warp, layout.HELD)


@plain
def choose(warp):
    """The lanes at the lowest block run next. Lanes at EXIT have ended."""
    lanes = runnable(warp)
    best, other, active = layout.NOBODY, layout.NOBODY, 0
    for lane in range(32):
        if lanes >> lane & 1:
            at = peek32(warp + layout.LANE_PC + 4 * lane)
            if at == layout.EXIT:
                set_word(warp, layout.EXITED, word(warp, layout.EXITED) | 1 << lane)
            elif at < best:
                best, other, active = at, best, 1 << lane
            elif at == best:
                active |= 1 << lane
            elif at < other:
                other = at
    set_word(warp, layout.PC, best)
    set_word(warp, layout.OTHER, other)
    set_word(warp, layout.ACTIVE, active)


@plain
def choose_still(launch, warp):
    """Lanes that have not run for long go ahead, up to where the warp does something together; those that ran all the time wait."""
    lanes = runnable(warp) & ~word(warp, layout.MOVED)
    best, active = layout.NOBODY, 0
    for lane in range(32):
        if lanes >> lane & 1:
            at = peek32(warp + layout.LANE_PC + 4 * lane)
            if at < best and peek32(word(launch, layout.KINDS) + 4 * at) & layout.COLLECTIVE == 0:
                best, active = at, 1 << lane
            elif at == best:
                active |= 1 << lane
    if active:
        set_word(warp, layout.PC, best)
        set_word(warp, layout.OTHER, layout.NOBODY)
        set_word(warp, layout.ACTIVE, active)
        set_word(warp, layout.AHEAD, 1)


@inlined
def send(warp, lanes, to):
    for lane in range(32):
        if lanes >> lane & 1:
            poke32(warp + layout.LANE_PC + 4 * lane, to)


@plain
def wait(launch, warp, pc, lanes):
    """Lanes came to a barrier of the block. All of a warp wait at one instruction."""
    waiting = word(warp, layout.WAITING)
    if waiting:
        for lane in range(32):
            if waiting >> lane & 1 and peek32(warp + layout.WAIT_AT + 4 * lane) != pc:
                first, late = word(warp, layout.FIRST_THREAD), 0
                while not lanes >> late & 1:
                    late += 1
                fail(launch, layout.DIVERGED, pc, first + late, 0, 0, peek32(warp + layout.WAIT_AT + 4 * lane), first + lane)
    for lane in range(32):
        if lanes >> lane & 1:
            poke32(warp + layout.WAIT_AT + 4 * lane, pc)
    set_word(warp, layout.WAITING, waiting | lanes)


@inlined
def arrived(launch, barrier):
    """Threads that wait at a barrier, or came by."""
    found = word(launch, layout.ARRIVED + barrier)
    for index in range(word(launch, layout.WARPS)):
        warp = warp_at(launch, index)
        if word(warp, layout.BARRIER) == barrier:
            found += ones(word(warp, layout.WAITING))
    return found


@plain
def apart(launch, barrier):
    """Whether warps wait for the whole block at barriers on different lines of Python."""
    line, first, thread = 0, 0, 0
    for index in range(word(launch, layout.WARPS)):
        warp = warp_at(launch, index)
        waiting = word(warp, layout.WAITING)
        if waiting and word(warp, layout.BARRIER) == barrier and word(warp, layout.BARRIER_COUNT) == 0:
            lane = 0
            while not waiting >> lane & 1:
                lane += 1
            at = peek32(warp + layout.WAIT_AT + 4 * lane)
            mine = peek32(word(launch, layout.LINES) + 4 * at)
            if line and mine and mine != line:
                fail(launch, layout.DIVERGED, at, word(warp, layout.FIRST_THREAD) + lane, 0, 0, first, thread)
            if line == 0:
                line, first, thread = mine, at, word(warp, layout.FIRST_THREAD) + lane


@plain
def release(launch, barrier):
    """A full barrier lets its threads go: a new phase begins. bar.red leaves its result."""
    total, everyone, came = 0, 1, 0
    for index in range(word(launch, layout.WARPS)):
        warp = warp_at(launch, index)
        if word(warp, layout.WAITING) and word(warp, layout.BARRIER) == barrier:
            total += ones(word(warp, layout.VOTES) & word(warp, layout.WAITING))
            came += ones(word(warp, layout.WAITING))
            if word(warp, layout.WAITING) & ~word(warp, layout.VOTES):
                everyone = 0
    phase = word(launch, layout.PHASE) + 1
    set_word(launch, layout.PHASE, phase)
    whole = came == word(launch, layout.THREADS)  # a barrier of some warps orders these alone
    if whole:
        set_word(launch, layout.BARRIER_PHASE, phase)
        set_word(group_of(launch, layout.SHARED), layout.FIRST, phase)
    join(launch, barrier, phase, whole)
    set_word(launch, layout.ARRIVED + barrier, 0)
    for index in range(word(launch, layout.WARPS)):
        warp = warp_at(launch, index)
        if word(warp, layout.WAITING) and word(warp, layout.BARRIER) == barrier:
            kind = word(warp, layout.BARRIER_KIND)
            set_word(warp, layout.RESULT, total if kind == 1 else (everyone if kind == 2 else int(total > 0)))
            set_word(warp, layout.WAITING, 0)
            set_word(warp, layout.SYNCED, 0)
            set_word(warp, layout.ALL_SYNCED, phase * layout.SYNC_TURNS)
            choose(warp)


@plain
def let_go(launch):
    """All warps stand still: open the barriers that are full. False if there are none."""
    opened = False
    for barrier in range(16):
        for index in range(word(launch, layout.WARPS)):
            warp = warp_at(launch, index)
            if word(warp, layout.WAITING) and word(warp, layout.BARRIER) == barrier:
                wanted = word(warp, layout.BARRIER_COUNT)
                if arrived(launch, barrier) == (wanted if wanted else word(launch, layout.THREADS)):
                    apart(launch, barrier)
                    release(launch, barrier)
                    opened = True
                break
    return opened


@plain
def stands_at(launch, thread):
    """The block at whose barrier this thread waits, or else another one; -1 if none does."""
    found = -1
    for index in range(word(launch, layout.WARPS)):
        warp = warp_at(launch, index)
        for lane in range(32):
            mine = word(warp, layout.FIRST_THREAD) + lane == thread
            if word(warp, layout.WAITING) >> lane & 1 and (mine or found < 0):
                found = peek32(warp + layout.WAIT_AT + 4 * lane)
            if mine and word(warp, layout.WAITING) >> lane & 1:
                return found
    return found


@plain
def stuck(launch):
    """Threads wait at a barrier that the others never reach: tell one of each."""
    waiting_at, thread, ended, other_at = -1, 0, -1, -1
    for index in range(word(launch, layout.WARPS)):
        warp = warp_at(launch, index)
        for lane in range(32):
            if word(warp, layout.WAITING) >> lane & 1:
                at = peek32(warp + layout.WAIT_AT + 4 * lane)
                if waiting_at < 0:
                    waiting_at, thread = at, word(warp, layout.FIRST_THREAD) + lane
                elif at != waiting_at and other_at < 0:
                    other_at = at
            elif word(warp, layout.EXITED) >> lane & 1 and ended < 0:
                ended = word(warp, layout.FIRST_THREAD) + lane
    fail(launch, layout.DEADLOCK, waiting_at, thread, 0, 0, other_at, ended)
