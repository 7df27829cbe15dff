"""A learning rate that falls when a metric does not improve any more.

    plateau = ReduceOnPlateau(1e-3, patience=3)
    optimizer = AdamW(model, lr=plateau)
    ... plateau.record(validation_loss)          # after each epoch

The only schedule with a state: save plateau.state_dict() beside the optimizer's.
"""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import is_number
from ..errors import DTypeError, StateError
from .curves import count, rate


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
