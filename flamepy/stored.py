"""What becomes a module's buffer: a Stored tensor (core/parameter.py), which is written in place, in memory of its own."""

from __future__ import annotations

import sys
from typing import Any

from .bus import changed
from .core.errors import DTypeError
from .core.parameter import Stored as Stored
from .reading import ALONE
from .tensors import Tensor


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
