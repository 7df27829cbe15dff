"""A call, planned once: the first call of its kind runs as it is, the second is recorded, later ones run what was recorded.

Calls are alike when op, attributes, and shape, dtype, device and trackedness of every input are the same. What such calls have in
common is a Call: which buffers to make, which launches to do, what the results look like, what the tape keeps. It is found by one
look into a dictionary. A backward rule is planned in the same way, for each kind of cotangent. Plans that are not used are dropped.

FLAME counterpart: none. Read next: inputs.py, ../replay/recorder.py (recording), ../autograd/walk.py (backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd.entries import TapeEntry, thread, user_frame
from ..backend.base import Buffer, Spot, Step, Stream
from ..dtypes import FLOATS
from ..errors import DeviceError
from ..replay.recorder import Recorder
from . import base
from .base import Op, sum_to_shapes, unrecorded, watch, watchers
from .spec import Spec

MOST = 8192  # plans kept, and keys seen once


class Call:
    """What all calls of one kind have in common. `ins`: specs, None for a number or an absent input; `saved`: (name, spec or None).

    A planned call has `run`, which takes the inputs' buffers and numbers and returns the buffers it made; `places` says which of
    inputs, made buffers and `constants`, in this order, are the results, and `keeps` which are saved.
    """

    run: Any = None
    slow: Any
    direct: Any
    places: list[int]
    keeps: list[int]
    constants: list[Any]
    attributes: dict[str, Any]
    backwards: dict[Any, Any]

    def __init__(self, op: Op, xs: Sequence[Any], outs: Sequence[Spec], single: bool, tracked: Sequence[int], breaks: bool):
        self.op, self.single, self.outs = op, single, tuple(outs)
        self.ins = tuple([x.spec if isinstance(x, base.Tensor) else None for x in xs])
        self.tensors = tuple([i for i, spec in enumerate(self.ins) if spec is not None])
        self.tracked, self.records, self.breaks = tuple(tracked), bool(tracked), breaks
        self.saved: tuple[tuple[str, Spec | None], ...] = ()
        self.used = True

    def vjp(self, entry: TapeEntry, gs: Sequence[Any], cotangents: Any) -> Sequence[Any]:
        """Cotangents of the entry's inputs; see below."""
        return vjp(entry, gs, cotangents)


class Plan:
    """A recorded backward rule: see Call."""

    run: Any
    slow: Any
    direct: Any
    places: list[int]
    constants: list[Any]
    outs: tuple[Spec | None, ...]


# ---- a call ----------------------------------------------------------------------------------------------------------------------
def run_call(call: Call, xs: Sequence[Any], given: list[Any], attributes: dict[str, Any]) -> Any:
    """A planned call: `given` are the buffers and numbers of xs, and the numbers among the attributes."""
    call.used = True
    direct = call.direct
    return finish(call, xs, given + (call.run if direct.device.stream is direct else call.slow)(given), attributes)


def finish(call: Call, xs: Sequence[Any], memory: list[Any], attributes: dict[str, Any]) -> Any:
    """Results and the entry of a planned call that has run; `memory`: its inputs, then what it made."""
    if call.constants:
        memory += call.constants
    if call.single:
        y = base.Tensor(memory[call.places[0]], call.outs[0])
        ys: tuple = (y,)
    else:
        y = ys = tuple([base.Tensor(memory[i], spec) for i, spec in zip(call.places, call.outs, strict=True)])
    if watchers:
        watch(call.op.name, y)
    if call.records:
        put_on_tape(call, xs, ys, attributes, [memory[i] for i in call.keeps])
        return y
    if call.breaks:
        return mark_broken(call.op, xs, y)
    for i in call.tensors:
        if xs[i].broken is not None:
            return mark_broken(call.op, xs, y)
    return y


def put_on_tape(call: Call, xs: Sequence[Any], ys: tuple, attributes: dict[str, Any], values: Sequence[Any]) -> None:
    entry = TapeEntry(call, xs, ys, attributes, values)
    for slot, t in enumerate(ys):
        t.entry = entry
        if slot:
            t.slot = slot
    if thread.modes.observers:
        for observer in thread.modes.observers:
            observer(entry)


