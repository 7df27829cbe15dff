"""Lanes that come to one line of Python at two places, since the compiler has copied it into branches, and meet there all the same.

The PTX ISA has a lane wait until all that its mask names have executed "the same qualifiers and same membermask", not the same instruction.
"""

from . import layout
from .runtime_barriers import choose, send
from .runtime_words import inlined, peek32, peek64, plain, run_block, set_word, word


@plain
def hold(warp, lanes, pc):
    """These lanes wait at a block for others."""
    if word(warp, layout.HELD) == 0:
        set_word(warp, layout.HELD_ALIVE, word(warp, layout.EXISTS) & ~word(warp, layout.EXITED))
    set_word(warp, layout.HOLD, 0)
    set_word(warp, layout.HELD, word(warp, layout.HELD) | lanes)
    send(warp, lanes, pc)


@inlined
def lanes_at(warp, lanes, pc):
    found = 0
    for lane in range(32):
        if lanes >> lane & 1 and peek32(warp + layout.LANE_PC + 4 * lane) == pc:
            found |= 1 << lane
    return found


@plain
def meet(launch, warp):
    """No other lane of the warp can run: those that wait at one line of Python do together what stands there. First each place keeps its
    lanes' values, then each has those of all."""
    held, first = word(warp, layout.HELD), 0
    while not held >> first & 1:
        first += 1
    line = peek32(word(launch, layout.MEETS) + 4 * peek32(warp + layout.LANE_PC + 4 * first))
    joint = 0
    for lane in range(32):
        if held >> lane & 1 and peek32(word(launch, layout.MEETS) + 4 * peek32(warp + layout.LANE_PC + 4 * lane)) == line:
            joint |= 1 << lane
    set_word(warp, layout.JOINT_LANES, joint)
    for how in (layout.KEEP, layout.ALL):
        set_word(warp, layout.JOINT, how)
        left = joint
        for lane in range(32):
            if left >> lane & 1:
                pc = peek32(warp + layout.LANE_PC + 4 * lane)
                here = lanes_at(warp, left, pc)
                run_block(peek64(word(launch, layout.TABLE) + 8 * pc), warp, here)
                left &= ~here
                if how == layout.ALL:
                    send(warp, here, peek32(word(launch, layout.FALLS) + 4 * pc))
    set_word(warp, layout.JOINT, layout.ALONE)
    set_word(warp, layout.HELD, held & ~joint)
    choose(warp)
