"""GradientMap: what backward() returns. Tensor id -> gradient; clipping and optimizers consume it.

A key is a Tensor or its id. What `get` returns is the stored gradient: editing it edits the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .door import Door
from .errors import DTypeError, ShapeError
from .tensor import Tensor


def scale_y(x, s):
    return x * s


def scale_buffer(buffer: Any, factor: float, by: str) -> None:
    """Multiply a buffer in place."""
    buffer.device.launch("map", scale_y, (buffer,), (buffer,), (Door.number(factor, buffer.dtype),), buffer.dtype)
    buffer.wrote(by)


class GradientMap:
    """Gradients by tensor id, in the order they were inserted.
    `names` maps ids to names for error texts. `others` holds the ids of tensors that are no Parameters, and whether they are leaves:
    clipping leaves them alone where there are Parameters."""

    def __init__(self) -> None:
        self._gradients: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        self.others: dict[int, bool] = {}

    # ---- looking -------------------------------------------------------------------------------------------------------------------
    def id_of(self, key: Any) -> int:
        """The id behind a key."""
        return key if isinstance(key, int) else key.id  # type: ignore[no-any-return]

    def label(self, key: Any) -> str:
        """How an error text names a key: its name if known, else its id."""
        number = self.id_of(key)
        return label_of(number, self.names.get(number) or ("" if isinstance(key, int) else key.name))

    def get(self, key: Any) -> Tensor | None:
        """The stored gradient, or None."""
        return self._gradients.get(self.id_of(key))

    def __getitem__(self, key: Any) -> Tensor:
        found = self.get(key)
        if found is None:
            raise KeyError(f"GradientMap: no gradient: {self.label(key)}. Check that it requires grad and reaches the loss.")
        return found

    def __contains__(self, key: Any) -> bool:
        return self.id_of(key) in self._gradients

    def __len__(self) -> int:
        return len(self._gradients)

    def __iter__(self) -> Iterator[int]:
        return iter(self._gradients)

    def items(self) -> Iterable[tuple[int, Tensor]]:
        return self._gradients.items()

    def to_dict(self, params: Any) -> dict[str, Any]:
        """name -> gradient for the parameters (a ParameterDict, a model) that have one."""
        if not hasattr(params, "named_parameters"):
            raise DTypeError(f"to_dict: no names of parameters: {type(params).__name__}. Pass a ParameterDict or a model.")
        return {name: self[p] for name, p in params.named_parameters() if p in self}

    def counted(self) -> dict[int, Any]:
        """The gradients that norms and clipping go over: those of Parameters; where there are none, those of leaves."""
        if not self.others:
            return self._gradients
        found = {key: g for key, g in self._gradients.items() if key not in self.others}
        return found or {key: g for key, g in self._gradients.items() if self.others[key]}

    def __repr__(self) -> str:
        rows = ", ".join(f"{self.label(k)}: {tuple(g.shape)}" for k, g in self._gradients.items())
        return f"GradientMap({rows})"

    # ---- changing ------------------------------------------------------------------------------------------------------------------
    def put(self, key: Any, gradient: Any) -> None:
        """Store a gradient that is known to fit (no copy), replacing any other."""
        if not isinstance(key, int):
            self.names[key.id] = key.name
            if not key.is_parameter:
                self.others[key.id] = key.entry is None
            key = key.id
        self._gradients[key] = gradient

    def __setitem__(self, key: Any, gradient: Any) -> None:
        """Store a gradient in the place of another. Raises ShapeError unless it has the shape of the tensor given as key."""
        if not isinstance(key, int):
            check_shape("insert", self.label(key), key, gradient)
        self.put(key, gradient)


def check_shape(name: str, label: str, like: Any, gradient: Any) -> None:
    """Raise ShapeError unless the gradient has the shape of `like`."""
    if tuple(like.shape) != tuple(gradient.shape):
        shapes = f"expected {like.shape}, got {gradient.shape}"
        raise ShapeError(f"{name}: gradient shape differs for {label}: {shapes}. Pass a gradient of the tensor's shape.")


def label_of(number: int, name: str) -> str:
    """How an error text names a gradient."""
    return f"'{name}'" if name else f"tensor {number}"
