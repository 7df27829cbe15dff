"""Groups: the options of some of an optimizer's parameters, as dictionaries whose values are checked when they are set; and their rates.

The first group is for parameters that no pattern names. "names" lists the parameters; "params" gives them themselves, as in PyTorch.
The optimizer has one rate, a number or a schedule; a group's rate is that times a factor of its own. "lr" in a group is always a number.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..bus import changed
from ..core.errors import DTypeError, StateError
from ..dtypes import checked_number, is_number

POSITIVE = (0.0, math.inf)
RANGES = {  # from the first number on, below the second
    "lr": POSITIVE, "eps": POSITIVE, "weight_decay": POSITIVE, "momentum": POSITIVE, "lr_decay": POSITIVE, "rho": (0.0, 1.0),
    "alpha": (0.0, 1.0), "momentum_decay": POSITIVE, "initial_accumulator_value": POSITIVE, "dampening": (-math.inf, math.inf),
}  # fmt: skip
FLAGS = (
    *("nesterov", "maximize", "amsgrad", "centered", "decoupled_weight_decay"), *("decouple", "use_bias_correction", "safeguard_warmup"),
)  # fmt: skip
NO_DICTS = "Use {'*.bias': {'weight_decay': 0}}"


class Groups(tuple):  # type: ignore[type-arg]
    """An optimizer's groups: their options may be set, but none is put in place of another."""

    def refuse(self, *_: Any) -> Any:
        advice = "Set its options, optimizer.groups[0].update(lr=...), or use add_param_group()."
        raise TypeError(f"optimizer: groups are not replaced, taken out or put in by hand: there are {len(self)}. {advice}")

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = refuse


class Group(dict):  # type: ignore[type-arg]
    """The options of some parameters. Setting one checks it as the constructor does; copies and pickles are plain dictionaries. It does
    not keep its optimizer alive, whose moments are freed as soon as nobody has it.

    `kept`: an optimizer's numbers() for these options, if it keeps one; another list as soon as one of them is another, so that what a
    thread makes of the old ones meanwhile is not kept. Lists become tuples, which nobody changes unseen. `glob`: of the names that come
    into it, "" for none. `factor`: its rate as a share of the optimizer's; None for one that stays as it is, because the optimizer's was 0
    beside it."""

    def __init__(self, optimizer: Any, options: dict[str, Any], glob: str = "", factor: float | None = 1.0):
        super().__init__(fixed(options))
        self.kept: list[Callable[[int], tuple[float, ...]]] = []
        self.owner, self.glob, self.factor = weakref.ref(optimizer), glob, factor

    @property
    def optimizer(self) -> Any:
        """The one it belongs to."""
        if (found := self.owner()) is None:
            raise StateError("Group: its optimizer is gone: nobody keeps it. Keep the optimizer in a variable.")
        return found

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def update(self, *changes: Any, **more: Any) -> None:
        """Set several options: all or none."""
        found, optimizer = dict(*changes, **more), self.optimizer
        check_known(optimizer.name, "in a group", found, [key for key in self if key != "names"])
        if "lr" in found and optimizer.rates.schedule is not None and optimizer.groups[0] is self:
            what = "a group has an lr beside a schedule: groups[0]"
            raise ValueError(f"{optimizer.name}: {what}. Set optimizer.lr, which takes the schedule's place.")
        optimizer.check({**self, **found})
        super().update(fixed(found))
        self.kept = []
        if found.keys() != {"lr"}:  # which moments are kept may be another now
            changed(optimizer)

    def put(self, key: str, value: Any) -> None:
        """Set an option that is known to be a good one."""
        super().__setitem__(key, value)
        self.kept = []

    def setdefault(self, key: str, value: Any = None) -> Any:
        return self[key] if key in self else self.update({key: value})  # which refuses it

    def __ior__(self, other: Any) -> Group:  # type: ignore[override, misc]
        self.update(other)
        return self

    def refuse(self, *_: Any) -> Any:
        raise TypeError(f"{self.optimizer.name}: an option cannot be removed from a group. Set another value.")

    __delitem__ = pop = popitem = clear = refuse

    def __missing__(self, key: str) -> Any:
        if key != "params":
            raise KeyError(f"{self.optimizer.name}: no such option in a group: '{key}'. Known: {', '.join(self)}.")
        mine, optimizer = set(self["names"]), self.optimizer
        return [p for p in optimizer.params if optimizer.names[p.id] in mine]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def fixed(options: dict[str, Any]) -> dict[str, Any]:
    """The same with tuples in the place of lists, except of names."""
    return {key: tuple(value) if isinstance(value, list) and key != "names" else value for key, value in options.items()}


