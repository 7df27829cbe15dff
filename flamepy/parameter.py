"""Parameter: a named, long-lived leaf that is updated in place. ParameterDict: a model's parameters, in order, by name.

`ParameterDict.pack()` moves parameters of one dtype into one span of memory. Afterwards their gradients arrive in one span too,
and clipping and the optimizer step are one launch each instead of one for each parameter.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .backend.base import Device
from .core import parameter as core
from .core.changes import changed
from .core.errors import GradientError, StateError
from .core.modes import no_grad
from .core.parameter import Parameter as Parameter
from .core.parameter import named as named
from .core.tape import file_line, user_frame
from .core.tensor import attach
from .gradient import GradientMap
from .reading import StateArray, hint_at_map, hinted

keep = Parameter.set_grad


def hinting(p: Any) -> Any:
    """The gradient set with set_grad(), or None. backward() does not touch it."""
    if (kept := p.kept_grad()) is None:
        hint_at_map(p)
    return kept


class Hinting:
    """What a Parameter says of gradients beside core's: a hint at the map that backward() returns, unless set_grad() was called."""

    grad = vars(Parameter)["grad"].getter(hinting)

    def set_grad(self: Any, gradient: Any) -> None:
        """Keep a gradient (None clears it). Cast to float32 or wider. Raises ShapeError unless the shape is the parameter's."""
        keep(self, gradient)
        hinted.add("grad")


attach(Hinting, Parameter)


class ParameterDict(core.ParameterDict):
    """Core's, and one span of memory for all. `_module()`: the Module whose `params` it is, or None."""

    _module: Callable[[], Any] = staticmethod(lambda: None)

    def set_grads(self, grads: Any) -> None:
        """Give each parameter its gradient from the map, or None; nothing is set where one does not fit. A step that would do nothing
        with the map does nothing with these either. Raises GradientError for gradients of a scaled loss."""
        if isinstance(grads, GradientMap) and grads.scaled is not None:
            raise GradientError(f"set_grads: gradients of a scaled loss: {grads.scaled}. Call scaler.unscale(grads) first.")
        super().set_grads(grads)
        if grads.mark is not None:
            for p in self._parameters.values():
                if p._grad is not None:
                    p._grad.mark = grads.mark

    def state_dict(self) -> dict[str, np.ndarray]:
        """Copies of the numbers by name: NumPy arrays that also answer to .numpy(), .clone(), .detach(), .cpu() and .numel()."""
        return {name: array.view(StateArray) for name, array in super().state_dict().items()}

    @staticmethod
    def check_names(mine: list[str], state: dict[str, Any], strict: bool, *advice: str) -> None:
        """Core's, with other advice where the names are PyTorch's."""
        if any([n.endswith("in_proj_weight") for n in state if n not in mine]):
            advice = ("Pass nn.from_torch_names(state): these are PyTorch's",)
        core.ParameterDict.check_names(mine, state, strict, *advice)

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
            slot = where.slot(span, start * dtype.itemsize, p.size, dtype)
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
