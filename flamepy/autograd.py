"""The tape: entries owned by their outputs, and backward() that walks them newest first.

An op that sees a tensor requiring grad makes a TapeEntry. The output tensor owns its entry; the entry owns the entries (or
leaves) of its inputs, and only those values its backward rules name. There is no global list: drop the loss and everything
behind it is freed. Backward collects the entries reachable from the loss, sorts them by serial number, walks from the newest,
accumulates cotangents and lets go of saved values as it passes.

May import: errors, backend, gradient. FLAME counterpart: `flame_core::autograd`. Read next: op.py.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from pathlib import Path
from typing import Any

from .errors import GradientError, ShapeError, VersionError
from .gradient import GradientMap, add_to_buffer

next_serial = itertools.count(1).__next__


class _State(threading.local):
    """What each thread decides for itself."""

    recording = True
    strict = True
    creating_graph = False
    engine: AutogradEngine | None = None
    segment: Any = None  # the checkpointed segment being run, see gradient_checkpointing.py


state = _State()

_package = Path(__file__).parent
ENGINE_FILES = frozenset(str(p) for p in _package.rglob("*.py") if "train" not in p.parts)


def user_frame() -> tuple[Any, int]:
    """(code, instruction) of the nearest caller outside the engine; cheap, the line number is looked up when it is needed."""
    frame = sys._getframe(2)
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

    `inputs` holds, for each input, the entry that made it, the leaf itself, or None where no gradient flows; `slots` says which
    output of that entry. `saved` maps names used by the backward rules to buffers (or scalars, or untracked tensors).
    """

    __slots__ = (
        "serial", "op", "inputs", "slots", "input_ids", "input_shapes", "input_dtypes", "output_ids", "output_shapes",
        "output_dtypes", "attributes", "saved", "versions", "code", "hooks", "retained", "freed", "device", "segment",
    )  # fmt: skip

    def __init__(self, op: Any, inputs: tuple, outputs: tuple, attributes: dict[str, Any], saved: dict[str, Any]):
        self.serial = next_serial()
        self.op = op
        self.inputs = tuple([None if not t.requires_grad else t if t.entry is None else t.entry for t in inputs])
        self.slots = tuple([t.slot for t in inputs])
        self.input_ids = tuple([t.id for t in inputs])
        self.input_shapes = tuple([t.shape for t in inputs])
        self.input_dtypes = tuple([t.dtype for t in inputs])
        self.output_ids = tuple([t.id for t in outputs])
        self.output_shapes = tuple([t.shape for t in outputs])
        self.output_dtypes = tuple([t.dtype for t in outputs])
        self.device = outputs[0].device
        self.attributes = attributes
        self.saved = saved
        self.versions = [(name, b, b.version) for name, b in saved.items() if hasattr(b, "writes")]
        self.code = user_frame()
        self.hooks: dict[int, list[Callable]] | None = None
        self.retained: dict[int, Any] | None = None
        self.freed: str | None = None
        self.segment: Any = None  # who recomputes the saved values, if they were dropped

    @property
    def where(self) -> str:
        """`file:line` of the user's code that called the op."""
        return file_line(self.code)

    def check(self) -> None:
        """Raise unless every saved value is as it was when it was saved."""
        if self.freed is not None:
            raise GradientError(
                f"backward: the saved values of '{self.op.name}' ({self.where}) are already freed: first backward at "
                f"{self.freed}. Pass retain_graph=True to the first backward to run a second one."
            )
        for name, buffer, version in self.versions:
            if buffer.version != version:
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
            label = getattr(leaf, "name", "") or f"tensor {self.input_ids[i]}"
            return f"{label}, shape {self.input_shapes[i]}"
        return f"output of {self.op.name}"

    def release(self, where: str) -> None:
        """Let go of saved values and of the entries behind."""
        self.saved, self.versions, self.inputs, self.freed = {}, [], (), where

    def record(self) -> dict[str, Any]:
        """A plain, serialisable description: what a viewer, a profiler or a NaN hunt reads."""
        return {
            "serial": self.serial,
            "op": self.op.name,
            "inputs": list(self.input_ids),
            "input_shapes": [list(s) for s in self.input_shapes],
            "input_dtypes": [str(d) for d in self.input_dtypes],
            "outputs": list(self.output_ids),
            "output_shapes": [list(s) for s in self.output_shapes],
            "output_dtypes": [str(d) for d in self.output_dtypes],
            "attributes": {k: repr(v) for k, v in self.attributes.items()},
            "saved": list(self.saved),
            "where": self.where,
        }

    def __repr__(self) -> str:
        ins = ", ".join(f"%{i}:{'x'.join(map(str, s)) or 'scalar'}" for i, s in zip(self.input_ids, self.input_shapes, strict=True))
        outs = ", ".join(f"%{i}:{'x'.join(map(str, s)) or 'scalar'}" for i, s in zip(self.output_ids, self.output_shapes, strict=True))
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
    found = {root.serial: root} if root is not None else {}
    stack = list(found.values())
    while stack:
        for node in stack.pop().inputs:
            if type(node) is TapeEntry and node.serial not in found:
                found[node.serial] = node
                stack.append(node)
    return [found[serial] for serial in sorted(found, reverse=True)]


