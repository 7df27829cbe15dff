"""The saved state of an optimizer: plain data by parameter name, restored whole or not at all.

    {"class": "AdamW", "order": "torch", "groups": [options and names], "state": {name: {"step": int, moment: array, ...}}}

Parameters without a name are called "0", "1", ... in the order in which they came, so their state is restored by position; "unnamed"
has marks by which to know them (arrivals.py). An optimizer that learns of its parameters at its first steps (FLAME's style) keeps the
rows of those that have not come yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.divert import changed
from ..errors import StateError
from ..tensors import Tensor
from .arrivals import check_place, check_shapes, marks_of
from .groups import Group, Groups
from .rates import finished_in

if TYPE_CHECKING:
    from .base import Optimizer


def state_dict(optimizer: Optimizer) -> dict[str, Any]:
    """Copies of all that is needed to go on."""
    groups = optimizer.rates.groups()
    for name, (number, _) in optimizer.waiting.items():
        groups[number]["names"].append(name)
    rows = {**optimizer.rows(), **{name: row for name, (_, row) in optimizer.waiting.items() if row}}
    found = {"class": optimizer.name, "order": optimizer.order, "groups": groups, "state": rows}
    if marks := marks_of(optimizer):
        found["unnamed"] = marks
    if optimizer.transforms:
        found["transforms"] = [t.state_dict() for t in optimizer.transforms]
    return found


def load_state_dict(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """See Optimizer.load_state_dict()."""
    prepared(optimizer, state)()


def prepared(optimizer: Optimizer, state: dict[str, Any]) -> Callable[[], None]:
    """Check a state without changing anything (StateError); what is returned restores it."""
    name = optimizer.name
    check_kind(name, optimizer.order, state, {"groups", "state"})
    check_form(name, state["groups"], state["state"])
    groups = checked_groups(optimizer, state["groups"], state["state"])
    check_rows(optimizer, state["state"], optimizer.used_slots(groups))
    marks = checked_places(optimizer, state)
    finished = finished_in(name, state)
    lr = groups[0]["lr"] if optimizer.rates.schedule is None else optimizer.rates.asked(finished)
    restore = checked_transforms(name, optimizer.transforms, state)
    known = set(optimizer.names.values())
    missing = [(n, i) for i, g in enumerate(state["groups"]) for n in g["names"] if n not in known]

    def put() -> None:
        restore()
        optimizer.waiting = {n: (i, state["state"].get(n, {})) for n, i in missing}
        optimizer.marks = marks
        optimizer.groups, optimizer.rates.finished = Groups(groups), finished
        optimizer.rates.put(lr)
        optimizer.arrange()
        put_rows(optimizer, state["state"], anew=True)  # into the memory that is there: recorded steps know it
        changed()

    return put


def check_kind(name: str, order: str, state: Any, keys: set[str]) -> None:
    """Raise StateError unless this is the state of an optimizer of that class and order."""
    if not isinstance(state, dict) or not (keys <= set(state) or state.get("class", name) != name):
        what = "one of PyTorch's" if isinstance(state, dict) and "param_groups" in state else type(state).__name__
        raise StateError(f"{name}: not the state of an optimizer: {what}. Pass what state_dict() of a flamepy optimizer returned.")
    saved, mine = (state.get("class", name), state.get("order", order)), (name, order)
    if saved != mine:
        shown = [f"{kind} (order '{by}')" for kind, by in (saved, mine)]
        raise StateError(f"{name}: the state of another optimizer: state of {shown[0]}, this is {shown[1]}. Make one of the same class.")


def check_form(name: str, groups: Any, rows: Any) -> None:
    """Raise StateError unless these are groups with names, and a row for each name."""
    named = isinstance(groups, list | tuple) and all([isinstance(g, dict) and isinstance(g.get("names"), list | tuple) for g in groups])
    fit = isinstance(rows, dict) and all([isinstance(row, dict) for row in rows.values()])
    if not (named and groups and fit):
        what = "not groups with names" if fit else "not rows by name"
        raise StateError(f"{name}: {what}: {(groups if fit else rows)!r:.80}. Pass what state_dict() returned.")


def checked_groups(optimizer: Optimizer, groups: list[dict[str, Any]], rows: dict[str, Any]) -> list[Any]:
    """Groups with the options of a saved state, which must hold these parameters in the same groups."""
    name, known = optimizer.name, set(optimizer.names.values())
    saved, mine = [n for g in groups for n in g["names"]], list(optimizer.names.values())
    if len(saved) < len(mine) or (len(saved) > len(mine) and not optimizer.open):
        counts = f"state has {len(saved)}, model has {len(mine)}"
        raise StateError(f"{name}: parameter count mismatch: {counts}. Restore the same model.")
    wrong = sorted(known - set(saved) | set(rows) - set(saved) | (set() if optimizer.open else set(saved) - known))
    if wrong:
        raise StateError(f"{name}: parameter names mismatch: {wrong}. Restore the same model.")
    if [sorted(set(g["names"]) & known) for g in groups] != [sorted(g["names"]) for g in optimizer.groups]:
        raise StateError(f"{name}: groups hold other parameters: {[g['names'] for g in groups]}. Use the same globs.")
    restored = []
    for old, new in zip(optimizer.groups, groups, strict=True):
        if set(new) - {"finished"} != set(old):
            raise StateError(f"{name}: options differ: {sorted(set(new) ^ set(old))}. Restore the same kind of optimizer.")
        options = {k: v if k == "names" else new[k] for k, v in old.items()}
        optimizer.check(options)
        restored.append(Group(optimizer, options))
    return restored


def check_rows(optimizer: Optimizer, rows: dict[str, Any], slots: tuple[str, ...]) -> None:
    """Raise StateError unless every row of a known parameter has a step count and arrays of the right shape."""
    params = {optimizer.names[p.id]: p for p in optimizer.params}
    for name, row in rows.items():
        step = np.asarray(row.get("step"))
        if step.shape != () or step.dtype.kind not in "iu" or step < 0:
            raise StateError(f"{optimizer.name}: not a step count: '{name}' has {row.get('step')!r}. Restore what state_dict() returned.")
        if name in params:
            check_shapes(optimizer, name, params[name], row, slots)


def checked_places(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The marks of parameters without a name. StateError where one that is here might take another's row."""
    marks = state.get("unnamed", {})
    if not isinstance(marks, dict) or not all([isinstance(mark, dict) for mark in marks.values()]):
        raise StateError(f"{optimizer.name}: not marks by name: {marks!r:.80}. Pass what state_dict() returned.")
    rows = {name: state["state"].get(name, {}) for group in state["groups"] for name in group["names"]}
    for p in optimizer.params:
        check_place(optimizer, optimizer.names[p.id], p, rows, marks)
    return marks


