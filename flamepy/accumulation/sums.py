"""Sums of gradient maps: taking in one map after the other, span by span where parameters are packed.

The sum has memory of its own. What comes first is copied; the first map with a span gives the sum a span like it, so that the sum
goes on being one launch each for clipping and the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..backend.base import Buffer
from ..core.gradients import label_of, scale_y
from ..core.op import over
from ..engine import kept
from ..engine.named_map import add_to_buffer
from ..gradient import GradientMap
from ..tensors import Tensor


class Arrived(NamedTuple):
    """A gradient that came: of which id and name."""

    number: int
    name: str
    gradient: Tensor

    @property
    def label(self) -> str:
        return self.name or label_of(self.number, "")


def add_weighted_y(x, y, w):
    return x + y * w


def take_in(out: Buffer, x: Buffer, weight: float, first: bool) -> None:
    """out = weight * x for the first that comes, out += weight * x for others."""
    if not out.size:
        return
    if x.dtype != out.dtype:
        x = out.device.stream.copied(x, out.dtype)
    if first and weight == 1:
        out.device.stream.copy(out, x)
    elif first:
        out.device.launch("map", scale_y, (out,), (x,), (kept.number(weight, out.dtype),), out.dtype)
    elif weight == 1:
        add_to_buffer(out, x, "GradientAccumulator.add")
    else:
        out.device.launch("map", add_weighted_y, (out,), (out, x), (kept.number(weight, out.dtype),), out.dtype)
        out.wrote("GradientAccumulator.add")


def taken_in(total: GradientMap, rows: Iterable[Arrived], weight: float) -> None:
    """Add gradients one by one; those that are not there yet are copied."""
    for number, name, g in rows:
        stored = total._gradients.get(number)
        first = stored is None
        if stored is None:
            stored = over(g.device.empty(g.size, g.dtype), g.shape)
            total._gradients[number] = stored
        total.names[number] = name
        take_in(stored.buffer, g.buffer, weight, first)


def arrived_in(grads: GradientMap) -> list[Arrived]:
    """The gradients of a map that count: of Parameters; where there are none, of leaves."""
    grads.settle()
    return [Arrived(number, grads.names.get(number, ""), g) for number, g in grads.counted().items()]


def add_map(total: GradientMap, rows: list[Arrived], grads: GradientMap, weight: float) -> None:
    """Add the gradients of a map, whole spans at once where they have one."""
    total.take_marks(grads)
    for home, span in grads.spans:
        inside = [row for row in rows if row.gradient.buffer.root is span]
        rows = [row for row in rows if row.gradient.buffer.root is not span]
        mine = total.whole(home)
        if mine is not None:
            take_in(mine, span, weight, False)
            continue
        mine = span.device.empty(span.size, span.dtype)
        fresh = not any([row.number in total._gradients for row in inside])
        if fresh:
            take_in(mine, span, weight, True)
        for number, name, g in inside:
            place = over(mine.part(g.buffer.start, g.size), g.shape)
            stored = total._gradients.get(number)
            if stored is not None:  # it came alone before
                take_in(place.buffer, stored.buffer, 1.0, True)
            if not fresh:
                take_in(place.buffer, g.buffer, weight, stored is None)
            total._gradients[number], total.names[number] = place, name
        total.spans.append((home, mine))
    taken_in(total, rows, weight)
    settle_spans(total)


def settle_spans(total: GradientMap) -> None:
    """Keep the spans that hold nothing but gradients of this map, and say whether they hold all."""
    sizes: dict[int, int] = {}
    for g in total._gradients.values():
        sizes[id(g.buffer.root)] = sizes.get(id(g.buffer.root), 0) + g.size
    total.spans = [(home, span) for home, span in total.spans if sizes.get(id(span)) == span.size]
    total.whole_map = bool(total.spans) and len(sizes) == len(total.spans)


def copied(grads: GradientMap) -> GradientMap:
    """The same in memory of its own."""
    copy = GradientMap()
    add_map(copy, arrived_in(grads), grads, 1.0)
    return copy
