"""Running a launch: blocks one after the other, their warps in turns, a warp's lanes together wherever they can be.

A warp runs the lanes that stand at the lowest basic block; blocks are numbered so that lanes that parted meet again there. Lanes that
ask for something again and again (a lock that another lane of theirs holds) do not keep the others from running, as on GPUs since
Volta. A warp that has no lane left to run (they ended, or wait) gives way to the next one; when all have, barriers that are full let go.
"""

from __future__ import annotations

from .layout import (
    ACTIVE,
    AHEAD,
    ALLOCATED,
    ARRIVE,
    ARRIVED,
    ASYNC_COUNT,
    ASYNC_GROUP,
    BARRIER,
    BARRIER_PHASE,
    BLOCK_NOW,
    BLOCK_PHASE,
    BLOCKS,
    BRANCH,
    BUDGET,
    CHANGED,
    COLLECTIVE,
    CTAID,
    ENDLESS,
    ERROR,
    EXISTS,
    EXIT,
    EXITED,
    FALLS,
    FIRST,
    FIRST_THREAD,
    GRID,
    HEARD,
    HELD,
    HOLD,
    IDLE,
    JOINT,
    KINDS,
    LAUNCH,
    LIMIT,
    LOCAL,
    MOVED,
    NOBODY,
    ORDER,
    OTHER,
    PC,
    PENDING,
    PENDING_WORDS,
    PHASE,
    POLLED,
    REGISTERS,
    ROW_BARRIERS,
    ROW_WARPS,
    RUNS,
    SHARED,
    SHARED_STATE,
    SINCE,
    SLICE,
    STARTED,
    STARTS,
    STATE,
    STEPS,
    SYNCED,
    TABLE,
    TAKEN_STEPS,
    TARGETS,
    THREADS,
    TOP,
    TRAP,
    TURNS,
    WAIT,
    WAITING,
    WARP_NOW,
    WARPS,
)
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
    runs = word(launch, RUNS) + 16 * pc
    poke64(runs, peek64(runs) + 1)
    poke64(runs + 8, peek64(runs + 8) + ones(active))
    taken = run_block(peek64(word(launch, TABLE) + 8 * pc), warp, active)
    if word(warp, HOLD):
        hold(warp, active, pc)
        return -1
    kind = peek32(word(launch, KINDS) + 4 * pc) & ~COLLECTIVE
    fall = peek32(word(launch, FALLS) + 4 * pc)
    if kind == BRANCH:
        if taken == active:
            return peek32(word(launch, TARGETS) + 4 * pc)
        if taken == 0:
            return fall
        send(warp, taken, peek32(word(launch, TARGETS) + 4 * pc))
        send(warp, active & ~taken, fall)
        return -1
    if kind == WAIT:
        send(warp, active, fall)
        wait(launch, warp, pc, taken)
    elif kind == ARRIVE:
        at = launch + 8 * (ARRIVED + (word(warp, BARRIER) & 15))
        poke64(at, peek64(at) + ones(taken))
        if taken:
            arrive(launch, warp, word(warp, BARRIER) & 15)
        return fall
    return -1


@plain
def look_back(launch, warp, steps):
    """After a while: lanes that stood still go on if others only asked for something; and nothing comes to all who ask in vain."""
    idle = 0
    if word(warp, POLLED):
        choose_still(launch, warp)
        idle = word(launch, IDLE) + PATIENCE if word(launch, CHANGED) == 0 else 0
    if idle > word(launch, LIMIT) // HOPELESS:
        fail(launch, ENDLESS, word(warp, PC), word(warp, FIRST_THREAD), 0, steps, 0, 0)
    set_word(launch, IDLE, idle)
    for which in (MOVED, POLLED):
        set_word(warp, which, 0)
    set_word(launch, CHANGED, 0)
    set_word(warp, SINCE, steps)


@plain
def run_warp(launch, warp):
    """Until no lane can go on, the slice of time is over, or something is wrong."""
    left = min(word(launch, SLICE), word(launch, BUDGET))
    begun, ahead = left, word(warp, AHEAD)
    while left > 0:
        pc, active = word(warp, PC), word(warp, ACTIVE)
        if active == 0:
            if word(warp, HELD):
                meet(launch, warp)
                left -= 1
            if word(warp, ACTIVE) == 0 or word(launch, ERROR):
                break
            continue
        other = word(warp, OTHER)
        set_word(warp, MOVED, word(warp, MOVED) | active)
        while True:
            left -= 1
            to = step(launch, warp, pc, active)
            if to < 0 or to >= other or to == EXIT or left <= 0 or word(launch, ERROR):
                break
            if ahead and peek32(word(launch, KINDS) + 4 * to) & COLLECTIVE:
                break
            pc = to
        ahead = 0
        if word(launch, ERROR):
            break
        if to >= 0:
            send(warp, active, to)
        choose(warp)
    set_word(launch, BUDGET, word(launch, BUDGET) - (begun - left))
    steps = word(warp, TAKEN_STEPS) + begun - left
    set_word(warp, TAKEN_STEPS, steps)
    set_word(warp, AHEAD, 0)
    if steps - word(warp, SINCE) >= PATIENCE and word(launch, ERROR) == 0:
        look_back(launch, warp, steps)
    if steps > word(launch, LIMIT):
        fail(launch, ENDLESS, word(warp, PC), word(warp, FIRST_THREAD), 0, steps, 0, 0)


