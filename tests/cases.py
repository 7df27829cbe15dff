"""What a line of reference.py is made of: how to draw an op's inputs, and the ways to call it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Input:
    """How one input is drawn: `real` in [low, high), a boolean `mask`, or integer `ids` in [low, high)."""

    kind: str
    low: float = -2.0
    high: float = 2.0
    steps: float = 0.0
    tracked: bool = True

    def draw(self, rng: np.random.Generator, shape: Shape, dtype: np.dtype) -> np.ndarray:
        if self.kind == "mask":
            return np.asarray(rng.random(shape) < 0.6)
        if self.kind == "ids":
            return np.asarray(rng.integers(int(self.low), int(self.high), shape))
        x = rng.uniform(self.low, self.high, shape)
        return np.asarray(np.round(x / self.steps) * self.steps if self.steps else x, dtype=dtype)


class Sample(NamedTuple):
    """One way of calling the op: a shape for each input, then positional and keyword attributes."""

    shapes: tuple[Shape, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """An oracle and its samples. `smooth`: has a gradient; `second`: has a differentiable backward rule;
    `listed`: the op takes a list of its inputs."""

    fn: Callable[..., Any]
    inputs: tuple[Input, ...]
    samples: tuple[Sample, ...]
    smooth: bool = True
    listed: bool = False
    second: bool = True

    def draw(self, sample: Sample, dtype: Any, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        specs = self.inputs * (len(sample.shapes) if self.listed else 1)
        return [spec.draw(rng, shape, np.dtype(dtype)) for spec, shape in zip(specs, sample.shapes, strict=False)]

    def tracked(self, arrays: Sequence[np.ndarray]) -> list[bool]:
        """Which inputs get a gradient."""
        specs = self.inputs * (len(arrays) if self.listed else 1)
        return [spec.kind == "real" and spec.tracked for spec, _ in zip(specs, arrays, strict=False)]

    def expected(self, sample: Sample, arrays: Sequence[np.ndarray]) -> Any:
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        with np.errstate(all="ignore"):
            return self.fn(*([wide] if self.listed else wide), *sample.args, **sample.kwargs)


UNARY = [((3, 4),), ((),), ((0, 3),), ((2, 1, 5),)]
BINARY = [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((), (3,)), ((3, 2), ()), ((0, 3), (3,)), ((), ())]
R = Input("real")
POSITIVE = Input("real", 0.3, 2.0)
UNIT = Input("real", 0.05, 0.95)
GRID = Input("real", -2.0, 2.0, 1.0)
MASK = Input("mask")
IDS3, IDS4 = Input("ids", 0, 3), Input("ids", 0, 4)


def fixed(spec: Input) -> Input:
    """An input that gets no gradient: the target of a loss that promises none."""
    return replace(spec, tracked=False)


def case(
    fn: Callable,
    *inputs: Input,
    shapes: Any = None,
    args: Any = ((),),
    attrs: Any = ({},),
    also: Any = (),
    domain: tuple[float, float] | None = None,
    **flags: bool,
) -> Case:
    """A Case for each combination of shapes, positional `args`, keywords `attrs`; `also` adds samples."""
    kinds = inputs or (Input("real", *domain) if domain else R,)
    shapes = shapes or {1: UNARY, 2: BINARY}[len(kinds)]
    rows = [*itertools.product(shapes, args, attrs), *also]
    return Case(fn, kinds, tuple(Sample(*row) for row in rows), **flags)
