"""A call of an op, and the rule of its entry: forward, one entry on the tape; saved values in, cotangents out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .changes import heard
from .door import Door
from .dtypes import FLOATS
from .errors import GradientError
from .inputs import check_one_device
from .modes import thread
from .op import REGISTRY, Op
from .spec import Spec
from .tape import TapeEntry, user_frame
from .tensor import Tensor


class Call:
    """What is known of a recorded call beside its numbers. `ins`: specs, None for a number or an absent input; `outs`: specs of the
    results, of one that is `single` or of a tuple; `saved`: (name, spec or None) of each value kept for the rule; `tracked`: the inputs
    that gradients flow to (none without `names`)."""

    def __init__(
        self, op: Op, ins: Sequence[Spec | None], names: Sequence[str] | None, single: bool, outs: Sequence[Spec],
        saved: Sequence[Spec | None],
    ):  # fmt: skip
        self.op, self.single, self.ins, self.outs, self.names = op, single, tuple(ins), tuple(outs), names or ()
        self.saved = tuple(zip(self.names, saved, strict=True))
        self.tracked: tuple[int, ...] = ()
        for i, spec in enumerate(ins):
            if names is not None and spec is not None and spec.tracked:
                self.tracked += (i,)


def call(op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any] = ()) -> Any:
    """Run the op's forward on Tensors of fitting types, numbers or None, and record one entry if an input is tracked. `numbers`: the
    attributes as kernels take them, where they are numbers. Raises GradientError for a tracked input without a rule, in strict mode."""
    modes, specs, kinds = thread.modes, [], []
    for x in xs:
        spec = x.spec if isinstance(x, Tensor) else None
        specs.append(spec)
        kinds.append(None if spec is None else spec.tracked)
    if len(xs) > 1:
        check_one_device(op, specs)
    recording = modes.recording
    names = op.needs(kinds, attributes) if recording and True in kinds else None
    given = dict(zip(attributes, numbers, strict=True)) if numbers else attributes
    modes.recording = False
    try:
        y, extras = op.forward(xs, given, kinds if names is not None else [False] * len(xs))
    finally:
        modes.recording = recording
    ys = y if type(y) is tuple else (y,)
    if names is not None and ys[0].dtype in FLOATS:
        kept, values = saved_values(op, xs, ys[0], extras, names)
        results, outs = [], []
        for t in ys:
            outs.append(t.spec.as_tracked(True))
            results.append(Tensor(t.buffer, outs[-1]))
        entry = TapeEntry(Call(op, specs, names, type(y) is not tuple, outs, kept), results, xs, attributes, values)
        for slot, t in enumerate(results):
            t.entry, t.slot = entry, slot
        y = tuple(results) if type(y) is tuple else results[0]
    elif names is None and recording and modes.strict and True in kinds and ys[0].dtype in FLOATS:
        raise op.no_rule(kinds)
    else:
        mark_broken(op, xs, y)
    if heard:
        heard(op, xs, y)
    return y


def saved_values(op: Op, xs: Sequence[Any], y: Any, extras: dict[str, Any], names: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """(specs or None, buffers or numbers or None) of what is saved under each name."""
    specs, values = [], []
    for name in names:
        if name in op.inputs:
            x = xs[op.inputs.index(name)]
        elif name == "y" or name in extras:
            x = y if name == "y" else extras[name]
        else:
            raise ValueError(f"{op.name}: its rule names something unknown: {name}. Known: {', '.join((*op.inputs, 'y', *extras))}.")
        tensor = isinstance(x, Tensor)
        specs.append(x.spec if tensor else None)
        values.append(x.buffer if tensor else x)
    return specs, values


def mark_broken(op: Op, xs: Sequence[Any], y: Any) -> None:
    """Remember in y where the chain from a tracked tensor broke, for the error text of a backward() that comes too late."""
    for x in xs:
        if isinstance(x, Tensor):  # not a number or None
            if x.requires_grad:
                why = "under no_grad()" if not thread.modes.recording else "its result has no gradient"
                broken: Any = (op.title, why, user_frame())
            elif x.broken is not None:
                broken = x.broken
            else:
                continue
            for t in y if type(y) is tuple else (y,):
                if t.entry is None and not t.requires_grad:
                    t.broken = broken
            break


# ---- backward --------------------------------------------------------------------------------------------------------------------
def rule(entry: TapeEntry, gs: Sequence[Any], cotangents: Any) -> Sequence[Any]:
    """Cotangents of an entry's inputs from those of its outputs (None where nothing arrived), each of its input's shape."""
    op = entry.op
    if thread.modes.creating_graph:
        pairs = zip(entry.call.saved, entry.values, strict=True)
        values = {name: v if spec is None else widened(saved_tensor(entry, name, v, spec)) for (name, spec), v in pairs}
        return sum_to_shapes(op, entry, op.graph_rules(entry, gs, values | entry.attributes))
    return sum_to_shapes(op, entry, op.rules(entry, gs, {**saved_by_name(entry), **entry.attributes}))


def saved_by_name(entry: TapeEntry) -> dict[str, Any]:
    """What an entry saved: Tensors that nobody tracks, numbers, None."""
    pairs = zip(entry.call.saved, entry.values, strict=True)
    return {name: v if spec is None else Tensor(v, spec.as_tracked(False)) for (name, spec), v in pairs}


def widened(t: Any) -> Any:
    """A Tensor in the type that its numbers are computed in."""
    return t if t.dtype == t.spec.computed else REGISTRY["cast"](t, t.spec.computed)


def sum_to_shapes(op: Op, entry: TapeEntry, found: Sequence[Any]) -> list[Any]:
    """Cotangents brought to the shapes of the inputs that want one: broadcasting undone."""
    if len(found) != len(entry.inputs):
        raise ValueError(
            f"{op.name}: its backward rule returned too many or too few: {len(found)} for {len(entry.inputs)} inputs. Return one for each."
        )
    fitting: list[Any] = []
    for node, spec, dx in zip(entry.inputs, entry.call.ins, found, strict=True):
        if node is None or dx is None or dx.spec.shape == spec.shape:  # type: ignore[union-attr]
            fitting.append(None if node is None else dx)
        else:
            fitting.append(REGISTRY["sum_to"](dx, spec.shape))
    return fitting


def saved_tensor(entry: TapeEntry, name: str, value: Any, spec: Any) -> Any:
    """A saved value as a Tensor that is tracked as the original was: for rules that run while a graph of the backward is made."""
    names = entry.op.inputs
    i = -1 if name == "y" else names.index(name) if name in names else None
    node: Any = None if i is None else entry if i < 0 else entry.inputs[i]
    if node is not None and type(node) is not TapeEntry:
        if node.buffer is not value:
            raise GradientError(
                f"{entry.op.title}: a leaf got new memory since it was recorded: {entry.describe(name)}. Pack before the forward pass."
            )
        return node
    t = Tensor(value, spec.as_tracked(node is not None))
    if node is not None:
        t.entry, t.slot = node, 0 if i is None or i < 0 else entry.slots[i]
    return t


Door.call, Door.rule = staticmethod(call), staticmethod(rule)
