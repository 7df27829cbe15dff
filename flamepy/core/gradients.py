"""GradientMap: what backward() returns. Tensor id -> gradient; clipping and optimizers consume it.

A key is a Tensor or its id. What `get` returns is the stored gradient: editing it edits the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .door import Door
from .dtypes import FLOATS, checked_number
from .errors import DeviceError, DTypeError, ShapeError
from .tensor import Tensor


def scale_y(x, s):
    return x * s


def add_y(x, y):
    return x + y


def scale_buffer(buffer: Any, factor: float, by: str) -> None:
    """Multiply a buffer in place."""
    buffer.device.launch("map", scale_y, (buffer,), (buffer,), (Door.number(factor, buffer.dtype),), buffer.dtype)
    buffer.wrote(by)


def add_to_buffer(buffer: Any, other: Any, by: str) -> None:
    """Add `other` to a buffer of the same size and dtype in place."""
    buffer.device.launch("map", add_y, (buffer,), (buffer, other), (), buffer.dtype)
    buffer.wrote(by)


class GradientMap:
    """Gradients by tensor id, in the order they were inserted.

    `names` maps ids to names for error texts. `others` holds the ids of tensors that are no Parameters, and whether they are leaves:
    clipping leaves them alone where there are Parameters.
    """

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

    def buffers(self) -> list[Any]:
        """The memory of all gradients, each once."""
        return list({id(g.buffer): g.buffer for g in self._gradients.values()}.values())

    def __repr__(self) -> str:
        rows = ", ".join(f"{self.label(k)}: {tuple(g.shape)}" for k, g in self._gradients.items())
        return f"GradientMap({rows})"

    # ---- changing ------------------------------------------------------------------------------------------------------------------
    def put(self, key: Any, gradient: Any) -> None:
        """Store a gradient that is known to fit."""
        if not isinstance(key, int):
            self.names[key.id] = key.name
            if not key.is_parameter:
                self.others[key.id] = key.entry is None
            key = key.id
        self._gradients[key] = gradient

    def insert(self, key: Any, gradient: Any) -> None:
        """Store this gradient (no copy of a Tensor), replacing any other.

        Raises ShapeError or DeviceError if it does not fit the tensor given as key (an id says nothing of its tensor), DTypeError if it
        is neither a Tensor nor an array.
        """
        self.put(key, self.fitting("insert", key, gradient, None if isinstance(key, int) else key))

    def __setitem__(self, key: Any, gradient: Any) -> None:
        """The same as insert()."""
        self.insert(key, gradient)

    def fitting(self, name: str, key: Any, gradient: Any, like: Any) -> Any:
        """A gradient as a Tensor that fits `like`, if there is one. Raises DTypeError for what is neither a Tensor nor an array of
        numbers, ShapeError or DeviceError if it does not fit."""
        gradient = Tensor.of(name, gradient, None if like is None else like.device)
        if gradient.dtype not in FLOATS:
            raise DTypeError(f"{name}: a gradient of another type for {self.label(key)}: {gradient.dtype}. Cast it to float32.")
        if like is not None:
            check_fits(name, self.label(key), like, gradient)
        return gradient

    def accumulate(self, key: Any, gradient: Any) -> None:
        """Add a gradient to the stored one; a key that is not there yet gets a copy of it. Raises as insert() does."""
        stored = self.get(key)
        gradient = self.fitting("accumulate", key, gradient, stored if stored is not None else None if isinstance(key, int) else key)
        if stored is None:
            self.insert(key, gradient.detach().clone())
        else:
            add_to_buffer(stored.buffer, gradient.detach().to(stored.dtype).buffer, "GradientMap.accumulate")

    def scale_(self, factor: float) -> GradientMap:
        """Multiply every gradient in place."""
        times = checked_number("scale_", "the factor", factor)
        for buffer in self.buffers():  # a gradient inserted twice: once
            scale_buffer(buffer, times, "GradientMap.scale_")
        return self


def check_device(name: str, label: str, wanted: Any, gradient: Any) -> None:
    """Raise DeviceError unless the gradient is on the device `wanted`."""
    if gradient.device is not wanted:
        raise DeviceError(
            f"{name}: gradient is on another device for {label}: expected {wanted}, got {gradient.device}. Move it with .to('{wanted}')."
        )


def check_fits(name: str, label: str, like: Any, gradient: Any) -> None:
    """Raise ShapeError or DeviceError unless the gradient has the shape of `like` and is on its device."""
    if tuple(like.shape) != tuple(gradient.shape):
        shapes = f"expected {like.shape}, got {gradient.shape}"
        raise ShapeError(f"{name}: gradient shape differs for {label}: {shapes}. Pass a gradient of the tensor's shape.")
    check_device(name, label, like.device, gradient)


def label_of(number: int, name: str) -> str:
    """How an error text names a gradient."""
    return f"'{name}'" if name else f"tensor {number}"
