"""The saved state of an optimizer: plain data by parameter name, restored whole or not at all.

    {"class": "AdamW", "order": "torch", "groups": [options and names], "state": {name: {"step": int, moment: array, ...}}}

Parameters without a name are called "0", "1", ... in the order in which they came, so their state is restored by position. Where two
rows would fit, a place alone proves nothing: it must be the very tensor that the state was saved with, or hold the same numbers. So
"unnamed" has a mark for each: {"id": which tensor of which process, "numbers": a digest of its values}. An optimizer that learns of its
parameters at its first steps (FLAME's style) keeps the rows of those that have not come yet: they wait.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..bus import changed
from ..core.errors import StateError
from ..ids import origin
from ..parameter import Parameter
from ..tensors import Tensor
from .given import name_of
from .groups import Group, Groups, checked_rate, fixed

Row = dict[str, Any]
Acts = list[Callable[[], None]]
SAVED = "Pass what state_dict() returned"


class Saved:
    """What an Optimizer and a ByName answer about their state."""

    name = "optimizer"
    order = "torch"
    chain: tuple[Any, ...] = ()
    contained: tuple[str, ...] = ("groups", "state")  # what it holds beside class, order and transforms
    contents: Callable[[], dict[str, Any]]  # gives that
    checked: Callable[[Any], Acts]  # and checks it; what is returned restores it

    def state_dict(self) -> dict[str, Any]:
        """Plain data: copies of all that is needed to go on."""
        found = {"class": self.name, "order": self.order, **self.contents()}
        return found | ({"transforms": [t.state_dict() for t in self.chain]} if self.chain else {})

    def load_state_dict(self, found: dict[str, Any]) -> None:
        """Restore state_dict(). Class, count, names and shapes are checked first; a failure changes nothing (StateError).

        Options are the state's afterwards, not those of the constructor: to go on with another lr, set optimizer.lr. A schedule stays.

        An optimizer that learns of its parameters with step() (FLAME's style) keeps the state of those that have not come yet."""
        for act in self.prepared(found):
            act()

    def prepared(self, found: dict[str, Any]) -> Acts:
        """Check a state without changing anything; what is returned restores it."""
        if not isinstance(found, dict) or not (set(self.contained) <= set(found) or found.get("class", self.name) != self.name):
            what = "one of PyTorch's" if isinstance(found, dict) and "param_groups" in found else type(found).__name__
            raise StateError(f"{self.name}: not the state of an optimizer: {what}. Pass what state_dict() of a flamepy optimizer returned.")
        saved, mine = (found.get("class", self.name), found.get("order", self.order)), (self.name, self.order)
        if saved != mine:
            one, other = [f"{kind} (order '{by}')" for kind, by in (saved, mine)]
            raise StateError(f"{self.name}: the state of another optimizer: state of {one}, this is {other}. Make one of the same class.")
        return [*self.checked(found), *self._checked_transforms(found.get("transforms", []))]

    def _checked_transforms(self, saved: Any) -> Acts:
        """Check the state of the chain; what is returned restores it."""
        classes, mine = saved, [t.name for t in self.chain]
        if isinstance(saved, list):
            classes = [row.get("class") if isinstance(row, dict) else type(row).__name__ for row in saved]
        if classes != mine:
            raise StateError(f"{self.name}: the state of other transforms: state {classes}, here {mine}. Use the same chain.")
        for t, row in zip(self.chain, saved, strict=True):
            t.check_state(row)
        return [partial(t.load_state_dict, row) for t, row in zip(self.chain, saved, strict=True)]

    get_state = state_dict
    restore_state = load_state_dict


# ---- out -----------------------------------------------------------------------------------------------------------------------------
def contents(optimizer: Any) -> dict[str, Any]:
    """What its state holds beside class, order and transforms."""
    groups, waiting = optimizer.rates.rows(), optimizer.waiting
    for name, (number, _) in waiting.items():
        groups[number]["names"].append(name)
    found = {"groups": groups, "state": {**rows_of(optimizer), **{name: row for name, (_, row) in waiting.items() if row}}}
    unnamed = {name: mark for name, mark in optimizer.marks.items() if name in waiting}
    unnamed |= {optimizer.names[p.id]: mark_of(p) for p in optimizer.params if optimizer.names[p.id] != name_of(p)}
    return found | ({"unnamed": unnamed} if unnamed else {})


def rows_of(optimizer: Any) -> dict[str, Row]:
    """The state of every parameter that was updated."""
    found: dict[str, Row] = {}
    for block in optimizer.blocks:
        block.refresh()
        for p, step, kept in zip(block.params, block.steps, block.kept, strict=True):
            if step:
                found[optimizer.names[p.id]] = {"step": step, **{slot: t.numpy().copy() for slot, t in kept.items()}}
    return found


def mark_of(p: Parameter) -> dict[str, str]:
    """What a parameter without a name is known by."""
    from hashlib import blake2b

    return {"id": "{}:{}".format(*origin(p.id)), "numbers": blake2b(p.numpy().tobytes(), digest_size=8).hexdigest()}


# ---- in: everything is checked (StateError) before anything is changed ------------------------------------------------------------------
def checked(optimizer: Any, state: dict[str, Any]) -> Acts:
    """Check the contents of a state; what is returned restores it."""
    name, rates, groups, rows, marks = optimizer.name, optimizer.rates, state["groups"], state["state"], state.get("unnamed", {})
    restored = checked_groups(optimizer, groups, rows)
    for key, row in rows.items():
        step = np.asarray(row.get("step"))
        if step.shape != () or step.dtype.kind not in "iu" or step < 0:
            raise StateError(f"{name}: not a step count: '{key}' has {row.get('step')!r}. {SAVED}.")
    if not isinstance(marks, dict) or not all([isinstance(mark, dict) for mark in marks.values()]):
        raise StateError(f"{name}: not marks by name: {marks!r:.80}. {SAVED}.")
    places = {n: (i, rows.get(n, {})) for i, group in enumerate(groups) for n in group["names"]}
    here = {optimizer.names[p.id]: p for p in optimizer.params}
    check_places(optimizer, here, {n: row for n, (_, row) in places.items()}, marks, optimizer.used_slots(restored))
    finished = groups[0].get("finished", max([int(row["step"]) for row in rows.values()], default=0))
    if not isinstance(finished, int) or isinstance(finished, bool) or finished < 0:
        raise StateError(f"{name}: not a step count: finished is {finished!r}. {SAVED}.")
    lr = restored[0]["lr"] if rates.schedule is None else checked_rate(name, rates.schedule, finished)

    def put() -> None:
        optimizer.waiting, optimizer.marks = {n: place for n, place in places.items() if n not in here}, marks
        for group, options in zip(rates.groups, restored, strict=True):
            dict.update(group, options)
        rates.finished = finished
        rates.put(lr)
        optimizer._arrange()
        put_rows(optimizer, rows, anew=True)  # into the memory that is there: recorded steps know it
        changed(optimizer)

    return [put]


def checked_groups(optimizer: Any, groups: Any, rows: Any) -> list[dict[str, Any]]:
    """The options of a saved state for each group; it must hold these parameters in the same groups."""
    name, mine, open = optimizer.name, list(optimizer.names.values()), optimizer.open
    lists = [g.get("names") if isinstance(g, dict) else None for g in groups] if isinstance(groups, list | tuple) else []
    named = all([isinstance(names, list | tuple) and all([isinstance(n, str) for n in names]) for names in lists])
    fit = isinstance(rows, dict) and all([isinstance(row, dict) for row in rows.values()])
    if not (named and lists and fit):
        what = "not groups with names" if fit else "not rows by name"
        raise StateError(f"{name}: {what}: {(groups if fit else rows)!r:.80}. {SAVED}.")
    saved, known = [n for g in groups for n in g["names"]], set(mine)
    if len(saved) < len(mine) or (len(saved) > len(mine) and not open):
        raise StateError(f"{name}: parameter count mismatch: state has {len(saved)}, model has {len(mine)}. Restore the same model.")
    if wrong := sorted(known - set(saved) | set(rows) - set(saved) | (set() if open else set(saved) - known)):
        raise StateError(f"{name}: parameter names mismatch: {wrong}. Restore the same model.")
    if [sorted(set(g["names"]) & known) for g in groups] != [sorted(g["names"]) for g in optimizer.groups]:
        raise StateError(f"{name}: groups hold other parameters: {[g['names'] for g in groups]}. Use the same globs.")
    restored = []
    for old, new in zip(optimizer.groups, groups, strict=True):
        if set(new) - {"finished"} != set(old):
            raise StateError(f"{name}: options differ: {sorted(set(new) ^ set(old))}. Restore the same kind of optimizer.")
        options = {key: value if key == "names" else new[key] for key, value in old.items()}
        optimizer.check(options)
        restored.append(fixed(options))
    return restored


def put_rows(optimizer: Any, rows: dict[str, Row], anew: bool = False) -> None:
    """Write moments and step counts into the blocks. `anew`: what has no row begins as if it had never been updated."""
    for block in optimizer.blocks:
        for i, p in enumerate(block.params):
            row = rows.get(optimizer.names[p.id], {})
            block.steps[i] = int(row.get("step", 0 if anew else block.steps[i]))
            for slot, place in block.kept[i].items():
                if slot in row or anew:
                    begin = p.numpy() if slot == "master" else np.zeros(place.shape, place.dtype)
                    array = np.asarray(row.get(slot, begin), place.dtype)
                    Tensor.of(optimizer.name, array, place.device).copied_into(place.buffer)


# ---- which row is whose ----------------------------------------------------------------------------------------------------------------
def check_places(optimizer: Any, new: dict[str, Parameter], rows: dict[str, Row], marks: dict[str, Any], slots: tuple[str, ...]) -> None:
    """Raise StateError unless it is clear which rows these parameters take, by name or by place, and all moments in them have the right
    shapes. Nothing of the right shape may be left over for one that takes none. The order of a list that the optimizer was made with
    counts, as in PyTorch, unless the marks contradict it."""
    for name, p in new.items():
        if name not in rows:
            if left := [n for n, row in rows.items() if row and n not in new and not misfit(optimizer, p, row, slots)]:
                what = f"not in the restored state, where one of its shape waits: '{name}' of shape {p.shape}, '{left[0]}' waits"
                raise StateError(f"{optimizer.name}: {what}. Give parameters the names that they had when it was saved.")
            continue
        mine = rows[name]
        if problem := misfit(optimizer, p, mine, slots):
            raise StateError(f"{optimizer.name}: shape mismatch for '{name}' {problem}. Restore the same model.")
        places = [(n, row) for n, row in rows.items() if n.isdigit() and n != name]
        others = [n for n, row in places if differ(row, mine) and not misfit(optimizer, p, row, slots)]
        more = [q for n, q in new.items() if n not in rows and q.shape == p.shape and not name_of(q)]  # have no row, and come with it
        if name_of(p) == name or not (others or more):
            continue
        its = mark_of(p)
        like = [[n for n in (name, *others) if marks.get(n, {}).get(key) == its[key]] for key in ("id", "numbers")]
        found = like[0] or like[1]
        if found != [name] if optimizer.open else found and name not in found:
            other = f"'{others[0]}'" if others else "a new one"
            what = f"'{found[0]}' comes as '{name}'" if found and name not in found else f"'{name}' of shape {p.shape} may be {other}"
            raise StateError(
                f"{optimizer.name}: parameters without names are not as in the restored state: {what}. Restore their numbers first and "
                "list them in the old order, or name them before saving and restoring: fp.ParameterDict({'w': w, ...})."
            )


def misfit(optimizer: Any, p: Parameter, row: Row, slots: tuple[str, ...]) -> str:
    """Which moment in a row has another shape than this parameter's, if one has; an empty row fits."""
    shapes = optimizer.shapes_of(p, slots)
    for slot in [*shapes, *(["master"] if "master" in row else [])] if row else ():
        array, shape = np.asarray(row.get(slot)), shapes.get(slot, p.shape)
        if array.shape != shape or array.dtype.kind not in "fiu":
            return f"{slot}: state {f'{array.shape} of {array.dtype}' if slot in row else 'nothing'}, model {shape}"
    return ""


def differ(row: Row, other: Row) -> bool:
    """Whether it matters which of two rows a parameter takes."""
    return row.keys() != other.keys() or not all([np.array_equal(row[key], other[key]) for key in row])


# ---- pickles and copies: by parameter, since ids and places in memory differ elsewhere ------------------------------------------------
def pickled(optimizer: Any) -> dict[str, Any]:
    """For __getstate__()."""
    mine = {key: value for key, value in vars(optimizer).items() if key not in ("blocks", "names", "still")}
    rates = copy.copy(optimizer.rates)
    rates.groups = [({**group, "names": list(group["names"])}, group.glob, group.factor) for group in rates.groups]
    params, names = list(optimizer.params), list(optimizer.names.values())
    return {**mine, "params": params, "rates": rates, "places": names, "rows": rows_of(optimizer)}


def unpickle(optimizer: Any, found: dict[str, Any]) -> None:
    """For __setstate__()."""
    names, rows = found.pop("places"), found.pop("rows")
    ids = [p.id for p in found["params"]]
    vars(optimizer).update(found, blocks=[], still=(-1, frozenset()), names=dict(zip(ids, names, strict=True)))
    rates = optimizer.rates
    rates.groups = Groups([Group(optimizer, *row) for row in rates.groups])
    optimizer._arrange()
    put_rows(optimizer, rows)
