"""Spans: a step over packed memory is one launch. What parameters share a span is updated together, with their gradients where backward
put them and the clip factor and mark that stand beside these; a table says which segments to touch (a parameter without a gradient is
left alone, bit for bit), and some numbers a segment carry what changes (rate, bias corrections ...), so that captured steps replay.

16-bit parameters have a float32 master copy here: the step works on it and rounds the result into the parameter, so that changes
smaller than the last bit add up. What others write into such a parameter in between is taken over into the master copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from .. import ops
from ..backend.base import Buffer
from ..backend.formula.clip import USE
from ..core.changes import before, changed, seen
from ..creation import zeros
from ..dtypes import HALF, computed, float32
from ..engine.marks import no_factor
from ..gradient import GradientMap
from ..parameter import Parameter
from ..tensors import Tensor
from .base import Optimizer, Steps
from .given import NUMBERS
from .plain import Each, Launch

NO_MORE = (0.0,) * NUMBERS


class Block:
    """Parameters in one piece of memory, and their state: `steps` counts each one's updates, `state` holds the moments laid out like the
    memory, `kept` all moments of each parameter by name."""

    def __init__(self, params: list[Parameter], optimizer: Optimizer, slots: tuple[str, ...]):
        first = params[0]
        self.params, self.groups, self.steps = params, [optimizer.group_of[p.id] for p in params], [0] * len(params)
        self.buffer = self.master = first.buffer.root or first.buffer
        self.homes = [p.buffer for p in params]
        self.segments = tuple([(p.buffer.start, p.size) for p in params])
        size, device, self.dtype = self.buffer.size, self.buffer.device, computed(first.dtype)
        self.whole = sum([p.size for p in params]) == size
        self.one = no_factor(device)
        self.numbers: dict[int, Buffer] = {}  # where so many are put before an update
        self.state = {slot: zeros((size,), dtype=self.dtype, device=device).buffer for slot in slots}
        if first.dtype in HALF:
            self.master = device.empty(size, float32)
            device.stream.copy(self.master, self.buffer)
        laid = self.state if self.master is self.buffer else {**self.state, "master": self.master}
        self.kept: list[dict[str, Tensor]] = []
        for i, p in enumerate(params):
            apart = {slot: shape for slot, shape in optimizer.shapes_of(p, slots).items() if slot not in slots}
            alone = {slot: zeros(shape, dtype=self.dtype, device=device) for slot, shape in apart.items()}
            self.kept.append({**{slot: self.part(buffer, i) for slot, buffer in laid.items()}, **alone})

    def place(self, buffer: Buffer, i: int) -> Buffer:
        """What `buffer` (laid out like the parameters) holds for parameter i."""
        start, size = self.segments[i]
        return buffer.device.slot(buffer, start * buffer.dtype.itemsize, size, buffer.dtype)

    def part(self, buffer: Buffer, i: int) -> Tensor:
        """The same, of its shape."""
        return self.params[i].over(self.place(buffer, i))

    def fits(self, slots: tuple[str, ...]) -> bool:
        """Whether the parameters are still where they were, and these are the moments kept."""
        return tuple(self.state) == slots and all([p.buffer is home for p, home in zip(self.params, self.homes, strict=True)])

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

    def gradients(self, grads: GradientMap, found: Any) -> tuple[Any, Sequence[int], Buffer]:
        """One buffer laid out like the parameters, holding the gradients found (True: all are in the span); which parameters have one;
        the clip factor still to be applied."""
        span, everything = self.span_of(grads), range(len(self.params))
        if found is True:
            return span, everything, self.one if grads.factor is None else grads.factor
        chosen = [i for i, p in enumerate(self.params) if p.id in found]
        if chosen and span is None:
            span = self.gathered(found, chosen)
        return span, everything if len(chosen) == len(everything) else chosen, self.one

    def gathered(self, found: dict[int, Tensor], chosen: list[int]) -> Buffer:
        """Gradients that lie anywhere, in one buffer."""
        if len(self.params) == 1 and self.whole and self.buffer is self.params[0].buffer:
            return found[self.params[0].id].detach().to(self.dtype).buffer
        span = self.buffer.device.empty(self.buffer.size, self.dtype)
        for i in chosen:
            found[self.params[i].id].detach().copied_into(self.place(span, i))
        return span

    def update(self, optimizer: Optimizer, gradients: Buffer, chosen: Sequence[int], factor: Buffer, mark: Buffer, by: Any) -> None:
        """Update the `chosen` parameters. What changes from step to step is filled in by the host just before it."""
        self.refresh()
        everything, device = len(chosen) == len(self.params), self.buffer.device
        alike = not optimizer.apart and everything and self.alike()
        segments = ((0, self.buffer.size),) if alike else tuple([self.segments[i] for i in chosen])
        if seen:
            seen(self, "whether all parameters were updated as often", self.alike)
        hyper = device.stream.kept(self.numbers, NUMBERS * len(segments), self.dtype)
        device.stream.before(Counting(optimizer, self, chosen, [0] if alike else chosen).numbers, hyper)
        optimizer.write(Launch(self, chosen, segments, gradients, factor, mark, hyper))
        if self.master is not self.buffer:  # round the master copies into the parameters
            for i in chosen:
                self.params[i].device.stream.copy(self.homes[i], self.kept[i]["master"].buffer)
        for buffer in [self.buffer] if everything and self.whole else [self.homes[i] for i in chosen]:
            buffer.wrote(by)

    def refresh(self) -> None:
        """Take over into the master copies what others wrote into 16-bit parameters (set_data, load_state_dict ...)."""
        if self.master is not self.buffer:
            for p, kept in zip(self.params, self.kept, strict=True):
                master, now = kept["master"], p.detach().to(float32, device=self.buffer.device)
                held = ops.where(master.to(p.dtype).to(float32) == now, master, now)  # rounds to what is there: nobody wrote
                held.copied_into(master.buffer)


class Counting:
    """What the host does before an update of a block: counts the steps of the `chosen` parameters, and gives the numbers of the `first` of
    each segment."""

    __slots__ = ("block", "chosen", "first", "optimizer")

    def __init__(self, optimizer: Optimizer, block: Block, chosen: Sequence[int], first: Sequence[int]):
        self.optimizer, self.block, self.chosen, self.first = optimizer, block, chosen, first

    def numbers(self) -> Sequence[float]:
        number, optimizer, steps = self.block.groups, self.optimizer, self.block.steps
        if len(self.first) == 1 and len(self.chosen) == len(steps):  # all were updated as often
            steps = [steps[0] + 1] * len(steps)
        else:
            steps = list(steps)
            for i in self.chosen:
                steps[i] += 1
            if len(self.chosen) < len(steps):  # what block.alike() says may be another now
                changed(self.block)
        self.block.steps = steps  # another list: whoever has saved() the one before keeps those counts
        groups = optimizer.rates.groups
        found: list[float] = []
        for i in self.first:
            group = groups[number[i]]
            kept = group.kept
            row = kept[0](steps[i]) if kept else optimizer.numbers(group, steps[i])
            if len(row) == NUMBERS and len(self.first) == 1:
                return row
            found += row
            found += NO_MORE[len(row) :]
        return found

    def __eq__(self, other: object) -> bool:
        """Each step makes one anew: for a check of a captured step those of the same optimizer, block and parameters are the same."""
        if not isinstance(other, Counting):
            return False
        whose = other.optimizer is self.optimizer and other.block is self.block
        return whose and list(other.chosen) == list(self.chosen) and list(other.first) == list(self.first)

    __hash__ = object.__hash__

    def saved(self) -> list[int]:
        """The counts, for a replay that fails."""
        return self.block.steps

    def restore(self, steps: list[int]) -> None:
        self.block.steps = list(steps)


class Spans(Each):
    """How a step goes over an optimizer's parameters: block by block."""

    def homes(self, optimizer: Optimizer, slots: tuple[str, ...]) -> list[Any]:
        memory: dict[int, list[Parameter]] = {}
        for p in optimizer.params:
            memory.setdefault(id(p.buffer.root or p.buffer), []).append(p)
        return [Block(ps, optimizer, slots) for ps in memory.values()]

    def rearrange(self, optimizer: Optimizer, slots: tuple[str, ...]) -> None:
        with ExitStack() as stack:  # done once, also where a step is recorded
            for device in {p.device for p in optimizer.params}:
                stack.enter_context(device.stream.aside())
            super().rearrange(optimizer, slots)

    def found(self, optimizer: Optimizer, grads: GradientMap) -> Any:
        """True where spans hold a gradient for each parameter: then nothing has to be looked at one by one."""
        self.arrange(optimizer)
        blocks = optimizer.blocks
        if blocks and not optimizer.frozen() and all([b.span_of(grads) is not None for b in blocks]):
            return True
        return super().found(optimizer, grads)

    def usable(self, grads: GradientMap) -> Any:
        return True if grads.mark is None else grads.mark.device.stream.flag(grads.mark, USE)

    def take(self, optimizer: Optimizer, grads: GradientMap, found: Any, by: Any, done: Any) -> None:
        """The launches look at the mark: a recorded step can be skipped as well, and its counts are taken back then."""
        seen(optimizer, "parameters and moments to update", partial(depends_on, optimizer))
        before(optimizer.rates.begin)
        mark, stepped = grads.mark, []
        for block in optimizer.blocks:
            gradients, chosen, factor = block.gradients(grads, found)
            if len(chosen):
                block.update(optimizer, gradients, chosen, factor, block.one if mark is None else mark, by)
                stepped.append((block, chosen))
        if mark is not None and done is not True:
            mark.device.stream.after(partial(undo, optimizer.rates, stepped), mark)


def depends_on(optimizer: Optimizer) -> tuple[Any, ...]:
    """For a recorded step: which parameters move, and what is kept for them."""
    return len(optimizer.params), optimizer.frozen(), optimizer.used_slots(optimizer.groups)


def undo(rates: Any, stepped: list[tuple[Block, Sequence[int]]], mark: Buffer) -> None:
    """Take back the counts of a recorded step whose gradients were not to be used."""
    if not mark.device.download(mark)[USE]:
        rates.finished -= 1
        for block, chosen in stepped:
            for i in chosen:
                block.steps[i] -= 1


Steps.way = Spans()
