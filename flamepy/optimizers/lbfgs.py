"""L-BFGS: Newton's direction from the last changes of the gradient (Liu & Nocedal 1989). Arithmetic of torch.optim.LBFGS.

    def closure():
        return F.mse_loss(model(x), y)          # the loss alone: the optimizer calls backward()
    loss = optimizer.step(closure)              # at the beginning of the step

For all the data at once and few parameters: each step evaluates the loss several times. All vectors here hold all parameters, flat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from .. import ops
from ..autograd import enable_grad, no_grad
from ..creation import ones_like, zeros_like
from ..dtypes import HALF, float64
from ..engine.named_map import check_device
from ..errors import DTypeError, NonFiniteError, StateError, warn
from ..tensors import Tensor, tensor
from .given import check_unscaled, list_of, name_of
from .groups import check_options, check_range
from .line_search import Point, strong_wolfe
from .state import Acts, Saved

COUNTS = ("max_iter", "max_eval", "history_size")


@dataclass
class History:
    """What is kept from step to step. `changes`: of the gradient, for each of `moves`, of the parameters; `inverses`: of their products."""

    iterations: int = 0
    evaluations: int = 0
    t: float = 0.0
    scale: float = 1.0
    direction: Any = None
    gradient: Any = None
    changes: list[Any] = field(default_factory=list)
    moves: list[Any] = field(default_factory=list)
    inverses: list[float] = field(default_factory=list)


VECTORS, NUMBERS, LISTS = ("direction", "gradient"), ("iterations", "evaluations", "t", "scale"), ("changes", "moves")


class LBFGS(Saved):
    """Newton's direction from the last changes of the gradient, history_size of them.

    A step does up to max_iter iterations and about max_eval evaluations (None: 1.25 max_iter). line_search_fn: "strong_wolfe", or None
    for steps of length lr. No groups, no transforms, no 16-bit parameters; not inside capture(), as it decides by the loss."""

    name = "LBFGS"

    def __init__(
        self, params: Any, lr: float = 1.0, max_iter: int = 20, max_eval: int | None = None, tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None,
    ):  # fmt: skip
        self.params = list(dict.fromkeys(list_of(self.name, params)))
        self.options: dict[str, Any] = {"lr": lr, "max_iter": max_iter, "max_eval": max_eval, "history_size": history_size}
        self.options |= {"tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "line_search_fn": line_search_fn}
        self.check(self.options)
        self.history = History()
        for p in self.params:
            if p.dtype in HALF:
                raise DTypeError(f"LBFGS: {p.label} is {p.dtype}: its steps are too small for 16 bits. Use float32 or float64.")
            check_device(self.name, p.label, self.params[0].device, p)
        self.dtype = float64 if any(p.dtype == float64 for p in self.params) else self.params[0].dtype
        self.names = [name_of(p) or str(i) for i, p in enumerate(self.params)]

    def check(self, options: dict[str, Any]) -> None:
        """Raise ValueError for impossible options; max_eval None becomes a number."""
        check_options(self.name, options)
        for key in COUNTS:
            if options[key] is None and key == "max_eval":
                options[key] = options["max_iter"] * 5 // 4
            if not isinstance(options[key], int) or isinstance(options[key], bool) or options[key] < 1:
                raise ValueError(f"LBFGS: {key} must be a count: {options[key]!r}. Use a whole number from 1 on.")
        for key in ("tolerance_grad", "tolerance_change"):
            check_range(self.name, key, options[key], 0.0)
        if options["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: unknown line_search_fn: {options['line_search_fn']!r}. Use None or 'strong_wolfe'.")

    @property
    def lr(self) -> float:
        """The length of a step, or of the first one that a line search tries."""
        return self.options["lr"]  # type: ignore[no-any-return]

    @lr.setter
    def lr(self, value: float) -> None:
        self.check({**self.options, "lr": value})
        self.options["lr"] = value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: backward() leaves no gradients behind."""

    # ---- the step -------------------------------------------------------------------------------------------------------------------
    def step(self, closure: Callable[[], Tensor]) -> Tensor:
        """Minimise what closure() returns, for a while; returns the loss before. If closure() raises, or the loss becomes NaN or infinite
        (NonFiniteError), everything is as before the step."""
        if not callable(closure):
            raise DTypeError(f"LBFGS.step: not a function: {type(closure).__name__}. Pass one that returns the loss: step(closure).")
        with no_grad(), self.all_or_nothing() as history:
            x = self.flat([p.detach() for p in self.params])
            loss, now = self.evaluate(closure, history)
            if not math.isfinite(now.loss) or not math.isfinite(steepest := largest(now.gradient)):
                raise NonFiniteError(f"LBFGS: loss or gradient is not finite: loss {now.loss}. Start from other parameters.")
            if steepest <= self.options["tolerance_grad"]:
                return loss
            most, n = history.evaluations - 1 + int(self.options["max_eval"]), 0
            while n < self.options["max_iter"]:
                n += 1
                before = now
                self.turn(history, now.gradient)
                now = before._replace(slope=dot(now.gradient, history.direction))
                if now.slope > -self.options["tolerance_change"]:
                    break
                x, now = self.move(closure, history, x, now, most, n == self.options["max_iter"])
                if history.evaluations >= most or largest(now.gradient) <= self.options["tolerance_grad"]:
                    break
                tolerance = self.options["tolerance_change"]
                if largest(history.direction * history.t) <= tolerance or abs(now.loss - before.loss) < tolerance:
                    break
            return loss

    def turn(self, history: History, gradient: Tensor) -> None:
        """Take a gradient into the history, and find the direction and the first length to try."""
        history.iterations += 1
        if history.iterations == 1:
            history.direction, history.t = -gradient, min(1.0, 1.0 / gradient.abs().sum().item()) * self.lr
        else:
            change, move = gradient - history.gradient, history.direction * history.t
            if (product := dot(change, move)) > 1e-10:
                if len(history.moves) == self.options["history_size"]:
                    for kept in (history.changes, history.moves, history.inverses):
                        del kept[0]
                history.changes.append(change)
                history.moves.append(move)
                history.inverses.append(1.0 / product)
                history.scale = product / dot(change, change)
            history.direction, history.t = self.newton(history, gradient), self.lr
        history.gradient = gradient

    def newton(self, history: History, gradient: Tensor) -> Tensor:
        """The inverse of the second derivative, as the history knows it, times -gradient: two loops over it."""
        q, weights = -gradient, []
        rows = list(zip(history.changes, history.moves, history.inverses, strict=True))
        for change, move, inverse in reversed(rows):
            weights.append(dot(move, q) * inverse)
            q = q - change * weights[-1]
        q = q * history.scale
        for change, move, inverse in rows:
            q = q + move * (weights.pop() - dot(change, q) * inverse)
        if all([p.requires_grad for p in self.params]):
            return q
        return q * self.flat([(ones_like if p.requires_grad else zeros_like)(p.detach()) for p in self.params])

    def move(self, closure: Any, history: History, x: Tensor, now: Point, most: int, last: bool) -> tuple[Tensor, Point]:
        """Go along the direction: where, and what the loss is there; without a search the `last` point is not looked at."""
        d = history.direction

        def at(t: float) -> Point:
            self.put(x + d * t)
            there = self.evaluate(closure, history)[1]
            return there._replace(t=t, slope=dot(there.gradient, d))

        if self.options["line_search_fn"] is not None:
            left = most - history.evaluations
            now, _ = strong_wolfe(at, now._replace(t=0.0), history.t, largest(d), 1e-9, left)
            history.t = now.t
        elif not last:
            now = at(history.t)
        if not math.isfinite(now.loss):
            raise NonFiniteError(f"LBFGS: the loss became {now.loss}: step length {history.t}. Lower the lr, or use 'strong_wolfe'.")
        x = x + d * history.t
        self.put(x)
        return x, now

    def evaluate(self, closure: Any, history: History) -> tuple[Tensor, Point]:
        """The loss where the parameters are, with its gradient. One that does not reach a parameter has gradient 0 there."""
        with enable_grad():
            loss = closure()
            if not isinstance(loss, Tensor):
                raise DTypeError(f"LBFGS.step: closure() gave no loss: {type(loss).__name__}. Return the loss, before backward().")
            grads = loss.backward()
            check_unscaled(self.name, grads)
        found = [grads.get(p) if p.requires_grad else None for p in self.params]
        if not any([g is not None for g in found]):
            text = "LBFGS: step() had nothing to update: no parameter has a gradient. Compute the loss from them in closure()."
            warn(text)
        history.evaluations += 1
        flat = self.flat([zeros_like(p.detach()) if g is None else g for p, g in zip(self.params, found, strict=True)])
        return loss.detach(), Point(0.0, loss.detach().item(), flat, 0.0)

    def flat(self, parts: list[Tensor]) -> Tensor:
        return ops.cat([t.to(self.dtype).reshape(-1) for t in parts])  # type: ignore[no-any-return, attr-defined]

    def put(self, x: Tensor) -> None:
        """Overwrite the parameters that require grad."""
        at = 0
        for p in self.params:
            if p.requires_grad and p.size:
                p.set_data(x[at : at + p.size].reshape(p.shape).to(p.dtype))
            at += p.size

    @contextmanager
    def all_or_nothing(self) -> Iterator[History]:
        """A copy of the history that is kept only if the block ends well; otherwise the parameters become what they were."""
        start = [p.detach().clone() for p in self.params]
        kept = self.history
        history = replace(kept, changes=list(kept.changes), moves=list(kept.moves), inverses=list(kept.inverses))
        try:
            yield history
        except BaseException:
            for p, t in zip(self.params, start, strict=True):
                if p.requires_grad:
                    p.set_data(t)
            raise
        self.history = history

    # ---- state ----------------------------------------------------------------------------------------------------------------------
    def contents(self) -> dict[str, Any]:
        """Options, names and shapes, the history as arrays, one row for each change of the gradient."""
        h, n = self.history, sum([p.size for p in self.params])
        vectors = {key: None if getattr(h, key) is None else getattr(h, key).numpy().copy() for key in VECTORS}
        rows = {key: np.array([t.numpy() for t in getattr(h, key)]).reshape(len(h.inverses), n) for key in LISTS}
        state = {**{key: getattr(h, key) for key in NUMBERS}, **vectors, **rows, "inverses": list(h.inverses)}
        group = {"names": list(self.names), "shapes": [list(p.shape) for p in self.params], **self.options}
        return {"groups": [group], "state": state}

    def checked(self, found: dict[str, Any]) -> Acts:
        group, mine = dict(found["groups"][0]), self.contents()["groups"][0]
        for key in ("names", "shapes"):
            if [*map(str, group.get(key, []))] != [*map(str, mine[key])]:
                raise StateError(f"LBFGS: {key} of parameters differ: state {group.get(key)}, model {mine[key]}. Restore the same model.")
            group.pop(key)
        if set(group) != set(self.options):
            raise StateError(f"LBFGS: options differ: {sorted(set(group) ^ set(self.options))}. Restore the same kind of optimizer.")
        self.check(group)
        size, device = sum([p.size for p in self.params]), self.params[0].device
        history = restored(found["state"], size, lambda a: tensor(np.asarray(a), self.dtype, device))
        return [partial(vars(self).update, options=group, history=history)]

    def __repr__(self) -> str:
        shown = ", ".join([f"{key}={value!r}" for key, value in self.options.items()])
        return f"LBFGS({len(self.params)} parameters: {shown})"


def restored(state: dict[str, Any], n: int, vector: Callable[[Any], Tensor]) -> History:
    """A history from its state, for n numbers. Raises StateError for one of another shape."""
    rows = len(state.get("inverses", []))
    shapes = {key: (n,) for key in VECTORS if state.get(key) is not None} | dict.fromkeys(LISTS, (rows, n))
    for key, shape in shapes.items():
        array = np.asarray(state.get(key))
        if array.shape != shape and array.size + rows:
            raise StateError(f"LBFGS: shape mismatch for {key}: state {array.shape}, model {shape}. Restore the same model.")
    found: dict[str, Any] = {key: None if state.get(key) is None else vector(state[key]) for key in VECTORS}
    if rows:
        found |= {key: [vector(row) for row in state[key]] for key in LISTS}
    return History(**{key: state[key] for key in NUMBERS}, **found, inverses=list(state["inverses"]))


def dot(a: Tensor, b: Tensor) -> float:
    return (a * b).sum().item()  # type: ignore[no-any-return]


def largest(a: Tensor) -> float:
    """The largest absolute value."""
    return a.abs().max().item() if a.size else 0.0
