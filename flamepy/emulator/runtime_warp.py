"""What the lanes of a warp do together: shuffles, matches, reductions, and the masks that say who takes part.

Every lane named by a mask has to be there. A lane that ended counts as gone, as on the device; to read from it is an error, since the
device gives an undefined value. The compiler may copy such a line into two branches: for a kernel where that was seen, lanes wait at one
copy for those that come to the other (runtime_meetings.py).
"""

from . import layout
from .runtime_check import copy_number
from .runtime_order import known, share_fences
from .runtime_words import fail, inlined, peek32, peek64, plain, poke32, poke64, set_word, word


@inlined
def member(warp, lane):
    """A lane's mask, which the instruction has left in VALUES."""
    return peek32(warp + layout.VALUES + 256 * 3 + 4 * lane) & layout.FULL


@plain
def keep_values(warp, lanes, wide, source, to):
    """Copy what lanes have in four slots to four others."""
    for slot in range(4):
        size = 8 if wide and slot == 0 else 4
        for lane in range(32):
            if lanes >> lane & 1:
                at = warp + layout.VALUES + size * lane
                copy_number(at + 256 * (to + slot), at + 256 * (source + slot), size)


@inlined
def tick(launch, warp):
    """A warp's time goes on. Returns what it is now."""
    turn = word(warp, layout.SYNCED) + 1
    now = word(launch, layout.PHASE) * layout.SYNC_TURNS + turn
    if turn == layout.SYNC_TURNS:
        set_word(launch, layout.PHASE, word(launch, layout.PHASE) + 1)
        turn = 0
    set_word(warp, layout.SYNCED, turn)
    return now


@plain
def together(warp, active, wide, instruction):
    """Check the masks, in slot 3: each lane is in its own, and who is named is here. What they have read before is read: they met. Returns
    who is here; 0 if nothing is to be done (yet). `wide`: the values in slot 0 have 64 bits."""
    launch, joint = word(warp, layout.LAUNCH), word(warp, layout.JOINT)
    if joint == layout.KEEP:
        keep_values(warp, active, wide, 0, 8)
        return 0
    if joint == layout.ALL:
        active = word(warp, layout.JOINT_LANES)
        keep_values(warp, active, wide, 8, 0)
    alive = word(warp, layout.HELD_ALIVE) if joint == layout.ALL else word(warp, layout.EXISTS) & ~word(warp, layout.EXITED)
    for lane in range(32):
        if active >> lane & 1:
            mask = member(warp, lane)
            if mask & alive & ~active or not mask >> lane & 1:
                if word(launch, layout.PARTED) and joint == layout.ALONE and mask >> lane & 1:
                    set_word(warp, layout.HOLD, 1)
                else:
                    fail(launch, layout.MASK, instruction, word(warp, layout.FIRST_THREAD) + lane, mask, active, alive, 0)
                return 0
    set_word(warp, layout.MET_NOW, tick(launch, warp))
    left, exists = active, word(warp, layout.EXISTS)
    for lane in range(32):
        if left >> lane & 1:
            mask = member(warp, lane)
            left &= ~mask
            if mask & exists == exists:
                set_word(warp, layout.MET, word(warp, layout.MET_NOW))
            elif word(launch, layout.WATCHING):
                share(warp, layout.MET_OF, mask & exists, word(warp, layout.MET_NOW))
    return active


@plain
def sync_warp(warp, active, instruction):
    """bar.warp.sync: the lanes that a mask names know from now on what they all have done, and what any of them knew."""
    active = together(warp, active, 0, instruction)
    if active == 0:
        return
    launch = word(warp, layout.LAUNCH)
    if word(launch, layout.WATCHING) == 0:
        return
    exists, now, left = word(warp, layout.EXISTS), word(warp, layout.MET_NOW), active
    for lane in range(32):
        if left >> lane & 1:
            mask = member(warp, lane)
            left &= ~mask
            share_fences(launch, warp, mask & active)
            if mask & exists == exists:
                set_word(warp, layout.ALL_SYNCED, now)
            else:
                share(warp, layout.KNOWN, mask & exists, now)


