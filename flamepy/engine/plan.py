"""A call, planned once: the first call of its kind runs as it is, the second is recorded, later ones run what was recorded.

Calls are alike when op, attributes, and shape, dtype, device and trackedness of every input are the same. What such calls have in
common is a Call: which buffers to make, which launches to do, what the results look like, what the tape keeps. It is found by one
look into a dictionary. Plans that are not used are dropped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import copysign
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..backend.recorder import Recorder, divert
from ..backend.run import Action, Spot, Step
from ..core.call import Call, saved_values
from ..core.call import call as as_it_is
from ..core.inputs import check_one_device
from ..core.modes import thread
from ..core.op import Op
from ..core.tensor import Tensor
from ..dtypes import FLOATS
from . import spread
from .entries import observers
from .finish import finisher
from .kept import Spec, forgetting
from .remade import let_go, may_go

MOST = 8192  # plans kept
AGAIN = 2  # modes.recording in a checkpointed block that runs again with results kept: no plan is found at once
ONCE = 1024  # keys of an op's calls that came once: few, so that they stay in the processor's caches
NONE: dict[str, Any] = {}  # the attributes of most calls


class Plans:
    """What is kept of one op's calls."""

    __slots__ = ("__weakref__", "calls", "forms", "seen")

    def __init__(self) -> None:
        self.calls: list[dict[Any, Any]] = [{}, {}, {}]  # planned calls by key, without tape and with it; AGAIN: none
        self.seen: list[set[int]] = [set(), set(), set()]  # hashes of the keys of calls that came once
        self.forms: dict[Any, Any] = {}  # calls for tensors of any size
        EVERY[id(self)] = self


EVERY: weakref.WeakValueDictionary[int, Plans] = weakref.WeakValueDictionary()


def every() -> list[Plans]:
    """The plans of all ops, in a list of its own: another thread may define an op meanwhile."""
    return [plans for ref in EVERY.valuerefs() if (plans := ref()) is not None]


def forget_seen() -> None:
    """Forget which calls came once."""
    for seen in [seen for plans in every() for seen in plans.seen]:
        seen.clear()


forgetting.append(forget_seen)


class Planned(Call):
    """What all calls of one kind have in common, and how to do one.
    `run` takes the inputs' buffers and numbers and appends the buffers it made; `places` says which of inputs, made buffers and
    `constants`, in this order, are the results, and `keeps` which are saved. `tensors`: the inputs that are some; `others`: those that no
    gradient flows to; `guarded`: which saved values somebody else may overwrite: inputs and the result."""

    outs: tuple[Spec, ...]
    saved: tuple[tuple[str, Spec | None], ...]
    run: Any
    finish: Any  # finish.py
    any_size = False  # whether `run` is for tensors of any size
    does: int  # how many launches and new buffers
    places: list[int]
    keeps: list[int]
    tensors: tuple[int, ...]
    others: tuple[int, ...]
    guarded: tuple[int, ...]
    constants: list[Any]
    attributes: dict[str, Any]
    backwards: Any  # the plans of its rule by what arrives: rules.py
    lets_go: tuple[tuple[int, int], ...]  # (saved value, input) of those that may be made again: remade.py
    writes_into = asks_narrow = False  # whether its rule names `into`, and `narrow_dx`: forms.py
    spreads = False  # whether what it sends back is few numbers repeated: spread.py

    def __init__(self, op: Op, ins: Sequence[Spec | None], names: Sequence[str] | None, *rest: Any):
        super().__init__(op, ins, names, *rest)
        self.records, self.inputs = names is not None, len(ins)
        self.breaks = names is None and any([spec is not None and spec.tracked for spec in ins])
        self.run, self.places, self.keeps, self.constants, self.used = None, [], [], [], True
        self.lets_go = may_go(op, self.names, self.ins) if self.records and not op.takes_numbers else ()
        self.tensors = self.others = self.guarded = ()
        present = {"y"}
        for i, spec in enumerate(ins):
            if spec is not None:
                self.tensors += (i,)
                present.update(op.inputs[i : i + 1])
            if i not in self.tracked and (spec is not None or op.takes_numbers):
                self.others += (i,)
        for i, name in enumerate(self.names):
            self.guarded += (i,) if name in present else ()
        self.writes_into, self.asks_narrow = "into" in op.names, "narrow_dx" in op.names
        self.spreads = op.name in spread.RULES and self.ins[0].size >= spread.LEAST  # type: ignore[union-attr]

    def of(self, ins: tuple[Spec | None, ...], outs: Sequence[Spec], saved: Sequence[Spec | None]) -> Planned:
        """A call like this one with these inputs, results and saved values."""
        made = object.__new__(Planned)  # and not a copied __dict__, which makes every attribute slower to read
        made.op, made.single, made.records, made.breaks, made.used = self.op, self.single, self.records, self.breaks, True
        made.tensors, made.tracked, made.others = self.tensors, self.tracked, self.others
        made.names, made.guarded, made.inputs = self.names, self.guarded, self.inputs
        made.places, made.keeps, made.constants = self.places, self.keeps, self.constants
        made.finish, made.lets_go = self.finish, self.lets_go
        made.ins, made.outs = ins, tuple([spec.as_tracked(self.records) for spec in outs])
        made.saved = tuple(zip(self.names, saved, strict=True))
        return made


