"""Running a launch: blocks one after the other, their warps in turns, a warp's lanes together wherever they can be.

A warp runs the lanes that stand at the lowest basic block; blocks are numbered so that lanes that parted meet again there. Lanes that
ask for something again and again (a lock that another lane of theirs holds) do not keep the others from running, as on GPUs since
Volta. A warp that has no lane left to run (they ended, or wait) gives way to the next one; when all have, barriers that are full let go.
"""

from . import layout
from .runtime_barriers import choose, choose_still, let_go, send, stuck, wait, warp_at
from .runtime_check import group_of
from .runtime_heard import empty_row
from .runtime_meetings import hold, meet
from .runtime_order import arrive
from .runtime_words import copy_bytes, fail, inlined, ones, peek32, peek64, plain, poke32, poke64, run_block, set_bytes, set_word, word

PATIENCE = 256  # basic blocks that lanes may run while others of their warp stand still
CHANCE, STRETCH = 3, 64  # the order "chance"; turns of each warp for which one may be held back
HOPELESS = 16  # what all ask for, and nobody writes, will not come after this part of the basic blocks that a warp may run


@inlined
def step(launch, warp, pc, active):
    """Run one basic block. Returns the next one if all lanes go there, otherwise -1."""
    runs = word(launch, layout.RUNS) + 16 * pc
    poke64(runs, peek64(runs) + 1)
    poke64(runs + 8, peek64(runs + 8) + ones(active))
    taken = run_block(peek64(word(launch, layout.TABLE) + 8 * pc), warp, active)
    if word(warp, layout.HOLD):
        hold(warp, active, pc)
        return -1
    kind = peek32(word(launch, layout.KINDS) + 4 * pc) & ~layout.COLLECTIVE
    fall = peek32(word(launch, layout.FALLS) + 4 * pc)
    if kind == layout.BRANCH:
        if taken == active:
            return peek32(word(launch, layout.TARGETS) + 4 * pc)
        if taken == 0:
            return fall
        send(warp, taken, peek32(word(launch, layout.TARGETS) + 4 * pc))
        send(warp, active & ~taken, fall)
        return -1
    if kind == layout.WAIT:
        send(warp, active, fall)
        wait(launch, warp, pc, taken)
    elif kind == layout.ARRIVE:
        at = launch + 8 * (layout.ARRIVED + (word(warp, layout.BARRIER) & 15))
        poke64(at, peek64(at) + ones(taken))
        if taken:
            arrive(launch, warp, word(warp, layout.BARRIER) & 15)
        return fall
    return -1


@plain
def look_back(launch, warp, steps):
    """After a while: lanes that stood still go on if others only asked for something; and nothing comes to all who ask in vain."""
    idle = 0
    if word(warp, layout.POLLED):
        choose_still(launch, warp)
        idle = word(launch, layout.IDLE) + PATIENCE if word(launch, layout.CHANGED) == 0 else 0
    if idle > word(launch, layout.LIMIT) // HOPELESS:
        fail(launch, layout.ENDLESS, word(warp, layout.PC), word(warp, layout.FIRST_THREAD), 0, steps, 0, 0)
    set_word(launch, layout.IDLE, idle)
    for which in (layout.MOVED, layout.POLLED):
        set_word(warp, which, 0)
    set_word(launch, layout.CHANGED, 0)
    set_word(warp, layout.SINCE, steps)


@plain
def run_warp(launch, warp):
    """Until no lane can go on, the slice of time is over, or something is wrong."""
    left = min(word(launch, layout.SLICE), word(launch, layout.BUDGET))
    begun, ahead = left, word(warp, layout.AHEAD)
    while left > 0:
        pc, active = word(warp, layout.PC), word(warp, layout.ACTIVE)
        if active == 0:
            if word(warp, layout.HELD):
                meet(launch, warp)
                left -= 1
            if word(warp, layout.ACTIVE) == 0 or word(launch, layout.ERROR):
                break
            continue
        other = word(warp, layout.OTHER)
        set_word(warp, layout.MOVED, word(warp, layout.MOVED) | active)
        while True:
            left -= 1
            to = step(launch, warp, pc, active)
            if to < 0 or to >= other or to == layout.EXIT or left <= 0 or word(launch, layout.ERROR):
                break
            if ahead and peek32(word(launch, layout.KINDS) + 4 * to) & layout.COLLECTIVE:
                break
            pc = to
        ahead = 0
        if word(launch, layout.ERROR):
            break
        if to >= 0:
            send(warp, active, to)
        choose(warp)
    set_word(launch, layout.BUDGET, word(launch, layout.BUDGET) - (begun - left))
    steps = word(warp, layout.TAKEN_STEPS) + begun - left
    set_word(warp, layout.TAKEN_STEPS, steps)
    set_word(warp, layout.AHEAD, 0)
    if steps - word(warp, layout.SINCE) >= PATIENCE and word(launch, layout.ERROR) == 0:
        look_back(launch, warp, steps)
    if steps > word(launch, layout.LIMIT):
        fail(launch, layout.ENDLESS, word(warp, layout.PC), word(warp, layout.FIRST_THREAD), 0, steps, 0, 0)