class _Mode(ContextDecorator):
    """Sets one switch of this thread's state in a block or a decorated function."""

    def __init__(self, switch: str, value: bool):
        self.switch, self.value = switch, value
        self.before: list[bool] = []

    def __enter__(self) -> None:
        self.before.append(getattr(state, self.switch))
        setattr(state, self.switch, self.value)

    def __exit__(self, *exc: object) -> None:
        setattr(state, self.switch, self.before.pop())

    def _recreate_cm(self) -> _Mode:
        return _Mode(self.switch, self.value)


def no_grad() -> _Mode:
    """Context manager and decorator: record nothing in this thread."""
    return _Mode("recording", False)


def enable_grad() -> _Mode:
    """Context manager and decorator: record again, inside no_grad()."""
    return _Mode("recording", True)


def strict_mode(enabled: bool = True) -> _Mode:
    """Context manager: whether an op that has no derivative refuses a tracked input (the default) or returns an untracked result."""
    return _Mode("strict", enabled)


def is_grad_enabled() -> bool:
    """Whether this thread records."""
    return state.recording


class Cotangents:
    """Sums of incoming cotangents by (entry serial, output) or by leaf id. The first is adopted, the second makes a new
    tensor, later ones add into it."""

    def __init__(self, tracked: bool):
        self.values: dict[tuple[int, int], Any] = {}
        self.leaves: dict[int, Any] = {}
        self.owned: set[tuple[int, int]] = set()
        self.tracked = tracked

    def add(self, node: Any, slot: int, g: Any) -> None:
        if type(node) is TapeEntry:
            key = (node.serial, slot)
        else:
            key = (-node.id, 0)
            self.leaves[node.id] = node
        before = self.values.get(key)
        if before is None:
            self.values[key] = g
        elif key in self.owned:
            add_to_buffer(before.buffer, g.buffer, "backward")
        else:
            self.values[key] = before + g
            if not self.tracked:
                self.owned.add(key)


def backward(
    loss: Any, gradient: Any | None = None, retain_graph: bool = False, create_graph: bool = False
) -> GradientMap:
    """Gradients of `loss` with respect to every leaf that requires grad and reaches it.

    `gradient` is the cotangent of `loss` (its shape; 1 for a loss of one element). `retain_graph` keeps saved values for another
    backward; `create_graph` (implies it) also records the backward itself, so that gradients can be differentiated. Returns a
    GradientMap and touches no `.grad`. Raises GradientError, VersionError or ShapeError before anything is changed.
    """
    seed = _seed(loss, gradient)
    entries = reachable(loss.entry)
    for entry in entries:
        entry.check()
    cotangents = Cotangents(create_graph)
    kept: list[tuple[Any, Any]] = []
    where = file_line(user_frame())
    with _Mode("recording", create_graph), _Mode("creating_graph", create_graph):
        cotangents.add(loss.entry if loss.entry is not None else loss, loss.slot, seed)
        for entry in entries:
            gs = _outputs(entry, cotangents, kept)
            if gs is None:
                continue
            if entry.segment is not None:
                entry.segment.recompute()
            for node, slot, dx in zip(entry.inputs, entry.slots, entry.op.vjp(entry, gs), strict=True):
                if node is not None and dx is not None:
                    cotangents.add(node, slot, dx)
            if not (retain_graph or create_graph):
                entry.release(where)
        for leaf in cotangents.leaves.values():
            g = _hooked(leaf.hooks, cotangents.values[-leaf.id, 0])
            kept.append((leaf, g))
        return _finish(kept, seed if gradient is not None else None, create_graph)


