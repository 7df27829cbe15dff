"""Stored: a tensor that is written in place, in memory of its own: what a Parameter and a module's buffer have in common.

Everything else holds what it was made with. Each write bumps the version of the memory, so that backward() notices one that comes too
early, and a captured step records it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from .core.changes import changed
from .core.errors import DTypeError, ShapeError
from .core.tape import file_line, user_frame
from .reading import ALONE
from .tensors import Tensor, tensor


class Stored(Tensor):
    """See above. Made by register_buffer() of a Module, or a Parameter."""

    @property
    def label(self) -> str:
        """How an error text names it."""
        return self.name or f"tensor {self.id}"

    def set_data(self, data: Any) -> None:
        """Overwrite the numbers with data of this shape, cast to this dtype; a captured step does it in every replay. Raises ShapeError
        unless the shape is this one."""
        self._write(self._fitting("set_data", data, self.dtype), "set_data")

    def _fitting(self, name: str, data: Any, dtype: np.dtype) -> Tensor:
        """Data of this shape as a Tensor of `dtype`; itself if it is one."""
        t = data if isinstance(data, Tensor) else tensor(data, dtype, self.device)
        if t.shape != self.shape:
            raise ShapeError(f"{name}: shape differs for {self.label}: expected {self.shape}, got {t.shape}. Pass one of the same shape.")
        return t if t.dtype == dtype and t.device is self.device else t.detach().to(dtype, device=self.device)

    def _write(self, t: Tensor, by: str) -> None:
        if t.size:
            self.device.overwrite(self.buffer, t.buffer)
        self.buffer.wrote(f"{by} of {self.label} at {file_line(user_frame())}")


def store(owner: str, name: str, t: Any) -> None:
    """Make the tensor that becomes buffer `name` of a module a Stored one. Memory that it shares (with what detach() or a reshape was
    called on) becomes a copy, so that nothing else is written. One with a tape stays as it is: backward() may need its numbers. Raises
    DTypeError for what is neither a Tensor nor None."""
    if not isinstance(t, Tensor | None):
        what = f"a {type(t).__name__} in the place of a buffer: attribute '{name}'"
        raise DTypeError(f"{owner}: {what}. Assign a Tensor (None: there is none).")
    if type(t) is not Tensor or t.requires_grad:
        return
    if t.buffer.root is not None or sys.getrefcount(t.buffer) > ALONE:
        t.buffer = t.device.stream.copied(t.buffer)
    t.__class__ = Stored
    t.name = t.name or name
    changed(t)
