"""Rates: the learning rate of each group of an optimizer, and how many steps are finished, which is what a schedule makes it of.

The optimizer has one rate, a number or a schedule; a group's rate is that times a factor of its own. "lr" in a group is always a number.
A step asks the schedule before it launches anything. In a captured step begin() is an action of the host, so that each replay asks too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import checked_number
from ..errors import DTypeError, StateError
from .owner import Owned


class Rates(Owned):
    """`factors`: of the groups after the first; None for a rate that stays as it is, because the optimizer's was 0 beside it."""

    def __init__(self, optimizer: Any, lr: Any, changes: dict[str, dict[str, Any]]):
        self.belong(optimizer)
        self.finished = 0
        self.schedule: Callable[[int], float] | None = lr if callable(lr) else None
        base = self.asked(0) if callable(lr) else lr
        self.factors = [self.factor(pattern, base, options) for pattern, options in changes.items()]
        factors: list[Any] = [1.0, *self.factors]
        for group, factor in zip(optimizer.groups, factors, strict=True):
            if "lr_scale" in group or callable(group["lr"]):
                group.put("lr", base * factor)
            dict.pop(group, "lr_scale", None)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "owner"}

    def add(self, factor: float | None) -> None:
        """There is one more group, whose rate is that times the optimizer's."""
        self.factors.append(factor)
        if factor is not None:
            self.optimizer.groups[-1].put("lr", self.now() * factor)

    def factor(self, pattern: str, base: float, changes: dict[str, Any]) -> float | None:
        """A group's rate divided by the optimizer's."""
        name = self.optimizer.name
        if "lr" in changes:
            if "lr_scale" in changes or self.schedule is not None or callable(changes["lr"]):
                other = "lr_scale" if "lr_scale" in changes else "a schedule"
                raise ValueError(f"{name}: a group has an lr beside {other}: '{pattern}'. Use lr_scale, its share of the optimizer's lr.")
            return changes["lr"] / base if base else None
        factor: float = checked_number(name, "lr_scale", changes.get("lr_scale", 1.0))
        if not 0 <= factor < math.inf:
            raise ValueError(f"{name}: lr_scale out of range: {factor}. Use a number >= 0.")
        return factor

    def asked(self, step: int) -> float:
        """What the schedule says after so many steps. Raises ValueError or DTypeError for what is no rate."""
        lr: Any = self.schedule(step)  # type: ignore[misc]
        return checked(self.optimizer.name, lr, step)

    def now(self) -> float:
        """The optimizer's rate: that of the next step."""
        return self.optimizer.groups[0]["lr"] if self.schedule is None else self.asked(self.finished)  # type: ignore[no-any-return]

    def of_groups(self, base: float) -> list[float]:
        """Each group's rate where the optimizer's is `base`. One that somebody set on a group counts as its ratio from then on."""
        first, *rest = self.optimizer.groups
        for i, (group, factor) in enumerate(zip(rest, self.factors, strict=True)):
            if factor is not None and group["lr"] != first["lr"] * factor:
                self.factors[i] = group["lr"] / first["lr"] if first["lr"] else None
        rates = [group["lr"] if factor is None else base * factor for group, factor in zip(rest, self.factors, strict=True)]
        return [base, *rates]

    def put(self, base: float) -> None:
        for group, lr in zip(self.optimizer.groups, self.of_groups(base), strict=True):
            group.put("lr", lr)

    def set(self, lr: Any) -> None:
        """Have another rate or schedule from now on."""
        self.schedule = lr if callable(lr) else None
        self.put(self.asked(self.finished) if callable(lr) else lr)

    def begin(self) -> None:
        """What each step does first: ask the schedule, and count."""
        if self.schedule is not None:
            self.put(self.asked(self.finished))
        self.finished += 1

    # ---- state: of an optimizer, and of a replay that fails (backend/divert.py) ------------------------------------------------------
    def groups(self) -> list[dict[str, Any]]:
        """The groups as state_dict() shows them; beside a schedule with the count that it depends on."""
        rows = zip(self.optimizer.groups, self.of_groups(self.now()), strict=True)
        found = [{**group, "names": list(group["names"]), "lr": lr} for group, lr in rows]
        if self.schedule is not None:
            found[0]["finished"] = self.finished
        return found

    def saved(self) -> Any:
        if self.schedule is None:  # then begin() only counts
            return self.finished
        return self.finished, self.schedule, list(self.factors), [group["lr"] for group in self.optimizer.groups]

    def restore(self, state: Any) -> None:
        if isinstance(state, int):
            self.finished = state
            return
        self.finished, self.schedule, self.factors, rates = state
        for group, lr in zip(self.optimizer.groups, rates, strict=True):
            group.put("lr", lr)


def checked(name: str, lr: Any, step: int) -> float:
    """A rate that a schedule gave."""
    if not isinstance(lr, int | float | np.number) or isinstance(lr, bool):
        raise DTypeError(f"{name}: the schedule gave no number: {type(lr).__name__} after {step} steps. Return a float.")
    if not 0 <= lr < math.inf:
        raise ValueError(f"{name}: lr out of range: {lr}, from the schedule after {step} steps. Return a number >= 0.")
    return float(lr)


def finished_in(name: str, state: dict[str, Any]) -> int:
    """The number of finished steps in a saved state; one saved without a schedule only has each parameter's own."""
    n = state["groups"][0].get("finished", max([int(row["step"]) for row in state["state"].values()], default=0))
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise StateError(f"{name}: not a step count: finished is {n!r}. Restore what state_dict() returned.")
    return n
