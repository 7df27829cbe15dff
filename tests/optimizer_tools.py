"""What the tests of optimizers share: a small model for each case, gradients known in closed form, training, comparing bit for bit.

Read next: test_more_optimizers.py, test_by_name.py.
"""

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
