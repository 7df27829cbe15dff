"""Module: an object whose attributes are parameters and other modules. ModuleList and Sequential hold modules in a row.

There is no registry: a module's parameters are those of its attributes that are Parameters, then those of the attributes that are
Modules, in the order in which they were assigned. Names are the attribute names joined by dots. A parameter that two
attributes share is listed once, under the first name.

FLAME counterpart: `flame_core::nn::Module`. Read next: linear.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..advice import advise
from ..backend.divert import active, changed, guard
from ..errors import DTypeError, IndexOutOfRange, StateError
from ..parameter import Parameter, ParameterDict
from ..replay.names import settings_of


class Module:
    """Base of all layers: assign Parameters and Modules as attributes, write forward(), call the object."""

    training: bool = True
    _params: ParameterDict | None = None

    def forward(self, *args: Any, **options: Any) -> Any:
        """What calling the module does; yours to write. Raises NotImplementedError until you do."""
        raise NotImplementedError(f"{type(self).__name__}: no forward(): the class does not define it. Write forward(self, x).")

    def __call__(self, *args: Any, **options: Any) -> Any:
        if active:
            guard(self, "a module", partial(settings_of, self))
        return self.forward(*args, **options)

    # ---- what one launch can do together -------------------------------------------------------------------------------
    def with_next(self, following: Module) -> Callable[[Any], Any] | None:
        """This layer and the one that follows it as one function of x, where a layer knows how; None where it doesn't."""
        return None

    def add_to(self, residual: Any, *args: Any, **options: Any) -> Any:
        """residual + self(...). A layer that can add the residual in its own launch does so."""
        return residual + self(*args, **options)

    def as_written(self, layer: Any) -> bool:
        """Whether calling this does what class `layer` says: no subclass and no attribute has another forward() or __call__()."""
        mine = type(self)
        return mine.forward is layer.forward and mine.__call__ is Module.__call__ and "forward" not in self.__dict__

    def __setattr__(self, name: str, value: Any) -> None:
        held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
        if any(isinstance(v, Module | Parameter) for v in held):
            raise StateError(
                f"{type(self).__name__}: parameters in a {type(value).__name__} would not be found: attribute '{name}'. "
                "Use ModuleList or Sequential, or an attribute for each."
            )
        before = self.__dict__.get(name)
        if isinstance(before, Module | Parameter) and not isinstance(value, Module | Parameter | None):
            kind = type(before).__name__
            advice = f"Write its numbers with .{name}.set_data(value), or assign a Parameter" if kind == "Parameter" else "Assign a Module"
            what = f"a {type(value).__name__} in the place of a {kind}: attribute '{name}'"
            raise DTypeError(f"{type(self).__name__}: {what}. {advice} (None: there is none).")
        object.__setattr__(self, name, value)
        changed()

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        changed()

    # ---- what is inside -----------------------------------------------------------------------------------------------
    def children(self) -> list[tuple[str, Module]]:
        """(attribute name, module) for the modules directly inside."""
        return [(name, m) for name, m in vars(self).items() if isinstance(m, Module)]

    def named_modules(self, prefix: str = "") -> list[tuple[str, Module]]:
        """This module (under the name `prefix`) and everything inside it, each once."""
        found: dict[int, tuple[str, Module]] = {}
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if id(module) not in found:
                found[id(module)] = (name, module)
                stack += [(f"{name}.{child}" if name else child, m) for child, m in reversed(module.children())]
        return list(found.values())

    def modules(self) -> list[Module]:
        """This module and everything inside it, each once."""
        return [m for _, m in self.named_modules()]

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """(name, parameter), a shared one once. Gives each parameter that name, unless it has it with a longer path in front."""
        found: dict[int, tuple[str, Parameter]] = {}
        for path, module in self.named_modules():
            for attribute, p in vars(module).items():
                if isinstance(p, Parameter) and p.id not in found:
                    name = f"{path}.{attribute}" if path else attribute
                    found[p.id] = (name, p)
                    if not p.name.endswith("." + name):
                        p.name = name
        return list(found.values())

    def parameters(self) -> list[Parameter]:
        return [p for _, p in self.named_parameters()]

    @property
    def params(self) -> ParameterDict:
        """The parameters by name: what optimizers take. The same object until a parameter is added, removed or replaced."""
        named = self.named_parameters()
        if self._params is None or [id(p) for p in self._params.parameters()] != [id(p) for _, p in named]:
            names = [p.name for _, p in named]
            object.__setattr__(self, "_params", ParameterDict(dict(named)))
            for (_, p), name in zip(named, names, strict=True):  # insert() knows only the path from here
                p.name = name
        return self._params  # type: ignore[return-value]

    # ---- modes, gradients, state -----------------------------------------------------------------------------------------
    def train(self, mode: bool = True) -> Module:
        """Training mode here and in all modules inside: dropout is on."""
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Module:
        """Evaluation mode: dropout is off."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget every parameter's gradient."""
        for p in self.parameters():
            p.zero_grad()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the parameters by name."""
        return self.params.state_dict()

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Overwrite the parameters; see ParameterDict.load_state_dict."""
        self.params.load_state_dict(state, strict)

    # ---- printing --------------------------------------------------------------------------------------------------------
    def extra(self) -> str:
        """What repr() shows between the brackets of a layer."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {m!r}".replace("\n", "\n  ") for name, m in self.children()]
        body = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        return f"{type(self).__name__}({self.extra()}{body})"


advise(Module, "Module")


class ModuleList(Module):
    """Modules in a list: append, index, iterate. It has no forward()."""

    def __init__(self, modules: Iterable[Module] = ()):
        for m in modules:
            self.append(m)

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
        if not -len(found) <= i < len(found):
            raise IndexOutOfRange(f"{type(self).__name__}: index out of range: {i} of {len(found)} modules. Use one below len().")
        return found[i][1]


class Sequential(ModuleList):
    """Modules applied one after the other: Sequential(Linear(2, 8), ReLU(), Linear(8, 1)).

    A Linear and the activation after it are one launch.
    """

    def __init__(self, *modules: Module):
        super().__init__(modules)

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
