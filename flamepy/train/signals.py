"""Ctrl-C, SIGTERM and a closed terminal: end well, or at once when asked twice.

While a command prepares, the first signal raises Interrupted. Inside `with stop.gently():` it only sets a flag, so that the
loop can finish its step and save. The second signal always ends the process on the spot; files.py sees to it that
nothing is half-written even then.

Read next: loop.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

from .problems import Interrupted

SHOW_CURSOR = b"\x1b[?25h"  # the live display hides it


class StopRequest:
    """Remembers the first signal; use as a context manager around a command."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.gentle = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)  # Windows has no SIGHUP
            if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):  # nohup stays nohup
                continue
            self.before[number] = signal.signal(number, self.handle)
        return self

    def __exit__(self, *exc: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            if os.isatty(2):
                os.write(2, SHOW_CURSOR)
            os._exit(128 + number)
        self.number = number
        if not self.gentle:
            raise Interrupted(number)

    def __bool__(self) -> bool:
        """Has a signal arrived?"""
        return self.number is not None

    @contextlib.contextmanager
    def gently(self) -> Iterator[None]:
        """Inside, a signal waits until somebody looks."""
        self.gentle = True
        try:
            yield
        finally:
            self.gentle = False
