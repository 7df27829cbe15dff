"""What the engine adds to the tape: whose scaled loss an entry is, who recomputes its values, who is told of it; a backward that failed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..bus import heard
from ..core.errors import GradientError
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

    def record(self: Any) -> dict[str, Any]:
        """A plain, serialisable description: what a viewer, a profiler or a NaN hunt reads."""
        found: dict[str, Any] = {"serial": self.serial, "op": self.op.title}
        for side, ids, specs in (("input", self.input_ids, self.call.ins), ("output", self.output_ids, self.call.outs)):
            found[side + "s"] = list(ids)
            found[side + "_shapes"] = [[] if s is None else list(s.shape) for s in specs]
            found[side + "_dtypes"] = ["float32" if s is None else str(s.dtype) for s in specs]
        attributes = {k: repr(v) for k, v in self.attributes.items()}
        return found | {"attributes": attributes, "saved": list(self.saved), "where": self.where}

    def __reduce__(self: Any) -> Any:
        raise GradientError(f"pickle: a tape cannot be copied: '{self.op.title}' at {self.where}. Use record(), a plain description.")


for _name in ("scaled", "segment", "saved", "record", "__reduce__"):
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

    def told(self, op: Any, xs: Sequence[Any], y: Any) -> None:
        """See heard, in core/changes.py."""
        if self.reader is not None:
            self.reader(xs)
        entry = None if op is None else (y[0] if type(y) is tuple else y).entry
        if entry is not None and entry.call.op is op:
            for observer in self.entries:
                observer(entry)


observers = Observers()
observing: set[int] = set()  # the threads that have some
_joining = threading.Lock()  # one thread may not leave the bus for all while another joins


def set_observers(entries: tuple[Callable[[TapeEntry], None], ...], reader: Callable[[Sequence[Any]], None] | None) -> None:
    """Who is told of each new entry in this thread, and who of what ops read."""
    observers.entries, observers.reader = entries, reader
    with _joining:
        (observing.add if entries or reader else observing.discard)(threading.get_ident())
        if observing and observers.told not in heard:
            heard.append(observers.told)
        elif not observing and observers.told in heard:
            heard.remove(observers.told)


def watched() -> bool:
    """Whether on_result() calls somebody after each op."""
    return len(heard) > (observers.told in heard)
