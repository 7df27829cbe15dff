"""checkpoint(): keep no activations of a block, compute them again in backward (Chen et al. 2016, arXiv:1604.06174).

The block runs and is recorded as always, but its entries drop their saved values at once. When backward first reaches one of
them, the block runs again, with the same random numbers, and its new entries lend their saved values to the old ones. So a
block may use parameters and tensors it was not given as arguments, and hooks, retain_graph and create_graph work as elsewhere.
What ops gave that keep= names is kept, and these do not run again.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from .autograd import enable_grad, is_grad_enabled
from .backend.base import Buffer
from .bus import before, heard
from .core import ids
from .core.errors import GradientError, VersionError
from .core.modes import thread
from .core.op import REGISTRY, SCALARS, USERS
from .core.tape import TapeEntry
from .dtypes import check_function, digest_of
from .engine.autocast import here, reading
from .engine.entries import observers, set_observers
from .engine.plan import AGAIN, specs_of
from .parameter import Parameter
from .rng import go_back, places
from .tensors import Tensor


class Rewind:
    """The place in the random numbers where a block began, to go back to when it runs again; so in every replay of a step."""

    def __init__(self) -> None:
        before(self.begin)

    def __eq__(self, other: object) -> bool:
        """For a check of a captured step: each call makes one anew, which does the same."""
        return type(other) is Rewind

    __hash__ = object.__hash__

    def begin(self) -> None:
        self.began = places()

    def back(self) -> None:
        self.now = places()
        go_back(self.began)

    def forth(self) -> None:
        go_back(self.now)


class Read(NamedTuple):
    """Something that a block read in its first run, not kept alive, and what an error text says of it."""

    buffer: weakref.ref[Buffer]
    version: int
    parameter: weakref.ref[Parameter] | None  # pack() may have moved it
    label: str
    id: int
    shape: tuple[int, ...]

    def overwritten(self) -> Buffer | None:
        """The memory in which a later run would find other numbers; None if they are the same, or out of reach."""
        buffer, p = self.buffer(), None if self.parameter is None else self.parameter()
        if p is not None and p.buffer is not buffer:  # moved: nobody has written into the new memory yet
            return p.buffer if p.buffer.version else None
        return buffer if buffer is not None and buffer.version != self.version else None


class Segment:
    """One checkpointed block: what to run again, what it reads, and the entries waiting for saved values."""

    def __init__(self, run: Callable[[], Any], titles: frozenset[str] = frozenset()):
        self.run = run
        self.titles = titles  # of ops whose results are kept
        self.results: dict[int, tuple[list[Buffer], list[Any]]] = {}  # by serial: these, and what was saved beside inputs
        self.random, self.reads_as = Rewind(), here.dtype
        self.first = ids.next_id()  # tensors made in the block have larger ones
        self.reads: dict[int, Read] = {}
        self.given: list[tuple[Any, int]] = []  # numbers and data of Python's, and how many entries there were when they were used
        self.lent: dict[int, tuple[Any, Any, Any]] = {}  # by serial: what the entries had before the block ran again
        self.entries: list[TapeEntry] = []
        self.keep = False
        self.running = True  # the first time round
        self.lock = RLock()  # two threads may go back through one block

    def read(self, xs: Sequence[Any]) -> None:
        """Take note of what is read, whether it is an argument, lies in one or is closed over, tracked or not. Results of the block's
        own recorded ops are left out."""
        for x in xs:
            if not isinstance(x, Tensor):
                self.given += [(value, len(self.entries)) for value in numbers_in(x)]
            elif x.entry is None or x.id < self.first:
                b, p = x.buffer, x if isinstance(x, Parameter) else None
                key = id(b if p is None else p)
                known = self.reads.get(key)
                if known is None or known.buffer() is not b:
                    self.reads[key] = Read(weakref.ref(b), b.version, None if p is None else weakref.ref(p), x.name, x.id, x.shape)

    def add(self, entry: TapeEntry) -> None:
        """Take note of an entry; the first time round, drop what it saved, except leaves, which may not be overwritten."""
        self.given += [(value, len(self.entries)) for value in numbers_in(tuple(entry.attributes.values()))]
        self.entries.append(entry)
        if not self.keep:
            leaves = {id(node.buffer) for node in entry.inputs if isinstance(node, Tensor)}
            entry.values = [v if id(v) in leaves else None for v in entry.values]
            entry.segment = self  # type: ignore[attr-defined]

    # ---- results that are kept ---------------------------------------------------------------------------------------------------------
    def keep_result(self, entry: TapeEntry, y: Any) -> None:
        """In the first run: keep what a named op gave."""
        if entry.op.title in self.titles:
            beside = [None if name in entry.op.inputs else v for (name, _), v in zip(entry.call.saved, entry.values, strict=True)]
            self.results[entry.serial] = [t.buffer for t in (y if type(y) is tuple else (y,))], beside

    def result(self, i: int, op: Any, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
        """When the block runs again: what entry number i gave, with an entry, if it is kept and this is the same call; else None."""
        old = self.entries[i] if i < len(self.entries) else None
        found = None if old is None else self.results.get(old.serial)
        if old is None or found is None or op is not old.op or specs_of(xs) != old.call.ins or repr(attributes) != repr(old.attributes):
            return None
        buffers, beside = found
        ys = tuple([Tensor(b, spec) for b, spec in zip(buffers, old.call.outs, strict=True)])
        values = list(beside)
        for n, (name, _) in enumerate(old.call.saved):
            if name in op.inputs:
                x = xs[op.inputs.index(name)]
                values[n] = x.buffer if isinstance(x, Tensor) else x
        entry = TapeEntry(old.call, ys, xs, attributes, values)
        for slot, t in enumerate(ys):
            t.entry, t.slot = entry, slot
        y = ys[0] if old.call.single else ys
        heard(op, xs, y)
        return y

    def check(self) -> None:
        """Raise unless everything the block read is as it was."""
        found = [(read, buffer) for read in self.reads.values() if (buffer := read.overwritten()) is not None]
        if found:
            read, buffer = max(found, key=lambda pair: bool(pair[0].label))  # one that has a name says more
            raise VersionError(
                f"checkpoint: a tensor that the block reads was overwritten: {read.label or f'tensor {read.id}'}, shape {read.shape}, "
                f"written by {buffer.last_write}. Run backward before writing, or have the block read a clone()."
            )

    def fill(self, entry: TapeEntry) -> None:
        """Run the block again and give every entry its saved values, unless another thread has done so."""
        if self.running:
            raise GradientError("checkpoint: backward() inside the block, which keeps nothing. Call it outside, or leave checkpoint() out.")
        with self.lock:
            if self.entries and entry.serial not in self.lent:
                self.run_again()

    def run_again(self) -> None:
        """With the same random numbers, recording, and out of sight of observers."""
        self.check()
        again = Segment(self.run)
        again.keep = True
        before_it, outer = (observers.entries, observers.reader), (observers.again, observers.give)
        set_observers((again.add,), again.read)
        observers.again = True
        if self.results:
            observers.give = lambda op, xs, attributes: self.result(len(again.entries), op, xs, attributes)
        before(self.random.back)
        try:
            with enable_grad(), reading(self.reads_as):
                thread.modes.recording = AGAIN if self.results else True  # type: ignore[assignment]
                self.run()
        finally:
            observers.again, observers.give = outer
            set_observers(*before_it)
            before(self.random.forth)
        if what := self.difference(again.entries):
            advice = "It must depend on its inputs and flamepy's random numbers alone"
            raise GradientError(f"checkpoint: the block did something else the second time: {what}. {advice}.")
        self.check_given(again.given)
        self.lend(again.entries)

    def check_given(self, now: list[tuple[Any, int]]) -> None:
        """Raise if the block used other numbers of Python's than the first time: its gradient would be another function's. A block that
        used more of them may have kept some for itself, so only as many are compared."""
        for (x, i), (y, _) in zip(self.given, now, strict=True) if len(self.given) == len(now) else ():
            if x != y and (x == x or y == y):
                shown = ("some data", "other data") if isinstance(x, bytes) else (x, y)
                where = f" ({self.entries[i].op.title} at {self.entries[i].where}, or before it)" if i < len(self.entries) else ""
                raise GradientError(
                    f"checkpoint: the block used another number the second time: {shown[0]}, then {shown[1]}{where}. Make it outside of "
                    "the block and pass it in, or draw it with flamepy's random numbers."
                )

    def lend(self, fresh: list[TapeEntry]) -> None:
        """Give the entries what these saved, which are the same ops on the same inputs."""
        for old, new in zip(self.entries, fresh, strict=True):
            if old.freed is None and old.serial not in self.lent:
                self.lent[old.serial] = old.call, old.values, old.versions
                old.call, old.values, old.versions = new.call, new.values, new.versions

    def drop(self, entry: TapeEntry) -> None:
        """Take an entry's saved values back: the block can run once more."""
        if entry.serial in self.lent:
            entry.call, entry.values, entry.versions = self.lent.pop(entry.serial)

    def undo(self) -> None:
        """After a backward that has failed: as if the block had not run again."""
        for entry in self.entries:
            self.drop(entry)

    def settle(self) -> None:
        """After a backward: the block need not run again, so its entries keep what they have, and its inputs are let go of."""
        with self.lock:
            if all([entry.freed is not None or entry.serial in self.lent for entry in self.entries]):
                for entry in self.entries:
                    entry.segment = None  # type: ignore[attr-defined]
                self.entries, self.reads, self.lent, self.given, self.results = [], {}, {}, [], {}
                self.run = _done

    def difference(self, fresh: list[TapeEntry]) -> str:
        """What the second run did otherwise than the first, for an error text; "" if nothing, or numbers alone."""
        places = [{id(entry): i for i, entry in enumerate(entries)} for entries in (self.entries, fresh)]
        for i, (a, b) in enumerate(zip(self.entries, fresh, strict=False)):
            if what := self.other(a, b, places):
                return f"op {i + 1} of {len(self.entries)}, {a.op.title} at {a.where}: {what}"
        if len(fresh) == len(self.entries):
            return ""
        longer, when = (fresh, "first") if len(fresh) > len(self.entries) else (self.entries, "second")
        more = longer[min(len(fresh), len(self.entries))]
        counts = f"ops: {len(self.entries)}, then {len(fresh)}"
        return f"{counts}; {more.op.title} at {more.where} was not there the {when} time"

    def other(self, a: TapeEntry, b: TapeEntry, places: list[dict[int, int]]) -> str:
        """What an op did otherwise; `places`: where the entries of both runs stand."""
        if a.op is not b.op:
            return f"the second time it was {b.op.title if b.op.title != a.op.title else b.op.name} at {b.where}"
        for x, y, kind in zip(a.inputs, b.inputs, range(len(a.inputs)), strict=False):
            if not self.same_input(x, y, places):
                return f"{named(a, kind)} was {described(x, a, kind)}, then {described(y, b, kind)}"
        for i, x, y in zip(range(len(a.inputs)), a.input_ids, b.input_ids, strict=False):
            # A tensor made in the block is another each time; numbers alone are check_given()'s.
            if a.inputs[i] is None and x and y and x != y and min(x, y) < self.first:
                return f"{named(a, i)} was tensor {x}, then tensor {y}"
        found = [[(spec is None, i in entry.call.tracked, entry.slots[i]) for i, spec in enumerate(entry.call.ins)] for entry in (a, b)]
        if found[0] != found[1]:
            return "it had other inputs"
        results = [[f"{s.dtype} of shape {s.shape}" for s in entry.call.outs] for entry in (a, b)]
        for key, value in a.attributes.items():
            was, then = repr(value), repr(b.attributes.get(key))  # numbers alone are check_given()'s
            if was != then and (isinstance(value, str) or (results[0] != results[1] and isinstance(value, int | float | tuple))):
                return f"{key} was {was:.60}, then {then:.60}"
        return "" if results[0] == results[1] else f"it gave {', '.join(results[0])}, then {', '.join(results[1])}"

    def same_input(self, x: Any, y: Any, places: list[dict[int, int]]) -> bool:
        """Whether two entries read the same leaf, or what the same op made; leaves that the block makes itself are others each time."""
        if x is y:
            return True
        if type(x) is TapeEntry or type(y) is TapeEntry:
            return id(x) in places[0] and places[0][id(x)] == places[1].get(id(y))
        return x is not None and y is not None and min(x.id, y.id) >= self.first