def call(op: Op, xs: Sequence[Any], attributes: dict[str, Any], key: Any, numbers: Sequence[Any] = ()) -> Any:
    """A call whose inputs are Tensors of fitting types, numbers or None. `key`: what it is planned by (None: never); `numbers`: those
    attributes that are not part of the key but go into the kernels."""
    recording = thread.modes.recording
    calls = op.calls[recording]
    if key is not None:
        try:
            known = calls.get(key)
        except TypeError:  # an attribute without a hash
            key = known = None
        if type(known) is Call:
            return run_call(known, xs, [x.buffer if isinstance(x, base.Tensor) else x for x in xs] + list(numbers), attributes)
    check_devices(op, xs)
    tracked = [i for i, x in enumerate(xs) if isinstance(x, base.Tensor) and x.requires_grad]
    wanted = tracked if recording and op.needs([i in tracked for i in range(len(xs))], attributes) is not None else []
    if key is not None and known is SEEN:
        return plan_call(op, xs, attributes, numbers, wanted, bool(tracked), lambda made: keep(calls, key, made))
    elif key is not None and known is None:
        keep(calls, key, SEEN)
    return run_once(op, xs, attributes, tracked, wanted)


SEEN: Any = "seen once"


def run_once(op: Op, xs: Sequence[Any], attributes: dict[str, Any], tracked: Sequence[int], wanted: Sequence[int]) -> Any:
    """The call as it is, without a plan."""
    with unrecorded():
        y, extras = op.forward(xs, attributes, [i in wanted for i in range(len(xs))])
    if watchers:
        watch(op.name, y)
    ys = y if type(y) is tuple else (y,)
    floats = ys[0].dtype in FLOATS
    if tracked and not wanted and floats and thread.modes.recording and thread.modes.strict:
        raise op.no_rule()
    if not wanted or not floats:
        return mark_broken(op, xs, y)
    ys = tuple([base.Tensor(t.buffer, t.spec.as_tracked(True)) for t in ys])
    made = Call(op, xs, [t.spec for t in ys], type(y) is not tuple, wanted, False)
    names = op.needs([i in wanted for i in range(len(xs))], attributes) or ()
    found = saved_values(op, xs, ys[0], extras, names)
    made.saved = tuple([(name, t.spec if isinstance(t, base.Tensor) else None) for name, t in found])
    put_on_tape(made, xs, ys, attributes, [t.buffer if isinstance(t, base.Tensor) else t for _, t in found])
    return ys[0] if made.single else ys


def saved_values(op: Op, xs: Sequence[Any], y: Any, extras: dict[str, Any], names: Sequence[str]) -> list[tuple[str, Any]]:
    """(name, Tensor or number or None) of what is saved."""
    known = {**dict(zip(op.inputs, xs, strict=False)), "y": y, **extras}
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"{op.name}: its rule names something unknown: {', '.join(missing)}. Known: {', '.join(known)}.")
    return [(name, known[name]) for name in names]


def check_devices(op: Op, xs: Sequence[Any]) -> None:
    devices = {x.device for x in xs if isinstance(x, base.Tensor)}
    if len(devices) > 1:
        names = ", ".join(sorted([d.name for d in devices]))
        raise DeviceError(f"{op.title}: operands are on two devices: {names}. Move one of them with .to(device).")


def mark_broken(op: Op, xs: Sequence[Any], y: Any) -> Any:
    """Remember in y where the chain from a tracked tensor broke, for the error text of a backward() that comes too late."""
    for x in xs:
        if isinstance(x, base.Tensor):  # not a number or None
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
    return y


# ---- making plans ------------------------------------------------------------------------------------------------------------------
class CallRecorder(Recorder):
    """Records one op's forward, or its backward rule. Spots are numbered: first the inputs, then the buffers made."""

    def __init__(self, inputs: Sequence[Any]):
        super().__init__()
        self.inputs = {id(x): i for i, x in enumerate(inputs) if isinstance(x, Buffer | np.generic)}
        self.count = len(inputs)
        self.alive: list[Buffer] = []
        self.looked = False  # whether the host looked at a number: then the call depends on more than its key

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        buffer = super().empty(size, dtype)
        self.alive.append(buffer)
        return buffer

    def upload(self, array: np.ndarray) -> Buffer:
        self.looked = self.looked or not self.checking
        return super().upload(array)

    def download(self, buffer: Buffer) -> np.ndarray:
        self.looked = self.looked or not self.checking
        return super().download(buffer)

    def place(self, argument: Any) -> Any:
        x = argument
        while x is not None:  # a call inside this one may be in planning as well
            number = self.inputs.get(id(x))
            if number is not None:
                return Spot(number)
            x = x.stands_for if isinstance(x, Buffer) else None
        found = super().place(argument)
        return found._replace(number=found.number + self.count) if type(found) is Spot else found

    def plan(self, made: Any, results: Sequence[Any]) -> bool:
        """Put the recorded launches into `made`, whose results these Tensors (or values) are; False if they cannot be run again."""
        places = [self.place(t.buffer) if isinstance(t, base.Tensor) else None for t in results]
        whole = not any([type(p) is not Spot or p.size >= 0 for p in places if p is not None])
        fresh = [(size, dtype) for _, size, dtype in self.made]
        made.constants = [t for t, p in zip(results, places, strict=True) if p is None] if whole else [buffer_or_value(t) for t in results]
        rest = iter(range(self.count + len(fresh), self.count + len(fresh) + len(made.constants)))
        made.places = [next(rest) if p is None or not whole else p.number for p in places]
        held = [a for s in self.steps if isinstance(s, Step) for group in s[1:] for a in group if isinstance(a, Buffer)]
        if self.looked or not whole or held:  # a buffer from elsewhere may hold other numbers next time
            return False
        direct = self.device.direct
        made.direct, made.run = direct, direct.prepare(fresh, self.steps, self.count)
        made.slow = Stream.prepare(direct, fresh, self.steps, self.count)
        return True


