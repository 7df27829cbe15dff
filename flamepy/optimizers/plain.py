"""The plain way of a step: one parameter after the other, each with its moments as tensors by name. spans.py has a faster one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..backend.base import Buffer
from ..creation import zeros
from ..engine.marks import no_factor
from ..gradient import GradientMap
from ..parameter import Parameter
from ..tensors import Tensor
from .given import NUMBERS, as_gradient
from .state import put_rows


class Home:
    """A parameter, how often it was updated, and its moments: tensors by name. Lists of one, as a Block of spans.py has many."""

    def __init__(self, p: Parameter, number: int, shapes: dict[str, tuple[int, ...]], slots: tuple[str, ...]):
        self.params, self.groups, self.steps, self.segments = [p], [number], [0], ((0, p.size),)
        self.dtype, self.slots = p.spec.computed, slots
        self.buffer = self.master = p.buffer
        self.kept = [{slot: zeros(shape, dtype=self.dtype, device=p.device) for slot, shape in shapes.items()}]
        self.state = {slot: self.kept[0][slot].buffer for slot in slots}

    def fits(self, slots: tuple[str, ...]) -> bool:
        """Whether the parameter is still where it was, and these are the moments kept."""
        return self.slots == slots and self.params[0].buffer is self.buffer

    def part(self, buffer: Buffer, i: int) -> Tensor:
        """What memory laid out like the parameter's holds for parameter i."""
        return self.params[i].over(buffer)

    def refresh(self) -> None: ...

    def retire(self, by: str) -> None: ...


class Launch:
    """What the launches of one update of a Home or Block have in common: the `chosen` parameters, their segments of the memory, gradients
    laid out like it, the clip factor and the mark (formula/clip.py), the numbers of each segment."""

    __slots__ = ("block", "chosen", "device", "factor", "gradients", "hyper", "mark", "segments")

    def __init__(self, block: Any, chosen: Sequence[int], segments: Any, gradients: Buffer, factor: Buffer, mark: Buffer, hyper: Buffer):
        self.block, self.chosen, self.segments, self.gradients = block, chosen, segments, gradients
        self.factor, self.mark, self.hyper, self.device = factor, mark, hyper, block.buffer.device

    def update(self, formula: Callable, outs: Sequence[Buffer]) -> None:
        """outs = formula(outs, clipped gradient, numbers) over the segments, unless the gradients are marked."""
        ins = (self.gradients, self.factor, self.mark, self.hyper)
        self.device.launch("update", formula, outs, ins, (self.segments,), self.block.dtype)

    def scratch(self) -> Buffer:
        """Memory laid out like the parameters'."""
        return self.device.empty(self.block.buffer.size, self.block.dtype)

    def by(self, values: Buffer) -> Launch:
        """The same with other numbers in the gradients' place, which no clip factor is for."""
        return Launch(self.block, self.chosen, self.segments, values, no_factor(self.device), self.mark, self.hyper)


class Each:
    """How a step goes over an optimizer's parameters: one after the other."""

    def homes(self, optimizer: Any, slots: tuple[str, ...]) -> list[Any]:
        return [Home(p, optimizer.group_of[p.id], optimizer.shapes_of(p, slots), slots) for p in optimizer.params]

    def arrange(self, optimizer: Any) -> None:
        """Have a place for what is kept of each parameter; another one, with the same numbers, when it was moved since."""
        slots, blocks = optimizer.used_slots(optimizer.groups), optimizer.blocks
        if sum([len(b.params) for b in blocks]) != len(optimizer.params) or not all([b.fits(slots) for b in blocks]):
            self.rearrange(optimizer, slots)

    def rearrange(self, optimizer: Any, slots: tuple[str, ...]) -> None:
        rows = optimizer.rows()
        for block in optimizer.blocks:
            block.retire(f"a change of {optimizer.name}'s parameters or state")
        optimizer.blocks = self.homes(optimizer, slots)
        put_rows(optimizer, rows)

    def found(self, optimizer: Any, grads: GradientMap) -> Any:
        """The gradients of its parameters, by id."""
        self.arrange(optimizer)
        still, name, stored = optimizer.frozen(), optimizer.name, grads.stored()
        found = {p.id: as_gradient(name, p, g) for p in optimizer.params if p.id not in still and (g := stored.get(p.id)) is not None}
        if len(found) + len(still) < len(optimizer.params):
            optimizer.model.missed(optimizer, found, grads)
        return found

    def usable(self, grads: GradientMap) -> Any:
        """Whether a step may use the gradients; in a captured step a number that says so."""
        return True

    def take(self, optimizer: Any, grads: GradientMap, found: Any, by: Any, done: Any) -> None:
        """Update the parameters with the gradients found, and count the step. `done`: what usable() said."""
        optimizer.rates.begin()
        for home in optimizer.blocks:
            p, device = home.params[0], home.buffer.device
            if p.id in found:
                home.steps[0] += 1
                row = list(optimizer.numbers(optimizer.groups[home.groups[0]], home.steps[0]))
                numbers = device.upload(np.array([*row, *[0.0] * (NUMBERS - len(row))], home.dtype))
                gradient, one = found[p.id].detach().to(home.dtype).buffer, no_factor(device)
                optimizer.write(Launch(home, [0], home.segments, gradient, one, one, numbers))
                p.buffer.wrote(by)