class Rates:
    """The groups, each with its rate, and how many steps are finished, which is what a schedule makes the rate of.

    A step asks the schedule before it launches anything. In a captured step begin() is an action of the host, so that each replay asks too.
    """

    def __init__(self, name: str, first: Group):
        self.name, self.groups, self.finished = name, Groups([first]), 0
        self.schedule: Callable[[int], float] | None = first["lr"] if callable(first["lr"]) else None
        first.put("lr", self.now())

    def add(self, group: Group, changes: dict[str, Any]) -> None:
        """There is one more group, with these options of its own."""
        base = self.now()
        if "lr" in changes:
            if "lr_scale" in changes or self.schedule is not None or callable(changes["lr"]):
                what = f"a group has an lr beside {'lr_scale' if 'lr_scale' in changes else 'a schedule'}: '{group.glob}'"
                raise ValueError(f"{self.name}: {what}. Use lr_scale, its share of the optimizer's lr.")
            group.factor = changes["lr"] / base if base else None
        else:
            group.factor = checked_number(self.name, "lr_scale", changes.get("lr_scale", 1.0))
            check_range(self.name, "lr_scale", group.factor, 0.0)
            group.put("lr", base * group.factor)
        dict.pop(group, "lr_scale", None)
        self.groups = Groups([*self.groups, group])

    def now(self) -> float:
        """The optimizer's rate: that of the next step."""
        return self.groups[0]["lr"] if self.schedule is None else checked_rate(self.name, self.schedule, self.finished)  # type: ignore[no-any-return]

    def of_groups(self, base: float) -> list[float]:
        """Each group's rate where the optimizer's is `base`. One that somebody set on a group counts as its ratio from then on."""
        first, *rest = self.groups
        for group in rest:
            if group.factor is not None and group["lr"] != first["lr"] * group.factor:
                group.factor = group["lr"] / first["lr"] if first["lr"] else None
        return [base, *[group["lr"] if group.factor is None else base * group.factor for group in rest]]

    def put(self, base: float) -> None:
        for group, lr in zip(self.groups, self.of_groups(base), strict=True):
            group.put("lr", lr)

    def set(self, lr: Any) -> None:
        """Have another rate or schedule from now on."""
        self.schedule = lr if callable(lr) else None
        self.put(self.now() if callable(lr) else lr)

    def begin(self) -> None:
        """What each step does first: ask the schedule, and count."""
        if self.schedule is not None:
            self.put(self.now())
        self.finished += 1

    def back(self) -> None:
        """Take the count of a step back whose gradients were not to be used."""
        self.finished -= 1

    # ---- state: of an optimizer, and of a replay that fails (engine/capture) ------------------------------------------------------
    def rows(self) -> list[dict[str, Any]]:
        """The groups as state_dict() shows them; beside a schedule with the count that it depends on."""
        rates = self.of_groups(self.now())
        found = [{**group, "names": list(group["names"]), "lr": lr} for group, lr in zip(self.groups, rates, strict=True)]
        if self.schedule is not None:
            found[0]["finished"] = self.finished
        return found

    def saved(self) -> Any:
        if self.schedule is None:  # then begin() only counts
            return self.finished
        return self.finished, self.schedule, [(group.factor, group["lr"]) for group in self.groups]

    def restore(self, state: Any) -> None:
        if isinstance(state, int):
            self.finished = state
        else:
            self.finished, self.schedule, rates = state
            for group, (factor, lr) in zip(self.groups, rates, strict=True):
                group.factor = factor
                group.put("lr", lr)


# ---- checks ------------------------------------------------------------------------------------------------------------------------
def checked_groups(name: str, groups: Any, known: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The groups that a constructor was given. Raises TypeError for what is no dict of dicts, and for unknown options."""
    if "lr" not in known:
        raise TypeError(f"{name}: no lr among its options: {list(known)}. Pass {{'lr': lr, ...}} to super().__init__().")
    if groups is not None and not isinstance(groups, Mapping):
        raise DTypeError(f"{name}: groups is no dict: {type(groups).__name__}. {NO_DICTS}.")
    for pattern, changes in (groups or {}).items():
        if not isinstance(pattern, str) or not isinstance(changes, Mapping):
            raise DTypeError(f"{name}: a group is no glob and dict of options: {pattern!r}: {type(changes).__name__}. {NO_DICTS}.")
        check_known(name, f"in group '{pattern}'", changes, [*known, "lr_scale"])
        if "lr" in changes:
            check_range(name, "lr", changes["lr"], *RANGES["lr"])
    return dict(groups or {})


def check_known(name: str, where: str, options: Iterable[Any], known: list[str]) -> None:
    """Raise TypeError for options that the optimizer does not have."""
    if unknown := [key for key in options if key not in known]:
        raise TypeError(f"{name}: unknown option {where}: {', '.join(map(str, unknown))}. Known: {', '.join(known)}.")


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


def check_range(name: str, key: str, value: Any, low: float, high: float = math.inf) -> None:
    """Raise ValueError unless a number is from `low` on and below `high`, DTypeError for what is no number."""
    least = f" >= {low:g}" if low > -math.inf else ""
    if not plain_number(value):
        raise DTypeError(f"{name}: {key} is no number: {value!r}. Use a number{least}.")
    if not low <= value < high:
        below = f"{' and' if least else ''} < {high:g}" if high < math.inf else ""
        raise ValueError(f"{name}: {key} out of range: {value}. Use a number{least}{below}.")


def checked_rate(name: str, schedule: Any, step: int) -> float:
    """The rate that a schedule gives."""
    lr = schedule(step)
    if not plain_number(lr):
        raise DTypeError(f"{name}: the schedule gave no number: {type(lr).__name__} after {step} steps. Return a float.")
    if not 0 <= lr < math.inf:
        raise ValueError(f"{name}: lr out of range: {lr}, from the schedule after {step} steps. Return a number >= 0.")
    return float(lr)


def plain_number(value: Any) -> bool:
    """Whether it stays what it is: a tensor's number may be another one later."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
