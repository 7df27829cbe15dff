"""What a step saw from outside: the numbers, strings, flags and objects behind the names in its code.

A replay runs no Python, so whatever Python decided with these values must be as it was. `Names.as_before()` compares identities and is
fast; `Names.values` are compared when that fails. reach.py finds them.
"""

from __future__ import annotations

import io
import os
import weakref
from collections.abc import Callable, Iterator
from functools import partialmethod
from types import CellType, FunctionType
from typing import Any

import numpy as np

from .generators import of_everyone
from .values import MISSING, PLAIN, is_engine, of_engine

WEAK = (weakref.ref, weakref.WeakSet, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
STANDARD = os.path.dirname(os.__file__)  # the standard library; what is installed lies in a folder site-packages


class Names:
    """What was seen. `values`: by label, as compared; `modules`, `tensors`: the engine's among it, whose settings count."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.modules: list[Any] = []
        self.tensors: list[Any] = []
        self.places: list[tuple[Callable[[Any], Any], Any, Any]] = []  # (look up, what, found) of each value
        self.cells: list[tuple[CellType, Any]] = []  # those of a closure's variables: read in half the time
        self.arrays: list[tuple[np.ndarray, np.ndarray]] = []  # small ones, with what they held
        self.copies: list[tuple[Any, Any]] = []  # sets and the like, with what they held
        self.keys: list[tuple[dict, list]] = []  # dictionaries of which more than single items are read, with their keys
        self.unwatched: list[tuple[str, str, str]] = []  # what cannot be watched: (name, what it is, line)
        self.written: dict[str, str] = {}  # what the step only adds to, with the line
        self.generators = of_everyone()  # of random numbers: (name, generator, line)

    def as_before(self) -> bool:
        """Whether every place holds the very object that it held."""
        try:
            for cell, found in self.cells:
                if cell.cell_contents is not found:
                    return False
            for get, what, found in self.places:
                if get(what) is not found:
                    return False
            for array, before in self.arrays:
                if array.shape != before.shape or array.tobytes() != before.tobytes():
                    return False
            for container, held in self.copies:
                if container != held:
                    return False
            for container, held in self.keys:
                if list(container) != held:
                    return False
        except (LookupError, ValueError, AttributeError, RuntimeError):  # an item less, an empty cell
            return False
        return True

    def differing(self, others: Names) -> list[str]:
        """Labels of values that others do not have."""
        return [label for label, value in self.values.items() if others.values.get(label) != value]

    def take_places(self, now: Names) -> None:
        """Look where a later call found equal values in other objects."""
        self.places, self.cells, self.arrays, self.copies, self.keys = now.places, now.cells, now.arrays, now.copies, now.keys

    def note(self, label: str, value: Any) -> None:
        while label in self.values:  # another place of the same name
            label += "'"
        self.values[label] = value


# ---- what Python holds, looked at without running it ----------------------------------------------------------------------------
def of_library(file: str) -> bool:
    return file.startswith((STANDARD, "<frozen")) or "-packages" in file


def vars_of(value: Any) -> dict[str, Any]:
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}


def unwatchable(value: Any) -> str:
    """What a value is whose changes nobody can see; "" for others."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return "an array of objects"
    if isinstance(value, WEAK) or type(value) in weakref.ProxyTypes:
        return "a weak reference, while a record keeps alive what it saw"
    if isinstance(value, Iterator) and not isinstance(value, io.IOBase) and not isinstance(type(value).__next__, FunctionType):
        return "an iterator"
    return "a tensor of PyTorch's" if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "requires_grad") else ""


def function_of(found: Any) -> FunctionType | None:
    """The function behind what a class holds for a method or property; None for anything else."""
    if isinstance(found, partialmethod):
        found = found.func
    for part in ("__func__", "fget", "func", "__wrapped__"):
        if isinstance(getattr(found, part, None), FunctionType):
            found = getattr(found, part)
    return found if isinstance(found, FunctionType) else None


def is_users_own(value: Any, name: str) -> bool:
    """Whether an attribute of one of the engine's objects is not the engine's: its settings are known, what a class of the user's
    or its code keeps beside them is not."""
    kept = getattr(value, "__dict__", {}).get(name, MISSING)
    if kept is not MISSING:
        return not isinstance(kept, (*PLAIN, FunctionType)) and not of_engine(kept)
    homes = [cls for cls in type(value).__mro__ if name in cls.__dict__]
    return bool(homes) and not is_engine(homes[0].__module__) and homes[0].__module__ != "builtins"


def spaces(value: Any) -> Iterator[Any]:
    """Where attributes of an object are looked up."""
    own = getattr(value, "__dict__", None)
    if own is not None:
        yield own if isinstance(own, dict) else value.__dict__
    for cls in value.__mro__[1:] if isinstance(value, type) else type(value).__mro__:
        if cls.__module__ != "builtins":
            yield cls.__dict__
