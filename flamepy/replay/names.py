"""What a step can see from outside: the numbers, strings, flags and objects behind the names in its code.

A replay runs no Python, so whatever Python decided with these values must be as it was. look() walks from the step through its closure,
the globals it names, the arguments that are no tensors, and the user's own functions and objects they lead to; attributes count where
the code names them. `Names.as_before()` compares identities and is fast; `Names.values` are compared when that fails.

Not seen: what code asks for by other means (getattr, files, clocks), long containers and arrays, what code of other libraries reads.
Read next: code.py, recorder.py.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from operator import attrgetter
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from .code import Path, reads

PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, Enum, range, slice, type(...))
GENERATORS = (random.Random, np.random.RandomState, np.random.Generator, np.random.BitGenerator)
LONG = 64  # items of a container that are looked at
contents = attrgetter("cell_contents")
DEEP = 8  # containers in containers
SMALL = 1 << 14  # elements of an array that are looked at
MISSING = object()
STANDARD = os.path.dirname(os.__file__)  # the standard library; what is installed lies in a folder site-packages
LEAF = "requires_grad or hooks"  # what a guard of a leaf is called
PACKAGE = __name__.partition(".")[0]


class Same:
    """An object that counts as equal to itself alone."""

    def __init__(self, object: Any):
        self.object = object

    def __eq__(self, other: Any) -> bool:
        return type(other) is Same and other.object is self.object

    def __hash__(self) -> int:
        return id(self.object)

    def __repr__(self) -> str:
        return f"a {type(self.object).__name__}"


class Number:
    """A value that counts as equal to others: a plain one by its text (1, 1.0 and True differ, and so do 0.0 and -0.0), one of a class
    that says itself what is equal (a path, a frozen dataclass) by that."""

    def __init__(self, value: Any):
        self.kind = type(value), repr(value) if isinstance(value, PLAIN) else value

    def __eq__(self, other: Any) -> bool:
        return type(other) is Number and other.kind == self.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return str(self.kind[1])[:60]


def known(value: Any) -> Any:
    """A value as it is compared: by value where that is possible, else by identity."""
    if not isinstance(value, PLAIN):
        if type(value).__hash__ in (None, object.__hash__) or of_engine(value) or isinstance(value, type | FunctionType | MethodType):
            return Same(value)
        try:
            hash(value)
        except TypeError:  # it holds something without a hash
            return Same(value)
    return Number(value)


def is_engine(module: Any) -> bool:
    """Whether code of this module belongs to the engine, which tells recorders of its settings."""
    return str(module).startswith(PACKAGE + ".") and not str(module).startswith(PACKAGE + ".train")


def settings_of(module: Any) -> tuple:
    """What a recorded step depends on in a module of layers: mode and attributes, its own and of the modules inside."""
    rows = [(m, name, value) for m in module.modules() for name, value in (("training", m.training), *vars(m).items())]
    return tuple([(id(m), name, known(value)) for m, name, value in rows if name != "_params"])


def leaf_settings(leaf: Any) -> tuple:
    """What a recorded step depends on in a leaf, beside its numbers."""
    return leaf.requires_grad, *[Same(hook) for hook in leaf.hooks or ()]


def of_engine(value: Any) -> bool:
    """Whether it is an object of the engine's, or of a class derived from one of these."""
    return any([is_engine(cls.__module__) for cls in type(value).__mro__])


def is_users(code: CodeType) -> bool:
    return not of_library(code.co_filename)


def of_library(file: str) -> bool:
    return file.startswith((STANDARD, "<frozen")) or "-packages" in file