@plain
def start_block(launch):
    """A new block: its shared and local memory hold nothing, its warps stand at the beginning."""
    block = word(launch, layout.BLOCK_NOW)
    phase = word(launch, layout.PHASE) + 1
    set_word(launch, layout.PHASE, phase)
    set_word(launch, layout.BLOCK_PHASE, phase)
    set_word(launch, layout.BARRIER_PHASE, phase)
    shared, local = group_of(launch, layout.SHARED), group_of(launch, layout.LOCAL)
    set_word(shared, layout.FIRST, phase)
    poke32(word(launch, layout.STARTS) + 4 * block, phase)
    copy_bytes(word(shared, layout.STATE), word(launch, layout.SHARED_STATE), word(shared, layout.TOP))
    set_bytes(word(local, layout.STATE), layout.ALLOCATED, word(local, layout.TOP) * word(launch, layout.THREADS))
    for k in range(16):
        set_word(launch, layout.ARRIVED + k, 0)
        empty_row(launch, layout.ROW_BARRIERS + k)
    set_bytes(launch + 8 * layout.PENDING, 0, 8 * 16 * layout.PENDING_WORDS)
    x, y = word(launch, layout.GRID), word(launch, layout.GRID + 1)
    for index in range(word(launch, layout.WARPS)):
        warp = warp_at(launch, index)
        count = min(word(launch, layout.THREADS) - 32 * index, 32)
        set_word(warp, layout.EXISTS, (1 << count) - 1)
        set_word(warp, layout.ACTIVE, (1 << count) - 1)
        set_word(warp, layout.OTHER, layout.NOBODY)
        for which in layout.BLANK:
            set_word(warp, which, 0)
        set_bytes(warp + layout.HEARD, 0, layout.REGISTERS - layout.HEARD)
        empty_row(launch, layout.ROW_WARPS + index)
        set_word(warp, layout.CTAID, block % x)
        set_word(warp, layout.CTAID + 1, block // x % y)
        set_word(warp, layout.CTAID + 2, block // (x * y))
    set_word(launch, layout.STARTED, 1)


@plain
def has_turn(launch, index):
    """In the order "chance" (Burckhardt and others, 2010: a random schedule with few delays finds what no fixed one does): whether a warp
    runs now, for a few basic blocks. In one of four stretches of turns one of them is held back, but for the last of these turns."""
    if word(launch, layout.ORDER) != CHANCE:
        return True
    turn = word(launch, layout.TURNS) + 1
    set_word(launch, layout.TURNS, turn)
    set_word(launch, layout.BUDGET, word(launch, layout.BUDGET) - 1)
    chance, stretch = mixed(turn), STRETCH * word(launch, layout.WARPS)
    set_word(launch, layout.SLICE, 1 + (chance & chance >> 3 & 3))
    held = mixed(turn // stretch + 1) % (4 * word(launch, layout.WARPS))
    return chance & 512 == 0 if index != held else turn % stretch > stretch - 2 * word(launch, layout.WARPS)


@inlined
def mixed(number):
    """A number that looks random (splitmix64's last steps)."""
    number = (number ^ (number >> 30)) * -0x40A7B892E31B1A47
    number = (number ^ ((number >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return (number ^ ((number >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFF


@plain
def run_phases(launch):
    """The current block, to its end. 0: done, 1: the budget is used up, 2: something is wrong."""
    count = word(launch, layout.WARPS)
    while True:
        going, alive = False, False
        for index in range(count):
            at = count - 1 - index if word(launch, layout.ORDER) == 2 else index
            warp = warp_at(launch, at)
            if (word(warp, layout.ACTIVE) or word(warp, layout.HELD)) and has_turn(launch, at):
                set_word(launch, layout.WARP_NOW, at)
                run_warp(launch, warp)
                if word(launch, layout.ERROR):
                    return 2
            if word(launch, layout.BUDGET) <= 0:
                return 1
            going = going or word(warp, layout.ACTIVE) != 0 or word(warp, layout.HELD) != 0
            alive = alive or word(warp, layout.WAITING) != 0
        if not going:
            if not alive:
                return 0
            if not let_go(launch):
                stuck(launch)
            if word(launch, layout.ERROR):
                return 2


@plain
def run(launch):
    """Go on with a launch. 0: done, 1: call again (Python looks for Ctrl-C meanwhile), 2: something is wrong."""
    while word(launch, layout.STEPS) < word(launch, layout.BLOCKS):
        if word(launch, layout.STARTED) == 0:
            start_block(launch)
        status = run_phases(launch)
        if status:
            return status
        set_word(launch, layout.STARTED, 0)
        done = word(launch, layout.STEPS) + 1
        set_word(launch, layout.STEPS, done)
        set_word(launch, layout.BLOCK_NOW, word(launch, layout.BLOCKS) - 1 - done if word(launch, layout.ORDER) == 2 else done)
    return 0


@plain
def trap(warp, lanes, instruction):
    """The kernel gives up."""
    if lanes:
        lane = 0
        while not lanes >> lane & 1:
            lane += 1
        fail(word(warp, layout.LAUNCH), layout.TRAP, instruction, word(warp, layout.FIRST_THREAD) + lane, 0, 0, 0, 0)
