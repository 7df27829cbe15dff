"""What launches find out for the host: looked at when the host reads something, or when much is waiting; nothing else waits for it.

A check that fails so raises late, so each thread has a mark in the GPU's memory, its fault: what a check requires is compared on the GPU
as well (spans.py), and while the fault is set no parameter is updated. When the check has raised, what was counted in vain since is taken
back, and the fault is cleared. Checks of other threads stay as they are. Averages of parameters take nothing in; sums of gradients refuse
to go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....dtypes import computed
from ...base import Buffer
from ...run import Required

MOST = 64  # that wait
INT32 = np.dtype("int32")


class Waiting(NamedTuple):
    check: Callable[..., None] | None
    buffers: Sequence[Buffer]
    undo: Callable[[], None] | None  # for what was counted meanwhile
    fault: Buffer  # what was asked for after it, in the same thread, is dropped when it raises


Begun = tuple[Sequence[Waiting], dict[int, Callable[[], np.ndarray]]]


class Late:
    """The checks of a device that wait."""

    nothing: Begun = ((), {})

    def __init__(self, device: Any):
        self.device = device
        self.waiting: list[Waiting] = []
        self.looking = False
        self.local = threading.local()

    def fault(self) -> Buffer:
        """This thread's: one number, 0 while all is well."""
        try:
            return self.local.fault  # type: ignore[no-any-return]
        except AttributeError:
            fault = self.local.fault = self.device.direct.empty(1, INT32)
            self.clear(fault)
            return fault

    def clear(self, fault: Buffer) -> None:
        self.device.driver.upload(fault.data, np.zeros(1, INT32))

    def compare(self, fault: Buffer, buffer: Buffer, low: float, high: float) -> None:
        """Have the GPU set the fault unless low <= buffer[0] <= high."""
        dtype = computed(buffer.dtype)
        limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        least, most = (end.item() if dtype.kind == "f" else end for end in (limits.min, limits.max))
        ends = [dtype.type(min(max(end, least), most)) for end in (low, high)]
        self.device.launch("fault", None, (fault,), (buffer,), ends, dtype)

    def add(self, check: Callable[..., None], buffers: Sequence[Buffer], undo: Callable[[], None] | None = None) -> None:
        self.waiting.append(Waiting(check, buffers, undo, check.fault if isinstance(check, Required) else self.fault()))
        if len(self.waiting) > MOST:
            self.device.synchronize()

    def remember(self, owner: Any) -> None:
        """How to take back what is done to host state while checks wait. Objects that have such state have saved() and restore()."""
        fault = self.fault()
        if hasattr(owner, "saved") and any([w.fault is fault for w in self.waiting]):
            self.waiting.append(Waiting(None, (), partial(owner.restore, owner.saved()), fault))

    def begin(self) -> Begun:
        """Begin to copy what the checks that wait will read: the fault alone of those that do nothing but raise."""
        if not self.waiting or self.looking:
            return self.nothing
        waiting, reads, found = tuple(self.waiting), {}, {}
        for w in waiting:
            only = isinstance(w.check, Required)
            for b in (w.fault,) if only else w.buffers:
                if id(b) not in reads:
                    reads[id(b)] = self.device.reading(b)
                found[id(w if only else b)] = reads[id(b)]
        return waiting, found

    def known(self, buffer: Buffer) -> Callable[[], np.ndarray] | None:
        """What reads a buffer that this thread's look() has there."""
        return self.local.__dict__.get("begun", self.nothing)[1].get(id(buffer))

    def look(self, begun: Begun) -> None:
        """Make the checks that wait. What they read is there by then, where they had `begun` to wait."""
        if self.looking:
            return
        self.looking = True
        self.local.begun = begun  # with what its keys are the ids of
        try:
            while self.waiting:
                first = self.waiting.pop(0)
                if first.check is not None:
                    self.make(first)
        finally:
            self.looking = False
            self.local.begun = self.nothing

    def make(self, first: Waiting) -> None:
        """Make a check; where it fails, as if nothing after it had been done."""
        try:
            assert first.check is not None
            fault = self.local.begun[1].get(id(first))
            if fault is None or fault()[0]:  # else the GPU has made the check
                first.check(*first.buffers)
        except BaseException:
            later = [w for w in self.waiting if w.fault is first.fault]
            self.waiting[:] = [w for w in self.waiting if not any([w is x for x in later])]
            for w in [*reversed(later), first]:
                if w.undo is not None:
                    w.undo()
            self.clear(first.fault)
            raise
