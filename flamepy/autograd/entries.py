"""Tape entries: what one recorded op keeps, how it prints, and this thread's recording state.

The output tensor owns its entry; the entry owns the entries (or leaves) of its inputs and those values its backward rules
name. There is no global list: drop the loss and everything behind it is freed.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from sys import _getframe
from types import SimpleNamespace
from typing import Any

from ..core.errors import CaptureError, GradientError, VersionError
from ..dtypes import FLOATS

next_serial = itertools.count(1).__next__


class Modes:
    """What one thread decides for itself."""

    __slots__ = ("blocks", "creating_graph", "observers", "reached", "reader", "recording", "strict")

    def __init__(self) -> None:
        self.recording = True
        self.strict = True
        self.blocks: dict[str, list[list[Any]]] = {"recording": [], "strict": []}  # of each switch: [who set it, what was before]
        self.creating_graph = False
        self.observers: tuple[Callable[[TapeEntry], None], ...] = ()  # who is told of each new entry
        self.reached: tuple[Any, dict[int, str]] = (None, {})  # (reference to the last backward's map, names of what is in it by id)
        self.reader: Callable[[Sequence[Any]], None] | None = None  # who is told of what ops read, recorded or not


class _Thread(threading.local):
    def __init__(self) -> None:  # runs in each thread
        self.modes = Modes()


thread = _Thread()
observing: list[int] = []  # for each thread that has observers or a reader: where nobody has, an op needs not look


def set_observers(observers: tuple[Callable[[TapeEntry], None], ...], reader: Callable[[Sequence[Any]], None] | None) -> None:
    """Who is told of each new entry in this thread, and who of what ops read."""
    modes = thread.modes
    modes.observers, modes.reader = observers, reader
    while (me := threading.get_ident()) in observing:
        observing.remove(me)
    if observers or reader:
        observing.append(me)


def tell(xs: Sequence[Any], entry: TapeEntry | None = None) -> None:
    """An op, or the host, has read these (Tensors, numbers, None); this is its entry, if it was recorded."""
    modes = thread.modes
    if modes.reader is not None:
        modes.reader(xs)
    if entry is not None:
        for observer in modes.observers:
            observer(entry)


def was_reached(t: Any) -> bool:
    """Whether a backward has passed through a tensor's entry or, if it was this thread's last, put its gradient into a map; and nobody is
    known to have looked into that map."""
    last, names = thread.modes.reached
    grads = last and last()
    if grads is not None and not grads.private:
        return False
    return t.id in names or (t.entry is not None and t.entry.freed is not None and t.entry.op is not REPLAYED)


def engine_files() -> frozenset[str]:
    """The files whose frames are no user's: those of the package, but for train/."""
    found = []
    for folder, inner, files in os.walk(Path(__file__).parent.parent):
        inner[:] = [name for name in inner if name not in ("train", "__pycache__")]  # caches hold thousands of files
        found += [os.path.join(folder, file) for file in files if file.endswith(".py")]
    return frozenset(found)


ENGINE_FILES = engine_files()


