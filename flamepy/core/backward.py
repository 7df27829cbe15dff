"""Backward: walk the entries behind a loss, newest first, and add up cotangents.

Collect the entries reachable from the loss, sort them by serial number, walk from the newest, ask each op for the cotangents
of its inputs, accumulate them, and let go of saved values on the way. What reaches a leaf is its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import call as _call  # noqa: F401  (stands behind the door)
from .door import Door
from .errors import GradientError
from .gradients import GradientMap
from .modes import thread
from .op import launch, like
from .tape import TapeEntry, reachable, user_frame


class Cotangents:
    """What has arrived so far at each output and each leaf. Keys: the serial of an entry for its first output, (serial, slot) for another,
    minus the id of a leaf."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.leaves: dict[int, Any] = {}

    def add(self, node: Any, slot: int, g: Any) -> None:
        key: Any
        if type(node) is TapeEntry:
            key = (node.serial, slot) if slot else node.serial
        else:
            key = -node.id
            self.leaves[node.id] = node
        before = self.values.get(key)
        if before is None:
            self.values[key] = g
        else:
            self.join(key, before, g)

    def join(self, key: Any, before: Any, g: Any) -> None:
        """Add one to what is there."""
        self.values[key] = before + g


def backward(loss: Any, gradient: Any | None = None, retain_graph: bool = False, create_graph: bool = False) -> GradientMap:
    """Gradients of `loss` with respect to every leaf that requires grad and reaches it.
    `gradient` is the cotangent of `loss` (its shape; 1 for a loss of one element). `retain_graph` keeps saved values for another
    backward; `create_graph` (implies it) also records the backward itself, so that gradients can be differentiated. Returns a
    GradientMap and touches no `.grad`. Raises GradientError, VersionError, ShapeError or DeviceError before anything is changed."""
    seed = seed_of(loss, gradient)
    if seed is None:
        seed = like(loss, dtype=loss.spec.computed)
        launch("fill", None, (seed,), (), (seed.dtype.type(1.0),))
    entries = reachable(loss.entry)
    for entry in entries:
        entry.check()
    freed = None if retain_graph or create_graph else user_frame()
    saved = [value for entry in entries for value in entry.values] if retain_graph else []
    cotangents = Cotangents()
    kept: list[tuple[Any, Any]] = []
    modes = thread.modes
    before = modes.recording, modes.creating_graph
    modes.recording = modes.creating_graph = bool(create_graph)
    try:
        cotangents.add(loss.entry or loss, loss.slot, seed)
        walk(entries, cotangents, kept, freed, Door.rule)
        for leaf in cotangents.leaves.values():
            kept.append((leaf, hooked(leaf.hooks, cotangents.values[-leaf.id])))
        return in_map(kept, [seed.buffer, *saved])
    finally:
        modes.recording, modes.creating_graph = before


Door.backward = staticmethod(backward)


def walk(entries: Sequence[TapeEntry], cotangents: Cotangents, kept: list[tuple[Any, Any]], freed: Any, rule: Callable[..., Any]) -> None:
    """Pass cotangents from the newest entry to the oldest, by the `rule` of each. Its saved values are let go of, unless `freed` is None.
    `kept` gets (tensor, gradient) of those with retain_grad()."""
    add, values = cotangents.add, cotangents.values
    for entry in entries:
        if entry.call.single and entry.hooks is None and entry.retained is None:
            g = values.pop(entry.serial, None)
            if g is None:
                continue
            gs: Any = (g,)
        else:
            gs = outputs(entry, values, kept)
            if gs is None:
                continue
        tracked = entry.call.tracked
        found = rule(entry, gs, cotangents) if tracked else ()
        for i in tracked:
            if found[i] is not None:
                add(entry.inputs[i], entry.slots[i], found[i])
        if freed is not None:
            entry.release(freed)


def seed_of(loss: Any, gradient: Any | None) -> Any:
    """The cotangent of the loss; None for 1."""
    if not loss.requires_grad:
        raise GradientError(f"backward: the loss does not require grad: {loss.origin()}. Make its inputs require grad and record.")
    if gradient is None:
        if loss.size != 1:
            raise GradientError(
                f"backward: the loss has more than one element: shape {loss.shape}. "
                "Reduce it with .sum() or .mean(), or pass gradient= of its shape."
            )
        return None
    return loss.as_cotangent(gradient, "backward: gradient=")


def outputs(entry: TapeEntry, values: dict[Any, Any], kept: list[tuple[Any, Any]]) -> tuple[Any, ...] | None:
    """The cotangents of an entry's outputs, after hooks; None when nothing flowed into it."""
    gs = []
    for slot in range(len(entry.output_ids)):
        g = values.pop((entry.serial, slot) if slot else entry.serial, None)
        if g is not None:
            if entry.hooks is not None:
                g = hooked(entry.hooks.get(slot), g)
            if entry.retained is not None and slot in entry.retained:
                kept.append((entry.retained[slot], g))
        gs.append(g)
    return tuple(gs) if any(g is not None for g in gs) else None


def hooked(hooks: list[Callable] | None, g: Any) -> Any:
    """Run a tensor's hooks: each may look at the gradient or return another in its place, which is copied: the hook may have returned a
    tensor of its own, which clipping must not edit."""
    for hook in tuple(hooks or ()):  # a hook may remove itself
        changed = hook(g)
        if changed is not None:
            g = g.as_cotangent(changed, "hook: what it returned").clone()
    return g


def in_map(kept: list[tuple[Any, Any]], taken: list[Any]) -> GradientMap:
    """Gradients in a map in which none shares memory with another or with `taken`: editing one must edit nothing else."""
    grads, seen = GradientMap(), {id(buffer) for buffer in taken}
    for tensor, g in kept:
        if id(g.buffer) in seen:
            g = g.clone()
        seen.add(id(g.buffer))
        grads.put(tensor, g)
    return grads
