"""The seam between numbers and mathematics: Buffer, Stream, Device, and devices by name.

Everything above speaks only of these. A Buffer is contiguous memory on one device. A Device turns what an op says,
`launch("softmax", ...)`, into launches of its kernels: how many passes, tasks and scratch is its own business. A Stream runs these
launches in order. Constants are NumPy scalars (of that type), Python ints (int64), bools, tuples of ints (small tables), None for what
is absent. A device is these three, implemented: plain.py does it in NumPy, to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .errors import DeviceError


class Buffer:
    """Contiguous memory: `size` elements of `dtype`, `offset` bytes into `root` (None: the memory is its own). `data` is the device's.

    `version` counts writes into existing memory, so that backward can tell a saved value from an overwritten one. A part of a root
    adds the root's count: one write to the root moves all its parts. `last_write` says who wrote last.
    """

    written: str | Callable[[], str] = ""
    writes = 0
    root: Buffer | None = None
    offset = 0

    def __init__(self, data: Any, size: int, dtype: np.dtype, device: Device, root: Buffer | None = None, offset: int = 0):
        self.data = data
        self.size = size
        self.dtype = dtype
        self.device = device
        if root is not None:
            self.root = root
            self.offset = offset

    @property
    def version(self) -> int:
        return self.writes if self.root is None else self.writes + self.root.writes

    @property
    def last_write(self) -> str:
        found = self.written or ("" if self.root is None else self.root.written)
        return found if isinstance(found, str) else found()

    @property
    def start(self) -> int:
        """Which element of the root is its first."""
        return self.offset // self.dtype.itemsize

    def wrote(self, by: str | Callable[[], str]) -> None:
        """Count one write into this memory, made by the operation named (or told by a function, where that takes a while)."""
        self.writes += 1
        self.written = by


Memory = Any  # a Buffer, of whichever class the device has
Kernel = Any  # what a stream can launch: only the streams of its device look inside


class Stream:
    """An ordered queue of launches. This one, given run() by a device, does each at once."""

    device: Device

    def empty(self, size: int, dtype: np.dtype) -> Memory:
        """Memory that nobody has written to."""
        raise NotImplementedError

    def upload(self, array: np.ndarray) -> Memory:
        """A new buffer with the numbers of a host array."""
        raise NotImplementedError

    def download(self, buffer: Memory) -> np.ndarray:
        """The numbers as a read-only, flat host array."""
        raise NotImplementedError

    def item(self, buffer: Memory) -> Any:
        """The number of a buffer that has one."""
        return self.download(buffer).item()

    def run(self, kernel: Kernel, outs: Sequence[Memory | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        """Launch `kernel`: outs first, then ins (buffers, numbers, None), then constants."""
        raise NotImplementedError

    def copy(self, out: Memory, x: Memory) -> None:
        """Overwrite `out` with the numbers of `x`, of the same size; also converts to another dtype and crosses devices."""
        if x.device is not out.device:
            x = self.upload(x.device.download(x))
        if out.size:
            self.run(self.device.copier(out, x), (out,), (x,), ())

    def copied(self, x: Memory) -> Memory:
        """What it holds now, in a new buffer."""
        copy = self.empty(x.size, x.dtype)
        self.copy(copy, x)
        return copy

    # ---- what the host has to do -------------------------------------------------------------------------------------------
    def before(self, values: Callable[[], Sequence[Any] | None], buffer: Memory | None = None) -> None:
        """Fill a small buffer with what values() returns, from host state alone."""
        found = values()
        if buffer is not None:
            buffer.device.write(buffer, found)

    def after(self, check: Callable[..., None], *buffers: Memory) -> None:
        """Call check(*buffers) when these results are known, at the latest before a host read; it may raise."""
        check(*buffers)

    def report(self, make: Callable[[np.ndarray], Any], buffer: Memory) -> Any:
        """What make() makes of a small buffer's numbers."""
        return make(self.download(buffer))

    def number(self, buffer: Memory, i: int = 0) -> Any:
        return self.report(lambda numbers: numbers[i].item(), buffer)


class Device:
    """Where buffers live and kernels run."""

    def __init__(self, name: str, stream: Stream):
        self.name = name
        self.stream = stream
        stream.device = self

    def empty(self, size: int, dtype: np.dtype) -> Memory:
        return self.stream.empty(size, dtype)

    def upload(self, array: np.ndarray) -> Memory:
        return self.stream.upload(array)

    def download(self, buffer: Memory) -> np.ndarray:
        return self.stream.download(buffer)

    def launch(
        self, name: str, formula: Callable | None, outs: Sequence[Memory | None], ins: Sequence[Any], consts: Sequence[Any], dtype: np.dtype
    ) -> None:  # fmt: skip
        """Do what `name` says, with a formula or row body where it takes one. `dtype` types the formula's constants."""
        raise NotImplementedError

    def copier(self, out: Memory, x: Memory) -> Kernel:
        """The kernel that copies x to out, both on this device, and converts as NumPy's astype does."""
        raise NotImplementedError

    def write(self, buffer: Memory, values: Sequence[Any]) -> None:
        """Overwrite a small buffer with numbers of the host."""
        raise NotImplementedError

    def overwrite(self, out: Memory, x: Memory) -> None:
        """stream.copy() into a parameter's memory: an update."""
        self.stream.copy(out, x)

    def slot(self, root: Memory, offset: int, size: int, dtype: np.dtype) -> Memory:
        """`size` elements of `dtype`, `offset` bytes into `root`, as a buffer that shares the memory and keeps it alive."""
        raise NotImplementedError

    def require(self, check: Callable[..., None], *buffers: Memory, within: Sequence[tuple[float, float]]) -> None:
        """stream.after() for a check that does nothing but raise: unless the first numbers of the buffers are within their (low, high)."""
        self.stream.after(check, *buffers)

    def __repr__(self) -> str:
        return f"device({self.name})"

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and other == self.name)

    def __hash__(self) -> int:
        return hash(self.name)


# ---- devices by name ----------------------------------------------------------------------------------------------------------
# By the kind of a device, its name up to a colon: what opens one, given the rest of the name. The first kind is the default.
openers: dict[str, Callable[[str], Device]] = {}
_devices: dict[str, Device] = {}


def device(name: str | Device | None = None) -> Any:
    """The device of that name: "cpu", "plain", "cuda", "cuda:1"; without one the default, "cpu". Raises DeviceError for one that is not
    there."""
    if isinstance(name, Device):
        return name
    key = next(iter(openers)) if name is None else str(name)
    found = _devices.get(key)
    if found is None:
        kind, _, rest = key.partition(":")
        if kind not in openers:
            raise DeviceError(f"device: no backend for this device: '{key}'. Use one of {', '.join(openers)}; this build has no other.")
        found = openers[kind](rest)
        found = _devices[key] = _devices.setdefault(found.name, found)
    return found


def register(made: Device) -> Device:
    """Make a device of your own known by its name, also to captured steps. Raises DeviceError for a name that is taken."""
    if made.name.partition(":")[0] in openers or _devices.setdefault(made.name, made) is not made:
        raise DeviceError(f"device: this name is taken: '{made.name}'. Choose another.")
    return made


def opened() -> list[Any]:
    """The devices in use, the default one first."""
    device()
    return list({id(found): found for found in _devices.values()}.values())  # one may have two names: cuda, cuda:0


def is_device_name(text: Any) -> bool:
    """Whether a string (or PyTorch's device, by its name) names a device, there or not, rather than a dtype."""
    named = isinstance(text, str) or type(text).__name__ == "device"
    return named and (str(text).partition(":")[0] in openers or str(text) in _devices)
