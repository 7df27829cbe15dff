"""Backward of one entry: its op's rule, planned like a call: run as it is, then recorded, then run as recorded.

A plan of a rule belongs to the Call that made the entry, one for each kind of cotangent that arrives, and for each way in which
gradients have places of their own (`into`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.recorder import divert
from ..core import ids
from ..core.call import rule, saved_by_name, sum_to_shapes
from ..core.modes import thread
from ..core.tape import TapeEntry
from ..core.tensor import Tensor
from .kept import Spec
from .plan import CallRecorder, stand_in
from .remade import Remade, with_remade
from .spread import Spread, handed_on, sent_back

new = object.__new__


class Plan:
    """A recorded backward rule; see Call. It gives None where nothing is wanted."""

    run: Any
    does: int  # how many launches and new buffers; 0: it hands on what it got
    places: list[int]
    constants: list[Any]
    gives: list[tuple[int, Spec | None]]  # the places, with what lies there
    any_size = False


def vjp(entry: TapeEntry, gs: Sequence[Any], cotangents: Any) -> Sequence[Any]:
    """Cotangents of an entry's inputs from those of its outputs (None where nothing arrived), each of its input's shape."""
    call, op = entry.call, entry.call.op
    if call.lets_go and any([type(v) is Remade for v in entry.values]):
        return with_remade(vjp, entry, gs, cotangents)
    if thread.modes.creating_graph:
        return rule(entry, gs, cotangents)
    g = gs[0]
    if type(g) is Spread and not call.any_size:
        return handed_on(entry, vjp(entry, (g.small,), cotangents), cotangents)
    if call.spreads and (few := sent_back(entry, g, cotangents)) is not None:
        return few
    into = cotangents.into(entry) if call.writes_into else None
    narrow = call.asks_narrow and cotangents.narrow(entry)
    if call.run is None and not came_before(call):
        return as_it_is(entry, gs, into, narrow)
    if len(gs) == 1:
        key: Any = (g.spec.kind if call.any_size else g.spec, g.unit)
        given = [g.buffer, *entry.values]
    else:
        key = tuple([None if g is None else (g.spec, g.unit) for g in gs])
        given = [*map(buffer_of, gs), *entry.values]
    if into is not None:
        key = (key, *[None if p is None else p[1] for p in into])
    if narrow:
        key = (key, "narrow_dx")
    plan = call.backwards.get(key)
    if type(plan) is not Plan:
        if plan == "seen once" or (plan is None and call.any_size):
            return plan_vjp(entry, gs, into, narrow, key)
        if plan is None:
            note(call.backwards, key)
        return as_it_is(entry, gs, into, narrow)
    if into is not None:
        given += [None if p is None else p[0].buffer for p in into]
    if op.numbers:
        given += op.number_values(entry.attributes, gs[0].dtype)
    if plan.does:
        plan.run(given)
    return cotangents_of(plan, g, given)


def note(backwards: dict[Any, Any], key: Any) -> None:
    """A kind of cotangent that came for the first time: there are few of them, or they are new each time."""
    if len(backwards) > 16:
        backwards.clear()
    backwards[key] = "seen once"


def as_it_is(entry: TapeEntry, gs: Sequence[Any], into: Any, narrow: bool) -> Sequence[Any]:
    """core's rule(), told where gradients belong and what may be narrow as well."""
    op, told = entry.call.op, {"into": into, "narrow_dx": narrow}
    found = fitting(entry, gs, op.rules(entry, gs, {**told, **saved_by_name(entry), **entry.attributes}))
    return found if into is None else arriving(found, into)


def fitting(entry: TapeEntry, gs: Sequence[Any], found: Sequence[Any]) -> Sequence[Any]:
    """What a rule gave, brought to the inputs' shapes, unless it got the few numbers of a Spread."""
    few = len(gs) == 1 and gs[0].spec.shape != entry.call.outs[0].shape
    return found if few else sum_to_shapes(entry.call.op, entry, found)


def came_before(call: Any) -> bool:
    """Whether the rule of a call without a plan, which one entry alone has, may be planned: from its second backward on."""
    if call.backwards is not None:
        return call.op.trusted
    call.backwards = {}
    return False


def cotangents_of(plan: Plan, g: Any, memory: list[Any]) -> list[Any]:
    """What a planned rule that has run gives; the first cotangent itself where it is handed on."""
    found: list[Any] = []
    for i, spec in plan.gives:
        if spec is None:
            found.append(None)
        elif i == 0 and (spec is g.spec or plan.any_size):
            found.append(g)
        else:
            dx = new(Tensor)  # not by its class: a call less for each gradient
            dx.buffer, dx.spec, dx.id = memory[i], spec.of_shape(g.shape) if plan.any_size else spec, ids.next_id()
            found.append(dx)
    return found


def arriving(found: Sequence[Any], into: Any) -> list[Any]:
    """What a rule gave, but for what it has added to a gradient that was there: that has arrived."""
    return [None if p is not None and p[1] else dx for dx, p in zip(found, into, strict=True)]


def plan_vjp(entry: TapeEntry, gs: Sequence[Any], into: Any, narrow: bool, key: Any) -> Sequence[Any]:
    """The rule, run under a recorder; what was recorded is kept as the plan for cotangents like these, where that can be."""
    call, op = entry.call, entry.call.op
    numbers = op.number_values(entry.attributes, gs[0].dtype) if op.numbers else []
    places = [] if into is None else [None if p is None else p[0] for p in into]
    inputs = [*map(buffer_of, gs), *entry.values, *map(buffer_of, places), *numbers]
    values = [stand_in(x) for x in inputs]
    rest = iter(values)
    own = [next(rest) if g is None else with_unit(Tensor(next(rest), g.spec), g.unit) for g in gs]
    saved = {name: (lambda v, s=spec: v if s is None else Tensor(v, s.as_tracked(False)))(next(rest)) for name, spec in call.saved}
    own_places = None if into is None else tuple([next(rest) if p is None else (Tensor(next(rest), p[0].spec), p[1]) for p in into])
    attributes = dict(zip(op.numbers, rest, strict=True)) if numbers else entry.attributes
    device = next(g.device for g in gs if g is not None)
    with divert(device, CallRecorder(values)) as recorder:
        found = fitting(entry, gs, op.rules(entry, own, {"into": own_places, "narrow_dx": narrow, **saved, **attributes}))
    found = [dx if node is not None else None for dx, node in zip(found, entry.inputs, strict=True)]
    found = found if into is None else arriving(found, into)
    plan = Plan()
    planned = recorder.plan(plan, list(map(buffer_of, found)))
    plan.gives = [(i, None if dx is None else dx.spec) for i, dx in zip(plan.places, found, strict=True)]
    memory = [*inputs, *recorder.alive, *plan.constants]
    if planned and call.any_size:
        run = recorder.for_any_size(gs[0].size)
        plan.run, plan.any_size, planned = run, True, run is not None
    call.backwards[key] = plan if planned else "no plan"
    return cotangents_of(plan, gs[0], memory)


def buffer_of(t: Any) -> Any:
    return None if t is None else t.buffer


def with_unit(g: Any, unit: bool) -> Any:
    if unit:
        g.unit = True
    return g
