"""What the engine adds to the tape: whose scaled loss an entry is, who recomputes its values, who is told of it; a backward that failed."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

from ..bus import heard
from ..core.errors import GradientError
from ..core.modes import thread
from ..core.tape import TapeEntry, file_line
from ..core.tensor import attach
from .autocast import here

scalings: weakref.WeakSet[TapeEntry] = weakref.WeakSet()  # the entries of scaled losses: where there are none, nobody looks for them


_saved: Any = vars(TapeEntry)["saved"]
_refusal: Any = TapeEntry.refusal
_check: Any = TapeEntry.check


class More:
    """`scaled`: the GradScaler whose scaled loss an entry is; `segment`: who recomputes the saved values, if they were dropped. An entry
    of a planned call (finish.py) has `others` in the place of `operands`: what the inputs are that no gradient flows to."""

    scaled: Any = None
    segment: Any = None
    slots: ClassVar[Any] = defaultdict(int)  # of an entry whose inputs are all first outputs
    others: Sequence[Any] = ()

    @cached_property
    def operands(self: Any) -> list[Any]:
        others = dict(zip(self.call.others, self.others, strict=True))
        rows = enumerate(self.inputs)
        return [others.get(i) if n is None else n.output_ids[self.slots[i]] if type(n) is TapeEntry else n.id for i, n in rows]

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

    def check(self: Any) -> None:
        """Core's, which looks at all that is saved: of a planned call only at what somebody else may overwrite."""
        values = self.values
        if self.freed is None and (not values or self.call.guarded is not None):
            for i in self.call.guarded if values else ():
                if values[i] is not None and self.versions[i] != values[i].version:
                    break
            else:
                return
        _check(self)

    def refusal(self: Any) -> Exception:
        error = getattr(self.freed, "failed", "")
        if not error:
            return _refusal(self)  # type: ignore[no-any-return]
        return GradientError(
            f"backward: the saved values of '{self.op.title}' ({self.where}) are gone: the backward at {file_line(self.freed)} had let go "
            f"of them when {error} broke it off. Run the forward pass again; retain_graph=True keeps saved values until the end."
        )

    def __reduce__(self: Any) -> Any:
        raise GradientError(f"pickle: a tape cannot be copied: '{self.op.title}' at {self.where}. Use record(), a plain description.")


attach(More, TapeEntry)


class Taken(tuple[Any, int]):
    """Where the backward was called that let go of saved values; `failed`: the error that broke it off, if one did."""

    failed = ""


class Observers(threading.local):
    """In this thread: who is told of each new entry, and who of what ops read, recorded or not; whether a checkpointed block runs again;
    who keeps results of its ops, and who gives them then."""

    again = False
    keep: Callable[[TapeEntry, Any], None] | None = None
    give: Callable[[Any, Sequence[Any], dict[str, Any]], Any] | None = None
    entries: tuple[Callable[[TapeEntry], None], ...] = ()
    reader: Callable[[Sequence[Any]], None] | None = None

    def told(self, op: Any, xs: Sequence[Any], y: Any) -> None:
        """See heard, in core/changes.py."""
        if self.reader is not None:
            self.reader(xs)
        entry = None if op is None else (y[0] if type(y) is tuple else y).entry
        if entry is not None and entry.call.op is op:
            if self.keep is not None:
                self.keep(entry, y)
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


@contextmanager
def own_state() -> Iterator[bool]:
    """Around what a layer writes into state of its own, as running statistics are: nobody observes it, nothing of it is recorded, and it
    is as exact in an autocast block. False says that it is not to be done: a checkpointed block runs again, whose first run has done it."""
    told, recording, reads = (observers.entries, observers.reader), thread.modes.recording, here.dtype
    if told != ((), None):
        set_observers((), None)
    thread.modes.recording, here.dtype = False, None
    try:
        yield not observers.again
    finally:
        thread.modes.recording, here.dtype = recording, reads
        if told != ((), None):
            set_observers(*told)


def watched() -> bool:
    """Whether on_result() calls somebody after each op."""
    return len(heard) > (observers.told in heard)
