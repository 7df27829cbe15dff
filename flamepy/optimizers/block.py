"""Block: the memory of one packed span, or of one parameter that is not packed, and its optimizer state in the same layout.

16-bit parameters have a float32 master copy here: the step works on it and rounds the result into the parameter, so that changes
smaller than the last bit add up. What others write into such a parameter in between is taken over into the master copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import ops
from ..backend.base import Buffer
from ..backend.divert import aside, changed
from ..dtypes import HALF, computed, float32
from ..gradient import GradientMap
from ..gradient_memory import no_factor
from ..parameter import Parameter
from ..tensors import Tensor

NUMBERS = 12  # what the formula of an update gets for each segment, at most
NO_MORE = (0.0,) * NUMBERS


class Block:
    """Parameters in one piece of memory, and their state: `steps` counts each one's updates, `state` holds the moments."""

    def __init__(self, params: list[Parameter], groups: list[int], slots: tuple[str, ...], shapes_of: Callable[..., dict[str, Any]]):
        first = params[0]
        self.params = params
        self.buffer = first.buffer.root or first.buffer
        self.homes = [p.buffer for p in params]
        self.segments = tuple([(p.buffer.start, p.size) for p in params])
        self.whole = sum(p.size for p in params) == self.buffer.size
        self.dtype = computed(first.dtype)
        self.steps = [0] * len(params)
        self.groups = groups
        device = self.buffer.device
        self.one = no_factor(device)
        self.master = self.buffer
        self.numbers: dict[int, Buffer] = {}
        with aside(device):  # made once, also where a step is recorded
            self.state = {slot: zeroed(device, self.buffer.size, self.dtype) for slot in slots}
            apart = [{slot: shape for slot, shape in shapes_of(p, slots).items() if slot not in slots} for p in params]
            self.apart = [{slot: ops.filled(shape, 0.0, self.dtype, device) for slot, shape in each.items()} for each in apart]
            if first.dtype in HALF:
                self.master = device.empty(self.buffer.size, float32)
                device.stream.copy(self.master, self.buffer)

    def span_of(self, grads: GradientMap) -> Buffer | None:
        """The span that holds all the gradients of this block where its parameters lie, as wide as they are, if there is one."""
        span = grads.whole(self.buffer)
        return span if span is not None and span.dtype == self.dtype else None

    def gradients(self, found: dict[int, Any] | None, grads: Any) -> tuple[Buffer | None, np.ndarray | None, Buffer]:
        """One buffer laid out like the parameters, holding the gradients there are (`found`, by id; None: all are in the span); which
        those are (None: all); the clip factor still to be applied."""
        one = self.one
        span = self.span_of(grads) if isinstance(grads, GradientMap) else None
        if found is None:
            return span, None, one if grads.factor is None else grads.factor
        present = np.array([p.id in found for p in self.params])
        if span is not None or not present.any():
            return span if present.any() else None, None if present.all() else present, one
        if len(self.params) == 1 and self.params[0].buffer.root is None and self.whole:
            return found[self.params[0].id].detach().to(self.dtype).buffer, None, one
        device = self.buffer.device
        span = device.empty(self.buffer.size, self.dtype)
        for p, (start, size) in zip(self.params, self.segments, strict=True):
            if p.id in found:
                place = device.slot(span, start * self.dtype.itemsize, size, self.dtype)
                found[p.id].detach().copied_into(place)
        return span, None if present.all() else present, one

    def alike(self) -> bool:
        """Whether one set of numbers is for all of the memory: every parameter is in one group and was updated as often."""
        count, first, group = len(self.params), self.steps[0], self.groups[0]
        return self.whole and self.groups.count(group) == count and self.steps.count(first) == count

    def hyper(self, segments: int) -> Buffer:
        """Where the numbers of each segment are put before an update."""
        if segments not in self.numbers:
            self.numbers[segments] = self.buffer.device.direct.empty(NUMBERS * segments, self.dtype)
        return self.numbers[segments]

    def part(self, buffer: Buffer, i: int) -> Tensor:
        """What `buffer` (laid out like the parameters) holds for parameter i."""
        start, size = self.segments[i]
        return self.params[i].over(buffer.device.slot(buffer, start * buffer.dtype.itemsize, size, buffer.dtype))

    def places(self, i: int) -> dict[str, Tensor]:
        """What is kept for parameter i, by name."""
        kept = self.state if self.master is self.buffer else {**self.state, "master": self.master}
        return {**{slot: self.part(buffer, i) for slot, buffer in kept.items()}, **self.apart[i]}

    def retire(self, by: str) -> None:
        """Say that this memory is not used any more: a recorded step that knows it must not be replayed."""
        masters = [] if self.master is self.buffer else [self.master]
        for buffer in [*masters, *self.state.values(), *[t.buffer for each in self.apart for t in each.values()]]:
            buffer.retired = by
        changed()

    def fits(self, slots: tuple[str, ...]) -> bool:
        """Whether the parameters are still where they were, and these are the moments kept."""
        return tuple(self.state) == slots and all([p.buffer is home for p, home in zip(self.params, self.homes, strict=True)])

    def refresh(self) -> None:
        """Take over into the master copies what others wrote into 16-bit parameters (set_data, load_state_dict ...)."""
        if self.master is not self.buffer:
            for i, p in enumerate(self.params):
                master, now = self.part(self.master, i), p.detach().to(float32, device=self.buffer.device)
                kept = ops.where(master.to(p.dtype).to(float32) == now, master, now)  # rounds to what is there: nobody wrote
                kept.copied_into(master.buffer)

    def publish(self, present: np.ndarray | None, by: Any) -> None:
        """Round the master copies of the parameters just updated into their own memory, and count the write."""
        if self.master is not self.buffer:
            for i, p in enumerate(self.params):
                if present is None or present[i]:
                    p.device.stream.copy(p.buffer, self.part(self.master, i).buffer)
        if present is None and self.whole:
            self.buffer.wrote(by)
        else:
            for i, b in enumerate(self.homes):
                if present is None or present[i]:
                    b.wrote(by)


