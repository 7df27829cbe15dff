"""Says, once in a process, that kernels are being compiled, when that has taken a second: what is silent seems to hang.

A timer runs while Numba compiles, and at no other time: kernels from the cache cost nothing. Whoever listens to bind.on_compile(), as
`flamepy train` does, tells it better. Worker processes are silent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable
from threading import Timer

import numba

from ....errors import INSIDE, FlameWarning, users_frame
from ...formula import bind

AFTER = 1.0  # seconds of compiling
NO_USERS = *INSIDE, os.path.dirname(numba.__file__) + os.sep  # whose files are no user's


class Patience:
    """What is known of the compiling in this process. `folder`: gives the kernel cache's."""

    def __init__(self, folder: Callable[[], str], after: float = AFTER):
        self.folder, self.after = folder, after
        self.spent, self.began = 0.0, 0.0
        self.said = False
        self.timer: Timer | None = None

    def begin(self) -> None:
        """Numba begins to compile a kernel: one at a time, it has a lock."""
        if not self.said and not bind.listening() and not is_worker():
            self.began = time.perf_counter()
            frame, _ = users_frame(NO_USERS)
            self.timer = Timer(max(self.after - self.spent, 0.0), self.say, (frame.f_code.co_filename, frame.f_lineno))
            self.timer.daemon = True
            self.timer.start()

    def end(self) -> None:
        if (timer := self.timer) is not None:
            self.timer = None
            timer.cancel()
            timer.join()
            self.spent += time.perf_counter() - self.began

    def say(self, file: str, line: int) -> None:
        self.said = True
        text = (
            f"kernels are compiled for this processor, each once: the first calls wait for it; kept in {self.folder()}. "
            "`flamepy warmup` compiles those of training ahead of time."
        )
        with contextlib.suppress(FlameWarning):  # nobody could catch an error of this thread
            warnings.warn_explicit(text, FlameWarning, file, line)

    def forget(self) -> None:
        """In the child of a fork, which has no timer."""
        self.timer, self.said = None, True


def is_worker() -> bool:
    """Whether this process was started by multiprocessing."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None
