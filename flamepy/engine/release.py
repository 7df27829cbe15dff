"""When a backward lets go of saved values, and how one that fails gives back what it took.

Where nothing but flamepy's own rules runs, saved values go on the way: that is what bounds the memory of a step. Code of the user's
may raise: a hook, the rule of an op of theirs, a checkpointed block that runs again, who watches results. Up to the last place where
it may, values are kept; then all are let go of together. So a backward that it breaks off has changed nothing and can be tried again.

What is left is an interrupt, or memory that runs out, between flamepy's own rules: then errors say which backward took the values.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..bus import heard
from ..core.backward import Cotangents, walk
from ..core.door import Door
from ..core.modes import thread
from ..core.rng import generator
from ..core.tape import Tape, TapeEntry, user_frame
from .entries import Taken, observers, set_observers, watched

NOTHING: Any = (), ()


class Release:
    """One backward's hold on the saved values of `entries`, newest first; `hooked`: whether a leaf has hooks, which run at the end.
    Raises before anything is changed if one of them was freed or overwritten."""

    __slots__ = ("before", "entries", "freed", "kept", "segments", "until")

    def __init__(self, entries: list[TapeEntry], hooked: bool, retain: bool):
        self.entries = entries
        until, segments = sys.maxsize, None
        for entry in entries:
            entry.check()
            segment = entry.segment  # type: ignore[attr-defined] # read once: another thread may be filling the block
            if entry.hooks is not None or segment is not None or not entry.call.op.own:
                until = entry.serial
                if segment is not None:
                    segments = segments or set()
                    segments.add(segment)
        self.until = until = 0 if hooked or (heard and watched()) else until  # the oldest entry at which code of the user's may run
        for segment in segments or ():
            segment.check()
        self.freed = None if retain else Taken(user_frame())
        self.before: Any = None  # what code of the user's may change
        if until == sys.maxsize:
            self.kept, self.segments = NOTHING
            return
        self.kept, self.segments = [], set()  # the entries that still have their values, the checkpointed blocks that ran again
        tapes = [(t, len(t)) for o in observers.entries if type(t := getattr(o, "__self__", None)) is Tape]
        self.before = thread.modes.strict, (observers.entries, observers.reader), generator.place, tapes

    def walk(self, cotangents: Cotangents, kept: list[tuple[Any, Any]]) -> None:
        """core's walk: up to the last place where code of the user's may run with saved values kept, then as always."""
        entries, until = self.entries, self.until
        if until == sys.maxsize:
            return walk(entries, cotangents, kept, self.freed, Door.rule)
        count = len([entry for entry in entries if entry.serial >= until])
        walk(entries[:count], cotangents, kept, None, self.rule)
        if until:  # nothing of the user's will run any more
            for entry in entries[count:]:
                entry.check()
            self.settle()
            walk(entries[count:], cotangents, kept, self.freed, Door.rule)

    def rule(self, entry: TapeEntry, gs: Sequence[Any], cotangents: Cotangents) -> Sequence[Any]:
        """An entry's rule while values are kept: it gets its own first, if they were dropped; a hook may have written into them. Of a
        checkpointed block's values only what it takes to run again is kept."""
        segment = entry.segment  # type: ignore[attr-defined]
        if segment is not None and entry.serial not in segment.lent:
            self.segments.add(segment)
            segment.fill(entry)
        entry.check()
        found = Door.rule(entry, gs, cotangents)
        if self.freed is not None:
            self.kept.append(entry)
            if segment is not None:
                segment.drop(entry)
        return found

    def settle(self) -> None:
        """Let go of what was kept."""
        for entry in self.kept:
            entry.release(self.freed)  # type: ignore[arg-type]
        for segment in self.segments:
            segment.settle()
        self.kept.clear()
        self.segments.clear()

    def undo(self, error: BaseException) -> None:
        """Leave everything as it was before a backward that has failed."""
        for segment in self.segments:
            segment.undo()
        if self.freed is not None:
            self.freed.failed = type(error).__name__
        if self.before is not None:
            thread.modes.strict, told, random, tapes = self.before
            set_observers(*told)
            for tape, length in tapes:
                del tape[length:]
            generator.place = random
