"""The bus: what a recorded step depends on, and does to the host's own state, says so here. Nobody asks who listens.

Listeners put their functions in from above: capture while a step is recorded, devices whose checks come late. Where there are none,
telling costs a look at an empty list (and `if seen:`, where much is called, that look alone).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

_next = itertools.count(1).__next__


class Topic(list[Callable[..., Any]]):
    """The functions that hear of one thing: calling the topic calls them."""

    def __call__(self, *what: Any) -> None:
        for hear in tuple(self):  # another thread may join or leave meanwhile
            hear(*what)


class Changed(Topic):
    """(owner): it is another now: whether a leaf requires grad, where memory lies, a mode, an attribute, an option. `version`: another
    number after each change."""

    version = 0

    def __call__(self, owner: Any) -> None:
        self.version = _next()
        for hear in tuple(self):
            hear(owner)


class Before(Topic):
    """(act): do something with host state alone, now and before each replay of the step that this thread records."""

    def __call__(self, act: Callable[[], Any]) -> None:
        for hear in tuple(self):
            hear(act)
        act()


class Here(threading.local):
    """`step`: the number of the recorded step that this thread is in, another one for each call; 0 outside of any."""

    step = 0


changed = Changed()
before = Before()
# (owner, what, read, live): a setting is read that is not in a buffer: read() gives it, `what` says which of the owner's it is; `live`: it
# may change without changed(). (owner) alone: whatever matters in a module or a leaf. Owner None: a value of Python's, as it is now.
seen = Topic()
assigned = Topic()  # (owner, attribute): an attribute that holds a tensor or None is about to be set: a replay must set it, too
# (op, its inputs, its results): an op has run, and is recorded; (None, what it was, None): the host has read tensors, numbers or data.
heard = Topic()
outside = Topic()  # (text): what no recorded step can do: who records one raises CaptureError with this text
here = Here()
