"""Callbacks: functions that a run calls at its events, with the Loop and what has just happened.

step          a Row: step, loss, smoothed, lr, grad_norm; after each step, before its checkpoint
validation    a dict of what was found
checkpoint    the path of the checkpoint just written
backward      the GradientMap before clipping      these three are inside of a step: with one
clip          the ClipResult                       of them, steps are not recorded and replayed
optimizer     the GradientMap after the update
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import DTypeError
from .problems import InputError, meant

INSIDE = ("backward", "clip", "optimizer")
EVENTS = ("step", "validation", "checkpoint", *INSIDE)


class CallbackError(Exception):
    """What a callback raised, on its way to where the run is saved."""

    def __init__(self, event: str, error: BaseException):
        super().__init__(event)
        self.event, self.error = event, error


class Events:
    """Who wants to be called at which event."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Callable[[Any, Any], Any]]] = {}
        self.late: CallbackError | None = None  # raised after the update, when the step has to be finished first

    def on(self, event: str, callback: Callable[[Any, Any], Any]) -> None:
        if event not in EVENTS:
            raise InputError(f"Trainer.on: no such event: {event!r}. {meant(str(event), EVENTS)}")
        if not callable(callback):
            raise DTypeError(f"Trainer.on: not a function: {callback!r}. Pass a function of (run, value).")
        self.callbacks.setdefault(event, []).append(callback)

    @property
    def inside(self) -> bool:
        """Whether somebody wants to be called inside of a step."""
        return any([event in self.callbacks for event in INSIDE])

    def fire(self, event: str, run: Any, value: Any) -> None:
        """Call them in order. What one raises ends the run: CallbackError."""
        for callback in self.callbacks.get(event, ()):
            try:
                callback(run, value)
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                failed = CallbackError(event, error)
                if event == "optimizer":
                    self.late = self.late or failed
                    return
                raise failed from error

    def raise_late(self) -> None:
        """Raise what the step had to be finished for."""
        late, self.late = self.late, None
        if late is not None:
            raise late
