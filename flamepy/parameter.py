"""Parameter: a named, long-lived leaf that is updated in place. ParameterDict: a model's parameters, in order, by name.

`ParameterDict.pack()` moves parameters of one dtype into one span of memory. Afterwards their gradients arrive in one span too,
and clipping and the optimizer step are one launch each instead of one for each parameter.
"""

from __future__ import annotations

import fnmatch
import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .backend.base import Device
from .bus import assigned, changed, seen
from .core import creation
from .core import parameter as core
from .core.errors import DTypeError, GradientError, ShapeError, StateError
from .core.methods import tensor
from .core.modes import no_grad
from .core.parameter import Parameter as Parameter
from .core.tape import file_line, user_frame
from .core.tensor import Tensor, attach
from .dtypes import FLOATS, checked_dict
from .gradient import GradientMap
from .reading import StateArray, hint_at_map, hinted


def check_forgotten(name: str, set_to_none: bool) -> None:
    """What every zero_grad() says to PyTorch's set_to_none=False: ValueError."""
    if not set_to_none:
        raise ValueError(f"{name}.zero_grad: gradients are forgotten, not zeroed: set_to_none=False. Use p.set_grad(zeros).")


class ParameterMethods:
    """What a Parameter has beside core's: FLAME's ways to make one and to update it, and a gradient where somebody puts one there."""

    if TYPE_CHECKING:
        label: str
        spec: Any
        detach: Callable[[], Any]
        _fitting: Callable[..., Any]
        _write: Callable[..., None]

    _grad: Tensor | None = None

    def tensor(self) -> Tensor:
        """The tracked value: the parameter itself, usable in any op."""
        return self  # type: ignore[return-value]

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

    # ---- gradient: set by hand, never by backward() ---------------------------------------------------------------------
    @property
    def grad(self) -> Tensor | None:
        """The gradient set with set_grad(), or None. backward() does not touch it."""
        if (kept := self.kept_grad()) is None:
            hint_at_map(self)
        return kept

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
        hinted.add("grad")

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


attach(ParameterMethods, Parameter)


