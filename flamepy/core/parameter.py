"""Parameter: a named, long-lived leaf that is updated in place. ParameterDict: a model's parameters, in order, by name."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import creation
from .changes import assigned, changed, seen
from .dtypes import FLOATS, checked_dict
from .errors import DTypeError, ShapeError, StateError
from .gradients import GradientMap
from .methods import tensor
from .modes import no_grad
from .tape import file_line, user_frame
from .tensor import Tensor


class Stored(Tensor):
    """A tensor that is written in place, in memory of its own: a Parameter, or a module's buffer. Everything else holds what it was made
    with. Each write bumps the version of the memory, so that backward() notices one that comes too early."""

    @property
    def label(self) -> str:
        """How an error text names it."""
        return self.name or f"tensor {self.id}"

    def set_data(self, data: Any) -> None:
        """Overwrite the numbers with data of this shape, cast to this dtype; a captured step does it in every replay. Raises ShapeError
        unless the shape is this one."""
        self._write(self._fitting("set_data", data, self.dtype), "set_data")

    def _fitting(self, name: str, data: Any, dtype: np.dtype) -> Tensor:
        """Data of this shape as a Tensor of `dtype`; itself if it is one."""
        t = data if isinstance(data, Tensor) else tensor(data, dtype, self.device)
        if t.shape != self.shape:
            raise ShapeError(f"{name}: shape differs for {self.label}: expected {self.shape}, got {t.shape}. Pass one of the same shape.")
        return t if t.dtype == dtype and t.device is self.device else t.detach().to(dtype, device=self.device)

    def _write(self, t: Tensor, by: str) -> None:
        if t.size:
            self.device.overwrite(self.buffer, t.buffer)
        self.buffer.wrote(f"{by} of {self.label} at {file_line(user_frame())}")


class Parameter(Stored):
    """A trainable tensor. Its `id` never changes; `set_data`, `update`, `apply_update` and optimizers write into its memory.

    Made from a Tensor, an array or nested lists (copied). Raises DTypeError for integers.
    """

    is_parameter = True

    def __init__(self, data: Any, requires_grad: bool = True):
        t = data.detach().clone() if isinstance(data, Tensor) else tensor(data)
        if t.dtype not in FLOATS:
            raise DTypeError(f"Parameter: needs floats: {t.dtype}. Cast the data to float32.")
        super().__init__(t.buffer, t.spec.as_tracked(bool(requires_grad)))
        self._grad: Tensor | None = None
        changed(self)

    @staticmethod
    def randn(shape: Any, mean: float = 0.0, std: float = 0.02, device: Any = None, dtype: Any = None) -> Parameter:
        """Normally distributed numbers."""
        return Parameter(creation.randn(shape, mean=mean, std=std, dtype=dtype, device=device))

    @staticmethod
    def zeros(shape: Any, device: Any = None, dtype: Any = None) -> Parameter:
        """Zeros: float32 unless dtype is another type of floats."""
        return Parameter(creation.zeros(shape, dtype=dtype, device=device))

    @staticmethod
    def ones(shape: Any, device: Any = None, dtype: Any = None) -> Parameter:
        """Ones: float32 unless dtype is another type of floats."""
        return Parameter(creation.ones(shape, dtype=dtype, device=device))

    @staticmethod
    def uniform(shape: Any, low: float = 0.0, high: float = 1.0, device: Any = None, dtype: Any = None) -> Parameter:
        """Uniform numbers in [low, high)."""
        return Parameter(creation.uniform(shape, low, high, dtype=dtype, device=device))

    def tensor(self) -> Tensor:
        """The tracked value: the parameter itself, usable in any op."""
        return self

    # ---- gradient: set by hand, never by backward() ---------------------------------------------------------------------
    @property
    def grad(self) -> Tensor | None:
        """The gradient set with set_grad(), or None. backward() does not touch it."""
        return self.kept_grad()

    @grad.setter
    def grad(self, gradient: Any) -> None:
        raise AttributeError("grad: cannot be assigned: p.grad = g. Use p.set_grad(g), or p.zero_grad() for None.")

    def kept_grad(self) -> Tensor | None:
        """The same, for what reads many."""
        seen(self, "_grad", lambda: self._grad, True)
        return self._grad

    def set_grad(self, gradient: Any) -> None:
        """Keep a gradient (None clears it). Cast to float32 or wider. Raises ShapeError unless the shape is the parameter's."""
        kept = None if gradient is None else self._fitting("set_grad", gradient, self._wide)
        assigned(self, "_grad")
        self._grad = kept

    def zero_grad(self) -> None:
        """Forget the gradient."""
        assigned(self, "_grad")
        self._grad = None

    # ---- writing into the memory ------------------------------------------------------------------------------------------
    def update(self, lr: float) -> None:
        """p -= lr * grad; nothing without a gradient."""
        if (grad := self.kept_grad()) is not None:
            with no_grad():
                self._write(self.detach().to(self._wide) - grad * lr, "update")

    def apply_update(self, change: Any) -> None:
        """p -= change."""
        with no_grad():
            self._write(self.detach().to(self._wide) - self._fitting("apply_update", change, self._wide), "apply_update")

    @property
    def _wide(self) -> np.dtype:
        """What changes are computed in: 16 bits would round them away."""
        return self.spec.computed

    def __repr__(self) -> str:
        name = f"'{self.name}', " if self.name else ""
        return f"Parameter({name}{self.shown(f'Parameter({name}')}{'' if self.requires_grad else ', requires_grad=False'})"


