"""The oracle for norms by channel: batch, group, instance and local response norm, standardised weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from cases import POSITIVE, Case, R, case, fixed


def channelwise(t: Any, x: np.ndarray) -> Any:
    return t if t is None or np.ndim(t) == 0 else np.reshape(t, (1, -1) + (1,) * (x.ndim - 2))


def weighted(y: np.ndarray, w: Any, b: Any) -> np.ndarray:
    return y * channelwise(1.0 if w is None else w, y) + channelwise(0.0 if b is None else b, y)


def standardised(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def batch_norm(x: np.ndarray, mean: Any, var: Any, w: Any = None, b: Any = None, training: bool = False, momentum: float = 0.1,
               eps: float = 1e-5) -> np.ndarray:  # fmt: skip
    if training and x.size:
        return weighted(standardised(x, (0, *range(2, x.ndim)), eps), w, b)
    return weighted((x - channelwise(mean, x)) / np.sqrt(channelwise(var, x) + eps), w, b)


def instance_norm(x: np.ndarray, mean: Any = None, var: Any = None, w: Any = None, b: Any = None, use_input_stats: bool = True,
                  eps: float = 1e-5) -> np.ndarray:  # fmt: skip
    if use_input_stats:
        return weighted(standardised(x, tuple(range(2, x.ndim)), eps), w, b)
    return batch_norm(x, mean, var, w, b, eps=eps)


def group_norm(x: np.ndarray, w: Any = None, b: Any = None, num_groups: int = 1, eps: float = 1e-5) -> np.ndarray:
    return weighted(standardised(x.reshape(len(x), num_groups, math.prod(x.shape[1:]) // num_groups), (2,), eps).reshape(x.shape), w, b)


def local_response_norm(x: np.ndarray, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> np.ndarray:
    padded = np.pad(x * x, ((0, 0), (size // 2, (size - 1) // 2)) + ((0, 0),) * (x.ndim - 2))
    total = sum([padded[:, i : i + x.shape[1]] for i in range(size)])
    return x / (k + alpha * total / size) ** beta


S = (fixed(R), fixed(POSITIVE))  # running statistics
BATCHES: list[Any] = [((4, 3), (3,), (3,), (3,), (3,)), ((3, 2, 5), (2,), (2,), (2,), (2,)), ((2, 3, 3, 4), (3,), (3,)),
                      ((2, 3, 8, 9), (3,), (3,), (3,)), ((2, 2, 2, 3, 2), (2,), (2,), (2,), (2,))]  # fmt: skip
CHANNELS: dict[str, Case] = {
    "batch_norm": case(batch_norm, R, *S, R, R, shapes=BATCHES, attrs=[{}, {"training": True}, {"training": True, "eps": 0.1}],
                       also=[(((0, 3), (3,), (3,), (3,), (3,)), (), {}), (((0, 3, 2), (3,), (3,)), (), {"training": True})]),
    "instance_norm": case(instance_norm, R, *S, R, R, shapes=BATCHES[1:], attrs=[{}, {"eps": 0.1}, {"use_input_stats": False}]),
    "group_norm": case(group_norm, R, R, R, shapes=[((2, 4), (4,), (4,)), ((2, 6, 5), (6,), (6,)), ((2, 4, 3, 2),), ((0, 4), (4,), (4,))],
                       attrs=[{"num_groups": 1}, {"num_groups": 2, "eps": 0.1}]),
    "local_response_norm": case(local_response_norm, R, shapes=[((2, 4, 3),), ((1, 5, 2, 3),)], args=[(2,), (3,)],
                                attrs=[{}, {"alpha": 0.5, "beta": 0.6, "k": 2.0}]),
    "weight_standardize": case(lambda x, eps=1e-5: standardised(x, tuple(range(1, x.ndim)), eps), shapes=[((4, 3),), ((2, 3, 3, 2),)],
                               attrs=[{}, {"eps": 0.1}]),
}  # fmt: skip
CHANNELS_INTERNAL = {"channel_norm": "batch_norm", "channel_affine": "batch_norm", "running": "batch_norm"}
