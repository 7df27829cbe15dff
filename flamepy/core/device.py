"""The seam between numbers and mathematics: Buffer, Device, and devices by name.

Everything above speaks only of these. A Buffer is contiguous memory on one device. A Device does what an op says,
`launch("softmax", ...)`, with its kernels: how many passes, tasks and scratch is its own business. Constants are NumPy scalars (of that
type), Python ints (int64), bools, tuples of ints (small tables), None for what is absent. plain.py is a device in NumPy, to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .errors import DeviceError


class Buffer:
    """Contiguous memory: `size` elements of `dtype`. `data` is the device's. `version` counts writes into existing memory, so that backward
    can tell a saved value from an overwritten one; `last_write` says who wrote last."""

    version: Any = 0
    last_write: Any = ""

    def __init__(self, data: Any, size: int, dtype: np.dtype, device: Device):
        self.data, self.size, self.dtype, self.device = data, size, dtype, device

    def wrote(self, by: Any) -> None:
        """Count one write into this memory, made by the operation named."""
        self.version += 1
        self.last_write = by


Memory = Any  # a Buffer, of whichever class the device has


class Device:
    """Where buffers live and kernels run."""

    def __init__(self, name: str):
        self.name = name

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

    def copy(self, out: Memory, x: Memory) -> None:
        """Overwrite `out` with the numbers of `x`, of the same size; converts as NumPy's astype does, and crosses devices."""
        raise NotImplementedError

    def fill(self, buffer: Memory, values: Callable[[], Sequence[Any]]) -> None:
        """Overwrite a small buffer with what values() returns, from host state alone."""
        raise NotImplementedError

    def launch(
        self, name: str, formula: Callable | None, outs: Sequence[Memory | None], ins: Sequence[Any], consts: Sequence[Any], dtype: np.dtype
    ) -> None:  # fmt: skip
        """Do what `name` says, with a formula or row body where it takes one. `dtype` types the formula's constants."""
        raise NotImplementedError

    def overwrite(self, out: Memory, x: Memory) -> None:
        """copy() into a parameter's memory: an update."""
        self.copy(out, x)

    def require(self, check: Callable[..., None], *buffers: Memory, within: Sequence[tuple[float, float]]) -> None:
        """Call check(*buffers), which raises unless their first numbers are within these (low, high)."""
        check(*buffers)

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


def is_device_name(text: Any) -> bool:
    """Whether a string (or PyTorch's device, by its name) names a device, there or not, rather than a dtype."""
    named = isinstance(text, str) or type(text).__name__ == "device"
    return named and (str(text).partition(":")[0] in openers or str(text) in _devices)
