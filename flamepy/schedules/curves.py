"""Learning rates as functions of the number of finished steps, and of nothing else, so that resuming needs no state.

    optimizer = AdamW(model, lr=warmup_cosine(1e-3, warmup=100, n=2000, end=1e-4))
    lr = sequence([warmup(1e-3, 100), cosine(1e-3, 900)], [100])

Schedules show how they were made and are pickled so; their arguments are checked when they are made. The only one with a state is
ReduceOnPlateau: save plateau.state_dict() beside the optimizer's.
"""

from __future__ import annotations

import bisect
import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec

from ..advice import advise
from ..core.errors import DTypeError, StateError
from ..dtypes import is_number

Schedule = Callable[[int], float]
P = ParamSpec("P")
MODES = "triangular", "triangular2", "exp_range"


class Named:
    """A schedule that shows how it was made, and is pickled so."""

    def __init__(self, made: Callable[..., Schedule], args: tuple[Any, ...], options: dict[str, Any], lr_at: Schedule):
        self.made, self.lr_at = (made, args, options), lr_at

    def __call__(self, step: int) -> float:
        return self.lr_at(count("schedule", "step", step, 0))

    def __reduce__(self) -> tuple[Any, ...]:
        made, args, options = self.made
        return partial(made, *args, **options), ()

    def __repr__(self) -> str:
        made, args, options = self.made
        return f"{made.__name__}({', '.join([*map(repr, args), *[f'{key}={value!r}' for key, value in options.items()]])})"


advise(Named, "schedule")


def named(zero: tuple[str, ...] = (), positive: tuple[str, ...] = ()) -> Callable[[Callable[P, Schedule]], Callable[P, Schedule]]:
    """Decorator: what the function returns is a Named. The function gets its arguments checked, by their types here: a float is finite
    and not negative (`positive`: nor zero), an int is a whole number, 1 or more (`zero`: or none); milestones are whole numbers."""

    def checked(op: str, key: str, kind: str, value: Any) -> Any:
        if kind == "float":
            return rate(op, key, value, 0.0 if key in positive else -1.0)
        if kind == "Sequence[int]":
            return marks(op, value)
        return count(op, key, value, int(key not in zero)) if kind == "int" or (kind == "int | None" and value is not None) else value

    def decorated(make: Callable[P, Schedule]) -> Callable[P, Schedule]:
        @wraps(make)
        def made(*args: P.args, **options: P.kwargs) -> Schedule:
            rows = tuple([list(a) if isinstance(a, list) else a for a in args])  # what the caller does to a list later changes nothing
            kept = {key: list(a) if isinstance(a, list) else a for key, a in options.items()}
            try:
                given = inspect.signature(make).bind(*rows, **kept)
            except TypeError:
                make(*args, **options)  # says so with the function's name
                raise
            for key, value in given.arguments.items():
                given.arguments[key] = checked(make.__name__, key, make.__annotations__[key], value)
            return Named(made, rows, kept, make(*given.args, **given.kwargs))

        return made

    return decorated


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


# ---- one way -----------------------------------------------------------------------------------------------------------------------------
@named()
def constant(lr: float) -> Schedule:
    """Always lr."""
    return lambda step: lr


@named()
def step(lr: float, every: int, gamma: float = 0.1) -> Schedule:
    """lr * gamma^(steps // every)."""
    return lambda step: lr * power(gamma, step // every)


@named()
def multistep(lr: float, milestones: Sequence[int], gamma: float = 0.1) -> Schedule:
    """lr, times gamma at each milestone passed, in whichever order they are listed."""
    passed = sorted(milestones)
    return lambda step: lr * power(gamma, bisect.bisect_right(passed, step))


@named()
def exponential(lr: float, gamma: float) -> Schedule:
    """lr * gamma^steps."""
    return lambda step: lr * power(gamma, step)


@named()
def linear(start: float, end: float, n: int) -> Schedule:
    """From start to end in n steps, then end."""
    return lambda step: start + (end - start) * min(step, n) / n


@named(zero=("n",))
def warmup(lr: float, n: int) -> Schedule:
    """lr * (steps + 1) / n during the first n steps, then lr: the first step already moves."""
    return lambda step: lr * min(1.0, (step + 1) / n) if n > 0 else lr


@named()
def cosine(lr: float, n: int, end: float = 0.0) -> Schedule:
    """Half a cosine from lr to end in n steps, then end (Loshchilov & Hutter 2016, arXiv:1608.03983)."""
    return lambda step: end + 0.5 * (lr - end) * (1.0 + math.cos(math.pi * min(step, n) / n))


@named(zero=("warmup",))
def warmup_cosine(lr: float, warmup: int, n: int, end: float = 0.0) -> Schedule:
    """Linear warm-up over `warmup` steps, then a cosine from lr to end until step n."""
    if warmup > n:
        raise ValueError(f"warmup_cosine: the warm-up is longer than the run: {warmup} > {n}. Shorten it; n counts all steps.")
    fall = cosine(lr, max(1, n - warmup), end)
    return lambda step: lr * (step + 1) / warmup if step < warmup else fall(step - warmup)


@named()
def poly(lr: float, n: int, end: float = 0.0, power: float = 1.0) -> Schedule:
    """end + (lr - end) * (1 - steps / n)^power, then end."""
    return lambda step: end + (lr - end) * (1.0 - min(step, n) / n) ** power if step < n else end


@named()
def noam(width: int, warmup: int, factor: float = 1.0) -> Schedule:
    """factor * width^-0.5 * min(t^-0.5, t * warmup^-1.5) for step number t = 1, 2, ... (Vaswani et al. 2017, arXiv:1706.03762)."""
    return lambda step: factor * width**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5)


