"""The device "plain" (core/plain.py) as one that may be recorded, and shares its memory with other libraries.

The kernels beside core's are in rows.py, channels.py, networks.py, recurrent.py and spans.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core import plain
from ...core.dtypes import STORED, computed
from ...core.kernels import KERNELS, strided_get
from ...core.ops.shape import contiguous_strides
from ..base import Buffer, Copied, Device
from ..host import HostStream
from ..run import Step
from . import channels, networks, order, recurrent, rows, spans  # noqa: F401  (their kernels enter the list)


def convert(outs: list, ins: list, consts: Sequence[Any]) -> None:
    """out = x in out's dtype."""
    outs[0][...] = plain.through_int64(ins[0], outs[0].dtype)


def widely(kernel: Callable, outs: list, ins: list, consts: Sequence[Any]) -> None:
    """The kernel on arrays of which those that are computed in a wider type have it meanwhile; what it writes there is rounded once."""
    results = [widened(x) for x in outs]
    kernel(results, [widened(x) for x in ins], consts)
    for out, result in zip(outs, results, strict=True):
        if result is not out:
            out[...] = result


def widened(x: Any) -> Any:
    return x.astype(computed(x.dtype), copy=False) if isinstance(x, np.ndarray) else x


class PlainBuffer(Buffer):
    """Memory of its own, counted as long as somebody holds it."""

    device: Any

    def __del__(self) -> None:
        self.device.current -= self.size * self.dtype.itemsize


class PlainStream(HostStream):
    """Does each launch at once: a kernel is a Python function of NumPy arrays."""

    def empty(self, size: int, dtype: np.dtype) -> Buffer:
        buffer = PlainBuffer(np.empty(size, dtype), size, np.dtype(dtype), self.device)
        self.device.current += buffer.data.nbytes
        self.device.peak = max(self.device.peak, self.device.current)
        return buffer

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        arrays, narrow = [*outs, *ins], False
        for i, x in enumerate(arrays):
            if isinstance(x, Buffer):
                arrays[i], narrow = x.data, narrow or (x.dtype in STORED and kernel is not convert)
        with np.errstate(all="ignore"):  # NaN and infinity are results like others
            (partial(widely, kernel) if narrow else kernel)(arrays[: len(outs)], arrays[len(outs) :], consts)


class PlainDevice(Device):
    """`device("plain")`. `current` and `peak` count the bytes of its buffers."""

    def __init__(self) -> None:
        super().__init__("plain", PlainStream())
        self.kernels: dict[tuple[str, Callable | None, np.dtype], Callable] = {}
        self.current = self.peak = 0

    def launch(
        self, name: str, formula: Callable | None, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any],
        dtype: np.dtype,
    ) -> None:  # fmt: skip
        key = name, formula, dtype
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels.setdefault(key, plain.bound(*key))  # the same for all threads
        self.stream.run(kernel, outs, ins, consts)

    def copier(self, out: Buffer, x: Buffer) -> Any:
        return convert

    def copied(self, s: Step) -> Copied | None:
        if s.kernel is convert:
            return s.ins[0], 0, ()
        if getattr(s.kernel, "func", None) is not strided_get:
            return None
        sizes, strides, base = s.consts
        near = all([n == 1 or a == b for n, a, b in zip(sizes, strides, contiguous_strides(sizes), strict=True)])
        return (s.ins[0], base, ()) if near else None

    def write(self, buffer: Buffer, values: Sequence[Any]) -> None:
        with np.errstate(all="ignore"):
            buffer.data[...] = values

    def slot(self, root: Buffer, offset: int, size: int, dtype: np.dtype) -> Buffer:
        if root.root is not None:
            root, offset = root.root, root.offset + offset
        dtype = np.dtype(dtype)
        data = root.data.view(np.uint8)[offset : offset + size * dtype.itemsize].view(dtype)
        return Buffer(data, size, dtype, self, root, offset)

    def memory(self) -> dict[str, int]:
        return {**super().memory(), "current": self.current, "peak": self.peak}

    def findings(self) -> Iterator[tuple[str, str, str]]:
        yield "plain", f"NumPy {np.__version__}, {len(KERNELS)} kernels in Python, nothing compiled", ""

    def dlpack(self, buffer: Buffer, shape: Sequence[int]) -> Any:
        return self.download(buffer).reshape(shape)


open = partial(plain.open, kind=PlainDevice)
