"""A GradientMap as FLAME has it: parameters' names are keys, arrays are gradients, and there are more ways to change it than core's.

A key may be an id, a Tensor, a Parameter or a parameter's name. What `get` returns is the stored gradient: editing it edits the map.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core import gradients
from ..core.errors import DeviceError, DTypeError, ShapeError, StateError
from ..core.gradients import check_shape, label_of, scale_buffer
from ..core.tensor import Tensor
from ..dtypes import FLOATS, checked_number, float32, float64


def add_y(x, y):
    return x + y


def add_to_buffer(buffer: Any, other: Any, by: str) -> None:
    """Add `other` to a buffer of the same size and dtype in place."""
    buffer.device.launch("map", add_y, (buffer,), (buffer, other), (), buffer.dtype)
    buffer.wrote(by)


class NamedMap(gradients.GradientMap):
    """Gradients by tensor id, in the order they were inserted; `names` and `others`: as in core/gradients.py."""

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
        return label_of(0, key) if isinstance(key, str) else super().label(key)

    # ---- looking -------------------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Tensor:
        if isinstance(key, str) and self.get(key) is None:
            advice = "No gradient here has a name: pass the parameter, or give names before backward() (a ParameterDict or "
            advice += "model.params does)"
            if names := [name for number in self._gradients if (name := self.names.get(number))]:
                advice = f"Use one of: {', '.join(names)}"
            raise KeyError(f"GradientMap: no gradient: {self.label(key)}. {advice}.")
        return super().__getitem__(key)

    contains = gradients.GradientMap.__contains__

    def named_items(self) -> list[tuple[str, Tensor]]:
        """(name, gradient) of each; a tensor without a name is called as repr() shows it."""
        return [(self.names.get(number) or label_of(number, ""), gradient) for number, gradient in self.items()]

    def buffers(self) -> list[Any]:
        """The memory of all gradients, each once."""
        return list({id(g.buffer): g.buffer for g in self._gradients.values()}.values())

    # ---- changing ------------------------------------------------------------------------------------------------------------------
    def insert(self, key: Any, gradient: Any) -> None:
        """Store this gradient (no copy of a Tensor), replacing any other.
        Raises ShapeError or DeviceError if it does not fit the tensor given as key (an id says nothing of its tensor), DTypeError if it
        is neither a Tensor nor an array."""
        key = self.sized("insert", key)
        self.put(key, self.fitting("insert", key, gradient, None if isinstance(key, int) else key))

    def __setitem__(self, key: Any, gradient: Any) -> None:
        """The same as insert()."""
        self.insert(key, gradient)

    set_grad = __setitem__

    def accumulate(self, key: Any, gradient: Any) -> None:
        """Add a gradient to the stored one; a key that is not there yet gets a copy of it. Raises as insert() does."""
        key = self.sized("accumulate", key)
        stored = self.get(key)
        gradient = self.fitting("accumulate", key, gradient, stored if stored is not None else None if isinstance(key, int) else key)
        if stored is None:
            self.insert(key, gradient.detach().clone())
        else:
            add_to_buffer(stored.buffer, gradient.detach().to(stored.dtype).buffer, "GradientMap.accumulate")

    def fitting(self, name: str, key: Any, gradient: Any, like: Any) -> Any:
        """A gradient as a Tensor that fits `like`, if there is one; an array becomes one beside the others. Raises DTypeError for what is
        neither a Tensor nor an array of numbers, ShapeError or DeviceError if it does not fit."""
        if not hasattr(gradient, "buffer"):
            found = [like, self._gradients.get(key), *self._gradients.values()]
            near = next((t for t in found if t is not None), None)
            made = Tensor.of(name, gradient, None if near is None else near.device)
            gradient = made.to(float64 if near is not None and near.dtype == float64 else float32)
        gradient = Tensor.of(name, gradient, None if like is None else like.device)
        if gradient.dtype not in FLOATS:
            raise DTypeError(f"{name}: a gradient of another type for {self.label(key)}: {gradient.dtype}. Cast it to float32.")
        if like is not None:
            check_shape(name, self.label(key), like, gradient)
            check_device(name, self.label(key), like.device, gradient)
        return gradient

    def get_or_create(self, key: Any) -> Tensor:
        """The stored gradient; zeros of the tensor's shape are inserted when there is none."""
        stored = self.get(key)
        if stored is None:
            if isinstance(key, int | str):
                raise KeyError(f"get_or_create: an id or name has no shape: {self.label(key)}. Pass the tensor.")
            stored = key.zero_gradient()
            self.insert(key, stored)
        return stored

    def scale_(self, factor: float) -> Any:
        """Multiply every gradient in place."""
        times = checked_number("scale_", "the factor", factor)
        for buffer in self.buffers():  # a gradient inserted twice: once
            scale_buffer(buffer, times, "GradientMap.scale_")
        return self

    def scale_grad(self, key: Any, factor: float) -> bool:
        """Multiply one gradient in place; False when there is none."""
        times = checked_number("scale_grad", "the factor", factor)
        stored = self.get(key)
        if stored is not None:
            scale_buffer(stored.buffer, times, "GradientMap.scale_grad")
        return stored is not None

    def check_merge(self, other: NamedMap) -> None:
        """Raise DTypeError, ShapeError or DeviceError unless `other` can be added to this map."""
        if not isinstance(other, gradients.GradientMap):
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
