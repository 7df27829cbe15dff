"""The engine's GradientMap: gradients of packed parameters lie in one span, so that norm, scaling and the optimizer step are one launch.

While nobody has looked at them, clipping only leaves its factor here, and the optimizer multiplies as it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import ids
from ..core.errors import GradientError
from ..core.tensor import Tensor
from ..dtypes import HALF, float32
from .marks import both_marks, scale_by_factor
from .named_map import NamedMap, add_to_buffer


class GradientMap(NamedMap):
    """Gradients by tensor id, in the order they were inserted.
    `names` and `others`: as in core/gradients.py. `spans` lists (span of parameters, span of their gradients) for packed
    parameters whose gradients are all here and still in that span (`whole_map`: and no other Parameter has one); any change of the set
    of gradients empties it. `private` says that no gradient was handed out yet; `factor` is a clip factor that is still to be
    applied; `mark` says whether a step may use these gradients (both: formula/clip.py), `scaled` by which scale the loss was multiplied.
    Pickled and copied together with its parameters, in whatever they are, a map names their copies. Alone, it names the tensors it
    named before, also when it comes back from another process."""

    def __init__(self) -> None:
        self._gradients, self.names, self.others = {}, {}, {}  # without a call of super(): for each backward
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

    def get(self, key: Any) -> Tensor | None:
        """The stored gradient, or None."""
        return self.stored().get(self.id_of(key))

    def items(self) -> Iterable[tuple[int, Tensor]]:
        return self.stored().items()

    def settle(self) -> None:
        """Apply the clip factor that is waiting."""
        factor, self.factor = self.factor, None
        if factor is not None:
            for _, span in self.spans:
                scale_by_factor(span, factor)

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

    def say_scaled(self, by: Any) -> None:
        """Have the gradients say by whose scale they are multiplied, for those that come to an optimizer without this map."""
        for gradient in self._gradients.values():
            gradient.scaled = by

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

    @property
    def packed(self) -> bool:
        """Whether the spans hold the gradients of every Parameter."""
        return bool(self.spans) and self.whole_map

    def whole(self, home: Any) -> Any | None:
        """The span with the gradients of every parameter in the span `home`, if there is one."""
        for parameters, span in self.spans:
            if parameters is home:
                return span
        return None

    def buffers(self) -> list[Any]:
        """The memory of all gradients, each once: whole spans where there are some."""
        if not self.packed:
            return super().buffers()
        found = [*[span for _, span in self.spans], *[self._gradients[key].buffer for key in self.others if key in self._gradients]]
        return list({id(b): b for b in found}.values())

    def put(self, key: Any, gradient: Any) -> None:
        """Store a gradient that is known to fit, in a map that has no spans yet; 16-bit ones become float32."""
        super().put(key, gradient.to(float32) if gradient.dtype in HALF else gradient)

    def insert(self, key: Any, gradient: Any) -> None:
        super().insert(key, gradient)
        self.settle()
        self.spans = []
        mark = getattr(gradient, "mark", None)
        if mark is not None and mark is not self.mark:
            self.mark = mark if self.mark is None else both_marks(self.mark, mark)

    def fitting(self, name: str, key: Any, gradient: Any, like: Any) -> Any:
        gradient = super().fitting(name, key, gradient, like)
        if gradient.scaled is not None and gradient.scaled is not self.scaled:
            if self._gradients:
                what = f"the gradient of a scaled loss among others: {self.label(key)}"
                raise GradientError(f"{name}: {what}. Call unscale() on its map first.")
            self.scaled = gradient.scaled
        return gradient

    def take(self, key: Any) -> Any:
        """Remove and return a gradient, or None."""
        found = self.stored().pop(self.id_of(key), None)
        self.spans = []
        return found

    def clear(self) -> None:
        self._gradients.clear()
        self.others.clear()
        self.spans, self.factor, self.mark, self.scaled = [], None, None, None

    def scale_(self, factor: float) -> GradientMap:
        self.settle()
        super().scale_(factor)
        return self

    def merge(self, other: GradientMap) -> GradientMap:
        """Add every gradient of `other` to this map."""
        self.check_merge(other)
        self.check_scaled("merge", other)
        self.settle()  # before new keys empty the spans that its factor is for
        if self.packed and other.packed and [home for home, _ in self.spans] == [home for home, _ in other.spans]:
            other.settle()
            for (_, span), (_, more) in zip(self.spans, other.spans, strict=True):
                add_to_buffer(span, more, "GradientMap.merge")
            rest = [(key, other._gradients[key]) for key in other.others if key in other._gradients]
        else:
            rest = list(other.items())
        if any([key not in self._gradients and key not in other.others for key, _ in rest]):
            self.spans = []
        self.add_each(rest)
        self.names.update(other.names)
        self.take_marks(other)
        return self

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
