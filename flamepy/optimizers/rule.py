"""Rule: what a class of optimizers says of itself: its formula, the slots it keeps, the numbers it computes with.

    class Signum(flamepy.optimizers.Optimizer): ...     # docs/extending.md

What users write is checked as soon as Python has read the class: a slot that was forgotten would make another argument of each.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.formula.bind import typed
from ..backend.plain.words import ON_ARRAYS
from ..dtypes import is_number
from ..op.base import is_own
from ..op.checks import FLOAT64, compilable, tried
from .block import NUMBERS, Launch

MOST_SLOTS = 3  # that a launch takes beside the parameters


class Rule:
    """`formula(p, slots ..., g, numbers ..., *_)` gives p and the slots anew, each element by itself, in words of flamepy.words: the
    gradient is g, clipped; the numbers are those of numbers(). `slots`: names of the moments, which are zeros at first and saved.

    A formula of a user's is taken as it is at the definition of the class. Raises TypeError or ValueError for one that does not go with
    the slots, or cannot be compiled.
    """

    name: str
    slots: tuple[str, ...] = ()
    formula: Callable

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if is_own(cls):
            return
        new = {"formula", "slots"} & vars(cls).keys()
        if "name" not in vars(cls) and (new or cls.name == "optimizer"):
            cls.name = cls.__name__
        if not isinstance(cls.slots, tuple) or not all([isinstance(s, str) and s not in ("step", "master") for s in cls.slots]):
            raise TypeError(f"{cls.name}: slots are no names: {cls.slots!r}. Write slots = ('m',), one name for each moment.")
        formula = inspect.getattr_static(cls, "formula", None)
        formula = formula.__func__ if isinstance(formula, staticmethod) else formula
        if new and formula is not None and not isinstance(formula, property):
            cls.formula = staticmethod(compilable(cls.name, formula, rest=True))
            check_formula(cls.name, cls.formula, cls.slots)

    def numbers(self, group: dict[str, Any], step: int) -> Sequence[float]:
        """What the formula gets after the gradient, at most NUMBERS numbers, for parameters of a group that are updated for the `step`-th
        time."""
        raise NotImplementedError(f"{self.name}: no numbers(): its formula has none to compute with. Write numbers(self, group, step).")

    def write(self, to: Launch) -> None:
        """All launches of a step on one block: this one, unless an optimizer needs more."""
        to.update(self.formula, (to.block.master, *to.block.state.values()))

    def check_numbers(self, group: Any) -> None:
        """Raise TypeError where a user's numbers() does not give what the formula asks for, or there is no formula."""
        if is_own(type(self)) or type(self).write is not Rule.write:
            return
        if not hasattr(self, "formula"):
            raise TypeError(f"{self.name}: no formula: the class has none. Write {form_of(self.slots)}.")
        wanted, found = asked_for(self.formula), self.numbers(group, 1)
        if not isinstance(found, tuple | list) or not all([is_number(x) for x in found]):
            raise TypeError(f"{self.name}: numbers() gives no tuple of numbers: {found!r}. Return one, such as (group['lr'],).")
        if not len(wanted) <= len(found) <= NUMBERS:
            asked = f"{len(found)}, the formula asks for {', '.join(wanted)}"
            raise TypeError(f"{self.name}: numbers() gives another count of numbers: {asked}. Return one for each, at most {NUMBERS}.")


def form_of(slots: tuple[str, ...]) -> str:
    """How a formula with these slots begins."""
    return f"formula({', '.join(('p', *slots, 'g', 'lr', '*_'))})"


def asked_for(formula: Any) -> list[str]:
    """The names of a formula's arguments behind g."""
    names = [name for name, p in inspect.signature(formula).parameters.items() if p.kind is not p.VAR_POSITIONAL]
    return names[names.index("g") + 1 :] if "g" in names else []


def check_formula(name: str, formula: Any, slots: tuple[str, ...]) -> None:
    """Raise TypeError for a formula that does not go with the slots."""
    given = inspect.signature(formula)
    names = [key for key, p in given.parameters.items() if p.kind is not p.VAR_POSITIONAL]
    asked, form = asked_for(formula), form_of(slots)
    if "g" not in names or names.index("g") < 1 or names[0] == "self":
        raise TypeError(f"{name}: the formula is not one of p, the slots and the gradient g: {given}. Write {form}.")
    if (taken := names[1 : names.index("g")]) != list(slots):
        both = f"it takes {taken} between p and g, slots are {list(slots)}"
        raise TypeError(f"{name}: the formula and the slots differ: {both}. Write slots = {tuple(taken)}, or {form}.")
    if len(slots) > MOST_SLOTS:
        raise TypeError(f"{name}: too many slots: {len(slots)}. Keep at most {MOST_SLOTS}.")
    if len(asked) > NUMBERS or (len(asked) < NUMBERS and len(names) == len(given.parameters)):
        raise TypeError(f"{name}: the formula gets {NUMBERS} numbers: {given}. Name those you need, then *_ for the rest.")
    values = [*[np.full(2, 0.5) for _ in range(len(slots) + 2)], *[np.float64(0.5)] * NUMBERS]
    found = tried(name, formula, typed(formula, FLOAT64, ON_ARRAYS, False), values, "arrays")
    got = len(found) if isinstance(found, tuple) else 0
    if got != (len(slots) + 1 if slots else 0):
        wanted = ", ".join(("p", *slots))
        raise TypeError(f"{name}: the formula returns {got or 1} of {len(slots) + 1} results: {wanted}. Return {wanted}.")
