"""What the engine adds to the tape: whose scaled loss an entry is, who recomputes its values, who is told of it; a backward that failed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import GradientError
from ..core.modes import observing, thread
from ..core.tape import Freed, TapeEntry, file_line

scalings: weakref.WeakSet[TapeEntry] = weakref.WeakSet()  # the entries of scaled losses: where there are none, nobody looks for them


_saved: Any = vars(TapeEntry)["saved"]


class More:
    """`scaled`: the GradScaler whose scaled loss an entry is; `segment`: who recomputes the saved values, if they were dropped."""

    scaled: Any = None
    segment: Any = None

    @property
    def saved(self: Any) -> dict[str, Any]:
        """The saved values by name; none after a backward that freed them, or where they were dropped."""
        return {} if self.segment else _saved.fget(self)  # type: ignore[no-any-return]

    def __reduce__(self: Any) -> Any:
        raise GradientError(f"pickle: a tape cannot be copied: '{self.op.title}' at {self.where}. Use record(), a plain description.")


for _name in ("scaled", "segment", "saved", "__reduce__"):
    setattr(TapeEntry, _name, vars(More)[_name])


class Taken(Freed):
    """`failed`: the error that broke the backward off, if one did."""

    failed = ""

    def refusal(self, entry: TapeEntry) -> Exception:
        if not self.failed:
            return super().refusal(entry)
        return GradientError(
            f"backward: the saved values of '{entry.op.title}' ({entry.where}) are gone: the backward at {file_line(self.code)} had let go "
            f"of them when {self.failed} broke it off. Run the forward pass again; retain_graph=True keeps saved values until the end."
        )


class Observers(threading.local):
    """In this thread: who is told of each new entry, and who of what ops read, recorded or not."""

    entries: tuple[Callable[[TapeEntry], None], ...] = ()
    reader: Callable[[Sequence[Any]], None] | None = None

    def told(self, xs: Sequence[Any], entry: TapeEntry | None) -> None:
        if self.reader is not None:
            self.reader(xs)
        if entry is not None:
            for observer in self.entries:
                observer(entry)


observers = Observers()


def set_observers(entries: tuple[Callable[[TapeEntry], None], ...], reader: Callable[[Sequence[Any]], None] | None) -> None:
    """Who is told of each new entry in this thread, and who of what ops read."""
    observers.entries, observers.reader = entries, reader
    while (me := threading.get_ident()) in observing:
        observing.remove(me)
    wanted = bool(entries or reader)
    thread.modes.observer = observers.told if wanted else None
    if wanted:
        observing.append(me)
