"""The bus: what others may depend on says here that it is another now. Nobody here knows who listens.

Listeners put their functions in from above. Where there are none, telling costs a look at an empty list.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

_next = itertools.count(1).__next__


class Topic(list[Callable[..., Any]]):
    """The functions that hear of one thing: calling the topic calls them."""

    def __call__(self, *what: Any) -> None:
        for hear in self:
            hear(*what)


class Changed(Topic):
    """`version`: another number after each change."""

    version = 0

    def __call__(self, owner: Any) -> None:
        self.version = _next()
        for hear in self:
            hear(owner)


changed = Changed()  # (owner): it is another now: whether a leaf requires grad, where memory lies, a mode, an attribute, an option
