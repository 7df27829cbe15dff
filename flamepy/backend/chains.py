"""Planned calls written out: the function around the lines that a backend has for a chain of launches.

These functions run for every op of an eager program, so there is nothing in them that was known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def written(lines: Sequence[str], names: Sequence[str]) -> Any:
    """make(direct, slow, *names) -> run(memory), which does `lines`; while somebody records, slow(memory)."""
    text = f"def make(direct, slow, {', '.join(names)}):\n    device = direct.device\n    def run(memory):\n"
    text += "        if device.stream is not direct:\n            return slow(memory)\n"
    text += "".join([f"        {line}\n" for line in lines]) + "    return run\n"
    found: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), found)  # under this name, so that a search for the user's line skips it
    return found["make"]
