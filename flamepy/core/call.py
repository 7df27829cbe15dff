"""A call of an op, and the rule of its entry, as they are: forward, one entry on the tape; saved values in, cotangents out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .door import Door
from .dtypes import FLOATS
from .errors import GradientError
from .inputs import check_one_device
from .modes import observing, tell, thread
from .op import REGISTRY, Op, watch
from .spec import Spec
from .tape import TapeEntry, user_frame, watchers
from .tensor import Tensor

NOTHING: dict[str, Any] = {}
Kinds = tuple[bool | None, ...]  # of inputs: whether each is tracked, None for what is no tensor


@lru_cache(4096)
def places(inputs: tuple[str, ...], numbers: bool, kinds: Kinds, names: tuple[str, ...] | None) -> tuple[tuple[int, ...], ...]:
    """Which inputs are tensors, which of these gradients flow to, which others a printed tape tells about (`numbers`: those as well);
    which of the saved values under `names` somebody else may overwrite: inputs and the result."""
    tensors = tuple([i for i, kind in enumerate(kinds) if kind is not None])
    tracked = tuple([i for i in tensors if kinds[i] and names is not None])
    told = range(len(kinds)) if numbers else tensors
    present = ["y", *[n for i, n in enumerate(inputs) if i in tensors]]
    guarded = tuple([i for i, name in enumerate(names or ()) if name in present])
    return tensors, tracked, tuple([i for i in told if i not in tracked]), guarded


class Call:
    """What is known of a call beside its numbers. `ins`: specs, None for a number or an absent input; `outs`: specs of the results, of
    one that is `single` or of a tuple; `saved`: (name, spec or None) of each value kept for the rule. The rest as places() gives it."""

    def __init__(
        self, op: Op, kinds: Kinds, names: tuple[str, ...] | None, single: bool, ins: tuple[Spec | None, ...], outs: Sequence[Spec],
        saved: Sequence[Spec | None],
    ):  # fmt: skip
        self.op, self.single, self.ins, self.names = op, single, ins, names or ()
        self.tensors, self.tracked, self.others, self.guarded = places(op.inputs, op.takes_numbers, kinds, names)
        self.outs = tuple([spec.as_tracked(names is not None) for spec in outs])
        self.saved = tuple(zip(self.names, saved, strict=True))


def specs_of(xs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([x.spec if isinstance(x, Tensor) else None for x in xs])


def prepared(op: Op, xs: Sequence[Any], attributes: dict[str, Any]) -> tuple[tuple[Any, ...], Kinds, tuple[str, ...] | None]:
    """(specs, kinds of the inputs, names of what is to be saved or None where nothing is recorded). Raises DeviceError."""
    specs = specs_of(xs)
    if len(specs) > 1:
        check_one_device(op, specs)
    kinds = tuple([None if spec is None else spec.tracked for spec in specs])
    names = op.needs(kinds, attributes) if thread.modes.recording and True in kinds else None
    return specs, kinds, names


def call(op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any] = ()) -> Any:
    """Run the op's forward on Tensors of fitting types, numbers or None, and record one entry if an input is tracked. `numbers`: the
    attributes as kernels take them, where they are numbers."""
    return run(op, xs, attributes, numbers, *prepared(op, xs, attributes))


def run(
    op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any], specs: Any, kinds: Kinds, names: tuple[str, ...] | None,
) -> Any:  # fmt: skip
    """call() with what prepared() gave. Raises GradientError for a tracked input without a rule, in strict mode."""
    modes = thread.modes
    before, modes.recording = modes.recording, False
    try:
        given = dict(zip(attributes, numbers, strict=True)) if numbers else attributes
        y, extras = op.forward(xs, given, kinds if names is not None else (False,) * len(xs))
    finally:
        modes.recording = before
    ys = y if type(y) is tuple else (y,)
    floats = ys[0].dtype in FLOATS
    if names is None and floats and before and modes.strict and True in kinds:
        raise op.no_rule(kinds)
    if names is None or not floats:
        if watchers:
            watch(op.title, y)
        if observing:
            tell(xs)
        mark_broken(op, xs, y)
        return y
    found = saved_values(op, xs, ys[0], extras, names)
    made = Call(op, kinds, names, type(y) is not tuple, specs, [t.spec for t in ys], specs_of(found))
    return record(made, xs, ys, found, attributes)


def record(made: Call, xs: Sequence[Any], ys: Sequence[Any], found: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """The results as tracked Tensors, with the entry that made them."""
    results = tuple([Tensor(t.buffer, spec) for t, spec in zip(ys, made.outs, strict=True)])
    y = results[0] if made.single else results
    if watchers:
        watch(made.op.title, y)
    entry = TapeEntry(made, results[0].id if made.single else [t.id for t in results])
    entry.attributes = attributes
    entry.inputs = [xs[i].entry or xs[i] if i in made.tracked else None for i in range(len(xs))]
    if any([xs[i].slot for i in made.tracked]):
        entry.slots = [getattr(x, "slot", 0) for x in xs]
    entry.others = [xs[i].id if i in made.tensors else xs[i] for i in made.others]
    entry.values = [t.buffer if isinstance(t, Tensor) else t for t in found]
    entry.versions = [entry.values[i].version for i in made.guarded]
    for slot, t in enumerate(results):
        t.entry, t.slot = entry, slot
    if observing:
        tell(xs, entry)
    return y


def saved_values(op: Op, xs: Sequence[Any], y: Any, extras: dict[str, Any], names: Sequence[str]) -> list[Any]:
    """What is saved under each name: a Tensor or number or None."""
    found = []
    for name in names:
        if name in op.inputs:
            found.append(xs[op.inputs.index(name)])
        elif name == "y" or name in extras:
            found.append(y if name == "y" else extras[name])
        else:
            raise ValueError(f"{op.name}: its rule names something unknown: {name}. Known: {', '.join((*op.inputs, 'y', *extras))}.")
    return found


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
def rule(entry: TapeEntry, gs: Sequence[Any], cotangents: Any, more: dict[str, Any] = NOTHING) -> Sequence[Any]:
    """Cotangents of an entry's inputs from those of its outputs (None where nothing arrived), each of its input's shape. `more`: what a
    rule is told beside what was saved."""
    op = entry.op
    if thread.modes.creating_graph:
        pairs = zip(entry.call.saved, entry.values, strict=True)
        values = {name: v if spec is None else widened(saved_tensor(entry, name, v, spec)) for (name, spec), v in pairs}
        return sum_to_shapes(op, entry, op.graph_rules(entry, gs, values | entry.attributes))
    return sum_to_shapes(op, entry, op.rules(entry, gs, {**more, **saved_by_name(entry), **entry.attributes}))


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
        t.entry, t.slot = node, 0 if i is None or i < 0 or entry.slots is None else entry.slots[i]
    return t


def as_result(entry: TapeEntry, t: Any) -> Any:
    """A tensor with the numbers of an entry's first result, tracked as that is: where the result itself was not saved."""
    t.spec, t.entry, t.slot = t.spec.as_tracked(True), entry, 0
    return t


def as_input(entry: TapeEntry, t: Any) -> Any:
    """A tensor with numbers that do as those of an entry's first input, tracked as that is: where the input itself was not saved."""
    node, slot = entry.inputs[0], 0 if entry.slots is None else entry.slots[0]
    if type(node) is not TapeEntry:  # a leaf has its own numbers
        node = REGISTRY["clone"](node).entry
    t.spec, t.entry, t.slot = t.spec.as_tracked(True), node, slot
    return t


Door.call, Door.rule = staticmethod(call), staticmethod(rule)
