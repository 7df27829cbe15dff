"""GradientMap: what backward() returns. Tensor id -> gradient; clipping and optimizers consume it.

A key may be an id, a Tensor, a Parameter or a parameter's name. What `get` returns is the stored gradient: editing it edits the map.
Gradients of packed parameters are slots of one span, so that norm, scaling and the optimizer step are one launch each. While nobody
has looked at them, clipping only leaves its factor here, and the optimizer multiplies as it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from . import ids
from .core.errors import DTypeError, GradientError, ShapeError, StateError
from .core.tensor import Tensor
from .dtypes import FLOATS, HALF, checked_number, float32, float64
from .gradient_memory import add_to_buffer, both_marks, check_device, check_fits, label_of, scale_buffer, scale_by_factor
from .tensor_grad import TensorGradExt as TensorGradExt


class GradientMap:
    """Gradients by tensor id, in the order they were inserted.

    `names` maps ids to names for error texts. `spans` lists (span of parameters, span of their gradients) for packed
    parameters whose gradients are all here and still in that span (`whole_map`: and no other Parameter has one); any change of the set
    of gradients empties it. `others` holds the ids of tensors that are no Parameters, and whether they are leaves: clipping leaves them
    alone where there are Parameters. `private` says that no gradient was handed out yet; `factor` is a clip factor that is still to be
    applied; `mark` says whether a step may use these gradients (both: formula/clip.py), `scaled` by which scale the loss was multiplied.

    Pickled and copied together with its parameters, in whatever they are, a map names their copies. Alone, it names the tensors it
    named before, also when it comes back from another process.
    """

    def __init__(self) -> None:
        self._gradients: dict[int, Any] = {}
        self.names: dict[int, str] = {}
        self.others: dict[int, bool] = {}
        self.spans: list[tuple[Any, Any]] = []
        self.whole_map = False
        self.private = True
        self.factor: Any = None
        self._mark: Any = None
        self.scaled: Any = None

    def stored(self) -> dict[int, Any]:
        """Gradients by id, to be handed out: what clipping left to do is done first."""
        if self.private:
            self.private = False
            self.settle()
            self.mark = self._mark
            if self.scaled is not None:
                self.say_scaled(self.scaled)
        return self._gradients

    def say_scaled(self, by: Any) -> None:
        """Have the gradients say by whose scale they are multiplied, for those that come to an optimizer without this map."""
        for gradient in self._gradients.values():
            gradient.scaled = by

    @property
    def mark(self) -> Any:
        return self._mark

    @mark.setter
    def mark(self, mark: Any) -> None:
        """Gradients that were handed out have the mark too: they may come to an optimizer without this map."""
        self._mark = mark
        if mark is not None and not self.private:
            for gradient in self._gradients.values():
                gradient.mark = mark

    def settle(self) -> None:
        """Apply the clip factor that is waiting."""
        factor, self.factor = self.factor, None
        if factor is not None:
            for _, span in self.spans:
                scale_by_factor(span, factor)

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

    @property
    def packed(self) -> bool:
        """Whether the spans hold the gradients of every Parameter."""
        return bool(self.spans) and self.whole_map

    def counted(self) -> dict[int, Any]:
        """The gradients that norms and clipping go over: those of Parameters; where there are none, those of leaves."""
        if not self.others:
            return self._gradients
        found = {key: g for key, g in self._gradients.items() if key not in self.others}
        return found or {key: g for key, g in self._gradients.items() if self.others[key]}

    def buffers(self) -> list[Any]:
        """The memory of all gradients, each once: whole spans where there are some."""
        if not self.packed:
            found = [g.buffer for g in self._gradients.values()]
        else:
            found = [*[span for _, span in self.spans], *[self._gradients[key].buffer for key in self.others if key in self._gradients]]
        return list({id(b): b for b in found}.values())

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

    def fitting(self, name: str, key: Any, gradient: Any, like: Any) -> Any:
        """A gradient as a Tensor that fits `like`, if there is one. Raises DTypeError for what is neither a Tensor nor an array of
        numbers, ShapeError or DeviceError if it does not fit."""
        if not hasattr(gradient, "buffer"):
            found = [like, self._gradients.get(key), *self._gradients.values()]
            near = next((t for t in found if t is not None), None)
            made = Tensor.of(name, gradient, None if near is None else near.device)
            gradient = made.to(float64 if near is not None and near.dtype == float64 else float32)
        if gradient.scaled is not None and gradient.scaled is not self.scaled:
            if self._gradients:
                what = f"the gradient of a scaled loss among others: {self.label(key)}"
                raise GradientError(f"{name}: {what}. Call unscale() on its map first.")
            self.scaled = gradient.scaled
        if gradient.dtype not in FLOATS:
            raise DTypeError(f"{name}: a gradient of another type for {self.label(key)}: {gradient.dtype}. Cast it to float32.")
        if like is not None:
            check_fits(name, self.label(key), like, gradient)
        return gradient

    def insert(self, key: Any, gradient: Any) -> None:
        """Store this gradient (no copy of a Tensor; 16-bit ones become float32), replacing any other.

        Raises ShapeError or DeviceError if it does not fit the tensor given as key (an id says nothing of its tensor), DTypeError if it
        is neither a Tensor nor an array.
        """
        key = self.sized("insert", key)
        gradient = self.fitting("insert", key, gradient, None if isinstance(key, int) else key)
        self.settle()
        self.put(key, gradient)
        self.spans = []
        if gradient.mark is not None and gradient.mark is not self.mark:
            self.mark = gradient.mark if self.mark is None else both_marks(self.mark, gradient.mark)

    def put(self, key: Any, gradient: Any) -> None:
        """Store a gradient that is known to fit, in a map that has no spans yet."""
        if not isinstance(key, int):
            self.names[key.id] = key.name
            if not key.is_parameter:
                self.others[key.id] = key.entry is None
            key = key.id
        self._gradients[key] = gradient.to(float32) if gradient.dtype in HALF else gradient

    set_grad = insert

    def __setitem__(self, key: Any, gradient: Any) -> None:
        self.insert(key, gradient)

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
        self.others.clear()
        self.spans, self.factor, self.mark, self.scaled = [], None, None, None

    def scale_grad(self, key: Any, factor: float) -> bool:
        """Multiply one gradient in place; False when there is none."""
        times = checked_number("scale_grad", "the factor", factor)
        stored = self.get(key)
        if stored is None:
            return False
        scale_buffer(stored.buffer, times, "GradientMap.scale_grad")
        return True

    def scale_(self, factor: float) -> GradientMap:
        """Multiply every gradient in place."""
        times = checked_number("scale_", "the factor", factor)
        self.settle()
        for buffer in self.buffers():  # a gradient inserted twice: once
            scale_buffer(buffer, times, "GradientMap.scale_")
        return self

    def merge(self, other: GradientMap) -> GradientMap:
        """Add every gradient of `other` to this map."""
        if not isinstance(other, GradientMap):
            raise DTypeError(f"merge: not a GradientMap: {type(other).__name__}. Pass what backward() returned.")
        self.check_scaled("merge", other)
        for key, gradient in other._gradients.items():
            stored = self._gradients.get(key)
            if stored is not None and tuple(stored.shape) != tuple(gradient.shape):
                raise ShapeError(
                    f"merge: gradient shape differs for {other.label(key)}: {stored.shape} and {gradient.shape}. "
                    "Merge maps of the same model."
                )
            if stored is not None:
                check_device("merge", other.label(key), stored.device, gradient)
        self.settle()  # before new keys empty the spans that its factor is for
        if self.packed and other.packed and [home for home, _ in self.spans] == [home for home, _ in other.spans]:
            other.settle()
            for (_, span), (_, more) in zip(self.spans, other.spans, strict=True):
                add_to_buffer(span, more, "GradientMap.merge")
            rest = [(key, other._gradients[key]) for key in other.others if key in other._gradients]
        else:
            rest = list(other.items())
        for key, gradient in rest:
            if key in self._gradients:
                self.accumulate(key, gradient)
            else:
                self._gradients[key] = gradient.clone()
                self.spans = self.spans if key in other.others else []
        self.names.update(other.names)
        self.take_marks(other)
        return self

    def check_scaled(self, name: str, other: GradientMap) -> None:
        """Raise GradientError unless both maps are of losses scaled alike, so that one can be added to the other."""
        if self._gradients and other._gradients and self.scaled is not other.scaled:
            raise GradientError(f"{name}: gradients of a scaled loss and others: they differ in scale. Call unscale() on each map first.")

    def take_marks(self, other: GradientMap) -> None:
        """What holds for the gradients of another map holds for these, which now contain them."""
        self.others.update(other.others)
        if self.mark is None or other.mark is None:
            self.mark = self.mark or other.mark
        else:
            self.mark = both_marks(self.mark, other.mark)
        if other._gradients:
            self.scaled = other.scaled

    def to_dict(self, params: Any) -> dict[str, Any]:
        """name -> gradient for the parameters (a ParameterDict, a model) that have one."""
        if not hasattr(params, "named_parameters"):
            raise DTypeError(f"to_dict: no names of parameters: {type(params).__name__}. Pass a ParameterDict or a model.")
        return {name: self[p] for name, p in params.named_parameters() if p in self}

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: gradients and names by what each id is on its way (ids.py)."""
        if self.scaled is not None or self.mark is not None:
            raise GradientError("pickle: gradients of a scaled loss, or marked for one step: scaled or marked. Pickle them before.")
        gradients = [(ids.key_of(number), gradient) for number, gradient in self.stored().items()]
        names, others = [[(ids.key_of(n), x) for n, x in of.items()] for of in (self.names, self.others)]
        return {"gradients": gradients, "names": names, "others": others}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self._gradients = {key.of_key(self): gradient for key, gradient in state["gradients"]}
        self.names = {key.of_key(self): name for key, name in state["names"]}
        self.others = {key.of_key(self): leaf for key, leaf in state["others"]}

    def rename(self, old: int, new: int) -> None:
        """Have the key `new` in the place of `old`."""
        self._gradients = {new if key == old else key: gradient for key, gradient in self._gradients.items()}
        self.names = {new if key == old else key: name for key, name in self.names.items()}
        self.others = {new if key == old else key: leaf for key, leaf in self.others.items()}

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
