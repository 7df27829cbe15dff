"""The bus: what others may have to know of is said here, and nobody asks who listens.

Listeners put their functions in from above; where there are none, telling costs a look at an empty list (and `if heard:`, where much is
called, that look alone).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Topic(list[Callable[..., Any]]):
    """The functions that hear of one thing: calling the topic calls them."""

    def __call__(self, *what: Any) -> None:
        for hear in tuple(self):  # another thread may join or leave meanwhile
            hear(*what)


changed = Topic()  # (owner): it is another now: whether a leaf requires grad, where memory lies, a mode, an attribute, an option
# (op, its inputs, its results): an op has run, and is recorded; (None, what it was, None): the host has read tensors, numbers or data.
heard = Topic()
