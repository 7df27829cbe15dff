"""Saved values that are not kept: backward has the op that made them make them again, from what that op itself saves.

    h = linear(x, w, b, None, "gelu_tanh")      # saves what the derivative reads: its product, rounded to 16 bits
    y = linear(h, v, c)                         # saves no h: gelu of that product gives it again, when this layer's gradients are made

An op that can do it says so (forms.remade); it is cheap there: an activation, a norm's last line. Only results of 16 bits are let go of:
where memory matters. What comes again was made of rounded numbers, so it is as exact as a kept activation of 16 bits, and not always
to the bit what forward read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.custom import Custom
from ..core.tensor import Tensor
from ..dtypes import HALF
from .forms import forms_of

LEAST = 1 << 16  # bytes: what is smaller is kept


class Remade:
    """Stands among saved values for the buffer of a result of this entry. Nobody can overwrite it, so it has no versions."""

    __slots__ = ("entry",)
    writes, root, version = 0, None, 0

    def __init__(self, entry: Any):
        self.entry = entry


def may_go(op: Any, names: Sequence[str], ins: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Of the values saved under these names, those that may be made again by who made them: (number, which input) of each."""
    if type(op) is not Custom:
        return ()
    places = [(i, op.inputs.index(n)) for i, n in enumerate(names) if n in op.inputs]
    specs = [(i, n, ins[n]) for i, n in places if ins[n] is not None]
    return tuple([(i, n) for i, n, s in specs if s.tracked and s.dtype in HALF and s.size * s.dtype.itemsize >= LEAST])


def let_go(places: Sequence[tuple[int, int]], xs: Sequence[Any], values: list[Any]) -> None:
    """Put Remade in the place of values that can be made again; places: (which value, which of the inputs `xs` it is)."""
    for i, n in places:
        x = xs[n]
        entry = x.entry
        # A checkpointed block drops what it saved; and what was overwritten since it was made comes not again.
        if entry is not None and entry.segment is None and not x.buffer.version:
            forms = forms_of(entry.call.op)
            if x.slot == forms.slot and forms.when(entry):
                values[i] = Remade(entry)


def made_again(entry: Any) -> Any:
    """The result of an entry that its op makes again."""
    forms, saved = forms_of(entry.op), zip(entry.call.saved, entry.values, strict=True)
    given = entry.attributes | {n: v if s is None else Tensor(v, s.as_tracked(False)) for (n, s), v in saved if n in forms.names}
    return forms.again(*[given[n] for n in forms.names]).buffer


def with_remade(rule: Any, entry: Any, gs: Any, cotangents: Any) -> Sequence[Any]:
    """The backward rule of an entry that let go of values: they are there while it runs."""
    kept = entry.values
    entry.values = [made_again(v.entry) if type(v) is Remade else v for v in kept]
    try:
        return rule(entry, gs, cotangents)  # type: ignore[no-any-return]
    finally:
        entry.values = kept
