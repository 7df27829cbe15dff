"""A call, planned once: the first call of its kind runs as it is, the second is recorded, later ones run what was recorded.

Calls are alike when op, attributes, and shape, dtype, device and trackedness of every input are the same. What such calls have in
common is a Call: which buffers to make, which launches to do, what the results look like, what the tape keeps. It is found by one
look into a dictionary. Plans that are not used are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd.entries import observing, tell, thread
from ..backend.base import Buffer
from ..backend.divert import divert
from ..backend.recorder import Recorder
from ..backend.run import Spot, Step
from ..core.spec import Spec
from ..core.tensor import Tensor
from ..dtypes import FLOATS
from . import base
from .base import Op, unrecorded, watch, watchers
from .finish import finisher, mark_broken
from .inputs import check_one_device

MOST = 8192  # plans kept
ONCE = 1024  # keys of an op's calls that came once: few, so that they stay in the processor's caches
Kinds = tuple[bool | None, ...]  # of inputs: whether each is tracked, None for what is no tensor


class Call:
    """What all calls of one kind have in common. `ins`: specs, None for a number or an absent input; `saved`: (name, spec or None).

    A planned call has `run`, which takes the inputs' buffers and numbers and returns the buffers it made; `places` says which of
    inputs, made buffers and `constants`, in this order, are the results, and `keeps` which are saved.
    """

    run: Any = None
    finish: Any = None  # of calls that have run: finish.py
    any_size = False  # whether `run` is for tensors of any size: any_size.py
    vjp: Any  # of an entry made by such a call: rules.py
    does: int  # how many launches and new buffers
    places: list[int]
    keeps: list[int]
    constants: list[Any]
    attributes: dict[str, Any]
    backwards: Any = None  # the plans of its rule by what arrives: rules.py
    ins: tuple[Spec | None, ...]
    outs: tuple[Spec, ...]
    saved: tuple[tuple[str, Spec | None], ...]
    guarded: tuple[int, ...]  # which saved values somebody else may overwrite: inputs and the result
    lets_go: tuple[tuple[int, int], ...]  # (saved value, input) of those that may be made again: autograd/remade.py

    def __init__(self, op: Op, kinds: Kinds, names: Sequence[str] | None, count: int, breaks: bool = False):
        """`kinds`: for each input whether it is tracked, None for what is no tensor. `names`: what is saved, None if nothing is
        recorded. `count`: how many results there are; 0 for one that is not in a tuple."""
        self.op, self.single, self.records, self.breaks, self.inputs = op, not count, names is not None, breaks, len(kinds)
        self.tensors = tuple([i for i, kind in enumerate(kinds) if kind is not None])
        self.tracked = tuple([i for i in self.tensors if kinds[i] and self.records])
        told = range(len(kinds)) if op.takes_numbers else self.tensors  # about in a printed tape
        self.others = tuple([i for i in told if i not in self.tracked])
        self.names = tuple(names or ())
        present = [n for i, n in enumerate(op.inputs) if i in self.tensors]
        self.guarded = tuple([i for i, name in enumerate(self.names) if name == "y" or name in present])
        self.places, self.keeps, self.constants = [], [], []
        self.used = True

    def of(self, ins: tuple[Spec | None, ...], outs: Sequence[Spec], saved: Sequence[Spec | None]) -> Call:
        """A Call like this one with these inputs, results and saved values."""
        made = object.__new__(Call)  # and not a copied __dict__, which makes every attribute slower to read
        made.op, made.single, made.records, made.breaks, made.used = self.op, self.single, self.records, self.breaks, True
        made.tensors, made.tracked, made.others = self.tensors, self.tracked, self.others
        made.names, made.guarded, made.inputs = self.names, self.guarded, self.inputs
        made.places, made.keeps, made.constants = self.places, self.keeps, self.constants
        made.finish = self.finish
        made.ins, made.outs = ins, tuple([spec.as_tracked(self.records) for spec in outs])
        made.saved = tuple(zip(self.names, saved, strict=True))
        made.lets_go = made.op.lets_go(self.names, ins) if self.records else ()
        return made


# ---- a call ----------------------------------------------------------------------------------------------------------------------
def call(op: Op, xs: Sequence[Any], attributes: dict[str, Any], key: Any, specs: tuple[Any, ...], numbers: Sequence[Any] = ()) -> Any:
    """A call whose inputs are Tensors of fitting types, numbers or None. `key`: what it is planned by (None: never); `specs`: of the
    inputs, None for what is no Tensor; `numbers`: those attributes that are not part of the key but go into the kernels."""
    recording = thread.modes.recording
    seen = op.seen[recording]
    if key is not None:
        try:
            known = op.calls[recording].get(key)
        except TypeError:  # an attribute without a hash
            key = known = None
        if known is not None:
            given = [x.buffer if isinstance(x, Tensor) else x for x in (*xs, *numbers)]
            known.run(given)
            return known.finish(known, xs, given, attributes)
    if len(specs) > 1:
        check_one_device(op, specs)
    kinds = tuple([None if spec is None else spec.tracked for spec in specs])
    names = op.needs(kinds, attributes) if recording and True in kinds else None
    if key is not None and hash(key) in seen:
        return plan_call(op, xs, attributes, numbers, specs, kinds, names, lambda made, _: keep(op, recording, key, made))
    if key is not None:
        remember_key(seen, key)
    return op.first(xs, attributes, numbers, specs, kinds, names)


def remember_key(seen: set[int], key: Any) -> None:
    """Note the hash of a key that came for the first time: keys themselves would keep their memory from being used again."""
    if len(seen) >= ONCE:  # shapes may change for ever
        seen.clear()
    seen.add(hash(key))


def run_once(
    op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Any, specs: Any, kinds: Kinds, names: Sequence[str] | None,
) -> Any:  # fmt: skip
    """The call as it is, without a plan. `names`: what to save; None where nothing is recorded."""
    modes = thread.modes
    before, modes.recording = modes.recording, False
    try:
        y, extras = op.forward(xs, attributes, kinds if names is not None else (False,) * len(xs))
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
    count = len(ys) if type(y) is tuple else 0
    alike = op.forms.get((kinds, names, count))
    if alike is None:
        if len(op.forms) >= ONCE:  # an op of any number of inputs
            op.forms.clear()
        alike = op.forms[kinds, names, count] = Call(op, kinds, names, count)
        rest = len(ys) + len(names)
        alike.places, alike.keeps = list(range(len(ys))), list(range(len(ys), rest))
        alike.finish = finisher(alike)
    found = saved_values(op, xs, ys[0], extras, names)
    made = alike.of(specs, [t.spec for t in ys], [t.spec if isinstance(t, Tensor) else None for t in found])
    return made.finish(made, xs, [*[t.buffer for t in ys], *map(buffer_or_value, found)], attributes)


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


base.Op.first = run_once  # how an op's call without a plan is made


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
        places = [self.place(t.buffer) if isinstance(t, Tensor) else None for t in results]
        whole = not any([type(p) is not Spot or p.size >= 0 for p in places if p is not None])
        fresh = [(size, dtype) for _, size, dtype in self.made]
        made.constants = [t for t, p in zip(results, places, strict=True) if p is None] if whole else [buffer_or_value(t) for t in results]
        rest = iter(range(self.count + len(fresh), self.count + len(fresh) + len(made.constants)))
        made.places = [next(rest) if p is None or not whole else p.number for p in places]
        held = [a for s in self.steps if isinstance(s, Step) for group in s[1:] for a in group if isinstance(a, Buffer)]
        if self.looked or not whole or held:  # a buffer from elsewhere may hold other numbers next time
            return False
        made.does = len(self.steps) + len(fresh)
        made.run = self.device.direct.prepare(fresh, self.steps, [isinstance(x, Buffer) for x in self.given])
        return True

    def for_any_size(self, size: int) -> Any:
        """What was recorded for this many elements, as prepare_any_size() gives it; None if it depends on sizes."""
        inputs = [isinstance(x, Buffer) for x in self.given]
        steps = [s for s in self.steps if isinstance(s, Step)]
        if len(steps) < len(self.steps) or any([s != size for _, s, _ in self.made]):
            return None
        return self.device.direct.prepare_any_size([dtype for _, _, dtype in self.made], steps, inputs)


def buffer_or_value(t: Any) -> Any:
    return t.buffer if isinstance(t, Tensor) else t


def stand_in(x: Any) -> Any:
    """Something with the identity of its own for an input: one buffer given twice must be told apart."""
    if isinstance(x, Buffer):
        part = x.device.slot(x.root or x, x.offset, x.size, x.dtype)
        part.stands_for = x
        return part
    return type(x)(x) if isinstance(x, np.generic) else x


def plan_call(
    op: Op, xs: Sequence[Any], attributes: dict[str, Any], numbers: Sequence[Any], specs: Any, kinds: Kinds, names: Any, store: Any,
) -> Any:  # fmt: skip
    """The call, run under a recorder; what was recorded goes to store() as a planned Call, with the recorder, where that can be."""
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
    found = [] if names is None else saved_values(op, given, ys[0], extras, names)
    saved = [t.spec if isinstance(t, Tensor) else None for t in found]
    made = Call(op, kinds, names, len(ys) if type(y) is tuple else 0, True in kinds and names is None)
    made = made.of(specs, [t.spec for t in ys], saved)
    made.attributes, made.backwards = attributes, {}
    planned = recorder.plan(made, [*ys, *found])
    for n, (name, t) in enumerate(zip(made.names, found, strict=True), len(ys)):  # a saved number is one of the inputs, not a constant
        if isinstance(t, np.generic):
            made.places[n] = op.inputs.index(name)
    made.places, made.keeps = made.places[: len(ys)], made.places[len(ys) :]
    memory = [*inputs, *recorder.alive]
    if not planned:  # the entry keeps the Call, which must not keep buffers
        memory, made.constants = memory + made.constants, []
    elif not refused:  # strict_mode() decides at each call about what has no derivative: such a call is never planned
        store(made, recorder)
    made.finish = finisher(made)
    return made.finish(made, xs, memory, attributes)


def keep(op: Op, recording: bool, key: Any, made: Call) -> None:
    """Remember a plan. There are at most MOST: then those go that were not used since the last time, and keys that were seen once."""
    global _kept
    if _kept >= MOST:
        _kept = 0
        for other in base.EVERY:
            for calls, seen in zip(other.calls, other.seen, strict=True):
                stay = {k: c for k, c in calls.items() if c.used}
                calls.clear()
                seen.clear()
                calls.update(list(stay.items())[-MOST // 2 :])
                for c in calls.values():
                    c.used = False
                _kept += len(calls)
    op.calls[recording][key] = made
    op.seen[recording].discard(hash(key))
    _kept += 1


_kept = 0