class Names:
    """What was seen. `values`: by label, as compared; `modules`, `tensors`: the engine's among it, whose settings count."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.modules: list[Any] = []
        self.tensors: list[Any] = []
        self.places: list[tuple[Callable[[Any], Any], Any, Any]] = []  # (look up, what, found) of each value
        self.cells: list[tuple[CellType, Any]] = []  # those of a closure's variables: read in half the time
        self.arrays: list[tuple[np.ndarray, np.ndarray]] = []  # small ones, with what they held
        self.generators: list[tuple[str, Any]] = []  # of random numbers, the user's own
        self.loose: set[str] = set()
        self.objects: list[tuple[str, Any]] = []  # the user's own, whose attributes may be named anywhere
        self.seen: dict[Any, Any] = {}

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
        except (LookupError, ValueError, AttributeError):  # an item less, an empty cell
            return False
        return True

    def differing(self, others: Names) -> list[str]:
        """Labels of values that others do not have."""
        return [label for label, value in self.values.items() if others.values.get(label) != value]

    # ---- walking -------------------------------------------------------------------------------------------------------------
    def place(self, label: str, get: Callable[[Any], Any], what: Any, depth: int = 0) -> Any:
        """Note the value that get(what) gives now, and go on from there."""
        try:
            value = get(what)
        except (LookupError, ValueError, AttributeError):
            return MISSING
        if get is contents:
            self.cells.append((what, value))
        else:
            self.places.append((get, what, value))
        self.visit(label, value, depth)
        return value

    def visit(self, label: str, value: Any, depth: int = 0) -> None:
        if isinstance(value, PLAIN):
            self.note(label, Number(value))
            return
        if (id(value), label) in self.seen:
            return
        self.seen[id(value), label] = value
        if isinstance(value, list | tuple | dict):
            self.items(label, value, depth)
        elif isinstance(value, MethodType):
            self.function(label, value.__func__, value.__self__)  # type: ignore[arg-type]
            self.visit(label_of(label), value.__self__)
        elif isinstance(value, partial):
            for part in (value.func, value.args, value.keywords):
                self.visit(label, part, depth)
        elif isinstance(value, FunctionType):
            self.note(label, Same(value))
            self.function(label, value, MISSING)
        elif isinstance(value, np.ndarray) and value.size <= SMALL and not value.dtype.hasobject:
            self.note(label, Number((value.shape, value.dtype.str, value.tobytes())))
            self.arrays.append((value, value.copy()))
        elif not isinstance(value, ModuleType):
            self.note(label, known(value))
            if isinstance(value, GENERATORS):
                self.generators.append((label, value))
            self.object(label, value)

    def note(self, label: str, value: Any) -> None:
        while label in self.values:  # another place of the same name
            label += "'"
        self.values[label] = value

    def items(self, label: str, value: Any, depth: int) -> None:
        if len(value) <= LONG and depth < DEEP:
            if isinstance(value, list):
                self.place(f"len({label})", len, value)
            get = next(kind for kind in (list, tuple, dict) if isinstance(value, kind)).__getitem__  # without code of the user's
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                self.place(f"{label}[{key!r}]", partial(get, value), key, depth + 1)

    def object(self, label: str, value: Any) -> None:
        """A module of layers, or an object of the user's own."""
        if hasattr(type(value), "named_modules") and of_engine(value):
            self.modules.append(value)
            for name, module in value.named_modules():
                forward: Any = getattr(type(module), "forward", None)
                if isinstance(forward, FunctionType):
                    self.function(f"{label}.{name}.forward" if name else f"{label}.forward", forward, module)
                for hook in getattr(module, "_hooks", ()):
                    self.visit(f"a hook of {label}.{name}" if name else f"a hook of {label}", hook.function)
            for name, p in value.named_parameters():
                self.hooks(f"{label}.{name}", p)
        elif hasattr(type(value), "requires_grad") and of_engine(value):
            self.tensors.append(value)
            self.hooks(label, value)
        elif not of_engine(value):
            self.objects.append((label, value))
            calls = [space["__call__"] for space in spaces(type(value)) if "__call__" in space]
            if calls and isinstance(calls[0], FunctionType):
                self.function(label, calls[0], value)

    def hooks(self, label: str, leaf: Any) -> None:
        for hook in leaf.hooks or ():
            self.visit(f"a hook of {label}", hook)

    def function(self, label: str, function: FunctionType, owner: Any) -> None:
        """What a function names; `owner`: the object behind its first argument."""
        code = function.__code__
        if is_engine(function.__module__) or (id(code), id(owner)) in self.seen:
            return
        self.seen[id(code), id(owner)] = function, owner
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        if not is_users(code):  # a decorator of a library: what it wraps
            for name, cell in cells.items():
                self.place(name, contents, cell)
            return
        for part in (function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).values())):
            self.visit(f"{label}'s defaults", part)
        paths, loose = reads(code)
        first = code.co_varnames[0] if code.co_argcount and owner is not MISSING else None
        for path in sorted(paths, key=len):
            kind, name = path[:2]
            if kind == "global":
                found = self.start(path, function.__globals__.get, name)
            elif kind == "cell" and name in cells:
                found = self.start(path, contents, cells[name])
            elif name == first:
                found = owner
            else:  # a variable of its own: whose attribute this is, is not known
                self.loose.update(path[2:])
                continue
            self.follow(name, found, path[2:])
        self.loose |= loose

    def start(self, path: Path, get: Callable[[Any], Any], what: Any) -> Any:
        """The variable a path begins with."""
        key = path[1], id(what) if get is contents else id(getattr(get, "__self__", None))
        if key not in self.seen:
            self.seen[key] = what, self.place(path[1], get, what)
        return self.seen[key][1]

    def follow(self, label: str, value: Any, names: Path) -> None:
        """The attributes of a path, as long as they are the user's own."""
        for name in names:
            if value is MISSING or value is None or isinstance(value, PLAIN):
                return
            if isinstance(value, ModuleType):
                if is_engine(value.__name__ + ".") or not hasattr(value, "__file__") or of_library(str(value.__file__)):
                    return
            elif of_engine(value):  # its own settings are known; what a user's layer keeps beside them is not
                kept = getattr(value, "__dict__", {}).get(name)
                if isinstance(kept, (*PLAIN, FunctionType)) or of_engine(kept):
                    return
            value, label = self.attribute(label, value, name), f"{label}.{name}"

    def attribute(self, label: str, value: Any, name: str) -> Any:
        """The attribute of an object, a class or a module, without running any code of its class."""
        key = id(value), name, "attribute"
        if key in self.seen:
            return self.seen[key][1]
        found = MISSING
        for home in spaces(value):
            if name in home:
                found = home[name]
                if isinstance(found, FunctionType) and home is not getattr(value, "__dict__", None):
                    self.function(f"{label}.{name}", found, value)
                elif isinstance(found, property) and isinstance(found.fget, FunctionType):
                    self.function(f"{label}.{name}", found.fget, value)
                elif isinstance(found, MemberDescriptorType):  # of __slots__
                    found = self.place(f"{label}.{name}", found.__get__, value)
                else:
                    self.place(f"{label}.{name}", home.__getitem__, name)
                break
        self.seen[key] = value, found
        return found


def spaces(value: Any) -> Iterator[Any]:
    """Where attributes of an object are looked up."""
    own = getattr(value, "__dict__", None)
    if own is not None:
        yield own if isinstance(own, dict) else value.__dict__
    for cls in value.__mro__[1:] if isinstance(value, type) else type(value).__mro__:
        if cls.__module__ != "builtins":
            yield cls.__dict__


def label_of(label: str) -> str:
    """The object of a bound method."""
    return label.rpartition(".")[0] or "self"


def look(step: Any, others: dict[str, Any]) -> Names:
    """Everything the step and these other values lead to."""
    names = Names()
    names.visit(getattr(step, "__name__", "step"), step)
    if not isinstance(step, FunctionType | MethodType | partial):  # an object that can be called
        names.visit("self", step)
    for label, value in others.items():
        names.visit(label, value)
    while True:  # attributes named anywhere, of every object found, which may lead to more of both
        todo = [(label, value, name) for label, value in names.objects for name in sorted(names.loose)]
        todo = [t for t in todo if (id(t[1]), t[2], "attribute") not in names.seen]
        if not todo:
            break
        for label, value, name in todo:
            names.attribute(label, value, name)
    names.seen.clear()
    names.objects.clear()
    return names
