"""flamepy.nn.functional: every op that belongs to networks, without parameters. Conventionally imported as F.

An op names its home where it is defined, so nothing is listed here.

Read next: ../optimizers/base.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import ops as ops  # importing them registers them
from ..op.base import HOMES, PUBLIC

globals().update({name: function for name, function in PUBLIC.items() if HOMES[name] in ("functional", "both")})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
