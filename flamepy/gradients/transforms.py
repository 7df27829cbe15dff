"""What an optimizer does to gradients before each step: a list of transforms, in order.

    optimizer = AdamW(model, lr=1e-3, transforms=[Centralize(), ClipNorm(1.0), Noise(0.01)])

Each edits the gradients of the optimizer's own parameters. An Edit is the object of a function of clip.py or edits.py, and stands beside
it. They work in a captured step: what changes from step to step (noise, limits made from past norms) is filled in by the host before it.
What must survive a restart is saved with the optimizer's state.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ..backend.base import Buffer
from ..bus import changed, seen
from ..dtypes import checked_number
from ..gradient import GradientMap
from .norm import ClipResult, Places, chosen_keys

RESULTS = ("result", "skipped", "total")  # attributes that a step sets


def checked_limit(name: str, what: str, value: Any) -> float:
    """A limit as a float. Raises ValueError for what is negative or NaN."""
    limit = 0.0 if value is None else checked_number(name, what, value)
    if math.isnan(limit) or limit < 0:
        raise ValueError(f"{name}: {what} must not be negative or NaN: {value}. Use a positive number, or None for off.")
    return limit


class Transform:
    """Base of all: `params` (a glob of names, a ParameterDict, a list) chooses among the optimizer's parameters."""

    def __init__(self, params: Any = None):
        self.params = params

    @property
    def name(self) -> str:
        return type(self).__name__

    def __call__(self, grads: GradientMap, optimizer: Any) -> None:
        seen(self, "its settings", self.settings)
        self.edit(grads, self.chosen(grads, optimizer), optimizer)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name[0] != "_" and name not in RESULTS:
            changed(self)

    def settings(self) -> tuple[Any, ...]:
        """What a recorded step depends on."""
        rows = [(key, value) for key, value in vars(self).items() if key[0] != "_" and key not in RESULTS]
        return tuple([(key, value if isinstance(value, int | float | str | None) else id(value)) for key, value in rows])

    def chosen(self, grads: GradientMap, optimizer: Any) -> set[int] | None:
        """Ids of the gradients to edit; None where that is all of the map that count."""
        counted = grads.counted()
        mine = optimizer.names.keys() - optimizer.frozen()
        if self.params is None:
            return None if counted.keys() <= mine else counted.keys() & mine
        names = {number: optimizer.names[number] for number in counted if number in mine}
        return chosen_keys(self.name, names, self.params) & names.keys()

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        """What it does: yours to write in a class of your own."""
        raise NotImplementedError(f"{self.name}: no edit(): the class does not define it. Write edit(self, grads, params, optimizer).")

    # ---- state: most have none -------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        return {"class": self.name}

    def check_state(self, state: dict[str, Any]) -> None:
        """Raise StateError for what cannot be restored."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict()."""

    def __repr__(self) -> str:
        shown = [f"{key}={value!r}" for key, value in vars(self).items() if value is not None and not key.startswith("_")]
        return f"{self.name}({', '.join(shown)})"


class Function(Transform):
    """A function of the map that edits it."""

    def __init__(self, function: Callable[[GradientMap], Any]):
        super().__init__()
        self.function = function

    def __call__(self, grads: GradientMap, optimizer: Any) -> None:
        found = self.function(grads)
        if isinstance(found, GradientMap) and found is not grads:
            raise TypeError(f"{optimizer.name}: a transform returned another map: {self.function!r}. Edit the map that it is given.")


class Clip(Transform):
    """Base of those that report: `result` is the ClipResult of the newest step (None before the first)."""

    result: ClipResult | None = None

    def keep(self, places: Places, found: Buffer) -> None:
        """Have the result as soon as it is known."""
        found.device.stream.after(partial(self.known, places.ids, places.names), found)

    def known(self, ids: list[int], names: dict[int, str], found: Buffer) -> None:
        self.result = ClipResult(found.device.download(found), ids, names)


class Edit(Transform):
    """A function that edits a map, as a transform: `class Repair(Edit, of=repair_gradients)`.

    It is made with the function's options, which are limits and checked as such, and with `params`. `taken`: options that the optimizer
    gives at each step instead, each a function of it and of the ids that were chosen.
    """

    function: ClassVar[Callable[..., Any]]
    taken: ClassVar[dict[str, Callable[[Any, Any], Any]]]
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, of: Callable[..., Any] | None = None, **taken: Callable[[Any, Any], Any]):
        if of is not None:
            cls.function, cls.taken = staticmethod(of), taken
            rows = [row for key, row in inspect.signature(of).parameters.items() if key not in ("grads", "params", *taken)]
            params = inspect.Parameter("params", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="Any")
            cls.__signature__ = inspect.Signature([*rows, params])

    def __init__(self, *args: Any, **options: Any):
        try:
            given = self.__signature__.bind(*args, **options)
        except TypeError as error:
            raise TypeError(f"{self.name}: not its options: {error}. Use {', '.join(self.__signature__.parameters)}.") from None
        given.apply_defaults()
        super().__init__(given.arguments.pop("params"))
        for key, value in self.checked(given.arguments).items():
            setattr(self, key, value)

    def checked(self, options: dict[str, Any]) -> dict[str, Any]:
        return {key: checked_limit(self.name, key, value) for key, value in options.items()}

    def call(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> Any:
        """What the function returns."""
        options = {key: getattr(self, key) for key in self.__signature__.parameters}
        return self.function(grads, **{**options, "params": params, **{key: take(optimizer, params) for key, take in self.taken.items()}})

    edit = call


class ClipEdit(Edit, Clip):
    """A function that gives what it found."""

    def checked(self, options: dict[str, Any]) -> dict[str, Any]:
        self.function(GradientMap(), **options)
        return options

    def edit(self, grads: GradientMap, params: set[int] | None, optimizer: Any) -> None:
        self.keep(*self.call(grads, params, optimizer))


def chain_of(name: str, transforms: Any) -> tuple[Transform, ...]:
    """What a user gives as `transforms`: one, or several in order; functions too. Raises TypeError for anything else."""
    found = [] if transforms is None else list(transforms) if isinstance(transforms, list | tuple) else [transforms]
    for t in found:
        if not isinstance(t, Transform) and (isinstance(t, type) or not callable(t)):
            raise TypeError(
                f"{name}: not a transform: {t!r}. Use those of flamepy.transforms, such as ClipNorm(1.0), or a function of the map."
            )
    return tuple([t if isinstance(t, Transform) else Function(t) for t in found])