@named(zero=("warmup", "warmdown"))
def warmdown(lr: float, warmup: int, warmdown: int, total: int, final: float = 0.0) -> Schedule:
    """Linear up over `warmup` steps, flat, then linear down to lr * final over the last `warmdown` steps of `total`."""
    if warmup + warmdown > total:
        raise ValueError(f"warmdown: longer than the run: {warmup} + {warmdown} > {total}. Shorten the warm-up or the warm-down.")

    def lr_at(step: int) -> float:
        if step < warmup:
            return lr * (step + 1) / warmup
        left = total - step
        if left >= warmdown or warmdown == 0:
            return lr
        share = max(0.0, left / warmdown)
        return lr * (share + (1.0 - share) * final)

    return lr_at


# ---- up and down -------------------------------------------------------------------------------------------------------------------------
@named(positive=("start", "end"))
def one_cycle(lr: float, n: int, rise: float = 0.3, start: float = 25.0, end: float = 1e4) -> Schedule:
    """Cosine from lr / start up to lr during the share `rise` of n steps, then down to lr / start / end at the last of them.

    The arithmetic of PyTorch's OneCycleLR (arXiv:1708.07120): the top is at step rise * n - 1, the end at step n - 1.
    """
    if rise > 1:
        raise ValueError(f"one_cycle: rise is a share of the run: {rise}. Use a number in [0, 1].")
    top, last = rise * n - 1, n - 1

    def between(a: float, b: float, share: float) -> float:
        return b + 0.5 * (a - b) * (1.0 + math.cos(math.pi * share))

    def lr_at(step: int) -> float:
        if step <= top:
            return between(lr / start, lr, step / top) if top else lr
        return between(lr, lr / start / end, (step - top) / (last - top)) if step < last else lr / start / end

    return lr_at


@named()
def cyclic(low: float, high: float, up: int = 2000, down: int | None = None, mode: str = "triangular", gamma: float = 1.0) -> Schedule:
    """From low to high in `up` steps and back in `down` (None: as many), again and again (Smith 2015, arXiv:1506.01186).

    mode "triangular2" halves the height with each cycle, "exp_range" multiplies it by gamma^steps; PyTorch's CyclicLR.
    """
    whole = up + (up if down is None else down)
    if not isinstance(mode, str) or mode not in MODES:
        raise ValueError(f"cyclic: unknown mode: {mode!r}. Use one of {', '.join(MODES)}.")

    def lr_at(step: int) -> float:
        cycle, at = divmod(step, whole)
        height = at / up if at <= up else (whole - at) / (whole - up)
        scale = power(0.5, cycle) if mode == "triangular2" else power(gamma, step) if mode == "exp_range" else 1.0
        return low + (high - low) * height * scale

    return lr_at


@named()
def cosine_restarts(lr: float, n: int, factor: int = 1, end: float = 0.0) -> Schedule:
    """A cosine from lr to end in n steps, then again from lr, each time `factor` times as long (SGDR, arXiv:1608.03983).

    PyTorch's CosineAnnealingWarmRestarts, with T_0 = n and T_mult = factor.
    """

    def lr_at(step: int) -> float:
        at, length = step, n
        if factor == 1:
            at %= n
        while at >= length:
            at, length = at - length, length * factor
        return end + 0.5 * (lr - end) * (1.0 + math.cos(math.pi * at / length))

    return lr_at


# ---- made of others ----------------------------------------------------------------------------------------------------------------------
def schedule_of(op: str, given: Any) -> Schedule:
    """A schedule, or a number as one."""
    if is_number(given) and not callable(given):
        return constant(rate(op, "a schedule", given))
    if not callable(given):
        raise DTypeError(f"{op}: neither a schedule nor a number: {given!r}. Use constant(lr), or a function of the step number.")
    return given  # type: ignore[no-any-return]


