"""Cotangents: what has arrived so far at each output and each leaf, while a backward runs."""

from __future__ import annotations

from typing import Any

from ..dtypes import HALF, float32
from ..gradient_memory import add_to_buffer
from .entries import TapeEntry


class Cotangents:
    """Sums of incoming cotangents. The first is adopted, the second makes a new tensor, later ones add into it. The gradient of a
    packed parameter has its place in a span: rules that can, write there.

    Keys: the serial of an entry for its first output, (serial, slot) for another, minus the id of a leaf.
    """

    def __init__(self, tracked: bool):
        self.values: dict[Any, Any] = {}
        self.leaves: dict[int, Any] = {}
        self.owned: set[Any] = set()
        self.spans: dict[int, tuple[Any, Any]] = {}  # by span of parameters: it, the span of their gradients
        self.slots: dict[int, Any] = {}  # by leaf id: its part of that span
        self.tracked = tracked

    def add(self, node: Any, slot: int, g: Any) -> None:
        placed = False
        key: Any
        if type(node) is TapeEntry:
            key = (node.serial, slot) if slot else node.serial
        else:
            key = -node.id
            self.leaves[node.id] = node
            placed = g.buffer is self.slots.get(node.id)
        before = self.values.get(key)
        if before is None:
            self.values[key] = g
            if placed:
                self.owned.add(key)
        elif placed:
            pass  # the rule has added to what was there
        elif key in self.owned:
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
        node = entry.inputs[0]
        forms = getattr(node.call.op, "forms", None) if type(node) is TapeEntry else None  # engine/forms.py
        if forms is None or not forms.rounds(node) or self.tracked:
            return False
        return not (node.hooks or node.retained or node.serial in self.values)

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
            return leaf.over(self.slot_of(leaf)), False
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
