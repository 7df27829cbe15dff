"""Recording: another stream in the place of a device's own, for one thread and for a while; nobody else notices.

What Python decides in the meantime passes by the stream. So the places that hold such settings tell the recorders of their thread:
note() a value, guard() a setting that is read, before() something done to host state, read() and assigned() an attribute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .base import Buffer, Device, Stream, opened

SHARED = "memory shared with another library"  # what note() calls it
diverted = threading.local()  # stacks: device -> the recorders of this thread, the innermost last
_diverting = threading.Lock()
active: list[Any] = []  # every recorder there is, of any thread: where there is none, nobody needs to be told


@contextmanager
def divert(device: Device, recorder: Any) -> Iterator[Any]:
    """Let `recorder` stand in the stream's place for what this thread does in the block; other threads do not notice."""
    stack = diverted.__dict__.setdefault("stacks", {}).setdefault(device, [])
    recorder.device, recorder.inner = device, stack[-1] if stack else device.direct
    stack.append(recorder)
    with _diverting:
        device.recorders += 1
        active.append(recorder)
        device.stream = Switch(device)
    try:
        yield recorder
    finally:
        stack.pop()
        with _diverting:
            device.recorders -= 1
            active.remove(recorder)
            if not device.recorders:
                device.stream = device.direct


def recorder_of(device: Device) -> Any | None:
    """The innermost recorder of this thread on that device."""
    stack = diverted.__dict__.get("stacks", {}).get(device)
    return stack[-1] if stack else None


@contextmanager
def aside(device: Device) -> Iterator[None]:
    """Let nobody record what this thread does on the device in the block: it is done once, not in every replay."""
    stack = diverted.__dict__.get("stacks", {}).get(device)
    if stack:
        stack.append(device.direct)
    try:
        yield
    finally:
        if stack:
            stack.pop()


def told() -> Iterator[Any]:
    """The recorders of this thread."""
    if not active:
        return
    for device, stack in diverted.__dict__.get("stacks", {}).items():
        yield from [recorder for recorder in stack if recorder is not device.direct]


def note(what: str, value: Any) -> None:
    """A setting made while a step runs: whoever records in this thread must know of it."""
    for recorder in told():
        recorder.note(what, value)


def guard(owner: Any, what: str, read: Callable[[], Any], live: bool = False) -> None:
    """The step depends on a setting that is not in a buffer: read() gives it. `owner`, `what`: which it is; `live`: that nobody says
    when it changes (core/changes.py)."""
    for recorder in told():
        recorder.guard(owner, what, read, live)


def read(owner: Any, attribute: str) -> None:
    """An attribute that holds a tensor or None is read: if the step has not set it, the step depends on which one it is."""
    for recorder in told():
        recorder.read(owner, attribute)


def assigned(owner: Any, attribute: str) -> None:
    """An attribute that holds a tensor or None is about to be set: a replay must set it too."""
    for recorder in told():
        recorder.assigned(owner, attribute)


def before(act: Callable[[], None]) -> None:
    """Do something with host state alone, now and before each replay of what this thread is recording, on whichever device."""
    for device in opened():
        device.remember(act)
    for recorder in told():
        recorder.acted(act)
    act()


class Switch(Stream):
    """The stream of a device while some thread records: each call goes to this thread's recorder, or to the device's own stream."""

    def __init__(self, device: Device):
        self.device = device

    def chosen(self) -> Any:
        return recorder_of(self.device) or self.device.direct

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        return self.chosen().empty(size, dtype)  # type: ignore[no-any-return]

    def upload(self, array: np.ndarray) -> Buffer:
        return self.chosen().upload(array)  # type: ignore[no-any-return]

    def download(self, buffer: Buffer) -> np.ndarray:
        return self.chosen().download(buffer)  # type: ignore[no-any-return]

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        self.chosen().run(kernel, outs, ins, consts)

    def copy(self, out: Buffer, x: Buffer) -> None:
        self.chosen().copy(out, x)

    def wrote(self, buffer: Buffer) -> None:
        self.chosen().wrote(buffer)

    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Buffer | None = None) -> None:
        self.chosen().before(values, buffer)

    def after(self, check: Callable[..., None], *buffers: Buffer) -> None:
        self.chosen().after(check, *buffers)

    def report(self, make: Callable[[np.ndarray], Any], buffer: Buffer) -> Any:
        return self.chosen().report(make, buffer)
