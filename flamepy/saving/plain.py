"""A nested state taken apart into arrays by name and a text for the rest, and put together again.

In the text (JSON) a number, string, bool or None stands for itself; ["array", name], ["list", ...], ["tuple", ...] and
["dict", [key, value], ...] for the others, {...} for a dict whose keys are strings.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..core.errors import DTypeError, StateError
from ..dtypes import of_torch, torch_array
from ..tensors import Tensor

DEEPEST = 100  # levels; what lies deeper probably holds itself
PLAIN = (bool, int, float, str, type(None))


class Listed:
    """An array of a state: what the header needs at once, the elements when they are asked for."""

    def __init__(self, path: str, value: Any):
        self.value = value
        self.shape = tuple(value.shape)
        name = str(value.dtype).removeprefix("torch.") if of_torch(value) else value.dtype
        try:
            self.dtype = np.dtype(name).newbyteorder("=")
        except TypeError:
            raise DTypeError(f"save: dtype not supported: '{path}' is {value.dtype}. Cast it to float32.") from None
        self.itemsize = self.dtype.itemsize
        self.nbytes = self.itemsize * int(np.prod(self.shape, dtype=object))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        v = self.value
        array = v.numpy() if isinstance(v, Tensor) else torch_array(v) if of_torch(v) else np.asarray(v)
        return array.astype(self.dtype, copy=False)


def taken_apart(state: Any, arrays: dict[str, Listed]) -> str:
    """The text for a state, whose arrays are put into `arrays`."""
    return json.dumps(form_of(state, "", arrays, 0), separators=(",", ":"))


def form_of(value: Any, path: str, arrays: dict[str, Listed], depth: int) -> Any:
    """What stands for a value in the text. `path`: the keys that lead to it, joined by dots."""
    if isinstance(value, np.generic) and value.dtype.kind in "fiub":  # NumPy's numbers
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    if depth > DEEPEST:
        raise StateError(f"save: more than {DEEPEST} levels: '{path[:60]}...'. Take out what holds itself.")
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, PLAIN):
                raise StateError(f"save: a key cannot be saved: {key!r} in {path or 'the state'}. Use strings or numbers.")
        rows = [(key, form_of(v, f"{path}.{key}" if path else str(key), arrays, depth + 1)) for key, v in value.items()]
        return dict(rows) if all([type(key) is str for key in value]) else ["dict", *rows]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, *[form_of(v, f"{path}.{i}" if path else str(i), arrays, depth + 1) for i, v in enumerate(value)]]
    if isinstance(value, np.ndarray | Tensor) or (hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "__array__")):
        check_name(path, arrays)
        arrays[path] = Listed(path, value)
        return ["array", path]
    advice = "Pass its state_dict()" if hasattr(value, "state_dict") else "Use arrays, numbers, strings, None, lists, tuples and dicts"
    raise StateError(f"save: cannot be saved: '{path}' is a {type(value).__name__}. {advice}.")


def check_name(path: str, arrays: dict[str, Listed]) -> None:
    """Raise StateError for the name of an array that the file cannot hold."""
    if path in arrays or path == "__metadata__":
        what = "two arrays have one name" if path in arrays else "an array has the name of the metadata"
        raise StateError(f"save: {what}: '{path}'. Rename a key: names are the keys joined by dots.")
    try:
        path.encode()
    except UnicodeError:
        raise StateError(f"save: a key is no text: {path!r}. Use letters that UTF-8 has.") from None


def rebuilt(text: str, arrays: dict[str, np.ndarray]) -> Any:
    """The state that a text and its arrays stand for. KeyError, ValueError and the like for another text."""

    def value_of(form: Any) -> Any:
        if isinstance(form, dict):
            return {key: value_of(v) for key, v in form.items()}
        if not isinstance(form, list):
            return form
        kind, *rest = form
        if kind == "array":
            return arrays[rest[0]]
        if kind == "dict":
            return {key: value_of(v) for key, v in rest}
        return {"list": list, "tuple": tuple}[kind]([value_of(v) for v in rest])

    return value_of(json.loads(text))