class ParameterDict:
    """Parameters by name, in the order of insertion."""

    def __init__(self, parameters: dict[str, Parameter] | None = None):
        self._parameters: dict[str, Parameter] = {}
        for name, p in checked_dict("ParameterDict", {} if parameters is None else parameters).items():
            self.insert(name, p)

    def insert(self, name: str, p: Parameter) -> None:
        """Add a parameter and give it its name. One parameter may have several names (it keeps the last); a name used twice: StateError."""
        if not isinstance(name, str) or name in self._parameters:
            raise StateError(f"ParameterDict: name used twice, or no string: {name!r}. Give each parameter its own name.")
        if not isinstance(p, Parameter):
            raise DTypeError(f"ParameterDict: not a Parameter: '{name}' is a {type(p).__name__}. Wrap it: Parameter(tensor).")
        p.name = name
        self._parameters[name] = p

    def get(self, name: str) -> Parameter | None:
        return self._parameters.get(name)

    def __getitem__(self, name: str) -> Parameter:
        try:
            return self._parameters[name]
        except KeyError:
            raise KeyError(f"ParameterDict: no such parameter: '{name}'. Use one of: {', '.join(self._parameters)}.") from None

    __setitem__ = insert

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def parameters(self) -> list[Parameter]:
        return list(self._parameters.values())

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        return list(self._parameters.items())

    def zero_grad(self) -> None:
        for p in self._parameters.values():
            p.zero_grad()

    def set_grads(self, grads: GradientMap) -> None:
        """Give each parameter its gradient from the map, or None; nothing is set where one does not fit."""
        if not isinstance(grads, GradientMap):
            raise DTypeError(f"set_grads: not a GradientMap: {type(grads).__name__}. Pass what backward() returned.")
        for p, g in [(p, p._fitting("set_grad", grads[p], p._wide) if p in grads else None) for p in self._parameters.values()]:
            p.set_grad(g)

    def freeze(self, pattern: str = "*") -> list[str]:
        """Stop the parameters whose name matches the glob from requiring grad; returns their names. None matching is an error."""
        names = self.matching("freeze", pattern)
        for name in names:
            self._parameters[name].requires_grad = False
        return names

    def unfreeze(self, pattern: str = "*") -> list[str]:
        """Have the parameters whose name matches the glob require grad again, from the next forward pass on; returns their names. None
        matching is an error. An optimizer that was given them before goes on with them."""
        names = self.matching("unfreeze", pattern)
        for name in names:
            self._parameters[name].requires_grad = True
        return names

    def matching(self, by: str, pattern: str) -> list[str]:
        """Names that match a glob, at least one."""
        names = fnmatch.filter(self._parameters, str(pattern))
        if not names:
            raise StateError(f"{by}: no parameter matches: '{pattern}'. Use a glob of: {', '.join(self._parameters)}.")
        return names

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the numbers by name."""
        return {name: p.numpy().copy() for name, p in self._parameters.items()}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Overwrite parameters from arrays by name. Everything is checked first: a failure changes nothing.

        Raises StateError for missing or unknown names (unless strict is False), ShapeError for other shapes.
        """
        self.check_names(list(self._parameters), checked_dict("load_state_dict", state), strict)
        found = {n: tensor(state[n]) for n in self._parameters if n in state}
        for name, t in found.items():
            if t.shape != self._parameters[name].shape:
                shapes = f"model {self._parameters[name].shape}, state {t.shape}"
                raise ShapeError(f"load_state_dict: shape differs for '{name}': {shapes}. Load into the same model.")
            if t.dtype not in FLOATS:
                raise DTypeError(f"load_state_dict: not floats: '{name}' is {t.dtype}. Save the state with state_dict().")
        for name, t in found.items():
            self._parameters[name].set_data(t)

    @staticmethod
    def check_names(
        mine: list[str], state: dict[str, Any], strict: bool, advice: str = "Load into the same model, or pass strict=False"
    ) -> None:
        """Raise StateError unless a state has these names and no others."""
        missing, unknown = [n for n in mine if n not in state], [n for n in state if n not in mine]
        if strict and (missing or unknown):
            raise StateError(f"load_state_dict: names differ: missing {missing}, unknown {unknown}. {advice}.")

    def __repr__(self) -> str:
        return "\n".join(f"{name:40} {p.dtype!s:9} {p.shape}" for name, p in self._parameters.items()) or "ParameterDict()"


def named(op: str, params: Any) -> dict[str, Parameter]:
    """Parameters by name, of a Module, a ParameterDict, one Parameter or an iterable of them; those without a name get "0", "1", ..."""
    if hasattr(params, "params") and not isinstance(params, Parameter):  # a Module: its dictionary gives names
        params = params.params
    given = params.parameters() if hasattr(params, "parameters") else [params] if isinstance(params, Parameter) else params
    given = list(given) if hasattr(given, "__iter__") and not isinstance(given, Tensor) else [None]
    if not all([isinstance(p, Parameter) for p in given]):
        kind = type(params).__name__
        raise DTypeError(f"{op}: not parameters: {kind}. Pass a model, a ParameterDict or a list of Parameters.")
    found: dict[str, Parameter] = {}
    for i, p in enumerate(dict.fromkeys(given)):
        if found.setdefault(p.name or str(i), p) is not p:
            raise StateError(f"{op}: two parameters have one name: '{p.name}'. Put them into one ParameterDict, which names them.")
    return found
