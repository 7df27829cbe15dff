"""Run: a recorded step as one call, which a replay makes. This one makes its calls one after the other. And a kind of check.

A backend may do better: cpu/walk.py (compiled code walks a list of launches), cuda/stream.py (a CUDA graph). Read next: base.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class Required:
    """A check that does nothing but raise: unless the first numbers of its buffers are `within` their (low, high), which a backend may
    find out for itself. `fault`: where it has done so already."""

    __slots__ = ("check", "fault", "within")

    def __init__(self, check: Callable[..., None], within: Sequence[tuple[float, float]], fault: Any = None):
        self.check, self.within, self.fault = check, within, fault

    def __call__(self, *buffers: Any) -> None:
        self.check(*buffers)


class Run:
    """Calls one after the other. `reached` says how many of them had begun when the last run ended, in whichever way. `waits`: whether
    device.look() must come before the next run, which overwrites what the checks of this one look at."""

    waits = False

    def __init__(self, calls: list[tuple[Callable[..., Any], tuple]]):
        self.calls = calls
        self.rest = iter(calls)

    def __call__(self, undo: Callable[[int], Any] | None = None) -> None:
        """`undo`: called when a check that is looked at after this has returned fails, with how many calls had begun before it."""
        self.rest = rest = iter(self.calls)
        for call, arguments in rest:
            call(*arguments)

    @property
    def reached(self) -> int:
        return len(self.calls) - self.rest.__length_hint__()  # type: ignore[attr-defined]
