"""What a step reaches: from its closure, the globals it names, the arguments that are no tensors, on to the user's own functions and
objects; attributes count where the code names them.

This is an economy: what is not seen here (files, clocks, long containers, what code of other libraries reads), verify.py finds out.
"""

from __future__ import annotations

import builtins
import os
import sys
from array import array
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Callable
from contextvars import ContextVar
from copy import copy
from functools import partial
from operator import attrgetter
from types import CellType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from .code import ITEM, Path, reads
from .generators import kinds, of_everyone
from .names import Names, function_of, is_users_own, of_library, spaces, unwatchable, vars_of
from .values import MISSING, PLAIN, Contents, Number, Same, is_engine, known, of_engine

LONG = 64  # items of a container that are looked at one by one
DEEP = 8  # containers in containers
SMALL = 1 << 14  # elements of an array that are looked at
COPIED = (set, frozenset, deque, bytearray, array)  # containers that are compared as a whole
WRAPPING = (UserDict, UserList, ChainMap, type(os.environ))  # whose items lie in an attribute
SILENT = ("__init__", "__new__", "__repr__", "__str__")  # methods for the object's making and printing
READS_ANYTHING = (globals, vars, eval, exec, open, input, __import__)
contents, code_of, defaults_of = attrgetter("cell_contents"), attrgetter("__code__"), attrgetter("__defaults__")


