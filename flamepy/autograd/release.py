"""When a backward lets go of saved values, and how one that fails gives back what it took.

Where nothing but flamepy's own rules runs, saved values go on the way: that is what bounds the memory of a step. Code of the user's
may raise: a hook, the rule of an op of theirs, a checkpointed block that runs again, who watches results. Up to the last place where
it may, values are kept; then all are let go of together. So a backward that it breaks off has changed nothing and can be tried again.

What is left is an interrupt, or memory that runs out, between flamepy's own rules: then errors say which backward took the values.
"""

from __future__ import annotations

import sys
from typing import Any

from ..rng import generator
from .entries import Freed, Tape, TapeEntry, set_observers, thread, user_frame, watchers

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
            segment = entry.segment  # read once: another thread may be filling the block
            if entry.hooks is not None or segment is not None or not entry.call.op.own:
                until = entry.serial
                if segment is not None:
                    segments = segments or set()
                    segments.add(segment)
        self.until = until = 0 if hooked or watchers else until  # the oldest entry at which code of the user's may run
        for segment in segments or ():
            segment.check()
        self.freed = None if retain else Freed(user_frame())
        self.before: Any = None  # what code of the user's may change
        if until == sys.maxsize:
            self.kept, self.segments = NOTHING
            return
        self.kept, self.segments = [], set()  # the entries that still have their values, the checkpointed blocks that ran again
        modes = thread.modes
        tapes = [(t, len(t)) for o in modes.observers if type(t := getattr(o, "__self__", None)) is Tape]
        self.before = modes.strict, (modes.observers, modes.reader), generator.saved(), tapes

    def enter(self, entry: TapeEntry) -> None:
        """Before an entry's rule runs while values are kept: get its own, if they were dropped; a hook may have written into them."""
        segment = entry.segment
        if segment is not None and entry.serial not in segment.lent:
            self.segments.add(segment)
            segment.fill(entry)
        entry.check()

    def leave(self, entry: TapeEntry) -> None:
        """After it. Of a checkpointed block's values only what it takes to run again is kept."""
        if self.freed is not None:
            self.kept.append(entry)
            if (segment := entry.segment) is not None:
                segment.drop(entry)
        if entry.serial == self.until:  # nothing of the user's will run any more
            for other in self.entries:
                if other.serial < self.until:
                    other.check()
            self.settle()

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
            self.freed.error = type(error).__name__
        if self.before is not None:
            thread.modes.strict, observers, random, tapes = self.before
            set_observers(*observers)
            for tape, length in tapes:
                del tape[length:]
            generator.restore(random)
