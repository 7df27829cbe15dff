"""Tape entries: what one recorded op keeps, and how it prints.

The output tensor owns its entry; the entry owns the entries (or leaves) of its inputs and those values its backward rules
name. There is no global list: drop the loss and everything behind it is freed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from sys import _getframe
from typing import Any

from .dtypes import FLOATS
from .errors import GradientError, VersionError

next_serial = itertools.count(1).__next__
NOTHING: dict[str, Any] = {}


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


class Freed:
    """The backward that let go of saved values: where it was called."""

    def __init__(self, code: tuple[Any, int]):
        self.code = code

    def refusal(self, entry: TapeEntry) -> Exception:
        """What is raised where another backward needs them."""
        return GradientError(
            f"backward: the saved values of '{entry.op.title}' ({entry.where}) are already freed: first backward at "
            f"{file_line(self.code)}. Pass retain_graph=True to the first backward to run a second one."
        )


class TapeEntry:
    """One recorded op.

    `call` says what is the same for all calls like it: the op, the specs of inputs and outputs, the names of saved values (call.py).
    `inputs` holds, for each input, the entry that made it, the leaf itself, or None where no gradient flows; `slots`, which output of
    its entry each was. `values` are the saved ones: buffers, numbers or None.
    """

    # Class values are what almost every entry has.
    output_id: Any = 0  # or a list, if the call has several results
    hooks: dict[int, list[Callable]] | None = None
    retained: dict[int, Any] | None = None
    freed: Freed | None = None
    slots: Sequence[int] | None = None  # None: 0 for each
    attributes: dict[str, Any] = NOTHING
    inputs: Any = ()
    others: Any = ()  # of the inputs in call.others: the id of a tensor, or the number
    values: Sequence[Any] = ()
    versions: Any = ()  # how often the guarded values were written when they were saved

    def __init__(
        self, call: Any, results: Sequence[Any] = (), xs: Sequence[Any] = (), attributes: dict[str, Any] = NOTHING,
        values: Sequence[Any] = (),
    ):  # fmt: skip
        """The entry of a call with these results and inputs, and these values saved (buffers, numbers, None)."""
        self.serial = next_serial()
        self.call, self.attributes, self.values = call, attributes, values
        if results:
            self.output_id = results[0].id if call.single else [t.id for t in results]
        self.inputs, self.others, self.versions = [], [], []
        for i, x in enumerate(xs):
            self.inputs.append((x.entry or x) if i in call.tracked else None)
            if i in call.tracked and x.slot:
                self.slots = slots_of(xs)
            if i in call.others:
                self.others.append(getattr(x, "id", x))
        for i in call.guarded:
            self.versions.append(values[i].version)
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
        return {name: value for (name, _), value in zip(self.call.saved, self.values, strict=False)}

    @property
    def where(self) -> str:
        """`file:line` of the user's code that called the op."""
        return file_line(self.code)

    def check(self) -> None:
        """Raise unless every saved value is as it was when it was saved."""
        if self.freed is not None:
            raise self.freed.refusal(self)
        values = self.values
        if not values:
            return
        for n, i in enumerate(self.call.guarded):
            buffer, version = values[i], self.versions[n]
            if buffer is not None and version != buffer.version:
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


def slots_of(xs: Sequence[Any]) -> list[int]:
    """Which output of its entry each is."""
    return [getattr(x, "slot", 0) for x in xs]


def shape_text(spec: Any) -> str:
    return "x".join(map(str, spec.shape)) or "scalar"


class Tape(list):
    """Entries in the order they were recorded; prints one line an entry."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "(empty tape)"


def tape(loss: Any) -> Tape:
    """The entries that lead to `loss`, oldest first. Raises GradientError for what is no tensor."""
    if not hasattr(loss, "entry"):
        raise GradientError(f"tape: not a tensor: {type(loss).__name__}. Pass the result of an op.")
    return Tape(reversed(reachable(loss.entry)))


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
