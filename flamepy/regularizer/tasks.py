"""Several tasks, one model: pcgrad (gradients that don't work against each other) and GradNorm (weights that balance them).

Both take one GradientMap for each task and leave them as they are; a gradient that a map lacks counts as zeros. Dot products and norms
are summed in float64 and found once: what pcgrad subtracts are multiples of the given gradients, so only their dot products count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd import no_grad
from ..core.errors import NonFiniteError, StateError
from ..dtypes import checked_number, is_count
from ..gradient import GradientMap
from .terms import parameters_of
from .tracker import products_of


def checked_maps(name: str, maps: Any) -> list[GradientMap]:
    found = list(maps) if hasattr(maps, "__iter__") else [maps]
    for m in found:
        if not isinstance(m, GradientMap):
            raise TypeError(f"{name}: not a GradientMap: {type(m).__name__}. Pass what backward() of each task's loss returned.")
    if not found:
        raise ValueError(f"{name}: no tasks: {len(found)} maps. Pass one for each task.")
    return found


def combined(maps: Sequence[GradientMap], factors: Sequence[float]) -> GradientMap:
    """The sum of factor * map, in new memory."""
    total = GradientMap()
    with no_grad():
        for m, factor in zip(maps, factors, strict=True):
            total.check_scaled("combine", m)
            total.names.update(m.names)
            total.take_marks(m)
            for key, g in m.items():
                part, before = g.detach() * factor, total.get(key)
                total.put(key, part if before is None else before + part)
    return total


def pcgrad(maps: Sequence[GradientMap], seed: Any = 0) -> GradientMap:
    """The sum of the tasks' gradients after projecting conflicts away (Yu et al. 2020, arXiv:2001.06782).

    Each task's gradient g, over all parameters at once, goes through the other tasks in random order: where g . g_j < 0, the part along
    g_j is removed, g -= (g . g_j / |g_j|^2) g_j, with g_j as it was given. Task after task takes its order from one
    rng.permutation(tasks), itself left out; `seed` is an int or a numpy Generator (pass one that goes on, so that the order differs
    from step to step).

    Returns a new GradientMap. Gradients that are not finite are not projected, and stay so in the sum. Raises ValueError for no maps,
    TypeError for what is no GradientMap."""
    maps = checked_maps("pcgrad", maps)
    rng = np.random.default_rng(seed)
    count = len(maps)
    dots = np.zeros((count, count))
    for products in products_of(maps, dict.fromkeys([key for m in maps for key in m])).values():
        for (i, j), value in products.items():
            dots[i, j] += value
            if i != j:
                dots[j, i] += value
    factors = np.eye(count)  # row i: task i's gradient, as multiples of those given
    for i in range(count):
        for j in rng.permutation(count):
            dot = factors[i] @ dots[:, j]
            if j != i and dot < 0:
                factors[i, j] -= dot / dots[j, j]
    return combined(maps, factors.sum(axis=0).tolist())


class GradNorm:
    """Weights of tasks, moved so that their gradients at shared parameters have norms that follow the rates at which the tasks train
    (Chen et al. 2018, arXiv:1711.02257).

        balance = GradNorm(tasks=2, alpha=1.5)
        grads = balance.combine(maps)                    # the sum of weight * gradient, for the optimizer
        balance.step(maps, losses, shared=model.last)    # weights for the next step

    Task i has the norm G_i = w_i |g_i|, the rate r_i = (L_i / L_i at the first step) / the mean of these, and the target mean(G) r_i^alpha,
    a constant. The weights take one step of gradient descent, of length `lr`, on sum |G_i - target_i|; none falls below 1e-6 (the paper has
    no limit, and a weight may not be negative here); then they are scaled to sum to the number of tasks."""

    LEAST = 1e-6

    def __init__(self, tasks: int, alpha: float = 1.5, lr: float = 0.025):
        alpha, lr = checked_number("GradNorm", "alpha", alpha), checked_number("GradNorm", "lr", lr)
        if not is_count(tasks, 1) or not alpha >= 0 or not 0 < lr < math.inf:
            raise ValueError(f"GradNorm: impossible options: tasks {tasks}, alpha {alpha}, lr {lr}. Use tasks >= 1, alpha >= 0, lr > 0.")
        self.alpha, self.lr = float(alpha), float(lr)
        self.weights = [1.0] * tasks
        self.initial: list[float] | None = None  # the losses at the first step

    def combine(self, maps: Sequence[GradientMap]) -> GradientMap:
        """The sum of weight * map, in new memory."""
        return combined(self._checked("combine", maps), self.weights)

    def step(self, maps: Sequence[GradientMap], losses: Sequence[Any], shared: Any) -> list[float]:
        """Move the weights; returns them. `maps` are of the unweighted losses, `shared` a Parameter or several (the paper: the last
        shared layer's weight). Raises NonFiniteError, ValueError (first losses must be positive) or KeyError, and changes nothing then."""
        maps = self._checked("GradNorm.step", maps)
        values = [float(loss) for loss in losses]
        if len(values) != len(maps):
            raise ValueError(f"GradNorm.step: counts differ: {len(values)} losses, {len(maps)} maps. Pass one of each for a task.")
        keys = parameters_of("GradNorm.step", shared)
        for m in maps:
            for p in keys:
                m[p]  # KeyError, with the name
        products = products_of(maps, keys).values()
        norms = [math.sqrt(math.fsum([p[i, i] for p in products])) for i in range(len(maps))]
        if not all(map(math.isfinite, [*values, *norms])):
            raise NonFiniteError(f"GradNorm.step: not finite: losses {values}, norms {norms}. Leave this step out.")
        initial = values if self.initial is None else self.initial
        if min(initial) <= 0:
            raise ValueError(f"GradNorm.step: losses at the first step must be positive: {initial}. Rates are relative to them.")
        self.weights = self._moved(norms, [now / then for now, then in zip(values, initial, strict=True)])
        self.initial = initial
        return list(self.weights)

    def _moved(self, norms: list[float], rates: list[float]) -> list[float]:
        count = len(norms)
        weighted = [w * n for w, n in zip(self.weights, norms, strict=True)]
        mean, pace = math.fsum(weighted) / count, math.fsum(rates) / count
        found = []
        for w, n, own, rate in zip(self.weights, norms, weighted, rates, strict=True):
            gap = own - mean * (rate / pace if pace else 1.0) ** self.alpha
            found.append(max(w - self.lr * n * ((gap > 0) - (gap < 0)), self.LEAST))
        return [w * count / math.fsum(found) for w in found]

    def state_dict(self) -> dict[str, Any]:
        """Weights and first losses, as plain data."""
        return {"weights": list(self.weights), "initial": None if self.initial is None else list(self.initial)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state_dict(). Raises StateError for another number of tasks."""
        weights, initial = list(state["weights"]), state["initial"]
        if len(weights) != len(self.weights) or (initial is not None and len(initial) != len(weights)):
            raise StateError(
                f"GradNorm: number of tasks differs: {len(self.weights)} here, {len(weights)} in the state. Use the same tasks."
            )
        self.weights, self.initial = weights, None if initial is None else list(initial)

    def _checked(self, name: str, maps: Any) -> list[GradientMap]:
        found = checked_maps(name, maps)
        if len(found) != len(self.weights):
            raise ValueError(f"{name}: number of tasks differs: {len(found)} maps, {len(self.weights)} weights. Pass one for each task.")
        return found

    def __repr__(self) -> str:
        return f"GradNorm(weights=[{', '.join([f'{w:.3g}' for w in self.weights])}], alpha={self.alpha:g})"