class Reach(Names):
    """Walks from what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.loose: set[str] = set()
        self.anything = False  # whether code may read any attribute: getattr() or the like
        self.where = ""  # the line that is looked at
        self.objects: list[tuple[str, Any]] = []  # the user's own, whose attributes may be named anywhere
        self.seen: dict[Any, Any] = {}

    # ---- values --------------------------------------------------------------------------------------------------------------
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
        elif isinstance(value, COPIED) and len(value) <= SMALL:
            held = copy(value)
            self.note(label, Contents(held))
            self.copies.append((value, held))
        elif not isinstance(value, ModuleType):
            self.note(label, known(value))
            self.special(label, value, depth)

    def special(self, label: str, value: Any, depth: int) -> None:
        """What has contents that Python has ways of its own to reach, or none; else an object."""
        if isinstance(value, kinds()):
            self.generators.append((label, value, self.where))
        elif isinstance(value, ContextVar):
            self.place(f"{label}.get()", current, value)
        elif isinstance(value, attrgetter):
            self.anything = True
        elif isinstance(value, WRAPPING):
            for name, inside in list(vars(value).items()):
                for part in inside if isinstance(inside, list) else [inside]:
                    self.whole(f"{label}.{name}", part, depth)
        elif hasattr(type(value), "__self__") and (owner := value.__self__) is not None and not of_engine(owner):
            self.whole(label_of(label), owner, depth)  # a method of Python's or of NumPy's
        elif what := unwatchable(value):
            self.unwatched.append((label, what, self.where))
        elif (wrapped := getattr(type(value), "__wrapped__", None) or vars_of(value).get("__wrapped__")) is not None:
            self.visit(label, wrapped)
        else:
            self.object(label, value)

    def items(self, label: str, value: Any, depth: int) -> None:
        if len(value) <= LONG and depth < DEEP:
            if isinstance(value, list):
                self.place(f"len({label})", len, value)
            get = next(kind for kind in (list, tuple, dict) if isinstance(value, kind)).__getitem__  # without code of the user's
            for key in list(value) if isinstance(value, dict) else range(len(value)):
                self.place(f"{label}[{key!r}]", partial(get, value), key, depth + 1)

    def whole(self, label: str, value: Any, depth: int = 0) -> None:
        """A container of which more is read than items with constant keys: its keys count too, and their order."""
        if isinstance(value, dict) and (id(value), "keys") not in self.seen and len(value) <= SMALL:
            self.seen[id(value), "keys"] = value
            self.keys.append((value, list(value)))
            self.note(f"the keys of {label}", Number(str(list(value))))
        self.visit(label, value, depth)

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
        elif of_engine(value):
            self.rules(label, value)
        else:
            self.objects.append((label, value))
            self.places.append((type, value, type(value)))
            for space in spaces(type(value)):  # operators, [], len() and the like
                for name, found in list(space.items()):
                    if name.startswith("__") and name not in SILENT and isinstance(found, FunctionType):
                        self.function(f"{label}.{name}", found, value)

    def named(self, value: Any) -> list[str]:
        """Which attributes of an object code may read."""
        own = [name for name in vars_of(value) if name not in self.loose] if self.anything else []
        return sorted(self.loose) + own

    def hooks(self, label: str, leaf: Any) -> None:
        for hook in leaf.hooks or ():
            self.visit(f"a hook of {label}", hook)

    # ---- functions -----------------------------------------------------------------------------------------------------------
    def function(self, label: str, function: FunctionType, owner: Any) -> None:
        """What a function names; `owner`: the object behind its first argument."""
        code = function.__code__
        if (id(code), id(owner)) in self.seen:
            return
        self.seen[id(code), id(owner)] = function, owner
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        if is_engine(function.__globals__.get("__name__")):
            return
        if of_library(code.co_filename):  # a decorator of a library: what it wraps
            for name, cell in cells.items():
                self.place(name, contents, cell)
            return
        self.note(f"the code of {label}", Same(code))
        self.places += [(code_of, function, code), (defaults_of, function, function.__defaults__)]
        self.where = f"{code.co_filename}:{code.co_firstlineno}"
        for part in (function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).values())):
            self.visit(f"{label}'s defaults", part)
        self.follow_code(function, owner, cells)

    def rules(self, label: str, op: Any) -> None:
        """The functions of the user's that an op was made of."""
        for part in ("body", "rule", "graph_rule"):
            if isinstance(found := vars_of(op).get(part), FunctionType) and not is_engine(found.__module__):
                self.function(f"{label}'s {part}", found, MISSING)

    def follow_code(self, function: FunctionType, owner: Any, cells: dict[str, CellType]) -> None:
        code = function.__code__
        found = reads(code)
        first = code.co_varnames[0] if code.co_argcount and owner is not MISSING else None
        for path, line in sorted(found.paths.items(), key=lambda row: len(row[0])):
            kind, name = path[:2]
            self.where = f"{code.co_filename}:{line}"
            if kind == "global":
                value = self.start(path, function.__globals__.get, name)
                if value is None or value is MISSING:
                    self.builtin(name)
            elif kind == "cell" and name in cells:
                value = self.start(path, contents, cells[name])
            elif kind == "module":
                value = self.start(path, sys.modules.get, name)
            elif name == first:
                value = owner
            else:  # a variable of its own: whose attribute this is, is not known
                self.loose.update(path[2:])
                continue
            self.follow(name, value, path[2:])
        self.loose |= found.loose
        for path, line in found.written.items():
            if path[0] in ("global", "cell") or (path[1] == first and len(path) > 2):
                self.written.setdefault(".".join(path[1:]), f"{code.co_filename}:{line}")

    def builtin(self, name: str) -> None:
        """A function of Python's that may read anything."""
        value = vars(builtins).get(name)
        if value is getattr:
            self.anything = True
        elif value in READS_ANYTHING:
            self.unwatched.append((f"{name}()", "what it reads", self.where))

    def start(self, path: Path, get: Callable[[Any], Any], what: Any) -> Any:
        """The variable a path begins with."""
        key = path[1], id(what) if get is contents else id(getattr(get, "__self__", None))
        if key not in self.seen:
            self.seen[key] = what, self.place(path[1], get, what)
        return self.seen[key][1]

    def follow(self, label: str, value: Any, names: Path) -> None:
        """The attributes of a path, as long as they are the user's own."""
        for name in names:
            if name == ITEM or value is MISSING or value is None or isinstance(value, PLAIN):
                return
            if isinstance(value, ModuleType):
                self.library(value, name)
                if is_engine(value.__name__ + ".") or not hasattr(value, "__file__") or of_library(str(value.__file__)):
                    return
            elif of_engine(value) and not is_users_own(value, name):
                return
            value, label = self.attribute(label, value, name), f"{label}.{name}"
        if isinstance(value, dict):
            self.whole(label, value)

    def library(self, module: ModuleType, name: str) -> None:
        """A name of a module of a library's."""
        if module is os and name in ("environ", "getenv"):
            self.visit("os.environ", os.environ)
        for i, (label, generator, _) in enumerate(of_everyone()):
            if module.__name__ == label and not self.generators[i][2]:
                self.generators[i] = label, generator, self.where

    def attribute(self, label: str, value: Any, name: str) -> Any:
        """The attribute of an object, a class or a module, without running any code of its class."""
        key = id(value), name, "attribute"
        if key in self.seen:
            return self.seen[key][1]
        self.seen[key] = value, MISSING
        result: Any = MISSING
        for home in spaces(value):
            if name not in home:
                if result is MISSING:
                    self.places.append((home.__contains__, name, False))
                continue
            found = home[name]
            if function := function_of(found):
                self.places.append((home.__getitem__, name, found))
                self.note(f"{label}.{name}", Same(function))
                self.function(f"{label}.{name}", function, MISSING if isinstance(found, staticmethod) else value)
            elif result is MISSING:
                if isinstance(found, MemberDescriptorType):  # of __slots__
                    found = self.place(f"{label}.{name}", found.__get__, value)
                else:
                    self.place(f"{label}.{name}", home.__getitem__, name)
                    self.getter(f"{label}.{name}", found, value)
            result = found if result is MISSING else result
            if not function:  # a method may call that of the next class: super()
                break
        self.seen[key] = value, result
        return result

    def getter(self, label: str, found: Any, owner: Any) -> None:
        """A descriptor of the user's own: the code that gives the attribute."""
        get = getattr(type(found), "__get__", None)
        if isinstance(get, FunctionType):
            self.function(label, get, found)
            self.objects.append((label, owner))


def current(variable: ContextVar) -> Any:
    return variable.get(MISSING)


def label_of(label: str) -> str:
    """The object of a bound method."""
    return label.rpartition(".")[0] or "self"


def look(step: Any, others: dict[str, Any]) -> Names:
    """Everything the step and these other values lead to."""
    names = Reach()
    names.visit(getattr(step, "__name__", "step"), step)
    if not isinstance(step, FunctionType | MethodType | partial):  # an object that can be called
        names.visit("self", step)
    for label, value in others.items():
        names.whole(label, value)
    while True:  # attributes named anywhere, of every object found, which may lead to more of both
        todo = [(label, value, name) for label, value in names.objects for name in names.named(value)]
        todo = [t for t in todo if (id(t[1]), t[2], "attribute") not in names.seen]
        if not todo:
            break
        for label, value, name in todo:
            names.attribute(label, value, name)
    names.seen.clear()
    names.objects.clear()
    return names
