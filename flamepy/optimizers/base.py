"""What all optimizers share: blocks of memory, parameter groups, step counting, saved state.

A Block is the memory of one packed span, or of one parameter that is not packed, with the moments beside it in the same layout.
One step is one launch for each block: a table says which segments to touch (a parameter without a gradient is left alone, bit
for bit), and eight numbers a segment carry what changes (learning rate, bias corrections ...).

May import: errors, backend, gradient, op, ops, tensors, parameter. FLAME counterpart: `flame_core::optimizers`.
Read next: adam.py.
"""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from ..entries import file_line, user_frame
from ..backend.base import HALF, Buffer, float32
from ..backend.plans import span_table
from ..errors import FlameWarning, ShapeError, StateError
from ..gradient import GradientMap
from ..parameter import Parameter
from ..tensors import Tensor


class Block:
    """Parameters in one piece of memory, and their state: `steps` counts each one's updates, `state` holds the moments."""

    def __init__(self, params: list[Parameter], slots: int):
        first = params[0]
        self.params = params
        self.buffer = first.buffer.span if first.buffer.span is not None else first.buffer
        self.slots = [p.buffer for p in params]
        self.segments = tuple([(p.buffer.start, p.size) for p in params])
        self.whole = sum(p.size for p in params) == self.buffer.size
        self.dtype = float32 if first.dtype in HALF else first.dtype
        self.steps = np.zeros(len(params), np.int64)
        device = self.buffer.device
        self.state = [zeroed(device, self.buffer.size, self.dtype) for _ in range(slots)]
        self.master = self.buffer
        if first.dtype in HALF:
            self.master = device.empty(self.buffer.size, float32)
            device.convert(self.master, self.buffer)

    def gradients(self, found: dict[int, Any], grads: Any) -> tuple[Buffer | None, np.ndarray]:
        """One buffer laid out like the parameters, holding the gradients there are, and which those are."""
        span = grads.whole(self.buffer) if isinstance(grads, GradientMap) and self.whole else None
        if span is not None and span.dtype == self.dtype:
            return span, np.ones(len(self.params), bool)
        present = np.array([p.id in found for p in self.params])
        if not present.any():
            return None, present
        if len(self.params) == 1 and self.buffer.span is None and self.whole:
            return found[self.params[0].id].detach().to(self.dtype).buffer, present
        device = self.buffer.device
        span = device.empty(self.buffer.size, self.dtype)
        for p, (start, size) in zip(self.params, self.segments, strict=True):
            if p.id in found:
                found[p.id].detach().to(self.dtype).copied_into(device.slot(span, start, size))
        return span, present

    def view(self, buffer: Buffer, i: int) -> np.ndarray:
        start, size = self.segments[i]
        return buffer.device.download(buffer)[start : start + size].reshape(self.params[i].shape)


def zeroed(device: Any, size: int, dtype: np.dtype) -> Buffer:
    buffer = device.empty(size, dtype)
    device.stream.run(device.kernel("fill", None, dtype), size, (buffer,), (), (dtype.type(0),))
    return buffer