# ---- a call ----------------------------------------------------------------------------------------------------------------------
def call(op: Any, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any] = ()) -> Any:
    """A call that was not found at once: run as planned if it was, planned if it came before, else run as it is."""
    recording = thread.modes.recording
    if recording == AGAIN:
        return given_or_called(op, xs, attributes, numbers)
    seen = op.plans.seen[recording]
    key = key_of(op, xs, attributes)
    if key is not None:
        try:
            known = op.plans.calls[recording].get(key)
        except TypeError:  # an attribute without a hash
            key = known = None
        if known is not None:
            given = [x.buffer if isinstance(x, Tensor) else x for x in (*xs, *numbers)]
            if known.does:  # a view does nothing
                known.run(given)
            return known.finish(known, xs, given, attributes)
    if key is not None and hash(key) in seen:
        return plan_call(op, xs, attributes, numbers, lambda made, _: keep(op, recording, key, made))
    if key is not None:
        remember_key(seen, key)
    return (first_of_shape if op.takes_numbers else unplanned)(op, xs, attributes, numbers)


def given_or_called(op: Any, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any]) -> Any:
    """The results that were kept of this call, else those of the call."""
    y = None if observers.give is None else observers.give(op, xs, attributes)
    if y is None:
        thread.modes.recording = True
        try:
            y = call(op, xs, attributes, numbers)
        finally:
            thread.modes.recording = AGAIN  # type: ignore[assignment]
    return y


def specs_of(xs: Sequence[Any]) -> tuple[Any, ...]:
    specs: tuple[Any, ...] = ()
    for x in xs:
        specs += (x.spec if isinstance(x, Tensor) else None,)
    return specs