def named(entry: TapeEntry, i: int) -> str:
    """What an input is called."""
    return f"input {entry.op.inputs[i] if i < len(entry.op.inputs) else i + 1}"


def described(x: Any, entry: TapeEntry, i: int) -> str:
    """What it was."""
    if x is None:
        return "no tracked tensor"
    what = f"the result of {x.op.title} at {x.where}" if type(x) is TapeEntry else f"'{x.name}'" if x.name else f"tensor {x.id}"
    return f"{what} of shape {entry.call.ins[i].shape}"


def numbers_in(x: Any) -> Iterator[Any]:
    """The numbers in an argument of an op, and a digest of data."""
    if isinstance(x, tuple):
        for inner in x:
            yield from numbers_in(inner)
    elif isinstance(x, np.ndarray):
        yield digest_of(x)
    elif isinstance(x, SCALARS):
        yield x


def _done() -> None:
    """Stands where a block was that need not run again: lets go of its inputs."""


def titles_of(name: str, keep: Any) -> frozenset[str]:
    """The titles of ops that are named. Raises ValueError for what is no op, or draws random numbers, which are to be drawn again."""
    found = set()
    for given in (keep,) if isinstance(keep, str) or callable(keep) else tuple(keep or ()):
        op_name = getattr(given, "__name__", given)
        ops = [op for op in (*REGISTRY.values(), *USERS.values()) if op_name in (op.name, op.title)]
        if not ops:
            raise ValueError(f"{name}: keep names no op: {given!r}. Name ops as fp.tape() shows them: 'linear', 'matmul', 'conv2d'.")
        if any(["generator" in op.attributes or not op.trusted for op in ops]):
            raise ValueError(f"{name}: keep names an op that draws random numbers, or may: {given!r}. Leave it out: it has to run again.")
        found |= {op.title for op in ops}
    return frozenset(found)


