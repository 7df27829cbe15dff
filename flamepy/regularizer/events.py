"""Who is told of gradients: callbacks of a Pipeline or a GradientTracker.

    gradient.computed {total_norm, pipeline_size}      gradient.failed {duration, reason}

Telling must not stop a training step: what a callback raises becomes a FlameWarning.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from ..errors import warn

Callback = Callable[[str, dict[str, Any]], Any]


class Events:
    """The callbacks of one object."""

    def __init__(self) -> None:
        self.callbacks: list[list[Callback]] = []

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Have `callback(event, details)` called; returns a function that ends it. Raises TypeError for what cannot be called."""
        if not callable(callback):
            raise TypeError(f"subscribe: not a function: {type(callback).__name__}. Pass callback(event, details).")
        kept = [callback]  # an object of its own: one function may be subscribed twice
        self.callbacks = [*self.callbacks, kept]  # a new list: somebody may be going through the old one

        def end() -> None:
            self.callbacks = [c for c in self.callbacks if c is not kept]

        return end

    def tell(self, event: str, **details: Any) -> None:
        for (callback,) in self.callbacks:
            try:
                callback(event, dict(details))
            except Exception as error:
                what = f"subscribe: a callback failed: {event}: {type(error).__name__}: {error}. The step goes on without it."
                warn(what)

    def computed(self, total_norm: Any, size: int) -> None:
        """Tell of a norm; not while a step is recorded, when it is not known."""
        if isinstance(total_norm, float):
            self.tell("gradient.computed", total_norm=total_norm, pipeline_size=size)

    def failed(self, began: float, reason: str) -> None:
        """Tell of a failure; `began`: what perf_counter() said then."""
        self.tell("gradient.failed", duration=perf_counter() - began, reason=reason)