def user_frame() -> tuple[Any, int]:
    """(code, instruction) of the nearest caller outside the engine; cheap, the line number is looked up when it is needed."""
    frame = _getframe(2)
    while frame.f_code.co_filename in ENGINE_FILES and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def file_line(where: tuple[Any, int]) -> str:
    """`file:line` of a place from user_frame()."""
    code, instruction = where
    line = next(itertools.islice(code.co_positions(), instruction // 2, None))[0]
    return f"{code.co_filename}:{line}"


watchers: list[Callable[[str, Any], None]] = []  # who watches results: op/base.py, on_result()


class Freed:
    """The backward that let go of saved values: where it was called, and what it failed with, if it did."""

    error = ""

    def __init__(self, code: tuple[Any, int]):
        self.code = code


class TapeEntry:
    """One recorded op.

    `call` says what is the same for all calls like it: the op, the specs of inputs and outputs, the names of saved values (op/call.py).
    `inputs` holds, for each input, the entry that made it, the leaf itself, or None where no gradient flows; `slots`, which output of
    its entry each was. `values` are the saved ones: buffers, numbers or None.
    """

    # Class values are what almost every entry has.
    hooks: dict[int, list[Callable]] | None = None
    retained: dict[int, Any] | None = None
    freed: Freed | None = None
    scaled: Any = None  # the GradScaler whose scaled loss this is
    segment: Any = None  # who recomputes the saved values, if they were dropped
    slots: Sequence[int] | None = None  # None: 0 for each
    attributes: dict[str, Any] = {}  # noqa: RUF012
    inputs: Sequence[Any] = ()
    others: Sequence[Any] = ()  # of the inputs in call.others: the id of a tensor, or the number
    values: Sequence[Any] = ()
    versions: Sequence[int] = ()  # how often the guarded values were written when they were saved

    def __init__(self, call: Any, output_id: Any = 0):
        """An entry that nothing leads to. Those of calls that were recorded are made by op/finish.py."""
        self.serial = next_serial()
        self.call = call
        self.output_id: Any = output_id  # or a list, if the call has several results
        self.code = user_frame()

    @property
    def input_ids(self) -> list[int]:
        """The id of each input, 0 for one that is no tensor."""
        others = {i: x for i, x in zip(self.call.others, self.others, strict=True) if self.call.ins[i] is not None}
        slots = self.slots or [0] * len(self.inputs)
        rows = enumerate(zip(self.inputs, slots, strict=True))
        return [others.get(i, 0) if n is None else n.output_ids[slot] if type(n) is TapeEntry else n.id for i, (n, slot) in rows]

    @property
    def output_ids(self) -> list[int]:
        return [self.output_id] if self.call.single else self.output_id

    @property
    def op(self) -> Any:
        return self.call.op

    @property
    def saved(self) -> dict[str, Any]:
        """The saved values by name; none after a backward that freed them."""
        return {} if self.segment else {name: value for (name, _), value in zip(self.call.saved, self.values, strict=False)}

    @property
    def where(self) -> str:
        """`file:line` of the user's code that called the op."""
        return file_line(self.code)

    def check(self) -> None:
        """Raise unless every saved value is as it was when it was saved."""
        if self.freed is not None:
            if self.op is REPLAYED:
                raise CaptureError(
                    "capture: backward() through the result of a captured step: a replay has no tape. Run backward() inside the step, or "
                    "detach() the result."
                )
            what, place = f"backward: the saved values of '{self.op.title}' ({self.where})", file_line(self.freed.code)
            if self.freed.error:
                raise GradientError(
                    f"{what} are gone: the backward at {place} had let go of them when {self.freed.error} broke it off. "
                    "Run the forward pass again; retain_graph=True keeps saved values until the end."
                )
            raise GradientError(
                f"{what} are already freed: first backward at {place}. Pass retain_graph=True to the first backward to run a second one."
            )
        values = self.values
        if not values:
            return
        for n, i in enumerate(self.call.guarded):
            buffer, version = values[i], self.versions[n]
            if buffer is not None and version != (buffer.writes if buffer.root is None else buffer.version):
                name = self.call.saved[i][0]
                raise VersionError(
                    f"backward: a saved value was overwritten: '{name}' ({self.describe(name)}) saved by '{self.op.title}' "
                    f"at {self.where}, written by {buffer.last_write}. Run backward before writing, or clone() the value first."
                )

    def describe(self, name: str) -> str:
        """Which tensor the saved value `name` is, for error texts."""
        names = self.op.inputs
        if name in names and names.index(name) < len(self.inputs):
            i = names.index(name)
            label = getattr(self.inputs[i], "name", "") or f"tensor {self.input_ids[i]}"
            return f"{label}, shape {self.call.ins[i].shape}"
        return f"output of {self.op.title}"

    def release(self, freed: Freed) -> None:
        """Let go of saved values. What led here stays readable: tape(loss) prints the same after backward."""
        self.values, self.freed = (), freed

    def record(self) -> dict[str, Any]:
        """A plain, serialisable description: what a viewer, a profiler or a NaN hunt reads."""
        found: dict[str, Any] = {"serial": self.serial, "op": self.op.title}
        for side, ids, specs in (("input", self.input_ids, self.call.ins), ("output", self.output_ids, self.call.outs)):
            found[side + "s"] = list(ids)
            found[side + "_shapes"] = [[] if s is None else list(s.shape) for s in specs]
            found[side + "_dtypes"] = ["float32" if s is None else str(s.dtype) for s in specs]
        attributes = {k: repr(v) for k, v in self.attributes.items()}
        return found | {"attributes": attributes, "saved": list(self.saved), "where": self.where}

    def __reduce__(self) -> Any:
        raise GradientError(f"pickle: a tape cannot be copied: '{self.op.title}' at {self.where}. Use record(), a plain description.")

    def shown(self, i: int, id: int) -> str:
        """Input i as a tape prints it: a number by its value, a leaf by its name, if it has one."""
        spec, node = self.call.ins[i], self.inputs[i]
        if spec is None:
            number = dict(zip(self.call.others, self.others, strict=True)).get(i)
            if number is None:
                return "None"
            return str((float if self.call.outs[0].dtype in FLOATS else int)(number))
        return f"{getattr(node, 'name', '') or f'%{id}'}:{shape_text(spec)}"

    def __repr__(self) -> str:
        ins = ", ".join([self.shown(i, id) for i, id in enumerate(self.input_ids)])
        outs = ", ".join([f"%{id}:{shape_text(spec)}" for id, spec in zip(self.output_ids, self.call.outs, strict=True)])
        extra = "".join(f" {k}={v!r}" for k, v in self.attributes.items() if isinstance(v, int | float | tuple | str | bool))
        saved = f"  saves {', '.join(self.saved)}" if self.saved else ""
        return f"{self.serial:>6}  {outs} = {self.op.title}({ins}){extra}{saved}  {os.path.basename(self.where)}"


def shape_text(spec: Any) -> str:
    return "x".join(map(str, spec.shape)) or "scalar"


# Stands for the op that made a tensor, where a replay made it.
REPLAYED = SimpleNamespace(title="capture", inputs=())


def cut_entry(spec: Any) -> TapeEntry:
    """An entry for results of a replay, which are like tracked tensors of this spec but have no tape: backward() raises."""
    call = SimpleNamespace(op=REPLAYED, single=True, ins=(), outs=(spec,), saved=(), tracked=(), others=(), guarded=())
    entry = TapeEntry(call)
    entry.freed = Freed(entry.code)
    return entry


def tape_modes() -> tuple[bool, bool]:
    """What this thread decides for itself and a recorded step depends on: whether it records, whether it is strict."""
    modes = thread.modes
    return modes.recording, modes.strict


class Tape(list):
    """Entries in the order they were recorded; prints one line an entry."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "(empty tape)"


def tape(loss: Any) -> Tape:
    """The entries that lead to `loss`, oldest first. Raises GradientError for what is no tensor."""
    if not hasattr(loss, "entry"):
        raise GradientError(f"tape: not a tensor: {type(loss).__name__}. Pass the result of an op.")
    return Tape(reversed(reachable(loss.entry)))


scalings: weakref.WeakSet[TapeEntry] = weakref.WeakSet()  # the entries of scaled losses: where there are none, nobody looks for them


def reachable(root: TapeEntry | None, hooked: list[Any] | None = None) -> list[TapeEntry]:
    """Every entry reachable from `root`, newest first; leaves that have hooks go into `hooked`. No recursion: a chain may be 100,000
    entries long."""
    if root is None:
        return []
    found, stack = {root.serial: root}, [root]
    while stack:
        for node in stack.pop().inputs:
            if type(node) is TapeEntry:
                if node.serial not in found:
                    found[node.serial] = node
                    stack.append(node)
            elif node is not None and node.hooks is not None and hooked is not None and node.hooks:
                hooked.append(node)
    return [found[serial] for serial in sorted(found, reverse=True)]
