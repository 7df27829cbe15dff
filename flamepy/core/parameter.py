"""Parameter: a named, long-lived leaf that is updated in place. ParameterDict: a model's parameters, in order, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .changes import changed
from .dtypes import FLOATS, check_flag
from .errors import DTypeError, ShapeError, StateError
from .methods import tensor
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


if TYPE_CHECKING:
    from ..methods import Trained  # a stub: what attaches from above, with types
else:
    Trained = Stored


class Parameter(Trained):
    """A trainable tensor. Its `id` never changes; `set_data`, `update`, `apply_update` and optimizers write into its memory.
    Made from a Tensor, an array or nested lists (copied). Raises DTypeError for integers."""

    is_parameter = True

    def __init__(self, data: Any, requires_grad: bool = True):
        t = data.detach().clone() if isinstance(data, Tensor) else tensor(data)
        if t.dtype not in FLOATS:
            raise DTypeError(f"Parameter: needs floats: {t.dtype}. Cast the data to float32.")
        check_flag("Parameter", "requires_grad", requires_grad)
        super().__init__(t.buffer, t.spec.as_tracked(bool(requires_grad)))
        changed(self)

    def __repr__(self) -> str:
        name = f"'{self.name}', " if self.name else ""
        return f"Parameter({name}{self.shown(f'Parameter({name}')}{'' if self.requires_grad else ', requires_grad=False'})"


class ParameterDict:
    """Parameters by name, in the order of insertion."""

    def __init__(self, parameters: dict[str, Parameter] | None = None):
        self._parameters: dict[str, Parameter] = {}
        for name, p in (parameters or {}).items():
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

    def __repr__(self) -> str:
        return "\n".join(f"{name:40} {p.dtype!s:9} {p.shape}" for name, p in self._parameters.items()) or "ParameterDict()"
