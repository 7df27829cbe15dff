"""Tape entries: what one recorded op keeps, how it prints, and this thread's recording state.

The output tensor owns its entry; the entry owns the entries (or leaves) of its inputs and those values its backward rules
name. There is no global list: drop the loss and everything behind it is freed.

May import: errors, backend. FLAME counterpart: `flame_core::autograd::TapeEntry`. Read next: autograd.py.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from sys import _getframe
from typing import Any

from ..backend.base import Buffer
from ..dtypes import float32
from ..errors import GradientError, VersionError

NUMBER = (0, (), float32, 0)  # stands in input_meta for an input that is no tensor
next_serial = itertools.count(1).__next__


class _State(threading.local):
    """What each thread decides for itself."""

    def __init__(self) -> None:  # runs in each thread; not class values, which take three times as long to read
        self.recording = True
        self.strict = True
        self.creating_graph = False
        self.engine: Any = None  # the AutogradEngine whose record() block runs
        self.segment: Any = None  # the checkpointed segment being run, see gradient_checkpointing.py


state = _State()

_package = Path(__file__).parent.parent
ENGINE_FILES = frozenset(str(p) for p in _package.rglob("*.py") if "train" not in p.parts)


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


class TapeEntry:
    """One recorded op.

    `inputs` holds, for each input, the entry that made it, the leaf itself, or None where no gradient flows. `input_meta` and
    `output_meta` hold (id, shape, dtype, slot) of each tensor; slot says which output of its entry a tensor is. `saved` maps names
    used by the backward rules to buffers (or scalars, or untracked tensors).
    """

    def __init__(
        self, op: Any, inputs: Sequence, outputs: tuple, attributes: dict[str, Any], saved: dict[str, Any],
        versions: Sequence[tuple[str, Buffer, int]],
    ):  # fmt: skip
        """An input is None where the op got a number. Call it through op.finish(): the frames of both, and of finish()'s caller, are
        skipped when the user's is searched."""
        self.serial = next_serial()
        self.op = op
        nodes: list[Any] = []
        metas = []
        for t in inputs:
            if t is None:
                nodes.append(None)
                metas.append(NUMBER)
            else:
                nodes.append((t.entry or t) if t.requires_grad else None)
                metas.append((t.id, t.shape, t.dtype, t.slot))
        self.inputs = nodes
        self.input_meta = metas
        if len(outputs) == 1:
            t = outputs[0]
            self.output_meta = [(t.id, t.shape, t.dtype, 0)]
        else:
            self.output_meta = [(t.id, t.shape, t.dtype, slot) for slot, t in enumerate(outputs)]
        self.attributes = attributes
        self.saved = saved
        self.versions = versions
        frame = _getframe(4)  # user_frame(), without the cost of a call
        while frame.f_code.co_filename in ENGINE_FILES and frame.f_back is not None:
            frame = frame.f_back
        self.code = frame.f_code, frame.f_lasti
        self.hooks: dict[int, list[Callable]] | None = None
        self.retained: dict[int, Any] | None = None
        self.freed: tuple[Any, int] | None = None  # where the first backward ran
        self.segment: Any = None  # who recomputes the saved values, if they were dropped

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        return [meta[1] for meta in self.input_meta]

    @property
    def output_shapes(self) -> list[tuple[int, ...]]:
        return [meta[1] for meta in self.output_meta]

    @property
    def output_ids(self) -> list[int]:
        return [meta[0] for meta in self.output_meta]

    @property
    def where(self) -> str:
        """`file:line` of the user's code that called the op."""
        return file_line(self.code)

    def check(self) -> None:
        """Raise unless every saved value is as it was when it was saved."""
        if self.freed is not None:
            raise GradientError(
                f"backward: the saved values of '{self.op.name}' ({self.where}) are already freed: first backward at "
                f"{file_line(self.freed)}. Pass retain_graph=True to the first backward to run a second one."
            )
        for name, buffer, version in self.versions:
            if (buffer.writes if buffer.span is None else buffer.version) != version:
                raise VersionError(
                    f"backward: a saved value was overwritten: '{name}' ({self.describe(name)}) saved by '{self.op.name}' "
                    f"at {self.where}, written by {buffer.last_write}. Run backward before writing, or clone() the value first."
                )

    def describe(self, name: str) -> str:
        """Which tensor the saved value `name` is, for error texts."""
        names = self.op.inputs
        if name in names and names.index(name) < len(self.inputs):
            i = names.index(name)
            leaf = self.inputs[i]
            number, shape, *_ = self.input_meta[i]
            label = getattr(leaf, "name", "") or f"tensor {number}"
            return f"{label}, shape {shape}"
        return f"output of {self.op.name}"

    def release(self, where: tuple[Any, int]) -> None:
        """Let go of saved values. What led here stays readable: tape(loss) prints the same after backward."""
        self.saved, self.versions, self.freed = {}, (), where

    def record(self) -> dict[str, Any]:
        """A plain, serialisable description: what a viewer, a profiler or a NaN hunt reads."""
        sides = {"input": self.input_meta, "output": self.output_meta}
        return {
            "serial": self.serial,
            "op": self.op.name,
            **{side + "s": [meta[0] for meta in metas] for side, metas in sides.items()},
            **{side + "_shapes": [list(meta[1]) for meta in metas] for side, metas in sides.items()},
            **{side + "_dtypes": [str(meta[2]) for meta in metas] for side, metas in sides.items()},
            "attributes": {k: repr(v) for k, v in self.attributes.items()},
            "saved": list(self.saved),
            "where": self.where,
        }

    def __repr__(self) -> str:
        sides = (self.input_meta, self.output_meta)
        ins, outs = (", ".join([f"%{i}:{'x'.join(map(str, shape)) or 'scalar'}" for i, shape, *_ in side]) for side in sides)
        extra = "".join(f" {k}={v!r}" for k, v in self.attributes.items() if isinstance(v, int | float | tuple | str | bool))
        saved = f"  saves {', '.join(self.saved)}" if self.saved else ""
        return f"{self.serial:>6}  {outs} = {self.op.name}({ins}){extra}{saved}"


class Tape(list):
    """Entries in the order they were recorded; prints one line an entry."""

    def __repr__(self) -> str:
        return "\n".join(map(repr, self)) or "(empty tape)"


def tape(loss: Any) -> Tape:
    """The entries that lead to `loss`, oldest first."""
    return Tape(reversed(reachable(loss.entry)))


def reachable(root: TapeEntry | None) -> list[TapeEntry]:
    """Every entry reachable from `root`, newest first. No recursion: a chain may be 100,000 entries long."""
    if root is None:
        return []
    found, stack = {root.serial: root}, [root]
    while stack:
        for node in stack.pop().inputs:
            if type(node) is TapeEntry and node.serial not in found:
                found[node.serial] = node
                stack.append(node)
    return [found[serial] for serial in sorted(found, reverse=True)]
