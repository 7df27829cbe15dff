"""What a recorded step need not do in a replay: a launch that another one has done already, and one whose results nobody reads.

Both are found from what launches name, so no op knows. Where an equal result would have to be kept for longer than it is used, and that
takes more memory at once, it is made again: this is what a checkpoint is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backend.base import Buffer
from ...backend.run import Action, Spot, Step
from .arena import Life, alive_at_once, life_of

Steps = Sequence[Step | Action]
Sizes = Sequence[tuple[int, np.dtype]]
Lean = tuple[list[Any], list[Any]]


def leanest(steps: Steps, outputs: Sequence[Any], inputs: Sequence[int], sizes: Sizes) -> Lean:
    """(steps, outputs) of a replay that gives the same: None in the place of a launch that it can do without. `inputs`: numbers of the
    arguments; `sizes`: (elements, dtype) of each numbered buffer."""
    seen = [(s.kernel, *[a if type(a) is Spot else id(a) for a in s.ins]) for s in steps if type(s) is Step]
    if len(set(seen)) == len(seen):  # nothing is done twice
        return without_unread(steps, outputs), list(outputs)
    far = lean(steps, outputs, inputs, sizes, True)
    near = lean(steps, outputs, inputs, sizes, False)
    if near[0].count(None) == far[0].count(None):
        return near
    peaks = [alive_at_once(list(lives_of(*found, inputs, sizes).values())) for found in (near, far)]
    return far if peaks[1] <= peaks[0] else near


def lean(steps: Steps, outputs: Sequence[Any], inputs: Sequence[int], sizes: Sizes, far: bool) -> Lean:
    """leanest() with results that are kept for an equal launch (`far`), or without."""
    taken, twins = equals(steps, outputs, inputs, sizes, far)
    kept = [None if n in taken else s for n, s in enumerate(steps)]
    if twins:
        kept = [s and renamed(s, twins) for s in kept]
        outputs = replaced(outputs, twins)
    return without_unread(kept, outputs), list(outputs)


# ---- equal launches --------------------------------------------------------------------------------------------------------------
def equals(steps: Steps, outputs: Sequence[Any], inputs: Sequence[int], sizes: Sizes, far: bool) -> tuple[set[int], dict[int, int]]:
    """(launches that do what one before them did, which of their results is which of that one's)."""
    writes = Counter(
        [a.number for s in steps for a in (s.outs if isinstance(s, Step) else s.buffers if s.early else ()) if type(a) is Spot]
    )
    writes.update(inputs)
    last: dict[int, int] = {}  # by which step each number is named for the last time
    for n, s in enumerate(steps):
        for group in (s.buffers,) if isinstance(s, Action) else s[1:]:
            last |= {a.number: n for a in group if type(a) is Spot}
    last |= {a.number: len(steps) for a in outputs if type(a) is Spot}
    version: Counter[Any] = Counter()  # of each piece of memory: how often it was written so far
    twins: dict[int, int] = {}
    done: dict[Any, Step] = {}
    taken: set[int] = set()
    for n, s in enumerate(steps):
        outs = [a for a in s.outs if a is not None] if isinstance(s, Step) else s.buffers if s.early else ()
        if isinstance(s, Step) and outs and not [a for a in outs if type(a) is not Spot or a.size >= 0 or writes[a.number] > 1]:
            first = done.setdefault(what_it_does(s, twins, version, sizes), s)
            pairs = {a.number: b.number for a, b in zip(s.outs, first.outs, strict=True) if a is not None}
            if first is not s and (far or min([last[b] for b in pairs.values()]) >= n):
                taken.add(n)
                twins |= pairs
                last |= {b: max(last[a], last[b]) for a, b in pairs.items()}
                continue
        version.update([a.number if type(a) is Spot else id(a.root or a) for a in outs])
    return taken, twins


def what_it_does(s: Step, twins: dict[int, int], version: Counter[Any], sizes: Sizes) -> Any:
    """What two launches have in common that give the same; where numbers cannot be compared, nothing but the launch itself."""
    found: list[Any] = [id(s.kernel), *[None if a is None else sizes[a.number] for a in s.outs]]
    for a in (*s.ins, *s.consts):
        if type(a) is Spot:
            number = twins.get(a.number, a.number)
            found.append((number, *a[1:], version[number]))
        elif isinstance(a, Buffer):
            root = id(a.root or a)
            found.append((root, a.offset, a.size, a.dtype, version[root]))
        elif isinstance(a, np.ndarray | np.generic):
            found.append((a.dtype, a.shape, a.tobytes()))
        elif a is None or type(a) in (int, bool, float):
            found.append((type(a), repr(a)))
        else:
            return id(s)
    return tuple(found)


# ---- results that nobody reads ---------------------------------------------------------------------------------------------------
def without_unread(steps: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    """None in the place of launches that write nothing but what no later step and no output reads."""
    read = {a.number for a in outputs if type(a) is Spot}
    kept: list[Any] = []
    for s in reversed(steps):
        if type(s) is Step:
            outs = [-1 if type(a) is not Spot else a.number for a in s.outs if a is not None]
            if outs and -1 not in outs and read.isdisjoint(outs):
                s = None
            else:
                read.update(outs, [a.number for a in (*s.ins, *s.consts) if type(a) is Spot])
        elif s is not None:
            read.update([a.number for a in s.buffers if type(a) is Spot])
        kept.append(s)
    return kept[::-1]


# ---- what steps name -------------------------------------------------------------------------------------------------------------
def named(s: Step | Action) -> Sequence[Any]:
    return s.buffers if isinstance(s, Action) else [*s.outs, *s.ins, *s.consts]


def replaced(places: Sequence[Any], twins: dict[int, int]) -> list[Any]:
    return [a._replace(number=twins[a.number]) if type(a) is Spot and a.number in twins else a for a in places]


def renamed(s: Step | Action, twins: dict[int, int]) -> Step | Action:
    if isinstance(s, Action):
        return s._replace(buffers=replaced(s.buffers, twins))
    return Step(s.kernel, *[replaced(group, twins) for group in s[1:]])


# ---- how long memory is in use -------------------------------------------------------------------------------------------------------
def lives_of(steps: Sequence[Any], outputs: Sequence[Any], inputs: Sequence[int], sizes: Sizes, late: bool = False) -> dict[int, Life]:
    """From when to when each numbered buffer lives. One that is filled before the step, from its beginning; one that a check looks at, to
    the end where those are `late`."""
    uses: dict[int, list[tuple[int, Spot]]] = {n: [(-1, Spot(n))] for n in inputs}
    for now, s in enumerate(steps):
        early = isinstance(s, Action) and s.early
        for a in named(s) if s else ():
            if type(a) is Spot:
                uses.setdefault(a.number, []).append((now, a))
                if early:
                    uses[a.number].append((-1, Spot(a.number)))
                elif late and isinstance(s, Action):
                    uses[a.number].append((len(steps), a))
    for a in outputs:
        if type(a) is Spot:
            uses.setdefault(a.number, [(-1, Spot(a.number))]).append((len(steps), Spot(a.number)))
    nbytes = {n: sizes[n][0] * sizes[n][1].itemsize for n in uses}
    return {n: life_of([(now, *bounds(spot, nbytes[n])) for now, spot in found], nbytes[n]) for n, found in uses.items()}


def bounds(spot: Spot, nbytes: int) -> tuple[int, int]:
    """First byte and end of what a spot means of a buffer."""
    return (0, nbytes) if spot.size < 0 else (spot.offset, spot.offset + spot.size * spot.dtype.itemsize)