def stand_in(x: Any) -> Any:
    """Something with the identity of its own for an input: one buffer given twice must be told apart."""
    if isinstance(x, Buffer):
        part = x.device.slot(x.root or x, x.offset, x.size, x.dtype)
        part.stands_for = x
        return part
    return type(x)(x) if isinstance(x, np.generic) else x


def plan_call(
    op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any], wanted: Sequence[int], tracked: bool, store: Any,
) -> Any:  # fmt: skip
    """The call, run under a recorder; what was recorded goes to store() as a planned Call, where that can be."""
    mask = [i in wanted for i in range(len(xs))]
    inputs = [x.buffer if isinstance(x, base.Tensor) else x for x in (*xs, *numbers)]
    values = [stand_in(x) for x in inputs]
    given = [base.Tensor(v, x.spec.as_tracked(False)) if isinstance(x, base.Tensor) else v for v, x in zip(values, xs, strict=False)]
    own = dict(zip(attributes, values[len(xs) :], strict=True)) if numbers else attributes
    device = next(x.device for x in xs if isinstance(x, base.Tensor))
    with unrecorded(), device.divert(CallRecorder(values)) as recorder:
        y, extras = op.forward(given, own, mask)
    ys = y if type(y) is tuple else (y,)
    floats = ys[0].dtype in FLOATS
    if tracked and not wanted and floats and thread.modes.recording and thread.modes.strict:
        raise op.no_rule()
    wanted = wanted if floats else ()
    made = Call(op, xs, [t.spec.as_tracked(bool(wanted)) for t in ys], type(y) is not tuple, wanted, tracked and not wanted)
    found = saved_values(op, given, ys[0], extras, op.needs(mask, attributes) or ()) if wanted else []
    made.saved = tuple([(name, t.spec if isinstance(t, base.Tensor) else None) for name, t in found])
    made.attributes, made.backwards = attributes, {}
    results = [*ys, *[t for _, t in found]]
    planned = recorder.plan(made, results)
    # strict_mode() decides at each call about what has no derivative: such a call is never planned
    if planned and not (tracked and not wanted and floats and thread.modes.recording):
        store(made)
    for n, (name, t) in enumerate(found, len(ys)):  # a saved number is one of the inputs, not a constant
        if isinstance(t, np.generic):
            made.places[n] = op.inputs.index(name)
    made.places, made.keeps = made.places[: len(ys)], made.places[len(ys) :]
    if not planned:
        made.run = None
    return finish(made, xs, [*inputs, *recorder.alive], attributes)


