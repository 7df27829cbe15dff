"""GradientMap: what backward() returns. Tensor id -> gradient; clipping and optimizers consume it.

A key may be an id, a Tensor, a Parameter or a parameter's name. What `get` returns is the stored gradient: editing it edits the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from . import numbers
from .dtypes import FLOATS, checked_number, float32, float64
from .errors import DeviceError, DTypeError, ShapeError, StateError
from .tensor import Tensor


def scale_y(x, s):
    return x * s


def add_y(x, y):
    return x + y


def scale_buffer(buffer: Any, factor: float, by: str) -> None:
    """Multiply a buffer in place."""
    buffer.device.launch("map", scale_y, (buffer,), (buffer,), (numbers.number(factor, buffer.dtype),), buffer.dtype)
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

    def stored(self) -> dict[int, Any]:
        """Gradients by id, to be handed out."""
        return self._gradients

    # ---- keys ----------------------------------------------------------------------------------------------------------------------
    def id_of(self, key: Any) -> int:
        """The id behind a key; 0, which is no tensor's, for a name that has no gradient here. Raises StateError for a name of two,
        DTypeError for what is no key."""
        if isinstance(key, str):
            found = [number for number in self._gradients if key and self.names.get(number) == key]
            if len(found) > 1:
                raise StateError(f"GradientMap: {len(found)} parameters have this name: '{key}'. Pass the parameter itself.")
            return found[0] if found else 0
        if isinstance(key, int):
            return key
        if not hasattr(key, "buffer"):
            raise DTypeError(f"GradientMap: not a key: {type(key).__name__}. Use a Tensor, a Parameter, its id or its name.")
        return key.id  # type: ignore[no-any-return]

    def sized(self, name: str, key: Any) -> Any:
        """A key that an entry is made for. Raises KeyError for a name that has none: it says nothing of the tensor."""
        number = self.id_of(key)
        if not isinstance(key, str):
            return key
        if number == 0:
            raise KeyError(f"{name}: no gradient of this name to replace: '{key}'. Pass the parameter itself.")
        return number

    def label(self, key: Any) -> str:
        """How an error text names a key: its name if known, else its id."""
        if isinstance(key, str):
            return label_of(0, key)
        number = self.id_of(key)
        return label_of(number, self.names.get(number) or ("" if isinstance(key, int) else key.name))

    def advice(self, key: Any) -> str:
        """What to do when there is no gradient of this key."""
        if not isinstance(key, str):
            return "Check that it requires grad and reaches the loss."
        names = [name for number in self._gradients if (name := self.names.get(number))]
        if names:
            return f"Use one of: {', '.join(names)}."
        return "No gradient here has a name: pass the parameter, or give names before backward() (a ParameterDict or model.params does)."

    # ---- looking -------------------------------------------------------------------------------------------------------------------
    def get(self, key: Any) -> Tensor | None:
        """The stored gradient, or None."""
        return self.stored().get(self.id_of(key))

    def __getitem__(self, key: Any) -> Tensor:
        found = self.get(key)
        if found is None:
            raise KeyError(f"GradientMap: no gradient: {self.label(key)}. {self.advice(key)}")
        return found

    def contains(self, key: Any) -> bool:
        return self.id_of(key) in self._gradients

    __contains__ = contains

    def __len__(self) -> int:
        return len(self._gradients)

    def __iter__(self) -> Iterator[int]:
        return iter(self._gradients)

    def items(self) -> Iterable[tuple[int, Tensor]]:
        return self.stored().items()

    def named_items(self) -> list[tuple[str, Tensor]]:
        """(name, gradient) of each; a tensor without a name is called as repr() shows it."""
        return [(self.names.get(number) or label_of(number, ""), gradient) for number, gradient in self.items()]

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
        key = self.sized("insert", key)
        self.put(key, self.fitting("insert", key, gradient, None if isinstance(key, int) else key))

    def set_grad(self, key: Any, gradient: Any) -> None:
        """The same as insert()."""
        self.insert(key, gradient)

    __setitem__ = set_grad

    def fitting(self, name: str, key: Any, gradient: Any, like: Any) -> Any:
        """A gradient as a Tensor that fits `like`, if there is one. Raises DTypeError for what is neither a Tensor nor an array of
        numbers, ShapeError or DeviceError if it does not fit."""
        if not hasattr(gradient, "buffer"):
            found = [like, self._gradients.get(key), *self._gradients.values()]
            near = next((t for t in found if t is not None), None)
            made = Tensor.of(name, gradient, None if near is None else near.device)
            gradient = made.to(float64 if near is not None and near.dtype == float64 else float32)
        if gradient.dtype not in FLOATS:
            raise DTypeError(f"{name}: a gradient of another type for {self.label(key)}: {gradient.dtype}. Cast it to float32.")
        if like is not None:
            check_fits(name, self.label(key), like, gradient)
        return gradient

    def accumulate(self, key: Any, gradient: Any) -> None:
        """Add a gradient to the stored one; a key that is not there yet gets a copy of it. Raises as insert() does."""
        key = self.sized("accumulate", key)
        stored = self.stored().get(key if isinstance(key, int) else key.id)
        gradient = self.fitting("accumulate", key, gradient, stored if stored is not None else None if isinstance(key, int) else key)
        if stored is None:
            self.insert(key, gradient.detach().clone())
        else:
            add_to_buffer(stored.buffer, gradient.detach().to(stored.dtype).buffer, "GradientMap.accumulate")

    def get_or_create(self, key: Any) -> Tensor:
        """The stored gradient; zeros of the tensor's shape are inserted when there is none."""
        stored = self.get(key)
        if stored is None:
            if isinstance(key, int | str):
                raise KeyError(f"get_or_create: an id or name has no shape: {self.label(key)}. Pass the tensor.")
            stored = key.zero_gradient()
            self.insert(key, stored)
        return stored

    def take(self, key: Any) -> Tensor | None:
        """Remove and return a gradient, or None."""
        return self.stored().pop(self.id_of(key), None)

    def clear(self) -> None:
        self._gradients.clear()
        self.others.clear()

    def scale_grad(self, key: Any, factor: float) -> bool:
        """Multiply one gradient in place; False when there is none."""
        times = checked_number("scale_grad", "the factor", factor)
        stored = self.get(key)
        if stored is not None:
            scale_buffer(stored.buffer, times, "GradientMap.scale_grad")
        return stored is not None

    def scale_(self, factor: float) -> GradientMap:
        """Multiply every gradient in place."""
        times = checked_number("scale_", "the factor", factor)
        for buffer in self.buffers():  # a gradient inserted twice: once
            scale_buffer(buffer, times, "GradientMap.scale_")
        return self

    def merge(self, other: GradientMap) -> GradientMap:
        """Add every gradient of `other` to this map."""
        self.check_merge(other)
        self.add_each(list(other.items()))
        self.names.update(other.names)
        self.others.update(other.others)
        return self

    def check_merge(self, other: GradientMap) -> None:
        """Raise DTypeError, ShapeError or DeviceError unless `other` can be added to this map."""
        if not isinstance(other, GradientMap):
            raise DTypeError(f"merge: not a GradientMap: {type(other).__name__}. Pass what backward() returned.")
        for key, gradient in other._gradients.items():
            stored = self._gradients.get(key)
            if stored is not None and tuple(stored.shape) != tuple(gradient.shape):
                raise ShapeError(
                    f"merge: gradient shape differs for {other.label(key)}: {stored.shape} and {gradient.shape}. "
                    "Merge maps of the same model."
                )
            if stored is not None:
                check_device("merge", other.label(key), stored.device, gradient)

    def add_each(self, rows: Iterable[tuple[int, Tensor]]) -> None:
        """Add gradients by id, those that are not there yet as copies."""
        for key, gradient in rows:
            if key in self._gradients:
                self.accumulate(key, gradient)
            else:
                self._gradients[key] = gradient.clone()


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
