"""The engine's backward: gradients of packed parameters are written where they belong, and one that fails changes nothing (release.py)."""

from __future__ import annotations

import sys
import threading
import weakref
from typing import Any

from ..backend.base import Buffer
from ..core import backward as plain
from ..core.backward import hooked, seed_of, walk
from ..core.door import Door
from ..core.gradients import GradientMap as Gradients
from ..core.modes import thread
from ..core.op import REGISTRY, over
from ..core.tape import TapeEntry, reachable
from ..dtypes import HALF, float32
from .autocast import here
from .entries import Taken, scalings
from .gradient_map import GradientMap
from .named_map import add_to_buffer
from .release import Release


class Last(threading.local):
    """`reached`: of this thread's last backward (reference to its map, names of what is in it by id)."""

    reached: tuple[Any, dict[int, str]] = (None, {})


last = Last()


class Cotangents(plain.Cotangents):
    """Core's, and for the gradient of a packed parameter its place in a span: rules that can, write there. What a sum made is added into
    when more arrives, unless it is `tracked`."""

    def __init__(self, tracked: bool):
        self.values, self.leaves, self.tracked = {}, {}, tracked  # without a call of super(): for each backward
        self.owned: set[Any] = set()
        self.spans: dict[int, tuple[Any, Any]] = {}  # by span of parameters: it, the span of their gradients
        self.slots: dict[int, Any] = {}  # by leaf id: its part of that span

    def join(self, key: Any, before: Any, g: Any) -> None:
        """What lies in its place, or was made here, is added to there."""
        if key in self.owned or (type(key) is int and key < 0 and before.buffer is self.slots.get(-key)):
            add_to_buffer(before.buffer, g.buffer, "backward")
        else:
            self.values[key] = before + g
            if not self.tracked:
                self.owned.add(key)

    def into(self, entry: TapeEntry) -> list[Any] | None:
        """For each input of the entry: (tensor where its gradient belongs, whether to add to what is there), or None. None alone where
        all would be."""
        found: list[Any] | None = None
        for i in entry.call.tracked:
            node = entry.inputs[i]
            leaf, then = node, entry.call.ins[i]
            if type(node) is TapeEntry:
                if node.call.op.name != "cast":
                    continue
                leaf, then = self.behind_cast(node)
            if leaf is not None and leaf.buffer.root is not None:
                twice = found is not None and any([n is node for n in entry.inputs[:i]])  # it has its place once
                moved = then.dtype != leaf.dtype or then.device is not leaf.device  # since it was recorded
                place = None if twice or moved else self.place(leaf)
                if place is not None:
                    found = found or [None] * len(entry.inputs)
                    found[i] = place
        return found

    def narrow(self, entry: TapeEntry) -> bool:
        """Whether the cotangent of the first input may be bfloat16: who made this input rounds what arrives before a product reads it, and
        nothing else arrives there, or looks at it. What comes later all the same is added in float32."""
        node: Any = entry.inputs[0]
        told: Any = self.tracked
        while type(node) is TapeEntry and not told:
            told = node.hooks or node.retained or node.serial in self.values
            if node.call.op is not REGISTRY["view"]:  # which hands it on as it is
                forms = getattr(node.call.op, "forms", None)  # forms.py
                return not told and forms is not None and forms.rounds(node)
            node = node.inputs[0]
        return False

    def behind_cast(self, entry: TapeEntry) -> tuple[Any, Any]:
        """The float32 leaf that the entry of a cast rounded, and its spec then: the first gradient of the 16-bit copy is handed on as it
        is. None where it rounded none, or somebody looks at what arrives there."""
        if entry.hooks or entry.retained or entry.serial in self.values:
            return None, None
        leaf = entry.inputs[0]
        if type(leaf) is TapeEntry:
            return None, None
        then = entry.call.ins[0]
        return (leaf, then) if then.dtype == float32 and entry.call.outs[0].dtype in HALF else (None, None)

    def place(self, leaf: Any) -> tuple[Any, bool] | None:
        if leaf.hooks or self.tracked:
            return None
        before = self.values.get(-leaf.id)
        if before is None:
            if leaf.id in self.slots:  # what was written there has not arrived yet
                return None
            return over(self.slot_of(leaf), leaf.shape), False
        return (before, True) if before.buffer is self.slots.get(leaf.id) else None

    def slot_of(self, leaf: Any) -> Any:
        """The part of a span of gradients that belongs to this packed parameter."""
        slot = self.slots.get(leaf.id)
        if slot is None:
            mine = leaf.buffer
            home, dtype, offset = mine.root, mine.dtype, mine.offset
            if dtype in HALF:
                dtype, offset = float32, mine.start * float32.itemsize
            pair = self.spans.get(id(home))
            if pair is None:
                pair = self.spans[id(home)] = (home, mine.device.empty(home.size, dtype))
            slot = self.slots[leaf.id] = mine.device.slot(pair[1], offset, mine.size, dtype)
        return slot


