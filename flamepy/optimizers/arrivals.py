"""Arrivals: parameters that an optimizer meets after its state was restored, and whose row of the state each one takes.

A parameter without a name goes by its place: "0", "1", ... in the order of the first steps. Where two rows would fit, its place alone
proves nothing: it must be the very tensor that the state was saved with, or hold the same numbers. A saved state therefore has a mark
for each parameter without a name: {"id": which tensor of which process, "numbers": a digest of its values}.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StateError
from ..ids import origin
from ..parameter import Parameter
from .groups import name_of

if TYPE_CHECKING:
    from .base import Optimizer

Rows = dict[str, dict[str, Any]]


def mark_of(p: Parameter) -> dict[str, str]:
    """What a parameter without a name is known by."""
    return {"id": "{}:{}".format(*origin(p.id)), "numbers": blake2b(p.numpy().tobytes(), digest_size=8).hexdigest()}


def marks_of(optimizer: Optimizer) -> dict[str, dict[str, str]]:
    """Marks of all parameters without a name, also of those that have not come yet."""
    waiting = {name: mark for name, mark in optimizer.marks.items() if name in optimizer.waiting}
    return waiting | {optimizer.names[p.id]: mark_of(p) for p in optimizer.params if optimizer.names[p.id] != name_of(p)}


def check_arrivals(optimizer: Optimizer, new: dict[str, Parameter]) -> None:
    """Raise StateError unless it is clear which waiting rows these parameters take, and nothing of the right shape is left over for one
    that takes none."""
    rows = {name: row for name, (_, row) in optimizer.waiting.items()}
    for name, p in new.items():
        if name in rows:
            if rows[name]:
                check_shapes(optimizer, name, p, rows[name], optimizer.used_slots(optimizer.groups))
            more = [q for n, q in new.items() if n not in rows and q.shape == p.shape and not name_of(q)]
            check_place(optimizer, name, p, rows, optimizer.marks, bool(more))
        elif left := [n for n, row in rows.items() if row and n not in new and fits(optimizer, n, p, row)]:
            what = f"not in the restored state, where one of its shape waits: '{name}' of shape {p.shape}, '{left[0]}' waits"
            raise StateError(f"{optimizer.name}: {what}. Give parameters the names that they had when it was saved.")


def check_place(
    optimizer: Optimizer, name: str, p: Parameter, rows: Rows, marks: dict[str, dict[str, str]], more: bool = False
) -> None:  # fmt: skip
    """Raise StateError where a parameter without a name might take another one's row. `more`: others that have no row come with it. The
    order of a list that the optimizer was made with counts, as in PyTorch, unless the marks contradict it."""
    mine = rows.get(name, {})
    others = [n for n, row in rows.items() if n.isdigit() and n != name and differ(row, mine) and fits(optimizer, n, p, row)]
    if name_of(p) == name or not (others or more):
        return
    its = mark_of(p)
    like = [[n for n in (name, *others) if marks.get(n, {}).get(key) == its[key]] for key in ("id", "numbers")]
    found = like[0] or like[1]
    if found != [name] if optimizer.open else found and name not in found:
        other = f"'{others[0]}'" if others else "a new one"
        what = f"'{found[0]}' comes as '{name}'" if found and name not in found else f"'{name}' of shape {p.shape} may be {other}"
        raise StateError(
            f"{optimizer.name}: parameters without names are not as in the restored state: {what}. Restore their numbers first and list "
            "them in the old order, or name them before saving and restoring: fp.ParameterDict({'w': w, ...})."
        )


def check_shapes(optimizer: Optimizer, name: str, p: Any, row: dict[str, Any], slots: tuple[str, ...]) -> None:
    """Raise StateError unless the moments in a row have the shapes that this parameter's have."""
    shapes = optimizer.shapes_of(p, slots)
    for slot in [*shapes, *(["master"] if "master" in row else [])]:
        array, shape = np.asarray(row.get(slot)), shapes.get(slot, p.shape)
        if array.shape != shape or array.dtype.kind not in "fiu":
            got = "nothing" if slot not in row else f"{array.shape} of {array.dtype}"
            raise StateError(f"{optimizer.name}: shape mismatch for '{name}' {slot}: state {got}, model {shape}. Restore the same model.")


def differ(row: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether it matters which of two rows a parameter takes."""
    return row.keys() != other.keys() or not all([np.array_equal(row[key], other[key]) for key in row])


def fits(optimizer: Optimizer, name: str, p: Parameter, row: dict[str, Any]) -> bool:
    """Whether the moments in a row may be this parameter's, by their shapes."""
    try:
        if row:
            check_shapes(optimizer, name, p, row, optimizer.used_slots(optimizer.groups))
    except StateError:
        return False
    return True