def key_of(op: Any, xs: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """What a call is planned by: the specs of its inputs, and its attributes where they are not the usual ones. None: never, for what a
    user's function reads beside its arguments may change from call to call."""
    if op.takes_numbers:
        kinds = [x.spec if isinstance(x, Tensor) else number_kind(x) for x in xs]
        return tuple(kinds) if len(kinds) > 1 else kinds[0]
    if not op.trusted:
        return None
    specs = specs_of(xs)
    if op.internal and op.attributes:
        return *specs, *attributes.values()
    return specs if attributes is op.attributes else (specs, *[hashable(v) for v in attributes.values()])


def number_kind(x: Any) -> type:
    """How a number takes part in a plan's key: its value does not."""
    return bool if isinstance(x, bool | np.bool_) else int if isinstance(x, int | np.integer) else float


def hashable(value: Any) -> Any:
    """An attribute as part of a key: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, list | tuple):
        return tuple([hashable(v) for v in value])
    return (value.__class__, value, copysign(1.0, value)) if isinstance(value, float) else (value.__class__, value)


def remember_key(seen: set[int], key: Any) -> None:
    """Note the hash of a key that came for the first time: keys themselves would keep their memory from being used again."""
    if len(seen) >= ONCE:  # shapes may change for ever
        seen.clear()
    seen.add(hash(key))


def unplanned(op: Any, xs: Sequence[Any], attributes: dict[str, Any], numbers: Any) -> Any:
    """The call as it is; saved values of 16 bits that can be made again are let go of."""
    y = as_it_is(op, xs, attributes, numbers)
    entry = (y[0] if type(y) is tuple else y).entry
    if entry is not None:
        made = entry.call
        made.writes_into, made.asks_narrow = "into" in op.names, "narrow_dx" in op.names
        made.lets_go = found = may_go(op, made.names, made.ins)
        if found:
            let_go(found, xs, entry.values)
    return y


def without(steps: list[Any], fault: Any) -> list[Any]:
    """The steps but for those that set a thread's fault: what is required sets it anew."""
    return steps if fault is None else [s for s in steps if isinstance(s, Action) or fault not in s.outs]


# ---- making plans ------------------------------------------------------------------------------------------------------------------
class CallRecorder(Recorder):
    """Records one op's forward, or its backward rule. Spots are numbered: first the inputs, then the buffers made."""

    def __init__(self, inputs: Sequence[Any]):
        super().__init__()
        self.inputs = {id(x): i for i, x in enumerate(inputs) if isinstance(x, Buffer | np.generic)}
        self.given, self.count = inputs, len(inputs)
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

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        """What the call requires is required again each time, in whichever thread: by its own fault."""
        super().after(check, *buffers)
        self.steps = without(self.steps, getattr(check, "fault", None))

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
        """Put the recorded launches into `made`, whose results these buffers (or values) are; False if they cannot be run again."""
        places = [self.place(b) if isinstance(b, Buffer) else None for b in results]
        whole = not any([type(p) is not Spot or p.size >= 0 for p in places if p is not None])
        fresh = [(size, dtype) for _, size, dtype in self.made]
        made.constants = [b for b, p in zip(results, places, strict=True) if p is None or not whole]
        rest = iter(range(self.count + len(fresh), self.count + len(fresh) + len(made.constants)))
        made.places = [next(rest) if p is None or not whole else p.number for p in places]
        held = [a for s in self.steps if isinstance(s, Step) for group in s[1:] for a in group if isinstance(a, Buffer)]
        if self.looked or not whole or (held and not all([b.fixed for b in held])):  # others may hold other numbers next time
            return False
        made.held = held
        made.does = len(self.steps) + len(fresh)
        made.run = self.device.direct.prepare(fresh, self.steps, [isinstance(x, Buffer) for x in self.given], {*made.places})
        return True

    def for_any_size(self, size: int) -> Any:
        """What was recorded for this many elements, as prepare_any_size() gives it; None if it depends on sizes."""
        inputs = [isinstance(x, Buffer) for x in self.given]
        steps = [s for s in self.steps if isinstance(s, Step)]
        if len(steps) < len(self.steps) or any([s != size for _, s, _ in self.made]):
            return None
        return self.device.direct.prepare_any_size([dtype for _, _, dtype in self.made], steps, inputs)


def stand_in(x: Any) -> Any:
    """Something with the identity of its own for an input: one buffer given twice must be told apart."""
    if isinstance(x, Buffer):
        part = x.device.slot(x.root or x, x.offset, x.size, x.dtype)
        part.stands_for = x
        return part
    return type(x)(x) if isinstance(x, np.generic) else x


@contextmanager
def unrecorded() -> Iterator[None]:
    """The block records nothing, in this thread."""
    modes = thread.modes
    before = modes.recording, modes.creating_graph
    modes.recording = modes.creating_graph = False
    try:
        yield
    finally:
        modes.recording, modes.creating_graph = before


def plan_call(op: Any, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any], store: Any) -> Any:
    """The call, run under a recorder; what was recorded goes to store() as a planned Call, with the recorder, where that can be."""
    specs = specs_of(xs)
    check_one_device(op, specs)
    kinds = [None if spec is None else spec.tracked for spec in specs]
    names = op.needs(kinds, attributes) if thread.modes.recording and True in kinds else None
    inputs = [x.buffer if isinstance(x, Tensor) else x for x in (*xs, *numbers)]
    values = [stand_in(x) for x in inputs]
    given = [Tensor(v, x.spec.as_tracked(False)) if isinstance(x, Tensor) else v for v, x in zip(values, xs, strict=False)]
    own = dict(zip(attributes, values[len(xs) :], strict=True)) if numbers else attributes
    device = next(x.device for x in xs if isinstance(x, Tensor))
    with unrecorded(), divert(device, CallRecorder(values)) as recorder:
        y, extras = op.forward(given, own, kinds if names is not None else (False,) * len(xs))
    ys = y if type(y) is tuple else (y,)
    floats = ys[0].dtype in FLOATS
    refused = True in kinds and names is None and floats and thread.modes.recording
    if refused and thread.modes.strict:
        raise op.no_rule(kinds)
    names = names if floats else None
    kept, saved = saved_values(op, given, ys[0], extras, names or ())
    made = Planned(op, specs, names, type(y) is not tuple, [t.spec.as_tracked(names is not None) for t in ys], kept)
    made.attributes, made.backwards = attributes, {}
    planned = recorder.plan(made, [*[t.buffer for t in ys], *saved])
    for n, (name, value) in enumerate(zip(made.names, saved, strict=True), len(ys)):  # a saved number is one of the inputs
        if isinstance(value, np.generic):
            made.places[n] = op.inputs.index(name)
    made.places, made.keeps = made.places[: len(ys)], made.places[len(ys) :]
    memory = [*inputs, *recorder.alive]
    if not planned:  # the entry keeps the Call, which must not keep buffers
        memory, made.constants = memory + made.constants, []
    made.finish = finisher(made)
    if planned and not refused:  # strict_mode() decides at each call about what has no derivative: such a call is never planned
        store(made, recorder)  # from here on other threads may find it
    return made.finish(made, xs, memory, attributes)


