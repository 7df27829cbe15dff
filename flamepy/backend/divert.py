"""Diverting: another stream in the place of a device's own, for one thread and for a while; nobody else notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .base import Buffer, Device, Stream

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

    def flag(self, buffer: Buffer, i: int = 0) -> Any:
        return self.chosen().flag(buffer, i)

    def kept(self, rooms: dict[int, Buffer], size: int, dtype: np.dtype) -> Buffer:
        return self.chosen().kept(rooms, size, dtype)  # type: ignore[no-any-return]

    def shared(self, buffer: Buffer) -> None:
        self.chosen().shared(buffer)

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
