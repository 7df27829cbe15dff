"""What Python reads of a Tensor: its numbers as an array, as Python numbers, as text, for other libraries.

Each of these waits for the numbers and tells a step being recorded (entries.tell) that they were looked at.

FLAME counterpart: `Tensor::to_vec`, `to_scalar`. Read next: parameter.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .autograd.entries import TapeEntry, tell
from .backend.base import Buffer, Device
from .dtypes import HALF, float32
from .errors import DTypeError, ShapeError

# What flamepy's own files use of a Tensor.
INTERNAL = {
    "as_cotangent", "broken", "buffer", "copied_into", "entry", "hooks", "label", "of", "ones_cotangent", "origin", "over", "slot",
    "spec", "unit", "zero_gradient",
}  # fmt: skip


class Readable:
    """The methods of Tensor that hand its numbers to Python."""

    if TYPE_CHECKING:
        buffer: Buffer
        device: Device
        dtype: np.dtype
        entry: TapeEntry | None
        requires_grad: bool
        shape: tuple[int, ...]

        @property
        def size(self) -> int: ...

    def numpy(self) -> np.ndarray:
        """A read-only view of the numbers, tracked or not."""
        tell((self,))
        return self.device.download(self.buffer).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy) if copy or dtype is not None else self.numpy()

    def __dlpack__(self, **options: Any) -> Any:
        tell((self,))
        return self.device.dlpack(self.buffer, self.shape).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack(self.buffer, self.shape).__dlpack_device__()  # type: ignore[no-any-return]

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError(f"__cuda_array_interface__: the tensor is on {self.device}. Use .numpy() or DLPack.")

    def item(self) -> Any:
        """The one element as a Python number."""
        if self.size != 1:
            raise ShapeError(f"item: needs one element: shape {self.shape}. Use .tolist() or .numpy().")
        return self.numpy().item()

    to_scalar = item

    def tolist(self) -> Any:
        return self.numpy().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.dtype.kind != "i":
            raise DTypeError(f"index: not an integer tensor: {self.dtype}. Cast it with .to(flamepy.int64).")
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len: a tensor without axes has no length: shape (). Use .size.")
        return self.shape[0]

    def __dir__(self) -> list[str]:
        """The names that are public, for completion."""
        return [n for n in super().__dir__() if n not in INTERNAL and (n[0] != "_" or n.startswith("__"))]

    def __repr__(self) -> str:
        body = np.array2string(self.numpy().astype(np.float32) if self.dtype in HALF else self.numpy(), separator=", ", prefix="tensor(")
        kind = "" if self.dtype == float32 else f", dtype={self.dtype}"
        source = f", op={self.entry.op.title}" if self.entry is not None else ", requires_grad=True" if self.requires_grad else ""
        return f"tensor({body}{kind}{source})"
