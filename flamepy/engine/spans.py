"""Spans: a step over packed memory is one launch. What parameters share a span is updated together, with their gradients where backward
put them and the clip factor and mark that stand beside these; a table says which segments to touch (a parameter without a gradient is
left alone, bit for bit), and some numbers a segment carry what changes (rate, bias corrections ...), so that captured steps replay.

16-bit parameters have a float32 master copy here: the step works on it and rounds the result into the parameter, so that changes
smaller than the last bit add up. What others write into such a parameter in between is taken over into the master copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..backend.base import Buffer
from ..backend.formula.clip import USE
from ..bus import changed, seen
from ..core.creation import zeros
from ..core.op import over
from ..core.ops.pointwise import where
from ..core.parameter import Parameter
from ..core.tensor import Tensor
from ..dtypes import HALF, computed, float32
from .gradient_map import GradientMap
from .marks import Segments, no_factor

NUMBERS = 12  # what the formula of an update gets for each segment, at most
NO_MORE = (0.0,) * NUMBERS


class Piece:
    """Parameters in one piece of memory, and what goes for other memory that is laid out like it."""

    def __init__(self, buffer: Buffer, params: list[Parameter]):
        self.buffer, self.params, self.homes = buffer, params, [p.buffer for p in params]
        self.segments: Segments = tuple([(p.buffer.start - buffer.start, p.size) for p in params])
        self.whole = sum([p.size for p in params]) == buffer.size

    def stays(self) -> bool:
        """Whether the parameters are still where they were."""
        return all([p.buffer is home for p, home in zip(self.params, self.homes, strict=True)])

    def part(self, buffer: Buffer, i: int) -> Tensor:
        """What `buffer` holds for parameter i, of its shape."""
        return over(buffer.part(*self.segments[i]), self.params[i].shape)


def spans_of(params: Sequence[Parameter]) -> list[tuple[Buffer, list[Parameter]]]:
    """The memory that these are in, each with those that are there."""
    found: dict[int, tuple[Buffer, list[Parameter]]] = {}
    for p in params:
        root = p.buffer.root or p.buffer
        found.setdefault(id(root), (root, []))[1].append(p)
    return list(found.values())


class Block(Piece):
    """A piece and its state: `steps` counts each parameter's updates, `state` holds the moments laid out like the memory, `kept` all
    moments of each parameter by name."""

    def __init__(
        self, buffer: Buffer, params: list[Parameter], groups: list[Any], shapes: list[dict[str, tuple[int, ...]]], slots: tuple[str, ...]
    ):  # fmt: skip
        """`groups` and `shapes`: of each parameter, and of its moments by name; those that are not among `slots` are kept alone."""
        super().__init__(buffer, params)
        self.groups, self.steps = groups, [0] * len(params)
        self.master, device, self.dtype = buffer, buffer.device, computed(buffer.dtype)
        self.one = no_factor(device)
        self.numbers: dict[int, Buffer] = {}  # where so many are put before an update
        self.state = {slot: zeros((buffer.size,), dtype=self.dtype, device=device).buffer for slot in slots}
        if buffer.dtype in HALF:
            self.master = device.stream.copied(buffer, float32)
        laid = self.state if self.master is buffer else {**self.state, "master": self.master}
        self.kept: list[dict[str, Tensor]] = []
        for i, own in enumerate(shapes):
            alone = {slot: zeros(shape, dtype=self.dtype, device=device) for slot, shape in own.items() if slot not in slots}
            self.kept.append({**{slot: self.part(place, i) for slot, place in laid.items()}, **alone})

    def retire(self, by: str) -> None:
        """Say that this memory is not used any more: a recorded step that knows it must not be replayed."""
        for buffer in [t.buffer.root or t.buffer for kept in self.kept for t in kept.values()]:
            buffer.retired = by
        changed(self)

    def alike(self) -> bool:
        """Whether one set of numbers is for all of the memory: every parameter is in one group and was updated as often."""
        count, first, group = len(self.params), self.steps[0], self.groups[0]
        return self.whole and self.groups.count(group) == count and self.steps.count(first) == count

    def span_of(self, grads: GradientMap) -> Buffer | None:
        """The span that holds all the gradients of this block where its parameters lie, as wide as they are, if there is one."""
        span = grads.whole(self.buffer)
        return span if span is not None and span.dtype == self.dtype else None

    def launch(self, optimizer: Any, grads: GradientMap, found: Any, mark: Buffer | None) -> Launch | None:
        """What updates the parameters whose gradients are found (True: all are in the span, with a clip factor still to be applied); None
        for none. What changes from step to step is filled in by the host just before."""
        span, everything, device = self.span_of(grads), range(len(self.params)), self.buffer.device
        chosen: Sequence[int] = everything
        if found is not True:
            chosen = [i for i, p in enumerate(self.params) if p.id in found]
            if not chosen:
                return None
            chosen = everything if len(chosen) == len(everything) else chosen
            span = self.gathered(found, chosen) if span is None else span
        self.refresh()
        alike = not optimizer.apart and chosen is everything and self.alike()
        segments = ((0, self.buffer.size),) if alike else tuple([self.segments[i] for i in chosen])
        if seen:
            seen(self, "whether all parameters were updated as often", self.alike)
        hyper = device.stream.kept(self.numbers, NUMBERS * len(segments), self.dtype)
        device.stream.before(Counting(optimizer, self, chosen, [0] if alike else chosen).numbers, hyper)
        factor = grads.factor if found is True else None
        return Launch(self, chosen, segments, span, factor or self.one, mark or self.one, hyper)  # type: ignore[arg-type]

    def gathered(self, found: dict[int, Tensor], chosen: Sequence[int]) -> Buffer:
        """Gradients that lie anywhere, in one buffer laid out like the parameters."""
        if self.homes == [self.buffer]:
            return found[self.params[0].id].detach().to(self.dtype).buffer
        span = self.buffer.device.empty(self.buffer.size, self.dtype)
        for i in chosen:
            found[self.params[i].id].detach().copied_into(span.part(*self.segments[i]))
        return span

    def wrote(self, chosen: Sequence[int], by: Any) -> None:
        """The `chosen` parameters were updated: round their master copies into them."""
        if self.master is not self.buffer:
            for i in chosen:
                self.buffer.device.stream.copy(self.homes[i], self.kept[i]["master"].buffer)
        for buffer in [self.buffer] if self.whole and len(chosen) == len(self.params) else [self.homes[i] for i in chosen]:
            buffer.wrote(by)

    def refresh(self) -> None:
        """Take over into the master copies what others wrote into 16-bit parameters (set_data, load_state_dict ...)."""
        if self.master is not self.buffer:
            for p, kept in zip(self.params, self.kept, strict=True):
                master, now = kept["master"], p.detach().to(float32, device=self.buffer.device)
                held = where(master.to(p.dtype).to(float32) == now, master, now)  # rounds to what is there: nobody wrote
                held.copied_into(master.buffer)


class Launch(NamedTuple):
    """What the launches of one update of a block have in common: the `chosen` parameters, their segments of the memory, gradients laid
    out like it, the clip factor and the mark (formula/clip.py), the numbers of each segment."""

    block: Block
    chosen: Sequence[int]
    segments: Segments
    gradients: Buffer
    factor: Buffer
    mark: Buffer
    hyper: Buffer

    @property
    def device(self) -> Any:
        return self.block.buffer.device

    def update(self, formula: Callable, outs: Sequence[Buffer]) -> None:
        """outs = formula(outs, clipped gradient, numbers) over the segments, unless the gradients are marked."""
        ins = (self.gradients, self.factor, self.mark, self.hyper)
        self.block.buffer.device.launch("update", formula, outs, ins, (self.segments,), self.block.dtype)

    def scratch(self) -> Buffer:
        """Memory laid out like the parameters'."""
        return self.device.empty(self.block.buffer.size, self.block.dtype)

    def by(self, values: Buffer) -> Launch:
        """The same with other numbers in the gradients' place, which no clip factor is for."""
        return self._replace(gradients=values, factor=self.block.one)


