"""The bus that core begins (core/changes.py), with all that a recorded step depends on, and does to the host's own state.

Capture listens while a step is recorded, and so do devices whose checks come late.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from .core.changes import Topic as Topic
from .core.changes import changed as changed
from .core.changes import heard as heard


class Settings:
    """`version`: another number after each change that anybody has told of."""

    version = 0
    another = itertools.count(1).__next__

    def hear(self, owner: Any) -> None:
        self.version = self.another()


class Before(Topic):
    """(act): do something with host state alone, now and before each replay of the step that this thread records."""

    def __call__(self, act: Callable[[], Any]) -> None:
        for hear in tuple(self):
            hear(act)
        act()


class Here(threading.local):
    """`step`: the number of the recorded step that this thread is in, another one for each call; 0 outside of any."""

    step = 0


settings = Settings()
changed.append(settings.hear)
before = Before()
# (owner, what, read, live): a setting is read that is not in a buffer: read() gives it, `what` says which of the owner's it is; `live`: it
# may change without changed(). (owner) alone: whatever matters in a module or a leaf. Owner None: a value of Python's, as it is now.
seen = Topic()
assigned = Topic()  # (owner, attribute): an attribute that holds a tensor or None is about to be set: a replay must set it, too
outside = Topic()  # (text): what no recorded step can do: who records one raises CaptureError with this text
here = Here()
