"""What all optimizers share: blocks of memory, parameter groups, step counting, saved state.

One step is one launch for each block of memory (block.py): a table says which segments to touch (a parameter without a gradient
is left alone, bit for bit), and eight numbers a segment carry what changes (learning rate, bias corrections ...).

FLAME counterpart: `flame_core::optimizers`. Read next: adam.py.
"""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..autograd.entries import file_line, user_frame
from ..backend.base import Buffer
from ..backend.divert import active, before, guard, note
from ..errors import DTypeError, FlameWarning, ShapeError, StateError
from ..gradient import GradientMap, check_device
from ..parameter import Parameter
from ..tensors import Tensor
from .block import Block, Update
from .given import list_of, triples
from .rates import Rates, checked, finished_in


class Optimizer:
    """Base of SGD, Adam and AdamW. See their docstrings; `step` and the state methods are the same for all.

    `params`: a ParameterDict, a Module, a list of Parameters, or a config object alone (then parameters come with step()).
    `groups`: {"glob of names": {option: value}} overrides options for some parameters; the first matching glob counts. A group's lr,
    or its `lr_scale`, is kept as a share of the optimizer's. `lr` may be a schedule: a function of the number of finished steps.
    """

    name = "optimizer"
    slots: tuple[str, ...] = ()
    formula: Callable

    def __init__(self, params: Any, options: dict[str, Any], groups: dict[str, dict[str, Any]] | None):
        self.groups = [{"names": [], **options}]
        self.patterns: list[str] = []
        for pattern, changes in (groups or {}).items():
            unknown = set(changes) - set(options) - {"lr_scale"}
            if unknown:
                raise TypeError(f"{self.name}: unknown option in group '{pattern}': {', '.join(unknown)}. Known: {', '.join(options)}.")
            self.groups.append({"names": [], **options, **changes})
            self.patterns.append(pattern)
        self.rates = Rates(self, options["lr"], groups or {})
        for group in self.groups:
            self.check(group)
        self.params: list[Parameter] = []
        self.names: dict[int, str] = {}
        self.group_of: dict[int, int] = {}
        self.blocks: list[Block] = []
        self.waiting: dict[str, Any] | None = None  # a state restored before any parameter is known
        for p in list_of(self.name, params):
            self.adopt(p)
        for pattern, group in zip(self.patterns, self.groups[1:], strict=True):
            if self.params and not group["names"]:
                names = ", ".join(self.names.values())
                raise StateError(f"{self.name}: no parameter matches the group '{pattern}': there are {names}. Fix the glob.")

    def check(self, options: dict[str, Any]) -> None:
        """Raise ValueError for impossible hyperparameters."""
        for key, low, high in (("lr", 0, np.inf), ("eps", 0, np.inf), ("weight_decay", 0, np.inf), ("momentum", 0, np.inf)):
            if not hasattr(options.get(key, 0), "__float__"):
                raise DTypeError(f"{self.name}: {key} is no number: {options[key]!r}. Use a number >= 0.")
            if key in options and not low <= options[key] <= high:
                raise ValueError(f"{self.name}: {key} out of range: {options[key]}. Use a number >= 0.")
        betas = options.get("betas", (0, 0))
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"{self.name}: betas out of range: {betas}. Use two numbers in [0, 1).")

    def adopt(self, p: Parameter) -> None:
        """Take a parameter under this optimizer's care."""
        if p.id in self.names:
            return
        name = p.name or f"parameter{len(self.params)}"
        if name in self.names.values():
            raise StateError(f"{self.name}: two parameters have one name: '{name}'. Put them into one ParameterDict, which names them.")
        number = next((i + 1 for i, glob in enumerate(self.patterns) if fnmatch.fnmatch(name, glob)), 0)
        self.params.append(p)
        self.names[p.id] = name
        self.group_of[p.id] = number
        self.groups[number]["names"].append(name)

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

    def zero_grad(self) -> None:
        """Forget what set_grad() put into the parameters; backward() puts nothing there, so its loop needs no zero_grad()."""
        for p in self.params:
            p.zero_grad()

    def __repr__(self) -> str:
        def options(group: dict[str, Any]) -> str:
            return ", ".join([f"{key}={value!r}" for key, value in group.items() if key != "names"])

        first, *others = self.rates.groups()
        by = f", lr by {self.rates.schedule!r}" if self.rates.schedule is not None else ""
        rows = [f"  {pattern!r}: {options(group)}" for pattern, group in zip(self.patterns, others, strict=True)]
        return "\n".join([f"{self.name}({len(self.params)} parameters{by}: {options(first)})", *rows])

    # ---- the step -----------------------------------------------------------------------------------------------------------
    def step(self, grads: Any = None) -> None:
        """Update every parameter that has a gradient.

        `grads`: a GradientMap, a list of (id, parameter, gradient), or None for each parameter's `.grad`. Warns (FlameWarning) if
        nothing was updated. Raises ShapeError or DeviceError before anything is changed.
        """
        self.arrange()
        if not self.packed(grads):
            found = self.collect(grads)
            if not found:
                text = f"{self.name}: step() had nothing to update: no parameter has a gradient. Pass loss.backward()."
                warnings.warn(text, FlameWarning, stacklevel=2)
                return
            self.arrange()
        else:
            found = {}
        before(self.rates.begin)
        by = partial(writer, self.name, user_frame())
        for block in self.blocks:
            buffer, present, factor = block.gradients(found, grads)
            if buffer is not None:
                self.update(block, buffer, present, factor, by)

    def packed(self, grads: Any) -> bool:
        """Whether every parameter's gradient is where its parameter is, in a span: then nothing has to be looked at one by one."""
        return isinstance(grads, GradientMap) and bool(self.blocks) and all([b.span_of(grads) is not None for b in self.blocks])

    def collect(self, grads: Any) -> dict[int, Any]:
        """Gradients by parameter id, shapes and devices checked."""
        if isinstance(grads, GradientMap):
            found = {p.id: g for p in self.params if (g := grads.get(p)) is not None}
        elif grads is not None:
            rows = triples(self.name, grads)
            for _, p, _ in rows:
                self.adopt(p)
            if self.waiting is not None and self.params:
                self.load_state_dict(self.waiting)
            found = {p.id: g for _, p, g in rows if g is not None}
        else:
            found = {p.id: g for p in self.params if (g := p.kept_grad()) is not None}
        for p in self.params:
            if p.id in found and found[p.id].shape != p.shape:
                raise ShapeError(
                    f"{self.name}: gradient shape differs for {p.label}: expected {p.shape}, got {found[p.id].shape}. "
                    "Pass this model's gradients."
                )
            if p.id in found:
                check_device(self.name, p.label, p.device, found[p.id])
        return found

    def update(self, block: Block, gradients: Buffer, present: np.ndarray | None, factor: Buffer, by: Any) -> None:
        """One launch. What changes from step to step is filled in by the host just before it."""
        block.refresh()
        chosen = range(len(block.params)) if present is None else np.flatnonzero(present).tolist()
        alike = present is None and block.alike()
        first = [0] if alike else list(chosen)
        segments = ((0, block.buffer.size),) if alike else tuple([block.segments[i] for i in chosen])
        device = block.buffer.device

        if active:  # a step is recorded
            guard(self, "which moments it keeps", lambda: self.used_slots(self.groups), live=True)
            guard(block, "whether all parameters were updated as often", block.alike)
        # In a recorded step each update has its own: a replay fills all of them at once.
        hyper = device.empty(8 * len(segments), block.dtype) if active else block.hyper(len(segments))
        device.stream.before(Update(self, block, chosen, first).numbers, hyper)
        outs = (block.master, *block.state.values())
        device.launch("update", self.formula, outs, (gradients, factor, hyper), (segments,), block.dtype)
        block.publish(present, by)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        """What the formula gets after its arrays: at most eight numbers."""
        raise NotImplementedError

    def arrange(self) -> None:
        """Group parameters by the memory they are in; again when they were packed since, keeping their state."""
        slots = self.used_slots(self.groups)
        if sum([len(b.params) for b in self.blocks]) == len(self.params) and all(b.fits(slots) for b in self.blocks):
            return
        before = self.rows()
        homes: dict[int, list[Parameter]] = {}
        for p in self.params:
            homes.setdefault(id(p.buffer.root or p.buffer), []).append(p)
        for block in self.blocks:
            block.retire(f"a change of {self.name}'s parameters or state")
        self.blocks = [Block(ps, [self.group_of[p.id] for p in ps], slots) for ps in homes.values()]
        self.put_state(before)

    def used_slots(self, groups: list[dict[str, Any]]) -> tuple[str, ...]:
        """The moments kept with these options."""
        return self.slots

    # ---- state --------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain data: {"groups": [options and names], "state": {name: {"step": int, moment: array, ...}}}."""
        if self.waiting is not None:
            return self.waiting
        return {"groups": self.rates.groups(), "state": self.rows()}

    def rows(self) -> dict[str, dict[str, Any]]:
        """The state of every parameter that was updated, by name."""
        found: dict[str, dict[str, Any]] = {}
        for block in self.blocks:
            block.refresh()
            for i, p in enumerate(block.params):
                if block.steps[i]:
                    kept = block.state if block.master is block.buffer else {**block.state, "master": block.master}
                    arrays = {slot: block.part(buffer, i).numpy().copy() for slot, buffer in kept.items()}
                    found[self.names[p.id]] = {"step": block.steps[i], **arrays}
        return found

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Count, names and shapes are checked first; a failure changes nothing (StateError).

        An optimizer that knows no parameters yet (FLAME's style) keeps the state until the first step() names them.
        """
        if not isinstance(state, dict) or not {"groups", "state"} <= set(state):
            raise StateError(f"{self.name}: not the state of an optimizer: {type(state).__name__}. Pass what state_dict() returned.")
        if not self.params:
            self.waiting = state
            return
        groups = self.checked_groups(state["groups"], state["state"])
        self.check_rows(state["state"], self.used_slots(groups))
        finished = finished_in(self.name, state)
        lr = groups[0]["lr"] if self.rates.schedule is None else self.rates.asked(finished)
        for block in self.blocks:
            block.retire(f"{self.name}.load_state_dict()")
        self.groups, self.waiting, self.blocks, self.rates.finished = groups, None, [], finished
        self.rates.put(lr)
        self.arrange()
        self.put_state(state["state"])

    def checked_groups(self, groups: list[dict[str, Any]], rows: dict[str, Any]) -> list[dict[str, Any]]:
        """Groups with the options of a saved state, which must hold these parameters in the same groups."""
        saved, mine = [n for g in groups for n in g["names"]], list(self.names.values())
        if len(saved) != len(mine):
            counts = f"state has {len(saved)}, model has {len(mine)}"
            raise StateError(f"{self.name}: parameter count mismatch: {counts}. Restore the same model.")
        wrong = sorted(set(saved) ^ set(mine) | set(rows) - set(mine))
        if wrong:
            raise StateError(f"{self.name}: parameter names mismatch: {wrong}. Restore the same model.")
        if [sorted(g["names"]) for g in groups] != [sorted(g["names"]) for g in self.groups]:
            raise StateError(f"{self.name}: groups hold other parameters: {[g['names'] for g in groups]}. Use the same globs.")
        restored = []
        for old, new in zip(self.groups, groups, strict=True):
            if set(new) - {"finished"} != set(old):
                raise StateError(f"{self.name}: options differ: {sorted(set(new) ^ set(old))}. Restore the same kind of optimizer.")
            restored.append({k: v if k == "names" else tuple(new[k]) if isinstance(new[k], list) else new[k] for k, v in old.items()})
            self.check(restored[-1])
        return restored

    def check_rows(self, rows: dict[str, Any], slots: tuple[str, ...]) -> None:
        """Raise StateError unless every row has a step count and arrays of its parameter's shape."""
        shapes = {self.names[p.id]: p.shape for p in self.params}
        for name, row in rows.items():
            step = np.asarray(row.get("step"))
            if step.shape != () or step.dtype.kind not in "iu" or step < 0:
                raise StateError(f"{self.name}: not a step count: '{name}' has {row.get('step')!r}. Restore what state_dict() returned.")
            for slot in (*slots, "master") if "master" in row else slots:
                array = np.asarray(row.get(slot))
                if array.shape != shapes[name] or array.dtype.kind not in "fiu":
                    got = "nothing" if slot not in row else f"{array.shape} of {array.dtype}"
                    differ = f"state {got}, model {shapes[name]}"
                    raise StateError(f"{self.name}: shape mismatch for '{name}' {slot}: {differ}. Restore the same model.")

    def put_state(self, rows: dict[str, Any]) -> None:
        """Write moments and step counts by name into the blocks."""
        for block in self.blocks:
            targets = block.state if block.master is block.buffer else {**block.state, "master": block.master}
            for i, p in enumerate(block.params):
                row = rows.get(self.names[p.id], {})
                block.steps[i] = int(row.get("step", block.steps[i]))
                for slot, buffer in targets.items():
                    if slot in row:
                        array = np.asarray(row[slot], block.dtype)
                        Tensor.of(self.name, array, buffer.device).copied_into(block.part(buffer, i).buffer)

    # ---- pickling and copying: state by parameter, since ids and places in memory differ elsewhere ----------------------------
    def __getstate__(self) -> dict[str, Any]:
        mine = {key: value for key, value in vars(self).items() if key not in ("blocks", "names", "group_of")}
        places = [(self.names[p.id], self.group_of[p.id]) for p in self.params]
        copies = {"params": list(self.params), "groups": [{**g, "names": list(g["names"])} for g in self.groups]}
        return {**mine, **copies, "places": places, "rows": self.rows()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({key: value for key, value in state.items() if key not in ("places", "rows")})
        places = list(zip(self.params, state["places"], strict=True))
        self.names = {p.id: name for p, (name, _) in places}
        self.group_of = {p.id: group for p, (_, group) in places}
        self.blocks = []
        self.arrange()
        self.put_state(state["rows"])

    get_state = state_dict
    restore_state = load_state_dict


def writer(name: str, place: tuple[Any, int]) -> str:
    """Who wrote: what error texts say of a parameter that was updated too early."""
    return f"{name}.step at {file_line(place)}"