class Update:
    """One update of a block: counts the steps of the `chosen` parameters, and gives the numbers of the `first` of each segment."""

    __slots__ = ("block", "chosen", "first", "optimizer")

    def __init__(self, optimizer: Any, block: Block, chosen: Sequence[int], first: Sequence[int]):
        self.optimizer, self.block, self.chosen, self.first = optimizer, block, chosen, first

    def numbers(self) -> Sequence[float]:
        numbers, optimizer, steps = self.block.groups, self.optimizer, self.block.steps
        if len(self.first) == 1 and len(self.chosen) == len(steps):  # all were updated as often
            steps = [steps[0] + 1] * len(steps)
        else:
            steps = list(steps)
            for i in self.chosen:
                steps[i] += 1
            if len(self.chosen) < len(steps):  # what block.alike() says may be another now
                changed()
        self.block.steps = steps  # another list: whoever has saved() the one before keeps those counts
        found: list[float] = []
        for i in self.first:
            group = optimizer.groups[numbers[i]]
            kept = group.kept
            row = kept[0](steps[i]) if kept else optimizer.numbers(group, steps[i])
            if len(row) == NUMBERS and len(self.first) == 1:
                return row
            found += row
            found += NO_MORE[len(row) :]
        return found

    def __eq__(self, other: object) -> bool:
        """Each step makes one anew: for a check of a captured step those of the same optimizer, block and parameters are the same."""
        if not isinstance(other, Update):
            return False
        whose = other.optimizer is self.optimizer and other.block is self.block
        return whose and list(other.chosen) == list(self.chosen) and list(other.first) == list(self.first)

    __hash__ = object.__hash__

    def saved(self) -> list[int]:
        """The counts, for a replay that fails."""
        return self.block.steps  # type: ignore[no-any-return]

    def restore(self, steps: list[int]) -> None:
        self.block.steps = list(steps)


class Launch:
    """What the launches of a step on a block have in common: the `chosen` parameters and their segments, gradients in a buffer laid out
    like the block's, the clip factor and the mark, the numbers of each segment."""

    __slots__ = ("block", "chosen", "device", "factor", "gradients", "hyper", "mark", "segments")

    def __init__(
        self, block: Block, chosen: Sequence[int], segments: Any, gradients: Buffer, factors: tuple[Buffer, Buffer], hyper: Buffer
    ):
        self.block, self.chosen, self.segments, self.gradients, self.hyper = block, chosen, segments, gradients, hyper
        self.factor, self.mark = factors
        self.device = block.buffer.device

    def update(self, formula: Callable, outs: Sequence[Buffer]) -> None:
        """outs = formula(outs, clipped gradient, numbers) over the segments, unless the gradients are marked."""
        ins = (self.gradients, self.factor, self.mark, self.hyper)
        self.device.launch("update", formula, outs, ins, (self.segments,), self.block.dtype)

    def scratch(self) -> Buffer:
        """Memory laid out like the block's."""
        return self.device.empty(self.block.buffer.size, self.block.dtype)

    def by(self, values: Buffer) -> Launch:
        """The same with other numbers in the gradients' place, which no clip factor is for."""
        return Launch(self.block, self.chosen, self.segments, values, (no_factor(self.device), self.mark), self.hyper)


def zeroed(device: Any, size: int, dtype: np.dtype) -> Buffer:
    buffer = device.empty(size, dtype)
    device.launch("fill", None, (buffer,), (), (dtype.type(0),), dtype)
    return buffer