def keep(calls: dict[Any, Any], key: Any, value: Any) -> None:
    """Remember a plan, and that a key was seen; at most MOST of them: what was not used since the last time goes."""
    global _kept
    calls.pop(key, None)
    if _kept >= MOST:
        _kept = 0
        for op in base.EVERY:
            for known in op.calls:
                items = list(known.items())
                stay = [(k, c) for k, c in items if type(c) is Call and c.used]
                for _, c in stay:
                    c.used = False
                known.clear()
                known.update(stay[-MOST // 4 :])
                _kept += len(known)
    calls[key] = value
    _kept += 1


_kept = 0


# ---- backward ------------------------------------------------------------------------------------------------------------------------
def vjp(entry: TapeEntry, gs: Sequence[Any], cotangents: Any) -> Sequence[Any]:
    """Cotangents of an entry's inputs from those of its outputs (None where nothing arrived), each of its input's shape."""
    call, op = entry.call, entry.call.op
    into = cotangents.into(entry) if op.writes_into else None
    if thread.modes.creating_graph:
        values = {name: base.saved_tensor(entry, name, v, spec) for (name, spec), v in zip(call.saved, entry.values, strict=True)}
        return sum_to_shapes(op, entry, op.graph_rules(entry, gs, values | entry.attributes, wanted_of(entry)))
    if call.run is None:
        return vjp_once(entry, gs, into)
    key: Any = gs[0].spec if len(gs) == 1 and not gs[0].unit else tuple([None if g is None else (g.spec, g.unit) for g in gs])
    if into is not None:
        key = (key, *[None if p is None else p[1] for p in into])
    plan = call.backwards.get(key)
    if type(plan) is not Plan:
        if plan is SEEN:
            return plan_vjp(entry, gs, into, key)
        if plan is None:
            if len(call.backwards) > 16:
                call.backwards.clear()
            call.backwards[key] = SEEN
        return vjp_once(entry, gs, into)
    given = [buffer_of(g) for g in gs]
    given += entry.values
    if into is not None:
        given += [None if p is None else p[0].buffer for p in into]
    if op.numbers:
        given += op.number_values(entry.attributes, gs[0].dtype)
    direct = plan.direct
    return cotangents_of(plan, gs[0], given + (plan.run if direct.device.stream is direct else plan.slow)(given))


def cotangents_of(plan: Plan, g: Any, memory: list[Any]) -> list[Any]:
    """What a planned rule that has run gives; the first cotangent itself where it is handed on."""
    found: list[Any] = []
    for i, spec in zip(plan.places, plan.outs, strict=True):
        if spec is None:
            found.append(None)
        else:
            found.append(g if i == 0 and spec is g.spec else base.Tensor(memory[i], spec))
    return found


def wanted_of(entry: TapeEntry) -> list[bool]:
    return [node is not None for node in entry.inputs]


def vjp_once(entry: TapeEntry, gs: Sequence[Any], into: Any) -> Sequence[Any]:
    """The backward rule as it is, without a plan."""
    call, op = entry.call, entry.call.op
    values = {
        name: v if spec is None else base.Tensor(v, spec.as_tracked(False))
        for (name, spec), v in zip(call.saved, entry.values, strict=True)
    }
    return sum_to_shapes(op, entry, op.rules(entry, gs, values | entry.attributes, wanted_of(entry), into))


def plan_vjp(entry: TapeEntry, gs: Sequence[Any], into: Any, key: Any) -> Sequence[Any]:
    """The rule, run under a recorder; what was recorded is kept as the plan for cotangents like these, where that can be."""
    call, op = entry.call, entry.call.op
    numbers = op.number_values(entry.attributes, gs[0].dtype) if op.numbers else []
    places = [] if into is None else [None if p is None else p[0] for p in into]
    inputs = [*map(buffer_of, gs), *entry.values, *map(buffer_of, places), *numbers]
    values = [stand_in(x) for x in inputs]
    rest = iter(values)
    own = [next(rest) if g is None else with_unit(base.Tensor(next(rest), g.spec), g.unit) for g in gs]
    saved = {name: (lambda v, s=spec: v if s is None else base.Tensor(v, s.as_tracked(False)))(next(rest)) for name, spec in call.saved}
    where = None if into is None else tuple([next(rest) if p is None else (base.Tensor(next(rest), p[0].spec), p[1]) for p in into])
    attributes = dict(zip(op.numbers, rest, strict=True)) if numbers else entry.attributes
    device = next(g.device for g in gs if g is not None)
    with device.divert(CallRecorder(values)) as recorder:
        found = sum_to_shapes(op, entry, op.rules(entry, own, saved | attributes, wanted_of(entry), where))
    found = [dx if node is not None else None for dx, node in zip(found, entry.inputs, strict=True)]
    plan = Plan()
    call.backwards[key] = plan if recorder.plan(plan, found) else "no plan"
    plan.outs = tuple([None if dx is None else dx.spec for dx in found])
    memory = [*inputs, *recorder.alive, *plan.constants]
    return cotangents_of(plan, gs[0], memory)


def buffer_of(t: Any) -> Any:
    return None if t is None else t.buffer


def buffer_or_value(t: Any) -> Any:
    return t.buffer if isinstance(t, base.Tensor) else t


def with_unit(g: Any, unit: bool) -> Any:
    if unit:
        g.unit = True
    return g