def checked_transforms(name: str, mine: Sequence[Any], state: dict[str, Any]) -> Callable[[], None]:
    """Check the state of a chain (StateError); what is returned restores it."""
    saved = state.get("transforms", [])
    classes = [row.get("class") if isinstance(row, dict) else type(row).__name__ for row in saved] if isinstance(saved, list) else saved
    if classes != [t.name for t in mine]:
        raise StateError(f"{name}: the state of other transforms: state {classes}, here {[t.name for t in mine]}. Use the same chain.")
    for t, row in zip(mine, saved, strict=True):
        t.check_state(row)

    def put() -> None:
        for t, row in zip(mine, saved, strict=True):
            t.load_state_dict(row)

    return put


def put_rows(optimizer: Optimizer, rows: dict[str, Any], anew: bool = False) -> None:
    """Write moments and step counts by name into the blocks. `anew`: what has no row begins as if it had never been updated."""
    for block in optimizer.blocks:
        for i, p in enumerate(block.params):
            row = rows.get(optimizer.names[p.id], {})
            block.steps[i] = int(row.get("step", 0 if anew else block.steps[i]))
            for slot, place in block.places(i).items():
                if slot in row or anew:
                    begin = p.numpy() if slot == "master" else np.zeros(place.shape, place.dtype)
                    array = np.asarray(row.get(slot, begin), place.dtype)
                    Tensor.of(optimizer.name, array, place.device).copied_into(place.buffer)


def pickled(optimizer: Optimizer) -> dict[str, Any]:
    """State by parameter, since ids and places in memory differ elsewhere."""
    mine = {key: value for key, value in vars(optimizer).items() if key not in ("blocks", "names", "group_of", "still")}
    places = [(optimizer.names[p.id], optimizer.group_of[p.id]) for p in optimizer.params]
    copies = {"params": list(optimizer.params), "groups": [{**g, "names": list(g["names"])} for g in optimizer.groups]}
    return {**mine, **copies, "places": places, "rows": optimizer.rows()}


def unpickle(optimizer: Optimizer, state: dict[str, Any]) -> None:
    vars(optimizer).update({key: value for key, value in state.items() if key not in ("places", "rows")})
    places = list(zip(optimizer.params, state["places"], strict=True))
    optimizer.rates.belong(optimizer)
    optimizer.groups = Groups([Group(optimizer, options) for options in state["groups"]])
    optimizer.names, optimizer.still = {p.id: name for p, (name, _) in places}, (-1, frozenset())
    optimizer.group_of = {p.id: group for p, (_, group) in places}
    optimizer.blocks = []
    optimizer.arrange()
    put_rows(optimizer, state["rows"])
