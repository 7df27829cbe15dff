"""What all schedules share: they show how they were made and are pickled so, and their arguments are checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec

from ..dtypes import is_number
from ..errors import DTypeError

Schedule = Callable[[int], float]
P = ParamSpec("P")


class Named:
    """A schedule that shows how it was made, and is pickled so."""

    def __init__(self, made: Callable[..., Schedule], make: Callable[..., Schedule], args: tuple[Any, ...], options: dict[str, Any]):
        args = tuple([list(a) if isinstance(a, list) else a for a in args])  # what the caller does to a list later changes nothing
        options = {key: list(a) if isinstance(a, list) else a for key, a in options.items()}
        self.made = made, args, options
        self.lr_at = make(*args, **options)

    def __call__(self, step: int) -> float:
        return self.lr_at(count("schedule", "step", step, 0))

    def __reduce__(self) -> tuple[Any, ...]:
        made, args, options = self.made
        return partial(made, *args, **options), ()

    def __repr__(self) -> str:
        made, args, options = self.made
        return f"{made.__name__}({', '.join([*map(repr, args), *[f'{key}={value!r}' for key, value in options.items()]])})"


def named(make: Callable[P, Schedule]) -> Callable[P, Schedule]:
    """Decorator: what the function returns is a Named."""

    @wraps(make)
    def made(*args: P.args, **options: P.kwargs) -> Schedule:
        return Named(made, make, args, options)

    return made


# ---- arguments -----------------------------------------------------------------------------------------------------------------------
def rate(op: str, what: str, value: Any, above: float = -1.0) -> float:
    """A finite number >= 0 (or > `above`), as a float. Raises DTypeError for what is no number, ValueError."""
    if not is_number(value):
        raise DTypeError(f"{op}: {what} is no number: {value!r}. Use a float.")
    found = float(value)
    if not (max(0.0, above) <= found < math.inf) or found == above:
        bound = ">= 0" if above < 0 else f"> {above:g}"
        raise ValueError(f"{op}: {what} must be {'not negative' if above < 0 else 'positive'} and finite: {found}. Use a number {bound}.")
    return found


def rates(op: str, **values: Any) -> list[float]:
    """Finite numbers >= 0, in this order."""
    return [rate(op, what, value) for what, value in values.items()]


def count(op: str, what: str, value: Any, least: int = 1) -> int:
    """A whole number (1e4 is one) that is at least so large. Raises DTypeError for what is none, ValueError."""
    if not is_number(value) or (math.isfinite(float(value)) and float(value) != int(value)):
        raise DTypeError(f"{op}: {what} is no whole number: {value!r}. Use an int.")
    if not least <= float(value) < math.inf:
        raise ValueError(f"{op}: {what} must be {'positive' if least else 'not negative'}: {value}. Use a whole number >= {least}.")
    return int(value)


def marks(op: str, milestones: Any) -> list[int]:
    """Milestones as ints."""
    if not isinstance(milestones, Sequence) or isinstance(milestones, str):
        raise DTypeError(f"{op}: milestones are no list: {milestones!r}. Use a list of step numbers.")
    return [count(op, f"milestone {i}", m, 0) for i, m in enumerate(milestones)]


def power(base: float, n: float) -> float:
    """base to the power n; infinite where it is too large, which an optimizer refuses with the number of the step."""
    try:
        return float(base**n)
    except OverflowError:
        return math.inf
