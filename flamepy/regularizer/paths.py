"""A function's value at a tensor, and its gradient there: what Pipeline and GradientTracker are made of.

Three answers: a gradient; none, since the function never uses its input (its norm is 0); GradientError, since it does and the path
was cut, or its backward fails. The first two are numbers, the last never is.

gradient_of() walks only the entries that lead from x to y, so x may be anything: a leaf, or the output of a model, whose own tape
is neither walked nor freed. Where no entry leads there, the tape alone cannot tell a function that never uses x from one that takes
the path away from the tape (detach, argmax, no_grad, NumPy). The launches can: engine/follow.py. What the host has read is beyond
that: it may have come back in any number, so a function whose host code reads x counts as one that uses it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..autograd import enable_grad
from ..bus import before
from ..core.errors import DTypeError, FlameError, GradientError, ShapeError
from ..core.modes import thread
from ..core.op import over
from ..core.tape import TapeEntry, reachable
from ..dtypes import FLOATS, float32, float64
from ..engine.backward import Cotangents
from ..engine.follow import Trail, followed
from ..engine.release import Release
from ..gradient import GradientMap
from ..gradient_checkpointing import Rewind
from ..gradients.norm import norm_of as norms_of
from ..gradients.norm import places_of
from ..tensors import Tensor


# ---- along the tape ----------------------------------------------------------------------------------------------------------------
def between(y: Any, x: Any) -> list[TapeEntry]:
    """The entries that lead from x to y, newest first; not the one that made x."""
    end = x.entry
    first = 0 if end is None else end.serial
    if y.entry is None or y.entry is end:
        return []
    found, stack = {y.entry.serial: y.entry}, [y.entry]
    while stack:
        for node in stack.pop().inputs:
            if type(node) is TapeEntry and node.serial > first and node.serial not in found:
                found[node.serial] = node
                stack.append(node)
    leads: set[int] = set()
    for serial in sorted(found):
        entry = found[serial]
        slots = [entry.slots[i] for i in range(len(entry.inputs))]
        inputs = [(node, slot) for node, slot in zip(entry.inputs, slots, strict=True) if node is not None]
        if any([arrives(node, slot, x) or getattr(node, "serial", 0) in leads for node, slot in inputs]):
            leads.add(serial)
    return [found[serial] for serial in sorted(leads, reverse=True)] if y.entry.serial in leads else []


def arrives(node: Any, slot: int, x: Any) -> bool:
    """Whether the input of an entry, which is this output of `node` (or the leaf itself), is x."""
    return node is x if x.entry is None else node is x.entry and slot == x.slot


def is_same(y: Any, x: Any) -> bool:
    """Whether y is x, perhaps as another object."""
    return y is x or (y.entry is not None and arrives(y.entry, y.slot, x))


def gradient_of(y: Any, x: Any, create_graph: bool = False) -> Any | None:
    """d y / d x for a y of one element and a tracked x, leaf or not; None where no gradient arrives at x.

    Only entries between the two are walked, and all their saved values are kept, so y may be walked again. Hooks of x are not called.
    With `create_graph` the gradient is itself on the tape. Raises what backward() raises."""
    entries = between(y, x)
    if not entries:
        return y.ones_cotangent() if y.requires_grad and is_same(y, x) else None
    release = Release(entries, False, True)
    cotangents = Cotangents(True)  # new tensors: no parameter's place in a span is written
    modes = thread.modes
    before = modes.recording, modes.creating_graph
    modes.recording = modes.creating_graph = create_graph
    try:
        cotangents.add(y.entry, y.slot, y.ones_cotangent())
        release.walk(cotangents, [])
        if release.until < sys.maxsize:
            release.settle()
    except BaseException as error:
        release.undo(error)
        raise
    finally:
        modes.recording, modes.creating_graph = before
    key: Any = -x.id if x.entry is None else (x.entry.serial, x.slot) if x.slot else x.entry.serial
    return cotangents.values.get(key)


def leaves_behind(y: Any) -> bool:
    """Whether a leaf is on y's tape: whether its backward() would give anything."""
    if not y.requires_grad or y.entry is None:
        return bool(y.requires_grad)
    return any([node is not None and type(node) is not TapeEntry for entry in reachable(y.entry) for node in entry.inputs])


STAND_IN: Any = SimpleNamespace(
    title="input", name="input", inputs=(), own=True, takes_numbers=False, remakes=lambda entry, slot: False, rounds=lambda entry: False
)  # fmt: skip


def stand_in(x: Any) -> Tensor:
    """x's numbers as a tracked tensor that is no leaf: backward() ends there and puts nothing into its map."""
    t = Tensor(x.buffer, x.spec.as_tracked(True))
    nothing = dict.fromkeys(("ins", "saved", "tracked", "others", "guarded"), ())
    call = SimpleNamespace(op=STAND_IN, single=True, outs=(t.spec,), **nothing)
    t.entry = TapeEntry(call, (t,))
    return t


