"""A parameter that several attributes share has one name: the path that is found first."""

from __future__ import annotations

from typing import Any

from ..core.errors import StateError
from ..parameter import Parameter
from ..tensors import tensor


def name_in_passing(owner: Any, attribute: str, value: Any) -> None:
    """Name what is put in by its path from its owner, so that maps of gradients and error texts know it before anyone asks for params.
    What has another name already may be shared: it goes by its first path from here; tied to a layer that knows no other path
    (head.weight = embedding.weight), it keeps its name."""
    listed: dict[int, str] = {}
    for path, p in [("", value)] if isinstance(value, Parameter) else value._named():
        if p.name and not p.passing:
            continue
        name = f"{attribute}.{path}" if path else attribute
        if p.name not in ("", path):
            listed = listed or {q.id: first for first, q in owner._named()}
            name = p.name if listed[p.id] == name and not path and "." in p.name else listed[p.id]
        p.name, p.passing = name, True


def one_name_each(state: dict[str, Any], others: dict[str, str]) -> dict[str, Any]:
    """A state with what is shared under the name that it is listed under alone. Raises StateError where its names have other numbers."""
    found = {name: value for name, value in state.items() if name not in others}
    for name, listed in others.items():
        if name in state and tensor(found.setdefault(listed, state[name])).numpy().tobytes() != tensor(state[name]).numpy().tobytes():
            what = f"one parameter here, two in the state: '{listed}' and '{name}'"
            raise StateError(f"load_state_dict: {what}. Load into a model that does not share it.")
    return found
