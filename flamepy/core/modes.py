"""What one thread decides for itself: whether ops record, whether they are strict."""

from __future__ import annotations

import inspect
import threading
from contextlib import ContextDecorator
from functools import wraps
from typing import Any

from .errors import GradientError


class Modes:
    """`recording`: whether ops on tracked tensors make entries; `strict`: whether an op without a derivative refuses a tracked input;
    `blocks`: of each of these switches, [who set it, what was before]; `creating_graph`: whether a backward that is recorded runs."""

    __slots__ = ("blocks", "creating_graph", "recording", "strict")

    def __init__(self) -> None:
        self.recording = self.strict = True
        self.creating_graph = False
        self.blocks: dict[str, list[list[Any]]] = {"recording": [], "strict": []}


class _Thread(threading.local):
    def __init__(self) -> None:  # runs in each thread
        self.modes = Modes()


thread = _Thread()


class Mode(ContextDecorator):
    """Sets one switch of this thread's state in a block or a decorated function."""

    def __init__(self, switch: str, value: bool):
        self.switch, self.value = switch, value

    def __enter__(self) -> None:
        modes = thread.modes
        modes.blocks[self.switch].append([self, getattr(modes, self.switch)])
        setattr(modes, self.switch, self.value)

    def __exit__(self, *exc: object) -> None:
        """Back to what was before. Where a generator or a coroutine stopped in this block, one that began later may still be open: then
        that one goes back to it. A block that began in another thread is no business of this one."""
        modes = thread.modes
        blocks = modes.blocks[self.switch]
        for i in reversed(range(len(blocks))):
            if blocks[i][0] is self:
                _, before = blocks.pop(i)
                if i < len(blocks):
                    blocks[i][1] = before
                else:
                    setattr(modes, self.switch, before)
                return

    def __repr__(self) -> str:
        named = {("recording", False): "no_grad()", ("recording", True): "enable_grad()"}
        return named.get((self.switch, self.value), f"{self.switch}_mode({self.value})")

    def _recreate_cm(self) -> Mode:
        return Mode(self.switch, self.value)

    def __call__(self, function: Any) -> Any:
        """As a decorator. The body of a generator has the mode while it runs, and the caller in between its own. GradientError for a
        coroutine: others run in its thread while it waits."""
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            what = f"a coroutine cannot be decorated: {function.__name__}"
            raise GradientError(f"no_grad: {what}. Use the context inside, around what awaits nothing.")
        if not inspect.isgeneratorfunction(function):
            return super().__call__(function)

        @wraps(function)
        def generator(*args: Any, **options: Any) -> Any:
            running = function(*args, **options)
            resume, given = running.send, None
            try:
                while True:
                    with self._recreate_cm():
                        found, given = resume(given), None
                    try:
                        resume, given = running.send, (yield found)
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        resume, given = running.throw, error
            except StopIteration as end:
                return end.value
            finally:
                with self._recreate_cm():
                    running.close()

        return generator


def no_grad(function: Any = None) -> Any:
    """Context manager and decorator, with or without parentheses: record nothing in this thread."""
    return _switched(False, function)


def enable_grad(function: Any = None) -> Any:
    """Context manager and decorator, with or without parentheses: record again, inside no_grad()."""
    return _switched(True, function)


def _switched(value: bool, function: Any) -> Any:
    mode = Mode("recording", value)
    return mode if function is None else mode(function)


def strict_mode(enabled: bool = True) -> Mode:
    """Context manager: whether an op that has no derivative refuses a tracked input (the default) or returns an untracked result."""
    return Mode("strict", enabled)


def is_grad_enabled() -> bool:
    """Whether this thread records."""
    return thread.modes.recording
