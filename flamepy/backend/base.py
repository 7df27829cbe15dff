"""The seam between numbers and mathematics: Buffer, Kernel, Stream, Device.

Everything above this folder speaks only of these four. A Buffer is contiguous memory on one device. A Kernel is a compiled
loop. A Stream runs launches (kernel, outs, ins, constants); running them now is one way, recording them is another, and
nobody above can tell. A Device hands out buffers and kernels. A backend is a folder that implements them; see cpu/.

May import: errors. FLAME counterpart: `flame_core::device`. Read next: template.py, then cpu/device.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import DeviceError


class Buffer:
    """Contiguous memory: `data` is what kernels take, `size` counts elements.

    `version` counts writes into existing memory, so that backward can tell a saved value from an overwritten one. A buffer
    that is one slot of a packed span adds the span's count: one write to the span moves all its slots. `written` says who
    wrote last. `start` is where a slot begins in its span.
    """

    written = ""
    writes = 0
    start = 0
    made: Any = None  # by a recording: (recorder, number)

    def __init__(self, data: Any, size: int, dtype: np.dtype, device: Device, span: Buffer | None = None, start: int = 0):
        self.data = data
        self.size = size
        self.dtype = dtype
        self.device = device
        self.span = span
        self.start = start

    @property
    def version(self) -> int:
        return self.writes if self.span is None else self.writes + self.span.writes

    @property
    def last_write(self) -> str:
        return self.written or (self.span.written if self.span is not None else "")

    def wrote(self, by: str) -> None:
        """Count one write into this memory, made by the operation named."""
        self.writes += 1
        self.written = by


class Kernel(Protocol):
    """A compiled loop: `call(workers, *outs, *ins, *constants)`."""

    call: Callable[..., None]


class Stream:
    """An ordered queue of launches, and of what the host has to do between them. This one does each at once."""

    def run(self, kernel: Kernel, work: int, outs: Sequence[Buffer], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        """Launch `kernel` with outs first, then ins (buffers or scalars), then constants. `work`, the number of elements touched,
        may decide how it runs."""
        call, arguments = self.resolve(kernel, work, [b.data if isinstance(b, Buffer) else b for b in (*outs, *ins, *consts)])
        call(*arguments)

    def run1(self, kernel: Kernel, out: Buffer, x: Buffer) -> None:
        """run() for a map of one buffer, the short way of most launches."""
        self.run(kernel, out.size, (out,), (x,), ())

    def run2(self, kernel: Kernel, out: Buffer, x: Any, y: Any) -> None:
        """run() for a map of two buffers, or a buffer and a scalar."""
        self.run(kernel, out.size, (out,), (x, y), ())

    def resolve(self, kernel: Kernel, work: int, arguments: Sequence[Any]) -> tuple[Callable[..., None], Sequence[Any]]:
        """What a launch calls in the end, and with what."""
        raise NotImplementedError

    def width(self) -> int:
        """How many workers a large launch has now."""
        raise NotImplementedError

    def host(self, action: Callable[..., None], *buffers: Buffer) -> None:
        """Have the host call action(*buffers) at this point of every step: to fill in numbers that change from step to step, or
        to check a result and raise."""
        action(*buffers)

    def number(self, buffer: Buffer, i: int = 0) -> Any:
        """Element i of a buffer as a Python number."""
        return buffer.device.download(buffer)[i].item()

    def note(self, what: str, value: float) -> None:
        """A setting made while a step runs; a recording must know of it, others need not."""


class Device:
    """Where buffers live and kernels run. Subclasses fill in the five verbs."""

    name: str
    stream: Stream

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        raise NotImplementedError

    def kernel(self, loop: str, formula: Callable | None, dtype: np.dtype) -> Kernel:
        raise NotImplementedError

    def upload(self, array: np.ndarray) -> Buffer:
        raise NotImplementedError

    def download(self, buffer: Buffer) -> np.ndarray:
        raise NotImplementedError

    def copy(self, out: Buffer, x: Buffer) -> None:
        """Overwrite `out` with the numbers of `x`, of the same size and type."""
        raise NotImplementedError

    def trim(self) -> None:
        """Give kept blocks back to the system."""
        raise NotImplementedError

    def write(self, buffer: Buffer, values: Sequence[Any]) -> None:
        """Overwrite a small buffer with numbers."""
        raise NotImplementedError

    def slot(self, span: Buffer, start: int, size: int) -> Buffer:
        """A part of `span` as a buffer of its own; it shares the memory and keeps it alive."""
        raise NotImplementedError

    def convert(self, out: Buffer, x: Buffer) -> None:
        """Copy with a change of type, where one of the types has 16 bits."""
        raise NotImplementedError

    def constant(self, array: np.ndarray) -> Any:
        """A small array that kernels can read, as they take it."""
        raise NotImplementedError

    def table(self, values: tuple[int, ...]) -> Any:
        """A constant array of int64 (strides, offsets); equal tables are made once."""
        raise NotImplementedError

    def memory(self) -> dict[str, int]:
        """Bytes: current, peak, cached."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"device({self.name})"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return hash(self.name)


_devices: dict[str, Device] = {}
moves = 0  # how often long-lived memory got another place: a recorded step that knew the old one must not be replayed


def moved() -> None:
    """Say that a parameter or an optimizer's state is in new memory from now on."""
    global moves
    moves += 1


def device(name: str | Device | None = None) -> Device:
    """The device of that name: `"cpu"` (also the default). Raises DeviceError for one that is not there."""
    if isinstance(name, Device):
        return name
    key = str(name) if name is not None else "cpu"
    if key in _devices:
        return _devices[key]
    if key.split(":")[0] == "cpu":
        from .cpu.device import CpuDevice

        return _devices.setdefault("cpu", CpuDevice())
    raise DeviceError(f"device: no backend for this device: '{key}'. Use device='cpu'; this build has no CUDA backend.")
