"""The device "plain": buffers are NumPy arrays, a kernel is a Python function, a launch is a call. Nothing is compiled.

It is what other devices have to agree with, and what to step through with a debugger. It also shows how little a device is: memory,
copying, and a list of kernels (kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .device import Buffer, Device, Memory, openers
from .errors import DeviceError
from .formula import copied
from .kernels import KERNELS

Formula = Callable[..., Any] | None


def bound(name: str, formula: Callable | None, dtype: np.dtype) -> Callable[[list, list, Sequence[Any]], None]:
    """The kernel of that name with `formula`, typed and given its words, as its F. Raises DeviceError for a name that is not there."""
    if name not in KERNELS:
        raise DeviceError(f"plain: no such kernel: '{name}'. Use one of {', '.join(sorted(KERNELS))}.")
    kernel, dialect = KERNELS[name]
    return partial(kernel, None if formula is None else copied(formula, np.dtype(dtype), dialect))


def through_int64(x: Any, dtype: np.dtype) -> Any:
    """x, or where floats become small integers their whole parts: C does not say what is left of those that do not fit."""
    return x.astype(np.int64) if dtype.kind in "iu" and dtype.itemsize < 8 and x.dtype.kind not in "iub" else x


class PlainDevice(Device):
    """`device("plain")`."""

    def __init__(self) -> None:
        super().__init__("plain")
        self.kernels: dict[tuple[str, Formula, np.dtype], Callable[..., None]] = {}

    def empty(self, size: int, dtype: np.dtype) -> Memory:
        return Buffer(np.empty(size, dtype), size, np.dtype(dtype), self)

    def upload(self, array: np.ndarray) -> Memory:
        return Buffer(array.flatten(), array.size, array.dtype, self)

    def download(self, buffer: Memory) -> np.ndarray:
        view: np.ndarray = buffer.data.view()
        view.flags.writeable = False
        return view

    def copy(self, out: Memory, x: Memory) -> None:
        self.fill(out, lambda: through_int64(x.device.download(x), out.dtype))

    def fill(self, buffer: Memory, values: Callable[[], Sequence[Any]]) -> None:
        with np.errstate(all="ignore"):
            buffer.data[...] = values()

    def launch(
        self, name: str, formula: Formula, outs: Sequence[Memory | None], ins: Sequence[Any], consts: Sequence[Any], dtype: np.dtype
    ) -> None:  # fmt: skip
        key = name, formula, dtype
        if key not in self.kernels:
            self.kernels[key] = bound(*key)
        arrays = [*outs, *ins]
        for i, x in enumerate(arrays):
            if isinstance(x, Buffer):
                arrays[i] = x.data
        with np.errstate(all="ignore"):  # NaN and infinity are results like others
            self.kernels[key](arrays[: len(outs)], arrays[len(outs) :], consts)


def open(rest: str, kind: type[Any] = PlainDevice) -> Any:
    """The one device of this kind; `rest` is what follows "plain:" in a name."""
    if rest:
        raise DeviceError(f"device: there is one plain device: 'plain:{rest}'. Use 'plain'.")
    return kind()


openers.setdefault("plain", open)
