"""Module: an object whose attributes are parameters and other modules.

There is no registry: a module's parameters are those of its attributes that are Parameters, then those of the attributes that are
Modules, in the order in which they were assigned. Names are the attribute names joined by dots. A parameter that two
attributes share is listed once, under the first name. A Tensor that belongs to the state without being trained is a buffer: its
attribute has to be named with register_buffer(), since modules may also keep results for themselves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..advice import advise
from ..backend.base import device as device_of
from ..bus import changed, seen
from ..core.errors import DTypeError, ShapeError, StateError
from ..core.methods import asked_for
from ..dtypes import FLOATS, as_dtype, check_function, checked_dict
from ..parameter import Parameter, ParameterDict, check_forgotten, move_parameters
from ..ported import PortedModule
from ..reading import StateArray
from ..stored import Stored, store
from ..tensors import Tensor, tensor
from .compute import checked, rounded, say_if_widened
from .hooks import Handle, hooked
from .names import name_in_passing, one_name_each


class Module(PortedModule):
    """Base of all layers: assign Parameters and Modules as attributes, write forward(), call the object."""

    training: bool = True
    compute_dtype: np.dtype | None = None  # see compute.py
    _params: ParameterDict | None = None
    _buffers: dict[str, bool] = {}  # noqa: RUF012  (never changed: a module with buffers has its own)
    _hooks: tuple[Handle, ...] = ()

    def forward(self, *args: Any, **options: Any) -> Any:
        """What calling the module does; yours to write. Raises NotImplementedError until you do."""
        raise NotImplementedError(f"{type(self).__name__}: no forward(): the class does not define it. Write forward(self, x).")

    def __call__(self, *args: Any, **options: Any) -> Any:
        if seen:
            seen(self)
        if self._hooks:
            return hooked(self, args, options)
        return self.forward(*args, **options)

    def operands(self, *xs: Any) -> tuple[Any, ...]:
        """What a product reads: float tensors rounded to the layer's compute dtype, all else (and all without one) as it is."""
        return xs if self.compute_dtype is None else rounded(xs, self.compute_dtype)

    # ---- what one launch can do together -------------------------------------------------------------------------------
    def with_next(self, following: Module) -> Callable[[Any], Any] | None:
        """This layer and the one that follows it as one function of x, where a layer knows how; None where it doesn't."""
        return None

    def add_to(self, residual: Any, *args: Any, **options: Any) -> Any:
        """residual + self(...). A layer that can add the residual in its own launch does so."""
        return residual + self(*args, **options)

    def as_written(self, layer: Any) -> bool:
        """Whether calling this does what class `layer` says: it has no hooks, and no subclass and no attribute has another forward() or
        __call__()."""
        mine = type(self)
        same = mine.forward is layer.forward and mine.__call__ is Module.__call__
        return same and not self._hooks and "forward" not in self.__dict__

    def __setattr__(self, name: str, value: Any) -> None:
        held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
        held = value.parameters() if isinstance(value, ParameterDict) else held
        if any(isinstance(v, Module | Parameter) for v in held):
            raise StateError(
                f"{type(self).__name__}: parameters in a {type(value).__name__} would not be found: attribute '{name}'. "
                "Use ModuleList, ModuleDict or Sequential, or an attribute for each."
            )
        before = self.__dict__.get(name)
        if isinstance(before, Module | Parameter) and not isinstance(value, Module | Parameter | None):
            kind = type(before).__name__
            advice = f"Write its numbers with .{name}.set_data(value), or assign a Parameter" if kind == "Parameter" else "Assign a Module"
            what = f"a {type(value).__name__} in the place of a {kind}: attribute '{name}'"
            raise DTypeError(f"{type(self).__name__}: {what}. {advice} (None: there is none).")
        if name in self._buffers:
            store(type(self).__name__, name, value)
        if name == "compute_dtype":
            dtype = checked(self, value)
            say_if_widened(dtype, next((p.device for p in self.parameters()), device_of()))
            self._compute_in(dtype)
            return
        object.__setattr__(self, name, value)
        if isinstance(value, Module | Parameter):
            Parameter.put_in += 1
            name_in_passing(self, name, value)
        if isinstance(before, Module | Parameter) and value is not None:  # an optimizer that was made before says so
            for replaced, part in ((True, before), (False, value)):
                for p in [part] if isinstance(part, Parameter) else part.parameters():
                    p.replaced = replaced
        if self.compute_dtype is not None and isinstance(value, Module):
            value._compute_in(self.compute_dtype)
        changed(self)

    def _compute_in(self, dtype: np.dtype | None) -> None:
        """Set the compute dtype here and inside. A module without one looks as if it never had one: steps recorded before can be
        replayed."""
        for m in self.modules():
            if dtype is None:
                m.__dict__.pop("compute_dtype", None)
            else:
                m.__dict__["compute_dtype"] = dtype
        changed(self)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        if name == "compute_dtype":  # as if it were None: inside, too
            self._compute_in(None)
        if name in self._buffers:
            object.__setattr__(self, "_buffers", {kept: flag for kept, flag in self._buffers.items() if kept != name})
        changed(self)

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

    def _named(self) -> list[tuple[str, Parameter]]:
        """(name, parameter), a shared one once."""
        found: dict[int, tuple[str, Parameter]] = {}
        for path, module in self.named_modules():
            for attribute, p in vars(module).items():
                if isinstance(p, Parameter) and p.id not in found:
                    found[p.id] = (f"{path}.{attribute}" if path else attribute, p)
        return list(found.values())

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """(name, parameter), a shared one once. Gives each parameter that name, unless it has it with a longer path in front."""
        found = self._named()
        for name, p in found:
            if p.passing or not p.name.endswith("." + name):
                p.name, p.passing = name, False
        return found

    def parameters(self) -> list[Parameter]:
        return [p for _, p in self.named_parameters()]

    @property
    def params(self) -> ParameterDict:
        """The parameters by name: what optimizers take. The same object until a parameter is added, removed, replaced or renamed."""
        named = self.named_parameters()
        if self._params is None or [(name, id(p)) for name, p in self._params.named_parameters()] != [(name, id(p)) for name, p in named]:
            names = [p.name for _, p in named]
            object.__setattr__(self, "_params", ParameterDict(dict(named)))
            self._params._module = weakref.ref(self)  # type: ignore[union-attr]
            for (_, p), name in zip(named, names, strict=True):  # insert() knows only the path from here
                p.name = name
        return self._params  # type: ignore[return-value]

    def register_buffer(self, name: str, data: Any, persistent: bool = True) -> None:
        """Make self.NAME a Tensor of the state that is not trained: state_dict() has it unless `persistent` is False, to() moves it.
        self.NAME.set_data(value) writes into it, in a captured step too. Another Tensor assigned later is the buffer then. Raises
        StateError for a name that is taken."""
        if not isinstance(name, str) or not name.isidentifier() or hasattr(self, name):
            raise StateError(f"register_buffer: not a free name: {name!r}. Use another, or assign to the buffer that is there.")
        t = data if isinstance(data, Tensor | None) else tensor(data)
        if t is not None and t.requires_grad:
            raise StateError(f"register_buffer: it requires grad: '{name}', shape {t.shape}. Assign a Parameter, or pass detach() of it.")
        object.__setattr__(self, "_buffers", {**self._buffers, name: bool(persistent)})
        setattr(self, name, t)

    def named_buffers(self, persistent: bool = False) -> list[tuple[str, Tensor]]:
        """(name, Tensor) of each buffer; `persistent`: of those alone that state_dict() has."""
        return [(name, getattr(owner, attribute)) for name, (owner, attribute) in self.buffer_places(persistent).items()]

    def buffers(self) -> list[Tensor]:
        return [t for _, t in self.named_buffers()]

    def buffer_places(self, persistent: bool) -> dict[str, tuple[Module, str]]:
        """Name -> the module and the attribute."""
        return {
            f"{path}.{name}" if path else name: (module, name)
            for path, module in self.named_modules()
            for name, kept in module._buffers.items()
            if (kept or not persistent) and not isinstance(getattr(module, name), Parameter | None)
        }

    def num_parameters(self, trainable: bool = False) -> int:
        """How many numbers the parameters hold, shared ones once; `trainable`: those that require grad."""
        return sum([p.size for p in self.parameters() if p.requires_grad or not trainable])

    def summary(self) -> None:
        """Print a table of the parameters and buffers: name, shape, dtype, how many numbers, whether trained."""
        found = [*self.named_parameters(), *self.named_buffers()]
        rows = [("name", "shape", "dtype", "numbers", "trained")]
        rows += [(name, str(t.shape), str(t.dtype), f"{t.size:,}", "yes" if t.requires_grad else "no") for name, t in found]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, shape, dtype, numbers, trained in rows:
            print(f"{name:{widths[0]}}  {shape:{widths[1]}}  {dtype:{widths[2]}}  {numbers:>{widths[3]}}  {trained}")
        compute = "" if self.compute_dtype is None else f", products computed from {self.compute_dtype}"
        print(f"{self.num_parameters():,} parameters, {self.num_parameters(trainable=True):,} trained{compute}")

    # ---- hooks -------------------------------------------------------------------------------------------------------------
    def register_forward_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, args, result) after each call of this module; what it returns (if not None) takes the result's place."""
        return Handle(self, hook, before=False)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, args) before each call of this module; what it returns (if not None) are the arguments then."""
        return Handle(self, hook, before=True)

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call function(module) for everything inside, then for this module. Returns self."""
        check_function("apply", "the argument", function)
        stack: list[tuple[Module, bool]] = [(self, False)]
        seen: set[int] = set()
        while stack:
            m, inside_done = stack.pop()
            if inside_done:
                function(m)
            elif id(m) not in seen:
                seen.add(id(m))
                stack += [(m, True), *[(child, False) for _, child in reversed(m.children())]]
        return self

    # ---- modes, gradients, state -----------------------------------------------------------------------------------------
    def to(self, target: Any = None, dtype: Any = None, *, device: Any = None) -> Module:
        """Change the float type of all parameters and buffers, or move them to a device, or both: to(device, dtype); returns self.
        Parameters stay the same objects with the same ids, packed ones are packed again; optimizers follow with their state, a
        captured step has to be captured again. Buffers of integers keep their type."""
        if target is not None:
            dtype, device = asked_for(target, dtype, device)
        if hasattr(dtype, "dtype") and not isinstance(dtype, type):  # NumPy would take its dtype
            raise DTypeError(f"to: neither a dtype nor a device: a {type(dtype).__name__}. Use to(dtype=x.dtype, device=x.device).")
        if dtype is not None:
            dtype = as_dtype(dtype, "to: neither a dtype nor a device: {!r}")
            if dtype not in FLOATS:
                raise DTypeError(f"to: parameters are floats: {dtype}. Use float32, float64, float16 or bfloat16.")
        device = None if device is None else device_of(device)
        # Everything is converted first and put in place at the end: a failure changes nothing.
        places = self.buffer_places(persistent=False)
        moved = {name: t.to(dtype if t.dtype in FLOATS else None, device=device) for name, t in self.named_buffers()}
        move_parameters(self.parameters(), dtype, device)
        for name, t in moved.items():
            if getattr(*places[name]) is not t:
                setattr(*places[name], t)
        return self

    def freeze(self, pattern: str = "*") -> list[str]:
        """See ParameterDict.freeze."""
        return self.params.freeze(pattern)

    def unfreeze(self, pattern: str = "*") -> list[str]:
        """See ParameterDict.unfreeze."""
        return self.params.unfreeze(pattern)

    def train(self, mode: bool = True) -> Module:
        """Training mode here and in all modules inside: dropout is on."""
        if not isinstance(mode, bool | np.bool_):
            raise DTypeError(f"train: no yes or no: {mode!r}. Use True or False.")
        for m in self.modules():
            m.training = mode
        return self

    def eval(self) -> Module:
        """Evaluation mode: dropout is off."""
        return self.train(False)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every parameter's gradient."""
        check_forgotten("Module", set_to_none)
        for p in self.parameters():
            p.zero_grad()

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the parameters, then of the buffers, by name."""
        return self.params.state_dict() | {name: t.numpy().copy().view(StateArray) for name, t in self.named_buffers(persistent=True)}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Overwrite the parameters, see ParameterDict.load_state_dict, and the buffers, in place.
        What is shared may be under all of its names, as in PyTorch's states, or under one of them."""
        params, places = self.params, self.buffer_places(persistent=True)
        if any([name not in params and name not in places for name in checked_dict("load_state_dict", state)]):
            state = one_name_each(state, self.other_names())
        params.check_names([*params, *places], state, strict)
        found: dict[str, Tensor] = {}
        for name, (owner, attribute) in places.items():
            if name in state:
                now, t = getattr(owner, attribute), tensor(state[name])
                if t.shape != now.shape:
                    shapes = f"model {now.shape}, state {t.shape}"
                    raise ShapeError(f"load_state_dict: shape differs for '{name}': {shapes}. Load into the same model.")
                found[name] = t.to(now.dtype, device=now.device)
        params.load_state_dict({name: value for name, value in state.items() if name in params}, strict)
        for name, t in found.items():
            now = getattr(*places[name])
            now.set_data(t) if isinstance(now, Stored) else setattr(*places[name], t)

    def other_names(self) -> dict[str, str]:
        """The names of what is shared, beside the one that it is listed under: that one by each of them."""
        first = {id(t): name for name, t in [*self.named_parameters(), *self.named_buffers(persistent=True)]}
        found: dict[str, str] = {}
        stack: list[tuple[str, Module, tuple[int, ...]]] = [("", self, (id(self),))]
        while stack:
            path, module, above = stack.pop()
            for attribute, value in vars(module).items():
                name = f"{path}.{attribute}" if path else attribute
                if isinstance(value, Module) and id(value) not in above:
                    stack.append((name, value, (*above, id(value))))
                elif first.get(id(value), name) != name:
                    found[name] = first[id(value)]
        return found

    # ---- printing --------------------------------------------------------------------------------------------------------
    def extra(self) -> str:
        """What repr() shows between the brackets of a layer."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {m!r}".replace("\n", "\n  ") for name, m in self.children()]
        body = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
        shown = [] if self.compute_dtype is None else [f"compute_dtype={self.compute_dtype}"]
        return f"{type(self).__name__}({', '.join([s for s in (self.extra(), *shown) if s])}{body})"


advise(Module, "Module")
