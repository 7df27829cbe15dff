"""How a function of NumPy's is an op: on_host() computes on arrays of the host, whatever the device.

On a device whose memory is the host's it is a step of the call, planned and recorded as launches are. From a GPU the numbers are read and
the results sent back, which a recorded step may not do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..backend.run import OnArrays
from ..core.errors import DTypeError, FlameError, ShapeError
from ..core.op import like
from ..core.tensor import Tensor
from ..dtypes import FLOATS, FULL, float32

ADVICE = "Look at its numbers, or add a small multiple of the identity"


class LinAlgError(FlameError, np.linalg.LinAlgError, RuntimeError):
    """A matrix that has no such factors: singular, not positive definite. NumPy's LinAlgError and PyTorch's RuntimeError, too."""


class HostStep(OnArrays):
    """One function on arrays, with the shapes that they have; results are written into the first ones. What may warn is `quiet`."""

    def __init__(self, name: str, compute: Callable[..., Any], shapes: tuple, count: int, options: tuple):
        self.compute, self.shapes, self.count, self.options = compute, shapes, count, options
        self.__name__ = name

    def on_arrays(self, *arrays: np.ndarray) -> None:
        shaped = [a.reshape(shape) for a, shape in zip(arrays, self.shapes, strict=True)]
        self.write(shaped[: self.count], shaped[self.count :])

    def write(self, outs: Sequence[np.ndarray], ins: Sequence[np.ndarray]) -> None:
        try:
            found = self.compute(*ins, *self.options)
        except np.linalg.LinAlgError as problem:
            shown = ", ".join([str(x.shape) for x in ins])
            raise LinAlgError(f"{self.__name__}: {problem}: shape {shown}. {ADVICE}.") from None
        if len(outs) == 1:
            outs[0][...] = found
            return
        for out, result in zip(outs, found, strict=True):
            out[...] = result


quiet = np.errstate(all="ignore")  # LAPACK's own functions are so: of NumPy, all but det() and slogdet()
step_of = lru_cache(4096)(HostStep)  # the same for the same call: a recorded step is compared by it


def on_host(name: str, compute: Callable[..., Any], ins: Sequence[Any], shapes: Sequence[tuple], *options: Any) -> Any:
    """The results of compute(*arrays, *options), of these shapes and the type of the first input: a Tensor, or a tuple of them."""
    outs = [like(ins[0], tuple(shape)) for shape in shapes]
    step = step_of(name, compute, tuple([t.shape for t in (*outs, *ins)]), len(outs), options)
    device = ins[0].device
    if isinstance(ins[0].buffer.data, np.ndarray):
        device.stream.after(step, *[t.buffer for t in (*outs, *ins)])
    else:
        arrays = [np.empty(t.shape, t.dtype) for t in outs]
        step.write(arrays, [device.download(t.buffer).reshape(t.shape) for t in ins])
        for t, array in zip(outs, arrays, strict=True):
            device.copy(t.buffer, device.upload(array))
    return tuple(outs) if len(outs) > 1 else outs[0]


# ---- what is taken -----------------------------------------------------------------------------------------------------------------
def matrices(name: str, x: Any, square: bool = False, least: int = 2) -> Any:
    """x as a Tensor of floats of 32 or 64 bits with two axes or more. Raises DTypeError, ShapeError."""
    x = Tensor.of(name, x)
    if x.dtype not in FLOATS:
        raise DTypeError(f"{name}: needs floats: {x.dtype}. Cast with .to(flamepy.float32).")
    if x.dtype not in FULL:
        raise DTypeError(f"{name}: LAPACK has no such type: {x.dtype}. Cast with .to(flamepy.{float32}).")
    if x.ndim < least:
        raise ShapeError(f"{name}: needs a matrix: shape {x.shape}. Give it two axes or more.")
    if square and x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: needs square matrices: shape {x.shape}. Make the last two sizes equal.")
    return x
