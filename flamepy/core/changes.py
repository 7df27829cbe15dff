"""The bus: who changes a setting that others may depend on says so here. It costs a look at an empty list where nobody listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

listeners: list[Callable[[Any], None]] = []


def changed(owner: Any) -> None:
    """`owner` is another now: a leaf requires grad or not, or lies in other memory."""
    for listen in listeners:
        listen(owner)