@plain
def share(warp, which, lanes, now):
    """What each of these lanes knows of any other, all of them know; `which`: of all that it did, or of what it read."""
    for other in range(32):
        time = now if lanes >> other & 1 else 0
        for lane in range(32):
            if lanes >> lane & 1:
                time = max(time, peek64(known(warp, which, lane, other)))
        for lane in range(32):
            if lanes >> lane & 1:
                poke64(known(warp, which, lane, other), time)


@plain
def shuffle(warp, active, mode, instruction):
    """shfl.sync: slots 0 value, 1 lane, 2 clamp, 3 mask; the result goes to slot 4. Returns the lanes whose source was in range."""
    active = together(warp, active, 0, instruction)
    launch, inside = word(warp, layout.LAUNCH), 0
    for lane in range(32):
        if active >> lane & 1:
            by = peek32(warp + layout.VALUES + 256 + 4 * lane) & 31
            clamp = peek32(warp + layout.VALUES + 512 + 4 * lane)
            segment = clamp >> 8 & 31
            last = (lane & segment) | (clamp & 31 & ~segment)
            if mode == 0:
                source = lane - by
                good = source >= last
            else:
                source = lane + by if mode == 1 else (lane ^ by if mode == 2 else (lane & segment) | (by & ~segment))
                good = source <= last
            if not good:
                source = lane
            else:
                inside |= 1 << lane
            if not active >> source & 1:
                fail(launch, layout.LANE, instruction, word(warp, layout.FIRST_THREAD) + lane, source, active, 0, 0)
            poke32(warp + layout.VALUES + 1024 + 4 * lane, peek32(warp + layout.VALUES + 4 * source))
    return inside


@plain
def match(warp, active, everyone, wide, instruction):
    """match.any and match.all: slot 0 value, 3 mask; the lanes with the same value go to slot 4. Returns where all are equal."""
    active = together(warp, active, wide, instruction)
    equal = 0
    for lane in range(32):
        if active >> lane & 1:
            found, mask = 0, member(warp, lane) & active
            for other in range(32):
                if mask >> other & 1:
                    if wide:
                        same = peek64(warp + layout.VALUES + 8 * lane) == peek64(warp + layout.VALUES + 8 * other)
                    else:
                        same = peek32(warp + layout.VALUES + 4 * lane) == peek32(warp + layout.VALUES + 4 * other)
                    if same:
                        found |= 1 << other
            if found == mask:
                equal |= 1 << lane
            elif everyone:
                found = 0
            poke32(warp + layout.VALUES + 1024 + 4 * lane, found)
    return equal


@inlined
def combine(kind, signed, a, b):
    """add, min, max, and, or, xor. Unsigned numbers come without their sign."""
    if kind == 0:
        return a + b
    if kind == 1:
        return min(a, b)
    if kind == 2:
        return max(a, b)
    if kind == 3:
        return a & b
    return a | b if kind == 4 else a ^ b


@plain
def reduce_lanes(warp, active, kind, signed, instruction):
    """redux.sync: slot 0 value, 3 mask, result in slot 4."""
    active = together(warp, active, 0, instruction)
    for lane in range(32):
        if active >> lane & 1:
            mask = member(warp, lane) & active
            total, first = 0, True
            for other in range(32):
                if mask >> other & 1:
                    value = peek32(warp + layout.VALUES + 4 * other) & layout.FULL
                    if signed and value >> 31:
                        value -= 1 << 32
                    total = value if first else combine(kind, signed, total, value)
                    first = False
            poke32(warp + layout.VALUES + 1024 + 4 * lane, total & layout.FULL)


@plain
def everyone(warp, active, instruction):
    """For what a whole warp does together: all 32 lanes have to be there."""
    if active != layout.FULL:
        missing = 0
        while active >> missing & 1:
            missing += 1
        alive = word(warp, layout.EXISTS) & ~word(warp, layout.EXITED)
        fail(word(warp, layout.LAUNCH), layout.MASK, instruction, word(warp, layout.FIRST_THREAD) + missing, layout.FULL, active, alive, 0)
