"""Recorder: a stream that runs each launch and writes it down; Program: what was written, in one arena, ready to run again.

While a recorder is installed, its device's stream, empty(), upload() and download() are the recorder's, for the thread that
records; nothing else in the library knows. A buffer made meanwhile is numbered and gets a place in the arena. Any other buffer
that appears is held: parameters, optimizer state, constants. So is one that is still alive when the step has ended.

May import: errors, base, arena. FLAME counterpart: none. Read next: arena.py.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..backend import base
from ..backend.base import Buffer, Device, Kernel, Stream
from ..errors import CaptureError
from .arena import Life, places

PACKAGE = str(Path(__file__).parent.parent)
UINT8 = np.dtype("uint8")
VERBS = ("empty", "upload", "download")


class Spot(NamedTuple):
    """A part of a numbered buffer: how a step refers to memory that is elsewhere in a replay."""

    number: int
    start: int
    size: int
    shape: tuple[int, ...]


class Step(NamedTuple):
    """One launch, or (kernel None) something for the host to do. Arguments: Spots, held Buffers, scalars, tables."""

    kernel: Kernel | None
    action: Callable[..., None] | None
    work: int
    arguments: list[Any]


class Later:
    """A number the host will know after the step: it can be returned from a captured step, and nothing else."""

    def __init__(self, buffer: Buffer, i: int):
        self.buffer, self.i = buffer, i

    def refuse(self, *_: Any) -> Any:
        raise host_read()

    __float__ = __int__ = __bool__ = __index__ = __format__ = __str__ = __round__ = __neg__ = __abs__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = refuse
    __truediv__ = __rtruediv__ = __pow__ = refuse


def host_read() -> CaptureError:
    """The error for a read on the host: which call it was, and where outside this package."""
    call, place = user_call()
    return CaptureError(
        f"capture: the step reads a number on the host while it is recorded: {call}() at {place}. "
        "Return the tensor from the step and read it after the call."
    )


def user_call() -> tuple[str, str]:
    """(the function of this package that was called, file and line of the caller)."""
    frame, call = sys._getframe(1), ""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        call, frame = frame.f_code.co_name, frame.f_back
    return call, f"{frame.f_code.co_filename}:{frame.f_lineno}"


def root(buffer: Buffer) -> tuple[Buffer, int]:
    """The buffer that owns the memory, and where in it this one begins."""
    start = 0
    while buffer.span is not None:
        start += buffer.start
        buffer = buffer.span
    return buffer, start


class Recorder(Stream):
    """See above. With `planned` False it only takes down what was launched with which numbers, to be compared with."""

    def __init__(self, device: Device, planned: bool):
        self.device, self.inner, self.planned = device, device.stream, planned
        self.thread = threading.get_ident()
        self.away = 0  # depth of host actions, which may do what a step may not
        self.keys: list[tuple] = []  # what each step is, without its Python numbers
        self.numbers: list[tuple[tuple, str]] = []  # those numbers, and where the step was made
        self.steps: list[Step] = []
        self.made: list[tuple[Any, int, np.dtype]] = []  # (weak reference, size, dtype) of each buffer made meanwhile
        self.lives: dict[int, list[int]] = {}  # first and last step that names it
        self.written: dict[int, Buffer] = {}  # held buffers that are written to

    # ---- standing in the device's place ---------------------------------------------------------------------------------
    def install(self) -> None:
        self.device.stream = self
        for verb in VERBS:
            setattr(self.device, verb, getattr(self, verb))

    def remove(self) -> None:
        self.device.stream = self.inner
        for verb in VERBS:
            delattr(self.device, verb)

    def mine(self) -> bool:
        """Whether a call belongs to the step: other threads and host actions go on as ever."""
        return not self.away and threading.get_ident() == self.thread

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        buffer: Buffer = type(self.device).empty(self.device, size, dtype)
        if self.planned and self.mine():
            buffer.made = (self, len(self.made))
            self.made.append((weakref.ref(buffer), size, dtype))
        return buffer

    def upload(self, array: np.ndarray) -> Buffer:
        buffer: Buffer = type(self.device).upload(self.device, array)
        if self.mine():
            buffer.made = None  # a constant
            digest = hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest()
            self.note(f"data of shape {array.shape}", digest)
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        if self.planned and self.mine():
            raise host_read()
        found: np.ndarray = type(self.device).download(self.device, buffer)
        return found

    # ---- the stream's verbs ----------------------------------------------------------------------------------------------
    def run(self, kernel: Kernel, work: int, outs: Sequence[Buffer], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        self.inner.run(kernel, work, outs, ins, consts)
        if self.mine():
            arguments = [*outs, *ins, *consts]
            self.take_down(id(kernel), [a for a in arguments if not isinstance(a, Buffer | np.ndarray)], arguments)
            if self.planned:
                self.steps.append(Step(kernel, None, work, [self.place(a) for a in arguments]))
                for buffer in [root(b)[0] for b in outs]:
                    if not self.owns(buffer):
                        self.written[id(buffer)] = buffer

    def host(self, action: Callable[..., None], *buffers: Buffer) -> None:
        recorded = self.mine()
        self.away += recorded
        try:
            action(*buffers)
        finally:
            self.away -= recorded
        if recorded:
            self.take_down("host", [], buffers)
            if self.planned:
                self.steps.append(Step(None, action, 0, [self.place(b) for b in buffers]))

    def number(self, buffer: Buffer, i: int = 0) -> Any:
        return Later(buffer, i) if self.planned and self.mine() else self.inner.number(buffer, i)

    def note(self, what: str, value: Any) -> None:
        if self.mine():
            self.take_down(what, [value], ())

    def resolve(self, kernel: Kernel, work: int, arguments: Sequence[Any]) -> tuple[Callable[..., None], Sequence[Any]]:
        return self.inner.resolve(kernel, work, arguments)

    def width(self) -> int:
        return self.inner.width()

    # ---- writing down ----------------------------------------------------------------------------------------------------
    def take_down(self, what: Any, numbers: list[Any], arguments: Sequence[Any]) -> None:
        self.keys.append((what, *[a.size if isinstance(a, Buffer | np.ndarray) else -1 for a in arguments]))
        self.numbers.append((tuple(numbers), user_call()[1]))

    def owns(self, buffer: Buffer) -> bool:
        return buffer.made is not None and buffer.made[0] is self

    def place(self, argument: Any) -> Any:
        """A Spot for a buffer made meanwhile, whose life now reaches to this step; anything else as it is."""
        if not isinstance(argument, Buffer):
            return argument
        buffer, start = root(argument)
        if not self.owns(buffer):
            return argument
        number, now = buffer.made[1], len(self.steps)
        self.lives.setdefault(number, [now, now])[1] = now
        return Spot(number, start, argument.size, tuple(argument.data.shape))

    def compare(self, first: Recorder) -> None:
        """Raise if a number differs from the first call: it is Python's, and a replay would freeze it."""
        matcher = difflib.SequenceMatcher(None, first.keys, self.keys, autojunk=False)
        for a, b, length in matcher.get_matching_blocks():
            rows = zip(first.numbers[a : a + length], self.numbers[b : b + length], self.keys[b : b + length], strict=True)
            for (before, _), (now, place), key in rows:
                for x, y in zip(before, now, strict=True):
                    if x != y and (x == x or y == y):
                        what = key[0] if isinstance(key[0], str) else "a number"
                        raise CaptureError(
                            f"capture: {what} made by Python changed between the first two calls and would be frozen: {x}, then {y} at "
                            f"{place}. Pass it as a tensor argument, or set it outside of the step."
                        )

    def plan(self, outputs: list[Buffer], name: str) -> Program:
        """Give every numbered buffer its place. Call when nothing of the step is left but what outlives it."""
        spots = [self.place(b) for b in outputs]
        for spot in spots:
            if isinstance(spot, Spot):
                self.lives[spot.number][1] = len(self.steps)
        outputs.clear()
        held = {n: buffer for n, (reference, _, _) in enumerate(self.made) if (buffer := reference()) is not None}
        return Program(self, spots, held, name)


