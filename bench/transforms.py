"""What may be done to gradients between backward and the step, over the parameters of GPT-2 (optim.py), beside copying as many bytes.

Each is measured in percent of the bandwidth of a copy: bytes read and written, counted once for each pass over the gradients (and the
parameters, where they are read). Limits fall from call to call, so that every call has to scale. Checked: a sample of every tensor
against NumPy in float64; of the noise its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .optim import NUMBERS, packed_gradients, sample, tensors
from .work import Disagree, Job, Work, close

OURS = "flamepy"
AGAINST: tuple[str, ...] = ()
DEFAULT = AGAINST
ALONE = True
TOLERANCE = 2e-5
CALLS = 2
FALL = 0.9
PASSES = {
    "norm": 1,
    "value": 3,
    "per-layer": 3,
    "agc": 4,
    "centralize": 2,
    "decay": 3,
    "repair": 2,
    "noise": 2,
}  # rows are centred in the cache
WORKS = {name: Work(name, nbytes=passes * 4 * NUMBERS) for name, passes in PASSES.items()}


def falling(start: float) -> Callable[[], float]:
    """A limit that is smaller at each call."""
    limit = [start / FALL]

    def now() -> float:
        limit[0] *= FALL
        return limit[0]

    return now


def build(contender: str, work: str, mode: str) -> Job:
    import flamepy as fp

    params, grads = packed_gradients()
    limit = falling(1.0)
    run: dict[str, Callable[[], Any]] = {
        "norm": lambda: fp.grad_norm(grads),
        "value": lambda: fp.clip_grad_value(grads, limit()),
        "per-layer": lambda: fp.clip_grad_per_layer(grads, limit()),
        "agc": lambda: fp.clip_grad_agc(grads, params, clip=0.1 * limit()),
        "centralize": lambda: fp.centralize_gradients(grads),
        "decay": lambda: fp.decay_gradients(grads, params, l1=0.1, l2=0.2),
        "repair": lambda: fp.repair_gradients(grads),
        "noise": lambda: fp.add_gradient_noise(grads, 0.25, 0),
    }
    return Job(run[work], lambda found: [np.concatenate([sample(grads[p].numpy()) for p in params.parameters()])], CALLS)


def expected(work: str) -> list[np.ndarray]:
    """The samples after each call."""
    limits = [1.0, FALL]
    after: list[list[np.ndarray]] = [[] for _ in limits]
    for _, p, g in tensors():
        found = g.astype(np.float64)
        for limit, samples in zip(limits, after, strict=True):
            if work == "value":
                found = np.clip(found, -limit, limit)
            elif work == "per-layer" and (norm := np.sqrt((found**2).sum())) > limit:
                found = found * (limit / (norm + 1e-6))
            elif work == "agc":
                norm, most = np.sqrt((found**2).sum()), 0.1 * limit * max(np.sqrt(np.sum(np.square(p, dtype=np.float64))), 1e-3)
                found = found * (most / norm) if norm > most else found
            elif work == "centralize" and found.ndim > 1:
                found = found - found.mean(1, keepdims=True)
            elif work == "decay":
                found = found + 0.2 * p + 0.1 * np.sign(p)
            samples.append(sample(found))
    return [np.stack([np.concatenate(samples) for samples in after])]


def verify(work: str, outputs: list[np.ndarray]) -> None:
    wanted = expected(work)
    if work != "noise":
        close(outputs, wanted, TOLERANCE)
        return
    for n, found in enumerate(outputs[0], 1):
        size = float(np.std(found - wanted[0][0])) / (0.25 * n) ** 0.5
        if not abs(size - 1) < 0.02:
            raise Disagree(f"noise: {size:.3f} times as large as asked for after {n} calls")
