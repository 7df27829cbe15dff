"""ByName: several optimizers under one step, chosen by the names of parameters.

optimizer = fp.ByName(model, {
    "*.norm.*":  (fp.AdamW, {"lr": 3e-4, "weight_decay": 0.0}),
    "blocks.*.weight": (fp.Muon, {"lr": 0.02}),
    "*":         (fp.AdamW, {"lr": 3e-4}),
}, transforms=fp.transforms.ClipNorm(1.0))
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from functools import partial
from typing import Any

from ..autograd.entries import user_frame
from ..backend.formula.clip import USE
from ..errors import DTypeError, StateError, warn
from ..gradient import GradientMap
from ..parameter import Parameter
from .base import Optimizer, writer
from .chained import Chained
from .given import as_gradient, as_map, check_unscaled, list_of, mark_of, recording, refused, triples
from .groups import Groups, name_of
from .model import Model
from .state import check_kind, checked_transforms, prepared


class Share:
    """A schedule times a number."""

    def __init__(self, schedule: Callable[[int], float], share: float):
        self.schedule, self.share = schedule, share

    def __call__(self, step: int) -> float:
        return self.schedule(step) * self.share

    def __repr__(self) -> str:
        return f"{self.share} * {self.schedule!r}"


class ByName(Chained):
    """ByName(params, {pattern: (optimizer class, {option: value}), ...}, transforms=None, lr=None).

    A parameter belongs to the first pattern (a glob) that its name matches; each must belong to one, and each pattern must have some.
    `transforms` are done to the gradients of all of them together, before the step: one joint norm. Each optimizer has its own lr, a
    number or a schedule. The lr of all is that of the first pattern; set here or as `optimizer.lr`, a number or a schedule, it moves the
    others in proportion, as it does with groups. `parts`: the optimizers, by pattern. Where parameters are packed together, each
    optimizer keeps its moments for all of that memory: one launch a step, and no gradient is copied.
    """

    name = "ByName"
    order = "torch"

    def __init__(self, params: Any, parts: dict[str, tuple[type[Optimizer], dict[str, Any]]], transforms: Any = None, lr: Any = None):
        found = dict.fromkeys(list_of(self.name, params))
        names = {p: name_of(p) or str(i) for i, p in enumerate(found)}
        if not isinstance(parts, dict) or not all([isinstance(pattern, str) for pattern in parts]):
            raise DTypeError(f'ByName: not optimizers by pattern: {parts!r}. Write {{pattern: (fp.AdamW, {{"lr": 1e-3}}), ...}}.')
        self.parts: dict[str, Optimizer] = {}
        self.model = Model(params)
        for pattern, spec in parts.items():
            cls, options = checked_spec(pattern, spec)
            mine = [p for p, name in names.items() if fnmatch.fnmatchcase(name, pattern)]
            if not mine:
                left = ", ".join(names.values()) or "none"
                raise StateError(f"ByName: no parameter left for the pattern '{pattern}': {left}. Fix the glob, or the order of patterns.")
            for p in mine:
                del names[p]
            self.parts[pattern] = cls(mine, **options)
        if names or not parts:
            raise StateError(f'ByName: no pattern for: {", ".join(names.values())}. Add one for the rest: "*".')
        self.transforms = transforms
        self.shares = self.shares_of([1.0] * len(parts))
        if lr is not None:
            self.lr = lr

    # ---- what transforms ask of an optimizer ------------------------------------------------------------------------------------------
    @property
    def params(self) -> list[Parameter]:  # type: ignore[override]
        """All parameters, pattern by pattern."""
        return [p for part in self.parts.values() for p in part.params]

    @property
    def names(self) -> dict[int, str]:
        """Their names by id."""
        return {number: name for part in self.parts.values() for number, name in part.names.items()}

    def frozen(self) -> frozenset[int]:
        """Ids of the parameters that do not require grad."""
        return frozenset().union(*[part.frozen() for part in self.parts.values()])

    @property
    def rates(self) -> JointRates:
        """Steps and rates."""
        return JointRates(self)

    # ---- options ------------------------------------------------------------------------------------------------------------------
    @property
    def first(self) -> Optimizer:
        return next(iter(self.parts.values()))

    @property
    def groups(self) -> Groups:
        """The groups of all the optimizers, pattern by pattern."""
        return Groups([group for part in self.parts.values() for group in part.groups])

    param_groups = groups

    @property
    def lr(self) -> float:
        """The first pattern's learning rate at the next step."""
        return self.first.lr

    @lr.setter
    def lr(self, value: Any) -> None:
        self.shares = self.shares_of(self.shares)
        for part, share in zip(self.parts.values(), self.shares, strict=True):
            if share is not None:
                rate: Any = value if share == 1.0 else Share(value, share) if callable(value) else value * share
                part.lr = rate

    def shares_of(self, known: list[float | None]) -> list[float | None]:
        """Each part's rate as a share of the first one's; None where that is 0: then it stays as it is."""
        base, shares = self.lr, []
        for part, share in zip(self.parts.values(), known, strict=True):
            lr = part.lr
            shares.append(share if share is not None and lr == base * share else lr / base if base else None)
        return shares

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget what set_grad() put into the parameters."""
        for part in self.parts.values():
            part.zero_grad(set_to_none)

    def __repr__(self) -> str:
        return "\n".join(["ByName:", *[f"  {pattern!r}: {part!r}" for pattern, part in self.parts.items()]])

    # ---- the step -----------------------------------------------------------------------------------------------------------------
    def step(self, grads: Any = None) -> Any:
        """As Optimizer.step(): with a GradientMap, a list of (id, parameter, gradient), or None for each parameter's `.grad`."""
        for part in self.parts.values():
            part.arrange()
        grads = grads if isinstance(grads, GradientMap) else self.as_map(grads)
        check_unscaled(self.name, grads)
        if recording():
            self.guard_chain()
        self.transform(grads)
        self.model.look(self, grads)
        found = [part.found_in(grads) for part in self.parts.values()]
        if refused(mark := mark_of(grads)):
            return False
        if not any([f is None or f for f in found]):
            text = "ByName: step() had nothing to update: no parameter has a gradient. Pass loss.backward()."
            warn(text)
            return False
        by = user_frame()
        for part, mine in zip(self.parts.values(), found, strict=True):
            part.take(grads, mine, mark, partial(writer, f"{self.name}, {part.name}", by))
        return True if mark is None or not recording() else mark.device.stream.number(mark, USE)

    def as_map(self, grads: Any) -> GradientMap:
        """What else step() takes, as a map."""
        if grads is None:
            rows = [(p, g) for p in self.params if (g := p.kept_grad()) is not None]
        else:
            rows = [(p, as_gradient(self.name, p, g)) for _, p, g in triples(self.name, grads) if g is not None]
            known = self.names
            if strange := [p.label for p, _ in rows if p.id not in known]:
                raise StateError(f"ByName.step: not one of its parameters: {strange[0]}. Pass those that it was made with.")
        return as_map({p.id: (p, g) for p, g in rows if p.requires_grad})

    # ---- state ----------------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain data: {"class", "order", "parts": {pattern: state of its optimizer}}, in the order of the patterns."""
        found: dict[str, Any] = {
            "class": self.name,
            "order": self.order,
            "parts": {key: part.state_dict() for key, part in self.parts.items()},
        }
        if self.transforms:
            found["transforms"] = [t.state_dict() for t in self.transforms]
        return found

    def load_state_dict(self, found: dict[str, Any]) -> None:
        """Restore state_dict(). Patterns and their order, classes, names and shapes are checked first; a failure changes nothing."""
        check_kind(self.name, self.order, found, {"parts"})
        saved = list(found["parts"]) if isinstance(found["parts"], dict) else type(found["parts"]).__name__
        if saved != list(self.parts):
            raise StateError(f"ByName: patterns differ: state {saved}, here {list(self.parts)}. Use the same patterns.")
        restore = [prepared(part, found["parts"][pattern]) for pattern, part in self.parts.items()]
        restore.append(checked_transforms(self.name, self.transforms, found))
        for put in restore:
            put()

    get_state = state_dict
    restore_state = load_state_dict


