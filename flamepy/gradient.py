"""GradientMap: what backward() returns. Tensor id -> gradient; clipping and optimizers consume it.

A key may be an id, a Tensor, a Parameter or a parameter's name. What `get` returns is the stored gradient: editing it edits the map.
Gradients of packed parameters are slots of one span, so that norm, scaling and the optimizer step are one launch each. While nobody
has looked at them, clipping only leaves its factor here, and the optimizer multiplies as it reads.

FLAME counterpart: `flame_core::gradient::GradientMap`. Read next: autograd/entries.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import ids
from .backend.base import Buffer
from .dtypes import HALF, float32
from .errors import DeviceError, DTypeError, ShapeError, StateError

if TYPE_CHECKING:
    from .methods import Tensor  # from a stub: this file imports no tensors when it runs


def label_of(number: int, name: str) -> str:
    """How an error text names a gradient."""
    return f"'{name}'" if name else f"tensor {number}"


def scale_y(x, s):
    return x * s


def add_y(x, y):
    return x + y


def scale_buffer(buffer: Any, factor: float, by: str) -> None:
    """Multiply a buffer in place."""
    buffer.device.launch("map", scale_y, (buffer,), (buffer,), (buffer.dtype.type(factor),), buffer.dtype)
    buffer.wrote(by)


def add_to_buffer(buffer: Any, other: Any, by: str) -> None:
    """Add `other` to a buffer of the same size and dtype in place."""
    buffer.device.launch("map", add_y, (buffer,), (buffer, other), (), buffer.dtype)
    buffer.wrote(by)


def scale_by_factor(buffer: Any, factor: Any, by: str = "clip_grad_norm") -> None:
    """Multiply a buffer in place by the factor that the launch "norm" found."""
    buffer.device.launch("scale", None, (buffer,), (factor,), (), buffer.dtype)
    buffer.device.stream.after(lambda b, found: b.wrote(by) if b.device.download(found)[1] != 1.0 else None, buffer, factor)


@cache
def no_factor(device: Any) -> Buffer:
    """The clip factor of gradients that need none."""
    return device.direct.upload(np.array([0.0, 1.0]))


def check_device(name: str, label: str, wanted: Any, gradient: Any) -> None:
    """Raise DeviceError unless the gradient is on the device `wanted`."""
    if gradient.device is not wanted:
        raise DeviceError(
            f"{name}: gradient is on another device for {label}: expected {wanted}, got {gradient.device}. Move it with .to('{wanted}')."
        )


class GradientMap:
    """Gradients by tensor id, in the order they were inserted.

    `names` maps ids to names for error texts. `spans` lists (span of parameters, span of their gradients) for packed
    parameters whose gradients are all here and still in that span (`whole_map`: and there are no others); any change of the set of
    gradients empties it. `private` says that no gradient was handed out yet; `factor` is a clip factor that is still to be applied.

    Pickled and copied together with its parameters, in whatever they are, a map names their copies. Alone, it names the tensors it
    named before, also when it comes back from another process.
    """

    def __init__(self) -> None:
        self._gradients: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        self.spans: list[tuple[Any, Any]] = []
        self.whole_map = False
        self.private = True
        self.factor: Any = None

    def stored(self) -> dict[int, Any]:
        """Gradients by id, to be handed out: what clipping left to do is done first."""
        if self.private:
            self.private = False
            self.settle()
        return self._gradients

    def settle(self) -> None:
        """Apply the clip factor that is waiting."""
        factor, self.factor = self.factor, None
        if factor is not None:
            for _, span in self.spans:
                scale_by_factor(span, factor)

    def id_of(self, key: Any) -> int:
        """The id behind a key; 0, which is no tensor's, for a name that has no gradient here. Raises StateError for a name of two."""
        if isinstance(key, str):
            found = [number for number in self._gradients if key and self.names.get(number) == key]
            if len(found) > 1:
                raise StateError(f"GradientMap: {len(found)} parameters have this name: '{key}'. Pass the parameter itself.")
            return found[0] if found else 0
        return key if isinstance(key, int) else key.id  # type: ignore[no-any-return]

    def sized(self, name: str, key: Any) -> Any:
        """A key that an entry is made for. Raises KeyError for a name that has none: it says nothing of the tensor."""
        if not isinstance(key, str):
            return key
        if (number := self.id_of(key)) == 0:
            raise KeyError(f"{name}: no gradient of this name to replace: '{key}'. Pass the parameter itself.")
        return number

    @property
    def packed(self) -> bool:
        """Whether the spans hold every gradient."""
        return bool(self.spans) and self.whole_map

    def whole(self, home: Any) -> Any | None:
        """The span with the gradients of every parameter in the span `home`, if there is one."""
        for parameters, gradients in self.spans:
            if parameters is home:
                return gradients
        return None

    def get(self, key: Any) -> Tensor | None:
        """The stored gradient, or None."""
        return self.stored().get(self.id_of(key))

    def __getitem__(self, key: Any) -> Tensor:
        found = self.get(key)
        if found is None:
            raise KeyError(f"GradientMap: no gradient: {self.label(key)}. {self.advice(key)}")
        return found

    def insert(self, key: Any, gradient: Any) -> None:
        """Store this gradient (no copy; 16-bit ones become float32), replacing any other.

        Raises ShapeError or DeviceError if it does not fit the tensor given as key, DTypeError if it is no Tensor.
        """
        if not hasattr(gradient, "buffer"):
            raise DTypeError(f"insert: not a Tensor: {type(gradient).__name__}. Pass flamepy.tensor(...).")
        key = self.sized("insert", key)
        if not isinstance(key, int) and tuple(key.shape) != tuple(gradient.shape):
            raise ShapeError(
                f"insert: gradient shape differs for {self.label(key)}: expected {key.shape}, got {gradient.shape}. "
                "Pass a gradient of the tensor's shape."
            )
        if not isinstance(key, int):
            check_device("insert", self.label(key), key.device, gradient)
        self.settle()
        self.put(key, gradient)
        self.spans = []

    def put(self, key: Any, gradient: Any) -> None:
        """Store a gradient that is known to fit, in a map that has no spans yet."""
        if not isinstance(key, int):
            self.names[key.id] = key.name
            key = key.id
        self._gradients[key] = gradient.to(float32) if gradient.dtype in HALF else gradient

    set_grad = insert

    def __setitem__(self, key: Any, gradient: Any) -> None:
        self.insert(key, gradient)

    def accumulate(self, key: Any, gradient: Any) -> None:
        """Add a gradient to the stored one; a key that is not there yet gets a copy of it."""
        stored = self.get(key)
        if stored is None:
            self.insert(key, gradient.clone())
            return
        if tuple(stored.shape) != tuple(gradient.shape):
            raise ShapeError(
                f"accumulate: gradient shape differs for {self.label(key)}: stored {stored.shape}, got {gradient.shape}. "
                "Pass a gradient of the same shape."
            )
        check_device("accumulate", self.label(key), stored.device, gradient)
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
        found = self.stored().pop(self.id_of(key), None)
        self.spans = []
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

    def clear(self) -> None:
        self._gradients.clear()
        self.spans, self.factor = [], None

    def scale_grad(self, key: Any, factor: float) -> bool:
        """Multiply one gradient in place; False when there is none."""
        stored = self.get(key)
        if stored is None:
            return False
        scale_buffer(stored.buffer, factor, "GradientMap.scale_grad")
        return True

    def scale_(self, factor: float) -> GradientMap:
        """Multiply every gradient in place."""
        self.settle()
        found = [span for _, span in self.spans] if self.packed else [g.buffer for g in self._gradients.values()]
        for buffer in {id(b): b for b in found}.values():  # a gradient inserted twice: once
            scale_buffer(buffer, factor, "GradientMap.scale_")
        return self

    def merge(self, other: GradientMap) -> GradientMap:
        """Add every gradient of `other` to this map."""
        for key, gradient in other._gradients.items():
            stored = self._gradients.get(key)
            if stored is not None and tuple(stored.shape) != tuple(gradient.shape):
                raise ShapeError(
                    f"merge: gradient shape differs for {other.label(key)}: {stored.shape} and {gradient.shape}. "
                    "Merge maps of the same model."
                )
            if stored is not None:
                check_device("merge", other.label(key), stored.device, gradient)
        if self.packed and other.packed and [home for home, _ in self.spans] == [home for home, _ in other.spans]:
            self.settle()
            other.settle()
            for (_, span), (_, more) in zip(self.spans, other.spans, strict=True):
                add_to_buffer(span, more, "GradientMap.merge")
        else:
            for key, gradient in other.items():
                self.accumulate(key, gradient)
        self.names.update(other.names)
        return self

    def to_dict(self, params: Any) -> dict[str, Any]:
        """name -> gradient for the parameters (a ParameterDict) that have one."""
        return {name: self[p] for name, p in params.named_parameters() if p in self}

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: gradients and names by what each id is on its way (ids.py)."""
        gradients = [(ids.key_of(number), gradient) for number, gradient in self.stored().items()]
        return {"gradients": gradients, "names": [(ids.key_of(number), name) for number, name in self.names.items()]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._gradients = {key.of_key(self): gradient for key, gradient in state["gradients"]}
        self.names = {key.of_key(self): name for key, name in state["names"]}

    def rename(self, old: int, new: int) -> None:
        """Have the key `new` in the place of `old`."""
        self._gradients = {new if key == old else key: gradient for key, gradient in self._gradients.items()}
        self.names = {new if key == old else key: name for key, name in self.names.items()}

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

    def __repr__(self) -> str:
        rows = ", ".join(f"{self.label(k)}: {tuple(g.shape)}" for k, g in self._gradients.items())
        return f"GradientMap({rows})"
