"""Edits of gradients between backward() and the step, beside clipping by the joint norm or by value; each with its transform.

Each function edits the gradients of Parameters in a GradientMap (or the `.grad` of parameters) and returns what it was given. Packed
parameters are one launch for each pass over the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..backend.formula.clip import NORMS
from ..core.rng import next_key
from ..core.words import abs, maximum, select
from ..dtypes import checked_number, float64
from ..gradient import GradientMap
from ..parameter import Parameter
from .norm import Places, listed, norm_of, norms_in, places_of
from .transforms import Edit, checked_limit


def layer_factor(norm, limit):
    """What makes a norm at most `limit`; 1 where it is not finite, which is left as it is."""
    return select(norm > limit, select(norm - norm == 0.0, limit / (norm + 1e-6), 1.0), 1.0)


def agc_factor(g_norm, w_norm, clip, eps):
    limit = clip * maximum(w_norm, eps)
    return select(g_norm > limit, select(g_norm - g_norm == 0.0, limit / g_norm, 1.0), 1.0)


def repaired_y(x):
    return select(abs(x - x) == 0.0, x, 0.0)


def decayed_y(g, w, l1, l2):
    return g + l2 * w + l1 * (select(w > 0.0, 1.0, 0.0) - select(w < 0.0, 1.0, 0.0))


def those(optimizer: Any, params: set[int] | None) -> list[Any]:
    """The optimizer's parameters with these ids."""
    return [p for p in optimizer.params if params is None or p.id in params]


def clip_grad_per_layer(grads: Any, max_norm: float, params: Any = None) -> Any:
    """Limit the L2 norm of each gradient alone to max_norm, by max_norm / (norm + 1e-6). One that is not finite is left alone.

    `params` (a glob of names, a ParameterDict, a list) chooses among the parameters. Raises ValueError for a negative limit or NaN.
    """
    limit = checked_limit("clip_grad_per_layer", "max_norm", max_norm)
    places = edited("clip_grad_per_layer", grads, params)
    if limit:
        found = norm_of(grads, places, 2.0)
        scale_each(places, layer_factor, [found], (limit,), "clip_grad_per_layer")
    return grads


class ClipPerLayer(Edit, of=clip_grad_per_layer):
    """Limit the norm of each gradient: clip_grad_per_layer()."""


def clip_grad_agc(grads: Any, params: Any, clip: float = 0.01, eps: float = 1e-3) -> Any:
    """Adaptive gradient clipping: limit the norm of each gradient to clip * max(norm of its parameter, eps).

    (Brock et al. 2021, arXiv:2102.06171, with one norm for each tensor.) `params`: the parameters, those not listed are left alone.
    """
    ratio, least = checked_limit("clip_grad_agc", "clip", clip), checked_limit("clip_grad_agc", "eps", eps)
    by_id = {p.id: p for p in listed("clip_grad_agc", params)}
    places = edited("clip_grad_agc", grads, chosen(grads, by_id))
    if places.buffers:
        weights = norms_in(places.buffers[0].device, weights_of(grads, places, by_id), places.segments)
        scale_each(places, agc_factor, [norm_of(grads, places, 2.0), weights], (ratio, least), "clip_grad_agc")
    return grads


class ClipAGC(Edit, of=clip_grad_agc, params=those):
    """Limit the norm of each gradient to a share of its parameter's: clip_grad_agc()."""


