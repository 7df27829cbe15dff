"""Program: the launches of a recorded step, its arena, and what it must find unchanged to be run again.

Buffers made by the step, its arguments among them, get places in one arena, by lifetime. Anything else that appears in it is held and
stays where it is. What the step did to the host's own state (random numbers, step counts) is done before the launches; when a replay
fails midway, it is taken back as far as the step did not come.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Sequence
from operator import call
from typing import Any

import numpy as np

from ...backend.base import Buffer
from ...backend.run import Action, Spot, Step, resolve
from ...bus import settings
from ...core.op import over
from ...errors import CaptureError
from .arena import Life, places
from .arguments import copy_of
from .handing import handed_out, with_calls
from .lean import leanest, lives_of, named
from .parts import without_copies
from .recorder import StepRecorder

UINT8 = np.dtype("uint8")
UNCHANGED = (), ()  # of the host's state nothing is kept


class Program:
    """Made when nothing of the step is left; `outputs`: places of the buffers it is asked for; `sets`: (after how many steps, owner,
    attribute, what stands there: (an output's number, a tensor like it), or a tensor from outside, or None)."""

    def __init__(self, recorder: StepRecorder, outputs: list[Any], sets: list[tuple[int, Any, str, Any]], name: str):
        self.device, self.name, self.writer = recorder.device, name, f"a replay of {name}"
        sizes = [(size, dtype) for _, size, dtype in recorder.made]
        steps, outputs = leanest(recorder.steps, outputs, recorder.inputs, sizes)
        steps = without_copies(steps, outputs, recorder.inputs, sizes, self.device)
        self.launches = sum(isinstance(s, Step) for s in steps)
        self.actions = sum(isinstance(s, Action) for s in steps)
        self.sets = sets
        set_places = [outputs[value[0]].number for _, _, _, value in sets if isinstance(value, tuple)]
        self.handed = handed = handed_out(steps, outputs, [*recorder.inputs, *set_places], sizes, self.device)
        lives = lives_of(steps, outputs, recorder.inputs, sizes, self.device.checks_late)
        self.memory = self.arena_for({n: life for n, life in lives.items() if n not in handed} if handed else lives, sizes)
        self.fillers = [self.device.stream.filler(self.memory[n]) for n in recorder.inputs]
        at = self.memory
        self.results: list[Any] = [handed[a.number] if type(a) is Spot and a.number in handed else resolve(a, at) for a in outputs]
        resolved = [(n, self.resolved(s)) for n, s in enumerate(steps) if s is not None]
        self.early = [(n, s) for n, s in resolved if isinstance(s, Action) and s.early]
        self.begin = [s.prepared() for _, s in self.early]
        self.rest = [(n, s) for n, s in resolved if not (isinstance(s, Action) and s.early)]
        self.held = list({id(b): b for b in roots([s for _, s in resolved]) if b is not self.arena}.values())
        self.known = {id(b) for b in self.held}
        written = {id(b): (n, b) for n, b in reversed(recorder.written) if isinstance(b, Buffer)}
        self.written = list(written.values())
        # Whose state to put back after a failure: the objects behind the early actions.
        owners = {id(o): o for _, s in self.early if hasattr(o := getattr(s.act, "__self__", None), "saved")}
        self.states: list[Any] = list(owners.values())
        self.saving = [o.saved for o in self.states]
        self.execute = self.device.direct.program(with_calls([s for _, s in self.rest], handed))
        self.start = self.execute.__call__  # an object is called in twice the time of its method
        self.begun = self.execute.begun
        self.settings = -1  # the version of all settings for which nothing was moved

    def arena_for(self, lives: dict[int, Life], sizes: list[tuple[int, np.dtype]]) -> dict[int, Buffer]:
        """A place for each numbered buffer."""
        offsets, self.bytes = places(list(lives.values()), self.device.align, self.device.gap)
        self.separate = sum([life.nbytes for life in lives.values()])  # what they would take without sharing
        self.arena = self.device.empty(max(1, self.bytes), UINT8)
        return {n: self.device.slot(self.arena, at, *sizes[n]) for n, at in zip(lives, offsets, strict=True)}

    def resolved(self, s: Step | Action) -> Step | Action:
        """A step with buffers in the place of its spots."""
        memory, handed = self.memory, self.handed
        if isinstance(s, Action):
            return s._replace(buffers=[b if type(b) is Spot and b.number in handed else resolve(b, memory) for b in s.buffers])
        groups = [[a if type(a) is Spot and a.number in handed else resolve(a, memory) for a in group] for group in s[1:]]
        return Step(s.kernel, *groups)

    def check(self) -> None:
        """Raise CaptureError when memory the program knows has been moved."""
        version = settings.version
        for b in self.held:
            if b.retired:
                raise CaptureError(f"capture: memory was moved since {self.name} was recorded: by {b.retired}. Capture it again.")
        self.settings = version

    def run(self, tensors: Sequence[Any], memory: Collection[int]) -> None:
        """Copy the arguments in (`memory`: ids of their roots), and run every step once. A failure leaves behind what the step itself would
        have left. One function: in a small step calls of Python's are a part of the time."""
        if self.settings != settings.version:
            self.check()
        if not self.known.isdisjoint(memory):
            check_apart(self.name, self.known, tensors, memory)
        if self.execute.waits:
            self.device.look()
        if tensors:  # zip() with a keyword takes its time even for nothing
            for fill, t in zip(self.fillers, tensors, strict=True):
                fill(t.buffer)
        states: Any = UNCHANGED
        if self.saving or self.sets:
            states = list(map(call, self.saving)), [getattr(owner, name) for _, owner, name, _ in self.sets]
        begun = False
        try:
            for act in self.begin:
                act()
            self.begun.value = 0
            begun = True
            self.start(self.take_back, states)
            for _, b in self.written:
                b.wrote(self.writer)
            if self.sets:
                self.assign(len(self.early) + len(self.rest))
        except BaseException:
            self.failed(states, self.begun.value if begun else 0)
            raise

    def failed(self, states: tuple[list[Any], list[Any]], reached: int) -> None:
        """Count what was written, and put the host's state to where the step had come."""
        at = self.take_back(states, reached)
        for result in self.handed.values():
            result.buffer = None
        for n, b in self.written:
            if n <= at:
                b.wrote(self.writer)
        self.assign(at)

    def take_back(self, states: tuple[list[Any], list[Any]], reached: int) -> int:
        """Put the counts, random numbers and attributes of a run that began with `states` to where the step was after so many of its
        calls; returns which step that is."""
        at = self.rest[reached - 1][0] if reached else -1
        for owner, state in zip(self.states, states[0], strict=True):
            owner.restore(state)
        for (n, owner, attribute, _), value in zip(self.sets, states[1], strict=True):
            if n > at:  # where a check fails late, it is set by now
                setattr(owner, attribute, value)
        for n, action in self.early:
            if n < at:
                action.act()
        return at

    def assign(self, reached: int) -> None:
        """Set the attributes that the step sets within so many steps."""
        for n, owner, attribute, value in self.sets:
            if n <= reached:
                setattr(owner, attribute, over(copy_of(self.results[value[0]]), value[1].shape) if isinstance(value, tuple) else value)

    def __repr__(self) -> str:
        megabytes = f"{self.bytes / 1e6:,.1f} MB, {self.separate / 1e6:,.1f} without sharing"
        return f"{self.launches} launches, {self.actions} actions of the host, arena {megabytes}"


def check_apart(name: str, held: set[int], tensors: Sequence[Any], roots: Collection[int]) -> None:
    """Raise CaptureError if an argument shares memory with what the step holds (ids of roots)."""
    if held.isdisjoint(roots):
        return
    shape = next(t.shape for t in tensors if id(t.buffer.root or t.buffer) in held)
    raise CaptureError(
        f"capture: an argument shares memory with a tensor that {name} itself uses: shape {shape}. A replay works on a copy of "
        "an argument: pass clone() of it, or use one of the two."
    )


def roots(steps: list[Any]) -> Iterator[Buffer]:
    """The memory that steps name."""
    for s in steps:
        for b in named(s):
            if isinstance(b, Buffer):
                yield b.root or b


def check_nothing_left(recorder: StepRecorder) -> None:
    """Raise CaptureError when a tensor made by the step is still alive: a replay would not make it anew."""

    def left() -> list[int]:
        return [n for n, (b, _, _) in enumerate(recorder.made) if n not in recorder.inputs and b() is not None]

    if left():
        recorder.device.look()  # checks that wait hold what they look at
    if left():
        gc.collect()  # it may be in a cycle that nobody knows any more
    for n in left():
        rows = zip(recorder.steps, recorder.wheres, strict=False)
        filled = (where for s, where in rows if isinstance(s, Step) and any([type(a) is Spot and a.number == n for a in s.outs]))
        place = next(filled, "a call that filled it")
        raise CaptureError(
            f"capture: a tensor of {recorder.made[n][1]} elements, made at {place}, is kept outside of the step. A replay would "
            "not make it anew: return it (or its values) from the step, or write it into a Parameter with set_data()."
        )
