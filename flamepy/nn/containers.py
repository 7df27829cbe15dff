"""Modules that hold others: ModuleList and Sequential in a row, ModuleDict by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..core.errors import IndexOutOfRange, StateError
from ..dtypes import checked_dict, checked_int
from .module import Module


class ModuleList(Module):
    """Modules in a list: append, index, iterate. It has no forward()."""

    def __init__(self, modules: Iterable[Module] = ()):
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        if not isinstance(module, Module):
            raise TypeError(f"{type(self).__name__}: not a Module: {type(module).__name__}. Pass layers, e.g. nn.ReLU() for relu.")
        number = len(self)
        while hasattr(self, str(number)):  # a part cut out of a longer one keeps its numbers
            number += 1
        setattr(self, str(number), module)
        return self

    def __len__(self) -> int:
        return len(self.children())

    def __iter__(self) -> Iterator[Any]:
        return iter([m for _, m in self.children()])

    def __getitem__(self, i: int | slice) -> Any:
        """A module; of a slice, a ModuleList or Sequential of the same modules under the names they have here."""
        found = self.children()
        if isinstance(i, slice):
            part = Sequential() if isinstance(self, Sequential) else ModuleList()
            for name, m in found[i]:
                setattr(part, name, m)
            part.training = self.training
            return part
        return found[self.place(i)][1]

    def __setitem__(self, i: int, module: Module) -> None:
        """Another module in the place of one, under its name."""
        put(self, self.children()[self.place(i)][0], module)

    def __delitem__(self, i: int | slice) -> None:
        """The modules behind take the names that it leaves."""
        modules = list(self)
        del modules[i if isinstance(i, slice) else self.place(i)]
        self.become(modules)

    def insert(self, i: int, module: Module) -> None:
        """A module before the one at i; those behind it have other names from then on."""
        modules = list(self)
        modules.insert(checked_int(type(self).__name__, "the index", i), module)
        self.become(modules)

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Append each of these. Raises TypeError."""
        if not hasattr(modules, "__iter__"):
            raise TypeError(f"{type(self).__name__}: not a list of Modules: {type(modules).__name__}. Pass [nn.ReLU(), ...].")
        for m in list(modules):
            self.append(m)
        return self

    def place(self, i: Any) -> int:
        """An index from 0 on."""
        i, n = checked_int(type(self).__name__, "the index", i), len(self)
        if not -n <= i < n:
            raise IndexOutOfRange(f"{type(self).__name__}: index out of range: {i} of {n} modules. Use one below len().")
        return i % n

    def become(self, modules: list[Any]) -> None:
        """Hold these alone, as 0, 1 and so on. Raises TypeError, before anything is changed."""
        ModuleList(modules)
        for name, _ in self.children():
            delattr(self, name)
        self.extend(modules)


class Sequential(ModuleList):
    """Modules applied one after the other: Sequential(Linear(2, 8), ReLU(), Linear(8, 1)), or of a dict, whose keys are their names.
    A Linear and the activation after it are one launch."""

    def __init__(self, *modules: Any):
        named = len(modules) == 1 and isinstance(modules[0], Mapping)
        super().__init__(() if named else modules)
        for name, module in modules[0].items() if named else ():
            put(self, name, module)

    def forward(self, x: Any) -> Any:
        """x -> what the last module makes of it; an empty Sequential returns x."""
        for step in self.steps():
            x = step(x)
        return x

    def steps(self) -> list[Callable[[Any], Any]]:
        """What is called, in order: the modules, those joined with the next that can be."""
        found: list[Callable[[Any], Any]] = []
        joined = None
        modules: list[Any] = list(self)
        for module, following in zip(modules, [*modules[1:], None], strict=False):
            if joined is not None:  # the one before did this one's work too
                joined = None
                continue
            joined = module.with_next(following) if following is not None else None
            found.append(joined or module)
        return found

    def add_to(self, residual: Any, *args: Any, **options: Any) -> Any:
        """residual + self(x); a Linear at the end adds it in its own launch."""
        if len(args) != 1 or options or not len(self) or not self.as_written(Sequential):
            return super().add_to(residual, *args, **options)
        *steps, last = self.steps()
        x = args[0]
        for step in steps:
            x = step(x)
        return last.add_to(residual, x) if isinstance(last, Module) else residual + last(x)


def put(owner: Module, key: Any, module: Any) -> None:
    """Give a module another one by name. Raises TypeError, StateError for a name that is none."""
    kind = type(owner).__name__
    if not isinstance(module, Module):
        raise TypeError(f"{kind}: not a Module: '{key}' is a {type(module).__name__}. Pass layers, e.g. nn.ReLU() for relu.")
    if not isinstance(key, str) or not key or "." in key or (hasattr(owner, key) and not isinstance(vars(owner).get(key), Module)):
        raise StateError(f"{kind}: not a name for a module: {key!r}. Use a string without dots that is no method's name.")
    setattr(owner, key, module)


class ModuleDict(Module):
    """Modules by name: ModuleDict({"hidden": Linear(2, 8), "out": Linear(8, 1)}). Parameters are named after the keys. No forward()."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()):
        self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        given: Any = modules
        if isinstance(given, str) or hasattr(given, "items") or not hasattr(given, "__iter__"):
            given = checked_dict("ModuleDict", given).items()
        for key, m in given:
            self[key] = m

    def __setitem__(self, key: str, module: Module) -> None:
        put(self, key, module)

    def __getitem__(self, key: str) -> Any:
        if key not in self:
            raise KeyError(f"ModuleDict: no such module: {key!r}. Use one of: {', '.join(self)}.")
        return getattr(self, key)

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def pop(self, key: str) -> Any:
        """Remove and return a module."""
        found = self[key]
        delattr(self, key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(self.__dict__.get(key), Module)  # type: ignore[call-overload]

    def __len__(self) -> int:
        return len(self.children())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        return [name for name, _ in self.children()]

    def values(self) -> list[Any]:
        return [m for _, m in self.children()]

    def items(self) -> list[tuple[str, Any]]:
        return self.children()