def centralize_gradients(grads: Any, params: Any = None) -> Any:
    """Subtract from each gradient of two or more axes its mean over all axes but the first (Yong et al. 2020, arXiv:2004.01461)."""
    places = edited("centralize_gradients", grads, params)
    shapes = shapes_of(grads, places)
    at = 0
    for buffer, segments in zip(places.buffers, places.segments, strict=True):
        rows = [
            (start, size, size // shape[0]) for (start, size), shape in zip(segments, shapes[at:], strict=False) if len(shape) > 1 and size
        ]
        at += len(segments)
        if rows:
            buffer.device.launch("center", None, (buffer,), (), (tuple(rows),), buffer.dtype)
            buffer.wrote("centralize_gradients")
    return grads


class Centralize(Edit, of=centralize_gradients):
    """Take the mean out of the gradients of matrices: centralize_gradients()."""


def add_gradient_noise(grads: Any, variance: float, step: int, params: Any = None) -> Any:
    """Add normal noise of variance `variance` / (1 + step)^0.55, which shrinks as training goes on (Neelakantan et al. 2015,
    arXiv:1511.06807). The numbers follow from the seed: see manual_seed()."""
    name = "add_gradient_noise"
    variance, finished = checked_limit(name, "variance", variance), checked_number(name, "step", step)
    if not finished >= 0:
        raise ValueError(f"{name}: step is negative: {finished}. Count finished steps from 0.")
    return noise(grads, variance, lambda: finished, params)


def noise(grads: Any, variance: float, step: Callable[[], float], params: Any = None) -> Any:
    """add_gradient_noise() after as many steps as the host says when the numbers are drawn."""
    add_noise(edited("add_gradient_noise", grads, params), lambda: [math.sqrt(variance / (1.0 + step()) ** 0.55)])
    return grads


class Noise(Edit, of=noise, step=lambda optimizer, _: lambda: optimizer.rates.finished):
    """Add normal noise that shrinks with the number of finished steps: add_gradient_noise()."""


def add_noise(places: Places, width: Callable[[], list[float]]) -> None:
    """Add noise of a standard deviation that the host fills in. Gradients of one type share a stream of numbers, in the order in which
    their parameters were made: wherever they lie in memory, each gets the same ones."""
    keys: dict[Any, tuple[Buffer, Buffer]] = {}
    for buffer, at, size, start in runs_by_age(places):
        device = buffer.device
        if buffer.dtype not in keys:
            keys[buffer.dtype] = next_key(device), device.empty(1, float64)
            device.stream.before(width, keys[buffer.dtype][1])
        part = buffer if size == buffer.size else buffer.part(at, size)
        device.launch("philox_add", None, (part,), keys[buffer.dtype], (start,), buffer.dtype)
    for (buffer,) in places.once():
        buffer.wrote("add_gradient_noise")


def runs_by_age(places: Places) -> list[tuple[Buffer, int, int, int]]:
    """(memory, first element, elements, how many of its type come before) of all gradients, type by type, the oldest parameter's first;
    neighbours in memory that follow each other are one."""
    pairs = [(buffer, *part) for buffer, parts in zip(places.buffers, places.segments, strict=True) for part in parts]
    order = sorted(zip(places.ids, pairs, strict=True), key=lambda pair: (str(pair[1][0].dtype), pair[0]))
    found: list[tuple[Buffer, int, int, int]] = []
    seen: set[tuple[int, int]] = set()  # one .grad may belong to two parameters
    for _, (buffer, at, size) in order:
        if not size or (id(buffer), at) in seen:
            continue
        seen.add((id(buffer), at))
        before, first, many, start = found[-1] if found else (None, 0, 0, 0)
        start = start + many if before is not None and before.dtype == buffer.dtype else 0
        if before is buffer and first + many == at:
            found[-1] = buffer, first, many + size, found[-1][3]
        else:
            found.append((buffer, at, size, start))
    return found


def repair_gradients(grads: Any, params: Any = None) -> Any:
    """Put 0 in the place of every NaN and infinity."""
    for (buffer,) in edited("repair_gradients", grads, params).once():
        buffer.device.launch("map", repaired_y, (buffer,), (buffer,), (), buffer.dtype)
        buffer.wrote("repair_gradients")
    return grads


class Repair(Edit, of=repair_gradients):
    """Put 0 in the place of NaN and infinity: repair_gradients()."""


def decay_gradients(grads: Any, params: Any, l1: float = 0.0, l2: float = 0.0) -> Any:
    """Add the gradient of l1 * sum |w| + l2 / 2 * sum w^2 to that of each parameter listed: lasso, ridge, or both (elastic net)."""
    one, two = checked_limit("decay_gradients", "l1", l1), checked_limit("decay_gradients", "l2", l2)
    by_id = {p.id: p for p in listed("decay_gradients", params)}
    places = edited("decay_gradients", grads, chosen(grads, by_id))
    for buffer, w in places.once(weights_of(grads, places, by_id)):
        number = buffer.dtype.type
        buffer.device.launch("map", decayed_y, (buffer,), (buffer, w), (number(one), number(two)), buffer.dtype)
        buffer.wrote("decay_gradients")
    return grads


class Decay(Edit, of=decay_gradients, params=those):
    """Add l1 * sign(w) + l2 * w to the gradients: decay_gradients()."""


# ---- parts ----------------------------------------------------------------------------------------------------------------------------
def edited(name: str, grads: Any, params: Any) -> Places:
    """Where the gradients are that are to be edited now; a factor that clipping left for later is applied first."""
    places = places_of(name, grads, params)
    if isinstance(grads, GradientMap):
        grads.settle()
    return places


def chosen(grads: Any, by_id: dict[int, Parameter]) -> Any:
    """What places_of() takes as `params` for these parameters: None where that is all there are."""
    if isinstance(grads, GradientMap):
        return None if grads.counted().keys() <= by_id.keys() else list(by_id.values())
    return list(by_id.values())


def shapes_of(grads: Any, places: Places) -> list[tuple[int, ...]]:
    """The shape of each gradient, in the order of the places."""
    if isinstance(grads, GradientMap):
        return [grads._gradients[number].shape for number in places.ids]
    return [g.shape for g in places.gradients]


def weights_of(grads: Any, places: Places, by_id: dict[int, Parameter]) -> list[Buffer]:
    """The numbers of the parameters, laid out as their gradients are, in the gradients' type."""
    homes = [home for home, _ in grads.spans] if places.whole else [by_id[number].buffer for number in places.ids]
    return [w if w.dtype == b.dtype else w.device.stream.copied(w, b.dtype) for w, b in zip(homes, places.buffers, strict=True)]


def scale_each(places: Places, formula: Callable, found: list[Buffer], numbers: tuple[float, ...], by: str) -> None:
    """Multiply each gradient by formula(its norms, *numbers)."""
    n = len(places.ids)
    if not n:
        return
    device = found[0].device
    norms = [b.part(NORMS, n) for b in found]
    factors = device.empty(n, float64)
    device.launch("map", formula, (factors,), norms, tuple([np.float64(x) for x in numbers]), float64)
    starts = np.cumsum([0, *[len(segments) for segments in places.segments]]).tolist()
    for buffer, segments, at in places.once(places.segments, starts[:-1]):
        part = factors.part(at, len(segments))
        device.launch("scale_each", None, (buffer,), (part,), (segments,), buffer.dtype)
        device.stream.after(lambda b, f: b.wrote(by) if (b.device.download(f) != 1.0).any() else None, buffer, part)