def _seed(loss: Any, gradient: Any | None) -> Any:
    if not loss.requires_grad:
        raise GradientError(f"backward: the loss does not require grad: {loss.origin()}. Make its inputs require grad and record.")
    if gradient is None:
        if loss.size != 1:
            raise GradientError(
                f"backward: the loss has more than one element: shape {loss.shape}. "
                "Reduce it with .sum() or .mean(), or pass gradient= of its shape."
            )
        return loss.ones_cotangent()
    if tuple(gradient.shape) != tuple(loss.shape):
        raise ShapeError(
            f"backward: gradient= has another shape than the tensor: {tuple(gradient.shape)}, expected {loss.shape}. Pass one of the same shape."
        )
    return loss.as_cotangent(gradient)


def _outputs(entry: TapeEntry, cotangents: Cotangents, kept: list) -> tuple | None:
    """The cotangents of an entry's outputs, after hooks; None when nothing flowed into it."""
    gs = []
    for slot in range(len(entry.output_ids)):
        g = cotangents.values.pop((entry.serial, slot), None)
        if g is not None:
            if entry.hooks is not None:
                g = _hooked(entry.hooks.get(slot), g)
            if entry.retained is not None and slot in entry.retained:
                kept.append((entry.retained[slot], g))
        gs.append(g)
    return tuple(gs) if any(g is not None for g in gs) else None


def _hooked(hooks: list[Callable] | None, g: Any) -> Any:
    """Run a tensor's hooks: each may look at the gradient or return another in its place."""
    for hook in hooks or ():
        changed = hook(g)
        if changed is not None:
            if tuple(changed.shape) != tuple(g.shape):
                raise ShapeError(f"hook: returned another shape: {changed.shape}, expected {g.shape}. Return None or a gradient of the same shape.")
            g = changed
    return g


def _finish(kept: list[tuple[Any, Any]], given: Any, tracked: bool) -> GradientMap:
    """Put gradients into a map in which no two share memory (editing one must not edit another)."""
    grads = GradientMap()
    seen = {id(given.buffer)} if given is not None else set()
    spans: dict[int, list[Any]] = {}  # by parameter span: it, the gradient span, elements filled
    for tensor, g in kept:
        home = tensor.buffer.span if tensor.entry is None else None
        if home is not None and not tracked:
            filling = spans.setdefault(id(home), [home, g.device.empty(home.size, g.dtype), 0])
            g = g.copied_into(g.device.slot(filling[1], tensor.buffer.start, tensor.buffer.size))
            filling[2] += g.size
        elif id(g.buffer) in seen or g.buffer.span is not None:
            g = g.clone()
        seen.add(id(g.buffer))
        grads.insert(tensor, g)
    grads.spans = [(home, span) for home, span, filled in spans.values() if filled == home.size]
    return grads


class AutogradEngine:
    """FLAME's engine object: collects this thread's entries while its `record()` block runs.

    Outside such a block nothing global holds an entry; inside, `engine.tape` keeps them alive until reset().
    """

    def __init__(self, device: Any = None):
        self.device = device
        self.tape = Tape()

    def record(self) -> _Recording:
        return _Recording(self)

    def backward(self, loss: Any, gradient: Any | None = None) -> GradientMap:
        return backward(loss, gradient)

    def reset(self) -> None:
        self.tape.clear()

    def tape_len(self) -> int:
        return len(self.tape)


class _Recording:
    def __init__(self, engine: AutogradEngine):
        self.engine = engine

    def __enter__(self) -> AutogradEngine:
        self.before = state.engine
        state.engine = self.engine
        return self.engine

    def __exit__(self, *exc: object) -> None:
        state.engine = self.before


