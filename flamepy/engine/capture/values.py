"""Values as a recorded step compares them: plain ones by value, objects by identity, modules of layers by their settings."""

from __future__ import annotations

import sys
from enum import Enum
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any

import numpy as np

PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic, np.dtype, Enum, range, slice, type(...))
MISSING = object()
LEAF, MODULE = "requires_grad or hooks", "a module"  # what guards of these are called
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


class Contents:
    """A container that counts as equal to one with equal items."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return type(other) is Contents and type(other.value) is type(self.value) and bool(other.value == self.value)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return str(self.value)[:60]


def known(value: Any, inside: tuple[int, ...] = ()) -> Any:
    """A value as it is compared: by value where that is possible, else by identity. An object that says itself what is equal by all of its
    attributes, also those that its == leaves out. `inside`: ids of the objects whose attribute it is."""
    if not isinstance(value, PLAIN):
        if type(value).__hash__ in (None, object.__hash__) or of_engine(value) or isinstance(value, type | FunctionType | MethodType):
            return Same(value)
        if id(value) in inside:
            return inside.index(id(value))
        if (parts := attributes_of(value)) is not None:
            return type(value), *[(name, known(found, (*inside, id(value)))) for name, found in parts]
        try:
            hash(value)
        except (TypeError, ValueError):  # it holds something without a hash, or is memory that can be written
            return Same(value)
    return Number(value)


def attributes_of(value: Any) -> list[tuple[str, Any]] | None:
    """The attributes of an object, also those in __slots__ if its class says by code of the user's what is equal; None if it has none."""
    own = list(vars(value).items()) if hasattr(value, "__dict__") else None
    if isinstance(type(value).__hash__, FunctionType) and type(value).__module__.partition(".")[0] not in sys.stdlib_module_names:
        slots = [(n, s) for cls in type(value).__mro__ for n, s in vars(cls).items() if isinstance(s, MemberDescriptorType)]
        own = (own or []) + [(name, slot.__get__(value)) for name, slot in slots if hasattr(value, name)]
    return own


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
