"""Tape entries: what one recorded op keeps, and how it prints.

The output tensor owns its entry; the entry owns the entries (or leaves) of its inputs and those values its backward rules
name. There is no global list: drop the loss and everything behind it is freed.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .dtypes import FLOATS
from .errors import GradientError, VersionError

next_serial = itertools.count(1).__next__
NOTHING: dict[str, Any] = {}
# Matches the files whose frames are no user's: those of the package, but for train/.
PACKAGE = str(Path(__file__).parents[__name__.count(".") - 1])
INSIDE = re.compile("{0}{1}(?!train{1})".format(re.escape(PACKAGE), re.escape(os.sep)))
is_inside = cache(INSIDE.match)


def user_frame() -> tuple[Any, int]:
    """(code, instruction) of the nearest caller outside the package; cheap, the line number is looked up when it is needed."""
    frame = sys._getframe(2)
    while is_inside(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def file_line(where: tuple[Any, int]) -> str:
    """`file:line` of a place from user_frame()."""
    code, instruction = where
    line = next(itertools.islice(code.co_positions(), instruction // 2, None))[0]
    return f"{code.co_filename}:{line}"


class TapeEntry:
    """One recorded op.
    `call` says what is the same for all calls like it: the op, the specs of inputs and outputs, the names of saved values (call.py).
    `operands` tells what each input was: the id of a tensor, a number, or None; `inputs`, where a gradient flows on to: the entry that
    made it, the leaf itself, or None; `slots`, which output of its entry each was. `values` are the saved ones: buffers, numbers or
    None; `versions`, how often each buffer was written when it was saved."""

    # Class values are what almost every entry has.
    hooks: dict[int, list[Callable]] | None = None
    retained: dict[int, Any] | None = None
    freed: Any = None  # where the backward was called that let go of the saved values
    inputs: Any = ()
    values: Any = ()
    versions: Any = ()

    def __init__(
        self, call: Any, results: Sequence[Any] = (), xs: Sequence[Any] = (), attributes: dict[str, Any] = NOTHING,
        values: Sequence[Any] = (),
    ):  # fmt: skip
        """The entry of a call with these results and inputs, and these values saved (buffers, numbers, None)."""
        self.serial = next_serial()
        self.call, self.attributes, self.values = call, attributes, values
        self.output_ids: Any = []
        self.operands, self.inputs, self.slots, self.versions = [], [], [], []
        for t in results:
            self.output_ids.append(t.id)
        for i, x in enumerate(xs):
            self.operands.append(getattr(x, "id", x))
            self.inputs.append((x.entry or x) if i in call.tracked else None)
            self.slots.append(getattr(x, "slot", 0))
        for value in values:
            self.versions.append(getattr(value, "version", None))
        self.code = user_frame()

    @property
    def input_ids(self) -> list[int]:
        """The id of each input, 0 for one that is no tensor."""
        return [0 if spec is None else x for spec, x in zip(self.call.ins, self.operands, strict=True)]

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
            raise self.refusal()
        for (name, _), buffer, version in zip(self.call.saved, self.values, self.versions, strict=False):
            if buffer is not None and version is not None and version != buffer.version:
                raise VersionError(
                    f"backward: a saved value was overwritten: '{name}' ({self.describe(name)}) saved by '{self.op.title}' "
                    f"at {self.where}, written by {buffer.last_write}. Run backward before writing, or clone() the value first."
                )

    def refusal(self) -> Exception:
        """What is raised where another backward needs the saved values."""
        return GradientError(
            f"backward: the saved values of '{self.op.title}' ({self.where}) are already freed: first backward at "
            f"{file_line(self.freed)}. Pass retain_graph=True to the first backward to run a second one."
        )

    def describe(self, name: str) -> str:
        """Which tensor the saved value `name` is, for error texts."""
        names = self.op.inputs
        if name in names and names.index(name) < len(self.inputs):
            i = names.index(name)
            label = getattr(self.inputs[i], "name", "") or f"tensor {self.operands[i]}"
            return f"{label}, shape {self.call.ins[i].shape}"
        return f"output of {self.op.title}"

    def release(self, freed: Any) -> None:
        """Let go of saved values. What led here stays readable: tape(loss) prints the same after backward."""
        self.values, self.freed = (), freed

    def shown(self, i: int, operand: Any) -> str:
        """Input i as a tape prints it: a number by its value, a leaf by its name, if it has one."""
        spec = self.call.ins[i]
        if spec is None:
            return str(operand if operand is None else (float if self.call.outs[0].dtype in FLOATS else int)(operand))
        return f"{getattr(self.inputs[i], 'name', '') or f'%{operand}'}:{shape_text(spec)}"

    def __repr__(self) -> str:
        ins = ", ".join([self.shown(i, x) for i, x in enumerate(self.operands)])
        outs = ", ".join([f"%{id}:{shape_text(spec)}" for id, spec in zip(self.output_ids, self.call.outs, strict=True)])
        extra = "".join(f" {k}={v!r}" for k, v in self.attributes.items() if isinstance(v, int | float | tuple | str | bool))
        saved = f"  saves {', '.join(self.saved)}" if self.saved else ""
        return f"{self.serial:>6}  {outs} = {self.op.title}({ins}){extra}{saved}  {os.path.basename(self.where)}"


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
