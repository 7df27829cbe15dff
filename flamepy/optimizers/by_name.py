"""ByName: several optimizers under one step, chosen by the names of parameters.

optimizer = fp.ByName(model, {
    "*.norm.*":  (fp.AdamW, {"lr": 3e-4, "weight_decay": 0.0}),
    "blocks.*.weight": (fp.Muon, {"lr": 0.02}),
    "*":         (fp.AdamW, {"lr": 3e-4}),
}, transforms=fp.transforms.ClipNorm(1.0))
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..core.errors import DTypeError, StateError
from ..parameter import Parameter
from ..schedules.curves import product
from .base import Optimizer, Steps
from .given import Model, list_of, name_of
from .groups import Groups
from .state import Acts


class ByName(Steps):
    """ByName(params, {pattern: (optimizer class, {option: value}), ...}, transforms=None, lr=None).

    A parameter belongs to the first pattern (a glob) that its name matches; each must belong to one, and each pattern must have some.
    `transforms` are done to the gradients of all of them together, before the step: one joint norm. Each optimizer has its own lr, a
    number or a schedule. The lr of all is that of the first pattern; set here or as `optimizer.lr`, a number or a schedule, it moves the
    others in proportion, as it does with groups. `parts`: the optimizers, by pattern. Where parameters are packed together, each
    optimizer keeps its moments for all of that memory: one launch a step, and no gradient is copied."""

    name = "ByName"
    contained = ("parts",)

    def __init__(self, params: Any, parts: dict[str, tuple[type[Optimizer], dict[str, Any]]], transforms: Any = None, lr: Any = None):
        left = {p: name_of(p) or str(i) for i, p in enumerate(dict.fromkeys(list_of(self.name, params)))}
        if not isinstance(parts, dict) or not all([isinstance(pattern, str) for pattern in parts]):
            raise DTypeError(f'ByName: not optimizers by pattern: {parts!r}. Write {{pattern: (fp.AdamW, {{"lr": 1e-3}}), ...}}.')
        self.parts: dict[str, Optimizer] = {}
        self.model = Model(params)
        for pattern, spec in parts.items():
            cls, options = spec if isinstance(spec, tuple | list) and len(spec) == 2 else (spec, {})
            if not (isinstance(cls, type) and issubclass(cls, Optimizer)) or not isinstance(options, dict):
                what = f"not an optimizer's class and its options: '{pattern}': {spec!r}"
                raise DTypeError(f'ByName: {what}. Write (fp.AdamW, {{"lr": 1e-3}}).')
            if options.get("transforms") is not None:
                raise DTypeError(f"ByName: transforms of one pattern: '{pattern}'. Give them to ByName, with params= for some parameters.")
            mine = [p for p, name in left.items() if fnmatch.fnmatchcase(name, pattern)]
            if not mine:
                names = ", ".join(left.values()) or "none"
                raise StateError(f"ByName: no parameter left for the pattern '{pattern}': {names}. Fix the glob, or the order of patterns.")
            for p in mine:
                del left[p]
            self.parts[pattern] = cls(mine, **options)
        if left or not parts:
            raise StateError(f'ByName: no pattern for: {", ".join(left.values())}. Add one for the rest: "*".')
        self.transforms = transforms
        self.shares = self.shares_of([1.0] * len(parts))
        if lr is not None:
            self.lr = lr

    def members(self) -> list[Optimizer]:
        return list(self.parts.values())

    @property
    def first(self) -> Optimizer:
        return next(iter(self.parts.values()))

    @property
    def params(self) -> list[Parameter]:  # type: ignore[override]
        """All parameters, pattern by pattern."""
        return [p for part in self.members() for p in part.params]

    @property
    def names(self) -> dict[int, str]:
        """Their names by id."""
        return {number: name for part in self.members() for number, name in part.names.items()}

    def frozen(self) -> frozenset[int]:
        return frozenset().union(*[part.frozen() for part in self.members()])

    @property
    def groups(self) -> Groups:
        """The groups of all the optimizers, pattern by pattern."""
        return Groups([group for part in self.members() for group in part.groups])

    param_groups = groups

    def adopt(self, params: Iterable[Parameter]) -> None:
        """Nothing: a list that step() is given must hold its own parameters."""
        known = self.names
        if strange := [p.label for p in params if p.id not in known]:
            raise StateError(f"ByName.step: not one of its parameters: {strange[0]}. Pass those that it was made with.")

    # ---- rates ----------------------------------------------------------------------------------------------------------------------
    @property
    def lr(self) -> float:
        """The first pattern's learning rate at the next step."""
        return self.first.lr

    @lr.setter
    def lr(self, value: Any) -> None:
        self.shares = self.shares_of(self.shares)
        for part, share in zip(self.members(), self.shares, strict=True):
            if share is not None:
                rate: Any = value if share == 1.0 else product(value, share) if callable(value) else value * share
                part.lr = rate

    def shares_of(self, known: list[float | None]) -> list[float | None]:
        """Each part's rate as a share of the first one's; None where that is 0: then it stays as it is."""
        base, rates = self.lr, [(part.lr, share) for part, share in zip(self.members(), known, strict=True)]
        return [share if share is not None and lr == base * share else lr / base if base else None for lr, share in rates]

    @property
    def rates(self) -> JointRates:
        """Steps and rates."""
        return JointRates(self)

    def __repr__(self) -> str:
        return "\n".join(["ByName:", *[f"  {pattern!r}: {part!r}" for pattern, part in self.parts.items()]])

    # ---- state: {"class", "order", "parts": {pattern: state of its optimizer}}, in the order of the patterns --------------------------
    def contents(self) -> dict[str, Any]:
        return {"parts": {pattern: part.state_dict() for pattern, part in self.parts.items()}}

    def checked(self, found: dict[str, Any]) -> Acts:
        saved = list(found["parts"]) if isinstance(found["parts"], dict) else type(found["parts"]).__name__
        if saved != list(self.parts):
            raise StateError(f"ByName: patterns differ: state {saved}, here {list(self.parts)}. Use the same patterns.")
        return [act for pattern, part in self.parts.items() for act in part.prepared(found["parts"][pattern])]


class JointRates(NamedTuple):
    """The rates of all parts, as one: each part counts every step."""

    optimizer: ByName

    @property
    def finished(self) -> int:
        """How many steps there were."""
        return self.optimizer.first.rates.finished

    def saved(self) -> list[Any]:
        return [self.optimizer.shares, *[part.rates.saved() for part in self.optimizer.members()]]

    def restore(self, state: list[Any]) -> None:
        self.optimizer.shares, *saved = state
        for part, rates in zip(self.optimizer.members(), saved, strict=True):
            part.rates.restore(rates)
