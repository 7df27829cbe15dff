"""What the lanes of a warp do together: shuffles, matches, reductions, and the masks that say who takes part.

Every lane named by a mask has to be there. A lane that ended counts as gone, as on the device; to read from it is an error, since the
device gives an undefined value. Read next: runtime_run.py.
"""

from __future__ import annotations

from .layout import ALL_SYNCED, EXISTS, EXITED, FIRST_THREAD, FULL, LANE, LAUNCH, MASK, MET, PHASE, SYNC_TURNS, SYNCED, VALUES
from .runtime_races import known
from .runtime_words import fail, inlined, peek32, peek64, plain, poke32, poke64, set_word, word


@inlined
def member(warp, slot, lane):
    """A lane's mask, which the instruction has left in VALUES."""
    return peek32(warp + VALUES + 256 * slot + 4 * lane) & FULL


@inlined
def tick(launch, warp):
    """A warp's time goes on. Returns what it is now."""
    turn = word(warp, SYNCED) + 1
    now = word(launch, PHASE) * SYNC_TURNS + turn
    if turn == SYNC_TURNS:
        set_word(launch, PHASE, word(launch, PHASE) + 1)
        turn = 0
    set_word(warp, SYNCED, turn)
    return now


@plain
def together(warp, active, slot, instruction):
    """Check the masks in a slot: each lane is in its own, and who is named is here. What they have read before is read: they met."""
    launch = word(warp, LAUNCH)
    set_word(warp, MET, tick(launch, warp))
    alive = word(warp, EXISTS) & ~word(warp, EXITED)
    for lane in range(32):
        if active >> lane & 1:
            mask = member(warp, slot, lane)
            if mask & alive & ~active or not mask >> lane & 1:
                fail(launch, MASK, instruction, word(warp, FIRST_THREAD) + lane, mask, active, alive, 0)
                return


@plain
def sync_warp(warp, active, instruction):
    """bar.warp.sync: the lanes that a mask names know from now on what they all have done, and what any of them knew."""
    together(warp, active, 3, instruction)
    alive, now, left = word(warp, EXISTS) & ~word(warp, EXITED), word(warp, MET), active
    for lane in range(32):
        if left >> lane & 1:
            mask = member(warp, 3, lane)
            left &= ~mask
            if mask & alive == alive:
                set_word(warp, ALL_SYNCED, now)
            else:
                share(warp, mask & active, now)


@plain
def share(warp, lanes, now):
    """What each of these lanes knows of any other, all of them know."""
    for other in range(32):
        time = now if lanes >> other & 1 else 0
        for lane in range(32):
            if lanes >> lane & 1:
                time = max(time, peek64(known(warp, lane, other)))
        for lane in range(32):
            if lanes >> lane & 1:
                poke64(known(warp, lane, other), time)


@plain
def shuffle(warp, active, mode, instruction):
    """shfl.sync: slots 0 value, 1 lane, 2 clamp, 3 mask; the result goes to slot 4. Returns the lanes whose source was in range."""
    together(warp, active, 3, instruction)
    launch, inside = word(warp, LAUNCH), 0
    for lane in range(32):
        if active >> lane & 1:
            by = peek32(warp + VALUES + 256 + 4 * lane) & 31
            clamp = peek32(warp + VALUES + 512 + 4 * lane)
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
                fail(launch, LANE, instruction, word(warp, FIRST_THREAD) + lane, source, active, 0, 0)
            poke32(warp + VALUES + 1024 + 4 * lane, peek32(warp + VALUES + 4 * source))
    return inside


@plain
def match(warp, active, everyone, wide, instruction):
    """match.any and match.all: slot 0 value, 3 mask; the lanes with the same value go to slot 4. Returns where all are equal."""
    together(warp, active, 3, instruction)
    equal = 0
    for lane in range(32):
        if active >> lane & 1:
            found, mask = 0, member(warp, 3, lane) & active
            for other in range(32):
                if mask >> other & 1:
                    if wide:
                        same = peek64(warp + VALUES + 8 * lane) == peek64(warp + VALUES + 8 * other)
                    else:
                        same = peek32(warp + VALUES + 4 * lane) == peek32(warp + VALUES + 4 * other)
                    if same:
                        found |= 1 << other
            if found == mask:
                equal |= 1 << lane
            elif everyone:
                found = 0
            poke32(warp + VALUES + 1024 + 4 * lane, found)
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
    together(warp, active, 3, instruction)
    for lane in range(32):
        if active >> lane & 1:
            mask = member(warp, 3, lane) & active
            total, first = 0, True
            for other in range(32):
                if mask >> other & 1:
                    value = peek32(warp + VALUES + 4 * other) & FULL
                    if signed and value >> 31:
                        value -= 1 << 32
                    total = value if first else combine(kind, signed, total, value)
                    first = False
            poke32(warp + VALUES + 1024 + 4 * lane, total & FULL)


@plain
def everyone(warp, active, instruction):
    """For what a whole warp does together: all 32 lanes have to be there."""
    if active != FULL:
        missing = 0
        while active >> missing & 1:
            missing += 1
        alive = word(warp, EXISTS) & ~word(warp, EXITED)
        fail(word(warp, LAUNCH), MASK, instruction, word(warp, FIRST_THREAD) + missing, FULL, active, alive, 0)
