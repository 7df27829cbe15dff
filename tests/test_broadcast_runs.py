"""Maps of inputs of other shapes than the result, on the CPU: rows are found wherever a worker begins. The oracle is NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from rows_tools import F32, same_for_any_workers

from flamepy.backend.cpu.loops.broadcast import plan
from flamepy.backend.formula.dims import merged_dims


def added(x: float, y: float = 0.0, z: float = 0.0, w: float = 0.0) -> float:
    return x + 2.0 * y + 4.0 * z + 8.0 * w


SHAPES = [  # of the result, then of inputs: rows of a few numbers, whose places are counted on from row to row
    ((3, 2, 5, 4), (3, 1, 5, 1), (1, 2, 1, 4), (3, 2, 5, 4), (1, 1, 5, 1)), ((7, 3), (7, 1), (1, 3), (7, 3), (1, 1)),
    ((2, 3, 2, 3, 2), (2, 1, 2, 1, 2), (1, 3, 1, 3, 1), (2, 3, 1, 1, 2), (1, 3, 2, 1, 1)),
    ((3, 5000), (3, 1), (1, 5000), (3, 5000), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_broadcast_runs_are_found_whoever_looks(shapes: Any, count: int) -> None:
    shape, rng = shapes[0], np.random.default_rng(0)
    xs = [rng.integers(-9, 9, s).astype(F32) for s in shapes[1 : 1 + count]]
    found, k, inner, once = plan(merged_dims(shape, tuple(x.shape for x in xs)))
    flat = [x.reshape(-1) for x in xs]
    got = same_for_any_workers(f"broadcast{count}", added, F32, [np.empty(math.prod(shape), F32)], *flat, found, k, inner, *once)[0]
    want = sum(2.0**i * x for i, x in enumerate(xs)) + np.zeros(shape, F32)
    assert np.array_equal(got.reshape(shape), want)
