"""Groups: the options of some of an optimizer's parameters, as dictionaries whose values are checked when they are set.

The first group is for parameters that no pattern names. "names" lists the parameters; "params" gives them themselves, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..backend.divert import changed
from ..dtypes import is_number
from ..errors import DTypeError
from .owner import Owned

POSITIVE = (0.0, np.inf)
RANGES = {  # from the first number on, below the second
    "lr": POSITIVE, "eps": POSITIVE, "weight_decay": POSITIVE, "momentum": POSITIVE, "lr_decay": POSITIVE, "rho": (0.0, 1.0),
    "alpha": (0.0, 1.0), "momentum_decay": POSITIVE, "initial_accumulator_value": POSITIVE,
    "dampening": (-np.inf, np.inf),
}  # fmt: skip
LR = {"lr"}
FLAGS = ("nesterov", "maximize", "amsgrad", "centered", "decoupled_weight_decay")


class Groups(tuple):  # type: ignore[type-arg]
    """An optimizer's groups: their options may be set, but none is put in place of another."""

    def refuse(self, *_: Any) -> Any:
        advice = "Set its options, optimizer.groups[0].update(lr=...), or use add_param_group()."
        raise TypeError(f"optimizer: groups are not replaced, taken out or put in by hand: there are {len(self)}. {advice}")

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = refuse


class Group(Owned, dict):
    """The options of some parameters. Setting one checks it as the constructor does; copies and pickles are plain dictionaries.

    `kept`: an optimizer's numbers() for these options, if it keeps one; another list as soon as one of them is another, so that what a
    thread makes of the old ones meanwhile is not kept. Lists become tuples, which nobody changes unseen.
    """

    def __init__(self, optimizer: Any, options: dict[str, Any]):
        super().__init__(fixed(options))
        self.kept: list[Callable[[int], tuple[float, ...]]] = []
        self.belong(optimizer)

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *changes: Any, **more: Any) -> None:
        """Set several options: all or none."""
        found = dict(*changes, **more)
        name, known = self.optimizer.name, [key for key in self if key != "names"]
        for key in found:
            if key not in known:
                raise TypeError(f"{name}: unknown option in a group: {key!r}. Known: {', '.join(known)}.")
        if "lr" in found and self.optimizer.rates.schedule is not None and self.optimizer.groups[0] is self:
            raise ValueError(f"{name}: a group has an lr beside a schedule: groups[0]. Set optimizer.lr, which takes the schedule's place.")
        self.optimizer.check({**self, **found})
        super().update(fixed(found))
        self.kept = []
        if found.keys() != LR:  # which moments are kept may be another now
            changed()

    def put(self, key: str, value: Any) -> None:
        """Set an option that is known to be a good one."""
        super().__setitem__(key, value)
        self.kept = []

    def __ior__(self, other: Any) -> Group:  # type: ignore[override, misc]
        self.update(other)
        return self

    def refuse(self, *_: Any) -> Any:
        raise TypeError(f"{self.optimizer.name}: an option cannot be removed from a group. Set another value.")

    __delitem__ = pop = popitem = clear = refuse

    def __missing__(self, key: str) -> Any:
        if key != "params":
            raise KeyError(f"{self.optimizer.name}: no such option in a group: '{key}'. Known: {', '.join(self)}.")
        return [p for p in self.optimizer.params if self.optimizer.groups[self.optimizer.group_of[p.id]] is self]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def name_of(p: Any) -> str:
    """The name that the user gave a parameter, or asked its model for; "" for none: states find such parameters by position."""
    return "" if p.passing else p.name


def fixed(options: dict[str, Any]) -> dict[str, Any]:
    """The same with tuples in the place of lists, except of names."""
    return {key: tuple(value) if isinstance(value, list) and key != "names" else value for key, value in options.items()}


def checked_groups(name: str, groups: Any, known: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The groups that a constructor was given. Raises TypeError for what is no dict of dicts, and for unknown options."""
    if "lr" not in known:
        raise TypeError(f"{name}: no lr among its options: {list(known)}. Pass {{'lr': lr, ...}} to super().__init__().")
    if groups is not None and not isinstance(groups, Mapping):
        raise DTypeError(f"{name}: groups is no dict: {type(groups).__name__}. Use {{'*.bias': {{'weight_decay': 0}}}}.")
    for pattern, changes in (groups or {}).items():
        if not isinstance(pattern, str) or not isinstance(changes, Mapping):
            row = f"{pattern!r}: {type(changes).__name__}"
            raise DTypeError(f"{name}: a group is no glob and dict of options: {row}. Use {{'*.bias': {{'weight_decay': 0}}}}.")
        unknown = set(changes) - set(known) - {"lr_scale"}
        if unknown:
            what = ", ".join(map(str, unknown))
            raise TypeError(f"{name}: unknown option in group '{pattern}': {what}. Known: {', '.join(known)}, lr_scale.")
        if "lr" in changes:
            check_range(name, "lr", changes["lr"], *RANGES["lr"])
    return dict(groups or {})


def check_options(name: str, options: dict[str, Any]) -> None:
    """Raise ValueError for impossible hyperparameters, DTypeError for what is no number."""
    for key, (low, high) in RANGES.items():
        if key in options:
            check_range(name, key, options[key], low, high)
    betas = options.get("betas", (0, 0))
    if not isinstance(betas, tuple | list) or len(betas) != 2 or not all([is_number(beta) and 0 <= beta < 1 for beta in betas]):
        raise ValueError(f"{name}: betas out of range: {betas}. Use two numbers in [0, 1).")
    for key in FLAGS:
        if not isinstance(options.get(key, False), bool | np.bool_):
            raise DTypeError(f"{name}: {key} is no yes or no: {options[key]!r}. Use True or False.")


def check_range(name: str, key: str, value: Any, low: float, high: float = np.inf) -> None:
    """Raise ValueError unless a number is from `low` on and below `high`, DTypeError for what is no number."""
    least = f" >= {low:g}" if low > -np.inf else ""
    if not isinstance(value, int | float | np.number) or isinstance(value, bool):  # a tensor's number may be another one later
        raise DTypeError(f"{name}: {key} is no number: {value!r}. Use a number{least}.")
    if not low <= value < high:
        below = f"{' and' if least else ''} < {high:g}" if high < np.inf else ""
        raise ValueError(f"{name}: {key} out of range: {value}. Use a number{least}{below}.")
