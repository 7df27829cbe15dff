"""Planned calls written out: the function around the lines that a backend has for a chain of launches.

These functions run for every op of an eager program, so there is nothing in them that was known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def written(lines: Sequence[str], names: Sequence[str], found: Sequence[str] = ()) -> Any:
    """make(direct, slow, *names) -> run(memory), which does `lines`; while somebody records, slow(memory). What the lines find once is
    kept under the names `found`, None at first."""
    text = f"def make(direct, slow, {', '.join([*names, *[f'{name}=None' for name in found]])}):\n"
    text += "    device = direct.device\n    def run(memory):\n" + (f"        nonlocal {', '.join(found)}\n" if found else "")
    text += "        if device.stream is not direct:\n            return slow(memory)\n"
    text += "".join([f"        {line}\n" for line in lines]) + "    return run\n"
    known: dict[str, Any] = {}
    exec(compile(text, __file__, "exec"), known)  # under this name, so that a search for the user's line skips it
    return known["make"]