def backward(loss: Any, gradient: Any | None = None, retain_graph: bool = False, create_graph: bool = False) -> GradientMap:
    """Gradients of `loss` with respect to every leaf that requires grad and reaches it: a GradientMap. It touches no `.grad`.
    `gradient` is the cotangent of `loss` (its shape; 1 for a loss of one element). `retain_graph` keeps saved values for another
    backward; `create_graph` (implies it) also records the backward itself. Raises what core/backward.py's raises, before anything is
    changed; what a hook or another function of yours raises leaves everything as it was, too: run it again."""
    seed = seed_of(loss, gradient)
    hooks = [loss] if loss.entry is None and loss.hooks else []
    entries = reachable(loss.entry, hooks)
    release = Release(entries, bool(hooks), retain_graph or create_graph)
    if seed is None:  # where no code of the user's runs, nobody can write into it
        seed = loss.ones_cotangent(shared=release.until == sys.maxsize)
    cotangents = Cotangents(bool(create_graph))
    kept: list[tuple[Any, Any]] = []
    modes = thread.modes
    before, reads = (modes.recording, modes.creating_graph), here.dtype
    modes.recording = modes.creating_graph = cotangents.tracked
    here.dtype = None  # rules do what the forward pass asked for
    try:
        cotangents.add(loss.entry or loss, loss.slot, seed)
        if release.until == sys.maxsize:
            walk(entries, cotangents, kept, release.freed, Door.rule)
        else:
            release.walk(cotangents, kept)
        for leaf in cotangents.leaves.values():
            g = cotangents.values[-leaf.id]
            kept.append((leaf, g if leaf.hooks is None else hooked(leaf.hooks, g)))
        saved = [v for entry in entries for v in entry.values] if retain_graph else []
        grads = finish(kept, [seed.buffer, *saved], cotangents)
        if scalings:
            grads.scaled = next((entry.scaled for entry in entries if entry.scaled is not None), None)  # type: ignore[attr-defined]
        if release.until < sys.maxsize:
            release.settle()
        return grads
    except BaseException as error:
        release.undo(error)
        raise
    finally:
        modes.recording, modes.creating_graph = before
        here.dtype = reads


put = Gradients.put


def finish(kept: list[tuple[Any, Any]], taken: list[Buffer], cotangents: Cotangents) -> GradientMap:
    """Put gradients into a map in which none shares memory with another or with `taken`: editing one must edit nothing else."""
    grads = GradientMap()
    seen = {id(buffer) for buffer in taken}
    filled: dict[int, int] = {}
    placed = 0
    for tensor, g in kept:
        buffer = g.buffer
        home = tensor.buffer.root if tensor.entry is None else None
        if home is not None and not cotangents.tracked:
            slot = cotangents.slot_of(tensor)
            if buffer is not slot:
                g, buffer = g.copied_into(slot), slot
            filled[id(home)] = filled.get(id(home), 0) + buffer.size
            placed += 1
        elif id(buffer) in seen or buffer.root is not None:
            g = g.clone()
        seen.add(id(g.buffer))
        put(grads, tensor, g.to(float32) if g.dtype in HALF else g)
    grads.spans = [(home, span) for key, (home, span) in cotangents.spans.items() if filled.get(key) == home.size]
    last.reached = weakref.ref(grads), grads.names
    grads.whole_map = placed == sum([tensor.is_parameter for tensor, _ in kept]) and len(grads.spans) == len(filled)
    return grads


def was_reached(t: Any) -> bool:
    """Whether a backward has passed through a tensor's entry or, if it was this thread's last, put its gradient into a map; and nobody is
    known to have looked into that map."""
    map_of, names = last.reached
    grads = map_of and map_of()
    if grads is not None and not grads.private:
        return False
    return t.id in names or (t.entry is not None and type(t.entry.freed) is Taken)