class ParameterDict(core.ParameterDict):
    """Core's, and one span of memory for all. `_module()`: the Module whose `params` it is, or None."""

    _module: Callable[[], Any] = staticmethod(lambda: None)

    def __init__(self, parameters: dict[str, Parameter] | None = None):
        super().__init__(checked_dict("ParameterDict", {} if parameters is None else parameters))

    def zero_grad(self) -> None:
        for p in self._parameters.values():
            p.zero_grad()

    def set_grads(self, grads: Any) -> None:
        """Give each parameter its gradient from the map, or None; nothing is set where one does not fit. A step that would do nothing
        with the map does nothing with these either. Raises GradientError for gradients of a scaled loss."""
        if not isinstance(grads, GradientMap):
            raise DTypeError(f"set_grads: not a GradientMap: {type(grads).__name__}. Pass what backward() returned.")
        if grads.scaled is not None:
            raise GradientError(f"set_grads: gradients of a scaled loss: {grads.scaled}. Call scaler.unscale(grads) first.")
        for p, g in [(p, p._fitting("set_grad", grads[p], p._wide) if p in grads else None) for p in self._parameters.values()]:
            p.set_grad(g)
            if p._grad is not None and grads.mark is not None:
                p._grad.mark = grads.mark

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
        """Copies of the numbers by name: NumPy arrays that also answer to .numpy(), .clone(), .detach(), .cpu() and .numel()."""
        return {name: p.numpy().copy().view(StateArray) for name, p in self._parameters.items()}

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
    def check_names(mine: list[str], state: dict[str, Any], strict: bool) -> None:
        """Raise StateError unless a state has these names and no others."""
        missing, unknown = [n for n in mine if n not in state], [n for n in state if n not in mine]
        if strict and (missing or unknown):
            torch = any([n.endswith("in_proj_weight") for n in unknown])
            advice = "Pass nn.from_torch_names(state): these are PyTorch's" if torch else "Load into the same model, or pass strict=False"
            raise StateError(f"load_state_dict: names differ: missing {missing}, unknown {unknown}. {advice}.")

    def pack(self) -> ParameterDict:
        """Move parameters into one span of memory for each dtype and device; ids, names and numbers stay. Returns self.

        Packed before, with parameters inserted since, they move into a new span: optimizers follow with their state, a captured step
        has to be captured again. Raises StateError when a span also holds parameters that are not here, those of another dictionary.
        """
        pack_in_order(list(self._parameters.values()))
        return self

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: beside the parameters, those that are packed, in the order of their memory."""
        groups = alike(self._parameters.values())
        packed = [p for ps in groups if packed_together(ps) for p in sorted(ps, key=lambda p: p.buffer.offset)]
        mine = {key: value for key, value in self.__dict__.items() if key != "_module"}
        return {**mine, "_parameters": dict(self._parameters), "packed": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({key: value for key, value in state.items() if key != "packed"})
        pack_in_order(state["packed"])


def packed_together(ps: list[Parameter]) -> bool:
    """Whether these parameters are all that is in one span."""
    span = ps[0].buffer.root
    return span is not None and all(p.buffer.root is span for p in ps) and span.size == sum(p.size for p in ps)


def left_behind(parameters: list[Parameter]) -> tuple[Parameter, Parameter] | None:
    """One of the parameters and another that is not among them but lives in the same span, if there are such."""
    here = {id(p) for p in parameters}
    for p in parameters:
        for other in [found() for found in p.buffer.root.packed] if p.buffer.root is not None else []:
            if other is not None and id(other) not in here and other.buffer.root is p.buffer.root:
                return p, other
    return None


def alike(parameters: Iterable[Parameter]) -> list[list[Parameter]]:
    """The parameters, each once, in groups of one dtype and device."""
    groups: dict[Any, list[Parameter]] = {}
    for p in dict.fromkeys(parameters):
        groups.setdefault((p.dtype, p.device), []).append(p)
    return list(groups.values())


def pack_in_order(parameters: list[Parameter]) -> None:
    """See ParameterDict.pack()."""
    todo = [ps for ps in alike(parameters) if not packed_together(ps)]
    pair = left_behind([p for ps in todo for p in ps])
    if pair is not None:
        both = f"'{pair[0].name}', beside '{pair[1].name}', which is not in this one"
        raise StateError(f"pack: already packed in another ParameterDict: {both}. Pack one that holds them all.")
    for ps in todo:
        dtype, where = ps[0].dtype, ps[0].device
        *starts, size = itertools.accumulate([p.size for p in ps], initial=0)
        span = where.empty(size, dtype)
        span.packed = [weakref.ref(p) for p in ps]
        span.layout = [p.id for p in ps], tuple([(start, p.size) for p, start in zip(ps, starts, strict=True)])
        for p, start in zip(ps, starts, strict=True):
            slot = span.part(start, p.size)
            where.stream.copy(slot, p.buffer)
            (p.buffer.root or p.buffer).retired = "pack()"
            p.buffer = slot
            changed(p)


def move_parameters(parameters: list[Parameter], dtype: np.dtype | None, device: Device | None) -> None:
    """Give parameters another float type or device (None: as it is). Those that fill a span are packed again."""
    packed = [p for ps in alike(parameters) if packed_together(ps) for p in sorted(ps, key=lambda p: p.buffer.offset)]
    with no_grad():
        moved = [(p, p.detach().to(dtype, device=device)) for p in parameters]
    moved = [(p, t) for p, t in moved if t.dtype != p.dtype or t.device is not p.device]
    for p, t in moved:
        old = p.buffer.root or p.buffer
        old.retired = "to()"
        old.wrote(f"to() of {p.label} at {file_line(user_frame())}")
        grad, p._grad = p._grad, None
        p.buffer, p.spec = t.buffer, t.spec.as_tracked(p.requires_grad)
        if grad is not None:
            p.set_grad(grad)
        changed(p)
    pack_in_order([p for p in packed if p.buffer.root is None])


def named(op: str, params: Any) -> dict[str, Parameter]:
    """Parameters by name, of a Module, a ParameterDict, one Parameter or an iterable of them; those without a name get "0", "1", ..."""
    if hasattr(params, "params") and not isinstance(params, Parameter):  # a Module: its dictionary gives names
        params = params.params
    given = params.parameters() if hasattr(params, "parameters") else [params] if isinstance(params, Parameter) else params
    given = list(given) if hasattr(given, "__iter__") and not isinstance(given, Tensor | set | frozenset) else [None]
    if not all([isinstance(p, Parameter) for p in given]):
        kind = type(params).__name__
        raise DTypeError(f"{op}: not parameters: {kind}. Pass a model, a ParameterDict or a list of Parameters.")
    found: dict[str, Parameter] = {}
    for i, p in enumerate(dict.fromkeys(given)):
        if found.setdefault(p.name or str(i), p) is not p:
            raise StateError(f"{op}: two parameters have one name: '{p.name}'. Put them into one ParameterDict, which names them.")
    return found