class Optimizer:
    """Base of SGD, Adam and AdamW. See their docstrings; `step` and the state methods are the same for all.

    `params`: a ParameterDict, a Module, a list of Parameters, or a config object alone (then parameters come with step()).
    `groups`: {"glob of names": {option: value}} overrides options for some parameters; the first matching glob counts.
    """

    name = "optimizer"
    slots: tuple[str, ...] = ()
    formula: Callable
    loop = "span_update"

    def __init__(self, params: Any, options: dict[str, Any], groups: dict[str, dict[str, Any]] | None):
        self.groups = [{"names": [], **options}]
        self.patterns: list[str] = []
        for pattern, changes in (groups or {}).items():
            unknown = set(changes) - set(options)
            if unknown:
                raise TypeError(f"{self.name}: unknown option in group '{pattern}': {', '.join(unknown)}. Known: {', '.join(options)}.")
            self.groups.append({"names": [], **options, **changes})
            self.patterns.append(pattern)
        for group in self.groups:
            self.check(group)
        self.params: list[Parameter] = []
        self.names: dict[int, str] = {}
        self.group_of: dict[int, int] = {}
        self.blocks: list[Block] = []
        for p in list_of(self.name, params):
            self.adopt(p)
        for pattern, group in zip(self.patterns, self.groups[1:], strict=True):
            if self.params and not group["names"]:
                raise StateError(f"{self.name}: no parameter matches the group '{pattern}': {', '.join(self.names.values())}. Fix the glob.")

    def check(self, options: dict[str, Any]) -> None:
        """Raise ValueError for impossible hyperparameters."""
        for key, low, high in (("lr", 0, np.inf), ("eps", 0, np.inf), ("weight_decay", 0, np.inf), ("momentum", 0, np.inf)):
            if key in options and not low <= options[key] <= high:
                raise ValueError(f"{self.name}: {key} out of range: {options[key]}. Use a number >= 0.")
        for beta in options.get("betas", ()):
            if not 0 <= beta < 1:
                raise ValueError(f"{self.name}: betas out of range: {options['betas']}. Use numbers in [0, 1).")

    def adopt(self, p: Parameter) -> None:
        """Take a parameter under this optimizer's care."""
        if p.id in self.names:
            return
        name = p.name or f"parameter{len(self.params)}"
        if name in self.names.values():
            raise StateError(f"{self.name}: two parameters are named '{name}'. Put them into one ParameterDict, which gives them names.")
        number = next((i + 1 for i, glob in enumerate(self.patterns) if fnmatch.fnmatch(name, glob)), 0)
        self.params.append(p)
        self.names[p.id] = name
        self.group_of[p.id] = number
        self.groups[number]["names"].append(name)

    @property
    def lr(self) -> float:
        """The learning rate (of the first group); setting it sets every group's."""
        return self.groups[0]["lr"]

    @lr.setter
    def lr(self, value: float) -> None:
        for group in self.groups:
            self.check({**group, "lr": value})
            group["lr"] = value

    # ---- the step -----------------------------------------------------------------------------------------------------------
    def step(self, grads: Any = None) -> None:
        """Update every parameter that has a gradient.

        `grads`: a GradientMap, a list of (id, parameter, gradient), or None for each parameter's `.grad`. Warns (FlameWarning) if
        nothing was updated. Raises ShapeError before anything is changed.
        """
        found = self.collect(grads)
        if not found:
            warnings.warn(f"{self.name}: step() had nothing to update: no parameter has a gradient. Pass loss.backward().", FlameWarning, stacklevel=2)
            return
        self.arrange()
        by = f"{self.name}.step at {file_line(user_frame())}"
        for block in self.blocks:
            buffer, present = block.gradients(found, grads)
            if buffer is not None:
                self.update(block, buffer, present, by)

    def collect(self, grads: Any) -> dict[int, Any]:
        """Gradients by parameter id, shapes checked."""
        if isinstance(grads, GradientMap):
            found = {p.id: g for p in self.params if (g := grads.get(p)) is not None}
        elif grads is not None:
            rows = list(grads)
            for _, p, _ in rows:
                self.adopt(p)
            found = {p.id: g for _, p, g in rows if g is not None}
        else:
            found = {p.id: p.grad for p in self.params if p.grad is not None}
        for p in self.params:
            if p.id in found and found[p.id].shape != p.shape:
                raise ShapeError(f"{self.name}: gradient shape differs for {p.label}: expected {p.shape}, got {found[p.id].shape}. Pass this model's gradients.")
        return found

    def update(self, block: Block, gradients: Buffer, present: np.ndarray, by: str) -> None:
        block.steps[present] += 1
        keys = [(self.group_of[p.id], step) for p, step, here in zip(block.params, block.steps.tolist(), present, strict=True) if here]
        if len(set(keys)) == 1 and present.all() and block.whole:
            segments: tuple = ((0, block.buffer.size),)
            numbers = [self.numbers(self.groups[keys[0][0]], keys[0][1])]
        else:
            segments = tuple([s for s, here in zip(block.segments, present, strict=True) if here])
            numbers = [self.numbers(self.groups[group], step) for group, step in keys]
        if block.buffer.span is None and len(block.params) == 1:
            segments = ((0, block.buffer.size),)
        device = block.buffer.device
        hyper = np.zeros((len(numbers), 8), block.dtype)
        hyper[:, : len(numbers[0])] = numbers
        kernel = device.kernel(f"span_update{len(block.state)}", self.formula, block.dtype)
        consts = (device.constant(span_table(segments)), device.constant(hyper.reshape(-1)))
        device.stream.run(kernel, block.buffer.size, (block.master, *block.state), (gradients,), consts)
        if block.master is not block.buffer:
            device.convert(block.buffer, block.master)
        block.buffer.wrote(by)

    def numbers(self, group: dict[str, Any], step: int) -> tuple[float, ...]:
        """What the formula gets after its arrays: at most eight numbers."""
        raise NotImplementedError

    def arrange(self) -> None:
        """Group parameters by the memory they are in; again when they were packed since, keeping their state."""
        if self.blocks and all([p.buffer is s for b in self.blocks for p, s in zip(b.params, b.slots, strict=True)]):
            if sum([len(b.params) for b in self.blocks]) == len(self.params):
                return
        before = {n: s for n, s in self.state_dict()["state"].items()}
        homes: dict[int, list[Parameter]] = {}
        for p in self.params:
            homes.setdefault(id(p.buffer.span) if p.buffer.span is not None else id(p.buffer), []).append(p)
        self.blocks = [Block(ps, len(self.used_slots())) for ps in homes.values()]
        self.put_state(before)

    def used_slots(self) -> tuple[str, ...]:
        return self.slots

    # ---- state --------------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Plain data: {"groups": [options and names], "state": {name: {"step": int, moment: array, ...}}}."""
        state: dict[str, Any] = {}
        for block in self.blocks:
            for i, p in enumerate(block.params):
                if block.steps[i]:
                    row: dict[str, Any] = {"step": int(block.steps[i])}
                    row |= {s: block.view(b, i).copy() for s, b in zip(self.used_slots(), block.state, strict=True)}
                    if block.master is not block.buffer:
                        row["master"] = block.view(block.master, i).copy()
                    state[self.names[p.id]] = row
        return {"groups": [{**g, "names": list(g["names"])} for g in self.groups], "state": state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore state_dict(). Count, names and shapes are checked first; a failure changes nothing (StateError)."""
        groups, rows = state["groups"], state["state"]
        saved = [n for g in groups for n in g["names"]]
        mine = list(self.names.values())
        if len(saved) != len(mine):
            raise StateError(f"{self.name}: parameter count mismatch: state has {len(saved)}, model has {len(mine)}. Restore the same model.")
        if sorted(saved) != sorted(mine) or len(groups) != len(self.groups) or not set(rows) <= set(mine):
            wrong = sorted(set(saved) ^ set(mine)) or "groups differ"
            raise StateError(f"{self.name}: parameter names mismatch: {wrong}. Restore the same model and groups.")
        if any([sorted(a["names"]) != sorted(b["names"]) for a, b in zip(groups, self.groups, strict=True)]):
            raise StateError(f"{self.name}: groups hold other parameters: {[g['names'] for g in groups]}. Use the same globs.")
        shapes = {self.names[p.id]: p.shape for p in self.params}
        for name, row in rows.items():
            for slot in self.used_slots():
                if slot not in row or np.shape(row[slot]) != shapes[name]:
                    got = np.shape(row[slot]) if slot in row else "nothing"
                    raise StateError(f"{self.name}: shape mismatch for '{name}' {slot}: state {got}, model {shapes[name]}. Restore the same model.")
        restored = [{**old, **{k: tuple(v) if isinstance(v, list) else v for k, v in new.items() if k != "names"}} for old, new in zip(self.groups, groups, strict=True)]
        for group in restored:
            self.check(group)
        self.groups = restored
        self.arrange()
        for block in self.blocks:
            block.steps[:] = 0
        self.put_state(rows)

    def put_state(self, rows: dict[str, Any]) -> None:
        """Write moments and step counts by name into the blocks."""
        for block in self.blocks:
            for i, p in enumerate(block.params):
                row = rows.get(self.names[p.id])
                if row is None:
                    continue
                start, size = block.segments[i]
                start = start if block.buffer.size != size else 0
                block.steps[i] = int(row["step"])
                targets = list(zip(self.used_slots(), block.state, strict=True))
                if block.master is not block.buffer and "master" in row:
                    targets.append(("master", block.master))
                for slot, buffer in targets:
                    Tensor.of(self.name, np.asarray(row[slot], block.dtype)).copied_into(buffer.device.slot(buffer, start, size))

    get_state = state_dict
    restore_state = load_state_dict


def list_of(name: str, params: Any) -> list[Parameter]:
    """Parameters from a ParameterDict, a Module, one Parameter or an iterable of them."""
    if params is None or is_dataclass(params):
        return []
    if hasattr(params, "params") and not isinstance(params, Parameter):  # a Module: its dictionary gives names
        params = params.params
    found = params.parameters() if hasattr(params, "parameters") else [params] if isinstance(params, Parameter) else list(params)
    if not found:
        raise StateError(f"{name}: no parameters. Pass a model, a ParameterDict or a list of Parameters.")
    for p in found:
        if not isinstance(p, Parameter):
            raise TypeError(f"{name}: not a Parameter: {type(p).__name__}. Pass a model, a ParameterDict or a list of Parameters.")
    return found


def options_of(config: Any, params: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options from a config object given as the second or the only argument, else the keywords."""
    chosen = config if is_dataclass(config) else params if is_dataclass(params) else None
    return asdict(chosen) if chosen is not None else options  # type: ignore[call-overload]