class Program:
    """Launches and host actions in order, and the arena they work in."""

    def __init__(self, recorder: Recorder, outputs: list[Any], held: dict[int, Buffer], name: str):
        self.device, self.stream, self.steps, self.name = recorder.device, recorder.inner, recorder.steps, name
        self.outputs, self.moves = outputs, base.moves
        self.written = list(recorder.written.values())
        numbers = [n for n in recorder.lives if n not in held]
        made, lives = recorder.made, recorder.lives
        offsets, self.bytes = places([Life(lives[n][0], lives[n][1], made[n][1] * made[n][2].itemsize) for n in numbers])
        self.separate = sum(made[n][1] * made[n][2].itemsize for n in numbers)  # what they would take without sharing
        self.arena = self.device.empty(max(1, self.bytes), UINT8)
        self.memory = {n: b.data for n, b in held.items()}
        self.held = held
        for n, offset in zip(numbers, offsets, strict=True):
            _, size, dtype = made[n]
            self.memory[n] = self.arena.data[offset : offset + size * dtype.itemsize].view(dtype)
        self.resolve()

    def resolve(self) -> None:
        """Turn every step into a function and its arguments."""
        self.width = self.stream.width()
        self.calls: list[tuple[Callable[..., None], Sequence[Any]]] = []
        for step in self.steps:
            if step.kernel is None:
                self.calls.append((step.action, [self.buffer(a) for a in step.arguments]))  # type: ignore[arg-type]
            else:
                arguments = [self.buffer(a).data if isinstance(a, Spot | Buffer) else a for a in step.arguments]
                self.calls.append(self.stream.resolve(step.kernel, step.work, arguments))

    def buffer(self, place: Any) -> Buffer:
        if isinstance(place, Buffer):
            return place
        data = self.memory[place.number][place.start : place.start + place.size]
        return Buffer(data.reshape(place.shape), place.size, data.dtype, self.device, self.arena)

    def run(self) -> None:
        """Run every step once. Raises CaptureError when memory the program knows has been moved."""
        if base.moves != self.moves:
            raise CaptureError(
                f"capture: memory was moved since {self.name} was recorded: by pack(), or an optimizer's load_state_dict(). "
                "Capture it again."
            )
        if self.stream.width() != self.width:
            self.resolve()
        for call, arguments in self.calls:
            call(*arguments)
        for buffer in self.written:
            buffer.wrote(f"a replay of {self.name}")

    def result(self, i: int) -> Buffer:
        """A copy of output number i."""
        place = self.buffer(self.outputs[i])
        copy = self.device.empty(place.size, place.dtype)
        self.device.copy(copy, place)
        return copy

    def __repr__(self) -> str:
        launches = sum(step.kernel is not None for step in self.steps)
        megabytes = f"{self.bytes / 1e6:,.1f} MB, {self.separate / 1e6:,.1f} without sharing"
        return f"{launches} launches, {len(self.steps) - launches} actions of the host, arena {megabytes}"
