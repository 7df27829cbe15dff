"""Norms of gradients: which gradients are meant, where they lie, and one launch that finds all their norms.

`grads` is a GradientMap, or a ParameterDict / iterable of Parameters (then their `.grad`). Sums are in float64 and in a fixed order.
The norm of each parameter's gradient comes with the joint norm: both are in one small buffer, which formula/clip.py describes.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..backend.base import Buffer, device
from ..backend.formula.clip import NORM, NORMS, OWN, USE
from ..core.gradients import label_of
from ..core.words import abs, pow
from ..dtypes import checked_number, float64
from ..engine.marks import Segments, no_factor
from ..errors import DeviceError, DTypeError, GradientError, StateError, warn
from ..gradient import GradientMap
from ..parameter import Parameter
from ..tensors import Tensor


def square_size(x):
    return x * x


def absolute_size(x):
    return abs(x)


def power_size(x, p):
    return pow(abs(x), p)


SIZES: dict[float, tuple[Callable, tuple]] = {2.0: (square_size, ()), 1.0: (absolute_size, ())}


class ClipResult(float):
    """The joint norm before clipping, a float, that also knows more:

    `norms`: the norm of each gradient by name (or "tensor 7"); `factor`: what the gradients were multiplied by; `clipped`: whether
    that is another number than 1; `nonfinite`: the names of the gradients whose norm is NaN or infinite; `skipped`: whether an
    optimizer's step will leave these gradients alone.
    """

    __slots__ = ("ids", "names", "numbers")
    numbers: np.ndarray
    ids: list[int]
    names: dict[int, str]

    def __new__(cls, numbers: Any, ids: list[int], names: dict[int, str]) -> ClipResult:
        """From what formula/clip.py describes; the tensors whose gradients are the segments, and what tensors are called."""
        return clip_result(ids, names, numbers)

    @property
    def norms(self) -> dict[str, float]:
        return dict(zip(labels_of(self.ids, self.names), self.numbers[NORMS:].tolist(), strict=True))

    @property
    def factor(self) -> float:
        return float(self.numbers[OWN])

    @property
    def clipped(self) -> bool:
        return self.factor != 1.0

    @property
    def nonfinite(self) -> list[str]:
        return [name for name, norm in self.norms.items() if not math.isfinite(norm)]

    @property
    def skipped(self) -> bool:
        return bool(self.numbers[USE] == 0.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return ClipResult, (self.numbers, self.ids, {number: self.names.get(number, "") for number in self.ids})


def clip_result(ids: list[int], names: dict[int, str], numbers: Any) -> ClipResult:
    """ClipResult() with the numbers last: made at each replay, of what is known before."""
    found = float.__new__(ClipResult, numbers.item(NORM))
    found.numbers, found.ids, found.names = numbers.copy(), ids, names
    return found


class Places(NamedTuple):
    """Gradients in memory. `buffers`: each piece of memory; `segments`: the parts of each that count, one part a gradient; `ids`: of the
    tensors whose gradients these are, in that order; `names`: what tensors are called; `gradients`: where `.grad` was looked at; `whole`:
    these are the spans of a packed map, and every gradient of them counts."""

    buffers: list[Buffer]
    segments: tuple[Segments, ...]
    ids: list[int]
    names: dict[int, str]
    gradients: list[Any]
    whole: bool

    def once(self, *beside: Iterable[Any]) -> list[Any]:
        """(memory, what stands beside it) of each piece of memory that holds anything, once: one .grad may belong to two parameters."""
        found: dict[int, Any] = {}
        for row in zip(self.buffers, *beside, strict=True):
            if row[0].size:
                found.setdefault(id(row[0]), row)
        return list(found.values())


def labels_of(ids: list[int], names: dict[int, str]) -> list[str]:
    """What the gradients of these tensors are called: each name once."""
    found = [names.get(number) or label_of(number, "") for number in ids]
    return [f"{x} (tensor {number})" if found.count(x) > 1 else x for x, number in zip(found, ids, strict=True)]


def listed(name: str, params: Any) -> list[Parameter]:
    """Parameters from a ParameterDict, a Module, one Parameter or an iterable of them."""
    if isinstance(params, Parameter):
        return [params]
    if isinstance(params, Tensor | str) or not (hasattr(params, "parameters") or hasattr(params, "__iter__")):
        what = f"a tensor of shape {params.shape}" if isinstance(params, Tensor) else f"a {type(params).__name__}"
        raise DTypeError(f"{name}: no gradients: {what}. Pass the map that loss.backward() returned, or parameters with .grad.")
    ps = params.parameters() if hasattr(params, "parameters") else list(params)
    if isinstance(params, Iterator) and not ps:
        warn(f"{name}: the iterator is exhausted: no parameters. Pass a list.")
    for p in ps:
        if not isinstance(p, Parameter):
            raise DTypeError(f"{name}: not a Parameter: {type(p).__name__}. Pass a GradientMap, a ParameterDict or a list of Parameters.")
    return list(dict.fromkeys(ps))


def chosen_keys(name: str, names: dict[Any, str], params: Any) -> set[Any]:
    """The keys that `params` chooses: a glob of names, or parameters in a dictionary, a module or a list."""
    if isinstance(params, set):
        return params
    if not isinstance(params, str):
        return {p.id for p in listed(name, params)}
    found = {key for key, label in names.items() if fnmatch.fnmatchcase(label, params)}
    if not found:
        shown = ", ".join([label for label in names.values() if label])
        advice = f"Use a glob of: {shown}." if shown else "They have no names yet: put them into a Module or ParameterDict, or pass a list."
        raise StateError(f"{name}: no parameter matches: '{params}'. {advice}")
    return found


def places_of(name: str, grads: Any, params: Any = None) -> Places:
    """Where the gradients are that count; `params` chooses among them. Raises DeviceError unless they are all on one device."""
    if not isinstance(grads, GradientMap):
        return places_of_parameters(name, listed(name, grads), params)
    if grads.scaled is not None:
        raise GradientError(f"{name}: these are the gradients of a scaled loss: {grads.scaled}. Call scaler.unscale(grads) first.")
    if params is None and grads.packed:
        if len(grads.spans) == 1:
            home, span = grads.spans[0]
            ids, parts = home.layout
            return Places([span], (parts,), ids, grads.names, [], True)
        layouts = [home.layout for home, _ in grads.spans]
        ids = [number for numbers, _ in layouts for number in numbers]
        spans = [span for _, span in grads.spans]
        return one_device(name, Places(spans, tuple([parts for _, parts in layouts]), ids, grads.names, [], True))
    counted = grads.counted()
    if params is not None:
        chosen = chosen_keys(name, {number: grads.names.get(number, "") for number in counted}, params)
        counted = {number: g for number, g in counted.items() if number in chosen}
        if not counted and not isinstance(params, set):
            what = f"{name}: none of these parameters has a gradient in the map: {len(chosen)} chosen. Pass this map's parameters."
            warn(what)
    return separate(name, counted, grads.names)


def places_of_parameters(name: str, ps: list[Parameter], params: Any) -> Places:
    """The same for the `.grad` of parameters."""
    if params is not None:
        chosen = chosen_keys(name, {p.id: p.name for p in ps}, params)
        ps = [p for p in ps if p.id in chosen]
    counted = {p.id: g for p in ps if (g := p.kept_grad()) is not None}
    if ps and not counted:
        what = f"{name}: no parameter holds a gradient: {len(ps)} given. Pass the map that loss.backward() returned."
        warn(what)
    return separate(name, counted, {p.id: p.name for p in ps})


def separate(name: str, counted: dict[int, Any], names: dict[int, str]) -> Places:
    """Gradients each in memory of its own."""
    gradients = list(counted.values())
    segments = tuple([((0, g.size),) for g in gradients])
    return one_device(name, Places([g.buffer for g in gradients], segments, list(counted), names, gradients, False))


def split(name: str, grads: Any, globs: Iterable[str]) -> dict[str, set[int]]:
    """Ids of the parameters of each glob; a parameter belongs to the first one that matches its name."""
    counted = grads.counted() if isinstance(grads, GradientMap) else {}
    left = {key: grads.names.get(key, "") for key in counted} or {p.id: p.name for p in grads if isinstance(p, Parameter)}
    found = {}
    for glob in globs:
        found[glob] = chosen_keys(name, left, glob)
        left = {key: label for key, label in left.items() if key not in found[glob]}
    return found


def one_device(name: str, places: Places) -> Places:
    """Raise DeviceError unless all is on one device."""
    devices = {b.device for b in places.buffers}
    if len(devices) > 1:
        names = ", ".join(sorted([d.name for d in devices]))
        raise DeviceError(f"{name}: gradients are on two devices: {names}. Pass those of one device at a time.")
    return places


def norm_of(
    grads: Any, places: Places, norm_type: float, limit: float = 0.0, other: float = 1.0, keep: float = 1.0
) -> Buffer:  # fmt: skip
    """What formula/clip.py describes, of all the places. A factor that an earlier clipping of `grads` left to be applied is part of it."""
    p = checked_number("grad_norm", "norm_type", norm_type)
    if not p > 0:
        raise ValueError(f"grad_norm: norm_type must be positive: {norm_type}. Use 1, 2, any p > 0 or inf.")
    on = places.buffers[0].device if places.buffers else device()
    found = on.empty(NORMS + len(places.ids), float64)
    formula, numbers = (absolute_size, ()) if p == math.inf else SIZES.get(p, (power_size, (p,)))
    if isinstance(grads, GradientMap) and not places.whole:
        grads.settle()
    before, mark = factor_and_mark(grads, on)
    order = 0.0 if p == math.inf else p
    on.launch("norm", formula, (found,), (before, mark, *places.buffers), (places.segments, order, limit, other, keep, *numbers), float64)
    return found


def norms_in(on: Any, buffers: Iterable[Buffer], segments: tuple[Segments, ...], size: Callable = square_size, p: float = 2.0) -> Buffer:
    """The norms of parts of memory, as norm_of() gives those of gradients: what a `size` of their numbers adds up to."""
    found, one = on.empty(NORMS + sum([len(parts) for parts in segments]), float64), no_factor(on)
    on.launch("norm", size, (found,), (one, one, *buffers), (segments, p, 0.0, 1.0, 1.0), float64)
    return found  # type: ignore[no-any-return]


def factor_and_mark(grads: Any, on: Any) -> tuple[Buffer, Buffer]:
    """The factor that an earlier clipping left to be applied, and whether a step may use these gradients so far."""
    one: Buffer = no_factor(on)
    return (grads.factor or one, grads.mark or one) if isinstance(grads, GradientMap) else (one, one)


def result_of(places: Places, found: Buffer) -> Any:
    """A ClipResult; in a step that is being recorded what stands for it."""
    return found.device.stream.report(partial(clip_result, places.ids, places.names), found)


def grad_norm(grads: Any, norm_type: float = 2.0, params: Any = None) -> Any:
    """The joint norm of the gradients of all Parameters: (sum of |g|^p)^(1/p), or the largest |g| for inf; a ClipResult, which is a
    float and knows each gradient's norm. 0.0 when there are none. `params`: as in clip_grad_norm()."""
    places = places_of("grad_norm", grads, params)
    return result_of(places, norm_of(grads, places, norm_type))