@named()
def sequence(schedules: Sequence[Schedule | float], milestones: Sequence[int]) -> Schedule:
    """The first schedule until the first milestone, then the second, which begins at its own step 0, and so on; SequentialLR."""
    parts = schedules if isinstance(schedules, Sequence) else []
    found, at = [schedule_of("sequence", s) for s in parts], list(milestones)
    if not found or len(found) != len(at) + 1:
        raise ValueError(f"sequence: {len(found)} schedules have {len(found) - 1} milestones between them: {at}. Give one for each change.")
    if sorted(set(at)) != at or at[:1] == [0]:
        raise ValueError(f"sequence: milestones do not rise: {at}. Give step numbers in order, from 1 on.")

    def lr_at(step: int) -> float:
        i = bisect.bisect_right(at, step)
        return found[i](step - (at[i - 1] if i else 0))

    return lr_at


@named()
def product(*schedules: Schedule | float) -> Schedule:
    """All of them multiplied at each step: a schedule scaled by a number, or shaped by another (ChainedScheduler)."""
    if not schedules:
        raise ValueError("product: nothing to multiply: 0 schedules. Give at least one.")
    found = [schedule_of("product", s) for s in schedules]
    return lambda step: math.prod([s(step) for s in found])


# ---- a rate with a memory ----------------------------------------------------------------------------------------------------------------
class ReduceOnPlateau:
    """lr, times `factor` whenever more than `patience` records in a row were no better than the best, down to min_lr.

    Better means below (mode "min") or above ("max") the best by more than the share `threshold` of it. After a fall the next `cooldown`
    records do not count. NaN is not better. PyTorch's ReduceLROnPlateau with threshold_mode="rel" and eps=0.
    """

    def __init__(
        self, lr: float, factor: float = 0.1, patience: int = 10, threshold: float = 1e-4, mode: str = "min", cooldown: int = 0,
        min_lr: float = 0.0,
    ):  # fmt: skip
        op = "ReduceOnPlateau"
        self.lr, self.min_lr = rate(op, "lr", lr), rate(op, "min_lr", min_lr)
        self.factor, self.threshold = rate(op, "factor", factor), rate(op, "threshold", threshold)
        self.patience, self.cooldown = count(op, "patience", patience, 0), count(op, "cooldown", cooldown, 0)
        if self.factor >= 1:
            raise ValueError(f"{op}: factor must be below 1: {factor}. Use the share that is left of the rate, 0.1.")
        if not isinstance(mode, str) or mode not in ("min", "max"):
            raise ValueError(f"{op}: unknown mode: {mode!r}. Use 'min' for losses, 'max' for accuracies.")
        self.mode = mode
        self.best = math.inf if mode == "min" else -math.inf
        self.bad = self.waiting = 0

    def __call__(self, step: int) -> float:
        return self.lr

    def better(self, metric: float) -> bool:
        if self.mode == "min":
            return metric < self.best * (1.0 - self.threshold)
        return metric > self.best * (1.0 + self.threshold)

    def record(self, metric: float) -> bool:
        """Take note of a metric; whether the rate fell."""
        if not is_number(metric) and getattr(metric, "size", 0) != 1:
            raise DTypeError(f"ReduceOnPlateau: the metric is no number: {metric!r}. Record a float.")
        value = float(metric)
        if self.better(value):
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        if self.waiting > 0:
            self.waiting, self.bad = self.waiting - 1, 0
        if self.bad <= self.patience:
            return False
        before, self.lr = self.lr, min(self.lr, max(self.lr * self.factor, self.min_lr))
        self.waiting, self.bad = self.cooldown, 0
        return self.lr < before

    def state_dict(self) -> dict[str, Any]:
        return {"lr": self.lr, "best": self.best, "bad": self.bad, "waiting": self.waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Raises StateError for anything else, and changes nothing then."""
        if not isinstance(state, dict) or set(state) != {"lr", "best", "bad", "waiting"}:
            what = sorted(state) if isinstance(state, dict) else type(state).__name__
            raise StateError(f"ReduceOnPlateau: not its state: {what}. Restore what state_dict() returned.")
        try:
            lr, best = rate("ReduceOnPlateau", "lr", state["lr"]), float(state["best"])
            bad, waiting = count("ReduceOnPlateau", "bad", state["bad"], 0), count("ReduceOnPlateau", "waiting", state["waiting"], 0)
        except (TypeError, ValueError) as problem:
            raise StateError(f"ReduceOnPlateau: a damaged state: {state}. Restore what state_dict() returned.") from problem
        self.lr, self.best, self.bad, self.waiting = lr, best, bad, waiting

    def __repr__(self) -> str:
        shown = [f"{key}={getattr(self, key)!r}" for key in ("factor", "patience", "threshold", "mode", "cooldown", "min_lr")]
        return f"ReduceOnPlateau({self.lr!r}, {', '.join(shown)})"
