"""What the tests of optimizers share: a small model for each case, gradients known in closed form, training, comparing bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import flamepy as fp

SHAPES = {"w": (4, 3), "b": (3,), "v": (2, 2, 5), "s": ()}
MATRICES = {"w": (4, 3), "v": (2, 5), "u": (3, 3)}
Arrays = dict[str, np.ndarray]


def shapes_for(case: str) -> dict[str, tuple[int, ...]]:
    return MATRICES if case.startswith("muon") else SHAPES


def start(case: str) -> Arrays:
    rng = np.random.default_rng(0)
    return {n: np.asarray(rng.normal(size=s)) for n, s in shapes_for(case).items()}


def model(case: str, dtype: str = "float64", pack: bool = False) -> fp.ParameterDict:
    params = fp.ParameterDict({n: fp.Parameter(fp.tensor(a).to(dtype)) for n, a in start(case).items()})
    return params.pack() if pack else params


def gradient_of(arrays: Arrays, step: int) -> Arrays:
    """Of a bumpy bowl, known in closed form; some parameters have none on some steps."""
    rng = np.random.default_rng(1000 + step)
    found = {n: 2 * a + np.sin(3 * a) + 0.3 * rng.normal(size=a.shape) for n, a in arrays.items()}
    return {n: g for i, (n, g) in enumerate(found.items()) if step % (i + 3) != i + 1}


def map_of(params: fp.ParameterDict, step: int) -> fp.GradientMap:
    grads = fp.GradientMap()
    for name, g in gradient_of({n: a.astype("f8") for n, a in params.state_dict().items()}, step).items():
        grads.insert(params[name], fp.tensor(g).to(params[name].dtype))
    return grads


def train(params: fp.ParameterDict, optimizer: Any, first: int, last: int) -> list[Arrays]:
    path = []
    for step in range(first, last):
        optimizer.step(map_of(params, step))
        path.append(params.state_dict())
    return path


def bits(params: fp.ParameterDict) -> dict[str, bytes]:
    return {n: a.tobytes() for n, a in params.state_dict().items()}


def state_bits(optimizer: Any) -> Any:
    state = optimizer.state_dict()
    rows = {n: {slot: np.asarray(a).tobytes() for slot, a in row.items()} for n, row in state.pop("state").items()}
    return repr(state), rows


def stepping(optimizer: Any, params: fp.ParameterDict) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        loss = sum((p * p * x + (3 * p).sin() * 0.3).sum() for p in params.parameters())
        return loss, optimizer.step(loss.backward())

    return step


# ---- what papers say of one parameter p with the state s, at its step t -------------------------------------------------------------
def lion(p, s, g, t, lr, betas=(0.9, 0.99), weight_decay=0.0):
    """Algorithm 2 of arXiv:2302.06675."""
    m = s.get("m", 0.0)
    c = betas[0] * m + (1 - betas[0]) * g
    s["m"] = betas[1] * m + (1 - betas[1]) * g
    return p - lr * (np.sign(c) + weight_decay * p)


def lamb(p, s, g, t, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01):
    """Algorithm 2 of arXiv:1904.00962 with phi(z) = z."""
    m = s["m"] = betas[0] * s.get("m", 0.0) + (1 - betas[0]) * g
    v = s["v"] = betas[1] * s.get("v", 0.0) + (1 - betas[1]) * g**2
    r = m / (1 - betas[0] ** t) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
    return p - lr * np.linalg.norm(p) / np.linalg.norm(r + weight_decay * p) * (r + weight_decay * p)