def checkpoint(fn: Callable, *args: Any, keep: Any = (), **kwargs: Any) -> Any:
    """fn(*args, **kwargs), recorded without keeping activations; they are computed again in backward.

    keep: names of ops, as fp.tape() shows them, whose results are kept: backward makes all else again from these, but not them. With
    keep=("linear", "matmul", "scaled_dot_product_attention") a block costs no second product, and keeps no norms and activations.

    Any number of inputs, tensors or not, and any outputs. A function without parameters is called without arguments (FLAME's
    `checkpoint(closure, input)`). Inside another checkpoint, or when nothing is recorded, it simply runs. Backward raises
    VersionError if a tensor that the block read, by whatever way, was overwritten since, by the block itself too; GradientError if the
    block does something else the second time, or uses another number of Python's.
    """
    check_function("checkpoint", "fn", fn)
    titles = titles_of("checkpoint", keep)
    if strange := [name for name in kwargs if name in ("use_reentrant", "preserve_rng_state") and not takes(fn, name)]:
        advice = "Leave it out: random numbers are the same again, and any output and closure may be tracked"
        raise TypeError(f"checkpoint: an option of PyTorch's: {strange[0]}={kwargs[strange[0]]!r}. {advice}.")
    if args and takes_nothing(fn):
        run: Callable[[], Any] = fn
    else:

        def run() -> Any:
            return fn(*args, **kwargs)

    if not is_grad_enabled() or any([isinstance(getattr(o, "__self__", None), Segment) for o in observers.entries]):
        return run()
    segment, before_it = Segment(run, titles), (observers.entries, observers.reader)
    set_observers((segment.add, *observers.entries), segment.read)
    observers.keep = segment.keep_result if titles else None
    try:
        return run()
    finally:
        segment.running, observers.keep = False, None
        set_observers(*before_it)


def takes(fn: Callable, name: str) -> bool:
    """Whether a function has an argument of that name, or any."""
    try:
        found = inspect.signature(getattr(fn, "forward", fn)).parameters
    except (TypeError, ValueError):
        return True
    return name in found or any([p.kind is p.VAR_KEYWORD for p in found.values()])


def takes_nothing(fn: Callable) -> bool:
    try:
        return not inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
