"""Another stream in the place of a device's own, for one thread and for a while: divert(). Nobody else notices.

Recorder is such a stream: it runs each launch and writes it down, with numbers (Spots) for the buffers made meanwhile. Buffers that
were there before are held. Two kinds stand on it: of one op's call, and of a whole training step.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import Buffer, Device, Stream
from .run import Action, Spot, Step

diverted = threading.local()  # stacks: device -> the recorders of this thread, the innermost last
_diverting = threading.Lock()


@contextmanager
def divert(device: Device, recorder: Any) -> Iterator[Any]:
    """Let `recorder` stand in the stream's place for what this thread does in the block; other threads do not notice."""
    stack = diverted.__dict__.setdefault("stacks", {}).setdefault(device, [])
    recorder.device, recorder.inner = device, stack[-1] if stack else device.direct
    stack.append(recorder)
    with _diverting:
        device.recorders += 1
        device.stream = Switch(device)
    try:
        yield recorder
    finally:
        stack.pop()
        with _diverting:
            device.recorders -= 1
            if not device.recorders:
                device.stream = device.direct


def recorder_of(device: Device) -> Any | None:
    """The innermost recorder of this thread on that device."""
    stack = diverted.__dict__.get("stacks", {}).get(device)
    return stack[-1] if stack else None


class Switch(Stream):
    """The stream of a device while some thread records: each call goes to this thread's recorder, or to the device's own stream."""

    def __init__(self, device: Device):
        self.device = device

    chosen = property(lambda self: recorder_of(self.device) or self.device.direct)

    if not TYPE_CHECKING:
        upload, download, run, wrote = (property(attrgetter(f"chosen.{name}")) for name in ("upload", "download", "run", "wrote"))
        before, after, report = (property(attrgetter(f"chosen.{name}")) for name in ("before", "after", "report"))
        flag, kept, shared = (property(attrgetter(f"chosen.{name}")) for name in ("flag", "kept", "shared"))

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        return self.chosen.empty(size, dtype)  # type: ignore[no-any-return]

    def copy(self, out: Buffer, x: Buffer) -> None:  # filler() keeps it: chosen when it is called
        self.chosen.copy(out, x)

    @contextmanager
    def aside(self) -> Iterator[None]:
        stack = diverted.__dict__.get("stacks", {}).get(self.device)
        if stack:
            stack.append(self.device.direct)
        try:
            yield
        finally:
            if stack:
                stack.pop()


class Recorder(Stream):
    """Runs on `inner`, the stream in whose place it stands, and keeps `steps` and the buffers `made`."""

    inner: Any

    def __init__(self) -> None:
        self.checking = 0  # depth of checks, which may read what a step may not
        self.steps: list[Step | Action] = []
        self.numbers: dict[int, int] = {}  # id of a made buffer -> its number
        self.made: list[tuple[Any, int, np.dtype]] = []  # (weak reference, size, dtype) of each
        self.written: list[tuple[int, Any]] = []  # (after how many steps, place) of memory that was overwritten, as it was told

    # ---- memory ------------------------------------------------------------------------------------------------------------
    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        buffer: Buffer = self.inner.empty(size, dtype)
        if not self.checking:
            self.numbers[id(buffer)] = len(self.made)
            self.made.append((weakref.ref(buffer), size, dtype))
        return buffer

    def upload(self, array: np.ndarray) -> Buffer:
        """A constant of the step: held."""
        return self.inner.upload(array)  # type: ignore[no-any-return]

    def download(self, buffer: Buffer) -> np.ndarray:
        return self.inner.download(buffer)  # type: ignore[no-any-return]

    # ---- launches, and what the host does ------------------------------------------------------------------------------------
    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        self.inner.run(kernel, outs, ins, consts)
        if not self.checking:
            places = [[self.place(a) for a in group] for group in (outs, ins, consts)]
            self.steps.append(Step(kernel, *places))

    def wrote(self, buffer: Buffer) -> None:
        self.inner.wrote(buffer)
        if not self.checking:
            self.written.append((len(self.steps), self.place(buffer)))

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        self.inner.before(values, buffer)
        self.steps.append(Action(values, () if buffer is None else (self.place(buffer),), True))

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        self.checking += 1
        try:
            self.inner.after(check, *buffers)
        finally:
            self.checking -= 1
        self.steps.append(Action(check, [self.place(b) for b in buffers], False))

    def report(self, make: Callable[[np.ndarray], Any], buffer: Buffer) -> Any:
        return self.inner.report(make, buffer)

    def kept(self, rooms: dict[int, Buffer], size: int, dtype: np.dtype) -> Buffer:
        return self.empty(size, dtype)

    def number_of(self, buffer: Buffer) -> int | None:
        """The number of a buffer made meanwhile; None for one that is held."""
        n = self.numbers.get(id(buffer))
        return n if n is not None and self.made[n][0]() is buffer else None

    def place(self, argument: Any) -> Any:
        """A Spot for a buffer made meanwhile, or for a part of one; anything else as it is."""
        if not isinstance(argument, Buffer):
            return argument
        while argument.stands_for is not None:
            argument = argument.stands_for
        n = self.number_of(argument)
        if n is not None:
            return Spot(n)
        n = self.number_of(argument.root) if argument.root is not None else None
        return argument if n is None else Spot(n, argument.offset, argument.size, argument.dtype)
