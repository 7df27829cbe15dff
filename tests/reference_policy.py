"""The oracle of losses of policies: each in plain NumPy, on float64, from its paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import Case, Input, R, case
from reference_losses import REDUCTIONS, loss

# fmt: off
FEW = Input("real", -0.7, 0.7)
THREE = [((3, 4),) * 3, ((),) * 3]


def ppo(new: Any, old: Any, gain: Any, clip: float = 0.2) -> Any:
    r = np.exp(new - old)
    return -np.minimum(r * gain, np.clip(r, 1 - clip, 1 + clip) * gain)


def values(new: Any, aim: Any, old: Any = None, clip: float = 0.2) -> Any:
    near = new if old is None else old + np.clip(new - old, -clip, clip)
    return 0.5 * np.maximum((new - aim) ** 2, (near - aim) ** 2)


def entropy(x: Any, axis: int = -1) -> Any:
    p = np.exp(x - x.max(axis, keepdims=True))
    p = p / p.sum(axis, keepdims=True)
    return -(p * np.log(p)).sum(axis)


def dpo(a: Any, b: Any, c: Any, d: Any, beta: float = 0.1, label_smoothing: float = 0.0) -> Any:
    h = beta * ((a - b) - (c - d))
    return (1 - label_smoothing) * np.logaddexp(0, -h) + label_smoothing * np.logaddexp(0, h)


POLICY: dict[str, Case] = {
    "ppo_loss": case(loss(ppo), FEW, FEW, R, shapes=THREE, attrs=[*REDUCTIONS, {"clip": 0.4}]),
    "ppo_value_loss": case(loss(values), R, R, R, shapes=[*THREE, ((3, 4), (3, 4))], attrs=[*REDUCTIONS, {"clip": 0.5}]),
    "entropy": case(entropy, shapes=[((3, 4),), ((5,),), ((2, 3, 4),)], attrs=[{}, {"axis": 0}]),
    "dpo_loss": case(loss(dpo), R, R, R, R, shapes=[((3,),) * 4, ((2, 3),) * 4],
                     attrs=[*REDUCTIONS, {"beta": 0.5, "label_smoothing": 0.1}]),
}
# fmt: on
