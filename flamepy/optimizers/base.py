"""What all optimizers share: parameter groups, transforms of the gradients, blocks of memory, step counting.

One step is one launch for each block of memory (block.py): a table says which segments to touch (a parameter without a gradient
is left alone, bit for bit), and some numbers a segment carry what changes (learning rate, bias corrections ...). Gradients may be marked
as not to be used (formula/clip.py): the launch looks at the mark, so that a recorded step can be skipped as well.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..autograd.entries import file_line, user_frame
from ..backend.base import Buffer
from ..backend.divert import Settings, active, before, changed, guard, note
from ..backend.formula.clip import USE
from ..engine.capture.values import LEAF, leaf_settings
from ..errors import StateError, warn
from ..gradient import GradientMap
from ..parameter import Parameter
from ..tensors import Tensor
from . import state
from .arrivals import check_arrivals
from .block import NUMBERS, Block, Launch, Update
from .chained import Chained
from .given import as_gradient, as_map, check_unscaled, list_of, mark_of, not_replayed, recording, refused, say_if_replaced, triples
from .groups import Group, Groups, check_options, checked_groups, name_of
from .model import Model
from .rates import Rates, checked
from .rule import Rule


class Optimizer(Rule, Chained):
    """Base of all optimizers. See their docstrings; `step` and the state methods are the same for all.

    `params`: a ParameterDict, a Module, a list of Parameters, or a config object alone (then parameters come with step()).
    `groups`: {"glob of names": {option: value}} overrides options for some parameters; the first matching glob counts. A group's lr,
    or its `lr_scale`, is kept as a share of the optimizer's. `lr` may be a schedule: a function of the number of finished steps.
    `transforms`: what is done to the gradients before each step, in order: see flamepy.transforms.
    """

    name = "optimizer"
    order = "torch"
    told = False  # whether it has said that a parameter was replaced in its model
    apart = False  # whether each parameter is a segment of its own

    def __init__(
        self, params: Any, options: dict[str, Any] | None = None, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None
    ):  # fmt: skip
        if options is None:
            raise TypeError(f"{self.name}: no options: its __init__ gives none. Write super().__init__(params, {{'lr': lr, ...}}, groups).")
        given = checked_groups(self.name, groups, options)
        self.groups = Groups([Group(self, {"names": [], **options, **changes}) for changes in ({}, *given.values())])
        self.patterns = list(given)
        self.rates = Rates(self, options["lr"], groups or {})
        for group in self.groups:
            self.check(group)
            self.check_numbers(group)
        self.transforms = transforms
        self.params: list[Parameter] = []
        self.names: dict[int, str] = {}
        self.group_of: dict[int, int] = {}
        self.blocks: list[Block] = []
        self.waiting: dict[str, tuple[int, dict[str, Any]]] = {}  # restored rows of parameters that have not come yet, with their group
        self.marks: dict[str, dict[str, str]] = {}  # and by what those without a name are known
        self.model = Model(params)
        self.still: tuple[int, frozenset[int]] = (-1, frozenset())  # (version of the settings, ids that do not require grad)
        self.adopt(found := list_of(self.name, params))
        self.open = not found  # parameters come with the steps
        for pattern, group in zip(self.patterns, self.groups[1:], strict=True):
            if self.params and not group["names"]:
                names, named = ", ".join(self.names.values()), any([name_of(p) for p in self.params])
                advice = "Fix the glob" if named else "They have no names yet: put them into a Module or ParameterDict"
                raise StateError(f"{self.name}: no parameter matches the group '{pattern}': there are {names}. {advice}.")

    def __setattr__(self, name: str, value: Any) -> None:
        """An option would be written beside the groups, which steps read."""
        if name not in ("lr", "names") and name in self.__dict__.get("groups", ({},))[0]:
            raise AttributeError(
                f"{self.name}: {name} is an option of groups: optimizer.{name} = v. Set optimizer.groups[i]['{name}'] = v."
            )
        super().__setattr__(name, value)
        for group in self.__dict__.get("groups", ()):
            group.kept = []

    def check(self, options: dict[str, Any]) -> None:
        """Raise ValueError for impossible hyperparameters."""
        check_options(self.name, options)

    def adopt(self, params: Iterable[Parameter], group: int | None = None) -> None:
        """Take parameters under this optimizer's care: all, or none of them (StateError)."""
        new: dict[str, Parameter] = {}
        for p in [p for p in dict.fromkeys(params) if p.id not in self.names]:
            name = name_of(p) or str(len(self.params) + len(new))
            if name in new or name in self.names.values():
                what = f"two parameters have one name: '{name}'"
                raise StateError(f"{self.name}: {what}. Put them into one ParameterDict, which names them.")
            new[name] = p
        check_arrivals(self, new)
        for name, p in new.items():
            number = next((i + 1 for i, glob in enumerate(self.patterns) if glob and fnmatch.fnmatch(name, glob)), 0)
            self.params.append(p)
            self.names[p.id] = name
            p.held = True
            self.group_of[p.id] = number if group is None else group
            self.groups[self.group_of[p.id]]["names"].append(name)
        if new:
            changed()
        rows = {name: self.waiting.pop(name)[1] for name in new if name in self.waiting}
        if rows:
            self.arrange()
            state.put_rows(self, rows)

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Take more parameters: {"params": parameters, option: value, ...}. Raises TypeError or ValueError as the constructor does, and
        StateError for one that is here already."""
        options = {key: value for key, value in dict(group).items() if key != "params"}
        if "params" not in group:
            raise TypeError(f'{self.name}: a group without parameters: {list(options)}. Pass {{"params": [...], ...}}.')
        ps = list_of(self.name, group["params"])
        if here := [p.label for p in ps if p.id in self.names]:
            raise StateError(f"{self.name}: a parameter is here already: {here[0]}. Change its group: optimizer.groups.")
        new = Group(self, {**self.groups[0], "names": []})
        new.update({key: value for key, value in options.items() if key != "lr_scale"})
        factor = self.rates.factor("", self.lr, options)
        before, self.groups = self.groups, Groups([*self.groups, new])
        try:
            self.adopt(ps, len(before))
        except StateError:
            self.groups = before
            raise
        self.patterns.append("")
        self.rates.add(factor)

    @property
    def param_groups(self) -> Groups:
        """PyTorch's name of `groups`."""
        return self.groups

    @property
    def lr(self) -> float:
        """The learning rate of the next step (in groups: times their share). A number or a schedule may be set."""
        guard(self, f"{self.name}.lr", self.rates.now, live=True)
        return self.rates.now()

    @lr.setter
    def lr(self, value: float) -> None:
        number = checked(self.name, value(self.rates.finished), self.rates.finished) if callable(value) else value
        for group, lr in zip(self.groups, self.rates.of_groups(number), strict=True):
            self.check({**group, "lr": lr})
        note(f"{self.name}.lr", value)
        before(partial(self.rates.set, value))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget what set_grad() put into the parameters; backward() puts nothing there, so its loop needs no zero_grad()."""
        if not set_to_none:
            raise ValueError(f"{self.name}.zero_grad: gradients are forgotten, not zeroed: set_to_none=False. Use p.set_grad(zeros).")
        for p in self.params:
            p.zero_grad()

    def __repr__(self) -> str:
        def options(group: dict[str, Any]) -> str:
            return ", ".join([f"{key}={value!r}" for key, value in group.items() if key != "names" and value is not False])

        first, *others = self.rates.groups()
        by = f", lr by {self.rates.schedule!r}" if self.rates.schedule is not None else ""
        rows = [f"  {pattern!r}: {options(group)}" for pattern, group in zip(self.patterns, others, strict=True)]
        count = f"{len(self.params)} parameter{'s' * (len(self.params) != 1)}"
        return "\n".join([f"{self.name}({count}{by}: {options(first)})", *rows])

    # ---- the step -----------------------------------------------------------------------------------------------------------
    def step(self, grads: Any = None) -> Any:
        """Update every parameter that has a gradient and requires grad; returns whether anything was updated.

        `grads`: a GradientMap, a list of (id, parameter, gradient), or None for each parameter's `.grad`. Gradients marked as not to be
        used (a norm that is not finite, a spike, an overflow) change nothing and count no step. Warns (FlameWarning) if there is nothing
        to update. Raises ShapeError, DTypeError, DeviceError or StateError before anything is changed. In a captured step the result
        is a number, 1.0 or 0.0.
        """
        self.arrange()
        grads, found = self.collect(grads)
        if refused(mark := mark_of(grads)):
            return False
        if found is not None and not found:
            text = f"{self.name}: step() had nothing to update: no parameter has a gradient. Pass loss.backward()."
            warn(text)
            return False
        self.take(grads, found, mark, partial(writer, self.name, user_frame()))
        return True if mark is None or not recording() else mark.device.stream.number(mark, USE)

    def take(self, grads: Any, found: dict[int, Tensor] | None, mark: Buffer | None, by: Any) -> None:
        """Update the parameters with these gradients (see collect()), and count the step."""
        if recording():
            self.guard_settings()
        before(self.rates.begin)
        stepped = []
        for block in self.blocks:
            buffer, present, factor = block.gradients(found, grads)
            if buffer is not None:
                self.update(block, buffer, present, (factor, mark or block.one), by)
                stepped.append((block, present))
        if mark is not None and recording():
            mark.device.stream.after(partial(self.undo, stepped), mark)

    def collect(self, grads: Any) -> tuple[Any, dict[int, Tensor] | None]:
        """The gradients as a map where they came or are needed as one, and by parameter id; None for these where a packed map holds one
        for each parameter: then nothing has to be looked at one by one."""
        if not isinstance(grads, GradientMap):
            pairs = self.pairs(grads)
            if not self.chain and all([g.mark is None for _, g in pairs.values()]):
                return None, {key: as_gradient(self.name, p, g) for key, (p, g) in pairs.items()}
            grads = as_map(pairs)
        check_unscaled(self.name, grads)
        self.transform(grads)
        return grads, self.found_in(grads)

    def pairs(self, grads: Any) -> dict[int, tuple[Parameter, Any]]:
        """Parameters that require grad, with their gradients, by id: of (id, parameter, gradient), or for None each one's `.grad`."""
        if grads is None:
            self.model.look(self, None)
            return {p.id: (p, g) for p in self.params if p.requires_grad and (g := p.kept_grad()) is not None}
        rows = [(p, as_gradient(self.name, p, g)) for _, p, g in triples(self.name, grads) if g is not None]
        self.adopt([p for p, _ in rows])
        self.arrange()
        return {p.id: (p, g) for p, g in rows if p.requires_grad}

    def found_in(self, grads: GradientMap) -> dict[int, Tensor] | None:
        """The gradients of this optimizer's parameters in a map, by id; None where they are all in spans of it."""
        if self.model.layers != Settings.layers or self.model.new:
            self.model.look(self, grads)
        still = self.frozen()
        if self.blocks and not still and all([b.span_of(grads) is not None for b in self.blocks]):
            return None
        found = {p.id: as_gradient(self.name, p, g) for p in self.params if p.id not in still and (g := grads.get(p)) is not None}
        if len(found) + len(still) < len(self.params):
            say_if_replaced(self, found, grads)
        return found

    def frozen(self) -> frozenset[int]:
        """Ids of the parameters that do not require grad: no step moves them."""
        if self.still[0] != Settings.version:
            self.still = Settings.version, frozenset([p.id for p in self.params if not p.requires_grad])
        return self.still[1]

    def guard_settings(self) -> None:
        """A recorded step depends on the transforms, and on which parameters there are and require grad."""
        self.guard_chain()
        guard(self, "how many parameters it has", lambda: len(self.params))
        for p in self.params:
            guard(p, LEAF, partial(leaf_settings, p))

    def undo(self, stepped: list[tuple[Block, Any]], mark: Buffer) -> None:
        """Take back the counts of a recorded step whose gradients were not to be used."""
        if not mark.device.download(mark)[USE]:
            self.rates.finished -= 1
            for block, present in stepped:
                for i in range(len(block.params)) if present is None else np.flatnonzero(present).tolist():
                    block.steps[i] -= 1

    def update(self, block: Block, gradients: Buffer, present: np.ndarray | None, factors: tuple[Buffer, Buffer], by: Any) -> None:
        """Update a block. What changes from step to step is filled in by the host just before it. `factors`: of clipping, to be applied
        as gradients are read, and the mark."""
        block.refresh()
        chosen = range(len(block.params)) if present is None else np.flatnonzero(present).tolist()
        alike = not self.apart and present is None and block.alike()
        segments = ((0, block.buffer.size),) if alike else tuple([block.segments[i] for i in chosen])
        hyper = self.prepare(block, chosen, [0] if alike else chosen)
        self.write(Launch(block, chosen, segments, gradients, factors, hyper))
        block.publish(present, by)

    def prepare(self, block: Block, chosen: Sequence[int], first: Sequence[int]) -> Buffer:
        """Where the numbers of each segment will stand. Counts the step of the `chosen` parameters; `first`: one of each segment."""
        device = block.buffer.device
        if active:  # a step is recorded
            guard(self, "which moments it keeps", lambda: self.used_slots(self.groups))
            guard(block, "whether all parameters were updated as often", block.alike)
        # In a recorded step each update has its own: a replay fills all of them at once.
        hyper = device.empty(NUMBERS * len(first), block.dtype) if active else block.hyper(len(first))
        device.stream.before(Update(self, block, chosen, first).numbers, hyper)
        return hyper

    def arrange(self) -> None:
        """Group parameters by the memory they are in; again when they were packed since, keeping their state."""
        slots = self.used_slots(self.groups)
        if sum([len(b.params) for b in self.blocks]) == len(self.params) and all(b.fits(slots) for b in self.blocks):
            return
        with not_replayed(self.params):
            rows = self.rows()
            homes: dict[int, list[Parameter]] = {}
            for p in self.params:
                homes.setdefault(id(p.buffer.root or p.buffer), []).append(p)
            for block in self.blocks:
                block.retire(f"a change of {self.name}'s parameters or state")
            self.blocks = [Block(ps, [self.group_of[p.id] for p in ps], slots, self.shapes_of) for ps in homes.values()]
            state.put_rows(self, rows)

    def used_slots(self, groups: Sequence[Any]) -> tuple[str, ...]:
        """The moments kept with these options, each laid out like the parameters."""
        return self.slots

    def shapes_of(self, p: Parameter, slots: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        """The shape of each moment of a parameter. What is not among `slots` is kept for each parameter alone."""
        return dict.fromkeys(slots, p.shape)

    # ---- state --------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain data: see state.py."""
        return state.state_dict(self)

    def rows(self) -> dict[str, dict[str, Any]]:
        """The state of every parameter that was updated, by name."""
        found: dict[str, dict[str, Any]] = {}
        for block in self.blocks:
            block.refresh()
            for i, p in enumerate(block.params):
                if block.steps[i]:
                    arrays = {slot: part.numpy().copy() for slot, part in block.places(i).items()}
                    found[self.names[p.id]] = {"step": block.steps[i], **arrays}
        return found

    def load_state_dict(self, found: dict[str, Any]) -> None:
        """Restore state_dict(). Class, count, names and shapes are checked first; a failure changes nothing (StateError).

        Options are the state's afterwards, not those of the constructor: to go on with another lr, set optimizer.lr. A schedule stays.

        An optimizer that learns of its parameters with step() (FLAME's style) keeps the state of those that have not come yet.
        """
        state.load_state_dict(self, found)

    def __getstate__(self) -> dict[str, Any]:
        return state.pickled(self)

    def __setstate__(self, found: dict[str, Any]) -> None:
        state.unpickle(self, found)

    get_state = state_dict
    restore_state = load_state_dict


def writer(name: str, place: tuple[Any, int]) -> str:
    """Who wrote: what error texts say of a parameter that was updated too early."""
    return f"{name}.step at {file_line(place)}"
