"""What one thread decides for itself: whether ops record, whether they are strict."""

from __future__ import annotations

import inspect
import threading
from contextlib import ContextDecorator
from typing import Any

from .errors import GradientError

LATER = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)  # their bodies run after the call


class Modes:
    """`recording`: whether ops on tracked tensors make entries; `strict`: whether an op without a derivative refuses a tracked input;
    `creating_graph`: whether a backward that is recorded runs."""

    __slots__ = ("creating_graph", "recording", "strict")

    def __init__(self) -> None:
        self.recording = self.strict = True
        self.creating_graph = False


class _Thread(threading.local):
    def __init__(self) -> None:  # runs in each thread
        self.modes = Modes()


thread = _Thread()


class Mode(ContextDecorator):
    """Sets one switch of this thread's state in a block or a decorated function."""

    def __init__(self, switch: str, value: bool):
        self.switch, self.value = switch, value
        self.before: list[bool] = []  # what it was, for each block that is open

    def __enter__(self) -> None:
        self.before.append(getattr(thread.modes, self.switch))
        setattr(thread.modes, self.switch, self.value)

    def __exit__(self, *exc: object) -> None:
        setattr(thread.modes, self.switch, self.before.pop())

    def __repr__(self) -> str:
        named = {("recording", False): "no_grad()", ("recording", True): "enable_grad()"}
        return named.get((self.switch, self.value), f"{self.switch}_mode({self.value})")

    def __call__(self, function: Any) -> Any:
        """As a decorator. Raises GradientError for a generator or coroutine."""
        if any([kind(function) for kind in LATER]):
            raise GradientError(f"{self}: not in core: a generator or coroutine decorated: {function.__name__}. Use the block inside it.")
        return super().__call__(function)

    def around(self, function: Any) -> Any:
        """The decorated function; itself for None."""
        return self if function is None else self(function)

    def _recreate_cm(self) -> Mode:
        return Mode(self.switch, self.value)


def no_grad(function: Any = None) -> Any:
    """Context manager and decorator, with or without parentheses: record nothing in this thread."""
    return Mode("recording", False).around(function)


def enable_grad(function: Any = None) -> Any:
    """Context manager and decorator, with or without parentheses: record again, inside no_grad()."""
    return Mode("recording", True).around(function)


def strict_mode(enabled: bool = True) -> Mode:
    """Context manager: whether an op that has no derivative refuses a tracked input (the default) or returns an untracked result."""
    return Mode("strict", enabled)