@dataclass(slots=True)
class Counting:
    """What the host does before an update of a block: counts the steps of the `chosen` parameters, and gives the numbers of the `first` of
    each segment. Each step makes one anew: for a check of a captured step equal ones are the same."""

    optimizer: Any
    block: Block
    chosen: Sequence[int]
    first: Sequence[int]

    __hash__ = object.__hash__

    def numbers(self) -> Sequence[float]:
        groups, optimizer, steps = self.block.groups, self.optimizer, self.block.steps
        if len(self.first) == 1 and len(self.chosen) == len(steps):  # all were updated as often
            steps = [steps[0] + 1] * len(steps)
        else:
            steps = list(steps)
            for i in self.chosen:
                steps[i] += 1
            if len(self.chosen) < len(steps):  # what block.alike() says may be another now
                changed(self.block)
        self.block.steps = steps  # another list: whoever has saved() the one before keeps those counts
        found: list[float] = []
        for i in self.first:
            kept = groups[i].kept
            row = kept[0](steps[i]) if kept else optimizer.numbers(groups[i], steps[i])
            if len(row) == NUMBERS and len(self.first) == 1:
                return row
            found += row
            found += NO_MORE[len(row) :]
        return found

    def saved(self) -> list[int]:
        """The counts, for a replay that fails."""
        return self.block.steps

    def restore(self, steps: list[int]) -> None:
        self.block.steps = list(steps)


def undo(rates: Any, stepped: list[tuple[Block, Sequence[int]]], mark: Buffer) -> None:
    """Take back the counts of a recorded step whose gradients were not to be used."""
    if not mark.device.download(mark)[USE]:
        rates.back()
        for block, chosen in stepped:
            for i in chosen:
                block.steps[i] -= 1