def keep(op: Any, recording: bool, key: Any, made: Planned) -> None:
    """Remember a plan. There are at most MOST: then those go that were not used since the last time, and keys that were seen once."""
    global _kept
    if _kept >= MOST:
        _kept = 0
        for plans in every():
            for calls, seen in zip(plans.calls, plans.seen, strict=True):
                stay = {k: c for k, c in calls.copy().items() if c.used}  # a copy: other threads plan meanwhile
                calls.clear()
                seen.clear()
                calls.update(list(stay.items())[-MOST // 2 :])
                for c in stay.values():
                    c.used = False
                _kept += len(calls)
    op.plans.calls[recording][key] = made
    op.plans.seen[recording].discard(hash(key))
    _kept += 1


_kept = 0


# ---- pointwise calls on tensors of one shape, whatever it is: one plan for all sizes ------------------------------------------------
# A program may see a new shape at every step (sentences, the last batch). Such calls are never alike, but what they launch is: it is
# recorded once, for buffers as long as the first input.
def again(op: Any, xs: Sequence[Any], specs: tuple[Any, ...], key: Any, given: list[Any]) -> Any:
    """A call like others in all but its shape, which has not come before; None where it is not such a call, or nothing is launched.
    `given`: what its kernel gets, but for the numbers among the attributes."""
    recording = thread.modes.recording
    seen = op.plans.seen[recording]
    form = op.plans.forms.get((recording, *[spec and spec.kind for spec in specs]))
    if not form or hash(key) in seen or not (specs[0] or specs[1]).size:
        return None
    remember_key(seen, key)
    return of_size(form, xs, specs, given, NONE)


def first_of_shape(op: Any, xs: Sequence[Any], attributes: dict[str, Any], numbers: Any) -> Any:
    """A pointwise call whose shape has not come before."""
    specs = specs_of(xs)
    one = common(specs)
    if one is None:  # they broadcast, or are empty
        return unplanned(op, xs, attributes, numbers)
    key = thread.modes.recording, *[spec and spec.kind for spec in specs]
    form = op.plans.forms.get(key)
    if form is None:
        if len(op.plans.forms) >= ONCE:  # specs are forgotten now and then
            op.plans.forms.clear()
        op.plans.forms[key] = False  # until it is known to be possible
        return plan_call(op, xs, attributes, numbers, lambda made, recorder: keep_for_any(op, key, made, recorder, one.size))
    if not form:
        return unplanned(op, xs, attributes, numbers)
    given = [x if spec is None else x.buffer for x, spec in zip(xs, specs, strict=True)]
    return of_size(form, xs, specs, [*given, *numbers], attributes)


def common(specs: Sequence[Any]) -> Any:
    """The spec of the last tensor, if all have its shape and it has elements; else None."""
    one: Any = None
    for spec in specs:
        if spec is not None:
            if one is not None and spec.shape != one.shape:
                return None
            one = spec
    return one if one.size else None


def of_size(form: Planned, xs: Sequence[Any], specs: tuple[Any, ...], given: list[Any], attributes: dict[str, Any]) -> Any:
    """The call that `form` is, for inputs of this shape."""
    shape = (specs[0] or specs[1]).shape
    saved = [None if spec is None else spec.of_shape(shape) for _, spec in form.saved]
    made = form.of(specs, [form.outs[0].of_shape(shape)], saved)
    made.run, made.any_size, made.backwards = form.run, True, form.backwards
    made.run(given)
    return made.finish(made, xs, given, attributes)


def keep_for_any(op: Any, key: Any, made: Planned, recorder: CallRecorder, size: int) -> None:
    """Make a recorded call of this size one for all sizes, and remember it."""
    run = recorder.for_any_size(size)
    if run is not None:
        made.run, made.any_size = run, True
        op.plans.forms[key] = made
