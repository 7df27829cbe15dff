"""Run: a recorded step as one call, which a replay makes. This one makes its calls one after the other. And a kind of check.

A backend may do better: cpu/runtime/walk.py (compiled code walks a list of launches), cuda/stream.py (a CUDA graph).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One launch. Arguments are buffers (or what stands for them), numbers, None."""

    kernel: Any
    outs: Sequence[Any]
    ins: Sequence[Any]
    consts: Sequence[Any]


class Spot(NamedTuple):
    """Stands in a recorded launch for a buffer that is another one each time."""

    number: int
    offset: int = 0  # in bytes, where only a part of the buffer is meant
    size: int = -1
    dtype: Any = None


def resolve(place: Any, memory: Any) -> Any:
    """What a spot stands for when the numbered buffers are these; anything else as it is."""
    if type(place) is not Spot:
        return place
    whole = memory[place.number]
    return whole if place.size < 0 else whole.device.slot(whole, place.offset, place.size, place.dtype)


class Action(NamedTuple):
    """Something for the host to do: fill buffers[0] with what act() returns (`early`: before all launches), or act(*buffers)."""

    act: Any  # a function, or Required
    buffers: Sequence[Any]
    early: bool

    def call(self) -> None:
        if not self.early:
            self.act(*self.buffers)
        elif self.buffers:
            self.buffers[0].device.write(self.buffers[0], self.act())
        else:
            self.act()

    def prepared(self) -> Callable[[], Any]:
        """call() of an early action, to be called often."""
        return self.buffers[0].device.direct.writer(self.buffers[0], self.act) if self.buffers else self.act


class Required:
    """A check that does nothing but raise: unless the first numbers of its buffers are `within` their (low, high), which a backend may
    find out for itself. `fault`: where it has done so already."""

    __slots__ = ("check", "fault", "within")

    def __init__(self, check: Callable[..., None], within: Sequence[tuple[float, float]], fault: Any = None):
        self.check, self.within, self.fault = check, within, fault

    def __call__(self, *buffers: Any) -> None:
        self.check(*buffers)

    def holds(self, buffers: Sequence[Any]) -> bool:
        """Whether these buffers, which are arrays of the host, are as they should be: then the check need not be called."""
        for b, (low, high) in zip(buffers, self.within, strict=False):
            if b.data.dtype is not b.dtype or not low <= b.data.item(0) <= high:  # perhaps the bits of 16-bit floats
                return False
        return True


class OnArrays:
    """What the host computes between launches, as an Action: `on_arrays` takes what the buffers hold, flat, and writes the first ones."""

    on_arrays: Callable[..., None]

    def __call__(self, *buffers: Any) -> None:
        self.on_arrays(*[b.data for b in buffers])


class Run:
    """Calls one after the other. `begun` says how many of them have: who runs it sets that to 0 before, as Ctrl-C may come before the
    first line of a function. `waits`: whether device.look() must come before the next run, which overwrites what the checks of this one
    look at."""

    waits = False

    def __init__(self, calls: list[tuple[Callable[..., Any], tuple]]):
        self.calls = calls
        self.begun = ctypes.c_int64()

    def __call__(self, undo: Callable[[Any, int], Any] | None = None, states: Any = None) -> None:
        """`undo`: called when a check that is looked at after this has returned fails, with the states and how many calls had begun
        before it."""
        for n, (call, arguments) in enumerate(self.calls, 1):
            self.begun.value = n
            call(*arguments)
