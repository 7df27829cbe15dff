"""Optimizer: parameters in groups of options, what is kept for each of them, and a step.

Read sgd.py and adam.py for what an optimizer says of itself. A step launches its formula for each parameter, or for all of packed memory
at once, with the same bits (engine/spans.py); state.py saves and restores.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from ..backend.formula.clip import USE
from ..bus import before, changed, seen, settings
from ..core import optimizers as core
from ..core.op import is_own
from ..core.tape import file_line, user_frame
from ..engine.spans import Block, Launch, spans_of, undo
from ..errors import StateError, warn
from ..gradient import GradientMap
from ..gradients.transforms import Transform, chain_of
from ..parameter import Parameter, check_forgotten
from . import state
from .given import Model, as_gradient, check_class, check_numbers, check_unscaled, list_of, name_of, triples
from .groups import Group, Groups, Rates, check_options, checked_groups, checked_rate


class Steps(state.Saved):
    """Base of both. `members()` are the optimizers that make the step."""

    model: Model
    params: Any
    members: Callable[[], Sequence[Any]]
    adopt: Callable[[list[Parameter]], None]  # take parameters that come with a step
    frozen: Callable[[], frozenset[int]]  # ids of the parameters that do not require grad: no step moves them

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """What is done to the gradients before each step. May be set as in the constructor."""
        return self.chain

    @transforms.setter
    def transforms(self, transforms: Any) -> None:
        self.chain = chain_of(self.name, transforms)
        changed(self)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget what set_grad() put into the parameters; backward() puts nothing there, so its loop needs no zero_grad()."""
        check_forgotten(self.name, set_to_none)
        for p in self.params:
            p.zero_grad()

    # ---- the step ------------------------------------------------------------------------------------------------------------------
    def step(self, grads: Any = None) -> Any:
        """Update every parameter that has a gradient and requires grad; returns whether anything was updated.

        `grads`: a GradientMap, a list of (id, parameter, gradient), or None for each parameter's `.grad`. Gradients marked as not to be
        used (a norm that is not finite, a spike, an overflow) change nothing and count no step. Warns (FlameWarning) if there is nothing
        to update. Raises ShapeError, DTypeError, DeviceError or StateError before anything is changed. In a captured step the result
        is a number, 1.0 or 0.0."""
        grads = grads if isinstance(grads, GradientMap) else self.as_map(grads)
        check_unscaled(self.name, grads)
        seen(self, "transforms", lambda: tuple([id(t) for t in self.chain]))
        if self.chain and any([p.id in grads for p in self.params if p.id not in self.frozen()]):
            for transform in self.chain:
                transform(grads, self)
        self.model.look(self, grads)
        members = self.members()
        found = [one._gradients(grads) for one in members]
        done = True if grads.mark is None else grads.mark.device.stream.flag(grads.mark, USE)
        if done is False:
            return False
        if not any(found):
            warn(f"{self.name}: step() had nothing to update: no parameter has a gradient. Pass loss.backward().")
            return False
        place = user_frame()
        for one, mine in zip(members, found, strict=True):
            by = partial(writer, one.name if one is self else f"{self.name}, {one.name}", place)
            one._take(grads, mine, by, done)
        return done

    def as_map(self, grads: Any) -> GradientMap:
        """What else step() takes, as a map that holds these very tensors."""
        if grads is None:
            self.model.look(self, None)
            rows = [(p, g) for p in self.params if (g := p.kept_grad()) is not None]
        else:
            rows = [(p, as_gradient(self.name, p, g)) for _, p, g in triples(self.name, grads) if g is not None]
            self.adopt([p for p, _ in rows])
        found = GradientMap()
        for p, g in rows:
            if p.requires_grad:
                (found.put if g.mark is None else found.insert)(p, g)
        return found


