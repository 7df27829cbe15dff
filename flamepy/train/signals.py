"""Ctrl-C, SIGTERM and a closed terminal: end well, or at once when asked twice.

While a command prepares, the first signal raises Interrupted. Inside `with stop.gently():` it only sets a flag, so that the
loop can finish its step and save; inside `with stop.between_kernels():` the end of a compilation is early enough. The second
signal always ends the process on the spot, and says where the checkpoint is; ../disk.py sees to it that nothing is half-written
even then.

Python runs a signal's handler between two lines of the main thread, and LLVM can keep that thread for seconds. So a thread of our
own is woken by the signal itself: it answers when nothing has happened for a moment, and ends the process when asked twice.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ..backend.formula import bind
from .problems import Interrupted

SHOW_CURSOR = b"\x1b[?25h"  # the live display hides it
PATIENCE = 0.15  # seconds: who has stopped by then needs no answer


class StopRequest:
    """Remembers the first signal; use as a context manager around a command."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.gentle = False
        self.at_kernels = False
        self.told = False  # whether the person knows that the signal was heard
        self.last_words: Callable[[], str] = str  # what the second signal leaves to say
        self.leaving = threading.Lock()
        self.before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        self.forget = bind.after_kernel(self.kernel_made)
        self.ear, self.bell = socket.socketpair()  # no pipe: Windows can wait for sockets only
        self.bell.setblocking(False)
        self.bell_before = signal.set_wakeup_fd(self.bell.fileno(), warn_on_full_buffer=False)
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
            number = getattr(signal, name, None)  # SIGBREAK is Windows's, which has no SIGHUP
            if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):  # nohup stays nohup
                continue
            self.before[number] = signal.signal(number, self.handle)
        return self

    def __exit__(self, *exc: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.bell_before)
        self.bell.close()
        self.listener.join()
        self.ear.close()
        self.forget()

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None:
            self.leave(number)
        self.number = number
        if not self.gentle:
            raise Interrupted(number)

    def listen(self) -> None:
        """The thread that hears each signal as it arrives: a byte with its number."""
        heard = self.ear.recv(1)
        if not heard:
            return
        again = not self.awaits_kernel() and select.select([self.ear], [], [], PATIENCE)[0]
        if not again and not self.told:
            answer(self.what_ends())
        heard = self.ear.recv(1)
        if heard:
            self.leave(heard[0])

    def awaits_kernel(self) -> bool:
        """Whether the compilation that is under way is all that has to end."""
        return bind.is_making_kernel() and (self.at_kernels or not self.gentle)

    def what_ends(self) -> str:
        if self.awaits_kernel():
            return "stopping after this kernel; again: quit at once"
        return f"stopping{' when this is done and saved' if self.gentle else ''}; again: quit at once"

    def leave(self, number: int) -> None:
        """End the process, from whichever thread comes first."""
        if self.leaving.acquire(blocking=False):
            if sys.stderr is not None and os.isatty(2):
                os.write(2, SHOW_CURSOR)
            answer(self.last_words())
            os._exit(128 + number)

    def kernel_made(self) -> None:
        if self.number is not None and self.at_kernels:
            raise Interrupted(self.number)

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

    @contextlib.contextmanager
    def between_kernels(self, allowed: bool) -> Iterator[None]:
        """Inside, if allowed, a signal that waits raises Interrupted as soon as a kernel is made."""
        self.at_kernels = allowed
        try:
            yield
        finally:
            self.at_kernels = False


def answer(text: str) -> None:
    """A line for the person at the keyboard, whatever the main thread does."""
    if text and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr, flush=True)