# ---- one function ------------------------------------------------------------------------------------------------------------------------
class Evaluation:
    """fn's value at x, a scalar Tensor, on the tape as if nobody tracked norms; and what its gradient is found from."""

    def __init__(self, value: Tensor, y: Tensor, x: Tensor, trail: Trail | None, error: Exception | None = None):
        self.value, self.y, self.x, self.trail, self.error = value, y, x, trail, error

    def gradient(self) -> Tensor | None:
        """d y / d x; None where fn never uses x. Raises GradientError where the path to x was cut, and what backward() raises."""
        if self.error is not None:
            raise self.error
        found = gradient_of(self.y, self.x) if self.y.requires_grad else None
        if found is not None:
            return found  # type: ignore[no-any-return]
        trail: Any = self.trail
        reached = trail.reaches(self.y.buffer)
        if not trail.read and not reached:
            return None
        if self.x.dtype not in FLOATS:
            why = f"its input is {self.x.dtype}, and only floats have gradients"
        elif not reached:
            why = "its numbers were read on the host"
        else:
            why = "no op on the way gives a gradient to it" if self.y.broken is None else self.y.origin()
        raise Cut(f"grad_norm: the path from the result to the input was cut: {why}. Use ops that record, or stop tracking this term.")


class Cut(GradientError):
    """A function uses its input, and no gradient comes back."""


def evaluate(fn: Callable[..., Any], x: Tensor, options: Mapping[str, Any], track: bool, recording: bool) -> Evaluation:
    """Call fn(x, **options). `track`: so that gradient() can be asked; `recording`: whether the value shall be on the tape.

    One call, unless it fails only since its input is tracked now (an op without a derivative): then the value is that of a second one."""
    if not track:
        y = scalar(fn(x, **options), x)
        return Evaluation(y, y, x, None)
    at, random = x, Rewind()
    try:
        with enable_grad():
            at = x if x.requires_grad or x.dtype not in FLOATS else stand_in(x)
            with followed(at) as trail:
                y = scalar(fn(at, **options), x)
    except Exception as error:
        if at is x and recording:
            raise
        before(random.back)
        y = scalar(fn(x, **options), x)
        return Evaluation(y, y, x, None, error)
    whole = recording and (at is x or leaves_behind(y))
    return Evaluation(y if whole or not y.requires_grad else over(y.buffer, y.shape), y, at, trail)


def reason_of(error: Exception) -> str:
    """What an event says of an error."""
    return str(error) if isinstance(error, FlameError) else f"{type(error).__name__}: {error}"


def scalar(y: Any, x: Tensor) -> Tensor:
    """What a function returned as a Tensor of shape () on x's device. Raises DTypeError or ShapeError."""
    if not isinstance(y, Tensor | bool | int | float | np.generic | np.ndarray):
        raise DTypeError(f"Pipeline: a term returned no number: {type(y).__name__}. Return a Tensor of one element.")
    y = Tensor.of("Pipeline", y, x.device)
    if y.size != 1:
        raise ShapeError(f"Pipeline: a term returned more than one number: shape {y.shape}. Reduce it with .sum() or .mean().")
    return y if y.shape == () else ops.reshape(y, ())


def norm_of(gradient: Tensor | None) -> float:
    """The L2 norm, summed in float64; 0.0 for None."""
    grads = GradientMap()
    if gradient is not None:
        grads.put(gradient.id, gradient)
    found = norms_of(grads, places_of("grad_norm", grads), 2.0)
    return found.device.stream.number(found)  # type: ignore[no-any-return]


def added(values: list[tuple[Tensor, float]]) -> Tensor | None:
    """The sum of weight * value; None for none."""
    total: Any = None
    for value, weight in values:
        part = value if weight == 1.0 else value * weight
        total = part if total is None else total + part
    return total  # type: ignore[no-any-return]


def wide(values: list[Tensor]) -> Any:
    """The type to add these in: float64 if one of them is, else float32."""
    return float64 if any([v.dtype == float64 for v in values]) else float32


class Takes(NamedTuple):
    """Which options a function takes by name; `first` is its input's name, `anything` whether it takes **options."""

    names: frozenset[str]
    first: str
    anything: bool

    def pick(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: v for name, v in options.items() if name in self.names or (self.anything and name != self.first)}


def takes(fn: Callable[..., Any]) -> Takes:
    """What fn takes; of a module, what its forward() takes."""
    try:
        parameters = list(inspect.signature(getattr(fn, "forward", fn)).parameters.values())
    except (TypeError, ValueError):  # written in C
        return Takes(frozenset(), "", False)
    named = parameters and parameters[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    first = parameters[0].name if named else ""
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {first}
    return Takes(frozenset(names), first, any([p.kind is p.VAR_KEYWORD for p in parameters]))