class Optimizer(Steps, core.Optimizer):
    """Base of all optimizers. See their docstrings; `step` and the state methods are the same for all.

    `params`: a ParameterDict, a Module, a list of Parameters, or a config object alone (then parameters come with step()).
    `groups`: {"glob of names": {option: value}} overrides options for some parameters; the first matching glob counts. A group's lr,
    or its `lr_scale`, is kept as a share of the optimizer's. `lr` may be a schedule: a function of the number of finished steps.
    `transforms`: what is done to the gradients before each step, in order: see flamepy.transforms.

    `formula(p, slots ..., g, numbers ..., *_)` gives p and the slots anew, each element by itself, in words of flamepy.words: the
    gradient is g, clipped; the numbers are those of numbers(). `slots`: names of the moments, which are zeros at first and saved."""

    slots: tuple[str, ...] = ()
    formula: Callable
    apart = False  # whether each parameter is a segment of its own
    together = False  # whether no parameter moves before all gradients were looked at
    make_rates = Rates

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not is_own(cls):
            check_class(cls)

    def __init__(
        self, params: Any, options: dict[str, Any] | None = None, groups: dict[str, dict[str, Any]] | None = None, transforms: Any = None
    ):  # fmt: skip
        if options is None:
            raise TypeError(f"{self.name}: no options: its __init__ gives none. Write super().__init__(params, {{'lr': lr, ...}}, groups).")
        given = checked_groups(self.name, groups, options)
        self.rates = self.make_rates(self.name, Group(self, {"names": [], **options}))
        for glob, changes in given.items():
            self.rates.add(Group(self, {"names": [], **options, **changes}, glob), changes)
        for group in self.groups:
            self.check(group)
            if not is_own(type(self)) and type(self).write is Optimizer.write:
                check_numbers(self, group)
        self.transforms = transforms
        self.params: list[Parameter] = []
        self.names: dict[int, str] = {}
        self.blocks: list[Any] = []  # what is kept for the parameters
        self.waiting: dict[str, tuple[int, dict[str, Any]]] = {}  # restored rows of parameters that have not come yet, with their group
        self.marks: dict[str, dict[str, str]] = {}  # and by what those without a name are known
        self.still: tuple[int, frozenset[int]] = (-1, frozenset())  # (version of all settings, ids that do not require grad)
        self.model = Model(params)
        self.adopt(found := list_of(self.name, params))
        self.open = not found  # parameters come with the steps
        if found and (empty := [group.glob for group in self.groups[1:] if not group["names"]]):
            names, named = ", ".join(self.names.values()), any([name_of(p) for p in self.params])
            advice = "Fix the glob" if named else "They have no names yet: put them into a Module or ParameterDict"
            raise StateError(f"{self.name}: no parameter matches the group '{empty[0]}': there are {names}. {advice}.")

    # ---- what an optimizer says of itself ------------------------------------------------------------------------------------------
    def check(self, options: dict[str, Any]) -> None:
        """Raise ValueError for impossible hyperparameters."""
        check_options(self.name, options)

    def numbers(self, group: dict[str, Any], step: int) -> Sequence[float]:
        """What the formula gets after the gradient, at most NUMBERS numbers, for parameters of a group that are updated for the `step`-th
        time."""
        raise NotImplementedError(f"{self.name}: no numbers(): its formula has none to compute with. Write numbers(self, group, step).")

    def used_slots(self, groups: Sequence[Any]) -> tuple[str, ...]:
        """The moments kept with these options, each laid out like the parameters."""
        return self.slots

    def shapes_of(self, p: Parameter, slots: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        """The shape of each moment of a parameter. What is not among `slots` is kept for each parameter alone."""
        return dict.fromkeys(slots, p.shape)

    def write(self, to: Launch) -> None:
        """All launches of an update: this one, unless an optimizer needs more."""
        to.update(self.formula, (to.block.master, *to.block.state.values()))

    def finish(self, stepped: list[tuple[Block, Sequence[int]]], by: Any) -> None:
        """What is left of an update `together` when all blocks are written; it tells them that they were."""

    # ---- its parameters ------------------------------------------------------------------------------------------------------------
    def members(self) -> Sequence[Optimizer]:
        return (self,)

    def arriving(self, params: Iterable[Parameter]) -> dict[str, Parameter]:
        """Those that are not here yet, by the names that they will have. Raises StateError unless all can be taken."""
        new: dict[str, Parameter] = {}
        for p in [p for p in dict.fromkeys(params) if p.id not in self.names]:
            name = name_of(p) or str(len(self.params) + len(new))
            if name in new or name in self.names.values():
                what = f"two parameters have one name: '{name}'"
                raise StateError(f"{self.name}: {what}. Put them into one ParameterDict, which names them.")
            new[name] = p
        if self.waiting:
            rows = {name: row for name, (_, row) in self.waiting.items()}
            state.check_places(self, new, rows, self.marks, self.used_slots(self.groups))
        return new

    def adopt(self, params: Iterable[Parameter], group: int | None = None) -> None:
        """Take parameters under this optimizer's care: all, or none of them (StateError)."""
        new = self.arriving(params)
        for name, p in new.items():
            self.params.append(p)
            self.names[p.id] = name
            p.held = True
            mine = next((g for g in self.groups if fnmatch.fnmatch(name, g.glob)), self.groups[0]) if group is None else self.groups[group]
            mine["names"].append(name)
        if new:
            changed(self)
        if rows := {name: self.waiting.pop(name)[1] for name in new if name in self.waiting}:
            self._arrange()
            state.put_rows(self, rows)

    def frozen(self) -> frozenset[int]:
        if self.still[0] != settings.version:
            self.still = settings.version, frozenset([p.id for p in self.params if not p.requires_grad])
        return self.still[1]

    # ---- the step, block by block --------------------------------------------------------------------------------------------------
    def _arrange(self) -> None:
        """Have a place for what is kept of each parameter; another one, with the same numbers, when it was moved since."""
        slots, blocks = self.used_slots(self.groups), self.blocks
        if sum([len(b.params) for b in blocks]) == len(self.params) and all([tuple(b.state) == slots and b.stays() for b in blocks]):
            return
        with ExitStack() as stack:  # done once, also where a step is recorded
            for device in {p.device for p in self.params}:
                stack.enter_context(device.stream.aside())
            rows = self.rows()
            for block in blocks:
                block.retire(f"a change of {self.name}'s parameters or state")
            group_of = {name: group for group in self.groups for name in group["names"]}
            self.blocks = [
                Block(span, ps, [group_of[self.names[p.id]] for p in ps], [self.shapes_of(p, slots) for p in ps], slots)
                for span, ps in spans_of(self.params)
            ]
            state.put_rows(self, rows)

    def _gradients(self, grads: GradientMap) -> Any:
        """Its parameters' by id; True where spans hold one for each: then nothing has to be looked at one by one."""
        self._arrange()
        still, blocks = self.frozen(), self.blocks
        if blocks and not still and all([b.span_of(grads) is not None for b in blocks]):
            return True
        stored = grads.stored()
        rows = [(p, g) for p in self.params if p.id not in still and (g := stored.get(p.id)) is not None]
        found = {p.id: as_gradient(self.name, p, g) for p, g in rows}
        if len(found) + len(still) < len(self.params):
            self.model.missed(self, found, grads)
        return found

    def _take(self, grads: GradientMap, found: Any, by: Any, done: Any) -> None:
        """Update the parameters with the gradients found, and count the step. The launches look at the mark: a recorded step can be
        skipped as well, `done` says whether, and its counts are taken back then."""
        seen(self, "parameters and moments to update", self._depends_on)
        before(self.rates.begin)
        mark, stepped = grads.mark, []
        for block in self.blocks:
            if to := block.launch(self, grads, found, mark):
                self.write(to)
                stepped.append((block, to.chosen))
                if not self.together:
                    block.wrote(to.chosen, by)
        if self.together and stepped:
            self.finish(stepped, by)
        if mark is not None and done is not True:
            mark.device.stream.after(partial(undo, self.rates, stepped), mark)

    def _depends_on(self) -> tuple[Any, ...]:
        """For a recorded step: which parameters move, and what is kept for them."""
        return len(self.params), self.frozen(), self.used_slots(self.groups)

    # ---- its options -----------------------------------------------------------------------------------------------------------------
    @property
    def groups(self) -> Groups:
        """The options: see groups.py."""
        return self.rates.groups

    param_groups = groups  # PyTorch's name

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
        self.arriving(ps)  # nothing is changed if they cannot be taken
        self.rates.add(new, options)
        self.adopt(ps, len(self.groups) - 1)

    def __setattr__(self, name: str, value: Any) -> None:
        """An option would be written beside the groups, which steps read."""
        groups = self.rates.groups if "rates" in self.__dict__ else ()
        if groups and name not in ("lr", "names") and name in groups[0]:
            advice = f"Set optimizer.groups[i]['{name}'] = v"
            raise AttributeError(f"{self.name}: {name} is an option of groups: optimizer.{name} = v. {advice}.")
        super().__setattr__(name, value)
        for group in groups:
            group.kept = []

    @property
    def lr(self) -> float:
        """The learning rate of the next step (in groups: times their share). A number or a schedule may be set."""
        seen(self, f"{self.name}.lr", self.rates.now, True)
        return self.rates.now()

    @lr.setter
    def lr(self, value: float) -> None:
        number = checked_rate(self.name, value, self.rates.finished) if callable(value) else value
        for group, lr in zip(self.groups, self.rates.of_groups(number), strict=True):
            self.check({**group, "lr": lr})
        seen(None, f"{self.name}.lr", lambda: value)
        before(partial(self.rates.set, value))

    def __repr__(self) -> str:
        def options(group: dict[str, Any]) -> str:
            return ", ".join([f"{key}={value!r}" for key, value in group.items() if key != "names" and value is not False])

        first, *others = self.rates.rows()
        by = f", lr by {self.rates.schedule!r}" if self.rates.schedule is not None else ""
        rows = [f"  {group.glob!r}: {options(row)}" for group, row in zip(self.groups[1:], others, strict=True)]
        count = f"{len(self.params)} parameter{'s' * (len(self.params) != 1)}"
        return "\n".join([f"{self.name}({count}{by}: {options(first)})", *rows])

    # ---- its state: see state.py -----------------------------------------------------------------------------------------------------
    rows, contents, checked = state.rows_of, state.contents, state.checked
    __getstate__, __setstate__ = state.pickled, state.unpickle


def writer(name: str, place: tuple[Any, int]) -> str:
    """Who wrote: what error texts say of a parameter that was updated too early."""
    return f"{name}.step at {file_line(place)}"
