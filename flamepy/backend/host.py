"""HostStream: what the streams of the two backends share whose memory is NumPy arrays and whose kernels run on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..core.dtypes import STORED, computed
from .base import Buffer, Stream

FEW = 16384  # elements NumPy copies as fast as any kernel


class HostStream(Stream):
    """Does each launch at once: a kernel is a Python function of NumPy arrays. What lies in an array may be the bits of 16-bit floats."""

    device: Any

    def upload(self, array: np.ndarray) -> Buffer:
        buffer: Buffer = self.empty(array.size, array.dtype)
        np.copyto(buffer.data.view(array.dtype).reshape(array.shape), array)
        return buffer

    def download(self, buffer: Buffer) -> np.ndarray:
        view: np.ndarray = buffer.data.view(buffer.dtype)
        view.flags.writeable = False
        return view

    def run(self, kernel: Any, outs: Sequence[Buffer | None], ins: Sequence[Any], consts: Sequence[Any]) -> None:
        arrays, narrow = [*outs, *ins], False
        for i, x in enumerate(arrays):
            if isinstance(x, Buffer):
                arrays[i], narrow = x.data, narrow or x.dtype in STORED
        with np.errstate(all="ignore"):  # NaN and infinity are results like others
            (partial(widely, kernel) if narrow else kernel)(arrays[: len(outs)], arrays[len(outs) :], consts)

    def copy(self, out: Buffer, x: Buffer) -> None:
        if out.size <= FEW and x.device is out.device and x.dtype == out.dtype:  # such as arguments and results of a small captured step
            out.data[...] = x.data  # in half the time of np.copyto
        else:
            super().copy(out, x)

    def filler(self, out: Buffer) -> Callable[[Buffer], None]:
        if out.size > FEW:
            return super().filler(out)
        data = out.data

        def fill(x: Buffer) -> None:
            data[...] = x.data

        return fill

    def reporter(self, make: Callable[[np.ndarray], Any], x: Buffer) -> Callable[[], Any]:
        return partial(make, self.download(x))

    def item(self, buffer: Buffer) -> Any:
        data, dtype = buffer.data, buffer.dtype
        return data.item() if data.dtype is dtype else data.view(dtype).item()


def widely(kernel: Callable, outs: list, ins: list, consts: Sequence[Any]) -> None:
    """The kernel on arrays of which those that are computed in a wider type have it meanwhile; what it writes there is rounded once."""
    results = [widened(x) for x in outs]
    kernel(results, [widened(x) for x in ins], consts)
    for out, result in zip(outs, results, strict=True):
        if result is not out:
            out[...] = result


def widened(x: Any) -> Any:
    return x.astype(computed(x.dtype), copy=False) if isinstance(x, np.ndarray) else x