class JointRates:
    """The rates of all parts, as one: each part counts every step."""

    def __init__(self, optimizer: ByName):
        self.optimizer = optimizer

    @property
    def finished(self) -> int:
        """How many steps there were."""
        return self.optimizer.first.rates.finished

    def saved(self) -> list[Any]:
        return [self.optimizer.shares, *[part.rates.saved() for part in self.optimizer.parts.values()]]

    def restore(self, state: list[Any]) -> None:
        self.optimizer.shares, *saved = state
        for part, rates in zip(self.optimizer.parts.values(), saved, strict=True):
            part.rates.restore(rates)


def checked_spec(pattern: str, spec: Any) -> tuple[type[Optimizer], dict[str, Any]]:
    """What a user gives for a pattern. Raises DTypeError for anything but an optimizer's class and its options."""
    cls, options = spec if isinstance(spec, tuple | list) and len(spec) == 2 else (spec, {})
    if not (isinstance(cls, type) and issubclass(cls, Optimizer)) or not isinstance(options, dict):
        raise DTypeError(f"ByName: not an optimizer's class and its options: '{pattern}': {spec!r}. Write (fp.AdamW, {{\"lr\": 1e-3}}).")
    if options.get("transforms") is not None:
        raise DTypeError(f"ByName: transforms of one pattern: '{pattern}'. Give them to ByName, with params= for some parameters.")
    return cls, options