@plain
def start_block(launch):
    """A new block: its shared and local memory hold nothing, its warps stand at the beginning."""
    block = word(launch, BLOCK_NOW)
    phase = word(launch, PHASE) + 1
    set_word(launch, PHASE, phase)
    set_word(launch, BLOCK_PHASE, phase)
    set_word(launch, BARRIER_PHASE, phase)
    shared, local = group_of(launch, SHARED), group_of(launch, LOCAL)
    set_word(shared, FIRST, phase)
    poke32(word(launch, STARTS) + 4 * block, phase)
    copy_bytes(word(shared, STATE), word(launch, SHARED_STATE), word(shared, TOP))
    set_bytes(word(local, STATE), ALLOCATED, word(local, TOP) * word(launch, THREADS))
    for k in range(16):
        set_word(launch, ARRIVED + k, 0)
        empty_row(launch, ROW_BARRIERS + k)
    set_bytes(launch + 8 * PENDING, 0, 8 * 16 * PENDING_WORDS)
    x, y = word(launch, GRID), word(launch, GRID + 1)
    for index in range(word(launch, WARPS)):
        warp = warp_at(launch, index)
        count = min(word(launch, THREADS) - 32 * index, 32)
        set_word(warp, EXISTS, (1 << count) - 1)
        set_word(warp, ACTIVE, (1 << count) - 1)
        set_word(warp, OTHER, NOBODY)
        for which in (PC, EXITED, WAITING, SYNCED, ASYNC_COUNT, ASYNC_GROUP, TAKEN_STEPS, MOVED, SINCE, POLLED, AHEAD):
            set_word(warp, which, 0)
        for which in (HELD, HOLD, JOINT):
            set_word(warp, which, 0)
        set_bytes(warp + HEARD, 0, REGISTERS - HEARD)
        empty_row(launch, ROW_WARPS + index)
        set_word(warp, CTAID, block % x)
        set_word(warp, CTAID + 1, block // x % y)
        set_word(warp, CTAID + 2, block // (x * y))
    set_word(launch, STARTED, 1)


@plain
def has_turn(launch, index):
    """In the order "chance" (Burckhardt and others, 2010: a random schedule with few delays finds what no fixed one does): whether a warp
    runs now, for a few basic blocks. In one of four stretches of turns one of them is held back, but for the last of these turns."""
    if word(launch, ORDER) != CHANCE:
        return True
    turn = word(launch, TURNS) + 1
    set_word(launch, TURNS, turn)
    set_word(launch, BUDGET, word(launch, BUDGET) - 1)
    chance, stretch = mixed(turn), STRETCH * word(launch, WARPS)
    set_word(launch, SLICE, 1 + (chance & chance >> 3 & 3))
    held = mixed(turn // stretch + 1) % (4 * word(launch, WARPS))
    return chance & 512 == 0 if index != held else turn % stretch > stretch - 2 * word(launch, WARPS)


@inlined
def mixed(number):
    """A number that looks random (splitmix64's last steps)."""
    number = (number ^ (number >> 30)) * -0x40A7B892E31B1A47
    number = (number ^ ((number >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return (number ^ ((number >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFF


@plain
def run_phases(launch):
    """The current block, to its end. 0: done, 1: the budget is used up, 2: something is wrong."""
    count = word(launch, WARPS)
    while True:
        going, alive = False, False
        for index in range(count):
            at = count - 1 - index if word(launch, ORDER) == 2 else index
            warp = warp_at(launch, at)
            if (word(warp, ACTIVE) or word(warp, HELD)) and has_turn(launch, at):
                set_word(launch, WARP_NOW, at)
                run_warp(launch, warp)
                if word(launch, ERROR):
                    return 2
            if word(launch, BUDGET) <= 0:
                return 1
            going = going or word(warp, ACTIVE) != 0 or word(warp, HELD) != 0
            alive = alive or word(warp, WAITING) != 0
        if not going:
            if not alive:
                return 0
            if not let_go(launch):
                stuck(launch)
            if word(launch, ERROR):
                return 2


@plain
def run(launch):
    """Go on with a launch. 0: done, 1: call again (Python looks for Ctrl-C meanwhile), 2: something is wrong."""
    while word(launch, STEPS) < word(launch, BLOCKS):
        if word(launch, STARTED) == 0:
            start_block(launch)
        status = run_phases(launch)
        if status:
            return status
        set_word(launch, STARTED, 0)
        done = word(launch, STEPS) + 1
        set_word(launch, STEPS, done)
        set_word(launch, BLOCK_NOW, word(launch, BLOCKS) - 1 - done if word(launch, ORDER) == 2 else done)
    return 0


@plain
def trap(warp, lanes, instruction):
    """The kernel gives up."""
    if lanes:
        lane = 0
        while not lanes >> lane & 1:
            lane += 1
        fail(word(warp, LAUNCH), TRAP, instruction, word(warp, FIRST_THREAD) + lane, 0, 0, 0, 0)
